"""The lake's tables. One definition serves the writer, the empty seed files, the views and the docs.

Times are int64 ns TAI. Codes are written as the lower-case names of schemas.columns; a code that this version
does not know as its number. Columns are only ever appended (see sinks.layout).
"""

from enum import IntEnum

import pyarrow as pa

from schemas import columns as c
from sinks import route_tables
from sinks.layout import BLOB, BOOL, F64, HEADERS, I32, I64, SCOPE, TEXT, U8, U64, WINDOW, Field, Table

_EVENT = (
    Field("source", TEXT, "source of the event"),
    Field("incarnation", I64, "incarnation of the source", repeats=True),
    Field("seq", I64, "sequence number in (source, incarnation)"),
)
_ORIGIN = (
    Field("topic", TEXT, "topic of the input record"),
    Field("partition", I32, "its partition"),
    Field("log_offset", I64, "its offset"),
)
_FOUND = (
    Field(
        "victims", pa.list_(TEXT), "who suffers, longest wait first; 8 at most, all are counted in evidence"
    ),
    Field("evidence", TEXT, "why, as JSON: `victims_total`; `peers`, 16 at most, `peers_total`; ..."),
)


def _point(role: str) -> tuple[Field, ...]:
    return (
        Field(f"{role}_source", TEXT, f"source of the {role}"),
        Field(f"{role}_incarnation", I64, f"incarnation of the {role}'s source", repeats=True),
        Field(f"{role}_seq", I64, f"sequence number of the {role}"),
        Field(f"{role}_point", U8, f"point of the {role}: 0 begin, 1 end"),
    )


EVENTS = Table(
    "events",
    "Every event in causal order.",
    (
        SCOPE,
        WINDOW,
        Field("row", I64, "place in the window"),
        *_EVENT,
        Field("family", TEXT, "gpu, probe, clock, int, fabric"),
        Field("kind", TEXT, "the family's kind of event"),
        Field("entity", TEXT, "component that the event is about"),
        Field("name", TEXT, "what happened"),
        Field("raw_ns", I64, "stamp as read, on the event's own clock"),
        Field("time_ns", I64, "begin as mapped to TAI"),
        Field("bound_ns", I64, "greatest error of time_ns against TAI; null if unknown"),
        Field("order_ns", I64, "begin in the causal order"),
        Field("order_end_ns", I64, "end in the causal order"),
        Field("duration_ns", I64, "length on the event's own clock; 0 one point; null: the end is unknown"),
        Field("host", TEXT, "host of the source"),
        Field("rank", I32, "rank of the source"),
        Field("clock_id", TEXT, "clock that stamped the event"),
        Field("clock_epoch", I32, "epoch of that clock"),
        *_point("cause"),
        Field("verdict", TEXT, "verdict of the edge from the binding cause; null without one"),
        *_ORIGIN,
    ),
)
EVENT_VALUES = Table(
    "event_values",
    "The numbers that events carry.",
    (SCOPE, *_EVENT, Field("name", TEXT, "name of the number"), Field("value", F64, "the number")),
)


# Codes of families' own columns that the lake writes as names.
CODES: dict[str, type[IntEnum]] = {
    "StampKind": c.StampKind,
    "CounterState": c.CounterState,
    "SportSource": c.SportSource,
    "PathSource": c.PathSource,
}


def _own(column: c.Column) -> Field:
    text = column.unit == "string" or column.unit in CODES
    kind = TEXT if text else F64 if column.dtype == "<f8" else U64 if column.dtype == "<u8" else I64
    return Field(column.name, kind, column.doc if column.unit == "1" else f"{column.doc} ({column.unit})")


def _family(name: str, family: str, doc: str) -> Table:
    common = (
        Field("time_ns", I64, "begin as mapped to TAI"),
        Field("kind", TEXT, "the family's kind of event"),
        Field("entity", TEXT, "component that the event is about"),
    )
    return Table(name, doc, (SCOPE, *_EVENT, *common, *map(_own, c.FAMILIES[family])))


