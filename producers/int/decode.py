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
from producers.int.layout import I64, U8, Array, Field, Group, Reader, Words
from producers.int.report import DatagramLayout, FlowLayout, ReportLayout, read
from schemas.columns import COMMON, FAMILIES, HopKind, ReportFlag
from schemas.errors import MalformedInput
from schemas.flow import address_text, flow_id

DTYPES: Final = {column.name: np.dtype(column.dtype) for column in (*COMMON, *FAMILIES["int"])}
FLOWS_MAX: Final = 65_536  # kept from block to block
_MIX = np.array(
    [0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0xD6E8FEB86659FD93, 0xFF51AFD7ED558CCD],
    np.uint64,
)


class Flow(NamedTuple):
    """A flow by number and by name."""

    flow: int
    src: str
    dst: str
    sport: int
    dport: int
    protocol: int


@dataclass
class Hops:
    """The hops of a block.

    `columns`: own columns of the family that are not null throughout, and `kind`; shape (rows,). `datagram`:
    each row's place in the block. `flow`: each row's place in `flows`, -1 for none. Per good datagram, in
    order of place: `place`, `reporter` (null: not named), `hw_id`, `seq`, `version`, `reports` (their number).
    `warned`: reports by the bits of their warnings. `failures`: the others, by place.
    """

    columns: dict[str, Array]
    datagram: I64
    flow: I64
    flows: Sequence[Flow]
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
    """Decodes the reports of one kind of sender. Remembers layouts and flows, which changes the speed only."""

    def __init__(self, dialect: Dialect = SPEC) -> None:
        self._reader: Reader[DatagramLayout] = Reader(partial(read, dialect=dialect))
        self._low_bits = dict(dialect.low_bits)
        self._flow_of: dict[bytes, int] = {}
        self._flows: list[Flow] = []

    def decode(self, data: U8, at: I64, size: I64) -> Hops:
        """The hops of the datagrams data[at : at + size]. Shapes (bytes,), (n,), (n,)."""
        if len(self._flows) > FLOWS_MAX:
            self._flow_of, self._flows = {}, []
        failures: dict[int, MalformedInput] = {}
        parts: list[_Part] = []
        warned: dict[int, int] = {}
        for group in self._reader.read(data, at, size, failures):
            parts.append(self._part(group))
            for report in group.layout.reports:
                if report.warnings:
                    warned[report.warnings] = warned.get(report.warnings, 0) + len(group.rows)
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
        layout, words = group.layout, group.words
        count = words.count
        width = sum(_rows_of(report) for report in layout.reports)
        made: dict[str, Array] = {}
        flow = np.full((count, width), -1, np.int64)
        kept = np.ones((count, width), bool)
        first = 0
        for report in layout.reports:
            own = _rows_of(report)
            self._report(words, report, made, first, width, kept)
            if report.flow is not None:
                flow[:, first : first + own] = self._flow(words, report.flow)[:, None]
            first += own
        numbers = np.repeat(np.arange(len(layout.reports)), [_rows_of(report) for report in layout.reports])
        heads: dict[str, Array] = {
            "reporter": np.full(count, 2**32 - 1, np.uint32)
            if layout.reporter is None
            else words.take(layout.reporter).astype(np.uint32),
            "hw_id": words.take(layout.hw_id).astype(np.uint8),
            "seq": words.take(layout.seq).astype(np.int64),
            "version": np.full(count, layout.version, np.uint8),
            "reports": np.full(count, len(layout.reports), np.int64),
        }
        for name, head in (("reporter", "reporter"), ("hw_id", "hw_id"), ("version", "version")):
            made[name] = np.repeat(heads[head], width).reshape(count, width)
        made["report_seq"] = np.repeat(heads["seq"].astype(np.uint32), width).reshape(count, width)
        made["report"] = np.broadcast_to(numbers.astype(np.uint32), (count, width))
        datagram = np.repeat(group.rows, width)
        columns = {name: np.ascontiguousarray(values).reshape(-1) for name, values in made.items()}
        flows = flow.reshape(-1)
        if not kept.all():
            chosen = kept.reshape(-1)
            columns = {name: values[chosen] for name, values in columns.items()}
            datagram, flows = datagram[chosen], flows[chosen]
        return _Part(columns, datagram, flows, group.rows, heads)

    def _report(
        self, words: Words, report: ReportLayout, made: dict[str, Array], first: int, width: int, kept: Array
    ) -> None:
        """Fill the columns of one report, rows `first` on of each datagram's `width`."""
        hops = (*((report.own,) if report.own else ()), *report.stack)
        for place, hop in enumerate(hops):
            for name, where in hop.fields:
                self._column(made, name, words.count, width)[:, first + place] = self._value(words, name, where)
        span = slice(first, first + len(hops))
        kinds = [HopKind.HOP] * len(hops)
        if report.own is not None:
            kinds[0] = _kind_of_own(report.flags)
        constant: tuple[tuple[str, Sequence[int | None]], ...] = (
            ("kind", kinds),
            ("hop", range(len(hops) - 1, -1, -1)),
            ("hops", [len(hops)] * len(hops)),
            ("int_version", [hop.int_version for hop in hops]),
            ("report_flags", [int(report.flags)] * len(hops)),
            ("warnings", [int(report.warnings)] * len(hops)),
        )
        for name, values in constant:
            null = np.iinfo(DTYPES[name]).max
            row = np.array([null if value is None else value for value in values], DTYPES[name])
            self._column(made, name, words.count, width)[:, span] = row
        if report.report_ts is not None:
            stamp = words.take(report.report_ts).astype(np.uint32)
            self._column(made, "report_ts", words.count, width)[:, span] = stamp[:, None]
        if report.own is not None and report.stack and "node" in made:
            node = made["node"]
            same = (node[:, first] == node[:, first + 1]) & (node[:, first] != np.iinfo(np.uint32).max)
            if same.any():
                _merge(made, first, same)
                made["hops"][same, span] -= 1
                kept[same, first] = False

    def _column(self, made: dict[str, Array], name: str, count: int, width: int) -> Array:
        column = made.get(name)
        if column is None:
            column = made[name] = np.full((count, width), np.iinfo(DTYPES[name]).max, DTYPES[name])
        return column

    def _value(self, words: Words, name: str, where: Field) -> Array:
        """A field in its column's type; all-ones becomes the type's null."""
        low = self._low_bits.get(name)
        if low is not None and low < where.bits:
            where = Field(where.at + where.bits - low, low)
        value = words.take(where)
        dtype = DTYPES[name]
        out = value.astype(dtype)
        if where.bits < 8 * dtype.itemsize:
            out[value == (1 << where.bits) - 1] = np.iinfo(dtype).max
        return out

    def _flow(self, words: Words, flow: FlowLayout) -> I64:
        """Each datagram's place in the list of flows. Shape (count,)."""
        zero = np.zeros(words.count, np.uint64)
        sport = zero if flow.sport is None else words.take(flow.sport).astype(np.uint64)
        dport = zero if flow.dport is None else words.take(flow.dport).astype(np.uint64)
        ports = sport << np.uint64(24) | dport << np.uint64(8) | np.uint64(flow.protocol)
        places = [Field(where.at + bit, min(64, where.bits)) for where in (flow.src, flow.dst)
                  for bit in range(0, where.bits, 64)]  # fmt: skip
        keys = np.stack([*(words.take(place).astype(np.uint64) for place in places), ports])
        first, which = distinct(keys)
        size = flow.src.bits // 8
        ids = np.array([self._intern(keys[:, place], size) for place in first.tolist()], np.int64)
        return ids[which]

    def _intern(self, key: Array, size: int) -> int:
        """Place in the list of flows of (words of source, of destination, ports and protocol)."""
        raw = key.tobytes()
        known = self._flow_of.get(raw)
        if known is None:
            half = (len(key) - 1) // 2
            parts = [int(part) for part in key]
            src = b"".join(part.to_bytes(size // half, "big") for part in parts[:half])
            dst = b"".join(part.to_bytes(size // half, "big") for part in parts[half:-1])
            sport, dport, protocol = parts[-1] >> 24, parts[-1] >> 8 & 0xFFFF, parts[-1] & 0xFF
            number = flow_id(src, dst, sport, dport, protocol)
            known = self._flow_of[raw] = len(self._flows)
            self._flows.append(Flow(number, address_text(src), address_text(dst), sport, dport, protocol))
        return known


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
        null = np.iinfo(DTYPES[name]).max
        if name == "kind":
            column[same, first + 1] = column[same, first]
        elif name != "int_version":
            gap = same & (column[:, first + 1] == null)
            column[gap, first + 1] = column[gap, first]


def distinct(keys: Array) -> tuple[I64, I64]:
    """Of keys (words, n; u64): where each distinct one is first, and which one each is. Shapes (k,), (n,)."""
    count = keys.shape[1]
    if count and (keys == keys[:, :1]).all():
        return np.zeros(1, np.int64), np.zeros(count, np.int64)
    mixed = np.zeros(count, np.uint64)
    for number, word in enumerate(keys):
        mixed ^= mixed >> np.uint64(29)
        mixed = (mixed + word) * _MIX[number % len(_MIX)]
    _, first, which = np.unique(mixed, return_index=True, return_inverse=True)
    if not (keys[:, first[which]] == keys).all():  # two keys with one mixed number
        _, first, which = np.unique(keys, axis=1, return_index=True, return_inverse=True)
    return first.astype(np.int64), which.reshape(-1).astype(np.int64)


def _join(parts: Sequence[_Part]) -> _Part:
    """All parts in the order of their datagrams."""
    names = sorted({name for part in parts for name in part.columns})
    if not parts:
        none = np.empty(0, np.int64)
        empty: dict[str, Array] = {"reporter": none.astype(np.uint32), "hw_id": none.astype(np.uint8), "seq": none,
                 "version": none.astype(np.uint8), "reports": none}  # fmt: skip
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
            column = np.full(len(part.datagram), np.iinfo(DTYPES[name]).max, DTYPES[name])
        yield column
