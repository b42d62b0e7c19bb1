"""What every schema keeps: round trips, plain Avro, cut and broken bytes, older readers and writers, the lock."""

import io
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import fastavro
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas import codec, flat, merged, records
from schemas import columns as c
from schemas.batch import Batch, select
from schemas.errors import MalformedInput, UnknownSchema
from schemas.merged import Merged
from schemas.pack import Head, Source, Strings, pack
from schemas.time import ClockState
from tests.contract import samples

SEEDS = st.integers(0, 2**32 - 1)
FAMILIES = [family for family in c.FAMILIES if family != "control"]
Decode = Callable[[bytes], Any]
KINDS: dict[str, tuple[Callable[[int], bytes], Decode]] = {
    **{family: (partial(samples.batch, family), codec.decode_batch) for family in c.FAMILIES},
    "merged": (samples.merged_part, codec.decode_merged),
    "paths": (samples.paths_record, codec.decode_paths),
    "imbalance": (samples.imbalance_record, codec.decode_paths),
    **{name: (partial(samples.single, name), codec.decode_record) for name in records.TYPES},
}
FLAT = [*c.FAMILIES, "merged", "paths", "imbalance"]
every = pytest.mark.parametrize("kind", KINDS)
some = settings(max_examples=25, deadline=None, derandomize=True)


def ranks_of_group(batch: Batch, group: int) -> Sequence[int]:
    """Ranks of one entry of the group table."""
    size = int(batch.data["grp_size"][group])
    count = int(batch.data["grp_count"][group])
    if not count and batch.data["grp_start"][group] == c.NULL_I32:
        return ()  # only the size is known
    if count:
        first = int(batch.data["grp_first"][group])
        return [int(rank) for rank in batch.data["grp_ranks"][first : first + count]]
    start, stride = int(batch.data["grp_start"][group]), int(batch.data["grp_stride"][group])
    return range(start, start + stride * size, stride) if stride else [start]


def use(value: Any) -> None:
    """Call every accessor: what decodes can be read."""
    if isinstance(value, Batch):
        value.raw_ns()
        for column in (*c.COMMON, *c.FAMILIES[value.family]):
            if not column.dtype.startswith("<f"):
                value.wide(column.name)
            if column.unit == "string":
                [value.text(int(index)) for index in value.column(column.name)]
        if value.family != "control":
            value.seq()
        [list(ranks_of_group(value, group)[:9]) for group in range(value.table_len("grp"))]
    elif isinstance(value, Merged):
        for accessor in (
            value.seq,
            value.raw_ns,
            value.time_ns,
            value.bound_ns,
            value.order_end_ns,
            value.verdicts,
        ):
            accessor()
        value.inversions("raw")
        for family, columns in merged.SECTIONS.items():
            [value.wide(column.name) for column in columns if column.dtype[1] != "f"]
            value.wide(f"{family}_row")


