"""A fabric as arrays: nodes, directed links, and the ECMP groups that lead from each switch to each leaf.

Nodes 0 to endpoints − 1 are endpoints (a NIC port with one link up to its leaf), the others switches. A
**group** is a switch's set of next links to some leaf; leaves with the same set share the group, and a single
next link is a group of one, so that every hop of a path is a *slot*: one member of one group. A link can be a
member of several groups (of a degraded fabric, say); what is expected of it is then the sum over them.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from schemas.errors import MalformedInput

I64 = NDArray[np.int64]
I32 = NDArray[np.int32]
F64 = NDArray[np.float64]

MAX_HOPS: Final = 16
_CHUNK = 1 << 24  # entries of (links × leaves) looked at in one go


@dataclass(frozen=True, eq=False)
class Groups:
    """ECMP groups. Members of group g are the slots first[g] to first[g] + size[g] − 1."""

    layers: tuple[str, ...]
    layer: I32  # of each group, a place in `layers`
    node: I32  # the switch that chooses (or the endpoint that sends)
    first: I64
    size: I64
    link: I32  # of each slot
    weight: F64  # of each slot, share of its group: sums to 1 in each group

    @cached_property
    def of_slot(self) -> I32:
        """Group of each slot."""
        return np.repeat(np.arange(len(self.size), dtype=np.int32), self.size)

    def __len__(self) -> int:
        return len(self.size)


@dataclass(frozen=True, eq=False)
class Links:
    """Directed links. Names come from the nodes' names and the ports on both sides."""

    sender: I32
    receiver: I32
    layer: I32  # a place in `layers`
    capacity_bps: F64
    weight: F64  # for weighted ECMP; usually all 1
    layers: tuple[str, ...]
    names: tuple[str, ...] | None = None  # None: made from the nodes' names when asked for

    def __len__(self) -> int:
        return len(self.sender)


@dataclass(frozen=True, eq=False)
class Fabric:
    """Nodes, links and the way to every leaf."""

    nodes: tuple[str, ...]
    endpoints: int
    links: Links
    groups: Groups
    up: I32  # by endpoint: the group (of one) of its link up
    down: I32  # by endpoint: the group (of one) of its leaf's link down
    leaf: I32  # by endpoint: its leaf, as a column of `next`
    leaves: I32  # by column of `next`: the leaf's node
    next: I32  # (switches, leaves) group that leads there; −1: none, or it is the leaf itself

    def link_name(self, link: int) -> str:
        """Name of a link: `sender:port>receiver:port`, ports counted at each node in order of links."""
        if self.links.names is not None:
            return self.links.names[link]
        sender, receiver = int(self.links.sender[link]), int(self.links.receiver[link])
        out, into = self._ports
        return f"{self.nodes[sender]}:{out[link]}>{self.nodes[receiver]}:{into[link]}"

    @cached_property
    def _ports(self) -> tuple[I64, I64]:
        """Port numbers of each link at its sender and receiver; the two directions of a cable share them."""
        low = np.minimum(self.links.sender, self.links.receiver).astype(np.int64)
        high = np.maximum(self.links.sender, self.links.receiver).astype(np.int64)
        ahead = self.links.sender < self.links.receiver
        # The k-th link from a to b and the k-th from b to a are the two directions of one cable.
        nth = _rank(ahead, low * len(self.nodes) + high)
        cables, cable = np.unique(np.stack((low, high, nth)), axis=1, return_inverse=True)
        cable = cable.ravel()
        ends = np.concatenate((cables[1], cables[0]))  # so that a switch's ports down come first
        port = _rank(np.zeros(len(ends), np.bool_), ends) + 1
        at_high, at_low = port[: cables.shape[1]][cable], port[cables.shape[1] :][cable]
        return np.where(ahead, at_low, at_high), np.where(ahead, at_high, at_low)


