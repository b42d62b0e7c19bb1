"""What all our clients of Kafka share: how librdkafka's own log comes into ours, and the wait for a broker."""

import logging
import re
import socket
from collections.abc import Callable, Mapping
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from schemas.errors import BrokerAway

log = logging.getLogger(__name__)

TELL_SECONDS: Final = 1.0  # a wait that takes longer is told of
REFUSED_SECONDS: Final = 2.0  # enough for a broker that is just being started again
KNOCK_SECONDS: Final = 1.0
# What the client says where no broker answers: the last one is "no leader found".
AWAY: Final = {KafkaError._TIMED_OUT, KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._NOENT}


class ClientLog:
    """Takes librdkafka's log lines. What matters of them comes as an error too, so they are for debugging."""

    def log(self, _level: int, form: str, *parts: object) -> None:
        """One line: facility, client, text with the thread before it."""
        log.debug("kafka client: %s", re.sub(r"\[thrd:[^\]]*\]: ", "", form % parts))


def with_log(kafka: Mapping[str, Any], noted: Callable[[KafkaError], None]) -> dict[str, Any]:
    """Settings of a client that prints nothing: errors go to `noted`, lines of its log to ours."""
    return {**kafka, "error_cb": noted, "log_level": 0, "logger": ClientLog()}


def topics_of(
    client: Producer | AdminClient, bootstrap: str, seconds: float, first: bool = True
) -> dict[str, Any]:
    """Metadata of all topics by name. Raises KafkaException if no broker answers within `seconds`.

    `first`: nothing was heard of the brokers before. Then a wait is told of, and it is short where every
    address refuses the connection; later they are waited for, since they may be starting again.
    """
    patience = [min(TELL_SECONDS, seconds), min(REFUSED_SECONDS, seconds) - min(TELL_SECONDS, seconds)]
    patience = [each for each in (*patience, seconds - sum(patience)) if each > 0] if first else [seconds]
    for turn, wait in enumerate(patience):
        try:
            return dict(client.list_topics(timeout=wait).topics)
        except KafkaException as error:
            last = turn + 1 == len(patience)
            if last or error.args[0].code() not in AWAY or (turn and refuses(bootstrap)):
                client.poll(0)  # lets the error callback name the cause
                raise
        if not turn:
            log.info("waiting for a broker at %s", bootstrap)
    raise AssertionError("a list of turns is never empty")


def away(bootstrap: str, reason: str) -> BrokerAway:
    """The error to raise where no broker answers."""
    if any(_knock(server) for server in bootstrap.split(",")):
        todo = (
            "something listens there that does not speak Kafka, wants TLS or a login (--kafka-properties), "
            "or does not do its work"
        )
    else:
        todo = "`tempotrace broker start`, or name one with --bootstrap-servers"
    cause = re.sub(r" \(after \d+ms in state \w+\)", "", reason)
    return BrokerAway(f"no broker answers at {bootstrap} ({cause}): {todo}")


def refuses(bootstrap: str) -> bool:
    """Whether no address (host:port, with commas between) takes a connection, and all say so at once."""
    return all(_knock(server) is False for server in bootstrap.split(","))


def _knock(server: str) -> bool | None:
    """Whether something listens; None if nobody says."""
    host, _, port = server.strip().rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), KNOCK_SECONDS).close()
    except (ConnectionRefusedError, socket.gaierror):
        return False
    except (OSError, ValueError):
        return None
    return True
