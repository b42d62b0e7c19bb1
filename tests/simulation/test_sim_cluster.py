"""The simulated job: what it claims about order, clocks and progress is true by construction."""

import threading
from collections import Counter, defaultdict
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from producers.sim.cluster import read, run
from producers.sim.options import SimOptions, SimReport
from schemas.batch import Batch
from schemas.codec import encode_batch
from schemas.columns import SOURCE_FINAL, SOURCE_ORDERED, Control, EdgeKind, Op
from schemas.errors import Usage
from schemas.time import NS
from tempotrace.clockwork import FakeClock, seeded
from tests.simulation.sim_log import (
    SMALL,
    edges,
    group_names,
    members,
    overlapping,
    rows_by_source,
    seq_gaps,
    simulate,
    watermarks_broken,
)
from tests.simulation.true_times import true_times

STEP_BACK = ("clock_step:host2:-250us@400ms",)
FAR_BACK = ("clock_step:host2:-5ms@400100us",)  # just after a heartbeat
FAULTY = [
    pytest.param(("clock_step:host2:250us@400ms",), "host2", id="ahead"),
    pytest.param(STEP_BACK, "host2", id="behind"),
    pytest.param(("clock_offset:host1:-500us",), "host1", id="offset"),
]


def encoded(options: SimOptions) -> list[bytes]:
    return [encode_batch(batch) for batch in read(options, SimReport(), seeded(options.seed))]


@pytest.mark.parametrize("scenario", ["straggler+clock-fault", "fabric", "throughput"])
def test_the_seed_decides_every_byte(scenario: str) -> None:
    options = replace(SMALL, scenario=scenario, seconds=0.5, events=20_000)
    first = encoded(options)
    assert encoded(options) == first
    other = replace(options, seed=8)
    assert encoded(other) != first
    assert other.scope_name != options.scope_name
    assert other.incarnation != options.incarnation


def test_cutting_changes_no_event() -> None:
    whole = rows_by_source(simulate(SMALL)[0])
    batches, _ = simulate(replace(SMALL, batch_events=100))
    cut = rows_by_source(batches)
    assert max(batch.count for batch in batches) == 100
    assert cut.keys() == whole.keys()
    for source, columns in whole.items():
        for mine, theirs in zip(columns, cut[source], strict=True):
            np.testing.assert_array_equal(mine, theirs)


def test_a_healthy_job_satisfies_every_edge() -> None:
    batches, report = simulate(SMALL)
    groups = members(batches, report)
    for (kind, _), group in groups.items():
        assert len(group) == (group[0].size if kind == EdgeKind.COLLECTIVE else 2)
    kinds: Counter[EdgeKind] = Counter()
    for edge in edges(groups):
        assert edge.true_gap_ns > 0, edge
        assert not edge.violated, edge
        kinds[edge.kind] += 1
    times = true_times(report)
    steps = len(times["rank0/thread 1"][0]) // 25  # 24 launches and the wait
    assert steps >= 40
    # A step: four phases of five kernels and a collective; 2 ep groups of 4, 4 tp groups of 2, world twice.
    assert kinds[EdgeKind.LAUNCH] == steps * SMALL.ranks * 24
    assert kinds[EdgeKind.SYNC] == steps * SMALL.ranks
    assert kinds[EdgeKind.COLLECTIVE] == steps * (2 * 4 * 3 + 4 * 2 * 1 + 2 * 8 * 7)
    assert kinds[EdgeKind.MESSAGE] == 11 * 4 * 3  # rounds begin at 0, 100, ... 1000 ms


def test_stamps_keep_to_the_stated_bounds() -> None:
    batches, report = simulate(SMALL)
    worst: dict[str, float] = defaultdict(float)
    for group in members(batches, report).values():
        for member in group:
            bound = sum(bound for _, bound in member.clocks)
            for stamped, true in zip(member.mapped, member.true, strict=True):
                assert abs(stamped - true) <= bound
                clock = member.clocks[0][0]
                worst[clock] = max(worst[clock], abs(stamped - true) / bound)
    assert len(worst) == 4 * (2 + 2)  # every host's PHC, system clock and two GPUs
    assert min(worst.values()) > 0  # and none of them is perfect


def test_clocks_of_a_host_meet_at_its_phc() -> None:
    batches, report = simulate(SMALL)
    bounds: dict[frozenset[str], set[tuple[EdgeKind, int]]] = defaultdict(set)
    for edge in edges(members(batches, report)):
        bounds[frozenset(edge.hosts)].add((edge.kind, edge.bound_ns))
    assert bounds[frozenset({"host0"})] == {
        (EdgeKind.LAUNCH, 900), (EdgeKind.SYNC, 900), (EdgeKind.COLLECTIVE, 1400),
    }  # fmt: skip
    assert bounds[frozenset({"host0", "host1"})] == {(EdgeKind.COLLECTIVE, 3400), (EdgeKind.MESSAGE, 2000)}


