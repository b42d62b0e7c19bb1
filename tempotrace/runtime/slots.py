"""A task in hand: where it stands in the log, what it has put out since the last commit, what it has counted.

The Kafka runner and the one without Kafka hold their tasks in slots, so that both hand over the same work.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from schemas.metrics import METRICS, Number, Value
from schemas.processor import Output, PartitionWork, Record, Task
from tempotrace.runtime.frame import Frame, pack

Counters = Mapping[str, Value]


@dataclass
class Slot:
    """One task with its position; `topic` is its input, of a joining processor the first one."""

    topic: str
    partition: int
    inputs: tuple[str, ...]
    topic_ids: Mapping[str, str]
    task: Task
    next_offset: dict[str, int]  # of every input: where reading goes on
    known: dict[str, int]  # of the inputs that the task has read: what its own next_offset must say
    outputs: list[Output] = field(default_factory=list)
    output_bytes: int = 0
    dirty: bool = False  # whether there is something to commit since the last hand-over
    skipped: bool = False  # whether lost input was accepted: then inputs not read yet are committed too
    handed: Counters = field(default_factory=dict)
    committed: Counters = field(default_factory=dict)

    def take(self, record: Record) -> None:
        """Let the task process the next record."""
        outputs = self.task.process(record)
        self.next_offset[record.topic] = self.known[record.topic] = record.log_offset + 1
        self.dirty = True
        if outputs:
            self.outputs += outputs
            self.output_bytes += sum(size_of(output) for output in outputs)

    def hand_over(self) -> PartitionWork:
        """What is to be committed now, and begin anew."""
        known = dict(self.known)
        assert dict(self.task.next_offset) == known, (
            f"task of {self.topic}/{self.partition} says {dict(self.task.next_offset)}, the log {known}"
        )
        # Past `known` where input was lost, which the task has never seen.
        next_offset = {topic: at for topic, at in self.next_offset.items() if self.skipped or topic in known}
        refs = self.task.refs()
        frame = Frame(known, {topic: self.topic_ids[topic] for topic in self.inputs}, refs)
        work = PartitionWork(
            self.topic, self.partition, next_offset, self.outputs, pack(frame, self.task.snapshot())
        )
        self.outputs, self.output_bytes, self.dirty = [], 0, False
        self.handed = copied(self.task.counters())
        return work

    def settled(self) -> None:
        """What was handed over last is committed."""
        self.committed = self.handed


def size_of(output: Output) -> int:
    """Bytes of an output, as far as they are bytes; of a table by its own account."""
    value: Any = output.value
    size = len(value) if isinstance(value, bytes) else getattr(value, "nbytes", 0)
    return int(size) + len(output.key or b"")


def copied(counters: Counters) -> Counters:
    """Counters as they stand now, untouched by what the task counts later."""
    return {name: dict(value) if isinstance(value, Mapping) else value for name, value in counters.items()}


class Totals:
    """Counters of all tasks of a stage, those that were given up too: only what was committed counts."""

    def __init__(self) -> None:
        self._given_up: dict[str, Value] = {}

    def give_up(self, slot: Slot) -> None:
        """Keep the counts of a task that ends; gauges end with it."""
        kept = {name: value for name, value in slot.committed.items() if METRICS[name].kind != "gauge"}
        self._given_up = combined([self._given_up, kept])

    def of(self, slots: "list[Slot]") -> dict[str, Value]:
        """The stage's counters, by name."""
        return combined([self._given_up, *(slot.committed for slot in slots)])


def combined(many: "list[Mapping[str, Value]] | list[Counters]") -> dict[str, Value]:
    """Counters of several tasks as one: summed, or as the metric's `combine` says."""
    out: dict[str, Value] = {}
    for counters in many:
        for name, value in counters.items():
            join = _JOIN[METRICS[name].combine]
            if not isinstance(value, Mapping):
                have = out.get(name)
                assert not isinstance(have, Mapping), name
                out[name] = value if have is None else join(have, value)
                continue
            # A metric is a number or a table for good, which its type cannot say.
            table: dict[tuple[str, ...], Number] = dict(out.get(name, {}))  # type: ignore[arg-type]
            for key, number in value.items():
                table[key] = join(table[key], number) if key in table else number
            out[name] = table
    return out


_JOIN: Final[Mapping[str, Callable[[Number, Number], Number]]] = {
    "sum": lambda a, b: a + b,
    "min": lambda a, b: min(a, b),
    "max": lambda a, b: max(a, b),
}
