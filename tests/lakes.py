"""A sink without Kafka: a log in memory, a task and an outlet for each partition, stopped at will."""

from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow as pa

from schemas.processor import PartitionWork, Record
from sinks import views
from sinks.lake import TABLES_OF, LakeProcessor, LakeTask
from sinks.units import LakeOutlet, TopicId
from tests.parts import APPEND_MS

TENANT = "default"


def topic(suffix: str, topic_id: str = "AbC/1+x") -> TopicId:
    """A topic of the tenant as the broker would name it."""
    return TopicId(f"tempotrace.{TENANT}.{suffix}", topic_id)


def records(suffix: str, values: Sequence[bytes], partition: int = 0) -> list[Record]:
    """A partition's records, a second apart."""
    return [
        Record(suffix, partition, offset, 1_700_000_000_000 + 1000 * offset, b"job", value)
        for offset, value in enumerate(values)
    ]


def take(task: LakeTask, suffix: str, value: bytes, offset: int = 0) -> dict[str, pa.Table]:
    """The tables of one record, by name."""
    headers = (("tt-count", b"3"), ("tt-reason", b"late"))
    outputs = task.process(Record(suffix, 1, offset, APPEND_MS, b"job", value, headers))
    assert len({output.topic for output in outputs}) == len(outputs)
    return {output.topic: output.value for output in outputs}


def fresh() -> LakeTask:
    """A task that has read nothing."""
    return LakeProcessor("default").start(1, None)


class Sink:
    """One process that sinks one partition of a topic."""

    def __init__(
        self,
        lake: Path,
        log: Sequence[Record],
        *,
        known: TopicId | None = None,
        before_step: Callable[[int], None] = lambda step: None,
    ) -> None:
        views.prepare(lake)
        self.log = list(log)
        self.suffix, self.partition = self.log[0].topic, self.log[0].partition
        self._known = known or topic(self.suffix)
        self.outlet = LakeOutlet(lake, TENANT, lambda suffix: self._known, TABLES_OF, before_step=before_step)
        self.task: LakeTask
        self.take_up()

    def take_up(self) -> None:
        """Go on after the last unit."""
        resume = self.outlet.resume(self.suffix, self.partition)
        self.task = LakeProcessor(TENANT).start(self.partition, resume.snapshot)
        self.at = resume.next_offset.get(self.suffix, 0)
        assert dict(self.task.next_offset) == dict(resume.next_offset)

    def run(self, per_unit: int = 2, units: int | None = None) -> None:
        """Work through the log, or so many units of it."""
        while self.at < len(self.log) and (units is None or units > 0):
            work = PartitionWork(self.suffix, self.partition, {})
            for record in self.log[self.at : self.at + per_unit]:
                work.outputs += self.task.process(record)
            work.next_offset, work.snapshot = dict(self.task.next_offset), self.task.snapshot()
            self.outlet.commit([work])
            self.at = work.next_offset[self.suffix]
            units = None if units is None else units - 1
