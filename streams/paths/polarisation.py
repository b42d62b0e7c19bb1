"""Polarisation: does what one switch chose decide what the next one chooses?

The test is conditional on both switches and on the second one's group: of the keys that switch A sent to
switch B, B should spread by weight over the members of its group. Pooled over switches the effect hides (each
ToR with its own CRC seed gives an even pooled spread, and one single choice given the ToR), so nothing is
pooled. A G-test by cell where at least 5 keys are expected on each member; below that, `unknown`. Holm over
all tests. Where A has several links to B, the table of (link in, member out) is tested in the same way, row
by row, since each row alone should be even.

Large groups rarely see 5 keys a member from one sender. For each pair of layers the Pearson statistics of all
tests are therefore also summed (still conditional, nothing is pooled): mean and variance of each are known
exactly for any number of keys, so their standardised sum says whether the layer as a whole is polarised.
"""

import math
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from streams.paths.fabric import Groups
from streams.paths.imbalance import holm
from streams.paths.route import Entries
from streams.paths.sums import summed

I64 = NDArray[np.int64]
F64 = NDArray[np.float64]

CELL_MIN: Final = 5.0  # expected keys on a member, below which nothing is said
LEVEL: Final = 0.01


@dataclass(frozen=True, eq=False)
class Polarisation:
    """One entry a test: keys that came from `sender` to `switch` and chose in `group`."""

    sender: I64
    switch: I64
    group: I64
    layer_from: I64  # places in Groups.layers
    layer_to: I64
    keys: I64
    members: I64
    used: I64  # members that any key chose
    expected_min: F64  # expected keys on the least member
    g: F64
    excess: F64  # Pearson's statistic less its exact mean under chance
    variance: F64  # of that, exact
    p: F64  # nan where unknown
    p_holm: F64
    entropy_bits: F64  # of the choice, plug-in: biased low, so compare with entropy_null_bits
    entropy_null_bits: F64  # its expectation under chance, to first order

    def verdict(self, k: int) -> str:
        """`polarised`, `none` or `unknown`."""
        if math.isnan(self.p[k]):
            return "unknown"
        return "polarised" if self.p_holm[k] < LEVEL else "none"


