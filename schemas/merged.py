"""The merged record: one window of a scope in final order, in numbered parts.

Rows are as narrow as in a batch: offsets from the window's start or from a source's base. `time_ns` and
`bound_ns` are not stored, they follow from `raw_ns` and the row's clock entry; the binding cause and an end
that repair moved are sparse. Each part holds its own tables, so it can be read alone; `row` counts through.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from schemas import columns as c
from schemas.batch import I64, STRINGS, widen
from schemas.columns import Column
from schemas.errors import MalformedInput
from schemas.flat import (
    Array,
    Field,
    FlatSchema,
    check_index,
    check_tables,
    encode,
    join_strings,
    split_strings,
)
from schemas.time import append_to_tai

HEADER = (
    Field("tenant", "string", "tenant"),
    Field("scope", "string", "job or shard"),
    Field("window_start_ns", "long", "start of the window, ns TAI"),
    Field("window_end_ns", "long", "end of the window, ns TAI"),
    Field("part", "long", "number of this part, from 0"),
    Field("parts", "long", "parts of the window"),
    Field("first_row", "long", "row number of this part's first row"),
    Field("count", "long", "rows in this part"),
    Field("rows", "long", "rows in the window"),
    Field("late", "long", "rows that came too late since the window before"),
    Field("released_past", "long", "sources that the window did not wait for"),
    Field("edges_unrepaired", "long", "edges whose effect had left when the cause became known"),
    Field("mode", "string", "effective mode of the scope's policy"),
    Field("policy_version", "long", "version of the policy applied; 0 for none"),
    Field("partition", "long", "partition of the input"),
    Field("first_offset", "long", "input record after the ones that the window before covers"),
    Field("last_offset", "long", "last input record taken before the release"),
)
STATISTICS = (
    Column("inversions_raw", "<i8", "1", "edges whose effect lies before the cause as mapped, by EdgeKind"),
    Column("inversions_after", "<i8", "1", "the same by order_ns, edges known at release, by EdgeKind"),
    Column("verdicts", "<i8", "1", "edges by EdgeKind times Verdict"),
)
SOURCES = (
    Column("src_name", "<u2", "string", "name of the source"),
    Column("src_incarnation", "<i8", "1", "start of the publisher, or hash of the file"),
    Column("src_family", "<u2", "string", "family of the source's rows"),
    Column("src_rank", "<i4", "1", "rank"),
    Column("src_host", "<u2", "string", "host"),
    Column("src_flags", "u1", "bits", "as in a batch; 8: placed by append time"),
    Column("src_clock", "<u2", "clock", "clock state applied to the source's rows"),
    Column("src_base_seq", "<i8", "1", "what seq_dt counts from"),
    Column("src_base_ns", "<i8", "ns", "what raw_dt counts from"),
)
PLACED_BY_APPEND = 8  # bit of src_flags
# The clock table lists the states applied, and below them parents that stamped no row: their maps are null.
MAPS = (
    Column("map_ref_ns", "<i8", "ns", "reference reading of the clock"),
    Column("map_ref_tai_ns", "<i8", "ns", "TAI at that moment by the map applied"),
    Column("map_rate_ppb", "<f8", "ppb", "TAI's rate over the clock's, less one"),
    Column("map_bound_ns", "<i8", "ns", "greatest error against TAI at map_ref_ns; null if none is known"),
    Column("map_growth_ppb", "<f8", "ppb", "growth of that error away from map_ref_ns"),
)
INPUTS = (
    Column("in_partition", "<i4", "1", "partition of an input record, by tt-origin"),
    Column("in_offset", "<i8", "1", "its offset"),
    Column("in_append_ms", "<i8", "ms", "its append time, Unix"),
)
ROWS = (
    Column("source", "<u2", "source", "entry of the source table"),
    Column("input", "<u2", "input", "entry of the input table"),
    Column("seq_dt", "<u4", "1", "sequence number from the source's base_seq"),
    Column("raw_dt", "<u4", "ns", "stamp as read, from the source's base_ns"),
    Column("order_dt", "<u4", "ns", "order_ns from the window's start"),
    Column("duration_ns", "<u4", "ns", "length; 0 one point; null end unknown"),
    Column("kind", "u1", "code", "the family's kind of row"),
    Column("entity", "<u2", "string", "component"),
    Column("name", "<u2", "string", "what happened"),
)
CAUSES = (
    Column("cause_row", "<u4", "row", "row (in this part) that has a binding cause"),
    Column("cause_source", "<u2", "source", "source of the cause"),
    Column("cause_seq", "<i8", "1", "sequence number of the cause"),
    Column("cause_point", "u1", "Point", "begin or end of the cause"),
    Column("cause_verdict", "u1", "Verdict", "verdict of that edge"),
)
ENDS = (
    Column("end_row", "<u4", "row", "row (in this part) whose end repair moved beyond begin + duration"),
    Column("end_shift_ns", "<i8", "ns", "by how much"),
)
EDGES = (
    Column("edge_kind", "u1", "EdgeKind", "kind of the edge"),
    Column("edge_op", "u1", "Op", "operation of a collective"),
    Column("edge_group", "<u2", "string", "process group of a collective"),
    Column("edge_key", "<u8", "1", "match key"),
    Column("edge_cause_source", "<u2", "source", "source of the cause"),
    Column("edge_cause_seq", "<i8", "1", "sequence number of the cause"),
    Column("edge_cause_point", "u1", "Point", "point of the cause"),
    Column("edge_effect_source", "<u2", "source", "source of the effect"),
    Column("edge_effect_seq", "<i8", "1", "sequence number of the effect"),
    Column("edge_effect_point", "u1", "Point", "point of the effect"),
    Column("edge_gap_ns", "<i8", "ns", "effect - cause by mapped time"),
    Column("edge_bound_ns", "<i8", "ns", "diff_bound of the two clocks; null if none is known"),
    Column("edge_verdict", "u1", "Verdict", "verdict"),
    Column("edge_assumed", "u1", "0/1", "whether the match rests on an assumption"),
    Column("edge_effect_ns", "<i8", "ns", "mapped time of the effect's point, TAI"),
    Column("edge_effect_duration_ns", "<i8", "ns", "the effect's own duration on its own clock"),
    Column("edge_size", "<u4", "1", "members of the collective that took part"),
    Column("edge_missing", "<u4", "1", "members expected that are missing"),
    Column("edge_cause_clock", "<u2", "clock", "clock state of the cause's stamp"),
    Column("edge_effect_clock", "<u2", "clock", "clock state of the effect's stamp"),
)
TABLES = {
    "src": SOURCES,
    "clk": c.CLOCKS,
    "map": MAPS,
    "in": INPUTS,
    "cause": CAUSES,
    "end": ENDS,
    "val": c.VALUES,
    "edge": EDGES,
    "esc": c.ESCAPES,
}
FAMILY_CODES = tuple(family for family in c.FAMILIES if family != "control")


def section(family: str) -> tuple[Column, ...]:
    """Columns of a family's section: `<family>_row`, then its own columns under `<family>_<name>`."""
    own = [column._replace(name=f"{family}_{column.name}") for column in c.FAMILIES[family]]
    return (Column(f"{family}_row", "<u4", "row", "row (in this part) that the entry belongs to"), *own)


