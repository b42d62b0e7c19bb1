"""A batch of events: header tables and packed columns, as read from or written to a topic.

A batch belongs to one (publisher, scope, family). Its rows keep their sequence numbers without a column: the
k-th row of a source entry has the entry's first sequence number + k, and rows of other entries may lie between.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from schemas import columns as c
from schemas.errors import MalformedInput
from schemas.flat import (
    Array,
    Field,
    FlatSchema,
    check_index,
    check_tables,
    decode,
    encode,
    join_strings,
    split_strings,
)
from schemas.narrow import I64 as I64
from schemas.narrow import narrow as narrow
from schemas.narrow import null_column as null_column
from schemas.narrow import null_of as null_of
from schemas.narrow import widen as widen

HEADER = (
    Field("tenant", "string", "tenant whose events these are"),
    Field("scope", "string", "job or shard; empty for control rows of a whole partition"),
    Field("publisher", "string", "process that sent the batch"),
    Field("count", "long", "number of rows"),
)
STRINGS = c.Column("strings", "u1", "utf-8", "string table: each string ended by a zero byte")


def family_schema(family: str, version: int = 1) -> FlatSchema:
    """The Avro record of one family's batches."""
    tables = (*c.SOURCES, *c.CLOCKS, *c.GROUPS, c.GROUP_RANKS)
    return FlatSchema(
        full_name=f"org.tempotrace.v{version}.{family.capitalize()}Batch",
        doc=f"A batch of {family} events: packed columns, one row an event.",
        header=HEADER,
        columns=(
            STRINGS,
            *tables,
            *c.COMMON,
            *c.FAMILIES[family],
            *c.ENDPOINTS,
            *c.VALUES,
            *c.ESCAPES,
        ),
    )


SCHEMAS = {family: family_schema(family) for family in c.FAMILIES}


@dataclass(frozen=True, eq=False)
class Batch:
    """One batch. `data` holds the packed columns that are not absent, by name (see schemas.columns)."""

    tenant: str
    scope: str
    publisher: str
    family: str
    count: int
    strings: tuple[str, ...]
    data: dict[str, Array]

    def table_len(self, prefix: str) -> int:
        """Number of entries of a header table or sparse group ("src", "clk", "grp", "ep", "val", "esc")."""
        first = self.data.get(c.TABLES[prefix][0].name)
        return 0 if first is None else len(first)

    def text(self, index: int) -> str | None:
        """String of the table by index; None for a null index."""
        return None if index == c.NULL_U16 else self.strings[index]

    def column(self, name: str) -> Array:
        """A row column as packed; all null where it is absent. Shape (count,)."""
        packed = self.data.get(name)
        if packed is None:
            packed = np.full(self.count, null_of(_DTYPES[self.family][name]), _DTYPES[self.family][name])
        return packed

    def wide(self, name: str, rows: NDArray[np.integer[Any]] | None = None) -> I64:
        """An integer row column as int64, NULL_I64 where null, escapes applied. `rows`: only these (distinct,
        ascending), else all (count,)."""
        if rows is not None and len(rows) != self.count:
            if name not in self.data:
                return np.full(len(rows), c.NULL_I64)
            if self._escapes(name) is None:
                return widen(self.data[name][rows])
            whole = self.wide(name)
            return np.take(whole, rows)
        out = widen(self.column(name))
        escaped = self._escapes(name)
        if escaped is not None:
            out[self.data["esc_row"][escaped]] = self.data["esc_value"][escaped]
        return out

    def raw_ns(self, rows: NDArray[np.integer[Any]] | None = None) -> I64:
        """Stamps as read, on each row's own clock (ns). `rows`: only these (distinct, ascending)."""
        if rows is not None and len(rows) != self.count:
            if self._escapes("raw_dt") is not None:
                return np.take(self.raw_ns(), rows)
            some: I64 = self.data["src_base_ns"][self.data["source"][rows]] + self.data["raw_dt"][rows]
            return some
        if not self.table_len("src"):
            return np.full(self.count, c.NULL_I64, np.int64)
        out: I64 = self.data["src_base_ns"][self.column("source")] + self.column("raw_dt")
        escaped = self._escapes("raw_dt")
        if escaped is not None:
            out[self.data["esc_row"][escaped]] = self.data["esc_value"][escaped]
        return out

    def seq(self) -> I64:
        """Sequence number of each row. Shape (count,)."""
        source = self.column("source")
        out = np.empty(self.count, np.int64)
        order = np.argsort(source, kind="stable")
        counts = np.bincount(source, minlength=self.table_len("src"))
        starts = np.cumsum(counts) - counts
        out[order] = np.arange(self.count) - np.repeat(starts, counts)
        return out + self.data["src_first_seq"][source]

    def _escapes(self, name: str) -> NDArray[np.bool_] | None:
        if not self.table_len("esc") or name not in self.strings:
            return None
        mask: NDArray[np.bool_] = self.data["esc_column"] == self.strings.index(name)
        return mask


