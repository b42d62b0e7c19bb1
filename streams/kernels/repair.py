"""The forward repair: the least order that respects every edge and never precedes the mapped time.

Nodes are points: 2i is the begin of row i, 2i + 1 its end. Constraints, each "effect >= cause + 1 ns" for
causal edges and ">=" for program order (ties are broken by sequence number):

    begin of a row        -> begin of the source's next row      (a thread)
    end of a row          -> begin of the source's next row      (a device stream, where the two do not overlap)
    begin of a row        -> its own end, at least its duration later
    cause of an edge      -> its effect
    causes of a join      -> the join -> its effects              (each effect takes the greatest *other* cause)

The order is found by Kahn's algorithm (linear, whatever the clocks do). Where bad matches make a cycle, it is cut:
of the points on it that wait for causal edges alone, the one with the least (time, row) is taken without them;
how many were is returned. Only edges that lie on a cycle are ever given up, never program order or durations.
Source: the controlled logical clock, forward pass, with joins as nodes.
"""

import heapq

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
    inner = np.zeros(points, np.int64)  # of those waited for: program order and the own begin
    for i in range(n):
        inner[2 * i + 1] += 1
        if chain[i] != 0:
            inner[2 * i] += 1
    waiting[:points] += inner
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
    rank = np.empty(0, np.int64)  # of points: where a cycle may be cut first
    heap = [
        np.int64(-1)
    ]  # codes rank * points + point of those that wait for causal edges alone; -1 sorts first
    effect_start = effect_of = np.empty(0, np.int64)
    given_up = 0
    while head < nodes:
        if head == tail:  # only cycles, and what hangs on them, are left
            if len(rank) == 0:
                rank = _cut_order(
                    lower, n, chain, out_start, out_to, in_join_start, joins_of, join_start, join_point_out
                )
                effect_start, effect_of = _members_by_point(points, join_point_out)
                heapq.heappop(heap)
                for p in range(points):
                    if not done[p] and inner[p] == 0:
                        heapq.heappush(heap, rank[p] * points + p)
            v = int(heapq.heappop(heap) % points)
            while done[v]:
                v = int(heapq.heappop(heap) % points)
            given_up += waiting[v]
            done[v] = True
            for k in range(effect_start[v], effect_start[v + 1]):  # the causes of its joins that are known
                m = effect_of[k]
                j = np.searchsorted(join_start, m, side="right") - 1
                cause = second[j] if first_at[j] >= 0 and first_at[j] == join_point_in[m] else first[j]
                if cause != least:
                    value[v] = max(value[v], cause + 1)
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
            value[p] = max(value[p], x + duration[i])
            waiting[p] -= 1
            inner[p] -= 1
            if waiting[p] == 0:
                done[p] = True
                queue[tail] = p
                tail += 1
            elif inner[p] == 0 and len(rank):
                heapq.heappush(heap, rank[p] * points + p)
        if i + 1 < n and ((v & 1 == 0 and chain[i + 1] == 1) or (v & 1 == 1 and chain[i + 1] == 2)):
            p = 2 * i + 2
            value[p] = max(value[p], x)
            waiting[p] -= 1
            inner[p] -= 1
            if waiting[p] == 0:
                done[p] = True
                queue[tail] = p
                tail += 1
            elif inner[p] == 0 and len(rank):
                heapq.heappush(heap, rank[p] * points + p)
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


@njit(cache=True)
def _members_by_point(points: int, join_point_out: I64) -> tuple[I64, I64]:
    """Join members whose effect is each point: (start by point, members)."""
    start = np.zeros(points + 1, np.int64)
    for p in join_point_out:
        if p >= 0:
            start[p + 1] += 1
    for p in range(points):
        start[p + 1] += start[p]
    members = np.empty(start[points], np.int64)
    place = start[:-1].copy()
    for m in range(len(join_point_out)):
        p = join_point_out[m]
        if p >= 0:
            members[place[p]] = m
            place[p] += 1
    return start, members


@njit(cache=True)
def _cut_order(
    lower: I64,
    n: int,
    chain: NDArray[np.int8],
    out_start: I64,
    out_to: I64,
    in_join_start: I64,
    joins_of: I64,
    join_start: I64,
    join_point_out: I64,
) -> I64:
    """Rank of each point by (strongly connected component in topological order, time, row).

    The least of those left lies in a component that waits for no other, so what is cut there is on a cycle.
    """
    points = 2 * n
    nodes = points + len(join_start) - 1
    # All constraints as one adjacency list.
    start = np.zeros(nodes + 1, np.int64)
    for v in range(points):
        linked = v + 1 < points and v & 1 == 0
        chained = (v >> 1) + 1 < n and chain[(v >> 1) + 1] == 1 + (v & 1)
        start[v + 1] = (
            out_start[v + 1] - out_start[v] + in_join_start[v + 1] - in_join_start[v] + linked + chained
        )
    for j in range(nodes - points):
        for m in range(join_start[j], join_start[j + 1]):
            start[points + j + 1] += join_point_out[m] >= 0
    for v in range(nodes):
        start[v + 1] += start[v]
    to = np.empty(start[nodes], np.int64)
    at = 0
    for v in range(points):
        if v & 1 == 0:
            to[at] = v + 1
            at += 1
        if (v >> 1) + 1 < n and chain[(v >> 1) + 1] == 1 + (v & 1):
            to[at] = 2 * (v >> 1) + 2
            at += 1
        for k in range(out_start[v], out_start[v + 1]):
            to[at] = out_to[k]
            at += 1
        for k in range(in_join_start[v], in_join_start[v + 1]):
            to[at] = points + joins_of[k]
            at += 1
    for j in range(nodes - points):
        for m in range(join_start[j], join_start[j + 1]):
            if join_point_out[m] >= 0:
                to[at] = join_point_out[m]
                at += 1
    # Tarjan's algorithm without recursion: components come out last first.
    index = np.full(nodes, -1, np.int64)
    low = np.zeros(nodes, np.int64)
    component = np.full(nodes, -1, np.int64)
    stack = np.empty(nodes, np.int64)
    path = np.empty(nodes, np.int64)
    nth = start[:-1].copy()
    top = 0
    count = 0
    found = 0
    for root in range(nodes):
        if index[root] >= 0:
            continue
        depth = 0
        path[0] = root
        index[root] = count
        low[root] = count
        count += 1
        stack[top] = root
        top += 1
        while depth >= 0:
            v = path[depth]
            if nth[v] < start[v + 1]:
                w = to[nth[v]]
                nth[v] += 1
                if index[w] < 0:
                    index[w] = count
                    low[w] = count
                    count += 1
                    stack[top] = w
                    top += 1
                    depth += 1
                    path[depth] = w
                elif component[w] < 0:
                    low[v] = min(low[v], index[w])
                continue
            if low[v] == index[v]:
                while True:
                    top -= 1
                    w = stack[top]
                    component[w] = found
                    if w == v:
                        break
                found += 1
            depth -= 1
            if depth >= 0:
                low[path[depth]] = min(low[path[depth]], low[v])
    by_time = np.argsort(lower, kind="mergesort")
    order = by_time[np.argsort(found - component[:points][by_time], kind="mergesort")]
    rank = np.empty(points, np.int64)
    rank[order] = np.arange(points)
    return rank
