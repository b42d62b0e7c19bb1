"""Laws of errors, symmetric about 0, by the tail of their size; and exact limits of a counted share."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

F64 = NDArray[np.float64]
Tail = Callable[[F64], F64]  # P(size > x), for x ≥ 0
GRID: Final = np.concatenate((np.linspace(0.0, 0.01, 50, endpoint=False), np.geomspace(0.01, 1e7, 60_000)))
_LEAST: Final = 1e-290  # of a tail that is tabulated
_erfc = np.vectorize(math.erfc, otypes=[np.float64])


def gauss(x: F64) -> F64:
    """Standard deviation 1."""
    out: F64 = _erfc(x / math.sqrt(2.0))
    return out


def laplace(x: F64) -> F64:
    """Scale 1/√2, so standard deviation 1."""
    out: F64 = np.exp(-math.sqrt(2.0) * x)
    return out


def student3(x: F64) -> F64:
    """Student's t with 3 degrees of freedom (standard deviation √3)."""
    s = x / math.sqrt(3.0)
    return _student(s, s / (1 + s * s), 2.0 / 3.0)


def student5(x: F64) -> F64:
    """Student's t with 5 degrees of freedom (standard deviation √(5/3))."""
    s = x / math.sqrt(5.0)
    return _student(s, s / (1 + s * s) * (1 + 2 / (3 * (1 + s * s))), 8.0 / 15.0)


def _student(s: F64, part: F64, lead: float) -> F64:
    """2/π·(arctan(1/s) − part); far out, where that cancels, the series' first terms."""
    near = 2 / math.pi * (np.arctan2(1.0, s) - part)
    power, second = (3, 6 / 5) if lead == 2.0 / 3.0 else (5, 15 / 7)
    with np.errstate(divide="ignore", over="ignore"):
        far = 2 / math.pi * lead * s ** -float(power) * (1 - second / (s * s))
    out: F64 = np.where(s > 300.0, far, near)
    return out


def contaminated(share: float, factor: float) -> Tail:
    """Gauss, of which a share is `factor` times as wide."""
    return lambda x: (1 - share) * gauss(x) + share * gauss(x / factor)


FAMILIES: Final[dict[str, Tail]] = {
    "Gauss": gauss,
    "Laplace": laplace,
    "Student-t 3": student3,
    "Student-t 5": student5,
    "Gauss, 1 % at 10 sigma": contaminated(0.01, 10.0),
    "Gauss, 0.1 % at 100 sigma": contaminated(0.001, 100.0),
}


@dataclass(frozen=True)
class Law:
    """A law with its inverse, tabulated: relative error below 1e-6 (a test compares them)."""

    tail: Tail
    scale: float
    log_tail: F64  # −log P(size > GRID), ascending

    @classmethod
    def of(cls, tail: Tail, scale: float = 1.0) -> "Law":
        """The law of `tail`, `scale` times as wide."""
        values = np.maximum.accumulate(-np.log(np.maximum(tail(GRID), _LEAST)))
        return cls(tail, scale, values)

    def exceeds(self, x: float) -> float:
        """P(size > x)."""
        return float(self.tail(np.array([x / self.scale]))[0])

    def size_at(self, p: F64) -> F64:
        """The size that is exceeded with probability p, any shape."""
        out: F64 = np.interp(-np.log(p), self.log_tail, GRID)
        return out * self.scale

    def sizes(self, count: int, rng: np.random.Generator, low: float = 0.0, high: float = 1.0) -> F64:
        """Random sizes, given that the tail at them lies in (low, high)."""
        return self.size_at(high - (high - low) * rng.random(count))

    def draw(self, shape: tuple[int, ...], rng: np.random.Generator) -> F64:
        """Random errors."""
        sizes = self.sizes(math.prod(shape), rng).reshape(shape)
        return np.where(rng.random(shape) < 0.5, -sizes, sizes)


def coverage_limit(misses: int, trials: int, confidence: float = 0.95) -> float:
    """Exact (Clopper-Pearson) one-sided lower limit of a coverage of which `misses` of `trials` were missed."""
    assert 0 <= misses <= trials
    assert trials > 0
    if misses == trials:
        return 0.0
    k = np.arange(1, misses + 1)
    ways = np.concatenate(([0.0], np.cumsum(np.log(trials - k + 1.0) - np.log(k))))
    places = np.arange(misses + 1)
    low, high = 0.0, 1.0
    for _ in range(100):
        p = 0.5 * (low + high)
        terms = ways + places * math.log(p) + (trials - places) * math.log1p(-p)
        peak = terms.max()
        at_most = peak + math.log(np.exp(terms - peak).sum())
        low, high = (p, high) if at_most > math.log(1 - confidence) else (low, p)
    return 1.0 - high
