"""What fault tests do with real stages: start and end them as processes, fill topics, read what they gave."""

import contextlib
import json
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition

from schemas import topics
from tests.paths import REPO

PARTITIONS = topics.PARTITIONS


@dataclass(frozen=True)
class Stages:
    """One tenant on one broker, and a folder that stages write their ports to."""

    bootstrap: str
    tenant: str
    home: Path

    def start(self, *options: str) -> "subprocess.Popen[str]":
        """A worker process; its counters come on stdout at the end."""
        command = [sys.executable, "-m", "tests.fault.worker", self.bootstrap, self.tenant, str(self.home)]
        return subprocess.Popen(
            [*command, *options], cwd=REPO, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    @contextlib.contextmanager
    def running(self, *options: str) -> Iterator["subprocess.Popen[str]"]:
        """A worker that is killed at the end, if it still lives."""
        worker = self.start(*options)
        try:
            yield worker
        finally:
            worker.kill()
            worker.communicate()

    def drain(self, *options: str) -> dict[str, object]:
        """Run a worker to the end of the log; its counters."""
        out, err, code = self.finish(self.start("--drain", *options))
        assert code == 0, err
        counters: dict[str, object] = json.loads(out)
        return counters

    @staticmethod
    def finish(worker: "subprocess.Popen[str]", seconds: float = 60) -> tuple[str, str, int]:
        """stdout, stderr and exit code of a worker that ends by itself."""
        try:
            out, err = worker.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            worker.kill()
            out, err = worker.communicate()
            raise AssertionError(f"the worker did not end: {err}") from None
        return out, err, worker.returncode

    def fill(self, first: int, last: int) -> None:
        """Numbers first..last−1, one a record, dealt over the partitions of `events`."""
        producer = Producer({"bootstrap.servers": self.bootstrap, "acks": "all"})
        name = topics.topic(self.tenant, "events")
        for number in range(first, last):
            producer.produce(name, json.dumps([number]).encode(), b"scope", number % PARTITIONS)
        assert producer.flush(30) == 0

    def read(self, suffix: str, isolation: str = "read_committed") -> list[list[bytes]]:
        """All values of a topic to its end, by partition."""
        name = topics.topic(self.tenant, suffix)
        consumer = Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": "reader",
                "enable.auto.commit": False,
                "isolation.level": isolation,
                "enable.partition.eof": True,
                "fetch.wait.max.ms": 20,
            }
        )
        values: list[list[bytes]] = [[] for _ in range(PARTITIONS)]
        try:
            consumer.assign([TopicPartition(name, partition, 0) for partition in range(PARTITIONS)])
            at_end: set[int] = set()
            while len(at_end) < PARTITIONS:
                message = consumer.poll(10)
                assert message is not None
                partition = message.partition()
                assert partition is not None
                if message.error() is not None:
                    at_end.add(partition)
                else:
                    values[partition].append(message.value() or b"")
        finally:
            consumer.close()
        return values

    def sums(self) -> list[list[dict[str, int]]]:
        """What the summing stage has committed, by partition."""
        return [[json.loads(value) for value in values] for values in self.read("merged")]

    def expected(self, count: int, flushed: bool = True) -> list[list[dict[str, int]]]:
        """What it must have committed for the numbers 0..count−1: windows of three, the last one flushed."""
        out = []
        for partition in range(PARTITIONS):
            numbers = list(range(partition, count, PARTITIONS))
            windows = [numbers[at : at + 3] for at in range(0, len(numbers), 3)]
            if not flushed:
                windows = [window for window in windows if len(window) == 3]
            carry, rows = 0, []
            for index, window in enumerate(windows):
                carry += sum(window)
                rows.append({"window": index + 1, "sum": sum(window), "carry": carry, "rows": len(window)})
            out.append(rows)
        return out

    def page(self, path: str, instance: int = 0, stage: str = "merge") -> tuple[int, str]:
        """Answer of a running worker's health page; 0 as long as there is none."""
        note = self.home / "stages" / f"{self.tenant}-{stage}-{instance}.json"
        try:
            port = json.loads(note.read_text())["port"]
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()
        except (FileNotFoundError, ValueError, urllib.error.URLError):
            return 0, ""

    def await_ready(self, worker: "subprocess.Popen[str]", instance: int = 0) -> None:
        """Wait until partitions are assigned to a worker."""
        while self.page("/readyz", instance)[0] != 200:
            assert worker.poll() is None, worker.communicate()

    def await_sums(self, count: int, worker: "subprocess.Popen[str]") -> None:
        """Wait until so many windows are committed, as long as the worker lives."""
        while sum(len(rows) for rows in self.sums()) < count:
            assert worker.poll() is None, worker.communicate()
