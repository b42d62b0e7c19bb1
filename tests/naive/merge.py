"""The merge as the contract words it, one event at a time. Slow, and meant to be obvious.

What comes out is compared by scope: windows with their rows in order, edges as a set, counters, progress.
"""

from collections import Counter
from dataclasses import dataclass, field

from schemas import columns as c
from schemas.time import append_to_tai
from streams.causality.settings import MergeSettings
from tests.naive.clocks import Chain, chain_of
from tests.naive.log import Message, Post, numbers
from tests.naive.samples import judge, sample_of
from tests.naive.states import NaiveStates
from tests.naive.window import DEVICE, Event, Out, Waiting, binding, conclude, groups_of, repair

Key = tuple[str, int]  # source, incarnation


@dataclass(eq=False)
class Known:
    """A source of a scope."""

    rank: int | None
    host: str
    ordered: bool = False
    live: bool = False
    chain: Chain | None = None
    publisher: str = ""
    seen: int = -1
    watermark_ns: int | None = None
    skew_ns: int = 0
    final: bool = False
    last_window: int | None = None

    @property
    def placed(self) -> bool:
        return self.chain is not None and self.chain.line() is not None


@dataclass(eq=False)
class NaiveScope:
    """The state of a scope, and what it has put out."""

    first_ms: int
    last_ms: int
    states: NaiveStates
    sources: dict[Key, Known] = field(default_factory=dict)
    heard: dict[str, int] = field(default_factory=dict)  # append time of each publisher's last batch
    held: dict[int, list[Event]] = field(default_factory=dict)
    pending: list[Waiting] = field(default_factory=list)
    tails: dict[Key, Event] = field(default_factory=dict)  # last row of each source that has left
    released_to: int | None = None
    opened: bool = False
    ranks: int = 0
    hosts: int = 0
    joined: bool = False
    closed: bool = False
    late: int = 0
    duplicates: int = 0
    gaps: int = 0
    out: list[Out] = field(default_factory=list)
    progress: list[tuple[int, bool]] = field(default_factory=list)
    late_rows: list[tuple[str, int, int]] = field(default_factory=list)
    past: Counter[str] = field(default_factory=Counter)
    policies: dict[int, int] = field(default_factory=dict)  # version under which each open window was opened

    @property
    def rows(self) -> int:
        return sum(map(len, self.held.values()))


