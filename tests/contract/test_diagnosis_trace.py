"""The 8-rank trace diagnosed: a true clock, one that is 50 µs behind, one that is 50 µs ahead."""

from typing import Any

import pytest

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
    assert (first["last_to_arrive"], first["last_duration_ns"]) == ("rank7", 10_000)
    assert (first["longest_wait"], first["longest_wait_ns"]) == ("rank1", 7_635_000)


def test_a_clock_that_is_behind_is_blamed() -> None:
    found = diagnosed(-50_000)
    assert found["edges"]["collective"] == {"inferred": 58, "violated": 6}
    (incident,) = found["incidents"]
    assert incident["fault_class"] == "clock_fault"
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
