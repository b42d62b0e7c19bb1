"""The forward repair: the least order that respects every edge and never precedes the mapped time.

Nodes are points: 2i is the begin of row i, 2i + 1 its end. Constraints, each "effect >= cause + 1 ns" for
causal edges and ">=" for program order (ties are broken by sequence number):

    begin of a row        -> begin of the source's next row      (a thread)
    end of a row          -> begin of the source's next row      (a device stream, where the two do not overlap)
    begin of a row        -> its own end, at least its duration later
    cause of an edge      -> its effect
    causes of a join      -> the join -> its effects              (each effect takes the greatest *other* cause)

The order is found by Kahn's algorithm (linear, whatever the clocks do). Where bad matches make a cycle, the
waiting point with the least (time, row) is taken without its unmet constraints; how many were is returned.
Source: the controlled logical clock, forward pass, with joins as nodes.
"""

import numpy as np
from numba import njit
from numpy.typing import NDArray

I64 = NDArray[np.int64]


@njit(cache=True)
def forward(
    lower: I64,
    duration: I64,
    chain: NDArray[np.int8],
    edge_from: I64,
    edge_to: I64,
    join_start: I64,
    join_point_in: I64,
    join_point_out: I64,
    join_const: I64,
) -> tuple[I64, int]:
    """Repaired points from lower bounds.

    lower: (2n,) mapped time of each point, already raised to constants (window floor, released causes).
    duration: (n,) ns. chain: (n,) constraint from row i-1 to row i: 0 none, 1 begin -> begin, 2 end -> begin.
    edge_from, edge_to: points of causal edges. A join's members are join_start[j]..join_start[j+1]:
    join_point_in the member's point that is a cause (-1 if none of ours), join_point_out the one that is an
    effect (-1 if none), join_const (joins,) the greatest cause among released rows, or the least int64.
    Returns (repaired points (2n,), constraints given up in cycles).
    """
    n = len(duration)
    points = 2 * n
    joins = len(join_start) - 1
    nodes = points + joins
    value = lower.copy()
    waiting = np.zeros(nodes, np.int64)
    # Adjacency of the causal edges, by cause.
    out_start = np.zeros(points + 1, np.int64)
    for e in range(len(edge_from)):
        out_start[edge_from[e] + 1] += 1
        waiting[edge_to[e]] += 1
    in_join_start = np.zeros(points + 1, np.int64)
    for j in range(joins):
        for m in range(join_start[j], join_start[j + 1]):
            if join_point_in[m] >= 0:
                in_join_start[join_point_in[m] + 1] += 1
                waiting[points + j] += 1
            if join_point_out[m] >= 0:
                waiting[join_point_out[m]] += 1
    for p in range(points):
        out_start[p + 1] += out_start[p]
        in_join_start[p + 1] += in_join_start[p]
    out_to = np.empty(len(edge_from), np.int64)
    place = out_start[:-1].copy()
    for e in range(len(edge_from)):
        out_to[place[edge_from[e]]] = edge_to[e]
        place[edge_from[e]] += 1
    joins_of = np.empty(in_join_start[points], np.int64)
    place = in_join_start[:-1].copy()
    for j in range(joins):
        for m in range(join_start[j], join_start[j + 1]):
            p = join_point_in[m]
            if p >= 0:
                joins_of[place[p]] = j
                place[p] += 1
    for i in range(n):
        waiting[2 * i + 1] += 1
        if chain[i] != 0:
            waiting[2 * i] += 1
    # The two greatest causes of each join, and the point of the first.
    least = np.iinfo(np.int64).min
    first = np.full(joins, least, np.int64)
    second = np.full(joins, least, np.int64)
    first_at = np.full(joins, -1, np.int64)
    for j in range(joins):
        first[j] = join_const[j]
    queue = np.empty(nodes, np.int64)
    done = np.zeros(nodes, np.bool_)
    head = 0
    tail = 0
    for v in range(nodes):
        if waiting[v] == 0:
            queue[tail] = v
            tail += 1
            done[v] = True
    by_time = np.empty(0, np.int64)
    cursor = 0
    given_up = 0
    while head < nodes:
        if head == tail:  # a cycle: take the waiting point with the least (time, row)
            if len(by_time) == 0:
                by_time = np.argsort(lower, kind="mergesort")
            while cursor < points and done[by_time[cursor]]:
                cursor += 1
            if cursor == points:  # only joins wait, for causes that were all given up
                for v in range(points, nodes):
                    if not done[v]:
                        done[v] = True
                        queue[tail] = v
                        tail += 1
            else:
                v = by_time[cursor]
                given_up += waiting[v]
                done[v] = True
                queue[tail] = v
                tail += 1
        v = queue[head]
        head += 1
        if v >= points:
            j = v - points
            for m in range(join_start[j], join_start[j + 1]):
                p = join_point_out[m]
                if p < 0:
                    continue
                cause = second[j] if first_at[j] >= 0 and first_at[j] == join_point_in[m] else first[j]
                if cause != least and value[p] < cause + 1 and not done[p]:
                    value[p] = cause + 1
                waiting[p] -= 1
                if waiting[p] == 0 and not done[p]:
                    done[p] = True
                    queue[tail] = p
                    tail += 1
            continue
        x = value[v]
        i = v >> 1
        if v & 1 == 0:
            p = v + 1
            if value[p] < x + duration[i] and not done[p]:
                value[p] = x + duration[i]
            waiting[p] -= 1
            if waiting[p] == 0 and not done[p]:
                done[p] = True
                queue[tail] = p
                tail += 1
        if i + 1 < n and ((v & 1 == 0 and chain[i + 1] == 1) or (v & 1 == 1 and chain[i + 1] == 2)):
            p = 2 * i + 2
            if value[p] < x and not done[p]:
                value[p] = x
            waiting[p] -= 1
            if waiting[p] == 0 and not done[p]:
                done[p] = True
                queue[tail] = p
                tail += 1
        for k in range(out_start[v], out_start[v + 1]):
            p = out_to[k]
            if value[p] < x + 1 and not done[p]:
                value[p] = x + 1
            waiting[p] -= 1
            if waiting[p] == 0 and not done[p]:
                done[p] = True
                queue[tail] = p
                tail += 1
        for k in range(in_join_start[v], in_join_start[v + 1]):
            j = joins_of[k]
            if x > first[j]:
                second[j] = first[j]
                first[j] = x
                first_at[j] = v
            elif x > second[j]:
                second[j] = x
            p = points + j
            waiting[p] -= 1
            if waiting[p] == 0 and not done[p]:
                done[p] = True
                queue[tail] = p
                tail += 1
    return value, given_up
