"""Taking up a partition where the last commit left it.

    1. the outlet says where: next offset of each input, and the state kept there (none at the first start)
    2. the log must still be that log: same topic ids, and it holds all from the next offset on, and the rows
       that the task refers to; else LostInput, or with `--accept-loss` a record of what is lost
    3. the task starts from its snapshot
    4. the rows it refers to are read again and given back, without any output
    5. the task and the log agree on the next offset

Nothing is written on the way, so a crash anywhere in it costs only the time.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from schemas.errors import LostInput, MalformedInput, Setup
from schemas.processor import Outlet, Processor, Record, Ref, Task
from tempotrace.runtime.frame import Frame, unpack
from tempotrace.runtime.slots import Slot


class Log(Protocol):
    """What taking up needs to know of the log; topics by suffix."""

    def topic_id(self, topic: str) -> str:
        """Identity of the topic: another one after it was deleted and made again."""
        ...

    def range(self, topic: str, partition: int) -> tuple[int, int]:
        """First offset that the log still holds, and the one after its last."""
        ...

    def fetch(self, topic: str, partition: int, offsets: Sequence[int]) -> Iterator[Record]:
        """The records at these offsets (ascending). Raises LostInput where one is not there."""
        ...


@dataclass(frozen=True)
class Loss:
    """Input that a partition has to go on without: offsets first..last; none if the topic is another."""

    topic: str
    partition: int
    first: int
    last: int
    why: str

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}: {self.why}"


AcceptLoss = Callable[[Loss], None]  # writes it down before the partition goes on


def take_up(
    processor: Processor,
    topic: str,
    partition: int,
    outlet: Outlet,
    log: Log,
    accept_loss: AcceptLoss | None = None,
) -> tuple[Slot, bool]:
    """The partition's task as it was committed last, and whether there was any state.

    Raises LostInput where the log no longer holds what comes next, unless `accept_loss` is given; Setup for a
    state that this version of the stage cannot read.
    """
    inputs = processor.inputs if processor.joins else (topic,)
    ids = {each: log.topic_id(each) for each in inputs}
    resume = outlet.resume(topic, partition)
    next_offset = dict(resume.next_offset)
    frame, snapshot = Frame(next_offset, ids), None
    if resume.snapshot is not None:
        frame, snapshot = unpack(resume.snapshot)
        next_offset = {**frame.next_offset, **next_offset}
        # Behind where to go on only after a loss that was accepted: the task has not seen the offsets lost.
        assert all(at <= next_offset[each] for each, at in frame.next_offset.items()), (
            f"{frame.next_offset} kept, {next_offset} due"
        )
    refs = list(frame.refs)
    known = dict(frame.next_offset)
    accepted = False
    for each in inputs:
        loss, another = _loss(log, each, partition, ids[each], frame, next_offset.get(each))
        if loss is None:
            continue
        if accept_loss is None:
            raise LostInput(f"{loss}; go on without it by --accept-loss")
        accept_loss(loss)
        accepted = True  # and committed even if nothing follows, or the next start would ask again
        start = log.range(each, partition)[0]
        if another:
            # Sequence numbers and offsets of another log mean nothing here: the task begins anew.
            snapshot, refs, known, next_offset[each] = None, [], {}, start
        else:
            refs = [ref for ref in refs if ref.topic != each or ref.offset >= start]
            next_offset[each] = max(next_offset[each], start)
    task = _start(processor, topic, partition, snapshot)
    _reload(task.reload, log, partition, refs)
    assert dict(task.next_offset) == known, (
        f"{processor.name} {topic}/{partition} was kept at {known}, came back at {dict(task.next_offset)}"
    )
    positions = {each: next_offset.get(each, log.range(each, partition)[0]) for each in inputs}
    slot = Slot(topic, partition, inputs, ids, task, positions, known, dirty=accepted, skipped=accepted)
    return slot, snapshot is not None


def _start(processor: Processor, topic: str, partition: int, snapshot: bytes | None) -> Task:
    if snapshot is None:
        return processor.start(partition, None)
    try:
        return processor.start(partition, snapshot)
    except (MalformedInput, KeyError, IndexError, TypeError, ValueError) as error:
        # A snapshot was committed whole with its offsets: what cannot be read was written by other code.
        raise Setup(
            f"the state that {processor.name} kept for {topic}/{partition} is of another version of TempoTrace "
            f"({type(error).__name__}: {error}); start the stage with the version that wrote it. "
            "(A demo's broker of your own may go: stop it and remove its folder)"
        ) from error


def _loss(
    log: Log, topic: str, partition: int, topic_id: str, frame: Frame, due: int | None
) -> tuple[Loss | None, bool]:
    """What of this topic is lost to the task (None if nothing), and whether it is another log altogether."""
    if due is None:
        return None, False
    start, end = log.range(topic, partition)
    if frame.topic_ids[topic] != topic_id:
        why = f"the topic was made anew since (id {topic_id}, was {frame.topic_ids[topic]}, read to {due})"
        return Loss(topic, partition, due, due - 1, why), True
    if due > end:
        why = f"the log ends at {end}, before offset {due} where this stage has to go on"
        return Loss(topic, partition, end, due - 1, why), True
    needed = min([due, *(ref.offset for ref in frame.refs if ref.topic == topic)])
    if needed < start:
        why = f"offsets {needed} to {start - 1} are gone, the log begins at {start}"
        return Loss(topic, partition, needed, start - 1, why), False
    return None, False


def _reload(
    reload: Callable[[Record, int, int], None], log: Log, partition: int, refs: Sequence[Ref]
) -> None:
    """Read the referenced records once, in log order, and give their rows back in the order of refs."""
    wanted: dict[str, set[int]] = {}
    for ref in refs:
        wanted.setdefault(ref.topic, set()).add(ref.offset)
    records: dict[tuple[str, int], Record] = {}
    for topic, offsets in wanted.items():
        for record in log.fetch(topic, partition, sorted(offsets)):
            records[topic, record.log_offset] = record
    for ref in refs:
        reload(records[ref.topic, ref.offset], ref.first, ref.last)


def positions_of(slots: Mapping[tuple[str, int], Slot]) -> dict[tuple[str, int], int]:
    """Where reading goes on, by (topic, partition)."""
    return {(topic, slot.partition): at for slot in slots.values() for topic, at in slot.next_offset.items()}
