"""What is out: the edges whose rows have all left, judged and counted; what waits on, and what is given up."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from schemas import columns as c
from schemas.batch import I64
from streams.arrays import Table
from streams.causality import edges as e
from streams.causality.settings import MergeSettings
from streams.causality.sources import Sources
from streams.clock.book import ClockBook
from streams.kernels import match

Array = NDArray[Any]
MATCHED_ONCE = 2  # bit of a pending cause's flags: an effect of it is out already
SEQ_BITS = 40
FOREVER = np.iinfo(np.int64).max


@dataclass(eq=False)
class Edges:
    """Edges that are out, by column of schemas.merged.EDGES without the prefix; sources by scope number."""

    columns: dict[str, Array] = field(default_factory=dict)
    inversions_raw: I64 = field(default_factory=lambda: np.zeros(len(c.EdgeKind), np.int64))
    inversions_after: I64 = field(default_factory=lambda: np.zeros(len(c.EdgeKind), np.int64))
    verdicts: I64 = field(default_factory=lambda: np.zeros((len(c.EdgeKind), len(c.Verdict)), np.int64))
    unrepaired: int = 0
    unmatched: I64 = field(default_factory=lambda: np.zeros((len(c.EdgeKind), 2), np.int64))
    incomplete: int = 0
    unknown: int = 0  # collectives of which operation or root is unknown, so that they give no edge
    contradictions: int = 0

    def __len__(self) -> int:
        return len(self.columns.get("kind", ()))

    def count(self, count: Callable[..., None]) -> None:
        """Count by the metrics' names: count(name, number, *labels)."""
        count("edges_unrepaired", self.unrepaired)
        count("contradictions", self.contradictions)
        count("collectives_incomplete", self.incomplete)
        count("collectives_unknown", self.unknown)
        for kind in c.EdgeKind:
            name = kind.name.lower()
            count("inversions_raw", int(self.inversions_raw[kind]), name)
            count("inversions_after", int(self.inversions_after[kind]), name)
            for verdict in c.Verdict:
                count("edges", int(self.verdicts[kind, verdict]), name, verdict.name.lower())
            for side, role in enumerate(("cause", "effect")):
                count("unmatched", int(self.unmatched[kind, side]), name, role)


def take_touched(past: Table, own: dict[str, Array] | None, oldest_ns: int) -> dict[str, Array]:
    """Take those pending endpoints out of `past` that this window can say something of; gives their columns.

    They share a key with a row of the window, or with one that is older than `oldest_ns`. The others wait on
    untouched, so that a window costs what it holds and not what is pending. `own` None: take all.
    """
    mask = np.ones(len(past), np.bool_)
    if own is not None and len(past):
        old = past["end_ns"] < oldest_ns
        key = np.concatenate((own["key"], past["key"][old]))
        kind = np.concatenate((own["kind"], past["kind"][old]))
        size = 16
        while size < 2 * len(key):
            size *= 2
        match.touched(past["key"], past["kind"], key, kind, np.full(size, -1, np.int64), mask)
    taken = {name: column[mask] for name, column in past.dump().items()}
    if len(taken["key"]):
        past.keep(~mask)
    return taken


def all_endpoints(
    own: dict[str, Array], ahead: dict[str, Array] | None, taken: dict[str, Array]
) -> dict[str, Array]:
    """Past (taken), own and ahead endpoints in one set of columns."""
    none, past = np.full(len(taken["key"]), -1, np.int64), np.full(len(taken["key"]), e.PAST, np.uint8)
    sets = [taken | {"row": none, "state": past}, own]
    if ahead is not None:
        sets.append(ahead)
    return {name: np.concatenate([part[name] for part in sets]) for name in own}


