"""Paths and diagnosis pass the suite of all processors, on what the merge makes of a simulated job."""

from dataclasses import replace
from functools import cache

from schemas.codec import decode_merged, decode_record
from schemas.merged import Merged
from schemas.processor import Record
from schemas.records import Finding, read
from streams.causality.settings import MergeSettings
from streams.diagnosis.stage import Diagnosis, DiagnosisSettings
from streams.paths.stage import Paths, PathsSettings
from tests.contract.processor_suite import Case, ProcessorSuite, run
from tests.simulation import pipeline

IN_PARTS = MergeSettings(part_bytes_max=5_000)


@cache
def merged(scenario: str) -> tuple[Record, ...]:
    """Windows in several parts and the end of the scope; then only the first part of a window."""
    base = replace(pipeline.SMALL, ranks=8, hosts=8, seconds=0.7)
    records = pipeline.run(scenario, 3, base, merge=IN_PARTS).log.records("merged")
    first = records[0]
    part = decode_merged(first.value or b"")
    assert isinstance(part, Merged)
    assert int(part.header["parts"]) > 1
    return (*records, first._replace(offset=records[-1].offset + 1))


class TestPaths(ProcessorSuite):
    def case(self) -> Case:
        return Case(lambda: Paths(PathsSettings()), merged("fabric"))


class TestDiagnosis(ProcessorSuite):
    def case(self) -> Case:
        return Case(lambda: Diagnosis(DiagnosisSettings()), merged("straggler+clock-fault"))

    def test_both_faults_are_found(self) -> None:
        found = [read(Finding, decode_record(output.value)) for output in run(self.case())]
        assert {finding.fault_class for finding in found} == {"straggler", "clock_fault"}
