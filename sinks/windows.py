"""Windows of events as Arrow tables: pure functions, one call a record, whole arrays at a time.

Each function gives the columns of one table of sinks.tables, in its order; a table without rows is None.
String columns come as dictionaries that hold just the strings in use, so that the pieces of a unit can be
joined cheaply.
"""

from functools import cached_property

import numpy as np
import pyarrow as pa

from schemas import columns as c
from schemas.batch import I64
from schemas.flat import Array
from schemas.merged import Merged
from schemas.time import TAI, utc_to_tai
from sinks import tables
from sinks.arrow import (
    assemble,
    code_names,
    constant,
    floats,
    gathered,
    integers,
    names,
    narrow,
    nulls,
    single,
    texts,
)

_KINDS = tuple(c.KINDS)
_KIND_NAMES = tuple(name for family in _KINDS for name in (*code_names(c.KINDS[family]), ""))
U64_NULL = 2**64 - 1


class Part:
    """A part of a merged window with what several of its tables need. Row columns have shape (count,)."""

    def __init__(self, part: Merged) -> None:
        self.part = part
        self.data = part.data
        self.entry = part.entry if len(part) else np.empty(0, np.intp)
        self.seq = part.seq()
        self.time_ns = part.time_ns()
        self.incarnation: I64 = part.data.get("src_incarnation", np.empty(0, np.int64))
        self.clock = texts(part.data.get("clk_id", np.empty(0, "<u2")), part.strings)
        self.epoch: Array = part.data.get("clk_epoch", np.empty(0, "<i4"))
        self.source = texts(part.data.get("src_name", np.empty(0, "<u2")), part.strings)

    def text(self, column: str, rows: int) -> pa.Array:
        """A string column of the record; all null where it is absent."""
        places = self.data.get(column)
        return nulls(rows, pa.string()) if places is None else texts(places, self.part.strings)

    def by_source(self, column: str) -> pa.Array:
        """A string column of the source table, on every row."""
        return gathered(texts(self.data[column], self.part.strings), self.entry)

    def identity(self, rows: Array) -> list[pa.Array]:
        """scope, source, incarnation and seq of these rows."""
        entry = self.entry.take(rows)
        return [
            constant(self.part.scope, len(rows)),
            gathered(self.source, entry),
            pa.array(self.incarnation.take(entry)),
            pa.array(self.seq.take(rows)),
        ]

    @cached_property
    def kinds(self) -> pa.DictionaryArray:
        """The kind of each row in words, by its source's family."""
        family = [
            _KINDS.index(name) if (name := self.part.text(int(at))) in _KINDS else 0
            for at in self.data["src_family"]
        ]
        code = (np.array(family, np.int32) * (c.NULL_U8 + 1)).take(self.entry) + self.data["kind"]
        code[self.data["kind"] == c.NULL_U8] = c.NULL_U16
        return texts(code, _KIND_NAMES)


def events(p: Part, topic: str) -> pa.Table | None:
    """The table `events`; `topic` is the name of the input topic."""
    part, data, n = p.part, p.data, len(p.part)
    if not n:
        return None
    entry = p.entry
    clock = data["src_clock"].astype(np.intp).take(entry)
    taken = data["input"].astype(np.intp)
    every = np.arange(n)
    first = int(part.header["first_row"])
    return assemble(
        tables.EVENTS,
        [
            constant(part.scope, n),
            pa.array(np.full(n, part.window_start_ns)),
            pa.array(first + every),
            gathered(p.source, entry),
            pa.array(p.incarnation.take(entry)),
            pa.array(p.seq),
            p.by_source("src_family"),
            p.kinds,
            texts(data["entity"], part.strings),
            texts(data["name"], part.strings),
            pa.array(part.raw_ns()),
            pa.array(p.time_ns),
            integers(part.bound_ns()),
            pa.array(part.order_ns()),
            pa.array(part.order_end_ns()),
            integers(part.wide("duration_ns")),
            p.by_source("src_host"),
            narrow(data["src_rank"].take(entry), c.NULL_I32, pa.int32()),
            gathered(p.clock, clock),
            narrow(np.append(p.epoch, c.NULL_I32).take(clock, mode="clip"), c.NULL_I32, pa.int32()),
            *_causes(p),
            constant(topic, n),
            pa.array(data["in_partition"].take(taken)),
            pa.array(data["in_offset"].take(taken)),
        ],
    )