_DTYPES = {
    family: {column.name: np.dtype(column.dtype) for column in (*c.COMMON, *own)}
    for family, own in c.FAMILIES.items()
}


def encode_batch(batch: Batch) -> bytes:
    """A batch as one framed Avro record."""
    header: dict[str, str | int] = {
        "tenant": batch.tenant,
        "scope": batch.scope,
        "publisher": batch.publisher,
        "count": batch.count,
    }
    data: dict[str, Array | bytes] = {"strings": join_strings(batch.strings), **batch.data}
    return encode(SCHEMAS[batch.family].layout, header, data)


def read_batch(family: str, header: dict[str, str | int], data: dict[str, Array]) -> Batch:
    """A batch from a decoded flat record. Raises MalformedInput where the parts do not fit together."""
    batch = Batch(
        tenant=str(header["tenant"]),
        scope=str(header["scope"]),
        publisher=str(header["publisher"]),
        family=family,
        count=int(header["count"]),
        strings=_split_cached(data.pop("strings", None)),
        data=data,
    )
    validate(batch)
    return batch


def decode_batch(family: str, payload: bytes) -> Batch:
    """The batch in a framed record of this family's current schema."""
    return read_batch(family, *decode(SCHEMAS[family].layout, payload))


_strings_cache: dict[bytes, tuple[str, ...]] = {}


def _split_cached(blob: Array | None) -> tuple[str, ...]:
    """String tables repeat from batch to batch: a small cache saves splitting them."""
    if blob is None:
        return ()
    raw = blob.tobytes()
    known = _strings_cache.get(raw)
    if known is None:
        known = split_strings(raw)
        if len(raw) < 65_536:
            if len(_strings_cache) >= 256:
                _strings_cache.clear()
            _strings_cache[raw] = known
    return known


SEQ_MAX = 2**40  # so many events of one source are not meant; orders pack a source and a number into 64 bits
_NEEDED = frozenset(("src_name", "src_host", "clk_id", "grp_name", "val_name", "esc_column"))


def validate(batch: Batch) -> None:
    """Check that tables, columns and indices fit together. Raises MalformedInput, naming the field."""
    data, count, strings = batch.data, batch.count, len(batch.strings)
    if count < 0:
        raise MalformedInput(f"{count} rows", "count")
    check_tables(c.TABLES.values(), data)
    for column in (*c.COMMON, *c.FAMILIES[batch.family]):
        packed = data.get(column.name)
        if packed is None:
            continue
        if len(packed) != count:
            raise MalformedInput(f"{len(packed)} values for {count} rows", column.name)
        if column.unit == "string":
            check_index(packed, strings, column.name, c.NULL_U16)
    limits = {"row": count, "clock": batch.table_len("clk"), "group": batch.table_len("grp")}
    for table in c.TABLES.values():
        if table[0].name not in data:
            continue
        for column in table:
            packed = data[column.name]
            if column.unit == "string":
                check_index(packed, strings, column.name, None if column.name in _NEEDED else c.NULL_U16)
            elif column.unit == "row":
                check_index(packed, count, column.name)
            elif column.unit in limits:
                check_index(packed, limits[column.unit], column.name, c.NULL_U16)
    if batch.table_len("ep"):
        for name, limit in (("ep_point", 3), ("ep_kind", len(c.EdgeKind)), ("ep_role", 4)):
            check_index(data[name], limit, name)
    if batch.table_len("grp"):
        ranks = len(data.get("grp_ranks", ()))
        if (data["grp_first"].astype(np.int64) + data["grp_count"] > ranks).any():
            raise MalformedInput(f"a rank list beyond the {ranks} ranks given", "grp_first")
    if batch.family == "control":
        if count and "kind" not in data:
            raise MalformedInput("control rows without a kind", "kind")
    else:
        _validate_sources(batch)


