"""Producers on a real Apache Kafka: what is missing or away is one clear error, nothing lost or doubled."""

import json
import signal
import subprocess
import threading
import urllib.request
from collections.abc import Mapping
from pathlib import Path

import pytest

from producers.ledger import sources_of
from producers.live import LivePublisher
from producers.publisher import KafkaTransport, Publisher
from producers.spool import Spool
from schemas import columns as c
from schemas import topics
from schemas.batch import Batch
from schemas.codec import decode_batch, decode_record
from schemas.draft import Draft, control
from schemas.errors import BrokerAway, MissingTopic
from schemas.pack import Head, SeqBook, Source
from schemas.records import DeadLetter
from schemas.time import ClockState
from tempotrace import broker, cli, topics_admin
from tempotrace.clockwork import WallClock
from tempotrace.scopes import Registration, registrations
from tests.conftest import Kafka
from tests.fault.producing import node, produce_host, read_topic
from tests.ports import local_peers

SOURCE = Source("n0/mesh", "h", ClockState("h/CLOCK_REALTIME", timescale=c.Timescale.UTC), 9, live=True)


def make(tenant: str, book: SeqBook, rows: int, scope: str = "job", name: str = "probe") -> Batch:
    draft = Draft(Head(tenant, scope, "n0", "probe"), book)
    for _ in range(rows):
        draft.row(SOURCE, 1000, kind=0, name=name)
    draft.watermark(SOURCE, 1000)
    return draft.build()


def seqs(settings: Mapping[str, str], tenant: str) -> list[int]:
    out: list[int] = []
    for _, _, value, _ in read_topic(settings, topics.topic(tenant, "events")):
        for _, first, last, _ in sources_of(decode_batch(value)):
            out += range(first, last + 1)
    return out


def test_batches_and_dead_letters_arrive_in_order_on_one_partition(kafka: Kafka, tenant: str) -> None:
    publisher = Publisher(KafkaTransport(kafka.settings))
    book = SeqBook()
    publisher.send(control(tenant, "job", "n0", [(c.Control.OPEN, 1, "hosts")]))
    for number in range(50):
        publisher.send(make(tenant, book, 100, name="x" * number))
    letter = DeadLetter(
        tenant=tenant, reason="noise", detail="", topic="udp", partition=-1, offset=0, append_ms=0, events=0,
        payload=b"\xff",
    )  # fmt: skip
    publisher.send(letter)
    publisher.close()
    assert (publisher.events, publisher.acked, publisher.batches) == (5000, 5000, 52)
    messages = read_topic(kafka.settings, topics.topic(tenant, "events"))
    assert len({partition for partition, *_ in messages}) == 1
    assert {key for _, key, *_ in messages} == {b"job"}
    assert messages[1][3] == [("tt-family", b"probe"), ("tt-count", b"100"), ("tt-scope", b"job")]
    assert seqs(kafka.settings, tenant) == list(range(5000))
    ((_, _, value, _),) = read_topic(kafka.settings, topics.topic(tenant, "deadletter"))
    assert decode_record(value)["payload"] == b"\xff"


def test_a_scope_lies_where_java_would_put_it(kafka: Kafka, tenant: str) -> None:
    publisher = Publisher(KafkaTransport(kafka.settings))
    scopes = [f"job-{number}" for number in range(40)]
    for scope in scopes:
        publisher.send(control(tenant, scope, "n0", [(c.Control.OPEN, None, None)]))
    publisher.close()
    found = {
        key: partition for partition, key, *_ in read_topic(kafka.settings, topics.topic(tenant, "events"))
    }
    assert found == {scope.encode(): (murmur2(scope.encode()) & 0x7FFFFFFF) % 4 for scope in scopes}


def murmur2(data: bytes) -> int:
    """Kafka's hash of keys, in ten obvious lines."""
    mask, mix = 0xFFFFFFFF, 0x5BD1E995
    h = (0x9747B28C ^ len(data)) & mask
    whole = len(data) - len(data) % 4
    for at in range(0, whole, 4):
        k = int.from_bytes(data[at : at + 4], "little") * mix & mask
        h = (h * mix & mask) ^ ((k ^ k >> 24) * mix & mask)
    if data[whole:]:
        h = (h ^ int.from_bytes(data[whole:], "little")) * mix & mask
    h = (h ^ h >> 13) * mix & mask
    return h ^ h >> 15


