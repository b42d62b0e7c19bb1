"""Records of every kind that travels packed or single, made from a seed, with nulls, escapes and extremes."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from schemas import columns as c
from schemas import imbalance, merged, paths, records
from schemas.batch import Batch
from schemas.codec import encode_batch, encode_record
from schemas.draft import Draft, control
from schemas.narrow import narrow
from schemas.pack import Group, Head, SeqBook, Source, Strings
from schemas.time import ClockState
from tests.parts import Maker

TEXTS = ("", "a", "kernel<float, 4>", "\u00e9\u4e2d\U0001f600", "tab\t\n\"'\\", "x" * 300, None)
NOW = 1_700_000_000_000_000_000


@dataclass
class Told:
    """A draft's batch, and what was told to it."""

    batch: Batch
    rows: list[dict[str, Any]] = field(default_factory=list)
    endpoints: list[tuple[int, ...]] = field(default_factory=list)
    values: list[tuple[int, str, float]] = field(default_factory=list)
    watermarks: dict[str, int] = field(default_factory=dict)
    final: set[str] = field(default_factory=set)


def extremes(rng: np.random.Generator, dtype: np.dtype[Any]) -> int | float | None:
    """A value for a column of this dtype: often null, at an edge, or beyond it where escapes allow that."""
    if dtype.kind == "f":
        return (None, 0.0, -1.5, 1e300, float("inf"))[int(rng.integers(5))]
    info = np.iinfo(dtype)
    if dtype == np.uint64:
        return int(rng.choice(np.array([0, 1, 2**63, 2**64 - 2], np.uint64)))
    pool = [None, 0, 1, int(info.max) - 1]
    if dtype.kind == "u":
        pool += [int(info.max), int(info.max) + 1, -1, 2**62, -(2**62), 2**63 - 1]
    else:
        pool += [int(info.max), int(info.min) + 1]
    return pool[int(rng.integers(len(pool)))]


def told(family: str, seed: int) -> Told:
    """A batch of a family made row by row."""
    rng = np.random.default_rng(seed)

    def text() -> str | None:
        return TEXTS[int(rng.integers(len(TEXTS)))]

    parent = ClockState("gm", parent="TAI", timescale=c.Timescale.TAI, bound_ns=3)
    clocks = [
        ClockState("host/clock", 3, "gm", c.ClockKind.PTP_HW, c.Status.LOCKED, c.Timescale.UTC, 37, True, NOW, NOW + 5,
                   1.25, 400, NOW, 2.5, 8, c.Assurance.STATISTICAL, 1e-9, "test"),
        ClockState("bare"),
    ]  # fmt: skip
    sources = [
        Source(
            f"s{k}",
            "host",
            clocks[k % 2],
            int(rng.integers(0, 2**63 - 1)),
            (None, 0, 7)[k % 3],
            k != 1,
            k == 2,
        )
        for k in range(int(rng.integers(1, 4)))
    ]
    draft = Draft(Head("default", "job/0", "p", family), SeqBook())
    out = Told(batch=None)  # type: ignore[arg-type]  # set below, once all its rows are told
    for _ in range(int(rng.integers(0, 9))):
        source = sources[int(rng.integers(len(sources)))]
        raw = NOW + (0, 5, 2**32 - 1, 2**32, -(2**61), 2**61)[int(rng.integers(6))]
        row: dict[str, Any] = {"kind": int(rng.integers(0, 5)), "entity": text(), "name": text()}
        row["duration_ns"] = extremes(rng, np.dtype("<u4"))
        for column in c.FAMILIES[family]:
            row[column.name] = text() if column.unit == "string" else extremes(rng, np.dtype(column.dtype))
        at = draft.row(source, raw, **row)
        out.rows.append({**row, "source": source.name, "raw_ns": raw})
        for _ in range(int(rng.integers(0, 3))):
            key, size = (0, 2**63, 2**64 - 1)[rng.integers(3)], (0, 2**32 - 2)[rng.integers(2)]
            group = (None, Group("tp", 4, (0, 2, 4, 6)), Group("dp", 3, (0, 5, 6)), Group("pp", 9))[
                rng.integers(4)
            ]
            point, kind, role = (
                c.Point(int(rng.integers(3))),
                c.EdgeKind(int(rng.integers(5))),
                c.Role(int(rng.integers(4))),
            )
            draft.endpoint(at, point, kind, role, key, group=group, op=c.Op(3), size=size, assumed=True)
            out.endpoints.append((at, point, kind, role, key, 3, size, 1))
        for _ in range(int(rng.integers(0, 3))):
            name, number = text() or "n", float(rng.choice([0.0, -1e-300, 1e300]))
            draft.value(at, name, number)
            out.values.append((at, name, number))
    for source in sources:
        if rng.random() < 0.7:
            out.watermarks[source.name] = NOW + 5
            draft.watermark(source, NOW + 5)
        if rng.random() < 0.3:
            out.final.add(source.name)
            draft.final(source)
    draft.parent(parent)
    out.batch = draft.build()
    return out


