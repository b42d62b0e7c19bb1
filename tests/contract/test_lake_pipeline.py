"""The lake as the last stage of a real pipeline, without Kafka: simulated job, merge, lake."""

from pathlib import Path

import pytest

from producers.sim.cluster import read
from producers.sim.options import SimOptions, SimReport
from schemas.codec import decode_merged, encode_batch
from schemas.errors import LostInput
from schemas.merged import Merged, write
from schemas.topics import batch_headers, topic
from sinks import units, views
from sinks.lake import TABLES_OF, LakeProcessor
from sinks.units import LakeOutlet, TopicId
from streams.causality.merge import Merge
from streams.causality.settings import MergeSettings
from tempotrace.clockwork import FakeClock, seeded
from tempotrace.runtime.local import LocalRunner, MemoryLog
from tests.contract.processor_suite import Case, ProcessorSuite, run, with_broken
from tests.lakes import records
from tests.parts import Maker


@pytest.fixture
def pipeline(tmp_path: Path) -> tuple[LocalRunner, MemoryLog, SimReport, Path]:
    """A small job in the log, its merge, and a lake; nothing was run yet."""
    log, report = MemoryLog(FakeClock()), SimReport()
    options = SimOptions(ranks=8, hosts=2, seconds=1.0)
    for batch in read(options, report, seeded(3)):
        headers = tuple(batch_headers(batch.family, batch.count, batch.scope))
        log.append("events", 0, batch.scope.encode(), encode_batch(batch), headers)
    views.prepare(tmp_path)
    return runner_of(log, tmp_path), log, report, tmp_path


def runner_of(log: MemoryLog, lake: Path) -> LocalRunner:
    """Merge and lake over this log; a new one is a restart of the process."""

    def named(suffix: str) -> TopicId:
        return TopicId(topic("default", suffix), log.topic_id(suffix))

    outlet = LakeOutlet(lake, "default", named, TABLES_OF)
    processors = (Merge(MergeSettings("default")), LakeProcessor("default"))
    return LocalRunner(processors, log, outlets={"lake": outlet}, records_per_commit=5)


def counted(lake: Path) -> dict[str, int]:
    """Rows by table, with distinct events."""
    with views.connect(lake) as connection:
        names = ("events", "edges", "windows", "clocks", "archive", "late", "deadletters")
        rows = {name: connection.execute(f"SELECT count(*) FROM {name}").fetchall()[0][0] for name in names}
        query = "SELECT count(DISTINCT (scope, source, incarnation, seq)) FROM events"
        rows["distinct"] = connection.execute(query).fetchall()[0][0]
    return rows


def test_every_event_produced_is_in_the_lake(
    pipeline: tuple[LocalRunner, MemoryLog, SimReport, Path],
) -> None:
    runner, log, report, lake = pipeline
    runner.flush("default")
    rows = counted(lake)
    assert rows["events"] == rows["distinct"] == report.events > 1000
    assert (rows["late"], rows["deadletters"]) == (0, 0)
    assert rows["archive"] == len(log.records("events"))
    merged = [decode_merged(record.value or b"") for record in log.records("merged")]
    parts = [part for part in merged if isinstance(part, Merged)]
    assert rows["edges"] == sum(part.table_len("edge") for part in parts) > 1000
    assert rows["windows"] == len({part.window_start_ns for part in parts}) > 5
    assert units.verify(lake)[1] == []


def test_a_restart_amid_the_log_repeats_nothing(
    pipeline: tuple[LocalRunner, MemoryLog, SimReport, Path],
) -> None:
    runner, log, report, lake = pipeline
    runner.run()
    runner.restart("lake")
    runner.flush("default")
    again = runner_of(log, lake)
    again.restart("lake")
    rows = counted(lake)
    assert rows["events"] == rows["distinct"] == report.events


def test_a_topic_made_again_stops_the_lake(
    pipeline: tuple[LocalRunner, MemoryLog, SimReport, Path],
) -> None:
    runner, log, _, _ = pipeline
    runner.flush("default")
    log.remake("events")
    with pytest.raises(LostInput, match="the topic was made anew"):
        runner.restart("lake")


class TestLakeProcessor(ProcessorSuite):
    """The lake's processor keeps what every stage must keep."""

    def case(self) -> Case:
        maker = Maker(count=20)
        windows = [write(maker.part()) for _ in range(6)]
        return Case(lambda: LakeProcessor("default"), records("merged", windows))

    def test_broken_records_are_dead_lettered_or_counted(self) -> None:
        """The lake's dead letters are rows of its table, one for each broken record."""
        case = self.case()
        mixed = with_broken(case.records)
        outputs = run(Case(case.processor, mixed))
        letters = [output for output in outputs if output.topic == "deadletters"]
        assert len(letters) == len(mixed) - len(case.records)
        others = [(output.topic, output.value.num_rows) for output in outputs if output not in letters]
        assert others == [(output.topic, output.value.num_rows) for output in run(case)]
