"""The release of one window, event by event: matching, repair by iteration, binding causes, verdicts.

Everything is an object, a dict or a loop. What the real merge does with arrays, this does in the order in which
the contract says it.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from schemas import columns as c
from tests.naive.clocks import Chain, diff_bound, verdict
from tests.naive.log import End
from tests.naive.states import Row as Sample

DEVICE = {c.GpuKind.KERNEL, c.GpuKind.MEMCPY, c.GpuKind.MEMSET, c.GpuKind.COLLECTIVE}
FULL = {c.Op.ALL_REDUCE, c.Op.ALL_GATHER, c.Op.REDUCE_SCATTER, c.Op.BARRIER, c.Op.ALL_TO_ALL}
FROM_ROOT, TO_ROOT = {c.Op.BROADCAST, c.Op.SCATTER}, {c.Op.REDUCE, c.Op.GATHER}
Identity = tuple[str, int, int]  # source, incarnation, sequence number


class Cyclic(Exception):
    """The constraints contradict one another: there is no least order."""


@dataclass(eq=False)
class Event:
    """An accepted row. `time_ns` is mapped; `order_ns` and `order_end_ns` are what repair made of its points."""

    id: Identity
    time_ns: int
    length_ns: int
    chain: Chain | None  # as stated
    ordered: bool
    device: bool
    loose: bool
    place: tuple[int, int]  # record, row
    ends: tuple[End, ...]
    order_ns: int = 0
    order_end_ns: int = 0
    window_ns: int | None = None  # start of the window it left with
    told: Sample | None = None  # of the clock family
    held: Chain | None = None  # what holds of its clock, as of the window that it left with

    def mapped(self, is_end: bool) -> int:
        return self.time_ns + (self.length_ns if is_end else 0)

    def order(self, is_end: bool) -> int:
        return self.order_end_ns if is_end else self.order_ns


@dataclass(eq=False)
class Waiting:
    """An endpoint of an event, which waits for its other side."""

    event: Event
    end: End
    left: int  # effects that a cause still waits for
    used: bool = False

    @property
    def at_end(self) -> bool:
        return self.end.point == c.Point.END


@dataclass(frozen=True)
class Edge:
    """An edge that is out."""

    kind: int
    op: int
    group: str | None
    key: int
    cause: Identity
    cause_point: int
    effect: Identity
    effect_point: int
    gap_ns: int
    bound_ns: int | None
    verdict: int
    assumed: bool
    effect_ns: int
    effect_duration_ns: int
    size: int
    missing: int


@dataclass
class Out:
    """What a window puts out."""

    start_ns: int
    end_ns: int
    rows: list[tuple[Identity, int, int, tuple[Identity, int, int] | None]] = field(default_factory=list)
    edges: list[Edge] = field(default_factory=list)
    raw: Counter[int] = field(default_factory=Counter)
    after: Counter[int] = field(default_factory=Counter)
    unrepaired: int = 0
    unmatched: Counter[tuple[int, int]] = field(default_factory=Counter)
    incomplete: int = 0
    unknown: int = 0
    late: int = 0
    released_past: int = 0
    policy: int = 0


def groups_of(ends: Iterable[Waiting]) -> dict[tuple[int, int], list[Waiting]]:
    """Endpoints by (kind, key)."""
    out: dict[tuple[int, int], list[Waiting]] = {}
    for waiting in ends:
        out.setdefault((waiting.end.kind, waiting.end.key), []).append(waiting)
    return out


def is_join(group: list[Waiting]) -> bool:
    return any(w.end.role in (c.Role.MEMBER, c.Role.ROOT) for w in group)


def pairs(group: list[Waiting]) -> list[tuple[Waiting, Waiting]]:
    return [(a, b) for a in group if a.end.role == c.Role.CAUSE for b in group if b.end.role == c.Role.EFFECT]


def sides(group: list[Waiting]) -> tuple[list[Waiting], list[Waiting]]:
    """Members whose begins are causes, and those whose ends are effects."""
    op = group[0].end.op
    root = [w for w in group if w.end.role == c.Role.ROOT]
    if op in FULL:
        return group, group
    if op in FROM_ROOT:
        return root, group
    if op in TO_ROOT:
        return group, root
    return [], []


def greatest(causes: Iterable[tuple[int, Waiting]]) -> Waiting | None:
    """The cause with the greatest time; ties by source name, incarnation, sequence number."""
    best = min(causes, key=lambda entry: (-entry[0], entry[1].event.id), default=None)
    return None if best is None else best[1]


def chained(event: Event, before: Event) -> bool | None:
    """Program order from the row before: None none, False begin to begin, True end to begin."""
    if not event.ordered:
        return None
    apart = event.time_ns >= before.time_ns + before.length_ns
    return event.device and before.device and apart and not event.loose and not before.loose


def repair(
    own: list[Event], groups: list[list[Waiting]], floor_ns: int, tails: dict[tuple[str, int], Event]
) -> None:
    """The least order that respects every constraint on the points of `own`, by iterating until nothing moves.

    `tails`: the last row of each source that has left.
    """
    mine = set(map(id, own))
    before: dict[int, Event] = {}
    latest = dict(tails)
    for event in sorted(own, key=lambda event: event.id):
        if event.id[:2] in latest:
            before[id(event)] = latest[event.id[:2]]
        latest[event.id[:2]] = event
    for event in own:
        event.order_ns = floor_ns if event.loose else max(event.time_ns, floor_ns)
        event.order_end_ns = event.order_ns + event.length_ns
    for _ in range(6 * len(own) + 10):
        moved = False

        def push(event: Event, is_end: bool, least: int) -> None:
            nonlocal moved
            if event.order(is_end) < least:
                moved = True
                if is_end:
                    event.order_end_ns = least
                else:
                    event.order_ns = least

        for event in own:
            if id(event) in before:
                link = chained(event, before[id(event)])
                if link is not None:
                    push(event, False, before[id(event)].order(link))
            push(event, True, event.order_ns + event.length_ns)
        for group in groups:
            if is_join(group):
                causes, effects = sides(group)
                for effect in effects:
                    others = [w.event.order_ns for w in causes if w is not effect]
                    if others and id(effect.event) in mine:
                        push(effect.event, True, max(others) + 1)
            else:
                for cause, effect in pairs(group):
                    if id(effect.event) in mine:
                        push(effect.event, effect.at_end, cause.event.order(cause.at_end) + 1)
        if not moved:
            return
    raise Cyclic


def judge(
    cause: Event, cause_end: bool, effect: Event, effect_end: bool, epsilon: float
) -> tuple[int, int | None, int]:
    """(gap, bound, verdict) of an edge by mapped times."""
    gap = effect.mapped(effect_end) - cause.mapped(cause_end)
    bound = diff_bound(
        cause.held, cause.mapped(cause_end), cause_end and cause.length_ns > 0,
        effect.held, effect.mapped(effect_end), effect_end and effect.length_ns > 0, epsilon,
    )  # fmt: skip
    return gap, bound[0], verdict(gap, bound)


def binding(event: Event, groups: list[list[Waiting]], epsilon: float) -> tuple[Identity, int, int] | None:
    """The row's binding cause, its point, and the verdict of that edge."""
    found: list[tuple[int, Identity, bool, bool, Event]] = []
    for group in groups:
        if is_join(group):
            causes, effects = sides(group)
            for effect in effects:
                if effect.event is event:
                    best = greatest((w.event.order_ns, w) for w in causes if w is not effect)
                    if best is not None:
                        found.append((-best.event.order_ns, best.event.id, False, True, best.event))
        else:
            for cause, effect in pairs(group):
                if effect.event is event:
                    at = cause.event.order(cause.at_end)
                    found.append((-at, cause.event.id, cause.at_end, effect.at_end, cause.event))
    if not found:
        return None
    _, name, cause_end, effect_end, cause_event = min(found, key=lambda entry: entry[:4])
    return name, int(cause_end), judge(cause_event, cause_end, event, effect_end, epsilon)[2]


