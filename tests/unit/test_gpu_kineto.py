"""One trace: bytes to arrays."""

import io
from collections import Counter
from typing import Any

import numpy as np
import pytest

from producers.gpu import kineto, window
from producers.gpu.kineto import Lane
from schemas.columns import NULL_I64, GpuKind
from schemas.errors import MalformedInput
from schemas.time import OUTSIDE
from tests.gpu_traces import START_US, Event, event, job, parse, raw, trace, work


def test_every_complete_event_but_the_profilers_span_is_a_row() -> None:
    found = parse(job(1))
    assert len(found) == 14
    assert (found.rank, found.world_size, found.host, found.quantum_ns) == (1, 4, None, 1_000)
    assert found.skipped == {"profiler span": 1, "phase M": 1, "phase i": 1}
    assert found.events == len(found) + found.skipped.total()
    assert found.lanes == [
        Lane(False, "4000", "1"),
        Lane(False, "4000", "2"),
        Lane(True, "0", "7"),
        Lane(True, "0", "9"),
        Lane(True, "0", "84"),
    ]


@pytest.mark.parametrize(
    ("ts", "dur", "base_ns", "begin_ns", "duration_ns", "quantum_ns"),
    [
        (1_694_128_201_435_447, 53, None, 1_694_128_201_435_447_000, 53_000, 1_000),
        (1_682_725_898_082_228, 10.0, None, 1_682_725_898_082_228_000, 10_000, 1_000),
        (1_712_867_402_348_256.25, 1.5, None, 1_712_867_402_348_256_250, 1_500, 250),
        (4_458_676_522_690.655, 156.777, 1_711_964_646_000_000_000, 1_716_423_322_522_690_655, 156_777, 1),
        (-2.001, 0, 1_711_964_646_000_000_000, 1_711_964_645_999_997_999, 0, 1),
        (7.25, 0.125, 10**18, 10**18 + 7_250, 125, 1),
    ],
)
def test_times_become_nanoseconds_exactly(
    ts: float, dur: float, base_ns: int | None, begin_ns: int, duration_ns: int, quantum_ns: int
) -> None:
    content: dict[str, Any] = trace([event("op", "cpu_op", 0, dur, 1) | {"ts": ts}])
    if base_ns is not None:
        content["baseTimeNanoseconds"] = base_ns
    found = parse(content)
    assert (begin_ns, duration_ns, quantum_ns) == (
        found.begin_ns[0],
        found.duration_ns[0],
        found.quantum_ns,
    )


def test_three_decimals_survive_for_a_quarter_of_a_year_from_the_base() -> None:
    rng = np.random.default_rng(11)
    want = np.sort(rng.integers(0, 92 * 86_400 * 10**9, 2_000))
    events = ",".join(
        f'{{"ph":"X","cat":"cpu_op","name":"a","pid":1,"tid":1,"ts":{ns // 1000}.{ns % 1000:03d},"dur":1.5}}'
        for ns in want.tolist()
    )
    found = parse(f'{{"baseTimeNanoseconds":{10**18},"traceEvents":[{events}]}}'.encode())
    assert (want + 10**18).tolist() == found.begin_ns.tolist()


def test_the_unit_of_display_changes_nothing() -> None:
    plain = parse(trace([event("op", "cpu_op", 5, 7, 1)]))
    shown = parse(trace([event("op", "cpu_op", 5, 7, 1)], displayTimeUnit="ns"))
    assert plain.begin_ns.tolist() == shown.begin_ns.tolist() == [(START_US + 5) * 1_000]


@pytest.mark.parametrize(
    ("change", "skipped", "duration_ns"),
    [
        ({"ts": float("nan")}, "bad time", None),
        ({"ts": float("inf")}, "bad time", None),
        ({"ts": 10**30}, "bad time", None),
        ({"ts": -5}, "bad time", None),
        ({"ts": "12"}, "bad time", None),
        ({"ts": None}, "bad time", None),
        ({"ts": True}, "bad time", None),
        ({"ph": "Q"}, "phase Q", None),
        ({"ph": None}, "phase None", None),
        ({"dur": -1}, None, NULL_I64),
        ({"dur": float("nan")}, None, NULL_I64),
        ({"dur": 10**40}, None, NULL_I64),
        ({"dur": None}, None, NULL_I64),
        ({"dur": 0}, None, 0),
    ],
)
def test_a_broken_number_costs_the_event_or_its_end(
    change: Event, skipped: str | None, duration_ns: int | None
) -> None:
    found = parse(trace([event("good", "cpu_op", 1, 1, 1), event("odd", "cpu_op", 2, 2, 1) | change]))
    if skipped is not None:
        assert found.skipped[skipped] == 1
        assert len(found) == 1
    else:
        assert duration_ns == found.duration_ns[1]


