"""The one runner: reads a stage's input from Kafka, lets its tasks process it, commits, ticks, drains, stops.

    poll ─► each task processes its records ─► when enough bytes or time: hand over, commit in a thread
      ├─ at the end, silent for `tick_after`, windows open: append a tick (the partition's owner)
      ├─ revoked: commit within the callback · lost: drop what is in hand
      ├─ commit aborted: take the tasks up again where the last commit left them, and read on from there
      └─ SIGTERM, or drained: commit what is in hand, then leave the group

What a task puts out depends on its records alone; the clock here only decides when to commit and to tick, and
a tick counts by its append time in the log. One commit is under way at a time: what is processed meanwhile
waits in hand, up to `bytes_per_commit`, beyond which the loop waits for the commit.
"""

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from schemas.columns import Control
from schemas.errors import BrokerAway, Fenced, TempoError
from schemas.processor import Outlet, Processor, Record
from tempotrace.clockwork import Clock
from tempotrace.runtime.committer import Committer
from tempotrace.runtime.failures import Aborted
from tempotrace.runtime.meters import Meters
from tempotrace.runtime.ports import End, GroupLog, Place
from tempotrace.runtime.restore import Loss, positions_of, take_up
from tempotrace.runtime.slots import Slot, Totals

log = logging.getLogger(__name__)

ABORTS_IN_A_ROW_MAX: Final = 5
# A commit needs the state of each task: no more than this share of the time goes into that.
SNAPSHOT_SHARE_MAX: Final = 0.2


@dataclass(frozen=True)
class RunnerSettings:
    """How a stage runs. Times in seconds."""

    drain: bool = False  # end when all that was in the log at the start is worked through
    accept_loss: bool = False
    ticks: bool = False  # whether this stage's task releases windows by control rows: merge alone
    commits_for_lag: bool = False  # the outlet keeps its own offsets; the group's are for lag only
    tick_after: float = 0.2
    commit_after: float = 0.1  # with outputs in hand
    commit_idle_after: float = 1.0  # with progress but no outputs
    bytes_per_commit: int = 16 * 1024 * 1024
    poll_seconds: float = 0.02

    def __post_init__(self) -> None:
        assert 0 < self.poll_seconds <= self.commit_after <= self.commit_idle_after
        assert self.poll_seconds <= self.tick_after
        assert self.bytes_per_commit > 0


@dataclass
class _Silence:
    """Of one input: when it last moved (monotonic), whether its end is reached, its last record replayed."""

    since: float
    at_end: bool = False
    replayed: bool = False


