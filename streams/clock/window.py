"""Statistical mode: a window of uncertainty from the sizes of past errors, without a law of their distribution.

Formulae of others, for comparison (their sources: facebook/time's fbclock and AWS's ClockBound):

- `fbclock`: M = mean(clock accuracy) + |mean offset| + std(offset) over the last 100 samples at each sample,
  W = mean(M) + k·std(M) over the last 100 M, k = 4 for a full window, grown by 1.5·mean|Δfrequency| a second;
- `clockbound`: |offset| + root dispersion + root delay/2 + drift·age.

Neither sees a tail that the last 100 samples did not show. Ours (`Tail`): let X be the sizes |offset| of the
calibration, and the next error exchangeable with them. Then P(next > r-th greatest of n) = r/(n + 1) whatever the
law, so ε = 1e-4 takes n ≥ 9,999. At the first rung that is an equality, which no count could tell from a miss too
many, so the bound is that order statistic plus MARGIN of the next one: little where the greatest is an outlier
already, most where it is not (for a tail ~ x⁻³: 30 % fewer misses for a tenth of width). More history takes deeper
ranks, which wobble less: RUNGS.
With fewer samples there is no statistical bound at all, and the caller's hard bound stands.

Measurement noise only widens: for errors and noise that are independent, symmetric and unimodal, the measured size
is stochastically greater than the error's own (Anderson's inequality). What noise cannot show is a constant
difference of the two directions; it is at most half the narrowest round trip, which the caller adds.

Only the RANKS greatest of each block of BLOCK samples are kept: that is all that the ranks in use can come from.
"""

from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

F64 = NDArray[np.float64]
EPSILON: Final = 1e-4
MARGIN: Final = 0.15
BLOCK: Final = 1_000  # samples
RUNGS: Final = (
    (10, 1),
    (25, 2),
    (50, 3),
    (100, 6),
)  # (full blocks of history, rank): rank / (n + 1) ≤ EPSILON
BLOCKS: Final = RUNGS[-1][0]
RANKS: Final = RUNGS[-1][1] + 1
SAMPLES_MIN: Final = RUNGS[0][0] * BLOCK  # 9,999 would do
assert all(rank <= EPSILON * (blocks * BLOCK + 1) for blocks, rank in RUNGS)
WINDOW: Final = 100  # fbclock's
FULL_K: Final = 4.0
HOLDOVER: Final = 1.5


class Bound(NamedTuple):
    """A window's half-width with what it rests on. `epsilon` None: the hard bound, for want of history."""

    bound_ns: float
    epsilon: float | None
    samples: int


def rung(samples: int) -> tuple[int, int] | None:
    """(samples that count, rank) for this much history; None if it is too little for EPSILON."""
    found = None
    for blocks, rank in RUNGS:
        if samples >= blocks * BLOCK:
            found = blocks * BLOCK, rank
    return found


def order_bound(greatest: F64, samples: int) -> F64:
    """Half-widths from the greatest sizes of histories: `greatest` (histories, > rank), in descending order."""
    place = rung(samples)
    assert place is not None
    rank = place[1]
    out: F64 = greatest[:, rank - 1] + MARGIN * greatest[:, rank]
    return out


@dataclass
class Tail:
    """The greatest sizes of an epoch's errors. `top` (BLOCKS + 1, RANKS): rows of blocks, the youngest first, each
    in descending order; row 0 is the block that is being filled, with `fill` samples. `full`: blocks behind it."""

    top: F64
    fill: int = 0
    full: int = 0

    @classmethod
    def empty(cls) -> "Tail":
        """Without history."""
        return cls(np.zeros((BLOCKS + 1, RANKS)))

    @property
    def samples(self) -> int:
        """Samples that the blocks stand for."""
        return self.full * BLOCK + self.fill

    def add(self, size_ns: float) -> None:
        """Take the size of one error."""
        newest = self.top[0]
        if size_ns > newest[-1]:
            newest[-1] = size_ns
            newest[::-1].sort()
        self.fill += 1
        if self.fill == BLOCK:
            self.top[1:] = self.top[:-1].copy()
            self.top[0] = 0.0
            self.fill, self.full = 0, min(self.full + 1, BLOCKS)

    def bound(self, hard_ns: float, constant_ns: float = 0.0) -> Bound:
        """The statistical bound plus `constant_ns`, where there is history enough and it is less than `hard_ns`."""
        place = rung(self.full * BLOCK)
        if place is None:
            return Bound(hard_ns, None, self.samples)
        used, rank = place
        # What fills the newest block counts too: more samples at the same rank only widen.
        kept = self.top[: used // BLOCK + 1]
        greatest = -np.sort(-kept.ravel())[: rank + 1]
        found = float(order_bound(greatest[None], used)[0]) + constant_ns
        return Bound(found, EPSILON, self.samples) if found < hard_ns else Bound(hard_ns, None, self.samples)


def fbclock(offset_ns: F64, accuracy_ns: float = 0.0) -> F64:
    """fbclock's W of series of offsets: (series, ≥ 2·WINDOW − 1) → (series,), from the last samples of each."""
    last = offset_ns[:, -(2 * WINDOW - 1) :]
    centre = last.mean(axis=1, keepdims=True)  # sums of squares about it do not cancel
    start = np.zeros((len(last), 1))
    sums, squares = (
        np.concatenate((start, np.cumsum((last - centre) ** power, axis=1)), axis=1) for power in (1, 2)
    )
    mean = (sums[:, WINDOW:] - sums[:, :-WINDOW]) / WINDOW
    square = (squares[:, WINDOW:] - squares[:, :-WINDOW]) / WINDOW
    m = accuracy_ns + np.abs(mean + centre) + np.sqrt(np.maximum(0.0, square - mean * mean))
    out: F64 = m.mean(axis=1) + FULL_K * m.std(axis=1)
    return out


def clockbound(
    offset_ns: F64,
    root_delay_ns: F64,
    root_dispersion_ns: float = 0.0,
    drift_ppb: float = 50_000.0,
    age_s: float = 0.0,
) -> F64:
    """ClockBound's error bound at `age_s` after each sample, ns; any shape."""
    out: F64 = np.abs(offset_ns) + root_dispersion_ns + 0.5 * root_delay_ns + drift_ppb * age_s
    return out
