"""Which flows hosts have, and whose they are, from what each host says on its own.

A queue pair names its own and its peer's number, but neither address. The two ends are joined across hosts: swapped
numbers, and packet sequence numbers near each other (what one sends next, the other expects next). Numbers are
small and alike on every host, so several ends may fit; then the sequence numbers must single one out, or the pair
is listed as ambiguous with its candidates. Addresses come from the connection manager, NCCL's log, or the port's
only RoCE v2 GID; a capture adds the source ports that were really used.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from producers.host.netdevs import Netdev
from producers.host.rdma import CmId, Gid, NcclPair, QueuePair, Socket, psn_distance
from schemas.codes import SportSource
from schemas.network import FlowKey, HostFlow

ROCE_PORT: Final = 4791
UDP: Final = 17
PSN_NEAR: Final = 1 << 16  # packets between two hosts' readings: 16 M packets/s for 4 ms


@dataclass(frozen=True)
class Host:
    """All that one host said. `owners`: job and rank by process; `netdevs` by interface."""

    name: str
    queue_pairs: Sequence[QueuePair] = ()
    cm_ids: Sequence[CmId] = ()
    gids: Sequence[Gid] = ()
    nccl: Sequence[NcclPair] = ()
    sockets: Sequence[Socket] = ()
    owners: Mapping[int, tuple[str, int | None]] = field(default_factory=dict)
    netdevs: Mapping[str, Netdev] = field(default_factory=dict)
    netdev_of: Mapping[tuple[str, int], str] = field(default_factory=dict)  # (device, port) -> interface


@dataclass(frozen=True)
class End:
    """A queue pair of a host."""

    host: str
    pair: QueuePair

    def __str__(self) -> str:
        return f"{self.host} {self.pair.device}/{self.pair.port} qp {self.pair.lqpn}"


@dataclass(frozen=True)
class Ambiguous:
    """A queue pair whose peer could not be told: `candidates` fit, or nobody (then `why` says what is missing)."""

    end: End
    candidates: tuple[End, ...]
    why: str


@dataclass(frozen=True)
class Captured:
    """A RoCE flow seen in a capture. `sport` is None where its packets teach none (CNPs, UD, port 0)."""

    src: str
    dst: str
    qpn: int
    sport: int | None
    bytes: int
    packets: int


@dataclass(frozen=True)
class Found:
    """Flows, and what could not be told."""

    flows: list[HostFlow]
    ambiguous: list[Ambiguous]


def join(
    hosts: Sequence[Host],
    sport_of: Callable[[int, int], int],
    captured: Sequence[Captured] = (),
) -> Found:
    """Flows of all hosts. `sport_of` (local, remote queue pair) is the kernel's formula for source ports."""
    by_host = {host.name: host for host in hosts}
    ends = [
        End(host.name, pair)
        for host in hosts
        for pair in host.queue_pairs
        if pair.kind in ("RC", "UC") and pair.rqpn and pair.state in ("RTS", "RTR", "SQD", "")
    ]
    by_numbers: dict[tuple[int, int], list[End]] = {}
    for end in ends:
        by_numbers.setdefault((end.pair.lqpn, end.pair.rqpn or 0), []).append(end)
    flows: list[HostFlow] = []
    ambiguous: list[Ambiguous] = []
    ports = _Ports(captured)
    for end in ends:
        fits = [other for other in by_numbers.get((end.pair.rqpn or 0, end.pair.lqpn), []) if other != end]
        peer, why = _peer(end, fits)
        if peer is None:
            ambiguous.append(Ambiguous(end, tuple(fits), why))
            continue
        back, _ = _peer(peer, [e for e in by_numbers[end.pair.lqpn, end.pair.rqpn or 0] if e != peer])
        if back != end:
            ambiguous.append(Ambiguous(end, (peer,), "its peer fits another one better"))
            continue
        flow = _flow(end, peer, by_host, sport_of, ports)
        if isinstance(flow, str):
            ambiguous.append(Ambiguous(end, (peer,), flow))
        else:
            flows.append(flow)
    flows = _without_refuted(flows, sport_of, by_host)
    for host in hosts:
        flows += [_of_socket(host, socket, hosts) for socket in host.sockets]
    return Found(flows, ambiguous)


