"""What the packed records of the `paths` topic share: one window of a scope, a string table, columns in tables."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from schemas.columns import NULL_U16, Column
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

HEADER = (
    Field("tenant", "string", "tenant"),
    Field("scope", "string", "job or shard"),
    Field("window_start_ns", "long", "start of the window, ns TAI"),
    Field("window_end_ns", "long", "end of the window, ns TAI"),
)
# A list of each row lies in another table: the columns of its first entry and its length, and one of that table.
Lists = Sequence[tuple[str, str, str]]


@dataclass(frozen=True, eq=False)
class WindowRecord:
    """One window of a scope; `data` as in the columns of the record's schema."""

    tenant: str
    scope: str
    window_start_ns: int
    window_end_ns: int
    strings: tuple[str, ...]
    data: dict[str, Array]


def write(schema: FlatSchema, record: WindowRecord) -> bytes:
    """One framed record."""
    header: dict[str, str | int] = {
        "tenant": record.tenant,
        "scope": record.scope,
        "window_start_ns": record.window_start_ns,
        "window_end_ns": record.window_end_ns,
    }
    return encode(schema.layout, header, {"strings": join_strings(record.strings), **record.data})


def read(
    schema: FlatSchema,
    tables: Sequence[Sequence[Column]],
    lists: Lists,
    header: dict[str, str | int],
    data: dict[str, Array],
) -> tuple[str, str, int, int, tuple[str, ...], dict[str, Array]]:
    """The fields of a WindowRecord from a decoded flat record. Raises MalformedInput."""
    strings = split_strings(data.pop("strings", None))
    check_tables(tables, data)
    for column in schema.columns:
        if column.unit == "string":
            check_index(data.get(column.name), len(strings), column.name, NULL_U16)
    for first, count, entries in lists:
        if first in data and len(data[first]):
            ends = data[first].astype(np.int64) + data[count]
            if (ends > len(data.get(entries, ()))).any():
                raise MalformedInput(f"a list beyond the entries of {entries}", first)
    start_ns, end_ns = int(header["window_start_ns"]), int(header["window_end_ns"])
    return str(header["tenant"]), str(header["scope"]), start_ns, end_ns, strings, data
