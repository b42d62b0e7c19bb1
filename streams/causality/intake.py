"""What is kept of a batch once it is accepted: parts of its rows, one for each window they fall in.

A *chunk* is an accepted batch with the identity of its record. A *part* is the rows of a chunk that wait in one
window. Arrays of the batch are kept as they came (views of the message); only source, sequence number and TAI
time are worked out on the way in.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from schemas.batch import I64, Batch, encode_batch, select
from schemas.merged import length_ns
from schemas.processor import Output, Ref

I32 = NDArray[np.int32]
NONE = np.empty(0, np.int32)
Array = NDArray[Any]
MARKS: dict[str, Any] = {
    "key": np.uint64,
    "kind": np.uint8,
    "role": np.uint8,
    "point": np.uint8,
    "op": np.uint8,
    "flags": np.uint8,
    "size": np.int64,
}


@dataclass(frozen=True, eq=False)
class Chunk:
    """An accepted batch: record identity and, by source entry, the scope's source and clock slot."""

    batch: Batch
    topic: str
    read_offset: int  # where this log holds it, for a restart
    partition: int  # where it was first appended (tt-origin)
    offset: int
    append_ms: int
    source_of: I32
    clock_of: I32
    strings: I32  # scope's number of each string of the batch, and -1 for null at the end


@dataclass(frozen=True, eq=False)
class Part:
    """Rows of a chunk in one window, in the batch's order. `loose`: ordered by edges only, not by their time."""

    chunk: Chunk
    rows: I32  # in the batch
    source: I32  # scope's number
    seq: I64
    time_ns: I64
    endpoints: I32  # of the batch, whose rows are here
    endpoint_at: I32  # their rows' places in this part
    values: I32
    value_at: I32
    loose: bool

    def __len__(self) -> int:
        return len(self.rows)

    @cached_property
    def marks(self) -> dict[str, Array]:
        """The endpoints' own columns, and those of their rows: `entry` in the batch's source table, `source`,
        `seq`, `begin_ns`, `duration`. Kept, since a part is looked at in the windows before its own too."""
        data, which, at = self.chunk.batch.data, self.endpoints, self.endpoint_at
        rows = self.rows[at]
        columns = {name: data[f"ep_{name}"][which].astype(dtype, copy=False) for name, dtype in MARKS.items()}
        return columns | {
            "entry": data["source"][rows],
            "source": self.source[at],
            "seq": self.seq[at],
            "begin_ns": self.time_ns[at],
            "duration": length_ns(self.chunk.batch.wide("duration_ns", self.rows)[at]),
        }

    def only(self, keep: NDArray[np.bool_]) -> "Part":
        """The part with these rows only."""
        place = np.cumsum(keep, dtype=np.int32) - 1
        ends, vals = keep[self.endpoint_at], keep[self.value_at]
        return Part(
            self.chunk,
            self.rows[keep],
            self.source[keep],
            self.seq[keep],
            self.time_ns[keep],
            self.endpoints[ends],
            place[self.endpoint_at[ends]],
            self.values[vals],
            place[self.value_at[vals]],
            self.loose,
        )

    def refs(self) -> Iterator[Ref]:
        """The part's rows as runs without gaps."""
        breaks = np.flatnonzero(np.diff(self.rows) != 1) + 1
        for run in np.split(self.rows, breaks):
            yield Ref(self.chunk.topic, self.chunk.read_offset, int(run[0]), int(run[-1]))


def canonical(parts: Sequence[Part]) -> list[Part]:
    """The parts of a window in order of arrival, one for each record: the same whatever way they came to be here.

    A window may hold several parts of one chunk (rows carried over from the window before, rows reloaded run by
    run after a restart); their rows are joined in the batch's order.
    """
    by_chunk: dict[tuple[int, bool], list[Part]] = {}
    for part in parts:
        by_chunk.setdefault((part.chunk.read_offset, part.loose), []).append(part)
    return [_join(by_chunk[key]) for key in sorted(by_chunk)]


