"""Walking a flow through a fabric, hop by hop, by the tables of its switches.

At each switch the longest prefix gives the next hops; a LAG then gives its members. One next hop, or the
device's own answer, is certain: the path is *walked*. Where a hash model chose, the path is *computed*, if the
model is calibrated (streams.paths.models); else all next hops are followed with their shares: *candidates*.
A switch that spreads packets (spray, adaptive routing) sends to all of them, which is certain again: the path is
walked, with shares.

A branch ends by name: `arrived`, `loop` (it meets a switch again by the same port), `blackhole` (a route that
drops), `no route`, `ttl`, `unreached` (nobody has this switch's table), `inconsistent` (its table changed while
it was read), `unknown neighbour` (nobody knows what is behind a port). Branches that meet again are one, with
their shares added. No I/O: tables are given, and what answers would settle a choice is listed in `wanted`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import Final

from schemas.codes import PathSource
from schemas.network import FlowKey, LidTable, RouteTable, Topology, link_name
from streams.paths.ways import ARRIVED, Answer, Chooser, Hop, Question, State, Way, lid_ways, route_ways

__all__ = ["ARRIVED", "Answer", "Chooser", "Hop", "Network", "Question", "Walk", "learned_addresses", "walk"]

TTL_DEFAULT: Final = 32
BRANCHES_MAX: Final = 4096


@dataclass(frozen=True)
class Walk:
    """A flow's path: hops in order of depth, and how its branches ended, with their shares."""

    key: FlowKey
    hops: tuple[Hop, ...]
    ends: Mapping[str, float]
    source: PathSource
    agreement: float | None
    wanted: tuple[Question, ...]
    used: frozenset[str]

    @property
    def end(self) -> str:
        """How it ended: the worst where branches differ."""
        return next((name for name in self.ends if name != ARRIVED), ARRIVED)


@dataclass(frozen=True, eq=False)
class Network:
    """What a walk needs to know. `addresses`: who owns an address, by which port ("" where any)."""

    topology: Topology
    tables: Mapping[str, RouteTable | LidTable]
    addresses: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    choosers: Mapping[str, Chooser] = field(default_factory=dict)
    answers: Mapping[Question, Answer] = field(default_factory=dict)
    unreached: Mapping[str, str] = field(default_factory=dict)  # switch -> why
    inconsistent: frozenset[str] = frozenset()

    def owner(self, address: str) -> tuple[str, str] | None:
        """(node, port) of an address, or of `lid:N`."""
        if address.startswith("lid:"):
            return self.topology.lids.get(int(address[4:])) if address[4:].isdecimal() else None
        return self.addresses.get(address)

    def known(self, address: str) -> bool:
        """Whether tables can be asked for it: an IP address, or a LID that somebody has."""
        if address.startswith("lid:"):
            return self.owner(address) is not None
        try:
            ip_address(address)
        except ValueError:
            return False
        return True


def learned_addresses(
    topology: Topology, tables: Mapping[str, RouteTable | LidTable]
) -> dict[str, tuple[str, str]]:
    """Owners of addresses: switches by their local routes, others by who has them as neighbours behind a port."""
    out: dict[str, tuple[str, str]] = {}
    for name, table in tables.items():
        if isinstance(table, LidTable):
            continue
        for routes in table.routes.values():
            for route in routes:
                if route.local and route.prefix.num_addresses == 1:
                    out[str(route.prefix.network_address)] = (name, "")
        for address, port in table.neighbours.items():
            link = topology.out(name, port)
            if link is not None:
                out.setdefault(address, (link.receiver, link.receiver_port))
    return out


@dataclass
class _Branch:
    node: str
    port: str  # ingress
    share: float
    ancestors: frozenset[tuple[str, str]]


