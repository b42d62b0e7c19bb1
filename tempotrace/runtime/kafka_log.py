"""The input side: a group member that reads a tenant's topics, and what else a runner asks of the log.

Reading is read_committed, without auto-commit and with `auto.offset.reset=error`: where to begin is always said
explicitly, so a log that lost records is an error rather than a jump. Membership is static
(`group.instance.id`): a process that comes back within the session takes its partitions up at once.

Two settings of librdkafka are not left at their defaults for speed: `fetch.queue.backoff.ms` (1000 by default,
met whenever the local queue is full) and `fetch.wait.max.ms` (how long the end of an idle partition is unsure).
"""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from confluent_kafka import (
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import OffsetSpec

from schemas import topics
from schemas.codec import encode_batch, encode_record
from schemas.columns import Control
from schemas.errors import BrokerAway, LostInput, MalformedInput, MissingTopic
from schemas.pack import control
from schemas.processor import Record
from schemas.records import DeadLetter
from tempotrace.runtime.failures import failure
from tempotrace.runtime.restore import Loss
from tempotrace.topics_admin import Cluster

log = logging.getLogger(__name__)

Place = tuple[str, int]  # topic by suffix, partition
ANSWER_SECONDS_MAX: Final = 15.0
SESSION_TIMEOUT_MS: Final = 10_000
RECORDS_PER_POLL_MAX: Final = 500
_PASSING: Final = {KafkaError._ALL_BROKERS_DOWN, KafkaError._TRANSPORT, KafkaError._TIMED_OUT}


@dataclass(frozen=True)
class Member:
    """Who reads: tenant, stage and instance make the group and the member's name."""

    tenant: str
    stage: str
    instance: int

    @property
    def group(self) -> str:
        return f"{topics.PREFIX}.{self.tenant}.{self.stage}"

    @property
    def name(self) -> str:
        """The transactional id too (CONTRACTS.md §6)."""
        return f"{self.group}.{self.instance}"


class End(NamedTuple):
    """The end of a partition was reached: all up to `offset` was delivered, markers apart."""

    offset: int


class KafkaLog:
    """A tenant's topics as one member of a stage's group reads them."""

    def __init__(self, kafka: Mapping[str, str], member: Member, inputs: Sequence[str]) -> None:
        self._kafka = dict(kafka)
        self.member = member
        self._names = {topic: topics.topic(member.tenant, topic) for topic in inputs}
        self._suffix = {name: topic for topic, name in self._names.items()}
        self._cluster = Cluster(kafka)
        counts = self._cluster.partitions()
        missing = [name for name in self._names.values() if name not in counts]
        if missing:
            raise MissingTopic(
                f"no topic {', '.join(missing)} at {self._cluster.bootstrap}: "
                f"`tempotrace topics create --tenant {member.tenant}`"
            )
        self.partitions = {topic: counts[name] for topic, name in self._names.items()}
        self.origins_malformed = 0
        self.consumer = Consumer(
            self.reader_settings()
            | {
                "group.id": member.group,
                "group.instance.id": member.name,
                "session.timeout.ms": SESSION_TIMEOUT_MS,
                "heartbeat.interval.ms": 1000,
                "partition.assignment.strategy": "range",  # gives a joining stage the same partition of all inputs
            }
        )
        self._appender: Producer | None = None

    @property
    def settings(self) -> dict[str, Any]:
        """librdkafka settings that reach the cluster."""
        return self._cluster.settings

    def reader_settings(self) -> dict[str, Any]:
        return {
            **self._cluster.settings,
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "fetch.queue.backoff.ms": 2,
            "fetch.wait.max.ms": 100,
            "queued.max.messages.kbytes": 65_536,
            "fetch.message.max.bytes": topics.MESSAGE_BYTES_MAX,
        }

    # The group: what this member reads.

    def subscribe(
        self,
        assigned: Callable[[list[Place]], None],
        revoked: Callable[[list[Place]], None],
        lost: Callable[[list[Place]], None],
    ) -> None:
        """Join the group. The callbacks are called inside poll() and raise nothing."""

        def places(partitions: list[TopicPartition]) -> list[Place]:
            return [(self._suffix[each.topic], each.partition) for each in partitions]

        self.consumer.subscribe(
            list(self._names.values()),
            on_assign=lambda _, partitions: assigned(places(partitions)),
            on_revoke=lambda _, partitions: revoked(places(partitions)),
            on_lost=lambda _, partitions: lost(places(partitions)),
        )

    def begin(self, positions: Mapping[Place, int]) -> None:
        """Read these partitions, from these offsets on; what was fetched before is not delivered any more."""
        self.consumer.assign(self._partitions(positions))

    def _partitions(self, positions: Mapping[Place, int]) -> list[TopicPartition]:
        return [TopicPartition(self._names[topic], part, at) for (topic, part), at in positions.items()]

    def poll(self, seconds: float) -> list[tuple[Place, Record | End]]:
        """Wait for input, then take all that is there, each with the place it was read from; [] after `seconds`.

        Raises LostInput, MissingTopic, Fenced, BrokerAway. A broker that is away for a while is only logged:
        the client goes on when it is back.
        """
        try:
            first = self.consumer.poll(seconds)
            if first is None:
                return []
            messages = [first, *self.consumer.consume(RECORDS_PER_POLL_MAX, 0)]
        except KafkaException as error:
            raise failure(error.args[0], f"reading as {self.member.name}") from error
        out: list[tuple[Place, Record | End]] = []
        for message in messages:
            problem = message.error()
            if problem is None:
                name, partition, _ = _place(message)
                out.append(((self._suffix[name], partition), self._record(message)))
            elif problem.code() == KafkaError._PARTITION_EOF:
                name, partition, offset = _place(message)
                out.append(((self._suffix[name], partition), End(offset)))
            elif problem.code() in _PASSING or (problem.retriable() and not problem.fatal()):
                log.warning("reading waits: %s", problem.str())
            else:
                raise failure(problem, f"reading as {self.member.name}")
        return out

    def _record(self, message: Message) -> Record:
        topic, partition, offset = _place(message)
        headers = tuple((name, value or b"") for name, value in message.headers() or ())
        append_ms = int(message.timestamp()[1])
        key, value = message.key(), message.value()
        if any(name == topics.HEADER_ORIGIN for name, _ in headers):
            try:
                origin = topics.origin_of(headers)
            except MalformedInput:
                # Whoever wrote it meant nothing that we can use: the record counts as this log's own.
                self.origins_malformed += 1
                origin = None
            if origin is not None:
                return Record(
                    self._suffix[topic],
                    origin.partition,
                    origin.offset,
                    origin.append_ms,
                    _bytes(key),
                    _bytes(value),
                    headers,
                    offset,
                )
        return Record(self._suffix[topic], partition, offset, append_ms, _bytes(key), _bytes(value), headers)

    def commit_for_lag(self, positions: Mapping[Place, int]) -> None:
        """Tell the group how far we are, for lag only: the outlet keeps its own account."""
        self.consumer.commit(offsets=self._partitions(positions), asynchronous=True)

    def leave(self) -> None:
        """Leave the group, so that others take over at once rather than when the session ends.

        A static member that only closes stays a member; unsubscribing makes it say so.
        """
        self.consumer.unsubscribe()
        self.consumer.poll(1.0)  # serves the revocation, after which the group is told

    def close(self) -> None:
        """Let go of the broker."""
        self.consumer.close()

    # The log itself.

    def topic_id(self, topic: str) -> str:
        name = self._names[topic]
        future = self._cluster.admin.describe_topics(TopicCollection([name]))[name]
        return str(self._cluster.result(future).topic_id)

    def range(self, topic: str, partition: int) -> tuple[int, int]:
        place = [(topic, partition)]
        return self._offsets(place, OffsetSpec.earliest())[0], self.ends(place)[0]

    def ends(self, places: Sequence[Place], stable: bool = False) -> list[int]:
        """The offset after the last record of each; `stable`: before the first open transaction.

        A transaction is decided before its markers are written, so a stage that must see all that another has
        committed goes by the whole log's end.
        """
        return self._offsets(places, OffsetSpec.latest(), stable)

    def _offsets(self, places: Sequence[Place], spec: OffsetSpec, stable: bool = False) -> list[int]:
        wanted = [TopicPartition(self._names[topic], partition) for topic, partition in places]
        if not wanted:
            return []
        futures = self._cluster.admin.list_offsets(
            dict.fromkeys(wanted, spec),
            isolation_level=IsolationLevel.READ_COMMITTED if stable else IsolationLevel.READ_UNCOMMITTED,
            request_timeout=ANSWER_SECONDS_MAX,
        )
        found = {(each.topic, each.partition): future for each, future in futures.items()}
        return [int(self._cluster.result(found[each.topic, each.partition]).offset) for each in wanted]

    def fetch(self, topic: str, partition: int, offsets: Sequence[int]) -> Iterator[Record]:
        """The records at these offsets, ascending. Raises LostInput where one is not there."""
        wanted = iter(offsets)
        due = next(wanted, None)
        if due is None:
            return
        reader = Reader(self.reader_settings(), self.member, self._names[topic], partition, due)
        try:
            while due is not None:
                message = reader.at(due)
                yield self._record(message)
                due = next(wanted, None)
        finally:
            reader.close()

    # What the owner of a partition adds to it.

    def append_control(self, topic: str, partition: int, kind: Control) -> "Future[int]":
        """Append a control row without scope (tick, flush); the future gives its offset."""
        batch = control(self.member.tenant, "", self.member.name, [(kind, None, None)])
        headers = topics.batch_headers("control", 1, "")
        return self._append(
            topics.topic(self.member.tenant, topic), partition, None, encode_batch(batch), headers
        )

    def append_loss(self, loss: Loss) -> None:
        """Write down what input a partition goes on without, and wait until that is acknowledged."""
        record = DeadLetter(
            tenant=self.member.tenant,
            reason="lost_input",
            detail=f"{self.member.stage}: {loss.why}",
            topic=loss.topic,
            partition=loss.partition,
            offset=loss.first,
            append_ms=0,
            events=0,
            payload=f"{loss.first}-{loss.last}".encode(),
        )
        name = topics.topic(self.member.tenant, "deadletter")
        value = encode_record(record)
        log.warning("going on without lost input: %s", loss)
        self.await_appended(self._append(name, loss.partition, None, value, []))

    def await_appended(self, future: "Future[int]") -> int:
        """Offset of an appended record. Raises BrokerAway."""
        assert self._appender is not None
        self._appender.flush(ANSWER_SECONDS_MAX)
        if not future.done():
            raise BrokerAway(
                f"{self._cluster.bootstrap} did not take a record within {ANSWER_SECONDS_MAX:g} s"
            )
        return future.result()

    def serve(self) -> None:
        """Let acknowledgements of appended records come in."""
        if self._appender is not None:
            self._appender.poll(0)

    def _append(
        self, name: str, partition: int, key: bytes | None, value: bytes, headers: list[tuple[str, bytes]]
    ) -> "Future[int]":
        if self._appender is None:
            self._appender = Producer(
                {
                    **self._cluster.settings,
                    "enable.idempotence": True,
                    "acks": "all",
                    "linger.ms": 0,
                    "partitioner": topics.PARTITIONER,
                    "queue.buffering.max.messages": 1000,
                }
            )
        future: Future[int] = Future()

        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                future.set_exception(failure(error, f"appending to {name}"))
            else:
                future.set_result(message.offset() or 0)

        self._appender.produce(name, value, key, partition, delivered, headers=headers)
        return future


class Reader:
    """Reads single records of one partition, outside any group. Offsets asked for must ascend."""

    def __init__(
        self, settings: Mapping[str, Any], member: Member, topic: str, partition: int, begin: int
    ) -> None:
        self._where = f"{topic}/{partition}"
        self._partition = TopicPartition(topic, partition, begin)
        # The group is never joined, it only has to be named.
        self._consumer = Consumer({**settings, "group.id": f"{member.group}.restore"})
        self._consumer.assign([self._partition])
        self._at = begin

    def at(self, offset: int) -> Message:
        """The record at this offset. Raises LostInput if the log has none there, BrokerAway."""
        if offset - self._at > 4 * RECORDS_PER_POLL_MAX:
            self._consumer.seek(TopicPartition(self._partition.topic, self._partition.partition, offset))
        message = self.next()
        while message is not None and (message.offset() or 0) < offset:
            message = self.next()
        if message is None or message.offset() != offset:
            raise LostInput(f"{self._where} holds no record {offset}: the log was cut or cleaned")
        return message

    def next(self) -> Message | None:
        """The next record, None at the end."""
        message = self._consumer.poll(ANSWER_SECONDS_MAX)
        if message is None:
            raise BrokerAway(f"{self._where} was not delivered within {ANSWER_SECONDS_MAX:g} s")
        problem = message.error()
        if problem is not None:
            if problem.code() == KafkaError._PARTITION_EOF:
                return None
            raise failure(problem, f"reading {self._where}")
        self._at = (message.offset() or 0) + 1
        return message

    def close(self) -> None:
        """Let go of the broker."""
        self._consumer.close()


def _place(message: Message) -> tuple[str, int, int]:
    topic, partition, offset = message.topic(), message.partition(), message.offset()
    assert topic is not None and partition is not None and offset is not None
    return topic, partition, offset


def _bytes(value: str | bytes | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value
