import errno
import json
import os
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from tempotrace.clockwork import FakeClock
from tempotrace.runtime.health import TURN_SECONDS_MAX, HealthServer, Probes
from tempotrace.runtime.meters import Meters


def get(port: int, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_what_a_stage_shows(tmp_path: Path) -> None:
    clock = FakeClock(1_700_000_000_000_000_000)
    meters = Meters()
    state = {"ready": False, "turned": clock.monotonic()}
    probes = Probes(
        meters, lambda: bool(state["ready"]), lambda: float(state["turned"]), lambda: {("events", "3"): 17}
    )
    with HealthServer(tmp_path / "stages", "acme", "merge", 2, probes, clock) as health:
        note = json.loads((tmp_path / "stages" / "acme-merge-2.json").read_text())
        assert note["port"] == health.port
        assert get(health.port, "/readyz") == (503, "no partitions were assigned yet\n")
        state["ready"] = True
        assert get(health.port, "/readyz") == (200, "ready\n")
        meters.show_tasks({"late": {("future",): 4}, "watermark_ns": 1_699_999_998_000_000_000})
        meters.add("records_read", 3, "events")
        meters.observe("commit_seconds", 0.03)
        meters.observe("commit_seconds", 99.0)
        code, text = get(health.port, "/metrics")
        assert code == 200
        lines = text.splitlines()
        own = 'tenant="acme",stage="merge",instance="2"'
        label = set(own.split(","))
        found = {
            (line.split("{")[0], frozenset(line.split("{")[1].split("}")[0].split(","))): line.split()[-1]
            for line in lines
            if "{" in line
        }
        assert found["tempotrace_late_total", frozenset(label | {'reason="future"'})] == "4.0"
        assert found["tempotrace_records_read_total", frozenset(label | {'topic="events"'})] == "3.0"
        assert found["tempotrace_watermark_age_seconds", frozenset(label)] == "2.0"
        assert (
            found["tempotrace_lag_records", frozenset(label | {'topic="events"', 'partition="3"'})] == "17.0"
        )
        assert found["tempotrace_commit_seconds_bucket", frozenset(label | {'le="0.05"'})] == "1.0"
        assert found["tempotrace_commit_seconds_bucket", frozenset(label | {'le="10"'})] == "1.0"
        assert found["tempotrace_commit_seconds_bucket", frozenset(label | {'le="+Inf"'})] == "2.0"
        assert found["tempotrace_commit_seconds_count", frozenset(label)] == "2.0"
        assert get(health.port, "/healthz") == (200, "ok\n")
        clock.advance(round((TURN_SECONDS_MAX + 1) * 1e9))
        assert get(health.port, "/healthz") == (503, "the loop does not turn\n")
        assert get(health.port, "/else")[0] == 404
    assert not (tmp_path / "stages" / "acme-merge-2.json").exists()


@pytest.mark.parametrize(
    ("stage", "families"),
    [
        ("merge", ("late", "deadlettered", "edges", "released_past", "commits", "aborts", "inversions_raw")),
        ("paths", ("unreadable", "path_changes", "commits")),
        ("diagnosis", ("findings", "unreadable", "commits")),
        ("lake", ("deadlettered", "unreadable", "units")),
        ("incidents", ("incidents", "findings_skipped")),
        ("alerts", ("alerts", "unreadable")),
        ("produce-gpu", ("acked_events", "heartbeats_skipped")),
    ],
)
def test_an_idle_stage_shows_what_to_watch_as_none(
    tmp_path: Path, stage: str, families: tuple[str, ...]
) -> None:
    clock, meters = FakeClock(1_700_000_000_000_000_000), Meters()
    probes = Probes(meters, lambda: True, clock.monotonic)
    with HealthServer(tmp_path, "acme", stage, 0, probes, clock) as health:
        idle = get(health.port, "/metrics")[1].splitlines()
        for name in families:
            values = [line.split()[-1] for line in idle if line.startswith(f"tempotrace_{name}_total{{")]
            assert set(values) == {"0.0"}, name
        counts = [line.split()[-1] for line in idle if line.startswith("tempotrace_commit_seconds_count{")]
        assert counts == (["0.0"] if stage in {"merge", "paths", "diagnosis", "lake"} else [])
        assert not [line for line in idle if line.startswith("tempotrace_watermark_ns")]


def test_series_that_count_stand_beside_those_that_do_not(tmp_path: Path) -> None:
    clock, meters = FakeClock(1_700_000_000_000_000_000), Meters()
    meters.show_tasks({"late": {("future",): 4, ("unheard",): 1}})
    with HealthServer(
        tmp_path, "acme", "merge", 0, Probes(meters, lambda: True, clock.monotonic), clock
    ) as health:
        lines = get(health.port, "/metrics")[1].splitlines()
    found = {
        line.split('reason="')[1].split('"')[0]: line.split()[-1]
        for line in lines
        if line.startswith("tempotrace_late_total{")
    }
    assert found == {"late": "0.0", "future": "4.0", "closed": "0.0", "unheard": "1.0"}


def test_a_port_that_cannot_be_noted_is_warned_of_and_no_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    clock = FakeClock(1_700_000_000_000_000_000)
    probes = Probes(Meters(), lambda: True, clock.monotonic)

    def full(path: Path, text: str) -> None:
        path.touch()
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "write_text", full)
    with HealthServer(tmp_path / "stages", "acme", "merge", 0, probes, clock) as health:
        assert get(health.port, "/readyz") == (200, "ready\n")
        assert list((tmp_path / "stages").iterdir()) == []  # half a note would mislead
    (record,) = caplog.records
    assert f"port {health.port}" in record.getMessage()
    assert "No space left on device" in record.getMessage()


def test_only_registered_metrics_are_counted() -> None:
    meters = Meters()
    with pytest.raises(KeyError):
        meters.add("wonders", 1)
    with pytest.raises(AssertionError):
        meters.add("records_read", 1)
    meters.add("records_read", 1, "events")
    meters.add("records_read", 2, "events")
    meters.set("partitions", 4)
    assert meters.values() == {"records_read": {("events",): 3}, "partitions": 4}
