"""How records are read: the settings of every reader, a message as a Record, single records by offset.

Two settings of librdkafka are not left at their defaults for speed: `fetch.queue.backoff.ms` (1000 if unset,
met whenever the local queue is full) and `fetch.wait.max.ms` (how long an idle partition's end stays unsure).
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from schemas import topics
from schemas.errors import BrokerAway, LostInput, MalformedInput
from schemas.processor import Record
from tempotrace.runtime.failures import failure

ANSWER_SECONDS_MAX: Final = 15.0
SKIP_MAX: Final = 2000  # records read over rather than sought past
READING: Final[Mapping[str, Any]] = {
    "enable.auto.commit": False,
    "auto.offset.reset": "error",
    "isolation.level": "read_committed",
    "enable.partition.eof": True,
    "fetch.queue.backoff.ms": 2,
    "fetch.wait.max.ms": 100,
    "queued.max.messages.kbytes": 65_536,
    "fetch.message.max.bytes": topics.MESSAGE_BYTES_MAX,
}


def place_of(message: Message) -> tuple[str, int, int]:
    """Topic by full name, partition, offset."""
    topic, partition, offset = message.topic(), message.partition(), message.offset()
    assert topic is not None
    assert partition is not None
    assert offset is not None
    return topic, partition, offset


def record_of(message: Message, topic: str, refused: Callable[[], None]) -> Record:
    """The record in a message; `topic` is its suffix. `tt-origin` replaces partition, offset, append time.

    A `tt-origin` that cannot be read means nothing that we can use: the record then counts as this log's own,
    and `refused` is called.
    """
    _, partition, offset = place_of(message)
    headers = tuple((name, _bytes(value) or b"") for name, value in _pairs(message))
    key, value = _bytes(message.key()), _bytes(message.value())
    for name, _ in headers:
        if name == topics.HEADER_ORIGIN:
            try:
                origin = topics.origin_of(headers)
            except MalformedInput:
                refused()
                break
            if origin is not None:
                return Record(
                    topic, origin.partition, origin.offset, origin.append_ms, key, value, headers, offset
                )
    return Record(topic, partition, offset, int(message.timestamp()[1]), key, value, headers)


class Reader:
    """Reads single records of one partition, outside any group. Offsets asked for must ascend."""

    def __init__(
        self, settings: Mapping[str, Any], group: str, topic: str, partition: int, begin: int
    ) -> None:
        self._topic, self._partition = topic, partition
        # The group is never joined, it only has to be named; ACLs are by prefix.
        self._consumer = Consumer({**settings, **READING, "group.id": f"{group}.restore"})
        self._consumer.assign([TopicPartition(topic, partition, begin)])
        self._at = begin

    def at(self, offset: int) -> Message:
        """The record at this offset. Raises LostInput if the log has none there, BrokerAway."""
        assert offset >= self._at, f"{offset} after {self._at}"
        if offset - self._at > SKIP_MAX:
            self._consumer.seek(TopicPartition(self._topic, self._partition, offset))
        message = self.next()
        while message is not None and place_of(message)[2] < offset:
            message = self.next()
        if message is None or message.offset() != offset:
            raise LostInput(
                f"{self._topic}/{self._partition} holds no record {offset}: the log was cut or cleaned"
            )
        return message

    def next(self) -> Message | None:
        """The next record, None at the end. Raises BrokerAway and what else reading may bring."""
        message = self._poll()
        if message.error() is not None:
            return None
        self._at = place_of(message)[2] + 1
        return message

    def _poll(self) -> Message:
        """The next record, or what says that the end is reached."""
        where = f"{self._topic}/{self._partition}"
        message = self._consumer.poll(ANSWER_SECONDS_MAX)
        if message is None:
            raise BrokerAway(f"{where} was not delivered within {ANSWER_SECONDS_MAX:g} s")
        problem = message.error()
        if problem is not None and problem.code() != KafkaError._PARTITION_EOF:
            raise failure(problem, f"reading {where}")
        return message

    def until(self, end: int) -> Iterator[Message]:
        """The records before an offset that the log has reached; waits for the transactions open there."""
        while True:
            message = self._poll()
            if message.error() is None:
                yield message
            if place_of(message)[2] + (message.error() is None) >= end:
                return

    def close(self) -> None:
        """Let go of the broker."""
        self._consumer.close()


def _pairs(message: Message) -> list[tuple[str, Any]]:
    headers: Any = message.headers()
    return headers or []


def _bytes(value: Any) -> bytes | None:
    return value.encode() if isinstance(value, str) else value
