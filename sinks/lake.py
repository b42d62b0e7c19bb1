"""The lake's processor: every topic of a tenant as tables, a record at a time, without losing a column.

It is a stage like any other: records in, outputs out, no file and no clock. An output's topic is the table,
its key the partition folder (tenant, date and hour TAI), its value the Arrow table; sinks.units makes them
count. Rows lie in the folder of their window; dead letters, late rows and the archive in that of the record's
append time; incidents and alerts in that of the onset.
"""

import base64
import json
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import Any, Final

import numpy as np
import pyarrow as pa

from schemas import codec, records, topics
from schemas import columns as c
from schemas.batch import I64
from schemas.errors import MalformedInput, UnknownSchema
from schemas.flat import Array
from schemas.imbalance import Imbalance
from schemas.merged import Merged
from schemas.paths import Paths
from schemas.processor import Output, Record, Ref
from schemas.time import append_to_tai
from sinks import route_rows, route_tables, routes, tables, windows
from sinks.alerts import AlertBook
from sinks.arrow import assemble, constant, gathered, single, texts
from sinks.layout import folder
from sinks.reading import read_one

HEADER_REASON = "tt-reason"  # of a late batch
# Which tables each topic feeds; every topic may give dead letters.
TABLES_OF: dict[str, tuple[str, ...]] = {
    "merged": (
        "events",
        "event_values",
        *(table.name for table in tables.FAMILY_TABLES.values()),
        "edges",
        "windows",
        "clocks",
        "deadletters",
    ),
    "paths": (*(table.name for table in route_tables.ALL), "deadletters"),
    "findings": ("findings", "deadletters"),
    "incidents": ("incidents", "alerts", "deadletters"),
    "late": ("late", "deadletters"),
    "deadletter": ("deadletters",),
    "events": ("archive",),
}
# Where the header counts events that are nowhere else if the record cannot be read.
EVENTS_IN: Final = ("merged", "late", "deadletter")
Piece = tuple[str, int, pa.Table | None]  # table, a moment of its folder, rows


class LakeProcessor:
    """The stage `lake` of one tenant."""

    name = "lake"
    inputs = tuple(TABLES_OF)
    outputs: tuple[str, ...] = tuple(tables.TABLES)
    joins = False

    def __init__(self, tenant: str) -> None:
        self.tenant = tenant

    def start(self, partition: int, snapshot: bytes | None) -> "LakeTask":
        """A task for one partition of any of the inputs. Raises MalformedInput for a broken snapshot."""
        return LakeTask(self.tenant, snapshot)


