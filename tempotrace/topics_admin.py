"""Makes, checks and lists the topics of schemas.topics on a real cluster, and publishes the schemas there.

Every function takes librdkafka settings (`Settings.kafka`) and raises BrokerAway, with the reason that the
client saw, when no broker answers.
"""

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Final, NamedTuple

from confluent_kafka import Consumer, IsolationLevel, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, OffsetSpec, ResourceType

from producers import kafka_client
from schemas import codec, topics
from schemas.errors import BrokerAway, MissingTopic, Setup
from schemas.topics import TopicSpec
from tempotrace.clockwork import Clock, WallClock

ANSWER_SECONDS_MAX: Final = 15.0
STARTS, ENDS = OffsetSpec.earliest(), OffsetSpec.latest()

Partition = tuple[str, int]  # topic, number

# What a broker answers about a partition that it has not heard of yet, or whose leader is being chosen.
_SETTLING: Final = {
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.UNKNOWN_LEADER_EPOCH,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
}


class Made(NamedTuple):
    """Names of topics that were made now, and of those that were there already."""

    created: list[str]
    existing: list[str]


class TopicInfo(NamedTuple):
    """One topic with, by partition, the log's start and its end (the next offset to be written)."""

    name: str
    offsets: list[tuple[int, int]]


class Cluster:
    """A connection to a cluster for administration, and the last thing that went wrong on it."""

    def __init__(self, kafka: Mapping[str, str], seconds: float = ANSWER_SECONDS_MAX) -> None:
        self.clock: Clock = WallClock()
        self._seconds = seconds
        self.bootstrap = kafka["bootstrap.servers"]
        self._reason = ""
        self._answered = False
        self.settings = kafka_client.with_log(kafka, self._note)
        self.admin = AdminClient(dict(self.settings))

    def _note(self, error: KafkaError) -> None:
        # "All brokers down" follows the reason and says less.
        if error.code() != KafkaError._ALL_BROKERS_DOWN:
            self._reason = error.str()

    def away(self, error: KafkaException) -> BrokerAway:
        """The error to raise for one of the client's own."""
        return kafka_client.away(self.bootstrap, self._reason or error.args[0].str())

    def partitions(self) -> dict[str, int]:
        """Partition count of each topic that this user may see."""
        try:
            found = kafka_client.topics_of(self.admin, self.bootstrap, self._seconds, not self._answered)
        except KafkaException as error:
            raise self.away(error) from error
        self._answered = True
        return {name: len(topic.partitions) for name, topic in found.items() if topic.error is None}

    def result(self, future: "Future[Any]") -> Any:
        """What an administrative request brought. Raises BrokerAway, or Setup for a refusal."""
        try:
            return future.result()
        except KafkaException as error:
            problem = error.args[0]
            if problem.code() in kafka_client.AWAY:
                raise self.away(error) from error
            raise Setup(f"{self.bootstrap} refused a request: {problem.str()}") from error

    def offsets(
        self, partitions: Iterable[Partition], which: OffsetSpec, stable: bool = False
    ) -> dict[Partition, int]:
        """Start or end of each partition's log; waits for the leader of a partition that has none yet.

        `stable`: the end is before the first open transaction.
        """
        end = self.clock.monotonic() + ANSWER_SECONDS_MAX
        found: dict[Partition, int] = {}
        left = list(partitions)
        while left:
            asked = {TopicPartition(name, index): which for name, index in left}
            left = []
            futures = self.admin.list_offsets(
                asked,
                isolation_level=IsolationLevel.READ_COMMITTED if stable else IsolationLevel.READ_UNCOMMITTED,
                request_timeout=ANSWER_SECONDS_MAX,
            )
            for place, future in futures.items():
                problem = future.exception()
                settling = isinstance(problem, KafkaException) and problem.args[0].code() in _SETTLING
                if settling and self.clock.monotonic() < end:
                    left.append((place.topic, place.partition))
                else:
                    found[place.topic, place.partition] = int(self.result(future).offset)
            if left:
                # The client keeps the leaders' epochs, and asks with old ones until it learns of new ones.
                self.partitions()
        return found


def prepare(kafka: Mapping[str, str], partitions: int | None = None) -> Made:
    """What every new broker gets: the tenants `default` and `fabric`, and the published schemas."""
    made = create(kafka, [topics.DEFAULT_TENANT, topics.FABRIC_TENANT], partitions)
    publish_schemas(kafka)
    return made


def create(kafka: Mapping[str, str], tenants: Sequence[str], partitions: int | None = None) -> Made:
    """Make all topics of these tenants and `tempotrace.schemas`, as far as they are not there.

    partitions: None keeps the count that a tenant's `events` has, or takes the default for a new tenant.
    A topic that is there with another count or other settings raises Setup: neither changes without harm.
    """
    wanted = topics.PARTITIONS if partitions is None else partitions
    for tenant in tenants:
        topics.tenant_topics(tenant, wanted)  # raises for a bad name or count, before anything is done
    cluster = Cluster(kafka)
    found = cluster.partitions()
    specs = [topics.schemas_topic()]
    for tenant in tenants:
        count = partitions or found.get(topics.topic(tenant, "events"), topics.PARTITIONS)
        specs += topics.tenant_topics(tenant, count)
    present = [spec for spec in specs if spec.name in found]
    _check(cluster, present, found)
    missing = [spec for spec in specs if spec.name not in found]
    _make(cluster, missing)
    return Made([spec.name for spec in missing], [spec.name for spec in present])


