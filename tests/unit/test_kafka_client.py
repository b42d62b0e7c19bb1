"""The wait for a broker: short where nothing listens, told of, and with a reason; librdkafka's log in ours."""

import logging
import socket
import threading
from collections.abc import Iterator

import pytest
from confluent_kafka import KafkaError, Producer

from producers import kafka_client
from producers.transport import KafkaTransport
from schemas.errors import BrokerAway
from tempotrace.broker.process import free_ports
from tempotrace.clockwork import WallClock
from tempotrace.topics_admin import Cluster


@pytest.fixture
def foreign() -> Iterator[str]:
    """A server of another protocol: it answers, but not as Kafka does."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            while True:
                try:
                    taken, _ = server.accept()
                except OSError:
                    return
                with taken:
                    if taken.recv(100):
                        taken.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        threading.Thread(target=serve, daemon=True).start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        server.shutdown(socket.SHUT_RDWR)


def refusing(count: int) -> str:
    return ",".join(f"127.0.0.1:{port}" for port in free_ports(count))


@pytest.mark.parametrize("servers", [1, 3])
def test_where_all_refuse_nobody_waits_for_long(servers: int, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    bootstrap, clock = refusing(servers), WallClock()
    for ask in (
        lambda: Cluster({"bootstrap.servers": bootstrap}).partitions(),
        lambda: KafkaTransport({"bootstrap.servers": bootstrap}).check("t"),
    ):
        caplog.clear()
        begin = clock.monotonic()
        with pytest.raises(BrokerAway, match=r"no broker answers at .*refused\).*broker start"):
            ask()
        assert clock.monotonic() - begin < 4
        assert caplog.messages == [f"waiting for a broker at {bootstrap}"]


def test_what_listens_is_waited_for_and_named(foreign: str) -> None:
    bootstrap = f"{refusing(1)},{foreign}"
    assert not kafka_client.refuses(bootstrap)
    clock = WallClock()
    begin = clock.monotonic()
    with pytest.raises(BrokerAway, match=r"does not speak Kafka, wants TLS"):
        Cluster({"bootstrap.servers": bootstrap}, seconds=3.5).partitions()
    assert 3 < clock.monotonic() - begin < 6


def test_a_name_that_is_unknown_counts_as_refused() -> None:
    assert kafka_client.refuses("nobody.invalid:9092,127.0.0.1:1")


def test_brokers_that_answered_once_are_waited_for(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    transport = KafkaTransport({"bootstrap.servers": refusing(1)}, patience_s=3.0)
    with pytest.raises(BrokerAway):
        transport.check("t")
    clock = WallClock()
    begin = clock.monotonic()
    with pytest.raises(BrokerAway):
        transport.check("t")
    assert clock.monotonic() - begin > 2.5
    assert len(caplog.messages) == 1


def test_the_clients_log_comes_through_ours(
    caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)
    errors: list[KafkaError] = []
    settings = kafka_client.with_log({"bootstrap.servers": refusing(1)}, errors.append)
    assert settings["log_level"] == 0
    client = Producer({**settings, "log_level": 6})
    while not errors or not caplog.messages:
        client.poll(1.0)
    assert caplog.messages[0].startswith("kafka client: FAIL [rdkafka#producer-")
    assert "[thrd" not in caplog.messages[0]
    assert {record.levelname for record in caplog.records} == {"DEBUG"}
    assert capfd.readouterr().err == ""
