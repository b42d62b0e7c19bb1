"""Laws of error fitted to samples by maximum likelihood, and Akaike's criterion to compare them.

Gauss and Laplace have their estimates in closed form: mean and standard deviation, median and mean distance from it.
Student-t's location and scale come from the EM iteration for given ν, where each sample weighs
(ν + 1) / (ν + ((x − µ)/scale)²), and ν from a search over its logarithm.

AIC = 2k − 2 ln L counts samples as independent. Errors of a clock are not, so a difference in AIC says which law
fits better and overstates how surely; `Fitted.correlation` of neighbours is kept beside it for that reason.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

F64 = NDArray[np.float64]
NU_MIN, NU_MAX = 0.3, 200.0
_GOLDEN: Final = (math.sqrt(5) - 1) / 2


@dataclass(frozen=True)
class Law:
    """One fitted law. `nu` None but for Student-t. `scale` is σ, b, or t's own scale; the unit is the samples'."""

    name: str
    location: float
    scale: float
    nu: float | None
    aic: float

    def density(self, at: F64) -> F64:
        """Probability density at these points."""
        return np.exp(_log_density(self.name, at, self.location, self.scale, self.nu))

    @property
    def sigma(self) -> float | None:
        """Standard deviation; None where it does not exist (t with ν ≤ 2)."""
        if self.name == "gauss":
            return self.scale
        if self.name == "laplace":
            return self.scale * math.sqrt(2)
        assert self.nu is not None
        return self.scale * math.sqrt(self.nu / (self.nu - 2)) if self.nu > 2 else None


@dataclass(frozen=True)
class Fitted:
    """A series and the laws fitted to it, best first."""

    count: int
    mean: float
    median: float
    deviation: float
    p99_abs: float
    correlation: float
    laws: tuple[Law, ...]

    def law(self, name: str) -> Law:
        """The fitted law of this name."""
        return next(each for each in self.laws if each.name == name)


def fit(samples: F64) -> Fitted:
    """Fit all three laws to at least 8 finite samples that are not all equal. Raises ValueError."""
    x = np.asarray(samples, np.float64)
    if len(x) < 8 or not np.isfinite(x).all() or not float(np.ptp(x)) > 0:
        raise ValueError("a fit needs at least 8 finite samples that differ")
    mean, median, deviation = float(x.mean()), float(np.median(x)), float(x.std())
    distance = float(np.mean(np.abs(x - median)))
    location, scale, nu = _student(x, median)
    laws = [
        _law("gauss", x, mean, deviation, None),
        _law("laplace", x, median, distance, None),
        _law("student", x, location, scale, nu),
    ]
    centred = x - mean
    return Fitted(
        len(x), mean, median, deviation, float(np.quantile(np.abs(x), 0.99)),
        float(np.dot(centred[1:], centred[:-1]) / np.dot(centred, centred)),
        tuple(sorted(laws, key=lambda law: law.aic)),
    )  # fmt: skip


def _law(name: str, x: F64, location: float, scale: float, nu: float | None) -> Law:
    likelihood = float(np.sum(_log_density(name, x, location, scale, nu)))
    return Law(name, location, scale, nu, 2 * (2 if nu is None else 3) - 2 * likelihood)


def _log_density(name: str, x: F64, location: float, scale: float, nu: float | None) -> F64:
    z = (np.asarray(x, np.float64) - location) / scale
    if name == "gauss":
        return -0.5 * z * z - math.log(scale * math.sqrt(2 * math.pi))
    if name == "laplace":
        return -np.abs(z) - math.log(2 * scale)
    assert nu is not None
    constant = (
        math.lgamma((nu + 1) / 2) - math.lgamma(nu / 2) - 0.5 * math.log(nu * math.pi) - math.log(scale)
    )
    return np.asarray(constant - 0.5 * (nu + 1) * np.log1p(z * z / nu), np.float64)


def _student(x: F64, median: float) -> tuple[float, float, float]:
    """Location, scale and ν of greatest likelihood."""
    found: dict[float, tuple[float, float]] = {}
    # Half the samples within this of the median: a start that outliers cannot move.
    middle = float(np.median(np.abs(x - median))) or float(np.mean(np.abs(x - median)))
    # Where many samples are one value, ever narrower laws are ever likelier: half a step of the data is the least.
    least = float(np.min(np.diff(np.unique(x)))) / 2

    def loss(log_nu: float) -> float:
        nu = math.exp(log_nu)
        found[log_nu] = _student_given(x, nu, median, middle, least)
        return -float(np.sum(_log_density("student", x, *found[log_nu], nu)))

    best = _least(loss, math.log(NU_MIN), math.log(NU_MAX))
    return *found[best], math.exp(best)


def _student_given(x: F64, nu: float, location: float, scale: float, least: float) -> tuple[float, float]:
    """Location and scale of greatest likelihood for this ν (EM; each round raises the likelihood)."""
    for _ in range(300):
        weight = (nu + 1) / (nu + ((x - location) / scale) ** 2)
        total = float(weight.sum())
        moved = float(np.dot(weight, x)) / total
        # Divided by the sum of weights, not by n: the same fixed point, reached in far fewer rounds.
        wide = max(least, math.sqrt(float(np.dot(weight, (x - moved) ** 2)) / total))
        done = abs(moved - location) + abs(wide - scale) <= 1e-9 * wide
        location, scale = moved, wide
        if done:
            break
    return location, scale


def _least(of: Callable[[float], float], low: float, high: float) -> float:
    """Where a function with one valley is least: a coarse look, then golden sections to 1e-3."""
    grid = np.linspace(low, high, 12)
    values = [of(float(at)) for at in grid]
    place = int(np.argmin(values))
    low, high = float(grid[max(0, place - 1)]), float(grid[min(len(grid) - 1, place + 1)])
    left, right = high - _GOLDEN * (high - low), low + _GOLDEN * (high - low)
    at_left, at_right = of(left), of(right)
    while high - low > 1e-3:
        if at_left <= at_right:
            high, right, at_right = right, left, at_left
            left = high - _GOLDEN * (high - low)
            at_left = of(left)
        else:
            low, left, at_left = left, right, at_right
            right = low + _GOLDEN * (high - low)
            at_right = of(right)
    return left if at_left <= at_right else right
