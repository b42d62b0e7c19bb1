"""The load of a group's links beside what chance gives each: the 1 to 99 % band of the null.

Keys of one size are counted, and their band is the binomial's, exactly. Keys of unequal size are weighed in bytes;
their band comes from redraws, or where that is too much work from the normal limit, and says so.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from streams.paths import null
from streams.paths.sums import summed
from streams.paths.whatif import Case, Figures

I64 = NDArray[np.int64]
F64 = NDArray[np.float64]

LOW, HIGH = 0.01, 0.99
DRAWS: Final = 2000
DRAW_KEYS: Final = 4096  # keys of a group up to which they are redrawn
MEMBERS: Final = 64  # links shown of a group


@dataclass(frozen=True)
class Member:
    """A link of a group: its load, and the band; None where nothing was left to chance."""

    link: int
    name: str
    load: float
    expected: float
    band: tuple[float, float] | None


@dataclass(frozen=True)
class Group:
    """An ECMP group with its members, the heaviest against expectation first where not all are shown."""

    number: int
    switch: str
    layer: str
    unit: str  # keys, flows or bytes
    method: str  # exact, drawn, normal, none
    fim: float
    fim_null: float | None
    size: int
    outside: int  # of all members
    members: tuple[Member, ...]


def groups(case: Case, figures: Figures, most: int) -> tuple[Group, ...]:
    """The groups that are furthest above chance, worst first."""
    rows: list[tuple[float, int, float, float | None]] = []
    for layer in figures.layers:
        excess = layer.fim - np.nan_to_num(layer.fim_null)
        for place in np.argsort(-excess, kind="stable")[:most].tolist():
            chance = float(layer.fim_null[place])
            rows.append(
                (float(excess[place]), int(layer.groups[place]), float(layer.fim[place]),
                 None if np.isnan(chance) else chance)
            )  # fmt: skip
    rows.sort(key=lambda row: -row[0])
    chosen = rows[:most]
    where = np.isin(case.fabric.groups.of_slot[case.entries.slot], [row[1] for row in chosen])
    entry = np.flatnonzero(where)
    return tuple(_group(case, figures, entry, number, fim, chance) for _, number, fim, chance in chosen)


def _group(case: Case, figures: Figures, entry: I64, number: int, fim: float, chance: float | None) -> Group:
    of, entries = case.fabric.groups, case.entries
    own = entry[of.of_slot[entries.slot[entry]] == number]
    slot = entries.slot[own].astype(np.int64) - int(of.first[number])
    size, weight = int(of.size[number]), of.weight[of.first[number] : of.first[number] + of.size[number]]
    flow, share = entries.flow[own], entries.share[own]
    unit, method = "flows", "none"
    band: list[tuple[float, float]] | None = None
    if entries.whole:
        keys, first, which = np.unique(figures.unit[flow], return_index=True, return_inverse=True)
        amount = summed(which, case.flows.bytes[flow], len(keys))
        if amount.max() - amount.min() <= null.EQUAL * amount.max():
            unit, method = "keys", "exact"
            load = np.bincount(slot[first], minlength=size).astype(np.float64)
            pairs = {w: null.band(len(keys), w, LOW, HIGH) for w in set(weight.tolist())}
            band = [pairs[w] for w in weight.tolist()]
        else:
            unit, load = "bytes", summed(slot, case.flows.bytes[flow], size)
            method, band = unequal(amount, weight, number)
    else:
        load = summed(slot, share, size)
    expected = load.sum() * weight
    beyond = 0 if band is None else sum(not b[0] <= v <= b[1] for v, b in zip(load, band, strict=True))
    away = np.abs(load - expected) / np.where(expected > 0, expected, 1.0)
    shown = np.sort(np.argsort(-away, kind="stable")[:MEMBERS])
    return Group(
        number, case.fabric.nodes[int(of.node[number])], of.layers[int(of.layer[number])], unit, method, fim, chance,
        size, beyond,
        tuple(
            Member(
                int(of.link[of.first[number] + k]), case.fabric.link_name(int(of.link[of.first[number] + k])),
                float(load[k]), float(expected[k]), None if band is None else (float(band[k][0]), float(band[k][1])),
            )
            for k in shown.tolist()
        ),
    )  # fmt: skip


def unequal(amount: F64, weight: F64, seed: int) -> tuple[str, list[tuple[float, float]]]:
    """(method, band of each link) for keys of these bytes."""
    total, square = float(amount.sum()), float((amount**2).sum())
    bands: dict[float, tuple[float, float]] = {}
    for w in sorted(set(weight.tolist())):
        if len(amount) <= DRAW_KEYS:
            rng = np.random.default_rng(seed)
            sums = np.concatenate(
                [(rng.random((100, len(amount))) < w) @ amount for _ in range(DRAWS // 100)]
            )
            low, high = np.quantile(sums, [LOW, HIGH]).tolist()
        else:
            spread = 2.3263478740408408 * np.sqrt(square * w * (1 - w))
            low, high = max(0.0, total * w - spread), min(total, total * w + spread)
        bands[w] = (float(low), float(high))
    method = "drawn" if len(amount) <= DRAW_KEYS else "normal"
    return method, [bands[w] for w in weight.tolist()]
