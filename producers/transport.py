"""Ways for messages to go: Kafka, and memory for tests and for `tempotrace analyze`.

A transport takes messages in order and reports each one once, through the callback it was handed over with.
Callbacks run inside `send`, `poll`, `flush` and `purge`, in the caller's thread, never by themselves.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol

from confluent_kafka import KafkaError, KafkaException, Producer

from producers import kafka_client
from schemas import topics
from schemas.errors import BrokerAway, MalformedInput, MissingTopic, TempoError

Headers = Sequence[tuple[str, bytes]]
Done = Callable[[TempoError | None], None]

log = logging.getLogger(__name__)


class Transport(Protocol):
    """Where messages go. One thread uses it."""

    def check(self, topic: str) -> None:
        """Whether the topic can be written. Raises MissingTopic or BrokerAway; may block some seconds."""
        ...

    def send(self, topic: str, key: bytes, value: bytes, headers: Headers, done: Done) -> None:
        """Take a message. Blocks while the queue is full; raises BrokerAway if it stays so."""
        ...

    def poll(self, seconds: float) -> None:
        """Run the callbacks that are due; wait at most so long for the first."""
        ...

    def flush(self, seconds: float) -> int:
        """Wait for as long as acknowledgements keep coming, at most `seconds` for each; messages left."""
        ...

    def purge(self) -> None:
        """Give up all messages that are not acknowledged: their callbacks get an error. Usable afterwards."""
        ...


class Sent(NamedTuple):
    """A message as a MemoryTransport keeps it."""

    topic: str
    key: bytes
    value: bytes
    headers: tuple[tuple[str, bytes], ...]


class MemoryTransport:
    """Keeps what it is sent, and acknowledges at once."""

    def __init__(self) -> None:
        self.sent: list[Sent] = []

    def check(self, topic: str) -> None:
        """Every topic is there."""

    def send(self, topic: str, key: bytes, value: bytes, headers: Headers, done: Done) -> None:
        self.sent.append(Sent(topic, key, value, tuple(headers)))
        done(None)

    def poll(self, seconds: float) -> None:
        """Nothing is ever due."""

    def flush(self, seconds: float) -> int:
        return 0

    def purge(self) -> None:
        """Nothing is ever left."""


# What no setting of the user's may change. Order and completeness rest on these: a message never times out
# inside the client (the caller decides when to give up, and then gives up all that follows too), and if one
# is refused the client stops rather than send its successors.
_BINDING: Final[Mapping[str, Any]] = {
    "acks": "all",
    "enable.idempotence": True,
    "enable.gapless.guarantee": True,
    "message.timeout.ms": 0,
    "partitioner": topics.PARTITIONER,
    "message.max.bytes": topics.MESSAGE_BYTES_MAX,
}
_DEFAULTS: Final[Mapping[str, Any]] = {
    "compression.type": "lz4",
    "linger.ms": 5,
    "queue.buffering.max.kbytes": 64 * 1024,
    "queue.buffering.max.messages": 100_000,
    "topic.metadata.propagation.max.ms": 10_000,  # a topic that was there is missing for so long: it has gone
}
_AWAY: Final = {
    KafkaError._TRANSPORT,
    KafkaError._TIMED_OUT,
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._RESOLVE,
    KafkaError._AUTHENTICATION,
    KafkaError._SSL,
    KafkaError._PURGE_QUEUE,
    KafkaError._PURGE_INFLIGHT,
}
_MISSING: Final = {
    KafkaError._UNKNOWN_TOPIC,
    KafkaError._UNKNOWN_PARTITION,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
}


class KafkaTransport:
    """An idempotent Kafka producer with a bounded queue (64 MiB).

    `kafka` holds librdkafka's settings, bootstrap.servers among them. `patience_s`: how long to wait for a
    broker without any sign of it before saying BrokerAway.
    """

    def __init__(self, kafka: Mapping[str, str], *, patience_s: float = 30.0) -> None:
        self._settings = kafka_client.with_log({**_DEFAULTS, **kafka, **_BINDING}, self._note)
        self._bootstrap = kafka["bootstrap.servers"]
        self._patience_s = patience_s
        self._producer: Producer | None = None
        self._reason = ""
        self._fatal = False
        self._waiting = 0
        self._answers = 0
        self._asked = False  # whether brokers were asked for before

    def check(self, topic: str) -> None:
        """Ask the brokers for their topics (all of them: asking for one by name could create it)."""
        producer = self._open()
        first, self._asked = not self._asked, True
        try:
            found = kafka_client.topics_of(producer, self._bootstrap, min(self._patience_s, 10.0), first)
        except KafkaException as error:
            raise self._error(error.args[0], topic) from None
        if topic not in found:
            tenant = topic.split(".")[1]
            raise MissingTopic(
                f"no topic {topic} at {self._bootstrap}: `tempotrace topics create --tenant {tenant}`"
            )

    def send(self, topic: str, key: bytes, value: bytes, headers: Headers, done: Done) -> None:
        producer = self._open()

        def delivered(error: KafkaError | None, _message: Any) -> None:
            if self._producer is not producer:
                return  # given up, and reported, by purge()
            self._waiting -= 1
            self._answers += 1
            done(None if error is None else self._error(error, topic))

        waited = 0.0
        while True:
            try:
                producer.produce(topic, value, key, headers=list(headers), on_delivery=delivered)
            except BufferError:
                before = self._answers
                producer.poll(0.1)
                waited = 0.0 if self._answers > before else waited + 0.1
                if waited >= self._patience_s:
                    raise self._away() from None
            except KafkaException as error:
                raise self._error(error.args[0], topic) from None
            else:
                self._waiting += 1
                producer.poll(0)
                return

    def poll(self, seconds: float) -> None:
        if self._producer is not None:
            self._producer.poll(seconds)

    def flush(self, seconds: float) -> int:
        waited = 0.0
        while self._waiting and waited < seconds:
            before = self._answers
            self._open().flush(min(0.1, seconds))
            waited = 0.0 if self._answers > before else waited + 0.1
        return self._waiting

    def purge(self) -> None:
        if self._producer is None:
            return
        self._producer.purge()
        self._producer.flush(1.0)
        if self._fatal or self._waiting:
            # A client that met a fatal error takes nothing more; the next use makes a new one.
            self._producer, self._fatal, self._waiting = None, False, 0

    def _open(self) -> Producer:
        if self._producer is None:
            self._producer = Producer(self._settings)
        return self._producer

    def _note(self, error: KafkaError) -> None:
        self._fatal = self._fatal or error.fatal()
        # "All brokers down" follows the reason and says less.
        if error.code() != KafkaError._ALL_BROKERS_DOWN:
            self._reason = error.str()
            log.debug("kafka client: %s", error.str())

    def _away(self) -> BrokerAway:
        return kafka_client.away(self._bootstrap, self._reason or "no answer")

    def _error(self, error: KafkaError, topic: str) -> TempoError:
        """The error of ours that says what the client's own means."""
        self._fatal = self._fatal or error.fatal()
        if error.code() in _AWAY:
            return self._away()
        if error.code() in _MISSING:
            return MissingTopic(f"topic {topic} has gone from {self._bootstrap}: `tempotrace topics create`")
        if error.code() == KafkaError.MSG_SIZE_TOO_LARGE:
            return MalformedInput(f"one row is larger than a message may be ({error.str()})", topic)
        return BrokerAway(f"{self._bootstrap} refuses what is sent to {topic}: {error.str()}")
