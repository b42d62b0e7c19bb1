"""A released window as `merged` records: final order, narrow columns, own tables in each part."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from schemas import columns as c
from schemas import merged as m
from schemas.batch import I64, narrow, null_column
from schemas.pack import Strings as TextTable
from streams.causality.gather import Strings, Window
from streams.causality.release import Edges, Released
from streams.causality.sources import Sources
from streams.clock.book import ClockBook

Array = NDArray[Any]
CLOCK_NAMES = tuple(column.name for column in c.CLOCKS)
EDGE_DTYPES = {column.name.removeprefix("edge_"): np.dtype(column.dtype) for column in m.EDGES}
MODE = "normal"


@dataclass(frozen=True)
class About:
    """What the header of each part says beside its rows."""

    tenant: str
    scope: str
    start_ns: int
    end_ns: int
    late: int
    released_past: int
    policy_version: int
    partition: int
    first_offset: int
    last_offset: int


@dataclass(eq=False)
class Sorted:
    """The rows that leave, in final order."""

    row: I64  # place in the window's layout
    source: NDArray[np.int32]
    clock: NDArray[np.int32]
    chunk: NDArray[np.int32]  # place in the list of chunks
    order_ns: I64


def final_order(released: Released, start_ns: int) -> I64:
    """Layout places of the rows that leave, by (order, source name, sequence).

    One packed key sorted in place: the layout is in (source, sequence) order already.
    """
    rows = np.flatnonzero(released.leaves)
    bits = max(1, int(len(released.leaves)).bit_length())
    span = released.order_ns[rows] - start_ns
    if len(rows) and int(span.max()) >> (63 - bits):
        return rows[np.argsort(span, kind="stable")]
    key = (span << bits) | rows
    key.sort()
    return key & ((1 << bits) - 1)


def parts_of(
    released: Released | None,
    edges: Edges,
    ends: dict[str, Array],
    about: About,
    sources: Sources,
    clocks: ClockBook,
    strings: Strings,
    part_bytes_max: int,
) -> Iterator[bytes]:
    """The records of a window. `released` is None where only edges are left to tell (the end of a scope)."""
    window = released.window if released is not None else None
    order = final_order(released, about.start_ns) if released is not None else np.empty(0, np.int64)
    rows = len(order)
    sections = _sections(released, order, sources) if window is not None else {}
    # A first guess of how many parts it takes; a part that its tables make too large after all is cut in two.
    weight = 30 * rows + 100 * len(edges)
    for section in sections.values():
        weight += sum(column.nbytes for column in section.columns.values()) + section.values_bytes
    parts = max(1, -(-weight // part_bytes_max))
    cuts = [(rows * k // parts, len(edges) * k // parts) for k in range(parts + 1)]
    waiting = list(pairwise(cuts))[::-1]
    done: list[tuple[int, int, _PartBuilder]] = []
    while waiting:
        (row, edge), (row_end, edge_end) = first, last = waiting.pop()
        builder = _PartBuilder(sources, clocks, strings)
        if released is not None:
            builder.rows(released, order[row:row_end], ends)
            for family, section in sections.items():
                builder.section(family, section, row, row_end)
        builder.edges(edges, edge, edge_end)
        builder.build(about.start_ns)
        if builder.size > part_bytes_max and max(row_end - row, edge_end - edge) > 1:
            middle = ((row + row_end) // 2, (edge + edge_end) // 2)
            waiting += [(middle, last), (first, middle)]
        else:
            done.append((row, row_end - row, builder))
    statistics = done[0][2].data
    statistics["inversions_raw"] = edges.inversions_raw
    statistics["inversions_after"] = edges.inversions_after
    statistics["verdicts"] = edges.verdicts.ravel()
    for k, (row, count, builder) in enumerate(done):
        header: dict[str, str | int] = {
            "tenant": about.tenant,
            "scope": about.scope,
            "window_start_ns": about.start_ns,
            "window_end_ns": about.end_ns,
            "part": k,
            "parts": len(done),
            "first_row": row,
            "count": count,
            "rows": rows,
            "late": about.late,
            "released_past": about.released_past,
            "edges_unrepaired": edges.unrepaired,
            "mode": MODE,
            "policy_version": about.policy_version,
            "partition": about.partition,
            "first_offset": about.first_offset,
            "last_offset": about.last_offset,
        }
        yield m.write(m.Merged(header, builder.strings, builder.data))


@dataclass(eq=False)
class _Section:
    """A family's rows of a window: final row of each, own columns as packed, string columns as scope numbers."""

    row: I64
    columns: dict[str, Array]
    texts: frozenset[str]
    escapes: list[tuple[I64, str, I64]]  # (final rows, column, values)
    value_row: I64
    value_name: NDArray[np.int32]
    value: NDArray[np.float64]

    @property
    def values_bytes(self) -> int:
        return 14 * len(self.value)


