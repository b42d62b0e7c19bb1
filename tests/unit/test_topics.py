"""Names, settings and headers of topics."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas import topics
from schemas.errors import MalformedInput, Usage
from schemas.topics import Origin


def test_a_tenant_has_nine_topics_and_the_changelog_of_faust() -> None:
    found = {spec.name: spec.partitions for spec in topics.tenant_topics("blue", 6)}
    assert found == {
        "tempotrace.blue.events": 6,
        "tempotrace.blue.merged": 6,
        "tempotrace.blue.paths": 6,
        "tempotrace.blue.findings": 6,
        "tempotrace.blue.incidents": 6,
        "tempotrace.blue.policies": 1,
        "tempotrace.blue.late": 6,
        "tempotrace.blue.deadletter": 6,
        "tempotrace.blue.state": 6,
        "tempotrace.blue.incidents-incidents-changelog": 6,
    }


def test_settings_by_topic() -> None:
    common = {"message.timestamp.type": "LogAppendTime", "max.message.bytes": "4194304"}
    found = {spec.name.rsplit(".", 1)[1]: spec.settings for spec in topics.tenant_topics("blue")}
    for suffix in ("events", "merged", "paths", "findings", "incidents", "late", "deadletter"):
        assert found[suffix] == {**common, "cleanup.policy": "delete"}
    for suffix in ("policies", "incidents-incidents-changelog"):
        assert found[suffix] == {**common, "cleanup.policy": "compact"}
    assert found["state"] == {**common, "cleanup.policy": "compact", "segment.bytes": "67108864"}
    assert topics.schemas_topic().settings == {**common, "cleanup.policy": "compact"}


@pytest.mark.parametrize("name", ["default", "fabric", "a", "team-7_x", "0", "x" * 64])
def test_good_tenant_names(name: str) -> None:
    assert topics.check_tenant(name) == name


@pytest.mark.parametrize(
    "name", ["", "A", "a.b", "-a", "a-", "_a", "x" * 65, "a b", "é", "schemas", "a/b", "..", "a\n"]
)
def test_bad_tenant_names(name: str) -> None:
    with pytest.raises(Usage):
        topics.topic(name, "events")


def test_no_tenant_prefix_covers_another_tenants_topics() -> None:
    every = [topics.topic(tenant, "events") for tenant in ("a", "aa", "a-b", "schemas2")]
    assert [name for name in every if name.startswith("tempotrace.a.")] == ["tempotrace.a.events"]


def test_partition_count_has_limits() -> None:
    with pytest.raises(Usage):
        topics.tenant_topics("blue", 0)


def test_suffix_of() -> None:
    assert [topics.suffix_of(topics.topic("blue", s), "blue") for s in topics.SUFFIXES] == list(
        topics.SUFFIXES
    )


@given(
    st.builds(
        Origin,
        st.integers(0, 2**31 - 1),
        st.integers(0, 2**63 - 1),
        st.integers(0, topics.APPEND_MS_MAX),
    )
)
def test_origin_round_trip(origin: Origin) -> None:
    headers = [*topics.batch_headers("gpu", 500, "job"), ("tt-origin", b"%d,%d,%d" % origin)]
    assert topics.origin_of(headers) == origin


@given(st.binary(max_size=60))
def test_any_bytes_are_an_origin_or_malformed(value: bytes) -> None:
    with contextlib.suppress(MalformedInput):
        origin = topics.parse_origin(value)
        assert topics.parse_origin(b"%d,%d,%d" % origin) == origin


@pytest.mark.parametrize(
    "value", [b"", b"1,2", b"1,2,3,4", b"-1,2,3", b"1, 2,3", b"1,2,3\n", "١,2,3".encode()]
)
def test_malformed_origins(value: bytes) -> None:
    with pytest.raises(MalformedInput):
        topics.parse_origin(value)


def test_headers_of_a_batch() -> None:
    assert topics.batch_headers("probe", 0, "job/1") == [
        ("tt-family", b"probe"),
        ("tt-count", b"0"),
        ("tt-scope", b"job/1"),
    ]
    assert topics.origin_of(None) is None
