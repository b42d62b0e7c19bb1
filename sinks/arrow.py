"""From packed columns to Arrow columns, whole arrays at a time."""

from collections.abc import Sequence
from enum import IntEnum
from functools import cache

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from schemas import columns as c
from schemas.flat import Array
from sinks.layout import Table

I64 = NDArray[np.int64]


def assemble(table: Table, arrays: Sequence[pa.Array]) -> pa.Table:
    """The columns of a table of the lake, given in its order."""
    return pa.table(dict(zip([field.name for field in table.fields], arrays, strict=True)))


def single(table: Table, row: Sequence[object]) -> pa.Table:
    """A table of one row, given as Python values."""
    return assemble(table, [_one(value, field.type) for field, value in zip(table.fields, row, strict=True)])


def _one(value: object, kind: pa.DataType) -> pa.Array:
    return pa.array([value], kind).dictionary_encode() if kind == pa.string() else pa.array([value], kind)


def integers(values: Array, kind: pa.DataType | None = None) -> pa.Array:
    """int64 values as Arrow integers; NULL_I64 becomes null."""
    null = values == c.NULL_I64
    return pa.array(values, mask=null if null.any() else None).cast(kind or pa.int64())


def narrow(values: Array, null: int, kind: pa.DataType) -> pa.Array:
    """Integers of any dtype as Arrow integers; `null` becomes null."""
    mask = values == null
    if values.dtype == np.uint64 and kind == pa.int64():
        values = values.view(np.int64)
    return pa.array(values, mask=mask if mask.any() else None).cast(kind)


def floats(values: Array) -> pa.Array:
    """Floats as Arrow doubles; NaN becomes null."""
    null = np.isnan(values)
    return pa.array(values, mask=null if null.any() else None)


def texts(places: Array, strings: Sequence[str]) -> pa.DictionaryArray:
    """Places in a string table as a dictionary column of just the strings in use; NULL_U16 is null."""
    return _dictionary(places, strings)


def names(codes: Array, code_table: type[IntEnum]) -> pa.DictionaryArray:
    """Codes as a dictionary column of lower-case names; an unknown code is its number, 255 null."""
    return _dictionary(codes, code_names(code_table))


@cache
def code_names(code_table: type[IntEnum]) -> tuple[str, ...]:
    """The name of every code from 0 to 254."""
    known = {code.value: code.name.lower() for code in code_table}
    return tuple(known.get(code, str(code)) for code in range(c.NULL_U8))


def gathered(column: pa.DictionaryArray, entry: Array) -> pa.DictionaryArray:
    """A dictionary column of a table, repeated for each row's entry in that table; null beyond its end."""
    places = np.append(column.indices.fill_null(-1).to_numpy(), np.int32(-1))
    rows = places.take(entry, mode="clip")
    null = rows < 0 if rows.size and rows.min() < 0 else None
    return pa.DictionaryArray.from_arrays(pa.array(rows, mask=null), column.dictionary)


def constant(text: str, count: int) -> pa.DictionaryArray:
    """One string on every row."""
    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(count, np.int32)), pa.array([text]))


def nulls(count: int, kind: pa.DataType) -> pa.Array:
    """A column of nulls; of a string column, as a dictionary."""
    if kind == pa.string():
        empty = pa.array(np.zeros(count, np.int32), mask=np.ones(count, bool))
        return pa.DictionaryArray.from_arrays(empty, pa.array([], pa.string()))
    return pa.nulls(count, kind)


def _dictionary(places: Array, strings: Sequence[str]) -> pa.DictionaryArray:
    size = len(strings)
    at = np.minimum(places, size).astype(np.intp)  # every null, in one place beyond the table
    seen = np.zeros(size + 1, bool)
    seen[at] = True
    used = np.flatnonzero(seen[:size])
    place = np.full(size + 1, -1, np.int32)
    place[used] = np.arange(len(used), dtype=np.int32)
    rows = place.take(at)
    missing = rows < 0 if seen[size] else None
    words = pa.array([strings[where] for where in used.tolist()], pa.string())
    return pa.DictionaryArray.from_arrays(pa.array(rows, mask=missing), words)