def _rank(kind: NDArray[np.bool_], key: I64) -> I64:
    """How many earlier entries have the same (kind, key)."""
    both = key * 2 + kind
    order = np.argsort(both, kind="stable")
    new = np.flatnonzero(np.append(True, np.diff(both[order]) != 0))
    start = np.repeat(new, np.diff(np.append(new, len(order))))
    out = np.empty(len(order), np.int64)
    out[order] = np.arange(len(order)) - start
    return out


def build(nodes: tuple[str, ...], endpoints: int, links: Links, *, whole: bool = True) -> Fabric:
    """The fabric of these nodes and links, with shortest paths by hops.

    Raises MalformedInput if an endpoint has not exactly one link each way, or if it should be `whole` and a
    leaf cannot be reached from another.
    """
    sender, receiver = links.sender, links.receiver
    from_host = np.flatnonzero(sender < endpoints)
    to_host = np.flatnonzero(receiver < endpoints)
    for which, ends in (("from", sender[from_host]), ("to", receiver[to_host])):
        odd = np.flatnonzero(np.bincount(ends, minlength=endpoints) != 1)
        if len(odd):
            raise MalformedInput(
                f"an endpoint has one link each way, not {np.count_nonzero(ends == odd[0])} {which} it",
                nodes[int(odd[0])],
            )
    host_leaf = np.empty(endpoints, np.int32)
    host_leaf[sender[from_host]] = receiver[from_host]
    leaves, leaf = np.unique(host_leaf, return_inverse=True)
    core = np.flatnonzero((sender >= endpoints) & (receiver >= endpoints))
    core = core[np.argsort(sender[core], kind="stable")]
    slots, sizes, owners, table = _routes(len(nodes) - endpoints, endpoints, links, core, leaves, whole)
    # Groups of one for the links of endpoints, after those between switches.
    up_first, base = len(sizes), len(slots)
    all_links = np.concatenate((slots, from_host, to_host)).astype(np.int32)
    size = np.concatenate((sizes, np.ones(2 * endpoints, np.int64)))
    first = np.cumsum(size) - size
    up, down = np.empty(endpoints, np.int32), np.empty(endpoints, np.int32)
    up[sender[from_host]] = up_first + np.arange(endpoints)
    down[receiver[to_host]] = up_first + endpoints + np.arange(endpoints)
    weight = links.weight[all_links]
    total = np.add.reduceat(weight, first) if len(first) else weight
    assert base == int(sizes.sum())
    groups = Groups(
        links.layers,
        links.layer[all_links[first]],
        np.concatenate((owners, sender[from_host], sender[to_host])).astype(np.int32),
        first,
        size,
        all_links,
        weight / np.repeat(total, size),
    )
    return Fabric(
        nodes, endpoints, links, groups, up, down, leaf.astype(np.int32), leaves.astype(np.int32), table
    )


