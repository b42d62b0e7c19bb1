"""Wide values and packed ones: int64 with NULL_I64 for null, against narrow columns with escapes beside them."""

import numpy as np
from numpy.typing import NDArray

from schemas import columns as c
from schemas.flat import Array

I64 = NDArray[np.int64]


def null_of(dtype: np.dtype[np.generic]) -> int | float:
    """What stands for null in a packed column of this dtype."""
    if dtype.kind == "f":
        return float("nan")
    info = np.iinfo(dtype.str)
    return int(info.max if dtype.kind == "u" else info.min)


def null_column(column: c.Column, rows: int) -> Array:
    """So many nulls, packed."""
    dtype = np.dtype(column.dtype)
    return np.full(rows, null_of(dtype), dtype)


def widen(packed: Array) -> I64:
    """Packed integers as int64 with NULL_I64 for null. u64 columns (hashes, switch stamps) are reinterpreted."""
    if packed.dtype == np.uint64:
        return packed.astype(np.uint64).view(np.int64)
    out = packed.astype(np.int64)
    if packed.dtype != np.int64:
        out[packed == null_of(packed.dtype)] = c.NULL_I64
    return out


def narrow(values: Array, dtype: np.dtype[np.generic]) -> tuple[Array, I64]:
    """Wide values packed into `dtype`, and the rows that did not fit and need an escape.

    Values: int64 with NULL_I64 for null, or float64, or uint64; or already of the column's narrow dtype, with
    the type's greatest value for null. Raises AssertionError for a value that a signed narrow column cannot
    hold: such columns have no escapes.
    """
    none = np.empty(0, np.int64)
    if values.dtype == dtype:
        return np.ascontiguousarray(values), none
    if dtype.kind == "f" or dtype == np.uint64 or dtype == np.int64:
        return np.ascontiguousarray(values).astype(dtype, copy=False), none
    wide = np.asarray(values, np.int64)
    info = np.iinfo(dtype.str)
    if len(wide) and wide.min() >= 0 and wide.max() < info.max:
        return wide.astype(dtype), none  # nothing null, nothing to escape: as nearly always
    null = wide == c.NULL_I64
    if dtype.kind == "i":
        assert ((wide > info.min) & (wide <= info.max) | null).all(), f"a value does not fit {dtype}"
        return np.where(null, info.min, wide).astype(dtype), none
    outside = (wide < 0) | (wide >= info.max)
    packed = np.where(outside, info.max, wide).astype(dtype)
    return packed, np.flatnonzero(outside & ~null)
