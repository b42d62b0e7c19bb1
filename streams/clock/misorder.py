"""How often stamps put two events the wrong way round.

Theory of operation. A truly precedes B by a gap δ ≥ 0. Their clocks stamp A + e_a and B + e_b, so the stamps are
inverted exactly when e_a − e_b > δ. Everything here is that one probability, S(δ) = P(e_a − e_b > δ), for three
families of errors, and its mean over a law of gaps: E S(δ). `docs/theory.md` has the proofs.

- Gauss: the difference is normal with variance s² = σ_a² + σ_b², S = Φ(−δ/s).
- Laplace: with scales b = σ/√2, S = (b_a² e^(−δ/b_a) − b_b² e^(−δ/b_b)) / 2(b_a² − b_b²); equal scales are its
  limit, ½(1 + δ/2b) e^(−δ/b).
- Student-t with odd ν = 2n + 1: its characteristic function is a polynomial times e^(−z), z = scale·√ν·|t|, so the
  one of the difference is too, and inverting it term by term is elementary.

Means over exponential gaps are elementary for Gauss and Laplace; the rest are integrals of a smooth function,
taken by the trapezoidal rule after a change of variable that makes it converge exponentially (about 1e-12).

Errors are *independent* (drawn anew for each event) or *persistent* (one draw a clock, kept). The mean share of
inverted pairs is the same. Its spread over pairs of clocks is not: with persistent errors two messages of one
directed pair are both inverted with E S(max(δ, δ')), so that repeating a message tells little.

Times are in any one unit. Nothing here draws a number by itself: generators are arguments.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

F64 = NDArray[np.float64]
Family = Literal["gauss", "laplace", "student"]
FAMILIES: Final[tuple[Family, ...]] = ("gauss", "laplace", "student")
DRAWS_AT_ONCE: Final = 1 << 18
_NEARLY_EQUAL: Final = 1e-5  # scales closer than this share use the limit: both forms are then good to 1e-10

_erfc = np.frompyfunc(math.erfc, 1, 1)


def normal_tail(x: F64) -> F64:
    """P(Z > x) of a standard normal Z, with small relative error far out."""
    return np.asarray(0.5 * _erfc(np.asarray(x, np.float64) / math.sqrt(2.0)), np.float64)


def erfcx(x: float) -> float:
    """e^(x²)·erfc(x), which neither over- nor underflows for x ≥ 0."""
    if x < 12.0:
        return math.exp(x * x) * math.erfc(x)
    term = total = 1.0
    for k in range(1, 12):  # asymptotic: at x = 12 the terms fall below 1e-16 before the tenth
        term *= -(2 * k - 1) / (2 * x * x)
        total += term
    return total / (x * math.sqrt(math.pi))


@dataclass(frozen=True)
class Errors:
    """Errors of the two clocks: a family and the standard deviation of each.

    `nu`: degrees of freedom of `student`, odd and ≥ 3, so that the variance exists and the form is closed.
    Raises ValueError for anything else.
    """

    family: Family
    sigma_a: float
    sigma_b: float
    nu: int = 3

    def __post_init__(self) -> None:
        if not (0 < self.sigma_a < math.inf and 0 < self.sigma_b < math.inf):
            raise ValueError(f"standard deviations must be positive: {self.sigma_a}, {self.sigma_b}")
        if self.family not in FAMILIES:
            raise ValueError(f"no such family of errors: {self.family}")
        if self.family == "student" and (self.nu < 3 or self.nu % 2 == 0):
            raise ValueError(f"degrees of freedom must be odd and at least 3, not {self.nu}")

    @property
    def spread(self) -> float:
        """Standard deviation of the difference, s."""
        return math.hypot(self.sigma_a, self.sigma_b)

    def inverted(self, gap: F64 | float) -> F64:
        """S(gap): the probability that stamps are inverted, for gaps ≥ 0; same shape as `gap`."""
        at = np.asarray(gap, np.float64)
        if self.family == "gauss":
            return normal_tail(at / self.spread)
        if self.family == "laplace":
            return _laplace(self.sigma_a / math.sqrt(2), self.sigma_b / math.sqrt(2), at)
        return _student(self.sigma_a, self.sigma_b, self.nu, at)

    def draw(self, rng: np.random.Generator, count: int) -> F64:
        """So many differences e_a − e_b, each clock's error drawn on its own."""
        return self._one(rng, self.sigma_a, count) - self._one(rng, self.sigma_b, count)

    def _one(self, rng: np.random.Generator, sigma: float, count: int) -> F64:
        if self.family == "gauss":
            return rng.normal(0.0, sigma, count)
        if self.family == "laplace":
            return rng.laplace(0.0, sigma / math.sqrt(2), count)
        return rng.standard_t(self.nu, count) * (sigma * math.sqrt((self.nu - 2) / self.nu))


