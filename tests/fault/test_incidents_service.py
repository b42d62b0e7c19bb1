"""The Faust service on a real Kafka: what it keeps, what it must not see, killed, drained, and refused."""

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from schemas import topics
from schemas.codec import decode_record
from schemas.errors import BrokerAway, MissingTopic
from schemas.records import DeadLetter, Incident, read
from tempotrace import broker, topics_admin
from tempotrace.broker.process import free_ports
from tempotrace.runtime.incidents import run_incidents
from tests.conftest import Kafka
from tests.fault.stages import Stages
from tests.findings import START_NS, WINDOW_NS, record
from tests.paths import REPO

PARTITIONS = topics.PARTITIONS


@dataclass(frozen=True)
class Service:
    """The service of one tenant, run as the command that users run."""

    stages: Stages

    def start(self, *options: str) -> "subprocess.Popen[str]":
        command = [sys.executable, "-m", "tempotrace", "stream", "incidents", "--json"]
        command += ["--tenant", self.stages.tenant, "--bootstrap-servers", self.stages.bootstrap, *options]
        return subprocess.Popen(
            command,
            cwd=REPO,
            env={**os.environ, "TEMPOTRACE_HOME": str(self.stages.home)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    @contextlib.contextmanager
    def running(self, *options: str) -> "Iterator[subprocess.Popen[str]]":
        """A service that has its partitions; killed at the end if it still lives."""
        worker = self.start(*options)
        try:
            while self.stages.page("/readyz", stage="incidents")[0] != 200:
                assert worker.poll() is None, worker.communicate()
            yield worker
        finally:
            worker.kill()
            worker.communicate()

    def drain(self, *options: str) -> dict[str, int]:
        """Run it to the end of the log; what it prints."""
        out, err, code = self.stages.finish(self.start("--drain", *options))
        assert code == 0, err
        found: dict[str, int] = json.loads(out)
        return found

    def stop(self, worker: "subprocess.Popen[str]") -> dict[str, int]:
        """SIGTERM, and what it prints at the end."""
        worker.send_signal(signal.SIGTERM)
        out, err, code = self.stages.finish(worker)
        assert code == 0, err
        found: dict[str, int] = json.loads(out)
        return found

    def write(self, values: list[tuple[int, bytes]], commit: bool = True, name: str = "diagnosis") -> None:
        """Findings by partition, in one transaction that is committed or aborted."""
        producer = Producer(
            {"bootstrap.servers": self.stages.bootstrap, "transactional.id": f"{self.stages.tenant}.{name}"}
        )
        producer.init_transactions(30)
        producer.begin_transaction()
        topic = topics.topic(self.stages.tenant, "findings")
        for partition, value in values:
            producer.produce(topic, value, b"job/rank3", partition)
        assert producer.flush(30) == 0
        if commit:
            producer.commit_transaction(30)
        else:
            producer.abort_transaction(30)

    def incidents(self) -> list[list[Incident]]:
        """All records of `incidents`, by partition."""
        return [
            [read(Incident, decode_record(value)) for value in values]
            for values in self.stages.read("incidents")
        ]

    def await_incidents(self, count: int, worker: "subprocess.Popen[str]") -> None:
        """Wait until there are so many records."""
        while sum(map(len, self.incidents())) < count:
            assert worker.poll() is None, worker.communicate()

    def finding(self, window: int, **fields: Any) -> bytes:
        return record(window, tenant=self.stages.tenant, **fields)


@pytest.fixture
def service(kafka: Kafka, tenant: str, home: Path) -> Service:
    return Service(Stages(kafka.bootstrap_servers, tenant, home))


def test_findings_become_incidents_and_a_drain_repeats_nothing(service: Service) -> None:
    life = [service.finding(0), service.finding(50, confidence=0.9), service.finding(200, state="absent")]
    other = service.finding(
        7, scope="other", component="host1/ptp0", component_kind="clock", fault_class="clock_fault"
    )
    service.write([(1, value) for value in life] + [(2, other), (2, b"no finding")])
    assert service.drain() == {
        "findings_in": 5,
        "incidents_open": 2,
        "incidents_updated": 1,
        "incidents_resolved": 1,
        "findings_skipped": 0,
        "findings_unreadable": 1,
    }
    found = service.incidents()
    assert [[each.state for each in one] for one in found] == [
        [],
        ["open", "update", "resolve"],
        ["open"],
        [],
    ]
    assert len({each.incident_id for each in found[1]}) == 1
    assert [each.findings for each in found[1]] == [1, 2, 3]
    assert [each.resolved_ns for each in found[1]] == [None, None, START_NS + 201 * WINDOW_NS]
    assert found[2][0].component == "host1/ptp0"
    letters = [read(DeadLetter, decode_record(value)) for value in service.stages.read("deadletter")[2]]
    assert [(each.reason, each.topic, each.partition, each.offset, each.payload) for each in letters] == [
        ("malformed", "findings", 2, 1, b"no finding")
    ]
    assert service.drain()["findings_in"] == 0
    assert service.incidents() == found


def test_detection_is_the_findings_append_time(service: Service) -> None:
    service.write([(0, service.finding(0))])
    service.drain()
    consumer = Consumer({"bootstrap.servers": service.stages.bootstrap, "group.id": "look"})
    consumer.assign([TopicPartition(topics.topic(service.stages.tenant, "findings"), 0, 0)])
    message = consumer.poll(30)
    consumer.close()
    assert message is not None
    assert service.incidents()[0][0].detected_ns == message.timestamp()[1] * 1_000_000 + 37_000_000_000


def test_an_aborted_finding_is_never_seen(service: Service) -> None:
    service.write([(0, service.finding(0, component=f"rank{n}")) for n in range(8)], commit=False)
    service.write([(0, service.finding(1, component="rank9"))])
    service.write([(0, service.finding(2, component="rank8"))], commit=False)
    assert service.drain()["findings_in"] == 1
    with service.running() as worker:
        service.write([(0, service.finding(3, component="rank7"))], commit=False)
        service.write([(0, service.finding(4, component="rank6"))])
        service.await_incidents(2, worker)
        assert service.stop(worker)["findings_in"] == 1
    assert [each.component for each in service.incidents()[0]] == ["rank9", "rank6"]
    assert service.drain()["findings_in"] == 0


def test_killed_in_mid_stream_each_change_is_told(service: Service) -> None:
    """Whatever was told twice is the same record; each change is there, and in order."""
    ranks = range(8)
    windows = range(0, 60, 2)
    for window in windows:
        values = [
            (n % PARTITIONS, service.finding(window, component=f"rank{n}", confidence=window / 100))
            for n in ranks
        ]
        service.write(values)
    for told in (20, 150):
        with service.running() as worker:
            service.await_incidents(told, worker)
            worker.send_signal(signal.SIGKILL)
            worker.communicate()
    service.write(
        [(n % PARTITIONS, service.finding(99, component=f"rank{n}", state="absent")) for n in ranks]
    )
    service.drain()
    for partition, found in enumerate(service.incidents()):
        by_id: dict[str, list[Incident]] = {}
        for each in found:
            seen = by_id.setdefault(each.incident_id, [])
            if seen and each.findings <= seen[-1].findings:
                assert each == seen[each.findings - 1]  # told twice
            else:
                seen.append(each)
        assert {seen[0].component for seen in by_id.values()} == {
            f"rank{n}" for n in ranks if n % PARTITIONS == partition
        }
        for seen in by_id.values():
            assert [each.findings for each in seen] == list(range(1, len(windows) + 2))
            assert [each.state for each in seen] == ["open", *["update"] * (len(windows) - 1), "resolve"]
            assert [each.confidence for each in seen[:-1]] == [window / 100 for window in windows]
        repeated = len(found) - sum(map(len, by_id.values()))
        assert repeated <= 2  # at most the one in hand, at each kill


def test_findings_that_come_again_change_nothing(service: Service) -> None:
    """As after a diagnosis that was made to begin anew."""
    life = [(3, service.finding(0)), (3, service.finding(50)), (3, service.finding(200, state="absent"))]
    service.write(life)
    service.drain()
    found = service.incidents()
    service.write(life)
    counted = service.drain()
    assert (counted["findings_in"], counted["findings_skipped"]) == (3, 3)
    assert service.incidents() == found


def test_pages_and_sigterm(service: Service) -> None:
    with service.running() as worker:
        service.write([(0, service.finding(0)), (1, service.finding(0, scope="other"))])
        service.await_incidents(2, worker)
        name = service.stages.tenant
        told = (
            'tempotrace_lag_records{instance="0",partition="0"',
            f'tempotrace_incidents_total{{instance="0",stage="incidents",state="open",tenant="{name}"}} 2.0',
        )
        # An incident is counted once its row is kept, a moment after it can be read.
        while not all(line in service.stages.page("/metrics", stage="incidents")[1] for line in told):
            assert worker.poll() is None, worker.communicate()
        assert service.stages.page("/healthz", stage="incidents") == (200, "ok\n")
        result = service.stop(worker)
    assert result["incidents_open"] == 2
    assert not (service.stages.home / "stages" / f"{service.stages.tenant}-incidents-0.json").exists()
    assert service.drain()["findings_in"] == 0


def test_missing_topics_are_named(kafka: Kafka, home: Path) -> None:
    with pytest.raises(MissingTopic, match=r"tempotrace\.nobody\.findings.*topics create --tenant nobody"):
        run_incidents(kafka.settings, "nobody", 0, home, drain=True)


def test_no_broker_is_one_line(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        topics_admin.Cluster.__init__, "__defaults__", (2.0,)
    )  # seconds to wait for an answer
    with pytest.raises(BrokerAway, match=r"no broker answers at 127\.0\.0\.1"):
        run_incidents({"bootstrap.servers": f"127.0.0.1:{free_ports(1)[0]}"}, "default", 0, home, drain=True)


def test_lost_findings_stop_it_unless_accepted(service: Service, kafka: Kafka) -> None:
    service.write([(0, service.finding(window)) for window in range(3)])
    service.drain()
    service.write([(0, service.finding(window)) for window in range(3, 9)])
    cut = TopicPartition(topics.topic(service.stages.tenant, "findings"), 0, 7)
    admin = AdminClient({**kafka.settings})
    admin.delete_records([cut])[cut].result(30)
    _, err, code = service.stages.finish(service.start("--drain"))
    assert code == 1
    assert "findings/0: offsets 4 to 6 are gone, the log begins at 7" in err
    counted = service.drain("--accept-loss")
    # From an offset that is gone Faust may begin twice: what it reads again changes nothing.
    assert counted["findings_in"] - counted["findings_skipped"] == 3
    assert counted["incidents_updated"] == 3
    assert service.drain()["findings_in"] == 0
    letters = [read(DeadLetter, decode_record(value)) for value in service.stages.read("deadletter")[0]]
    assert [each.reason for each in letters] == ["lost_input"]


def test_a_broker_that_comes_back_is_waited_for(tmp_path: Path, home: Path) -> None:
    data, port = tmp_path / "kafka", free_ports(1)[0]
    kafka = {"bootstrap.servers": broker.start(data, port=port).bootstrap}
    try:
        topics_admin.create(kafka, ["away"])
        service = Service(Stages(kafka["bootstrap.servers"], "away", home))
        with service.running() as worker:
            service.write([(0, service.finding(0))])
            service.await_incidents(1, worker)
            broker.stop(data)
            assert worker.stderr is not None
            while "waiting: no broker answers" not in (line := worker.stderr.readline()):
                assert line
            broker.start(data, port=port)
            service.write([(0, service.finding(50))])
            service.await_incidents(2, worker)
            worker.send_signal(signal.SIGTERM)
            out, err, code = service.stages.finish(worker)
    finally:
        broker.stop(data)
    assert code == 0, err
    assert json.loads(out)["findings_in"] == 2
    assert "waiting" not in err  # once is enough
