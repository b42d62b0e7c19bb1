"""The sources of a scope: identity, sequence numbers seen, watermarks, and who still holds the windows back."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from schemas import columns as c
from schemas.batch import I64, Batch
from schemas.merged import FAMILY_CODES
from schemas.time import append_to_tai
from streams.arrays import Table
from streams.clock.book import ClockBook

I32 = NDArray[np.int32]
UNKNOWN = c.NULL_I64
LEAST = np.iinfo(np.int64).min + 1  # a watermark that promises nothing
DEVICE_ROWS = np.zeros(256, np.bool_)
DEVICE_ROWS[[c.GpuKind.KERNEL, c.GpuKind.MEMCPY, c.GpuKind.MEMSET, c.GpuKind.COLLECTIVE]] = True


class Sources:
    """All sources of a scope by number (order of first sight; nothing that is output depends on it)."""

    def __init__(self) -> None:
        self.table = Table(
            rank=(np.int32, c.NULL_I32),
            family=(np.uint8, 0),
            flags=(np.uint8, 0),
            clock=(np.int32, -1),
            publisher=(np.int32, -1),
            high_water=(np.int64, -1),
            watermark_ns=(np.int64, LEAST),  # TAI
            skew_ns=(np.int64, 0),  # watermark less append time
            final=(np.bool_, False),
            detached=(np.bool_, False),
        )
        self.names: list[str] = []
        self.hosts: list[str] = []
        self.incarnations: list[int] = []
        self.publishers: list[str] = []
        self.heard_ms: list[int] = []  # append time of each publisher's last batch
        self._number: dict[tuple[str, int], int] = {}
        self._latest: dict[str, int] = {}
        self._publisher: dict[str, int] = {}
        self._known: dict[tuple[bytes, bytes, tuple[str, ...]], I32] = {}
        self._rank_by_name: I32 | None = None

    def __len__(self) -> int:
        return len(self.names)

    def name_order(self) -> I32:
        """By source: its place in the order of (name, incarnation), which ties are broken by."""
        if self._rank_by_name is None:
            order = sorted(range(len(self.names)), key=lambda i: (self.names[i], self.incarnations[i]))
            self._rank_by_name = np.empty(len(order), np.int32)
            self._rank_by_name[order] = np.arange(len(order), dtype=np.int32)
        return self._rank_by_name

    def members(self) -> tuple[int, int]:
        """Distinct ranks and hosts listed so far."""
        ranks = self.table["rank"]
        return len(np.unique(ranks[ranks != c.NULL_I32])), len(set(self.hosts))

    def number(self, batch: Batch) -> I32:
        """Number of each entry of the batch's source table; new sources are added."""
        data = batch.data
        key = (data["src_name"].tobytes(), data["src_incarnation"].tobytes(), batch.strings)
        known = self._known.get(key)
        if known is None:
            if len(self._known) > 4096:
                self._known.clear()
            known = self._known[key] = np.array(
                [self._one(batch, entry) for entry in range(batch.table_len("src"))], np.int32
            )
        return known

    def _one(self, batch: Batch, entry: int) -> int:
        data = batch.data
        name = batch.strings[data["src_name"][entry]]
        incarnation = int(data["src_incarnation"][entry])
        number = self._number.get((name, incarnation))
        if number is not None:
            return number
        number = self._number[name, incarnation] = self.table.grow(1)
        self.names.append(name)
        self.hosts.append(batch.strings[data["src_host"][entry]])
        self.incarnations.append(incarnation)
        self.table["rank"][number] = data["src_rank"][entry]
        self.table["family"][number] = FAMILY_CODES.index(batch.family)
        older = self._latest.get(name)
        if older is not None:
            self.table["final"][older] = True  # a new incarnation ends the source's older one
        self._latest[name] = number
        self._rank_by_name = None
        return number

    def heard(self, batch: Batch, append_ms: int) -> int:
        """Note that a publisher sent something; gives its number."""
        place = self._publisher.get(batch.publisher)
        if place is None:
            place = self._publisher[batch.publisher] = len(self.publishers)
            self.publishers.append(batch.publisher)
            self.heard_ms.append(append_ms)
        self.heard_ms[place] = max(append_ms, self.heard_ms[place])
        return place

    def advance(self, batch: Batch, numbers: I32, slots: I32, clocks: ClockBook, append_ms: int) -> None:
        """Take watermarks, flags and clocks from a batch's source table."""
        table, data = self.table, batch.data
        publisher = self.heard(batch, append_ms)
        table["publisher"][numbers] = publisher
        table["flags"][numbers] = data["src_flags"]
        table["clock"][numbers] = slots
        stated = data["src_low_watermark_ns"]
        has = (stated != UNKNOWN) & (slots >= 0)
        safe = np.where(slots >= 0, slots, 0)
        if len(clocks):
            delta = np.where(has, stated, 0) - clocks["ref_ns"][safe]
            mapped = clocks["ref_tai_ns"][safe] + delta + np.rint(delta * (clocks["rate_ppb"][safe] * 1e-9)).astype(np.int64)
            has &= clocks["placed"][safe]
            np.maximum.at(table["watermark_ns"], numbers[has], mapped[has])
            table["skew_ns"][numbers[has]] = mapped[has] - append_to_tai(append_ms)
        np.logical_or.at(table["final"], numbers, (data["src_flags"] & c.SOURCE_FINAL) != 0)

    def detach(self, skew_max_ns: int) -> None:
        """Set apart live sources whose time is too far from the median of the live sources (of three or more)."""
        live = (self.table["flags"] & c.SOURCE_LIVE) != 0
        live &= ~self.table["final"] & (self.table["watermark_ns"] > LEAST)
        if live.sum() < 3:
            self.table["detached"][:] = False
            return
        skew = self.table["skew_ns"]
        self.table["detached"][:] = live & (np.abs(skew - np.median(skew[live])) > skew_max_ns)

    def placed_by_append(self, clocks: ClockBook) -> NDArray[np.bool_]:
        """Sources whose clock has no map to TAI: their rows are placed by append time and hold nothing."""
        slot = self.table["clock"]
        if not len(clocks):
            return np.ones(len(slot), np.bool_)
        return (slot < 0) | ~clocks["placed"][np.where(slot < 0, 0, slot)]

    def dump(self) -> tuple[Any, dict[str, Any]]:
        """State for a snapshot: JSON part and arrays."""
        meta = [self.names, self.hosts, self.incarnations, self.publishers, self.heard_ms]
        return meta, self.table.dump()

    @classmethod
    def load(cls, meta: Any, arrays: dict[str, Any]) -> "Sources":
        """From `dump`."""
        out = cls()
        out.names, out.hosts, out.incarnations, out.publishers, out.heard_ms = (list(part) for part in meta)
        out.table.load(arrays)
        for number, (name, incarnation) in enumerate(zip(out.names, out.incarnations, strict=True)):
            out._number[name, incarnation] = number
            out._latest[name] = number
        out._publisher = {name: place for place, name in enumerate(out.publishers)}
        return out


def new_rows(high_water: I64, numbers: I32, first: I64, last: I64) -> tuple[I64, int, int, I64]:
    """Which rows of each source entry were not seen before.

    Entries are taken in order (a source may have several). Returns (least new sequence number by entry,
    duplicates, missing rows, high water by source afterwards).
    """
    water = high_water.copy()
    skip = np.empty(len(first), np.int64)
    duplicates = missing = 0
    if len(np.unique(numbers)) == len(numbers):
        skip[:] = water[numbers] + 1
        rows = last - first + 1
        has = rows > 0
        duplicates = int(np.clip(skip - first, 0, rows)[has].sum())
        missing = int(np.clip(first - skip, 0, None)[has].sum())
        water[numbers[has]] = np.maximum(water[numbers[has]], last[has])
        return skip, duplicates, missing, water
    for entry in range(len(first)):
        source = numbers[entry]
        skip[entry] = water[source] + 1
        rows_here = int(last[entry] - first[entry] + 1)
        if rows_here > 0:
            duplicates += min(rows_here, max(0, int(skip[entry] - first[entry])))
            missing += max(0, int(first[entry] - skip[entry]))
            water[source] = max(water[source], last[entry])
    return skip, duplicates, missing, water