def test_categories_and_streams_of_2021_are_understood() -> None:
    found = parse(
        trace(
            [
                event("aten::add", "Operator", 1, 9, "4000"),
                event("cudaLaunchKernel", "Runtime", 2, 3, "4000", correlation=5),
                event("add", "Kernel", 6, 2, "stream 7", 0, correlation=5, device=0),
                event("Memset (Device)", "Memset", 9, 2, "stream 7", 0, correlation=6),
            ]
        )
    )
    assert found.kind.tolist() == [GpuKind.CPU_OP, GpuKind.RUNTIME, GpuKind.KERNEL, GpuKind.MEMSET]
    assert found.lanes == [Lane(False, "4000", "4000"), Lane(True, "0", "7")]
    assert found.stream.tolist() == [4000, 4000, 7, 7]
    assert found.device.tolist() == [NULL_I64, NULL_I64, 0, 0]


def test_waits_that_the_device_library_reports_have_no_place_in_a_stream() -> None:
    found = parse(
        trace([work("Event Sync", 1, 1, 4, stream=20, cat="cuda_sync"), work("k", 2, 1, 5, stream=20)])
    )
    assert found.lanes == [Lane(True, "0", ""), Lane(True, "0", "20")]


def test_only_whole_rank_lists_are_groups() -> None:
    header = {
        "rank": 1,
        "world_size": 4,
        "pg_config": [
            {"pg_name": "0", "pg_size": 4, "ranks": [0, 1, 2, 3]},
            {"pg_name": "1", "pg_size": 4, "ranks": [0, 1]},
            {"pg_name": "2", "pg_size": 2, "ranks": [0, "..."]},
            {"pg_name": "3", "pg_size": 2, "ranks": "[0, 1]"},
            "nonsense",
        ],
    }
    assert parse({"traceEvents": [], "distributedInfo": header}).groups == {"0": (0, 1, 2, 3)}


@pytest.mark.parametrize(
    "about", [None, [], {"rank": -1}, {"rank": 2**40}, {"rank": 1.5}, {"rank": True}, {}]
)
def test_what_is_no_rank_is_none(about: Any) -> None:
    assert parse({"distributedInfo": about, "traceEvents": [event("a", "cpu_op", 1, 1, 1)]}).rank is None


def test_header_may_follow_the_events_and_the_list_may_be_bare() -> None:
    events = [event("a", "cpu_op", 1, 1, 1)]
    late = parse({"traceEvents": events, "distributedInfo": {"rank": 3}, "baseTimeNanoseconds": 1})
    assert (late.rank, late.begin_ns[0]) == (3, (START_US + 1) * 1_000 + 1)
    bare = parse(events)
    assert (bare.rank, len(bare)) == (None, 1)


def test_times_without_a_start_are_told() -> None:
    assert parse(trace([event("a", "cpu_op", -START_US + 7, 1, 1)])).relative
    assert not parse(trace([event("a", "cpu_op", -START_US + 7, 1, 1)], baseTimeNanoseconds=10**18)).relative


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"", "empty"),
        (b"  \n", "empty"),
        (b"\x00\x01\x02", "neither a JSON object nor a list"),
        (b"hello", "neither"),
        (b"{}", "no list traceEvents"),
        (b'{"traceEvents": 4}', "no list traceEvents"),
        (b'{"traceEvents": [', "cut short"),
        (b'{"traceEvents": [{"ph": "X"', "invalid JSON"),
        (b'{"traceEvents": [{"ph": "X"}]', "cut short"),
        (b'{"traceEvents": []} x', "something follows"),
        (b'{"traceEvents": [{} {}]}', "',' was expected"),
        (b'{"traceEvents": [{},]}', "a value was expected"),
        (b'{"traceEvents": [' + b"[" * 200_000, "nested too deeply"),
        (b"{traceEvents: []}", "a key was expected"),
        (b'{"a" 1}', "':' was expected"),
        (b'{"a": 1 "traceEvents": []}', "',' was expected"),
    ],
)
def test_what_is_no_trace_says_why(content: bytes, what: str) -> None:
    with pytest.raises(MalformedInput, match=what):
        parse(content)


def test_entries_that_are_no_events_are_counted() -> None:
    found = parse({"traceEvents": [1, None, [], "x", event("a", "cpu_op", 1, 1, 1)]})
    assert (len(found), found.skipped["not an event"]) == (1, 4)


def test_odd_values_do_no_harm() -> None:
    odd = event("a\ud800b", "cpu_op", 1, 1, None, [1], correlation="7") | {"args": [1]}
    long = event("x" * 9_000, "kernel", 1, 1, {"a": 1}, 0, correlation=1.5, stream="x", device=-3)
    found = parse(trace([odd, long, event("", "", 1, 1, 1) | {"name": 5, "cat": None}]))
    assert len(found) == 3
    assert found.names[0] == "a\\ud800b"
    assert len(found.names[1]) == kineto.NAME_CHARS_MAX
    assert found.correlation.tolist() == [NULL_I64] * 3


