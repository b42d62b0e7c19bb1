"""Tables of a window that are plain columns of its record: how evenly flows spread, and the clocks of switches."""

from collections.abc import Iterator, Mapping
from enum import IntEnum
from typing import Final

import numpy as np
import pyarrow as pa

from schemas import columns as c
from schemas import imbalance as schema
from schemas import paths
from schemas.flat import Array
from schemas.imbalance import Imbalance
from schemas.narrow import null_of
from schemas.paths import Paths
from sinks import route_tables
from sinks.arrow import assemble, constant, floats, names, narrow, texts
from sinks.layout import Table

_CODES: Final[Mapping[str, type[IntEnum]]] = {
    "Measure": c.Measure,
    "NullMethod": c.NullMethod,
    "Evenness": c.Evenness,
    "Hotspot": c.Hotspot,
    "UnitSource": c.UnitSource,
    "Status": c.Status,
}
_COLUMNS: Final = {column.name: column for column in (*schema.SCHEMA.columns, *paths.SCHEMA.columns)}
# Table of the lake, prefix of the columns, and where a column's name in the record is another one.
_TABLES: Final[tuple[tuple[Table, str, Mapping[str, str]], ...]] = (
    (route_tables.IMBALANCE, "imb", {}),
    (route_tables.HOTSPOTS, "hot", {}),
    (
        route_tables.JOB_LOSSES,
        "job",
        {
            "job": "name",
            "mean_loss": "loss_mean",
            "max_loss": "loss_max",
            "links_shared_with_others": "links_shared",
        },
    ),
    (route_tables.POLARISATION, "pol", {"layer_from": "from", "layer_to": "to"}),
    (
        route_tables.SWITCHES,
        "node",
        {"node": "id", "ns_per_tick": "unit_ns", "latency_ns_per_tick": "latency_unit_ns"},
    ),
    (route_tables.SWITCH_OFFSETS, "pair", {"node": "from", "neighbour": "to"}),
)
_WINDOWS: Final = ("scope", "window_start_ns", "window_end_ns")


def tables(record: Imbalance | Paths) -> Iterator[tuple[str, pa.Table]]:
    """(name, rows) of each table that the record has rows for."""
    for table, prefix, other in _TABLES:
        key = next(f"{prefix}_{other.get(f.name, f.name)}" for f in table.fields if f.name not in _WINDOWS)
        if len(record.data.get(key, ())):
            yield table.name, _rows(record, table, prefix, other, len(record.data[key]))


def _rows(record: Imbalance | Paths, table: Table, prefix: str, other: Mapping[str, str], n: int) -> pa.Table:
    columns = []
    for field in table.fields:
        if field.name == "scope":
            columns.append(constant(record.scope, n))
        elif field.name in _WINDOWS:
            columns.append(pa.array(np.full(n, getattr(record, field.name))))
        elif field.name == "members":
            columns.append(_lists(record, "imb_member", {"link": "mem_link", "weight": "mem_weight",
                                                         "flows": "mem_flows", "bytes": "mem_bytes"}))  # fmt: skip
        elif field.name == "losses":
            columns.append(_lists(record, "hot_loss", {"flow_id": "loss_flow", "loss": "loss_share"}))
        else:
            columns.append(_column(record, f"{prefix}_{other.get(field.name, field.name)}"))
    return assemble(table, columns)


def _column(record: Imbalance | Paths, name: str) -> pa.Array:
    values: Array = record.data[name]
    unit = _COLUMNS[name].unit
    if unit == "string":
        return texts(values, record.strings)
    if unit in _CODES:
        return names(values, _CODES[unit])
    if values.dtype.kind == "f":
        return floats(values)
    return narrow(values, int(null_of(values.dtype)), pa.int64())


def _lists(record: Imbalance | Paths, prefix: str, fields: Mapping[str, str]) -> pa.Array:
    """A list of structs for each row, from the entries that the row names."""
    first = record.data[f"{prefix}_first"].astype(np.int64)
    count = record.data[f"{prefix}_count"].astype(np.int64)
    ends = np.cumsum(count)
    at = np.repeat(first - (ends - count), count) + np.arange(int(ends[-1]))
    arrays = []
    for name in fields.values():
        values = record.data[name][at] if len(at) else np.empty(0, _COLUMNS[name].dtype)
        if _COLUMNS[name].unit == "string":
            arrays.append(texts(values, record.strings).cast(pa.string()))
        else:
            arrays.append(floats(values) if values.dtype.kind == "f" else pa.array(values))
    struct = pa.StructArray.from_arrays(arrays, names=list(fields))
    return pa.ListArray.from_arrays(pa.array(np.concatenate(([0], ends)), pa.int32()), struct)
