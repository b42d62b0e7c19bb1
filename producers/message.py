"""What producers send, as messages: batches to `events`, dead letters (unusable input) to `deadletter`."""

from collections.abc import Iterator
from typing import NamedTuple

from producers.cutting import messages
from schemas import records, topics
from schemas.batch import Batch
from schemas.codec import decode_batch, decode_record, encode_record, schema_of
from schemas.records import DeadLetter

Item = Batch | DeadLetter


class Message(NamedTuple):
    """A message for Kafka. `events`: rows in it that are events, which control rows are not."""

    topic: str
    key: bytes
    headers: list[tuple[str, bytes]]
    value: bytes
    events: int


def outgoing(item: Item) -> Iterator[tuple[Item, Message]]:
    """The messages of an item, each with the piece of it that it holds: batches are cut to size."""
    if isinstance(item, DeadLetter):
        yield item, _of(item, encode_record(item))
        return
    for piece, payload in messages(item):
        yield piece, _of(piece, payload)


def of_payload(payload: bytes) -> tuple[Item, Message]:
    """The item in an encoded message, and the message again. Raises MalformedInput or UnknownSchema."""
    item: Item
    if schema_of(payload)["name"] == DeadLetter.__name__:
        item = records.read(DeadLetter, decode_record(payload))
    else:
        item = decode_batch(payload)
    return item, _of(item, payload)


def _of(item: Item, payload: bytes) -> Message:
    if isinstance(item, DeadLetter):
        topic, family, count, scope = topics.topic(item.tenant, "deadletter"), "deadletter", item.events, ""
        return Message(topic, item.topic.encode(), topics.batch_headers(family, count, scope), payload, 0)
    headers = topics.batch_headers(item.family, item.count, item.scope)
    events = 0 if item.family == "control" else item.count
    return Message(topics.topic(item.tenant, "events"), item.scope.encode(), headers, payload, events)
