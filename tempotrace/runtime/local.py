"""The runner without Kafka: a log in memory, any chain of processors, run to the end. For tests, `analyze`.

Time is the injected clock's alone, so the same records give the same outputs. Any task can be stopped at any
record and taken up again from what was committed, by the same code that the Kafka runner uses.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

from schemas.codec import encode_batch
from schemas.columns import Control
from schemas.draft import control
from schemas.errors import LostInput
from schemas.metrics import Value
from schemas.processor import Outlet, PartitionWork, Processor, Record, Resume
from schemas.topics import batch_headers
from tempotrace.runtime.restore import take_up
from tempotrace.runtime.slots import Slot, Totals

Headers = tuple[tuple[str, bytes], ...]


class AppendClock(Protocol):
    """The clock that stamps appended records."""

    def now_ns_utc(self) -> int: ...


class MemoryLog:
    """Topics, partitions and records in memory; every append is stamped by the clock (Unix ms)."""

    def __init__(self, clock: AppendClock) -> None:
        self._clock = clock
        self._records: dict[tuple[str, int], list[Record]] = {}
        self._begin: dict[tuple[str, int], int] = {}
        self._made: dict[str, int] = {}

    def append(
        self, topic: str, partition: int, key: bytes | None, value: bytes | None, headers: Headers = ()
    ) -> int:
        """Add a record; its offset."""
        place = (topic, partition)
        offset = self.range(topic, partition)[1]
        append_ms = self._clock.now_ns_utc() // 1_000_000
        self._records.setdefault(place, []).append(
            Record(topic, partition, offset, append_ms, key, value, headers)
        )
        return offset

    def records(self, topic: str, partition: int = 0) -> list[Record]:
        """All records that the log still holds."""
        return list(self._records.get((topic, partition), ()))

    def at(self, topic: str, partition: int, offset: int) -> Record | None:
        """The record at an offset; None at the end of the log."""
        index = offset - self._begin.get((topic, partition), 0)
        held = self._records.get((topic, partition), [])
        return held[index] if 0 <= index < len(held) else None

    def topic_id(self, topic: str) -> str:
        return f"{topic}#{self._made.get(topic, 0)}"

    def range(self, topic: str, partition: int) -> tuple[int, int]:
        begin = self._begin.get((topic, partition), 0)
        return begin, begin + len(self._records.get((topic, partition), ()))

    def fetch(self, topic: str, partition: int, offsets: Sequence[int]) -> Iterator[Record]:
        for offset in offsets:
            record = self.at(topic, partition, offset)
            if record is None:
                raise LostInput(f"{topic}/{partition} holds no record {offset}")
            yield record

    def forget(self, topic: str, partition: int, below: int) -> None:
        """Drop the records below an offset, as retention does."""
        begin, end = self.range(topic, partition)
        drop = min(max(below, begin), end) - begin
        if drop:
            del self._records[topic, partition][:drop]
            self._begin[topic, partition] = begin + drop

    def remake(self, topic: str) -> None:
        """Delete the topic and make it again, empty and with another id."""
        self._made[topic] = self._made.get(topic, 0) + 1
        for place in [place for place in self._records if place[0] == topic]:
            del self._records[place]
            self._begin.pop(place, None)


class MemoryOutlet:
    """Commits into a MemoryLog: bytes to its topics, anything else (a lake's tables) to `tables`."""

    def __init__(self, log: MemoryLog) -> None:
        self._log = log
        self._kept: dict[tuple[str, int], Resume] = {}
        self.tables: dict[str, list[Any]] = {}

    def resume(self, topic: str, partition: int) -> Resume:
        return self._kept.get((topic, partition), Resume({}, None))

    def commit(self, work: Sequence[PartitionWork]) -> None:
        for each in work:
            for output in each.outputs:
                if output.value is None or isinstance(output.value, bytes):
                    self._log.append(output.topic, each.partition, output.key, output.value, output.headers)
                else:
                    self.tables.setdefault(output.topic, []).append(output.value)
            self._kept[each.topic, each.partition] = Resume(dict(each.next_offset), each.snapshot)

    def abort(self) -> None:
        """Nothing is ever half done here."""


class _Stage:
    """One processor with its outlet and its tasks."""

    def __init__(self, processor: Processor, outlet: Outlet, log: MemoryLog, partitions: int) -> None:
        self.processor, self.outlet, self._log = processor, outlet, log
        self.totals = Totals()
        firsts = processor.inputs[:1] if processor.joins else processor.inputs
        self._places = [(topic, partition) for topic in firsts for partition in range(partitions)]
        self.slots: list[Slot] = []
        self.take_up()

    def take_up(self) -> None:
        """Begin at what was committed last; what is in hand is dropped."""
        for slot in self.slots:
            self.totals.give_up(slot)
        self.slots = [take_up(self.processor, *place, self.outlet, self._log)[0] for place in self._places]

    def step(self, slot: Slot) -> bool:
        """Process the next record of a task, the first input first; whether there was one."""
        for topic in slot.inputs:
            record = self._log.at(topic, slot.partition, slot.next_offset[topic])
            if record is not None:
                slot.take(record)
                return True
        return False

    def commit(self) -> None:
        """Hand over what is in hand."""
        dirty = [slot for slot in self.slots if slot.dirty]
        if dirty:
            self.outlet.commit([slot.hand_over() for slot in dirty])
        for slot in dirty:
            slot.settled()

    def needs(self, topic: str, partition: int) -> int | None:
        """Least offset of a topic that this stage may still read; None if it does not read it."""
        needs: list[int] = []
        for slot in self.slots:
            if slot.partition == partition and topic in slot.inputs:
                needs.append(slot.next_offset[topic])
                needs += [ref.offset for ref in slot.task.refs() if ref.topic == topic]
        return min(needs, default=None)


class LocalRunner:
    """Runs a chain of processors over a MemoryLog; outputs of one are the input of the next.

    `outlets` gives a stage another outlet than memory, by the processor's name. With `forget`, records that
    no stage needs any more are dropped, so that a long analysis stays small; topics that none reads are kept.
    """

    def __init__(
        self,
        processors: Sequence[Processor],
        log: MemoryLog,
        *,
        partitions: int = 1,
        outlets: Mapping[str, Outlet] | None = None,
        forget: bool = False,
        records_per_commit: int = 64,
    ) -> None:
        assert records_per_commit > 0
        self.log = log
        self._partitions = partitions
        self._forget = forget
        self._records_per_commit = records_per_commit
        self._stages = {
            each.name: _Stage(each, (outlets or {}).get(each.name) or MemoryOutlet(log), log, partitions)
            for each in processors
        }

    def run(self) -> None:
        """Process everything in the log, and what comes of it, and commit."""
        while True:
            moved = [self._advance(stage) for stage in self._stages.values()]
            if self._forget:
                self._drop_read()
            if not any(moved):
                return

    def flush(self, tenant: str) -> None:
        """Append the control row that makes a merge release every window, and run to the end."""
        batch = control(tenant, "", "local", [(Control.FLUSH, None, None)])
        headers = tuple(batch_headers("control", 1, ""))
        for partition in range(self._partitions):
            self.log.append("events", partition, None, encode_batch(batch), headers)
        self.run()

    def restart(self, stage: str) -> None:
        """Drop a stage's tasks, with all that is not committed, and take them up again."""
        self._stages[stage].take_up()

    def counters(self, stage: str) -> dict[str, Value]:
        """What a stage has counted and committed."""
        entry = self._stages[stage]
        return entry.totals.of(entry.slots)

    def tables(self, stage: str) -> dict[str, list[Any]]:
        """What a stage gave to tables rather than topics, if memory is its outlet."""
        outlet = self._stages[stage].outlet
        return outlet.tables if isinstance(outlet, MemoryOutlet) else {}

    def _advance(self, stage: _Stage) -> bool:
        """Let a stage process what is in the log for it; whether there was anything."""
        moved = False
        for slot in stage.slots:
            taken = 0
            while stage.step(slot):
                moved = True
                taken += 1
                if taken % self._records_per_commit == 0:
                    stage.commit()
        stage.commit()
        return moved

    def _drop_read(self) -> None:
        for stage in self._stages.values():
            for topic in stage.processor.inputs:
                for partition in range(self._partitions):
                    needs = [each.needs(topic, partition) for each in self._stages.values()]
                    known = [need for need in needs if need is not None]
                    if known:
                        self.log.forget(topic, partition, min(known))
