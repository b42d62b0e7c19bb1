"""Where a run happens: a broker of its own or one that exists, with fresh tenants, and nothing left of it."""

import tempfile
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from loadtest.machine import cpu_seconds_of
from loadtest.measure import Stopwatch
from schemas import topics
from schemas.errors import Setup
from tempotrace import broker, topics_admin
from tempotrace.clockwork import random_bytes
from tempotrace.runtime.kafka_log import Member

PARTITIONS: Final = 1  # one worker's rate is what is measured
SESSION_SECONDS_MAX: Final = 30.0
LOOK_SECONDS: Final = 0.2
TO_THE_END: Final = -1  # librdkafka's sign for the end of a partition
_GONE: Final = {KafkaError.GROUP_ID_NOT_FOUND, KafkaError.UNKNOWN_TOPIC_OR_PART}


class Ground:
    """Tenants of one run on a cluster, and a folder for what it writes."""

    def __init__(self, kafka: Mapping[str, str], folder: Path, broker_pids: tuple[int, ...]) -> None:
        self.kafka = kafka
        self.folder = folder
        self._pids = broker_pids
        self._never = threading.Event()
        self._run = random_bytes(4).hex()
        self._cluster = topics_admin.Cluster(kafka)
        self._topics: list[str] = []
        self.groups: list[str] = []  # consumer groups that the run made

    def stopwatch(self) -> Stopwatch:
        """A stopwatch that knows the broker's processes, if they are ours."""
        return Stopwatch(self._broker_cpu)

    def _broker_cpu(self) -> float | None:
        used = [seconds for pid in self._pids if (seconds := cpu_seconds_of(pid)) is not None]
        return sum(used) if used else None

    def tenant(self, purpose: str) -> str:
        """Make a tenant with one partition; its name."""
        name = f"bench-{self._run}-{purpose}"
        self._topics += [spec.name for spec in topics.tenant_topics(name, PARTITIONS)]
        made = topics_admin.create(self.kafka, [name], PARTITIONS)
        if topics.SCHEMAS in made.created:
            self._topics.append(topics.SCHEMAS)
        return name

    def member(self, tenant: str, stage: str) -> Member:
        """A member of a group that has read nothing yet, so that it begins at the log's start."""
        member = Member(tenant, f"{stage}-{len(self.groups)}", 0)
        self.groups.append(member.group)
        return member

    def empty(self, tenant: str, suffix: str) -> None:
        """Delete the records of a topic."""
        places = [TopicPartition(topics.topic(tenant, suffix), 0, TO_THE_END)]
        self._wait(self._cluster.admin.delete_records(places))

    def remove(self) -> None:
        """Delete all topics and groups of the run. Raises BrokerAway or Setup where the cluster refuses."""
        if self._topics:
            self._wait(self._cluster.admin.delete_topics(self._topics))
        left = self._delete_groups(self.groups)
        end = self._cluster.clock.monotonic() + SESSION_SECONDS_MAX
        while left and self._cluster.clock.monotonic() < end:
            self._cluster.clock.wait(self._never, LOOK_SECONDS)
            left = self._delete_groups(left)
        if left:
            raise Setup(f"groups still have members and were not deleted: {', '.join(left)}")

    def _delete_groups(self, groups: list[str]) -> list[str]:
        """Delete groups; gives those that still have a member: a static one goes when its session ends."""
        if not groups:
            return []
        futures = self._cluster.admin.delete_consumer_groups(groups)
        left = [group for group, future in futures.items() if _code(future) == KafkaError.NON_EMPTY_GROUP]
        self._wait({group: future for group, future in futures.items() if group not in left})
        return left

    def _wait(self, futures: "Mapping[Any, Future[Any]]") -> None:
        for future in futures.values():
            if _code(future) not in _GONE:
                self._cluster.result(future)


def _code(future: "Future[Any]") -> int | None:
    """Kafka's code for what went wrong, None where nothing did."""
    problem = future.exception()
    return int(problem.args[0].code()) if isinstance(problem, KafkaException) else None


@contextmanager
def own_broker() -> Iterator[Ground]:
    """A broker in a temporary folder on a free port, stopped and deleted at the end. Raises Setup."""
    with tempfile.TemporaryDirectory(prefix="tempotrace-bench-") as name:
        folder = Path(name)
        data = folder / "broker"
        started = broker.start(data, port=0)
        try:
            pids = tuple(pid for pid in started.pids if pid is not None)
            yield Ground({"bootstrap.servers": started.bootstrap}, folder, pids)
        finally:
            broker.stop(data)


@contextmanager
def existing_broker(kafka: Mapping[str, str]) -> Iterator[Ground]:
    """Tenants on a cluster that exists, deleted at the end."""
    with tempfile.TemporaryDirectory(prefix="tempotrace-bench-") as name:
        ground = Ground(kafka, Path(name), ())
        try:
            yield ground
        finally:
            ground.remove()
