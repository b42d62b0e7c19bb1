"""Sums by index, with the type that they have."""

from typing import Any

import numpy as np
from numpy.typing import NDArray


def summed(index: NDArray[Any], amount: NDArray[Any], size: int) -> NDArray[np.float64]:
    """Sum of the amounts of each index 0 to size − 1, as float64."""
    return np.bincount(index, amount, size).astype(np.float64, copy=False)
