"""Older readers, older writers, newer writers, and the lock that keeps what a fingerprint does not see."""

import io
import json
from typing import Any

import fastavro
import numpy as np
import pytest

from schemas import build, codec, flat, imbalance, merged, paths
from schemas import columns as c
from schemas.batch import SCHEMAS
from schemas.errors import MalformedInput, UnknownSchema
from tests.contract import samples
from tests.contract.test_schemas import FAMILIES, KINDS, every, use


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
    whole: Any = fastavro.schemaless_reader(io.BytesIO(body), fastavro.parse_schema(writer), None)
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
        (samples.imbalance_record(1), imbalance.SCHEMA, {"imb_verdict", "job_loss_max"}, codec.decode_paths),
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
