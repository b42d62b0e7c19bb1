"""The outlet of a stage that writes to Kafka: outputs, state and offsets in one transaction.

A commit and what a crash at each step costs:

    1. begin                      nothing was sent: the work is done again
    2. produce outputs and state  invisible to read_committed; the broker aborts it when we come back under
                                  the same id, or after transaction.timeout.ms; the work is done again
    3. flush                      the same: all is on the broker now, and the state's offset is known
    4. offsets to the transaction the same; the offsets' metadata say where the state is
    5. commit                     before the coordinator has decided: as above. After: everything is visible,
                                  and a restart goes on from exactly here
    6. the caller's own account   lost: counters begin anew

State is cut into chunks under the keys stage/partition/chunk of the topic `state`. The metadata of each
committed offset hold the first chunk's offset, the number of chunks and a checksum, so that a restart reads
just these. Offsets that the group has lost (they expire, and go with a topic that is deleted) are replaced by
the state itself, which holds them: it is searched for only then.

commit() runs in a thread of its own while the caller computes on. Only commit() produces, so nothing can be
produced while a commit is under way: librdkafka would accept it without a word, and it would be in neither.
"""

import hashlib
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, Message, Producer, TopicPartition

from schemas import topics
from schemas.errors import BrokerAway, LostInput
from schemas.processor import PartitionWork, Resume
from tempotrace.clockwork import Clock
from tempotrace.runtime.failures import Aborted, failure
from tempotrace.runtime.kafka_log import KafkaLog
from tempotrace.runtime.reading import Reader
from tempotrace.runtime.transactional import ATTEMPT_SECONDS, TRANSACTION_TIMEOUT_MS, Transactional

log = logging.getLogger(__name__)

CHUNK_BYTES_MAX: Final = 512 * 1024
HEADER_CHUNKS: Final = "tt-chunks"
METADATA_BYTES_MAX: Final = 4096  # the broker's offset.metadata.max.bytes
# A predecessor of another instance may leave a transaction open for its time-out, and the broker looks for
# such transactions once a second (ten seconds by default elsewhere).
COMMITTED_SECONDS_MAX: Final = 60.0
_UNDECIDED: Final = {
    KafkaError._TIMED_OUT,
    KafkaError.UNSTABLE_OFFSET_COMMIT,
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
}


