"""Flows with the paths they were seen to take: the fabric that they show, and their entries on it.

A link is named `sender:port>receiver:port`; the receiver is empty where the next hop did not report, which is
the link down to the destination. The fabric is what the paths show: ECMP groups are the shortest ways over
all links that any flow took, and those between its switches that are known otherwise (their ports are counted,
say). A member that is neither is not known, and imbalance is then understated.
A hop that is on no shortest way counts as a group of one.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from ipaddress import ip_address

import numpy as np
from numpy.typing import NDArray

from schemas.errors import MalformedInput, Usage
from schemas.flow import address_bytes
from streams.paths.demand import Flows, addresses
from streams.paths.fabric import Fabric, Groups, Links, build, tiers
from streams.paths.route import Entries

F64 = NDArray[np.float64]


@dataclass(frozen=True)
class Seen:
    """One flow as recorded. `path` is (link, share) in order along the path; empty where none is known."""

    src: str
    dst: str
    src_port: int
    dst_port: int
    protocol: int
    bytes: float
    path: tuple[tuple[str, float], ...] = ()
    job: str = ""
    tenant: str = ""
    qpn: int = 0
    path_source: str = ""
    agreement: float | None = None  # of the model that chose the path, where one did


@dataclass(frozen=True, eq=False)
class Recorded:
    """Recorded flows on the fabric that they show."""

    fabric: Fabric
    flows: Flows
    entries: Entries
    off_shortest: int  # hops on no shortest way


@lru_cache(1 << 16)
def ends_of(link: str) -> tuple[str, str]:
    """(sending node, receiving node or "") of a link's name. Raises MalformedInput."""
    sender, arrow, receiver = link.partition(">")
    if not arrow or not sender:
        raise MalformedInput("a link is named sender:port>receiver:port", link)
    return sender.rpartition(":")[0] or sender, (receiver.rpartition(":")[0] or receiver) if receiver else ""


def connected(path: Sequence[tuple[str, float]]) -> bool:
    """Whether a path leads on from its first link, with branches or none, and is open at its end only.

    A report that lost a hop, or has none of a switch in between, gives a path with a gap.
    """
    reached: set[str] = set()
    is_open = False
    for name, _ in path:
        try:
            one, two = ends_of(name)
        except MalformedInput:
            return False
        if (reached and one not in reached) or (is_open and two):
            return False
        reached |= {one, two}
        is_open = not two
    return True


def on_fabric(seen: Sequence[Seen], fabric: Fabric) -> Flows:
    """Flows between endpoints of a given fabric, named as the fabric does or by its generated addresses."""
    made = addresses(np.arange(fabric.endpoints, dtype=np.int32))
    number = {name: k for k, name in enumerate(fabric.nodes[: fabric.endpoints])}
    number |= {str(ip_address(row.tobytes())): k for k, row in enumerate(made)}
    ends = []
    for flow in seen:
        for name in (flow.src, flow.dst):
            if name not in number:
                raise Usage(
                    f"{name} is no endpoint of the fabric ({fabric.nodes[0]}, {fabric.nodes[1]}, ...)"
                )
        ends.append((number[flow.src], number[flow.dst]))
    src, dst = np.array(ends, np.int32).reshape(-1, 2).T
    named = [
        replace(
            flow, src=_address_or(flow.src, made[a].tobytes()), dst=_address_or(flow.dst, made[b].tobytes())
        )
        for flow, (a, b) in zip(seen, ends, strict=True)
    ]
    return _flows(named, src, dst)


def _address_or(name: str, made: bytes) -> str:
    try:
        return str(ip_address(name))
    except ValueError:
        return str(ip_address(made))


