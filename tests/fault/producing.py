"""Live producers as processes, and what is in a topic."""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from confluent_kafka import Consumer, KafkaError, TopicPartition

from tempotrace import topics_admin
from tests.conftest import Kafka
from tests.paths import REPO


class Read(NamedTuple):
    """A message of a topic."""

    partition: int
    key: bytes
    value: bytes
    headers: list[tuple[str, bytes]]


def read_topic(settings: Mapping[str, str], topic: str) -> list[Read]:
    """Everything in a topic that nobody writes to any more."""
    count = topics_admin.check_exist(settings, [topic])[topic]
    reader = Consumer({**settings, "group.id": "test", "enable.partition.eof": True})
    reader.assign([TopicPartition(topic, number, 0) for number in range(count)])
    out: list[Read] = []
    ended = 0
    while ended < count:
        message = reader.poll(20)
        assert message is not None, "the broker does not answer"
        error = message.error()
        if error is None:
            headers: Any = message.headers()
            out.append(Read(message.partition() or 0, message.key() or b"", message.value() or b"", headers))
        else:
            assert error.code() == KafkaError._PARTITION_EOF
            ended += 1
    reader.close()
    return out


def produce_host(home: Path, kafka: Kafka, tenant: str, *arguments: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [
            sys.executable, "-m", "tempotrace", "produce", "host", *arguments,
            "--tenant", tenant, "--bootstrap-servers", kafka.bootstrap_servers, "--json",
        ],
        cwd=REPO, env={**os.environ, "PYTHONPATH": str(REPO), "TEMPOTRACE_HOME": str(home)},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def node(
    home: Path, kafka: Kafka, tenant: str, name: str, ports: dict[str, int], *more: str
) -> "subprocess.Popen[str]":
    peers = [f"--peer={other}=127.0.0.1:{port}" for other, port in ports.items() if other != name]
    listen = ["--listen", f"127.0.0.1:{ports[name]}"]
    return produce_host(
        home, kafka, tenant, "--mesh", "--node", name, *listen, *peers, "--interval", "5ms", *more
    )
