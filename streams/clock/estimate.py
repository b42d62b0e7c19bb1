"""What samples of a clock say of it: last offset, status, and a bound with its formula. Arrays in, no I/O.

A first, plain model, all of it `claimed`; the bounds that verdicts may rest on need more than this.

Which rows count. SERVO, TRACKING, MEASUREMENT and STATISTICS rows with an offset are samples; STATE and
EVENT rows never are, even with one. A clock that is seen in several ways is judged by the first of these
kinds that it has, since they are views of the same error: a servo's own samples, chrony's combined
estimate, single exchanges, the regression over them. Offsets are clock − parent, ns.

Bound at the last sample:

- servo (ptp4l, phc2sys, ts2phc): `max|offset| over the window + read error`. The window is the last WINDOW
  samples since the clock's status last changed or it was stepped: nothing before a step is averaged in. The
  read error is what a two-way measurement cannot see, the difference of its two directions: at most the
  mean one-way delay that ptp4l prints (`path delay`), and at most half of the round trip that phc2sys
  prints (`delay`). ts2phc compares with pulses, whose cable and capture delay it does not know: its bound
  is that of the offset alone.
- OpenShift's reports (dpll, T-BC, gnss, nmea): none; they round, and say nothing of how they measured.
- summary (rms and max over an interval, without signs): `max + read error` of the last one; the offset is
  unknown.
- pmc: `|offset| + mean path delay`, where the reply holds both.
- chrony: `|offset| + error`, where error is the root distance, root dispersion + root delay / 2, as
  ClockBound has it (REFERENCES §3), without its growth: the bound is that of the sample's moment.
- the regression alone (STATISTICS): none, since it holds no delay."""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from schemas.columns import NULL_I64, ClockKind, Status
from schemas.columns import ClockKindOfRow as Kind

I64 = NDArray[np.int64]
WINDOW: Final = 100  # samples, as fbclock
NO_STATUS: Final = 255
_PREFERENCE: Final = (Kind.SERVO, Kind.TRACKING, Kind.MEASUREMENT, Kind.STATISTICS)
_TEXTS: Final = {
    "holdover": Status.HOLDOVER,
    "freerun": Status.FREERUN,
    "locked": Status.LOCKED,
    "not synchronised": Status.FREERUN,
    "no grandmaster": Status.FREERUN,
    "no master": Status.FREERUN,
}
_SERVO: Final = (Status.FREERUN, Status.STEPPED, Status.LOCKED, Status.LOCKED)


@dataclass(frozen=True)
class Samples:
    """The rows of one clock in time order, all of shape (rows,); NULL_I64 for unknown, servo 255."""

    kind: I64
    offset_ns: I64
    delay_ns: I64
    error_ns: I64
    spread_ns: I64
    status: NDArray[np.uint8]  # by status_of; NO_STATUS where a row says nothing of it
    read: NDArray[np.uint8]  # how the offset was read: by `read_of`


@dataclass(frozen=True)
class Estimate:
    """A clock at its last sample. `at` is that sample's row; None is unknown."""

    samples: int
    at: int | None
    offset_ns: int | None
    bound_ns: int | None
    status: Status


ONE_WAY, ROUND_TRIP, REPORT = (
    0,
    1,
    2,
)  # delay_ns is a mean one-way delay; a round trip; no measurement of its own
_READ: Final = {
    "ptp4l": ONE_WAY,
    "pmc": ONE_WAY,
    "phc2sys": ROUND_TRIP,
    "ts2phc": ROUND_TRIP,
    "chrony": ROUND_TRIP,
}


def read_of(form: str) -> int:
    """How a form of line knows the offset that it gives: ONE_WAY, ROUND_TRIP or REPORT."""
    daemon, _, rest = form.partition(".")
    if form.startswith("chronyc"):
        return ROUND_TRIP
    return REPORT if rest in ("nmea", "status") else _READ.get(daemon, REPORT)


def status_of(kind: int, servo: int | None, text: str | None) -> Status | None:
    """The status of a clock as one row says it; None if it says nothing of it."""
    if text is not None:
        for word, status in _TEXTS.items():
            if text.startswith(word):
                return status
        if text.endswith("at its limit"):
            return Status.UNKNOWN
        if kind == Kind.STATE and text.startswith("port ") and " to " in text:
            return _port_status(text)
    if kind == Kind.TRACKING:
        return Status.LOCKED
    if servo is not None and servo < len(_SERVO) and kind in (Kind.SERVO, Kind.STATE):
        return _SERVO[servo]
    return None


def _port_status(text: str) -> Status | None:
    """A port that becomes a slave is followed, one that leaves that state is not; other ports do not
    matter."""
    before, _, after = text.partition(" to ")
    if after.split(" ")[0] == "SLAVE":
        return Status.LOCKED
    return Status.FREERUN if before.endswith(" SLAVE") else None


