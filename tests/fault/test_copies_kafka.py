"""Clock samples of a host in another scope of its live producers, through real processes and Kafka."""

import json
import signal
import subprocess
import threading
from pathlib import Path

from producers.ledger import sources_of
from schemas import topics
from schemas.codec import decode_batch
from tempotrace.clockwork import WallClock
from tempotrace.scopes import registrations
from tests.conftest import Kafka
from tests.fault.producing import node, produce_host, read_topic
from tests.ports import local_peers


def test_samples_of_a_host_come_to_the_scopes_of_its_live_producers(
    kafka: Kafka, tenant: str, home: Path, tmp_path: Path, processes: list["subprocess.Popen[str]"]
) -> None:
    log = tmp_path / "ptp4l.log"
    log.write_text("")
    ports = local_peers(2)
    nodes = [node(home, kafka, tenant, name, ports, "--scope", "job42") for name in ports]
    follower = produce_host(home, kafka, tenant, "--log", str(log), "--follow")
    processes += [*nodes, follower]
    clock, never = WallClock(), threading.Event()
    begin, number = clock.monotonic(), 0
    there: float | None = None
    # The follower asks once a second for scopes; samples come on.
    while there is None or clock.monotonic() - there < 3:
        assert clock.monotonic() - begin < 60
        assert all(process.poll() is None for process in processes)
        if there is None and len(registrations(home / "scopes")) == 3:
            there = clock.monotonic()
        number += 1
        with log.open("a") as file:
            file.write(
                f"ptp4l[{clock.monotonic():.3f}]: master offset {number} s2 freq +100 path delay 500\n"
            )
        clock.wait(never, 0.1)
    for process in processes:
        process.send_signal(signal.SIGTERM)
    output, errors = follower.communicate(timeout=60)
    assert follower.returncode == 0, errors
    result = json.loads(output)
    assert 2 <= result["copied"] <= 8
    assert result["events"] == number + result["copied"]
    for mesh_node in nodes:
        mesh_node.communicate(timeout=60)
    copied = []
    for _, key, value, _ in read_topic(kafka.settings, topics.topic(tenant, "events")):
        batch = decode_batch(value)
        if batch.family == "clock" and batch.scope == "job42":
            assert key == b"job42"
            copied += [(source, first, last, final) for (source, _), first, last, final in sources_of(batch)]
    assert {source.rpartition("@")[2] for source, *_ in copied} == {"default"}
    assert sum(last - first + 1 for _, first, last, _ in copied) == result["copied"]
    assert copied[-1][3]
