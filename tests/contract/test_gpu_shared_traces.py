"""Real profiler traces, read in place, with the figures that are known of them."""

from collections import Counter, defaultdict
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from producers.gpu.read import KinetoReport
from schemas import columns as c
from schemas.batch import Batch
from tests.gpu_traces import batches, endpoints, rows
from tests.paths import shared_data

Found = tuple[list[Batch], KinetoReport]
SKIPPED_8 = {"phase f": 4_281, "phase s": 2_116, "phase M": 336, "profiler span": 8, "phase i": 16}


def kineto(name: str) -> Path:
    return shared_data("gpu", "kineto", name)


@pytest.fixture(scope="module")
def eight() -> Found:
    return batches(kineto("dlrm_8ranks.tar.gz"))


def collectives(found: Found) -> list[list[dict[str, Any]]]:
    """Members of each collective in order of rank; collectives in order of their last end."""
    joins: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for each in endpoints(found[0]):
        if each["kind"] == c.EdgeKind.COLLECTIVE:
            joins[each["key"]].append(each)
    members = [sorted(join, key=lambda each: int(each["rank"])) for join in joins.values()]
    return sorted(members, key=lambda join: max(int(each["end_ns"]) for each in join))


def test_eight_ranks_rows_and_sources(eight: Found) -> None:
    found, report = eight
    assert (report.files, report.ranks, report.events, report.warnings) == (8, 8, 19_781, [])
    assert report.skipped == SKIPPED_8
    assert found[1].table_len("src") == 48
    assert Counter(found[1].data["src_rank"].tolist()) == dict.fromkeys(range(8), 6)
    by_rank = Counter(source.split("/")[0] for source, *_ in rows(found))
    assert [by_rank[f"rank{rank}"] for rank in range(8)] == [2459, 2526, 2448, 2551, 2469, 2439, 2450, 2439]
    times = [ns for _, _, ns, _ in rows(found)]
    assert times == sorted(times)
    assert set(found[1].data["clk_quantum_ns"].tolist()) == {1_000}


def test_eight_ranks_launches(eight: Found) -> None:
    causes: Counter[int] = Counter()
    effects: Counter[int] = Counter()
    unlaunched: Counter[int] = Counter()
    begin = {}
    ends = [each for each in endpoints(eight[0]) if each["kind"] == c.EdgeKind.LAUNCH]
    for each in ends:
        side = causes if each["role"] == c.Role.CAUSE else effects
        side[each["key"]] += 1
        begin[each["role"], each["key"]] = each["begin_ns"]
    assert set(causes.values()) == set(effects.values()) == {1}
    both = causes.keys() & effects.keys()
    assert (len(both), len(causes), len(effects)) == (2_116, 2_116, 2_244)
    for each in ends:
        if each["role"] == c.Role.EFFECT and each["key"] not in both:
            unlaunched[each["rank"]] += 1
    assert unlaunched == {1: 64, 3: 64}
    assert all(begin[c.Role.EFFECT, key] >= begin[c.Role.CAUSE, key] for key in both)
    assert eight[1].facts["launches matched"] == 2_116
    assert eight[1].facts["device work without launch"] == 128


def test_eight_ranks_collectives(eight: Found) -> None:
    joins = collectives(eight)
    assert [[each["rank"] for each in join] for join in joins] == [list(range(8))] * 8
    assert {(each["size"], each["flags"], each["point"]) for join in joins for each in join} == {
        (8, c.ENDPOINT_ASSUMED, c.Point.BOTH)
    }
    a2a, reduce = c.Op.ALL_TO_ALL, c.Op.ALL_REDUCE
    assert [{each["op"] for each in join} for join in joins] == [
        {op} for op in (a2a, a2a, a2a, a2a, reduce, a2a, reduce, reduce)
    ]
    assert eight[1].facts["collective kernels matched"] == 64


