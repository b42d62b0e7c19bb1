"""The options of `produce sim` that need a word of their own."""

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from producers.publisher import MemoryTransport
from producers.sim.cluster import read
from producers.sim.options import START_NS, SimOptions, SimReport
from schemas.codec import decode_batch
from schemas.columns import SOURCE_FINAL
from schemas.errors import Setup, Usage
from schemas.time import NS
from tempotrace.cli import feed, run
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


class Transport(MemoryTransport):
    """Keeps what is sent; asks the process to stop at one of the messages."""

    def __init__(self, stop_at: int) -> None:
        super().__init__()
        self.stop_at = stop_at

    def send(self, *message: Any) -> None:
        super().send(*message)
        if len(self.sent) == self.stop_at:
            signal.raise_signal(signal.SIGTERM)


def produce(monkeypatch: pytest.MonkeyPatch, *arguments: str, stop_at: int = 0) -> tuple[int, Transport]:
    transport = Transport(stop_at)
    monkeypatch.setattr(feed, "KafkaTransport", lambda kafka, **_: transport)
    return run(["produce", "sim", "--hosts", "2", "--ranks", "4", "--json", *arguments]), transport


def test_the_command_tells_what_it_sent(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, transport = produce(monkeypatch, "--seconds", "0.2", "--scenario", "straggler", "--scope", "mine")
    result = json.loads(capsys.readouterr().out)
    assert code == 0
    assert (result["scope"], result["skipped"]) == ("mine", {})
    assert [fault["class"] for fault in result["faults"]] == ["straggler"]
    batches = [decode_batch(sent.value) for sent in transport.sent]
    assert result["batches"] == len(batches)
    assert result["events"] == sum(batch.count for batch in batches if batch.family != "control")


def test_a_stopped_command_ends_its_sources_and_says_so_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, transport = produce(monkeypatch, "--pace", "--seconds", "60", stop_at=6)
    result = json.loads(capsys.readouterr().out)
    assert (code, result["waiting"]) == (0, 0)
    last = {}
    for sent in transport.sent:
        batch = decode_batch(sent.value)
        for name, flags in zip(batch.data.get("src_name", ()), batch.data.get("src_flags", ()), strict=True):
            last[batch.strings[name]] = bool(flags & SOURCE_FINAL)
    assert len(last) == 2 * (2 * 3 + 3)
    assert all(last.values())