def _make(cluster: Cluster, specs: Sequence[TopicSpec]) -> None:
    """Create topics and wait until all can be seen, those too that another made meanwhile."""
    if not specs:
        return
    # A replication factor of -1 is the broker's own default, which suits one node as well as many.
    requests = [
        NewTopic(spec.name, num_partitions=spec.partitions, replication_factor=-1, config=spec.settings)
        for spec in specs
    ]
    futures = cluster.admin.create_topics(requests, request_timeout=ANSWER_SECONDS_MAX)
    for name, future in futures.items():
        problem = future.exception()
        if isinstance(problem, KafkaException) and problem.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS:
            continue
        if problem is not None:
            cluster.result(future)
        assert name in {spec.name for spec in specs}
    _await_leaders(cluster, [spec.name for spec in specs])
    _check(cluster, specs, cluster.partitions())


def _await_leaders(cluster: Cluster, names: Iterable[str]) -> None:
    """Wait until these topics can be used: brokers learn of a new one from the controller, a little later."""
    wanted = set(names)
    end = cluster.clock.monotonic() + ANSWER_SECONDS_MAX
    while cluster.clock.monotonic() < end:  # each round is a request and its answer
        found = cluster.partitions()
        if wanted <= found.keys():
            cluster.offsets([(name, index) for name in wanted for index in range(found[name])], ENDS)
            return
    raise Setup(f"{cluster.bootstrap} accepted topics but does not show them: {', '.join(sorted(wanted))}")


def _check(cluster: Cluster, specs: Sequence[TopicSpec], found: Mapping[str, int]) -> None:
    """Whether topics are as they must be. Raises Setup."""
    for spec in specs:
        if found[spec.name] != spec.partitions:
            raise Setup(
                f"topic {spec.name} has {found[spec.name]} partitions, {spec.partitions} are wanted; the "
                "count is fixed at creation: use the one it has, or another tenant"
            )
    resources = [ConfigResource(ResourceType.TOPIC, spec.name) for spec in specs]
    if not resources:
        return
    futures = cluster.admin.describe_configs(resources, request_timeout=ANSWER_SECONDS_MAX)
    have = {resource.name: cluster.result(future) for resource, future in futures.items()}
    for spec in specs:
        for name, value in spec.settings.items():
            actual = have[spec.name][name].value
            if actual != value:
                raise Setup(
                    f"topic {spec.name} has {name}={actual}, {value} is needed: set it with Kafka's tools, "
                    "or use another tenant"
                )


def check_exist(kafka: Mapping[str, str], names: Sequence[str]) -> dict[str, int]:
    """Partition count of each of these topics. Raises MissingTopic naming those that are not there."""
    found = Cluster(kafka).partitions()
    missing = [name for name in names if name not in found]
    if missing:
        tenant = missing[0].split(".")[1]
        raise MissingTopic(
            f"no topic {', '.join(missing)} at {kafka['bootstrap.servers']}: "
            f"`tempotrace topics create --tenant {tenant}`"
        )
    return {name: found[name] for name in names}


def listing(kafka: Mapping[str, str], tenant: str | None = None) -> list[TopicInfo]:
    """Our topics (of one tenant), by name, with their offsets."""
    prefix = f"{topics.PREFIX}.{topics.check_tenant(tenant)}." if tenant else f"{topics.PREFIX}."
    cluster = Cluster(kafka)
    found = {name: count for name, count in sorted(cluster.partitions().items()) if name.startswith(prefix)}
    partitions = [(name, index) for name, count in found.items() for index in range(count)]
    starts, ends = cluster.offsets(partitions, STARTS), cluster.offsets(partitions, ENDS)
    return [
        TopicInfo(name, [(starts[name, index], ends[name, index]) for index in range(count)])
        for name, count in found.items()
    ]


def publish_schemas(kafka: Mapping[str, str]) -> int:
    """Write those shipped schemas to `tempotrace.schemas` that it does not hold yet; how many those were.

    A record's key is the schema's fingerprint, 8 bytes as in the frame of each message (after the marker
    C3 01); its value is the .avsc text.
    """
    held = published_schemas(kafka)
    new = {
        fingerprint.to_bytes(8, "little"): text.encode()
        for fingerprint, text in codec.shipped()
        if held.get(fingerprint.to_bytes(8, "little")) != text.encode()
    }
    if not new:
        return 0
    cluster = Cluster(kafka)
    producer = Producer({**cluster.settings, "enable.idempotence": True, "partitioner": topics.PARTITIONER})
    failures: list[str] = []

    def delivered(error: KafkaError | None, _: Any) -> None:
        if error is not None:
            failures.append(error.str())

    for key, value in new.items():
        producer.produce(topics.SCHEMAS, value, key, on_delivery=delivered)
    left = producer.flush(ANSWER_SECONDS_MAX)
    if left or failures:
        raise BrokerAway(f"{cluster.bootstrap} did not take the schemas ({failures[:1] or 'no answer'})")
    return len(new)


def published_schemas(kafka: Mapping[str, str]) -> dict[bytes, bytes]:
    """What `tempotrace.schemas` holds: .avsc text by fingerprint."""
    cluster = Cluster(kafka)
    check_exist(kafka, [topics.SCHEMAS])
    consumer = Consumer(
        {
            **cluster.settings,
            "group.id": "tempotrace.schemas",  # never joined: the partition is assigned
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
        }
    )
    held: dict[bytes, bytes] = {}
    try:
        consumer.assign([TopicPartition(topics.SCHEMAS, 0, 0)])
        while True:
            message = consumer.poll(ANSWER_SECONDS_MAX)
            if message is None:
                raise BrokerAway(f"{cluster.bootstrap} does not deliver {topics.SCHEMAS}")
            error = message.error()
            if error is not None and error.code() == KafkaError._PARTITION_EOF:
                return held
            if error is not None:
                raise BrokerAway(f"{cluster.bootstrap} does not deliver {topics.SCHEMAS}: {error.str()}")
            held[message.key() or b""] = message.value() or b""
    finally:
        consumer.close()