def test_a_missing_topic_is_said_and_not_made(kafka: Kafka) -> None:
    publisher = Publisher(KafkaTransport(kafka.settings))
    with pytest.raises(MissingTopic, match=r"topics create --tenant nobody"):
        publisher.send(make("nobody", SeqBook(), 1))
    assert topics.topic("nobody", "events") not in topics_admin.Cluster(kafka.settings).partitions()


def test_no_broker_is_one_clear_error() -> None:
    publisher = Publisher(KafkaTransport({"bootstrap.servers": "127.0.0.1:1"}, patience_s=2))
    with pytest.raises(BrokerAway, match=r"no broker answers at 127\.0\.0\.1:1 \(.*refused.*\)"):
        publisher.send(make("default", SeqBook(), 1))


def test_a_broker_that_stops_and_comes_back(tmp_path: Path) -> None:
    data = tmp_path / "kafka"
    started = broker.start(data, port=0)
    settings = {"bootstrap.servers": started.bootstrap}
    try:
        topics_admin.create(settings, ["default"])
        live = LivePublisher(Spool(tmp_path / "spool"), KafkaTransport(settings, patience_s=2), WallClock())
        live.start()
        book = SeqBook()
        emitted = 0
        for phase in range(3):
            if phase == 1:
                broker.stop(data)
            elif phase == 2:
                broker.start(data, port=int(started.bootstrap.rpartition(":")[2]))
            for _ in range(300):
                live.emit(make("default", book, 2))
                emitted += 2
            if phase == 0:
                while live.sender.acked < emitted // 2:
                    live.emit(make("default", book, 0))
        assert live.close(patience_s=60) == 0
        assert (live.produced, live.sender.acked, live.lost) == (emitted, emitted, {})
        assert seqs(settings, "default") == list(range(emitted))
    finally:
        broker.stop(data)


def written(kafka: Kafka, tenant: str) -> int:
    """Messages in a tenant's events, which may grow meanwhile."""
    name = topics.topic(tenant, "events")
    (info,) = (info for info in topics_admin.listing(kafka.settings, tenant) if info.name == name)
    return sum(end for _, end in info.offsets)


def test_a_topic_that_is_deleted_and_made_again(kafka: Kafka, tenant: str, tmp_path: Path) -> None:
    """The client meets a fatal error; the publisher goes on with a new one, in order."""
    clock, never = WallClock(), threading.Event()
    live = LivePublisher(Spool(tmp_path), KafkaTransport(kafka.settings, patience_s=5), clock, retry_s=0.2)
    live.start()
    book, name = SeqBook(), topics.topic(tenant, "events")
    live.emit(make(tenant, book, 5))
    while live.sender.acked < 5:
        clock.wait(never, 0.05)
    cluster = topics_admin.Cluster(kafka.settings)
    cluster.result(cluster.admin.delete_topics([name])[name])
    for _ in range(20):
        live.emit(make(tenant, book, 5))
    begin = clock.monotonic()
    while live.sender.restarts == 0:
        assert clock.monotonic() - begin < 60
        clock.wait(never, 0.05)
    topics_admin.create(kafka.settings, [tenant])
    assert live.close(patience_s=60) == 0
    assert live.sender.acked == 105
    assert seqs(kafka.settings, tenant) == list(range(5, 105))


