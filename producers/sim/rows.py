"""Rows in the making: columns with their true times, held back until what they tell has ended."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from schemas.flat import Array

I64 = NDArray[np.int64]
U64 = NDArray[np.uint64]


@dataclass(frozen=True)
class Rows:
    """Rows of one family: source (number in the cluster), true begin and end (ns since the start), and more.

    All arrays have one length. Of an ordered source, no row ends before one that begins earlier.
    """

    source: I64
    begin: I64
    end: I64
    more: dict[str, Array]

    def __len__(self) -> int:
        return len(self.source)

    def take(self, which: Array) -> "Rows":
        """The rows of a mask, or of an index array in its order."""
        more = {name: column[which] for name, column in self.more.items()}
        return Rows(self.source[which], self.begin[which], self.end[which], more)

    def cut(self, first: int, last: int) -> "Rows":
        """Rows first..last - 1, without a copy."""
        part = slice(first, last)
        more = {name: column[part] for name, column in self.more.items()}
        return Rows(self.source[part], self.begin[part], self.end[part], more)


def join(parts: Sequence[Rows]) -> Rows:
    """Rows one after the other. At least one part."""
    if len(parts) == 1:
        return parts[0]
    return Rows(
        np.concatenate([part.source for part in parts]),
        np.concatenate([part.begin for part in parts]),
        np.concatenate([part.end for part in parts]),
        {name: np.concatenate([part.more[name] for part in parts]) for name in parts[0].more},
    )


class Pending:
    """Rows of one family that were simulated ahead of the time at which a host could tell of them."""

    def __init__(self) -> None:
        self._parts: list[Rows] = []

    def add(self, rows: Rows) -> None:
        """Take rows that begin no earlier than those that were taken before, by source."""
        self._parts.append(rows)

    def take(self, now_ns: int) -> Rows | None:
        """Remove and give the rows that have ended by `now_ns`; None if there are none."""
        if not self._parts:
            return None
        rows = join(self._parts)
        ended = rows.end <= now_ns
        self._parts = [] if ended.all() else [rows.take(~ended)]
        return rows.take(ended) if ended.any() else None

    def last_end(self) -> int:
        """End of the last row that is held; 0 if there is none."""
        return max((int(rows.end.max()) for rows in self._parts if len(rows)), default=0)

    def lower(self, low_ns: I64) -> None:
        """Lower `low_ns` (by source) to the begin of the first row that each source still holds."""
        for rows in self._parts:
            np.minimum.at(low_ns, rows.source, rows.begin)


def mix(number: U64) -> U64:
    """A bijection of 64-bit numbers that leaves no pattern (the finaliser of SplitMix64). Any shape."""
    out = number.copy()
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        out ^= out >> np.uint64(shift)
        out *= np.uint64(factor)
    out ^= out >> np.uint64(31)
    return out
