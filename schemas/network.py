"""The network as its devices tell it: cables, routing tables, hash settings, flows of hosts.

Producers read these from files and devices, the path stage walks them. A cable is two half-links, one each way;
a half-link is named `sender:port>receiver:port`, and `sender:port>` where nobody knows what is at its far end.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from typing import Final

from schemas.codes import SportSource
from schemas.errors import MalformedInput

Network = IPv4Network | IPv6Network
RECURSION_MAX: Final = 8
NO_ROUTE: Final = "gateway without a route"  # what a next hop drops by if its gateway cannot be reached
_KINDS: Final = (
    "ethernet", "portchannel", "port-channel", "vlan", "loopback", "management", "hundredgige", "fourhundredgige",
)  # fmt: skip


def link_name(sender: str, port: str, receiver: str = "", receiver_port: str = "") -> str:
    """The name of a half-link."""
    return f"{sender}:{port}>" + (f"{receiver}:{receiver_port}" if receiver else "")


@dataclass(frozen=True)
class HalfLink:
    """One direction of a cable. None is unknown."""

    sender: str
    sender_port: str
    receiver: str
    receiver_port: str
    capacity_bps: float | None = None
    delay_ns: int | None = None
    loss: float | None = None

    @property
    def name(self) -> str:
        return link_name(self.sender, self.sender_port, self.receiver, self.receiver_port)


@dataclass(frozen=True, eq=False)
class Topology:
    """Switches and hosts by name, and all half-links. `lids`: InfiniBand's LID -> (node, port)."""

    switches: frozenset[str]
    hosts: frozenset[str]
    links: tuple[HalfLink, ...]
    lids: Mapping[int, tuple[str, str]] = field(default_factory=dict)

    @cached_property
    def _out(self) -> dict[tuple[str, str], HalfLink]:
        return {(link.sender, link.sender_port): link for link in self.links}

    @cached_property
    def _out_by_key(self) -> dict[tuple[str, str], HalfLink]:
        return {(link.sender, port_key(link.sender_port)): link for link in self.links}

    @cached_property
    def _of_node(self) -> dict[str, list[HalfLink]]:
        out: dict[str, list[HalfLink]] = {}
        for link in self.links:
            out.setdefault(link.sender, []).append(link)
        return out

    def out(self, node: str, port: str) -> HalfLink | None:
        """The half-link that leaves a node by a port, in whatever spelling of the port's name."""
        return self._out.get((node, port)) or self._out_by_key.get((node, port_key(port)))

    def ports(self, node: str) -> list[HalfLink]:
        """The half-links that leave a node."""
        return self._of_node.get(node, [])


@dataclass(frozen=True)
class NextHop:
    """One way on. `port` is the interface, `gateway` the neighbour's address; `drop` says why nothing goes on."""

    gateway: str | None = None
    port: str | None = None
    weight: int = 1
    drop: str = ""
    vrf: str | None = None


@dataclass(frozen=True)
class Route:
    """A prefix and its ways on.

    `buckets` is the table that a hash indexes, places of next hops, where the device shows it; `resilient` the
    size of one whose content is not shown. `local` is the device's own address.
    """

    prefix: Network
    next_hops: tuple[NextHop, ...]
    protocol: str = ""
    buckets: tuple[int, ...] | None = None
    resilient: int | None = None
    local: bool = False
    spray: bool = False


@dataclass(frozen=True)
class HashSettings:
    """How a switch is set to choose, in SONiC's words. None: the device does not say."""

    algorithm: str | None = None
    fields: tuple[str, ...] = ()
    seed: int | None = None
    offset: int | None = None
    lag_algorithm: str | None = None
    lag_fields: tuple[str, ...] = ()
    lag_seed: int | None = None
    lag_offset: int | None = None


