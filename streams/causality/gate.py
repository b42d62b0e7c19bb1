"""Up to what time the windows of a scope may leave.

Window [s, e) leaves when for every open source its mapped low watermark less its bound has reached e + B, B being
the greatest bound among them. Without B an effect whose clock is slow would leave before its cause. Sources that
are final, idle (their publisher silent for `idle_after` of append time), detached or placed by append time hold
nothing back.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from schemas.time import EARLIEST_NS
from streams.causality.settings import MergeSettings
from streams.causality.sources import LEAST, Sources
from streams.clock.book import UNKNOWN, ClockBook

NEVER = np.iinfo(np.int64).max


class Gate:
    """Looks at all sources when it must, and at one of them while that one alone keeps the next window back."""

    def __init__(self, settings: MergeSettings) -> None:
        self._settings = settings
        self._blocker = -1  # the source that held the watermark back last time
        self.deadline_ms = NEVER  # append time at which to look again without new input

    def _bounds(
        self, clocks: ClockBook, slots: NDArray[Any], watermark_ns: NDArray[Any]
    ) -> NDArray[np.int64]:
        """Bound of sources at their watermarks: capped, 0 where it is unknown."""
        bound = clocks.bound_at(slots, watermark_ns)
        return np.where(bound == UNKNOWN, 0, np.minimum(bound, self._settings.bound_cap_ns))

    def _blocked(self, sources: Sources, clocks: ClockBook, now_ms: int, next_end_ns: int) -> bool:
        """Whether the last blocker alone still forbids the next window, whatever the others do.

        B is at least the blocker's own bound, so that its watermark less twice that is beyond the limit.
        """
        k, table = self._blocker, sources.table
        if k < 0 or now_ms >= self.deadline_ms or table["final"][k] or table["detached"][k]:
            return False
        slot = table["clock"][k : k + 1]
        if slot[0] < 0 or not clocks["placed"][slot[0]]:
            return False
        watermark = np.maximum(table["watermark_ns"][k : k + 1], EARLIEST_NS)
        return bool(watermark[0] - 2 * self._bounds(clocks, slot, watermark)[0] < next_end_ns)

    def limit(
        self, sources: Sources, clocks: ClockBook, now_ms: int, next_end_ns: int | None, flush: bool
    ) -> tuple[int, dict[str, int]]:
        """(time up to which windows may leave, sources not waited for by reason). NEVER: there is no limit.

        `next_end_ns` is the end of the first window that has not left; below it any limit is as good as another.
        """
        if not flush and next_end_ns is not None and self._blocked(sources, clocks, now_ms, next_end_ns):
            return LEAST, {}
        table, idle_after = sources.table, self._settings.idle_after_ms
        holds = ~table["final"] & ~sources.placed_by_append(clocks)
        heard = np.array(sources.heard_ms, np.int64)[table["publisher"]]
        idle = holds & (heard + idle_after < now_ms)
        detached = holds & table["detached"] & ~idle
        waits = holds & ~idle & ~detached
        past = {"idle": int(idle.sum()), "detached": int(detached.sum())}
        self._blocker = -1
        if flush:
            past["flush"] = int(waits.sum())
            return NEVER, past
        self.deadline_ms = int(heard[waits].min()) + idle_after + 1 if waits.any() else NEVER
        if not waits.any():
            return NEVER, past
        watermark = np.maximum(table["watermark_ns"], EARLIEST_NS)
        bound = self._bounds(clocks, table["clock"], watermark)
        sure = np.where(waits, watermark - bound, NEVER)
        self._blocker = int(sure.argmin())
        return int(sure[self._blocker]) - int(bound[waits].max()), past