def _peer(end: End, fits: Sequence[End]) -> tuple[End | None, str]:
    """The other end, or why there is none."""
    if not fits:
        return None, "no host has the other end"
    if len(fits) == 1:
        return fits[0], ""
    near = [other for other in fits if _gap(end, other) <= PSN_NEAR]
    if len(near) == 1:
        return near[0], ""
    return None, "sequence numbers are near several" if near else "no sequence numbers are near"


def _gap(one: End, two: End) -> int:
    """The greater distance of the two directions' sequence numbers; beyond all where a number is missing."""
    gaps = []
    for sent, expected in ((one.pair.sq_psn, two.pair.rq_psn), (two.pair.sq_psn, one.pair.rq_psn)):
        if sent is None or expected is None:
            return 1 << 24
        gaps.append(psn_distance(sent, expected))
    return max(gaps)


class _Ports:
    """Source ports that captures taught, by (source, destination, queue pair)."""

    def __init__(self, captured: Sequence[Captured]) -> None:
        self._by_key: dict[tuple[str, str, int], list[Captured]] = {}
        for entry in captured:
            self._by_key.setdefault((entry.src, entry.dst, entry.qpn), []).append(entry)

    def find(self, src: str, dst: str, qpn: int) -> tuple[int | None, int | None]:
        """(source port, bytes): the port if all packets that teach one agree."""
        entries = self._by_key.get((src, dst, qpn), [])
        taught = {entry.sport for entry in entries if entry.sport is not None}
        total = sum(entry.bytes for entry in entries) if entries else None
        return (taught.pop() if len(taught) == 1 else None), total


def _flow(
    end: End,
    peer: End,
    hosts: Mapping[str, Host],
    sport_of: Callable[[int, int], int],
    ports: _Ports,
) -> HostFlow | str:
    """The flow from one end to the other, or why its addresses are not known."""
    src, how_src = address(hosts[end.host], end.pair)
    dst, how_dst = address(hosts[peer.host], peer.pair)
    if src is None:
        return f"{end.host}: {how_src}"
    if dst is None:
        return f"{peer.host}: {how_dst}"
    remote = end.pair.rqpn or 0
    sport, total = ports.find(src, dst, remote)
    known = SportSource.CAPTURED
    if sport is None:
        sport, known = sport_of(end.pair.lqpn, remote), SportSource.FORMULA
    job, rank = _owner(hosts[end.host], end.pair.pid)
    _, rank_dst = _owner(hosts[peer.host], peer.pair.pid)
    netdev = _netdev_of(hosts[end.host], end.pair, src)
    below = hosts[end.host].netdevs.get(netdev, Netdev(()))
    return HostFlow(
        FlowKey(src, dst, UDP, sport, ROCE_PORT, remote), known, end.host, peer.host,
        f"{end.pair.device}/{end.pair.port}", netdev, below.ports, below.vlan, below.vrf, job, rank, rank_dst, total,
        how_src if how_src == how_dst else f"{how_src}, {how_dst}",
    )  # fmt: skip


def _netdev_of(host: Host, pair: QueuePair, src: str) -> str:
    """The interface of a queue pair: by the GID that its address is, else the one of its port; "" if unknown."""
    for gid in host.gids:
        if (gid.device, gid.address) == (pair.device, src) and gid.version != "v1" and gid.netdev:
            return gid.netdev
    return host.netdev_of.get((pair.device, pair.port), "")