SECTIONS = {family: section(family) for family in FAMILY_CODES}
SCHEMA = FlatSchema(
    "org.tempotrace.v1.Merged",
    "One part of a window in causal order.",
    HEADER,
    (
        STRINGS,
        *STATISTICS,
        *(column for table in TABLES.values() for column in table),
        *ROWS,
        *(column for columns in SECTIONS.values() for column in columns),
    ),
)


LENGTH_NS_MAX = 2**60


def length_ns(duration_ns: I64) -> I64:
    """Durations as the order sees them: 0 where the end is unknown, and within 0 to 36 years, so that an end never
    lies before its begin or beyond int64. What a producer stated stays in the column."""
    return np.where(duration_ns == c.NULL_I64, 0, np.clip(duration_ns, 0, LENGTH_NS_MAX))


@dataclass(frozen=True, eq=False)
class Merged:
    """One part of a merged window: header fields, string table, packed columns by name."""

    header: dict[str, str | int]
    strings: tuple[str, ...]
    data: dict[str, Array]

    def __len__(self) -> int:
        return int(self.header["count"])

    @property
    def tenant(self) -> str:
        return str(self.header["tenant"])

    @property
    def scope(self) -> str:
        return str(self.header["scope"])

    @property
    def window_start_ns(self) -> int:
        return int(self.header["window_start_ns"])

    @property
    def window_end_ns(self) -> int:
        return int(self.header["window_end_ns"])

    def text(self, index: int) -> str | None:
        """String by index; None for a null index."""
        return None if index == c.NULL_U16 else self.strings[index]

    def table_len(self, prefix: str) -> int:
        """Number of entries of a table ("src", "clk", "map", "in", "cause", "end", "val", "edge", "esc")."""
        return len(self.data.get(TABLES[prefix][0].name, ()))

    @cached_property
    def entry(self) -> NDArray[np.intp]:
        """Entry of the source table of each row, as numpy takes it fastest (ten times faster than a u16)."""
        return self.data["source"].astype(np.intp)

    def _base(self, table_column: str, offset_column: str) -> I64:
        if not len(self):
            return np.empty(0, np.int64)
        out: I64 = self.data[table_column].take(self.entry) + self.data[offset_column]
        return self._escaped(offset_column, out)

    def clock_name(self, entry: int) -> str:
        """Name of a clock of this part."""
        return self.strings[int(self.data["clk_id"][entry])]

    def _escaped(self, name: str, wide: I64) -> I64:
        if self.table_len("esc") and name in self.strings:
            mask = self.data["esc_column"] == self.strings.index(name)
            wide[self.data["esc_row"][mask]] = self.data["esc_value"][mask]
        return wide

    def seq(self) -> I64:
        """Sequence number of each row. Shape (count,), as all below."""
        return self._base("src_base_seq", "seq_dt")

    def raw_ns(self) -> I64:
        """Stamps as read, each on its own clock."""
        return self._base("src_base_ns", "raw_dt")

    def wide(self, name: str) -> I64:
        """A row column, or a column of a section, as int64 with NULL_I64 for null."""
        if name not in self.data:
            return np.empty(0, np.int64)
        return self._escaped(name, widen(self.data[name]))

    def duration_ns(self) -> I64:
        """Length of each row on its own clock; 0 where the end is unknown (one point). See length_ns."""
        return length_ns(self.wide("duration_ns"))

    def time_ns(self) -> I64:
        """Mapped time (TAI): by the clock's map, or the append time of the input where there is no map."""
        if not len(self):
            return np.empty(0, np.int64)
        placed = (self.data["src_flags"].take(self.entry) & PLACED_BY_APPEND) != 0
        if placed.all():
            return self._appended()
        clock = self._clock()
        raw = self.raw_ns()
        delta = raw - self.data["map_ref_ns"].take(clock)
        out: I64 = self.data["map_ref_tai_ns"].take(clock) + delta
        rate = self.data["map_rate_ppb"].take(clock)
        if rate.any():
            out += np.rint(delta * (rate * 1e-9)).astype(np.int64)
        if placed.any():
            out[placed] = self._appended()[placed]
        return out

    def _appended(self) -> I64:
        """Append time of each row's input record, TAI."""
        by_input = np.array([append_to_tai(int(ms)) for ms in self.data["in_append_ms"]], np.int64)
        out: I64 = by_input.take(self.data["input"].astype(np.intp))
        return out

    def _clock(self) -> NDArray[np.intp]:
        """Clock entry of each row; entry 0 stands in for rows whose source has no clock."""
        clock = self.data["src_clock"].astype(np.intp)
        clock[clock == c.NULL_U16] = 0
        out: NDArray[np.intp] = clock.take(self.entry)
        return out

    def bound_ns(self) -> I64:
        """Greatest error of time_ns against TAI; NULL_I64 where none is known."""
        if not len(self):
            return np.empty(0, np.int64)
        if not self.table_len("map"):
            return np.full(len(self), c.NULL_I64)
        clock = self._clock()
        without = (self.data["src_clock"] == c.NULL_U16).take(self.entry)
        bound: I64 = np.where(without, c.NULL_I64, self.data["map_bound_ns"].take(clock))
        growth = self.data["map_growth_ppb"].take(clock)
        if growth.any():
            age = np.abs(self.raw_ns() - self.data["map_ref_ns"][clock])
            grown = bound + np.ceil(age * (np.nan_to_num(growth) * 1e-9)).astype(np.int64)
            bound = np.where((bound == c.NULL_I64) | np.isnan(growth), c.NULL_I64, grown)
        return bound

    def order_ns(self) -> I64:
        """Time of each row in the causal order; never decreases from row to row."""
        if not len(self):
            return np.empty(0, np.int64)
        return self._escaped("order_dt", self.window_start_ns + self.data["order_dt"].astype(np.int64))

    def order_end_ns(self) -> I64:
        """End of each row in the causal order: order + duration, or later where repair moved it."""
        out = self.order_ns() + self.duration_ns()
        if self.table_len("end"):
            out[self.data["end_row"]] += self.data["end_shift_ns"]
        return out

    def inversions(self, when: str) -> dict[str, int]:
        """Inversions by edge kind, `when` "raw" or "after"."""
        counts = self.data.get(f"inversions_{when}", ())
        return {kind.name.lower(): int(n) for kind, n in zip(c.EdgeKind, counts, strict=False)}

    def verdicts(self) -> dict[str, dict[str, int]]:
        """Edges of the window by kind and verdict."""
        counts = self.data.get("verdicts")
        if counts is None:
            return {}
        square = counts.reshape(-1, len(c.Verdict))
        return {
            kind.name.lower(): {v.name.lower(): int(square[kind, v]) for v in c.Verdict}
            for kind in c.EdgeKind
            if kind < len(square)
        }