def _laplace(first: float, second: float, gap: F64) -> F64:
    if abs(first - second) <= _NEARLY_EQUAL * max(first, second):
        scale = math.sqrt((first * first + second * second) / 2)
        return np.asarray(0.5 * (1 + gap / (2 * scale)) * np.exp(-gap / scale), np.float64)
    upper = first**2 * np.exp(-gap / first) - second**2 * np.exp(-gap / second)
    return np.asarray(upper / (2 * (first**2 - second**2)), np.float64)


def _student_factor(nu: int) -> F64:
    """Coefficients p_0, p_1, … of the characteristic function Σ p_k z^k · e^(−z) of t with odd ν; p_0 = 1."""
    n = (nu - 1) // 2
    top = [math.factorial(n + k) / (math.factorial(k) * math.factorial(n - k) * 2**k) for k in range(n + 1)]
    return np.array(top[::-1], np.float64) / np.float64(top[-1])


def _student(sigma_a: float, sigma_b: float, nu: int, gap: F64) -> F64:
    """½ − (1/π) ∫ sin(tδ)/t φ(t) dt, where φ is a polynomial in t times e^(−ct)."""
    rates = [sigma * math.sqrt(nu - 2) for sigma in (sigma_a, sigma_b)]  # scale·√ν
    one = _student_factor(nu)
    power = np.arange(len(one))
    terms = np.convolve(one * rates[0] ** power, one * rates[1] ** power)
    decay = sum(rates)
    total = np.arctan2(gap, decay)
    for k in range(1, len(terms)):  # ∫ t^(k−1) sin(tδ) e^(−ct) dt = Γ(k) Im (c − iδ)^−k
        total = total + terms[k] * math.factorial(k - 1) * np.imag((decay - 1j * gap) ** -k)
    return np.asarray(0.5 - total / math.pi, np.float64)


GapLaw = Literal["fixed", "exponential", "lognormal"]
GAP_LAWS: Final[tuple[GapLaw, ...]] = ("fixed", "exponential", "lognormal")


@dataclass(frozen=True)
class Gaps:
    """A law of gaps: `scale` is the gap itself (fixed), the mean (exponential) or the median (log-normal),
    `sigma_ln` the standard deviation of the logarithm (log-normal only). Raises ValueError."""

    law: GapLaw
    scale: float
    sigma_ln: float = 0.0

    def __post_init__(self) -> None:
        if self.law not in GAP_LAWS:
            raise ValueError(f"no such law of gaps: {self.law}")
        if not 0 < self.scale < math.inf:
            raise ValueError(f"the scale of gaps must be positive: {self.scale}")
        if (self.law == "lognormal") != (self.sigma_ln > 0):
            raise ValueError("log-normal gaps need sigma_ln > 0, other laws have none")

    def draw(self, rng: np.random.Generator, count: int) -> F64:
        """So many gaps."""
        if self.law == "fixed":
            return np.full(count, self.scale)
        if self.law == "exponential":
            return rng.exponential(self.scale, count)
        return self.scale * np.exp(self.sigma_ln * rng.standard_normal(count))

    def mean(self, of: Callable[[F64], F64]) -> float:
        """E of(δ), by quadrature."""
        if self.law == "fixed":
            return float(of(np.array([self.scale]))[0])
        if self.law == "exponential":
            y = np.linspace(-4.2, 6.5, 1201)
            x = np.exp(y - np.exp(-y))  # x from 0 to infinity; both ends die doubly exponentially
            weight = np.exp(-x) * x * (1 + np.exp(-y))
            return float(np.sum(weight * of(self.scale * x)) * (y[1] - y[0]))
        z = np.linspace(-12.0, 12.0, 1601)
        weight = np.exp(-0.5 * z * z) / math.sqrt(2 * math.pi)
        return float(np.sum(weight * of(self.scale * np.exp(self.sigma_ln * z))) * (z[1] - z[0]))

    def mean_of_greater(self, of: Callable[[F64], F64]) -> float:
        """E of(max(δ, δ')) for two independent gaps."""
        if self.law == "fixed":
            return self.mean(of)
        if self.law == "exponential":  # the greater has density 2/θ e^(−x/θ) − 2/θ e^(−2x/θ)
            return 2 * self.mean(of) - Gaps("exponential", self.scale / 2).mean(of)
        z = np.linspace(-12.0, 12.0, 1601)
        weight = 2 * normal_tail(-z) * np.exp(-0.5 * z * z) / math.sqrt(2 * math.pi)
        return float(np.sum(weight * of(self.scale * np.exp(self.sigma_ln * z))) * (z[1] - z[0]))