@pytest.mark.parametrize("family", FAMILIES)
@some
@given(seed=SEEDS)
def test_a_draft_comes_back_as_it_was_told(family: str, seed: int) -> None:
    told = samples.told(family, seed)
    batch = codec.decode_batch(codec.encode_batch(told.batch))
    names = [batch.strings[k] for k in batch.data.get("src_name", ())]
    assert batch.count == len(told.rows)
    assert batch.raw_ns().tolist() == [row["raw_ns"] for row in told.rows]
    assert [names[s] for s in batch.data.get("source", ())] == [row["source"] for row in told.rows]
    counted: dict[str, int] = {}
    for row, seq in zip(told.rows, batch.seq().tolist() if batch.count else [], strict=True):
        assert seq == counted.get(row["source"], 0)
        counted[row["source"]] = seq + 1
    for column in (*c.COMMON[2:], *c.FAMILIES[family]):
        expected = [row[column.name] for row in told.rows]
        if column.unit == "string":
            assert [batch.text(int(k)) for k in batch.column(column.name)] == expected
        elif column.dtype == "<f8":
            assert [None if v != v else v for v in batch.column(column.name).tolist()] == expected
        elif column.dtype == "<u8":
            found = batch.column(column.name).tolist()
            assert found == [2**64 - 1 if v is None else v for v in expected]
        else:
            found = batch.wide(column.name).tolist()
            assert [None if v == c.NULL_I64 else v for v in found] == expected
    names_of = ("ep_row", "ep_point", "ep_kind", "ep_role", "ep_key", "ep_op", "ep_size", "ep_flags")
    ends = zip(*(batch.data.get(name, np.empty(0)).tolist() for name in names_of), strict=True)
    assert list(ends) == told.endpoints
    values = [
        (int(row), batch.strings[name], float(number))
        for row, name, number in zip(
            *(batch.data.get(n, ()) for n in ("val_row", "val_name", "val")), strict=True
        )
    ]
    assert values == told.values
    marks = batch.data.get("src_low_watermark_ns", np.empty(0, np.int64)).tolist()
    assert {n: m for n, m in zip(names, marks, strict=True) if m != c.NULL_I64} == told.watermarks
    final = [f & c.SOURCE_FINAL != 0 for f in batch.data.get("src_flags", np.empty(0, "u1")).tolist()]
    assert {n for n, f in zip(names, final, strict=True) if f} == told.final


@some
@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(-(2**62), 2**62), st.integers(-(2**63) + 1, 2**63 - 1)))
)
def test_pack_says_the_same_as_its_arrays(rows: list[tuple[int, int, int]]) -> None:
    sources = [Source(f"s{k}", "h", ClockState("c"), 1) for k in range(3)]
    source, raw, wide = (np.array([row[k] for row in rows], np.int64) for k in range(3))
    columns = {"duration_ns": wide, "correlation": wide, "kind": np.zeros(len(rows), np.int64)}
    batch = pack(Head("t", "s", "p", "gpu"), Strings(), sources, [0, 5, 2**40 - 1], source, raw, columns)
    batch = codec.decode_batch(codec.encode_batch(batch))
    assert batch.raw_ns().tolist() == raw.tolist()
    assert batch.wide("correlation").tolist() == batch.wide("duration_ns").tolist() == wide.tolist()
    picked = np.flatnonzero(source == 1)
    assert batch.wide("correlation", picked).tolist() == wide[picked].tolist()
    assert batch.raw_ns(picked).tolist() == raw[picked].tolist()
    if rows:
        assert batch.seq()[picked].tolist() == list(range(5, 5 + len(picked)))


def test_texts_that_no_table_can_hold_are_shown_as_what_it_can() -> None:
    strings = Strings()
    told = ["a\0b", "a\ufffdb", "\ud800", "?", "c"]
    places = [strings.index(text) for text in told]
    assert [strings.table[k] for k in places] == ["a\ufffdb", "a\ufffdb", "?", "?", "c"]
    assert flat.split_strings(flat.join_strings(strings.table)) == strings.table == ("a\ufffdb", "?", "c")


@every
@some
@given(seed=SEEDS)
def test_it_is_plain_avro(kind: str, seed: int) -> None:
    """fastavro reads what we write, and writes what it read as the same bytes."""
    payload = KINDS[kind][0](seed)
    schema = fastavro.parse_schema(codec.schema_of(payload))
    body = io.BytesIO(payload[flat.HEADER_BYTES :])
    value: Any = fastavro.schemaless_reader(body, schema, None)
    assert body.read() == b""
    again = io.BytesIO()
    fastavro.schemaless_writer(again, schema, value)
    assert payload[flat.HEADER_BYTES :] == again.getvalue()
    if kind in FLAT:
        header, data = flat.decode(codec._layout_of(payload[2:10]), payload)
        assert {n: v.tobytes() for n, v in data.items()} == {
            n: v for n, v in value.items() if isinstance(v, bytes) and v
        }
        assert header == {n: v for n, v in value.items() if not isinstance(v, bytes)}


