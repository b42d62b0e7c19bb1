"""What every processor must do, whatever it computes. A stage's test subclasses ProcessorSuite.

    class TestMerge(ProcessorSuite):
        def case(self) -> Case:
            return Case(lambda: Merge(...), records)

The records are those of one partition, in log order, by input topic suffix. They should fill several windows
and leave one open, so that snapshots are taken in every state.
"""

import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from schemas import metrics, topics
from schemas.processor import Output, Processor, Record, Task
from tempotrace.runtime.frame import Frame, pack, unpack

PARTITION = 0
DEAD = {"deadletter", "deadletters"}  # the topic, and the lake's table
BROKEN = (
    None,
    b"",
    b"\xc3",
    b"\xc3\x01",
    b"\xc3\x01" + b"\x00" * 8,
    b"\xc3\x01" + b"\xff" * 40,
    b"noise " * 50,
    struct.pack("<q", -1) * 16,
)


@dataclass(frozen=True)
class Case:
    """A processor, fresh at each call, and records of one partition that make it put something out."""

    processor: Callable[[], Processor]
    records: Sequence[Record]
    takes_anything: bool = False  # an archive: nothing is broken to it


class ProcessorSuite:
    """Each test runs the same records in another way; all must come to the same outputs."""

    def case(self) -> Case:
        """The processor and its records."""
        raise NotImplementedError

    def test_names_are_topics(self) -> None:
        processor = self.case().processor()
        lake_tables_are_no_topics = processor.name == "lake"
        assert set(processor.inputs) <= set(topics.SUFFIXES)
        assert lake_tables_are_no_topics or set(processor.outputs) <= set(topics.SUFFIXES)
        assert processor.name in metrics.EVERY_STAGE

    def test_puts_something_out_to_declared_topics(self) -> None:
        case = self.case()
        outputs = run(case)
        assert outputs
        assert {output.topic for output in outputs} <= set(case.processor().outputs)

    def test_the_same_again(self) -> None:
        assert plain(run(self.case())) == plain(run(self.case()))

    def test_restored_at_every_record(self) -> None:
        case = self.case()
        assert plain(run(case, restore=lambda index: True)) == plain(run(case))

    def test_restored_at_some_records(self) -> None:
        case = self.case()
        whole = plain(run(case))
        for step in (2, 3, 5, 7):
            assert plain(run(case, restore=every(step))) == whole, step

    def test_a_snapshot_changes_nothing(self) -> None:
        case = self.case()
        task = case.processor().start(PARTITION, None)
        outputs: list[Output] = []
        for record in case.records:
            outputs += task.process(record)
            assert task.snapshot() == task.snapshot()
            assert list(task.refs()) == list(task.refs())
            task.counters()
            task.pending()
        assert plain(outputs) == plain(run(case))

    def test_a_restored_task_stands_where_it_stood(self) -> None:
        case = self.case()
        task = case.processor().start(PARTITION, None)
        held: list[Record] = []
        for record in case.records:
            task.process(record)
            held.append(record)
            again = restored(case.processor(), task, held)
            assert dict(again.next_offset) == dict(task.next_offset)
            assert again.pending() == task.pending()
            assert list(again.refs()) == list(task.refs())
            assert again.snapshot() == task.snapshot()

    def test_next_offset_follows_the_log(self) -> None:
        case = self.case()
        task = case.processor().start(PARTITION, None)
        assert dict(task.next_offset) == {}
        due: dict[str, int] = {}
        for record in case.records:
            task.process(record)
            due[record.topic] = record.log_offset + 1
            assert dict(task.next_offset) == due

    def test_refs_name_records_already_read(self) -> None:
        case = self.case()
        task = case.processor().start(PARTITION, None)
        read: set[tuple[str, int]] = set()
        for record in case.records:
            task.process(record)
            read.add((record.topic, record.log_offset))
            for ref in task.refs():
                assert (ref.topic, ref.offset) in read
                assert 0 <= ref.first <= ref.last

    def test_a_replayed_log_gives_the_same(self) -> None:
        """Offsets of the log read now are places to go on from, never part of what is put out."""
        case = self.case()
        moved = Case(
            case.processor,
            [record._replace(replayed_at=1000 + 2 * index) for index, record in enumerate(case.records)],
        )
        whole = plain(run(case))
        assert plain(run(moved)) == whole
        assert plain(run(moved, restore=lambda index: True)) == whole

    def test_broken_records_are_dead_lettered_or_counted(self) -> None:
        case = self.case()
        whole = [output for output in run(case) if output.topic not in DEAD]
        processor = case.processor()
        task = processor.start(PARTITION, None)
        outputs: list[Output] = []
        mixed = with_broken(case.records)
        for record in mixed:
            outputs += task.process(record)
            assert dict(task.next_offset)[record.topic] == record.log_offset + 1
        if case.takes_anything:
            return
        assert len([output for output in outputs if output.topic not in DEAD]) == len(whole)
        counters = task.counters()
        counted = counters.get("unreadable", counters.get("deadlettered", {}))
        assert isinstance(counted, dict)
        letters = sum(output.topic in DEAD for output in outputs)
        assert letters >= len(mixed) - len(case.records) or sum(counted.values()) > 0

    def test_cut_records_raise_nothing(self) -> None:
        case = self.case()
        first = case.records[0]
        assert first.value is not None
        size = len(first.value)
        near_the_ends = {*range(min(size, 64)), *range(max(0, size - 64), size)}
        for length in sorted({*near_the_ends, *range(0, size, max(1, size // 64))}):
            task = case.processor().start(PARTITION, None)
            task.process(first._replace(value=first.value[:length]))

    def test_counters_are_registered(self) -> None:
        case = self.case()
        task = case.processor().start(PARTITION, None)
        for record in with_broken(case.records):
            task.process(record)
            assert metrics.check(task.counters(), case.processor().name) == []
        for value in task.counters().values():
            numbers = value.values() if isinstance(value, Mapping) else [value]
            assert all(number >= 0 for number in numbers)


def every(step: int) -> Callable[[int], bool]:
    """True for each step-th index."""
    return lambda index: index % step == 0


def run(case: Case, restore: Callable[[int], bool] = lambda index: False) -> list[Output]:
    """All outputs; before each record for which `restore` says so, the task is made anew from a snapshot."""
    processor = case.processor()
    task = processor.start(PARTITION, None)
    outputs: list[Output] = []
    for index, record in enumerate(case.records):
        if index and restore(index):
            task = restored(case.processor(), task, case.records[:index])
        outputs += task.process(record)
    return outputs


def restored(processor: Processor, task: Task, read: Sequence[Record]) -> Task:
    """Another task, as a restart would make it from what a commit keeps."""
    ids = dict.fromkeys(processor.inputs, "id")
    frame, snapshot = unpack(pack(Frame(task.next_offset, ids, task.refs()), task.snapshot()))
    again = processor.start(PARTITION, snapshot)
    by_place = {(record.topic, record.log_offset): record for record in read}
    for ref in frame.refs:
        again.reload(by_place[ref.topic, ref.offset], ref.first, ref.last)
    return again


def with_broken(records: Sequence[Record]) -> list[Record]:
    """The records with broken ones between them; offsets are dealt anew, what they came from stays."""
    out: list[Record] = []
    for index, record in enumerate(records):
        broken = record._replace(key=b"broken", value=BROKEN[index % len(BROKEN)], headers=())
        out += [broken._replace(replayed_at=len(out)), record._replace(replayed_at=len(out) + 1)]
    return out


def plain(outputs: Sequence[Output]) -> list[tuple[str, bytes | None, object]]:
    """Outputs in a form that compares: tables of the lake by their rows."""
    return [
        (each.topic, each.key, each.value.to_pylist() if hasattr(each.value, "to_pylist") else each.value)
        for each in outputs
    ]
