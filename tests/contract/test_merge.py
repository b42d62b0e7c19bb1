"""What the merge promises whatever it is fed: nothing lost or doubled, order, sameness over restarts, sizes."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from schemas import columns as c
from schemas.batch import select
from schemas.codec import decode_batch, decode_merged, encode_batch
from schemas.merged import Merged
from schemas.processor import Output, Record
from schemas.time import ClockState
from streams.causality import scope
from streams.causality.merge import Merge
from streams.causality.settings import MergeSettings
from tests.contract.processor_suite import Case, ProcessorSuite, plain
from tests.contract.processor_suite import run as run_case
from tests.naive.compare import by_merge, identities, run
from tests.naive.test_merge import options
from tests.naive.worlds import MS, World

SEEDS = st.integers(0, 2**32 - 1)
CLOCK = ClockState("host/clock", parent="TAI", timescale=c.Timescale.TAI, bound_ns=1000)
worlds = settings(max_examples=40, deadline=None, derandomize=True)


class TestMergeAsProcessor(ProcessorSuite):
    """The suite that every processor passes, on a world with live, idle, late and repeated input."""

    def case(self) -> Case:
        return Case(lambda: Merge(options(22)), World(22).write().records()[:60])


@worlds
@given(SEEDS)
def test_a_restart_at_every_record_changes_nothing(seed: int) -> None:
    case = Case(lambda: Merge(options(seed)), World(seed).write().records())
    assert plain(run_case(case, restore=lambda index: True)) == plain(run_case(case)), f"seed {seed}"


@worlds
@given(SEEDS)
def test_forgetting_strings_and_clocks_changes_nothing(seed: int) -> None:
    """Internal numbers are dealt anew whenever tables are compacted: none of them may show."""
    case = Case(lambda: Merge(options(seed)), World(seed).write().records())
    expected = plain(run_case(case))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scope, "STRINGS_MAX", 3)
        patch.setattr(scope, "CLOCKS_MAX", 1)
        assert plain(run_case(case)) == expected, f"seed {seed}"
        assert plain(run_case(case, restore=lambda index: index % 3 == 0)) == expected, f"seed {seed}"


@worlds
@given(SEEDS)
def test_every_row_comes_out_once_and_in_order(seed: int) -> None:
    log, chosen = World(seed).write(), options(seed)
    records = log.records()
    outputs, task = run(chosen, records)
    sent: Counter[tuple[str, int, int]] = Counter()
    for record in records:
        batch = decode_batch(record.value or b"")
        if batch.family != "control" and batch.count:
            sent.update(identities(Output("events", record.key, record.value)))
    found: Counter[tuple[str, int, int]] = Counter()
    released: dict[bytes | None, int] = {}
    for output in outputs:
        if output.topic == "late":
            found.update(identities(output))
            continue
        part = decode_merged(output.value)
        if isinstance(part, Merged):
            order = part.order_ns()
            assert (order >= released.get(output.key, -(2**63))).all(), (
                f"seed {seed}: before the released end"
            )
            assert (order >= part.window_start_ns).all()
            assert (order < part.window_end_ns).all(), f"seed {seed}"
            assert (np.diff(order) >= 0).all(), f"seed {seed}"
            assert (part.order_end_ns() >= order + part.duration_ns()).all()
            if part.header["part"] == int(part.header["parts"]) - 1:
                released[output.key] = part.window_end_ns
            rows = [part.strings[k] for k in part.data["src_name"]] if len(part) else []
            for source, seq in zip(part.data.get("source", ()), part.seq().tolist(), strict=True):
                found[rows[source], int(part.data["src_incarnation"][source]), seq] += 1
        else:
            released[output.key] = part.released_to_ns
            if part.closed:
                del released[output.key]  # if the scope comes again, it is another one
    # Rows of a scope that was dropped and came again are new there, so only settings without that are exact.
    if chosen.scope_ttl_ms > 60:
        assert set(found.values()) <= {1}, f"seed {seed}"
        held = task.counters()["rows_held"]
        assert len(found) + held == len(sent), f"seed {seed}"
    counted = task.counters()
    produced = counted.get("events_in", 0)
    gone = counted.get("events_out", 0) + counted.get("duplicates", 0) + sum(counted.get("late", {}).values())
    assert produced == gone + counted["rows_held"], f"seed {seed}"


@worlds
@given(SEEDS)
def test_program_order_and_known_edges_hold(seed: int) -> None:
    outputs, task = run(options(seed), World(seed).write().records())
    if task.counters().get("contradictions", 0):
        return
    assert task.counters().get("inversions_after", {}) == {}, f"seed {seed}"
    assume("detached_rows" not in task.counters())  # those are ordered by edges only
    last: dict[tuple[bytes | None, str, int], tuple[int, int, int]] = {}
    window = 0
    for output in outputs:
        part = decode_merged(output.value) if output.topic == "merged" else None
        if not isinstance(part, Merged) or not len(part):
            continue
        window += 1
        flags, names = part.data["src_flags"], part.data["src_name"]
        rows = zip(part.data["source"].tolist(), part.seq().tolist(), strict=True)
        for place, (source, seq) in enumerate(rows):
            if flags[source] & c.SOURCE_ORDERED:
                key = (output.key, part.strings[names[source]], int(part.data["src_incarnation"][source]))
                assert last.get(key, (-1, 0, 0)) < (seq, window, place), f"seed {seed}"
                last[key] = (seq, window, place)


def recut(record: Record, pieces: int) -> list[Record]:
    """The record's batch in several; all list its sources, the last has the watermarks and the final flags."""
    batch = decode_batch(record.value or b"")
    if batch.family == "control" or batch.count < pieces:
        return [record]
    listed = (*c.SOURCES, *c.CLOCKS, *c.GROUPS)
    tables = {column.name: batch.data[column.name] for column in listed if column.name in batch.data}
    following = batch.data["src_first_seq"].copy()
    out = []
    for k in range(pieces):
        piece = select(batch, np.arange(batch.count * k // pieces, batch.count * (k + 1) // pieces))
        # select() has an entry only for sources with rows: put the rows to the whole table instead.
        source = batch.data["source"][batch.count * k // pieces : batch.count * (k + 1) // pieces]
        rows = np.bincount(source, minlength=len(following))
        data = piece.data | tables | {"source": source, "src_first_seq": following.copy()}
        data["src_last_seq"] = following + rows - 1
        following += rows
        if k < pieces - 1:
            data["src_low_watermark_ns"] = np.full(len(rows), c.NULL_I64)
            data["src_flags"] = data["src_flags"] & ~np.uint8(c.SOURCE_FINAL)
        out.append(replace(piece, data=data))
    return [record._replace(value=encode_batch(piece)) for piece in out]


@worlds
@given(SEEDS, st.integers(2, 4))
def test_batch_cuts_do_not_show_in_the_rows(seed: int, pieces: int) -> None:
    """Rows and edges are the same however a producer cuts its batches, as long as what it promises is the same.

    What goes by the place in the log (detached sources, those without a map to TAI, rows held) is left out, and
    so are releases that append time makes: they may come between two pieces.
    """
    chosen = MergeSettings(window_ns=10 * MS, join_grace_ms=0, idle_after_ms=10**7, bound_cap_ns=5 * MS)
    whole = World(seed, placed=True).write().records()
    cut = [piece for record in whole for piece in recut(record, pieces)]
    cut = [record._replace(offset=offset) for offset, record in enumerate(cut)]
    outputs, _ = run(chosen, whole)
    first, second = by_merge(outputs, {})[0], by_merge(run(chosen, cut)[0], {})[0]
    assert first.keys() == second.keys()
    for name in first:
        one, two = first[name]["windows"], second[name]["windows"]
        assert [window[:3] for window in one] == [window[:3] for window in two], f"seed {seed}"
        assert first[name]["late"] == second[name]["late"], f"seed {seed}"


@worlds
@given(SEEDS, st.data())
def test_any_broken_record_is_dead_lettered(seed: int, data: st.DataObject) -> None:
    """A record with some bytes changed is taken or dead-lettered; nothing else happens to the task."""
    records = World(seed).write().records()
    task = Merge(options(seed)).start(0, None)
    rng = np.random.default_rng(seed)
    with np.errstate(all="ignore"):
        for record in records:
            value = bytearray(record.value or b"")
            for _ in range(int(rng.integers(1, 4))):
                value[int(rng.integers(10, len(value)))] = int(rng.integers(0, 256))
            for output in task.process(record._replace(value=bytes(value))):
                assert output.topic in ("merged", "late", "deadletter")
        task.snapshot()
