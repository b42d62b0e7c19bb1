"""Each fast part of paths beside ten obvious lines."""

import itertools
import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streams.paths import maxmin, null
from streams.paths.hashing import CRCS, crc
from streams.paths.maxmin import Paths, complete, fair_rates

QUICK = settings(max_examples=60, deadline=None)


def crc_by_bits(kind: str, data: bytes) -> int:
    spec = CRCS[kind]
    value, top, mask = spec.init, 1 << (spec.width - 1), (1 << spec.width) - 1
    for byte in data:
        bits = f"{byte:08b}"
        for bit in reversed(bits) if spec.reflected else bits:
            out = bool(value & top) != (bit == "1")
            value = (value << 1) & mask
            if out:
                value ^= spec.poly
    if spec.reflected:
        value = int(f"{value:0{spec.width}b}"[::-1], 2)
    return value ^ spec.final


@QUICK
@given(kind=st.sampled_from(sorted(CRCS)), data=st.binary(min_size=1, max_size=40))
def test_crc(kind: str, data: bytes) -> None:
    assert crc_by_bits(kind, data) == int(crc(kind, np.frombuffer(data, np.uint8)[None])[0])


def distribution(keys: int, links: int) -> dict[int, float]:
    """Chance of each S·L/2, by going through all placements."""
    out: Counter[int] = Counter()
    for placement in itertools.product(range(links), repeat=keys):
        load = Counter(placement)
        out[sum(abs(load[link] * links - keys) for link in range(links)) // 2] += 1
    return {value: count / links**keys for value, count in out.items()}


@pytest.mark.parametrize(
    ("keys", "links"), [(1, 2), (2, 2), (5, 2), (3, 3), (7, 3), (6, 4), (5, 5), (2, 6), (9, 2)]
)
def test_exact_distribution(keys: int, links: int) -> None:
    expected = distribution(keys, links)
    found = null.exact_sum(keys, links)
    assert sorted(expected) == np.flatnonzero(found > 1e-15).tolist()
    for value, chance in expected.items():
        assert math.isclose(found[value], chance, rel_tol=1e-9)
    mean = sum(value * chance for value, chance in expected.items()) * 2 / links
    square = sum((value * 2 / links) ** 2 * chance for value, chance in expected.items())
    assert math.isclose(links * null.mean_deviation(keys, 1 / links), mean, rel_tol=1e-9)
    assert math.isclose(null.sum_variance(keys, links), square - mean**2, rel_tol=1e-9, abs_tol=1e-12)


@QUICK
@given(keys=st.integers(1, 300), links=st.integers(2, 40))
def test_moments_and_distribution_agree(keys: int, links: int) -> None:
    chance = null.exact_sum(keys, links)
    at = np.arange(len(chance)) * 2 / links
    assert math.isclose(float(chance @ at), links * null.mean_deviation(keys, 1 / links), rel_tol=1e-8)
    spread = float(chance @ (at - chance @ at) ** 2)
    assert math.isclose(spread, null.sum_variance(keys, links), rel_tol=1e-6, abs_tol=1e-9)


def fill_step_by_step(on: list[dict[int, float]], capacity: list[float]) -> list[float]:
    """Max-min fair rates: raise all together to the next full link, stop its flows, go on."""
    rate = [0.0] * len(on)
    open_ = {f for f, links in enumerate(on) if links}
    left = list(capacity)
    while open_:
        want = [sum(on[f].get(link, 0.0) for f in open_) for link in range(len(capacity))]
        step = min(left[k] / want[k] for k in range(len(capacity)) if want[k] > 0)
        full = {k for k in range(len(capacity)) if want[k] > 0 and left[k] / want[k] <= step * (1 + 1e-9)}
        for f in open_:
            rate[f] += step
        left = [left[k] - step * want[k] for k in range(len(capacity))]
        open_ = {f for f in open_ if not full & set(on[f])}
    return rate


def run_step_by_step(on: list[dict[int, float]], capacity: list[float], size: list[float]) -> list[float]:
    """When each flow ends, with rates made anew at every end."""
    left, end, now = list(size), [0.0] * len(on), 0.0
    live = {f for f in range(len(on)) if size[f] > 0}
    while live:
        rate = fill_step_by_step([links if f in live else {} for f, links in enumerate(on)], capacity)
        step = min(left[f] / rate[f] for f in live)
        now += step
        for f in list(live):
            left[f] -= rate[f] * step
            if left[f] <= 1e-9 * size[f]:
                end[f] = now
                live.remove(f)
    return end


@st.composite
def networks(draw: st.DrawFn) -> tuple[list[dict[int, float]], list[float], list[float]]:
    links = draw(st.integers(1, 7))
    share = st.sampled_from([1.0, 1.0, 1.0, 0.5, 0.25])
    one = st.dictionaries(st.integers(0, links - 1), share, min_size=1, max_size=4)
    on = draw(st.lists(one, min_size=1, max_size=12))
    capacity = draw(st.lists(st.sampled_from([1.0, 2.0, 3.5, 10.0]), min_size=links, max_size=links))
    size = draw(st.lists(st.sampled_from([1.0, 2.0, 5.0, 7.25]), min_size=len(on), max_size=len(on)))
    return on, capacity, size


def as_paths(on: list[dict[int, float]]) -> Paths:
    rows = [(f, link, share) for f, links in enumerate(on) for link, share in links.items()]
    flow, link, share = (np.array(column) for column in zip(*rows, strict=True))
    return Paths(flow.astype(np.int32), link.astype(np.int32), share.astype(np.float64))


@settings(max_examples=200, deadline=None)
@given(networks())
def test_max_min(network: tuple[list[dict[int, float]], list[float], list[float]]) -> None:
    on, capacity, _ = network
    rate, limit = fair_rates(as_paths(on), len(on), np.array(capacity))
    assert np.allclose(fill_step_by_step(on, capacity), rate, rtol=1e-7)
    load = np.zeros(len(capacity))
    for f, links in enumerate(on):
        for link, share in links.items():
            load[link] += share * rate[f]
    assert (load <= np.array(capacity) * (1 + 1e-9)).all()
    # Every flow names a link that is full.
    at = as_paths(on).link[limit]
    assert np.allclose(load[at], np.array(capacity)[at])


@settings(max_examples=100, deadline=None)
@given(networks())
def test_completion(network: tuple[list[dict[int, float]], list[float], list[float]]) -> None:
    on, capacity, size = network
    found = complete(as_paths(on), np.array(size), np.array(capacity))
    expected = run_step_by_step(on, capacity, size)
    assert np.allclose(expected, found.by_flow, rtol=1e-6)
    bytes_ = np.zeros(len(capacity))
    for f, links in enumerate(on):
        for link, share in links.items():
            bytes_[link] += share * size[f]
    assert math.isclose(found.bound, float((bytes_ / capacity).max()), rel_tol=1e-12)
    assert found.seconds >= found.bound * (1 - 1e-9)
    slower = complete(as_paths(on), np.array(size), np.array(capacity), paused=True)
    assert slower.seconds >= found.bound * (1 - 1e-9)


@QUICK
@given(networks())
def test_pauses_only_slow_down(network: tuple[list[dict[int, float]], list[float], list[float]]) -> None:
    on, capacity, _ = network
    paths = as_paths(on)
    fair, _ = fair_rates(paths, len(on), np.array(capacity))
    paused = maxmin.paused_rates(paths, len(on), np.array(capacity))
    assert (paused <= fair * (1 + 1e-9)).all()
    assert (paused > 0).all()
