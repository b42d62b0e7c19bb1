"""A real Apache Kafka: started, stopped, killed, refused. Ports are free ones, folders the test's own."""

import os
import signal
import socket
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from schemas.errors import Setup
from tempotrace import broker, settings, topics_admin
from tempotrace.cli import run
from tests.conftest import Kafka

pytestmark = pytest.mark.timeout(120)


def produce(bootstrap: str, topic: str, values: list[bytes], **more: Any) -> Producer:
    producer = Producer({"bootstrap.servers": bootstrap, **more})
    if "transactional.id" in more:
        producer.init_transactions(30)
        producer.begin_transaction()
    for value in values:
        producer.produce(topic, value, partition=0)
    assert producer.flush(30) == 0
    return producer


def consume(bootstrap: str, topic: str) -> list[bytes]:
    """What partition 0 holds for a reader of committed data, to its end."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "test",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    values = []
    while (message := consumer.poll(30)) is not None and message.error() is None:
        values.append(message.value() or b"")
    assert message is not None
    consumer.close()
    return values


def test_data_survive_a_stop_and_a_kill_beside_another_broker(
    tmp_path: Path, kafka: Kafka, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "own"
    first = broker.start(data, port=0, home=home)
    try:
        assert first.bootstrap != kafka.bootstrap_servers
        assert settings.load().bootstrap == first.bootstrap
        made = topics_admin.prepare({"bootstrap.servers": first.bootstrap})
        assert len(made.created) == 21
        topic = "tempotrace.fabric.events"
        produce(first.bootstrap, topic, [b"a", b"b"])
        with pytest.raises(Setup, match=f"runs on {data} already .*pid {first.pids[0]}"):
            broker.start(data)

        assert run(["broker", "stop"]) == 0
        assert "stopped 1 node" in capsys.readouterr().out
        assert broker.status(data).pids == (None,)
        assert settings.started_broker(home) is None

        second = broker.start(data)
        assert second.bootstrap == first.bootstrap
        assert consume(second.bootstrap, topic) == [b"a", b"b"]
        produce(second.bootstrap, topic, [b"c"])
        assert second.pids[0] is not None
        os.kill(second.pids[0], signal.SIGKILL)
        os.waitpid(second.pids[0], 0)
        assert broker.status(data).running is False

        third = broker.start(data)
        assert consume(third.bootstrap, topic) == [b"a", b"b", b"c"]
        assert topics_admin.prepare({"bootstrap.servers": third.bootstrap}).created == []
        assert topic not in {info.name for info in topics_admin.listing(kafka.settings)}
    finally:
        broker.stop(data)


def test_a_taken_port_is_one_clear_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        port = server.getsockname()[1]
        assert run(["broker", "start", "--port", str(port), "--data", str(tmp_path / "kafka")]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == (
        f"tempotrace: port {port} on 127.0.0.1 is taken: stop what uses it, or choose another with --port\n"
    )
    assert broker.status(tmp_path / "kafka").pids == ()


def test_a_half_written_folder_is_one_clear_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "kafka" / "node-1" / "data").mkdir(parents=True)
    assert run(["broker", "start", "--port", "0", "--data", str(tmp_path / "kafka"), "--json"]) == 1
    captured = capsys.readouterr()
    assert captured.err.count("\n") == 1
    assert "half-written" in captured.err
    assert captured.out.startswith('{"error": ')


def test_a_missing_java_is_one_clear_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nowhere"))
    assert run(["broker", "start", "--data", str(tmp_path / "kafka")]) == 1
    assert capsys.readouterr().err == (
        f"tempotrace: JAVA_HOME={tmp_path}/nowhere holds no bin/java: "
        "correct or unset it (Java 17 or newer)\n"
    )
    assert not (tmp_path / "kafka").exists()


def test_kafkas_own_refusal_is_told_and_nothing_is_left_running(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = tmp_path / "kafka"
    monkeypatch.setattr("tempotrace.broker.config.HEAP", "1k")
    with pytest.raises(Setup, match=r"could not format .*[Hh]eap"):
        broker.start(data, port=0)
    with pytest.raises(Setup, match="half-written"):
        broker.status(data)


def test_three_brokers_take_a_transaction_and_outlive_one_of_them(tmp_path: Path) -> None:
    data = tmp_path / "three"
    started = broker.start(data, port=0, brokers=3)
    try:
        assert len(set(started.bootstrap.split(","))) == 3
        topics_admin.create({"bootstrap.servers": started.bootstrap}, ["blue"], partitions=1)
        topic = "tempotrace.blue.events"
        committed = produce(started.bootstrap, topic, [b"kept"], **{"transactional.id": "t"})
        committed.commit_transaction(30)
        committed.begin_transaction()
        committed.produce(topic, b"aborted", partition=0)
        assert committed.flush(30) == 0
        committed.abort_transaction(30)
        assert consume(started.bootstrap, topic) == [b"kept"]

        assert started.pids[0] is not None
        os.kill(started.pids[0], signal.SIGKILL)
        os.waitpid(started.pids[0], 0)
        assert consume(started.bootstrap, topic) == [b"kept"]
        with pytest.raises(Setup, match="only 2 of 3 nodes run"):
            broker.start(data)
        broker.stop(data)
        with pytest.raises(Setup, match="holds 3 broker"):
            broker.start(data, brokers=1)
    finally:
        broker.stop(data)
    assert broker.status(data).pids == (None, None, None)
