"""Alerts: told once, in a file even after a crash."""

import io
import json
from dataclasses import replace
from pathlib import Path

import pytest

from schemas import codec, records
from schemas.errors import MalformedInput, Setup
from schemas.processor import PartitionWork, Record
from sinks.alerts import REMEMBERED, AlertBook, AlertProcessor, alert_id
from sinks.lines import LinesOutlet

OPEN = records.Incident(
    tenant="default", incident_id="a", scope="job", fault_class="clock_fault", component_kind="clock",
    component="host1/CLOCK_REALTIME", state="open", confidence=0.5, onset_ns=10, detected_ns=20,
    resolved_ns=None, victims=[], evidence="{}", findings=1, through_ns=0, origin_partition=0,
    origin_offset=0,
)  # fmt: skip
RESOLVED = replace(OPEN, state="resolve", resolved_ns=90)
OTHER = replace(OPEN, incident_id="b", component="host2/CLOCK_REALTIME")
LOG = [
    Record("incidents", 0, offset, 0, b"k", codec.encode_record(incident))
    for offset, incident in enumerate((OPEN, replace(OPEN, state="update"), OTHER, RESOLVED, RESOLVED))
]
TOLD = ["a-open", "b-open", "a-resolve"]


def run(outlet: LinesOutlet, log: list[Record], per_commit: int = 1) -> None:
    """Take up where the outlet says, and work through the log."""
    resume = outlet.resume("incidents", 0)
    task = AlertProcessor("default").start(0, resume.snapshot)
    assert dict(task.next_offset) == dict(resume.next_offset)
    at = resume.next_offset.get("incidents", 0)
    while at < len(log):
        work = PartitionWork("incidents", 0, {})
        for record in log[at : at + per_commit]:
            work.outputs += task.process(record)
        work.next_offset, work.snapshot = dict(task.next_offset), task.snapshot()
        outlet.commit([work])
        at = work.next_offset["incidents"]


def told(path: Path) -> list[str]:
    return [alert_id(line) for line in path.read_text().splitlines()]


def test_an_update_or_a_repeat_is_no_alert() -> None:
    book = AlertBook()
    alerts = [
        book.take(each) for each in (OPEN, replace(OPEN, state="update"), OPEN, RESOLVED, RESOLVED, OPEN)
    ]
    assert [alert and alert.alert_id for alert in alerts] == ["a-open", None, None, "a-resolve", None, None]
    assert [alert.at_ns for alert in alerts if alert] == [20, 90]


def test_an_incident_first_seen_resolved_is_told_as_resolved() -> None:
    alert = AlertBook().take(RESOLVED)
    assert alert is not None
    assert (alert.state, alert.text) == ("resolve", "clock_fault of host1/CLOCK_REALTIME resolved")


@pytest.mark.parametrize(
    ("kind", "component", "fault", "words"),
    [
        ("rank", "rank19", "straggler", "straggler of rank19 found"),
        ("link", "leaf1:3", "overload", "overload of link leaf1:3 found"),
        ("source", "worker", "straggler", "straggler of source worker found"),
    ],
)
def test_what_a_component_is_is_said_once(kind: str, component: str, fault: str, words: str) -> None:
    alert = AlertBook().take(replace(OPEN, component_kind=kind, component=component, fault_class=fault))
    assert alert is not None
    assert alert.text == f"{words}, confidence 0.50"


def test_what_was_told_is_bounded() -> None:
    book = AlertBook()
    for number in range(REMEMBERED + 5):
        book.take(replace(OPEN, incident_id=str(number)))
    assert len(book.told) == REMEMBERED
    assert "4" not in book.told


def test_a_line_is_one_json_object(tmp_path: Path) -> None:
    out = io.StringIO()
    run(LinesOutlet(out, tmp_path / "state.json", alert_id), LOG[:1])
    assert json.loads(out.getvalue()) == {
        "tenant": "default", "alert_id": "a-open", "incident_id": "a", "scope": "job", "state": "open",
        "class": "clock_fault", "component_kind": "clock", "component": "host1/CLOCK_REALTIME",
        "confidence": 0.5, "onset_ns": 10, "at_ns": 20, "partition": 0, "offset": 0,
        "text": "clock_fault of host1/CLOCK_REALTIME found, confidence 0.50",
    }  # fmt: skip


@pytest.mark.parametrize("stop", range(len(LOG) + 1))
def test_a_restart_goes_on(tmp_path: Path, stop: int) -> None:
    target, state = tmp_path / "alerts.jsonl", tmp_path / "state.json"
    run(LinesOutlet(target, state, alert_id), LOG[:stop])
    counted = [0]
    outlet = LinesOutlet(target, state, alert_id, on_line=lambda: counted.__setitem__(0, counted[0] + 1))
    before = len(told(target)) if target.exists() else 0
    run(outlet, LOG, per_commit=3)
    assert told(target) == TOLD
    assert counted == [len(TOLD) - before]


@pytest.mark.parametrize("cut", [0, 1, 20])
def test_lines_of_a_commit_that_was_not_finished_come_once(tmp_path: Path, cut: int) -> None:
    target, state = tmp_path / "alerts.jsonl", tmp_path / "state.json"
    run(LinesOutlet(target, state, alert_id), LOG[:1])
    before = state.read_bytes()
    run(LinesOutlet(target, state, alert_id), LOG)
    # The crash: lines written, the last perhaps in part, the state not yet.
    state.write_bytes(before)
    content = target.read_bytes()
    target.write_bytes(content[: len(content) - cut])
    run(LinesOutlet(target, state, alert_id), LOG, per_commit=2)
    assert told(target) == TOLD
    assert all(json.loads(line) for line in target.read_text().splitlines())


def test_a_broken_incident_is_counted() -> None:
    task = AlertProcessor("default").start(0, None)
    assert task.process(Record("incidents", 0, 0, 0, None, b"noise")) == []
    assert task.counters() == {"unreadable": {("malformed",): 1}}
    assert dict(task.next_offset) == {"incidents": 1}


@pytest.mark.parametrize(
    "content", ["{", "[]", '{"incidents/0": {"next": {}}}', '{"incidents/0": {"next": 1}}']
)
def test_a_damaged_state_is_one_clear_error(tmp_path: Path, content: str) -> None:
    state = tmp_path / "state.json"
    state.write_text(content)
    with pytest.raises(MalformedInput, match=r"delete it to begin anew.*state\.json"):
        LinesOutlet(tmp_path / "out", state, alert_id).resume("incidents", 0)


def test_a_target_that_cannot_be_written_is_one_clear_error(tmp_path: Path) -> None:
    outlet = LinesOutlet(tmp_path / "none" / "out.jsonl", tmp_path / "state.json", alert_id)
    with pytest.raises(Setup, match=r"out\.jsonl cannot be written"):
        run(outlet, LOG[:1])
