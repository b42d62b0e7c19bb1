"""Flows onto links: hop by hop over a fabric, all flows at once.

What comes out are **entries** (flow, slot, share), by flow and along its path: slot says which member of
which ECMP group, share which part of the flow goes there.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from schemas.errors import Usage
from streams.paths.demand import Flows
from streams.paths.fabric import MAX_HOPS, Fabric, Groups
from streams.paths.hashing import HashModel, mixed, weighted_buckets
from streams.paths.sums import summed

U8 = NDArray[np.uint8]
I32 = NDArray[np.int32]
I64 = NDArray[np.int64]
F64 = NDArray[np.float64]

ENTRIES_MAX: Final = 40_000_000  # of sprayed flows: 1 GB of work

# (flows, the switch each is at, the link it came in by, its group) -> member, 0 to the group's size − 1
Choose = Callable[[I64, I32, I32, I32], I64]


@dataclass(frozen=True, eq=False)
class Entries:
    """Where flows go, sorted by flow and hop. `whole` is true if every share is 1."""

    flow: I32
    slot: I32
    share: F64
    whole: bool

    def __len__(self) -> int:
        return len(self.flow)


def by_hash(
    fabric: Fabric, flows: Flows, model: HashModel, by_layer: Mapping[str, HashModel] | None = None
) -> Entries:
    """ECMP: every switch chooses by its hash model; `by_layer` names layers with another model."""
    return as_entries(walk(fabric, flows, hash_choice(fabric.groups, flows, model, by_layer)))


def hash_choice(
    groups: Groups, flows: Flows, model: HashModel, by_layer: Mapping[str, HashModel] | None = None
) -> Choose:
    """How switches choose by hash. Groups of unequal weights choose a bucket first."""
    models = [(by_layer or {}).get(name, model) for name in groups.layers]
    keys = {used.fields: flows.key(used.fields) for used in models}
    # A linear hash of a million keys is taken once; a switch's seed only XORs a constant into it.
    hashed = {used: used.unseeded(keys[used.fields]) for used in models if used.linear}
    first, buckets, member = _buckets(groups)

    def choose(flow: I64, switch: I32, link: I32, group: I32) -> I64:
        out = np.zeros(len(flow), np.int64)
        layer = groups.layer[group]
        for number, used in enumerate(models):
            use = np.flatnonzero((layer == number) & (groups.size[group] > 1))
            if not len(use):
                continue
            at, seed, key = group[use], used.seeds(switch[use], link[use]), keys[used.fields]
            if used.linear:
                value = hashed[used][flow[use]] ^ used.effect(seed, key.shape[1])
            else:
                value = used.hash(key[flow[use]], seed)
            place = used.place(value, buckets[at])
            out[use] = place if member is None else member[first[at] + place]
        return out

    return choose


def random_choice(groups: Groups, seed: int, draw: int = 0) -> Choose:
    """Each switch chooses at random for each flow, by weight; the same for the same (seed, draw)."""
    first, buckets, member = _buckets(groups)

    def choose(flow: I64, switch: I32, link: I32, group: I32) -> I64:
        value = mixed(seed, np.full(1, draw), flow, switch.astype(np.int64)).astype(np.uint64)
        place = ((value * buckets[group].astype(np.uint64)) >> np.uint64(32)).astype(np.int64)
        return place if member is None else member[first[group] + place]

    return choose


def _buckets(groups: Groups) -> tuple[I64, I64, I64 | None]:
    """(first bucket, buckets) by group and the member of each bucket; None where bucket = member."""
    even = groups.weight * groups.size[groups.of_slot]
    if np.allclose(even, 1.0):
        return groups.first, groups.size, None
    tables = []
    for first, size in zip(groups.first.tolist(), groups.size.tolist(), strict=True):
        part = groups.weight[first : first + size]
        tables.append(weighted_buckets(whole_weights(part)))
    count = np.array([len(table) for table in tables])
    return np.cumsum(count) - count, count, np.concatenate(tables)


def whole_weights(weight: F64, limit: int = 1024) -> list[int]:
    """The smallest whole weights in these proportions, or the nearest that sum to about `limit`."""
    positive = weight[weight > 0]
    for times in range(1, 65):
        scaled = weight / positive.min() * times
        if np.allclose(scaled, np.round(scaled), rtol=1e-6, atol=1e-9):
            return [int(value) for value in np.round(scaled)]
    return [max(1, int(value)) if value else 0 for value in np.round(weight / weight.sum() * limit)]


def walk(fabric: Fabric, flows: Flows, choose: Choose) -> I32:
    """Slots of each flow's hops, shape (flows, hops), −1 after the last. Raises Usage if there is no path."""
    groups = fabric.groups
    n = len(flows)
    if n and (
        min(flows.src.min(), flows.dst.min()) < 0 or max(flows.src.max(), flows.dst.max()) >= fabric.endpoints
    ):
        raise Usage("a flow's ends are not both endpoints of the fabric")
    if (flows.src == flows.dst).any():
        raise Usage("a flow from an endpoint to itself takes no link")
    hops = [groups.first[fabric.up[flows.src]].astype(np.int32)]
    target = fabric.leaf[flows.dst]
    node = fabric.leaves[fabric.leaf[flows.src]]
    live = np.arange(n)
    last = np.full(n, 1)
    for hop in range(1, MAX_HOPS):
        there = node[live] == fabric.leaves[target[live]]
        arrived = live[there]
        last[arrived] = hop
        live = live[~there]
        column = np.full(n, -1, np.int32)
        column[arrived] = groups.first[fabric.down[flows.dst[arrived]]]
        hops.append(column)
        if not len(live):
            break
        group = fabric.next[node[live] - fabric.endpoints, target[live]]
        if (group < 0).any():
            raise Usage("a flow meets a switch that has no way to its destination")
        link_in = groups.link[hops[-2][live]]
        column[live] = groups.first[group] + choose(live, node[live], link_in, group)
        node = node.copy()
        node[live] = fabric.links.receiver[groups.link[column[live]]]
    return np.stack(hops, axis=1)


