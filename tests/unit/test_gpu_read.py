"""Traces of several ranks as batches."""

from pathlib import Path

import numpy as np
import pytest

from producers.gpu.read import KinetoReport, Options, read
from schemas import columns as c
from schemas.batch import Batch
from schemas.errors import Usage
from tests.gpu_traces import (
    START_US,
    batches,
    endpoints,
    event,
    folder,
    job,
    launched,
    raw,
    rows,
    trace,
    values,
)


@pytest.fixture
def ranks(tmp_path: Path) -> Path:
    return folder(tmp_path, {f"rank{rank}.json": raw(job(rank)) for rank in range(4)})


def sources(batch: Batch) -> list[str]:
    return [batch.strings[place] for place in batch.data["src_name"]]


def test_open_then_a_heartbeat_then_rows_in_order_of_time(ranks: Path) -> None:
    found, report = batches(ranks, rows_max=10)
    opened, heartbeat, *data = found
    assert (opened.family, opened.wide("number").tolist()) == ("control", [4])
    assert opened.strings[int(opened.column("text")[0])] == "ranks"
    assert (heartbeat.count, heartbeat.table_len("src")) == (0, 20)
    assert [batch.count for batch in data] == [10, 10, 10, 10, 10, 6]
    assert (report.events, report.batches) == (56, 8)
    times = [ns for _, _, ns, _ in rows(found)]
    assert times == sorted(times)
    assert all(batch.publisher == found[0].publisher for batch in found)


def test_sequence_numbers_are_gapless_and_in_program_order(ranks: Path) -> None:
    found, _ = batches(ranks, rows_max=7)
    by_source: dict[str, list[tuple[int, int]]] = {}
    for source, seq, ns, _ in rows(found):
        by_source.setdefault(source, []).append((seq, ns))
    assert len(by_source) == 20
    for given in by_source.values():
        assert [seq for seq, _ in given] == list(range(len(given)))
        assert [ns for _, ns in given] == sorted(ns for _, ns in given)


def test_equal_begins_go_longer_first_then_by_place_in_the_file(tmp_path: Path) -> None:
    events = [
        event("short", "cpu_op", 5, 1, 1),
        event("open", "cpu_op", 5, None, 1),
        event("long", "cpu_op", 5, 9, 1),
        event("short again", "cpu_op", 5, 1, 1),
        event("before", "cpu_op", 4, 1, 1),
    ]
    found, _ = batches(folder(tmp_path, {"r.json": raw(trace(events))}))
    assert [name for *_, name in rows(found)] == ["before", "long", "short", "short again", "open"]
    assert found[-1].wide("duration_ns").tolist() == [1_000, 9_000, 1_000, 1_000, c.NULL_I64]


def test_watermarks_are_the_next_begin_and_the_last_row_is_final(ranks: Path) -> None:
    found, _ = batches(ranks, rows_max=7)
    begins: dict[str, list[int]] = {}
    for source, _, ns, _ in rows(found):
        begins.setdefault(source, []).append(ns)
    sent = dict.fromkeys(begins, 0)
    finals = []
    for batch in found[1:]:
        names = sources(batch)
        for place, name in enumerate(names):
            sent[name] += int(batch.data["src_last_seq"][place] - batch.data["src_first_seq"][place] + 1)
            left = begins[name][sent[name] :]
            final = bool(batch.data["src_flags"][place] & c.SOURCE_FINAL)
            assert final == (not left)
            assert int(batch.data["src_low_watermark_ns"][place]) == (left or begins[name][-1:])[0]
            finals += [name] * final
    assert sorted(finals) == sorted(begins)


