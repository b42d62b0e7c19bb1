"""Repair where little is out of order, as is usual: raise what a constraint flags, then what that flags in turn.

The terms and the result are those of `streams.kernels.repair.forward`: the least order that satisfies every
constraint is unique where the constraints form no cycle, so both give it. This one looks at each constraint once
and then only at what moves, which is little where clocks err by little; `forward` looks at everything. On a cycle
raising never ends: past a limit of raises it gives up, and the caller takes `forward`.
"""

import numpy as np
from numba import njit
from numpy.typing import NDArray

I64 = NDArray[np.int64]
LEAST = np.iinfo(np.int64).min


@njit(cache=True)
def relax(
    lower: I64,
    duration: I64,
    chain: NDArray[np.int8],
    edge_from: I64,
    edge_to: I64,
    join_start: I64,
    join_point_in: I64,
    join_point_out: I64,
    join_const: I64,
) -> tuple[I64, bool]:
    """(repaired points, whether it came to an end); the arguments are those of `forward`."""
    n = len(duration)
    points = 2 * n
    joins = len(join_start) - 1
    edges = len(edge_from)
    members = len(join_point_in)
    value = lower.copy()
    limit = 2 * (edges + members) + n // 4 + 1000
    raises = 0
    # A ring of nodes to look at: points, then joins. Each is in it at most once.
    size = points + joins + 1
    ring = np.empty(size, np.int32)
    listed = np.zeros(size, np.bool_)
    head = 0
    tail = 0
    # Which constraints do not hold?
    for i in range(n):
        if value[2 * i + 1] < value[2 * i] + duration[i]:
            value[2 * i + 1] = value[2 * i] + duration[i]
            ring[tail] = 2 * i + 1
            listed[2 * i + 1] = True
            tail += 1
        if chain[i] != 0:
            before = value[2 * i - 2] if chain[i] == 1 else value[2 * i - 1]
            if value[2 * i] < before:
                value[2 * i] = before
                if not listed[2 * i]:
                    ring[tail] = 2 * i
                    listed[2 * i] = True
                    tail += 1
                if value[2 * i + 1] < before + duration[i]:
                    value[2 * i + 1] = before + duration[i]
                    if not listed[2 * i + 1]:
                        ring[tail] = 2 * i + 1
                        listed[2 * i + 1] = True
                        tail += 1
    for k in range(edges):
        p = edge_to[k]
        if value[p] < value[edge_from[k]] + 1:
            value[p] = value[edge_from[k]] + 1
            if not listed[p]:
                ring[tail] = p
                listed[p] = True
                tail += 1
    for j in range(joins):
        ring[tail] = points + j
        listed[points + j] = True
        tail += 1
    if head == tail:
        return value, True
    # Adjacency by cause, made only once something has to move.
    out_start = np.zeros(points + 1, np.int32)
    in_start = np.zeros(points + 1, np.int32)
    out_to = np.empty(0, np.int64)
    joins_of = np.empty(0, np.int32)
    ready = False
    while head != tail:
        v = int(ring[head])
        head = head + 1 if head + 1 < size else 0
        listed[v] = False
        if v >= points:
            j = v - points
            first = join_const[j]
            second = LEAST
            at = -1
            for m in range(join_start[j], join_start[j + 1]):
                p = join_point_in[m]
                if p < 0:
                    continue
                x = value[p]
                if x > first:
                    second = first
                    first = x
                    at = p
                elif x > second:
                    second = x
            for m in range(join_start[j], join_start[j + 1]):
                p = join_point_out[m]
                if p < 0:
                    continue
                cause = second if at >= 0 and at == join_point_in[m] else first
                if cause != LEAST and value[p] < cause + 1:
                    value[p] = cause + 1
                    raises += 1
                    if not listed[p]:
                        ring[tail] = p
                        listed[p] = True
                        tail = tail + 1 if tail + 1 < size else 0
            continue
        if raises > limit:
            return value, False
        if not ready:
            ready = True
            for k in range(edges):
                out_start[edge_from[k] + 1] += 1
            for m in range(members):
                if join_point_in[m] >= 0:
                    in_start[join_point_in[m] + 1] += 1
            for p in range(points):
                out_start[p + 1] += out_start[p]
                in_start[p + 1] += in_start[p]
            out_to = np.empty(edges, np.int64)
            place = out_start[:-1].copy()
            for k in range(edges):
                out_to[place[edge_from[k]]] = edge_to[k]
                place[edge_from[k]] += 1
            joins_of = np.empty(in_start[points], np.int32)
            place = in_start[:-1].copy()
            for j in range(joins):
                for m in range(join_start[j], join_start[j + 1]):
                    p = join_point_in[m]
                    if p >= 0:
                        joins_of[place[p]] = j
                        place[p] += 1
        x = value[v]
        i = v >> 1
        if v & 1 == 0 and value[v + 1] < x + duration[i]:
            value[v + 1] = x + duration[i]
            raises += 1
            if not listed[v + 1]:
                ring[tail] = v + 1
                listed[v + 1] = True
                tail = tail + 1 if tail + 1 < size else 0
        if i + 1 < n and ((v & 1 == 0 and chain[i + 1] == 1) or (v & 1 == 1 and chain[i + 1] == 2)):
            p = 2 * i + 2
            if value[p] < x:
                value[p] = x
                raises += 1
                if not listed[p]:
                    ring[tail] = p
                    listed[p] = True
                    tail = tail + 1 if tail + 1 < size else 0
        for k in range(out_start[v], out_start[v + 1]):
            p = out_to[k]
            if value[p] < x + 1:
                value[p] = x + 1
                raises += 1
                if not listed[p]:
                    ring[tail] = p
                    listed[p] = True
                    tail = tail + 1 if tail + 1 < size else 0
        for k in range(in_start[v], in_start[v + 1]):
            p = points + joins_of[k]
            if not listed[p]:
                ring[tail] = p
                listed[p] = True
                tail = tail + 1 if tail + 1 < size else 0
    return value, True
