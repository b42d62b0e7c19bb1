"""A small processor with all that a stage can have: windows, references, carry state, dead letters, labels.

It adds up numbers in windows of WINDOW records. An input record's value is a JSON list of integers; one of
the family `control` releases what is open. Rows of an open window are not in the snapshot, only referred to.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from schemas.codec import decode_batch
from schemas.columns import Control
from schemas.errors import MalformedInput, UnknownSchema
from schemas.metrics import Value
from schemas.processor import Output, Record, Ref

WINDOW = 3


class Summing:
    """Processor: sums of WINDOW records at a time, from `events` to `merged`."""

    name = "merge"
    inputs: tuple[str, ...] = ("events",)
    outputs: tuple[str, ...] = ("merged", "deadletter")
    joins = False

    def start(self, partition: int, snapshot: bytes | None) -> "SummingTask":
        return SummingTask(partition, snapshot)


class SummingTask:
    """Its task: `carry` is the sum of all windows so far, `windows` their number."""

    def __init__(self, partition: int, snapshot: bytes | None) -> None:
        self._partition = partition
        state: dict[str, Any] = json.loads(snapshot) if snapshot else {"next": {}, "carry": 0, "windows": 0}
        self._next: dict[str, int] = state["next"]
        self._carry: int = state["carry"]
        self._windows: int = state["windows"]
        self._open: list[tuple[Ref, int]] = []
        self._counted = {"events_in": 0, "events_out": 0, "windows": 0}
        self._deadlettered: dict[tuple[str, ...], int] = {}

    @property
    def next_offset(self) -> Mapping[str, int]:
        return self._next

    def process(self, record: Record) -> list[Output]:
        self._next[record.topic] = record.log_offset + 1
        if record.header("tt-family") == b"control":
            try:
                kinds = decode_batch(record.value or b"").wide("kind").tolist()
            except (MalformedInput, UnknownSchema):
                return self._refuse(record, "malformed")
            return self._release() if {Control.TICK, Control.FLUSH} & set(kinds) else []
        try:
            numbers = _numbers(record)
        except (ValueError, TypeError):
            return self._refuse(record, "malformed")
        self._counted["events_in"] += len(numbers)
        ref = Ref(record.topic, record.log_offset, 0, len(numbers) - 1)
        self._open.append((ref, sum(numbers)))
        return self._release() if len(self._open) == WINDOW else []

    def _release(self) -> list[Output]:
        if not self._open:
            return []
        total = sum(number for _, number in self._open)
        rows = sum(ref.last + 1 for ref, _ in self._open)
        self._open = []
        self._carry += total
        self._windows += 1
        self._counted["windows"] += 1
        self._counted["events_out"] += rows
        text = json.dumps({"window": self._windows, "sum": total, "carry": self._carry, "rows": rows})
        return [Output("merged", b"sum", text.encode(), (("tt-count", str(rows).encode()),))]

    def _refuse(self, record: Record, reason: str) -> list[Output]:
        self._deadlettered[reason,] = self._deadlettered.get((reason,), 0) + 1
        return [Output("deadletter", record.key, f"{reason} at {record.partition}/{record.offset}".encode())]

    def pending(self) -> bool:
        return bool(self._open)

    def snapshot(self) -> bytes:
        state = {"next": self._next, "carry": self._carry, "windows": self._windows}
        return json.dumps(state).encode()

    def refs(self) -> Sequence[Ref]:
        return [ref for ref, _ in self._open]

    def reload(self, record: Record, first: int, last: int) -> None:
        ref = Ref(record.topic, record.log_offset, first, last)
        self._open.append((ref, sum(_numbers(record)[first : last + 1])))

    def counters(self) -> Mapping[str, Value]:
        return {**self._counted, "deadlettered": self._deadlettered, "rows_held": len(self._open)}


class Joining(Summing):
    """Processor that joins two topics: sums over both, in the order given to it."""

    name = "diagnosis"
    inputs = ("merged", "paths")
    outputs = ("findings", "deadletter")
    joins = True

    def start(self, partition: int, snapshot: bytes | None) -> "JoiningTask":
        return JoiningTask(partition, snapshot)


class JoiningTask(SummingTask):
    """Its task writes to `findings`, and leaves the counting of lost events to others."""

    def process(self, record: Record) -> list[Output]:
        outputs = super().process(record)
        return [out._replace(topic="findings") if out.topic == "merged" else out for out in outputs]

    def counters(self) -> Mapping[str, Value]:
        counted = dict(super().counters())
        counted["unreadable"] = counted.pop("deadlettered")
        return counted


class Copying:
    """Processor that hands each record on, untouched: what the runner itself costs."""

    name = "merge"
    inputs = ("events",)
    outputs = ("merged",)
    joins = False

    def start(self, partition: int, snapshot: bytes | None) -> "CopyingTask":
        return CopyingTask(snapshot)


class CopyingTask:
    """Its task has no state but its place."""

    def __init__(self, snapshot: bytes | None) -> None:
        self._next: dict[str, int] = json.loads(snapshot) if snapshot else {}

    @property
    def next_offset(self) -> Mapping[str, int]:
        return self._next

    def process(self, record: Record) -> list[Output]:
        self._next[record.topic] = record.log_offset + 1
        return [Output("merged", record.key, record.value, record.headers)]

    def pending(self) -> bool:
        return False

    def snapshot(self) -> bytes:
        return json.dumps(self._next).encode()

    def refs(self) -> Sequence[Ref]:
        return ()

    def reload(self, record: Record, first: int, last: int) -> None:
        raise AssertionError("nothing is referred to")

    def counters(self) -> Mapping[str, Value]:
        return {}


def _numbers(record: Record) -> list[int]:
    numbers = json.loads(record.value or b"")
    if not isinstance(numbers, list) or any(type(number) is not int for number in numbers):
        raise TypeError("not a list of integers")
    return numbers
