"""Replies of several lines: pmc's, and chronyc's reports for people.

A block takes lines as long as they belong to it and gives its reading when it is closed by the first that
does not. Replies carry no stamp: the reader gives them the line's place, or the stamp of the line before.
"""

import calendar
import re
from typing import Protocol

from producers.host import chrony
from producers.host.prefix import utc_ns
from producers.host.reading import INT63, NS, SYSTEM, Kind, Reading, Stamp

_IDENTITY = r"[0-9a-f]{6}\.[0-9a-f]{4}\.[0-9a-f]{6}"
_PMC_HEAD = re.compile(rf"\t({_IDENTITY})-(\d+) seq (\d+) RESPONSE MANAGEMENT ([A-Z0-9_]+) *", re.A)
_PMC_PAIR = re.compile(r"\t\t([A-Za-z][\w.]*) +(\S.*)|\t\t([A-Za-z][\w.]*) *", re.A)
_PMC_SENT = re.compile(r"sending: (?:GET|SET|CMD) [A-Z0-9_]+(?: .*)?", re.A)
_PAIR = re.compile(r"([A-Z][A-Za-z/() ]*?) *: (.*)", re.A)
_FIRST = ("Reference ID ", "Remote address ")
_AMOUNT = re.compile(r"([+-]?\d+\.\d+) (?:seconds|ppm)(?: (slow|fast)(?: of NTP time)?)?", re.A)
_SIZE = r"([+-]?\d{1,10})(ns|us|ms|s)"
_SOURCE = re.compile(
    r"([\^=#])([*+?x~-]) (\S+) +(\d+) +(-?\d+) +([0-7]+) +(-|\d+[mhdy]?)"
    rf" +{_SIZE}(?:\[ *{_SIZE}\])? \+/- +{_SIZE}",
    re.A,
)
_STATS = re.compile(
    rf"(\S+) +(\d+) +(\d+) +(\d+[mhdy]?) +([+-]?\d+\.\d+) +(\d+\.\d+) +{_SIZE} +{_SIZE}", re.A
)
_HEADINGS = re.compile(
    r"MS Name/IP address .*|Name/IP Address .*|[ |/.]*(?:\.-- |\.- | / |\| |\\ ).*[|\\.'].*|\|\| .*", re.A
)
_UNITS = {"ns": 1, "us": 1_000, "ms": 1_000_000, "s": NS}
_AGES = {"m": 60, "h": 3600, "d": 86_400, "y": 31_557_600}
_MONTHS = {name: month for month, name in enumerate(calendar.month_abbr) if name}


class Block(Protocol):
    """Lines that belong together."""

    form: str

    def take(self, line: str) -> bool: ...
    def close(self) -> tuple[Stamp | None, Reading] | None: ...


def opens(line: str) -> "Block | None":
    """The block that a line begins, or None."""
    if (match := _PMC_HEAD.fullmatch(line)) is not None:
        return PmcReply(match[1], int(match[2]), match[4])
    if line.startswith(_FIRST) and (pair := _PAIR.fullmatch(line)) is not None:
        return ChronycReport(pair[1], pair[2])
    return None


def is_request(line: str) -> bool:
    """Whether a line is pmc's note of what it sends."""
    return _PMC_SENT.fullmatch(line) is not None


def is_heading(line: str) -> bool:
    """Whether a line belongs to the headings of chronyc's tables."""
    return _HEADINGS.fullmatch(line) is not None


class PmcReply:
    """One management reply. Keys that we do not use are kept out; an unknown reply says nothing."""

    def __init__(self, identity: str, port: int, name: str) -> None:
        self.form = f"pmc.{name}"
        self._identity, self._port, self._name = identity, port, name
        self._pairs: dict[str, str] = {}

    def take(self, line: str) -> bool:
        match = _PMC_PAIR.fullmatch(line)
        if match is None or len(self._pairs) >= 200:
            return False
        self._pairs.setdefault(match[1] or match[3], (match[2] or "").strip())
        return True

    def _number(self, key: str) -> int | None:
        try:
            value = round(float(self._pairs[key])) if "." in self._pairs[key] else int(self._pairs[key], 0)
        except (KeyError, ValueError, OverflowError):
            return None
        return value if abs(value) <= INT63 else None

    def close(self) -> tuple[Stamp | None, Reading] | None:
        pairs = self._pairs
        if self._name == "TIME_STATUS_NP":
            master = pairs.get("gmIdentity")
            offset_ns = self._number("master_offset")
            if pairs.get("gmPresent") != "true" or offset_ns is None or master == self._identity:
                return None, self._state("no grandmaster")
            return None, Reading(
                Kind.MEASUREMENT, self.form, self._identity, master, False, offset_ns=offset_ns
            )
        if self._name == "CURRENT_DATA_SET":
            offset_ns, steps = self._number("offsetFromMaster"), self._number("stepsRemoved")
            if offset_ns is None or not steps:
                return None, self._state("no master")
            delay_ns = self._number("meanPathDelay")
            return None, Reading(
                Kind.MEASUREMENT, self.form, self._identity, offset_ns=offset_ns, delay_ns=delay_ns
            )
        if self._name == "PARENT_DATA_SET" and "grandmasterIdentity" in pairs:
            text = (
                f"clock class {pairs.get('gm.ClockClass', '?')} accuracy {pairs.get('gm.ClockAccuracy', '?')}"
            )
            return None, Reading(
                Kind.STATE, self.form, self._identity, pairs["grandmasterIdentity"], False, text=text
            )
        if self._name in ("TIME_PROPERTIES_DATA_SET", "GRANDMASTER_SETTINGS_NP"):
            keys = (
                "currentUtcOffset", "currentUtcOffsetValid", "ptpTimescale", "timeTraceable", "leap61",
                "leap59", "timeSource",
            )  # fmt: skip
            return None, self._state(" ".join(f"{key}={pairs[key]}" for key in keys if key in pairs))
        if self._name == "PORT_DATA_SET" and "portState" in pairs:
            return None, self._state(f"port {self._port}: {pairs['portState']}")
        return None

    def _state(self, text: str) -> Reading:
        return Reading(Kind.STATE, self.form, self._identity, text=text)


