"""chrony's three logs, and what `chronyc` prints for a program (-c). A line in, a stamped reading out.

The clock is the host's CLOCK_REALTIME, its parent the source that the line names. Signs differ by log and
are made equal here (clock − parent): in measurements.log positive means that the local clock is slow, in
tracking.log and statistics.log that it is fast; chronyc's System time is positive if slow, its sources and
sourcestats if fast.

`error_ns` is the root distance, dispersion + delay / 2, of the source as measured: the greatest error of the
offset that chrony itself claims. A measurement that failed one of chrony's tests is an EVENT: chrony did not
use it, so nobody should.
"""

import re

from producers.host.prefix import utc_ns
from producers.host.reading import INT63, NS, SYSTEM, Kind, Reading, Stamp

_F = r"([+-]?\d{1,10}(?:\.\d{1,12})?(?:e[+-]?\d{1,3})?)"
_HEAD = r"(\d{4})-(\d\d)-(\d\d) (\d\d):(\d\d):(\d\d) (\S+) +"
_MEASUREMENT = re.compile(
    rf"{_HEAD}([N+?-]) +(\d+) ([01]{{3}}) ([01]{{3}}) ([01]{{4}}) +(-?\d+) +(-?\d+) +{_F}"
    rf" +{_F} +{_F} +{_F} +{_F} +{_F} +([0-9A-F]{{8}}) (\d[A-Z]?)(?: ([DKH]) ([DKH]))?",
    re.A,
)
_TRACKING = re.compile(
    rf"{_HEAD}(\d+) +{_F} +{_F} +{_F} ([N+?-]) +(\d+) +{_F}(?: +{_F} +{_F} +{_F} +{_F})?", re.A
)
_STATISTICS = re.compile(rf"{_HEAD}{_F} +{_F} +{_F} +{_F} +{_F} +{_F} +(\d+) +(\d+) +(\d+)(?: +{_F})?", re.A)
_DATE = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d ", re.A)
_BANNER = re.compile(r"=+|   Date \(UTC\) Time .*", re.A)
_LEAPS = {"N": "normal", "+": "leap second to insert", "-": "leap second to delete", "?": "not synchronised"}
_CSV_TRACKING = re.compile(
    rf"([0-9A-F]{{8}}),([^,]*),(\d+),{_F},{_F},{_F},{_F},{_F},{_F},{_F},{_F},{_F},{_F},"
    r"(Normal|Insert second|Delete second|Not synchronised)",
    re.A,
)
_CSV_SOURCE = re.compile(rf"([\^=#]),([*+?x~-]),([^,]+),(\d+),(-?\d+),(\d+),(\d+),{_F},{_F},{_F}", re.A)
_CSV_STATS = re.compile(rf"([^,\s]+),(\d+),(\d+),(\d+),{_F},{_F},{_F},{_F}", re.A)


def to_ns(seconds: str | float) -> int:
    """Seconds as printed, in ns. Raises OverflowError beyond 64 bits."""
    value = float(seconds) * 1e9
    if not abs(value) < INT63:
        raise OverflowError(seconds)
    return round(value)


def is_banner(line: str) -> bool:
    """Whether a line only heads the columns."""
    return _BANNER.fullmatch(line) is not None


def log_line(line: str) -> tuple[Stamp, Reading] | None:
    """A line of measurements.log, tracking.log or statistics.log; None if it is none of them."""
    if _DATE.match(line) is None:
        return None
    try:
        for expression, read in (
            (_MEASUREMENT, _measurement),
            (_TRACKING, _tracking),
            (_STATISTICS, _statistics),
        ):
            match = expression.fullmatch(line)
            if match is not None:
                ns = utc_ns(*(int(match[n]) for n in range(1, 7)))
                return None if ns is None else (Stamp(SYSTEM, ns, NS), read(match))
    except OverflowError:
        return None
    return None


def _measurement(match: "re.Match[str]") -> Reading:
    source, leap, stratum, *tests = (match[n] for n in range(7, 13))
    offset, peer_delay, peer_dispersion, root_delay, root_dispersion = (
        to_ns(match[n]) for n in range(16, 21)
    )
    passed = "0" not in "".join(tests)
    return Reading(
        Kind.MEASUREMENT if passed else Kind.EVENT, "chrony.measurement", SYSTEM, source, False,
        offset_ns=-offset, delay_ns=peer_delay,
        error_ns=peer_dispersion + root_dispersion + (peer_delay + root_delay + 1) // 2,
        spread_ns=peer_dispersion,
        text=None if passed and leap == "N" else f"tests {' '.join(tests)} leap {_LEAPS[leap]}",
        values=(
            ("stratum", float(stratum)),
            ("root_delay_ns", root_delay),
            ("root_dispersion_ns", root_dispersion),
        ),
    )  # fmt: skip


def _tracking(match: "re.Match[str]") -> Reading:
    source, _, freq, skew, offset, leap, _, deviation, left, delay, dispersion, worst = (
        match[n] for n in range(7, 19)
    )
    frequency, skew_ppb = float(freq) * 1e3, float(skew) * 1e3
    if leap == "?" or source == "0.0.0.0":
        return Reading(
            Kind.STATE, "chrony.tracking", SYSTEM, freq_ppb=frequency, text="not synchronised"
        )  # fmt: skip
    values: tuple[tuple[str, float], ...] = (("skew_ppb", skew_ppb),)
    error_ns = delay_ns = None
    if delay is not None:
        delay_ns = to_ns(delay)
        error_ns = to_ns(dispersion) + (delay_ns + 1) // 2
        # The correction still to be made is positive where the clock is slow, unlike the offset.
        values += (("correction_left_ns", to_ns(left)), ("error_max_ns", to_ns(worst)))
    return Reading(
        Kind.TRACKING, "chrony.tracking", SYSTEM, source, False, to_ns(offset), delay_ns, frequency, error_ns,
        to_ns(deviation), None, None if leap == "N" else _LEAPS[leap], values,
    )  # fmt: skip