def write(part: Merged) -> bytes:
    """One framed record."""
    return encode(SCHEMA.layout, part.header, {"strings": join_strings(part.strings), **part.data})


RUNS = (*TABLES.values(), (*c.CLOCKS, *MAPS))


def read(header: dict[str, str | int], data: dict[str, Array]) -> Merged:
    """From a decoded flat record. Raises MalformedInput where the parts do not fit together."""
    strings = split_strings(data.pop("strings", None))
    part = Merged(header, strings, data)
    check_tables(RUNS, data)
    for column in ROWS:
        if len(data.get(column.name, ())) != header["count"]:
            raise MalformedInput(f"not {header['count']} values", column.name)
    for family, columns in SECTIONS.items():
        rows = len(data.get(f"{family}_row", ()))
        if any(len(data.get(column.name, ())) not in (0, rows) for column in columns):
            raise MalformedInput(f"not {rows} values in a column of the section", family)
    limits = {
        "string": (len(strings), c.NULL_U16),
        "clock": (part.table_len("clk"), c.NULL_U16),
        "source": (part.table_len("src"), None),
        "input": (part.table_len("in"), None),
        "row": (len(part), None),
    }
    for column in SCHEMA.columns:
        if column.unit in limits and column.name in data:
            limit, null = limits[column.unit]
            check_index(data[column.name], limit, column.name, None if column.name in _NEEDED else null)
    _check_meaning(part)
    return part


_NEEDED = frozenset(("src_name", "src_family", "src_host", "clk_id", "val_name", "esc_column"))
_MS_MAX = 2**63 // 1_000_000 - 10**6


def _check_meaning(part: Merged) -> None:
    """Checks beyond lengths and indices, so that no accessor fails."""
    data = part.data
    if len(data.get("verdicts", ())) % len(c.Verdict):
        raise MalformedInput("not a number for every verdict", "verdicts")
    if part.table_len("src"):
        mapped = (data["src_flags"] & PLACED_BY_APPEND) == 0
        if (mapped & (data["src_clock"] == c.NULL_U16)).any():
            raise MalformedInput("a source placed by a clock has none", "src_clock")
    if part.table_len("in") and (np.abs(data["in_append_ms"]) > _MS_MAX).any():
        raise MalformedInput("an append time beyond int64 ns", "in_append_ms")
    if part.table_len("esc"):
        for entry in np.unique(data["esc_column"]).tolist():
            rows = data["esc_row"][data["esc_column"] == entry]
            check_index(rows, len(data.get(part.strings[entry], ())), "esc_row")
