"""The topic that the incidents service reads, as the cluster's administration sees it."""

from collections.abc import Mapping
from typing import Final

from confluent_kafka import Consumer, KafkaException, TopicPartition

from schemas import topics
from schemas.errors import LostInput
from tempotrace.runtime.appender import Appender
from tempotrace.runtime.failures import failure
from tempotrace.runtime.restore import Loss
from tempotrace.topics_admin import ANSWER_SECONDS_MAX, ENDS, STARTS, Cluster, check_exist

ASKS_MAX: Final = 150
ASK_AGAIN_SECONDS: Final = 0.1


class Input:
    """`findings` of a tenant. Raises MissingTopic where a topic that the service needs is not there."""

    def __init__(self, kafka: Mapping[str, str], tenant: str) -> None:
        self._tenant = tenant
        self._name = topics.topic(tenant, "findings")
        others = [topics.topic(tenant, suffix) for suffix in ("incidents", "deadletter")]
        found = check_exist(kafka, [self._name, *others, topics.incidents_changelog(tenant)])
        self._places = [(self._name, partition) for partition in range(found[self._name])]
        self._cluster = Cluster(kafka)

    def ends(self, stable: bool = False) -> dict[int, int]:
        """By partition the offset after the last record; `stable`: before the first open transaction.

        A transaction is decided before its markers are written: who must see all that another has committed
        goes by the whole log's end.
        """
        found = self._cluster.offsets(self._places, ENDS, stable)
        return {partition: offset for (_, partition), offset in found.items()}

    def check(self, accept_loss: bool) -> None:
        """Make sure that the log holds what comes next: Faust would go on without a word where it does not.

        Raises LostInput unless the loss is accepted; then it is written to `deadletter`.
        """
        losses = list(self._losses())
        if not losses:
            return
        if not accept_loss:
            raise LostInput(f"{losses[0]}; go on without it by --accept-loss")
        appender = Appender(self._cluster.settings, self._tenant, topics.incidents_app(self._tenant))
        for loss in losses:
            appender.loss("incidents", loss)

    def _losses(self) -> list[Loss]:
        starts = self._cluster.offsets(self._places, STARTS)
        ends = self._cluster.offsets(self._places, ENDS)
        out = []
        for place, due in self._committed().items():
            partition = place[1]
            if due > ends[place]:
                why = f"the log ends at {ends[place]}, before offset {due} where this stage has to go on"
                out.append(Loss("findings", partition, ends[place], due - 1, why))
            elif due < starts[place]:
                why = f"offsets {due} to {starts[place] - 1} are gone, the log begins at {starts[place]}"
                out.append(Loss("findings", partition, due, starts[place] - 1, why))
        return out

    def _committed(self) -> dict[tuple[str, int], int]:
        """Offsets that the service has committed; partitions without are left out."""
        # A consumer, since it waits for a group's coordinator that is still loading; it never joins the group.
        consumer = Consumer({**self._cluster.settings, "group.id": topics.incidents_app(self._tenant)})
        try:
            found = self._ask(consumer)
        finally:
            consumer.close()
        return {(each.topic, each.partition): each.offset for each in found if each.offset >= 0}

    def _ask(self, consumer: Consumer) -> list[TopicPartition]:
        """The group's offsets. A broker that has just started may say for a while that others coordinate."""
        wanted = [TopicPartition(*place) for place in self._places]
        for _ in range(ASKS_MAX):
            try:
                found: list[TopicPartition] = consumer.committed(wanted, ANSWER_SECONDS_MAX)
                return found
            except KafkaException as error:
                problem = error.args[0]
                if not problem.retriable():
                    raise failure(problem, "asking where the incidents service stands") from error
                last = error
            consumer.poll(ASK_AGAIN_SECONDS)
        raise failure(last.args[0], "asking where the incidents service stands") from last
