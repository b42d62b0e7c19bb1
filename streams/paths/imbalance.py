"""How evenly flows spread over links: FIM by ECMP group and by layer, beside what chance alone gives.

FIM is the mean absolute deviation of the links' loads from their expected load, in percent of it. Expected in
a group is Σ flows × weight, so demand plays no part: `fim_routing` of a layer is the mean over its groups,
weighted by their flows. `fim_layer` takes all links of the layer against one even load, demand and routing
together. max/mean, Jain and CoV are of the links' loads relative to what their groups expect. Groups of one
link have no choice: they count in no figure of routing.
"""

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from streams.paths import null
from streams.paths.chance import FULL, Effort, nulls
from streams.paths.fabric import Groups
from streams.paths.layer import Layer, capacity_shares, layer_entries, units_of
from streams.paths.route import Entries
from streams.paths.sums import summed

I64 = NDArray[np.int64]
I32 = NDArray[np.int32]
F64 = NDArray[np.float64]

WORST: Final = 10  # groups and links named in a report


@dataclass(frozen=True)
class Spread:
    """How one amount (flows or bytes) spreads over a layer's links. Percent where it says FIM."""

    fim_routing: float
    fim_layer: float
    max_over_mean: float
    jain: float
    cov: float
    null: null.Null | None  # of fim_routing, in percent; None where flows are split over links
    groups: "GroupSpreads | None" = None  # where they were asked for

    def summary(self) -> dict[str, Any]:
        """As the fields of a report."""
        chance = self.null
        out: dict[str, Any] = {
            "fim_routing": self.fim_routing,
            "fim_layer": self.fim_layer,
            "fim_null": None,
            "z": None,
            "p": None,
            "max_over_mean": self.max_over_mean,
            "jain": self.jain,
            "cov": self.cov,
        }
        if chance is not None:
            out |= {
                "fim_null": chance.mean,
                "z": chance.z(self.fim_routing),
                "p": chance.p,
                "verdict": chance.verdict(self.fim_routing),
                "null_sd": chance.sd,
                "null_method": chance.method,
                "null_draws": chance.draws,
                "p_below": chance.below,
                "p_equal": chance.equal,
                "p_above": chance.above,
            }
        return out


@dataclass(frozen=True, eq=False)
class GroupSpreads:
    """The same by group of the layer, in its order; nan where a group carries nothing of this amount."""

    fim: F64
    max_over_mean: F64
    jain: F64
    cov: F64
    total: F64
    load: F64  # by slot of the layer
    nulls: list[null.Null]  # empty where flows are split over links


@dataclass(frozen=True, eq=False)
class LayerSpread:
    """A layer with choice: counts, and the spread of flows and of bytes over its links."""

    name: str
    groups: I64  # those of its groups that carry flows
    links: int
    flows: float
    bytes: float
    by_flows: Spread
    by_bytes: Spread
    fim: F64  # by group, by flows
    fim_null: F64
    idle: list[tuple[int, float, float]]  # links without load: (link, expected keys, p)
    part: Layer


def fim(load: F64, expected: F64) -> float:
    """Mean |load − expected|/expected over links, in percent."""
    return float(100 * np.mean(np.abs(load - expected) / expected))


def evenness(relative: F64) -> tuple[float, float, float]:
    """(max/mean, Jain's index, coefficient of variation) of loads."""
    mean = float(relative.mean())
    square = float((relative**2).mean())
    return (
        float(relative.max()) / mean, mean**2 / square, float(np.sqrt(max(0.0, square - mean**2))) / mean
    )  # fmt: skip


def layer_spread(
    groups: Groups,
    entries: Entries,
    layer: int,
    size: F64,
    unit: I64,
    capacity: F64,
    rng: np.random.Generator,
    effort: Effort = FULL,
    *,
    by_group: bool = False,
) -> LayerSpread | None:
    """Imbalance of one layer (a place in groups.layers); None if no flow has a choice in it.

    `size` and `unit` are by flow: bytes, and the number of its distinct hash key. `capacity` is by link.
    `rng` draws the nulls of unequal keys, within `effort`. `by_group`: the figures of each group, too.
    """
    part = layer_entries(groups, entries, layer)
    if part is None:
        return None
    even = capacity_shares(groups, layer, capacity)
    counts, amounts = part.share, part.share * size[part.flow]
    units = units_of(part, unit) if entries.whole else None
    spreads, loads = [], []
    for amount in (counts, amounts):
        load = summed(part.slot, amount, len(part.link))
        loads.append(load)
        spreads.append(_spread(part, even, amount, load, units, rng, effort, by_group))
    total = summed(part.of_slot, loads[0], len(part.group))
    each = (
        100
        * summed(part.of_slot, np.abs(loads[0] / (total[part.of_slot] * part.weight) - 1), len(part.group))
        / part.size
    )
    return LayerSpread(
        groups.layers[layer], part.group, len(even[0]), float(loads[0].sum()), float(loads[1].sum()),
        spreads[0], spreads[1], each, _null_by_group(part, units), _idle(part, units, loads[0]), part,
    )  # fmt: skip