def _give_way(past: Table, pending_max: int, out: Edges) -> None:
    """Give up the oldest endpoints where too many are pending."""
    over = len(past) - pending_max
    if over <= 0:
        return
    oldest = np.argsort(past["end_ns"], kind="stable")[:over]
    _count_unmatched(out, past["kind"][oldest], past["role"][oldest], past["flags"][oldest])
    keep = np.ones(len(past), np.bool_)
    keep[oldest] = False
    past.keep(keep)


def _count_unmatched(out: Edges, kind: Array, role: Array, flags: Array) -> None:
    alone = (flags & MATCHED_ONCE) == 0
    side = (role[alone] != c.Role.CAUSE).astype(np.int64)
    np.add.at(out.unmatched, (kind[alone].astype(np.int64), side), 1)


def take_out(
    found: e.Matches,
    tie: I64,
    leaves: NDArray[np.bool_],
    past: Table,
    start_ns: int,
    oldest_ns: int,
    clocks: ClockBook,
    settings: MergeSettings,
) -> Edges:
    """The edges that are out now. What stays pending goes (back) to `past`, without what is older than oldest_ns."""
    ends, out = found.ends, Edges()
    own = ends["state"] == e.OWN
    left = ends["state"] == e.PAST
    if len(leaves):
        left[own] |= leaves[ends["row"][own]]
    ends["window"] = np.where(own & left, start_ns, ends["window"])
    groups = len(found.start) - 1
    of_group = np.repeat(np.arange(groups), np.diff(found.start))
    present = np.diff(found.start)
    expected = np.zeros(groups, np.int64)
    np.maximum.at(expected, of_group, ends["size"])
    waits = np.zeros(groups, np.bool_)  # a member has not left yet
    np.logical_or.at(waits, of_group, ~left)
    newest = np.full(groups, np.iinfo(np.int64).min, np.int64)
    np.maximum.at(newest, of_group, ends["end_ns"])
    expired = ~waits & (newest < oldest_ns)
    # Pairs.
    both = left[found.cause] & left[found.effect]
    cause, effect = found.cause[both], found.effect[both]
    keep = left.copy()
    keep[effect] = False
    used = np.bincount(cause, minlength=len(keep))
    is_cause = ends["role"] == c.Role.CAUSE
    remaining = np.maximum(ends["size"], 1) - used
    keep &= ~(is_cause & (used > 0) & (remaining <= 0))
    ends["size"] = np.where(is_cause & (used > 0), remaining, ends["size"])
    ends["flags"] = np.where(is_cause & (used > 0), ends["flags"] | MATCHED_ONCE, ends["flags"])
    # Joins.
    complete = found.join & ~waits & (expected > 0) & (present >= expected)
    partial = found.join & expired & ~complete
    out.incomplete = int((partial & (expected != present)).sum())
    going = (complete | partial)[found.join_of]
    sizes = np.diff(found.member_start)
    rooted = (found.shape == match.FROM_ROOT) | (found.shape == match.TO_ROOT)
    has_root = np.zeros(len(found.join_of), np.bool_)
    np.logical_or.at(has_root, np.repeat(np.arange(len(sizes)), sizes), found.root)
    whole = ~(partial & (expected != present))[found.join_of]
    out.unknown = int((going & whole & ((found.shape == match.NO_EDGE) | (rooted & ~has_root))).sum())
    goes = np.repeat(going, sizes)
    keep[found.member[goes]] = False
    bound = clocks.bound_at(ends["clock"], ends["begin_ns"])
    bound[bound == c.NULL_I64] = 0
    best = e.other_causes(found, (ends["begin_ns"] - bound)[found.member], tie[found.member])
    rows = goes & (best >= 0)
    join_cause, join_effect = best[rows], found.member[rows]
    # What is given up.
    lost = keep & expired[of_group]
    if lost.any():
        _count_unmatched(out, ends["kind"][lost], ends["role"][lost], ends["flags"][lost])
        keep &= ~lost
    if keep.any():
        past.append({name: ends[name][keep] for name in e.PENDING})
    _give_way(past, settings.pending_max, out)
    size = np.repeat(present[found.join_of], sizes)[rows]
    missing = np.maximum(0, np.repeat(expected[found.join_of], sizes)[rows] - size)
    _judge_out(out, ends, (cause, effect), (join_cause, join_effect), size, missing, clocks, settings)
    return out


