"""Edges: endpoints that wait for their other side, matching, binding causes, verdicts.

Matching looks at three kinds of endpoints at once: those of the window that is about to leave (own), those of
rows that wait in later windows (ahead: their order is not final, but it can't fall before the window's end),
and those of rows that left before (past: their order is final). It is a pure function of these sets, so it does
not matter in which order they came.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from schemas import columns as c
from schemas.batch import I64
from streams.arrays import Table
from streams.clock.book import ClockBook
from streams.kernels import match
from streams.kernels.rows import stable_by

Array = NDArray[Any]
PAST, OWN, AHEAD = 0, 1, 2
SHAPES = np.full(256, match.NO_EDGE, np.int64)
for _op in (c.Op.ALL_REDUCE, c.Op.ALL_GATHER, c.Op.REDUCE_SCATTER, c.Op.BARRIER, c.Op.ALL_TO_ALL):
    SHAPES[_op] = match.ALL_TO_ALL
for _op in (c.Op.BROADCAST, c.Op.SCATTER):
    SHAPES[_op] = match.FROM_ROOT
for _op in (c.Op.REDUCE, c.Op.GATHER):
    SHAPES[_op] = match.TO_ROOT


def pending_table() -> Table:
    """Endpoints of rows that have left and whose edges are not all out."""
    return Table(
        key=(np.uint64, 0),
        kind=(np.uint8, 0),
        role=(np.uint8, 0),
        point=(np.uint8, 0),
        op=(np.uint8, 0),
        flags=(np.uint8, 0),
        size=(np.int64, 0),
        group=(np.int32, -1),
        source=(np.int32, -1),
        clock=(np.int32, -1),
        seq=(np.int64, 0),
        begin_ns=(np.int64, 0),
        end_ns=(np.int64, 0),
        order_ns=(np.int64, 0),
        order_end_ns=(np.int64, 0),
        duration=(np.int64, 0),
        window=(np.int64, 0),  # start of the window that the row left with
    )


PENDING = tuple(pending_table().dump())


@dataclass(eq=False)
class Matches:
    """Endpoints laid out by group, and the edges among them; indices are places in that layout."""

    ends: dict[str, Array]  # columns of the pending table, plus `state` and `row` (own layout index or -1)
    start: I64  # (groups + 1,)
    join: NDArray[np.bool_]  # by group
    cause: I64  # pairs
    effect: I64
    join_of: I64  # groups that are joins
    member: I64  # members of all joins, one join after the other
    member_start: I64  # (joins + 1,)
    shape: I64  # by join
    root: NDArray[np.bool_]  # by member

    def time(self, at: I64, ordered: bool = False) -> I64:
        """Mapped (or repaired) time of the endpoints' points; a member's cause side is its begin."""
        begin, end = ("order_ns", "order_end_ns") if ordered else ("begin_ns", "end_ns")
        is_end = self.ends["point"][at] == c.Point.END
        return np.where(is_end, self.ends[end][at], self.ends[begin][at])


def match_endpoints(ends: dict[str, Array]) -> Matches:
    """Group endpoints by (kind, key), list the pairs, and set the joins apart."""
    n = len(ends["key"])
    size = 16
    while size < 2 * n:
        size *= 2
    ids, groups = match.group_ids(ends["key"], ends["kind"], np.full(size, -1, np.int64))
    layout, start = stable_by(ids.astype(np.int32), groups)
    counts = np.diff(start)
    ends = {name: column[layout] for name, column in ends.items()}
    member_role = ends["role"] >= c.Role.MEMBER
    join = np.zeros(groups, np.bool_)
    join[ids[layout][member_role]] = True
    total = match.count_pairs(start, ends["role"], join)
    cause, effect = np.empty(total, np.int64), np.empty(total, np.int64)
    match.list_pairs(start, ends["role"], join, cause, effect)
    join_of = np.flatnonzero(join)
    member = np.flatnonzero(np.repeat(join, counts))
    member_start = np.concatenate(([0], np.cumsum(counts[join_of])))
    op = ends["op"][start[join_of]] if len(join_of) else np.empty(0, np.uint8)
    return Matches(
        ends, start, join, cause, effect, join_of, member, member_start, SHAPES[op],
        ends["role"][member] == c.Role.ROOT,
    )  # fmt: skip


def other_causes(found: Matches, value: I64, tie: I64) -> I64:
    """For each join member, the endpoint of the other member with the greatest value (-1: none, or no effect).

    `value` and `tie` by member.
    """
    best = np.empty(len(found.member), np.int64)
    match.best_causes(found.member_start, found.shape, found.root, value, tie, best)
    return np.where(best >= 0, found.member[np.where(best >= 0, best, 0)] if len(best) else best, -1)


@dataclass(frozen=True, eq=False)
class Judged:
    """Verdicts of edges, by edge."""

    gap_ns: I64
    bound_ns: I64  # NULL_I64 where there is none
    verdict: NDArray[np.uint8]


def judge(
    clocks: ClockBook,
    cause_clock: Array,
    cause_ns: I64,
    effect_clock: Array,
    effect_ns: I64,
    cause_end: NDArray[np.bool_],
    effect_end: NDArray[np.bool_],
    epsilon_max: float,
    min_ns: int = 0,
) -> Judged:
    """Verdict of each edge from mapped times: violated if gap < min - bound, proven if gap > bound and the
    bound is assured, else inferred (the edge orders what time can't). `cause_end`, `effect_end`: the point is
    the end of an event that lasts."""
    gap = effect_ns - cause_ns
    if not len(gap) or not len(clocks):
        return Judged(gap, np.full(len(gap), c.NULL_I64), np.full(len(gap), c.Verdict.INFERRED, np.uint8))
    bounds = clocks.diff_bound(
        cause_clock.astype(np.int64), cause_ns, effect_clock.astype(np.int64), effect_ns, epsilon_max,
        cause_end, effect_end,
    )  # fmt: skip
    known = bounds.bound_ns != c.NULL_I64
    verdict = np.full(len(gap), c.Verdict.INFERRED, np.uint8)
    verdict[known & bounds.assured & (gap > bounds.bound_ns)] = c.Verdict.PROVEN
    verdict[known & (gap < min_ns - np.where(known, bounds.bound_ns, 0))] = c.Verdict.VIOLATED
    return Judged(gap, bounds.bound_ns, verdict)
