"""The demo's report on the user's own files: traces, a log, and a file that is of no use, in a real lake."""

import json
from pathlib import Path
from typing import Any

import pytest

from producers.sim.cluster import read
from producers.sim.options import SimOptions, SimReport
from schemas.codec import encode_batch
from schemas.errors import Setup
from schemas.processor import Outlet, Processor
from schemas.topics import batch_headers
from sinks import views
from sinks.lake import TABLES_OF, LakeProcessor
from sinks.units import LakeOutlet
from streams.causality.merge import Merge
from streams.causality.settings import MergeSettings
from tempotrace.analyze import analyze
from tempotrace.clockwork import FakeClock, WallClock, seeded
from tempotrace.demo import report
from tempotrace.demo.crew import Child, Crew
from tempotrace.demo.run import TENANT, Outcome
from tempotrace.inputs import Choices
from tempotrace.runtime.local import LocalRunner, MemoryLog
from tests import int_build as b
from tests.gpu_traces import job, raw
from tests.lakes import topic

LOG = "".join(f"ptp4l[{n}.5]: [a.0] master offset {n} s2 freq +1 path delay 100\n" for n in range(99))
REPORT = b.individual(b.ethernet(b.ipv4(b.udp(b.md_20([{"node": 2}], b.bitmap(0))))), kind=0)
CAPTURE = b.pcap([(10**18, b.frame(b.report_20(REPORT, node=9)))])


@pytest.fixture
def found(tmp_path: Path) -> dict[str, Any]:
    """The report of a run in which only the user's own files went into the lake."""
    contents = {
        "a.json": raw(job(0, 2)),
        "b.json": raw(job(1, 2)),
        "ptp4l.log": LOG.encode(),
        "junk.log": b"hello\n",
        "int.pcap": CAPTURE,
    }
    paths = [tmp_path / name for name in contents]
    for path, content in zip(paths, contents.values(), strict=True):
        path.write_bytes(content)
    lake = tmp_path / "lake"
    views.prepare(lake)
    sink: tuple[list[Processor], dict[str, Outlet]]
    sink = ([LakeProcessor(TENANT)], {"lake": LakeOutlet(lake, TENANT, topic, TABLES_OF)})
    read = analyze(paths, Choices(tenant=TENANT, scope="own-1"), lambda events, what: None, sink)
    outcome = Outcome(
        scopes={"job": "job-1", "mesh": "mesh-1", "own": "own-1"},
        produced={"own": {"events": read["events"], "inputs": read["inputs"]}},
        stages={"merge": {"events_out": read["rows"]}},
    )
    return report.result(outcome, lake, 1.0)


def test_the_lake_has_of_the_files_what_analyze_finds_in_them(found: dict[str, Any]) -> None:
    own = found["own"]
    assert own["events"] == found["events_in_lake"] == found["events_produced"] == 28 + 99 + 1
    assert own["flows"] == 1
    assert own["edges"]["collective"] == {"inferred": 4}
    for wait in own["longest_waits"]:
        assert wait["longest_wait_ns"] == wait["longest_ns"] - wait["last_ns"] >= 0
    assert [clock["status"] for clock in own["clock_logs"]] == ["locked"]
    assert found["slowest_rank"] is None  # that is the job's
    json.dumps(found)


def test_people_are_told_of_their_files(found: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    (warning,) = [line for line in found["warnings"] if "junk.log" in line]
    assert "junk.log: none of 1 lines is of a clock log's format" in warning
    report.show(found, started=False)
    told, _, more = capsys.readouterr().out.partition("Three things to try next:\n")
    hosts, _, own = told.partition("Your own files")
    assert "kineto:" not in hosts
    assert f"left out: {warning}" in own
    assert "edges of kind collective: 4 inferred" in own
    assert "1 flow followed" in own
    assert "kineto:1" in own
    assert "ptp:a.0" in own
    assert [("own-1" in line, "job-1" in line) for line in more.splitlines()] == [
        (True, False),
        (True, False),
        (False, True),
    ]


def ended(tmp_path: Path, printed: dict[str, Any], forgiving: bool) -> Child:
    """A child that printed an object and failed."""
    with Crew(tmp_path / "crew", tmp_path / "home", WallClock()) as crew:
        child = crew.start("own", ["sql"], forgiving)
        child.process.wait()
    assert child.process.returncode == 2
    child.process.returncode = 1
    child.out.write_text(json.dumps(printed))
    return child


def test_files_of_which_nothing_could_be_used_do_not_end_the_demo(tmp_path: Path) -> None:
    printed = {"error": "nothing of the files could be used", "events": 0, "inputs": []}
    assert ended(tmp_path, printed, True).result() == printed
    with pytest.raises(Setup, match="own ended with code 1"):
        ended(tmp_path, printed, False).result()
    with pytest.raises(Setup, match="own ended with code 1"):
        ended(tmp_path, {"error": "no broker"}, True).result()


def test_edges_against_a_clock_are_counted_with_those_of_the_clocks_below_it(tmp_path: Path) -> None:
    options = SimOptions(
        ranks=8,
        hosts=4,
        seconds=1.0,
        step_ns=20_000_000,
        scenario="healthy",
        faults=("clock_step:host1:250us@500ms",),
    )
    log = MemoryLog(FakeClock())
    for batch in read(options, SimReport(), seeded(3)):
        headers = tuple(batch_headers(batch.family, batch.count, batch.scope))
        log.append("events", 0, batch.scope.encode(), encode_batch(batch), headers)
    views.prepare(tmp_path)
    outlet = LakeOutlet(tmp_path, "default", topic, TABLES_OF)
    runner = LocalRunner(
        (Merge(MergeSettings("default")), LakeProcessor("default")), log, outlets={"lake": outlet}
    )
    runner.flush("default")
    with views.connect(tmp_path) as db:
        ((scope, edges),) = db.execute(
            "SELECT scope, count(*) FROM edges WHERE verdict = 'violated' GROUP BY scope"
        ).fetchall()
        pairs = db.execute(
            "SELECT DISTINCT cause_clock, effect_clock FROM edges WHERE verdict = 'violated'"
        ).fetchall()
        others = {clock for pair in pairs for clock in pair if not clock.startswith("host1/")}
        assert all(sum(clock.startswith("host1/") for clock in pair) == 1 for pair in pairs)
        found = db.execute(report.CONTRADICTIONS, ["host1/ptp0", "default", scope]).fetchall()
        assert found == [(edges, len(others))]
        assert edges > len(others) > 1
        assert db.execute(report.CONTRADICTIONS, ["host1/ptp0", "default", "other"]).fetchall() == [(0, 0)]