def test_eight_ranks_first_all_to_all(eight: Found) -> None:
    first = collectives(eight)[0]
    waited_us = [(each["end_ns"] - each["begin_ns"]) // 1_000 for each in first]
    assert (waited_us[7], min(waited_us)) == (10, 10)
    assert (waited_us[1], max(waited_us)) == (7_635, 7_635)
    last = max(first, key=lambda each: int(each["begin_ns"]))
    assert last["rank"] == 7
    ends = [each["end_ns"] for each in first]
    assert max(ends) - min(ends) == 2_000


def test_eight_ranks_device_waits(eight: Found) -> None:
    sync = [each for each in endpoints(eight[0]) if each["kind"] == c.EdgeKind.SYNC]
    ends: dict[int, int] = {each["key"]: each["end_ns"] for each in sync if each["role"] == c.Role.EFFECT}
    assert len(ends) == 8
    slack_us = defaultdict(list)
    for each in sync:
        if each["role"] == c.Role.CAUSE:
            slack_us[each["rank"]].append((ends[each["key"]] - each["end_ns"]) // 1_000)
    least = sorted(min(slacks) for slacks in slack_us.values())
    assert (least[0], least[-1]) == (143, 166)


def violations(joins: list[list[dict[str, Any]]], allowed_ns: int) -> set[tuple[int, int, int]]:
    """(cause's rank, effect's rank, place) of the pairs whose gap no error of the clocks explains."""
    return {
        (one["rank"], other["rank"], place)
        for place, join in enumerate(joins)
        for one in join
        for other in join
        if one is not other and other["end_ns"] - one["begin_ns"] < -allowed_ns
    }


@pytest.mark.parametrize(("offset_us", "pairs"), [(0, 0), (-50, 6), (50, 0)])
def test_eight_ranks_what_a_shifted_clock_contradicts(offset_us: int, pairs: int) -> None:
    """Two claimed bounds of 1 µs, half a step of a begin, and both steps' halves of an end."""
    path = kineto("dlrm_8ranks.tar.gz")
    found = batches(path, clock_bound_ns=1_000, clock_offset_ns={"3": offset_us * 1_000})
    joins = collectives(found)
    allowed_ns = 2 * 1_000 + 500 + 1_000
    bad = violations(joins, allowed_ns)
    assert len(bad) == pairs
    if pairs:
        assert {effect for _, effect, _ in bad} == {3}
        assert {cause for cause, _, _ in bad} == {5, 7}
        assert len({place for *_, place in bad}) == 6
        slow, fast = [], []
        for join in joins:
            mine = join[3]
            others = [each for each in join if each["rank"] != 3]
            slow.append(max(each["begin_ns"] for each in others) - mine["end_ns"] - allowed_ns)
            fast.append(min(each["end_ns"] for each in others) - mine["begin_ns"] + allowed_ns)
        assert (max(slow), min(fast)) == (40_500, 184_500)
    middles = [median(each["end_ns"] for each in join) for join in joins]
    apart = [abs(join[3]["end_ns"] - middle) for join, middle in zip(joins, middles, strict=True)]
    assert sum(each > 20_000 for each in apart) == (8 if offset_us else 0)


@pytest.mark.parametrize(
    ("name", "events", "ranks", "skipped", "facts", "quantum_ns", "warnings"),
    [
        (
            "cpu_only_rank34_of_300.json.gz", 15, 1,
            {"phase M": 12, "profiler span": 1, "phase i": 2}, {}, 1, 0,
        ),
        (
            "event_sync_multi_stream.json.gz", 56, 1,
            {"phase f": 42, "phase s": 8, "phase M": 40, "profiler span": 1, "phase i": 2},
            {"launches matched": 6, "waits matched": 2}, 1_000, 0,
        ),
        ("no_distributedInfo.json.gz", 2_467, 0, {}, {}, 1_000, 1),
        ("no_rank_key.json.gz", 2_467, 0, {}, {}, 1_000, 1),
        (
            "world128_rank0_sampled.json.gz", 4_810, 1, {"phase M": 44, "profiler span": 1},
            {"launches matched": 1_204, "collective kernels": 10, "collective kernels matched": 10}, 1_000, 0,
        ),
        (
            "world128_rank1_sampled.json.gz", 4_675, 1, {"phase M": 44, "profiler span": 1},
            {"launches matched": 1_154, "collective kernels": 10, "collective kernels matched": 10}, 1_000, 0,
        ),
        (
            "ws2_nccl_args_ns_base.json.gz", 26_932, 1,
            {"phase f": 9_195, "phase s": 4_405, "phase M": 38, "profiler span": 1, "phase i": 2},
            {
                "launches matched": 3_774, "waits matched": 1,
                "collective kernels": 21, "collective kernels matched": 21,
            },
            1, 0,
        ),
    ],
)  # fmt: skip
def test_every_other_trace(
    name: str,
    events: int,
    ranks: int,
    skipped: dict[str, int],
    facts: dict[str, int],
    quantum_ns: int,
    warnings: int,
) -> None:
    found, report = batches(kineto(name))
    assert (report.events, report.ranks, len(report.warnings)) == (events, ranks, warnings)
    assert (report.skipped, report.facts) == (skipped, facts)
    heartbeat = next(batch for batch in found if batch.family == "gpu")
    assert heartbeat.data["clk_quantum_ns"].tolist() == [quantum_ns]
    assert len(rows(found)) == events


def test_times_from_a_base_are_the_files_own_day() -> None:
    found, _ = batches(kineto("cpu_only_rank34_of_300.json.gz"))
    assert rows(found)[0][2] // 10**9 == 1_721_065_959  # 15 July 2024, as the file was first called


def test_waits_between_streams() -> None:
    found, _ = batches(kineto("event_sync_multi_stream.json.gz"))
    sync = [each for each in endpoints(found) if each["kind"] == c.EdgeKind.SYNC]
    joins: dict[int, list[tuple[int, int, str]]] = defaultdict(list)
    for each in sync:
        joins[each["key"]].append((each["role"], each["point"], each["source"].split("/")[1]))
    assert sorted(sorted(join) for join in joins.values()) == [
        [
            (c.Role.CAUSE, c.Point.END, "stream 20"),
            (c.Role.CAUSE, c.Point.END, "stream 24"),
            (c.Role.CAUSE, c.Point.END, "stream 28"),
            (c.Role.EFFECT, c.Point.END, "thread 3727853"),
        ],
        [(c.Role.CAUSE, c.Point.END, "stream 20"), (c.Role.EFFECT, c.Point.BEGIN, "stream 24")],
    ]


def test_stated_groups_are_no_assumption_but_positions_are() -> None:
    joins = collectives(batches(kineto("ws2_nccl_args_ns_base.json.gz")))
    assert {(each["group"], each["size"], each["flags"]) for join in joins for each in join} == {("0", 2, 1)}
    ops = Counter(join[0]["op"] for join in joins)
    assert ops == {c.Op.BROADCAST: 6, c.Op.ALL_REDUCE: 15}


def test_sampled_ranks_align_only_where_they_can(tmp_path: Path) -> None:
    for rank in (0, 1):
        name = f"world128_rank{rank}_sampled.json.gz"
        (tmp_path / name).symlink_to(kineto(name))
    found = batches(tmp_path)
    assert found[1].ranks == 2
    assert found[1].facts["collective kernels matched"] == 12
    assert found[1].facts["collective kernels unmatched: no unique alignment"] == 8
    shared = [join for join in collectives(found) if len(join) == 2]
    assert [{each["op"] for each in join} for join in shared] == [{c.Op.ALL_GATHER}] * 2
    assert {each["size"] for join in shared for each in join} == {128}
