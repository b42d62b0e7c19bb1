"""Rows of family `fabric` in a window: what ports counted, which flows hosts have, which paths were walked."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from schemas import columns as c
from schemas.merged import Merged

_TEXTS = ("back", "src", "dst", "job")
_FLOATS = ("capacity_bps", "share", "agreement")


class Count(NamedTuple):
    """A port's counters over an interval that ends at `time_ns` (TAI). None is unknown."""

    link: str
    back: str | None
    time_ns: int
    interval_ns: int | None
    tx_bytes: int | None
    rx_bytes: int | None
    capacity_bps: float | None
    node: int | None
    port: int | None


class Told(NamedTuple):
    """A flow that a host has."""

    flow: int
    time_ns: int
    src: str | None
    dst: str | None
    sport: int | None
    dport: int | None
    protocol: int | None
    job: str | None
    rank_src: int | None
    rank_dst: int | None


class Step(NamedTuple):
    """A half-link of a flow's path."""

    flow: int
    time_ns: int
    hop: int
    link: str
    share: float
    source: int
    agreement: float | None


class FabricRows(NamedTuple):
    """All rows of a window, counts in order of time."""

    counts: list[Count]
    flows: list[Told]
    steps: list[Step]


def fabric_rows(parts: Sequence[Merged]) -> FabricRows:
    """The window's rows of family `fabric`; rows without what they are about are left out."""
    out = FabricRows([], [], [])
    for part in parts:
        for kind, entity, time_ns, row in _rows(part):
            if kind == c.FabricKind.COUNTER and entity:
                out.counts.append(
                    Count(
                        entity, row["back"], time_ns, row["interval_ns"], row["tx_bytes"], row["rx_bytes"],
                        row["capacity_bps"], row["node"], row["port"],
                    )
                )  # fmt: skip
            elif kind == c.FabricKind.FLOW and row["flow"] is not None:
                names = ("src", "dst", "sport", "dport", "protocol", "job", "rank_src", "rank_dst")
                out.flows.append(Told(row["flow"], time_ns, *(row[name] for name in names)))
            elif kind == c.FabricKind.HOP and row["flow"] is not None and entity:
                share = 1.0 if row["share"] is None else row["share"]
                source = c.PathSource.CANDIDATES if row["path_source"] is None else row["path_source"]
                out.steps.append(
                    Step(row["flow"], time_ns, row["hop"] or 0, entity, share, source, row["agreement"])
                )
    out.counts.sort(key=lambda count: (count.time_ns, count.link))
    return out


def _rows(part: Merged) -> Iterator[tuple[int, str | None, int, dict[str, Any]]]:
    row = part.data.get("fabric_row")
    if row is None or not len(row):
        return
    times = part.time_ns()[row]
    columns: dict[str, list[Any]] = {}
    for column in c.FAMILIES["fabric"]:
        name = f"fabric_{column.name}"
        packed = part.data.get(name)
        if packed is None or not len(packed):
            columns[column.name] = [None] * len(row)
        elif column.name in _TEXTS:
            columns[column.name] = [part.text(int(k)) for k in packed]
        elif column.name in _FLOATS:
            columns[column.name] = [None if np.isnan(k) else float(k) for k in packed]
        elif column.dtype == "<u8":
            columns[column.name] = [None if k == 2**64 - 1 else k for k in packed.tolist()]
        else:
            columns[column.name] = [None if k == c.NULL_I64 else k for k in part.wide(name).tolist()]
    kinds, entities = part.data["kind"][row].tolist(), part.data["entity"][row].tolist()
    for k, (kind, entity) in enumerate(zip(kinds, entities, strict=True)):
        yield kind, part.text(entity), int(times[k]), {name: column[k] for name, column in columns.items()}
