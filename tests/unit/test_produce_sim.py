"""The options of `produce sim` that need a word of their own."""

import json
from pathlib import Path

import pytest

from producers.sim.cluster import read
from producers.sim.options import START_NS, SimOptions, SimReport
from schemas.errors import Setup, Usage
from schemas.time import NS
from tempotrace.cli.produce_sim import start_ns_tai, with_truth
from tempotrace.clockwork import seeded

NOW = 1_790_000_000 * NS
OPTIONS = SimOptions(hosts=2, ranks=4, seconds=0.1, fabric=True)


@pytest.mark.parametrize(
    ("text", "pace", "expected"),
    [
        (None, False, START_NS),
        (None, True, NOW),
        ("now", False, NOW),
        ("2026-01-01T00:00:00", False, START_NS),
        ("2026-01-01T00:00:00.000250", False, START_NS + 250_000),
        ("2030-01-01", True, 1_893_456_000 * NS),
    ],
)
def test_start(text: str | None, pace: bool, expected: int) -> None:
    assert start_ns_tai(text, pace, NOW) == expected


@pytest.mark.parametrize(
    ("text", "pace"),
    [("soon", False), ("2026-01-01T00:00:00Z", False), ("2026-01-01T00:00:00", True)],
)
def test_a_start_that_cannot_be_is_refused(text: str, pace: bool) -> None:
    with pytest.raises(Usage):
        start_ns_tai(text, pace, NOW)


def test_the_truth_is_there_with_the_first_batch(tmp_path: Path) -> None:
    path, report = tmp_path / "truth.json", SimReport()
    batches = with_truth(read(OPTIONS, report, seeded(OPTIONS.seed)), report, path)
    next(batches)
    truth = json.loads(path.read_text(encoding="utf-8"))
    assert truth == report.truth
    assert [fault["class"] for fault in truth["faults"]] == ["straggler", "clock_step"]
    assert (truth["scope"], truth["seed"], len(truth["flows"])) == (OPTIONS.scope_name, 1, 4)
    assert sum(batch.count for batch in batches if batch.family != "control") == report.events


def test_a_truth_file_that_cannot_be_written_is_said_so(tmp_path: Path) -> None:
    report = SimReport()
    batches = with_truth(read(OPTIONS, report, seeded(1)), report, tmp_path / "none" / "truth.json")
    with pytest.raises(Setup, match=r"truth\.json"):
        next(batches)
