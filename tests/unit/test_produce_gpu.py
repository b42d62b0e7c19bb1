"""`tempotrace produce gpu`: its options, and what it sends and says."""

import json
import logging
from pathlib import Path

import pytest
import typer

from producers.transport import MemoryTransport
from schemas import codec
from schemas.errors import MalformedInput, Usage
from tempotrace.cli import feed, produce_gpu
from tempotrace.cli.produce_gpu import clock_bound_ns, clock_offsets_ns
from tests.gpu_traces import folder, job, raw


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> MemoryTransport:
    """What goes to Kafka otherwise."""
    transport = MemoryTransport()
    monkeypatch.setattr(feed, "KafkaTransport", lambda _: transport)
    return transport


def test_bound_and_offsets() -> None:
    assert clock_bound_ns("1us") == 1_000
    assert clock_offsets_ns(["3=-50us", "node=2=1ms"]) == {"3": -50_000, "node=2": 1_000_000}
    assert clock_offsets_ns([]) == {}


@pytest.mark.parametrize("given", [["50us"], ["=50us"], ["3="], ["3=50"], ["3=1us", "3=2us"]])
def test_an_offset_that_is_none_is_refused(given: list[str]) -> None:
    with pytest.raises(Usage):
        clock_offsets_ns(given)


@pytest.mark.parametrize("given", ["-1us", "1", "soon"])
def test_a_bound_that_is_none_is_refused(given: str) -> None:
    with pytest.raises(Usage):
        clock_bound_ns(given)


def test_a_folder_goes_out_with_one_object_and_one_line_a_fault(
    tmp_path: Path,
    sent: MemoryTransport,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    path = folder(tmp_path, {"a.json": raw(job(0, 2)), "b.json": raw(job(1, 2)), "c.json": b"\x00"})
    with caplog.at_level(logging.WARNING):
        produce_gpu.gpu([path], clock_bound="1us", clock_offset=["1=-50us"], tenant="acme", as_json=True)
    out = json.loads(capsys.readouterr().out)
    assert (out["events"], out["files"], out["ranks"]) == (28, 2, 2)
    assert out["skipped"] == {"unreadable file": 1, "profiler span": 2, "phase M": 2, "phase i": 2}
    assert out["facts"] == {
        "launches matched": 8,
        "waits matched": 2,
        "collective kernels": 4,
        "collective kernels matched": 4,
    }
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == [
        "c.json: not a profiler trace: neither a JSON object nor a list; left out"
    ]
    batches = [codec.decode_batch(each.value) for each in sent.sent]
    assert {each.topic for each in sent.sent} == {"tempotrace.acme.events"}
    assert {batch.scope for batch in batches} == {out["scope"]}
    assert [batch.family for batch in batches] == ["control", "gpu", "gpu"]
    assert out["batches"] == 3


def test_nothing_usable_sends_nothing(tmp_path: Path, sent: MemoryTransport) -> None:
    with pytest.raises(MalformedInput, match=r"a\.json"):
        produce_gpu.gpu([folder(tmp_path, {"a.json": b"\x00"})])
    assert sent.sent == []


def test_the_command_has_an_example() -> None:
    app = typer.Typer()
    produce_gpu.register(app)
    (command,) = app.registered_commands
    assert command.name == "gpu"
    assert "Example: tempotrace produce gpu --kineto" in (command.help or "")