def observed(
    seen: Sequence[Seen],
    capacity_bps: Mapping[str, float],
    default_bps: float,
    known: Iterable[str] = (),
    counted: Iterable[str] = (),
) -> Recorded:
    """The fabric of recorded paths, and of links that these flows need not have taken: `known` ones from switch to
    switch, and of the `counted` ones those that lead from one of its switches to another.

    Every flow needs a path. Raises MalformedInput, Usage.
    """
    if not seen:
        raise Usage("there are no flows with a path")
    names: dict[str, int] = {}  # endpoints, then shifted behind them the switches
    ends: list[tuple[int, int]] = []
    switches: dict[str, int] = {}
    links: dict[str, tuple[str, str]] = {}  # name -> nodes; an endpoint is a name with a leading @
    homes: dict[str, str] = {}  # the endpoint behind an open last link
    trails: list[list[str]] = []
    for flow in seen:
        if not flow.path:
            raise Usage(f"the flow {flow.src} to {flow.dst} has no path: give --fabric to compute one")
    before = {name: ends_of(name) for name in known}
    hosts = _hosts(seen) - {node for ends in before.values() for node in ends}
    for flow in seen:
        inner = [(name, *ends_of(name)) for name, _ in flow.path]
        start, last = inner[0][1], inner[-1]
        source = f"@{start}" if start in hosts else f"@{flow.src} {start}"
        trail = []
        if start not in hosts:
            trail.append(f"{flow.src}>{start}:")
            links.setdefault(trail[0], (source, start))
        target = f"@{last[2]}"
        for name, one, two in inner:
            sender = source if one in hosts else one
            if not two:
                target = homes.setdefault(name, f"@{flow.dst} {one}")
            links.setdefault(name, (sender, f"@{two}" if two in hosts else two or target))
            trail.append(name)
        if last[2] and last[2] not in hosts:
            target = f"@{flow.dst} {last[2]}"
            trail.append(f"{last[2]}:>{flow.dst}")
            links.setdefault(trail[-1], (last[2], target))
        for end in (source, target):
            names.setdefault(end, len(names))
        ends.append((names[source], names[target]))
        trails.append(trail)
    for name, (one, two) in before.items():
        links.setdefault(name, (one, two))
    both = {end: [False, False] for end in names}
    homed: dict[str, str] = {}
    for one, two in links.values():
        for node, other, way in ((one, two, 0), (two, one, 1)):
            if node.startswith("@"):
                both[node][way] = True
                homed[node] = other
            else:
                switches.setdefault(node, len(switches))
    for name in counted:
        one, two = ends_of(name)
        if one in switches and two in switches:
            links.setdefault(name, (one, two))
    for end, (up, down) in both.items():  # an endpoint that was only ever sender, or receiver
        if not up:
            links[f"{end[1:]}> (unseen)"] = (end, homed[end])
        if not down:
            links[f"> {end[1:]} (unseen)"] = (homed[end], end)
    return _assembled(seen, names, switches, links, ends, trails, capacity_bps, default_bps)


def _hosts(seen: Sequence[Seen]) -> set[str]:
    """Nodes that are hosts: first or last on every path, for one address only, with one link out and one in.

    A leaf that looks like this had no choice that anyone saw, so nothing is lost by taking it for a host.
    """
    address: dict[str, set[str]] = {}
    out: dict[str, set[str]] = {}
    into: dict[str, set[str]] = {}
    never: set[str] = set()
    for flow in seen:
        steps = [(name, *ends_of(name)) for name, _ in flow.path]
        for place, (name, one, two) in enumerate(steps):
            out.setdefault(one, set()).add(name)
            into.setdefault(two, set()).add(name)
            if place:
                never.add(one)
            if not two:
                never.add(one)
        address.setdefault(steps[0][1], set()).add(flow.src)
        if steps[-1][2]:
            address.setdefault(steps[-1][2], set()).add(flow.dst)
    return {
        node
        for node, known in address.items()
        if node not in never
        and len(known) == 1
        and len(out.get(node, ())) <= 1
        and len(into.get(node, ())) <= 1
    }


