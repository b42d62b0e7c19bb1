"""Hard mode: what two-way exchanges leave possible of a clock's offset, with no word on how delays are spread.

θ(x) = clock − parent at the clock's reading x. A message from the parent, sent at its t1 and received at the
clock's t2, cannot have taken less than nothing, so θ(t2) ≤ t2 − t1. One sent at the clock's t3 and received at
the parent's t4 says θ(t3) ≥ t3 − t4. (A least delay that is known narrows both.) Nothing is assumed of the two
directions' being alike, so no queue can make the result wrong. What carries a constraint to other times is the
declared greatest drift D of the clock against its parent (|dθ/dx| ≤ D), in two ways that are both necessary:

- *cone*: θ(x) ≤ y_i + D·|x − x_i| for each upper constraint i; exact if the rate may do anything within ±D;
- *tangent*, where a greatest wander W is declared too (|d²θ/dx²| ≤ W): the line that touches θ at x passes below
  y_i + ½·W·(x_i − x)² for each upper constraint and above the like for lower ones, with |slope| ≤ D. That is a
  linear program in (offset, slope). Moving x changes the relaxed points by an affine function of x_i, so which
  of them lie on the convex hull does not depend on x: the hull is kept online and asked anywhere.

`Hull.interval` is the intersection. An empty one contradicts the declared limits: a step, a reset, a lie, and a
new epoch for the caller. A constraint left out (older than the window) only widens.

Slopes are per reading of the clock, offsets of 1e9 ns and less keep 1e-6 ns in floats; int64 in, float64 out.
"""

import math
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from schemas.errors import Usage
from schemas.time import NS

I64 = NDArray[np.int64]
F64 = NDArray[np.float64]
SLACK_NS: Final = 1e-6  # of rounding
KEEP: Final = 1.25  # of a window is kept before the oldest quarter is dropped: rebuilding stays O(1) each


@dataclass(frozen=True)
class Limits:
    """What is declared of a clock against its parent. `wander_ppb_s` None: the rate may jump within ±drift.

    Raises Usage for what can't be meant.
    """

    drift_ppb: float = 50_000.0
    wander_ppb_s: float | None = None
    window_s: float = 120.0

    def __post_init__(self) -> None:
        positive = (self.drift_ppb, self.window_s)
        if not all(math.isfinite(value) and value > 0 for value in positive) or self.drift_ppb > 1e7:
            raise Usage(f"a clock's limits need 0 < drift_ppb ≤ 1e7 and window_s > 0, not {positive}")
        if self.wander_ppb_s is not None and not 0 <= self.wander_ppb_s < math.inf:
            raise Usage(f"wander_ppb_s is {self.wander_ppb_s}")


class Constraints(NamedTuple):
    """θ(high_at) ≤ high and θ(low_at) ≥ low, ns; each of shape (n,), in order of the clock's reading."""

    high_at: I64
    high: I64
    low_at: I64
    low: I64


class Interval(NamedTuple):
    """What is possible at one reading: offset in ns, and its slope in ppb (±drift where no wander is declared)."""

    low: float
    high: float
    slope_low: float
    slope_high: float

    @property
    def half(self) -> float:
        """Half of the width."""
        return 0.5 * (self.high - self.low)


def two_way(t1: I64, t2: I64, t3: I64, t4: I64, least_ns: int = 0) -> Constraints:
    """Constraints of exchanges: parent sends t1, clock receives t2, clock sends t3, parent receives t4.

    `least_ns`: a delay that neither direction can undercut. The two directions need not belong together.
    """
    return Constraints(t2, t2 - t1 - least_ns, t3, t3 - t4 + least_ns)


def of_probes(sent_a: I64, received_b: I64, sent_b: I64, received_a: I64) -> Constraints:
    """Constraints on b − a from probes both ways: a to b (sent_a, received_b) and b to a; by b's reading.

    The two directions need not be of one length, nor belong together.
    """
    high, low = np.argsort(received_b, kind="stable"), np.argsort(sent_b, kind="stable")
    return Constraints(received_b[high], (received_b - sent_a)[high], sent_b[low], (sent_b - received_a)[low])


def cone(given: Constraints, at: I64, drift_ppb: float) -> tuple[F64, F64]:
    """(lowest, highest) offset at each of the readings `at`, from all constraints before and after it.

    Prefix and suffix minima: O((n + m) log n). Infinite where nothing constrains; low > high: contradiction.
    """
    origin = int(min((int(part[0]) for part in (given.high_at, given.low_at) if len(part)), default=0))
    slope = drift_ppb / NS
    t = (at - origin).astype(np.float64)
    bounds = []
    for x_ns, y_ns, sign in ((given.low_at, given.low, -1.0), (given.high_at, given.high, 1.0)):
        order = np.argsort(x_ns, kind="stable")
        x, y = (x_ns[order] - origin).astype(np.float64), sign * y_ns[order]
        before = np.append(np.inf, np.minimum.accumulate(y - slope * x))
        after = np.append(np.minimum.accumulate((y + slope * x)[::-1])[::-1], np.inf)
        place = np.searchsorted(x, t, side="right")
        bounds.append(sign * np.minimum(before[place] + slope * t, after[place] - slope * t))
    return bounds[0], bounds[1]


