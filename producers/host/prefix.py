"""What stands before a message: when, on which host, by which daemon, for which configuration.

    ptp4l[5192.617]: [ptp4l.0.config:6] message        -m: seconds since boot, tag with level
    Sep 03 10:53:47 host ptp4l[307]: [5192.617] message     syslog and journal: pid, then seconds since boot
    2026-09-03T10:53:47.123456+02:00 host ptp4l[307]: …     the same with a whole date
    [ 5192.617] host ptp4l[307]: message               journal, short-monotonic
    T-BC[1757601646]:[ts2phc.1.config] message         OpenShift's daemon: Unix seconds
    I0911 14:41:35.005742  871479 file.go:266] message      klog: UTC without a year

A number in brackets is a pid after syslog's prefix; else seconds since boot if it has a fraction, or Unix
seconds if the tag follows without a space or it is too great for an uptime.
"""

import calendar
import re
from typing import NamedTuple

from producers.host.reading import BOOT, NS, SYSLOG, SYSTEM, Stamp


class Prefix(NamedTuple):
    """A line taken apart; None for what it does not say."""

    stamp: Stamp | None
    host: str | None
    daemon: str
    tag: str | None
    body: str


class Klog(NamedTuple):
    """A klog line; `stamp` is None while the year is not known."""

    severity: str
    stamp: Stamp | None
    file: str
    body: str


UPTIME_S_MAX = 1_000_000_000  # 31 years
UNIX_S_MAX = 7_258_118_400  # the year 2200: anything beyond is a damaged number
_MONTHS = {name: month for month, name in enumerate(calendar.month_abbr) if name}
_SYSLOG = re.compile(
    r"(?:<\d{1,3}>)?([A-Z][a-z]{2}) {1,2}(\d{1,2}) (\d\d):(\d\d):(\d\d)(?:\.(\d{1,9}))? ([\w.:-]+) (?=\S)",
    re.A,
)
_ISO = re.compile(
    r"(?:<\d{1,3}>(?:1 )?)?(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)(?:[.,](\d{1,9}))?"
    r"(Z|[+-]\d\d:?\d\d)? (?:std(?:out|err) [FP] |([\w.:-]+) )",
    re.A,
)
_JOURNAL_BOOT = re.compile(r"\[ *(\d+)\.(\d{1,9})\] ([\w.:-]+) (?=\S)", re.A)
_PROGRAM = re.compile(
    r"([A-Za-z][\w-]{1,30})(?:\[(\d{1,12})(?:\.(\d{1,9}))?\])?"  # name and bracket
    r"(?: \[([^\[\]]{1,100})\])?(:)?( ?)"  # a tag before the colon, as old OpenShift has it
    r"(?:\[(\d{1,9})\.(\d{1,9})\] )?"  # seconds since boot behind syslog's pid
    r"(?:\[([^\[\]]{1,100})\]:? ?)?(.*)",  # tag, message
    re.A | re.S,
)
_LEVEL = re.compile(r":(?:\d|\{level\})\Z", re.A)
_KLOG = re.compile(
    r"([IWEF])(\d\d)(\d\d) (\d\d):(\d\d):(\d\d)\.(\d{6}) +\d+ ([\w.+-]+\.(?:go|cc|c|cpp)):\d+\] ?(.*)",
    re.A | re.S,
)
_PROGRAMS = frozenset(
    (
        "ptp4l", "phc2sys", "ts2phc", "synce4l", "timemaster", "phc_ctl", "pmc", "nsm", "chronyd", "chronyc",
        "T-BC", "GM", "gnss", "dpll",
    )
)  # fmt: skip


def fraction_ns(digits: str | None) -> tuple[int, int]:
    """Digits behind the point as (ns, quantum in ns)."""
    if not digits:
        return 0, NS
    return int(digits.ljust(9, "0")), 10 ** (9 - len(digits))


def utc_ns(year: int, month: int, day: int, hour: int, minute: int, second: int) -> int | None:
    """A UTC date and time as Unix ns; second 60 is the first one of the next minute. None if there is no
    such."""
    if not (1 <= month <= 12 and 1 <= day <= calendar.monthrange(year, month)[1]) or not 1970 <= year < 2262:
        return None
    if hour > 23 or minute > 59 or second > 60:
        return None
    return (calendar.timegm((year, month, day, hour, minute, 0)) + second) * NS


