"""What tests share: a home of their own, one real broker for all, and a fresh tenant for each."""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tempotrace import broker, topics_admin

_tenants = itertools.count(1)


@dataclass(frozen=True)
class Kafka:
    """A running broker."""

    bootstrap_servers: str

    @property
    def settings(self) -> dict[str, str]:
        """librdkafka settings that reach it."""
        return {"bootstrap.servers": self.bootstrap_servers}


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Local state of this test alone."""
    folder = tmp_path / "home"
    monkeypatch.setenv("TEMPOTRACE_HOME", str(folder))
    return folder


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    """One real single-node Apache Kafka, on a free port, for the whole run; it holds no tenant yet."""
    data = tmp_path_factory.mktemp("kafka")
    started = broker.start(data, port=0)
    try:
        yield Kafka(started.bootstrap)
    finally:
        broker.stop(data)


@pytest.fixture
def tenant(kafka: Kafka) -> str:
    """Name of a tenant whose topics (four partitions each) are there and empty."""
    name = f"test-{next(_tenants)}"
    topics_admin.create(kafka.settings, [name])
    return name