def kind_of(name: str, forms: set[str]) -> ClockKind:
    """What disciplines a clock, from its name (without host) and the forms of the lines about it."""
    if any(form.startswith("chrony") for form in forms) and not any(
        form.startswith("phc2sys") for form in forms
    ):
        return ClockKind.NTP
    if name.startswith("ptp:"):
        return ClockKind.PTP_HW if "ptp4l.phc" in forms else ClockKind.PTP_SW
    if name == "CLOCK_REALTIME":
        return ClockKind.PTP_SW  # it follows PTP, but is read by software
    measured = any(
        form.startswith(("ts2phc", "phc2sys", "dpll", "t-bc", "gm", "gnss", "synce")) for form in forms
    )
    if measured:
        return ClockKind.PTP_HW
    return ClockKind.PTP_SW if any(form.startswith(("ptp4l", "pmc")) for form in forms) else ClockKind.FREE


def is_sample(kind: I64, offset_ns: I64) -> NDArray[np.bool_]:
    """Which rows are samples of the clock's offset."""
    out: NDArray[np.bool_] = np.isin(kind, _PREFERENCE) & (offset_ns != NULL_I64)
    return out


def chosen(rows: Samples) -> I64:
    """Rows of the kind of samples that the clock is judged by, in time order."""
    samples = is_sample(rows.kind, rows.offset_ns)
    for kind in _PREFERENCE:
        found = np.flatnonzero(samples & (rows.kind == kind))
        if len(found):
            return found
    return np.empty(0, np.int64)


def bounds(rows: Samples, used: I64) -> I64:
    """The bound at each of the rows `used` (as `chosen` gives them); NULL_I64 where there is none."""
    out = np.full(len(used), NULL_I64, np.int64)
    if not len(used):
        return out
    kind = rows.kind[used[0]]
    size = np.abs(rows.offset_ns[used])
    if kind == Kind.SERVO:
        measured = rows.read[used] != REPORT
        whole = _window_max(size, _segments(rows.status, used)) + _read_error(rows, used)
        return np.where(measured, whole, NULL_I64)
    if kind in (Kind.TRACKING, Kind.MEASUREMENT):
        error, delay = rows.error_ns[used], rows.delay_ns[used]
        known = error != NULL_I64
        out[known] = size[known] + error[known]
        one_way = ~known & (rows.read[used] == ONE_WAY) & (delay != NULL_I64)
        out[one_way] = size[one_way] + np.abs(delay[one_way])
    return out


def estimate(rows: Samples) -> Estimate:
    """The clock at its last sample, and its status after its last row."""
    told = np.flatnonzero(rows.status != NO_STATUS)
    status = Status(int(rows.status[told[-1]])) if len(told) else Status.UNKNOWN
    count = int(is_sample(rows.kind, rows.offset_ns).sum())
    used = chosen(rows)
    if len(used):
        # The last bound needs no more than the last window.
        tail = used[-WINDOW:]
        bound = int(bounds(rows, tail)[-1])
        at = int(used[-1])
        return Estimate(count, at, int(rows.offset_ns[at]), None if bound == NULL_I64 else bound, status)
    summaries = np.flatnonzero((rows.kind == Kind.SUMMARY) & (rows.spread_ns != NULL_I64))
    if len(summaries):
        last = summaries[-1:]
        bound = int(rows.spread_ns[last[0]] + _read_error(rows, last)[0])
        return Estimate(count, int(last[0]), None, bound, status)
    return Estimate(count, None, None, None, status)


def _read_error(rows: Samples, used: I64) -> I64:
    delay = np.where(rows.delay_ns[used] == NULL_I64, 0, np.abs(rows.delay_ns[used]))
    out: I64 = np.where(rows.read[used] == ONE_WAY, delay, (delay + 1) // 2)
    return out


def _segments(status: NDArray[np.uint8], used: I64) -> I64:
    """A number for each sample that changes with the clock's status, and after every step."""
    told = np.where(status == NO_STATUS, 0, np.arange(1, len(status) + 1))
    latest = (
        np.maximum.accumulate(told) - 1
    )  # the row that told the status that holds at each row; -1 for none
    held = np.where(latest >= 0, status[latest], NO_STATUS)
    change = np.zeros(len(status), bool)
    change[1:] = (held[1:] != held[:-1]) | ((held[:-1] == Status.STEPPED) & (status[1:] == Status.STEPPED))
    out: I64 = np.cumsum(change)[used]
    return out


def _window_max(values: I64, segment: I64) -> I64:
    """Greatest value of the last WINDOW ones in the same segment, at each place: by doubling, O(n log
    WINDOW)."""
    out = values.copy()
    reach = 1
    while reach < WINDOW:
        step = min(reach, WINDOW - reach)
        same = segment[step:] == segment[:-step] if step < len(out) else np.empty(0, bool)
        if not len(same):
            break
        shifted = np.where(same, out[:-step], out[step:])
        out[step:] = np.maximum(out[step:], shifted)
        reach += step
    return out
