"""Flat records: an Avro record whose fields are only `string`, `long` and `bytes`, read without copying.

All that moves in bulk (batches of events, merged windows, paths) has this shape, so the whole codec is a walk
over length-prefixed fields. It is plain Avro: fastavro reads and writes the same bytes, which a test holds
against this module; it is not used here because building Python objects for some fifty header fields costs
more than the columns themselves (the lab's figures: 56 against 17 ns an event).

A `bytes` field is one packed column, little-endian; length 0 means absent. Framing is Avro's single-object
encoding: C3 01, the schema's 64-bit fingerprint, the body.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import fastavro.schema
import numpy as np
from numpy.typing import NDArray

from schemas.columns import Column
from schemas.errors import MalformedInput

MAGIC = b"\xc3\x01"
HEADER_BYTES = 10
STRINGS_MAX = 2**16 - 1  # of one record; the number after the last is null
Array = NDArray[Any]


@dataclass(frozen=True)
class Field:
    """A header field of a flat record: `type` is "string" or "long"."""

    name: str
    type: str
    doc: str
    default: str | int | None = None


@dataclass(frozen=True)
class FlatSchema:
    """An Avro record of header fields, then packed columns, in this order."""

    full_name: str
    doc: str
    header: tuple[Field, ...]
    columns: tuple[Column, ...]
    # Columns added after the first release have a default, so that an older writer's record still resolves.
    added: frozenset[str] = field(default_factory=frozenset)

    def avsc(self) -> dict[str, Any]:
        """The Avro schema, with dtype and unit as attributes of each packed field."""
        namespace, _, name = self.full_name.rpartition(".")
        fields: list[dict[str, Any]] = []
        for entry in self.header:
            avro: dict[str, Any] = {"name": entry.name, "type": entry.type, "doc": entry.doc}
            if entry.default is not None:
                avro["default"] = entry.default
            fields.append(avro)
        fields += [
            {
                "name": column.name,
                "type": "bytes",
                "default": "",
                "dtype": column.dtype,
                "unit": column.unit,
                "doc": column.doc,
            }
            for column in self.columns
        ]
        return {"type": "record", "name": name, "namespace": namespace, "doc": self.doc, "fields": fields}

    @cached_property
    def layout(self) -> "Layout":
        """How this schema's records lie in memory."""
        return layout(self.avsc())


@dataclass(frozen=True)
class Layout:
    """A flat schema as the codec needs it: fingerprint and (name, type, dtype) of each field in order."""

    name: str
    fingerprint: bytes
    fields: tuple[tuple[str, str, np.dtype[Any] | None], ...]

    @property
    def prefix(self) -> bytes:
        return MAGIC + self.fingerprint


def layout(avsc: Mapping[str, Any]) -> Layout:
    """Layout of a schema in Avro's JSON form. Raises AssertionError if it is not flat."""
    fields: list[tuple[str, str, np.dtype[Any] | None]] = []
    for entry in avsc["fields"]:
        kind = entry["type"]
        assert kind in ("string", "long", "bytes"), f"{entry['name']}: {kind} is not a flat type"
        dtype = np.dtype(entry["dtype"]) if kind == "bytes" and "dtype" in entry else None
        fields.append((entry["name"], kind, dtype))
    return Layout(avsc["name"], fingerprint(avsc), tuple(fields))


def fingerprint(avsc: Mapping[str, Any]) -> bytes:
    """Avro's CRC-64 of the parsing canonical form, as the 8 bytes that framing carries."""
    canonical = fastavro.schema.to_parsing_canonical_form(json.loads(json.dumps(avsc)))
    crc = fastavro.schema.fingerprint(canonical, "CRC-64-AVRO")
    # fastavro prints the fingerprint's bytes in the order in which they are framed.
    return bytes.fromhex(crc)


