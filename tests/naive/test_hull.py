"""The feasible set of a clock's offset against every corner of its linear program, and against the truth."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.errors import Usage
from streams.clock.hull import Constraints, Hull, Limits, cone, of_probes, two_way
from tests.naive.feasible import cones, corners

NS = 1_000_000_000
T0 = 1_796_099_200_000_000_000


def exchanges(seed: int, n: int, drift: float, wander: float) -> tuple[Constraints, np.ndarray, np.ndarray]:
    """Constraints of a clock within these limits, its readings and true offsets there (dense)."""
    rng = np.random.default_rng(seed)
    period = 60.0
    swing = wander / (2 * math.pi / period) ** 2
    rate = (drift - swing * 2 * math.pi / period) * rng.uniform(-1, 1)

    def offset(x: np.ndarray) -> np.ndarray:
        return 5e6 + rate * x + swing * np.sin(2 * math.pi * x / period)

    sent = np.sort(rng.uniform(0, 30, n))
    delays = rng.exponential(20_000.0, (2, n)).astype(np.int64) + 3_000
    t2 = T0 + (sent * NS).astype(np.int64)
    t1 = t2 - np.rint(offset(sent)).astype(np.int64) - delays[0]
    back = sent + 0.01
    t3 = T0 + (back * NS).astype(np.int64)
    t4 = t3 - np.rint(offset(back)).astype(np.int64) + delays[1]
    x = np.linspace(-1, 32, 200)
    return two_way(t1, t2, t3, t4), T0 + (x * NS).astype(np.int64), offset(x)


def points(x: np.ndarray, y: np.ndarray, base: int) -> list[tuple[float, float]]:
    return [(float(a - T0) / NS, float(b - base)) for a, b in zip(x, y, strict=True)]


@given(st.integers(0, 2**32), st.integers(1, 9), st.sampled_from([0.0, 5.0, 300.0]), st.floats(-3, 34))
def test_the_hull_is_the_linear_program(seed: int, n: int, wander: float, at_s: float) -> None:
    drift = 60_000.0
    made, _, _ = exchanges(seed, n, drift, wander)
    hull = Hull(Limits(drift, wander, 1000.0))
    for k in range(n):
        assert hull.add(int(made.high_at[k]), int(made.high[k]), int(made.low_at[k]), int(made.low[k]))
    base = int(made.high[0])
    highs, lows = points(made.high_at, made.high, base), points(made.low_at, made.low, base)
    at = T0 + round(at_s * NS)
    t = (at - T0) / NS
    by_corners = corners(highs, lows, t, drift, wander)
    assert by_corners is not None
    by_cones = cones(highs, lows, t, drift)
    found = hull.interval(at)
    assert found is not None
    assert found.low - base == pytest.approx(max(by_corners[0], by_cones[0]), abs=0.05)
    assert found.high - base == pytest.approx(min(by_corners[1], by_cones[1]), abs=0.05)


@given(st.integers(0, 2**32), st.integers(1, 40))
def test_the_cone_is_the_narrowest_of_all_constraints(seed: int, n: int) -> None:
    made, x, truth = exchanges(seed, n, 50_000.0, 100.0)
    low, high = cone(made, x, 50_000.0)
    highs, lows = points(made.high_at, made.high, 0), points(made.low_at, made.low, 0)
    for k in range(0, len(x), 17):
        expected = cones(highs, lows, float(x[k] - T0) / NS, 50_000.0)
        assert (low[k], high[k]) == pytest.approx(expected, abs=0.05)
    assert (low <= truth + 1).all()
    assert (truth - 1 <= high).all()


@given(st.integers(0, 2**32), st.integers(1, 60), st.sampled_from([None, 100.0, 400.0]))
def test_the_truth_is_always_inside(seed: int, n: int, wander: float | None) -> None:
    made, x, truth = exchanges(seed, n, 50_000.0, 100.0)
    hull = Hull(Limits(50_000.0, wander, 8.0))  # a window that drops constraints on the way
    for k in range(n):
        assert hull.add(int(made.high_at[k]), int(made.high[k]), int(made.low_at[k]), int(made.low[k]))
    for at, offset in zip(x[::9].tolist(), truth[::9].tolist(), strict=True):
        found = hull.interval(at)
        assert found is not None
        assert found.low - 1 <= offset <= found.high + 1


def test_a_declared_wander_narrows() -> None:
    made, x, _ = exchanges(1, 60, 50_000.0, 50.0)
    wide, narrow = Hull(Limits(50_000.0)), Hull(Limits(50_000.0, 50.0))
    for k in range(60):
        exchange = int(made.high_at[k]), int(made.high[k]), int(made.low_at[k]), int(made.low[k])
        assert wide.add(*exchange)
        assert narrow.add(*exchange)
    ends = [hull.interval(int(x[-1])) for hull in (wide, narrow)]
    assert ends[0] is not None
    assert ends[1] is not None
    assert ends[1].half < 0.5 * ends[0].half
    assert ends[1].slope_high - ends[1].slope_low < 0.1 * 2 * 50_000.0


@pytest.mark.parametrize("wander", [None, 10.0])
def test_after_a_long_silence_only_what_is_new_is_kept(wander: float | None) -> None:
    hull = Hull(Limits(50_000.0, wander, 10.0))
    for k in range(64):
        assert hull.add(T0 + k, 100, T0 + k, -100)
    assert hull.add(T0 + 1000 * NS, 300, T0 + 1000 * NS, -100)
    found = hull.interval(T0 + 1000 * NS)
    assert found is not None
    assert (found.low, found.high) == pytest.approx((-100, 300))


def test_a_step_contradicts() -> None:
    hull = Hull(Limits(50_000.0))
    assert hull.add(T0, 10_000, T0, -10_000)
    assert hull.add(T0 + NS, 20_000, T0 + NS, 0)
    assert not hull.add(T0 + 2 * NS, 10_000_000, T0 + 2 * NS, 9_990_000)


def test_probes_both_ways_bound_a_pair_of_clocks() -> None:
    # b is 700 ahead of a; one probe takes 30 one way, the other 50.
    made = of_probes(np.array([1000]), np.array([1730]), np.array([2700]), np.array([2050]))
    assert [int(part[0]) for part in made] == [1730, 730, 2700, 650]


def test_nothing_said_is_nothing_known() -> None:
    hull = Hull(Limits())
    found = hull.interval(5)
    assert found is not None
    assert (found.low, found.high) == (-math.inf, math.inf)
    assert hull.add(5, None, 5, None)
    assert hull.add(5, 100, 5, None)
    found = hull.interval(5)
    assert found is not None
    assert (found.low, found.high) == (-math.inf, 100)


@pytest.mark.parametrize(
    "wrong",
    [
        {"drift_ppb": 0.0},
        {"drift_ppb": 1e9},
        {"wander_ppb_s": -1.0},
        {"wander_ppb_s": math.inf},
        {"window_s": math.nan},
    ],
)
def test_limits_that_cannot_be_meant(wrong: dict[str, float]) -> None:
    with pytest.raises(Usage):
        Limits(**wrong)