@every
def test_cut_anywhere_or_too_long_is_malformed(kind: str) -> None:
    make, decode = KINDS[kind]
    payload = make(3)
    decode(payload)
    for length in range(len(payload)):
        with pytest.raises(MalformedInput):
            decode(payload[:length])
    for more in (b"\0", b"\xff", payload):
        with pytest.raises(MalformedInput):
            decode(payload + more)


@every
def test_a_fingerprint_that_is_not_ours_is_an_unknown_schema(kind: str) -> None:
    make, decode = KINDS[kind]
    payload = make(3)
    with pytest.raises(UnknownSchema):
        decode(payload[:2] + bytes(8) + payload[10:])
    other = KINDS["clock" if kind == "gpu" else "gpu"][0](3)
    if decode not in (codec.decode_batch, codec.decode_record):
        with pytest.raises(MalformedInput):
            decode(other)
    with pytest.raises(MalformedInput):
        (codec.decode_record if kind in FLAT else codec.decode_batch)(payload)


@every
@some
@given(seed=SEEDS)
def test_any_bytes_decode_or_are_malformed(kind: str, seed: int) -> None:
    make, decode = KINDS[kind]
    rng = np.random.default_rng(seed)
    payload = make(seed % 50)
    with np.errstate(all="ignore"):
        for _ in range(60):
            broken = bytearray(payload)
            for _ in range(int(rng.integers(1, 5))):
                at = int(rng.integers(flat.HEADER_BYTES, len(broken)))
                broken[at] = int(rng.choice([0, 1, 127, 128, 255, int(rng.integers(256))]))
            if rng.random() < 0.2:
                cut = int(rng.integers(flat.HEADER_BYTES, len(broken)))
                del broken[cut : cut + int(rng.integers(1, 9))]
            try:
                value = decode(bytes(broken))
            except MalformedInput:
                continue
            use(value)


@given(st.binary(max_size=60))
@some
def test_noise_is_malformed(noise: bytes) -> None:
    for _, decode in KINDS.values():
        with pytest.raises((MalformedInput, UnknownSchema)):
            decode(noise)


@pytest.mark.parametrize("family", FAMILIES)
@some
@given(seed=SEEDS)
def test_a_selection_keeps_all_of_its_rows(family: str, seed: int) -> None:
    told = samples.told(family, seed)
    batch, rng = told.batch, np.random.default_rng(seed)
    rows = np.flatnonzero(rng.random(batch.count) < 0.6)
    if not batch.count:
        return
    part = codec.decode_batch(codec.encode_batch(select(batch, rows)))
    assert part.raw_ns().tolist() == batch.raw_ns()[rows].tolist()
    assert (part.seq().tolist() if len(rows) else []) == batch.seq()[rows].tolist()
    for name in ("src_name", "src_incarnation", "src_low_watermark_ns", "src_flags", "src_clock"):
        assert [int(part.data[name][s]) for s in part.data.get("source", ())] == [
            int(batch.data[name][s]) for s in batch.data["source"][rows]
        ]
    for column in (*c.COMMON[2:], *c.FAMILIES[family]):
        if column.dtype == "<f8":
            assert part.column(column.name).tobytes() == batch.column(column.name)[rows].tobytes()
        else:
            assert part.wide(column.name).tolist() == batch.wide(column.name)[rows].tolist()
    for prefix in ("ep", "val"):
        if batch.table_len(prefix):
            kept = np.isin(batch.data[f"{prefix}_row"], rows)
            assert [int(rows[r]) for r in part.data.get(f"{prefix}_row", ())] == batch.data[f"{prefix}_row"][
                kept
            ].tolist()
            for column in c.TABLES[prefix][1:]:
                assert (
                    part.data.get(column.name, np.empty(0)).tolist() == batch.data[column.name][kept].tolist()
                )
