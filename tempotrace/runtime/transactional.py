"""A producer under a transactional id that comes back from what ends one of librdkafka's for good.

Two things do after a broker was away, and neither means that another process took over:

- A call does not return: the client never checks the time-out of a request to the group's coordinator
  (librdkafka issue 5456) and may wait for a change of the broker's state that has happened already.
- The broker ended a transaction of ours that was open longer than transaction.timeout.ms, and with it our epoch.

Then a new producer takes the id over from the old one: that ends what the old one left open and shuts it out, so
that a call of it that does return one day has no effect. The work is done again from the last commit.
"""

import logging
import threading
from collections.abc import Callable, Sequence
from typing import Any, Final, NoReturn

from confluent_kafka import KafkaError, KafkaException, Message, Producer, TopicPartition

from schemas.errors import BrokerAway, Fenced
from tempotrace.clockwork import Clock
from tempotrace.runtime.failures import Aborted, failure, has_fenced

log = logging.getLogger(__name__)

TRANSACTION_TIMEOUT_MS: Final = 10_000
# A transaction that is older cannot be committed any more, so no call needs longer.
ATTEMPT_SECONDS: Final = TRANSACTION_TIMEOUT_MS / 1000
STUCK_SECONDS: Final = ATTEMPT_SECONDS + 2.0
RETRIED_SECONDS_MAX: Final = 60.0

Delivered = Callable[[KafkaError | None, Message], None]


class Stuck(Exception):
    """A call of the client did not return within STUCK_SECONDS."""


class Transactional:
    """One transaction at a time under `name`. Raises Aborted (do it again), Fenced, BrokerAway.

    `make` gives a new producer of that transactional id. `is_ours` tells whether this process still holds the
    name: it is asked before the id is taken from one who may be a successor.
    """

    def __init__(
        self, name: str, make: Callable[[], Producer], is_ours: Callable[[], bool], clock: Clock
    ) -> None:
        self._name = name
        self._make = make
        self._is_ours = is_ours
        self._clock = clock
        self._begun = clock.monotonic()
        # idle, open; lost: what the last transaction came to is not known. Whatever raised may leave any of them.
        self.phase = "idle"
        self._producer = make()
        self._take()

    def _take(self) -> None:
        """End what a predecessor of this name left open, and shut it out."""
        doing = f"taking the transactional id {self._name}"
        try:
            self._retried(doing, lambda: self._producer.init_transactions(ATTEMPT_SECONDS))
        except Stuck as error:
            raise BrokerAway(f"{doing}: {error}") from error
        except KafkaException as error:
            raise failure(error.args[0], doing) from error
        self.phase = "idle"

    def settled(self) -> None:
        """Make sure that no transaction of ours is under way. Raises Fenced, BrokerAway."""
        if self.phase != "idle":
            self._replace()

    def begin(self) -> None:
        """Open a transaction."""
        self.settled()
        self._begun = self._clock.monotonic()
        self._guarded(self._producer.begin_transaction)
        self.phase = "open"

    def send(
        self,
        topic: str,
        partition: int,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[tuple[str, bytes]],
        delivered: Delivered | None = None,
    ) -> None:
        """Put a record into the open transaction; waits while the queue, which is bounded, is full."""
        assert self.phase == "open", f"a record for {topic} while the transaction is {self.phase}"
        until = self._clock.monotonic() + ATTEMPT_SECONDS
        while True:
            try:
                self._producer.produce(topic, value, key, partition, delivered, headers=list(headers))
                return
            except BufferError:
                # It empties as the broker acknowledges.
                self._producer.poll(0.05)
                if self._clock.monotonic() > until:
                    raise Aborted(f"the queue was full for {ATTEMPT_SECONDS:g} s") from None
            except KafkaException as error:
                self._give_up(error)

    def flush(self) -> None:
        """Wait until the broker has all that was sent."""
        try:
            left = self._producer.flush(ATTEMPT_SECONDS)
        except KafkaException as error:
            self._give_up(error)
        if left:
            raise Aborted(f"{left} records were not acknowledged within {ATTEMPT_SECONDS:g} s")

    def commit(self, offsets: Sequence[TopicPartition], group: Any) -> None:
        """End the open transaction with these offsets of the group: all of it is visible, or Aborted is raised."""
        assert self.phase == "open", self.phase
        self.phase = "lost"  # until the calls below have come to an end
        producer = self._producer
        self._guarded(lambda: producer.send_offsets_to_transaction(list(offsets), group, ATTEMPT_SECONDS))
        self._guarded(lambda: producer.commit_transaction(ATTEMPT_SECONDS))
        self.phase = "idle"

    def abort(self) -> None:
        """Take back what the open transaction holds; nothing to do where none is open."""
        if self.phase == "idle":
            return
        self.phase = "lost"  # until we know better
        producer = self._producer
        try:
            self._retried("aborting", lambda: producer.abort_transaction(ATTEMPT_SECONDS))
        except (Stuck, KafkaException) as error:
            self._come_back(error)
        self.phase = "idle"

    # When a call fails.

    def _guarded(self, call: Callable[[], None]) -> None:
        try:
            self._retried("committing", call)
        except Stuck as error:
            self._come_back(error)
            raise Aborted(str(error)) from error
        except KafkaException as error:
            self._give_up(error)

    def _give_up(self, error: KafkaException) -> NoReturn:
        """End the transaction that met this error. Always raises."""
        problem: KafkaError = error.args[0]
        if has_fenced(problem) or problem.fatal():
            self._come_back(error)
        elif problem.txn_requires_abort():
            self.abort()
        else:
            raise failure(problem, f"a transaction of {self._name}") from error
        raise Aborted(problem.str()) from error

    def _come_back(self, error: Exception) -> None:
        """Go on with a new producer under the same id, unless the broker shut us out for a successor's sake."""
        open_seconds = self._clock.monotonic() - self._begun
        if isinstance(error, KafkaException) and open_seconds < ATTEMPT_SECONDS:
            raise failure(error.args[0], f"a transaction of {self._name}") from error
        log.warning("%s goes on with a new producer after %.0f s: %s", self._name, open_seconds, error)
        self._replace()

    def _replace(self) -> None:
        if not self._is_ours():
            raise Fenced(
                f"another process with the same --instance took {self._name} over; start again, with another "
                "--instance if both are wanted"
            )
        self._producer = self._make()
        self._take()

    def _retried(self, doing: str, call: Callable[[], None]) -> None:
        """Call again while the client says that this helps."""
        begin = self._clock.monotonic()
        while True:
            try:
                return within(STUCK_SECONDS, call)
            except KafkaException as error:
                problem: KafkaError = error.args[0]
                if not problem.retriable():
                    raise
                if self._clock.monotonic() - begin > RETRIED_SECONDS_MAX:
                    raise BrokerAway(f"{doing} as {self._name}: {problem.str()}") from error
                log.info("%s: %s; trying again", doing, problem.str())


def within(seconds: float, call: Callable[[], object]) -> None:
    """Make a call that may never return, in a thread that is left behind then. Raises Stuck, or what it raises."""
    ended: list[BaseException | None] = []

    def run() -> None:
        try:
            call()
            ended.append(None)
        except BaseException as error:
            ended.append(error)

    # A daemon: a process must be able to end while the call still hangs.
    thread = threading.Thread(target=run, name="kafka-call", daemon=True)
    thread.start()
    thread.join(seconds)
    if not ended:
        raise Stuck(f"the Kafka client did not answer within {seconds:g} s")
    if ended[0] is not None:
        raise ended[0]