def _causes(p: Part) -> list[pa.Array]:
    """cause_source, cause_incarnation, cause_seq, cause_point, verdict: null on rows without a cause."""
    n = len(p.part)
    if not p.part.table_len("cause"):
        kinds = (pa.string(), pa.int64(), pa.int64(), pa.uint8(), pa.string())
        return [nulls(n, kind) for kind in kinds]
    at = p.data["cause_row"].astype(np.intp)
    missing = np.ones(n, bool)
    missing[at] = False

    def spread(values: Array) -> pa.Array:
        wide = np.zeros(n, values.dtype)
        wide[at] = values
        return pa.array(wide, mask=missing)

    def words(column: pa.DictionaryArray) -> pa.Array:
        return pa.DictionaryArray.from_arrays(spread(column.indices.to_numpy()), column.dictionary)

    source = p.data["cause_source"].astype(np.intp)
    return [
        words(gathered(p.source, source)),
        spread(p.incarnation.take(source)),
        spread(p.data["cause_seq"]),
        spread(p.data["cause_point"]),
        words(names(p.data["cause_verdict"], c.Verdict)),
    ]


def event_values(p: Part) -> pa.Table | None:
    """The table `event_values`."""
    if not p.part.table_len("val"):
        return None
    rows = p.data["val_row"].astype(np.intp)
    return assemble(
        tables.EVENT_VALUES,
        [*p.identity(rows), texts(p.data["val_name"], p.part.strings), floats(p.data["val"])],
    )


def family(p: Part, name: str) -> pa.Table | None:
    """The table of one family's own columns."""
    rows = p.data.get(f"{name}_row")
    if rows is None or not len(rows):
        return None
    rows = rows.astype(np.intp)
    entity = texts(p.data["entity"].take(rows), p.part.strings)
    own = [_own(p, name, column, len(rows)) for column in c.FAMILIES[name]]
    return assemble(
        tables.FAMILY_TABLES[name],
        [*p.identity(rows), pa.array(p.time_ns.take(rows)), p.kinds.take(pa.array(rows)), entity, *own],
    )


def _own(p: Part, name: str, column: c.Column, rows: int) -> pa.Array:
    key = f"{name}_{column.name}"
    packed = p.data.get(key)
    if packed is None or not len(packed):
        kind = next(f.type for f in tables.FAMILY_TABLES[name].fields if f.name == column.name)
        return nulls(rows, kind)
    if column.unit == "string":
        return texts(packed, p.part.strings)
    if column.unit in tables.CODES:
        return names(packed, tables.CODES[column.unit])
    if column.dtype == "<f8":
        return floats(packed)
    if column.dtype == "<u8":
        return narrow(packed, U64_NULL, pa.uint64())
    return integers(p.part.wide(key))