def _statistics(match: "re.Match[str]") -> Reading:
    source, deviation, offset, _, drift, skew, _, samples, *_ = (match[n] for n in range(7, 18))
    return Reading(
        Kind.STATISTICS, "chrony.statistics", SYSTEM, source, False,
        offset_ns=to_ns(offset), spread_ns=to_ns(deviation),
        values=(
            ("drift_ppb", float(drift) * 1e9), ("skew_ppb", float(skew) * 1e9), ("samples", float(samples)),
        ),
    )  # fmt: skip


def csv_line(line: str) -> tuple[Stamp | None, Reading] | None:
    """A line of `chronyc -c tracking`, `sources` or `sourcestats`; None if it is none of them.

    Only tracking has a time: that of its last update. None where the others were asked is known.
    """
    try:
        if (match := _CSV_TRACKING.fullmatch(line)) is not None:
            name, reference = match[2] or match[1], float(match[4])
            delay_ns = to_ns(match[11])
            stamp = Stamp(SYSTEM, to_ns(int(reference)), NS) if 0 < reference < INT63 / NS else None
            return stamp, tracking_report(
                name,
                to_ns(match[5]),
                float(match[8]) * 1e3,
                delay_ns,
                to_ns(match[12]),
                match[14],
                float(match[10]),
            )
        if (match := _CSV_SOURCE.fullmatch(line)) is not None:
            ago = int(match[7])
            return None, source_report(
                match[1], match[2], match[3], int(match[6], 8), ago if ago < 2**32 - 1 else None,
                to_ns(match[8]), to_ns(match[10]),
            )  # fmt: skip
        if (match := _CSV_STATS.fullmatch(line)) is not None:
            return None, statistics_report(
                match[1], int(match[2]), float(match[5]), to_ns(match[7]), to_ns(match[8])
            )
    except (OverflowError, ValueError):
        return None
    return None


def tracking_report(
    source: str, slow_ns: int, fast_ppb: float, delay_ns: int, dispersion_ns: int, leap: str, skew_ppm: float
) -> Reading:
    """What `chronyc tracking` says; `slow_ns` is positive where the clock is behind NTP time."""
    if leap == "Not synchronised":
        return Reading(Kind.STATE, "chronyc.tracking", SYSTEM, freq_ppb=fast_ppb, text="not synchronised")
    return Reading(
        Kind.TRACKING, "chronyc.tracking", SYSTEM, source, False, -slow_ns, delay_ns, fast_ppb,
        dispersion_ns + (delay_ns + 1) // 2, None, None, None if leap == "Normal" else leap,
        (("skew_ppb", skew_ppm * 1e3),),
    )  # fmt: skip


def source_report(
    mode: str, state: str, source: str, reach: int, ago_s: int | None, fast_ns: int, error_ns: int
) -> Reading:
    """What `chronyc sources` says of one source. Never heard from, or not usable: a STATE without an
    offset."""
    text = f"{mode}{state}"
    if ago_s is None or reach == 0:
        return Reading(Kind.STATE, "chronyc.sources", SYSTEM, source, False, text=f"{text} unreachable")
    kind = Kind.MEASUREMENT if state in "*+-" else Kind.EVENT
    return Reading(
        kind, "chronyc.sources", SYSTEM, source, False, fast_ns, error_ns=error_ns, text=text,
        values=(("age_s", float(ago_s)),),
    )  # fmt: skip


def statistics_report(source: str, samples: int, fast_ppm: float, fast_ns: int, deviation_ns: int) -> Reading:
    """What `chronyc sourcestats` says of one source; with fewer than two samples nothing but that."""
    if samples < 2:
        return Reading(Kind.STATE, "chronyc.sourcestats", SYSTEM, source, False, text=f"{samples} samples")
    return Reading(
        Kind.STATISTICS, "chronyc.sourcestats", SYSTEM, source, False, fast_ns, spread_ns=deviation_ns,
        values=(("drift_ppb", fast_ppm * 1e3), ("samples", float(samples))),
    )  # fmt: skip


_DAEMON_EVENT = re.compile(
    r"(?:Selected source .*|Can't synchronise: .*|Source \S+ (?:.* )?(?:online|offline|replaced .*)"
    r"|System clock .*|Forward time jump detected!|Backward time jump detected!|Detected falseticker .*"
    r"|Could not .*|No suitable .*|Received KoD .*|Frequency of .*|Clock .*)",
    re.A,
)
_DAEMON_SETUP = re.compile(
    r"(?:chronyd version .*|Frequency -?\d.* read from .*|Initial frequency .*|Loaded .*|Using .*|Added .*"
    r"|Enabled .*|Disabled .*|chronyd exiting|Running with .*|Wrong permissions .*)",
    re.A,
)


def daemon_message(body: str) -> Reading | str | None:
    """What chronyd says in the system's log. Its numbers there carry no sign that could be relied on."""
    if _DAEMON_EVENT.fullmatch(body) is not None:
        return Reading(Kind.EVENT, "chronyd.event", SYSTEM, text=body)
    return "chronyd.setup" if _DAEMON_SETUP.fullmatch(body) is not None else None