def _judge_out(
    out: Edges,
    ends: dict[str, Array],
    pairs: tuple[I64, I64],
    joined: tuple[I64, I64],
    size: I64,
    missing: I64,
    clocks: ClockBook,
    settings: MergeSettings,
) -> None:
    """Fill `out` with the columns and counts of these edges."""
    cause, effect = np.concatenate((pairs[0], joined[0])), np.concatenate((pairs[1], joined[1]))
    none = np.zeros(len(pairs[0]), np.int64)
    in_join = np.concatenate((none, np.ones(len(joined[0]), np.int64))).astype(np.bool_)
    cause_end = ~in_join & (ends["point"][cause] == c.Point.END)
    effect_end = in_join | (ends["point"][effect] == c.Point.END)
    cause_ns = np.where(cause_end, ends["end_ns"][cause], ends["begin_ns"][cause])
    effect_ns = np.where(effect_end, ends["end_ns"][effect], ends["begin_ns"][effect])
    cause_order = np.where(cause_end, ends["order_end_ns"][cause], ends["order_ns"][cause])
    effect_order = np.where(effect_end, ends["order_end_ns"][effect], ends["order_ns"][effect])
    judged = e.judge(
        clocks, ends["clock"][cause], cause_ns, ends["clock"][effect], effect_ns,
        cause_end & (ends["duration"][cause] > 0), effect_end & (ends["duration"][effect] > 0),
        settings.epsilon_max,
    )  # fmt: skip
    kind = ends["kind"][cause].astype(np.int64)
    unrepaired = ends["window"][effect] < ends["window"][cause]
    out.unrepaired = int(unrepaired.sum())
    np.add.at(out.inversions_raw, kind[effect_ns < cause_ns], 1)
    np.add.at(out.inversions_after, kind[(effect_order <= cause_order) & ~unrepaired], 1)
    np.add.at(out.verdicts, (kind, judged.verdict.astype(np.int64)), 1)
    out.columns = {
        "kind": ends["kind"][cause],
        "op": ends["op"][effect],
        "group": ends["group"][effect],
        "key": ends["key"][effect],
        "cause_source": ends["source"][cause],
        "cause_seq": ends["seq"][cause],
        "cause_point": cause_end.astype(np.uint8),
        "effect_source": ends["source"][effect],
        "effect_seq": ends["seq"][effect],
        "effect_point": effect_end.astype(np.uint8),
        "gap_ns": judged.gap_ns,
        "bound_ns": judged.bound_ns,
        "verdict": judged.verdict,
        "assumed": ((ends["flags"][cause] | ends["flags"][effect]) & c.ENDPOINT_ASSUMED).astype(np.uint8),
        "effect_ns": effect_ns,
        "effect_duration_ns": ends["duration"][effect],
        "size": np.concatenate((none, size)),
        "missing": np.concatenate((none, missing)),
        "cause_clock": ends["clock"][cause],
        "effect_clock": ends["clock"][effect],
    }


def give_up(past: Table, sources: Sources, clocks: ClockBook, settings: MergeSettings) -> Edges:
    """At the end of a scope: what is still pending is given up and counted; incomplete collectives are judged."""
    none = {name: np.empty(0, column.dtype) for name, column in past.dump().items()}
    none |= {"row": np.empty(0, np.int64), "state": np.empty(0, np.uint8)}
    found = e.match_endpoints(all_endpoints(none, None, take_touched(past, None, FOREVER)))
    tie = (sources.name_order()[found.ends["source"]].astype(np.int64) << SEQ_BITS) + found.ends["seq"]
    return take_out(found, tie, np.empty(0, np.bool_), past, FOREVER, FOREVER, clocks, settings)