def expected(errors: Errors, gaps: Gaps) -> float:
    """E S(δ): the expected share of inverted pairs. Elementary where `closed` says so, else an integral."""
    if not closed(errors, gaps) or gaps.law == "fixed":
        return gaps.mean(errors.inverted)
    theta = gaps.scale
    if errors.family == "gauss":
        return 0.5 - 0.5 * erfcx(errors.spread / theta / math.sqrt(2))
    first, second = errors.sigma_a / math.sqrt(2), errors.sigma_b / math.sqrt(2)
    if abs(first - second) <= _NEARLY_EQUAL * max(first, second):
        c = math.sqrt((first * first + second * second) / 2) / theta
        return 0.5 * (c / (1 + c) + c / (2 * (1 + c) ** 2))
    upper = first**3 / (first + theta) - second**3 / (second + theta)
    return upper / (2 * (first**2 - second**2))


def closed(errors: Errors, gaps: Gaps) -> bool:
    """Whether `expected` is an elementary formula (erfc counted as one)."""
    return gaps.law == "fixed" or (gaps.law == "exponential" and errors.family != "student")


@dataclass(frozen=True)
class Persistence:
    """What errors that stay do to the share of inverted messages of one directed pair of clocks.

    `mean`: over pairs, as with independent errors. `deviation`: its standard deviation over pairs, however many
    messages each sends (independent errors: → 0). `again`: P(the next is inverted | one was); independent: mean.
    """

    mean: float
    deviation: float
    again: float


def persistent(errors: Errors, gaps: Gaps) -> Persistence:
    """The same errors kept by each clock for all its messages."""
    mean = expected(errors, gaps)
    both = gaps.mean_of_greater(errors.inverted)
    return Persistence(mean, math.sqrt(max(0.0, both - mean * mean)), both / mean if mean > 0 else 0.0)


@dataclass(frozen=True)
class Sampled:
    """A Monte Carlo mean and its standard error."""

    value: float
    error: float


def sample(errors: Errors, gaps: Gaps, count: int, rng: np.random.Generator) -> Sampled:
    """The share of `count` ≥ 1 drawn pairs that are inverted."""
    inverted = 0
    for begin in range(0, count, DRAWS_AT_ONCE):
        size = min(DRAWS_AT_ONCE, count - begin)
        inverted += int(np.count_nonzero(errors.draw(rng, size) > gaps.draw(rng, size)))
    share = inverted / count
    # One pair more on either side, so that 0 of n is not taken for certainty.
    careful = (inverted + 1) / (count + 2)
    return Sampled(share, math.sqrt(careful * (1 - careful) / count))


def sample_persistent(
    errors: Errors, gaps: Gaps, pairs: int, messages: int, rng: np.random.Generator
) -> tuple[Sampled, float]:
    """`pairs` ≥ 2 directed pairs of clocks with one error each, `messages` ≥ 1 over each.

    Gives the mean share with its error, and the standard deviation of the share over pairs.
    """
    shares = np.empty(pairs)
    at_once = max(1, DRAWS_AT_ONCE // messages)
    for begin in range(0, pairs, at_once):
        size = min(at_once, pairs - begin)
        kept = errors.draw(rng, size)[:, None]
        drawn = gaps.draw(rng, size * messages).reshape(size, messages)
        shares[begin : begin + size] = np.mean(kept > drawn, axis=1)
    deviation = float(np.std(shares, ddof=1))
    return Sampled(float(np.mean(shares)), deviation / math.sqrt(pairs)), deviation


def needed_gap(errors: Errors, share: float) -> float:
    """The least fixed gap at which at most `share` (0 < share < ½) of pairs are inverted."""
    if not 0 < share < 0.5:
        raise ValueError(f"the share must lie between 0 and one half, not {share}")
    high = errors.spread
    while float(errors.inverted(high)) > share:
        high *= 2
    return bisect(lambda gap: share - float(errors.inverted(gap)), 0.0, high)


def bisect(rising: Callable[[float], float], low: float, high: float) -> float:
    """Where a rising function passes 0 within [low, high]; to the last bits. Raises ValueError if it does not."""
    if rising(low) > 0 or rising(high) < 0:
        raise ValueError(f"no solution between {low} and {high}")
    for _ in range(200):
        middle = (low + high) / 2
        if middle in (low, high):
            break
        low, high = (low, middle) if rising(middle) > 0 else (middle, high)
    return (low + high) / 2
