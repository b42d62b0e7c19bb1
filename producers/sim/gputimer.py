"""A GPU's timer and the ways to read it, simulated with what was measured on real ones.

The host's clock is the axis: time runs on it, in ns since the start of a run. The timer shows
g(h) = start + h + rate · h + wander(h), cut off to its ticks. Wander is a slow swing and temperature steps, each
of them a rate that settles exponentially; together their rate changes by at most `wander_ppb_s` each second,
and they have closed integrals, so a reading at any moment is exact to a nanosecond.

Measured (8 A100 and H100 hosts; docs/gpu-clocks.md has the sources): ticks of 1,024 ns, and of 64 ns with steps
of 96 and 128; rates 4 to 10 ppm apart; timers apart by seconds; a way over PCIe of a few hundred ns, other in
each direction; jitter that only ever delays. The wander is assumed, not measured.
"""

from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from schemas.time import NS

I64 = NDArray[np.int64]
F64 = NDArray[np.float64]

# Steps between updates of the timer, repeated: (name, steps in ns).
TICKS: Final = {
    "1024": (1024,),
    "64": (64,),
    "96": (96,),
    "128": (128,),
    "64/96/128": (64, 64, 96, 64, 128, 64, 96),
}
RATE_PPB: Final = (4_000.0, 10_000.0)
STEPS: Final = 3  # temperature steps in a run
SETTLE_S: Final = (10.0, 60.0)
SWING_S: Final = (20.0, 200.0)
SHARES: Final = (0.4, 0.6)  # of the greatest change of the rate, for the swing and for all the steps


@dataclass(frozen=True)
class Timer:
    """One timer. Rates in ppb, times in s since the start."""

    start_ns: int
    steps_ns: tuple[int, ...]
    rate_ppb: float
    swing: tuple[float, float, float]  # ppb, rad/s, rad
    at_s: F64
    size_ppb: F64
    settle_s: F64

    @classmethod
    def draw(
        cls,
        rng: np.random.Generator,
        ticks: str,
        wander_ppb_s: float,
        run_s: float,
        rate_ppb: float | None = None,
    ) -> "Timer":
        """A timer whose rate changes by at most `wander_ppb_s` per second, and at times by nearly that."""
        rate = rng.uniform(*RATE_PPB) * rng.choice((-1.0, 1.0)) if rate_ppb is None else rate_ppb
        angular = 2 * np.pi / rng.uniform(*SWING_S)
        settle = rng.uniform(*SETTLE_S, STEPS)
        shares = rng.dirichlet(np.ones(STEPS)) * SHARES[1] * 0.999 * wander_ppb_s
        return cls(
            start_ns=int(rng.integers(10**15, 2 * 10**18)),
            steps_ns=TICKS[ticks],
            rate_ppb=rate,
            swing=(SHARES[0] * 0.999 * wander_ppb_s / angular, angular, rng.uniform(0, 2 * np.pi)),
            at_s=np.sort(rng.uniform(0, run_s, STEPS)),
            size_ppb=shares * settle * rng.choice((-1.0, 1.0), STEPS),
            settle_s=settle,
        )

    def with_step(self, at_s: float, size_ppb: float, settle_s: float) -> "Timer":
        """The same with one more temperature step, of any size."""
        return replace(
            self,
            at_s=np.append(self.at_s, at_s),
            size_ppb=np.append(self.size_ppb, size_ppb),
            settle_s=np.append(self.settle_s, settle_s),
        )

    @property
    def tick_ns(self) -> int:
        """The greatest step."""
        return max(self.steps_ns)

    def exact(self, host_ns: F64 | I64) -> I64:
        """What the timer has come to at these moments, cut off to ns."""
        t = host_ns * 1e-9
        amplitude, angular, phase = self.swing
        ahead = self.rate_ppb * t
        ahead += amplitude / angular * (np.cos(phase) - np.cos(angular * t + phase))
        for at, size, settle in zip(self.at_s, self.size_ppb, self.settle_s, strict=True):
            since = np.maximum(t - at, 0.0)
            ahead += size * (since + settle * np.expm1(-since / settle))
        whole = np.floor(host_ns)
        out: I64 = (
            self.start_ns + whole.astype(np.int64) + np.floor(ahead + (host_ns - whole)).astype(np.int64)
        )
        return out

    def read(self, host_ns: F64 | I64) -> I64:
        """What the timer shows at these moments: its last update."""
        exact = self.exact(host_ns)
        edges = np.cumsum((0, *self.steps_ns))
        phase = exact % edges[-1]
        out: I64 = exact - phase + edges[np.searchsorted(edges, phase, side="right") - 1]
        return out


@dataclass(frozen=True)
class Path:
    """The way between a host (or a card) and a GPU, both directions apart: least delay and mean jitter, ns.

    Jitter is exponential and only delays; one reading in a hundred meets an interruption on top of it.
    """

    floor_ns: tuple[float, float]
    jitter_ns: tuple[float, float]
    interruption_ns: float = 20_000.0

    def delays(self, rng: np.random.Generator, reads: int) -> tuple[F64, F64]:
        """Delays before and after the timer is read, of shape (reads,)."""
        hit = rng.random(reads) < 0.01
        late = np.where(hit, rng.exponential(self.interruption_ns, reads), 0.0)
        first = rng.random(reads) < 0.5
        there = self.floor_ns[0] + rng.exponential(self.jitter_ns[0], reads) + late * first
        back = self.floor_ns[1] + rng.exponential(self.jitter_ns[1], reads) + late * ~first
        return there, back


def exchange(
    timer: Timer, path: Path, rng: np.random.Generator, moments_ns: F64, stamp_ns: int = 1
) -> tuple[I64, I64, I64]:
    """(stamp before, reading, stamp after) at these moments; stamps cut off to `stamp_ns`."""
    there, back = path.delays(rng, len(moments_ns))
    before = np.floor((moments_ns - there) / stamp_ns).astype(np.int64) * stamp_ns
    after = np.floor((moments_ns + back) / stamp_ns).astype(np.int64) * stamp_ns
    return before, timer.read(moments_ns), after


def moments(rng: np.random.Generator, reads: int, every_s: float, first_s: float = 0.0) -> F64:
    """When reads happen: one each `every_s`, by up to a fifth of it early or late; ns."""
    places = np.arange(reads) + rng.uniform(-0.2, 0.2, reads)
    out: F64 = (first_s + (places + 0.3) * every_s) * NS
    return out
