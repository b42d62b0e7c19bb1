"""The 8-rank trace diagnosed: a true clock, one that is 50 µs behind, one that is 50 µs ahead."""

from typing import Any

import pytest

from tempotrace import told
from tempotrace.analyze import analyze
from tempotrace.inputs import Choices
from tests.paths import shared_data


def diagnosed(offset_ns: int | None) -> dict[str, Any]:
    """The analysis, with the clock of rank 3 moved and all bounds claimed as 1 µs (None: as they are)."""
    moved: dict[str, Any] = (
        {"clock_bound_ns": 1_000, "clock_offset_ns": {"3": offset_ns}} if offset_ns else {}
    )
    trace = shared_data("gpu", "kineto", "dlrm_8ranks.tar.gz")
    return analyze([trace], Choices(scope="trace", **moved), lambda events, what: None)


def test_as_it_is() -> None:
    found = diagnosed(None)
    assert found["rows"] == 19_781
    assert found["edges"]["collective"] == {"inferred": 64}
    assert found["incidents"] == []
    first, *_ = sorted(found["longest_waits"], key=lambda wait: int(wait["end_ns"]))
    assert (first["operation"], first["members"]) == ("all_to_all", 8)
    assert (first["last_to_arrive"], first["last_ns"]) == ("rank7", 10_000)
    assert (first["longest_wait"], first["longest_ns"]) == ("rank1", 7_635_000)
    assert first["longest_wait_ns"] == 7_625_000  # what its kernel lasted longer than the last one's
    reduces = [wait for wait in found["longest_waits"] if wait["operation"] == "all_reduce"]
    assert [wait["longest_wait_ns"] // 1_000 for wait in reduces] == [883, 582, 221]
    assert [wait["longest_ns"] // 1_000 for wait in reduces] == [952, 602, 307]


def test_two_of_many_ranks() -> None:
    """A wait is the difference of two kernels, and the traces of two ranks do not make a collective whole."""
    traces = [shared_data("gpu", "kineto", f"world128_rank{rank}_sampled.json.gz") for rank in (0, 1)]
    found = analyze(traces, Choices(scope="trace"), lambda events, what: None)
    waits = found["longest_waits"]
    assert [(wait["longest_ns"], wait["last_ns"]) for wait in waits] == [
        (63_644_000, 62_163_000),
        (42_744_000, 42_496_000),
    ]
    assert [wait["longest_wait_ns"] for wait in waits] == [wait["median_wait_ns"] for wait in waits]
    assert told.unmatched(found["inputs"], found["collectives_incomplete"]) == [
        "10 collectives incomplete: the traces are of 2 of 128 members of the job",
        "8 of 20 collective kernels unmatched: no unique alignment",
    ]


def test_a_clock_that_is_behind_is_blamed() -> None:
    found = diagnosed(-50_000)
    assert found["edges"]["collective"] == {"inferred": 58, "violated": 6}
    (incident,) = found["incidents"]
    assert incident["fault_class"] == "clock_fault"
    assert told.component(incident["component"], told.traces(found["inputs"])) == (
        f"{incident['component']} (rank 3, dlrm_kineto/worker3_step_12.1694128201557.pt.trace.json)"
    )
    assert told.why(incident["evidence"] | {"peers_total": 2}) == (
        "behind by 40.5 µs to 184 µs; when last told, 6 edges in 6 matches with 2 other clocks contradicted its bound"
    )
    host, name = incident["component"].split("/")
    assert name == "kineto:3"
    assert incident["evidence"] == {
        "verdict": "blamed", "offset_low_ns": -184_500, "offset_high_ns": -40_500, "violated_edges": 6,
        "matches": 6, "peers": [f"{host}/kineto:5", f"{host}/kineto:7"], "peers_total": 2,
    }  # fmt: skip


def test_a_clock_that_is_ahead_is_a_suspect() -> None:
    found = diagnosed(50_000)
    assert "violated" not in found["edges"]["collective"]
    (incident,) = found["incidents"]
    assert incident["component"].endswith("/kineto:3")
    assert incident["confidence"] == pytest.approx(0.4)
    evidence = incident["evidence"]
    assert (evidence["verdict"], evidence["collectives_skewed"], evidence["collectives"]) == ("suspect", 8, 8)
    assert 45_000 <= evidence["end_skew_mean_ns"] <= 52_000
