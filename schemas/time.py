"""Time as the system means it: int64 ns TAI, clocks with stated errors, and the map from a stamp to TAI.

A stamp belongs to a clock and an epoch. *Placement* (windows, watermarks, first guess of order) uses the
clock's nominal map to TAI; a *verdict* needs a bound between two clocks, which cancels what they share.
"""

import bisect
import re
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from schemas.columns import Assurance, ClockKind, Status, Timescale
from schemas.errors import Usage

I64 = NDArray[np.int64]
NS = 1_000_000_000
TAI = "TAI"  # name of the root clock

# Mapped times that the merge takes, 1896 to 2116: differences and sums of a few stay within int64. A producer keeps
# two days inside, for leap seconds, faults and maps, because one row outside costs its whole batch.
EARLIEST_NS, LATEST_NS = -(2**61), 2**62
STAMP_NS_MIN, STAMP_NS_MAX = EARLIEST_NS + 172_800 * NS, LATEST_NS - 172_800 * NS
OUTSIDE = "time outside the years 1896 to 2116"  # why a producer skips an event
BOUND_NS_MAX = 2**56  # greatest bound of a clock that the merge takes

# TAI - UTC from each of these UTC dates on (Unix seconds): the IERS's whole table. The last entry holds until
# a new leap second is announced; no later one is known for 2026.
LEAPS = (
    (63072000, 10), (78796800, 11), (94694400, 12), (126230400, 13), (157766400, 14), (189302400, 15),
    (220924800, 16), (252460800, 17), (283996800, 18), (315532800, 19), (362793600, 20), (394329600, 21),
    (425865600, 22), (489024000, 23), (567993600, 24), (631152000, 25), (662688000, 26), (709948800, 27),
    (741484800, 28), (773020800, 29), (820454400, 30), (867715200, 31), (915148800, 32), (1136073600, 33),
    (1230768000, 34), (1341100800, 35), (1435708800, 36), (1483228800, 37),
)  # fmt: skip
TAI_UTC_DEFAULT_S = 37
_STARTS = np.array([start * NS for start, _ in LEAPS], np.int64)
_OFFSETS = np.array([0, *(offset for _, offset in LEAPS)], np.int64)


def utc_to_tai(utc_ns: I64) -> I64:
    """Unix time (ns UTC) as ns TAI by the leap table; before 1972 nothing is added. Any shape."""
    return utc_ns + _OFFSETS[np.searchsorted(_STARTS, utc_ns, side="right")] * NS


def unix_to_tai(unix_ns: int) -> int:
    """One Unix time (ns UTC) as ns TAI; `utc_to_tai` without an array."""
    entry = bisect.bisect_right(LEAPS, unix_ns // NS, key=lambda leap: leap[0]) - 1
    return unix_ns + (LEAPS[entry][1] * NS if entry >= 0 else 0)


def append_to_tai(append_ms: int) -> int:
    """Broker append time (Unix ms) as ns TAI."""
    return unix_to_tai(append_ms * 1_000_000)


@dataclass(frozen=True)
class ClockState:
    """A clock as somebody states it: a daemon's claim in a batch header, or what was made of samples.

    None is unknown, never 0. `ref_ns` on this clock and `ref_parent_ns` on the parent's are one moment;
    `rate_ppb` is the parent's rate over this clock's less one. `bound_ns` is the greatest error against the
    parent at `as_of_ns` and grows by `growth_ppb` away from it. A clock on timescale tai or utc without a
    reference pair is read as it stands; its parent is then TAI.
    """

    clock_id: str
    epoch: int = 0
    parent: str | None = None
    kind: ClockKind = ClockKind.FREE
    status: Status = Status.UNKNOWN
    timescale: Timescale = Timescale.ARBITRARY
    utc_offset_s: int | None = None
    utc_offset_valid: bool = False
    ref_ns: int | None = None
    ref_parent_ns: int | None = None
    rate_ppb: float | None = None
    bound_ns: int | None = None
    as_of_ns: int | None = None
    growth_ppb: float | None = None
    quantum_ns: int = 1
    assurance: Assurance = Assurance.CLAIMED
    epsilon: float | None = None
    provenance: str | None = None

    def bound_at(self, t_ns: int) -> int | None:
        """Greatest error against the parent at a reading of this clock; None if no bound is known."""
        if self.bound_ns is None:
            return None
        if not self.growth_ppb or self.as_of_ns is None:
            return self.bound_ns
        return self.bound_ns + int(np.ceil(self.growth_ppb * abs(t_ns - self.as_of_ns) * 1e-9))


_UNITS = {"ns": 1, "us": 1_000, "µs": 1_000, "ms": 1_000_000, "s": NS, "m": 60 * NS, "h": 3600 * NS}
_DURATION = re.compile(r"([+-]?\d+(?:\.\d+)?)\s*(ns|us|µs|ms|s|m|h)")
DURATION_NS_MAX = (
    500_000 * 3600 * NS
)  # 57 years: added to a stamp of today it stays a time that can be placed
CLAIM_NS_MAX = 20_000 * 3600 * NS  # longest bound that a person may claim, just below BOUND_NS_MAX


def stamp_fits(ns: int) -> bool:
    """Whether a stamp can be placed in time; one that cannot is skipped by its producer (see OUTSIDE)."""
    return STAMP_NS_MIN <= ns <= STAMP_NS_MAX


def parse_duration_ns(
    text: str, option: str = "", least_ns: int = -DURATION_NS_MAX, most_ns: int = DURATION_NS_MAX
) -> int:
    """A length of time such as `50us`, `-1.5ms` or `2 s`, in ns. `option` names what it was given for.

    Raises Usage if it is none, or not from `least_ns` to `most_ns` (both included).
    """
    said = f"{option} {text}" if option else repr(text)
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        raise Usage(f"{said} is no length of time; write a number and ns, us, ms, s, m or h, such as 50us")
    length = float(match[1]) * _UNITS[match[2]]
    if not least_ns <= length <= most_ns:
        raise Usage(f"{said} is out of range: write {_written(least_ns)} to {_written(most_ns)}")
    return round(length)


def _written(ns: int) -> str:
    """A length of time as `parse_duration_ns` reads it, in the greatest unit that divides it."""
    unit = next(unit for unit in ("h", "m", "s", "ms", "us", "ns") if ns % _UNITS[unit] == 0)
    return f"{ns // _UNITS[unit]}{unit}" if ns else "0s"


def format_ns(ns: int | float) -> str:
    """A length of time for people: three significant digits and the unit that fits."""
    size = abs(ns)
    for unit, scale in (("s", NS), ("ms", 1_000_000), ("µs", 1_000)):
        if size >= scale:
            return f"{ns / scale:.3g} {unit}"
    return f"{ns:.3g} ns"