@dataclass(frozen=True, eq=False)
class RouteTable:
    """One switch's routes by VRF, LAG members by LAG, and where its neighbours are (address -> port)."""

    switch: str
    routes: Mapping[str, tuple[Route, ...]]
    lags: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    neighbours: Mapping[str, str] = field(default_factory=dict)
    vrfs: Mapping[str, str] = field(default_factory=dict)  # port -> VRF that it belongs to
    generation: str = ""
    hashing: HashSettings | None = None

    @cached_property
    def _index(self) -> dict[str, dict[tuple[int, int], dict[int, Route]]]:
        out: dict[str, dict[tuple[int, int], dict[int, Route]]] = {}
        for vrf, routes in self.routes.items():
            mine = out.setdefault(vrf, {})
            for route in routes:
                prefix = route.prefix
                mine.setdefault((prefix.version, prefix.prefixlen), {})[int(prefix.network_address)] = route
        return {vrf: dict(sorted(mine.items(), key=lambda entry: -entry[0][1])) for vrf, mine in out.items()}

    def vrf_of(self, port: str) -> str:
        """The VRF of a port, or of the LAG that it belongs to."""
        known = self.vrfs.get(port)
        if known is None and self.vrfs:
            known = next(
                (self.vrfs[lag] for lag, ports in self.lags.items() if port in ports and lag in self.vrfs),
                None,
            )
        return known or "default"

    def lookup(self, address: str, vrf: str = "default") -> Route | None:
        """The route of the longest prefix, or None. Raises ValueError if it is no address."""
        wanted = ip_address(address)
        number, bits = int(wanted), wanted.max_prefixlen
        for (version, length), routes in self._index.get(vrf, {}).items():
            if version == wanted.version:
                found = routes.get(number >> (bits - length) << (bits - length))
                if found is not None:
                    return found
        return None

    def _towards(self, gateway: str, vrf: str) -> Route | None:
        try:
            return self.lookup(gateway, vrf)
        except ValueError:  # a gateway without an address, such as an IP-unnumbered one
            return None

    def ways(self, route: Route, vrf: str = "default", depth: int = 0) -> tuple[NextHop, ...]:
        """Next hops with an interface each: those that name only a gateway are looked up in turn.

        Weights multiply; a gateway without a route is a drop.
        """
        out: list[NextHop] = []
        for hop in route.next_hops:
            if hop.drop or hop.port is not None or hop.gateway is None:
                out.append(hop)
                continue
            inner = self._towards(hop.gateway, hop.vrf or vrf) if depth < RECURSION_MAX else None
            if inner is None or inner is route:
                out.append(NextHop(hop.gateway, None, hop.weight, NO_ROUTE, hop.vrf))
                continue
            for found in self.ways(inner, hop.vrf or vrf, depth + 1):
                gateway = found.gateway if found.gateway is not None else hop.gateway
                out.append(
                    NextHop(gateway, found.port, hop.weight * found.weight, found.drop, found.vrf or hop.vrf)
                )
        return tuple(out)


@dataclass(frozen=True, eq=False)
class LidTable:
    """An InfiniBand switch's linear forwarding table: LID -> port. 0 is the switch itself."""

    switch: str
    ports: Mapping[int, int]
    generation: str = ""
    adaptive: Mapping[int, tuple[int, ...]] = field(default_factory=dict)  # LID -> ports of its AR group


@dataclass(frozen=True)
class FlowKey:
    """What switches may hash of a flow. Unknown ports and numbers are 0. `dst` is an address, or `lid:N`."""

    src: str
    dst: str
    protocol: int = 17
    sport: int = 0
    dport: int = 4791
    qpn: int = 0


def port_key(name: str) -> str:
    """A port's name in one spelling: devices write `Ethernet1/1` here and `Eth1/1` or `Et1/1` there."""
    match = re.match(r"([A-Za-z-]+)\s*(\d.*)$", name)
    if match is None:
        return name
    kind, number = match[1].lower(), match[2]
    if len(kind) >= 2:
        kind = next((long for long in _KINDS if long.startswith(kind)), kind)
    return f"{kind.replace('-', '')}{number}"


def prefix(text: str) -> Network:
    """A prefix; host bits set are cleared, as devices do. Raises MalformedInput."""
    try:
        return ip_network(text, strict=False)
    except ValueError as error:
        raise MalformedInput("no prefix", text) from error


def cable(
    a: str, a_port: str, b: str, b_port: str, bps: float | None = None, delay_ns: int | None = None,
    loss: float | None = None,
) -> tuple[HalfLink, HalfLink]:  # fmt: skip
    """Both directions of a cable."""
    return (
        HalfLink(a, a_port, b, b_port, bps, delay_ns, loss),
        HalfLink(b, b_port, a, a_port, bps, delay_ns, loss),
    )


def topology(
    links: Iterable[HalfLink],
    switches: Iterable[str] = (),
    hosts: Iterable[str] = (),
    lids: Mapping[int, tuple[str, str]] | None = None,
) -> Topology:
    """A topology; nodes that nobody calls switch or host are hosts if they have one cable, else switches.

    A half-link stated twice (by both ends, say) is one. Raises MalformedInput where a port has two far ends.
    """
    known: dict[tuple[str, str], HalfLink] = {}
    for link in links:
        key = (link.sender, link.sender_port)
        before = known.get(key)
        if before is not None and (before.receiver, before.receiver_port) != (
            link.receiver,
            link.receiver_port,
        ):
            raise MalformedInput(f"a port with two far ends: {before.name} and {link.name}", key[0])
        if before is None or before.capacity_bps is None:
            known[key] = link
    degree: dict[str, int] = {}
    for link in known.values():
        degree[link.sender] = degree.get(link.sender, 0) + 1
    told_switches, told_hosts = set(switches), set(hosts)
    for node, count in degree.items():
        if node not in told_switches and node not in told_hosts:
            (told_hosts if count == 1 else told_switches).add(node)
    return Topology(
        frozenset(told_switches), frozenset(told_hosts - told_switches), tuple(known.values()), lids or {}
    )


@dataclass(frozen=True)
class HostFlow:
    """A flow that a host has, and whose it is. `how` names what it was joined by, in a few words."""

    key: FlowKey
    sport_source: SportSource = SportSource.UNKNOWN
    src_host: str = ""
    dst_host: str = ""
    device: str = ""  # of the sender, with its port
    netdev: str = ""
    ports: tuple[str, ...] = ()  # of the sender, one of which carries the flow
    vlan: int | None = None
    vrf: str = ""
    job: str = ""
    rank_src: int | None = None
    rank_dst: int | None = None
    bytes: int | None = None
    how: str = ""