def test_sources_clocks_and_own_columns(ranks: Path) -> None:
    found, report = batches(ranks, host="node7", clock_bound_ns=1_000)
    heartbeat = found[1]
    assert sources(heartbeat)[:5] == [
        "rank0/thread 1",
        "rank0/thread 2",
        "rank0/stream 7",
        "rank0/stream 9",
        "rank0/stream 84",
    ]
    assert heartbeat.data["src_rank"].tolist() == [rank for rank in range(4) for _ in range(5)]
    assert set(heartbeat.data["src_flags"].tolist()) == {c.SOURCE_ORDERED}
    clocks = [heartbeat.strings[place] for place in heartbeat.data["clk_id"]]
    assert clocks == [f"node7/kineto:{rank}" for rank in range(4)]
    for name, want in (
        ("clk_bound_ns", 1_000),
        ("clk_quantum_ns", 1_000),
        ("clk_timescale", c.Timescale.UTC),
        ("clk_assurance", c.Assurance.CLAIMED),
    ):
        assert heartbeat.data[name].tolist() == [want] * 4
    assert {heartbeat.text(int(place)) for place in heartbeat.data["clk_parent"]} == {"TAI"}
    batch = found[2]
    row = [batch.strings[place] for place in batch.column("name")].index("sgemm")
    assert batch.column("kind")[row] == c.GpuKind.KERNEL
    assert batch.text(int(batch.column("entity")[row])) == "rank0/gpu0"
    own = [int(batch.wide(name)[row]) for name in ("correlation", "device", "stream")]
    assert own == [11, 0, 7]
    assert report.scope.startswith("gpu-")


def test_without_a_claim_a_clock_has_neither_bound_nor_parent(ranks: Path) -> None:
    heartbeat = batches(ranks)[0][1]
    assert heartbeat.data["clk_bound_ns"].tolist() == [c.NULL_I64] * 4
    assert heartbeat.data["clk_parent"].tolist() == [c.NULL_U16] * 4
    hosts = {heartbeat.strings[place] for place in heartbeat.data["src_host"]}
    assert len(hosts) == 1
    assert hosts.pop().startswith("file-")


def test_an_offset_moves_all_stamps_of_one_rank(ranks: Path) -> None:
    plain, report = batches(ranks)
    moved, other = batches(ranks, clock_offset_ns={"3": -50_000})
    before, after = ({(source, seq): ns for source, seq, ns, _ in rows(found)} for found in (plain, moved))
    assert before.keys() == after.keys()
    for (source, seq), ns in before.items():
        assert after[source, seq] - ns == (-50_000 if source.startswith("rank3/") else 0)
    assert report.scope != other.scope
    times = [ns for _, _, ns, _ in rows(moved)]
    assert times == sorted(times)
    with pytest.raises(Usage, match=r"rank 9, the input holds 0, 1, 2, 3"):
        batches(ranks, clock_offset_ns={"9": 1})


