"""What imbalance chance alone gives: the null that each distinct hash key falls on a link by weight.

For one group of L links and K keys of equal size, S = Σ|f_l − F/L| (so FIM = 100·S/F) has

- the exact mean Σ over links of 2·v·C(K,v)·p^v·q^(K−v+1), v = ⌊Kp⌋ + 1 (de Moivre's mean deviation);
- the exact variance, from the trinomial law of two links;
- an exact distribution: if k links hold at most ⌊K/L⌋ keys each, and s together, S = 2·(kK/L − s). The
number of
  ways for (k, s) is C(L,k) times a coefficient of the product of k series cut above ⌊K/L⌋ and L − k series
  cut below; they are computed as Poisson weights of mean K/L, whose sum is conditioned to be K.

Keys of unequal size (bytes, or several flows on a key) are redrawn: at least 10⁴ draws, keys of one size
together. Where that is too much work, moments of the normal limit serve, and the method says so.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from streams.paths.sums import summed

F64 = NDArray[np.float64]
I64 = NDArray[np.int64]

DRAWS: Final = 10_000
EXACT_WORK: Final = 100_000_000  # multiplications of an exact distribution; about 0.1 s
DRAW_WORK: Final = 200_000_000  # keys to redraw over all draws; a few seconds
GRID_MAX: Final = 1 << 18
EQUAL: Final = 1e-9  # sums of bytes nearer than this, relative, are the same outcome


@dataclass(frozen=True)
class Null:
    """An observed sum of absolute deviations against chance.

    `below`, `equal`, `above` are the chances of a smaller, the same and a greater sum; `method` is "exact",
    "drawn" or "normal".
    """

    mean: float
    sd: float
    below: float
    equal: float
    above: float
    method: str
    draws: int = 0

    @property
    def p(self) -> float:
        """Two-sided mid-p: ties count half."""
        half = self.equal / 2
        return min(1.0, 2 * min(self.below + half, self.above + half))

    def randomised(self, u: float) -> float:
        """One-sided p, exactly uniform under the null when `u` is uniform on [0, 1)."""
        return self.above + u * self.equal

    def z(self, observed: float) -> float | None:
        """Standard deviations above the mean; None where chance allows one outcome only."""
        return (observed - self.mean) / self.sd if self.sd > 0 else None

    def verdict(self, observed: float, level: float = 0.05) -> str:
        """In words: worse than, better than, or like random."""
        if self.p >= level:
            return "like random"
        return "worse than random" if observed > self.mean else "better than random"


def mean_deviation(keys: int, p: float) -> float:
    """E|X − Kp| of a binomial X of `keys` trials, exactly (de Moivre)."""
    if keys <= 0 or p <= 0 or p >= 1:
        return 0.0
    v = math.floor(keys * p) + 1
    if v > keys:
        v = keys
    log = (
        math.lgamma(keys + 1) - math.lgamma(v + 1) - math.lgamma(keys - v + 1)
        + v * math.log(p) + (keys - v + 1) * math.log1p(-p)
    )  # fmt: skip
    return 2 * v * math.exp(log)


def fim_mean(keys: int, links: int) -> float:
    """Exact mean FIM in percent of `keys` equal flows hashed at random onto `links` equal links."""
    return 100 * links * mean_deviation(keys, 1 / links) / keys


def fim_sd(keys: int, links: int) -> float:
    """Exact standard deviation of the same."""
    return 100 * math.sqrt(sum_variance(keys, links)) / keys


def fim_poisson(mean: float) -> float:
    """The limit of `fim_mean` for many links with `mean` flows each."""
    m = math.floor(mean)
    return 200 * math.exp(m * math.log(mean) - mean - math.lgamma(m + 1))


def static_optimum(flows: int, links: int) -> float:
    """The least FIM in percent that any placement of equal flows reaches."""
    r = flows % links
    return 200 * r * (links - r) / (links * flows)


@lru_cache(4096)
def sum_variance(keys: int, links: int) -> float:
    """Var of S = Σ|f_l − K/L|: L·Var|X| + L(L−1)·Cov(|X|, |Y|) of two links, exactly."""
    if links < 2 or keys < 1:
        return 0.0
    p, centre = 1 / links, keys / links
    spread = 12 * math.sqrt(keys * p * (1 - p)) + 12  # beyond, less than 1e-30 is left
    a = np.arange(max(0, math.floor(centre - spread)), min(keys, math.ceil(centre + spread)) + 1)
    chance = _binomial(a, np.array([keys]), p)
    away = np.abs(a - centre)
    # Y given X = x is binomial of the other keys on the other links.
    given = (
        away
        if links == 2
        else (_binomial(a[:, None], keys - a[None, :], 1 / (links - 1)) * away[:, None]).sum(0)
    )
    both = float((chance * away * given).sum())
    mean = mean_deviation(keys, p)
    square = keys * p * (1 - p)
    return max(0.0, links * (square - mean**2) + links * (links - 1) * (both - mean**2))


_log_factorial = np.zeros(1)


def log_factorial(n: I64) -> F64:
    """ln n! of each n, from a table that grows as needed."""
    global _log_factorial
    top = int(n.max(initial=0))
    if top >= len(_log_factorial):
        _log_factorial = np.concatenate(([0.0], np.cumsum(np.log(np.arange(1, 2 * top + 2)))))
    return _log_factorial[n]


def _binomial(x: I64, n: I64, p: float) -> F64:
    """P(X = x), 0 outside 0 to n; broadcasts. Needs 0 < p < 1."""
    inside = (x >= 0) & (x <= n)
    at = np.where(inside, x, 0)
    rest = np.where(inside, n - at, 0)
    log = log_factorial(np.asarray(n)) - log_factorial(at) - log_factorial(rest)
    chance: F64 = np.exp(np.where(inside, log + at * math.log(p) + rest * math.log1p(-p), -np.inf))
    return chance


def exact_work(keys: int, links: int) -> int:
    """Multiplications that the exact distribution takes."""
    return links * (keys + 1) ** 2


@lru_cache(1024)
def exact_sum(keys: int, links: int) -> F64:
    """Distribution of S·L/2 = kK − sL, a whole number: entry n is the chance of n."""
    floor = keys // links
    if links == 1 or keys == 0:
        return np.ones(1)
    f = np.arange(keys + 1)
    weight = np.exp(f * math.log(keys / links) - keys / links - log_factorial(f))
    low, high = weight[: floor + 1], np.where(f > floor, weight, 0.0)
    under = [np.ones(1)]
    for _ in range(links):
        under.append(np.convolve(under[-1], low)[: keys + 1])
    over = [np.ones(1)]
    for _ in range(links):
        over.append(np.convolve(over[-1], high)[: keys + 1])
    whole = math.exp(
        keys * math.log(keys) - keys - math.lgamma(keys + 1)
    )  # chance that K Poisson(K/L) sum to K
    out = np.zeros(keys * links + 1)
    for k in range(links + 1):
        held = np.pad(under[k], (0, keys + 1 - len(under[k])))
        rest = np.pad(over[links - k], (0, keys + 1 - len(over[links - k])))
        chance = math.comb(links, k) / whole * held * rest[::-1]
        s = np.flatnonzero(chance)
        np.add.at(out, k * keys - s * links, chance[s])
    return np.trim_zeros(out / out.sum(), "b")


def even_sums(
    groups: Sequence[tuple[int, int, int]], observed: int, work_max: int = EXACT_WORK
) -> Null | None:
    """Exact null of Σ over independent groups of (keys, links, times) equal keys, S·L/2 summed: a whole
    number.

    All groups must have the same number of links. None if that is too much work.
    """
    work = sum(exact_work(keys, links) for keys, links, _ in groups)
    if work > work_max or sum(keys * links * times for keys, links, times in groups) > GRID_MAX:
        return None
    total = np.ones(1)
    for keys, links, times in groups:
        one = exact_sum(keys, links)
        for _ in range(times):
            work += len(total) * len(one)
            if work > work_max:
                return None
            total = np.convolve(total, one)
    links = groups[0][1]
    at = np.arange(len(total))
    mean = float(total @ at)
    sd = math.sqrt(max(0.0, float(total @ (at - mean) ** 2)))
    equal = float(total[observed]) if observed < len(total) else 0.0
    below, above = float(total[:observed].sum()), float(total[observed + 1 :].sum())
    return Null(2 * mean / links, 2 * sd / links, min(below, 1.0), equal, min(above, 1.0), "exact")


def normal(mean: float, variance: float, observed: float) -> Null:
    """A null from two moments."""
    sd = math.sqrt(variance)
    if sd <= EQUAL * max(mean, 1.0):
        return Null(mean, 0.0, 0.0, 1.0, 0.0, "normal")
    above = math.erfc((observed - mean) / sd / math.sqrt(2)) / 2
    return Null(mean, sd, 1 - above, 0.0, above, "normal")


def limit_moments(weight: F64, sizes: F64) -> tuple[float, float]:
    """(mean, variance) of Σ_l |B_l − E_l|/E_l in the normal limit, for keys of these sizes."""
    p = weight
    square = float(sizes @ sizes)
    sigma = np.sqrt(square * p * (1 - p))
    scale = 1 / (sizes.sum() * p)
    mean = math.sqrt(2 / math.pi) * float((sigma * scale).sum())
    spread = np.sqrt(p * (1 - p))
    rho = np.clip(-np.outer(p, p) / np.outer(spread, spread), -1, 1)
    np.fill_diagonal(rho, 1.0)
    absolute = 2 / math.pi * (np.sqrt(1 - rho**2) + rho * np.arcsin(rho))
    both = np.outer(sigma * scale, sigma * scale) * absolute
    return mean, max(0.0, float(both.sum()) - mean**2)


def draw_sums(weight: F64, sizes: F64, draws: int, rng: np.random.Generator) -> F64:
    """Σ_l |B_l − E_l|/E_l of `draws` redraws of keys of these sizes; shape (draws,)."""
    distinct, count = np.unique(sizes, return_counts=True)
    links = len(weight)
    load = np.zeros((draws, links))
    many = count > links  # as one multinomial
    for size, keys in zip(distinct[many].tolist(), count[many].tolist(), strict=True):
        load += size * rng.multinomial(keys, weight, draws)
    few = np.repeat(distinct[~many], count[~many])
    if len(few):
        even = np.allclose(weight, weight[0])
        edges = np.cumsum(weight)[:-1]
        step = max(1, 4_000_000 // len(few))
        for first in range(0, draws, step):
            here = min(step, draws - first)
            shape = (here, len(few))
            link = (
                rng.integers(0, links, shape) if even else np.searchsorted(edges, rng.random(shape), "right")
            )
            link += np.arange(here)[:, None] * links
            sums = summed(link.ravel(), np.tile(few, here), here * links)
            load[first : first + here] += sums.reshape(here, links)
    expected = sizes.sum() * weight
    out: F64 = (np.abs(load - expected) / expected).sum(axis=1)
    return out


def drawn(sums: F64, observed: float) -> Null:
    """A null from redraws. The observed one counts as one of them, so that p is never 0 and is valid."""
    near = EQUAL * max(1.0, abs(observed))
    total = len(sums) + 1
    below = int(np.count_nonzero(sums < observed - near))
    above = int(np.count_nonzero(sums > observed + near))
    sd = float(sums.std(ddof=1)) if len(sums) > 1 else 0.0
    return Null(
        float(sums.mean()),
        sd if sd > near else 0.0,
        below / total,
        (total - below - above) / total,
        above / total,
        "drawn",
        len(sums),
    )


def band(keys: int, p: float, low: float = 0.01, high: float = 0.99) -> tuple[int, int]:
    """The quantiles of the number of keys that chance puts on a link of weight `p`."""
    x = np.arange(keys + 1)
    if p >= 1:
        return keys, keys
    cumulated = np.cumsum(_binomial(x, np.array([keys]), p))
    return (
        min(keys, int(np.searchsorted(cumulated, low))), min(keys, int(np.searchsorted(cumulated, high)))
    )  # fmt: skip
