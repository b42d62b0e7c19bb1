"""Kernels of the feasible set: every line (offset, rate) that two families of constraints leave possible.

Coordinates. x is the mapped clock's reading in s, y is the parent's reading less the mapped clock's in ns, so a
slope in ns/s is a rate in ppb. Upper constraints say y(x) ≤ u, lower ones y(x) ≥ l. A lower constraint is kept
as the upper one of −y, so one routine serves both sides; the slope changes its sign with it.

Wander. The slope may change by at most w ns/s². Seen from an anchor x0, where the tangent of y is a line, a
constraint at x then binds that line only up to ½·w·(x − x0)² more. This relaxation moves with the anchor by
a function that is affine in x, so *which* points lie on the convex hull does not depend on the anchor: the hull
can be kept online, point by point, and be asked from any anchor. Only points on it bind.
"""

import numpy as np
from numba import njit
from numpy.typing import NDArray

F64 = NDArray[np.float64]
I64 = NDArray[np.int64]

POINTS_MAX = 96  # of a hull; the oldest go first, and forgetting a constraint only widens
UPPER, LOWER = 0, 1

# Rows of `limits`.
RATE, WANDER, SLACK, WINDOW, CONFIRM, RELOCK, HORIZON, MARGIN, LIMITS = range(9)
# Entries of `book`.
STEPS, SINCE, EPOCH, RESET, LAST, BOOK = range(6)  # LAST: x of the newest bracket
# Columns of what `advance` gives.
STATUS, EPOCHS, LATEST, ANCHOR, CENTRE, SLOPE, BOUND, GROWTH, NEWEST, NARROWEST, BROKEN, OUT = range(12)

BACK_S_MIN, BACK_S_MAX = 0.0625, 4.0  # how far back from the newest reading an anchor is sought, doubling


