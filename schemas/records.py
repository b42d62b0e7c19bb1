"""Records of the low-rate topics: one plain Avro record each, and their Python form.

Times are int64 ns TAI. `evidence` is JSON: what a person needs to believe the claim.
"""

from dataclasses import MISSING, asdict, dataclass, fields
from typing import Any, TypeVar, get_type_hints

_AVRO: dict[Any, Any] = {
    int: "long",
    float: "double",
    str: "string",
    bytes: "bytes",
    bool: "boolean",
    list[str]: {"type": "array", "items": "string"},
    list[int]: {"type": "array", "items": "long"},
    int | None: ["null", "long"],
    float | None: ["null", "double"],
    str | None: ["null", "string"],
}


@dataclass(frozen=True, kw_only=True)
class Row:
    """Base of the low-rate records."""


@dataclass(frozen=True, kw_only=True)
class Progress(Row):
    """How far a scope has come on this topic: every window that ends at or before `released_to_ns` is out."""

    tenant: str
    scope: str
    released_to_ns: int  # ns TAI
    closed: bool  # no window of this scope follows, unless a live source comes back
    first_offset: int  # input range since the last record of this scope
    last_offset: int
    duplicates: int  # rows dropped since then, by reason
    gaps: int
    unmatched: list[int]  # endpoints given up since then: cause and effect for each edge kind in turn
    incomplete: int  # collectives given up with members missing


@dataclass(frozen=True, kw_only=True)
class Finding(Row):
    """What a rule or the model holds of one component in one window."""

    tenant: str
    scope: str
    finding_id: str
    fault_class: str  # straggler, clock_fault, ...
    component_kind: str  # rank, clock, link, ...
    component: str
    state: str  # "present" or "absent": absent lets an incident resolve
    confidence: float  # 0 to 1
    onset_ns: int
    window_start_ns: int
    window_end_ns: int
    victims: list[str]
    evidence: str
    origin_partition: int
    origin_offset: int


@dataclass(frozen=True, kw_only=True)
class Incident(Row):
    """The state of an incident after the last finding that touched it."""

    tenant: str
    incident_id: str
    scope: str
    fault_class: str
    component_kind: str
    component: str
    state: str  # open, update, resolve
    confidence: float
    onset_ns: int
    detected_ns: int
    resolved_ns: int | None
    victims: list[str]
    evidence: str
    findings: int  # that it rests on
    through_ns: int  # end of the last window that one of them is about
    origin_partition: int
    origin_offset: int


@dataclass(frozen=True, kw_only=True)
class Policy(Row):
    """An Application Confidence Policy as published, whole."""

    tenant: str
    name: str
    version: int
    text: str


@dataclass(frozen=True, kw_only=True)
class DeadLetter(Row):
    """An input record, or part of one, that could not be used."""

    tenant: str
    reason: str
    detail: str
    topic: str
    partition: int
    offset: int
    append_ms: int
    events: int  # events it held, as far as its header said
    payload: bytes  # the first 64 KiB
    inputs: int = 1  # records or datagrams that it stands for


T = TypeVar("T", bound=Row)
TYPES: dict[str, type[Row]] = {
    kind.__name__: kind for kind in (Progress, Finding, Incident, Policy, DeadLetter)
}
PAYLOAD_BYTES_MAX = 64 * 1024


def _avsc(kind: type[Row]) -> dict[str, Any]:
    hints = get_type_hints(kind)
    return {
        "type": "record",
        "name": kind.__name__,
        "namespace": "org.tempotrace.v1",
        "doc": " ".join((kind.__doc__ or "").split()),
        "fields": [
            {"name": entry.name, "type": _AVRO[hints[entry.name]]}
            | ({} if entry.default is MISSING else {"default": entry.default})
            for entry in fields(kind)
        ],
    }


SCHEMAS: dict[str, dict[str, Any]] = {name: _avsc(kind) for name, kind in TYPES.items()}


def write(record: Row) -> dict[str, Any]:
    """The record as Avro wants it."""
    return asdict(record)


def read(kind: type[T], value: Any) -> T:
    """The Python form of a decoded record of this type."""
    return kind(**{entry.name: value[entry.name] for entry in fields(kind)})
