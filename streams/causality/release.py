"""Release of one window: match, repair, decide which rows leave, judge the edges that are complete.

The steps, each a function of arrays:

1. endpoints of the window's rows (own), of rows in later windows (ahead) and of rows that left (past) meet;
2. repair gives every own point the least order that respects its causes (streams.kernels.repair);
3. rows whose order lies at or beyond the window's end are carried into the next window;
4. an edge is *out* once the rows of both its sides have left, a collective once all its members have;
   what is not out stays pending, until it is older than the edge's time to live;
5. each row that leaves gets its binding cause: the greatest repaired cause of either of its points.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from schemas import columns as c
from schemas.batch import I64
from streams.arrays import Table
from streams.causality import edges as e
from streams.causality.gather import GroupNames, Window, endpoints, gather
from streams.causality.intake import Part
from streams.causality.outgoing import SEQ_BITS, Edges, all_endpoints, take_out, take_touched
from streams.causality.samples import Apply
from streams.causality.settings import MergeSettings
from streams.causality.sources import DEVICE_ROWS, Sources
from streams.clock.book import ClockBook
from streams.kernels import match
from streams.kernels.relax import relax
from streams.kernels.repair import forward

Array = NDArray[Any]


@dataclass(eq=False)
class Released:
    """A window with its rows in (source, sequence) order; `leaves` says which go out now."""

    window: Window
    order_ns: I64
    order_end_ns: I64
    leaves: NDArray[np.bool_]
    cause: I64  # place in `ends` of each row's binding cause, -1 without one
    cause_verdict: NDArray[np.uint8]
    ends: dict[str, Array]
    edges: Edges


def own_endpoints(window: Window, groups: GroupNames) -> dict[str, Array]:
    """Endpoints of the window's rows as columns of the pending table, with `row` and `state`."""
    out = endpoints(window.parts, groups)
    place = np.empty(len(window), np.int64)
    place[window.gathered] = np.arange(len(window))
    at = [
        part.endpoint_at + start
        for part, start in zip(window.parts, window.part_start[:-1], strict=True)
        if len(part.endpoints)
    ]
    out["row"] = place[np.concatenate(at)] if at else np.empty(0, np.int64)
    out["state"] = np.full(len(out["row"]), e.OWN, np.uint8)
    return out


def ahead_endpoints(parts: Sequence[Part], groups: GroupNames, end_ns: int) -> dict[str, Array]:
    """Endpoints of rows in later windows: their order is not known yet, but not before this window's end."""
    out = endpoints(parts, groups)
    out["row"] = np.full(len(out["key"]), -1, np.int64)
    out["state"] = np.full(len(out["key"]), e.AHEAD, np.uint8)
    out["order_ns"] = np.maximum(out["begin_ns"], end_ns)
    out["order_end_ns"] = np.maximum(out["end_ns"], out["order_ns"] + out["duration"])
    return out


def release(
    parts: Sequence[Part],
    ahead_parts: Sequence[Part],
    past: Table,
    start_ns: int,
    end_ns: int,
    sources: Sources,
    clocks: ClockBook,
    groups: GroupNames,
    settings: MergeSettings,
    apply: Apply,
) -> Released:
    """Work out window [start_ns, end_ns). `past` becomes, in place, what is pending afterwards.

    `apply` gives the clock slots that hold, by the slots that batches stated: where rows lie stays, their bounds
    follow. Rows that wait in later windows are judged by what is known now.
    """
    window = gather(parts, sources)
    window = replace(window, clock=apply(window.clock, window.time_ns))
    own = own_endpoints(window, groups)
    ahead = ahead_endpoints(ahead_parts, groups, end_ns) if ahead_parts else None
    for side in (own, ahead):
        if side is not None:
            side["clock"] = apply(side["clock"], side["begin_ns"])
    oldest_ns = start_ns - settings.edge_ttl_ns
    found = e.match_endpoints(all_endpoints(own, ahead, take_touched(past, own, oldest_ns)))
    ends = found.ends
    tie = (sources.name_order()[ends["source"]].astype(np.int64) << SEQ_BITS) + ends["seq"]
    order, given_up = _repair(window, sources, found, start_ns)
    order_ns, order_end_ns = order[0::2], order[1::2]
    mine = ends["state"] == e.OWN
    ends["order_ns"][mine] = order_ns[ends["row"][mine]]
    ends["order_end_ns"][mine] = order_end_ns[ends["row"][mine]]
    leaves = order_ns < end_ns
    _remember_tails(window, sources, order_end_ns, leaves)
    cause, cause_verdict = _binding(window, found, tie, clocks, settings)
    out = take_out(found, tie, leaves, past, start_ns, oldest_ns, clocks, settings)
    out.contradictions = given_up
    return Released(window, order_ns, order_end_ns, leaves, cause, cause_verdict, ends, out)


def _sides(found: e.Matches) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """By join member: whether it is a cause, whether it is an effect."""
    shape = np.repeat(found.shape, np.diff(found.member_start))
    linked = shape != match.NO_EDGE
    is_cause = linked & ((shape != match.FROM_ROOT) | found.root)
    return is_cause, linked & ((shape != match.TO_ROOT) | found.root)


def _device_rows(window: Window, sources: Sources, at: NDArray[np.integer[Any]]) -> NDArray[np.bool_]:
    """Which of these rows are work of a device's stream, in program order."""
    source = window.source[at]
    ordered = (sources.table["flags"][source] & c.SOURCE_ORDERED) != 0
    gpu = sources.table["family"][source] == 0
    out: NDArray[np.bool_] = ordered & gpu & DEVICE_ROWS[window.kind[at]] & ~window.loose[at]
    return out