def _sections(released: Released, order: I64, sources: Sources) -> dict[str, _Section]:
    """Own columns and values of the rows that leave, by family, in input order."""
    window = released.window
    final = np.full(len(window), -1, np.int64)
    final[order] = np.arange(len(order))
    by_gathered = np.empty(len(window), np.int64)
    by_gathered[window.gathered] = final
    out: dict[str, _Section] = {}
    for family in m.FAMILY_CODES:
        mine = [k for k, part in enumerate(window.parts) if part.chunk.batch.family == family]
        if mine:
            out[family] = _section(window, mine, by_gathered, family)
    return out


def _section(window: Window, mine: Sequence[int], final: I64, family: str) -> _Section:
    rows: list[I64] = []
    own = {column.name: column for column in c.FAMILIES[family]}
    columns: dict[str, list[Array]] = {name: [] for name in own}
    texts = frozenset(column.name for column in c.FAMILIES[family] if column.unit == "string")
    present: set[str] = set()
    escapes: list[tuple[I64, str, I64]] = []
    value_row: list[I64] = []
    value_name: list[NDArray[np.int32]] = []
    value: list[Array] = []
    for k in mine:
        part = window.parts[k]
        batch = part.chunk.batch
        at = final[window.part_start[k] : window.part_start[k + 1]]
        stays = at < 0
        which = part.rows
        if stays.any():
            which = which[~stays]
        rows.append(at[~stays])
        for name, found in columns.items():
            packed = batch.data.get(name)
            if packed is None:
                packed = null_column(own[name], len(which))
            else:
                present.add(name)
                packed = packed if len(which) == batch.count else packed[which]
            if name in texts:
                strings = part.chunk.strings
                packed = strings[np.minimum(packed, len(strings) - 1)]
            found.append(packed)
        if batch.table_len("esc"):
            for name in columns:
                if name in batch.strings:
                    mask = batch.data["esc_column"] == batch.strings.index(name)
                    row = batch.data["esc_row"][mask]
                    found_at = np.minimum(np.searchsorted(part.rows, row), len(part) - 1)
                    kept = (part.rows[found_at] == row) & (at[found_at] >= 0)
                    escapes.append((at[found_at[kept]], name, batch.data["esc_value"][mask][kept]))
        if len(part.values):
            target = at[part.value_at]
            kept = target >= 0
            value_row.append(target[kept])
            value_name.append(part.chunk.strings[batch.data["val_name"][part.values[kept]]])
            value.append(batch.data["val"][part.values[kept]])
    return _Section(
        row=np.concatenate(rows),
        columns={name: np.concatenate(columns[name]) for name in columns if name in present},
        texts=texts,
        escapes=escapes,
        value_row=np.concatenate(value_row) if value_row else np.empty(0, np.int64),
        value_name=np.concatenate(value_name) if value_name else np.empty(0, np.int32),
        value=np.concatenate(value) if value else np.empty(0, np.float64),
    )


