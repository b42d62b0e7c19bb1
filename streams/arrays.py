"""Tables of arrays that grow and are written to snapshots."""

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from schemas.errors import MalformedInput

Array = NDArray[Any]
_MAGIC = b"TTS1"


class Table:
    """Named columns of equal length that grow by rows; `table.name` is the live part of a column."""

    def __init__(self, **columns: tuple[Any, Any]) -> None:
        """Columns by name as (dtype, initial value of a new row)."""
        self._spec = {name: (np.dtype(dtype), fill) for name, (dtype, fill) in columns.items()}
        self._columns: dict[str, Array] = {n: np.empty(0, dtype) for n, (dtype, _) in self._spec.items()}
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, name: str) -> Array:
        """A column as a view that may be written to; it is stale once the table has grown."""
        return self._columns[name][: self._size]

    def grow(self, rows: int) -> int:
        """Add rows with the initial values; gives the index of the first."""
        first = self._size
        need = first + rows
        for name, (dtype, fill) in self._spec.items():
            column = self._columns[name]
            if need > len(column):
                bigger = np.empty(max(16, need, 2 * len(column)), dtype)
                bigger[:first] = column[:first]
                self._columns[name] = column = bigger
            column[first:need] = fill
        self._size = need
        return first

    def keep(self, mask: Array) -> None:
        """Drop the rows outside the mask (or keep these indices, in this order)."""
        for name, column in self._columns.items():
            self._columns[name] = column[: self._size][mask]
        self._size = len(next(iter(self._columns.values())))

    def append(self, columns: Mapping[str, Array]) -> None:
        """Add rows given as arrays; every column must be there."""
        rows = len(next(iter(columns.values())))
        first = self.grow(rows)
        for name in self._spec:
            self._columns[name][first : first + rows] = columns[name]

    def dump(self) -> dict[str, Array]:
        """The live columns, for a snapshot."""
        return {name: column[: self._size] for name, column in self._columns.items()}

    def load(self, columns: Mapping[str, Array]) -> None:
        """Replace the rows by what `dump` gave."""
        self._size = 0
        self.append(columns)


def pack_state(meta: Any, arrays: Mapping[str, Array]) -> bytes:
    """A snapshot: JSON and named arrays in one byte string."""
    names = [[name, array.dtype.str, list(array.shape)] for name, array in arrays.items()]
    head = json.dumps([meta, names], separators=(",", ":")).encode()
    parts = [_MAGIC, len(head).to_bytes(8, "little"), head]
    parts += [np.ascontiguousarray(array).tobytes() for array in arrays.values()]
    return b"".join(parts)


def unpack_state(blob: bytes) -> tuple[Any, dict[str, Array]]:
    """What `pack_state` packed; the arrays may be written to. Raises MalformedInput if it is something else."""
    if blob[:4] != _MAGIC:
        raise MalformedInput("not a snapshot of this version", "byte 0")
    size = int.from_bytes(blob[4:12], "little")
    meta, names = json.loads(blob[12 : 12 + size])
    at = 12 + size
    arrays: dict[str, Array] = {}
    for name, dtype, shape in names:
        kind = np.dtype(dtype)
        count = int(np.prod(shape)) if shape else 1
        if at + count * kind.itemsize > len(blob):
            raise MalformedInput("the snapshot is cut short", name)
        arrays[name] = np.frombuffer(blob, kind, count, at).reshape(shape).copy()
        at += count * kind.itemsize
    return meta, arrays
