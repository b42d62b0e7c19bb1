"""The contract of every stage: records in, outputs and a snapshot out. No broker, no clock, no files.

A processor makes one task for each input partition. The runner (or a test, or `tempotrace analyze`) feeds the
task records in log order and carries what comes out to an outlet, together with the snapshot and the offsets:
all of it or nothing.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol


class Record(NamedTuple):
    """One record of the log. `tt-origin`, where present, has already replaced partition, offset and append_ms.

    What a task writes about its input uses those; where it goes on (`next_offset`) and which rows it holds
    (`Ref`) are places in the log that is read now: `log_offset`.
    """

    topic: str  # suffix: "events", "merged", ...
    partition: int
    offset: int
    append_ms: int  # broker's append time, Unix ms
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...] = ()
    replayed_at: int | None = None  # offset of a replayed record in the log read now; None: not replayed

    @property
    def log_offset(self) -> int:
        """Offset in the log that is read now."""
        return self.offset if self.replayed_at is None else self.replayed_at

    def header(self, name: str) -> bytes | None:
        """Value of a header, None where it is absent."""
        return next((value for key, value in self.headers if key == name), None)


class Output(NamedTuple):
    """What a task wants written: bytes to a topic (by suffix), or an Arrow table to a table of the lake."""

    topic: str
    key: bytes | None
    value: Any
    headers: tuple[tuple[str, bytes], ...] = ()


class Ref(NamedTuple):
    """Rows first..last of an input record that a task still holds, so that a restart reads them again."""

    topic: str
    offset: int  # Record.log_offset
    first: int
    last: int


class Task(Protocol):
    """The state of one input partition (of several input topics, if the processor joins)."""

    @property
    def next_offset(self) -> Mapping[str, int]:
        """By input topic: log_offset + 1 of the last record processed; topics not yet read are left out."""
        ...

    def process(self, record: Record) -> list[Output]:
        """Take the next record. Raises nothing for bad input: it is dead-lettered or counted."""
        ...

    def pending(self) -> bool:
        """Whether open windows wait for more input, so that a tick could release them."""
        ...

    def snapshot(self) -> bytes:
        """The carry state as of next_offset; open rows are left to refs()."""
        ...

    def refs(self) -> Sequence[Ref]:
        """The rows that the snapshot leaves out, in the order in which reload() must give them back."""
        ...

    def reload(self, record: Record, first: int, last: int) -> None:
        """Take back rows first..last of a record named by refs(), without any output.

        After an accepted loss (`--accept-loss`) records that the log no longer holds are not given back.
        """
        ...

    def counters(self) -> Mapping[str, int | float | Mapping[tuple[str, ...], int | float]]:
        """What the task counted since it was made, by metric name (schemas.metrics); labels as tuple keys."""
        ...


class Processor(Protocol):
    """A stage. `joins`: one task takes a partition of all inputs; else each (topic, partition) has its own."""

    @property
    def name(self) -> str: ...
    @property
    def inputs(self) -> tuple[str, ...]: ...
    @property
    def outputs(self) -> tuple[str, ...]: ...
    @property
    def joins(self) -> bool: ...

    def start(self, partition: int, snapshot: bytes | None) -> Task:
        """A task for a partition: fresh, or as the snapshot left it (refs are reloaded by the caller)."""
        ...


@dataclass
class PartitionWork:
    """What one task did since the last commit."""

    topic: str  # input topic; of a joining processor the first one
    partition: int
    next_offset: Mapping[str, int]
    outputs: list[Output] = field(default_factory=list)
    snapshot: bytes = b""


class Resume(NamedTuple):
    """Where a partition goes on: next offset by input topic, and the snapshot taken there."""

    next_offset: Mapping[str, int]
    snapshot: bytes | None


class Outlet(Protocol):
    """Where outputs, snapshot and offsets go, atomically: a Kafka transaction, a lake unit, memory."""

    def resume(self, topic: str, partition: int) -> Resume: ...
    def commit(self, work: Sequence[PartitionWork]) -> None: ...
    def abort(self) -> None: ...
