"""Making batches row by row, for producers of few rows: logs, probes, reports.

Producers of many rows (profiler traces, the simulator) give arrays to `schemas.pack.pack`. Either way the result
is the same narrow batch, and rows are numbered without gaps.
"""

from collections.abc import Sequence

import numpy as np

from schemas import columns as c
from schemas.batch import Batch
from schemas.flat import Array
from schemas.pack import Group, Head, SeqBook, Source, Strings, pack
from schemas.time import ClockState


class Draft:
    """A batch in the making, row by row. Rows of an ordered source are added in program order.

    `row` numbers each row at once through the publisher's SeqBook, so a draft that was begun must be built.
    """

    def __init__(self, head: Head, book: SeqBook) -> None:
        self.head = head
        self._book = book
        self._strings = Strings()
        self._sources: dict[Source, int] = {}
        self._first: list[int] = []
        self._watermark: list[int | None] = []
        self._final: list[bool] = []
        self._groups: dict[Group, int] = {}
        self._parents: list[ClockState] = []
        self._own = {column.name: column for column in c.FAMILIES[head.family]}
        self._rows: dict[str, list[int | float]] = {
            name: [] for name in ("source", "raw_ns", "duration_ns", "kind", "entity", "name", *self._own)
        }
        self._endpoints: list[tuple[int, ...]] = []
        self._values: list[tuple[int, int, float]] = []

    def __len__(self) -> int:
        return len(self._rows["source"])

    def _place(self, source: Source) -> int:
        place = self._sources.get(source)
        if place is None:
            place = self._sources[source] = len(self._sources)
            self._first.append(self._book.take(source, 0))
            self._watermark.append(None)
            self._final.append(False)
        return place

    def row(
        self,
        source: Source | None,
        raw_ns: int,
        *,
        kind: int,
        entity: str | None = None,
        name: str | None = None,
        duration_ns: int | None = 0,
        **own: int | float | str | None,
    ) -> int:
        """Add a row and give its index in the batch. `own` holds the family's columns; strings stay text."""
        rows = self._rows
        if source is None:
            rows["source"].append(c.NULL_U16)
        else:
            rows["source"].append(self._place(source))
            self._book.take(source, 1)
        rows["raw_ns"].append(raw_ns)
        rows["duration_ns"].append(c.NULL_I64 if duration_ns is None else duration_ns)
        rows["kind"].append(kind)
        rows["entity"].append(self._strings.index(entity))
        rows["name"].append(self._strings.index(name))
        for column in self._own.values():
            value = own.pop(column.name, None)
            if isinstance(value, str):
                assert column.unit == "string", f"{column.name} is no string column"
                value = self._strings.index(value)
            if value is None:
                value = float("nan") if column.dtype == "<f8" else c.NULL_I64
                if column.dtype == "<u8":
                    value = 2**64 - 1
            rows[column.name].append(value)
        assert not own, f"{self.head.family} has no columns {sorted(own)}"
        return len(rows["source"]) - 1

    def endpoint(
        self,
        row: int,
        point: c.Point,
        kind: c.EdgeKind,
        role: c.Role,
        key: int,
        *,
        group: Group | None = None,
        op: c.Op = c.Op.NONE,
        size: int = 0,
        assumed: bool = False,
    ) -> None:
        """Say that a point of a row takes part in an edge; `key` (u64) is equal on all its sides."""
        at = c.NULL_I64 if group is None else self._groups.setdefault(group, len(self._groups))
        flags = c.ENDPOINT_ASSUMED if assumed else 0
        self._endpoints.append((row, point, kind, role, key, at, op, size, flags))

    def value(self, row: int, name: str, number: float) -> None:
        """Attach a number to a row."""
        self._values.append((row, self._strings.index(name), number))

    def parent(self, clock: ClockState) -> None:
        """State a clock that stamps no row here but is the parent of one that does."""
        if clock not in self._parents:
            self._parents.append(clock)

    def watermark(self, source: Source, raw_ns: int) -> None:
        """Promise that no later row of this source begins below `raw_ns` on its clock."""
        self._watermark[self._place(source)] = raw_ns

    def final(self, source: Source) -> None:
        """Say that no row of this source follows."""
        self._final[self._place(source)] = True

    def build(self) -> Batch:
        """The batch."""
        rows = self._rows
        arrays: dict[str, Array] = {}
        for name in ("duration_ns", "kind", "entity", "name"):
            arrays[name] = np.array(rows[name], np.int64)
        for column in self._own.values():
            kind = {"<f8": np.float64, "<u8": np.uint64}.get(column.dtype, np.int64)
            arrays[column.name] = np.array(rows[column.name], kind)
        endpoints: dict[str, Array] | None = None
        if self._endpoints:
            parts = list(zip(*self._endpoints, strict=True))
            endpoints = {
                column.name: np.array(part, np.uint64 if column.dtype == "<u8" else np.int64)
                for column, part in zip(c.ENDPOINTS, parts, strict=True)
            }
        values: dict[str, Array] | None = None
        if self._values:
            row, name_, number = zip(*self._values, strict=True)
            values = {
                "val_row": np.array(row, np.int64),
                "val_name": np.array(name_, np.int64),
                "val": np.array(number, np.float64),
            }
        return pack(
            self.head,
            self._strings,
            list(self._sources),
            self._first,
            np.array(rows["source"], np.int64),
            np.array(rows["raw_ns"], np.int64),
            arrays,
            groups=list(self._groups),
            parents=self._parents,
            endpoints=endpoints,
            values=values,
            watermark_ns=self._watermark,
            final=self._final,
        )


def control(
    tenant: str, scope: str, publisher: str, rows: Sequence[tuple[c.Control, int | None, str | None]]
) -> Batch:
    """A batch of control rows: (kind, number, text) each. What number and text mean is in schemas.columns.

    `open` is sent before a publisher's data, once each for ranks, hosts and sources where the expected number is
    known: (OPEN, 8, "ranks"). `tick`, `flush` and `policy` have an empty scope and go to one partition.
    """
    draft = Draft(Head(tenant, scope, publisher, "control"), SeqBook())
    for kind, number, text in rows:
        draft.row(None, 0, kind=kind, number=number, text=text)
    return draft.build()
