"""One commit at a time, in a thread of its own, while the tasks go on."""

from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

from schemas.processor import Outlet, PartitionWork
from tempotrace.clockwork import Clock
from tempotrace.runtime.meters import Meters
from tempotrace.runtime.slots import Slot, size_of


class Committer:
    """Hands the work of slots over to the outlet and keeps account of it."""

    def __init__(self, outlet: Outlet, clock: Clock, meters: Meters) -> None:
        self._outlet = outlet
        self._clock = clock
        self._meters = meters
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="commit")
        self._flight: Future[None] | None = None
        self._slots: list[Slot] = []
        self.launched_at = clock.monotonic()
        self.snapshot_seconds = 0.0  # what it took to ask the tasks for their state

    @property
    def busy(self) -> bool:
        """Whether a commit was launched and not settled."""
        return self._flight is not None

    @property
    def done(self) -> bool:
        """Whether the commit under way has come to its end, good or bad."""
        return self._flight is not None and self._flight.done()

    def launch(self, slots: Sequence[Slot]) -> None:
        """Take what these slots have in hand and commit it in the background."""
        assert self._flight is None, "one commit at a time"
        self._slots = [slot for slot in slots if slot.dirty]
        if not self._slots:
            return
        begin = self._clock.monotonic()
        work = [slot.hand_over() for slot in self._slots]
        self.launched_at = self._clock.monotonic()
        self.snapshot_seconds = self.launched_at - begin
        self._flight = self._thread.submit(self._commit, work)

    def settle(self) -> list[Slot]:
        """Wait for the commit under way; the slots it was about. Raises Aborted, or what ended it."""
        flight, self._flight = self._flight, None
        if flight is None:
            return []
        flight.result()
        for slot in self._slots:
            slot.settled()
        return self._slots

    def close(self) -> None:
        """Wait for the commit under way, whatever comes of it."""
        self._thread.shutdown(wait=True)

    def _commit(self, work: Sequence[PartitionWork]) -> None:
        begin = self._clock.monotonic()
        self._outlet.commit(work)
        self._meters.observe("commit_seconds", self._clock.monotonic() - begin)
        self._meters.add("commits", 1)
        self._meters.add("snapshot_bytes", sum(len(each.snapshot) for each in work))
        for topic, (records, size) in _written(work).items():
            self._meters.add("records_written", records, topic)
            self._meters.add("bytes_written", size, topic)


def _written(work: Sequence[PartitionWork]) -> Mapping[str, tuple[int, int]]:
    """Records and bytes by topic."""
    out: dict[str, tuple[int, int]] = {}
    for each in work:
        for output in each.outputs:
            records, size = out.get(output.topic, (0, 0))
            out[output.topic] = (records + 1, size + size_of(output))
    return out
