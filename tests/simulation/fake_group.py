"""A group's log that a test moves about: assignments, revocations and losses come when the script says so."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future

from schemas.codec import encode_batch
from schemas.columns import Control
from schemas.draft import control
from schemas.processor import PartitionWork, Record, Resume
from schemas.topics import batch_headers
from tempotrace.clockwork import FakeClock
from tempotrace.runtime.failures import Aborted
from tempotrace.runtime.local import MemoryLog, MemoryOutlet
from tempotrace.runtime.ports import End, Place
from tempotrace.runtime.restore import Loss


class FakeAppender:
    """Appends to the memory log at once."""

    def __init__(self, log: MemoryLog) -> None:
        self._log = log
        self.losses: list[Loss] = []
        self.kinds: list[tuple[Place, Control]] = []

    def control(self, topic: str, partition: int, kind: Control) -> "Future[int]":
        self.kinds.append(((topic, partition), kind))
        value = encode_batch(control("default", "", "fake", [(kind, None, None)]))
        headers = tuple(batch_headers("control", 1, ""))
        future: Future[int] = Future()
        future.set_result(self._log.append(topic, partition, None, value, headers))
        return future

    def loss(self, stage: str, loss: Loss) -> None:
        self.losses.append(loss)

    def acknowledged(self, future: "Future[int]") -> int:
        return future.result()

    def serve(self) -> None:
        """Everything is acknowledged already."""


class FakeGroup:
    """GroupLog over a MemoryLog. `script` is called in each poll and may call assign, revoke and lose.

    A poll returns at most `records_per_poll` records that were fetched before the script ran, as a real
    client may; the time of an empty poll passes on the clock.
    """

    def __init__(
        self, log: MemoryLog, clock: FakeClock, partitions: int, script: Callable[["FakeGroup"], None]
    ) -> None:
        self.log = log
        self.partitions: Mapping[str, int] = {"events": partitions}
        self.appender = FakeAppender(log)
        self.records_per_poll = 3
        self.left = self.closed = False
        self.polls = 0
        self._clock = clock
        self._script = script
        self._positions: dict[Place, int] = {}
        self._at_end: set[Place] = set()

    def subscribe(
        self,
        assigned: Callable[[list[Place]], None],
        revoked: Callable[[list[Place]], None],
        lost: Callable[[list[Place]], None],
    ) -> None:
        self._assigned, self._revoked, self._lost = assigned, revoked, lost

    def assign(self) -> None:
        """All partitions are ours."""
        self._assigned([("events", part) for part in range(self.partitions["events"])])

    def revoke(self) -> None:
        """They are taken from us in good order."""
        self._revoked(list(self._positions))
        self._positions = {}

    def lose(self) -> None:
        """They were given to others already."""
        self._lost(list(self._positions))
        self._positions = {}

    @property
    def holding(self) -> bool:
        """Whether we have partitions."""
        return bool(self._positions)

    def begin(self, positions: Mapping[Place, int]) -> None:
        self._positions = dict(positions)
        self._at_end = set()

    def poll(self, seconds: float) -> list[tuple[Place, Record | End]]:
        self.polls += 1
        fetched = self._fetch()
        self._script(self)
        if not fetched:
            self._clock.advance(round(seconds * 1e9))
        return fetched

    def _fetch(self) -> list[tuple[Place, Record | End]]:
        out: list[tuple[Place, Record | End]] = []
        for place in list(self._positions):
            while len(out) < self.records_per_poll:
                record = self.log.at(*place, self._positions[place])
                if record is None:
                    if place not in self._at_end:
                        self._at_end.add(place)
                        out.append((place, End(self._positions[place])))
                    break
                self._at_end.discard(place)
                self._positions[place] += 1
                out.append((place, record))
        return out

    def ends(self, places: Sequence[Place], stable: bool = False) -> list[int]:
        return [self.log.range(*place)[1] for place in places]

    def take_refused(self) -> int:
        return 0

    def commit_for_lag(self, positions: Mapping[Place, int]) -> None:
        raise AssertionError("the outlet keeps no offsets of its own")

    def leave(self) -> None:
        self.left = True

    def close(self) -> None:
        self.closed = True

    def topic_id(self, topic: str) -> str:
        return self.log.topic_id(topic)

    def range(self, topic: str, partition: int) -> tuple[int, int]:
        return self.log.range(topic, partition)

    def fetch(self, topic: str, partition: int, offsets: Sequence[int]) -> Iterator[Record]:
        return self.log.fetch(topic, partition, offsets)


class FailingOutlet:
    """Commits into memory, but first asks `fate` whether to: an error it gives is raised instead."""

    def __init__(self, log: MemoryLog, fate: Callable[[], Exception | None] = lambda: None) -> None:
        self.memory = MemoryOutlet(log)
        self.commits = self.aborts = 0
        self._fate = fate

    def resume(self, topic: str, partition: int) -> Resume:
        return self.memory.resume(topic, partition)

    def commit(self, work: Sequence[PartitionWork]) -> None:
        error = self._fate()
        if error is not None:
            self.aborts += isinstance(error, Aborted)
            raise error
        self.commits += 1
        self.memory.commit(work)

    def abort(self) -> None:
        """Nothing is half done in memory."""
