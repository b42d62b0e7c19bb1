"""The null of a layer's `fim_routing`, and of each of its groups: exact where keys are alike, else drawn, else a limit.

Redraws of the layer are those of its groups, summed, so the two agree.
"""

from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streams.paths import null
from streams.paths.layer import Layer
from streams.paths.sums import summed

I64 = NDArray[np.int64]
F64 = NDArray[np.float64]


class Effort(NamedTuple):
    """How much work a null may take: redraws, keys to redraw over all of them, multiplications of exact ones."""

    draws: int = null.DRAWS
    drawn: int = null.DRAW_WORK
    exact: int = null.EXACT_WORK


FULL: Final = Effort()


@dataclass(frozen=True, eq=False)
class _Keys:
    """The distinct hash keys of a layer's groups, one group after the other."""

    sizes: list[F64]  # by group: what each of its keys carries
    weights: list[F64]  # by group: of its links
    most: F64  # by group: its greatest key
    exact: NDArray[np.bool_]  # by group: all its keys are alike, and so are its links


def nulls(
    part: Layer,
    amount: F64,
    load: F64,
    total: F64,
    units: tuple[I64, I64],
    observed: float,
    fim: F64 | None,
    rng: np.random.Generator,
    effort: Effort = FULL,
) -> tuple[null.Null, list[null.Null]]:
    """(null of the layer, nulls of its groups), in percent; the latter only if `fim`, theirs, is given.

    `amount` is by entry, `load` by slot, `total` by group; `units` as of `units_of`.
    """
    keys = _keys(part, amount, units)
    sums: list[F64] | None = None
    scale = 100 / total.sum()  # from Σ|load − expected|, all links alike, to percent
    out = _even(part, keys, load, effort.exact)
    if out is not None:
        out = _scaled(out, float(keys.most.max()) * scale)
    elif _draw_work(part, keys) * effort.draws <= effort.drawn:
        sums, whole = [], np.zeros(effort.draws)
        for g, (weight, sizes) in enumerate(zip(keys.weights, keys.sizes, strict=True)):
            one = null.draw_sums(weight, sizes, effort.draws, rng) if total[g] > 0 else np.empty(0)
            if total[g] > 0:
                whole += one / part.size[g] * total[g]
            if fim is not None:
                sums.append(one)
        out = null.drawn(whole * scale, observed)
    else:
        out = _by_moments(part, keys, total, scale, observed)
    if fim is None:
        return out, []
    return out, [_of_group(part, keys, g, load, total, float(fim[g]), sums, effort) for g in range(len(fim))]


def _keys(part: Layer, amount: F64, units: tuple[I64, I64]) -> _Keys:
    which, owner = units
    each = summed(which, amount, len(owner))
    order = np.argsort(owner, kind="stable")
    start = np.searchsorted(owner[order], np.arange(len(part.group) + 1))
    each = each[order]
    least, most = np.minimum.reduceat(each, start[:-1]), np.maximum.reduceat(each, start[:-1])
    alike = most - least <= null.EQUAL * most
    first = part.first
    uniform = np.maximum.reduceat(part.weight, first) - np.minimum.reduceat(part.weight, first) < 1e-12
    groups = range(len(part.group))
    return _Keys(
        [each[start[g] : start[g + 1]] for g in groups],
        [part.weight[first[g] : first[g] + part.size[g]] for g in groups],
        most,
        alike & uniform,
    )


def _even(part: Layer, keys: _Keys, load: F64, work_max: int) -> null.Null | None:
    """The exact null in keys, Σ over groups of Σ|f − K/L|; None if keys or groups differ, or it is too much work."""
    most = float(keys.most.max())
    alike = bool(keys.exact.all()) and most - keys.most.min() <= null.EQUAL * most
    if not alike or not (part.size == part.size[0]).all():
        return None
    links = int(part.size[0])
    count = np.array([len(sizes) for sizes in keys.sizes])
    at = _outcome(load, most, count[part.of_slot], links)
    kinds, times = np.unique(count, return_counts=True)
    found = [(int(k), links, int(t)) for k, t in zip(kinds, times, strict=True)]
    return null.even_sums(found, at, work_max)


def _outcome(load: F64, most: float, keys: I64, links: int) -> int:
    """Σ over the links with at most ⌊K/L⌋ keys of K − keys·L: the whole number that stands for the observed sum."""
    whole = np.rint(load / most).astype(np.int64)
    return int(np.where(whole <= keys // links, keys - whole * links, 0).sum())


def _draw_work(part: Layer, keys: _Keys) -> int:
    work = 0
    for g, sizes in enumerate(keys.sizes):
        links = int(part.size[g])
        many = keys.exact[g] and len(sizes) > links
        work += links * 4 if many else min(len(sizes), 4 * links * len(np.unique(sizes)))
    return work


def _by_moments(part: Layer, keys: _Keys, total: F64, scale: float, observed: float) -> null.Null:
    mean = variance = 0.0
    for g, sizes in enumerate(keys.sizes):
        links, factor = int(part.size[g]), float(total[g]) / int(part.size[g]) * scale
        if keys.exact[g]:  # Σ|X − K/L| / (K/L)
            per = links / len(sizes)
            mean += factor * per * links * null.mean_deviation(len(sizes), 1 / links)
            variance += (factor * per) ** 2 * null.sum_variance(len(sizes), links)
        elif total[g] > 0:
            m, v = null.limit_moments(keys.weights[g], sizes)
            mean, variance = mean + factor * m, variance + factor**2 * v
    return null.normal(mean, variance, observed)


def _of_group(
    part: Layer,
    keys: _Keys,
    g: int,
    load: F64,
    total: F64,
    fim: float,
    sums: list[F64] | None,
    effort: Effort,
) -> null.Null:
    count, links = len(keys.sizes[g]), int(part.size[g])
    if total[g] <= 0:
        return null.Null(0.0, 0.0, 0.0, 1.0, 0.0, "exact")
    if keys.exact[g]:
        here = load[part.first[g] : part.first[g] + links]
        at = _outcome(here, float(keys.most[g]), np.full(links, count), links)
        found = null.even_sums([(count, links, 1)], at, effort.exact)
        if found is not None:
            return _scaled(found, 100 / count)
        return null.normal(null.fim_mean(count, links), null.fim_sd(count, links) ** 2, fim)
    if sums is not None:
        return null.drawn(sums[g] * 100 / links, fim)
    mean, variance = null.limit_moments(keys.weights[g], keys.sizes[g])
    return null.normal(100 * mean / links, variance * (100 / links) ** 2, fim)


def _scaled(found: null.Null, factor: float) -> null.Null:
    return null.Null(
        found.mean * factor, found.sd * factor, found.below, found.equal, found.above, found.method, found.draws
    )  # fmt: skip
