"""One part of a merged window: a range of its rows and edges with the tables they need."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from schemas import columns as c
from schemas import merged as m
from schemas.batch import I64, narrow
from streams.causality.gather import Strings
from streams.causality.outgoing import Edges
from streams.causality.rows import Rows
from streams.causality.sections import Section
from streams.causality.sources import Sources
from streams.causality.tables import Tables

Array = NDArray[Any]
EDGE_DTYPES = {column.name.removeprefix("edge_"): np.dtype(column.dtype) for column in m.EDGES}
U4 = np.dtype("<u4")


class PartBuilder:
    """Collects columns, then adds the tables of sources, clocks, inputs and strings that they name."""

    def __init__(self, sources: Sources, strings: Strings, tables: Tables) -> None:
        self._sources, self._strings, self._tables = sources, strings, tables
        self.data: dict[str, Array] = {}
        self.strings: tuple[str, ...] = ()
        self.size = 0  # bytes of data and strings
        self._texts: dict[str, Array] = {}  # string columns as scope numbers
        self._rows: Rows | None = None
        self._span = (0, 0)  # of the rows
        self._values: list[tuple[I64, Array, Array]] = []
        self._escapes: list[tuple[I64, str, I64]] = []
        self._named: dict[str, I64] = {}  # columns that hold scope sources, to be turned into entries
        self._edge_clocks: dict[str, I64] = {}

    def rows(self, rows: Rows, first: int, last: int, start_ns: int) -> None:
        """Rows first to last - 1 of the window."""
        self._rows, self._span = rows, (first, last)
        if first == last:
            return
        data, mine = self.data, slice(first, last)
        entry, seq, raw, order = rows.entry[mine], rows.seq[mine], rows.raw_ns[mine], rows.order_ns[mine]
        self._pack("seq_dt", seq - rows.base_seq[entry], seq)
        self._pack("raw_dt", raw - rows.base_ns[entry], raw)
        self._pack("order_dt", order - start_ns, order)
        self._pack("duration_ns", rows.duration[mine], rows.duration[mine])
        data["kind"] = rows.kind[mine]
        self._texts["entity"], self._texts["name"] = rows.entity[mine], rows.name[mine]
        self._inputs(rows, rows.chunk[mine])
        shift = rows.end_shift_ns[mine]
        moved = np.flatnonzero(shift > 0)
        if len(moved):
            data["end_row"], data["end_shift_ns"] = moved.astype(U4), shift[moved]
        a, b = np.searchsorted(rows.caused, (first, last))
        if a < b:
            data["cause_row"] = (rows.caused[a:b] - first).astype(U4)
            self._named["cause_source"] = rows.cause_source[a:b]
            data["cause_seq"], data["cause_point"] = rows.cause_seq[a:b], rows.cause_point[a:b]
            data["cause_verdict"] = rows.cause_verdict[a:b]

    def _pack(self, name: str, wide: I64, whole: I64) -> None:
        packed, outside = narrow(wide, U4)
        self.data[name] = packed
        if len(outside):
            self._escapes.append((outside, name, whole[outside]))

    def _inputs(self, rows: Rows, chunk: I64) -> None:
        used, place = _used(chunk, len(rows.inputs))
        assert len(used) <= c.NULL_U16, "more input records than one part can name"
        self.data["input"] = place[chunk].astype("<u2")
        listed = [rows.inputs[k] for k in used.tolist()]
        for column, values in zip(m.INPUTS, zip(*listed, strict=True), strict=True):
            self.data[column.name] = np.array(values, column.dtype)

    def section(self, family: str, section: Section, first: int, last: int) -> None:
        """The share of a family's section that these rows have."""
        whole = first == 0 and last > (int(section.row.max()) if len(section.row) else -1)
        select: Any = slice(None) if whole else (section.row >= first) & (section.row < last)
        row = section.row[select] - first
        if len(row):
            self.data[f"{family}_row"] = row.astype(U4)
            for name, column in section.columns.items():
                into = self._texts if name in section.texts else self.data
                into[f"{family}_{name}"] = column[select]
            if section.escapes:
                place = np.full(last - first, -1, np.int64)
                place[row] = np.arange(len(row))
                for rows, name, values in section.escapes:
                    here = (rows >= first) & (rows < last)
                    if here.any():
                        self._escapes.append((place[rows[here] - first], f"{family}_{name}", values[here]))
        here = (section.value_row >= first) & (section.value_row < last)
        if here.any():
            row = section.value_row[here] - first
            self._values.append((row, section.value_name[here], section.value[here]))

    def edges(self, edges: Edges, first: int, last: int) -> None:
        """Edges first to last - 1."""
        if first == last:
            return
        for name, column in edges.columns.items():
            share = column[first:last]
            if name in ("cause_source", "effect_source"):
                self._named[f"edge_{name}"] = share.astype(np.int64)
            elif name in ("cause_clock", "effect_clock"):
                self._edge_clocks[f"edge_{name}"] = share.astype(np.int64)
            elif name == "group":
                self._texts["edge_group"] = share
            else:
                self.data[f"edge_{name}"] = np.asarray(share).astype(EDGE_DTYPES[name], copy=False)

    def build(self) -> None:
        """Add the tables, and turn numbers of the scope into places in them."""
        data = self.data
        slots = self._source_table()
        self._clock_table(slots)
        if self._values:
            rows, names, values = zip(*self._values, strict=True)
            data["val_row"] = np.concatenate(rows).astype(U4)
            self._texts["val_name"], data["val"] = np.concatenate(names), np.concatenate(values)
        if self._escapes:
            data["esc_row"] = np.concatenate([rows for rows, _, _ in self._escapes]).astype(U4)
            numbers = [self._strings.number(name) for _, name, _ in self._escapes]
            lengths = [len(rows) for rows, _, _ in self._escapes]
            self._texts["esc_column"] = np.repeat(np.array(numbers, np.int32), lengths)
            data["esc_value"] = np.concatenate([values for _, _, values in self._escapes])
        self._resolve_texts()
        self.size = sum(column.nbytes for column in data.values()) + sum(
            len(t.encode()) + 1 for t in self.strings
        )

    def _source_table(self) -> I64:
        """The source table: entries of the rows, then sources that only causes and edges name; gives its slots."""
        rows, (first, last) = self._rows, self._span
        entries = np.empty(0, np.int64)
        if rows is not None and first < last:
            entries, place = _used(rows.entry[first:last], len(rows.entry_source))
            self.data["source"] = place[rows.entry[first:last]].astype("<u2")
        numbers = np.empty(0, np.int64) if rows is None else rows.entry_source[entries]
        slots = np.empty(0, np.int64) if rows is None else rows.entry_clock[entries]
        if self._named:
            known = np.full(len(self._sources), -1, np.int64)
            known[numbers[::-1]] = np.arange(len(numbers))[::-1]
            wanted, _ = _used(np.concatenate(list(self._named.values())), len(self._sources))
            new = wanted[known[wanted] < 0]
            new = new[np.argsort(self._sources.name_order()[new])]
            known[new] = len(numbers) + np.arange(len(new))
            numbers, slots = np.concatenate((numbers, new)), np.concatenate((slots, np.full(len(new), -1)))
            for name, column in self._named.items():
                self.data[name] = known[column].astype("<u2")
        if len(numbers):
            assert len(numbers) < c.NULL_U16, "more sources than one part can name"
            columns, texts = self._tables.sources(numbers, slots)
            self.data |= columns
            self._texts |= texts
            for name in ("base_seq", "base_ns"):
                base = np.zeros(len(numbers), np.int64)
                if rows is not None:
                    base[: len(entries)] = getattr(rows, name)[entries]
                self.data[f"src_{name}"] = base
        return slots

    def _clock_table(self, slots: I64) -> None:
        """The clock states that rows and edges were judged by, and their parents."""
        wanted = np.concatenate([slots, *self._edge_clocks.values()])
        top = int(wanted.max()) + 1 if len(wanted) else 0
        used, _ = _used(wanted[wanted >= 0], top)
        order, (columns, texts) = self._tables.clocks(used)
        place = np.full(top + 1, c.NULL_U16, np.int64)  # the last for -1
        place[order] = np.arange(len(order))
        if len(slots):
            self.data["src_clock"] = place[slots].astype("<u2")
        for name, column in self._edge_clocks.items():
            self.data[name] = place[column].astype("<u2")
        if len(order):
            self.data |= columns
            self._texts |= texts

    def _resolve_texts(self) -> None:
        """Scope string numbers to the part's own table, which is in order of text."""
        texts = self._strings.texts
        seen = np.zeros(len(texts) + 1, np.bool_)  # the last for null
        for column in self._texts.values():
            seen[column] = True
        used = sorted(np.flatnonzero(seen[:-1]).tolist(), key=texts.__getitem__)
        assert len(used) < c.NULL_U16, "more strings than one part can name"
        place = np.full(len(seen), c.NULL_U16, "<u2")
        place[used] = np.arange(len(used))
        self.strings = tuple(texts[number] for number in used)
        for name, column in self._texts.items():
            self.data[name] = place[column]


def _used(values: I64, limit: int) -> tuple[I64, I64]:
    """(distinct values, ascending; place of each value up to the limit among them)."""
    seen = np.zeros(limit, np.bool_)
    seen[values] = True
    used = np.flatnonzero(seen)
    place = np.empty(limit, np.int64)
    place[used] = np.arange(len(used))
    return used, place
