"""The few records that a runner itself adds to the log, outside transactions: ticks, flushes, losses."""

import logging
from collections.abc import Mapping
from concurrent.futures import Future
from typing import Any, Final

from confluent_kafka import KafkaError, Message, Producer

from schemas import topics
from schemas.codec import encode_batch, encode_record
from schemas.columns import Control
from schemas.draft import control
from schemas.errors import BrokerAway
from schemas.records import DeadLetter
from tempotrace.runtime.failures import failure
from tempotrace.runtime.restore import Loss

log = logging.getLogger(__name__)

ANSWER_SECONDS_MAX: Final = 15.0
QUEUED_MAX: Final = 1000


class Appender:
    """Appends to explicit partitions of one tenant's topics. It connects when it is used first."""

    def __init__(self, settings: Mapping[str, Any], tenant: str, publisher: str) -> None:
        self._settings = dict(settings)
        self._tenant = tenant
        self._publisher = publisher
        self._made: Producer | None = None

    def control(self, topic: str, partition: int, kind: Control) -> "Future[int]":
        """Append a control row without scope (tick, flush); the future gives its offset."""
        batch = control(self._tenant, "", self._publisher, [(kind, None, None)])
        return self._append(topic, partition, encode_batch(batch), topics.batch_headers("control", 1, ""))

    def loss(self, stage: str, loss: Loss) -> None:
        """Write to `deadletter` what input a partition goes on without; returns when acknowledged.

        A crash right after it writes the same loss again at the next start.
        """
        record = DeadLetter(
            tenant=self._tenant,
            reason="lost_input",
            detail=f"{stage}: {loss.why}",
            topic=loss.topic,
            partition=loss.partition,
            offset=loss.first,
            append_ms=0,
            events=0,
            payload=f"{loss.first}-{loss.last}".encode(),
        )
        log.warning("going on without lost input: %s", loss)
        self.acknowledged(self._append("deadletter", loss.partition, encode_record(record), []))

    def acknowledged(self, future: "Future[int]") -> int:
        """Offset of an appended record, once the broker has it. Raises BrokerAway, or why it was refused."""
        self._producer().flush(ANSWER_SECONDS_MAX)
        if not future.done():
            raise BrokerAway(f"a record was not acknowledged within {ANSWER_SECONDS_MAX:g} s")
        return future.result()

    def serve(self) -> None:
        """Let acknowledgements come in."""
        if self._made is not None:
            self._made.poll(0)

    def _append(
        self, suffix: str, partition: int, value: bytes, headers: list[tuple[str, bytes]]
    ) -> "Future[int]":
        name = topics.topic(self._tenant, suffix)
        future: Future[int] = Future()

        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                future.set_exception(failure(error, f"appending to {name}"))
            else:
                future.set_result(message.offset() or 0)

        self._producer().produce(name, value, None, partition, delivered, headers=list(headers))
        return future

    def _producer(self) -> Producer:
        if self._made is None:
            self._made = Producer(
                {
                    **self._settings,
                    "enable.idempotence": True,
                    "acks": "all",
                    "linger.ms": 0,
                    "partitioner": topics.PARTITIONER,
                    "queue.buffering.max.messages": QUEUED_MAX,
                }
            )
        return self._made