# One table for each family with own columns.
FAMILY_TABLES = {
    "gpu": _family("gpu_events", "gpu", "What only GPU events have."),
    "probe": _family("probes", "probe", "What only probes have."),
    "clock": _family("clock_samples", "clock", "What clocks' daemons measured and said."),
    "int": _family("hops", "int", "In-band telemetry, one row a hop."),
    "fabric": _family("fabric_samples", "fabric", "Counters of ports, flows of hosts, and paths walked."),
}
EDGES = Table(
    "edges",
    "Causal edges with the verdict of time; a collective has one row a member.",
    (
        SCOPE,
        WINDOW,
        Field("kind", TEXT, "message, launch, sync, packet, collective"),
        Field("group_name", TEXT, "process group of a collective"),
        Field("op", TEXT, "operation of a collective"),
        Field("match_key", U64, "equal on both sides"),
        *_point("cause"),
        *_point("effect"),
        Field("gap_ns", I64, "effect - cause by mapped time"),
        Field("diff_bound_ns", I64, "bound between the two clocks; null if none is known"),
        Field("verdict", TEXT, "proven, inferred, concurrent, violated"),
        Field("assumed", BOOL, "whether the match rests on an assumption"),
        Field("cause_rank", I32, "rank of the cause's source"),
        Field("effect_rank", I32, "rank of the effect's source"),
        Field("effect_ns", I64, "mapped time of the effect's point"),
        Field("effect_duration_ns", I64, "the effect's duration on its own clock"),
        Field("size", I64, "members of the collective that took part"),
        Field("missing", I64, "members expected that are missing"),
        Field("cause_clock", TEXT, "clock that stamped the cause"),
        Field("effect_clock", TEXT, "clock that stamped the effect"),
    ),
)
WINDOWS = Table(
    "windows",
    "One row a released window.",
    (
        SCOPE,
        WINDOW,
        Field("window_end_ns", I64, "end of the window"),
        Field("rows", I64, "rows in the window"),
        Field("late", I64, "rows that came too late since the window before"),
        Field("released_past", I64, "sources that the window did not wait for"),
        Field("inversions_raw", I64, "edges whose effect lies before the cause as mapped, over all kinds"),
        Field("inversions_after", I64, "the same after repair, over all kinds"),
        Field("edges_unrepaired", I64, "edges whose effect had left when the cause became known"),
        Field("mode", TEXT, "effective mode of the scope's policy"),
        Field("policy_version", I64, "version of the policy applied; 0 for none"),
        Field("first_offset", I64, "input record after those of the window before"),
        Field("last_offset", I64, "last input record taken before the release"),
        Field("partition", I32, "partition of the input"),
        *(
            Field(f"inversions_{when}_{kind.name.lower()}", I64, f"the same, {kind.name.lower()} edges alone")
            for when in ("raw", "after")
            for kind in c.EdgeKind
        ),
    ),
)
CLOCKS = Table(
    "clocks",
    "States of clocks as the merge applied them: a row for a window in which any column differs from the row before "
    "of the same clock, epoch and quantum_ns. Bounds that are measured are estimated anew with each window that has "
    "samples, so such a clock has about a row a window; logs that stamp in other steps have states of their own.",
    (
        SCOPE,
        Field("clock_id", TEXT, "the clock"),
        Field("epoch", I32, "epoch of the clock"),
        Field("parent", TEXT, "clock that it was measured against"),
        Field("as_of_ns", I64, "when bound_ns held, on this clock"),
        Field("kind", TEXT, "what disciplines the clock"),
        Field("status", TEXT, "whether the discipline holds"),
        Field("offset_ns", I64, "clock - parent at the reference reading: positive is ahead"),
        Field("rate_ppb", F64, "parent's rate over this clock's, less one"),
        Field("bound_ns", I64, "greatest error against the parent; null if unknown"),
        Field("growth_ppb", F64, "growth of the bound away from as_of_ns"),
        Field("assurance", TEXT, "what the bound rests on"),
        Field("provenance", TEXT, "who says so"),
        Field("window_start_ns", I64, "first window that the state was applied to"),
        Field("timescale", TEXT, "what the readings count"),
        Field("epsilon", F64, "probability that a statistical bound is exceeded"),
        Field("quantum_ns", I64, "step of a reading"),
        Field("tai_bound_ns", I64, "greatest error against TAI; null if none is known"),
    ),
)
FINDINGS = Table(
    "findings",
    "What rules and the model held of one component in one window.",
    (
        SCOPE,
        Field("finding_id", TEXT, "identity of the finding"),
        Field("class", TEXT, "class of the fault"),
        Field("component_kind", TEXT, "rank, clock, link, ..."),
        Field("component", TEXT, "the component"),
        Field("state", TEXT, "present or absent"),
        Field("confidence", F64, "0 to 1"),
        Field("onset_ns", I64, "when it began"),
        WINDOW,
        Field("window_end_ns", I64, "end of the window"),
        *_FOUND,
        Field("origin_partition", I32, "partition of the record that it rests on"),
        Field("origin_offset", I64, "its offset"),
        *_ORIGIN,
    ),
)
INCIDENTS = Table(
    "incidents",
    "Incidents: the view shows each as it stands, `incident_updates` every change.",
    (
        Field("incident_id", TEXT, "identity of the incident"),
        SCOPE,
        Field("class", TEXT, "class of the fault"),
        Field("component_kind", TEXT, "rank, clock, link, ..."),
        Field("component", TEXT, "the component"),
        Field("confidence", F64, "0 to 1"),
        Field("onset_ns", I64, "when it began"),
        Field("detected_ns", I64, "when it was detected"),
        Field("resolved_ns", I64, "when it was resolved; null while it lasts"),
        *_FOUND,
        Field("state", TEXT, "open, update, resolve"),
        Field("findings", I64, "findings that it rests on"),
        *_ORIGIN,
    ),
)
ALERTS = Table(
    "alerts",
    "What operators were told: an incident opened or resolved.",
    (
        Field("alert_id", TEXT, "incident and state"),
        Field("incident_id", TEXT, "the incident"),
        SCOPE,
        Field("state", TEXT, "open or resolve"),
        Field("class", TEXT, "class of the fault"),
        Field("component_kind", TEXT, "rank, clock, link, ..."),
        Field("component", TEXT, "the component"),
        Field("confidence", F64, "0 to 1"),
        Field("onset_ns", I64, "when the fault began"),
        Field("at_ns", I64, "when it was detected, or resolved"),
        Field("text", TEXT, "one line for people"),
        *_ORIGIN,
    ),
)
LATE = Table(
    "late",
    "Events that came too late for their window.",
    (
        SCOPE,
        *_EVENT,
        Field("family", TEXT, "gpu, probe, clock, int, fabric"),
        Field("raw_ns", I64, "stamp as read"),
        Field("reason", TEXT, "why it was late"),
        *_ORIGIN,
    ),
)
DEADLETTERS = Table(
    "deadletters",
    "Input that could not be used.",
    (
        Field("reason", TEXT, "why, as a short code"),
        *_ORIGIN,
        Field("at_ns", I64, "when the broker took the record"),
        Field("payload", BLOB, "the first 64 KiB of the record"),
        Field("detail", TEXT, "why, in words"),
        Field("events", I64, "events that are neither in the lake nor late because of it, as far as known"),
        Field("inputs", I64, "records or datagrams that the letter stands for"),
    ),
)
ARCHIVE = Table(
    "archive",
    "Every input record as it came, control records too, for replay.",
    (
        *_ORIGIN,
        Field("append_ms", I64, "append time of the broker, Unix ms"),
        Field("key", BLOB, "key of the record"),
        Field("headers", HEADERS, "headers in order"),
        Field("value", BLOB, "value of the record"),
    ),
)
TABLES: dict[str, Table] = {
    table.name: table
    for table in (
        EVENTS, EVENT_VALUES, *FAMILY_TABLES.values(), EDGES, WINDOWS, CLOCKS, *route_tables.ALL,
        FINDINGS, INCIDENTS, ALERTS, LATE, DEADLETTERS, ARCHIVE,
    )
}  # fmt: skip