def as_entries(slots: I32) -> Entries:
    """Entries of whole flows from the slots of `walk`."""
    flow, hop = np.nonzero(slots >= 0)
    return Entries(flow.astype(np.int32), slots[flow, hop], np.ones(len(flow)), True)


def mixture(fabric: Fabric, flows: Flows, choices: list[Choose]) -> Entries:
    """Each flow in equal parts over several choices (flowlets): shares of the links they meet."""
    merged: dict[str, NDArray[np.int64]] = {}
    base = len(fabric.groups.link)
    found = []
    for choose in choices:
        slots = walk(fabric, flows, choose)
        flow, hop = np.nonzero(slots >= 0)
        found.append((flow * MAX_HOPS + hop) * base + slots[flow, hop])
    merged["key"], count = np.unique(np.concatenate(found), return_counts=True)
    flow = merged["key"] // (base * MAX_HOPS)
    return Entries(
        flow.astype(np.int32),
        (merged["key"] % base).astype(np.int32),
        count / len(choices),
        len(choices) == 1,
    )


def spray(fabric: Fabric, flows: Flows) -> Entries:
    """Each flow over all members of every group it meets, by weight. Raises Usage beyond 40 M entries."""
    groups = fabric.groups
    n = len(flows)
    flow, node = np.arange(n), fabric.leaves[fabric.leaf[flows.src]].astype(np.int64)
    share = np.ones(n)
    out = [(flow, np.zeros(n, np.int64), groups.first[fabric.up[flows.src]], share)]
    target = fabric.leaf[flows.dst]
    size = len(fabric.nodes)
    for hop in range(1, MAX_HOPS):
        there = node == fabric.leaves[target[flow]]
        ended = np.unique(flow[there])
        out.append(
            (
                ended,
                np.full(len(ended), hop),
                groups.first[fabric.down[flows.dst[ended]]],
                np.ones(len(ended)),
            )
        )
        flow, node, share = flow[~there], node[~there], share[~there]
        if not len(flow):
            break
        group = fabric.next[node - fabric.endpoints, target[flow]]
        if (group < 0).any():
            raise Usage("a flow meets a switch that has no way to its destination")
        count = groups.size[group]
        if sum(len(part[0]) for part in out) + int(count.sum()) > ENTRIES_MAX:
            raise Usage(f"spraying these flows needs more than {ENTRIES_MAX:,} entries: give fewer flows")
        each = np.repeat(np.arange(len(flow)), count)
        slot = (
            np.repeat(groups.first[group], count)
            + np.arange(len(each))
            - np.repeat(np.cumsum(count) - count, count)
        )
        part = share[each] * groups.weight[slot]
        out.append((flow[each], np.full(len(each), hop), slot, part))
        reached = fabric.links.receiver[groups.link[slot]].astype(np.int64)
        key, which = np.unique(flow[each] * size + reached, return_inverse=True)
        share = summed(which, part, len(key))
        flow, node = key // size, key % size
    flows_, hops_, slots_, shares_ = (np.concatenate(column) for column in zip(*out, strict=True))
    order = np.lexsort((hops_, flows_))
    return Entries(flows_[order].astype(np.int32), slots_[order].astype(np.int32), shares_[order], False)