def walk(network: Network, key: FlowKey, ttl: int = TTL_DEFAULT) -> Walk:
    """The path of a flow from the owner of its source address. See the file's header."""
    state = State()
    used: set[str] = set()
    start, target = network.owner(key.src), network.owner(key.dst)
    live: dict[tuple[str, str], _Branch] = {}
    if start is None or not network.known(key.dst):
        state.end("unknown neighbour", 1.0)
    else:
        live = _depart(network, key, start, state)
    depth = 1
    while live:
        if depth > ttl:
            for branch in live.values():
                state.end("ttl", branch.share)
            break
        after: dict[tuple[str, str], _Branch] = {}
        for branch in live.values():
            _step(network, key, target, branch, depth, state, after, used)
        live = after
        depth += 1
        if len(live) > BRANCHES_MAX:
            for branch in live.values():
                state.end("too many branches", branch.share)
            break
    source = (
        PathSource.CANDIDATES if state.open else PathSource.COMPUTED if state.hashed else PathSource.WALKED
    )
    rate = min(state.rates) if state.rates else None
    return Walk(key, tuple(state.hops), state.ends, source, rate, tuple(state.wanted), frozenset(used))


def _depart(
    network: Network, key: FlowKey, start: tuple[str, str], state: State
) -> dict[tuple[str, str], _Branch]:
    """The first links: by the host's own table where there is one, by the address's port, or by its only one."""
    node, port = start
    if node in network.tables and port in ("", "0"):
        return {(node, ""): _Branch(node, "", 1.0, frozenset())}
    links = network.topology.ports(node)
    mine = [link for link in links if link.sender_port == port] or links
    after: dict[tuple[str, str], _Branch] = {}
    if not mine:
        state.end("unknown neighbour", 1.0)
    how = "only" if len(mine) == 1 else "any"
    state.open |= how == "any"
    for link in mine:
        share = 1.0 / len(mine)
        state.hops.append(Hop(node, "", link.name, share, how, len(mine), 0))
        after[link.receiver, link.receiver_port] = _Branch(
            link.receiver, link.receiver_port, share, frozenset()
        )
    return after


def _step(
    network: Network,
    key: FlowKey,
    target: tuple[str, str] | None,
    branch: _Branch,
    depth: int,
    state: State,
    after: dict[tuple[str, str], _Branch],
    used: set[str],
) -> None:
    """One branch on by one node."""
    node = branch.node
    if target is not None and node == target[0]:
        state.end(ARRIVED, branch.share)
        return
    if node in network.topology.hosts and node not in network.tables:
        # A host that is not the one wanted does not forward; where nobody knows whose address it is, it is its own.
        state.end("unknown neighbour" if target is not None else ARRIVED, branch.share)
        return
    if node in network.inconsistent:
        state.end("inconsistent", branch.share)
        return
    table = network.tables.get(node)
    if table is None:
        state.end("unreached", branch.share)
        return
    here = (node, branch.port)
    if here in branch.ancestors:
        state.end("loop", branch.share)
        return
    used.add(node)
    if isinstance(table, LidTable):
        ways = lid_ways(table, key)
    else:
        chooser = network.choosers.get(node, Chooser())
        ways = route_ways(table, key, branch.port, chooser, network.answers, state)
    for way in ways:
        _follow(network, key, branch, way, depth, state, after)


def _follow(
    network: Network,
    key: FlowKey,
    branch: _Branch,
    way: Way,
    depth: int,
    state: State,
    after: dict[tuple[str, str], _Branch],
) -> None:
    share = branch.share * way.share
    if way.drop:
        state.end(way.drop, share)
        return
    node = branch.node
    link = network.topology.out(node, way.port)
    receiver, receiver_port = "", ""
    if link is not None:
        name, receiver, receiver_port = link.name, link.receiver, link.receiver_port
    else:
        owner = network.addresses.get(key.dst if way.connected else way.gateway or "")
        if owner is not None:
            receiver, receiver_port = owner
        name = link_name(node, way.port, receiver, receiver_port)
    state.hops.append(Hop(node, branch.port, name, share, way.how, way.ways, depth))
    if not receiver:
        state.end("unknown neighbour", share)
        return
    known = after.get((receiver, receiver_port))
    ancestors = branch.ancestors | {(node, branch.port)}
    if known is not None:
        share, ancestors = share + known.share, ancestors | known.ancestors
    after[receiver, receiver_port] = _Branch(receiver, receiver_port, share, ancestors)
