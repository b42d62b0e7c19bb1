"""The families' own columns of a released window, and the numbers that its rows carry, in input order."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from schemas import columns as c
from schemas import merged as m
from schemas.batch import I64, null_column
from streams.causality.gather import Window
from streams.causality.release import Released

Array = NDArray[Any]


@dataclass(eq=False)
class Section:
    """A family's rows of a window: final row of each, own columns as packed, string columns as scope numbers."""

    row: I64
    columns: dict[str, Array]
    texts: frozenset[str]
    escapes: list[tuple[I64, str, I64]]  # (final rows, column, values)
    value_row: I64
    value_name: NDArray[np.int32]
    value: NDArray[np.float64]

    @property
    def nbytes(self) -> int:
        """About what it takes in a record."""
        return sum(column.nbytes for column in self.columns.values()) + 14 * len(self.value)


def sections(released: Released, order: I64) -> dict[str, Section]:
    """Own columns and values of the rows that leave, by family, in input order."""
    window = released.window
    final = np.full(len(window), -1, np.int64)
    final[order] = np.arange(len(order))
    by_gathered = np.empty(len(window), np.int64)
    by_gathered[window.gathered] = final
    out: dict[str, Section] = {}
    for family in m.FAMILY_CODES:
        mine = [k for k, part in enumerate(window.parts) if part.chunk.batch.family == family]
        if mine:
            out[family] = _section(window, mine, by_gathered, family)
    return out


def _section(window: Window, mine: Sequence[int], final: I64, family: str) -> Section:
    rows: list[I64] = []
    own = {column.name: column for column in c.FAMILIES[family]}
    columns: dict[str, list[Array]] = {name: [] for name in own}
    texts = frozenset(column.name for column in c.FAMILIES[family] if column.unit == "string")
    present: set[str] = set()
    escapes: list[tuple[I64, str, I64]] = []
    value_row: list[I64] = []
    value_name: list[NDArray[np.int32]] = []
    value: list[Array] = []
    for k in mine:
        part = window.parts[k]
        batch = part.chunk.batch
        at = final[window.part_start[k] : window.part_start[k + 1]]
        stays = at < 0
        which = part.rows
        if stays.any():
            which = which[~stays]
        rows.append(at[~stays])
        for name, found in columns.items():
            packed = batch.data.get(name)
            if packed is None:
                packed = null_column(own[name], len(which))
            else:
                present.add(name)
                packed = packed if len(which) == batch.count else packed[which]
            if name in texts:
                strings = part.chunk.strings
                packed = strings[np.minimum(packed, len(strings) - 1)]
            found.append(packed)
        if batch.table_len("esc"):
            for name in columns:
                if name in batch.strings:
                    mask = batch.data["esc_column"] == batch.strings.index(name)
                    row = batch.data["esc_row"][mask]
                    found_at = np.minimum(np.searchsorted(part.rows, row), len(part) - 1)
                    kept = (part.rows[found_at] == row) & (at[found_at] >= 0)
                    escapes.append((at[found_at[kept]], name, batch.data["esc_value"][mask][kept]))
        if len(part.values):
            target = at[part.value_at]
            kept = target >= 0
            value_row.append(target[kept])
            value_name.append(part.chunk.strings[batch.data["val_name"][part.values[kept]]])
            value.append(batch.data["val"][part.values[kept]])
    return Section(
        row=np.concatenate(rows),
        columns={name: np.concatenate(columns[name]) for name in columns if name in present},
        texts=texts,
        escapes=escapes,
        value_row=np.concatenate(value_row) if value_row else np.empty(0, np.int64),
        value_name=np.concatenate(value_name) if value_name else np.empty(0, np.int32),
        value=np.concatenate(value) if value else np.empty(0, np.float64),
    )
