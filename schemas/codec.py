"""Framing and the registry: which schemas this version ships, and how any of their records is read.

Everything on a topic is Avro single-object encoding: C3 01, fingerprint, body. A stage knows the schemas
shipped with its version (the .avsc files beside this module, older versions included); anything else is an
UnknownSchema and ends in the dead-letter topic. Third parties find all schemas on `tempotrace.schemas`.
"""

import io
import json
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import fastavro

from schemas import batch as batches
from schemas import flat, imbalance, merged, paths, records
from schemas.batch import Batch, null_column
from schemas.columns import TABLES
from schemas.errors import MalformedInput, UnknownSchema

AVSC = Path(__file__).parent / "avsc"
# Flat records by the name of their Avro type; version 1 of each is what this release writes.
FLAT = {
    **{schema.layout.name: schema for schema in batches.SCHEMAS.values()},
    merged.SCHEMA.layout.name: merged.SCHEMA,
    paths.SCHEMA.layout.name: paths.SCHEMA,
    imbalance.SCHEMA.layout.name: imbalance.SCHEMA,
}
_FAMILY_OF = {schema.layout.name: family for family, schema in batches.SCHEMAS.items()}


def current() -> dict[str, dict[str, Any]]:
    """Every schema that this version writes, in Avro's JSON form, by full name."""
    out = {schema.full_name: schema.avsc() for schema in FLAT.values()}
    out |= {f"{avsc['namespace']}.{avsc['name']}": avsc for avsc in records.SCHEMAS.values()}
    return out


@cache
def _registry() -> dict[bytes, dict[str, Any]]:
    """Shipped schemas by fingerprint."""
    out = {}
    for file in sorted(AVSC.glob("*.avsc")):
        avsc = json.loads(file.read_text())
        out[flat.fingerprint(avsc)] = avsc
    return out


def shipped() -> Iterator[tuple[int, str]]:
    """(fingerprint, Avro JSON) of every schema shipped, for the topic `tempotrace.schemas`."""
    for crc, avsc in _registry().items():
        yield int.from_bytes(crc, "little"), json.dumps(avsc, separators=(",", ":"))


@cache
def _layout_of(crc: bytes) -> flat.Layout:
    return flat.layout(_registry()[crc])


def schema_of(payload: bytes) -> dict[str, Any]:
    """The writer's schema of a framed record. Raises MalformedInput or UnknownSchema."""
    if len(payload) < flat.HEADER_BYTES or payload[:2] != flat.MAGIC:
        raise MalformedInput("not an Avro single-object record (C3 01 expected)", "byte 0")
    avsc = _registry().get(payload[2:10])
    if avsc is None:
        number = int.from_bytes(payload[2:10], "little")
        raise UnknownSchema(
            f"schema {number:016x} is not shipped with this version; see the topic tempotrace.schemas"
        )
    return avsc


def encode_batch(batch: Batch) -> bytes:
    """A batch as one framed record."""
    return batches.encode_batch(batch)


def decode_batch(payload: bytes) -> Batch:
    """The batch in a framed record. Raises MalformedInput or UnknownSchema.

    A field that the writer's schema lacks is absent; one that only the writer knows is dropped.
    """
    name, header, data = _decode_flat(payload)
    family = _FAMILY_OF.get(name)
    if family is None:
        raise MalformedInput(f"a {name} where a batch of events was expected")
    return batches.read_batch(family, header, data)


def decode_merged(payload: bytes) -> "merged.Merged | records.Progress":
    """What a `merged` topic holds: a part of a window, or a progress record."""
    avsc = schema_of(payload)
    if avsc["name"] == records.Progress.__name__:
        return records.read(records.Progress, decode_record(payload))
    name, header, data = _decode_flat(payload)
    if name != merged.SCHEMA.layout.name:
        raise MalformedInput(f"a {name} where a merged window was expected")
    return merged.read(header, data)


def decode_paths(payload: bytes) -> "paths.Paths | imbalance.Imbalance | records.Progress":
    """What a `paths` topic holds: flows and links of a window, how evenly they spread, or a progress record."""
    avsc = schema_of(payload)
    if avsc["name"] == records.Progress.__name__:
        return records.read(records.Progress, decode_record(payload))
    name, header, data = _decode_flat(payload)
    if name == imbalance.SCHEMA.layout.name:
        return imbalance.read(header, data)
    if name != paths.SCHEMA.layout.name:
        raise MalformedInput(f"a {name} where a window of paths was expected")
    return paths.read(header, data)


def _decode_flat(payload: bytes) -> tuple[str, dict[str, str | int], dict[str, flat.Array]]:
    avsc = schema_of(payload)
    crc = bytes(payload[2:10])
    name = avsc["name"]
    if name not in FLAT:
        raise MalformedInput(f"a {name} where packed columns were expected")
    header, data = flat.decode(_layout_of(crc), payload)
    reader = FLAT[name]
    if crc != reader.layout.fingerprint:
        known = {column.name for column in reader.columns}
        data = {key: value for key, value in data.items() if key in known}
        for entry in reader.header:
            if entry.name not in header:
                assert entry.default is not None, f"{name}.{entry.name} was added without a default"
                header[entry.name] = entry.default
        _fill_tables(name, {entry["name"] for entry in avsc["fields"]}, header, data)
    return name, header, data


def _fill_tables(
    name: str, written: set[str], header: dict[str, str | int], data: dict[str, flat.Array]
) -> None:
    """Null in the columns of tables that an older writer did not know: a table's columns have one length."""
    tables = {
        merged.SCHEMA.layout.name: merged.RUNS,
        paths.SCHEMA.layout.name: paths.RUNS,
        imbalance.SCHEMA.layout.name: imbalance.RUNS,
    }
    for table in tables.get(name, tuple(TABLES.values())):
        rows = max((len(data[column.name]) for column in table if column.name in data), default=0)
        for column in table:
            if rows and column.name not in written:
                data[column.name] = null_column(column, rows)
    if name == merged.SCHEMA.layout.name and int(header["count"]) > 0:
        for column in merged.ROWS:
            if column.name not in written and "source" in data:
                data[column.name] = null_column(column, len(data["source"]))


@cache
def _parsed(full_name: str) -> Any:
    return fastavro.parse_schema(records.SCHEMAS[full_name])


@cache
def _parsed_writer(crc: bytes) -> Any:
    return fastavro.parse_schema(_registry()[crc])


def encode_record(record: "records.Row") -> bytes:
    """A low-rate record (finding, incident, policy, progress, dead letter) as one framed Avro record."""
    name = type(record).__name__
    out = io.BytesIO()
    fastavro.schemaless_writer(out, _parsed(name), records.write(record), strict=True)
    return flat.MAGIC + flat.fingerprint(records.SCHEMAS[name]) + out.getvalue()


def decode_record(payload: bytes) -> Mapping[str, Any]:
    """A low-rate record as a mapping, with `_type` for its Avro name. Raises MalformedInput, UnknownSchema."""
    avsc = schema_of(payload)
    name = avsc["name"]
    if name not in records.SCHEMAS:
        raise MalformedInput(f"a {name} where a single record was expected")
    source = io.BytesIO(payload[flat.HEADER_BYTES :])
    crc = bytes(payload[2:10])
    try:
        value = fastavro.schemaless_reader(source, _parsed_writer(crc), _parsed(name))
    except (EOFError, IndexError, ValueError, UnicodeDecodeError, OverflowError) as error:
        raise MalformedInput(f"the record is cut or broken: {error}", name) from None
    if source.read(1):
        raise MalformedInput("bytes follow the record", name)
    assert isinstance(value, dict)
    return {"_type": name, **value}
