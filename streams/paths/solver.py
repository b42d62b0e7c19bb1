"""A static assignment of flows to paths that makes the worst link as light as can be, and the bound it meets.

In a folded Clos, edge colouring (streams/paths/colouring.py) gives every group its flows evenly, which is the
optimum for equal flows. From there, or from nothing in other fabrics, flows are lifted, the largest first,
and placed anew onto the path that adds least to Σ (load/capacity)². For flows of unequal size the problem is
NP-hard; how near the answer is to the bound is part of it.
"""

from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from streams.kernels.assign import place
from streams.paths.colouring import coloured
from streams.paths.demand import Flows
from streams.paths.fabric import MAX_HOPS, Fabric, heights, pods
from streams.paths.hashing import SPORT_FIRST, HashModel
from streams.paths.route import hash_choice, walk
from streams.paths.sums import summed

I32 = NDArray[np.int32]
I64 = NDArray[np.int64]
F64 = NDArray[np.float64]

PASSES: Final = 200
PASSES_MIN: Final = 3
WORK: Final = 400_000  # placements of single flows in all passes
FEW: Final = 20_000  # flows up to which every member of a group is tried
WIDTH: Final = 4  # members tried of each group beyond
PORTS: Final = 0x10000 - SPORT_FIRST
PORT_STEP: Final = 256  # source ports tried at a time


@dataclass(frozen=True, eq=False)
class Assignment:
    """Slots of each flow's hops as from `walk`; seconds that the worst link needs, and the bound on that."""

    slots: I32
    worst: float
    bound: float
    passes: int

    @property
    def optimal(self) -> bool:
        """Whether the bound is met."""
        return self.worst <= self.bound * (1 + 1e-9)


