"""Kernels that place flows on paths one after the other, each where it adds least to the loads."""

import numpy as np
from numba import njit
from numpy.typing import NDArray

I32 = NDArray[np.int32]
I64 = NDArray[np.int64]
F64 = NDArray[np.float64]


@njit(cache=True)
def place(
    order: I64,
    size: F64,
    start: I32,
    target: I32,
    slots: I32,
    next_group: I32,
    leaf_node: I32,
    endpoints: int,
    first: I64,
    members: I64,
    slot_link: I32,
    receiver: I32,
    capacity: F64,
    load: F64,
    width: int,
    turn: int,
) -> int:
    """Place each flow of `order` anew on the path that adds least to Σ (load/capacity)²; returns how many
    moved.

    `slots` (flows, hops) holds the hops between switches, −1 after the last; a flow with −1 first is not
    placed yet. `load` is by link and is kept up to date. Of each group only the `width` least loaded
    members are tried. Ties are tried in an order that depends on `turn`: with 0 a flow stays where it is at
    a tie, with more it moves, so that repeated calls wander over placements of equal worth.
    """
    hops = slots.shape[1]
    path = np.full(hops, -1, np.int32)
    best = np.full(hops, -1, np.int32)
    candidates = np.full((hops, width), -1, np.int32)
    tried = np.zeros(hops, np.int64)
    found = np.zeros(hops, np.int64)
    nodes = np.zeros(hops + 1, np.int32)
    costs = np.zeros(hops + 1)
    moved = 0
    for i in order:
        b = size[i]
        least = np.inf
        for h in range(hops):
            best[h] = slots[i, h]
        if slots[i, 0] >= 0:
            least = 0.0
            for h in range(hops):
                s = slots[i, h]
                if s < 0:
                    break
                link = slot_link[s]
                load[link] -= b
                least += (2 * load[link] + b) * b / (capacity[link] * capacity[link])
            least *= 1 - 1e-12 if turn == 0 else 1 + 1e-12
        goal = leaf_node[target[i]]
        depth = 0
        nodes[0] = start[i]
        costs[0] = 0.0
        tried[0] = -1
        changed = False
        while depth >= 0:
            if nodes[depth] == goal:
                if costs[depth] < least:
                    least = costs[depth]
                    for h in range(hops):
                        best[h] = path[h] if h < depth else -1
                    changed = True
                depth -= 1
                continue
            if depth >= hops:
                depth -= 1
                continue
            if tried[depth] < 0:
                g = next_group[nodes[depth] - endpoints, target[i]]
                count = 0 if g < 0 else members[g]
                kept = 0
                for k in range(count):  # the least loaded, by insertion
                    s = np.int32(first[g] + (k + i + turn * (1 + i // count)) % count)
                    level = (2 * load[slot_link[s]] + b) / (capacity[slot_link[s]] * capacity[slot_link[s]])
                    at = kept
                    while at > 0:
                        other = slot_link[candidates[depth, at - 1]]
                        if (2 * load[other] + b) / (capacity[other] * capacity[other]) <= level:
                            break
                        at -= 1
                    if at >= width:
                        continue
                    last = min(kept, width - 1)
                    for j in range(last, at, -1):
                        candidates[depth, j] = candidates[depth, j - 1]
                    candidates[depth, at] = s
                    kept = min(kept + 1, width)
                found[depth] = kept
                tried[depth] = 0
            if tried[depth] >= found[depth]:
                depth -= 1
                continue
            s = candidates[depth, tried[depth]]
            tried[depth] += 1
            link = slot_link[s]
            cost = costs[depth] + (2 * load[link] + b) * b / (capacity[link] * capacity[link])
            if cost >= least:
                tried[depth] = found[depth]  # the others cost no less
                continue
            path[depth] = s
            nodes[depth + 1] = receiver[link]
            costs[depth + 1] = cost
            depth += 1
            if depth < hops:
                tried[depth] = -1
        if changed:
            moved += 1
        for h in range(hops):
            slots[i, h] = best[h]
            if best[h] >= 0:
                load[slot_link[best[h]]] += b
    return moved