def klog(line: str, near_ns: int | None) -> Klog | None:
    """A klog line, or None. `near_ns` (Unix) is a time from which the year is taken: the date nearest to
    it."""
    match = _KLOG.match(line)
    if match is None:
        return None
    severity, month, day, hour, minute, second, micro, file, body = match.groups()
    stamp = None
    if near_ns is not None:
        year_near = 1970 + int(near_ns / NS / 31_556_952)
        times = [
            utc_ns(year, int(month), int(day), int(hour), int(minute), int(second))
            for year in (year_near - 1, year_near, year_near + 1)
        ]
        known = [time for time in times if time is not None]
        if known:
            best = min(known, key=lambda time: abs(time - near_ns))
            stamp = Stamp(SYSTEM, best + int(micro) * 1000, 1000)
    return Klog(severity, stamp, file, body)


def clean(line: str) -> str:
    """The line without its end, and without `^C`, control characters and a byte order mark glued to its front."""
    line = line.rstrip().removeprefix("\ufeff")
    while line[:2] == "^C" or (line[:1] < " " and line[:1] not in ("", "\t")):
        line = line[2:] if line[:2] == "^C" else line[1:]
    return line


def parse(line: str) -> Prefix | None:
    """The prefix of a daemon's line, or None where there is none that we know. `line` is cleaned."""
    host, outer, at = None, None, 0
    if (match := _SYSLOG.match(line)) is not None and match[1] in _MONTHS:
        host, at = match[7], match.end()
        # No year and no zone: good for order within the file only, so the year is a leap year like any other.
        ns = utc_ns(1972, _MONTHS[match[1]], *(int(match[n]) for n in (2, 3, 4, 5)))
        part, quantum = fraction_ns(match[6])
        outer = None if ns is None else Stamp(SYSLOG, ns + part, quantum)
    elif (match := _ISO.match(line)) is not None:
        host, at = match[9], match.end()
        outer = _iso_stamp(match)
    elif (match := _JOURNAL_BOOT.match(line)) is not None:
        host, at = match[3], match.end()
        part, quantum = fraction_ns(match[2])
        outer = Stamp(BOOT, int(match[1]) * NS + part, quantum)
    match = _PROGRAM.match(line, at)
    if match is None or (match[1] not in _PROGRAMS):
        return None
    daemon, number, decimals, tag_before, colon, gap, boot_s, boot_part, tag, body = match.groups()
    if number is None and colon is None:
        return None
    if number is not None and int(number) >= (UNIX_S_MAX if decimals is None else UPTIME_S_MAX):
        return None
    stamp = outer
    if boot_s is not None:
        part, quantum = fraction_ns(boot_part)
        stamp = Stamp(BOOT, int(boot_s) * NS + part, quantum)
    elif number is not None and decimals is not None:
        part, quantum = fraction_ns(decimals)
        stamp = Stamp(BOOT, int(number) * NS + part, quantum)
    elif number is not None and at == 0:
        unix = int(number) >= UPTIME_S_MAX or (colon is not None and gap == "" and tag is not None)
        stamp = Stamp(SYSTEM if unix else BOOT, int(number) * NS, NS)
    tag = tag_before if tag is None else tag
    if tag is not None:
        tag = _LEVEL.sub("", tag)
    return Prefix(stamp, host, daemon, tag or None, body.strip())


def _iso_stamp(match: "re.Match[str]") -> Stamp | None:
    year, month, day, hour, minute, second = (int(match[n]) for n in range(1, 7))
    ns = utc_ns(year, month, day, hour, minute, second)
    if ns is None:
        return None
    part, quantum = fraction_ns(match[7])
    zone = match[8]
    if zone is None:
        return Stamp(SYSLOG, ns + part, quantum)
    if zone != "Z":
        minutes = int(zone[1:3]) * 60 + int(zone[-2:])
        ns -= (minutes if zone[0] == "+" else -minutes) * 60 * NS
    return Stamp(SYSTEM, ns + part, quantum)