def _without_refuted(
    flows: list[HostFlow], sport_of: Callable[[int, int], int], hosts: Mapping[str, Host]
) -> list[HostFlow]:
    """Flows whose port by the formula is believed: not where a capture shows that the sender's driver does otherwise
    (one port for all, ports of its own). Those ports are unknown, 0.
    """
    local = {(end.name, p.device, p.rqpn): p.lqpn for end in hosts.values() for p in end.queue_pairs}

    def formula(flow: HostFlow) -> int | None:
        own = local.get((flow.src_host, flow.device.rpartition("/")[0], flow.key.qpn))
        return None if own is None else sport_of(own, flow.key.qpn)

    refuted = {
        (flow.src_host, flow.device)
        for flow in flows
        if flow.sport_source == SportSource.CAPTURED and flow.key.sport != formula(flow)
    }
    return [
        replace(flow, key=replace(flow.key, sport=0), sport_source=SportSource.UNKNOWN)
        if flow.sport_source == SportSource.FORMULA and (flow.src_host, flow.device) in refuted
        else flow
        for flow in flows
    ]


def address(host: Host, pair: QueuePair) -> tuple[str | None, str]:
    """(a queue pair's own address, how it is known), or (None, what is missing)."""
    for entry in host.cm_ids:
        if entry.lqpn == pair.lqpn and entry.device == pair.device:
            return entry.src[0], "cm_id"
    named = {e.address for e in host.nccl if e.qpn == pair.lqpn and (pair.pid is None or e.pid == pair.pid)}
    if len(named) == 1:
        return named.pop(), "NCCL's log"
    mine = [
        gid
        for gid in host.gids
        if gid.device == pair.device and gid.port == pair.port and gid.version != "v1"
    ]
    routable = {gid.address for gid in mine if not gid.address.lower().startswith("fe80:")}
    four = {a for a in routable if ":" not in a}
    chosen = four if len(four) == 1 else routable
    if len(chosen) == 1:
        return chosen.pop(), "the port's only GID"
    if not chosen:
        return None, f"no GID of {pair.device}/{pair.port} is known"
    return None, f"{pair.device}/{pair.port} has {len(chosen)} GIDs: {', '.join(sorted(chosen))}"


def _owner(host: Host, pid: int | None) -> tuple[str, int | None]:
    return host.owners.get(pid, ("", None)) if pid is not None else ("", None)


def _of_socket(host: Host, socket: Socket, hosts: Sequence[Host]) -> HostFlow:
    """A flow of a socket: its port is the one in its packets. The other end's rank, where that host lists it."""
    job, rank = _owner(host, socket.pid)
    other = rank_dst = None
    for peer in hosts:
        for theirs in peer.sockets:
            if theirs.src == socket.dst and theirs.dst == socket.src and theirs.protocol == socket.protocol:
                other, rank_dst = peer.name, _owner(peer, theirs.pid)[1]
    key = FlowKey(socket.src[0], socket.dst[0], socket.protocol, socket.src[1], socket.dst[1])
    return HostFlow(
        key, SportSource.CAPTURED, host.name, other or "", job=job, rank_src=rank, rank_dst=rank_dst,
        bytes=socket.bytes_sent, how="ss",
    )  # fmt: skip


def of_capture(captured: Sequence[Captured]) -> list[HostFlow]:
    """Flows of a capture alone: whose they are nobody says; without a port taught, it is unknown."""
    return [
        HostFlow(
            FlowKey(entry.src, entry.dst, UDP, entry.sport or 0, ROCE_PORT, entry.qpn),
            SportSource.UNKNOWN if entry.sport is None else SportSource.CAPTURED,
            bytes=entry.bytes,
            how="capture",
        )
        for entry in captured
    ]


def stated(flow: HostFlow, sport_of: Callable[[int, int], int], lqpn: int | None) -> HostFlow:
    """A flow of a list: its port as given, else by the formula where both queue pairs are known, else unknown."""
    if flow.key.sport:
        return replace(flow, sport_source=SportSource.SET)
    if lqpn and flow.key.qpn:
        key = replace(flow.key, sport=sport_of(lqpn, flow.key.qpn))
        return replace(flow, key=key, sport_source=SportSource.FORMULA)
    return replace(flow, sport_source=SportSource.UNKNOWN)
