"""Topics on a real broker."""

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from schemas import codec, topics
from schemas.errors import BrokerAway, MissingTopic, Setup
from tempotrace import topics_admin
from tempotrace.broker import process
from tests.conftest import Kafka


def test_creating_again_changes_nothing(kafka: Kafka, tenant: str) -> None:
    again = topics_admin.create(kafka.settings, [tenant])
    assert again.created == []
    assert sorted(again.existing) == sorted(
        [topics.SCHEMAS, *(spec.name for spec in topics.tenant_topics(tenant))]
    )
    found = topics_admin.listing(kafka.settings, tenant)
    assert {info.name: len(info.offsets) for info in found} == {
        spec.name: spec.partitions for spec in topics.tenant_topics(tenant)
    }
    assert all(offset == (0, 0) for info in found for offset in info.offsets)


def test_another_partition_count_is_refused(kafka: Kafka, tenant: str) -> None:
    with pytest.raises(Setup, match="has 4 partitions, 8 are wanted"):
        topics_admin.create(kafka.settings, [tenant], partitions=8)


def test_other_settings_are_refused(kafka: Kafka) -> None:
    name = "tempotrace.crooked.late"
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    admin.create_topics([NewTopic(name, 4)])[name].result(30)
    with pytest.raises(Setup, match=r"crooked\.late has message\.timestamp\.type=CreateTime"):
        topics_admin.create(kafka.settings, ["crooked"])


def test_a_missing_topic_is_named_with_the_way_out(kafka: Kafka, tenant: str) -> None:
    present = topics.topic(tenant, "events")
    assert topics_admin.check_exist(kafka.settings, [present]) == {present: 4}
    with pytest.raises(MissingTopic, match=r"no topic tempotrace\.nobody\.events .*create --tenant nobody"):
        topics_admin.check_exist(kafka.settings, [present, "tempotrace.nobody.events"])


def test_schemas_are_published_once(kafka: Kafka, tenant: str) -> None:
    assert tenant
    topics_admin.publish_schemas(kafka.settings)
    assert topics_admin.publish_schemas(kafka.settings) == 0
    assert topics_admin.published_schemas(kafka.settings) == {
        fingerprint.to_bytes(8, "little"): text.encode() for fingerprint, text in codec.shipped()
    }


def test_no_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topics_admin, "ANSWER_SECONDS_MAX", 1.0)
    port = process.free_ports(1)[0]
    with pytest.raises(BrokerAway, match=f"no broker answers at 127.0.0.1:{port} .*refused.*broker start"):
        topics_admin.Cluster({"bootstrap.servers": f"127.0.0.1:{port}"}, seconds=1).partitions()