class _Side:
    """Upper constraints as points and their convex hull (lower ones come negated). x in s, y in ns."""

    def __init__(self, wander: float | None) -> None:
        self._wander = wander
        self._points = np.empty((2, 64))
        self._size = 0
        self.hull: list[tuple[float, float]] = []  # (x, y + ½·W·x²), the part below all others

    @property
    def x(self) -> F64:
        """Readings of the points, ascending."""
        return self._points[0, : self._size]

    @property
    def y(self) -> F64:
        """Their values."""
        return self._points[1, : self._size]

    def push(self, x: float, y: float) -> None:
        """Add a point; x must not fall."""
        if self._size == self._points.shape[1]:
            self._points = np.concatenate((self._points, np.empty((2, max(64, self._size)))), axis=1)
        self._points[:, self._size] = x, y
        self._size += 1
        if self._wander is not None:
            self._push(x, y + 0.5 * self._wander * x * x)

    def _push(self, x: float, y: float) -> None:
        hull = self.hull
        if hull and hull[-1][0] == x:
            if y >= hull[-1][1]:
                return
            hull.pop()
        while len(hull) > 1:
            (xa, ya), (xb, yb) = hull[-2], hull[-1]
            if (yb - ya) * (x - xa) < (y - ya) * (xb - xa):
                break
            hull.pop()
        hull.append((x, y))

    def forget(self, since: float) -> None:
        """Drop the points before `since`."""
        first = int(np.searchsorted(self.x, since))
        self._points = self._points[:, first:].copy()
        self._size -= first
        self.hull.clear()
        if self._wander is not None:
            for x, y in zip(self.x.tolist(), self.y.tolist(), strict=True):
                self._push(x, y + 0.5 * self._wander * x * x)

    def relaxed(self, at: float) -> tuple[F64, F64]:
        """Points of the hull as seen from `at`: distance and relaxed y."""
        assert self._wander is not None
        points = np.array(self.hull).reshape(-1, 2)
        # ½·W·(x − at)² = ½·W·x² − W·x·at + ½·W·at²
        return points[:, 0] - at, points[:, 1] + self._wander * at * (0.5 * at - points[:, 0])


def _greatest(d: F64, y: F64, slope_low: float, slope_high: float) -> float:
    """Greatest value at d = 0 of any line under the points (d, y), ordered by d, with a slope in the range."""
    if not len(d):
        return math.inf
    edges = np.diff(y) / np.diff(d)
    slopes = np.clip(np.append(edges, (slope_low, slope_high)), slope_low, slope_high)
    return float((y - slopes[:, None] * d).min(axis=1).max())


class Hull:
    """The feasible set of one clock in one epoch, online."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self._high, self._low = _Side(limits.wander_ppb_s), _Side(limits.wander_ppb_s)
        self._origin: tuple[int, int] | None = None

    def add(self, high_at: int, high: int | None, low_at: int, low: int | None) -> bool:
        """Take an exchange (None: no constraint on that side), in order of readings. False: nothing is left
        possible, so within the declared limits it can't be the same epoch; the hull is then of no more use."""
        if self._origin is None:
            offset = high if high is not None else low
            if offset is None:
                return True
            self._origin = high_at, offset
        x0, y0 = self._origin
        newest = -math.inf
        for side, at, value, sign in ((self._high, high_at, high, 1), (self._low, low_at, low, -1)):
            if value is None:
                continue
            x, y = (at - x0) / NS, float(sign * (value - y0))
            if len(side.x) and x < side.x[-1]:  # late: as seen at the newest reading, which only widens
                y += self.limits.drift_ppb * (float(side.x[-1]) - x)
                x = float(side.x[-1])
            side.push(x, y)
            newest = max(newest, x)
        for side in (self._high, self._low):
            if len(side.x) and newest - side.x[0] > KEEP * self.limits.window_s:
                side.forget(newest - self.limits.window_s)
        return self.interval(max(high_at, low_at)) is not None

    def interval(self, at: int) -> Interval | None:
        """What is possible at a reading, past or to come; infinite without constraints, None if nothing is."""
        drift = self.limits.drift_ppb
        if self._origin is None:
            return Interval(-math.inf, math.inf, -drift, drift)
        x0, y0 = self._origin
        t = (at - x0) / NS
        high, low = (
            float((side.y + drift * np.abs(side.x - t)).min(initial=math.inf))
            for side in (self._high, self._low)
        )
        low, slopes = -low, (-drift, drift)
        if self.limits.wander_ppb_s is not None:
            found = self._tangent(t)
            if found is None:
                return None
            low, high, slopes = max(low, found[0]), min(high, found[1]), (found[2], found[3])
        if low > high + SLACK_NS:
            return None
        return Interval(low + y0, max(low, high) + y0, *slopes)

    def _tangent(self, t: float) -> tuple[float, float, float, float] | None:
        drift = self.limits.drift_ppb
        du, yu = self._high.relaxed(t)
        dl, yl = self._low.relaxed(t)
        slope_low, slope_high = -drift, drift
        if len(du) and len(dl):
            apart = du[:, None] - dl
            gap = yu[:, None] + yl  # y of lower constraints is negated
            if (gap[apart == 0.0] < -SLACK_NS).any():
                return None
            with np.errstate(divide="ignore", invalid="ignore"):
                slope = gap / apart
            slope_high = min(slope_high, float(slope[apart > 0].min(initial=math.inf)))
            slope_low = max(slope_low, float(slope[apart < 0].max(initial=-math.inf)))
            if slope_low > slope_high + 1e-6:
                return None
            slope_high = max(slope_low, slope_high)
        high = _greatest(du, yu, slope_low, slope_high)
        low = -_greatest(dl, yl, -slope_high, -slope_low)
        return low, high, slope_low, slope_high
