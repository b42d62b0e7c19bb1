"""Kernels that find which endpoints belong together.

Endpoints meet on (kind, key). `group_ids` numbers the distinct pairs with an open-addressing table (the lab
measured 8 to 13 ns an endpoint against 77 for a sort); everything after that works on runs of equal number.
"""

import numpy as np
from numba import njit
from numpy.typing import NDArray

I64 = NDArray[np.int64]
U64 = NDArray[np.uint64]
U8 = NDArray[np.uint8]

ALL_TO_ALL, FROM_ROOT, TO_ROOT, NO_EDGE = 0, 1, 2, 3  # how the members of a join depend on each other


@njit(cache=True)
def group_ids(key: U64, kind: U8, table: I64) -> tuple[I64, int]:
    """Number of each endpoint's (kind, key) in order of first appearance, and how many there are.

    `table` is scratch of a power of two of entries, at least twice the endpoints, filled with -1.
    """
    n = len(key)
    mask = len(table) - 1
    ids = np.empty(n, np.int64)
    first = np.empty(n, np.int64)  # an endpoint of each group
    groups = 0
    for i in range(n):
        h = key[i] * np.uint64(0x9E3779B97F4A7C15) + np.uint64(kind[i]) * np.uint64(0xD1B54A32D192ED03)
        h ^= h >> np.uint64(32)
        at = np.int64(h & np.uint64(mask))
        while True:
            g = table[at]
            if g < 0:
                table[at] = groups
                first[groups] = i
                ids[i] = groups
                groups += 1
                break
            j = first[g]
            if key[j] == key[i] and kind[j] == kind[i]:
                ids[i] = g
                break
            at = (at + 1) & mask
    return ids, groups


@njit(cache=True)
def touched(key: U64, kind: U8, wanted_key: U64, wanted_kind: U8, table: I64, out: NDArray[np.bool_]) -> int:
    """Which endpoints have a (kind, key) that is wanted: writes `out`, gives how many. `table` as in group_ids, for
    the wanted ones."""
    mask = len(table) - 1
    for i in range(len(wanted_key)):
        h = wanted_key[i] * np.uint64(0x9E3779B97F4A7C15) + np.uint64(wanted_kind[i]) * np.uint64(
            0xD1B54A32D192ED03
        )
        h ^= h >> np.uint64(32)
        at = np.int64(h & np.uint64(mask))
        while table[at] >= 0:
            j = table[at]
            if wanted_key[j] == wanted_key[i] and wanted_kind[j] == wanted_kind[i]:
                break
            at = (at + 1) & mask
        if table[at] < 0:
            table[at] = i
    found = 0
    for i in range(len(key)):
        h = key[i] * np.uint64(0x9E3779B97F4A7C15) + np.uint64(kind[i]) * np.uint64(0xD1B54A32D192ED03)
        h ^= h >> np.uint64(32)
        at = np.int64(h & np.uint64(mask))
        out[i] = False
        while table[at] >= 0:
            j = table[at]
            if wanted_key[j] == key[i] and wanted_kind[j] == kind[i]:
                out[i] = True
                found += 1
                break
            at = (at + 1) & mask
    return found


@njit(cache=True)
def count_pairs(start: I64, role: U8, collective: NDArray[np.bool_]) -> int:
    """Number of cause × effect pairs over all groups that are no collectives. `role` is laid out by group."""
    total = 0
    for g in range(len(start) - 1):
        if collective[g]:
            continue
        causes = 0
        for i in range(start[g], start[g + 1]):
            if role[i] == 0:
                causes += 1
        total += causes * (start[g + 1] - start[g] - causes)
    return total


@njit(cache=True)
def list_pairs(start: I64, role: U8, collective: NDArray[np.bool_], cause: I64, effect: I64) -> None:
    """Fill `cause` and `effect` with the places (by group layout) of every pair that count_pairs counted."""
    at = 0
    for g in range(len(start) - 1):
        if collective[g]:
            continue
        for i in range(start[g], start[g + 1]):
            if role[i] != 0:
                continue
            for j in range(start[g], start[g + 1]):
                if role[j] != 0:
                    cause[at] = i
                    effect[at] = j
                    at += 1


@njit(cache=True)
def best_causes(
    start: I64,
    shape: NDArray[np.int64],
    root: NDArray[np.bool_],
    value: I64,
    tie: I64,
    best: I64,
) -> None:
    """For each member of each join, the other member that is a cause and has the greatest (value, then least tie).

    `start` and `shape` by join; `root`, `value`, `tie` by member in join layout; writes into `best` the cause's
    place, or -1 where the member is no effect or has no other cause. Two candidates a join: O(members).
    """
    for g in range(len(shape)):
        a, b = start[g], start[g + 1]
        for i in range(a, b):
            best[i] = -1
        if shape[g] == NO_EDGE:
            continue
        first = -1
        second = -1
        for i in range(a, b):
            if shape[g] == FROM_ROOT and not root[i]:
                continue
            if first < 0 or value[i] > value[first] or (value[i] == value[first] and tie[i] < tie[first]):
                second = first
                first = i
            elif (
                second < 0 or value[i] > value[second] or (value[i] == value[second] and tie[i] < tie[second])
            ):
                second = i
        for i in range(a, b):
            if shape[g] == TO_ROOT and not root[i]:
                continue
            best[i] = second if i == first else first