def polarisation(groups: Groups, entries: Entries, unit: I64) -> Polarisation:
    """Tests of every (sender, switch, group) where both had a choice. `unit`: each flow's distinct key.

    Flows that are split over links are left out: their choice is no hash's.
    """
    pair = _pairs(groups, entries)
    before, after = entries.slot[pair].astype(np.int64), entries.slot[pair + 1].astype(np.int64)
    # One key counts once, however many flows share it.
    number = unit[entries.flow[pair]]
    if int(unit.max(initial=0)) + 1 < len(unit):
        order = np.lexsort((number, before, after))
        keys = np.stack((number, before, after))[:, order]
        keep = order[np.append(True, (np.diff(keys, axis=1) != 0).any(axis=0))[: len(order)]]
        before, after = before[keep], after[keep]
    sender = groups.node[groups.of_slot[before]].astype(np.int64)
    group = groups.of_slot[after].astype(np.int64)
    link = groups.link[before].astype(np.int64)
    # A link has one sender, so (link, group) tells the tests apart.
    cell, first, which = np.unique(link * len(groups) + group, return_index=True, return_inverse=True)
    tests = np.stack((sender[first], cell // len(groups), cell % len(groups)))
    return _tested(groups, tests, which, after, groups.of_slot[before].astype(np.int64))


def _pairs(groups: Groups, entries: Entries) -> I64:
    """Entries whose next entry is the next hop of the same flow, both a real choice of one link."""
    if len(entries) < 2:
        return np.empty(0, np.int64)
    choice = (groups.size > 1)[groups.of_slot[entries.slot]] & (entries.share == 1)
    return np.flatnonzero((entries.flow[1:] == entries.flow[:-1]) & choice[1:] & choice[:-1])


def _tested(groups: Groups, tests: I64, which: I64, after: I64, group_before: I64) -> Polarisation:
    count = tests.shape[1]
    group = tests[2]
    size = groups.size[group]
    start = np.cumsum(size) - size
    place = start[which] + after - groups.first[group][which]
    seen = np.bincount(place, minlength=int(size.sum())).astype(np.float64)
    owner = np.repeat(np.arange(count), size)
    slot = np.repeat(groups.first[group] - start, size) + np.arange(len(owner))
    keys = np.bincount(which, minlength=count)
    expected = keys[owner] * groups.weight[slot]
    with np.errstate(divide="ignore", invalid="ignore"):
        part = np.where(seen > 0, seen * np.log(seen / expected), 0.0)
        share = seen / keys[owner]
        pearson = (seen - expected) ** 2 / expected
        entropy = -np.where(seen > 0, share * np.log2(share), 0.0)
    g = np.maximum(0.0, 2 * summed(owner, part, count))
    inverse = summed(owner, 1 / groups.weight[slot], count)
    variance = 2 * (size - 1) + (inverse - size.astype(np.float64) ** 2 - 2 * size + 2) / np.maximum(keys, 1)
    least = np.minimum.reduceat(expected, start) if count else np.empty(0)
    known = least >= CELL_MIN
    p = np.full(count, np.nan)
    p[known] = chi_square_above(g[known], size[known] - 1)
    adjusted = np.full(count, np.nan)
    adjusted[known] = holm(p[known])
    weight = groups.weight[slot]
    full = summed(owner, -np.where(weight > 0, weight * np.log2(np.maximum(weight, 1e-300)), 0.0), count)
    layer_from = np.empty(count, np.int64)
    layer_from[which] = groups.layer[group_before]
    return Polarisation(
        tests[0],
        groups.node[group].astype(np.int64),
        group,
        layer_from,
        groups.layer[group].astype(np.int64),
        keys,
        size,
        summed(owner, seen > 0, count).astype(np.int64),
        least,
        g,
        summed(owner, pearson, count) - (size - 1),
        variance,
        p,
        adjusted,
        summed(owner, entropy, count),
        np.maximum(0.0, full - (size - 1) / (2 * math.log(2) * np.maximum(keys, 1))),
    )


def chi_square_above(value: F64, freedom: I64) -> F64:
    """P(χ² > value) for whole degrees of freedom, by the finite sums for even and odd ones."""
    out = np.empty(len(value))
    for k in np.unique(freedom).tolist():
        use = freedom == k
        half = value[use] / 2
        if k % 2 == 0:
            term, total = np.ones(len(half)), np.ones(len(half))
            for j in range(1, k // 2):
                term = term * half / j
                total = total + term
            out[use] = np.exp(-half) * total
        else:
            tail = np.array([math.erfc(math.sqrt(h)) for h in half.tolist()])
            term, total = np.sqrt(half / math.pi) * 2, np.zeros(len(half))
            for j in range((k - 1) // 2):
                total = total + term
                term = term * half / (j + 1.5)
            out[use] = tail + np.exp(-half) * total
    return np.clip(out, 0.0, 1.0)


def summary(groups: Groups, found: Polarisation, names: tuple[str, ...], worst: int = 20) -> dict[str, Any]:
    """As the field `polarisation` of a report: by pair of layers, and the worst tests by name."""
    verdicts = np.array([found.verdict(k) for k in range(len(found.keys))])
    layers = []
    for one, two in sorted(set(zip(found.layer_from.tolist(), found.layer_to.tolist(), strict=True))):
        use = (found.layer_from == one) & (found.layer_to == two)
        spread = math.sqrt(float(found.variance[use].sum()))
        z = float(found.excess[use].sum()) / spread if spread > 0 else None
        layers.append(
            {
                "layer_from": groups.layers[one], "layer_to": groups.layers[two], "tests": int(use.sum()),
                "polarised": int((verdicts[use] == "polarised").sum()),
                "unknown": int((verdicts[use] == "unknown").sum()),
                "used_choices": int(found.used[use].sum()), "possible_choices": int(found.members[use].sum()),
                "z": z, "p": None if z is None else math.erfc(z / math.sqrt(2)) / 2,
            }
        )  # fmt: skip
    order = np.argsort(np.where(np.isnan(found.p_holm), 2.0, found.p_holm) - found.g * 1e-12, kind="stable")
    rows = [
        {
            "sender": names[int(found.sender[k])],
            "switch": names[int(found.switch[k])],
            "layer": groups.layers[int(found.layer_to[k])],
            "keys": int(found.keys[k]),
            "members": int(found.members[k]),
            "used": int(found.used[k]),
            "g": float(found.g[k]),
            "p": _number(found.p[k]),
            "p_holm": _number(found.p_holm[k]),
            "entropy_bits": float(found.entropy_bits[k]),
            "entropy_null_bits": float(found.entropy_null_bits[k]),
            "verdict": found.verdict(k),
        }
        for k in order[:worst].tolist()
    ]
    polarised, unknown = int((verdicts == "polarised").sum()), int((verdicts == "unknown").sum())
    tested = len(verdicts) - unknown
    verdict = "polarised" if polarised else ("none" if tested else "unknown")
    return {
        "verdict": verdict, "tested": tested, "polarised": polarised, "unknown": unknown,
        "level": LEVEL, "layers": layers, "worst": rows,
    }  # fmt: skip


def _number(value: float) -> float | None:
    return None if math.isnan(value) else float(value)
