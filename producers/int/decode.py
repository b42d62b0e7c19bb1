"""Blocks of datagrams to columns of hops: the values at the places that the layouts name.

Rows come by datagram, report, then newest hop first. Columns have the packed types of the family `int`
(schemas.columns), the type's greatest value standing for null, as all-ones stands for "not available" in INT.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from producers.int.dialect import SPEC, Dialect
from producers.int.flows import Flows
from producers.int.layout import I64, U8, Array, Field, Group, Reader, Rows
from producers.int.report import DatagramLayout, ReportLayout, read
from schemas.columns import COMMON, FAMILIES, HopKind, ReportFlag
from schemas.errors import MalformedInput

DTYPES: Final = {column.name: np.dtype(column.dtype) for column in (*COMMON, *FAMILIES["int"])}
NULLS: Final = {name: np.iinfo(dtype).max for name, dtype in DTYPES.items()}  # all are unsigned
FLOWS_MAX: Final = 65_536  # kept from block to block


@dataclass
class Hops:
    """The hops of a block.

    `columns`: own columns of the family that are not null throughout, and `kind`; shape (rows,). `datagram`:
    each row's place in the block. `flow`: each row's place in `flows`, -1 for none. Per good datagram, in
    order of place: `place`, `reporter` (null: not named), `hw_id`, `seq`, `version`, `reports` (how many).
    `warned`: reports by the bits of their warnings. `failures`: the others, by place.
    """

    columns: dict[str, Array]
    datagram: I64
    flow: I64
    flows: Flows
    place: I64
    reporter: Array
    hw_id: Array
    seq: I64
    version: Array
    reports: I64
    warned: dict[int, int] = field(default_factory=dict)
    failures: dict[int, MalformedInput] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.datagram)


class _Part(NamedTuple):
    """What one group of datagrams gives."""

    columns: dict[str, Array]
    datagram: I64
    flow: I64
    place: I64
    heads: dict[str, Array]


class Decoder:
    """Decodes the reports of one kind of sender. What it remembers changes the speed only."""

    def __init__(self, dialect: Dialect = SPEC) -> None:
        self._reader: Reader[DatagramLayout] = Reader(partial(read, dialect=dialect))
        self._low_bits = dict(dialect.low_bits)
        self._flows = Flows()

    def decode(self, data: U8, at: I64, size: I64) -> Hops:
        """The hops of the datagrams data[at : at + size]. Shapes (bytes,), (n,), (n,)."""
        if len(self._flows) > FLOWS_MAX:
            self._flows = Flows()
        failures: dict[int, MalformedInput] = {}
        parts: list[_Part] = []
        warned: dict[int, int] = {}
        for group in self._reader.read(data, at, size, failures):
            parts.append(self._part(group))
            for report in group.layout.reports:
                if report.warnings:
                    warned[report.warnings] = warned.get(report.warnings, 0) + group.rows.count
        joined = _join(parts)
        heads = joined.heads
        return Hops(
            joined.columns, joined.datagram, joined.flow, self._flows, joined.place,
            heads["reporter"], heads["hw_id"], heads["seq"], heads["version"], heads["reports"],
            warned, dict(sorted(failures.items())),
        )  # fmt: skip

    def accepts(self, data: U8, at: I64, size: I64) -> NDArray[np.bool_]:
        """Which of the datagrams are reports. Shape (n,)."""
        failures: dict[int, MalformedInput] = {}
        for _ in self._reader.read(data, at, size, failures):
            pass
        out = np.ones(len(at), bool)
        out[list(failures)] = False
        return out

    def _part(self, group: Group[DatagramLayout]) -> _Part:
        layout, rows = group.layout, group.rows
        count = rows.count
        widths = [_rows_of(report) for report in layout.reports]
        made = _Columns(count, sum(widths))
        flow = np.full((count, sum(widths)), -1, np.int64)
        dropped = np.zeros((count, sum(widths)), bool)
        heads: dict[str, Array] = {
            "reporter": np.full(count, NULLS["reporter"], np.uint32)
            if layout.reporter is None
            else rows.take(layout.reporter),
            "hw_id": rows.take(layout.hw_id).astype(np.uint8),
            "seq": rows.take(layout.seq).astype(np.int64),
            "version": np.full(count, layout.version, np.uint8),
            "reports": np.full(count, len(layout.reports), np.int64),
        }
        first = 0
        for number, (report, width) in enumerate(zip(layout.reports, widths, strict=True)):
            span = slice(first, first + width)
            self._report(rows, report, made, span, dropped)
            made["report"][:, span] = number
            if report.flow is not None:
                flow[:, span] = self._flows.places(rows, report.flow)[:, None]
            first += width
        for name in ("reporter", "hw_id", "version"):
            made[name][:] = heads[name][:, None]
        made["report_seq"][:] = heads["seq"][:, None]
        datagram = np.repeat(group.places, sum(widths))
        columns = {name: values.reshape(-1) for name, values in made.items()}
        flows = flow.reshape(-1)
        if dropped.any():
            kept = ~dropped.reshape(-1)
            columns = {name: values[kept] for name, values in columns.items()}
            datagram, flows = datagram[kept], flows[kept]
        return _Part(columns, datagram, flows, group.places, heads)

    def _report(
        self, rows: Rows, report: ReportLayout, made: "_Columns", span: slice, dropped: NDArray[np.bool_]
    ) -> None:
        """Fill the columns of one report, which are `span` of each datagram's rows."""
        hops = (*((report.own,) if report.own else ()), *report.stack)
        first = span.start
        for place, hop in enumerate(hops, first):
            filled: set[str] = set()
            for name, where in hop.fields:
                column = made[name][:, place]
                if name in filled:
                    again = np.empty_like(column)
                    self._value(rows, name, where, again)
                    column[:] = np.where(column == NULLS[name], again, column)
                else:
                    self._value(rows, name, where, column)
                    filled.add(name)
        kinds = [HopKind.HOP] * len(hops)
        if report.own is not None:
            kinds[0] = _kind_of_own(report.flags)
        made["kind"][:, span] = kinds
        made["hop"][:, span] = range(len(hops) - 1, -1, -1)
        made["hops"][:, span] = len(hops)
        made["int_version"][:, span] = [
            NULLS["int_version"] if hop.int_version is None else hop.int_version for hop in hops
        ]
        made["report_flags"][:, span] = int(report.flags)
        made["warnings"][:, span] = int(report.warnings)
        if report.report_ts is not None:
            made["report_ts"][:, span] = rows.take(report.report_ts)[:, None]
        if report.own is not None and report.stack:
            node = made["node"]
            same = (node[:, first] == node[:, first + 1]) & (node[:, first] != NULLS["node"])
            if same.any():
                _merge(made, first, same)
                made["hops"][same, span] -= 1
                dropped[same, first] = True

    def _value(self, rows: Rows, name: str, where: Field, out: Array) -> None:
        """Put a field into its column; all-ones becomes the type's null."""
        low = self._low_bits.get(name)
        if low is not None and low < where.bits:
            where = Field(where.at + where.bits - low, low)
        if where.at % 8 == 0 and where.bits == 8 * out.dtype.itemsize:
            out[:] = rows.view(where.at // 8, where.bits)
            return
        value = rows.take(where)
        out[:] = value
        unknown = value == (1 << where.bits) - 1
        if unknown.any():
            out[unknown] = NULLS[name]


class _Columns(dict[str, Array]):
    """Columns of shape (count, width), null all over when first asked for."""

    def __init__(self, count: int, width: int) -> None:
        super().__init__()
        self._shape = (count, width)

    def __missing__(self, name: str) -> Array:
        made = self[name] = np.full(self._shape, NULLS[name], DTYPES[name])
        return made


def _rows_of(report: ReportLayout) -> int:
    return len(report.stack) + (report.own is not None)


def _kind_of_own(flags: ReportFlag) -> HopKind:
    if ReportFlag.DROP in flags:
        return HopKind.DROP
    if ReportFlag.QUEUE in flags:
        return HopKind.QUEUE
    return HopKind.HOP


def _merge(made: dict[str, Array], first: int, same: Array) -> None:
    """Where the newest hop is the reporter itself, it takes what only the report's own metadata says."""
    for name, column in made.items():
        null = NULLS[name]
        if name == "kind":
            column[same, first + 1] = column[same, first]
        elif name != "int_version":
            gap = same & (column[:, first + 1] == null)
            column[gap, first + 1] = column[gap, first]


def _join(parts: Sequence[_Part]) -> _Part:
    """All parts in the order of their datagrams."""
    names = sorted({name for part in parts for name in part.columns})
    if not parts:
        none = np.empty(0, np.int64)
        empty: dict[str, Array] = {
            "reporter": none.astype(np.uint32),
            "hw_id": none.astype(np.uint8),
            "seq": none,
            "version": none.astype(np.uint8),
            "reports": none,
        }
        return _Part({}, none, none, none, empty)
    if len(parts) == 1:
        return parts[0]
    datagram = np.concatenate([part.datagram for part in parts])
    rows = np.argsort(datagram, kind="stable")
    place = np.concatenate([part.place for part in parts])
    by_place = np.argsort(place, kind="stable")
    columns = {name: np.concatenate(list(_filled(parts, name)))[rows] for name in names}
    heads = {name: np.concatenate([part.heads[name] for part in parts])[by_place] for name in parts[0].heads}
    flow = np.concatenate([part.flow for part in parts])
    return _Part(columns, datagram[rows], flow[rows], place[by_place], heads)


def _filled(parts: Sequence[_Part], name: str) -> Iterator[Array]:
    for part in parts:
        column = part.columns.get(name)
        if column is None:
            column = np.full(len(part.datagram), NULLS[name], DTYPES[name])
        yield column
