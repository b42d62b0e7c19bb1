"""Kernels that number, place and lay out the rows of a batch. Free functions on arrays; numpy twins in tests/naive."""

import numpy as np
from numba import njit
from numpy.typing import NDArray

I64 = NDArray[np.int64]
I32 = NDArray[np.int32]


@njit(cache=True)
def take_rows(
    source: NDArray[np.uint16],
    raw_dt: NDArray[np.uint32],
    first_seq: I64,
    skip_to: I64,
    base_ns: I64,
    ref_ns: I64,
    ref_tai_ns: I64,
    rate: NDArray[np.float64],
    seq: I64,
    time: I64,
    keep: NDArray[np.bool_],
) -> int:
    """Sequence number and TAI time of each row, and whether it is new; gives the number of new rows.

    By source entry: first_seq, skip_to (the least sequence number not yet seen), base_ns, and the map
    time = ref_tai + (raw - ref)·(1 + rate). By row, written: seq, time, keep. All of shape (rows,) or (entries,).
    """
    n_entries = len(first_seq)
    counter = np.empty(n_entries, np.int64)
    for k in range(n_entries):
        counter[k] = first_seq[k]
    kept = 0
    for i in range(len(source)):
        s = np.int64(source[i])
        q = counter[s]
        counter[s] = q + 1
        seq[i] = q
        delta = base_ns[s] + np.int64(raw_dt[i]) - ref_ns[s]
        t = ref_tai_ns[s] + delta
        if rate[s] != 0.0:
            t += np.int64(np.rint(delta * rate[s]))
        time[i] = t
        new = q >= skip_to[s]
        keep[i] = new
        if new:
            kept += 1
    return kept


@njit(cache=True)
def stable_by(rank: I32, n_ranks: int) -> tuple[I64, I64]:
    """Stable counting sort of rows by rank: (order, start of each rank's run; length n_ranks + 1)."""
    start = np.zeros(n_ranks + 1, np.int64)
    for i in range(len(rank)):
        start[rank[i] + 1] += 1
    for k in range(n_ranks):
        start[k + 1] += start[k]
    place = start[:-1].copy()
    order = np.empty(len(rank), np.int64)
    for i in range(len(rank)):
        r = rank[i]
        order[place[r]] = i
        place[r] += 1
    return order, start


@njit(cache=True)
def raise_windows(source: I32, ordered: NDArray[np.bool_], last: I64, window: I64) -> None:
    """Raise each row's window to that of the row before it of the same source, where the source is ordered.

    source, window: (rows,); ordered: (sources,); last: (sources,) window of each source's last row, carried on.
    """
    for i in range(len(source)):
        s = source[i]
        if ordered[s]:
            if window[i] < last[s]:
                window[i] = last[s]
            else:
                last[s] = window[i]
