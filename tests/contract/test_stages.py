"""The stages of the pipeline, one by one, through what every processor must do.

The input is a small simulated job with a straggler, a clock fault and in-band telemetry; what one stage puts
out is the next one's input.
"""

from collections.abc import Iterable, Sequence
from functools import cache

from producers.sim.cluster import read
from producers.sim.options import SimOptions, SimReport
from schemas.codec import encode_batch
from schemas.processor import Output, Record
from schemas.topics import batch_headers
from sinks.lake import LakeProcessor
from tempotrace import wiring
from tempotrace.clockwork import seeded
from tests.contract.processor_suite import Case, ProcessorSuite, run

APPEND_MS = 1_767_225_563_000  # the simulated job's begin, as a broker would stamp it
JOB = SimOptions(
    scenario="straggler+clock-fault",
    hosts=2,
    ranks=4,
    seconds=1.0,
    step_ns=50_000_000,
    fabric=True,
    batch_events=256,
    scope="job",
)


@cache
def events() -> tuple[Record, ...]:
    """The job's batches as records of `events`, one each 10 ms of append time."""
    out = []
    for offset, batch in enumerate(read(JOB, SimReport(), seeded(JOB.seed))):
        headers = tuple(batch_headers(batch.family, batch.count, batch.scope))
        at = APPEND_MS + 10 * offset
        out.append(Record("events", 0, offset, at, batch.scope.encode(), encode_batch(batch), headers))
    return tuple(out)


def records(outputs: Iterable[Output], topic: str) -> tuple[Record, ...]:
    """What a stage wrote to a topic, as records of it."""
    found = [output for output in outputs if output.topic == topic]
    return tuple(
        Record(topic, 0, offset, APPEND_MS + offset, output.key, output.value, output.headers)
        for offset, output in enumerate(found)
    )


@cache
def merge_outputs() -> tuple[Output, ...]:
    return tuple(run(Case(lambda: wiring.merge("default"), events())))


def merged() -> Sequence[Record]:
    return records(merge_outputs(), "merged")


class TestMerge(ProcessorSuite):
    def case(self) -> Case:
        return Case(lambda: wiring.merge("default"), events())


class TestPaths(ProcessorSuite):
    def case(self) -> Case:
        return Case(lambda: wiring.paths("default"), merged())


class TestDiagnosis(ProcessorSuite):
    def case(self) -> Case:
        return Case(lambda: wiring.diagnosis("default"), merged())


class TestLakeOfMerged(ProcessorSuite):
    def case(self) -> Case:
        return Case(lambda: LakeProcessor("default"), merged())


class TestLakeOfEvents(ProcessorSuite):
    def case(self) -> Case:
        return Case(lambda: LakeProcessor("default"), events(), takes_anything=True)


class TestLakeOfPaths(ProcessorSuite):
    def case(self) -> Case:
        found = run(Case(lambda: wiring.paths("default"), merged()))
        return Case(lambda: LakeProcessor("default"), records(found, "paths"))