def batch(family: str, seed: int) -> bytes:
    """One encoded batch."""
    if family == "control":
        rng = np.random.default_rng(seed)
        rows = [
            (
                c.Control(int(rng.integers(5))),
                (None, 0, 2**63 - 1)[int(rng.integers(3))],
                TEXTS[int(rng.integers(6))],
            )
            for _ in range(int(rng.integers(0, 6)))
        ]
        return encode_batch(control("default", "", "operator", rows))
    return encode_batch(told(family, seed).batch)


def merged_part(seed: int) -> bytes:
    """One part of a window."""
    part = Maker(sources=3, count=12, clocks=2, seed=seed).part()
    strings = (*part.strings, "duration_ns", "gpu_correlation")
    data = dict(part.data)
    data["esc_row"] = np.array([0, 1], "<u4")
    data["esc_column"] = np.array([len(strings) - 2, len(strings) - 1], "<u2")
    data["esc_value"] = np.array([2**40, -1], "<i8")
    data["duration_ns"] = np.where(np.arange(12) == 0, c.NULL_U32, data["duration_ns"]).astype("<u4")
    data["end_row"], data["end_shift_ns"] = np.array([3], "<u4"), np.array([2**33], "<i8")
    return merged.write(merged.Merged(part.header, strings, data))


def _random_rows(
    table: Sequence[c.Column], rows: int, rng: np.random.Generator, strings: Strings
) -> dict[str, Any]:
    data: dict[str, Any] = {}
    for column in table:
        if column.unit == "string":
            wide: Any = np.array([strings.index(f"t{rng.integers(4)}") for _ in range(rows)])
        elif column.dtype == "<f8":
            wide = rng.random(rows)
        elif column.dtype == "<u8":
            wide = rng.integers(0, 2**63, rows).astype(np.uint64)
        else:
            wide = rng.integers(0, 100, rows)
        data[column.name] = narrow(wide, np.dtype(column.dtype))[0]
    return data


def paths_record(seed: int) -> bytes:
    """Flows and links of a window."""
    rng, strings = np.random.default_rng(seed), Strings()
    data: dict[str, Any] = {}
    for table, rows in zip(paths.RUNS, (3, 5, 2, 2, 1), strict=True):
        data |= _random_rows(table, rows, rng, strings)
    data["flow_path_first"], data["flow_path_count"] = np.array([0, 2, 5], "<u4"), np.array([2, 3, 0], "<u4")
    return paths.write(paths.Paths("default", "job", 0, 100, strings.table, data))


def imbalance_record(seed: int) -> bytes:
    """How evenly the flows of a window spread."""
    rng, strings = np.random.default_rng(seed), Strings()
    data: dict[str, Any] = {}
    for table, rows in zip(imbalance.RUNS, (3, 5, 2, 4, 1, 1), strict=True):
        data |= _random_rows(table, rows, rng, strings)
    data["imb_member_first"], data["imb_member_count"] = (
        np.array([0, 2, 5], "<u4"),
        np.array([2, 3, 0], "<u4"),
    )
    data["hot_loss_first"], data["hot_loss_count"] = np.array([0, 4], "<u4"), np.array([4, 0], "<u4")
    return imbalance.write(imbalance.Imbalance("default", "job", 0, 100, strings.table, data))


def single(name: str, seed: int) -> bytes:
    """A record of a low-rate topic."""
    rng = np.random.default_rng(seed)
    kind = records.TYPES[name]
    values: Mapping[Any, Callable[[], Any]] = {
        "string": lambda: str(TEXTS[int(rng.integers(6))]),
        "long": lambda: (0, -1, 2**63 - 1, -(2**63))[int(rng.integers(4))],
        "double": lambda: float(rng.choice([0.0, -0.5, 1e300])),
        "boolean": lambda: bool(rng.random() < 0.5),
        "bytes": lambda: bytes(rng.integers(0, 256, 5).astype("u1")),
    }
    fields: dict[str, Any] = {}
    for entry in records.SCHEMAS[name]["fields"]:
        type_ = entry["type"]
        if isinstance(type_, dict):
            fields[entry["name"]] = [values[type_["items"]]() for _ in range(3)]
        elif isinstance(type_, list):
            fields[entry["name"]] = None if rng.random() < 0.5 else values[type_[1]]()
        else:
            fields[entry["name"]] = values[type_]()
    return encode_record(kind(**fields))