def _routes(
    switches: int, endpoints: int, links: Links, core: I64, leaves: NDArray[np.int32], whole: bool
) -> tuple[I64, I64, I64, I32]:
    """(links of the slots, group sizes, switch of each group, group by switch and leaf)."""
    sender = links.sender[core].astype(np.int64) - endpoints
    receiver = links.receiver[core].astype(np.int64) - endpoints
    table = np.full((switches, len(leaves)), -1, np.int32)
    if not len(core):
        if len(leaves) > 1 and whole:
            raise MalformedInput("no link leads from leaf to leaf")
        return np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.int64), table
    distance = _distances(switches, sender, receiver, leaves.astype(np.int64) - endpoints, whole)
    starts = np.flatnonzero(np.append(True, np.diff(sender) != 0))
    ends = np.append(starts[1:], len(core))
    # A switch's set of links is recognised by the sum of its members' random numbers of 64 bits.
    marks = np.random.default_rng(1).integers(1, 1 << 63, len(core), dtype=np.uint64)
    link_lists: list[I64] = []
    sizes: list[int] = []
    owners: list[int] = []
    step = max(1, _CHUNK // len(core))
    found: dict[int, int] = {}
    for low in range(0, len(leaves), step):
        here = slice(low, min(low + step, len(leaves)))
        from_here = distance[sender, here]
        ahead = (distance[receiver, here] == from_here - 1) & (from_here > 0) & (from_here < MAX_HOPS)
        sums = np.add.reduceat(np.where(ahead, marks[:, None], np.uint64(0)), starts, axis=0)
        distinct, where, which = np.unique(sums, return_index=True, return_inverse=True)
        number = np.empty(len(distinct), np.int32)
        for k in np.argsort(where).tolist():  # by switch, then by leaf
            mark = int(distinct[k])
            if not mark:
                number[k] = -1
                continue
            group = found.setdefault(mark, len(sizes))
            if group == len(sizes):
                run, column = divmod(int(where[k]), sums.shape[1])
                members = starts[run] + np.flatnonzero(ahead[starts[run] : ends[run], column])
                link_lists.append(core[members])
                sizes.append(len(members))
                owners.append(int(sender[starts[run]]) + endpoints)
            number[k] = group
        table[sender[starts], here] = number[which.reshape(sums.shape)]
    return (
        np.concatenate(link_lists or [np.empty(0, np.int64)]),
        np.array(sizes, np.int64),
        np.array(owners, np.int64),
        table,
    )


def _distances(switches: int, sender: I64, receiver: I64, leaves: I64, whole: bool) -> NDArray[np.int16]:
    """Hops from every switch to every leaf, shape (switches, leaves). Raises MalformedInput."""
    far = np.iinfo(np.int16).max
    distance = np.full((switches, len(leaves)), far, np.int16)
    distance[leaves, np.arange(len(leaves))] = 0
    starts = np.flatnonzero(np.append(True, np.diff(sender) != 0))
    for hops in range(1, MAX_HOPS):
        reached = distance == hops - 1
        if not reached.any():
            break
        near = np.logical_or.reduceat(reached[receiver], starts, axis=0)
        rows = sender[starts]
        part = distance[rows]
        part[near & (part == far)] = hops
        distance[rows] = part
    if whole and (distance[leaves] == far).any():
        raise MalformedInput("a leaf cannot be reached from another within 15 hops")
    return distance


def heights(fabric: Fabric) -> I64:
    """Hops of each node to the nearest endpoint: 0 for endpoints, 1 for leaves, and so on."""
    return _heights(fabric.links.sender, fabric.links.receiver, fabric.endpoints, len(fabric.nodes))


def tiers(
    sender: NDArray[Any], receiver: NDArray[Any], endpoints: int, nodes: int
) -> tuple[I32, tuple[str, ...]]:
    """(layer of each link, names of the layers): `tier1-up` leaves a leaf for a node no nearer to endpoints."""
    height = _heights(sender, receiver, endpoints, nodes)
    layer = (2 * height[sender] + (height[receiver] < height[sender])).astype(np.int32)
    top = int(layer.max(initial=0)) // 2 + 1
    return layer, tuple(f"tier{k}-{way}" for k in range(top) for way in ("up", "down"))


def _heights(sender: NDArray[Any], receiver: NDArray[Any], endpoints: int, nodes: int) -> I64:
    height = np.full(nodes, nodes)
    height[:endpoints] = 0
    while True:
        before = height.copy()
        np.minimum.at(height, sender, before[receiver] + 1)
        np.minimum.at(height, receiver, before[sender] + 1)
        if (before == height).all():
            return height


def pods(fabric: Fabric, below: int, height: I64) -> I64:
    """Which nodes hang together without switches of height `below` or more: a number each; −1 for those."""
    label = np.where(height < below, np.arange(len(height)), len(height))
    inside = (height[fabric.links.sender] < below) & (height[fabric.links.receiver] < below)
    sender, receiver = fabric.links.sender[inside], fabric.links.receiver[inside]
    while True:
        before = label.copy()
        np.minimum.at(label, sender, before[receiver])
        np.minimum.at(label, receiver, before[sender])
        if (before == label).all():
            return np.where(height < below, label, -1)
