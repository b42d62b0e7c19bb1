"""Where rows lie in time: sequence numbers, TAI, windows. What can't be meant is refused before anything is kept."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from schemas.batch import I64, Batch
from schemas.errors import MalformedInput
from schemas.time import EARLIEST_NS, LATEST_NS, append_to_tai
from streams.causality.intake import Chunk
from streams.clock.book import UNKNOWN, ClockBook
from streams.kernels.rows import take_rows

Array = NDArray[Any]


def place(chunk: Chunk, skip: I64, clocks: ClockBook) -> tuple[I64, I64, NDArray[np.bool_]]:
    """(sequence number, TAI time, whether new) of every row of a batch. `skip`: least new number by source entry."""
    batch, data = chunk.batch, chunk.batch.data
    ref, tai, rate, placed = clocks.map_of(chunk.clock_of)
    seq, time_ns = np.empty(batch.count, np.int64), np.empty(batch.count, np.int64)
    keep = np.empty(batch.count, np.bool_)
    take_rows(
        data["source"], data["raw_dt"], data["src_first_seq"], skip, data["src_base_ns"],
        ref, tai, rate, seq, time_ns, keep,
    )  # fmt: skip
    if batch.table_len("esc") and "raw_dt" in batch.strings:
        delta = np.where(placed[data["source"]], batch.raw_ns() - ref[data["source"]], 0)
        time_ns = tai[data["source"]] + delta + np.rint(delta * rate[data["source"]]).astype(np.int64)
    if not placed.all():
        time_ns[~placed[data["source"]]] = append_to_tai(chunk.append_ms)
    return seq, time_ns, keep


def watermarks(batch: Batch, slots: NDArray[np.int32], clocks: ClockBook) -> I64:
    """Low watermark of each source entry, TAI; UNKNOWN where there is none or no map. Raises MalformedInput."""
    stated = batch.data["src_low_watermark_ns"]
    ref, tai, rate, placed = clocks.map_of(slots)
    has = (stated != UNKNOWN) & placed
    stated = np.where(has, stated, ref)
    _check_range(stated, ref, tai, rate)
    delta = stated - ref
    return np.where(has, tai + delta + np.rint(delta * rate).astype(np.int64), UNKNOWN)


def check_times(batch: Batch, slots: NDArray[np.int32], clocks: ClockBook) -> None:
    """Raise MalformedInput for stamps that int64 arithmetic could not hold with ease once they are mapped."""
    if not batch.count:
        return
    data = batch.data
    ref, tai, rate, placed = clocks.map_of(slots)
    placed = placed & (data["src_last_seq"] >= data["src_first_seq"])
    _check_range(np.where(placed, data["src_base_ns"], ref), ref, tai, rate)
    if batch.table_len("esc") and "raw_dt" in batch.strings:
        source = data["source"]
        at = np.where(placed[source], batch.raw_ns(), ref[source])
        _check_range(at, ref[source], tai[source], rate[source])


def _check_range(at: I64, ref: I64, tai: I64, rate: Array) -> None:
    mapped = tai + (at.astype(np.float64) - ref) * (1.0 + rate)
    if ((mapped < EARLIEST_NS) | (mapped > LATEST_NS)).any():
        raise MalformedInput("a stamp or watermark is not between the years 1896 and 2116", "raw_ns")
