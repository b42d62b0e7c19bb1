"""The header tables of merged parts: sources and clock states, kept ready for the next part that needs them."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from schemas import columns as c
from schemas import merged as m
from schemas.batch import I64
from streams.causality.gather import Strings
from streams.causality.sources import Sources
from streams.clock.book import ClockBook

Array = NDArray[Any]
NONE = -1  # a null string
KEPT = 64  # sets of clocks whose columns are kept ready
MAPS = (
    ("map_ref_ns", "ref_ns", c.NULL_I64),
    ("map_ref_tai_ns", "ref_tai_ns", c.NULL_I64),
    ("map_rate_ppb", "rate_ppb", float("nan")),
    ("map_bound_ns", "bound_ns", c.NULL_I64),
    ("map_growth_ppb", "growth_ppb", float("nan")),
)
Table = tuple[dict[str, Array], dict[str, Array]]  # columns, and string columns as the scope's numbers


class Tables:
    """Makes source and clock tables of one scope. What it keeps follows from the scope's state alone."""

    def __init__(self, sources: Sources, clocks: ClockBook, strings: Strings) -> None:
        self._sources, self._clocks, self._strings = sources, clocks, strings
        self._generation = strings.generation
        self._names = np.empty(0, np.int32)
        self._hosts = np.empty(0, np.int32)
        self._incarnations = np.empty(0, np.int64)
        self._families = np.full(256, NONE, np.int32)
        self._ready: dict[bytes, tuple[I64, Table]] = {}

    def refresh(self) -> None:
        """Take up new sources; begin anew where strings or clocks were renumbered (`forget`)."""
        if self._generation != self._strings.generation:
            self.forget()
        number = self._strings.number
        first = len(self._names)
        if first < len(self._sources):
            names = [number(name) for name in self._sources.names[first:]]
            hosts = [number(host) for host in self._sources.hosts[first:]]
            self._names = np.append(self._names, np.array(names, np.int32))
            self._hosts = np.append(self._hosts, np.array(hosts, np.int32))
            self._incarnations = np.array(self._sources.incarnations, np.int64)
        if not first:
            self._families[: len(m.FAMILY_CODES)] = [number(family) for family in m.FAMILY_CODES]

    def forget(self) -> None:
        """Drop what is kept ready."""
        self._generation = self._strings.generation
        self._names = self._hosts = np.empty(0, np.int32)
        self._ready.clear()

    def sources(self, numbers: I64, slots: I64) -> Table:
        """Columns of these sources with these clock slots, without clock and bases."""
        sources = self._sources
        unplaced = np.ones(len(slots), np.bool_)
        if len(self._clocks):
            unplaced = (slots < 0) | ~self._clocks["placed"][np.where(slots < 0, 0, slots)]
        flags = sources.table["flags"][numbers] & (c.SOURCE_ORDERED | c.SOURCE_LIVE)
        data = {
            "src_incarnation": self._incarnations[numbers],
            "src_rank": sources.table["rank"][numbers],
            "src_flags": (flags | np.where(unplaced, m.PLACED_BY_APPEND, 0)).astype("u1"),
        }
        texts = {
            "src_name": self._names[numbers],
            "src_host": self._hosts[numbers],
            "src_family": self._families[sources.table["family"][numbers]],
        }
        return data, texts

    def clocks(self, slots: I64) -> tuple[I64, Table]:
        """(slots in the order of the table, its columns): these states, then parents that none of them is."""
        key = slots.tobytes()
        ready = self._ready.get(key)
        if ready is None:
            if len(self._ready) >= KEPT:
                self._ready.clear()
            ready = self._ready[key] = self._clock_table(slots)
        return ready

    def _clock_table(self, slots: I64) -> tuple[I64, Table]:
        clocks, data, texts = self._clocks, {}, {}
        # By content, not by the order in which clocks were first seen.
        used = np.array(sorted(slots.tolist(), key=clocks.content), np.int64)
        rows = [clocks.rows[slot][0] for slot in used]
        rows += sorted({row for slot in used for row in clocks.rows[slot][1:]} - set(rows), key=repr)
        for k, column in enumerate(c.CLOCKS):
            values = [row[k] for row in rows]
            if column.unit == "string":
                numbers = [NONE if value is None else self._strings.number(str(value)) for value in values]
                texts[column.name] = np.array(numbers, np.int32)
            else:
                filled = [float("nan") if value is None else value for value in values]
                data[column.name] = np.array(filled).astype(column.dtype)
        parents = len(rows) - len(used)
        for name, array, null in MAPS:
            data[name] = np.concatenate((clocks[array][used], np.full(parents, null, clocks[array].dtype)))
        # Parents stamp nothing here, so they have no map; their bound is known all the same.
        bounds = {
            row: clocks.bound_of(slot, level) for slot in used for level, row in enumerate(clocks.rows[slot])
        }
        data["map_bound_ns"][len(used) :] = [bounds[row] for row in rows[len(used) :]]
        return used, (data, texts)
