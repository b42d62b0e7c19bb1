"""A real Apache Kafka: started, stopped, killed, refused. Ports are free ones, folders the test's own."""

import json
import os
import signal
import socket
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from schemas.errors import Setup, Usage
from tempotrace import broker, settings, topics_admin
from tempotrace.cli import run
from tempotrace.demo.run import with_broker
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
        with pytest.raises(Setup, match=rf"runs on {data} already .*pid {first.pids[0]}\)$"):
            broker.start(data)
        port = settings.check_bootstrap(first.bootstrap).rpartition(":")[2]
        with pytest.raises(Setup, match=f", at port {port}, not 1: stop it before it can move"):
            broker.start(data, port=1)

        assert run(["broker", "stop"]) == 0
        assert "stopped 1 node" in capsys.readouterr().out
        assert broker.status(data).pids == (None,)
        assert settings.started_broker(home) is None

        # Without options the broker that ran last is meant, with its data and at its port.
        assert run(["broker", "status"]) == 0
        assert capsys.readouterr().out == f"no broker runs on {data}\n"
        assert run(["broker", "start", "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["data"] == str(data)
        second = broker.status(data)
        assert settings.started_broker(home) == second.bootstrap == first.bootstrap
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


def test_a_last_data_folder_that_is_gone_is_not_replaced_unasked(
    tmp_path: Path, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    gone = tmp_path / "gone"
    settings.Pointer("127.0.0.1:9192", gone, stopped=True).write(home)
    for _ in range(2):  # there is no folder, then one without data, as of a disk that is not mounted
        assert run(["broker", "start"]) == 1
        assert capsys.readouterr().err == (
            f"tempotrace: the broker that ran last had its data in {gone}, where there are none now: bring "
            f"them back, or name a folder for a new one, such as --data {home}/broker\n"
        )
        gone.mkdir(exist_ok=True)
    assert not (home / "broker").exists()
    assert broker.default_folder(home) == gone


def test_a_home_whose_first_broker_was_removed_starts_anew(home: Path) -> None:
    settings.Pointer("127.0.0.1:9092", home / "broker", stopped=True).write(home)
    assert broker.folder_to_start(home) == home / "broker"


def test_a_note_of_the_last_broker_that_cannot_be_read_starts_no_other(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    home.mkdir()
    settings.pointer_file(home).write_text("{")
    assert run(["broker", "start"]) == 2
    assert f"{home}/broker.json names no broker" in capsys.readouterr().err
    assert not (home / "broker").exists()


def test_the_demo_starts_the_broker_that_ran_last_where_it_was(tmp_path: Path, home: Path) -> None:
    data = tmp_path / "own"
    first = broker.start(data, port=0, home=home)
    try:
        broker.stop(data, home)
        said: list[str] = []
        found, started = with_broker(settings.load(), said.append)
        assert started
        assert found.bootstrap == first.bootstrap
        assert said == [f"starting Apache Kafka on port {first.bootstrap.rpartition(':')[2]}"]
        assert with_broker(found, said.append) == (found, False)
        broker.stop(broker.default_folder(home), home)
        assert settings.Pointer.read(home) == settings.Pointer(first.bootstrap, data, stopped=True)
    finally:
        broker.stop(data)


@pytest.mark.parametrize(("port", "said"), [("65536", "65535"), ("-1", "0"), ("99999", "65535")])
def test_a_port_that_is_none_is_wrong_usage(
    port: str, said: str, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["broker", "start", "--port", port]) == 2
    captured = capsys.readouterr().err
    assert "'--port'" in captured
    assert said in captured
    assert not home.exists()


def test_ports_past_the_last_one_are_wrong_usage(tmp_path: Path) -> None:
    with pytest.raises(Usage, match="port 65536"):
        broker.start(tmp_path / "three", port=65534, brokers=3)
    assert not (tmp_path / "three").exists()


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
