"""What one node does with a flow: its route, its next hop among several, the LAG behind it.

See streams.paths.walk for what the words mean.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from schemas.network import NO_ROUTE, FlowKey, LidTable, NextHop, RouteTable, port_key
from streams.paths.models import Rated, buckets, place

ARRIVED: Final = "arrived"

Question = tuple[str, FlowKey, str]  # (switch, flow, ingress port)


@dataclass(frozen=True)
class Answer:
    """What a device says of one flow: the port, or the next hop's address."""

    port: str | None = None
    gateway: str | None = None


@dataclass(frozen=True)
class Chooser:
    """How a switch chooses among next hops, and among the members of a LAG."""

    ecmp: Rated = field(default_factory=lambda: Rated(None))
    lag: Rated = field(default_factory=lambda: Rated(None))


@dataclass(frozen=True)
class Hop:
    """A half-link that the flow, or `share` of it, takes from `node`. `how` says why: only, exact, hash, spray, any.

    `ways` is the number of half-links that there were to choose from.
    """

    node: str
    port_in: str
    link: str
    share: float
    how: str
    ways: int
    depth: int


@dataclass
class Way:
    """A half-link's sending port (or why nothing goes on), with its share and how it was chosen."""

    port: str
    share: float
    how: str
    ways: int
    drop: str = ""
    gateway: str | None = None
    connected: bool = False


class State:
    """What a walk has found so far."""

    def __init__(self) -> None:
        self.hops: list[Hop] = []
        self.ends: dict[str, float] = {}
        self.wanted: list[Question] = []
        self.rates: list[float] = []
        self.hashed = False
        self.open = False  # some choice is not known

    def end(self, name: str, share: float) -> None:
        self.ends[name] = self.ends.get(name, 0.0) + share


def lid_ways(table: LidTable, key: FlowKey) -> list[Way]:
    """Where an InfiniBand switch sends a LID."""
    if not key.dst.startswith("lid:"):
        return [Way("", 1.0, "only", 0, drop="no route")]
    lid = int(key.dst[4:])
    spread = table.adaptive.get(lid)
    if spread:
        return [Way(str(port), 1 / len(spread), "spray", len(spread)) for port in spread]
    port = table.ports.get(lid)
    if port is None:
        return [Way("", 1.0, "only", 0, drop="no route")]
    if port == 0:
        return [Way("", 1.0, "only", 1, drop=ARRIVED)]
    return [Way(str(port), 1.0, "only", 1)]


def route_ways(
    table: RouteTable,
    key: FlowKey,
    port_in: str,
    chooser: Chooser,
    answers: Mapping[Question, Answer],
    state: State,
) -> list[Way]:
    """Where a switch sends a flow: its answer, else its route, then the LAG."""
    vrf = table.vrf_of(port_in)
    route = None if key.dst.startswith("lid:") else table.lookup(key.dst, vrf)
    if route is None:
        return [Way("", 1.0, "only", 0, drop="no route")]
    if route.local:
        return [Way("", 1.0, "only", 1, drop=ARRIVED)]
    hops = table.ways(route, vrf)
    if not hops:
        return [Way("", 1.0, "only", 0, drop="no route")]
    at = _At(table, key, port_in, chooser, state)
    question = (table.switch, key, port_in)
    answer = answers.get(question)
    if answer is not None:
        hop = _answered(answer, hops)
        return at.through_lag(hop, 1.0, "exact", len(hops))
    weights = [hop.weight for hop in hops]
    out: list[Way] = []
    for place_, share, how in at.select(weights, chooser.ecmp, buckets(route, weights), route.spray):
        out += at.through_lag(hops[place_], share, how, len(hops))
    if any(way.how == "any" for way in out):
        state.wanted.append(question)
    return out


def _answered(answer: Answer, hops: tuple[NextHop, ...]) -> NextHop:
    """The next hop that the device named, by port or by address."""
    for hop in hops:
        if answer.port is not None and hop.port is not None and port_key(hop.port) == port_key(answer.port):
            return hop
        if answer.port is None and hop.gateway == answer.gateway:
            return hop
    # A device that names the physical port of a LAG, or a way that the table does not have: it knows best.
    return NextHop(answer.gateway or hops[0].gateway, answer.port)


@dataclass(frozen=True, eq=False)
class _At:
    """A flow at a switch that routes."""

    table: RouteTable
    key: FlowKey
    port_in: str
    chooser: Chooser
    state: State

    def select(
        self, weights: list[int], rated: Rated, table: NDArray[np.int64] | None = None, spray: bool = False
    ) -> list[tuple[int, float, str]]:
        """(place, share, how) of the members of a group that the flow takes."""
        if len(weights) == 1:
            return [(0, 1.0, "only")]
        shares = [(k, weight / sum(weights)) for k, weight in enumerate(weights)]
        if spray or rated.spray:
            return [(k, share, "spray") for k, share in shares]
        state = self.state
        if rated.agreement is not None:
            state.rates.append(rated.agreement)
        if rated.calibrated:
            assert rated.model is not None
            state.hashed = True
            chosen = place(rated.model, self.key, self.table.switch, self.port_in, table, len(weights))
            return [(chosen, 1.0, "hash")]
        state.open = True
        return [(k, share, "any") for k, share in shares]

    def through_lag(self, hop: NextHop, share: float, how: str, ways: int) -> list[Way]:
        """The physical ports behind a next hop: the members of a LAG by its own hash, or the port itself."""
        if hop.drop:
            name = "no route" if hop.drop == NO_ROUTE else "blackhole"
            return [Way("", share, how, ways, drop=name)]
        table, port = self.table, hop.port
        if port is None:
            return [Way("", share, how, ways, drop="unknown neighbour")]
        connected = hop.gateway is None
        # The neighbour of a VLAN or bridge is behind one of its ports, which the neighbour table tells.
        behind = table.neighbours.get(self.key.dst if connected else hop.gateway or "")
        if behind is not None and port not in table.lags:
            port = behind
        members = table.lags.get(port)
        if not members:
            return [Way(port, share, how, ways, gateway=hop.gateway, connected=connected)]
        return [
            Way(
                members[k], share * part, _weaker(how, chosen), ways * len(members),
                gateway=hop.gateway, connected=connected,
            )
            for k, part, chosen in self.select([1] * len(members), self.chooser.lag)
        ]  # fmt: skip


def _weaker(one: str, two: str) -> str:
    """Of two reasons the one that is less certain."""
    order = ("only", "exact", "spray", "hash", "any")
    return max(one, two, key=order.index)
