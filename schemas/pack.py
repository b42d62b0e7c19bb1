"""Making batches from arrays. `schemas.draft` does it row by row, on top of this; the result is the same."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from schemas import columns as c
from schemas.batch import _DTYPES, I64, Batch, narrow, null_of
from schemas.errors import MalformedInput
from schemas.flat import Array
from schemas.time import ClockState


class Strings:
    """A string table that grows: `index` gives the place of a text, adding it at need."""

    def __init__(self) -> None:
        self._places: dict[str, int] = {}
        self._table: list[str] = []

    def index(self, text: str | None) -> int:
        """Place of `text`; NULL_I64 for None. What UTF-8 or the table can't hold (lone surrogates, a zero byte) is
        shown as U+FFFD or `?`. Raises MalformedInput beyond 65,534 texts: a producer cuts its batches before that."""
        if text is None:
            return c.NULL_I64
        place = self._places.get(text)
        if place is None:
            shown = text.replace("\0", "\ufffd").encode(errors="replace").decode()
            place = self._places.get(shown, -1)
            if place < 0:
                place = self._places[shown] = len(self._table)
                self._table.append(shown)
            self._places[text] = place
            if place >= c.NULL_U16:
                raise MalformedInput("more than 65,534 different names in one batch", text[:100])
        return place

    @property
    def table(self) -> tuple[str, ...]:
        return tuple(self._table)


@dataclass(frozen=True)
class Source:
    """One source of rows: a host thread, a GPU stream, a probe socket, a sampler."""

    name: str
    host: str
    clock: ClockState
    incarnation: int
    rank: int | None = None
    ordered: bool = True
    live: bool = False


@dataclass(frozen=True)
class Group:
    """A process group. `ranks` is the full list, or None where only the size is known."""

    name: str
    size: int
    ranks: tuple[int, ...] | None = None


@dataclass(frozen=True)
class Head:
    """What all rows of a batch share."""

    tenant: str
    scope: str
    publisher: str
    family: str


class SeqBook:
    """The next sequence number of every source of one publisher."""

    def __init__(self, start: Mapping[tuple[str, int], int] | None = None) -> None:
        self._next: dict[tuple[str, int], int] = dict(start or {})

    def take(self, source: Source, count: int) -> int:
        """First of `count` new sequence numbers."""
        key = (source.name, source.incarnation)
        first = self._next.get(key, 0)
        self._next[key] = first + count
        return first


def _table(columns: Sequence[c.Column], rows: Sequence[Mapping[str, int | float | None]]) -> dict[str, Array]:
    """Packed columns of a header table from one mapping an entry."""
    out: dict[str, Array] = {}
    for column in columns:
        dtype = np.dtype(column.dtype)
        null = null_of(dtype)
        values = (row[column.name] for row in rows)
        out[column.name] = np.array([null if v is None or v == c.NULL_I64 else v for v in values], dtype)
    return out


def _clock_row(clock: ClockState, strings: Strings) -> dict[str, int | float | None]:
    known = c.UTC_OFFSET_KNOWN if clock.utc_offset_s is not None else 0
    return {
        "clk_id": strings.index(clock.clock_id),
        "clk_epoch": clock.epoch,
        "clk_parent": strings.index(clock.parent),
        "clk_kind": clock.kind,
        "clk_status": clock.status,
        "clk_timescale": clock.timescale,
        "clk_flags": known | (c.UTC_OFFSET_VALID if clock.utc_offset_valid else 0),
        "clk_utc_offset_s": clock.utc_offset_s,
        "clk_ref_ns": clock.ref_ns,
        "clk_ref_parent_ns": clock.ref_parent_ns,
        "clk_rate_ppb": clock.rate_ppb,
        "clk_bound_ns": clock.bound_ns,
        "clk_as_of_ns": clock.as_of_ns,
        "clk_growth_ppb": clock.growth_ppb,
        "clk_quantum_ns": clock.quantum_ns,
        "clk_assurance": clock.assurance,
        "clk_epsilon": clock.epsilon,
        "clk_provenance": strings.index(clock.provenance),
    }


def _group_tables(groups: Sequence[Group], strings: Strings) -> dict[str, Array]:
    rows: list[dict[str, int | float | None]] = []
    listed: list[int] = []
    for group in groups:
        ranks = group.ranks or ()
        steps = {after - before for before, after in pairwise(ranks)}
        regular = bool(ranks) and len(steps) <= 1
        rows.append(
            {
                "grp_name": strings.index(group.name),
                "grp_size": group.size,
                "grp_start": ranks[0] if regular else None,
                "grp_stride": (steps.pop() if steps else 0) if regular else None,
                "grp_first": len(listed),
                "grp_count": 0 if regular else len(ranks),
            }
        )
        if not regular:
            listed += ranks
    tables = _table(c.GROUPS, rows)
    if listed:
        tables["grp_ranks"] = np.array(listed, "<i4")
    return tables


def pack(
    head: Head,
    strings: Strings,
    sources: Sequence[Source],
    first_seq: Sequence[int],
    source: Array,
    raw_ns: I64,
    columns: Mapping[str, Array],
    *,
    groups: Sequence[Group] = (),
    parents: Sequence[ClockState] = (),
    endpoints: Mapping[str, Array] | None = None,
    values: Mapping[str, Array] | None = None,
    watermark_ns: Sequence[int | None] | None = None,
    final: Sequence[bool] | None = None,
) -> Batch:
    """A batch from arrays of equal length.

    `source` gives each row's place in `sources`, `raw_ns` its stamp (int64, on the source's clock), `columns`
    the rest by name: int64 with NULL_I64 for null, float64 or uint64; string columns hold places in `strings`.
    `parents` are clocks that stamp no row but are parents of ones that do: maps and bounds follow them to the root.
    `endpoints` and `values` are the sparse groups by column name (ep_*, val_*). `watermark_ns` (raw, by source)
    says that no later row of that source begins below it, `final` that none follows at all.
    """
    count = len(raw_ns)
    assert len(source) == count
    assert len(first_seq) == len(sources)
    rows_of = (
        np.bincount(np.asarray(source, np.int64), minlength=len(sources)) if count else [0] * len(sources)
    )
    clocks = list(dict.fromkeys([*(entry.clock for entry in sources), *parents]))
    clock_place = {clock: place for place, clock in enumerate(clocks)}
    base = np.zeros(len(sources), np.int64)
    if count and sources:
        least = np.full(len(sources), np.iinfo(np.int64).max, np.int64)
        np.minimum.at(least, source, raw_ns)
        base = np.where(least == np.iinfo(np.int64).max, 0, least)
    entries: list[dict[str, int | float | None]] = []
    for place, entry in enumerate(sources):
        flags = (c.SOURCE_ORDERED if entry.ordered else 0) | (c.SOURCE_LIVE if entry.live else 0)
        entries.append(
            {
                "src_name": strings.index(entry.name),
                "src_rank": entry.rank,
                "src_host": strings.index(entry.host),
                "src_flags": flags | (c.SOURCE_FINAL if final is not None and final[place] else 0),
                "src_clock": clock_place[entry.clock],
                "src_incarnation": entry.incarnation,
                "src_base_ns": int(base[place]),
                "src_first_seq": first_seq[place],
                "src_last_seq": first_seq[place] + int(rows_of[place]) - 1,
                "src_low_watermark_ns": watermark_ns[place] if watermark_ns is not None else None,
            }
        )
    data: dict[str, Array] = {}
    if sources:
        data |= _table(c.SOURCES, entries)
        data |= _table(c.CLOCKS, [_clock_row(clock, strings) for clock in clocks])
    if groups:
        data |= _group_tables(groups, strings)
    esc_row: list[Array] = []
    esc_column: list[Array] = []
    esc_value: list[Array] = []

    def add(name: str, wide: Array, whole: Array) -> None:
        packed, outside = narrow(wide, _DTYPES[head.family][name])
        data[name] = packed
        if len(outside):
            esc_row.append(outside)
            esc_column.append(np.full(len(outside), strings.index(name)))
            esc_value.append(np.asarray(whole, np.int64)[outside])

    if count:
        if sources:
            data["source"] = np.asarray(source).astype("<u2")
            add("raw_dt", raw_ns - base[source], raw_ns)
        for name, wide in columns.items():
            assert len(wide) == count, f"{name}: {len(wide)} values for {count} rows"
            add(name, wide, wide)
    for prefix, sparse in (("ep", endpoints), ("val", values)):
        if sparse is not None and len(sparse[f"{prefix}_row"]):
            for column in c.TABLES[prefix]:
                data[column.name] = narrow(sparse[column.name], np.dtype(column.dtype))[0]
    if esc_row:
        data["esc_row"] = np.concatenate(esc_row).astype("<u4")
        data["esc_column"] = np.concatenate(esc_column).astype("<u2")
        data["esc_value"] = np.concatenate(esc_value).astype("<i8")
    return Batch(head.tenant, head.scope, head.publisher, head.family, count, strings.table, data)