class _PartBuilder:
    """One part: collects columns, and at the end the tables of sources, clocks, inputs and strings they need."""

    def __init__(self, sources: Sources, clocks: ClockBook, strings: Strings) -> None:
        self._sources, self._clocks, self._strings = sources, clocks, strings
        self.data: dict[str, Array] = {}
        self.strings: tuple[str, ...] = ()
        self.size = 0  # bytes of data and strings
        self._texts: dict[str, NDArray[np.int32]] = {}  # string columns as scope numbers
        self._extra = TextTable()  # texts that are no scope strings
        self._entry_source = np.empty(0, np.int64)
        self._entry_clock = np.empty(0, np.int64)
        self._base_seq = np.empty(0, np.int64)
        self._base_ns = np.empty(0, np.int64)
        self._value: list[tuple[I64, NDArray[np.int32], Array]] = []
        self._escape: list[tuple[I64, str, I64]] = []
        self._named: list[tuple[str, I64]] = []  # columns of scope sources, to be turned into entries
        self._inputs: list[tuple[int, int, int]] = []
        self._edge_clocks: dict[str, Array] = {}

    def rows(self, released: Released, order: I64, ends: dict[str, Array]) -> None:
        """The row columns, causes and moved ends of these layout places."""
        window, data = released.window, self.data
        if not len(order):
            return
        source, clock = window.source[order].astype(np.int64), window.clock[order].astype(np.int64)
        entry = self._entries(source, clock)
        seq, raw = window.seq[order], window.raw_ns[order]
        entries = len(self._entry_source)
        self._base_seq = np.full(entries, np.iinfo(np.int64).max)
        self._base_ns = np.full(entries, np.iinfo(np.int64).max)
        np.minimum.at(self._base_seq, entry, seq)
        np.minimum.at(self._base_ns, entry, raw)
        data["source"] = entry.astype("<u2")
        part_of = np.searchsorted(window.part_start, window.gathered[order], side="right") - 1
        data["input"] = self._input(window, part_of)
        self._pack("seq_dt", seq - self._base_seq[entry], seq)
        self._pack("raw_dt", raw - self._base_ns[entry], raw)
        order_ns = released.order_ns[order]
        self._pack("duration_ns", window.duration[order], window.duration[order])
        data["kind"] = window.kind[order]
        self._texts["entity"] = window.entity[order]
        self._texts["name"] = window.name[order]
        self._order = order_ns
        shift = released.order_end_ns[order] - order_ns - window.length_ns[order]
        moved = np.flatnonzero(shift > 0)
        if len(moved):
            data["end_row"] = moved.astype("<u4")
            data["end_shift_ns"] = shift[moved]
        cause = released.cause[order]
        caused = np.flatnonzero(cause >= 0)
        if len(caused):
            at = cause[caused]
            data["cause_row"] = caused.astype("<u4")
            self._named.append(("cause_source", ends["source"][at].astype(np.int64)))
            data["cause_seq"] = ends["seq"][at]
            data["cause_point"] = np.where(ends["point"][at] == c.Point.END, 1, 0).astype("u1")
            data["cause_verdict"] = released.cause_verdict[order[caused]]

    def _pack(self, name: str, wide: I64, whole: I64) -> None:
        packed, outside = narrow(wide, np.dtype("<u4"))
        self.data[name] = packed
        if len(outside):
            self._escape.append((outside, name, whole[outside]))

    def _entries(self, source: I64, clock: I64) -> I64:
        """Source entries (one for each source and clock state) and the entry of each row."""
        known = np.full(len(self._sources), -2, np.int64)
        known[source] = clock
        if (known[source] == clock).all():
            self._entry_source = np.flatnonzero(known > -2)
            self._entry_clock = known[self._entry_source]
            place = np.empty(len(known), np.int64)
            by_name = np.argsort(self._sources.name_order()[self._entry_source])
            self._entry_source = self._entry_source[by_name]
            self._entry_clock = self._entry_clock[by_name]
            place[self._entry_source] = np.arange(len(self._entry_source))
            return place[source]
        # By what the clocks say: the numbers of slots depend on which were forgotten before.
        states = np.unique(clock)
        by_content = sorted(
            states.tolist(), key=lambda slot: ("", -1) if slot < 0 else self._clocks.content(slot)
        )
        rank = np.empty(len(self._clocks) + 1, np.int64)
        rank[by_content] = np.arange(len(by_content))
        code = self._sources.name_order()[source].astype(np.int64) * len(by_content) + rank[clock]
        first, entry = np.unique(code, return_index=True, return_inverse=True)[1:]
        self._entry_source, self._entry_clock = source[first], clock[first]
        return entry

    def _input(self, window: Window, part_of: I64) -> Array:
        """Input table, and the entry of each row."""
        chunks: dict[int, int] = {}
        of_part = np.empty(len(window.parts), np.int64)
        for k in np.unique(part_of):
            chunk = window.parts[k].chunk
            place = chunks.setdefault(id(chunk), len(chunks))
            if place == len(self._inputs):
                self._inputs.append((chunk.partition, chunk.offset, chunk.append_ms))
            of_part[k] = place
        assert len(chunks) <= c.NULL_U16, "more input records than one part can name"
        return of_part[part_of].astype("<u2")

    def section(self, family: str, section: _Section, first: int, last: int) -> None:
        """The part's share of a family's section."""
        mine = slice(None)
        whole = first == 0 and last > (int(section.row.max()) if len(section.row) else -1)
        select: Any = mine if whole else (section.row >= first) & (section.row < last)
        row = section.row[select] - first
        if len(row):
            self.data[f"{family}_row"] = row.astype("<u4")
            for column in c.FAMILIES[family]:
                packed = section.columns.get(column.name)
                if packed is None:
                    continue
                if column.name in section.texts:
                    self._texts[f"{family}_{column.name}"] = packed[select]
                else:
                    self.data[f"{family}_{column.name}"] = packed[select]
            place = np.full(last - first, -1, np.int64)
            place[row] = np.arange(len(row))
            for rows, name, values in section.escapes:
                here = (rows >= first) & (rows < last)
                if here.any():
                    self._escape.append((place[rows[here] - first], f"{family}_{name}", values[here]))
        here = (section.value_row >= first) & (section.value_row < last)
        if here.any():
            self._value.append(
                (section.value_row[here] - first, section.value_name[here], section.value[here])
            )

    def edges(self, edges: Edges, first: int, last: int) -> None:
        """The part's share of the edges."""
        if first == last:
            return
        for name, column in edges.columns.items():
            share = column[first:last]
            if name in ("cause_source", "effect_source"):
                self._named.append((f"edge_{name}", share.astype(np.int64)))
            elif name in ("cause_clock", "effect_clock"):
                self._edge_clocks[f"edge_{name}"] = share.astype(np.int64)
            elif name == "group":
                self._texts["edge_group"] = share
            else:
                self.data[f"edge_{name}"] = np.asarray(share).astype(EDGE_DTYPES[name], copy=False)

    def build(self, start_ns: int) -> None:
        """Put the tables to the columns."""
        data = self.data
        if "source" in data:
            self._pack("order_dt", self._order - start_ns, self._order)
        self._name_sources()
        table = self._extra
        self._source_table(table)
        self._clock_table(table)
        if self._inputs:
            for name, values in zip(m.INPUTS, zip(*self._inputs, strict=True), strict=True):
                data[name.name] = np.array(values, name.dtype)
        if self._value:
            data["val_row"] = np.concatenate([row for row, _, _ in self._value]).astype("<u4")
            self._texts["val_name"] = np.concatenate([name for _, name, _ in self._value])
            data["val"] = np.concatenate([value for _, _, value in self._value])
        if self._escape:
            data["esc_row"] = np.concatenate([rows for rows, _, _ in self._escape]).astype("<u4")
            data["esc_column"] = np.repeat(
                np.array([table.index(name) for _, name, _ in self._escape], "<u2"),
                [len(rows) for rows, _, _ in self._escape],
            )
            data["esc_value"] = np.concatenate([values for _, _, values in self._escape])
        self._resolve_texts(table)
        for name in ("cause_source", "edge_cause_source", "edge_effect_source"):
            if name in data:
                data[name] = data[name].astype("<u2")
        self.strings = table.table
        self.size = sum(column.nbytes for column in data.values()) + sum(
            len(t.encode()) + 1 for t in self.strings
        )

    def _name_sources(self) -> None:
        """Turn scope sources of causes and edges into entries, adding entries (without a clock) at need."""
        if not self._named:
            return
        place = np.full(len(self._sources), -1, np.int64)
        place[self._entry_source[::-1]] = np.arange(len(self._entry_source))[::-1]
        wanted = np.unique(np.concatenate([column for _, column in self._named]))
        new = wanted[place[wanted] < 0]
        new = new[np.argsort(self._sources.name_order()[new])]
        place[new] = len(self._entry_source) + np.arange(len(new))
        self._entry_source = np.concatenate((self._entry_source, new))
        self._entry_clock = np.concatenate((self._entry_clock, np.full(len(new), -1)))
        self._base_seq = np.concatenate((self._base_seq, np.zeros(len(new), np.int64)))
        self._base_ns = np.concatenate((self._base_ns, np.zeros(len(new), np.int64)))
        for name, column in self._named:
            self.data[name] = place[column]

    def _source_table(self, table: TextTable) -> None:
        sources, data = self._sources, self.data
        numbers = self._entry_source
        if not len(numbers):
            return
        assert len(numbers) < c.NULL_U16, "more sources than one part can name"
        listed = numbers.tolist()
        data["src_name"] = np.array([table.index(sources.names[k]) for k in listed], "<u2")
        data["src_incarnation"] = np.array([sources.incarnations[k] for k in listed], "<i8")
        families = [table.index(family) for family in m.FAMILY_CODES]
        data["src_family"] = np.array(families, "<u2")[sources.table["family"][numbers]]
        data["src_rank"] = sources.table["rank"][numbers]
        data["src_host"] = np.array([table.index(sources.hosts[k]) for k in listed], "<u2")
        slots = self._entry_clock
        unplaced = np.ones(len(slots), np.bool_)
        if len(self._clocks):
            unplaced = (slots < 0) | ~self._clocks["placed"][np.where(slots < 0, 0, slots)]
        flags = sources.table["flags"][numbers] & (c.SOURCE_ORDERED | c.SOURCE_LIVE)
        data["src_flags"] = (flags | np.where(unplaced, m.PLACED_BY_APPEND, 0)).astype("u1")
        data["src_base_seq"] = self._base_seq
        data["src_base_ns"] = self._base_ns

    def _clock_table(self, table: TextTable) -> None:
        """The clock states that rows and edges were judged by, then the parents that stamped none of them."""
        clocks, data = self._clocks, self.data
        slots = np.unique(np.concatenate([self._entry_clock, *self._edge_clocks.values()]))
        slots = slots[slots >= 0]
        # By content, not by the order in which clocks were first seen.
        used = np.array(sorted(slots.tolist(), key=clocks.content), np.int64)
        place = np.full(len(clocks) + 1, c.NULL_U16, np.int64)
        place[used] = np.arange(len(used))
        if len(self._entry_source):
            data["src_clock"] = place[self._entry_clock].astype("<u2")
        for name, column in self._edge_clocks.items():
            data[name] = place[column].astype("<u2")
        if not len(used):
            return
        rows = [clocks.rows[slot][0] for slot in used]
        rows += sorted({row for slot in used for row in clocks.rows[slot][1:]} - set(rows), key=repr)
        for k, column in enumerate(c.CLOCKS):
            values = [row[k] for row in rows]
            if column.unit == "string":
                texts = [None if v is None else str(v) for v in values]
                data[column.name] = narrow(np.array([table.index(t) for t in texts]), np.dtype("<u2"))[0]
            else:
                filled = [float("nan") if v is None else v for v in values]
                data[column.name] = np.array(filled).astype(column.dtype)
        parents = len(rows) - len(used)
        for name, array, null in (
            ("map_ref_ns", "ref_ns", c.NULL_I64),
            ("map_ref_tai_ns", "ref_tai_ns", c.NULL_I64),
            ("map_rate_ppb", "rate_ppb", float("nan")),
            ("map_bound_ns", "bound_ns", c.NULL_I64),
            ("map_growth_ppb", "growth_ppb", float("nan")),
        ):
            data[name] = np.concatenate((clocks[array][used], np.full(parents, null, clocks[array].dtype)))

    def _resolve_texts(self, table: TextTable) -> None:
        """Scope string numbers to the part's own table, in order of text."""
        if not self._texts:
            return
        seen = np.zeros(len(self._strings.texts) + 1, np.bool_)
        for column in self._texts.values():
            seen[column] = True
        used = np.flatnonzero(seen[:-1]).tolist()
        place = np.full(len(seen), c.NULL_U16, np.int64)
        for number in sorted(used, key=self._strings.texts.__getitem__):
            place[number] = table.index(self._strings.texts[number])
        for name, column in self._texts.items():
            self.data[name] = place[column].astype("<u2")