@pytest.mark.parametrize(("faults", "host"), FAULTY)
def test_a_false_clock_is_accused_by_its_peers(faults: tuple[str, ...], host: str) -> None:
    batches, report = simulate(replace(SMALL, faults=faults))
    between = 0
    accusers: Counter[str] = Counter()
    for edge in edges(members(batches, report)):
        assert edge.true_gap_ns > 0
        if not edge.violated:
            continue
        assert host in edge.hosts, edge
        if len(edge.hosts) > 1:
            between += 1
            accusers.update(edge.hosts - {host})
        else:  # only a clock that goes back contradicts itself
            assert faults == STEP_BACK
    assert between >= 3
    assert set(accusers) == {"host0", "host1", "host2", "host3"} - {host}


def test_the_daemons_of_a_false_clock_see_nothing() -> None:
    batches, _ = simulate(replace(SMALL, scenario="clock-fault", seconds=3.0))
    seen: dict[str, list[int]] = defaultdict(list)
    for batch in batches:
        if batch.family == "clock":
            for entity, offset in zip(batch.column("entity"), batch.wide("offset_ns"), strict=True):
                seen[batch.strings[entity]].append(int(offset))
    assert len(seen) == 2 * SMALL.hosts
    for clock, offsets in seen.items():
        assert len(offsets) == 13
        assert max(map(abs, offsets)) < (1_000 if clock.endswith("ptp0") else 200)


def arrivals(scenario: str) -> tuple[SimReport, dict[int, list[tuple[bool, bool]]]]:
    """By rank, for each collective: whether it arrived last in truth, and was the shortest by own clocks."""
    batches, report = simulate(replace(SMALL, scenario=scenario, seconds=2.0))
    out: dict[int, list[tuple[bool, bool]]] = defaultdict(list)
    onset = report.truth["start_ns"] + 450_000_000
    for (kind, _), group in members(batches, report).items():
        if kind == EdgeKind.COLLECTIVE and min(member.true[0] for member in group) > onset:
            last = max(group, key=lambda member: member.true[0])
            least = min(group, key=lambda member: member.mapped[1] - member.mapped[0])
            for member in group:
                out[member.rank].append((member is last, member is least))
    return report, out


def test_a_straggler_arrives_last_and_the_others_wait() -> None:
    report, ranks = arrivals("straggler")
    (fault,) = report.truth["faults"]
    slow = int(fault["component"].removeprefix("rank"))
    assert fault["class"] == "straggler"
    assert fault["onset_ns"] == report.truth["start_ns"] + 400_000_000
    for rank, seen in ranks.items():
        last = sum(first for first, _ in seen) / len(seen)
        least = sum(second for _, second in seen) / len(seen)
        if rank == slow:
            assert (last, least) == (1.0, 1.0)
        else:
            assert last < 0.4
            assert least < 0.4


def test_nobody_straggles_in_a_healthy_job() -> None:
    _, ranks = arrivals("healthy")
    assert max(sum(last for last, _ in seen) / len(seen) for seen in ranks.values()) < 0.4


@pytest.mark.parametrize("faults", [(), FAR_BACK], ids=["healthy", "behind"])
@pytest.mark.parametrize("batch_events", [64, 4096])
def test_no_row_comes_below_a_watermark(faults: tuple[str, ...], batch_events: int) -> None:
    batches, _ = simulate(replace(SMALL, faults=faults, batch_events=batch_events))
    assert watermarks_broken(batches) == []


def test_sequence_numbers_have_no_gap() -> None:
    assert seq_gaps(simulate(replace(SMALL, batch_events=64))[0]) == []


def test_rows_of_a_source_are_in_program_order() -> None:
    batches, report = simulate(SMALL)
    ordered = {
        batch.strings[name]
        for batch in batches
        for name, flags in zip(batch.data.get("src_name", ()), batch.data.get("src_flags", ()), strict=True)
        if flags & SOURCE_ORDERED
    }
    assert len(ordered) == SMALL.ranks * 3 + SMALL.hosts
    for source, (begin, end) in true_times(report).items():
        if source in ordered:
            assert overlapping(begin, end) == 0
    for source, (seq, raw, _) in rows_by_source(batches).items():
        assert (np.diff(seq) == 1).all()
        if source in ordered:
            assert (np.diff(raw) >= 0).all()


