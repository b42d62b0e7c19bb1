"""A small leaf-spine fabric under a simulated job, and the telemetry reports (INT) of the job's flows.

Up to four hosts share a leaf; every leaf has a link to every spine. Each rank sends one flow to the rank with
its place on the next host (RoCEv2). A flow takes the spine that its number's hash selects, so the truth about
every path is known. Each report is about one packet and has a hop a switch. Switches stamp with free-running
clocks of their own; the row's own stamp is the collector's.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

import numpy as np
from numpy.typing import NDArray

from producers.sim.families import Filled
from producers.sim.faults import Fault
from producers.sim.job import Shape
from producers.sim.rows import I64, U64, Rows, mix
from schemas.columns import HopKind, ReportFlag
from schemas.flat import Array
from schemas.flow import flow_id
from schemas.pack import Strings

HOSTS_A_LEAF = 4
SPINES = 4
LEAF_ID, SPINE_ID = 100, 200  # node ids of the first leaf and the first spine
UPLINK_PORT = (
    100  # a leaf's port to spine s is 100 + s; its port to a host, and a spine's to leaf l, count from 1
)
ROCE_PORT, UDP = 4791, 17
REPORT_VERSION = 20  # 2.0, of INT 2.0
ROUND_NS = 20_000_000  # time between two reports of a flow
WIRE_NS, SWITCH_NS, QUEUE_NS = 300, 600, 400  # a link's and a switch's least delay, median of a queue's
CELL_BYTES, BYTES_A_NS = 256, 50  # buffer cell; 400 Gbit/s
PACKET_BYTES = 4164


@dataclass(frozen=True)
class Flow:
    """One flow of the job, and the switches that it crosses with its ports on them."""

    number: int
    src: str
    dst: str
    sport: int
    rank_src: int
    rank_dst: int
    hops: tuple[tuple[int, int, int], ...]  # (node id, ingress port, egress port)

    def links(self) -> list[str]:
        """The links after each switch, named by their ports: `100:101>201:1`; the last leaves the fabric."""
        out = []
        for (node, _, port), onward in zip_longest(self.hops, self.hops[1:]):
            out.append(f"{node}:{port}>" + (f"{onward[0]}:{onward[1]}" if onward else ""))
        return out

    def told(self) -> dict[str, Any]:
        """As the truth file has it."""
        return {
            "flow": self.number,
            "src": self.src,
            "dst": self.dst,
            "src_port": self.sport,
            "dst_port": ROCE_PORT,
            "protocol": UDP,
            "rank_src": self.rank_src,
            "rank_dst": self.rank_dst,
            "path": self.links(),
        }


def flows_of(shape: Shape, rng: np.random.Generator) -> list[Flow]:
    """The job's flows; none on a single host."""
    if shape.hosts == 1:
        return []
    out = []
    ports = rng.integers(49_152, 65_536, shape.ranks)
    for rank in range(shape.ranks):
        host, place = divmod(rank, shape.gpus)
        peer = (host + 1) % shape.hosts
        src, dst = _address(host, place), _address(peer, place)
        number = flow_id(src, dst, int(ports[rank]), ROCE_PORT, UDP)
        spine = int(mix(np.array([number], np.uint64))[0] % SPINES)
        hops = _path(host, peer, spine)
        out.append(Flow(number, src, dst, int(ports[rank]), rank, peer * shape.gpus + place, hops))
    return out


def _address(host: int, place: int) -> str:
    return f"10.{host >> 8}.{host & 0xFF}.{place + 1}"


def _path(host: int, peer: int, spine: int) -> tuple[tuple[int, int, int], ...]:
    (leaf, port), (other, out) = divmod(host, HOSTS_A_LEAF), divmod(peer, HOSTS_A_LEAF)
    if leaf == other:
        return ((LEAF_ID + leaf, port + 1, out + 1),)
    uplink = UPLINK_PORT + spine
    return (
        (LEAF_ID + leaf, port + 1, uplink),
        (SPINE_ID + spine, leaf + 1, other + 1),
        (LEAF_ID + other, uplink, out + 1),
    )


