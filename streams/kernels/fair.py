"""Max-min fair rates by progressive filling, in one pass over a heap of links."""

import numpy as np
from numba import njit
from numpy.typing import NDArray

I32 = NDArray[np.int32]
I64 = NDArray[np.int64]
F64 = NDArray[np.float64]


@njit(cache=True)
def fill(
    start: I64, link: I32, share: F64, link_start: I64, link_entry: I64, owner: I32, left: F64, demand: F64
) -> tuple[F64, I64]:
    """(rate, entry that limits it) of each flow.

    Flow f has the entries start[f] to start[f + 1] − 1; link l is crossed by the entries
    link_entry[link_start[l]:link_start[l + 1]]. `left` (capacity) and `demand` (sum of shares) by link are
    used up. A link's level only rises, so a link whose noted level is out of date goes back into the heap.
    Links are `wire` here: `link` is the argument.
    """
    flows, links = len(start) - 1, len(left)
    rate = np.full(flows, np.inf)
    limit = np.full(flows, -1, np.int64)
    heap = np.empty(links, np.int32)
    level = np.empty(links)
    size = 0
    for wire in range(links):
        if demand[wire] <= 0:
            continue
        level[wire] = left[wire] / demand[wire]
        at = size
        size += 1
        while at > 0 and level[heap[(at - 1) // 2]] > level[wire]:
            heap[at] = heap[(at - 1) // 2]
            at = (at - 1) // 2
        heap[at] = wire
    while size > 0:
        wire = heap[0]
        now = max(left[wire], 0.0) / demand[wire] if demand[wire] > 1e-12 else np.inf
        done = now == np.inf
        if not done and now <= level[wire] * (1 + 1e-12):
            for k in range(link_start[wire], link_start[wire + 1]):
                f = owner[link_entry[k]]
                if rate[f] < np.inf:
                    continue
                rate[f] = level[wire]
                limit[f] = link_entry[k]
                for e in range(start[f], start[f + 1]):
                    left[link[e]] -= share[e] * level[wire]
                    demand[link[e]] -= share[e]
            done = True
        if done:
            size -= 1
            if size == 0:
                break
            wire = heap[size]
        else:
            level[wire] = now
        at = 0
        while True:
            child = 2 * at + 1
            if child >= size:
                break
            if child + 1 < size and level[heap[child + 1]] < level[heap[child]]:
                child += 1
            if level[heap[child]] >= level[wire]:
                break
            heap[at] = heap[child]
            at = child
        heap[at] = wire
    return rate, limit
