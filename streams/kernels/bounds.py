"""Kernel that bounds the difference of pairs of stamps: see streams.clock.book for the terms.

For each pair, the lowest common ancestor of the two clocks is the first clock of the one's chain that is in the
other's. The bounds of all steps below it on both sides add up, each grown by its age. What the two share cancels.
"""

import numpy as np
from numba import njit
from numpy.typing import NDArray

I64 = NDArray[np.int64]
F64 = NDArray[np.float64]
BOOL = NDArray[np.bool_]
UNKNOWN = np.iinfo(np.int64).min
CLAIMED, STATISTICAL = 0, 1


@njit(cache=True)
def pair_bounds(
    a: I64,
    a_ns: I64,
    a_end: BOOL,
    b: I64,
    b_ns: I64,
    b_end: BOOL,
    node: NDArray[np.int32],
    step_bound: I64,
    step_growth: F64,
    step_as_of: I64,
    step_assurance: NDArray[np.uint8],
    step_epsilon: F64,
    quantum: I64,
    epsilon_max: float,
    bound: I64,
    assured: BOOL,
) -> None:
    """Fill `bound` (UNKNOWN where there is none) and `assured` (whether a gap beyond it proves an order).

    Pairs: slots a, b (-1: no clock), TAI times, whether the point is the end of an event that lasts; (pairs,).
    Slots: node (slots, depth + 1) with -1 beyond the root; the step_* arrays (slots, depth); quantum (slots,).
    """
    depth = node.shape[1]
    for k in range(len(a)):
        bound[k] = UNKNOWN
        assured[k] = False
        s, t = a[k], b[k]
        if s < 0 or t < 0:
            continue
        i = 0
        j = -1
        while i < depth and node[s, i] >= 0:
            j = 0
            while j < depth and node[t, j] >= 0 and node[t, j] != node[s, i]:
                j += 1
            if j < depth and node[t, j] >= 0:
                break
            j = -1
            i += 1
        if j < 0:
            continue
        if i == 0 and j == 0:  # the same clock and epoch: its readouts, and its rate over the time between
            growth = max(step_growth[s, 0], step_growth[t, 0])
            drift = np.ceil(growth * 1e-9 * abs(b_ns[k] - a_ns[k]))
            bound[k] = quantum[s] + quantum[t] + np.int64(drift)
            assured[k] = True
            continue
        total = 0
        sure = True
        chance = 0.0
        known = True
        for side in range(2):
            slot = s if side == 0 else t
            at = a_ns[k] if side == 0 else b_ns[k]
            for level in range(i if side == 0 else j):
                step = step_bound[slot, level]
                if step == UNKNOWN:
                    known = False
                    break
                growth = step_growth[slot, level]
                if growth > 0.0:
                    step += np.int64(np.ceil(growth * 1e-9 * abs(at - step_as_of[slot, level])))
                total += step
                if step_assurance[slot, level] == CLAIMED:
                    sure = False
                elif step_assurance[slot, level] == STATISTICAL:
                    chance += step_epsilon[slot, level]
        if not known:
            continue
        if quantum[s] > 1 or quantum[t] > 1:
            halves = quantum[s] * (2 if a_end[k] else 1) + quantum[t] * (2 if b_end[k] else 1)
            total += (halves + 1) // 2
        bound[k] = total
        assured[k] = sure and chance <= epsilon_max