def test_a_job_opens_with_its_size_and_ends_every_source() -> None:
    batches, report = simulate(SMALL)
    publishers = [f"sim/host{host}" for host in range(SMALL.hosts)]
    for publisher in publishers:
        opened, listed, *_, last = [batch for batch in batches if batch.publisher == publisher]
        rows = zip(opened.column("kind"), opened.wide("number"), opened.column("text"), strict=True)
        assert [(kind, number, opened.strings[text]) for kind, number, text in rows] == [
            (Control.OPEN, SMALL.ranks, "ranks"),
            (Control.OPEN, SMALL.hosts, "hosts"),
        ]
        assert (listed.count, listed.table_len("src")) == (0, 3 * SMALL.gpus + 3)
        assert (last.data["src_flags"] & SOURCE_FINAL).all()
        assert last.table_len("src") == listed.table_len("src")
    assert {rank for b in batches if b.table_len("src") for rank in b.data["src_rank"]} >= set(
        range(SMALL.ranks)
    )
    assert report.events == sum(len(seq) for seq, _, _ in rows_by_source(batches).values())
    assert report.batches == len(batches)


def test_collectives_name_operation_group_and_bytes() -> None:
    batches, _ = simulate(replace(SMALL, seconds=0.1))
    seen, names = set(), set()
    for batch in batches:
        if batch.family == "gpu" and batch.count:
            groups = group_names(batch)
            seen |= {
                (Op(op), group, int(size))
                for op, group, size in zip(batch.data["ep_op"], groups, batch.data["ep_size"], strict=True)
            }
            names |= {batch.strings[name] for name in batch.data["val_name"]}
    assert names == {"bytes", *(f"bytes_to_{rank}" for rank in range(SMALL.ranks))}
    assert seen == {
        (Op.NONE, None, 0),
        (Op.ALL_GATHER, "world", 8),
        (Op.ALL_REDUCE, "world", 8),
        *((Op.ALL_REDUCE, f"tp{host}", 2) for host in range(4)),
        *((Op.ALL_TO_ALL, f"ep{place}", 4) for place in range(2)),
    }


def paced(options: SimOptions, stop_after_s: float) -> tuple[list[tuple[int, Batch]], SimReport]:
    clock, stop, out = FakeClock(options.start_ns), threading.Event(), []
    report = SimReport(keep_times=True)

    def emit(batch: Batch) -> None:
        out.append((clock.now_ns_tai(), batch))
        if clock.now_ns_tai() >= options.start_ns + stop_after_s * NS:
            stop.set()

    run(options, report, seeded(options.seed), emit, stop, clock)
    return out, report


def test_a_paced_job_tells_rows_soon_after_they_end() -> None:
    options = replace(SMALL, live=True, start_ns=1_800_000_000 * NS)
    told, report = paced(options, 60.0)
    times = true_times(report)
    delays = []
    for now, batch in told:
        if batch.family == "control" or not batch.count:
            continue
        for place, seq in zip(batch.data["source"], batch.seq(), strict=True):
            delays.append(now - int(times[batch.strings[batch.data["src_name"][place]]][1][seq]))
    assert min(delays) >= 0
    assert max(delays) <= 50_000_000
    plain, _ = simulate(replace(options, live=False))
    assert sum(batch.count for _, batch in told if batch.family != "control") == sum(
        batch.count for batch in plain if batch.family != "control"
    )
    beats = [now for now, batch in told if batch.publisher == "sim/host0" and not batch.count]
    assert max(np.diff(beats)) <= 50_000_000


def test_a_stopped_job_ends_what_it_began() -> None:
    told, report = paced(replace(SMALL, live=True), 0.3)
    batches = [batch for _, batch in told]
    assert max(now for now, _ in told) < SMALL.start_ns + 0.55 * NS
    assert all(
        (batch.data["src_flags"] & SOURCE_FINAL).all() for batch in batches[-1:] if batch.table_len("src")
    )
    for (kind, _), group in members(batches, report).items():
        assert len(group) == (group[0].size if kind == EdgeKind.COLLECTIVE else 2)


@pytest.mark.parametrize(("hosts", "ranks"), [(1, 1), (1, 4), (3, 3), (12, 12)])
def test_other_sizes_hold_too(hosts: int, ranks: int) -> None:
    batches, report = simulate(replace(SMALL, hosts=hosts, ranks=ranks, seconds=0.3))
    assert all(edge.true_gap_ns > 0 and not edge.violated for edge in edges(members(batches, report)))
    assert (watermarks_broken(batches), seq_gaps(batches)) == ([], [])


@pytest.mark.parametrize(
    "wrong",
    [
        {"scenario": "unheard-of"},
        {"hosts": 3, "ranks": 8},
        {"seconds": 0},
        {"step_ns": 1_000},
        {"batch_events": 0},
        {"sources": 1},
        {"seed": -1},
        {"faults": ("straggler:rank8",)},
    ],
)
def test_options_that_do_not_fit_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(Usage):
        replace(SMALL, **wrong)