def _join(parts: list[Part]) -> Part:
    if len(parts) == 1:
        return parts[0]
    rows = np.concatenate([part.rows for part in parts])
    order = np.argsort(rows)
    place = np.empty(len(rows), np.int32)
    place[order] = np.arange(len(rows), dtype=np.int32)
    starts = np.cumsum([0, *(len(part) for part in parts)])
    sparse: list[I32] = []
    for which, at in (("endpoints", "endpoint_at"), ("values", "value_at")):
        index = np.concatenate([getattr(part, which) for part in parts])
        where = np.concatenate(
            [place[getattr(part, at) + start] for part, start in zip(parts, starts[:-1], strict=True)]
        )
        again = np.lexsort((index, where))
        sparse += [index[again], where[again]]
    return Part(
        parts[0].chunk,
        rows[order],
        np.concatenate([part.source for part in parts])[order],
        np.concatenate([part.seq for part in parts])[order],
        np.concatenate([part.time_ns for part in parts])[order],
        sparse[0],
        sparse[1],
        sparse[2],
        sparse[3],
        parts[0].loose,
    )


def split(
    chunk: Chunk, rows: I32, source: I32, seq: I64, time_ns: I64, window: I64, loose: bool
) -> Iterator[tuple[int, Part]]:
    """(window, part) for accepted rows (ascending), each array of shape (rows,)."""
    if not len(rows):
        return
    batch = chunk.batch
    if window[0] == window[-1] and (window == window[0]).all():
        order = None
        cuts = np.array([0, len(rows)])
    else:
        order = np.argsort(window, kind="stable")
        by_window = window[order]
        heads = np.flatnonzero(by_window[1:] != by_window[:-1]) + 1
        cuts = np.concatenate(([0], heads, [len(rows)]))
    place = np.full(batch.count, -1, np.int32)
    place[rows if order is None else rows[order]] = np.arange(len(rows), dtype=np.int32)
    sparse = []
    for prefix in ("ep", "val"):
        if batch.table_len(prefix):
            at = place[batch.data[f"{prefix}_row"]]
            which = np.flatnonzero(at >= 0).astype(np.int32)
            at = at[which]
            if len(at) and (at[1:] < at[:-1]).any():
                again = np.argsort(at, kind="stable")
                which, at = which[again], at[again]
            sparse.append((which, at, np.searchsorted(at, cuts)))
        else:
            sparse.append((NONE, NONE, np.zeros(len(cuts), np.int64)))
    (ends, end_at, end_cut), (vals, val_at, val_cut) = sparse
    for k in range(len(cuts) - 1):
        a, b = int(cuts[k]), int(cuts[k + 1])
        mine = slice(a, b) if order is None else order[a:b]
        e, v = slice(end_cut[k], end_cut[k + 1]), slice(val_cut[k], val_cut[k + 1])
        part = Part(
            chunk,
            rows[mine],
            source[mine],
            seq[mine],
            time_ns[mine],
            ends[e],
            end_at[e] - a,
            vals[v],
            val_at[v] - a,
            loose,
        )
        yield int(window[mine][0]), part


LATE_ROWS_MAX = (
    60_000  # in one record: each may need a source entry of its own, and those are numbered by u16
)


def late_records(batch: Batch, rows: I64, scope: str, reason: str) -> Iterator[Output]:
    """Rows of a batch (ascending) for the topic `late`."""
    key = scope.encode()
    for cut in range(0, len(rows), LATE_ROWS_MAX):
        part = select(batch, rows[cut : cut + LATE_ROWS_MAX])
        headers = (
            ("tt-family", batch.family.encode()),
            ("tt-count", str(part.count).encode()),
            ("tt-scope", key),
            ("tt-reason", reason.encode()),
        )
        yield Output("late", key, encode_batch(part), headers)
