"""Broken traces of every kind: batches, or a line that says why not; never anything else."""

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from schemas.errors import MalformedInput
from tests.gpu_traces import archive, batches, job, raw

SEED = 20_240_117
WHOLE = {rank: raw(job(rank, 2)) for rank in (0, 1)}
EVENTS = 14  # of each rank
ODD: list[Any] = [
    None, True, -1, 0, 2**31, 2**63, 2**64, -(2**63), 1e300, 1.5, float("nan"), float("inf"), "", "x", "7",
    "\ud800", "\0", "stream 7", "stream x", [], [1], {}, {"a": 1}, "[0, 1", "[0, ...]", "[" * 5_000, 10**400,
]  # fmt: skip


def outcome(tmp_path: Path, name: str, data: bytes) -> int:
    """Read a broken rank beside a whole one; its events. The whole one must come through all the same."""
    (tmp_path / "whole.json").write_bytes(WHOLE[0])
    (tmp_path / name).write_bytes(data)
    found, report = batches(tmp_path)
    assert sum(batch.count for batch in found if batch.family == "gpu") == report.events
    assert report.events >= EVENTS
    if report.files == 1:
        assert len(report.warnings) == 1
        assert report.events == EVENTS
    return report.events - EVENTS


@pytest.mark.parametrize("kind", ["json", "json.gz", "tar.gz"])
def test_cut_at_any_byte(kind: str, tmp_path: Path) -> None:
    plain = WHOLE[1]
    data = {"json": plain, "json.gz": gzip.compress(plain, mtime=0), "tar.gz": archive({"r.json": plain})}[
        kind
    ]
    step = max(1, len(data) // 150)
    for size in [*range(0, len(data), step), *range(len(data) - 12, len(data))]:
        assert outcome(tmp_path, f"b.{kind}", data[:size]) in (0, EVENTS)
    assert outcome(tmp_path, f"b.{kind}", data) == EVENTS


@pytest.mark.parametrize("kind", ["json", "json.gz", "tar.gz"])
def test_bytes_changed_at_random(kind: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(SEED)
    plain = WHOLE[1]
    data = {"json": plain, "json.gz": gzip.compress(plain, mtime=0), "tar.gz": archive({"r.json": plain})}[
        kind
    ]
    for _ in range(150):
        broken = bytearray(data)
        for at in rng.integers(0, len(data), rng.integers(1, 4)):
            broken[at] = rng.integers(0, 256)
        assert outcome(tmp_path, f"b.{kind}", bytes(broken)) <= EVENTS + 1


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in a JSON value."""
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(each for key, item in inside for each in places(item, (*path, key)))]


@pytest.mark.parametrize("seed", range(4))
def test_values_replaced_by_odd_ones(seed: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(SEED + seed)
    every = places(job(1, 2))[1:]
    for _ in range(250):
        content = job(1, 2)
        for at in rng.integers(0, len(every), rng.integers(1, 5)):
            *path, last = every[at]
            inner: Any = content
            for key in path:
                inner = inner[key] if _has(inner, key) else {}
            if _has(inner, last):
                inner[last] = ODD[rng.integers(0, len(ODD))]
        assert outcome(tmp_path, "b.json", raw(content)) <= EVENTS + 1  # the span may become an event


def _has(inner: Any, key: Any) -> bool:
    if isinstance(inner, list):
        return isinstance(key, int) and key < len(inner)
    return isinstance(inner, dict) and key in inner


def test_keys_given_twice_count_by_the_last(tmp_path: Path) -> None:
    text = WHOLE[1].decode().replace('"ph": "X"', '"ph": "B", "ph": "X"')
    assert outcome(tmp_path, "b.json", text.encode()) == EVENTS


def test_events_in_any_order_are_the_same_events(tmp_path: Path) -> None:
    rng = np.random.default_rng(SEED)
    content = job(1, 2)
    (tmp_path / "whole.json").write_bytes(WHOLE[0])
    (tmp_path / "b.json").write_bytes(raw(content))
    _, want = batches(tmp_path)
    for _ in range(20):
        content["traceEvents"] = [content["traceEvents"][at] for at in rng.permutation(17)]
        (tmp_path / "b.json").write_bytes(raw(content))
        _, report = batches(tmp_path)
        assert (report.events, report.skipped, report.facts) == (want.events, want.skipped, want.facts)


@pytest.mark.parametrize("size", [0, 1, 2, 3, 10, 511, 512, 513, 5_000])
def test_noise_alone_is_an_error_that_says_so(size: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(SEED + size)
    for head in (b"", b"\x1f\x8b", b"\x1f\x8b\x08\x00", b"{", b"[", b'{"traceEvents": ['):
        (tmp_path / "t.json").write_bytes(head + rng.bytes(size))
        with pytest.raises(MalformedInput, match=r"t\.json"):
            batches(tmp_path)


def test_the_bare_list_and_json_with_a_mark_are_traces(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_bytes(b"\xef\xbb\xbf" + json.dumps(job(1)["traceEvents"]).encode())
    _, report = batches(tmp_path)
    assert (report.events, len(report.warnings)) == (EVENTS, 1)
