"""Traces with more names than one batch can hold."""

from pathlib import Path

import numpy as np

from producers.gpu import parts
from schemas import columns as c
from tests.gpu_traces import START_US, batches, event, folder, raw, trace


def test_more_threads_than_a_batch_can_name(tmp_path: Path) -> None:
    events = [event("op", "cpu_op", tid, 1, tid) for tid in range(66_000)]
    found, report = batches(folder(tmp_path, {"r.json": raw(trace(events))}))
    assert report.events == 66_000
    lists = [batch for batch in found if not batch.count]
    assert [batch.table_len("src") for batch in lists] == [*[16_384] * 4, 464] * 2
    assert all((batch.data["src_low_watermark_ns"] == c.NULL_I64).all() for batch in lists[:5])
    assert min(int(batch.data["src_low_watermark_ns"].min()) for batch in lists[5:]) == START_US * 1_000
    assert len({batch.strings[place] for batch in lists for place in batch.data["src_name"]}) == 66_000


def test_numbers_of_many_names_cut_batches() -> None:
    row = np.repeat(np.arange(4), 10_000)
    name = np.arange(40_000)
    assert [part.rows for part in parts.rows(4, 4, row, name)] == [slice(at, at + 1) for at in range(4)]
    assert [part.rows for part in parts.rows(4, 4, row, name % 10_000)] == [slice(0, 4)]
    assert [part.rows for part in parts.rows(5, 4, row[:0], name[:0])] == [slice(0, 4), slice(4, 5)]
