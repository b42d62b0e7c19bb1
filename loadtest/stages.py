"""One pass of a stage: in memory, or through Kafka by the runner and the outlets that production uses.

Each pass is a new member of a new group, so it begins at the log's start with no state. What is measured runs
from the assignment of the partition to the last commit: warm-up, joining and leaving the group do not count.
"""

import shutil
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from loadtest.ground import Ground
from loadtest.measure import Amounts, Pass, Stopwatch
from schemas import topics
from schemas.metrics import Number, Value
from schemas.processor import Outlet, PartitionWork, Processor, Record, Resume
from sinks import views
from sinks.lake import TABLES_OF, LakeProcessor
from sinks.units import LakeOutlet, TopicId
from tempotrace.cli.sink import UNIT_BYTES, UNIT_SECONDS
from tempotrace.clockwork import Clock
from tempotrace.runtime.kafka_log import KafkaLog, Member
from tempotrace.runtime.meters import Meters
from tempotrace.runtime.ports import Place
from tempotrace.runtime.runner import Runner, RunnerSettings
from tempotrace.runtime.slots import size_of
from tempotrace.runtime.transactions import TransactionOutlet

# As stages run, but for --drain. No flush is appended (ticks is False): the input of every pass is the same,
# and all its sources end themselves, so that every window closes without one.
DRAIN = RunnerSettings(drain=True)
DRAIN_LAKE = RunnerSettings(
    drain=True,
    commits_for_lag=True,
    commit_after=UNIT_SECONDS,
    commit_idle_after=UNIT_SECONDS,
    bytes_per_commit=UNIT_BYTES,
)


class Outcome(NamedTuple):
    """A pass and what its stage counted, by metric name."""

    taken: Pass
    counters: Mapping[str, Value]


@dataclass(frozen=True)
class Means:
    """What every pass through Kafka needs."""

    ground: Ground
    compression: str
    clock: Clock
    stop: threading.Event


def in_memory(processor: Processor, records: Sequence[Record], stop: threading.Event) -> Outcome | None:
    """A task takes records and its outputs are dropped, all in this thread; None if stopped before."""
    watch = Stopwatch()
    task = processor.start(0, None)
    written = size = 0
    watch.start()
    for record in records:
        if stop.is_set():
            return None
        for output in task.process(record):
            written += 1
            size += size_of(output)
    watch.lap()
    counters = task.counters()
    read = sum(len(record.key or b"") + len(record.value or b"") for record in records)
    amounts = Amounts(total(counters, "events_in"), len(records), written, read, size)
    return Outcome(watch.measured(amounts), counters)


def through_kafka(means: Means, processor: Processor, tenant: str) -> Outcome | None:
    """A stage that writes its outputs, its state and its offsets in transactions; None if stopped."""
    watch = means.ground.stopwatch()
    log = _Log(means.ground.kafka, means.ground.member(tenant, processor.name), processor.inputs, watch)
    inner = TransactionOutlet(log, processor.inputs, processor.joins, means.clock, means.compression)
    counters = _run(means, processor, log, _Outlet(inner, watch), DRAIN)
    if counters is None:
        return None
    amounts = Amounts(
        total(counters, "events_in"),
        total(counters, "records_read"),
        total(counters, "records_written"),
        total(counters, "bytes_read"),
        total(counters, "bytes_written"),
    )
    return Outcome(watch.measured(amounts), counters)


def into_lake(means: Means, tenant: str, topic: str, events: int) -> Outcome | None:
    """The lake's sink on a topic that holds `events`; None if stopped. Bytes out are those of the files."""
    watch = means.ground.stopwatch()
    folder = means.ground.folder / "lake"
    views.prepare(folder)
    log = _Log(means.ground.kafka, means.ground.member(tenant, "lake"), (topic,), watch)

    def named(suffix: str) -> TopicId:
        return TopicId(topics.topic(tenant, suffix), log.topic_id(suffix))

    outlet = _Outlet(LakeOutlet(folder, tenant, named, TABLES_OF), watch)
    try:
        counters = _run(means, _Lake(tenant, topic), log, outlet, DRAIN_LAKE)
        files = list(folder.rglob("*.parquet"))
        size = sum(path.stat().st_size for path in files)
    finally:
        shutil.rmtree(folder)
    if counters is None:
        return None
    amounts = Amounts(
        events, total(counters, "records_read"), len(files), total(counters, "bytes_read"), size
    )
    return Outcome(watch.measured(amounts), counters)


def total(counters: Mapping[str, Value], name: str) -> int:
    """A metric's numbers added up over its labels."""
    value: Any = counters.get(name, 0)
    numbers: Sequence[Number] = list(value.values()) if isinstance(value, Mapping) else [value]
    return int(sum(numbers))


def _run(
    means: Means, processor: Processor, log: KafkaLog, outlet: Outlet, settings: RunnerSettings
) -> dict[str, Value] | None:
    meters = Meters()
    runner = Runner(processor, log, outlet, settings, means.clock, means.stop, meters)
    runner.run()
    return None if means.stop.is_set() else meters.values()


class _Lake(LakeProcessor):
    """The lake of one topic alone."""

    def __init__(self, tenant: str, topic: str) -> None:
        super().__init__(tenant)
        self.inputs = (topic,)


class _Log(KafkaLog):
    """Starts the watch when the partition is assigned."""

    def __init__(
        self, kafka: Mapping[str, str], member: Member, inputs: Sequence[str], watch: Stopwatch
    ) -> None:
        super().__init__(kafka, member, inputs)
        self._watch = watch

    def begin(self, positions: Mapping[Place, int]) -> None:
        self._watch.start()
        super().begin(positions)


class _Outlet:
    """Another outlet, with a lap of the watch after each commit."""

    def __init__(self, inner: Outlet, watch: Stopwatch) -> None:
        self._inner, self._watch = inner, watch

    def resume(self, topic: str, partition: int) -> Resume:
        return self._inner.resume(topic, partition)

    def commit(self, work: Sequence[PartitionWork]) -> None:
        self._inner.commit(work)
        self._watch.lap()

    def abort(self) -> None:
        self._inner.abort()
