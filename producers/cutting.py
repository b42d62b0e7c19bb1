"""Batches as messages: encoded, and cut by rows where they are too large for one.

What a batch promises (low watermarks, the end of a source) holds after its last row. So the pieces of a cut
batch carry rows only, and one more, without rows, carries the promises.
"""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from schemas import columns as c
from schemas.batch import Batch, select
from schemas.codec import encode_batch
from schemas.flat import Array
from schemas.topics import BATCH_BYTES_MAX


def messages(batch: Batch, bytes_max: int = BATCH_BYTES_MAX) -> Iterator[tuple[Batch, bytes]]:
    """The batch, or its pieces in order, each with its encoded form of at most `bytes_max` bytes.

    A single row that is larger comes out as it is: topics leave room for it. Control rows are never cut.
    """
    payload = encode_batch(batch)
    if len(payload) <= bytes_max or batch.count <= 1 or batch.family == "control":
        yield batch, payload
        return
    yield from _cut(without_promises(batch), len(payload), bytes_max)
    if makes_promises(batch):
        rest = tables_only(batch)
        yield rest, encode_batch(rest)


def _cut(batch: Batch, size: int, bytes_max: int) -> Iterator[tuple[Batch, bytes]]:
    parts = min(batch.count, max(2, -(-size // bytes_max)))
    for rows in np.array_split(np.arange(batch.count), parts):
        piece = compact(select(batch, rows))
        payload = encode_batch(piece)
        if len(payload) <= bytes_max or piece.count == 1:
            yield piece, payload
        else:
            yield from _cut(piece, len(payload), bytes_max)


def makes_promises(batch: Batch) -> bool:
    """Whether the batch states a low watermark or ends a source."""
    if not batch.table_len("src"):
        return False
    final = (batch.data["src_flags"] & c.SOURCE_FINAL).any()
    return bool(final or (batch.data["src_low_watermark_ns"] != c.NULL_I64).any())


def without_promises(batch: Batch) -> Batch:
    """The batch with no low watermark and no end of a source."""
    if not batch.table_len("src"):
        return batch
    flags = batch.data["src_flags"] & np.uint8(0xFF & ~c.SOURCE_FINAL)
    none = np.full(len(flags), c.NULL_I64, "<i8")
    return replace(batch, data={**batch.data, "src_flags": flags, "src_low_watermark_ns": none})


def tables_only(batch: Batch, final: bool = False) -> Batch:
    """The batch's sources and clocks as they stand after its last row, without rows; one entry a source.

    `final` ends every source.
    """
    data = batch.data
    newest: dict[tuple[int, int], int] = {}
    for place in range(batch.table_len("src")):
        source = (int(data["src_name"][place]), int(data["src_incarnation"][place]))
        known = newest.get(source)
        if known is None or data["src_last_seq"][place] >= data["src_last_seq"][known]:
            newest[source] = place
    kept = np.array(sorted(newest.values()), np.int64)
    out: dict[str, Array] = {}
    for column in c.SOURCES:
        if column.name in data:
            out[column.name] = data[column.name][kept]
    if len(kept):
        out["src_first_seq"] = out["src_last_seq"] + 1
        if final:
            out["src_flags"] = out["src_flags"] | np.uint8(c.SOURCE_FINAL)
    out |= {column.name: data[column.name] for column in c.CLOCKS if column.name in data}
    return compact(replace(batch, count=0, data=out))


def compact(batch: Batch) -> Batch:
    """The batch with only those strings in its table that something refers to."""
    columns = (
        *c.SOURCES,
        *c.CLOCKS,
        *c.GROUPS,
        *c.COMMON,
        *c.FAMILIES[batch.family],
        *c.VALUES,
        *c.ESCAPES,
    )
    named = [column.name for column in columns if column.unit == "string" and column.name in batch.data]
    used = np.zeros(c.NULL_U16 + 1, bool)
    used[c.NULL_U16] = True
    for name in named:
        used[batch.data[name]] = True
    if int(used.sum()) - 1 == len(batch.strings):
        return batch
    place = np.cumsum(used).astype("<u2") - np.uint16(1)
    place[c.NULL_U16] = c.NULL_U16
    strings = tuple(text for text, kept in zip(batch.strings, used, strict=False) if kept)
    return replace(
        batch, strings=strings, data={**batch.data, **{name: place[batch.data[name]] for name in named}}
    )