class LakeTask:
    """One partition of one topic on its way into the lake.

    It keeps what it must not write twice: the states of clocks last written, and the alerts told.
    """

    def __init__(self, tenant: str, snapshot: bytes | None) -> None:
        self._tenant = tenant
        self._next: dict[str, int] = {}
        self._clocks: dict[str, dict[int, int]] = {}  # by scope: clock -> state, as hashes
        self._alerts = AlertBook()
        self._rows: Counter[tuple[str, ...]] = Counter()
        self._lost: Counter[tuple[str, ...]] = Counter()
        self._unreadable: Counter[tuple[str, ...]] = Counter()
        if snapshot:
            self._restore(snapshot)

    @property
    def next_offset(self) -> Mapping[str, int]:
        return self._next

    def process(self, record: Record) -> list[Output]:
        """The tables of one record; one that cannot be read becomes a row of `deadletters`."""
        self._next[record.topic] = record.log_offset + 1
        try:
            pieces = list(self._pieces(record))
        except (MalformedInput, UnknownSchema) as error:
            reason = "unknown_schema" if isinstance(error, UnknownSchema) else "malformed"
            self._unreadable[(reason,)] += 1
            if record.topic == "merged":  # the events of other topics are counted by those who wrote them
                self._lost[(reason,)] += _stated(record)
            pieces = [self._unusable(record, reason, str(error))]
        out = []
        for table, moment_ns, rows in pieces:
            if rows is not None:
                self._rows[(table,)] += rows.num_rows
                out.append(Output(table, folder(self._tenant, moment_ns).encode(), rows))
        return out

    def pending(self) -> bool:
        return False

    def snapshot(self) -> bytes:
        """Where the task stands and what it wrote already: clock states by scope, alerts told."""
        state = {
            "next": self._next,
            "clocks": {
                scope: base64.b64encode(np.array(list(known.items()), np.uint64).tobytes()).decode()
                for scope, known in self._clocks.items()
            },
            "alerts": self._alerts.told,
        }
        return zlib.compress(json.dumps(state, separators=(",", ":")).encode(), 1)

    def refs(self) -> Sequence[Ref]:
        return ()

    def reload(self, record: Record, first: int, last: int) -> None:
        raise AssertionError("the lake's tasks hold no rows between records")

    def counters(self) -> Mapping[str, int | Mapping[tuple[str, ...], int]]:
        """Rows by table; records that could not be read and the events lost with them, by reason."""
        events = self._rows[("events",)]
        return {
            "events_in": events,
            "events_out": events,
            "rows_written": self._rows,
            "deadlettered": self._lost,
            "unreadable": self._unreadable,
        }

    def _restore(self, snapshot: bytes) -> None:
        try:
            state = json.loads(zlib.decompress(snapshot))
            self._next = {str(topic): int(offset) for topic, offset in state["next"].items()}
            for scope, packed in state["clocks"].items():
                pairs = np.frombuffer(base64.b64decode(packed), np.uint64).reshape(-1, 2)
                self._clocks[scope] = {int(clock): int(value) for clock, value in pairs}
            self._alerts = AlertBook(state["alerts"])
        except (ValueError, KeyError, TypeError, zlib.error) as error:
            raise MalformedInput(f"the lake's snapshot cannot be read: {error}") from error

    def _pieces(self, record: Record) -> Iterator[Piece]:
        handlers: dict[str, Callable[[Record], Iterator[Piece]]] = {
            "merged": self._merged,
            "paths": self._paths,
            "findings": self._finding,
            "incidents": self._incident,
            "late": self._late,
            "deadletter": self._deadletter,
            "events": self._archive,
        }
        return handlers[record.topic](record)

    def _merged(self, record: Record) -> Iterator[Piece]:
        part = codec.decode_merged(record.value or b"")
        if isinstance(part, records.Progress):
            if part.closed:
                self._clocks.pop(part.scope, None)
            return
        self._own(part.tenant)
        moment = part.window_start_ns
        p = windows.Part(part)
        yield "events", moment, windows.events(p, topics.topic(self._tenant, "events"))
        yield "event_values", moment, windows.event_values(p)
        for family, table in tables.FAMILY_TABLES.items():
            yield table.name, moment, windows.family(p, family)
        yield "edges", moment, windows.edges(p)
        yield "windows", moment, windows.windows(part)
        yield "clocks", moment, windows.clocks(part, self._changed(part))

    def _changed(self, part: Merged) -> I64:
        """Entries of the part's clock table whose state was not written yet.

        Logs whose stamps have other steps may state one clock, and each its own quantum: by turns they would
        seem to change it in every window.
        """
        data = part.data
        if not part.table_len("clk"):
            return np.empty(0, np.int64)
        words = np.array([_hash(text) for text in part.strings] or [0], np.uint64)
        clock = _mix(_hashed(data["clk_id"], words), data["clk_epoch"].astype(np.uint64))
        clock = _mix(clock, data["clk_quantum_ns"].view(np.uint64))
        state = np.zeros(len(clock), np.uint64)
        for column in c.CLOCKS:
            values = data[column.name]
            text = column.unit == "string"
            bits = _hashed(values, words) if text else values.astype(f"<{values.dtype.kind}8")
            state = _mix(state, bits.view(np.uint64))
        known = self._clocks.setdefault(part.scope, {})
        changed = []
        for place, (key, value) in enumerate(zip(clock.tolist(), state.tolist(), strict=True)):
            if known.get(key) != value:
                known[key] = value
                changed.append(place)
        return np.array(changed, np.int64)

    def _paths(self, record: Record) -> Iterator[Piece]:
        window = codec.decode_paths(record.value or b"")
        if isinstance(window, Paths):
            self._own(window.tenant)
            yield "flows", window.window_start_ns, routes.flows(window)
            yield "links", window.window_start_ns, routes.links(window)
        if isinstance(window, Paths | Imbalance):
            self._own(window.tenant)
            for name, rows in route_rows.tables(window):
                yield name, window.window_start_ns, rows

    def _finding(self, record: Record) -> Iterator[Piece]:
        f = read_one(records.Finding, record)
        self._own(f.tenant)
        row = [f.scope, f.finding_id, f.fault_class, f.component_kind, f.component, f.state, f.confidence]
        row += [f.onset_ns, f.window_start_ns, f.window_end_ns, f.victims, f.evidence]
        row += [f.origin_partition, f.origin_offset, *self._origin(record)]
        yield "findings", f.window_start_ns, single(tables.FINDINGS, row)

    def _incident(self, record: Record) -> Iterator[Piece]:
        i = read_one(records.Incident, record)
        self._own(i.tenant)
        row = [i.incident_id, i.scope, i.fault_class, i.component_kind, i.component, i.confidence, i.onset_ns]
        row += [i.detected_ns, i.resolved_ns, i.victims, i.evidence, i.state, i.findings]
        yield "incidents", i.onset_ns, single(tables.INCIDENTS, [*row, *self._origin(record)])
        alert = self._alerts.take(i)
        if alert is not None:
            a = alert
            row = [a.alert_id, a.incident_id, a.scope, a.state, a.fault_class, a.component_kind, a.component]
            row += [a.confidence, a.onset_ns, a.at_ns, a.text]
            yield "alerts", i.onset_ns, single(tables.ALERTS, [*row, *self._origin(record)])

    def _late(self, record: Record) -> Iterator[Piece]:
        batch = codec.decode_batch(record.value or b"")
        self._own(batch.tenant)
        n, entry = batch.count, batch.column("source")
        if not n:
            return
        reason = (record.header(HEADER_REASON) or b"late").decode(errors="replace")
        topic, partition, offset = self._origin(record)
        rows = assemble(
            tables.LATE,
            [
                constant(batch.scope, n),
                gathered(texts(batch.data["src_name"], batch.strings), entry),
                pa.array(batch.data["src_incarnation"][entry]),
                pa.array(batch.seq()),
                constant(batch.family, n),
                pa.array(batch.raw_ns()),
                constant(reason, n),
                constant(topic, n),
                pa.array(np.full(n, partition, np.int32)),
                pa.array(np.full(n, offset)),
            ],
        )
        yield "late", append_to_tai(record.append_ms), rows

    def _deadletter(self, record: Record) -> Iterator[Piece]:
        d = read_one(records.DeadLetter, record)
        self._own(d.tenant)
        at_ns = append_to_tai(d.append_ms)
        row = [d.reason, d.topic, d.partition, d.offset, at_ns, d.payload, d.detail, d.events, d.inputs]
        yield "deadletters", at_ns, single(tables.DEADLETTERS, row)

    def _unusable(self, record: Record, reason: str, detail: str) -> Piece:
        at_ns = append_to_tai(record.append_ms)
        payload = (record.value or b"")[: records.PAYLOAD_BYTES_MAX]
        row = [reason, *self._origin(record), at_ns, payload, detail, _stated(record), 1]
        return "deadletters", at_ns, single(tables.DEADLETTERS, row)

    def _archive(self, record: Record) -> Iterator[Piece]:
        headers = [{"name": name, "value": value} for name, value in record.headers]
        row = [*self._origin(record), record.append_ms, record.key, headers, record.value]
        yield "archive", append_to_tai(record.append_ms), single(tables.ARCHIVE, row)

    def _own(self, tenant: str) -> None:
        if tenant != self._tenant:
            raise MalformedInput(f"a record of tenant {tenant!r} in a topic of {self._tenant!r}")

    def _origin(self, record: Record) -> list[Any]:
        return [topics.topic(self._tenant, record.topic), record.partition, record.offset]


def _stated(record: Record) -> int:
    """Events lost with a record, as its header says; 0 where it says nothing that a column can hold.

    Findings, incidents and paths are no events, and what cannot be read of `events` is its archive's loss only.
    """
    if record.topic not in EVENTS_IN:
        return 0
    count = record.header(topics.HEADER_COUNT) or b""
    return int(count) if count.isdigit() and len(count) <= 18 else 0


@lru_cache(maxsize=65_536)
def _hash(text: str) -> int:
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "little")


def _hashed(places: Array, words: Array) -> Array:
    """Hashes of the strings at these places of the table; 0 where there is none."""
    found: Array = np.where(places < len(words), words[np.minimum(places, len(words) - 1)], np.uint64(0))
    return found


def _mix(state: Array, bits: Array) -> Array:
    """One round of a 64-bit hash on each element (multiplication by a large odd number, and a fold)."""
    mixed: Array = (state ^ bits) * np.uint64(0x9E3779B97F4A7C15)
    mixed ^= mixed >> np.uint64(29)
    return mixed
