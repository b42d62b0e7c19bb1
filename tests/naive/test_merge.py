"""The merge against the naive merge, on small worlds. A failing world is named by its seed."""

from dataclasses import replace

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from streams.causality import release
from streams.causality.settings import MergeSettings
from tests.naive.compare import by_merge, by_naive, run
from tests.naive.measured_worlds import MeasuredWorld
from tests.naive.window import Cyclic
from tests.naive.worlds import MS, World


def options(seed: int) -> MergeSettings:
    """Settings as small as the worlds; they too depend on the seed."""
    return MergeSettings(
        window_ns=(1, 4, 10, 25)[seed % 4] * MS,
        join_grace_ms=15,
        idle_after_ms=30,
        skew_max_ns=100 * MS,
        bound_cap_ns=(0, 2, 5)[seed % 3] * MS,
        edge_ttl_ns=(20, 3_000)[seed % 2] * MS,
        scope_ttl_ms=(60, 3_600_000)[seed % 5 > 0],
        rows_held_max=(9, 4_000_000)[seed % 7 > 0],
    )


@settings(max_examples=150, deadline=None, derandomize=True)
@given(st.integers(0, 2**32 - 1))
def test_the_merge_agrees_with_the_naive_merge(seed: int) -> None:
    log = World(seed).write()
    try:
        expected = by_naive(options(seed), log)
    except Cyclic:
        assume(False)
    outputs, task = run(options(seed), log.records())
    assert by_merge(outputs, task.counters()) == expected, f"seed {seed}"


@settings(max_examples=40, deadline=None, derandomize=True)
@given(st.integers(0, 2**32 - 1))
def test_the_linear_repair_agrees_too(seed: int) -> None:
    """The pass that takes over where raising point by point would take long, used for every window."""
    log = World(seed).write()
    try:
        expected = by_naive(options(seed), log)
    except Cyclic:
        assume(False)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(release, "relax", lambda lower, *rest: (lower, False))
        outputs, task = run(options(seed), log.records())
    assert by_merge(outputs, task.counters()) == expected, f"seed {seed}"


@settings(max_examples=150, deadline=None, derandomize=True)
@given(st.integers(0, 2**32 - 1))
def test_the_merge_agrees_where_clocks_are_measured(seed: int) -> None:
    log = MeasuredWorld(seed).write()
    mine = replace(
        options(seed),
        clock_drift_ppb=(50_000.0, 5e6)[seed % 2],
        clock_void_after_s=(0.02, 1_000.0)[seed % 3 > 0],
    )
    try:
        expected = by_naive(mine, log)
    except Cyclic:
        assume(False)
    outputs, task = run(mine, log.records())
    assert by_merge(outputs, task.counters()) == expected, f"seed {seed}"