class Runner:
    """One member of a stage's group. `run` returns when the stage was stopped or has drained.

    Closes `group_log`. Raises what it or `outlet` raises: Fenced, LostInput, MissingTopic, BrokerAway.
    """

    def __init__(
        self,
        processor: Processor,
        group_log: GroupLog,
        outlet: Outlet,
        settings: RunnerSettings,
        clock: Clock,
        stop: threading.Event,
        meters: Meters,
    ) -> None:
        self._processor = processor
        self._log = group_log
        self._outlet = outlet
        self._settings = settings
        self._clock = clock
        self._stop = stop
        self.meters = meters
        self.ready = False
        self.turned = clock.monotonic()  # when the loop last came round
        self._slots: dict[Place, Slot] = {}  # by first input (joins: of all inputs) and partition
        self._silence: dict[Place, _Silence] = {}
        self._ends: dict[Place, int] = {}  # by input and partition: where a drain may end
        self._reached: dict[Place, int] = {}  # where the end of a partition was met last
        self.positions: dict[Place, int] = {}  # how far reading has come; replaced, never changed
        self._totals = Totals()
        self._in_hand = 0  # bytes of outputs that no commit has taken yet
        self._committer = Committer(outlet, clock, meters)
        self._aborts, self._moved = 0, False
        self._failed: BaseException | None = None
        self._closing = False

    def run(self) -> None:
        """Join the group and work until stopped or drained, then commit and leave."""
        try:
            if self._settings.drain:
                self._mark_ends()
            self._log.subscribe(self._assigned, self._revoked, self._lost)
            while not self._stop.is_set() and not self._drained():
                self._turn()
            self._finish()
        finally:
            self._closing = True
            self._committer.close()
            self._log.close()

    # One turn of the loop.

    def _turn(self) -> None:
        self.turned = self._clock.monotonic()
        self._moved = False
        try:
            taken = self._log.poll(self._settings.poll_seconds)
        finally:  # partitions that could not be taken up have no place to read from: their error goes first
            if self._failed is not None:
                raise self._failed
        if self._moved and taken:
            # Partitions changed hands inside that call, and what it returned may be of before or after: read
            # on from where the tasks stand.
            self._log.begin(positions_of(self._slots))
            taken = []
        try:
            self._take(taken)
            self._commit_if_due()
        except Aborted as error:
            self._take_up_again(error)
        self._tick()
        self._log.appender.serve()

    def _take(self, taken: Sequence[tuple[Place, Record | End]]) -> None:
        now = self._clock.monotonic()
        counts: dict[str, list[int]] = {}
        for place, each in taken:
            silence = self._silence.get(place)
            if silence is None:
                continue
            if isinstance(each, End):
                self._reached[place] = each.offset
                silence.at_end = True
                continue
            slot = self._slots[self._home(place)]
            before = slot.output_bytes
            assert each.log_offset >= slot.next_offset[each.topic], f"{place} went back to {each.log_offset}"
            slot.take(each)
            silence.since, silence.at_end, silence.replayed = now, False, each.replayed_at is not None
            count = counts.setdefault(each.topic, [0, 0])
            count[0] += 1
            count[1] += len(each.value or b"") + len(each.key or b"")
            self._in_hand += slot.output_bytes - before
            if self._in_hand >= self._settings.bytes_per_commit:
                self._settle()
                self._launch()
        for topic, (records, size) in counts.items():
            self.meters.add("records_read", records, topic)
            self.meters.add("bytes_read", size, topic)
        refused = self._log.take_refused()
        if refused:
            self.meters.add("origins_malformed", refused)
        if taken:
            places = positions_of(self._slots)
            self.positions = {place: max(at, self._reached.get(place, 0)) for place, at in places.items()}

    def _home(self, place: Place) -> Place:
        """The key of the task that reads this input."""
        return (self._processor.inputs[0], place[1]) if self._processor.joins else place

    def _tick(self) -> None:
        """Append a tick where windows are open and nothing comes that could release them."""
        if not self._settings.ticks or self._settings.drain:
            return
        now = self._clock.monotonic()
        for place, slot in self._slots.items():
            silence = self._silence[place]
            if (
                silence.at_end
                and not silence.replayed
                and now - silence.since >= self._settings.tick_after
                and slot.task.pending()
            ):
                silence.since = now
                self._log.appender.control(*place, Control.TICK)
                self.meters.add("ticks", 1)

    # Committing.

    def _commit_if_due(self) -> None:
        if self._committer.done:
            self._settle()
        if self._committer.busy or not any(slot.dirty for slot in self._slots.values()):
            return
        outputs = any(slot.outputs for slot in self._slots.values())
        due = self._settings.commit_after if outputs else self._settings.commit_idle_after
        due = max(due, self._committer.snapshot_seconds / SNAPSHOT_SHARE_MAX)
        if self._clock.monotonic() - self._committer.launched_at >= due:
            self._launch()

    def _launch(self) -> None:
        self._in_hand = 0
        self._committer.launch(list(self._slots.values()))

    def _settle(self) -> None:
        """Wait for the commit under way. Raises Aborted, or what ended it for good."""
        slots = self._committer.settle()
        if not slots:
            return
        self._aborts = 0
        if self._settings.commits_for_lag:
            known = {(topic, slot.partition): at for slot in slots for topic, at in slot.known.items()}
            self._log.commit_for_lag(known)
        self._show()

    def _commit_all(self) -> None:
        """Commit everything in hand before going on."""
        self._settle()
        self._launch()
        self._settle()

    def _take_up_again(self, error: Aborted) -> None:
        """After an aborted commit: drop what is in hand, go back to the last commit."""
        self._aborts += 1
        self.meters.add("aborts", 1)
        log.warning("a commit was aborted, doing the work again: %s", error)
        if self._aborts > ABORTS_IN_A_ROW_MAX:
            raise BrokerAway(f"{self._aborts} commits in a row were aborted, the last one: {error}")
        homes = list(self._slots)
        self._drop()
        self._restore(homes)
        self._log.begin(positions_of(self._slots))

    # Partitions come and go. These are called inside poll(), where nothing may be raised.

    def _assigned(self, places: list[Place]) -> None:
        def take() -> None:
            self._moved = True
            self._restore(list(dict.fromkeys(self._home(place) for place in places)))
            self._log.begin(positions_of(self._slots))
            self.ready = True
            log.info("reading %s", ", ".join(f"{topic}/{part}" for topic, part in places) or "nothing")

        self._guarded(take)

    def _revoked(self, places: list[Place]) -> None:
        def give() -> None:
            self._moved, self.ready = True, False
            try:
                self._commit_all()
            except Aborted as error:
                log.warning("what was in hand is left to the next owner: %s", error)
            self._drop()

        self._guarded(give)

    def _lost(self, places: list[Place]) -> None:
        def drop() -> None:
            self._moved, self.ready = True, False
            log.warning("lost the partitions: the group went on without this member")
            try:
                self._settle()
            except Fenced:  # there is no coming back, as there is from all else: the group may have us again
                raise
            except (Aborted, TempoError) as error:
                log.warning("the commit under way is lost with them: %s", error)
            self._drop()

        self._guarded(drop)

    def _guarded(self, act: Callable[[], None]) -> None:
        if self._closing or self._failed is not None:
            return
        try:
            act()
        except BaseException as error:
            self._failed = error

    def _restore(self, homes: Sequence[Place]) -> None:
        """Take tasks up where they were committed last."""
        accept = self._accept if self._settings.accept_loss else None
        for home in homes:
            slot, known = take_up(self._processor, *home, self._outlet, self._log, accept)
            self._slots[home] = slot
            if known:
                self.meters.add("restores", 1)
        now = self._clock.monotonic()
        self._silence = {place: _Silence(now) for place in positions_of(self._slots)}
        self._reached = {}
        self._show()

    def _accept(self, loss: Loss) -> None:
        self._log.appender.loss(self._processor.name, loss)
        self.meters.add("lost_records", max(0, loss.last - loss.first + 1), loss.topic)

    def _drop(self) -> None:
        """Let go of all tasks; what was not committed is not counted either."""
        for slot in self._slots.values():
            self._totals.give_up(slot)
        self._slots, self._silence, self._reached, self.positions = {}, {}, {}, {}
        self._in_hand = 0
        self._show()

    def _show(self) -> None:
        self.meters.set("partitions", len(self._slots))
        self.meters.show_tasks(self._totals.of(list(self._slots.values())))

    # Draining and stopping.

    def _mark_ends(self) -> None:
        """Where the log ends now; first a flush to each partition, which then is part of it."""
        places = [(topic, part) for topic, count in self._log.partitions.items() for part in range(count)]
        if self._settings.ticks:
            for future in [self._log.appender.control(*place, Control.FLUSH) for place in places]:
                self._log.appender.acknowledged(future)
        self._ends = dict(zip(places, self._log.ends(places), strict=True))

    def _drained(self) -> bool:
        """Whether all of our partitions were read to where they ended at the start, or further."""
        if not self._settings.drain or not self.ready:
            return False
        return all(
            max(at, self._reached.get(place, 0)) >= self._ends[place]
            for place, at in positions_of(self._slots).items()
        )

    def _finish(self) -> None:
        """Commit what is in hand, then leave. After an abort a drain does the work again, a stop does not."""
        while True:
            try:
                self._commit_all()
                break
            except Aborted as error:
                if not self._settings.drain or self._stop.is_set():
                    log.warning("what was in hand is left to the next start: %s", error)
                    break
                self._take_up_again(error)
                while not self._drained() and not self._stop.is_set():
                    self._turn()
        self._drop()
        self._closing = True
        self._log.leave()
