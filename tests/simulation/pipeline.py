"""A simulation through merge, paths and diagnosis, without Kafka."""

import json
from dataclasses import dataclass, replace
from typing import Any

from producers.sim.cluster import read as simulate
from producers.sim.options import SimOptions, SimReport
from schemas.codec import decode_record, encode_batch
from schemas.processor import Processor
from schemas.records import Finding, Incident, read
from schemas.topics import batch_headers
from streams.causality.merge import Merge
from streams.causality.settings import MergeSettings
from streams.diagnosis.stage import Diagnosis, DiagnosisSettings
from streams.paths.stage import Paths, PathsSettings
from tempotrace.clockwork import FakeClock, seeded
from tempotrace.runtime.local import LocalRunner, MemoryLog
from tempotrace.summary import incidents_of

RECORD_NS = 1_000_000  # append time that passes with each record
SMALL = SimOptions(ranks=16, hosts=4, seconds=2.5, step_ns=20_000_000)


@dataclass(frozen=True)
class Run:
    """What came of it."""

    log: MemoryLog
    truth: dict[str, Any]
    runner: LocalRunner

    @property
    def findings(self) -> list[Finding]:
        return [read(Finding, decode_record(record.value or b"")) for record in self.log.records("findings")]

    @property
    def incidents(self) -> list[Incident]:
        return incidents_of(self.log.records("findings"))

    def faults(self) -> set[str]:
        """Components that the simulator broke."""
        return {fault["component"] for fault in self.truth["faults"]}

    @staticmethod
    def evidence(incident: Incident) -> dict[str, Any]:
        """What the incident rests on."""
        found: dict[str, Any] = json.loads(incident.evidence)
        return found

    def named(self) -> set[str]:
        """Components that incidents name."""
        return {incident.component for incident in self.incidents}


def run(
    scenario: str,
    seed: int,
    base: SimOptions = SMALL,
    merge: MergeSettings = MergeSettings(),
    **options: Any,
) -> Run:
    """One simulation, whole."""
    chosen = replace(base, scenario=scenario, seed=seed, **options)
    report = SimReport()
    clock = FakeClock()
    log = MemoryLog(clock)
    for batch in simulate(chosen, report, seeded(seed)):
        clock.advance(RECORD_NS)
        headers = tuple(batch_headers(batch.family, batch.count, batch.scope))
        log.append("events", 0, batch.scope.encode(), encode_batch(batch), headers)
    stages: list[Processor] = [Merge(merge), Paths(PathsSettings()), Diagnosis(DiagnosisSettings())]
    runner = LocalRunner(stages, log)
    runner.run()
    return Run(log, report.truth, runner)
