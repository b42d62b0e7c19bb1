"""What every schema keeps: round trips, plain Avro, cut and broken bytes, older readers and writers, the lock."""

import io
import json
from collections.abc import Callable
from typing import Any

import fastavro
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas import build, codec, flat, merged, paths, records
from schemas import columns as c
from schemas.batch import SCHEMAS, Batch, ranks_of_group, select
from schemas.errors import MalformedInput, UnknownSchema
from schemas.merged import Merged
from schemas.pack import Head, Source, Strings, pack
from schemas.time import ClockState
from tests.contract import samples

SEEDS = st.integers(0, 2**32 - 1)
FAMILIES = [family for family in c.FAMILIES if family != "control"]
Decode = Callable[[bytes], Any]
KINDS: dict[str, tuple[Callable[[int], bytes], Decode]] = {
    **{f: (lambda seed, f=f: samples.batch(f, seed), codec.decode_batch) for f in c.FAMILIES},
    "merged": (samples.merged_part, codec.decode_merged),
    "paths": (samples.paths_record, codec.decode_paths),
    **{
        name: (lambda seed, name=name: samples.single(name, seed), codec.decode_record)
        for name in records.TYPES
    },
}
FLAT = [*c.FAMILIES, "merged", "paths"]
every = pytest.mark.parametrize("kind", KINDS)
some = settings(max_examples=25, deadline=None, derandomize=True)


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
    ends = zip(*(batch.data[f"ep_{n}"].tolist() for n in ("row", "point", "kind", "role", "key", "op", "size", "flags")),
               strict=True) if told.endpoints else ()  # fmt: skip
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
    value = fastavro.schemaless_reader(body, schema, None)
    assert body.read() == b""
    again = io.BytesIO()
    fastavro.schemaless_writer(again, schema, value)
    assert payload[flat.HEADER_BYTES :] == again.getvalue()
    if kind in FLAT:
        header, data = flat.decode(codec._layout_of(payload[2:10]), payload)
        assert {n: (bytes(memoryview(v).cast("B")) if v.size else b"") for n, v in data.items()} == {
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


# Evolution


@every
def test_an_older_reader_reads_what_is_written_today(kind: str) -> None:
    """By Avro's own rules: it resolves with the published writer's schema and does not see the later column."""
    payload = KINDS[kind][0](5)
    writer = codec.schema_of(payload)
    older = json.loads(json.dumps(writer))
    for entry in older["fields"]:
        entry.pop("default", None)
    dropped = older["fields"].pop()["name"]
    body = payload[flat.HEADER_BYTES :]
    whole = fastavro.schemaless_reader(io.BytesIO(body), fastavro.parse_schema(writer), None)
    older["name"] = writer["name"]
    read = fastavro.schemaless_reader(io.BytesIO(body), writer, older)
    assert read == {name: value for name, value in whole.items() if name != dropped}


def _older(schema: flat.FlatSchema, without: set[str]) -> flat.FlatSchema:
    columns = tuple(column for column in schema.columns if column.name not in without)
    return flat.FlatSchema(schema.full_name, schema.doc, schema.header, columns)


def _ship(monkeypatch: pytest.MonkeyPatch, schema: flat.FlatSchema) -> None:
    known = codec._registry() | {schema.layout.fingerprint: schema.avsc()}
    monkeypatch.setattr(codec, "_registry", lambda: known)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_batch_of_an_older_writer_lacks_what_came_later(
    family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lacking = {"clk_epsilon", "val_name", "grp_stride", "src_rank", c.FAMILIES[family][-1].name}
    older = _older(SCHEMAS[family], lacking)
    batch = next(
        b for seed in range(99) if (b := samples.told(family, seed).batch).count and b.table_len("val")
    )
    payload = flat.encode(
        older.layout,
        {"tenant": "t", "scope": "s", "publisher": "p", "count": batch.count},
        {
            "strings": flat.join_strings(batch.strings),
            **{n: v for n, v in batch.data.items() if n not in lacking},
        },
    )
    with pytest.raises(UnknownSchema):
        codec.decode_batch(payload)
    _ship(monkeypatch, older)
    if "val_name" in lacking:  # a name can't be null
        with pytest.raises(MalformedInput):
            codec.decode_batch(payload)
    older = _older(SCHEMAS[family], lacking - {"val_name"})
    _ship(monkeypatch, older)
    data = {n: v for n, v in batch.data.items() if n not in lacking - {"val_name"}}
    header: dict[str, str | int] = {"tenant": "t", "scope": "s", "publisher": "p", "count": batch.count}
    read = codec.decode_batch(
        flat.encode(older.layout, header, {"strings": flat.join_strings(batch.strings), **data})
    )
    assert read.data["src_rank"].tolist() == [c.NULL_I32] * read.table_len("src")
    assert np.isnan(read.data["clk_epsilon"]).all()
    assert read.raw_ns().tolist() == batch.raw_ns().tolist()
    use(read)


def test_merged_and_paths_of_an_older_writer(monkeypatch: pytest.MonkeyPatch) -> None:
    for payload, schema, lacking, decode in (
        (
            samples.merged_part(1),
            merged.SCHEMA,
            {"edge_size", "entity", "map_growth_ppb"},
            codec.decode_merged,
        ),
        (samples.paths_record(1), paths.SCHEMA, {"flow_latency_ns", "link_coverage"}, codec.decode_paths),
    ):
        older = _older(schema, lacking)
        header, data = flat.decode(schema.layout, payload)
        _ship(monkeypatch, older)
        value: Any = decode(flat.encode(older.layout, header, data))
        for name in lacking:
            column = next(column for column in schema.columns if column.name == name)
            null = np.isnan(value.data[name]) if column.dtype == "<f8" else None
            assert null.all() if null is not None else len(set(value.data[name].tolist())) == 1
        use(value)


def test_a_column_that_only_a_newer_writer_knows_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    schema = SCHEMAS["gpu"]
    newer = flat.FlatSchema(
        schema.full_name, schema.doc, (*schema.header, flat.Field("zone", "string", "new", "")),
        (*schema.columns, c.Column("shiny", "<u4", "1", "new")),
    )  # fmt: skip
    batch = next(b for seed in range(99) if (b := samples.told("gpu", seed).batch).count)
    payload = flat.encode(
        newer.layout,
        {"tenant": "t", "scope": "s", "publisher": "p", "count": batch.count, "zone": "z"},
        {"strings": flat.join_strings(batch.strings), **batch.data, "shiny": np.zeros(7, "<u4")},
    )
    _ship(monkeypatch, newer)
    read = codec.decode_batch(payload)
    assert {name: column.tobytes() for name, column in read.data.items()} == {
        name: column.tobytes() for name, column in batch.data.items() if len(column)
    }


def test_the_lock_sees_what_a_fingerprint_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    assert build.problems() == []
    for attribute, value in (("unit", "furlong"), ("dtype", "<u8")):
        changed = codec.current()
        avsc = json.loads(json.dumps(changed["org.tempotrace.v1.GpuBatch"]))
        entry = next(entry for entry in avsc["fields"] if entry["name"] == "duration_ns")
        entry[attribute] = value
        assert flat.fingerprint(avsc) == flat.fingerprint(changed["org.tempotrace.v1.GpuBatch"])
        monkeypatch.setattr(
            codec, "current", lambda a=avsc, all=changed: all | {"org.tempotrace.v1.GpuBatch": a}
        )
        assert build.problems() == [
            "org.tempotrace.v1.GpuBatch: dtype or unit of a field changed, which readers cannot see; add a new column"
        ]
        monkeypatch.undo()
    appended = codec.current()
    avsc = json.loads(json.dumps(appended["org.tempotrace.v1.GpuBatch"]))
    avsc["fields"].append(
        {"name": "shiny", "type": "bytes", "default": "", "dtype": "<u4", "unit": "1", "doc": ""}
    )
    monkeypatch.setattr(codec, "current", lambda: appended | {"org.tempotrace.v1.GpuBatch": avsc})
    assert build.problems() == [
        "org.tempotrace.v1.GpuBatch: no file holds the current schema; run python -m schemas.build"
    ]


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
