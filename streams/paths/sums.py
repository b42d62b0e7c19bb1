"""Sums and order by index."""

from typing import Any

import numpy as np
from numpy.typing import NDArray


def summed(index: NDArray[Any], amount: NDArray[Any], size: int) -> NDArray[np.float64]:
    """Sum of the amounts of each index 0 to size − 1, as float64."""
    return np.bincount(index, amount, size).astype(np.float64, copy=False)


def order_by(index: NDArray[Any], size: int) -> NDArray[np.int64]:
    """A stable order of indices 0 to size − 1; numpy sorts 16 bits by radix, which is faster."""
    return np.argsort(index.astype(np.uint16) if size <= 1 << 16 else index, kind="stable")