class Fabric:
    """Makes the reports, round by round, as rows of the collector: the source numbered `source`."""

    def __init__(
        self, shape: Shape, source: int, start_ns: int, faults: Sequence[Fault], rng: np.random.Generator
    ) -> None:
        self._rng = rng
        self._source = source
        self._start_ns = start_ns
        self.flows = flows_of(shape, rng)
        self._flow = np.repeat(np.arange(len(self.flows)), [len(flow.hops) for flow in self.flows])
        hops = [hop for flow in self.flows for hop in flow.hops]
        self._node, self._in, self._out = np.array(hops, np.int64).reshape(-1, 3).T
        self._hops: I64 = np.array([len(flow.hops) for flow in self.flows], np.int64)
        self._hop: I64 = np.arange(len(hops)) - np.repeat(np.cumsum(self._hops) - self._hops, self._hops)
        # The queue towards a host behind a slow link grows: the last hop of the flows that end there.
        self._peer = np.array([flow.rank_dst // shape.gpus for flow in self.flows], np.int64)
        self._slow = [fault for fault in faults if fault.name == "slow_link"]
        nodes = SPINE_ID + SPINES
        self._offset = rng.uniform(-1e9, 1e9, nodes)
        self._rate = rng.uniform(-1e-5, 1e-5, nodes)
        self.rounds = 0
        self._sequence = np.zeros(nodes, np.int64)

    @property
    def frontier_ns(self) -> float:
        """No row of the next round begins before it."""
        return float(self.rounds * ROUND_NS) if self.flows else np.inf

    def step(self) -> Rows:
        """One report of each flow. `more` holds the family's numbers, and `flow` (index into flows)."""
        rng, count, flow = self._rng, len(self.flows), self._flow
        sent = (self.rounds + 0.8 * rng.random(count)) * ROUND_NS
        queue = QUEUE_NS * np.exp(0.8 * rng.standard_normal(len(flow)))
        last = self._hop == self._hops[flow] - 1
        for fault in self._slow:
            behind = last & (self._peer[flow] == fault.place) & (sent[flow] >= fault.onset_ns)
            queue[behind] += 10_000 * (fault.size - 1) * np.exp(0.2 * rng.standard_normal(int(behind.sum())))
        stay = SWITCH_NS + queue
        since = np.cumsum(stay + WIRE_NS)
        first = np.repeat((since - stay - WIRE_NS)[self._hop == 0], self._hops)
        egress = sent[flow] + since - first
        ingress = egress - stay
        arrived = (
            np.maximum.reduceat(egress, np.flatnonzero(self._hop == 0)) + 5_000 + 20_000 * rng.random(count)
        )
        order = np.argsort(arrived, kind="stable")  # by report, as the collector gets them
        place = np.empty(count, np.int64)
        place[order] = np.arange(count)
        rows = np.argsort(place[flow], kind="stable")
        at = arrived[flow][rows].astype(np.int64)
        reporter = self._node[last]
        number = self._sequence[reporter] + self._place_among(reporter[order])[place]
        np.add.at(self._sequence, reporter, 1)
        more: dict[str, Array] = {
            "flow": flow[rows],
            "hop": self._hop[rows],
            "node": self._node[rows],
            "in_port": self._in[rows],
            "out_port": self._out[rows],
            "report": (self.rounds * count + place[flow])[rows],
            "report_seq": number[flow][rows],
            "latency": np.rint(stay).astype(np.int64)[rows],
            "occupancy": (queue * BYTES_A_NS / CELL_BYTES).astype(np.int64)[rows],
            "ingress": self._stamp(ingress)[rows],
            "egress": self._stamp(egress)[rows],
        }
        self.rounds += 1
        return Rows(np.full(len(rows), self._source), at, at, more)

    @staticmethod
    def _place_among(node: I64) -> I64:
        """Of each report, in order: how many of the same reporter came before it."""
        order = np.argsort(node, kind="stable")
        first = np.searchsorted(node[order], node[order])
        out = np.empty(len(node), np.int64)
        out[order] = np.arange(len(node)) - first
        return out

    def _stamp(self, true_ns: NDArray[np.float64]) -> U64:
        """Each hop's reading of its switch's own clock."""
        drift = self._offset[self._node] + self._rate[self._node] * true_ns
        return (self._start_ns + np.rint(true_ns + drift).astype(np.int64)).astype(np.uint64)


class IntFamily:
    """Hops of the reports."""

    name = "int"

    def __init__(self, flows: Sequence[Flow]) -> None:
        self._flows = flows
        self._hops = np.array([len(flow.hops) for flow in flows], np.int64)
        self._sink = np.array([flow.hops[-1][0] for flow in flows], np.int64)  # the last switch reports
        self._number = np.array([flow.number for flow in flows], np.uint64)
        self._sport = np.array([flow.sport for flow in flows], np.int64)

    def fill(self, rows: Rows, host: int, strings: Strings) -> Filled:
        count, more = len(rows), rows.more
        flow, node = more["flow"], more["node"]
        nodes, at = np.unique(node, return_inverse=True)
        entity = np.array([strings.index(f"node:{number}") for number in nodes.tolist()])
        used, which = np.unique(flow, return_inverse=True)
        src = np.array([strings.index(self._flows[number].src) for number in used.tolist()])
        dst = np.array([strings.index(self._flows[number].dst) for number in used.tolist()])
        columns: dict[str, Array] = {
            "kind": np.full(count, int(HopKind.HOP)),
            "entity": entity[at],
            "reporter": self._sink[flow],
            "hw_id": np.zeros(count, np.int64),
            "hops": self._hops[flow],
            "ingress_ts": more["ingress"],
            "egress_ts": more["egress"],
            "report_flags": np.full(count, int(ReportFlag.FLOW)),
            "version": np.full(count, REPORT_VERSION),
            "int_version": np.full(count, REPORT_VERSION),
            "flow": self._number[flow],
            "src": src[which],
            "dst": dst[which],
            "sport": self._sport[flow],
            "dport": np.full(count, ROCE_PORT),
            "protocol": np.full(count, UDP),
            "length": np.full(count, PACKET_BYTES),
        }
        same = ("node", "report_seq", "report", "hop", "in_port", "out_port", "latency", "occupancy")
        return Filled(columns | {name: more[name] for name in same})
