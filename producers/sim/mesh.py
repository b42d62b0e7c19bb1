"""Probes between simulated hosts and what their clock daemons log, in true time, round by round."""

from collections.abc import Sequence

import numpy as np

from producers.sim.clocks import HELD, REALTIME_BOUND_NS, Clocks
from producers.sim.faults import Fault
from producers.sim.job import PHC2SYS, PROBE, PTP4L, Shape
from producers.sim.rows import I64, Rows
from schemas.columns import ProbeKind

PEERS_MAX = 7  # hosts that each host sends to: all others in a small cluster
WIRE_NS, QUEUE_NS = 5_000, 1_500  # least one-way delay between two hosts, median of the queues on top
_SPREAD = 0.8  # share of a round in which probes are sent; the rest lets the last of them arrive
_DELAY_MAX = 0.15  # of a round: above any delay, so that a socket's rows of two rounds never mix
SAMPLE_NS = 250_000_000


class Mesh:
    """Each host probes its next PEERS_MAX hosts once a round, stamped in hardware at both ends."""

    def __init__(
        self, shape: Shape, round_ns: int, faults: Sequence[Fault], rng: np.random.Generator
    ) -> None:
        assert round_ns >= 10_000_000, "rounds shorter than 10 ms leave no room for the delays"
        self._shape = shape
        self._round_ns = round_ns
        self._slow = [fault for fault in faults if fault.name == "slow_link"]
        self._rng = rng
        peers = min(shape.hosts - 1, PEERS_MAX)
        self._sender = np.repeat(np.arange(shape.hosts), peers)
        self._receiver = (self._sender + np.tile(np.arange(1, peers + 1), shape.hosts)) % shape.hosts
        self._place = np.tile(np.arange(peers), shape.hosts)
        self._peers = peers
        self.rounds = 0

    @property
    def frontier_ns(self) -> float:
        """No row of the next round begins before it."""
        return float(self.rounds * self._round_ns) if self._peers else np.inf

    def step(self) -> Rows:
        """One round. `more`: `kind`, `peer` and `sender` (hosts), `number` (of the sender's probe)."""
        pairs, rng = len(self._sender), self._rng
        slots = rng.permuted(np.arange(pairs).reshape(self._shape.hosts, -1) % max(self._peers, 1), axis=1)
        share = (slots.ravel() + rng.random(pairs)) / self._peers * _SPREAD
        sent = np.rint((self.rounds + share) * self._round_ns).astype(np.int64)
        delay = WIRE_NS + QUEUE_NS * np.exp(0.6 * rng.standard_normal(pairs))
        for fault in self._slow:
            crosses = (self._sender == fault.place) | (self._receiver == fault.place)
            delay[crosses & (sent >= fault.onset_ns)] *= fault.size
        arrived = sent + np.minimum(delay, _DELAY_MAX * self._round_ns).astype(np.int64)
        number = self.rounds * self._peers + self._place
        self.rounds += 1
        host = np.concatenate([self._sender, self._receiver])
        at = np.concatenate([sent, arrived])
        more = {
            "kind": np.repeat([ProbeKind.SEND, ProbeKind.RECEIVE], pairs),
            "peer": np.concatenate([self._receiver, self._sender]),
            "sender": np.tile(self._sender, 2),
            "number": np.tile(number, 2),
        }
        return Rows(self._shape.service(host, PROBE), at, at, more)


class Daemons:
    """ptp4l and phc2sys of each host: the offset that each sees, a few times a second.

    A sample shows the clock's error and some noise, within the stated bound. A fault shows in none: the path
    to the master is asymmetric, or the master lies.
    """

    def __init__(
        self, shape: Shape, clocks: Clocks, host_bound_ns: Sequence[int], rng: np.random.Generator
    ) -> None:
        self._shape = shape
        self._clocks = clocks
        self._rng = rng
        self._bound = np.array([host_bound_ns, [REALTIME_BOUND_NS] * shape.hosts], np.float64).T
        self.rounds = 0

    @property
    def frontier_ns(self) -> float:
        return float(self.rounds * SAMPLE_NS)

    def step(self) -> Rows:
        """One sample of each clock. `more` holds `offset`, `delay` (ns), `freq` (ppb) and `daemon`."""
        hosts, rng = self._shape.hosts, self._rng
        host = np.repeat(np.arange(hosts), 2)
        daemon: I64 = np.tile([0, 1], hosts)
        share = rng.random(2 * hosts)
        at = np.rint((self.rounds + 0.9 * share) * SAMPLE_NS).astype(np.int64)
        self.rounds += 1
        error = self._clocks.errors.at(host * self._clocks.per_host + daemon, at)
        bound = self._bound[host, daemon]
        noise = (1 - HELD) / 3 * bound * rng.standard_normal(2 * hosts)
        offset = np.clip(error + noise, -0.99 * bound, 0.99 * bound)
        more = {
            "offset": np.rint(offset).astype(np.int64),
            "delay": np.rint(np.where(daemon == 0, 2 * WIRE_NS, 900) + 20 * rng.random(2 * hosts)).astype(
                np.int64
            ),
            "freq": np.where(daemon == 0, 12_000.0, -300.0) + 5 * rng.standard_normal(2 * hosts),
            "daemon": daemon,
        }
        source = np.where(daemon == 0, self._shape.service(host, PTP4L), self._shape.service(host, PHC2SYS))
        return Rows(source, at, at, more)
