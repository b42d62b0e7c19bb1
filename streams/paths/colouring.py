"""An even assignment in folded Clos fabrics, by edge colouring.

Flows are edges between the switch that sends and the one that receives, colours are the members of their
groups of uplinks: the flow goes up by that member, and comes down by the same member of the receiver's own
uplinks. König: a bipartite multigraph whose vertices have at most L edges can be coloured with L colours. A
switch with more flows than L counts as several vertices of L each (the largest flows together), so every
one of its links gets the same number of them, or one more; tier by tier, that is the optimum for equal flows.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from streams.kernels.colour import colour
from streams.paths.demand import Flows
from streams.paths.fabric import MAX_HOPS, Fabric

I32 = NDArray[np.int32]
I64 = NDArray[np.int64]
F64 = NDArray[np.float64]


def coloured(fabric: Fabric, flows: Flows, size: F64) -> I32 | None:
    """Slots of the hops between switches, shape (flows, hops), −1 after the last.

    None where groups on both sides of a flow are not alike, so that the fabric is no folded Clos for it.
    """
    groups, n = fabric.groups, len(flows)
    receiver = fabric.links.receiver[groups.link].astype(np.int64)
    ends = np.stack((fabric.leaf[flows.src], fabric.leaf[flows.dst])).astype(np.int64)
    node = fabric.leaves[ends].astype(np.int64)
    up: list[I64] = []  # slots upwards, by tier
    turned: list[I64] = []  # the receivers' slots upwards, by tier: the way down in reverse
    stops = [node[1].copy()]
    live = np.flatnonzero(node[0] != node[1])
    while len(live):
        if len(up) == MAX_HOPS // 2:
            return None
        group = fabric.next[node[:, live] - fabric.endpoints, ends[::-1, live]].astype(np.int64)
        if (group < 0).any():
            return None
        links = groups.size[group]
        if (links != links[0, 0]).any():
            return None
        number = _colours(node[:, live], size[live], int(links[0, 0]))
        slots = groups.first[group] + number
        for side, found in ((0, up), (1, turned)):
            whole = np.full(n, -1)
            whole[live] = slots[side]
            found.append(whole)
        node[:, live] = receiver[slots]
        stops.append(node[1].copy())
        live = live[node[0, live] != node[1, live]]
    return _joined(fabric, ends[1], up, turned, stops, receiver)


def _colours(node: I64, size: F64, links: int) -> I64:
    """A colour for each flow from node[0] to node[1]."""
    vertices = []
    for side in node:
        order = np.lexsort((-size, side))
        first = np.flatnonzero(np.append(True, np.diff(side[order]) != 0))
        rank = np.arange(len(side)) - np.repeat(first, np.diff(np.append(first, len(side))))
        copy = np.empty(len(side), np.int64)
        copy[order] = rank // links
        _, vertex = np.unique(side * (int(copy.max()) + 1) + copy, return_inverse=True)
        vertices.append(vertex.astype(np.int32))
    left, right = vertices
    return colour(left, right, int(left.max()) + 1, int(right.max()) + 1, links).astype(np.int64)


def _joined(
    fabric: Fabric, target: I64, up: list[I64], turned: list[I64], stops: list[I64], receiver: I64
) -> I32 | None:
    """Slots of whole paths: up, then down from stop to stop. None where no link leads down as it should."""
    n, groups = len(target), fabric.groups
    out = np.full((n, MAX_HOPS), -1, np.int32)
    if not up:
        return out
    depth = np.sum([slots >= 0 for slots in up], axis=0)
    for tier, slots in enumerate(up):
        out[:, tier] = slots
    # Several links between two switches: the way down takes the same of them as the receiver's way up.
    place = _nth(groups.of_slot.astype(np.int64) * len(fabric.nodes) + receiver)
    width = int(place.max()) + 1
    keys = (groups.of_slot.astype(np.int64) * len(fabric.nodes) + receiver) * width + place
    order = np.argsort(keys)
    for tier in range(len(up) - 1, -1, -1):
        use = np.flatnonzero(depth > tier)
        group = fabric.next[stops[tier + 1][use] - fabric.endpoints, target[use]].astype(np.int64)
        wanted = (group * len(fabric.nodes) + stops[tier][use]) * width + place[turned[tier][use]]
        at = np.minimum(np.searchsorted(keys[order], wanted), len(keys) - 1)
        slot = order[at]
        if (group < 0).any() or (keys[slot] != wanted).any():
            return None
        out[use, 2 * depth[use] - 1 - tier] = slot
    return out


def _nth(key: NDArray[Any]) -> I64:
    """How many earlier entries have the same key."""
    order = np.argsort(key, kind="stable")
    first = np.flatnonzero(np.append(True, np.diff(key[order]) != 0))
    out = np.empty(len(key), np.int64)
    out[order] = np.arange(len(key)) - np.repeat(first, np.diff(np.append(first, len(key))))
    return out
