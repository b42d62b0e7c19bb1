"""librdkafka's errors as ours."""

from typing import Final

from confluent_kafka import KafkaError

from schemas.errors import BrokerAway, Fenced, LostInput, MissingTopic, TempoError

FENCED: Final = {
    KafkaError._FENCED,
    KafkaError._FATAL,
    KafkaError.PRODUCER_FENCED,
    KafkaError.INVALID_PRODUCER_EPOCH,
    KafkaError.FENCED_INSTANCE_ID,
}
_NO_TOPIC: Final = {
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError._UNKNOWN_TOPIC,
    KafkaError._UNKNOWN_PARTITION,
}
_LOST: Final = {KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE}


class Aborted(Exception):
    """A commit failed in a way that lets us try again: nothing of it is visible, all is to be done again."""


def failure(error: KafkaError, doing: str) -> TempoError:
    """The typed error for one of the client's, with what we were doing."""
    code = error.code()
    if code in FENCED:
        return Fenced(
            f"{doing}: another process with the same --instance took over ({error.str()}); "
            "start again, with another --instance if both are wanted"
        )
    if code in _NO_TOPIC:
        return MissingTopic(f"{doing}: {error.str()}; `tempotrace topics create` makes a tenant's topics")
    if code in _LOST:
        return LostInput(
            f"{doing}: the log no longer holds what comes next ({error.str()}); see --accept-loss"
        )
    return BrokerAway(f"{doing}: {error.str()} ({error.name()})")


def has_fenced(error: KafkaError) -> bool:
    """Whether the client has been fenced off for good."""
    return error.code() in FENCED
