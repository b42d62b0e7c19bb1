"""What a switch counts: the length of a tick of its stamps, of its latencies, and where they begin anew.

A switch's clock counts from its power-on or from any other zero, in ticks of its own. The tick follows from the
collector's stamps: over a second, what reports wait on their way (milliseconds) is small. A tick is taken only
where one of those that switches are known to count in fits and no other does; otherwise it stays unknown, since
with a guessed tick every offset would be wrong by the clock's whole reading.
"""

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

I64 = NDArray[np.int64]
F64 = NDArray[np.float64]
Bools = NDArray[np.bool_]

TICKS_NS: Final = (1.0, 8.0, 10.0, 16.0, 100.0, 1000.0, 1024.0, 1e6)
BASELINE_NS: Final = 100_000_000  # least time between two readings that a tick is taken from
DOUBT_MAX: Final = 0.01  # of the tick, relative
RATE: Final = 1e-3  # no oscillator is further off than that, nor the collector's
READING_MAX: Final = 1 << 61  # ns: what is more is no clock
AHEAD_NS: Final = 1_000_000_000
RESET, RESET_NS = 1000, 10_000_000  # ticks, and time where it is known, that a new beginning falls back by


@dataclass
class Tick:
    """The stamps of one switch since its clock last began anew."""

    epoch: int = 0
    first: tuple[int, int] | None = None  # collector's stamp (TAI) and the switch's, of the first reading
    top: int = 0  # greatest stamp
    unit_ns: float | None = None
    configured: bool = False
    latency_ns: float | None = None  # a tick of latencies
    latency_configured: bool = False
    zero_max_ns: int | None = None
    last_seen_ns: int = 0

    def take(self, time_ns: I64, stamp: I64) -> Bools:
        """Take readings in order of the collector's stamps; which of them are of the epoch that goes on.

        Both arrays have one entry a reading, at least one.
        """
        out = self._of_epoch(time_ns, stamp)
        time_ns, recent = time_ns[out], stamp[out]
        self.top = max(self.top, int(recent.max()))
        if not self.configured and self.unit_ns is None:
            self.unit_ns = self._fitted(time_ns, recent)
        if self.unit_ns is not None:
            zero = int((time_ns - in_ns(recent, self.unit_ns)).min())
            self.zero_max_ns = zero if self.zero_max_ns is None else min(self.zero_max_ns, zero)
        return out

    def _of_epoch(self, time_ns: I64, stamp: I64) -> Bools:
        """Which readings are of the epoch that goes on; a new one begins where the clock begins anew.

        A stamp below half of one before it is of a new epoch. One far ahead of the collector's time is from
        before a wrap and came late, and is passed over; where all are, the clock was set.
        """
        start = 0
        least = RESET if self.unit_ns is None else max(RESET, RESET_NS / self.unit_ns)
        while True:
            times, stamps = time_ns[start:], stamp[start:]
            if self.first is None:
                self.first = int(times[0]), int(stamps[0])
            ahead = np.zeros(len(stamps), np.bool_)
            if self.unit_ns is not None:
                most = (times - self.first[0]) * (1 + RATE) + AHEAD_NS
                ahead = (stamps - self.first[1]) * self.unit_ns > most
            if ahead.all():
                self._begin()
                continue
            top = np.maximum(np.maximum.accumulate(np.where(ahead, 0, stamps)), self.top)
            fallen = np.flatnonzero(~ahead & (stamps < top // 2) & (top - stamps > least))
            if not len(fallen):
                out = np.zeros(len(stamp), np.bool_)
                out[start:] = ~ahead
                return out
            start += int(fallen[0])
            self._begin()

    def _begin(self) -> None:
        self.epoch, self.first, self.top, self.zero_max_ns = self.epoch + 1, None, 0, None

    def _fitted(self, time_ns: I64, stamp: I64) -> float | None:
        assert self.first is not None
        last = int(np.argmax(stamp))
        span, ticks = int(time_ns[last]) - self.first[0], int(stamp[last]) - self.first[1]
        if span < BASELINE_NS or ticks < RESET:
            return None
        unit = span / ticks
        late = (time_ns - time_ns[last]) - unit * (stamp - stamp[last])  # on the way, against the last one
        doubt = (float(np.ptp(late)) + unit) / span + RATE
        if doubt > DOUBT_MAX:
            return None
        fitting = [t for t in TICKS_NS if abs(unit / t - 1) <= doubt and self.top * t < READING_MAX]
        return fitting[0] if len(fitting) == 1 else None

    def fit_latency(self, stay: I64, latency: I64) -> None:
        """Take the tick of latencies from hops that have both stamps, too: their stay in ticks of stamps.

        That of stamps wherever it fits, else the only one that does.
        """
        if self.latency_ns is not None or self.unit_ns is None:
            return
        use = (stay > 0) & (latency > 0)
        if not use.any():
            return
        # Sums, because a latency of few ticks is coarse. What latencies leave out makes the ratio too great.
        unit = float(stay[use].sum()) * self.unit_ns / float(latency[use].sum())
        fitting = [tick for tick in TICKS_NS if 0.8 <= unit / tick <= 2.0]
        if self.unit_ns in fitting:
            self.latency_ns = self.unit_ns
        elif len(fitting) == 1:
            self.latency_ns = fitting[0]

    def dump(self) -> Any:
        """As JSON."""
        return [self.epoch, self.first, self.top, self.unit_ns, self.configured, self.latency_ns,
                self.latency_configured, self.zero_max_ns, self.last_seen_ns]  # fmt: skip

    @staticmethod
    def load(meta: Any) -> "Tick":
        """From `dump`."""
        epoch, first, *rest = meta
        return Tick(epoch, None if first is None else (first[0], first[1]), *rest)


def in_ns(ticks: I64, unit_ns: float) -> I64:
    """Ticks as nanoseconds, exactly where a tick is a whole number of them."""
    if unit_ns.is_integer():
        out: I64 = ticks * int(unit_ns)
        return out
    near: I64 = np.rint(ticks * unit_ns).astype(np.int64)
    return near