def conclude(
    out: Out, groups: list[list[Waiting]], start_ns: int | None, oldest_ns: int | None, epsilon: float
) -> list[Waiting]:
    """Put out the edges whose rows have all left; gives what stays pending. `oldest_ns` None: all is given up."""
    pending: list[Waiting] = []
    for group in groups:
        gone = [w for w in group if w.event.window_ns is not None]
        newest = max(w.event.mapped(True) for w in group)
        expired = len(gone) == len(group) and (oldest_ns is None or newest < oldest_ns)
        keep = list(gone)
        if is_join(group):
            expected = max(w.end.size for w in group)
            whole = len(gone) == len(group) and 0 < expected <= len(group)
            if whole or expired:
                if not whole and expected != len(group):
                    out.incomplete += 1
                keep = []
                causes, effects = sides(group)
                out.unknown += not (causes and effects) and (whole or expected == len(group))
                for effect in effects:
                    best = greatest((w.event.time_ns - _bound(w.event), w) for w in causes if w is not effect)
                    if best is not None:
                        missing = max(0, expected - len(group))
                        _edge(out, best, False, effect, True, len(group), missing, epsilon)
        else:
            for cause, effect in pairs(gone):
                _edge(out, cause, cause.at_end, effect, effect.at_end, 0, 0, epsilon)
                if effect in keep:
                    keep.remove(effect)
                cause.left -= 1
                cause.used = True
            keep = [w for w in keep if not w.used or w.left > 0]
        if expired:
            for w in keep:
                if not w.used:
                    out.unmatched[int(w.end.kind), int(w.end.role != c.Role.CAUSE)] += 1
            keep = []
        pending += keep
    return pending


def _bound(event: Event) -> int:
    return 0 if event.held is None else event.held.to_tai(event.time_ns) or 0


def _edge(
    out: Out, cause: Waiting, cause_end: bool, effect: Waiting, effect_end: bool, size: int, missing: int,
    epsilon: float,
) -> None:  # fmt: skip
    gap, bound, says = judge(cause.event, cause_end, effect.event, effect_end, epsilon)
    kind = int(cause.end.kind)
    assert cause.event.window_ns is not None
    assert effect.event.window_ns is not None
    unrepaired = effect.event.window_ns < cause.event.window_ns
    out.unrepaired += unrepaired
    out.raw[kind] += gap < 0
    out.after[kind] += not unrepaired and effect.event.order(effect_end) <= cause.event.order(cause_end)
    out.edges.append(
        Edge(
            kind, int(effect.end.op), effect.end.group, effect.end.key, cause.event.id, int(cause_end),
            effect.event.id, int(effect_end), gap, bound, int(says), cause.end.assumed or effect.end.assumed,
            effect.event.mapped(effect_end), effect.event.length_ns, size, missing,
        )
    )  # fmt: skip