def solve(fabric: Fabric, flows: Flows, size: F64) -> Assignment:
    """Place flows of `size` bytes. Capacities are the fabric's; seconds come from bytes and bit/s."""
    groups = fabric.groups
    n = len(flows)
    capacity = fabric.links.capacity_bps / 8
    size = size.astype(np.float64)
    bound = lower_bound(fabric, flows, size)
    begun = coloured(fabric, flows, size)
    slots = np.full((n, MAX_HOPS), -1, np.int32) if begun is None else begun
    load = _load(fabric, slots, size)
    best, least, passes = slots.copy(), np.inf, 0
    if begun is not None:
        least = max(_worst(load, capacity), _ends_worst(fabric, flows, size))
    equal = bool(n) and size.max() - size.min() <= 1e-9 * size.max()
    start, target = fabric.leaves[fabric.leaf[flows.src]], fabric.leaf[flows.dst]
    order = np.argsort(-size, kind="stable")
    width = int(groups.size.max(initial=1)) if n <= FEW else WIDTH
    for turn in range(max(2, min(PASSES, WORK // max(n, 1)))):
        if least <= bound * (1 + 1e-9) and ((equal and begun is not None) or passes >= PASSES_MIN):
            break
        place(
            order, size, start, target, slots, fabric.next, fabric.leaves, fabric.endpoints, groups.first,
            groups.size, groups.link, fabric.links.receiver, capacity, load, width, turn,
        )  # fmt: skip
        passes += 1
        worst = max(_worst(load, capacity), _ends_worst(fabric, flows, size))
        # While it settles, an equal worst link with the rest more even is better.
        if worst < least * (1 - 1e-12) or (turn == 0 and not equal and worst <= least):
            best, least = slots.copy(), worst
    return Assignment(_with_ends(fabric, flows, best), least if n else 0.0, bound, passes)


def _load(fabric: Fabric, slots: I32, size: F64) -> F64:
    """Bytes by link of the hops in `slots`."""
    used = slots >= 0
    flow, _ = np.nonzero(used)
    return summed(fabric.groups.link[slots[used]], size[flow], len(fabric.links))


def _worst(load: F64, capacity: F64) -> float:
    return float((load / capacity).max(initial=0.0))


def _ends_worst(fabric: Fabric, flows: Flows, size: F64) -> float:
    """Seconds that the busiest link of an endpoint needs, which no assignment changes."""
    capacity = fabric.links.capacity_bps / 8
    link, first = fabric.groups.link, fabric.groups.first
    return max(
        float((summed(ends, size, fabric.endpoints) / capacity[link[first[groups]]]).max(initial=0.0))
        for ends, groups in ((flows.src, fabric.up), (flows.dst, fabric.down))
    )


def _with_ends(fabric: Fabric, flows: Flows, slots: I32) -> I32:
    """The hops between switches with the links of both endpoints around them."""
    n = len(flows)
    length = (slots >= 0).sum(axis=1)
    out = np.full((n, int(length.max(initial=0)) + 2), -1, np.int32)
    out[:, 0] = fabric.groups.first[fabric.up[flows.src]]
    out[:, 1:-1] = slots[:, : out.shape[1] - 2]
    out[np.arange(n), length + 1] = fabric.groups.first[fabric.down[flows.dst]]
    return out


def lower_bound(fabric: Fabric, flows: Flows, size: F64) -> float:
    """Seconds that the worst link needs under any assignment of whole flows: the greatest of

    every endpoint's own bytes over its link, either way; for all links that leave (or enter) a pod of any
    tier, a leaf being the smallest, the bytes that must leave (enter) over their capacity; and by
    pigeonhole, of the m·L + 1 largest flows over L links some link carries m + 1, so at least the sum of
    the smallest m + 1 of them.
    """
    capacity = fabric.links.capacity_bps / 8
    best = _ends_worst(fabric, flows, size)
    height = heights(fabric)
    sender, receiver = fabric.links.sender, fabric.links.receiver
    for below in range(2, int(height.max()) + 1):
        pod = pods(fabric, below, height)
        away = pod[flows.src] != pod[flows.dst]
        for ends, inner, outer in ((flows.src, sender, receiver), (flows.dst, receiver, sender)):
            crossing = np.flatnonzero((pod[inner] >= 0) & (pod[outer] != pod[inner]))
            best = max(
                best, _cut_bound(pod[ends[away]], size[away], pod[inner[crossing]], capacity[crossing])
            )
    return best


def _cut_bound(pod: I64, size: F64, link_pod: I64, capacity: F64) -> float:
    """The greatest bound of any pod, from the pod and size of flows and the pod and capacity of its links."""
    order = np.lexsort((-size, pod))
    pod, size = pod[order], size[order]
    links = np.argsort(link_pod, kind="stable")
    link_pod, capacity = link_pod[links], capacity[links]
    best = 0.0
    for one in np.unique(pod).tolist():
        held = size[np.searchsorted(pod, one) : np.searchsorted(pod, one, "right")]
        own = capacity[np.searchsorted(link_pod, one) : np.searchsorted(link_pod, one, "right")]
        if len(own):
            best = max(best, _group_bound(held, own))
    return best


def _group_bound(sizes: F64, capacity: F64) -> float:
    """The bound for whole flows of these sizes, descending, over links of these capacities."""
    links, most = len(capacity), float(capacity.max())
    sums = np.concatenate(([0.0], np.cumsum(sizes)))
    m = np.arange((len(sizes) - 1) // links + 1)
    last = m * links + 1
    pigeons = (sums[last] - sums[last - m - 1]).max()
    return max(float(sizes.sum() / capacity.sum()), float(pigeons) / most)


def source_ports(fabric: Fabric, flows: Flows, slots: I32, model: HashModel) -> I64:
    """A source port for each flow that makes switches with this hash take these paths; −1 where none does.

    Only RoCEv2's ports, 0xC000 to 0xFFFF, are tried; a flow keeps its own port if that serves already.
    """
    out = np.full(len(flows), -1, np.int64)
    own = walk(fabric, flows, hash_choice(fabric.groups, flows, model))
    out[_same(own, slots)] = flows.sport[_same(own, slots)]
    for low in range(0, PORTS, PORT_STEP):
        open_ = np.flatnonzero(out < 0)
        if not len(open_):
            break
        for part in np.array_split(open_, -(-len(open_) // 4096)):
            many = flows.select(np.repeat(part, PORT_STEP))
            # Each flow begins elsewhere, so that not all end on the same few ports.
            ports = (np.arange(low, low + PORT_STEP) + (part * 997)[:, None]) % PORTS + SPORT_FIRST
            many = replace(many, sport=ports.ravel())
            took = walk(fabric, many, hash_choice(fabric.groups, many, model))
            good = _same(took, np.repeat(slots[part], PORT_STEP, axis=0)).reshape(len(part), PORT_STEP)
            hit = np.flatnonzero(good.any(axis=1))
            out[part[hit]] = ports[hit, good[hit].argmax(axis=1)]
    return out


def _same(one: I32, two: I32) -> NDArray[np.bool_]:
    width = max(one.shape[1], two.shape[1])
    padded = [np.pad(each, ((0, 0), (0, width - each.shape[1])), constant_values=-1) for each in (one, two)]
    same: NDArray[np.bool_] = (padded[0] == padded[1]).all(axis=1)
    return same