def test_mesh_command_from_end_to_end(
    kafka: Kafka, tenant: str, home: Path, processes: list["subprocess.Popen[str]"]
) -> None:
    ports = local_peers(4)
    nodes = {name: node(home, kafka, tenant, name, ports) for name in ports}
    processes += nodes.values()
    clock, never = WallClock(), threading.Event()
    begin = clock.monotonic()
    while written(kafka, tenant) < 200:
        assert clock.monotonic() - begin < 60
        assert all(process.poll() is None for process in nodes.values())
        clock.wait(never, 0.1)
    (here,) = {entry.clock for entry in registrations(home / "scopes")}
    assert here.endswith("/CLOCK_REALTIME")
    assert sorted(registrations(home / "scopes")) == [
        Registration(tenant, "default", here, f"mesh-{name}") for name in sorted(ports)
    ]
    note = json.loads((home / "stages" / f"{tenant}-produce-mesh-n0-0.json").read_text())
    with urllib.request.urlopen(f"http://127.0.0.1:{note['port']}/metrics") as answer:
        page = answer.read().decode()
    assert f'tempotrace_acked_events_total{{instance="0",stage="produce-mesh-n0",tenant="{tenant}"}}' in page
    results = {}
    for process in nodes.values():
        process.send_signal(signal.SIGTERM)
    for name, process in nodes.items():
        output, errors = process.communicate(timeout=60)
        assert process.returncode == 0, errors
        results[name] = json.loads(output)
    assert registrations(home / "scopes") == []
    assert list((home / "spool").glob("*/*.seg")) == []
    produced = sum(result["events"] for result in results.values())
    assert [result["skipped"] for result in results.values()] == [{}] * 4
    assert [result["waiting"] for result in results.values()] == [0] * 4
    assert produced == sum(result["sent"] + result["received"] for result in results.values())

    rows, finals = 0, set()
    keys: dict[c.Role, list[int]] = {c.Role.CAUSE: [], c.Role.EFFECT: []}
    for _, _, value, _ in read_topic(kafka.settings, topics.topic(tenant, "events")):
        batch = decode_batch(value)
        if batch.family == "control":
            continue
        rows += batch.count
        finals |= {key for key, *_, final in sources_of(batch) if final}
        for role in keys:
            if batch.count:
                keys[role] += batch.data["ep_key"][batch.data["ep_role"] == role].tolist()
    assert rows == produced
    assert sorted(source for source, _ in finals) == [f"{name}/mesh" for name in sorted(ports)]
    assert sorted(keys[c.Role.CAUSE]) == sorted(keys[c.Role.EFFECT])
    assert len(keys[c.Role.CAUSE]) * 2 == produced


def log_lines(first: int, count: int) -> str:
    return "".join(
        f"ptp4l[{100 + number}.000]: master offset {number % 50} s2 freq +100 path delay 500\n"
        for number in range(first, first + count)
    )


def test_a_followed_log_goes_on_after_kill(
    kafka: Kafka, tenant: str, home: Path, tmp_path: Path, processes: list["subprocess.Popen[str]"]
) -> None:
    log = tmp_path / "ptp4l.log"
    clock, never = WallClock(), threading.Event()
    for start in range(2):
        with log.open("a") as file:
            file.write(log_lines(300 * start, 300))
        process = produce_host(home, kafka, tenant, "--log", str(log), "--follow")
        processes.append(process)
        begin, before = clock.monotonic(), written(kafka, tenant)
        while written(kafka, tenant) < before + 10:
            assert clock.monotonic() - begin < 60
            assert process.poll() is None
            clock.wait(never, 0.1)
        process.send_signal(signal.SIGTERM if start else signal.SIGKILL)
        output, errors = process.communicate(timeout=60)
        assert process.returncode == (0 if start else -signal.SIGKILL), errors
    result = json.loads(output)
    assert (result["events"], result["lines"]["parsed"], result["dropped"]) == (600, 600, {})
    assert list(dict.fromkeys(seqs(kafka.settings, tenant))) == list(range(600))
    sources, finals = set(), []
    for _, _, value, _ in read_topic(kafka.settings, topics.topic(tenant, "events")):
        for key, _, _, final in sources_of(decode_batch(value)):
            sources.add(key)
            finals.append(final)
    assert len(sources) == 1
    assert finals == [False] * (len(finals) - 1) + [True]


def test_logs_are_read_to_their_end(
    kafka: Kafka, tenant: str, home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "ptp4l.log"
    log.write_text(log_lines(0, 1000) + "something else\n")
    arguments = ["produce", "host", "--log", str(log), "--tenant", tenant, "--json"]
    assert cli.run([*arguments, "--bootstrap-servers", kafka.bootstrap_servers]) == 0
    result = json.loads(capsys.readouterr().out)
    assert (result["events"], result["lines"]["total"], result["lines"]["unknown"]) == (1000, 1001, 1)
    assert result["scope"].startswith("host-")
    assert seqs(kafka.settings, tenant) == list(range(1000))
