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
from schemas.batch import I64, widen
from schemas.errors import MalformedInput
from schemas.flat import (
    Array,
    check_index,
    check_tables,
    encode,
    join_strings,
    split_strings,
)
from schemas.merged_columns import EDGES as EDGES
from schemas.merged_columns import FAMILY_CODES as FAMILY_CODES
from schemas.merged_columns import INPUTS as INPUTS
from schemas.merged_columns import PLACED_BY_APPEND as PLACED_BY_APPEND
from schemas.merged_columns import ROWS as ROWS
from schemas.merged_columns import RUNS as RUNS
from schemas.merged_columns import SCHEMA as SCHEMA
from schemas.merged_columns import SECTIONS as SECTIONS
from schemas.merged_columns import TABLES as TABLES
from schemas.time import append_to_tai

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
