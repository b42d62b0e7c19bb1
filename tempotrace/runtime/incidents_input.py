"""The topic that the incidents service reads, as the cluster's administration sees it."""

from collections.abc import Mapping
from typing import Final

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from schemas import topics
from schemas.errors import LostInput
from tempotrace.runtime.appender import Appender
from tempotrace.runtime.failures import failure
from tempotrace.runtime.restore import Loss
from tempotrace.topics_admin import ANSWER_SECONDS_MAX, ENDS, STARTS, Cluster, check_exist

# What a broker answers about a group whose coordinator it is only just becoming.
_SETTLING: Final = {
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
}


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
        wanted = [TopicPartition(*place) for place in self._places]
        consumer = Consumer({**self._cluster.settings, "group.id": topics.incidents_app(self._tenant)})
        end = self._cluster.clock.monotonic() + ANSWER_SECONDS_MAX
        try:
            while True:  # each round is a request and its answer
                try:
                    found = consumer.committed(wanted, ANSWER_SECONDS_MAX)
                    return {(each.topic, each.partition): each.offset for each in found if each.offset >= 0}
                except KafkaException as error:
                    problem = error.args[0]
                    if problem.code() not in _SETTLING or self._cluster.clock.monotonic() > end:
                        raise failure(problem, "asking where the incidents service stands") from error
        finally:
            consumer.close()