class NaiveMerge:
    """All scopes of a partition."""

    def __init__(self, settings: MergeSettings) -> None:
        self.settings = settings
        self.scopes: dict[str, NaiveScope] = {}
        self.ended: list[tuple[str, NaiveScope]] = []  # dropped after their time to live
        self.now_ms = -1
        self.offset = -1
        self.policy = 0

    def take(self, message: Message) -> None:
        """The next record of the log; afterwards every scope is looked at."""
        self.offset += 1
        self.now_ms = max(self.now_ms, message.append_ms)
        flush = False
        if isinstance(message, Post):
            scope = self._scope(message.scope, message.append_ms)
            self._post(scope, message)
        else:
            for kind, number, text in message.rows:
                if kind == c.Control.OPEN:
                    scope = self._scope(message.scope, message.append_ms)
                    scope.opened = True
                    if text == "hosts":
                        scope.hosts = max(scope.hosts, number or 0)
                    else:
                        scope.ranks = max(scope.ranks, number or 0)
                flush |= kind == c.Control.FLUSH
                if kind == c.Control.POLICY:
                    self.policy = number or 0
        for name, scope in list(self.scopes.items()):
            self._advance(scope, flush)
            if self.now_ms - scope.last_ms > self.settings.scope_ttl_ms and (
                scope.closed or not scope.sources
            ):
                self.ended.append((name, self.scopes.pop(name)))
        while sum(scope.rows for scope in self.scopes.values()) > self.settings.rows_held_max:
            self._shed(max(self.scopes.items(), key=lambda entry: (entry[1].rows, entry[0]))[1])

    def _shed(self, scope: NaiveScope) -> None:
        """The source furthest ahead loses its rows of the last window."""
        last = max(scope.held)
        furthest = max((event.time_ns, event.id[:2]) for event in scope.held[last])[1]
        gone = [event for event in scope.held[last] if event.id[:2] == furthest]
        scope.held[last] = [event for event in scope.held[last] if event.id[:2] != furthest]
        if not scope.held[last]:
            del scope.held[last]
            scope.policies.pop(last)
        scope.late += len(gone)
        scope.late_rows += [event.id for event in gone]

    def _scope(self, name: str, append_ms: int) -> NaiveScope:
        states = NaiveStates(self.settings.clock_drift_ppb, self.settings.clock_void_after_s)
        scope = self.scopes.setdefault(name, NaiveScope(append_ms, append_ms, states))
        scope.last_ms = max(scope.last_ms, append_ms)
        return scope

    # Intake

    def _post(self, scope: NaiveScope, post: Post) -> None:
        listed = {row.source for row in post.rows}
        stated = [*(source.clock for source in post.sources), *post.parents]
        rows = list(zip(post.rows, numbers(post), strict=True))
        chains: dict[str, Chain] = {}
        for place, source in enumerate(post.sources):
            watermark = post.watermark_ns[place] if post.watermark_ns else None
            final = bool(post.final and post.final[place])
            if source not in listed and watermark is None and not final:
                continue
            key = (source.name, source.incarnation)
            known = scope.sources.get(key)
            if known is None:
                for (name, _), older in scope.sources.items():
                    if name == source.name:
                        older.final = True
                known = scope.sources[key] = Known(source.rank, source.host)
            stamps = [row.raw_ns for row, _ in rows if row.source == source]
            near = max([*stamps, *([watermark] if watermark is not None else [])], default=0)
            chain = chains[source.name] = chain_of(source.clock, stated, near)
            known.ordered, known.live, known.chain = source.ordered, source.live, chain
            known.publisher = post.publisher
            scope.heard[post.publisher] = max(post.append_ms, scope.heard.get(post.publisher, post.append_ms))
            if known.live and [k for k in scope.sources if k[0] == source.name][-1] == key:
                known.final = final
                scope.closed &= final
            known.final |= final
            mapped = None if watermark is None else chain.tai(watermark)
            if mapped is not None:
                known.watermark_ns = (
                    max(mapped, known.watermark_ns) if known.watermark_ns is not None else mapped
                )
                known.skew_ns = mapped - append_to_tai(post.append_ms)
        new: list[tuple[Event, Known]] = []
        for index, (row, seq) in enumerate(rows):
            known = scope.sources[row.source.name, row.source.incarnation]
            if seq <= known.seen:
                scope.duplicates += 1
                continue
            scope.gaps += seq - known.seen - 1
            known.seen = seq
            chain = chains[row.source.name]
            time_ns = chain.tai(row.raw_ns)
            event = Event(
                id=(row.source.name, row.source.incarnation, seq),
                time_ns=append_to_tai(post.append_ms) if time_ns is None else time_ns,
                length_ns=row.duration_ns or 0,
                chain=chain,
                ordered=row.source.ordered,
                device=post.family == "gpu" and row.kind in DEVICE,
                loose=False,
                place=(self.offset, index),
                ends=row.ends,
                told=sample_of(row, chain, time_ns)
                if post.family == "clock" and time_ns is not None
                else None,
            )
            new.append((event, known))
        detached = self._detached(scope)
        for event, known in sorted(new, key=lambda pair: id(pair[1]) in detached):
            self._keep(
                scope, event, known, id(known) in detached, event.chain is None or event.chain.line() is None
            )

    def _detached(self, scope: NaiveScope) -> set[int]:
        """Live sources too far from the median of three or more."""
        live = [s for s in scope.sources.values() if s.live and not s.final and s.watermark_ns is not None]
        if len(live) < 3:
            return set()
        skews = sorted(source.skew_ns for source in live)
        median = (skews[(len(live) - 1) // 2] + skews[len(live) // 2]) / 2
        return {id(s) for s in live if abs(s.skew_ns - median) > self.settings.skew_max_ns}

    def _keep(self, scope: NaiveScope, event: Event, known: Known, loose: bool, unplaced: bool) -> None:
        """Hold a new row in its window, or tell that it is late."""
        length = self.settings.window_ns
        released = scope.released_to
        if scope.closed or (not loose and not unplaced and released is not None and event.time_ns < released):
            scope.late += 1
            scope.late_rows.append(event.id)
            if event.told is not None and not scope.closed:
                scope.states.late(event.told)
            return
        if loose:
            if released is not None:
                window = released // length
            else:
                window = min(scope.held) if scope.held else event.time_ns // length
            event.loose = True
        else:
            window = event.time_ns // length
            if released is not None:
                window = max(window, released // length)
            if event.ordered:
                if known.last_window is not None:
                    window = max(window, known.last_window)
                known.last_window = window
        scope.held.setdefault(window, []).append(event)
        scope.policies.setdefault(window, self.policy)

    # Release

    def _advance(self, scope: NaiveScope, flush: bool) -> None:
        settings, length = self.settings, self.settings.window_ns
        if scope.closed or not scope.sources:
            return
        ranks = len({s.rank for s in scope.sources.values() if s.rank is not None})
        hosts = len({s.host for s in scope.sources.values()})
        if not scope.joined:
            met = scope.opened and ranks >= scope.ranks and hosts >= scope.hosts
            if not met and not flush and self.now_ms < scope.first_ms + settings.join_grace_ms:
                return
            scope.joined = True
        limit, past = self._limit(scope, flush)
        while scope.held and (limit is None or (min(scope.held) + 1) * length <= limit):
            self._release(scope, min(scope.held), past)
        if limit is not None and limit > 0:
            end = limit // length * length
            if scope.released_to is None or end > scope.released_to:
                if scope.released_to is not None:
                    scope.progress.append((end, False))
                scope.released_to = end
        over = all(s.final for s in scope.sources.values())
        if (over or self.now_ms - scope.last_ms > settings.scope_ttl_ms) and not scope.held:
            self._close(scope)

    def _limit(self, scope: NaiveScope, flush: bool) -> tuple[int | None, Counter[str]]:
        """Time up to which windows may leave (None: no limit), and the sources not waited for by reason."""
        settings = self.settings
        detached = self._detached(scope)
        past: Counter[str] = Counter()
        waits: list[tuple[int | None, int]] = []
        for source in scope.sources.values():
            if source.final or not source.placed:
                continue
            if scope.heard[source.publisher] + settings.idle_after_ms < self.now_ms:
                past["idle"] += 1
            elif id(source) in detached:
                past["detached"] += 1
            elif flush:
                past["flush"] += 1
            else:
                assert source.chain is not None
                bound = None
                if source.watermark_ns is not None:
                    bound = source.chain.to_tai(source.watermark_ns)
                waits.append((source.watermark_ns, min(bound or 0, settings.bound_cap_ns)))
        if not waits:
            return None, past
        greatest = max(bound for _, bound in waits)
        if any(watermark is None for watermark, _ in waits):
            return -1, past
        return min(watermark - bound for watermark, bound in waits if watermark is not None) - greatest, past

    def _release(self, scope: NaiveScope, window: int, past: Counter[str]) -> None:
        settings, length = self.settings, self.settings.window_ns
        start, end = window * length, (window + 1) * length
        own = sorted(scope.held.pop(window), key=lambda event: (event.place[0], event.loose, event.place[1]))
        reach = 1 + 2 * settings.bound_cap_ns // length
        ahead = [e for w in sorted(scope.held) if w <= window + reach for e in scope.held[w]]
        for event in ahead:
            event.order_ns = max(event.time_ns, end)
            event.order_end_ns = max(event.mapped(True), event.order_ns + event.length_ns)
        fresh = [Waiting(e, w, max(1, w.size)) for e in [*own, *ahead] for w in e.ends]
        groups = list(groups_of([*scope.pending, *fresh]).values())
        judge(scope.states, own, ahead, start, end)
        repair(own, groups, start, scope.tails)
        out = Out(
            start, end, late=scope.late, released_past=sum(past.values()), policy=scope.policies.pop(window)
        )
        scope.late = 0
        leaving = [event for event in own if event.order_ns < end]
        leaving.sort(key=lambda event: (event.order_ns, event.id))
        for event in leaving:
            cause = binding(event, groups, settings.epsilon_max)
            out.rows.append((event.id, event.order_ns, event.order_end_ns, cause))
        for event in sorted(leaving, key=lambda event: event.id):
            event.window_ns = start
            scope.tails[event.id[:2]] = event
        stay = [event for event in own if event.order_ns >= end]
        if stay:
            scope.held.setdefault(window + 1, []).extend(stay)
            scope.policies.setdefault(window + 1, self.policy)
        scope.pending = conclude(out, groups, start, start - settings.edge_ttl_ns, settings.epsilon_max)
        scope.released_to = end
        scope.past += past
        scope.out.append(out)

    def _close(self, scope: NaiveScope) -> None:
        start = scope.released_to or 0
        out = Out(start, start, late=scope.late, policy=self.policy)
        conclude(out, list(groups_of(scope.pending).values()), None, None, self.settings.epsilon_max)
        scope.pending = []
        if out.edges:
            out.end_ns = start + self.settings.window_ns
            scope.late = 0
        scope.out.append(out)
        scope.closed = True
        scope.released_to = out.end_ns
        scope.progress.append((out.end_ns, True))