def _assembled(
    seen: Sequence[Seen],
    names: dict[str, int],
    switches: dict[str, int],
    links: dict[str, tuple[str, str]],
    ends: list[tuple[int, int]],
    trails: list[list[str]],
    capacity_bps: Mapping[str, float],
    default_bps: float,
) -> Recorded:
    number = names | {name: len(names) + k for name, k in switches.items()}
    sender = np.array([number[one] for one, _ in links.values()], np.int32)
    receiver = np.array([number[two] for _, two in links.values()], np.int32)
    layer, layers = tiers(sender, receiver, len(names), len(number))
    capacity = np.array([capacity_bps.get(name, default_bps) for name in links])
    made = Links(sender, receiver, layer, capacity, np.ones(len(links)), layers, tuple(links))
    fabric = build(tuple(name.lstrip("@") for name in number), len(names), made, whole=False)
    place = {name: k for k, name in enumerate(links)}
    flow = np.repeat(np.arange(len(seen)), [len(trail) for trail in trails])
    link = np.array([place[name] for trail in trails for name in trail], np.int64)
    share = np.array(
        [dict(one.path).get(name, 1.0) for one, trail in zip(seen, trails, strict=True) for name in trail]
    )
    target = fabric.leaf[np.array(ends)[flow, 1]]
    groups, slot, off = slots_of(fabric, link, target)
    fabric = replace(fabric, groups=groups)
    src, dst = np.array(ends, np.int32).T
    entries = Entries(flow.astype(np.int32), slot.astype(np.int32), share, bool((share == 1).all()))
    return Recorded(fabric, _flows(seen, src, dst), entries, off)


def slots_of(
    fabric: Fabric, link: NDArray[np.int64], target: NDArray[np.int32]
) -> tuple[Groups, NDArray[np.int64], int]:
    """(groups, slot of each hop, hops off the shortest ways) for hops over links towards leaves.

    Groups of one are appended for links that are no member of the group their sender has for that leaf.
    """
    groups = fabric.groups
    sender = fabric.links.sender[link].astype(np.int64)
    receiver = fabric.links.receiver[link].astype(np.int64)
    group = np.full(len(link), -1, np.int64)
    from_end, to_end = sender < fabric.endpoints, receiver < fabric.endpoints
    group[from_end] = fabric.up[sender[from_end]]
    group[to_end] = fabric.down[receiver[to_end]]
    between = ~from_end & ~to_end
    group[between] = fabric.next[sender[between] - fabric.endpoints, target[between]]
    links = len(fabric.links)
    keys = groups.of_slot.astype(np.int64) * links + groups.link
    order = np.argsort(keys)
    wanted = group * links + link
    at = np.minimum(np.searchsorted(keys[order], wanted), len(keys) - 1)
    slot = order[at]
    missing = keys[slot] != wanted
    if missing.any():
        extra, which = np.unique(link[missing], return_inverse=True)
        slot[missing] = len(groups.link) + which
        groups = Groups(
            groups.layers,
            np.concatenate((groups.layer, fabric.links.layer[extra])).astype(np.int32),
            np.concatenate((groups.node, fabric.links.sender[extra])).astype(np.int32),
            np.concatenate((groups.first, len(groups.link) + np.arange(len(extra)))),
            np.concatenate((groups.size, np.ones(len(extra), np.int64))),
            np.concatenate((groups.link, extra)).astype(np.int32),
            np.concatenate((groups.weight, np.ones(len(extra)))),
        )
    return groups, slot, int(missing.sum())


def _flows(seen: Sequence[Seen], src: NDArray[np.int32], dst: NDArray[np.int32]) -> Flows:
    jobs: dict[tuple[str, str], int] = {}
    job = np.array([jobs.setdefault((one.tenant, one.job), len(jobs)) for one in seen], np.int32)
    packed = [[_packed(one.src) for one in seen], [_packed(one.dst) for one in seen]]
    if all(row[:12] == bytes(10) + b"\xff\xff" for side in packed for row in side):
        packed = [[row[12:] for row in side] for side in packed]
    width = len(packed[0][0]) if seen else 4
    source, target = (np.frombuffer(b"".join(side), np.uint8).reshape(-1, width) for side in packed)
    return Flows(
        src,
        dst,
        source,
        target,
        _column(seen, "protocol"),
        _column(seen, "src_port"),
        _column(seen, "dst_port"),
        _column(seen, "qpn"),
        np.array([one.bytes for one in seen], np.float64),
        job,
        tuple(jobs) or (("", ""),),
    )


@lru_cache(1 << 16)
def _packed(address: str) -> bytes:
    try:
        return address_bytes(address)
    except ValueError:
        raise MalformedInput("no IP address", address) from None


def _column(seen: Sequence[Seen], name: str) -> NDArray[np.int64]:
    return np.array([getattr(one, name) for one in seen], np.int64)