def _spread(
    part: Layer,
    even: tuple[I64, F64],
    amount: F64,
    load: F64,
    units: tuple[I64, I64] | None,
    rng: np.random.Generator,
    effort: Effort,
    by_group: bool,
) -> Spread:
    total = summed(part.of_slot, load, len(part.group))
    expected = total[part.of_slot] * part.weight
    live = expected > 0  # a group may carry flows without bytes
    if not live.any():
        return Spread(0.0, 0.0, 1.0, 1.0, 0.0, None)
    deviation = summed(
        part.of_slot[live], np.abs(load[live] - expected[live]) / expected[live], len(part.group)
    )
    routing = float(100 * (deviation / part.size) @ total / total.sum())
    links, share = even
    on_link = summed(np.searchsorted(links, part.link), load, len(links))
    of_layer = fim(on_link, share * total.sum())
    most, jain, cov = evenness(load[live] / expected[live])
    each = np.where(total > 0, 100 * deviation / part.size, np.nan)
    chance, of_groups = None, None
    if units is not None:
        chance, found = nulls(
            part, amount, load, total, units, routing, each if by_group else None, rng, effort
        )
    if by_group:
        relative = np.where(live, load / np.where(live, expected, 1.0), np.nan)
        of_groups = _group_spreads(part, each, relative, total, load, found if units is not None else [])
    return Spread(routing, of_layer, most, jain, cov, chance, of_groups)


def _group_spreads(
    part: Layer, each: F64, relative: F64, total: F64, load: F64, found: list[null.Null]
) -> GroupSpreads:
    mean = np.add.reduceat(relative, part.first) / part.size
    square = np.add.reduceat(relative**2, part.first) / part.size
    most = np.maximum.reduceat(relative, part.first)
    cov = np.sqrt(np.maximum(0.0, square - mean**2)) / mean
    return GroupSpreads(each, most / mean, mean**2 / square, cov, total, load, found)


def _null_by_group(part: Layer, units: tuple[I64, I64] | None) -> F64:
    """Exact mean FIM by flows of each group, were its keys alike; nan where flows are split."""
    if units is None:
        return np.full(len(part.group), np.nan)
    keys = np.bincount(units[1], minlength=len(part.group))
    out = np.empty(len(part.group))
    known: dict[tuple[int, bytes], float] = {}
    for g, (k, first) in enumerate(zip(keys.tolist(), part.first.tolist(), strict=True)):
        weight = part.weight[first : first + part.size[g]]
        mark = (k, weight.tobytes())
        if mark not in known:
            known[mark] = 100 * float(np.mean([null.mean_deviation(k, p) / (k * p) for p in weight.tolist()]))
        out[g] = known[mark]
    return out


def _idle(part: Layer, units: tuple[I64, I64] | None, load: F64) -> list[tuple[int, float, float]]:
    """Links without load though keys were hashed over their groups: (link, expected keys, p), least p first.

    p is the chance Π (1 − w)^K over the link's groups that no key fell on it, by Holm over the layer's links.
    """
    if units is None:
        return []
    links, which = np.unique(part.link, return_inverse=True)
    keys = np.bincount(units[1], minlength=len(part.group))[part.of_slot]
    empty = np.flatnonzero(summed(which, load, len(links)) == 0)
    expected = summed(which, keys * part.weight, len(links))[empty]
    chance = np.exp(summed(which, keys * np.log1p(-np.minimum(part.weight, 1 - 1e-15)), len(links))[empty])
    p = holm(chance, len(links))
    order = np.argsort(p, kind="stable")
    return list(zip(links[empty][order].tolist(), expected[order].tolist(), p[order].tolist(), strict=True))


def holm(p: F64, tests: int | None = None) -> F64:
    """Holm's adjustment of p values for `tests` of them (those not given count as greater)."""
    order = np.argsort(p, kind="stable")
    count = len(p) if tests is None else tests
    out = np.empty(len(p))
    out[order] = np.minimum(1.0, np.maximum.accumulate(p[order] * (count - np.arange(len(p)))))
    return out
