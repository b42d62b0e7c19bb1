"""Each compiled kernel against its naive twin. `test_without_jit` runs this file again with the compiler off."""

import os
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streams.kernels import match, repair, rows
from streams.kernels.relax import relax
from tests.naive import kernels as naive
from tests.paths import REPO

JIT_OFF = os.environ.get("NUMBA_DISABLE_JIT") == "1"
quick = settings(max_examples=60 if JIT_OFF else 200, deadline=None, derandomize=True)
SEEDS = st.integers(0, 2**32 - 1)


@quick
@given(SEEDS)
def test_take_rows(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n, entries = int(rng.integers(0, 30)), int(rng.integers(1, 5))
    source = rng.integers(0, entries, n).astype(np.uint16)
    raw_dt = rng.choice([0, 1, 2**32 - 1, 12345], n).astype(np.uint32)
    first, base = rng.integers(0, 2**40, entries), rng.integers(-(2**61), 2**61, entries)
    skip = first + rng.integers(-2, 6, entries)
    ref, tai = base + rng.integers(-(10**12), 10**12, entries), rng.integers(0, 2**61, entries)
    rate = rng.choice([0.0, 3.1e-5, -1e-7], entries)
    seq, time, keep = np.empty(n, np.int64), np.empty(n, np.int64), np.empty(n, np.bool_)
    with np.errstate(over="ignore"):
        new = rows.take_rows(source, raw_dt, first, skip, base, ref, tai, rate, seq, time, keep)
    raw = [int(base[s]) + int(dt) for s, dt in zip(source, raw_dt, strict=True)]
    line = list(zip(ref.tolist(), tai.tolist(), rate.tolist(), strict=True))
    expected = naive.take_rows(source.tolist(), raw, first.tolist(), skip.tolist(), line)
    assert list(zip(seq.tolist(), time.tolist(), keep.tolist(), strict=True)) == expected
    assert new == sum(each[2] for each in expected)


@quick
@given(st.lists(st.integers(0, 6), max_size=40))
def test_stable_by(ranks: list[int]) -> None:
    order, start = rows.stable_by(np.array(ranks, np.int32), 7)
    assert order.tolist() == sorted(range(len(ranks)), key=lambda i: ranks[i])
    assert start.tolist() == [sum(rank < k for rank in ranks) for k in range(8)]


@quick
@given(SEEDS)
def test_raise_windows(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n, sources = int(rng.integers(0, 30)), int(rng.integers(1, 5))
    source, window = rng.integers(0, sources, n).astype(np.int32), rng.integers(-5, 5, n)
    ordered, last = rng.random(sources) < 0.6, rng.integers(-6, 4, sources)
    expected = naive.raise_windows(source.tolist(), ordered.tolist(), last.tolist(), window.tolist())
    rows.raise_windows(source, ordered, last, window)
    assert (window.tolist(), last.tolist()) == expected


@quick
@given(
    st.lists(st.tuples(st.sampled_from([0, 1, 7, 2**63, 2**64 - 1]) | st.integers(0, 40), st.integers(0, 2)))
)
def test_group_ids(pairs: list[tuple[int, int]]) -> None:
    key, kind = np.array([p[0] for p in pairs], np.uint64), np.array([p[1] for p in pairs], np.uint8)
    size = 16
    while size < 2 * len(pairs):
        size *= 2
    with np.errstate(over="ignore"):
        ids, groups = match.group_ids(key, kind, np.full(size, -1, np.int64))
    assert (ids.tolist(), groups) == naive.group_ids([p[0] for p in pairs], [p[1] for p in pairs])


@quick
@given(SEEDS)
def test_touched(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n, wanted = int(rng.integers(0, 30)), int(rng.integers(0, 8))
    pool = np.array([0, 1, 2, 2**63, 2**64 - 1], np.uint64)
    key, kind = pool[rng.integers(0, 5, n)], rng.integers(0, 3, n).astype(np.uint8)
    wanted_key, wanted_kind = pool[rng.integers(0, 5, wanted)], rng.integers(0, 3, wanted).astype(np.uint8)
    out = np.empty(n, np.bool_)
    with np.errstate(over="ignore"):
        found = match.touched(key, kind, wanted_key, wanted_kind, np.full(16, -1, np.int64), out)
    pairs = set(zip(wanted_key.tolist(), wanted_kind.tolist(), strict=True))
    assert out.tolist() == [pair in pairs for pair in zip(key.tolist(), kind.tolist(), strict=True)]
    assert found == out.sum()


def layout(rng: np.random.Generator) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Starts of a few groups of a few members, some empty."""
    return np.concatenate(([0], np.cumsum(rng.integers(0, 6, rng.integers(0, 6))))).astype(np.int64)


@quick
@given(SEEDS)
def test_pairs(seed: int) -> None:
    rng = np.random.default_rng(seed)
    start = layout(rng)
    role, join = rng.integers(0, 3, start[-1]).astype(np.uint8), rng.random(len(start) - 1) < 0.3
    total = match.count_pairs(start, role, join)
    cause, effect = np.empty(total, np.int64), np.empty(total, np.int64)
    match.list_pairs(start, role, join, cause, effect)
    expected = naive.list_pairs(start.tolist(), role.tolist(), join.tolist())
    assert list(zip(cause.tolist(), effect.tolist(), strict=True)) == expected


@quick
@given(SEEDS)
def test_best_causes(seed: int) -> None:
    rng = np.random.default_rng(seed)
    start = layout(rng)
    n = int(start[-1])
    shape, root = rng.integers(0, 4, len(start) - 1), rng.random(n) < 0.3
    value, tie = rng.integers(-3, 3, n), rng.permutation(n)
    best = np.empty(n, np.int64)
    match.best_causes(start, shape, root, value, tie, best)
    assert best.tolist() == naive.best_causes(
        start.tolist(), shape.tolist(), root.tolist(), value.tolist(), tie.tolist()
    )


@quick
@given(SEEDS, st.booleans())
def test_forward(seed: int, acyclic: bool) -> None:
    rng = np.random.default_rng(seed)
    n = int(rng.integers(0, 9))
    duration, chain = rng.integers(0, 5, n), rng.integers(0, 3, n).astype(np.int8)
    chain[:1] = 0
    lower = rng.integers(-10, 30, 2 * n)
    edges, joins = [], []
    if n > 1:
        for _ in range(rng.integers(0, 8)):
            a, b = rng.integers(0, 2 * n, 2).tolist()
            if a // 2 != b // 2 and (a < b or not acyclic):
                edges.append((a, b))
        for _ in range(rng.integers(0, 3)):
            size = int(rng.integers(2, n + 1))
            some = (rng.permutation(n)[:size]).tolist()
            half = max(some) if acyclic else -1
            # Without cycles: effects are rows that follow all causes in the numbering.
            joins.append(
                [(2 * r if r < half or not acyclic else -1, 2 * r + 1 if r >= half else -1) for r in some]
            )
    members = [member for join in joins for member in join]
    const = np.where(rng.random(len(joins)) < 0.3, rng.integers(0, 40, len(joins)), naive.LEAST)
    found = naive.constraints(duration.tolist(), chain.tolist(), edges, joins)
    start = lower.tolist()
    for join, constant in zip(joins, const.tolist(), strict=True):
        for _, effect in join:
            if effect >= 0 and constant != naive.LEAST:
                start[effect] = max(start[effect], constant + 1)
    expected = naive.forward(start, found)
    arguments = (
        lower, duration, chain,
        np.array([a for a, _ in edges], np.int64), np.array([b for _, b in edges], np.int64),
        np.cumsum([0, *map(len, joins)]), np.array([m[0] for m in members], np.int64),
        np.array([m[1] for m in members], np.int64), const,
    )  # fmt: skip
    raised, done = relax(*arguments)
    assert done == (expected is not None)
    if done:
        assert raised.tolist() == expected
    value, given_up = repair.forward(*arguments)
    if expected is not None:
        assert (value.tolist(), given_up) == (expected, 0)
        return
    # A cycle: the pass ends, says that edges were given up, and keeps all that does not lie on one.
    assert (value >= lower).all()
    assert given_up > 0
    reach = _reachable(2 * n, found)
    broken = [(a, b, gap) for a, b, gap in found if value[b] < value[a] + gap]
    inner = naive.constraints(duration.tolist(), chain.tolist(), [], [])
    assert all(a in reach[b] for a, b, _ in broken)
    assert all(value[b] >= value[a] + gap for a, b, gap in inner)


def _reachable(nodes: int, found: list[tuple[int, int, int]]) -> list[set[int]]:
    """Points that depend on each point."""
    out = [{k} for k in range(nodes)]
    for _ in range(nodes):
        for a, b, _gap in found:
            out[a] |= out[b]
    return out


@pytest.mark.skipif(JIT_OFF, reason="this is the run without the compiler")
def test_without_jit() -> None:
    environment = os.environ | {"NUMBA_DISABLE_JIT": "1"}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/naive/test_kernels.py"]
    done = subprocess.run(command, cwd=REPO, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-4000:]
