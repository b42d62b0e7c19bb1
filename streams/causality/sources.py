"""The sources of a scope: identity, sequence numbers seen, watermarks, and who still holds the windows back."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from schemas import columns as c
from schemas.batch import I64, Batch
from schemas.errors import MalformedInput
from schemas.merged import FAMILY_CODES
from schemas.time import append_to_tai
from streams.arrays import Table
from streams.clock.book import ClockBook

I32 = NDArray[np.int32]
UNKNOWN = c.NULL_I64
UNSEEN = 255
KNOWN_BYTES_MAX = 16 * 1024 * 1024
LEAST = np.iinfo(np.int64).min + 1  # a watermark that promises nothing
DEVICE_ROWS = np.zeros(256, np.bool_)
DEVICE_ROWS[[c.GpuKind.KERNEL, c.GpuKind.MEMCPY, c.GpuKind.MEMSET, c.GpuKind.COLLECTIVE]] = True


class Sources:
    """All sources of a scope by number (order of first sight; nothing that is output depends on it)."""

    def __init__(self) -> None:
        self.table = Table(
            rank=(np.int32, c.NULL_I32),
            family=(np.uint8, UNSEEN),  # of its rows; a heartbeat lists sources of all families
            flags=(np.uint8, 0),
            clock=(np.int32, -1),
            publisher=(np.int32, -1),
            high_water=(np.int64, -1),
            watermark_ns=(np.int64, LEAST),  # TAI
            skew_ns=(np.int64, 0),  # watermark less append time
            final=(np.bool_, False),
            detached=(np.bool_, False),
            window=(
                np.int64,
                LEAST,
            ),  # of the last row held, if the source is ordered: no later row goes before it
            tail_end_ns=(
                np.int64,
                LEAST,
            ),  # of the last row that left: its end as mapped and as repaired, and
            tail_order_end_ns=(np.int64, LEAST),  # whether it was device work, after which the next one waits
            tail_device=(np.bool_, False),
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
        self._known_bytes = 0
        self._skew_least, self._skew_most = -LEAST, LEAST  # of live sources; wider than it is, never narrower
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
        """Number of each entry of the batch's source table; new sources are added.

        Raises MalformedInput, before anything is added, where rows of a source were of another family.
        """
        data = batch.data
        key = (data["src_name"].tobytes(), data["src_incarnation"].tobytes(), batch.strings)
        known = self._known.get(key)
        if known is None:
            entries = range(batch.table_len("src"))
            found = np.array([self._number.get(self._identity(batch, e), -1) for e in entries], np.int32)
            self._check_family(batch, found)
            known = np.array([self._one(batch, entry) for entry in entries], np.int32)
            self._known_bytes += 12 * len(found) + sum(map(len, batch.strings))
            if self._known_bytes > KNOWN_BYTES_MAX:
                self._known.clear()
                self._known_bytes = 0
            self._known[key] = known
        else:
            self._check_family(batch, known)
        has_rows = data["src_last_seq"] >= data["src_first_seq"]
        self.table["family"][known[has_rows]] = FAMILY_CODES.index(batch.family)
        return known

    def _check_family(self, batch: Batch, numbers: I32) -> None:
        """Refuse rows of a source whose rows were of another family; `numbers`: -1 for a new source."""
        has_rows = (batch.data["src_last_seq"] >= batch.data["src_first_seq"]) & (numbers >= 0)
        family = self.table["family"][numbers[has_rows]]
        if ((family != UNSEEN) & (family != FAMILY_CODES.index(batch.family))).any():
            raise MalformedInput(f"a source of another family has rows of family {batch.family}", "src_name")

    @staticmethod
    def _identity(batch: Batch, entry: int) -> tuple[str, int]:
        data = batch.data
        return batch.strings[data["src_name"][entry]], int(data["src_incarnation"][entry])

    def _one(self, batch: Batch, entry: int) -> int:
        data = batch.data
        name, incarnation = self._identity(batch, entry)
        number = self._number.get((name, incarnation))
        if number is not None:
            return number
        number = self._number[name, incarnation] = self.table.grow(1)
        self.names.append(name)
        self.hosts.append(batch.strings[data["src_host"][entry]])
        self.incarnations.append(incarnation)
        self.table["rank"][number] = data["src_rank"][entry]
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

    def advance(
        self, batch: Batch, numbers: I32, slots: I32, mapped: I64, append_ms: int, skew_max_ns: int
    ) -> None:
        """Take flags, clocks and watermarks (`mapped`: TAI, UNKNOWN without one) from a batch's source table."""
        table, data = self.table, batch.data
        table["publisher"][numbers] = self.heard(batch, append_ms)
        table["flags"][numbers] = data["src_flags"]
        table["clock"][numbers] = slots
        has = mapped != UNKNOWN
        np.maximum.at(table["watermark_ns"], numbers[has], mapped[has])
        skew = mapped[has] - append_to_tai(append_ms)
        table["skew_ns"][numbers[has]] = skew
        self._came_back(numbers[(data["src_flags"] & c.SOURCE_LIVE) != 0])
        np.logical_or.at(table["final"], numbers, (data["src_flags"] & c.SOURCE_FINAL) != 0)
        live = (data["src_flags"][has] & c.SOURCE_LIVE) != 0
        if live.any():
            self._skew_least = min(self._skew_least, int(skew[live].min()))
            self._skew_most = max(self._skew_most, int(skew[live].max()))
        if self._skew_most - self._skew_least > skew_max_ns:
            self._detach(skew_max_ns)

    def _came_back(self, live: I32) -> None:
        """A live source that speaks after its end goes on, unless a newer incarnation of it took its place."""
        for number in np.unique(live[self.table["final"][live]]).tolist():
            self.table["final"][number] = self._latest[self.names[number]] != number

    def going_on(self, numbers: I32) -> bool:
        """Whether any of these sources is live and not at its end."""
        live = (self.table["flags"][numbers] & c.SOURCE_LIVE) != 0
        return bool((live & ~self.table["final"][numbers]).any())

    def _detach(self, skew_max_ns: int) -> None:
        """Set apart live sources whose time is too far from the median of the live sources (of three or more).

        While all live sources lie within `skew_max_ns`, none can be: `advance` looks at the whole only beyond.
        """
        table = self.table
        live = (table["flags"] & c.SOURCE_LIVE) != 0
        live &= ~table["final"] & (table["watermark_ns"] > LEAST)
        skew = table["skew_ns"]
        if not live.any():
            table["detached"][:] = False
            self._skew_least, self._skew_most = -LEAST, LEAST
            return
        self._skew_least, self._skew_most = int(skew[live].min()), int(skew[live].max())
        if live.sum() < 3:
            table["detached"][:] = False
            return
        table["detached"][:] = live & (np.abs(skew - np.median(skew[live])) > skew_max_ns)

    def placed_by_append(self, clocks: ClockBook) -> NDArray[np.bool_]:
        """Sources whose clock has no map to TAI: their rows are placed by append time and hold nothing."""
        slot = self.table["clock"]
        if not len(clocks):
            return np.ones(len(slot), np.bool_)
        out: NDArray[np.bool_] = (slot < 0) | ~clocks["placed"][np.where(slot < 0, 0, slot)]
        return out

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
        out._skew_least, out._skew_most = LEAST, -LEAST  # unknown: look at the whole next time
        return out


def new_rows(high_water: I64, numbers: I32, first: I64, last: I64) -> tuple[I64, int, int]:
    """Which rows of each source entry were not seen before; `high_water`, by source, is raised.

    Entries are taken in order (a source may have several). Returns (least new sequence number by entry,
    duplicates, missing rows).
    """
    rows = last - first + 1
    has = rows > 0
    if len(np.unique(numbers)) == len(numbers):
        skip: I64 = high_water[numbers] + 1
        duplicates = int(np.clip(skip - first, 0, rows)[has].sum())
        missing = int(np.clip(first - skip, 0, None)[has].sum())
        high_water[numbers[has]] = np.maximum(high_water[numbers[has]], last[has])
        return skip, duplicates, missing
    skip = np.empty(len(first), np.int64)
    duplicates = missing = 0
    for entry, source in enumerate(numbers.tolist()):
        skip[entry] = high_water[source] + 1
        if has[entry]:
            duplicates += min(int(rows[entry]), max(0, int(skip[entry] - first[entry])))
            missing += max(0, int(first[entry] - skip[entry]))
            high_water[source] = max(high_water[source], last[entry])
    return skip, duplicates, missing
