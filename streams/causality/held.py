"""The rows of a scope that wait, by the window they fall in."""

import heapq
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from streams.causality.intake import Chunk, Part, canonical, split
from streams.causality.sources import Sources


@dataclass
class Budget:
    """Rows held by all scopes of a partition."""

    rows: int = 0


class Held:
    """Open windows by number. `policy` is the version that windows opened from now on are under."""

    def __init__(self, budget: Budget) -> None:
        self.budget = budget
        self.rows = 0
        self.policy = 0
        self.policies: dict[int, int] = {}  # version that each open window was opened under
        self._buckets: dict[int, list[Part]] = {}
        self._order: list[int] = []  # a heap of their numbers; some may be gone

    def __len__(self) -> int:
        return len(self._buckets)

    @property
    def first(self) -> int | None:
        """The earliest window, None if none is open."""
        while self._order and self._order[0] not in self._buckets:
            heapq.heappop(self._order)
        return self._order[0] if self._order else None

    def put(self, window: int, part: Part) -> None:
        """Add rows that are counted already to a window, which is opened if need be."""
        bucket = self._buckets.get(window)
        if bucket is None:
            bucket = self._buckets[window] = []
            heapq.heappush(self._order, window)
            self.policies.setdefault(window, self.policy)
        bucket.append(part)

    def hold(self, chunk: Chunk, rows: Any, seq: Any, time_ns: Any, window: Any, loose: bool) -> None:
        """Take up rows of a chunk; all arrays but `window` are by row of the chunk."""
        if not len(rows):
            return
        source = chunk.source_of[chunk.batch.data["source"][rows]]
        parts = split(chunk, rows.astype(np.int32), source, seq[rows], time_ns[rows], window, loose)
        for number, part in parts:
            self.put(number, part)
        self.count(len(rows))

    def count(self, rows: int) -> None:
        """Note that so many rows came (or left, if negative)."""
        self.rows += rows
        self.budget.rows += rows

    def take(self, window: int) -> tuple[list[Part], int]:
        """(the rows of a window in order of arrival, its policy's version); the window is closed."""
        return canonical(self._buckets.pop(window)), self.policies.pop(window)

    def after(self, window: int, reach: int) -> list[Part]:
        """Parts with endpoints of the windows after this one, up to `reach`."""
        near = range(window + 1, reach + 1) if reach - window < len(self._buckets) else sorted(self._buckets)
        return [
            part
            for later in near
            if window < later <= reach and later in self._buckets
            for part in canonical(self._buckets[later])
            if len(part.endpoints)
        ]

    def shed(self, sources: Sources) -> Iterator[tuple[Chunk, Any]]:
        """Give up the rows of the last window that are of the source furthest ahead: (chunk, rows) each."""
        last = max(self._buckets)
        version = self.policies[last]
        parts, _ = self.take(last)
        newest = max(int(part.time_ns.max()) for part in parts)
        ahead = np.concatenate([part.source[part.time_ns == newest] for part in parts])
        furthest = ahead[sources.name_order()[ahead].argmax()]
        for part in parts:
            mine = part.source == furthest
            if not mine.all():
                self.policies.setdefault(last, version)
                self.put(last, part.only(~mine))
            if mine.any():
                self.count(-int(mine.sum()))
                yield part.chunk, np.sort(part.rows[mine]).astype(np.int64)

    def windows(self) -> Iterator[tuple[int, list[Part]]]:
        """All open windows with their parts, in no order."""
        yield from self._buckets.items()

    def chunks(self) -> list[Chunk]:
        """Every record of which rows are held."""
        return list({id(p.chunk): p.chunk for parts in self._buckets.values() for p in parts}.values())
