"""How a table of the lake is laid out: columns, their packing in Parquet, folders.

`tenant`, `date` and `hour` (TAI) are in the folder names, so no file repeats them. A column's place is its
Parquet field id, by which the views read older files that lack it: columns are only ever appended.
"""

from datetime import date
from typing import NamedTuple

import pyarrow as pa

HOUR_NS = 3_600_000_000_000
SEED_FOLDER = "tenant=_/date=1970-01-01/hour=00"  # holds one file without rows, so that a view always has one

I64, I32, F64, BOOL, BLOB = pa.int64(), pa.int32(), pa.float64(), pa.bool_(), pa.binary()
U64, U8, TEXT = pa.uint64(), pa.uint8(), pa.string()
STEPS = pa.list_(pa.struct([pa.field("link", TEXT), pa.field("share", F64)]))
MEMBERS = pa.list_(
    pa.struct(
        [pa.field("link", TEXT), pa.field("weight", F64), pa.field("flows", F64), pa.field("bytes", F64)]
    )
)
LOSSES = pa.list_(pa.struct([pa.field("flow_id", U64), pa.field("loss", F64)]))
HEADERS = pa.list_(pa.struct([pa.field("name", TEXT), pa.field("value", BLOB)]))

# Columns with least and greatest value by row group: those that queries narrow by. On all columns these cost
# a third of the encoding time.
NARROWED_BY = ("window_start_ns", "time_ns", "order_ns", "onset_ns", "at_ns", "seq", "log_offset")


class Field(NamedTuple):
    """A column. `repeats`: few distinct values, so a dictionary pays; strings always have one."""

    name: str
    type: pa.DataType
    doc: str
    repeats: bool = False


class Table(NamedTuple):
    """A table: its folder in the lake is its name."""

    name: str
    doc: str
    fields: tuple[Field, ...]

    def schema(self, dictionaries: bool = False) -> pa.Schema:
        """Arrow schema of the files, or of the pieces they are made from, whose strings are dictionaries."""
        words = pa.dictionary(pa.int32(), TEXT) if dictionaries else TEXT
        return pa.schema(
            pa.field(
                entry.name,
                words if entry.type == TEXT else entry.type,
                metadata={b"PARQUET:field_id": str(place).encode()},
            )
            for place, entry in enumerate(self.fields, 1)
        )

    def dictionaries(self) -> list[str]:
        """Columns written with a dictionary."""
        return [f.name for f in self.fields if f.repeats or f.type == TEXT]

    def statistics(self) -> list[str]:
        """Columns written with least and greatest value."""
        return [f.name for f in self.fields if f.name in NARROWED_BY]

    def encodings(self) -> dict[str, str]:
        """Parquet encoding of the columns written without one."""
        out = {}
        for entry in self.fields:
            if entry.repeats:
                continue
            if pa.types.is_integer(entry.type) and entry.type.bit_width >= 32:
                out[entry.name] = "DELTA_BINARY_PACKED"
            elif pa.types.is_floating(entry.type):
                out[entry.name] = "BYTE_STREAM_SPLIT"
        return out


SCOPE = Field("scope", TEXT, "job or shard")
WINDOW = Field("window_start_ns", I64, "start of the window")


def sql_type(kind: pa.DataType) -> str:
    """The type's name in DuckDB."""
    if pa.types.is_list(kind):
        return f"{sql_type(kind.value_type)}[]"
    if pa.types.is_struct(kind):
        return f"STRUCT({', '.join(f'{f.name} {sql_type(f.type)}' for f in kind)})"
    return {
        I64: "BIGINT", I32: "INTEGER", F64: "DOUBLE", BOOL: "BOOLEAN", BLOB: "BLOB",
        U64: "UBIGINT", U8: "UTINYINT", TEXT: "VARCHAR",
    }[kind]  # fmt: skip


def folder(tenant: str, time_ns: int) -> str:
    """Partition folder of a moment (ns TAI): tenant=…/date=YYYY-MM-DD/hour=HH."""
    hours = time_ns // HOUR_NS
    day = date.fromordinal(date(1970, 1, 1).toordinal() + hours // 24)
    return f"tenant={tenant}/date={day.isoformat()}/hour={hours % 24:02d}"