def edges(p: Part) -> pa.Table | None:
    """The table `edges`."""
    n, data = p.part.table_len("edge"), p.data
    if not n:
        return None
    cause, effect = (data[f"edge_{role}_source"].astype(np.intp) for role in ("cause", "effect"))
    rank = data["src_rank"]
    return assemble(
        tables.EDGES,
        [
            constant(p.part.scope, n),
            pa.array(np.full(n, p.part.window_start_ns)),
            names(data["edge_kind"], c.EdgeKind),
            texts(data["edge_group"], p.part.strings),
            names(data["edge_op"], c.Op),
            pa.array(data["edge_key"]),
            gathered(p.source, cause),
            pa.array(p.incarnation.take(cause)),
            pa.array(data["edge_cause_seq"]),
            pa.array(data["edge_cause_point"]),
            gathered(p.source, effect),
            pa.array(p.incarnation.take(effect)),
            pa.array(data["edge_effect_seq"]),
            pa.array(data["edge_effect_point"]),
            pa.array(data["edge_gap_ns"]),
            integers(data["edge_bound_ns"]),
            names(data["edge_verdict"], c.Verdict),
            pa.array(data["edge_assumed"] != 0),
            narrow(rank.take(cause), c.NULL_I32, pa.int32()),
            narrow(rank.take(effect), c.NULL_I32, pa.int32()),
            pa.array(data["edge_effect_ns"]),
            integers(data["edge_effect_duration_ns"]),
            narrow(data["edge_size"], c.NULL_U32, pa.int64()),
            narrow(data["edge_missing"], c.NULL_U32, pa.int64()),
            gathered(p.clock, data["edge_cause_clock"]),
            gathered(p.clock, data["edge_effect_clock"]),
        ],
    )


def windows(part: Merged) -> pa.Table | None:
    """The table `windows`: one row, from the window's first part."""
    head = part.header
    if head["part"]:
        return None
    by_kind = {when: part.inversions(when) for when in ("raw", "after")}
    row: list[object] = [part.scope, part.window_start_ns]
    row += [head[word] for word in ("window_end_ns", "rows", "late", "released_past")]
    row += [sum(by_kind["raw"].values()), sum(by_kind["after"].values())]
    row += [head[word] for word in ("edges_unrepaired", "mode", "policy_version")]
    row += [head[word] for word in ("first_offset", "last_offset", "partition")]
    row += [by_kind[when].get(kind.name.lower(), 0) for when in by_kind for kind in c.EdgeKind]
    return single(tables.WINDOWS, row)


def clocks(part: Merged, rows: I64) -> pa.Table | None:
    """The table `clocks`: these entries of the part's clock table."""
    n, data = len(rows), {name: column[rows] for name, column in part.data.items() if name[:4] in _OF_CLOCK}
    if not n:
        return None
    return assemble(
        tables.CLOCKS,
        [
            constant(part.scope, n),
            texts(data["clk_id"], part.strings),
            narrow(data["clk_epoch"], c.NULL_I32, pa.int32()),
            texts(data["clk_parent"], part.strings),
            integers(data["clk_as_of_ns"]),
            names(data["clk_kind"], c.ClockKind),
            names(data["clk_status"], c.Status),
            integers(offset_ns(part)[rows]),
            floats(data["clk_rate_ppb"]),
            integers(data["clk_bound_ns"]),
            floats(data["clk_growth_ppb"]),
            names(data["clk_assurance"], c.Assurance),
            texts(data["clk_provenance"], part.strings),
            pa.array(np.full(n, part.window_start_ns)),
            names(data["clk_timescale"], c.Timescale),
            floats(data["clk_epsilon"]),
            integers(data["clk_quantum_ns"]),
            integers(data["map_bound_ns"]),
        ],
    )


_OF_CLOCK = ("clk_", "map_")


def offset_ns(part: Merged) -> I64:
    """clock - parent at the reference reading, leap seconds between UTC and TAI left out. By clock entry."""
    data = part.data
    ref, parent = data["clk_ref_ns"], data["clk_ref_parent_ns"]
    known = (ref != c.NULL_I64) & (parent != c.NULL_I64)
    utc = np.isin(data["clk_timescale"], (c.Timescale.UTC, c.Timescale.UTC_SMEARED))
    tai = data["clk_timescale"] == c.Timescale.TAI
    root = [part.strings.index(TAI)] if TAI in part.strings else []
    parent_tai = np.isin(data["clk_parent"], [*data["clk_id"][tai].tolist(), *root])
    parent_utc = np.isin(data["clk_parent"], data["clk_id"][utc])
    reading = np.where(utc & parent_tai, utc_to_tai(ref), ref)
    parents = np.where(tai & parent_utc, utc_to_tai(parent), parent)
    return np.where(known, reading - np.where(known, parents, 0), c.NULL_I64)