@pytest.mark.parametrize("chunk", [1, 2, 7, 64, 1_000])
def test_the_window_may_end_anywhere(chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    content = raw(job(1) | {"note": "µ and 中", "number": 1234567890})
    whole = parse(content)
    monkeypatch.setattr(window, "CHUNK_BYTES", chunk)
    cut = kineto.parse(io.BytesIO(content))
    assert (cut.digest, cut.names, cut.lanes, cut.skipped) == (
        whole.digest,
        whole.names,
        whole.lanes,
        whole.skipped,
    )
    assert cut.begin_ns.tolist() == whole.begin_ns.tolist()
    assert cut.duration_ns.tolist() == whole.duration_ns.tolist()


def test_memory_is_the_windows_not_the_files() -> None:
    entry = raw(event("aten::add", "cpu_op", 1, 1, 1, note="x" * 400)) + b","

    class Long(io.BytesIO):
        """A list of 50 MB that never exists at once."""

        left = 100_000
        sent = b"["

        def read(self, size: int | None = -1) -> bytes:
            assert size is not None
            count = min(self.left, size // len(entry))
            self.left -= count
            out, self.sent = self.sent + entry * count, b""
            if not self.left and count:
                out += b"{}]"
            return out

    text = window.JsonWindow(Long())
    assert text.peek() == "["
    text.at += 1
    widths = []
    text.items(lambda _: widths.append(len(text.text)))
    assert len(widths) == 100_001
    assert max(widths) < 2 * window.CHUNK_BYTES


@pytest.mark.parametrize(
    "odd",
    [
        {"cat": "gpu_memcpy", "args": {"bytes": 10**400}},
        {"cat": "gpu_memset", "args": {"bytes": -(2**63)}},
        {"cat": "gpu_memcpy", "args": {"bytes": float("inf")}},
        {"args": {"correlation": 2**63}},
        {"cat": "kernel", "args": {"stream": 10**30}},
        {"cat": "kernel", "args": {"device": -(10**30)}},
        {"tid": 2**64},
        {"pid": 2**64},
    ],
)
def test_a_number_beyond_64_bits_costs_its_event(odd: Event) -> None:
    found = parse(trace([event("odd", "cpu_op", 2, 2, 1) | odd, event("good", "cpu_op", 1, 1, 1)]))
    assert found.skipped[kineto.BEYOND] == 1
    assert [found.names[place] for place in found.name] == ["good"]
    assert (found.sizes, found.lanes) == ({}, [Lane(False, "4000", "1")])


def test_a_number_of_thousands_of_digits_costs_its_event() -> None:
    digits = "9" * 5_000
    odd = f'{{"ph":"X","cat":"gpu_memcpy","name":"m","ts":5,"dur":1,"pid":0,"tid":7,"args":{{"bytes":{digits}}}}}'
    good = '{"ph":"X","cat":"cpu_op","name":"good","ts":6,"dur":1,"pid":1,"tid":1}'
    found = parse(f'{{"baseTimeNanoseconds":{10**18},"traceEvents":[{odd},{good},{digits}]}}'.encode())
    assert found.begin_ns.tolist() == [10**18 + 6_000]
    assert found.skipped == {kineto.BEYOND: 1, "not an event": 1}


def test_a_time_that_cannot_be_placed_costs_its_event_and_changes_nothing_else() -> None:
    good = [
        event("good", "cpu_op", 0.125, 7.5, 1) | {"ts": 0.125},
        event("b", "cpu_op", 0, 1, 1) | {"ts": 9.0},
    ]
    want = parse(trace(good, baseTimeNanoseconds=10**18))
    found = parse(
        trace([*good, event("odd", "cpu_op", 0, 1, 1) | {"ts": 3.99e15}], baseTimeNanoseconds=10**18)
    )
    assert found.skipped == want.skipped + Counter({OUTSIDE: 1})
    assert found.begin_ns.tolist() == want.begin_ns.tolist() == [10**18 + 125, 10**18 + 9_000]
    assert (found.quantum_ns, found.relative) == (want.quantum_ns, want.relative) == (1, False)


def test_one_late_time_does_not_make_a_trace_absolute() -> None:
    events = [event("a", "cpu_op", 0, 1, 1) | {"ts": ts} for ts in (1, 2, 3.9e15)]
    assert parse(trace(events)).relative


def test_an_end_that_cannot_be_placed_is_unknown() -> None:
    found = parse(trace([event("a", "cpu_op", 0, 3.9e15, 1)]))
    assert found.duration_ns.tolist() == [NULL_I64]
