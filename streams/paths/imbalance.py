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
from streams.paths.fabric import Groups
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


@dataclass(frozen=True, eq=False)
class _Layer:
    """The entries of one layer's groups, slots renumbered from 0."""

    group: I64  # groups, as numbered in Groups
    size: I64
    link: I32  # by slot
    weight: F64  # by slot
    of_slot: I64  # by slot: place in `group`
    flow: I32  # by entry
    slot: I64
    share: F64


def layer_entries(groups: Groups, entries: Entries, layer: int) -> _Layer | None:
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
    return _Layer(
        chosen, size, groups.link[old], groups.weight[old], of_slot,
        entries.flow[use], slot[use], entries.share[use],
    )  # fmt: skip


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
    draws: int = null.DRAWS,
) -> LayerSpread | None:
    """Imbalance of one layer (a place in groups.layers); None if no flow has a choice in it.

    `size` and `unit` are by flow: bytes, and the number of its distinct hash key. `capacity` is by link.
    `rng` draws the nulls of unequal keys.
    """
    part = layer_entries(groups, entries, layer)
    if part is None:
        return None
    even = _capacity_shares(groups, layer, part, capacity)
    counts, amounts = part.share, part.share * size[part.flow]
    units = _units(part, unit) if entries.whole else None
    spreads, loads = [], []
    for amount in (counts, amounts):
        load = summed(part.slot, amount, len(part.link))
        total = summed(part.of_slot, load, len(part.group))
        expected = total[part.of_slot] * part.weight
        loads.append(load)
        spreads.append(_spread(part, even, amount, load, total, expected, units, rng, draws))
    total = summed(part.of_slot, loads[0], len(part.group))
    each = (
        100
        * summed(part.of_slot, np.abs(loads[0] / (total[part.of_slot] * part.weight) - 1), len(part.group))
        / part.size
    )
    return LayerSpread(
        groups.layers[layer], part.group, len(even[0]), float(loads[0].sum()), float(loads[1].sum()),
        spreads[0], spreads[1], each, _null_by_group(part, units), _idle(part, units, loads[0]),
    )  # fmt: skip


def _capacity_shares(groups: Groups, layer: int, part: _Layer, capacity: F64) -> tuple[I64, F64]:
    """(links of the layer, the share that each has of the layer's capacity), idle links too."""
    links = np.unique(
        groups.link[(groups.layer == layer)[groups.of_slot] & (groups.size > 1)[groups.of_slot]]
    )
    return links.astype(np.int64), capacity[links] / capacity[links].sum()


def _units(part: _Layer, unit: I64) -> tuple[I64, I64]:
    """Flows of one key in one group go together: (unit of each entry, group of each unit)."""
    key = part.of_slot[part.slot] * (int(unit.max()) + 1) + unit[part.flow]
    distinct, which = np.unique(key, return_inverse=True)
    owner = np.empty(len(distinct), np.int64)
    owner[which] = part.of_slot[part.slot]
    return which, owner


def _spread(
    part: _Layer,
    even: tuple[I64, F64],
    amount: F64,
    load: F64,
    total: F64,
    expected: F64,
    units: tuple[I64, I64] | None,
    rng: np.random.Generator,
    draws: int,
) -> Spread:
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
    chance = None if units is None else _null(part, amount, load, total, units, routing, rng, draws)
    return Spread(routing, of_layer, most, jain, cov, chance)


def _null(
    part: _Layer,
    amount: F64,
    load: F64,
    total: F64,
    units: tuple[I64, I64],
    observed: float,
    rng: np.random.Generator,
    draws: int,
) -> null.Null:
    """The null of a layer's fim_routing, in percent: exact where keys are alike, else drawn, else a limit."""
    which, owner = units
    each = summed(which, amount, len(owner))
    order = np.argsort(owner, kind="stable")
    start = np.searchsorted(owner[order], np.arange(len(part.group) + 1))
    each = each[order]
    keys = np.diff(start)
    least, most = np.minimum.reduceat(each, start[:-1]), np.maximum.reduceat(each, start[:-1])
    alike = most - least <= null.EQUAL * most
    first = np.cumsum(part.size) - part.size
    uniform = np.maximum.reduceat(part.weight, first) - np.minimum.reduceat(part.weight, first) < 1e-12
    scale = 100 / total.sum()  # from Σ|load − expected|, all links alike, to percent
    exact = alike & uniform
    one_key_size = bool(exact.all()) and most.max() - most.min() <= null.EQUAL * most.max()
    if one_key_size and (part.size == part.size[0]).all():
        links = int(part.size[0])
        whole = np.rint(load / most.max()).astype(np.int64)
        floor = keys[part.of_slot] // links
        low = whole <= floor
        at = int((np.where(low, keys[part.of_slot] - whole * links, 0)).sum())
        kinds, times = np.unique(keys, return_counts=True)
        found = null.even_sums([(int(k), links, int(t)) for k, t in zip(kinds, times, strict=True)], at)
        if found is not None:
            return _scaled(found, float(most.max()) * scale)
    sizes = [each[start[g] : start[g + 1]] for g in range(len(part.group))]
    weights = [part.weight[first[g] : first[g] + part.size[g]] for g in range(len(part.group))]
    work = sum(_draw_work(exact[g], len(s), int(part.size[g]), s) for g, s in enumerate(sizes)) * draws
    if work <= null.DRAW_WORK:
        sums = np.zeros(draws)
        for g, s in enumerate(sizes):
            if total[g] > 0:
                sums += null.draw_sums(weights[g], s, draws, rng) / part.size[g] * total[g]
        return null.drawn(sums * scale, observed)
    mean = variance = 0.0
    for g, s in enumerate(sizes):
        links, factor = int(part.size[g]), float(total[g]) / int(part.size[g]) * scale
        if exact[g]:  # Σ|X − K/L| / (K/L)
            per = links / len(s)
            mean += factor * per * links * null.mean_deviation(len(s), 1 / links)
            variance += (factor * per) ** 2 * null.sum_variance(len(s), links)
        elif total[g] > 0:
            m, v = null.limit_moments(weights[g], s)
            mean, variance = mean + factor * m, variance + factor**2 * v
    return null.normal(mean, variance, observed)


def _draw_work(exact: bool, keys: int, links: int, sizes: F64) -> int:
    return links * 4 if exact and keys > links else min(keys, 4 * links * len(np.unique(sizes)))


def _scaled(found: null.Null, factor: float) -> null.Null:
    return null.Null(
        found.mean * factor,
        found.sd * factor,
        found.below,
        found.equal,
        found.above,
        found.method,
        found.draws,
    )


def _null_by_group(part: _Layer, units: tuple[I64, I64] | None) -> F64:
    """Exact mean FIM by flows of each group, were its keys alike; nan where flows are split."""
    if units is None:
        return np.full(len(part.group), np.nan)
    keys = np.bincount(units[1], minlength=len(part.group))
    out = np.empty(len(part.group))
    known: dict[tuple[int, bytes], float] = {}
    first = np.cumsum(part.size) - part.size
    for g, k in enumerate(keys.tolist()):
        weight = part.weight[first[g] : first[g] + part.size[g]]
        mark = (k, weight.tobytes())
        if mark not in known:
            known[mark] = 100 * float(np.mean([null.mean_deviation(k, p) / (k * p) for p in weight.tolist()]))
        out[g] = known[mark]
    return out


def _idle(part: _Layer, units: tuple[I64, I64] | None, load: F64) -> list[tuple[int, float, float]]:
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
