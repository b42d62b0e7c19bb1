"""The runner on a real Kafka: killed, fenced off, rebalanced, drained, stopped; topics made anew or cut."""

import json
import signal
from pathlib import Path

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from schemas import topics
from schemas.errors import MissingTopic
from tempotrace import topics_admin
from tempotrace.runtime.kafka_log import KafkaLog, Member
from tempotrace.runtime.runner import RunnerSettings
from tempotrace.runtime.stage import run_stage
from tempotrace.runtime.transactions import CHUNK_BYTES_MAX
from tests.conftest import Kafka
from tests.contract.sample import Summing
from tests.fault.stages import PARTITIONS, Stages


@pytest.fixture
def stages(kafka: Kafka, tenant: str, home: Path) -> Stages:
    return Stages(kafka.bootstrap_servers, tenant, home)


def test_drain_works_to_the_end_and_repeats_nothing(stages: Stages) -> None:
    stages.fill(0, 50)
    counters = stages.drain()
    assert counters["events_in"] == 50
    assert counters["events_out"] == 50
    assert stages.sums() == stages.expected(50)
    again = stages.drain()
    assert again["events_in"] == 0
    assert again["restores"] == PARTITIONS
    assert stages.sums() == stages.expected(50)


def test_a_joining_stage(stages: Stages) -> None:
    producer = Producer({"bootstrap.servers": stages.bootstrap, "acks": "all"})
    for number in range(24):
        name = topics.topic(stages.tenant, ("merged", "paths")[number // 4 % 2])
        producer.produce(name, json.dumps([number]).encode(), b"scope", number % PARTITIONS)
    producer.flush(10)
    assert stages.drain("--processor", "joining")["events_in"] == 24
    found = [[json.loads(value)["sum"] for value in values] for values in stages.read("findings")]
    assert [len(sums) for sums in found] == [2, 2, 2, 2]
    assert [sum(sums) for sums in found] == [sum(range(part, 24, PARTITIONS)) for part in range(PARTITIONS)]
    again = stages.drain("--processor", "joining")
    assert "records_read" not in again
    assert again["restores"] == PARTITIONS


def test_a_state_of_many_chunks(stages: Stages) -> None:
    """Other stages write to the same partitions of `state`, between the chunks too."""
    padding = ("--padding", str(3 * CHUNK_BYTES_MAX + 17))
    stages.fill(0, 16)
    stages.drain(*padding)
    stages.drain("--processor", "joining")
    stages.fill(16, 32)
    assert stages.drain(*padding)["restores"] == PARTITIONS
    sizes = sorted(len(value) for values in stages.read("state") for value in values)
    assert sizes[-1] == CHUNK_BYTES_MAX
    assert [rows[-1]["carry"] for rows in stages.sums()] == [
        sum(range(part, 32, PARTITIONS)) for part in range(PARTITIONS)
    ]


def test_a_group_that_lost_its_offsets_goes_on_from_its_state(stages: Stages, kafka: Kafka) -> None:
    """Offsets expire after a week of silence; the state was committed with them and knows them."""
    stages.fill(0, 24)
    stages.drain()
    group = f"tempotrace.{stages.tenant}.merge"
    admin = AdminClient({**kafka.settings})
    admin.delete_consumer_groups([group])[group].result(30)
    stages.fill(24, 48)
    counters = stages.drain()
    assert counters["restores"] == PARTITIONS
    assert counters["events_in"] == 24
    assert stages.sums() == stages.expected(48)


def test_drain_of_an_empty_log(stages: Stages) -> None:
    assert stages.drain()["events_in"] == 0
    assert stages.sums() == [[], [], [], []]


def test_killed_in_mid_stream_every_output_once(stages: Stages) -> None:
    stages.fill(0, 400)
    for windows in (10, 30, 60):
        with stages.running("--slow", "0.005") as worker:
            stages.await_sums(windows, worker)
            worker.send_signal(signal.SIGKILL)
            worker.communicate()
    stages.drain()
    assert stages.sums() == stages.expected(400)
    # What the killed ones had sent is there for those who want to see it, and was aborted.
    uncommitted = stages.read("merged", "read_uncommitted")
    assert sum(map(len, uncommitted)) >= sum(map(len, stages.expected(400)))


def test_an_open_transaction_of_another_instance_is_waited_for(stages: Stages) -> None:
    """Killed within a transaction, taken over by another instance: it waits until the transaction expires."""
    stages.fill(0, 60)
    stages.drain()
    stages.fill(60, 120)
    left_open = Producer(
        {
            "bootstrap.servers": stages.bootstrap,
            "transactional.id": "tempotrace.test.left.0",
            "transaction.timeout.ms": 3000,
        }
    )
    left_open.init_transactions(30)
    left_open.begin_transaction()
    for partition in range(PARTITIONS):
        left_open.produce(topics.topic(stages.tenant, "merged"), b"never", None, partition)
        left_open.produce(topics.topic(stages.tenant, "events"), b"[1000]", None, partition)
    left_open.flush(10)
    stages.drain("--instance", "1")
    assert b"never" not in [value for values in stages.read("merged") for value in values]
    # The drain before flushed after 60 numbers, 15 to a partition: windows of three all the same.
    assert stages.sums() == stages.expected(120)


def test_sigterm_commits_what_is_in_hand_and_leaves(stages: Stages) -> None:
    stages.fill(0, 48)
    with stages.running() as worker:
        stages.await_sums(16, worker)
        stages.fill(48, 56)
        worker.send_signal(signal.SIGTERM)
        out, err, code = stages.finish(worker)
    assert code == 0, err
    counters = json.loads(out)
    committed = sum(row["rows"] for rows in stages.sums() for row in rows)
    assert counters["events_out"] == committed
    # Having left the group, it is not waited for: another instance gets all partitions at once.
    rest = stages.drain("--instance", "1")
    assert rest["events_in"] == 56 - counters["events_in"]
    assert sum(row["sum"] for rows in stages.sums() for row in rows) == sum(range(56))


def test_the_same_instance_twice_fences_off_the_first(stages: Stages) -> None:
    stages.fill(0, 200)
    with stages.running("--slow", "0.02") as first:
        stages.await_sums(4, first)
        stages.drain()
        _, err, code = stages.finish(first)
    assert code == 1
    assert "Fenced" in err
    assert "another process with the same --instance took over" in err
    assert stages.sums() == stages.expected(200)


def test_an_idle_stage_notices_that_it_was_replaced(stages: Stages) -> None:
    """No commit fails where nothing is committed; the group tells."""
    with stages.running() as first:
        stages.await_ready(first)
        stages.drain()
        _, err, code = stages.finish(first)
    assert code == 1
    assert "another process with the same --instance took over" in err


def test_two_instances_share_and_hand_over(stages: Stages) -> None:
    stages.fill(0, 96)  # whole windows, so that no tick cuts one
    with stages.running("--slow", "0.02") as first:
        stages.await_sums(4, first)
        with stages.running("--slow", "0.002", "--instance", "1") as second:
            stages.await_ready(second, instance=1)
            stages.fill(96, 192)
            stages.await_sums(40, second)
            second.send_signal(signal.SIGTERM)
            out, err, code = stages.finish(second)
            assert code == 0, err
            assert json.loads(out)["events_in"] > 0
        first.send_signal(signal.SIGTERM)
        _, err, code = stages.finish(first)
        assert code == 0, err
    stages.drain()
    assert stages.sums() == stages.expected(192)


def test_silence_is_ticked_until_the_window_is_released(stages: Stages) -> None:
    stages.fill(0, 4)
    with stages.running() as worker:
        stages.await_sums(4, worker)
        text = stages.page("/metrics")[1]
        assert stages.page("/readyz") == (200, "ready\n")
        assert stages.page("/healthz") == (200, "ok\n")
        worker.send_signal(signal.SIGTERM)
        out, err, code = stages.finish(worker)
    assert code == 0, err
    assert [[row["sum"] for row in rows] for rows in stages.sums()] == [[0], [1], [2], [3]]
    assert json.loads(out)["ticks"] >= 4
    assert f'tempotrace_events_out_total{{instance="0",stage="merge",tenant="{stages.tenant}"}} 4.0' in text
    assert 'partition="0",stage="merge"' in text


def test_replayed_input_is_not_ticked(stages: Stages) -> None:
    producer = Producer({"bootstrap.servers": stages.bootstrap, "acks": "all"})
    name = topics.topic(stages.tenant, "events")
    origin = b"0,77,1600000000000"
    producer.produce(name, b"[1]", b"scope", 0, headers=[(topics.HEADER_ORIGIN, origin)])
    producer.produce(name, b"[2]", b"scope", 1)
    producer.flush(10)
    with stages.running() as worker:
        stages.await_sums(1, worker)
        stages.fill(2, 3)
        stages.await_sums(2, worker)
    assert [[row["sum"] for row in rows] for rows in stages.sums()] == [[], [2], [2], []]


def test_a_missing_topic_is_named(kafka: Kafka, home: Path) -> None:
    with pytest.raises(MissingTopic, match=r"tempotrace\.nobody\.events.*topics create --tenant nobody"):
        run_stage(Summing(), kafka.settings, "nobody", 0, home, RunnerSettings(drain=True))


def remake(kafka: Kafka, tenant: str, suffix: str) -> None:
    """Delete a topic and make it again."""
    admin = AdminClient({**kafka.settings})
    name = topics.topic(tenant, suffix)
    before = KafkaLog(kafka.settings, Member(tenant, "reader", 0), [suffix])
    topic_id = before.topic_id(suffix)
    before.close()
    admin.delete_topics([name])[name].result(30)
    while name in admin.list_topics(timeout=10).topics:
        pass
    topics_admin.create(kafka.settings, [tenant])
    after = KafkaLog(kafka.settings, Member(tenant, "reader", 0), [suffix])
    assert after.topic_id(suffix) != topic_id
    after.close()


def test_a_topic_made_anew_stops_the_stage_unless_accepted(stages: Stages, kafka: Kafka) -> None:
    stages.fill(0, 20)
    stages.drain()
    remake(kafka, stages.tenant, "events")
    stages.fill(0, 40)
    _, err, code = stages.finish(stages.start("--drain"))
    assert code == 1
    last = err.strip().splitlines()[-1]
    assert last.startswith("LostInput: events/")
    assert "made anew" in last
    assert "--accept-loss" in last
    counters = stages.drain("--accept-loss")
    assert counters["events_in"] == 40
    letters = [value for values in stages.read("deadletter") for value in values]
    assert len(letters) == PARTITIONS
    fresh = [rows[-len(want) :] for rows, want in zip(stages.sums(), stages.expected(40), strict=True)]
    assert fresh == stages.expected(40)


def test_an_accepted_loss_of_a_topic_that_stays_empty_is_told_once(stages: Stages, kafka: Kafka) -> None:
    stages.fill(0, 20)
    stages.drain()
    remake(kafka, stages.tenant, "events")
    with stages.running("--accept-loss") as worker:
        stages.await_ready(worker)
        worker.send_signal(signal.SIGTERM)
        _, err, code = stages.finish(worker)
        assert code == 0, err
    stages.drain()
    letters = [value for values in stages.read("deadletter") for value in values]
    assert len(letters) == PARTITIONS


def test_input_that_retention_took_stops_the_stage_unless_accepted(stages: Stages, kafka: Kafka) -> None:
    stages.fill(0, 12)
    stages.drain()
    stages.fill(12, 36)
    name = topics.topic(stages.tenant, "events")
    admin = AdminClient({**kafka.settings})
    # Each partition: 3 numbers, a flush, 6 numbers. The next to read is offset 4.
    cut = TopicPartition(name, 0, 6)
    admin.delete_records([cut])[cut].result(30)
    _, err, code = stages.finish(stages.start("--drain"))
    assert code == 1
    assert "LostInput: events/0: offsets 4 to 5 are gone, the log begins at 6" in err
    counters = stages.drain("--accept-loss")
    assert counters["lost_records"] == {"events": 2}
    assert counters["events_in"] == 22
    expected = stages.expected(36)
    found = stages.sums()
    assert found[1:] == expected[1:]
    assert [row["sum"] for row in found[0]] == [0 + 4 + 8, 20 + 24 + 28, 32]
    letters = [value for values in stages.read("deadletter") for value in values]
    assert len(letters) == 1
    assert b"offsets 4 to 5 are gone" in letters[0]
