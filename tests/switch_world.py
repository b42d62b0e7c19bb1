"""Made switches whose clocks are known, and the hops that a collector gets of packets over them."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from schemas import columns as c
from schemas.pack import Strings
from streams.paths.hops import ENDS, INTS, Hops
from streams.paths.switches import Switches

START_NS = 1_767_225_600_000_000_000
MS, S = 1_000_000, 1_000_000_000
WIRE_NS, STAY_NS = 300, 900


@dataclass
class Switch:
    """A clock that read zero at `zero_ns` (TAI), `ppm` too fast, in ticks of `tick_ns`."""

    zero_ns: int
    tick_ns: int = 1
    ppm: float = 0.0

    def own(self, time_ns: int) -> int:
        """Nanoseconds on its clock."""
        since = time_ns - self.zero_ns
        return since + round(since * self.ppm / 1e6)

    def read(self, time_ns: int) -> int:
        return self.own(time_ns) // self.tick_ns


@dataclass
class World:
    """Switches by number, and the hops that a collector got."""

    switches: dict[int, Switch]
    rng: np.random.Generator = field(default_factory=lambda: np.random.default_rng(3))
    rows: list[dict[str, int]] = field(default_factory=list)
    reports: int = 0

    def packet(self, path: list[int], sent_ns: int, flow: int = 1, **changes: Any) -> None:
        """A packet over these switches. `changes`: columns to overwrite, by hop a value or None for null."""
        now, hops = sent_ns, []
        for place, node in enumerate(path):
            stay = STAY_NS + int(self.rng.exponential(2000))
            clock = self.switches[node]
            row = {
                "node": node,
                "hop": place,
                "ingress_ts": clock.read(now),
                "egress_ts": clock.read(now + stay),
            }
            row["latency"] = row["egress_ts"] - row["ingress_ts"]
            hops.append(row)
            now += stay + WIRE_NS
        arrived = now + int(self.rng.uniform(5_000, 500_000))
        for place, row in enumerate(hops):
            for name, by_hop in changes.items():
                if place in by_hop:
                    row[name] = by_hop[place]
            self.rows.append(row | {"report": self.reports, "time": arrived, "flow": flow})
        self.reports += 1

    def hops(self) -> Hops:
        """All hops since the last call."""
        rows, self.rows = self.rows, []
        n = len(rows)
        column = {name: np.full(n, c.NULL_I64) for name in (*INTS, *ENDS)}
        for name in ("node", "hop", "report", "ingress_ts", "egress_ts", "latency"):
            column[name] = np.array([row[name] for row in rows], np.int64)
        times = np.array([row["time"] for row in rows], np.int64)
        return Hops(
            Strings(), column["report"], np.array([row["flow"] for row in rows], np.uint64), times, column
        )

    def window(self, switches: Switches, number: int) -> dict[Any, dict[str, Any]]:
        """The rows that a window's hops make: of switches by number, of neighbours by pair."""
        return table(switches.window(self.hops(), START_NS + (number + 1) * 100 * MS)[0])

    def offset(self, a: int, b: int, time_ns: int) -> int:
        """The true offset of b − a."""
        return self.switches[b].own(time_ns) - self.switches[a].own(time_ns)


def table(columns: dict[str, Any]) -> dict[Any, dict[str, Any]]:
    out: dict[Any, dict[str, Any]] = {}
    for prefix in ("node_", "pair_"):
        names = [name for name in columns if name.startswith(prefix)]
        for row in zip(*(columns[name].tolist() for name in names), strict=True):
            one = {
                n.removeprefix(prefix): None if v == c.NULL_I64 else v
                for n, v in zip(names, row, strict=True)
            }
            out[one["id"] if prefix == "node_" else (one["from"], one["to"])] = one
    return out


def mixed() -> World:
    """A leaf in ns, a spine in µs since its power-on, a leaf that counts 8 ns and runs 40 ppm fast."""
    return World(
        {
            1: Switch(START_NS - 3600 * S),
            2: Switch(START_NS - 7 * S, 1000, -30.0),
            3: Switch(START_NS - 86_400 * S, 8, 40.0),
        }
    )


def traffic(world: World, number: int, paths: list[list[int]], **changes: Any) -> None:
    for k in range(20):
        for path in paths:
            world.packet(path, START_NS + number * 100 * MS + k * 5 * MS, **changes)


BOTH = [[1, 2, 3], [3, 2, 1]]