def _validate_sources(batch: Batch) -> None:
    data, count, sources = batch.data, batch.count, batch.table_len("src")
    for needed in ("source", "raw_dt"):
        if count and needed not in data:
            raise MalformedInput(f"rows without {needed}", needed)
    if count:
        check_index(data["source"], sources, "source")
    if sources:
        first, last = data["src_first_seq"], data["src_last_seq"]
        rows = np.bincount(data["source"], minlength=sources) if count else np.zeros(sources, np.int64)
        if (last - first + 1 != rows).any():
            raise MalformedInput("sequence range of a source differs from its rows", "src_last_seq")
        if (first < 0).any() or (first > SEQ_MAX).any():
            raise MalformedInput(f"a sequence number outside of 0 to {SEQ_MAX}", "src_first_seq")


def runs_of(source: Array, seq: I64) -> tuple[Array, I64, I64]:
    """Gap-free runs of rows: (run of each row, first seq by run, source by run), in order of appearance."""
    order = np.lexsort((seq, source))
    new_run = np.empty(len(seq), bool)
    if len(seq):
        new_run[0] = True
        src, sq = source[order], seq[order]
        new_run[1:] = (src[1:] != src[:-1]) | (sq[1:] != sq[:-1] + 1)
    run = np.empty(len(seq), np.int64)
    run[order] = np.cumsum(new_run) - 1
    heads = order[new_run] if len(seq) else order
    return run, seq[heads], np.asarray(source[heads], np.int64)


def select(batch: Batch, rows: I64) -> Batch:
    """The batch with only these rows (ascending indices); one source entry per gap-free run of what is left.

    Watermarks, final flags, clocks and groups stay as they are in the entries that keep rows.
    """
    source = batch.column("source")[rows]
    run, first, by_run = runs_of(source, batch.seq()[rows])
    assert len(first) < c.NULL_U16, "more runs than a u16 can number: cut the batch first"
    data: dict[str, Array] = {}
    for column in c.SOURCES:
        if column.name in batch.data:
            data[column.name] = batch.data[column.name][by_run]
    data["src_first_seq"] = first
    data["src_last_seq"] = first + np.bincount(run, minlength=len(first)) - 1
    for column in (*c.CLOCKS, *c.GROUPS, c.GROUP_RANKS):
        if column.name in batch.data:
            data[column.name] = batch.data[column.name]
    for column in (*c.COMMON, *c.FAMILIES[batch.family]):
        if column.name in batch.data:
            data[column.name] = batch.data[column.name][rows]
    data["source"] = run.astype("<u2")
    place = np.full(batch.count, -1, np.int64)
    place[rows] = np.arange(len(rows))
    for prefix in ("ep", "val", "esc"):
        if not batch.table_len(prefix):
            continue
        at = place[batch.data[f"{prefix}_row"]]
        kept = at >= 0
        for column in c.TABLES[prefix]:
            data[column.name] = batch.data[column.name][kept]
        data[f"{prefix}_row"] = at[kept].astype("<u4")
    return Batch(batch.tenant, batch.scope, batch.publisher, batch.family, len(rows), batch.strings, data)