def test_the_same_input_and_options_are_the_same_events(
    ranks: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    first, second = batches(ranks)[0], batches(ranks)[0]
    assert [batch.data["src_incarnation"].tolist() for batch in first[1:]] == [
        batch.data["src_incarnation"].tolist() for batch in second[1:]
    ]
    seen = set()
    for options in ({}, {"scope": "s"}, {"clock_bound_ns": 5}, {"clock_offset_ns": {"0": 1}}, {"host": "h"}):
        heartbeat = batches(ranks, **options)[0][1]
        seen.add((heartbeat.scope, int(heartbeat.data["src_incarnation"][0])))
        assert (heartbeat.data["src_incarnation"] >= 0).all()
    assert len({incarnation for _, incarnation in seen}) == 5
    assert len({scope for scope, _ in seen}) == 5


def test_launch_edges_have_both_sides(ranks: Path) -> None:
    found, report = batches(ranks)
    launch = [each for each in endpoints(found) if each["kind"] == c.EdgeKind.LAUNCH]
    sides: dict[int, list[tuple[int, str]]] = {}
    for each in launch:
        assert each["point"] == c.Point.BEGIN
        sides.setdefault(each["key"], []).append((each["role"], each["source"].split("/")[0]))
    assert len(sides) == 16 == report.facts["launches matched"]
    for (cause, one), (effect, other) in (sorted(pair) for pair in sides.values()):
        assert (cause, effect, one) == (c.Role.CAUSE, c.Role.EFFECT, other)


def test_sync_edges_end_where_the_host_goes_on(ranks: Path) -> None:
    found, report = batches(ranks)
    sync = [each for each in endpoints(found) if each["kind"] == c.EdgeKind.SYNC and each["rank"] == 2]
    assert sorted((each["role"], each["point"], each["name"].split("_")[0]) for each in sync) == [
        (c.Role.CAUSE, c.Point.END, "Memcpy HtoD"),
        (c.Role.CAUSE, c.Point.END, "ncclKernel"),
        (c.Role.CAUSE, c.Point.END, "sgemm"),
        (c.Role.EFFECT, c.Point.END, "cudaDeviceSynchronize"),
    ]
    assert len({each["key"] for each in sync}) == 1
    assert report.facts["waits matched"] == 4


def test_collectives_join_all_ranks(ranks: Path) -> None:
    found, report = batches(ranks)
    joins: dict[int, list[dict[str, int]]] = {}
    for each in endpoints(found):
        if each["kind"] == c.EdgeKind.COLLECTIVE:
            assert (each["point"], each["role"], each["size"]) == (c.Point.BOTH, c.Role.MEMBER, 4)
            assert (each["flags"], each["group"]) == (c.ENDPOINT_ASSUMED, "all ranks (assumed)")
            joins.setdefault(each["key"], []).append(each)
    assert sorted({each["op"] for each in join}.pop() for join in joins.values()) == [
        c.Op.ALL_REDUCE,
        c.Op.ALL_TO_ALL,
    ]
    assert [sorted(each["rank"] for each in join) for join in joins.values()] == [[0, 1, 2, 3]] * 2
    assert report.facts["collective kernels matched"] == 8
    kinds = [kind for batch in found[2:] for kind in batch.column("kind").tolist()]
    assert kinds.count(c.GpuKind.COLLECTIVE) == 8


def test_numbers_of_copies_and_collectives(ranks: Path) -> None:
    found, _ = batches(ranks)
    assert sorted(set(values(found))) == [
        ("Memcpy HtoD", "bytes", 4096.0),
        ("ncclKernel_AllReduce_RING_LL_Sum_float", "bytes", 40.0),
        ("ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t", "bytes", 256.0),
    ]


def numbered(rank: int, root: int | None) -> bytes:
    """A rank of two that says all about its collectives."""
    args = {
        "Process Group Name": "7", "Process Group Ranks": "[0, 1]", "Group size": 2, "Seq": 41, "Rank": root,
    }  # fmt: skip
    events = launched("ncclDevKernel_Broadcast_RING_LL", 1, 5, 9, 3, 20)
    events[1]["args"] |= args
    return raw(trace(events, rank, 2))


def test_a_numbered_collective_matches_over_separate_readings(tmp_path: Path) -> None:
    keys = set()
    for rank in (0, 1):
        path = folder(tmp_path / str(rank), {"r.json": numbered(rank, 1)})
        (member,) = [
            each for each in endpoints(batches(path, scope="job")[0]) if each["kind"] == c.EdgeKind.COLLECTIVE
        ]
        assert (member["flags"], member["size"], member["group"]) == (0, 2, "7")
        assert member["role"] == (c.Role.ROOT if rank == 1 else c.Role.MEMBER)
        keys.add(member["key"])
    assert len(keys) == 1


def test_a_position_matches_only_within_one_reading(ranks: Path) -> None:
    keys = []
    for rank in (0, 1):
        found = batches(ranks / f"rank{rank}.json", scope="job")[0]
        keys += [each["key"] for each in endpoints(found) if each["kind"] == c.EdgeKind.COLLECTIVE]
    assert len(set(keys)) == 4


def test_sender_and_receiver_of_a_pair(tmp_path: Path) -> None:
    data = {}
    for rank, title in ((0, "nccl:send 0->1"), (1, "nccl:recv 1<-0")):
        events = launched("ncclDevKernel_SendRecv", 12, 15, 9, 3, 20)
        events[1]["args"] |= {"Process Group Name": "pp", "Process Group Ranks": "[0, 1]"}
        data[f"{rank}.json"] = raw(trace([event(title, "user_annotation", 10, 20, 1), *events], rank, 2))
    found = [
        each
        for each in endpoints(batches(folder(tmp_path, data))[0])
        if each["kind"] == c.EdgeKind.COLLECTIVE
    ]
    assert sorted((each["rank"], each["op"], each["role"], each["point"]) for each in found) == [
        (0, c.Op.SEND, c.Role.CAUSE, c.Point.BEGIN),
        (1, c.Op.RECV, c.Role.EFFECT, c.Point.END),
    ]
    assert {each["size"] for each in found} == {2}
    assert len({each["key"] for each in found}) == 1


def test_threads_and_streams_of_equal_number_are_told_apart(tmp_path: Path) -> None:
    events = [
        event("a", "cpu_op", 1, 1, 5, pid=10),
        event("b", "cpu_op", 1, 1, 5, pid=11),
        event("k", "kernel", 1, 1, 7, 0, stream=7, device=0),
        event("l", "kernel", 1, 1, 7, 1, stream=7, device=1),
    ]
    found, _ = batches(folder(tmp_path, {"r.json": raw(trace(events))}))
    assert sorted(sources(found[1])) == [
        "rank0/device 0 stream 7",
        "rank0/device 1 stream 7",
        "rank0/thread 10:5",
        "rank0/thread 11:5",
    ]


def test_times_without_a_start_are_on_no_timescale(tmp_path: Path) -> None:
    content = trace([event("a", "cpu_op", -START_US + 5, 1, 1)])
    found, report = batches(folder(tmp_path, {"r.json": raw(content)}))
    assert found[1].data["clk_timescale"].tolist() == [c.Timescale.ARBITRARY]
    assert report.warnings == ["r.json: has no baseTimeNanoseconds; its times count from an unknown start"]


def test_an_empty_trace_opens_and_closes(tmp_path: Path) -> None:
    found, report = batches(folder(tmp_path, {"r.json": raw(trace([]))}))
    assert [batch.count for batch in found] == [1, 0]
    assert report.warnings == ["r.json: holds no complete event"]


def test_a_file_without_rank_and_events_is_not_called_used(tmp_path: Path) -> None:
    _, report = batches(folder(tmp_path, {"x.json": raw({"traceEvents": [{"ph": "X", "name": "a"}]})}))
    assert [line for line in report.warnings if "used as" in line] == []
    assert "x.json: holds no complete event" in report.warnings


def test_many_rows_and_names_keep_their_places(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    data = {}
    want = []
    for rank in range(3):
        times = rng.integers(0, 5_000, 3_000).tolist()
        events = [event(f"op{at % 97} of {rank}", "cpu_op", ts, 1, 1 + at % 5) for at, ts in enumerate(times)]
        want += [((START_US + ts) * 1_000, f"op{at % 97} of {rank}") for at, ts in enumerate(times)]
        data[f"r{rank}.json"] = raw(trace(events, rank, 3))
    found, report = batches(folder(tmp_path, data))
    assert sorted(want) == sorted((ns, name) for _, _, ns, name in rows(found))
    assert (report.events, report.batches) == (9_000, 5)


def test_an_iterator_makes_one_batch_at_a_time(ranks: Path) -> None:
    report = KinetoReport()
    reading = read([ranks], Options(rows_max=8), report)
    next(reading)
    next(reading)
    next(reading)
    assert (report.events, report.batches) == (8, 3)


def test_a_clock_offset_that_leads_out_of_all_time_is_refused(ranks: Path) -> None:
    for offset_ns in (3 * 10**18, -5 * 10**18):
        with pytest.raises(Usage, match="years 1896 to 2116"):
            batches(ranks, clock_offset_ns={"1": offset_ns})


def test_events_of_no_use_are_said_in_a_line_each(tmp_path: Path) -> None:
    odd = [
        event("far", "cpu_op", 0, 1, 1) | {"ts": 3.99e15},
        event("big", "gpu_memcpy", 0, 1, 7, bytes=10**400),
        event("good", "cpu_op", 0, 1, 1) | {"ts": 4},
    ]
    path = folder(tmp_path, {"r.json": raw(trace(odd, baseTimeNanoseconds=10**18))})
    found, report = batches(path)
    assert [name for *_, name in rows(found)] == ["good"]
    assert report.warnings == [
        "r.json: 1 events without a usable time left out",
        "r.json: 1 events with a number beyond 64 bits left out",
    ]