class ChronycReport:
    """`chronyc tracking` or `ntpdata`: a column of names and values."""

    def __init__(self, key: str, value: str) -> None:
        self.form = "chronyc.tracking" if key == "Reference ID" else "chronyc.ntpdata"
        self._first = key
        self._pairs = {key: value.strip()}

    def take(self, line: str) -> bool:
        match = _PAIR.fullmatch(line)
        if match is None or match[1] == self._first or len(self._pairs) >= 100:
            return False
        self._pairs.setdefault(match[1], match[2].strip())
        return True

    def _amount(self, key: str) -> tuple[float, str | None] | None:
        match = _AMOUNT.fullmatch(self._pairs.get(key, ""))
        return None if match is None else (float(match[1]), match[2])

    def close(self) -> tuple[Stamp | None, Reading] | None:
        try:
            return self._tracking() if self.form == "chronyc.tracking" else self._ntpdata()
        except OverflowError:
            return None

    def _tracking(self) -> tuple[Stamp | None, Reading] | None:
        system, freq = self._amount("System time"), self._amount("Frequency")
        delay, dispersion = self._amount("Root delay"), self._amount("Root dispersion")
        if system is None or freq is None or delay is None or dispersion is None:
            return None
        if system[1] is None or freq[1] is None:  # without slow or fast there is no sign
            return None
        slow_ns = chrony.to_ns(system[0]) * (1 if system[1] == "slow" else -1)
        fast_ppb = freq[0] * 1e3 * (1 if freq[1] == "fast" else -1)
        skew = self._amount("Skew")
        reference = re.fullmatch(r"([0-9A-F]{8}) \((.*)\)", self._pairs["Reference ID"], re.A)
        source = self._pairs["Reference ID"] if reference is None else reference[2] or reference[1]
        return _ref_time(self._pairs.get("Ref time (UTC)", "")), chrony.tracking_report(
            source, slow_ns, fast_ppb, chrony.to_ns(delay[0]), chrony.to_ns(dispersion[0]),
            self._pairs.get("Leap status", "Not synchronised"), skew[0] if skew else float("nan"),
        )  # fmt: skip

    def _ntpdata(self) -> tuple[Stamp | None, Reading] | None:
        parts = [
            self._amount(k)
            for k in ("Offset", "Peer delay", "Peer dispersion", "Root delay", "Root dispersion")
        ]
        if any(part is None for part in parts):
            return None
        # Like measurements.log: positive means that the local clock is slow.
        offset, delay, dispersion, root_delay, root_dispersion = (
            chrony.to_ns(p[0]) for p in parts if p is not None
        )
        tests = self._pairs.get("NTP tests", "0")
        return None, Reading(
            Kind.EVENT if "0" in tests else Kind.MEASUREMENT, "chronyc.ntpdata", SYSTEM,
            self._pairs[self._first].split(" ")[0], False, -offset, delay,
            error_ns=dispersion + root_dispersion + (delay + root_delay + 1) // 2, spread_ns=dispersion,
            text=f"tests {tests}",
        )  # fmt: skip


def _ref_time(text: str) -> Stamp | None:
    match = re.fullmatch(
        r"[A-Z][a-z]{2} ([A-Z][a-z]{2}) {1,2}(\d{1,2}) (\d\d):(\d\d):(\d\d) (\d{4})", text, re.A
    )
    if match is None or match[1] not in _MONTHS:
        return None
    ns = utc_ns(int(match[6]), _MONTHS[match[1]], *(int(match[n]) for n in range(2, 6)))
    return None if ns is None or ns == 0 else Stamp(SYSTEM, ns, NS)


def table_row(line: str) -> Reading | None:
    """A row of `chronyc sources` or `chronyc sourcestats`; None if it is neither."""
    if (match := _SOURCE.fullmatch(line)) is not None:
        age = match[7]
        ago_s = None if age == "-" else int(age) if age[-1].isdigit() else int(age[:-1]) * _AGES[age[-1]]
        fast_ns, error_ns = int(match[8]) * _UNITS[match[9]], int(match[12]) * _UNITS[match[13]]
        if max(abs(fast_ns), error_ns) > INT63:
            return None
        return chrony.source_report(match[1], match[2], match[3], int(match[6], 8), ago_s, fast_ns, error_ns)
    if (match := _STATS.fullmatch(line)) is not None:
        offset_ns, deviation_ns = int(match[7]) * _UNITS[match[8]], int(match[9]) * _UNITS[match[10]]
        if max(abs(offset_ns), deviation_ns) > INT63:
            return None
        return chrony.statistics_report(match[1], int(match[2]), float(match[5]), offset_ns, deviation_ns)
    return None
