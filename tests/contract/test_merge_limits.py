"""The merge at its limits: sizes, extreme values, foreign and silent input, many sources, sparse rows."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas import columns as c
from schemas.batch import Batch
from schemas.codec import decode_merged, decode_record, encode_batch
from schemas.draft import Draft, control
from schemas.merged import LENGTH_NS_MAX, Merged
from schemas.pack import Head, SeqBook, Source
from schemas.processor import Output, Record
from schemas.time import ClockState
from schemas.topics import BATCH_BYTES_MAX, batch_headers
from streams.causality.settings import MergeSettings
from tests.contract import samples
from tests.naive.compare import identities, order_array, run
from tests.naive.worlds import MS, T0_MS, T0_NS

SEEDS = st.integers(0, 2**32 - 1)
CLOCK = ClockState("host/clock", parent="TAI", timescale=c.Timescale.TAI, bound_ns=1000)


def post(rows: Sequence[tuple[Source, int, int | None]], publisher: str = "p", **options: object) -> Batch:
    """A batch of probe rows (source, raw, duration), final."""
    head = Head("default", "job", publisher, "probe")
    draft = Draft(head, SeqBook())
    for source, raw, duration in rows:
        draft.row(source, raw, kind=0, name=str(options.get("name", "a")), duration_ns=duration)
        draft.final(source)
    return draft.build()


def record(batch: Batch, offset: int = 0, append_ms: int = T0_MS) -> Record:
    headers = tuple(batch_headers(batch.family, batch.count, batch.scope))
    return Record("events", 0, offset, append_ms, batch.scope.encode(), encode_batch(batch), headers)


def flush(offset: int = 1) -> Record:
    return record(control("default", "", "operator", [(c.Control.FLUSH, None, None)]), offset)


def merged_parts(outputs: Sequence[Output]) -> list[Merged]:
    found = [decode_merged(output.value) for output in outputs if output.topic == "merged"]
    return [part for part in found if isinstance(part, Merged)]


def test_parts_stay_within_the_size_that_topics_are_made_for() -> None:
    name = "a source with a name that is rather long and takes its place in every table "
    sources = [
        Source(
            f"{name}{k}", f"host{k}", ClockState(f"host{k}/clock", parent="TAI", timescale=c.Timescale.TAI), 1
        )
        for k in range(20_000)
    ]
    records = []
    for k in range(0, 20_000, 1000):
        batch = post([(source, T0_NS + 10 * k, 5) for source in sources[k : k + 1000]], f"p{k}")
        records.append(record(batch, k // 1000))
    outputs, _ = run(MergeSettings(), [*records, flush(20)])
    parts = merged_parts(outputs)
    assert sum(map(len, parts)) == 20_000
    assert [part.header["part"] for part in parts] == list(range(len(parts)))
    assert {part.header["parts"] for part in parts} == {len(parts)}
    assert [int(p.header["first_row"]) for p in parts] == np.cumsum([0, *map(len, parts)]).tolist()[:-1]
    assert max(len(output.value) for output in outputs) <= BATCH_BYTES_MAX


def test_extreme_values_come_out_as_they_went_in() -> None:
    odd = 'tab\tnewline\nquote"null\ufffd' + "\U0001f600" + "e\u0301" + "\u202e" * 3
    source = Source(odd, odd, CLOCK, 2**63 - 1, rank=-5)
    durations = [None, 0, 1, 2**32 - 1, 2**32, 2**62, 2**63 - 1, -1, -(2**62)]
    batch = post([(source, T0_NS + k * 7 * 10**9, d) for k, d in enumerate(durations)], name=odd)
    outputs, _ = run(MergeSettings(), [record(batch), flush()])
    parts = merged_parts(outputs)
    wide = np.concatenate([part.wide("duration_ns") for part in parts])
    assert wide.tolist() == [c.NULL_I64 if d is None else d for d in durations]
    assert np.concatenate([part.raw_ns() for part in parts]).tolist() == batch.raw_ns().tolist()
    lasts = np.concatenate([part.order_end_ns() - part.order_ns() for part in parts]).tolist()
    assert lasts == [min(max(d or 0, 0), LENGTH_NS_MAX) for d in durations]
    assert {part.strings[int(part.data["src_name"][0])] for part in parts} == {odd}
    assert {part.text(int(part.data["name"][0])) for part in parts} == {odd}


@pytest.mark.parametrize("family", [family for family in c.FAMILIES if family != "control"])
@settings(max_examples=25, deadline=None, derandomize=True)
@given(seed=SEEDS, window_ms=st.sampled_from([1, 100, 4000]))
def test_every_column_of_every_family_comes_out(family: str, seed: int, window_ms: int) -> None:
    batch = samples.told(family, seed).batch
    batch = replace(batch, scope="job")
    outputs, _ = run(MergeSettings(window_ns=window_ms * MS), [record(batch), flush()])
    parts = merged_parts(outputs)
    assert sum(map(len, parts)) == batch.count
    names = [batch.strings[k] for k in batch.data.get("src_name", ())]
    expected: dict[tuple[str, int], list[object]] = {}
    columns = [*c.COMMON[2:], *c.FAMILIES[family]]
    shown = [columns_of(batch, column.name, column) for column in columns]
    for row, (source, seq) in enumerate(
        zip(batch.data.get("source", ()), batch.seq() if batch.count else (), strict=True)
    ):
        numbers = [
            (batch.strings[batch.data["val_name"][k]], float(batch.data["val"][k]))
            for k in range(batch.table_len("val"))
            if batch.data["val_row"][k] == row
        ]
        expected[names[source], int(seq)] = [*(column[row] for column in shown), sorted(numbers)]
    found: dict[tuple[str, int], list[object]] = {}
    for part in parts:
        own_row = part.wide(f"{family}_row").tolist()
        common = [columns_of(part, column.name, column) for column in c.COMMON[2:]]
        own = [
            dict(zip(own_row, columns_of(part, f"{family}_{column.name}", column), strict=False))
            for column in c.FAMILIES[family]
        ]
        for row, seq in enumerate(part.seq().tolist()):
            numbers = [
                (part.strings[part.data["val_name"][k]], float(part.data["val"][k]))
                for k in range(part.table_len("val"))
                if part.data["val_row"][k] == row
            ]
            name = part.strings[part.data["src_name"][part.data["source"][row]]]
            found[name, seq] = [
                *(column[row] for column in common),
                *(column.get(row) for column in own),
                sorted(numbers),
            ]
    assert found == expected


def columns_of(record: Batch | Merged, name: str, column: c.Column) -> list[object]:
    """A column as plain values, None for null."""
    if name not in record.data:
        return []
    if column.unit == "string":
        return [record.text(int(k)) for k in record.data[name]]
    if column.dtype.startswith("<f"):
        return [None if v != v else v for v in record.data[name].tolist()]
    return [None if v == c.NULL_I64 else v for v in record.wide(name).tolist()]


@pytest.mark.parametrize("raw", [2**63 - 1, -(2**63) + 1, 2**62 + 2**40, -(2**61) - 2**40])
def test_stamps_that_no_clock_shows_are_dead_lettered_whole(raw: int) -> None:
    source = Source("s", "h", CLOCK, 1)
    outputs, task = run(MergeSettings(), [record(post([(source, T0_NS, 0), (source, raw, 0)])), flush()])
    assert [output.topic for output in outputs] == ["deadletter"]
    letter = decode_record(outputs[0].value)
    assert (letter["reason"], letter["events"]) == ("malformed", 2)
    assert task.counters()["deadlettered"] == {("malformed",): 2}
    assert "events_in" not in task.counters()


def test_what_is_not_ours_is_dead_lettered_with_its_count() -> None:
    batch = post([(Source("s", "h", CLOCK, 1), T0_NS, 0)] * 3)
    good = record(batch)
    assert good.value is not None
    other = replace(batch, tenant="blue")
    strange = good._replace(value=good.value[:2] + b"\0" * 8 + good.value[10:])
    cut = good._replace(value=good.value[:-1])
    huge = good._replace(value=b"noise", headers=(("tt-count", b"9" * 400),))
    records = [record(other), strange, cut, huge, good._replace(value=None)]
    outputs, task = run(MergeSettings(), [r._replace(offset=k) for k, r in enumerate(records)])
    letters = [decode_record(output.value) for output in outputs]
    assert [(each["reason"], each["events"]) for each in letters] == [
        ("malformed", 3), ("unknown_schema", 3), ("malformed", 3), ("malformed", 0), ("malformed", 3),
    ]  # fmt: skip
    assert task.counters()["deadlettered"] == {("malformed",): 10, ("unknown_schema",): 3}
    assert task.counters()["scopes"] == 0


def test_a_batch_without_sources_keeps_its_publisher_alive() -> None:
    """It lists nothing, but its publisher is not silent, so that its sources still hold the windows back."""
    draft = Draft(Head("default", "job", "p", "probe"), SeqBook())
    draft.row(Source("s", "h", CLOCK, 1), T0_NS, kind=0)
    nothing = Draft(Head("default", "job", "p", "probe"), SeqBook()).build()
    elsewhere = replace(nothing, scope="other")
    chosen = MergeSettings(join_grace_ms=0, idle_after_ms=100)
    first = record(draft.build())
    records = [first, record(elsewhere, 1, T0_MS + 60), record(nothing, 2, T0_MS + 90)]
    assert run(chosen, [*records, record(elsewhere, 3, T0_MS + 150)])[0] == []
    outputs, task = run(chosen, [*records, record(elsewhere, 3, T0_MS + 191)])
    assert sum(map(len, merged_parts(outputs))) == 1
    assert task.counters()["scopes"] == 1


def test_too_many_rows_held_lose_the_source_furthest_ahead() -> None:
    near, far = Source("near", "h", CLOCK, 1), Source("far", "h", CLOCK, 1)
    head, book = Head("default", "job", "p", "probe"), SeqBook()
    draft = Draft(head, book)
    for k in range(4):
        draft.row(near, T0_NS + k, kind=0)
        draft.row(far, T0_NS + 10**9 + k, kind=0)
    outputs, task = run(MergeSettings(rows_held_max=5), [record(draft.build())])
    assert [dict(output.headers)["tt-reason"] for output in outputs] == [b"future"]
    assert identities(outputs[0]) == [("far", 1, k) for k in range(4)]
    assert (task.counters()["rows_held"], task.counters()["late"]) == (4, {("future",): 4})


def test_endpoints_beyond_the_limit_are_given_up_oldest_first() -> None:
    source, peer = Source("s", "h", CLOCK, 1), Source("t", "h", CLOCK, 1)
    book = SeqBook()
    draft, answer = (Draft(Head("default", "job", "p", "probe"), book) for _ in range(2))
    for key in range(10):
        row = draft.row(source, T0_NS + key, kind=0)
        draft.endpoint(row, c.Point.BEGIN, c.EdgeKind.MESSAGE, c.Role.CAUSE, key)
        row = answer.row(peer, T0_NS + 500 * MS + key, kind=0)
        answer.endpoint(row, c.Point.BEGIN, c.EdgeKind.MESSAGE, c.Role.EFFECT, key)
    for each in (draft, answer):
        each.watermark(source, T0_NS + 1000 * MS)
        each.watermark(peer, T0_NS + 400 * MS)
    answer.final(source)
    answer.final(peer)
    chosen = MergeSettings(pending_max=3, join_grace_ms=0)
    outputs, task = run(chosen, [record(draft.build()), record(answer.build(), 1)])
    edges = [key for part in merged_parts(outputs) for key in part.data.get("edge_key", np.empty(0)).tolist()]
    assert sorted(edges) == [7, 8, 9]
    unmatched = task.counters()["unmatched"]
    assert unmatched == {("message", "cause"): 7, ("message", "effect"): 7}


def test_a_silent_scope_is_closed_and_dropped() -> None:
    source = Source("s", "h", CLOCK, 1)
    head, book = Head("default", "job", "p", "probe"), SeqBook()
    draft = Draft(head, book)
    draft.row(source, T0_NS, kind=0)
    chosen = MergeSettings(scope_ttl_ms=20_000)
    other = Draft(Head("default", "elsewhere", "q", "probe"), SeqBook())
    other.row(source, T0_NS, kind=0)
    late = record(other.build(), 1, T0_MS + 20_001)
    outputs, task = run(chosen, [record(draft.build()), late])
    assert [output.key for output in outputs] == [b"job"] * 2
    assert decode_merged(outputs[-1].value).closed  # type: ignore[union-attr]
    assert task.counters()["scopes"] == 1
    assert task.counters()["scopes_dropped"] == 1


def test_heartbeats_of_many_sources_are_cheap_and_a_row_a_window_too() -> None:
    """Nothing here may cost more than a little a source or a window: quadratic work would take minutes."""
    clocks = [
        ClockState(f"h{k}/clock", parent="TAI", timescale=c.Timescale.TAI, bound_ns=k) for k in range(4096)
    ]
    sources = [Source(f"s{k}", f"h{k}", clock, 1, live=True) for k, clock in enumerate(clocks)]
    records = []
    for beat in range(20):
        draft = Draft(Head("default", "job", "p", "probe"), SeqBook())
        for source in sources:
            draft.watermark(source, T0_NS + beat * 50 * MS)
        records.append(record(draft.build(), beat, T0_MS + beat * 50))
    outputs, task = run(MergeSettings(join_grace_ms=0), records)
    assert task.counters()["watermark_ns"] == T0_NS + 900 * MS
    sparse = Draft(Head("default", "sparse", "q", "probe"), SeqBook())
    for k in range(1500):
        sparse.row(sources[0], T0_NS + k * 10**9, kind=0)
    outputs, _ = run(MergeSettings(window_ns=MS), [record(sparse.build()), flush()])
    assert len(order_array(outputs)) == 1500
