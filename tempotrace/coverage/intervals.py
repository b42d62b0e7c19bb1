"""Coverage of the statistical window by simulation: clock error and measurement noise apart, each interval anew.

An interval is a history of independent measurements, a bound made of it, and the clock's error at the time of an
event, which is none of the measured moments. Measured = error + noise; the noise is of the same family, NOISE
times as wide. Units: the family's own scale.

A history of 10,000 has a handful of values that can be among its greatest. Those alone are drawn, by the exact
law: noise is cut into layers of its size, and in a layer that reaches to a, a measurement beyond `u` has an error
beyond u − a. How many there are of each is multinomial, and the values follow the laws given that. So millions of
intervals are independent of each other, and a test compares them with histories drawn in full. Where others'
formulae are counted, the last RECENT measurements are drawn plainly and the bound is of both.
"""

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final, NamedTuple

import numpy as np

from streams.clock import window
from tempotrace.coverage.laws import F64, FAMILIES, Law, coverage_limit

NOISE: Final = 0.2
RECENT: Final = 2 * window.WINDOW
CHUNK: Final = 50_000
COMPARED: Final = 30_000  # intervals for which the formulae of others are worked out
TARGET: Final = 0.9999
WIDTH_MAX: Final = 1.5


class Layer(NamedTuple):
    """Noise whose size is exceeded with probability low to high; errors there count from tail `error` on."""

    low: float
    high: float
    error: float


@dataclass(frozen=True)
class Family:
    """A law of clock errors and the law of the noise of its measurements."""

    error: Law
    noise: Law

    @classmethod
    def named(cls, name: str, noise: float) -> "Family":
        """One of FAMILIES."""
        return cls(Law.of(FAMILIES[name]), Law.of(FAMILIES[name], noise))

    def layers(self, samples: int, ranks: int) -> tuple[float, list[Layer]]:
        """(u, layers): about 8 + 4·ranks of so many measurements lie beyond u, and each of them in a layer."""
        u = float(self.error.size_at(np.array([(8 + 4 * ranks) / samples]))[0])
        edges = [1.0]
        while edges[-1] > 1e-12 and float(self.noise.size_at(np.array(edges[-1:]))[0]) < u:
            edges.append(edges[-1] / 2)
        edges.append(0.0)
        out = []
        for high, low in pairwise(edges):
            reach = math.inf if low == 0.0 else float(self.noise.size_at(np.array([low]))[0])
            out.append(Layer(low, high, self.error.exceeds(max(0.0, u - reach))))
        return u, out

    def measured(self, shape: tuple[int, ...], rng: np.random.Generator) -> F64:
        """Plain measurements."""
        return self.error.draw(shape, rng) + self.noise.draw(shape, rng)

    def greatest(self, histories: int, samples: int, ranks: int, rng: np.random.Generator) -> F64:
        """The `ranks` greatest sizes of as many independent histories, in descending order.

        A history with fewer than `ranks` values beyond u (one in some 1e5) is filled up with u.
        """
        u, layers = self.layers(samples, ranks)
        shares = [(layer.high - layer.low) * layer.error for layer in layers]
        counts = rng.multinomial(samples, [*shares, 1 - sum(shares)], histories)
        whose, sizes = [], []
        for layer, number in zip(layers, counts.T, strict=False):
            total = int(number.sum())
            error = self.error.sizes(total, rng, high=layer.error)
            noise = self.noise.sizes(total, rng, layer.low, layer.high)
            # As sizes: only the sign of the noise against the error matters.
            sizes.append(np.abs(error + np.where(rng.random(total) < 0.5, -noise, noise)))
            whose.append(np.repeat(np.arange(histories), number))
        who, size = np.concatenate(whose), np.concatenate(sizes)
        beyond = size > u
        who, size = who[beyond], size[beyond]
        order = np.lexsort((-size, who))
        who, size = who[order], size[order]
        first = np.searchsorted(who, np.arange(histories))
        place = np.arange(len(who)) - first[who]
        out = np.full((histories, ranks), u)
        kept = place < ranks
        out[who[kept], place[kept]] = size[kept]
        return out


def family(name: str, history: int, intervals: int, noise: float, rng: np.random.Generator) -> dict[str, Any]:
    """Coverage and width of one family's bounds from histories of `history` measurements."""
    of = Family.named(name, noise)
    oracle = float(of.error.size_at(np.array([window.EPSILON]))[0])
    result: dict[str, Any] = {"family": name, "history": history, "noise": noise, "oracle": oracle}
    place = window.rung(history)
    if place is None:
        return result | {"mode": "hard", "why": f"{history} of {window.SAMPLES_MIN} calibration points"}
    used, rank = place
    misses, widths = 0, np.empty(intervals)
    others = {"fbclock": [0, 0.0], "clockbound": [0, 0.0]}
    compared = min(intervals, COMPARED)
    done = 0
    while done < intervals:
        count = min(CHUNK, (compared if done < compared else intervals) - done)
        event = of.error.sizes(count, rng)
        recent = RECENT if done < compared else 0
        greatest = of.greatest(count, used - recent, rank + 1, rng)
        if recent:
            error, made = of.error.draw((count, recent), rng), of.noise.draw((count, recent), rng)
            greatest = -np.sort(-np.concatenate([greatest, np.abs(error + made)], axis=1), axis=1)
            # A two-way exchange: its round trip is known, and at least twice the error that it makes.
            round_trip = 2 * (np.abs(made[:, -1]) + noise)
            for key, found in (
                ("fbclock", window.fbclock(error + made)),
                ("clockbound", window.clockbound((error + made)[:, -1], round_trip)),
            ):
                others[key][0] += int((event > found).sum())
                others[key][1] += float(found.sum())
        bound = window.order_bound(greatest, used)
        misses += int((event > bound).sum())
        widths[done : done + count] = bound
        done += count
    limit = coverage_limit(misses, intervals)
    width = float(widths.mean()) / oracle
    return result | {
        "mode": "statistical",
        "epsilon": window.EPSILON,
        "samples": used,
        "rank": rank,
        "intervals": intervals,
        "misses": misses,
        "coverage": 1 - misses / intervals,
        "coverage_limit": limit,
        "width": width,
        "width_median": float(np.median(widths)) / oracle,
        "holds": bool(limit >= TARGET and width <= WIDTH_MAX),
        "others": {
            key: {
                "intervals": compared,
                "misses": int(missed),
                "coverage": 1 - missed / compared,
                "coverage_limit": coverage_limit(int(missed), compared),
                "width": total / compared / oracle,
            }
            for key, (missed, total) in others.items()
        },
    }
