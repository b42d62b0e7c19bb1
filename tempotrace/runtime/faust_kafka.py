"""Faust's Kafka drivers as we need them, by small subclasses.

reading   only what was committed (Faust reads aborted records too, unless it runs its own transactions),
          with account of how far each partition was read: transaction markers are never delivered, so the
          offsets of records alone do not tell that the end is reached
writing   acks=all and idempotent
topics    never made by Faust: they are there before anything starts
"""

import asyncio
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NoReturn

import faust
from aiokafka import AIOKafkaConsumer
from aiokafka.errors import IllegalStateError
from faust.transport.drivers import aiokafka as driver

from schemas import topics
from tempotrace.runtime.faust_security import credentials

SESSION_SECONDS: Final = 10.0
REQUEST_SECONDS: Final = 20.0  # more than the session, as the client asks
COMMIT_SECONDS: Final = 0.5
UNSETTLED_SECONDS: Final = 0.01


@dataclass
class _Place:
    """One partition of the input: the offset that is read next, and those of records still to be worked on."""

    read: int
    waiting: set[int] = field(default_factory=set)

    @property
    def at(self) -> int:
        """All before it is done."""
        return min(self.waiting, default=self.read)


class Progress:
    """How far each partition in hand has been read and worked through. Safe between threads."""

    def __init__(self, topic: str, changed: Callable[[], None]) -> None:
        self.topic = topic
        self._changed = changed  # called after each change, in whichever thread made it
        self._lock = threading.Lock()
        self._places: dict[int, _Place] = {}

    def reset(self) -> None:
        """Partitions are dealt anew; what is known comes again with the next read."""
        with self._lock:
            self._places.clear()

    def read(self, partition: int, position: int, offsets: Iterable[int]) -> None:
        """These records were read, perhaps again, after which the client stands at `position`."""
        with self._lock:
            place = self._places.setdefault(partition, _Place(position))
            place.read = position
            place.waiting.update(offsets)
        self._changed()

    def done(self, partition: int, offset: int) -> None:
        """A record was worked through."""
        with self._lock:
            place = self._places.get(partition)
            if place is not None:
                place.waiting.discard(offset)
        self._changed()

    def positions(self) -> dict[int, int]:
        """By partition the offset up to which all is done, markers too."""
        with self._lock:
            return {partition: place.at for partition, place in self._places.items()}


class _Thread(driver.AIOKafkaConsumerThread):
    """Where Faust keeps its aiokafka consumer."""

    def _create_worker_consumer(self, transport: driver.Transport) -> AIOKafkaConsumer:
        # All that Faust asks to choose the isolation level; asked nowhere else while this runs.
        self.consumer.in_transaction = True
        try:
            return super()._create_worker_consumer(transport)
        finally:
            self.consumer.in_transaction = False

    async def _fetch_records(
        self, consumer: AIOKafkaConsumer, active_partitions: Any, timeout: Any = None, max_records: Any = None
    ) -> Any:
        app: Any = self.app
        progress: Progress = app.progress
        generation = app.consumer_generation_id
        active = {each for each in active_partitions if app.settled or each.topic != progress.topic}
        if not active:  # which would mean all to the client
            await asyncio.sleep(UNSETTLED_SECONDS)
            return {}
        records = await super()._fetch_records(consumer, active, timeout, max_records)
        for each in active:
            if each.topic != progress.topic:
                continue
            try:
                position = await consumer.position(each)
            except IllegalStateError:
                continue  # taken from us meanwhile
            if generation == app.consumer_generation_id:
                progress.read(each.partition, position, [one.offset for one in records.get(each, ())])
        return records

    def verify_event_path(self, now: float, tp: Any) -> None:
        """Faust takes an end that is nothing but markers for a stream that hangs: not asked."""


