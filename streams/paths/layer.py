"""One layer of a fabric: its ECMP groups that have a choice and carry flows, and the flows' entries in them."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from streams.paths.fabric import Groups
from streams.paths.route import Entries

I64 = NDArray[np.int64]
I32 = NDArray[np.int32]
F64 = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Layer:
    """The entries of one layer's groups, slots renumbered from 0."""

    group: I64  # groups, as numbered in Groups
    size: I64
    link: I32  # by slot
    weight: F64  # by slot
    of_slot: I64  # by slot: place in `group`
    flow: I32  # by entry
    slot: I64
    share: F64

    @property
    def first(self) -> I64:
        """First slot of each group."""
        out: I64 = np.cumsum(self.size) - self.size
        return out


def layer_entries(groups: Groups, entries: Entries, layer: int) -> Layer | None:
    """The entries of a layer's groups that have a choice and carry flows; None if there are none."""
    if not ((groups.layer == layer) & (groups.size > 1)).any():
        return None
    carries = np.bincount(groups.of_slot[entries.slot], minlength=len(groups)) > 0
    chosen = np.flatnonzero((groups.layer == layer) & (groups.size > 1) & carries)
    if not len(chosen):
        return None
    size = groups.size[chosen]
    of_slot = np.repeat(np.arange(len(chosen)), size)
    old = np.repeat(groups.first[chosen] - np.cumsum(size) + size, size) + np.arange(int(size.sum()))
    number = np.full(len(groups.link), -1, np.int64)
    number[old] = np.arange(len(old))
    slot = number[entries.slot]
    use = slot >= 0
    return Layer(
        chosen, size, groups.link[old], groups.weight[old], of_slot,
        entries.flow[use], slot[use], entries.share[use],
    )  # fmt: skip


def capacity_shares(groups: Groups, layer: int, capacity: F64) -> tuple[I64, F64]:
    """(links of the layer, the share that each has of the layer's capacity), idle links too."""
    links = np.unique(
        groups.link[(groups.layer == layer)[groups.of_slot] & (groups.size > 1)[groups.of_slot]]
    )
    return links.astype(np.int64), capacity[links] / capacity[links].sum()


def units_of(part: Layer, unit: I64) -> tuple[I64, I64]:
    """Flows of one key in one group go together: (unit of each entry, group of each unit)."""
    key = part.of_slot[part.slot] * (int(unit.max()) + 1) + unit[part.flow]
    distinct, which = np.unique(key, return_inverse=True)
    owner = np.empty(len(distinct), np.int64)
    owner[which] = part.of_slot[part.slot]
    return which, owner
