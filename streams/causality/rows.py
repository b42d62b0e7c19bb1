"""The rows of a released window in final order, as arrays that its parts are cut from."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from schemas import columns as c
from schemas.batch import I64
from streams.causality.gather import Window
from streams.causality.release import Released
from streams.causality.sources import Sources
from streams.clock.book import ClockBook

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class Rows:
    """Rows that leave, in final order; arrays of shape (rows,) unless said otherwise.

    An *entry* is a source with a clock state; entries are in the order of source names. Causes are sparse:
    `caused` are the rows that have one.
    """

    entry: I64
    entry_source: I64  # by entry: scope's number
    entry_clock: I64  # by entry: clock slot, -1 without
    base_seq: I64  # by entry
    base_ns: I64
    chunk: I64  # place in `inputs`
    inputs: list[tuple[int, int, int]]  # (partition, offset, append ms) of the chunks, in order of arrival
    seq: I64
    raw_ns: I64
    order_ns: I64
    duration: I64
    kind: Array
    entity: Array  # scope's string numbers
    name: Array
    end_shift_ns: I64
    caused: I64
    cause_source: I64  # by caused row
    cause_seq: I64
    cause_point: Array
    cause_verdict: Array

    def __len__(self) -> int:
        return len(self.entry)


def final_order(released: Released, start_ns: int) -> I64:
    """Layout places of the rows that leave, by (order, source name, sequence).

    One packed key sorted in place: the layout is in (source, sequence) order already.
    """
    rows = np.flatnonzero(released.leaves)
    bits = max(1, len(released.leaves).bit_length())
    span = released.order_ns[rows] - start_ns
    if len(rows) and int(span.max()) >> (63 - bits):
        return rows[np.argsort(span, kind="stable")]
    key = (span << bits) | rows
    key.sort()
    return key & ((1 << bits) - 1)


def rows_of(released: Released, order: I64, sources: Sources, clocks: ClockBook) -> Rows:
    """The rows at these layout places, in this order."""
    window, ends = released.window, released.ends
    source, clock = window.source[order].astype(np.int64), window.clock[order].astype(np.int64)
    entry, entry_source, entry_clock = _entries(source, clock, sources, clocks)
    seq, raw = window.seq[order], window.raw_ns[order]
    base_seq = np.full(len(entry_source), np.iinfo(np.int64).max)
    base_ns = np.full(len(entry_source), np.iinfo(np.int64).max)
    np.minimum.at(base_seq, entry, seq)
    np.minimum.at(base_ns, entry, raw)
    chunk, inputs = _inputs(window, order)
    order_ns = released.order_ns[order]
    cause = released.cause[order]
    caused = np.flatnonzero(cause >= 0)
    at = cause[caused]
    return Rows(
        entry=entry,
        entry_source=entry_source,
        entry_clock=entry_clock,
        base_seq=base_seq,
        base_ns=base_ns,
        chunk=chunk,
        inputs=inputs,
        seq=seq,
        raw_ns=raw,
        order_ns=order_ns,
        duration=window.duration[order],
        kind=window.kind[order],
        entity=window.entity[order],
        name=window.name[order],
        end_shift_ns=released.order_end_ns[order] - order_ns - window.length_ns[order],
        caused=caused,
        cause_source=ends["source"][at].astype(np.int64),
        cause_seq=ends["seq"][at],
        cause_point=(ends["point"][at] == c.Point.END).astype("u1"),
        cause_verdict=released.cause_verdict[order[caused]],
    )


def _entries(source: I64, clock: I64, sources: Sources, clocks: ClockBook) -> tuple[I64, I64, I64]:
    """Entry of each row, and the sources and clocks of the entries."""
    known = np.full(len(sources), -2, np.int64)
    known[source] = clock
    if (known[source] == clock).all():  # each source has one clock state, as is usual
        used = np.flatnonzero(known > -2)
        used = used[np.argsort(sources.name_order()[used])]
        place = np.empty(len(known), np.int64)
        place[used] = np.arange(len(used))
        return place[source], used, known[used]
    # By what the clocks say: the numbers of slots depend on which were forgotten before.
    states = np.unique(clock)
    by_content = sorted(states.tolist(), key=lambda slot: ("", -1) if slot < 0 else clocks.content(slot))
    rank = np.empty(len(clocks) + 1, np.int64)
    rank[by_content] = np.arange(len(by_content))
    code = sources.name_order()[source].astype(np.int64) * len(by_content) + rank[clock]
    first, entry = np.unique(code, return_index=True, return_inverse=True)[1:]
    return entry, source[first], clock[first]


def _inputs(window: Window, order: I64) -> tuple[I64, list[tuple[int, int, int]]]:
    """Chunk of each row, and what the chunks are."""
    places: dict[int, int] = {}
    inputs: list[tuple[int, int, int]] = []
    of_part = np.empty(len(window.parts), np.int64)
    for k, part in enumerate(window.parts):
        chunk = part.chunk
        place = places.setdefault(id(chunk), len(inputs))
        if place == len(inputs):
            inputs.append((chunk.partition, chunk.offset, chunk.append_ms))
        of_part[k] = place
    by_gathered = np.repeat(of_part, np.diff(window.part_start))
    return by_gathered[window.gathered[order]], inputs
