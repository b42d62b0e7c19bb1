"""The input side: a group member that reads a tenant's topics, and what else a runner asks of the log.

Reading is read_committed, without auto-commit and with `auto.offset.reset=error`: where to begin is always
said explicitly, so a log that lost records is an error rather than a jump. Membership is static
(`group.instance.id`): a process that comes back within the session takes its partitions up at once.
"""

import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass
from typing import Any, Final

from confluent_kafka import (
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import OffsetSpec

from schemas import topics
from schemas.errors import MissingTopic
from schemas.processor import Record
from tempotrace.clockwork import Clock, WallClock
from tempotrace.runtime.appender import Appender
from tempotrace.runtime.failures import failure
from tempotrace.runtime.ports import End, Place
from tempotrace.runtime.reading import READING, Reader, place_of, record_of
from tempotrace.topics_admin import Cluster

log = logging.getLogger(__name__)

ANSWER_SECONDS_MAX: Final = 15.0
SESSION_TIMEOUT_MS: Final = 10_000
RECORDS_PER_POLL_MAX: Final = 500
LEAVING_POLLS_MAX: Final = 100
# The client goes on by itself when these are over.
_MOVING: Final = {
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.UNKNOWN_LEADER_EPOCH,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
}
_PASSING: Final = {KafkaError._ALL_BROKERS_DOWN, KafkaError._TRANSPORT, KafkaError._TIMED_OUT}


@dataclass(frozen=True)
class Member:
    """Who reads: tenant, stage and instance make the group and the member's name."""

    tenant: str
    stage: str
    instance: int

    @property
    def group(self) -> str:
        """Id of the stage's consumer group."""
        return f"{topics.PREFIX}.{self.tenant}.{self.stage}"

    @property
    def name(self) -> str:
        """The member's id in the group, and its transactional id."""
        return f"{self.group}.{self.instance}"


class KafkaLog:
    """A tenant's topics as one member of a stage's group reads them. Raises MissingTopic, BrokerAway."""

    def __init__(
        self, kafka: Mapping[str, str], member: Member, inputs: Sequence[str], clock: Clock | None = None
    ) -> None:
        self.member = member
        self._clock = clock or WallClock()
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
        self._origins_refused = 0
        self.appender = Appender(self.settings, member.tenant, member.name)
        self._holding = False  # whether partitions are ours
        self._fatal: KafkaError | None = None
        self.generation: Any = None  # the group's state of this assignment, as transactions want it
        self._member_id: str | None = None  # as the group gave it with this assignment
        self.consumer = Consumer(
            {
                **self.settings,
                **READING,
                "error_cb": self._note,
                "group.id": member.group,
                "group.instance.id": member.name,
                "session.timeout.ms": SESSION_TIMEOUT_MS,
                "heartbeat.interval.ms": 1000,
                # Gives a joining stage the same partition of all its inputs.
                "partition.assignment.strategy": "range",
            }
        )

    @property
    def settings(self) -> dict[str, Any]:
        """librdkafka settings that reach the cluster."""
        return self._cluster.settings

    # The group: what this member reads.

    def subscribe(
        self,
        assigned: Callable[[list[Place]], None],
        revoked: Callable[[list[Place]], None],
        lost: Callable[[list[Place]], None],
    ) -> None:
        """Join the group. The callbacks are called inside poll() and raise nothing."""

        def places(partitions: list[TopicPartition], holding: bool) -> list[Place]:
            self._holding = holding
            if holding:
                self._member_id = self.consumer.memberid()
            return [(self._suffix[each.topic], each.partition) for each in partitions]

        self.consumer.subscribe(
            list(self._names.values()),
            on_assign=lambda _, partitions: assigned(places(partitions, True)),
            on_revoke=lambda _, partitions: revoked(places(partitions, False)),
            on_lost=lambda _, partitions: lost(places(partitions, False)),
        )

    def begin(self, positions: Mapping[Place, int]) -> None:
        """Read these partitions, from these offsets on; what was fetched before is not delivered any more."""
        self.consumer.assign(self._partitions(positions))
        # Changes with each assignment only; asking for it from another thread than poll()'s may never return.
        self.generation = self.consumer.consumer_group_metadata()

    def _partitions(self, positions: Mapping[Place, int]) -> list[TopicPartition]:
        return [TopicPartition(self._names[topic], part, at) for (topic, part), at in positions.items()]

    def poll(self, seconds: float) -> list[tuple[Place, Record | End]]:
        """Wait for input, then take all that is there, each with the place it came from; [] after `seconds`.

        Raises LostInput, MissingTopic, Fenced, BrokerAway. A broker that is away for a while is only logged:
        the client goes on when it is back.
        """
        try:
            first = self.consumer.poll(seconds)
            if self._fatal is not None:
                raise failure(self._fatal, f"reading as {self.member.name}")
            if first is None:
                return []
            messages = [first, *self.consumer.consume(RECORDS_PER_POLL_MAX, 0)]
        except KafkaException as error:
            raise failure(error.args[0], f"reading as {self.member.name}") from error
        out: list[tuple[Place, Record | End]] = []
        for message in messages:
            problem = message.error()
            if problem is None or problem.code() == KafkaError._PARTITION_EOF:
                name, partition, offset = place_of(message)
                topic = self._suffix[name]
                one = End(offset) if problem else record_of(message, topic, self._refused)
                out.append(((topic, partition), one))
            elif problem.code() in _PASSING or (problem.retriable() and not problem.fatal()):
                log.warning("reading waits: %s", problem.str())
            else:
                raise failure(problem, f"reading as {self.member.name}")
        return out

    def _note(self, error: KafkaError) -> None:
        # Called inside poll(); a client that has an error callback tells of the end of its membership only here.
        if error.fatal() or error.code() == KafkaError._FATAL:
            self._fatal = error

    def _refused(self) -> None:
        self._origins_refused += 1

    def take_refused(self) -> int:
        """Records since the last call whose tt-origin could not be read."""
        refused, self._origins_refused = self._origins_refused, 0
        return refused

    def commit_for_lag(self, positions: Mapping[Place, int]) -> None:
        """Tell the group how far we are, for lag only: the outlet keeps its own account."""
        self.consumer.commit(offsets=self._partitions(positions), asynchronous=True)

    def is_member(self) -> bool:
        """Whether no other process holds this member's name in the group now; callable from any thread."""
        group = self.member.group
        (answer,) = self._asked(lambda: [self._cluster.admin.describe_consumer_groups([group])[group]])
        holders = [each.member_id for each in answer.members if each.group_instance_id == self.member.name]
        return holders in ([], [self._member_id])

    def leave(self) -> None:
        """Leave the group, so that others take over at once rather than when the session ends.

        A static member that only closes stays a member; one that unsubscribes says that it goes.
        """
        self.consumer.unsubscribe()
        for _ in range(LEAVING_POLLS_MAX):  # the group is told once the revocation has been served
            if not self._holding:
                return
            self.consumer.poll(0.05)

    def close(self) -> None:
        """Let go of the broker."""
        self.consumer.close()

    # The log itself.

    def topic_id(self, topic: str) -> str:
        name = self._names[topic]
        (answer,) = self._asked(lambda: [self._cluster.admin.describe_topics(TopicCollection([name]))[name]])
        return str(answer.topic_id)

    def range(self, topic: str, partition: int) -> tuple[int, int]:
        return self.range_of(self._names[topic], partition)

    def range_of(self, name: str, partition: int) -> tuple[int, int]:
        """range() of any topic, by its full name."""
        place = [TopicPartition(name, partition)]
        first, end = self._offsets(place, OffsetSpec.earliest()), self._offsets(place, OffsetSpec.latest())
        return first[0], end[0]

    def ends(self, places: Sequence[Place], stable: bool = False) -> list[int]:
        """The offset after the last record of each; `stable`: before the first open transaction.

        A transaction is decided before its markers are written, so a stage that must see all that another has
        committed goes by the whole log's end.
        """
        wanted = [TopicPartition(self._names[topic], partition) for topic, partition in places]
        return self._offsets(wanted, OffsetSpec.latest(), stable) if wanted else []

    def _offsets(self, wanted: Sequence[TopicPartition], spec: OffsetSpec, stable: bool = False) -> list[int]:
        isolation = IsolationLevel.READ_COMMITTED if stable else IsolationLevel.READ_UNCOMMITTED

        def ask() -> list[Future[Any]]:
            futures = self._cluster.admin.list_offsets(
                dict.fromkeys(wanted, spec), isolation_level=isolation, request_timeout=ANSWER_SECONDS_MAX
            )
            found = {(each.topic, each.partition): future for each, future in futures.items()}
            return [found[each.topic, each.partition] for each in wanted]

        return [int(answer.offset) for answer in self._asked(ask)]

    def _asked(self, ask: Callable[[], "list[Future[Any]]"]) -> list[Any]:
        """Answers to a question, asked again while leaders move, as after a restart of a broker."""
        begin = self._clock.monotonic()
        while True:
            futures = ask()
            wait(futures, ANSWER_SECONDS_MAX)
            problems = [
                error for future in futures if isinstance(error := future.exception(), KafkaException)
            ]
            late = self._clock.monotonic() - begin > ANSWER_SECONDS_MAX
            if late or not any(_moving(problem.args[0]) for problem in problems):
                return [self._cluster.result(future) for future in futures]
            self._clock.wait(threading.Event(), 0.1)
            self._cluster.partitions()  # the client keeps a leader's old epoch until it asks for the topics again

    def fetch(self, topic: str, partition: int, offsets: Sequence[int]) -> Iterator[Record]:
        if not offsets:
            return
        reader = Reader(self.settings, self.member.group, self._names[topic], partition, offsets[0])
        try:
            for offset in offsets:
                yield record_of(reader.at(offset), topic, self._refused)
        finally:
            reader.close()


def _moving(problem: KafkaError) -> bool:
    return problem.code() in _MOVING