def _varint(value: int) -> bytes:
    """Avro's zig-zag variable-length long."""
    value = (value << 1) ^ (value >> 63)
    out = bytearray()
    while value > 0x7F:
        out.append((value & 0x7F) | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


_SHORT = [_varint(i) for i in range(1 << 14)]


def encode(shape: Layout, header: Mapping[str, str | int], data: Mapping[str, Array | bytes]) -> bytes:
    """One framed record. `header` has every string and long, `data` the columns that are not absent."""
    parts: list[bytes | memoryview] = [shape.prefix]
    for name, kind, dtype in shape.fields:
        if kind == "bytes":
            column = data.get(name)
            if column is None or len(column) == 0:
                parts.append(b"\x00")
                continue
            if isinstance(column, np.ndarray):
                assert column.dtype == dtype, f"{shape.name}.{name}: {column.dtype}, the schema says {dtype}"
                raw: bytes | memoryview = np.ascontiguousarray(column).data.cast("B")
            else:
                raw = column
            size = len(raw)
        elif kind == "string":
            raw = str(header[name]).encode()
            size = len(raw)
        else:
            parts.append(_varint(int(header[name])))
            continue
        parts.append(_SHORT[size] if size < len(_SHORT) else _varint(size))
        parts.append(raw)
    return b"".join(parts)


def decode(shape: Layout, payload: bytes) -> tuple[dict[str, str | int], dict[str, Array]]:
    """Header and columns of a framed record whose fingerprint is this layout's; absent columns are left out.

    Columns are read-only views into `payload`. Raises MalformedInput if it is cut, has bytes left over, or a
    column's length is no multiple of its item.
    """
    header: dict[str, str | int] = {}
    data: dict[str, Array] = {}
    at, end = HEADER_BYTES, len(payload)
    try:
        for name, kind, dtype in shape.fields:
            value = payload[at]
            at += 1
            if value & 0x80:  # a long of more than one byte
                shift, byte = 7, value
                value &= 0x7F
                while byte & 0x80 and shift < 70:
                    byte = payload[at]
                    at += 1
                    value |= (byte & 0x7F) << shift
                    shift += 7
                if value >> 64 or byte & 0x80:
                    raise MalformedInput("a number of more than 64 bits", f"{shape.name}.{name}")
            number = (value >> 1) ^ -(value & 1)
            if kind == "long":
                header[name] = number
                continue
            if number < 0 or at + number > end:
                raise MalformedInput(
                    f"length {number} of {end - at} bytes that are left", f"{shape.name}.{name}"
                )
            if kind == "string":
                header[name] = payload[at : at + number].decode()
            elif number:
                if dtype is None:
                    data[name] = np.frombuffer(payload, np.uint8, number, at)
                else:
                    count, rest = divmod(number, dtype.itemsize)
                    if rest:
                        raise MalformedInput(
                            f"{number} bytes are no whole number of {dtype.str}", f"{shape.name}.{name}"
                        )
                    data[name] = np.frombuffer(payload, dtype, count, at)
            at += number
    except IndexError:
        raise MalformedInput("the record is cut short", f"{shape.name}, byte {at} of {end}") from None
    except UnicodeDecodeError as error:
        raise MalformedInput(f"a string is not UTF-8: {error.reason}", shape.name) from None
    if at != end:
        raise MalformedInput(f"{end - at} bytes follow the record", shape.name)
    return header, data


def check_index(packed: Array | None, limit: int, name: str, null: int | None = None) -> None:
    """Raise MalformedInput unless every unsigned value is less than `limit`, or is `null`."""
    if packed is None or not len(packed):
        return
    top = int(packed.max())
    if top < limit:
        return
    if null is not None:
        bad = packed[(packed >= limit) & (packed != null)]
        if not len(bad):
            return
        top = int(bad.max())
    raise MalformedInput(f"index {top} into a table of {limit}", name)


def check_tables(tables: Iterable[Sequence[Column]], data: Mapping[str, Array]) -> None:
    """Raise MalformedInput unless the columns of each table have one length."""
    for table in tables:
        sizes = {len(data[column.name]) if column.name in data else 0 for column in table}
        if len(sizes) > 1:
            raise MalformedInput(f"columns of {sorted(sizes)} entries in one table", table[0].name)


def join_strings(strings: Sequence[str]) -> bytes:
    """A string table as one field: each string in UTF-8, ended by a zero byte (which none may hold)."""
    if not strings:
        return b""
    blob = "\0".join(strings).encode() + b"\0"
    assert blob.count(0) == len(strings), "a string of a table may hold no zero byte"
    return blob


def split_strings(blob: Array | bytes | None) -> tuple[str, ...]:
    """The string table of `join_strings`. Raises MalformedInput if it is not one."""
    if blob is None or len(blob) == 0:
        return ()
    raw = blob.tobytes() if isinstance(blob, np.ndarray) else blob
    if raw[-1]:
        raise MalformedInput("the string table does not end in a zero byte")
    try:
        table = tuple(raw[:-1].decode().split("\0"))
    except UnicodeDecodeError as error:
        raise MalformedInput(f"the string table is not UTF-8: {error.reason}") from None
    if len(table) > STRINGS_MAX:
        raise MalformedInput(f"{len(table)} strings, more than a u16 can number", "strings")
    return table
