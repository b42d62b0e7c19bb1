"""Clocks of switches, from in-band telemetry alone: ticks, offsets between neighbours, latencies that can be.

A packet leaves a switch before it reaches the next one. So of two neighbours A and B, whatever their clocks
count from, offset(B − A) ≤ ingress at B − egress at A for every packet from A to B, and the same the other way
round bounds it from below. Where packets were seen both ways the offset has two sides, and the middle of the
range is off by half of it at most; where only one was, the other side is open and the status is `unknown`. Each
side loosens with age, as oscillators may drift. The ends of a path are bounded in the same way, by the tightest
chain of such bounds: a packet's way there, and that way back, take at least as long as the packet waited in any
switch, so a hop latency beyond that is implausible.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from schemas import columns as c
from schemas.pack import Strings
from schemas.paths import OFFSETS, SWITCHES
from streams.paths.hops import Hops
from streams.paths.offsets import FAR, Ways, closure, distinct
from streams.paths.rows import pack_rows
from streams.paths.ticks import READING_MAX, Tick, in_ns

Array = NDArray[Any]
I64 = NDArray[np.int64]
Bools = NDArray[np.bool_]

KEPT_MAX: Final = 65_536  # switches


@dataclass(frozen=True)
class SwitchUnits:
    """What is configured of one switch; None: estimated. `zero_ns` is the TAI at which its clock read zero."""

    node: int
    unit_ns: float | None = None
    latency_unit_ns: float | None = None
    zero_ns: int | None = None


@dataclass(frozen=True, eq=False)
class _Window:
    """A window's hops in nanoseconds of each switch's own clock. Unknown where the masks say so."""

    hops: Hops
    into: I64
    out: I64
    has_into: Bools
    has_out: Bools
    unit: I64  # a tick, rounded up
    latency: I64
    has_latency: Bools


class Switches:
    """What is known of the switches of a scope."""

    def __init__(self, configured: Sequence[SwitchUnits] = ()) -> None:
        self._configured = {units.node: units for units in configured}
        self._zeros = {units.node: units.zero_ns for units in configured}
        self._ticks: dict[int, Tick] = {}
        self._links, self._ends = Ways(), Ways()
        # By pair its first offset: time, middle and half of its range, epochs of both clocks.
        self._rates: dict[tuple[int, int], tuple[int, int, int, int, int]] = {}

    def window(self, hops: Hops, end_ns: int) -> tuple[dict[str, Array], I64]:
        """(columns of switches and offsets, latency of each report's path or NULL_I64) of a window."""
        if not len(hops):
            return {}, np.empty(0, np.int64)
        seen = self._in_ns(hops)
        pairs = self._learn_links(seen)
        bad, checked, agree = self._judge(seen)
        columns = self._switch_rows(seen, bad, checked) | self._offset_rows(pairs, end_ns)
        if not agree:  # a clock was set: what was seen before says nothing of its offset now
            for ways in (self._links, self._ends):
                ways.forget(int(hops.time_ns.min()))
        self._drop(set(list(self._ticks)[: max(0, len(self._ticks) - KEPT_MAX)]))
        starts = np.flatnonzero(np.append(True, np.diff(hops.report) != 0))
        good = np.logical_and.reduceat(seen.has_latency & ~bad, starts)
        total = np.add.reduceat(np.where(seen.has_latency, seen.latency, 0), starts)
        return columns, np.where(good, total, c.NULL_I64)

    def _tick(self, node: int) -> Tick:
        tick = self._ticks.pop(node, None)  # so that the order is by last sight
        if tick is None:
            units = self._configured.get(node, SwitchUnits(node))
            tick = Tick(
                unit_ns=units.unit_ns, configured=units.unit_ns is not None,
                latency_ns=units.latency_unit_ns, latency_configured=units.latency_unit_ns is not None,
            )  # fmt: skip
        self._ticks[node] = tick
        return tick

    def _in_ns(self, hops: Hops) -> _Window:
        column, n = hops.column, len(hops)
        into, out = np.zeros(n, np.int64), np.zeros(n, np.int64)
        has_into, has_out, has_latency = (np.zeros(n, np.bool_) for _ in range(3))
        unit, latency = np.zeros(n, np.int64), np.zeros(n, np.int64)
        nodes = column["node"]
        order = np.lexsort((hops.time_ns, nodes))
        for rows in np.split(order, np.flatnonzero(np.diff(nodes[order])) + 1):
            if nodes[rows[0]] == c.NULL_I64:
                continue
            tick = self._tick(int(nodes[rows[0]]))
            tick.last_seen_ns = int(hops.time_ns[rows[-1]])
            top = int(READING_MAX / max(1.0, tick.unit_ns or 1.0))
            # Null, and stamps that are always zero: nothing was measured.
            one, two = (
                (column[name][rows] > 0) & (column[name][rows] < top) for name in ("ingress_ts", "egress_ts")
            )
            some = np.flatnonzero(one | two)
            if len(some):
                stamps = np.where(two, column["egress_ts"][rows], column["ingress_ts"][rows])[some]
                live = np.zeros(len(rows), np.bool_)
                live[some] = tick.take(hops.time_ns[rows][some], stamps)
                one, two = one & live, two & live
                stay = column["egress_ts"][rows] - column["ingress_ts"][rows]
                both = one & two
                tick.fit_latency(stay[both], column["latency"][rows][both])
            if tick.unit_ns is not None:
                unit[rows] = int(np.ceil(tick.unit_ns))
                has_into[rows], has_out[rows] = one, two
                into[rows[one]] = in_ns(column["ingress_ts"][rows[one]], tick.unit_ns)
                out[rows[two]] = in_ns(column["egress_ts"][rows[two]], tick.unit_ns)
            if tick.latency_ns is not None:
                has_latency[rows] = column["latency"][rows] != c.NULL_I64
                latency[rows] = in_ns(
                    np.where(has_latency[rows], column["latency"][rows], 0), tick.latency_ns
                )
        return _Window(hops, into, out, has_into, has_out, unit, latency, has_latency)

    def _learn_links(self, seen: _Window) -> Array:
        hops, hop = seen.hops, seen.hops.column["hop"]
        known = seen.has_into | seen.has_out
        follows = (hops.report[1:] == hops.report[:-1]) & (hop[1:] == hop[:-1] + 1) & known[1:] & known[:-1]
        before = np.flatnonzero(follows)
        node = hops.column["node"]
        before = before[node[before] != node[before + 1]]
        after = before + 1
        left = np.where(seen.has_out, seen.out, seen.into)[before]
        # The next stamp may have been a tick later than it reads.
        came = np.where(seen.has_into, seen.into, seen.out)[after] + seen.unit[after]
        return self._links.learn(node[before], node[after], came - left, hops.time_ns[after], self._ticks)

    def _judge(self, seen: _Window) -> tuple[Bools, Bools, bool]:
        """By hop: whether its latency is beyond the round trip of its path, and whether that is known; whether
        all bounds agree.
        """
        hops, node, n = seen.hops, seen.hops.column["node"], len(seen.hops)
        starts = np.flatnonzero(np.append(True, np.diff(hops.report) != 0))
        which = np.repeat(np.arange(len(starts)), np.diff(np.append(starts, n)))
        known, at = seen.has_into | seen.has_out, np.arange(n)
        first = np.minimum.reduceat(np.where(known, at, n), starts)
        last = np.maximum.reduceat(np.where(known, at, -1), starts)
        use = np.flatnonzero(last >= 0)
        one, two = first[use], last[use]
        begin = np.where(seen.has_into, seen.into, seen.out)[one]
        end = np.where(seen.has_out, seen.out, seen.into)[two] + seen.unit[two]
        took, time_ns = end - begin, hops.time_ns[two]
        apart = node[one] != node[two]
        self._ends.learn(node[one][apart], node[two][apart], took[apart], time_ns[apart], self._ticks)
        between = int(hops.time_ns.min()), int(hops.time_ns.max())
        direct = [bound for ways in (self._links, self._ends) for bound in ways.bounds(between, self._ticks)]
        pairs, pair = distinct(node[two], node[one])
        wanted = [(a, b) for a, b in pairs.T.tolist()]
        ways_back = closure(direct, wanted)
        agree = ways_back is not None
        found = [
            0 if a == b else back
            for (a, b), back in zip(wanted, ways_back or [None] * len(wanted), strict=True)
        ]
        back = np.array([FAR if bound is None else bound for bound in found], np.int64)[pair]
        there = back < FAR
        trip = np.full(len(starts), -1, np.int64)
        trip[use[there]] = (took + back)[there]
        inside = (at > first[which]) | ((at == first[which]) & seen.has_into)
        inside &= (at < last[which]) | ((at == last[which]) & seen.has_out)
        checked = seen.has_latency & inside & (trip[which] >= 0)
        return checked & (seen.latency > trip[which] + 1), checked, agree

    def _switch_rows(self, seen: _Window, bad: Bools, checked: Bools) -> dict[str, Array]:
        node, told = seen.hops.column["node"], seen.hops.column["latency"] != c.NULL_I64
        both = seen.has_into & seen.has_out & seen.has_latency
        left_out = seen.out - seen.into - seen.latency
        order = np.argsort(node, kind="stable")
        rows = []
        for mine in np.split(order, np.flatnonzero(np.diff(node[order])) + 1):
            number = int(node[mine[0]])
            if number == c.NULL_I64:
                continue
            tick = self._ticks[number]
            rows.append({
                "id": number, "epoch": tick.epoch, "unit_ns": tick.unit_ns,
                "unit_source": _source(tick.unit_ns, tick.configured),
                "latency_unit_ns": tick.latency_ns,
                "latency_source": _source(tick.latency_ns, tick.latency_configured),
                "zero_ns": self._zeros.get(number), "zero_max_ns": tick.zero_max_ns, "hops": int(told[mine].sum()),
                "latency_ns": _median(seen.latency[mine[seen.has_latency[mine] & ~bad[mine]]]),
                "left_out_ns": _median(left_out[mine[both[mine]]]), "implausible": int(bad[mine].sum()),
                "unchecked": int((seen.has_latency & ~checked)[mine].sum()),
            })  # fmt: skip
        return pack_rows(SWITCHES, "node", rows, Strings())

    def _offset_rows(self, pairs: Array, end_ns: int) -> dict[str, Array]:
        touched = sorted({(min(a, b), max(a, b)) for a, b in pairs.T.tolist()})
        return pack_rows(OFFSETS, "pair", [self._offset(a, b, end_ns) for a, b in touched], Strings())

    def _offset(self, a: int, b: int, end_ns: int) -> dict[str, Any]:
        up, down = self._links.get(a, b, self._ticks), self._links.get(b, a, self._ticks)
        most = None if up is None else up.at(end_ns)
        least = None if down is None else -down.at(end_ns)
        status = c.Status.UNKNOWN
        if most is not None and least is not None:
            status = c.Status.FREERUN
            if least > most:  # a clock was set meanwhile: the older side is of the time before
                assert up is not None
                assert down is not None
                status = c.Status.STEPPED
                del self._links.known[(a, b) if up.at_ns < down.at_ns else (b, a)]
                most, least = (None, least) if up.at_ns < down.at_ns else (most, None)
                self._rates.pop((a, b), None)
        out: dict[str, Any] = {"from": a, "to": b, "status": status, "min_ns": least, "max_ns": most}
        if most is not None and least is not None:
            out["offset_ns"], out["bound_ns"] = (most + least) // 2, (most - least + 1) // 2
            out |= self._rate(a, b, end_ns, out["offset_ns"], out["bound_ns"])
        return out

    def _rate(self, a: int, b: int, now_ns: int, middle: int, half: int) -> dict[str, float]:
        epochs = (self._ticks[a].epoch, self._ticks[b].epoch)
        first = self._rates.get((a, b))
        if first is None or first[3:] != epochs:
            self._rates[a, b] = (now_ns, middle, half, *epochs)
            return {}
        span = now_ns - first[0]
        return {
            "rate_ppb": (middle - first[1]) / span * 1e9,
            "rate_bound_ppb": (half + first[2]) / span * 1e9,
        }

    def forget(self, oldest_ns: int) -> None:
        """Drop switches that no report came from since then, and what is known of their neighbours."""
        self._drop({node for node, tick in self._ticks.items() if tick.last_seen_ns < oldest_ns})

    def _drop(self, gone: set[int]) -> None:
        if not gone:
            return
        for node in gone:
            del self._ticks[node]
        for ways in (self._links, self._ends):
            ways.known = {key: way for key, way in ways.known.items() if not gone & set(key)}
        self._rates = {key: first for key, first in self._rates.items() if not gone & set(key)}

    def dump(self) -> Any:
        """As JSON."""
        return {
            "ticks": [[node, tick.dump()] for node, tick in self._ticks.items()],
            "links": self._links.dump(),
            "ends": self._ends.dump(),
            "rates": [[*key, *first] for key, first in self._rates.items()],
        }

    def load(self, meta: Any) -> None:
        """From `dump`."""
        self._ticks = {node: Tick.load(tick) for node, tick in meta["ticks"]}
        self._links.load(meta["links"])
        self._ends.load(meta["ends"])
        self._rates = {(a, b): tuple(first) for a, b, *first in meta["rates"]}


def _source(value: float | None, configured: bool) -> c.UnitSource:
    if value is None:
        return c.UnitSource.UNKNOWN
    return c.UnitSource.CONFIGURED if configured else c.UnitSource.ESTIMATED


def _median(values: I64) -> int | None:
    return int(np.median(values)) if len(values) else None


def by_flow(of_report: I64, flow: I64, flows: int) -> I64:
    """Median of the known numbers of each flow's reports (of two the lesser); NULL_I64 where none is known.

    `flow` is the place of each report's flow, 0 to flows − 1.
    """
    known = np.flatnonzero(of_report != c.NULL_I64)
    order = known[np.lexsort((of_report[known], flow[known]))]
    count = np.bincount(flow[known], minlength=flows)
    middle = np.cumsum(count) - count + np.maximum(count - 1, 0) // 2
    out = np.full(flows, c.NULL_I64)
    out[count > 0] = of_report[order[middle[count > 0]]]
    return out