def _after_tails(window: Window, sources: Sources, begin: I64) -> None:
    """Raise the begin of a stream's first row to the repaired end of the row that left before it, as within a
    window: unless the two overlap."""
    source = window.source
    first = np.flatnonzero(np.concatenate(([True], source[1:] != source[:-1]))) if len(source) else source
    first = first[_device_rows(window, sources, first)]
    table, of = sources.table, source[first]
    apart = table["tail_device"][of] & (window.time_ns[first] >= table["tail_end_ns"][of])
    first, of = first[apart], of[apart]
    begin[first] = np.maximum(begin[first], table["tail_order_end_ns"][of])


def _remember_tails(window: Window, sources: Sources, order_end_ns: I64, leaves: NDArray[np.bool_]) -> None:
    """Keep of each source the last row that leaves."""
    rows = np.flatnonzero(leaves)
    source = window.source[rows]
    last = rows[np.append(source[1:] != source[:-1], True)] if len(rows) else rows
    table, of = sources.table, window.source[last]
    table["tail_end_ns"][of] = window.time_ns[last] + window.length_ns[last]
    table["tail_order_end_ns"][of] = order_end_ns[last]
    table["tail_device"][of] = _device_rows(window, sources, last)


def _repair(window: Window, sources: Sources, found: e.Matches, floor_ns: int) -> tuple[I64, int]:
    """Repaired points (2 x rows) of the window, and constraints given up in cycles."""
    ends = found.ends
    length = window.length_ns
    begin = np.where(window.loose, floor_ns, np.maximum(window.time_ns, floor_ns))
    _after_tails(window, sources, begin)
    lower = np.empty(2 * len(window), np.int64)
    lower[0::2] = begin
    lower[1::2] = begin + length
    own = ends["state"] == e.OWN
    point = 2 * ends["row"] + (ends["point"] == c.Point.END)
    # Pairs: a cause of ours is an edge, one of other rows a constant.
    mine = own[found.effect]
    inner = mine & own[found.cause]
    edge_from, edge_to = point[found.cause[inner]], point[found.effect[inner]]
    outer = mine & ~inner
    if outer.any():
        constant = found.time(found.cause[outer], ordered=True) + 1
        np.maximum.at(lower, point[found.effect[outer]], constant)
    # Joins: members of ours are points, causes among other rows a constant of the join.
    is_cause, is_effect = _sides(found)
    own_member = own[found.member]
    begin_point = 2 * ends["row"][found.member]
    point_in = np.where(own_member & is_cause, begin_point, -1)
    point_out = np.where(own_member & is_effect, begin_point + 1, -1)
    of_join = np.repeat(np.arange(len(found.shape)), np.diff(found.member_start))
    constant = np.full(len(found.shape), np.iinfo(np.int64).min, np.int64)
    fixed = ~own_member & is_cause
    np.maximum.at(constant, of_join[fixed], ends["order_ns"][found.member[fixed]])
    lower[1::2] = np.maximum(lower[1::2], lower[0::2] + length)
    constraints = (
        lower, length, window.chain, edge_from, edge_to, found.member_start, point_in, point_out, constant
    )  # fmt: skip
    value, done = relax(*constraints)
    return (value, 0) if done else forward(*constraints)


def _binding(
    window: Window, found: e.Matches, tie: I64, clocks: ClockBook, settings: MergeSettings
) -> tuple[I64, NDArray[np.uint8]]:
    """By own row: the endpoint that is its binding cause (-1 without one) and the verdict of that edge."""
    ends = found.ends
    cause = np.full(len(window), -1, np.int64)
    verdict = np.full(len(window), c.NULL_U8, np.uint8)
    mine = ends["state"][found.effect] == e.OWN
    best = e.other_causes(found, ends["order_ns"][found.member], tie[found.member])
    joined = (best >= 0) & (ends["state"][found.member] == e.OWN)
    effect_at = np.concatenate((found.effect[mine], found.member[joined]))
    cause_at = np.concatenate((found.cause[mine], best[joined]))
    if not len(effect_at):
        return cause, verdict
    of_join = np.concatenate((np.zeros(int(mine.sum()), np.bool_), np.ones(int(joined.sum()), np.bool_)))
    begin = ends["order_ns"][cause_at]
    at_end = ~of_join & (ends["point"][cause_at] == c.Point.END)
    value = np.where(at_end, ends["order_end_ns"][cause_at], begin)
    row = ends["row"][effect_at]
    at_effect_end = of_join | (ends["point"][effect_at] == c.Point.END)
    by = np.lexsort((~at_effect_end, ~at_end, -tie[cause_at], value, row))
    last = by[np.append(row[by][1:] != row[by][:-1], True)]
    cause[row[last]] = cause_at[last]
    at_end_last = at_end[last]
    cause_ns = np.where(at_end_last, ends["end_ns"][cause_at[last]], ends["begin_ns"][cause_at[last]])
    effect = effect_at[last]
    effect_end = of_join[last] | (ends["point"][effect] == c.Point.END)
    effect_ns = np.where(effect_end, ends["end_ns"][effect], ends["begin_ns"][effect])
    judged = e.judge(
        clocks, ends["clock"][cause_at[last]], cause_ns, ends["clock"][effect], effect_ns,
        at_end_last & (ends["duration"][cause_at[last]] > 0), effect_end & (ends["duration"][effect] > 0),
        settings.epsilon_max,
    )  # fmt: skip
    verdict[row[last]] = judged.verdict
    return cause, verdict