class TransactionOutlet:
    """Kafka transactions under the member's name. One commit at a time; resume() only between commits."""

    def __init__(
        self, kafka_log: KafkaLog, inputs: Sequence[str], joins: bool, clock: Clock, compression: str = "none"
    ) -> None:
        assert joins or len(inputs) == 1, "state is kept by partition: one input, or inputs that are joined"
        self._log = kafka_log
        self._member = kafka_log.member
        self._inputs = tuple(inputs)
        self._clock = clock
        self._names = {suffix: topics.topic(self._member.tenant, suffix) for suffix in topics.SUFFIXES}
        settings = {
            **kafka_log.settings,
            "transactional.id": self._member.name,
            "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
            "acks": "all",
            "enable.idempotence": True,
            "partitioner": topics.PARTITIONER,
            "compression.type": compression,
            "linger.ms": 5,
            "message.max.bytes": topics.MESSAGE_BYTES_MAX,
            "queue.buffering.max.kbytes": 256 * 1024,
        }
        self._transaction = Transactional(
            self._member.name, lambda: Producer(settings), kafka_log.is_member, clock
        )

    # Where to go on.

    def resume(self, topic: str, partition: int) -> Resume:
        """Next offset of each input and the state kept with it. Raises LostInput, BrokerAway."""
        self._transaction.settled()
        found = self._committed(partition)
        if not found:
            return Resume({}, self._search(partition))
        next_offset = {each: offset for each, (offset, _) in found.items()}
        # An input that was not read since keeps older metadata; this partition's state is the latest one.
        kept = [json.loads(metadata) for _, metadata in found.values() if metadata]
        if not kept:
            raise LostInput(
                f"the offsets of the group {self._member.group} in partition {partition} name no state: they were "
                "set by another program; delete the group to go on from the latest state in the log"
            )
        where = max(kept, key=lambda one: one["state"])
        return Resume(next_offset, self._state(partition, where))

    def _committed(self, partition: int) -> dict[str, tuple[int, str]]:
        """Committed offset and metadata by input; inputs without are left out."""
        wanted = [TopicPartition(self._names[topic], partition) for topic in self._inputs]
        begin = self._clock.monotonic()
        while True:
            try:
                found = self._log.consumer.committed(wanted, ATTEMPT_SECONDS)
                problem = next((each.error for each in found if each.error is not None), None)
            except KafkaException as error:
                problem = error.args[0]
            if problem is None:
                break
            waited = self._clock.monotonic() - begin
            if problem.code() not in _UNDECIDED:
                raise failure(problem, f"asking where {self._member.group} stands")
            if waited > COMMITTED_SECONDS_MAX:
                raise BrokerAway(
                    f"where {self._member.group} stands is still undecided after {waited:.0f} s ({problem.str()}): "
                    "a transaction stays open. If no instance of this stage runs, it hangs in the broker: find and "
                    "abort it with Kafka's kafka-transactions.sh (find-hanging, abort)"
                )
            log.info("a predecessor's transaction is still open: waiting for its end (%.0f s)", waited)
        return {
            topics.suffix_of(each.topic, self._member.tenant): (each.offset, each.metadata or "")
            for each in found
            if each.offset >= 0
        }

    def _state(self, partition: int, where: Mapping[str, Any]) -> bytes:
        """The state that a commit's metadata name: chunks in order, with those of other stages in between."""
        name = self._names["state"]
        reader = Reader(self._log.settings, self._member.group, name, partition, where["state"])
        chunks: list[bytes] = []
        try:
            while len(chunks) < where["chunks"]:
                message = reader.next()
                if message is None:
                    raise LostInput(
                        f"{name}/{partition} no longer holds the state kept at offset {where['state']}; "
                        f"delete the group {self._member.group} to go on from the latest state in the log"
                    )
                if message.key() == self._state_key(partition, len(chunks)):
                    chunks.append(_bytes(message.value()))
        finally:
            reader.close()
        state = b"".join(chunks)
        if _checksum(state) != where["sum"]:
            raise LostInput(
                f"the state at {name}/{partition} offset {where['state']} is not what was committed"
            )
        return state

    def _search(self, partition: int) -> bytes | None:
        """The latest state in the log, for a group without offsets; None at the very first start."""
        name = self._names["state"]
        start, end = self._log.range_of(name, partition)
        if start == end:
            return None
        reader = Reader(self._log.settings, self._member.group, name, partition, start)
        chunks: list[bytes] = []
        due = 0
        try:
            for message in reader.until(end):
                if message.key() == self._state_key(partition, 0):
                    chunks, due = [], _chunks(message)
                if len(chunks) < due and message.key() == self._state_key(partition, len(chunks)):
                    chunks.append(_bytes(message.value()))
        finally:
            reader.close()
        if len(chunks) < due:
            raise LostInput(f"{name}/{partition} holds only {len(chunks)} of {due} chunks of a state")
        return b"".join(chunks) if due else None

    def _state_key(self, partition: int, chunk: int) -> bytes:
        return f"{self._member.stage}/{partition}/{chunk}".encode()

    # Committing.

    def commit(self, work: Sequence[PartitionWork]) -> None:
        """All of this work or none. Raises Aborted (do it again), Fenced, BrokerAway."""
        transaction = self._transaction
        transaction.begin()  # 1
        try:
            states = [self._produce(each) for each in work]  # 2
            transaction.flush()  # 3
            offsets = [
                TopicPartition(self._names[topic], each.partition, offset, metadata)
                for each, state in zip(work, states, strict=True)
                for metadata in [state()]
                for topic, offset in each.next_offset.items()
            ]
            transaction.commit(offsets, self._log.generation)  # 4, 5
        except Aborted:
            transaction.abort()
            raise

    def abort(self) -> None:
        """Take back what the open transaction holds; nothing to do where none is open."""
        self._transaction.abort()

    def _produce(self, work: PartitionWork) -> Callable[[], str]:
        """Send outputs and state; gives the metadata of the commit once all is acknowledged."""
        for output in work.outputs:
            name = self._names[output.topic]
            self._transaction.send(name, work.partition, output.key, output.value, output.headers)
        state = work.snapshot
        count = max(1, -(-len(state) // CHUNK_BYTES_MAX))
        first: list[int] = []

        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is None:
                first.append(message.offset() or 0)

        for chunk in range(count):
            part = state[chunk * CHUNK_BYTES_MAX : (chunk + 1) * CHUNK_BYTES_MAX]
            key = self._state_key(work.partition, chunk)
            headers = [(HEADER_CHUNKS, str(count).encode())]
            self._transaction.send(
                self._names["state"], work.partition, key, part, headers, delivered if chunk == 0 else None
            )

        def metadata() -> str:
            if not first:
                raise Aborted("the state was not acknowledged")
            text = json.dumps({"state": first[0], "chunks": count, "sum": _checksum(state)})
            assert len(text) <= METADATA_BYTES_MAX
            return text

        return metadata


def _checksum(state: bytes) -> str:
    return hashlib.blake2b(state, digest_size=8).hexdigest()


def _chunks(message: Message) -> int:
    """How many chunks the state has that this message begins."""
    headers: Any = dict(message.headers() or [])
    return int(headers[HEADER_CHUNKS])


def _bytes(value: str | bytes | None) -> bytes:
    return value.encode() if isinstance(value, str) else value or b""
