"""Rows as packed columns of a record."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from schemas.columns import Column
from schemas.narrow import null_of
from schemas.pack import Strings


def pack_rows(
    columns: Sequence[Column], prefix: str, rows: Sequence[Mapping[str, Any]], strings: Strings
) -> dict[str, NDArray[Any]]:
    """Columns of a table whose names begin with `prefix_`; what a row lacks, or has as None, is null.

    Without rows there are no columns.
    """
    out = {}
    for column in columns if rows else ():
        dtype, key = np.dtype(column.dtype), column.name.removeprefix(f"{prefix}_")
        values = [row.get(key) for row in rows]
        if column.unit == "string":
            values = [None if text is None else strings.index(text) for text in values]
        null = null_of(dtype)
        out[column.name] = np.array([null if value is None else value for value in values], dtype)
    return out
