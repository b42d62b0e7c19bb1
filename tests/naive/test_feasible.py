"""The kernels of the feasible set against a clipped polygon."""

import os
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from streams.kernels import feasible as kernel
from tests.naive.feasible_map import polygon
from tests.paths import REPO

F64 = NDArray[np.float64]
I64 = NDArray[np.int64]
RATE = 1_000.0


@st.composite
def constraints(draw: st.DrawFn) -> tuple[list[tuple[float, float]], list[tuple[float, float]], float, float]:
    """Upper and lower points around a line, an anchor and a wander."""
    count = draw(st.integers(1, 12))
    xs = sorted(draw(st.lists(st.integers(0, 400), min_size=count, max_size=count, unique=True)))
    slope = draw(st.integers(-1_500, 1_500))
    slack = st.integers(-20, 3_000)
    upper = [(x / 16, slope * x / 16 + draw(slack)) for x in xs]
    lower = [(x / 16 + 1 / 1024, slope * x / 16 - draw(slack)) for x in xs]
    return upper, lower, draw(st.integers(-40, 440)) / 16, float(draw(st.sampled_from([0, 1, 64, 4096])))


def hulls(
    upper: list[tuple[float, float]], lower: list[tuple[float, float]], wander: float
) -> tuple[F64, I64]:
    """Both hulls, made point by point."""
    points, ends = np.full((2, 2, kernel.POINTS_MAX), np.nan), np.zeros((2, 2), np.int64)
    for x, y in upper:
        kernel.push(points[0], ends[0], x, y, wander)
    for x, y in lower:
        kernel.push(points[1], ends[1], x, -y, wander)
    return points, ends


@settings(max_examples=300, deadline=None)
@given(constraints())
def test_extent_and_slopes_are_those_of_the_polygon(
    case: tuple[list[tuple[float, float]], list[tuple[float, float]], float, float],
) -> None:
    upper, lower, x0, wander = case
    points, ends = hulls(upper, lower, wander)
    high = kernel.steepest(points, ends, x0, RATE, wander, 0.0, 1.0)
    low = -kernel.steepest(points, ends, x0, RATE, wander, 0.0, -1.0)
    corners = polygon(upper, lower, x0, RATE, wander)
    if not corners:
        # The clip loses sets that are no more than a point.
        assert np.isnan(high) or high - low < 1e-3
        return
    values, slopes = [corner[0] for corner in corners], [corner[1] for corner in corners]
    assert (low, high) == pytest.approx((min(slopes), max(slopes)), abs=1e-3)
    most = kernel.top(points[0], ends[0], x0, low, high, wander)
    fewest = -kernel.top(points[1], ends[1], x0, -high, -low, wander)
    assert (fewest, most) == pytest.approx((min(values), max(values)), abs=1e-2)


def test_a_full_hull_forgets_its_oldest_points_and_only_widens() -> None:
    count = 4 * kernel.POINTS_MAX
    xs = np.arange(count) / 8
    upper = [(x, float(x * x)) for x in xs]  # convex: every point is a corner
    lower = [(x, float(x * x) - 1e6) for x in xs]
    points, ends = hulls(upper, lower, 0.0)
    assert ends[0, 1] - ends[0, 0] <= kernel.POINTS_MAX
    assert points[0, 0, ends[0, 1] - 1] == xs[-1]
    kept = points[0, 0, ends[0, 0] : ends[0, 1]]
    assert set(kept) <= set(xs)
    assert (np.diff(kept) > 0).all()


def test_the_same_without_compilation() -> None:
    if os.environ.get("NUMBA_DISABLE_JIT") == "1":
        pytest.skip("this is that run")
    ran = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            str(REPO / "tests/naive/test_feasible.py"),
        ],
        env={**os.environ, "NUMBA_DISABLE_JIT": "1"},
        cwd=REPO,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout[-2000:]