class _Consumer(driver.Consumer):
    def _new_consumer_thread(self) -> _Thread:
        return _Thread(self, loop=self.loop, beacon=self.beacon)

    async def on_stop(self) -> None:
        """Commit all that is done: Faust takes a commit that is under way already for the last one."""
        await self.maybe_wait_for_commit_to_finish()
        await super().on_stop()

    def _filter_committable_offsets(self, tps: Iterable[Any]) -> dict[Any, int]:
        """What Faust commits next: up to where all is done, rather than its own count of acknowledged records.

        That count takes markers for gaps, and commits one run of records a time.
        """
        # Faust types its app as its own class, which has no progress; here it is always ours.
        progress: Progress = self.app.progress  # type: ignore[attr-defined]
        at = progress.positions()
        return {
            tp: at[tp.partition]
            for tp in self.assignment()
            if tp.topic == progress.topic
            and tp.partition in at
            and at[tp.partition] > (self._committed_offset[tp] or 0)
        }


class _Producer(driver.Producer):
    def _settings_extra(self) -> Mapping[str, Any]:
        return {"acks": "all", "enable_idempotence": True}


class _Transport(driver.Transport):
    Consumer = _Consumer
    Producer = _Producer


class App(faust.App):
    """A Faust application on our drivers. `input_topic` is the topic whose progress is kept."""

    def __init__(
        self, name: str, kafka: Mapping[str, str], instance: int, folder: Any, input_topic: str
    ) -> None:
        loop = asyncio.get_running_loop()
        self.moved = asyncio.Event()  # set at each change of progress
        # Faust resumes its input before it seeks to the committed offsets, and then empties the queue of what it
        # has read: records could be passed over. So none is read before all that is over.
        self.settled = False
        self.failed: asyncio.Future[NoReturn] = loop.create_future()  # ends with what made an agent fail
        self.progress = Progress(input_topic, lambda: _set_soon(loop, self.moved))
        super().__init__(
            name,
            broker=[f"kafka://{server.strip()}" for server in kafka["bootstrap.servers"].split(",")],
            broker_credentials=credentials(kafka),
            broker_client_id=kafka.get("client.id", name),
            broker_session_timeout=SESSION_SECONDS,
            broker_heartbeat_interval=1.0,
            broker_rebalance_timeout=SESSION_SECONDS,
            broker_request_timeout=REQUEST_SECONDS,
            broker_commit_interval=COMMIT_SECONDS,
            consumer_auto_offset_reset="earliest",
            consumer_group_instance_id=f"{name}.{instance}",
            consumer_max_fetch_size=topics.MESSAGE_BYTES_MAX,
            producer_acks=-1,
            producer_request_timeout=REQUEST_SECONDS,
            producer_max_request_size=topics.MESSAGE_BYTES_MAX,
            stream_wait_empty=False,  # what is not acknowledged is read again: there is nothing to wait for
            topic_allow_declare=False,
            topic_disable_leader=True,
            web_enabled=False,
            store="memory://",
            datadir=folder,
        )

    def on_rebalance_start(self) -> None:
        """Partitions are about to be dealt anew."""
        self.settled = False
        super().on_rebalance_start()

    def on_rebalance_end(self) -> None:
        """Tables are recovered, and the input stands at the committed offsets."""
        super().on_rebalance_end()
        self.progress.reset()
        self.settled = True

    def fail(self, error: BaseException) -> None:
        """Make `failed` end with this error, if it has not ended yet."""
        if not self.failed.done():
            self.failed.set_exception(error)

    async def _on_agent_error(self, agent: Any, exc: BaseException) -> None:
        # Faust would commit and go on with the next record.
        self.fail(exc)

    def _new_transport(self) -> _Transport:
        return _Transport(self.conf.broker_consumer, self)

    def _new_producer_transport(self) -> _Transport:
        return _Transport(self.conf.broker_producer, self)

    def _mine(self) -> set[int]:
        return {tp.partition for tp in self.consumer.assignment() if tp.topic == self.progress.topic}

    @property
    def reading(self) -> bool:
        """Whether it is known of all partitions in hand how far they are read."""
        return self._mine() <= self.progress.positions().keys()

    async def reached(self, ends: Mapping[int, int]) -> None:
        """Wait until all partitions in hand are worked through up to these offsets."""
        while True:
            self.moved.clear()
            at = self.progress.positions()
            mine = self._mine()
            if mine <= at.keys() and all(at[partition] >= ends[partition] for partition in mine):
                return
            await self.moved.wait()


def _set_soon(loop: asyncio.AbstractEventLoop, event: asyncio.Event) -> None:
    if not loop.is_closed():
        loop.call_soon_threadsafe(event.set)
