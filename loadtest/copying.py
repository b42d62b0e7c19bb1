"""The limit of every stage: the same records through the same client and broker, and nothing done to them.

The copy is one consumer and one transactional producer, and commits as the runner does: after so many bytes
or so many seconds, offsets inside the transaction. Keys, values, headers and partitions stay as they are.
"""

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from loadtest.measure import Amounts, Pass, Stopwatch
from schemas import topics
from schemas.errors import BrokerAway
from tempotrace.clockwork import Clock
from tempotrace.runtime.failures import failure
from tempotrace.runtime.kafka_log import Member
from tempotrace.runtime.reading import READING
from tempotrace.runtime.runner import RunnerSettings

MESSAGES_PER_CALL: Final = 500
POLL_SECONDS: Final = 0.02
ANSWER_SECONDS_MAX: Final = 30.0


def copy(
    kafka: Mapping[str, str],
    member: Member,
    source: str,
    records: int,
    target: str,
    rhythm: RunnerSettings,
    compression: str,
    clock: Clock,
    watch: Stopwatch,
    stop: threading.Event,
) -> Pass | None:
    """Copy the first `records` records of a topic to another; None if stopped before. Raises BrokerAway.

    The end is known by the count: waiting until the broker says so would be a good part of the time.
    """
    producer = Producer(
        {
            **kafka,
            "transactional.id": member.name,
            "acks": "all",
            "partitioner": topics.PARTITIONER,
            "compression.type": compression,
            "linger.ms": 5,
            "message.max.bytes": topics.MESSAGE_BYTES_MAX,
            "queue.buffering.max.kbytes": 256 * 1024,
        }
    )
    with _failing(member.name), _reader(kafka, member.group, source, watch) as consumer:
        producer.init_transactions(ANSWER_SECONDS_MAX)
        moved, waiting, launched = [0, 0, 0], 0, clock.monotonic()  # events, records, bytes
        begun = False
        while moved[1] < records:
            if stop.is_set():
                return None
            for message in _some(consumer):
                if _ended(message):
                    break
                if not begun:
                    producer.begin_transaction()
                    begun = True
                size = _note(message, moved)
                waiting += size
                producer.produce(
                    target,
                    message.value(),
                    message.key(),
                    message.partition() or 0,
                    headers=message.headers(),
                )
            silent = clock.monotonic() - launched
            done = moved[1] >= records
            if begun and (done or waiting >= rhythm.bytes_per_commit or silent >= rhythm.commit_after):
                producer.send_offsets_to_transaction(
                    consumer.position(consumer.assignment()),
                    consumer.consumer_group_metadata(),
                    ANSWER_SECONDS_MAX,
                )
                producer.commit_transaction(ANSWER_SECONDS_MAX)
                watch.lap()
                waiting, launched, begun = 0, clock.monotonic(), False
    events, copied, size = moved
    return watch.measured(Amounts(events, copied, copied, size, size))


def read(
    kafka: Mapping[str, str],
    member: Member,
    source: str,
    events: int,
    watch: Stopwatch,
    stop: threading.Event,
) -> Pass | None:
    """Read all that is in a topic, `events` as the caller knows, and do nothing with it; None if stopped.

    The time ends with the last record.
    """
    moved = [0, 0, 0]
    with _failing(member.name), _reader(kafka, member.group, source, watch) as consumer:
        at_end = False
        while not at_end:
            if stop.is_set():
                return None
            before = moved[1]
            for message in _some(consumer):
                at_end = _ended(message)
                if at_end:
                    break
                _note(message, moved)
            if moved[1] > before:
                watch.lap()
    _, records, size = moved
    return watch.measured(Amounts(events, records, 0, size, 0))


@contextmanager
def _reader(kafka: Mapping[str, str], group: str, source: str, watch: Stopwatch) -> Iterator[Consumer]:
    """A member of a group that reads a topic from its start; the watch starts when it has its partitions."""
    consumer = Consumer({**kafka, **READING, "group.id": group})

    def assigned(own: Consumer, partitions: list[TopicPartition]) -> None:
        # From an offset, as the runner does: to look up where a partition begins is part of the start.
        for each in partitions:
            each.offset = own.get_watermark_offsets(each, ANSWER_SECONDS_MAX)[0]
        watch.start()
        own.assign(partitions)

    try:
        consumer.subscribe([source], on_assign=assigned)
        yield consumer
    finally:
        consumer.close()


def _some(consumer: Consumer) -> list[Message]:
    """Wait for a message, then take all that are there: to wait for a full list would cost a pause each time."""
    first = consumer.poll(POLL_SECONDS)
    return [] if first is None else [first, *consumer.consume(MESSAGES_PER_CALL, 0)]


@contextmanager
def _failing(name: str) -> Iterator[None]:
    try:
        yield
    except KafkaException as error:
        raise failure(error.args[0], f"copying as {name}") from error
    except BufferError as error:
        raise BrokerAway(f"copying as {name}: the broker does not take what is sent") from error


def _ended(message: Message) -> bool:
    problem = message.error()
    if problem is None:
        return False
    if problem.code() == KafkaError._PARTITION_EOF:
        return True
    raise KafkaException(problem)


def _note(message: Message, moved: list[int]) -> int:
    """Count a message by what its headers say of it; its bytes."""
    headers: dict[str, Any] = dict(message.headers() or ())
    size = len(message.value() or b"") + len(message.key() or b"")
    if headers.get(topics.HEADER_FAMILY) != b"control":
        moved[0] += int(headers.get(topics.HEADER_COUNT, 0))
    moved[1] += 1
    moved[2] += size
    return size
