"""Counted links: what ports counted, beside what flows account for.

Counters are read now and then, so an interval seldom ends where a window does. Bytes of flows are therefore
kept by link since the reading before, split at the instant of each reading; `coverage` compares the two over
exactly the interval that the counter speaks of. A link is counted by its sender; by its receiver only where
the sender's counters were never seen.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streams.paths.told import Count

I64 = NDArray[np.int64]


@dataclass
class Load:
    """What is said of one link in one window. None is unknown."""

    bytes: int | None = None
    interval_ns: int | None = None
    capacity_bps: float | None = None
    covered: int | None = None  # bytes of flows over the same interval
    by_flows: int = 0

    @property
    def utilisation(self) -> float:
        """Share of the capacity; NaN if unknown."""
        if self.bytes is None or not self.interval_ns or not self.capacity_bps:
            return float("nan")
        return self.bytes * 8 / (self.capacity_bps * self.interval_ns * 1e-9)

    @property
    def coverage(self) -> float:
        """Attributed over counted bytes; NaN if unknown."""
        if not self.bytes or self.covered is None:
            return float("nan")
        return self.covered / self.bytes


@dataclass
class _Book:
    read_ns: int  # last reading
    by_sender: bool
    capacity_bps: float | None
    waiting: int = 0  # bytes of flows since that reading


@dataclass
class Counted:
    """Links that are counted, over windows. `names` are their names by (node, port) of in-band telemetry."""

    names: dict[tuple[int, int], str] = field(default_factory=dict)
    _books: dict[str, _Book] = field(default_factory=dict)

    def name(self, reported: str) -> str:
        """The counted link's name for a link as reports name it (`7:3>9:1`), or the same."""
        node, _, port = reported.partition(">")[0].rpartition(":")
        if not (node.isdecimal() and port.isdecimal()):
            return reported
        return self.names.get((int(node), int(port)), reported)

    def learn(self, counts: Iterable[Count]) -> None:
        """Take names of links from counters, before the window's reports are named."""
        for count in counts:
            if count.node is not None and count.port is not None:
                self.names[count.node, count.port] = count.link

    def window(self, counts: Sequence[Count], flows: dict[str, tuple[I64, I64]]) -> dict[str, Load]:
        """Loads by link. `flows`: by link the times (TAI) and bytes of the reports that crossed it, by time."""
        out = {link: Load(by_flows=int(size.sum())) for link, (_, size) in flows.items()}
        done = dict.fromkeys(flows, 0)
        ordered = sorted(_both_ways(counts), key=lambda entry: (entry[2], not entry[1]))
        for link, by_sender, time_ns, interval_ns, size, capacity in ordered:
            load = out.setdefault(link, Load())
            book = self._books.get(link)
            if book is not None and book.by_sender and not by_sender:
                continue
            times, sizes = flows.get(link, (np.empty(0, np.int64), np.empty(0, np.int64)))
            upto = int(np.searchsorted(times, time_ns, side="right"))
            before = done.get(link, 0)
            passed = int(sizes[before:upto].sum()) if upto > before else 0
            done[link] = max(before, upto)
            whole = book is not None and interval_ns is not None and book.read_ns == time_ns - interval_ns
            covered = book.waiting + passed if whole and book is not None else None
            if size is not None and interval_ns is not None:
                if load.bytes is not None and load.covered is not None and covered is not None:
                    covered += load.covered
                elif load.bytes is not None:
                    covered = None
                load.bytes = (load.bytes or 0) + size
                load.interval_ns = (load.interval_ns or 0) + interval_ns
                load.covered = covered
            load.capacity_bps = capacity if capacity is not None else load.capacity_bps
            self._books[link] = _Book(time_ns, by_sender, load.capacity_bps)
        for link, (_, sizes) in flows.items():
            book = self._books.get(link)
            if book is not None:
                book.waiting += int(sizes[done[link] :].sum())
                load = out[link]
                if load.capacity_bps is None:
                    load.capacity_bps = book.capacity_bps
        return out

    def is_counted(self, link: str) -> bool:
        """Whether counters of this link were seen of late."""
        return link in self._books

    def capacities(self) -> dict[str, float]:
        """Capacity of the links of which it is known, bit/s."""
        return {link: b.capacity_bps for link, b in self._books.items() if b.capacity_bps}

    def forget(self, oldest_ns: int) -> None:
        """Drop links without a reading since then."""
        stale = [link for link, book in self._books.items() if book.read_ns < oldest_ns]
        for link in stale:
            del self._books[link]
        if stale:
            gone = set(stale)
            self.names = {key: link for key, link in self.names.items() if link not in gone}

    def dump(self) -> Any:
        """As JSON."""
        books = [[k, b.read_ns, b.by_sender, b.capacity_bps, b.waiting] for k, b in self._books.items()]
        return {"books": books, "names": [[*key, link] for key, link in self.names.items()]}

    def load(self, meta: Any) -> None:
        """From `dump`."""
        self._books = {link: _Book(*rest) for link, *rest in meta["books"]}
        self.names = {(node, port): link for node, port, link in meta["names"]}


def _both_ways(
    counts: Iterable[Count],
) -> Iterable[tuple[str, bool, int, int | None, int | None, float | None]]:
    """(link, counted by its sender, time, interval, bytes, capacity) of each reading, for both directions."""
    for count in counts:
        yield count.link, True, count.time_ns, count.interval_ns, count.tx_bytes, count.capacity_bps
        if count.back:
            yield count.back, False, count.time_ns, count.interval_ns, count.rx_bytes, count.capacity_bps
