"""The statistical window: order statistics by blocks, and the formulae of others by hand."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streams.clock import window as w


def test_too_little_history_is_the_hard_bound_and_says_so() -> None:
    tail = w.Tail.empty()
    for size in range(9_999):
        tail.add(float(size))
    assert tail.bound(77.0) == w.Bound(77.0, None, 9_999)
    tail.add(3.0)
    assert tail.bound(1e9) == w.Bound(9_998 + w.MARGIN * 9_997, 1e-4, 10_000)


def test_the_constant_part_is_added_and_the_hard_bound_is_never_exceeded() -> None:
    tail = w.Tail.empty()
    for _ in range(10_000):
        tail.add(100.0)
    assert tail.bound(1000.0, 40.0).bound_ns == pytest.approx(155.0)
    assert tail.bound(155.1, 40.0).epsilon == 1e-4
    assert tail.bound(154.9, 40.0) == w.Bound(154.9, None, 10_000)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**32), st.sampled_from([10_000, 10_400, 25_000, 50_999, 100_000, 131_072]))
def test_blocks_keep_the_order_statistic(seed: int, samples: int) -> None:
    sizes = np.random.default_rng(seed).exponential(1.0, samples)
    tail = w.Tail.empty()
    for size in sizes.tolist():
        tail.add(size)
    blocks, rank = max(rung for rung in w.RUNGS if rung[0] * w.BLOCK <= samples)
    full = samples // w.BLOCK * w.BLOCK
    used = sizes[full - blocks * w.BLOCK :]
    found = tail.bound(1e9)
    ranked = np.sort(used)
    assert found.bound_ns == pytest.approx(ranked[-rank] + w.MARGIN * ranked[-rank - 1])
    assert found.epsilon == w.EPSILON
    assert w.rung(samples) == (blocks * w.BLOCK, rank)


def test_fbclock_by_hand() -> None:
    rng = np.random.default_rng(5)
    series = rng.normal(0, 50, (3, 300))
    expected = []
    for row in series:
        m = [abs(row[k - 99 : k + 1].mean()) + row[k - 99 : k + 1].std() for k in range(200, 300)]
        expected.append(np.mean(m) + 4 * np.std(m))
    assert w.fbclock(series) == pytest.approx(np.array(expected))
    assert w.fbclock(series, 25.0) == pytest.approx(np.array(expected) + 25)


def test_clockbound_by_hand() -> None:
    found = w.clockbound(np.array([-30.0, 10.0]), np.array([100.0, 40.0]), 5.0, 50_000.0, 2.0)
    assert found.tolist() == [30 + 5 + 50 + 100_000, 10 + 5 + 20 + 100_000]
