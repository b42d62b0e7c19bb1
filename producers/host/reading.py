"""What one line of a clock log says, in one form for every daemon.

Signs and units are the same for all: `offset_ns` = clock − parent (positive: the clock is ahead), times in
ns, rates in ppb (positive: left alone, the clock would gain). None is unknown, never 0. A clock has the
name that the line gives it; the reader puts the host before it. A value outside its plausible range stays
in the text of a STATE row, and an offset in a STATE or EVENT row is a report, not a sample: nothing
averages it."""

from typing import NamedTuple

from schemas.columns import ClockKindOfRow as Kind

__all__ = [
    "BOOT",
    "FREQ_PPB_MAX",
    "INT63",
    "LINE",
    "NS",
    "OFFSET_UNKNOWN",
    "SYSLOG",
    "SYSTEM",
    "Kind",
    "Reading",
    "Stamp",
]

NS = 1_000_000_000
INT63 = 2**63 - 1
FREQ_PPB_MAX = 100_000_000  # a servo that prints this or more stands at its limit
OFFSET_UNKNOWN = 99_999_999_999  # what OpenShift's daemon prints for an offset that it does not have

# Clocks that stamp lines, by the name that the kernel gives them.
BOOT = "CLOCK_MONOTONIC"
SYSTEM = "CLOCK_REALTIME"
SYSLOG = "syslog"  # local time without zone or year: order only
LINE = "line"  # no stamp at all: the number of the line


class Stamp(NamedTuple):
    """When a line was written: `ns` on `clock`, in steps of `quantum_ns`."""

    clock: str
    ns: int
    quantum_ns: int


class Reading(NamedTuple):
    """One row of the clock family, as its line says it."""

    kind: Kind
    form: str  # which line of the grammar it is, such as "ptp4l.servo"
    clock: str | None  # None: about a daemon, not about one clock
    parent: str | None = None
    parent_here: bool = True  # the parent is a clock of the same host, else a name valid everywhere
    offset_ns: int | None = None
    delay_ns: int | None = None
    freq_ppb: float | None = None
    error_ns: int | None = None
    spread_ns: int | None = None
    servo: int | None = None
    text: str | None = None
    values: tuple[tuple[str, float], ...] = ()
