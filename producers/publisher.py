"""Sends the batches of a producer that can wait: file readers and the simulator.

It blocks while the transport's queue is full, so memory is bounded by that queue. Sending the same input
again is harmless, because its rows have the same identity; so a failure ends the run instead of being kept.
"""

from collections.abc import Callable
from typing import Final

from producers.message import Item, outgoing
from producers.transport import KafkaTransport, MemoryTransport, Transport
from schemas.batch import Batch
from schemas.errors import BrokerAway, TempoError

__all__ = ["KafkaTransport", "MemoryTransport", "Publisher", "Transport"]

FLUSH_SECONDS_MAX: Final = 30.0  # without a single acknowledgement


class Publisher:
    """Sends batches to their tenant's `events`, and dead letters to its `deadletter`, in order.

    `events` counts the rows handed to the transport, `acked` those that the brokers acknowledged, `batches`
    the messages. Control rows and dead letters are no events. `scope`: of the last batch.
    """

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._checked: set[str] = set()
        self._failure: TempoError | None = None
        self._unsent = 0
        self.events = 0
        self.acked = 0
        self.batches = 0
        self.scope = ""

    def send(self, item: Item) -> None:
        """Send a batch, cut to size, or a dead letter. Blocks while the queue is full.

        Raises MissingTopic at a topic's first message, and BrokerAway or the error of an earlier message.
        """
        if isinstance(item, Batch):
            self.scope = item.scope
        for _, message in outgoing(item):
            if message.topic not in self._checked:
                self._transport.check(message.topic)
                self._checked.add(message.topic)
            self._raise_failure()
            self._unsent += 1
            done = self._done(message.events)
            self._transport.send(message.topic, message.key, message.value, message.headers, done)
            self.batches += 1
            self.events += message.events

    def close(self) -> None:
        """Wait until all is acknowledged. Raises BrokerAway, saying how much is not, or a batch's error."""
        left = self._transport.flush(FLUSH_SECONDS_MAX)
        self._raise_failure()
        if left:
            self._transport.purge()
            raise BrokerAway(
                f"{self._unsent} of {self.batches} batches were not acknowledged "
                f"({self.events - self.acked} of {self.events} events): run it again; nothing counts twice"
            )

    def abandon(self) -> None:
        """Give up what is not acknowledged yet, after an error."""
        self._transport.purge()

    def _done(self, events: int) -> Callable[[TempoError | None], None]:
        def done(error: TempoError | None) -> None:
            if error is not None:
                self._failure = self._failure or error
                return
            self._unsent -= 1
            self.acked += events

        return done

    def _raise_failure(self) -> None:
        if self._failure is not None:
            self._transport.purge()
            raise self._failure
