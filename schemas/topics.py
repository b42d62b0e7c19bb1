"""Names, settings and headers of the Kafka topics (the contract).

A tenant owns nine topics `tempotrace.<tenant>.<suffix>`, and one that Faust keeps its incidents table in. The
topic `tempotrace.schemas` belongs to the operator. What one tenant writes stays in that tenant's topics.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from schemas.errors import MalformedInput, Usage

PREFIX: Final = "tempotrace"
SCHEMAS: Final = "tempotrace.schemas"
SUFFIXES: Final = (
    "events",
    "merged",
    "paths",
    "findings",
    "incidents",
    "policies",
    "late",
    "deadletter",
    "state",
)
DEFAULT_TENANT: Final = "default"
SCOPE_CHARS_MAX: Final = 200
FABRIC_TENANT: Final = "fabric"  # the operator's own
PARTITIONS: Final = 4

# Every producer, Java's and Faust's too, finds the same partition for a scope.
PARTITIONER: Final = "murmur2_random"

# Batches are cut at BATCH_BYTES_MAX before compression; topics leave room for what cannot be cut.
BATCH_BYTES_MAX: Final = 512 * 1024
MESSAGE_BYTES_MAX: Final = 4 * 1024 * 1024
STATE_SEGMENT_BYTES: Final = 64 * 1024 * 1024

APPEND_MS_MAX: Final = 9 * 10**12  # in the year 2255: as ns it still fits int64

HEADER_FAMILY: Final = "tt-family"
HEADER_COUNT: Final = "tt-count"
HEADER_SCOPE: Final = "tt-scope"
HEADER_ORIGIN: Final = "tt-origin"

# `schemas` is no tenant: `tempotrace.schemas` and `tempotrace.schemas.events` would share a prefixed ACL.
_RESERVED: Final = frozenset({"schemas"})
_TENANT: Final = re.compile(r"[a-z0-9](?:[a-z0-9_-]{0,62}[a-z0-9])?")
_ORIGIN: Final = re.compile(rb"(\d{1,10}),(\d{1,19}),(\d{1,19})")


@dataclass(frozen=True)
class TopicSpec:
    """A topic as it must be: name, partition count and the settings that we rely on."""

    name: str
    partitions: int
    settings: dict[str, str] = field(default_factory=dict)


class Origin(NamedTuple):
    """Where a replayed record stood in the log that it was archived from; append_ms is Unix milliseconds."""

    partition: int
    offset: int
    append_ms: int


def check_tenant(tenant: str) -> str:
    """The tenant's name, if it can be one: 1 to 64 of a-z, 0-9, - and _, no - or _ at either end.

    No dot, so that no tenant's prefix `tempotrace.<tenant>.` covers another's. Raises Usage.
    """
    if tenant in _RESERVED:
        raise Usage(f"the tenant name {tenant!r} is reserved: choose another")
    if not _TENANT.fullmatch(tenant):
        raise Usage(
            f"{tenant!r} is no tenant name: use 1 to 64 of a-z, 0-9, - and _, a letter or digit at both ends"
        )
    return tenant


def check_scope(scope: str) -> str:
    """The scope's name, if it can be one: 1 to 200 characters, all of them printable, no blank at an end.

    Raises Usage.
    """
    if not 1 <= len(scope) <= SCOPE_CHARS_MAX or not scope.isprintable() or scope != scope.strip():
        raise Usage(f"{scope!r} is no name of a scope: use 1 to {SCOPE_CHARS_MAX} printable characters")
    return scope


def topic(tenant: str, suffix: str) -> str:
    """Full name of a tenant's topic. Raises Usage for a bad tenant; an unknown suffix is our bug."""
    assert suffix in SUFFIXES, suffix
    return f"{PREFIX}.{check_tenant(tenant)}.{suffix}"


def suffix_of(name: str, tenant: str) -> str:
    """Inverse of topic(). The name must be one of this tenant's topics."""
    suffix = name.removeprefix(f"{PREFIX}.{tenant}.")
    assert suffix in SUFFIXES, name
    return suffix


def incidents_app(tenant: str) -> str:
    """Id of the tenant's Faust application, which is also its consumer group."""
    return f"{PREFIX}.{check_tenant(tenant)}.incidents"


def incidents_changelog(tenant: str) -> str:
    """Topic in which Faust keeps the table `incidents` of that application, by Faust's own naming."""
    return f"{incidents_app(tenant)}-incidents-changelog"


def tenant_topics(tenant: str, partitions: int = PARTITIONS) -> tuple[TopicSpec, ...]:
    """All topics of a tenant. Their partition counts are equal, as stages write to the input's partition.

    `policies` has one: it is a registry, and each change is copied to every partition of `events`.
    Raises Usage.
    """
    if not 1 <= partitions <= 1024:
        raise Usage(f"{partitions} partitions: choose 1 to 1024")
    specs = [
        TopicSpec(topic(tenant, suffix), 1 if suffix == "policies" else partitions, _settings(suffix))
        for suffix in SUFFIXES
    ]
    specs.append(TopicSpec(incidents_changelog(tenant), partitions, _settings("changelog")))
    return tuple(specs)


def schemas_topic() -> TopicSpec:
    """The topic of published schemas, compacted by fingerprint."""
    return TopicSpec(SCHEMAS, 1, _settings("schemas"))


def _settings(suffix: str) -> dict[str, str]:
    # Event time is in the payload only. With the producer's time a topic would refuse or expire old traces.
    settings = {
        "message.timestamp.type": "LogAppendTime",
        "max.message.bytes": str(MESSAGE_BYTES_MAX),
        "cleanup.policy": "compact" if suffix in {"policies", "schemas", "state", "changelog"} else "delete",
    }
    if suffix == "state":
        # Only closed segments are compacted, and a restart needs no more than the last snapshot.
        settings["segment.bytes"] = str(STATE_SEGMENT_BYTES)
    return settings


def batch_headers(family: str, count: int, scope: str) -> list[tuple[str, bytes]]:
    """Headers of a batch: they tell a reader whether to decode it, and how much is lost if it cannot."""
    return [
        (HEADER_FAMILY, family.encode()),
        (HEADER_COUNT, str(count).encode()),
        (HEADER_SCOPE, scope.encode()),
    ]


def parse_origin(value: bytes) -> Origin:
    """Origin in the header `tt-origin`: three decimal numbers with commas between. Raises MalformedInput."""
    match = _ORIGIN.fullmatch(value)
    if match is None:
        raise MalformedInput("a tt-origin header is no partition,offset,append_ms", repr(value[:80]))
    origin = Origin(*(int(number) for number in match.groups()))
    if origin.partition >= 2**31 or origin.offset >= 2**63 or origin.append_ms > APPEND_MS_MAX:
        raise MalformedInput("a tt-origin header holds what no log can", repr(value[:80]))
    return origin


def origin_of(headers: Iterable[tuple[str, bytes]] | None) -> Origin | None:
    """The record's origin if it was replayed, else None. Raises MalformedInput."""
    for name, value in headers or ():
        if name == HEADER_ORIGIN:
            return parse_origin(value)
    return None


def names(specs: Sequence[TopicSpec]) -> list[str]:
    """Just the names, in the same order."""
    return [spec.name for spec in specs]