@njit(cache=True)
def push(hull: F64, ends: I64, x: float, y: float, wander: float) -> None:
    """Add a point to a lower hull, hull (2, POINTS_MAX) in [ends[0], ends[1]); x must not decrease."""
    first, n = ends[0], ends[1]
    if n > first and x == hull[0, n - 1]:
        if y >= hull[1, n - 1]:
            return
        n -= 1
    while n - first >= 2:
        da, db = hull[0, n - 2] - x, hull[0, n - 1] - x
        ya = hull[1, n - 2] + 0.5 * wander * da * da
        yb = hull[1, n - 1] + 0.5 * wander * db * db
        # The middle point stays if it lies below the chord from the one before it to the new one.
        if (yb - y) * da < (ya - y) * db:
            n -= 1
        else:
            break
    if n == POINTS_MAX:
        cut = max(first, POINTS_MAX // 4)
        for k in range(cut, n):
            hull[0, k - cut] = hull[0, k]
            hull[1, k - cut] = hull[1, k]
        first, n = 0, n - cut
    hull[0, n], hull[1, n] = x, y
    ends[0], ends[1] = first, n + 1


@njit(cache=True)
def least(hull: F64, ends: I64, x0: float, slope: float, wander: float) -> tuple[float, float]:
    """(least value at x0 of lines of this slope through the relaxed points, x of the point that gives it)."""
    value, at = np.inf, np.nan
    for k in range(ends[0], ends[1]):
        d = hull[0, k] - x0
        y = hull[1, k] + 0.5 * wander * d * d - slope * d
        if y < value:
            value, at = y, hull[0, k]
    return value, at


@njit(cache=True)
def steepest(
    hulls: F64, ends: I64, x0: float, rate: float, wander: float, slack: float, sign: float
) -> float:
    """The greatest slope times `sign` at x0 that leaves at least `slack` between both sides; NaN if none does.

    Newton's iteration on the concave gap(slope), from outside: it ends at an edge that touches both hulls.
    """
    slope = rate
    for _ in range(4 * POINTS_MAX):
        upper, at_upper = least(hulls[UPPER], ends[UPPER], x0, sign * slope, wander)
        lower, at_lower = least(hulls[LOWER], ends[LOWER], x0, -sign * slope, wander)
        missing = slack - (upper + lower)
        if missing <= 1e-6:
            return slope
        lever = sign * (at_upper - at_lower)
        if lever <= 0.0:
            return np.nan
        slope -= missing / lever
        if slope < -rate:
            return np.nan
    return np.nan


@njit(cache=True)
def top(hull: F64, ends: I64, x0: float, low: float, high: float, wander: float) -> float:
    """The greatest value at x0 of any line under the points whose slope at x0 is in [low, high]."""
    slope = high
    first, n = ends[0], ends[1]
    if n == first:
        return np.inf
    if x0 < hull[0, first]:
        slope = low
    for k in range(first, n - 1):
        da, db = hull[0, k] - x0, hull[0, k + 1] - x0
        if da <= 0.0 < db:
            rise = hull[1, k + 1] + 0.5 * wander * db * db - hull[1, k] - 0.5 * wander * da * da
            slope = rise / (db - da)
    return least(hull, ends, x0, min(max(slope, low), high), wander)[0]


@njit(cache=True)
def narrow(waiting: F64, ends: I64, x: float, width: float, since: float) -> None:
    """Keep the brackets (x, width) that are the narrowest of all from themselves on; the first is it."""
    first, n = ends[0], ends[1]
    while n > first and waiting[1, n - 1] >= width:
        n -= 1
    while n > first and waiting[0, first] < since:
        first += 1
    if n == POINTS_MAX and first > 0:
        for k in range(first, n):
            waiting[0, k - first] = waiting[0, k]
            waiting[1, k - first] = waiting[1, k]
        first, n = 0, n - first
    if n < POINTS_MAX:
        waiting[0, n], waiting[1, n] = x, width
        n += 1
    ends[0], ends[1] = first, n


@njit(cache=True)
def forget(hull: F64, ends: I64, since: float) -> None:
    """Drop the points before `since`."""
    while ends[0] < ends[1] and hull[0, ends[0]] < since:
        ends[0] += 1


@njit(cache=True)
def advance(hulls: F64, ends: I64, book: F64, limits: F64, upper: F64, lower: F64, out: F64) -> None:
    """Take constraints in order of x and give the state after each: `out` (steps, OUT).

    upper, lower: (2, steps), x and y of each step's constraints, NaN for none. hulls (5, 2, POINTS_MAX), ends
    (5, 2): the upper and lower hull that judge the declared limits, those that bound with MARGIN times the
    limits, and the narrow brackets. A step that contradicts the limits empties them all: a new epoch.
    """
    bound_rate, bound_wander = limits[MARGIN] * limits[RATE], limits[MARGIN] * limits[WANDER]
    for step in range(upper.shape[1]):
        out[step] = np.nan
        out[step, STATUS] = 0.0
        out[step, BROKEN] = 0.0
        x = -np.inf
        bracket = not np.isnan(upper[0, step]) and not np.isnan(lower[0, step])
        for turn in range(2):
            newest = -np.inf
            for side in range(2):
                given = upper if side == UPPER else lower
                gx, gy = given[0, step], given[1, step]
                if np.isnan(gx):
                    continue
                newest = max(newest, gx)
                value = gy if side == UPPER else -gy
                for first, wander in ((0, limits[WANDER]), (2, bound_wander)):
                    end = ends[first + side, 1]
                    if end > ends[first + side, 0] and gx < hulls[first + side, 0, end - 1]:
                        continue  # came too late: a constraint left out only widens
                    push(hulls[first + side], ends[first + side], gx, value, wander)
            x = max(newest, book[SINCE])
            for k in range(4):
                forget(hulls[k], ends[k], x - limits[WINDOW])
            backwards = bracket and lower[0, step] < book[LAST]
            both = ends[0, 0] < ends[0, 1] and ends[1, 0] < ends[1, 1]
            if not backwards and (
                not both
                or not np.isnan(
                    steepest(hulls[0:2], ends[0:2], x, limits[RATE], limits[WANDER], limits[SLACK], 1.0)
                )
            ):
                break
            # Nothing within the declared limits explains all this: what was known is void.
            out[step, BROKEN] = 1.0
            ends[:] = 0
            book[STEPS], book[EPOCH] = 0.0, book[EPOCH] + 1.0
            book[RESET], book[SINCE], book[LAST] = newest, -np.inf, -np.inf
            if turn == 1:
                break  # the step contradicts itself (its stamps went backwards): not even it is kept
        book[STEPS] += 1.0
        book[SINCE] = x
        out[step, EPOCHS] = book[EPOCH]
        if bracket:
            book[LAST] = max(book[LAST], lower[0, step])
            width = upper[1, step] - lower[1, step] + bound_rate * abs(lower[0, step] - upper[0, step])
            narrow(hulls[4], ends[4], lower[0, step], width, x - limits[WINDOW])
        if ends[2, 0] == ends[2, 1] or ends[3, 0] == ends[3, 1]:
            continue
        has = ends[4, 0] < ends[4, 1]
        out[step, NARROWEST] = hulls[4, 1, ends[4, 0]] if has else np.inf
        back = 0.0
        while True:
            # Drift may leave more at the newest reading than the best bracket left: then the anchor lies as
            # little before it as makes the set narrower than that bracket, at the bracket itself if need be.
            anchor = x - back if back <= BACK_S_MAX else hulls[4, 0, ends[4, 0]]
            high = steepest(hulls[2:4], ends[2:4], anchor, bound_rate, bound_wander, 0.0, 1.0)
            low = -steepest(hulls[2:4], ends[2:4], anchor, bound_rate, bound_wander, 0.0, -1.0)
            most = top(hulls[2], ends[2], anchor, low, high, bound_wander)
            fewest = -top(hulls[3], ends[3], anchor, -high, -low, bound_wander)
            if back == 0.0:
                out[step, NEWEST] = most - fewest
            if not has or not most - fewest > out[step, NARROWEST] or back > BACK_S_MAX:
                break
            back = 2 * back if back else BACK_S_MIN
        if np.isnan(high) or np.isnan(low):
            continue
        out[step, LATEST], out[step, ANCHOR], out[step, CENTRE] = x, anchor, 0.5 * (most + fewest)
        out[step, SLOPE], out[step, BOUND] = 0.5 * (low + high), 0.5 * (most - fewest)
        out[step, GROWTH] = 0.5 * (high - low) + 0.5 * bound_wander * (limits[HORIZON] + x - anchor)
        settled = book[STEPS] >= limits[CONFIRM] and x - book[RESET] >= limits[RELOCK]
        out[step, STATUS] = 1.0 if settled else 0.0
