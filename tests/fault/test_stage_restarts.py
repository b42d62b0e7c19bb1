"""The real stages on a real Kafka, killed in mid-stream: what they wrote is what the log alone gives.

The reference is the same processor over the same records, ticks and flushes with their append times included,
in one go and in memory.
"""

import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition

from producers.sim.cluster import read
from producers.sim.options import SimOptions, SimReport
from schemas import topics
from schemas.codec import encode_batch
from schemas.processor import Output, Processor, Record
from tempotrace import wiring
from tempotrace.clockwork import seeded
from tempotrace.runtime.reading import record_of
from tests.conftest import Kafka
from tests.paths import REPO

JOBS = [
    SimOptions(
        scenario="straggler+clock-fault",
        seed=seed,
        hosts=2,
        ranks=4,
        seconds=2.0,
        fabric=True,
        batch_events=128,
        scope=f"job-{seed}",
    )
    for seed in (1, 2, 3)
]
COMMANDS = {"merge": "merge", "paths": "paths", "diagnosis": "diagnose"}


def records(kafka: Kafka, tenant: str, suffix: str) -> list[list[Record]]:
    """All committed records of a topic, by partition."""
    name = topics.topic(tenant, suffix)
    consumer = Consumer(
        {
            **kafka.settings,
            "group.id": "reader",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    found: list[list[Record]] = [[] for _ in range(topics.PARTITIONS)]
    try:
        consumer.assign([TopicPartition(name, part, 0) for part in range(topics.PARTITIONS)])
        open_ends = topics.PARTITIONS
        while open_ends:
            message = consumer.poll(10)
            assert message is not None
            if message.error() is not None:
                open_ends -= 1
            else:
                record = record_of(message, suffix, lambda: None)
                found[record.partition].append(record)
    finally:
        consumer.close()
    return found


def send(kafka: Kafka, tenant: str, first: float, last: float) -> None:
    """Send a part of each job's batches."""
    producer = Producer({**kafka.settings, "acks": "all", "partitioner": topics.PARTITIONER})
    name = topics.topic(tenant, "events")
    for job in JOBS:
        batches = list(read(replace(job, tenant=tenant), SimReport(), seeded(job.seed)))
        begin, end = (round(len(batches) * share) for share in (first, last))
        for batch in batches[begin:end]:
            headers = [*topics.batch_headers(batch.family, batch.count, batch.scope)]
            value = encode_batch(batch)
            producer.produce(name, value, batch.scope.encode(), headers=[*headers])
    assert producer.flush(30) == 0


def command(kafka: Kafka, tenant: str, stage: str, *options: str) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        [
            *(sys.executable, "-m", "tempotrace", "stream", COMMANDS[stage], "--tenant", tenant),
            *("--bootstrap-servers", kafka.bootstrap_servers, *options),
        ],
        cwd=REPO,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def kill_after(kafka: Kafka, tenant: str, stage: str, output: str, count: int) -> None:
    """Run a stage until it has committed so many records, then kill it."""
    worker = command(kafka, tenant, stage)
    try:
        while sum(map(len, records(kafka, tenant, output))) < count:
            assert worker.poll() is None
    finally:
        worker.send_signal(signal.SIGKILL)
        worker.wait()


def in_one_go(processor: Processor, inputs: list[list[Record]]) -> list[list[Output]]:
    """What the processor makes of each partition."""
    out = []
    for part, found in enumerate(inputs):
        task = processor.start(part, None)
        out.append([output for record in found for output in task.process(record)])
    return out


def plain(found: list[list[Record]]) -> list[list[tuple[bytes | None, bytes | None, object]]]:
    return [[(record.key, record.value, record.headers) for record in records] for records in found]


def test_killed_stages_write_what_the_log_alone_gives(kafka: Kafka, tenant: str, home: Path) -> None:
    send(kafka, tenant, 0, 0.4)
    kill_after(kafka, tenant, "merge", "merged", 3)
    send(kafka, tenant, 0.4, 0.8)
    kill_after(kafka, tenant, "merge", "merged", 20)
    send(kafka, tenant, 0.8, 1.0)
    kill_after(kafka, tenant, "paths", "paths", 5)
    assert command(kafka, tenant, "merge", "--drain").wait(60) == 0
    for stage in ("paths", "diagnosis"):
        assert command(kafka, tenant, stage, "--drain").wait(60) == 0
    for stage, inputs, written in (
        ("merge", "events", ("merged", "late")),
        ("paths", "merged", ("paths",)),
        ("diagnosis", "merged", ("findings",)),
    ):
        outputs = in_one_go(wiring.build(stage, tenant), records(kafka, tenant, inputs))
        for topic in written:
            found = plain(records(kafka, tenant, topic))
            assert found == [
                [(each.key, each.value, each.headers) for each in part if each.topic == topic]
                for part in outputs
            ], topic
            assert topic == "late" or any(found), topic


def test_the_events_are_all_there(kafka: Kafka, tenant: str, home: Path) -> None:
    """Counts in and out agree over a drain, and a second drain adds nothing."""
    send(kafka, tenant, 0, 1.0)
    assert command(kafka, tenant, "merge", "--drain").wait(60) == 0
    before = plain(records(kafka, tenant, "merged"))
    assert command(kafka, tenant, "merge", "--drain", "--instance", "1").wait(60) == 0
    assert plain(records(kafka, tenant, "merged")) == before
    assert [topic for topic in ("deadletter",) if any(records(kafka, tenant, topic))] == []
