"""Where the rows of all traces are cut into batches, so that each holds no more names than a batch can.

That is 65,534 different texts. Sources have up to three of their own, a row at most five, and its numbers one each.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np

from producers.gpu.kineto import I64

LISTED_MAX: Final = 16_384  # sources of a heartbeat
VALUE_NAMES_MAX: Final = 16_384  # different names of numbers in a batch


class Part(NamedTuple):
    """Rows of a batch. `listed`: the sources of a heartbeat, None: those of the rows. `promised`: whether sources
    say up to when they are known."""

    rows: slice
    listed: I64 | None = None
    promised: bool = True


def heartbeats(sources: int) -> Iterator[Part]:
    """Batches that list so many sources. If one can't hold them, all are listed once without a promise first."""
    every = np.arange(sources)
    lists = np.split(every, range(LISTED_MAX, sources, LISTED_MAX))
    for promised in (False, True) if len(lists) > 1 else (True,):
        for listed in lists:
            yield Part(slice(0, 0), listed, promised)


def rows(total: int, rows_max: int, value_row: I64, value_name: I64) -> Iterator[Part]:
    """Batches of at most `rows_max` rows of `total`, fewer where their numbers have too many names.

    `value_row` is sorted; the numbers of a single row are taken to fit (see collectives.SPLITS_MAX).
    """
    low = 0
    while low < total:
        high = min(low + rows_max, total)
        while high > low + 1:
            first, last = np.searchsorted(value_row, (low, high))
            names = value_name[first:last]
            if len(names) <= VALUE_NAMES_MAX or len(np.unique(names)) <= VALUE_NAMES_MAX:
                break
            high = (low + high) // 2
        yield Part(slice(low, high))
        low = high
