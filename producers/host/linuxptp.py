"""Messages of ptp4l, phc2sys, ts2phc and synce4l: text in, reading or reason out. No state, no I/O.

Each message has its own expression, which must match it whole; its first words choose which ones are tried. A
line is about the clock that it names; one that names none is about `ptp:<tag>` (ptp4l) or CLOCK_REALTIME
(phc2sys). A servo line of a servo at its frequency limit is a STATE: its clock runs away.

`message` gives a Reading, or the name of a form that says nothing about a clock, or None: not understood.
"""

import re

from producers.host.reading import FREQ_PPB_MAX, INT63, SYSTEM, Kind, Reading

_CLOCK = r"(?:(?!(?:master|phc|sys|pps|rms|offset|port) )([^\s:]+) )?"
_NUMBER = r"([+-]?\d{1,19}(?:\.\d{1,9})?)"
SERVO = re.compile(
    rf"{_CLOCK}(?:(master|phc|sys|pps) )?offset +{_NUMBER} s([0-3]) freq +{_NUMBER}"
    rf"(?: +(path )?delay +{_NUMBER})?( holdover)?",
    re.A,
)
_SUMMARY = re.compile(
    rf"{_CLOCK}rms +{_NUMBER} max +{_NUMBER} freq +{_NUMBER} \+/- +{_NUMBER}"
    rf"(?: delay +{_NUMBER} \+/- +{_NUMBER})?",
    re.A,
)
_STATE = "INITIALIZING|FAULTY|DISABLED|LISTENING|PRE_MASTER|MASTER|PASSIVE|UNCALIBRATED|SLAVE|GRAND_MASTER"
_PORT = re.compile(
    r"port (\d{1,5})(?: \(([^()\s]+)\))?: "
    rf"(?:({_STATE}) to ({_STATE})(?: on ([A-Z0-9_]+)(?: \(([A-Z0-9_]+)\))?)?|(.+))",
    re.A,
)
_IDENTITY = r"[0-9a-f]{6}\.[0-9a-f]{4}\.[0-9a-f]{6}"
_PORT_EVENT = re.compile(
    rf"(?:new foreign master {_IDENTITY}-\d+|assuming the grand master role|link (?:up|down)|FAULT_DETECTED"
    r"|SYNCHRONIZATION_FAULT|minimum delay request interval .*|(?:announce|sync|delay|rx sync) timeout"
    r"|Master clock quality received is greater than configured, ignoring master!|just a bunch of devices"
    r"|received \w+ without timestamp|(?:send|recv) \w+ (?:\w+ )?failed|clearing fault .*|taking .* out of .*"
    r"|.*neighborPropDelayThresh.*|setting asCapable|ignoring .*|hybrid_e2e .*)",
    re.A,
)
_BEST = re.compile(
    rf"selected (?:best master clock ({_IDENTITY})|local clock ({_IDENTITY}) as best master)", re.A
)
_PHC = re.compile(r"(?:selected|Switched to) (/dev/ptp\d+) as PTP clock", re.A)
_CLOCKCHECK = re.compile(
    r"clockcheck: clock (?:jumped forward or running faster than expected!"
    r"|jumped backward or running slower than expected!|frequency changed unexpectedly!)",
    re.A,
)
_DELAY = re.compile(rf"delay +filtered +{_NUMBER} +raw +{_NUMBER}", re.A)
_LOST_HOLDOVER = re.compile(rf"(\S+) lost holdover lock \(offset +{_NUMBER}\)", re.A)
_TSTAMP = re.compile(r"adding tstamp (-?\d{1,12}\.\d{9}) to clock (\S+)", re.A)
_SKIP = re.compile(r"(\S+) SKIP extts index (\d+) at (-?\d{1,12}\.\d{9})(?: src .*)?", re.A)
_SELECTING = re.compile(
    r"(?:un)?selecting (\S+) (?:for synchronization"
    r"|as (?:the |out-of-domain |domain )?(?:master|source)(?: clock)?)",
    re.A,
)
_PORT_CHANGED = re.compile(rf"port {_IDENTITY}-\d+ changed state", re.A)
_EEC = re.compile(r"(?:act on )?(EEC_[A-Z_]+(?:/EEC_[A-Z_]+)?)(?: on ((?:GNSS of )?)(\S+)| for (\S+))", re.A)
_UTC = re.compile(
    r"(?:UTC-TAI offset not set in system! Trying to revert to leapfile|updating UTC offset to -?\d+"
    r"|foreign master not using PTP timescale|leap second .*|currentUtcOffset.*|.*leap.?file.*)",
    re.A,
)
_EVENT = re.compile(
    r"(?:source ts not valid|nothing to synchronize|reconfiguring after port state change"
    r"|Waiting for ptp4l\.\.\.|poll failed"
    r"|(?:nmea|PPS|extts|ppsi?) .*(?:lost|not valid|invalid|expired|timeout|timed out).*"
    r"|poll tx .*|timed out while polling for tx timestamp|increasing tx_timestamp_timeout .*"
    r"|running in a temporal vortex)",
    re.A,
)
# Lines that say how a daemon was started or talks to others; nothing about a clock's state.
_NOISE = re.compile(
    r"(?:config item .*|PI servo: .*|PPS sink .*|uds: .*|assuming external reference clock|tx_rebuild_tlv: .*"
    r"|PTP_MASK_CLEAR_ALL_FAILED request failed|linreg: .*|failed to .*|interface .* does not have a PHC"
    r"|ioctl .*|unknown clock .*|driver .*|.* is (?:up|down|not up)|interface .*|waiting for .*"
    r"|eventd?: .*|option .*|.* request failed.*|.* bad message|.*Operation not permitted)",
    re.A | re.I,
)


def _int(text: str) -> int | None:
    """A printed number as an integer; None if it does not fit into 64 bits."""
    value = round(float(text)) if "." in text else int(text)
    return value if -INT63 <= value <= INT63 else None


def _own(daemon: str, tag: str | None) -> str | None:
    """The clock of a line that names none."""
    if daemon == "ptp4l":
        return f"ptp:{tag or daemon}"
    return SYSTEM if daemon == "phc2sys" else None


def _source(word: str | None, clock: str, tag: str | None) -> str | None:
    """What phc2sys compares with: the system clock (`sys`), or the PHC that the tag's ptp4l disciplines."""
    if word == "sys":
        return None if clock == SYSTEM else SYSTEM
    if word == "phc" and tag is not None and tag.startswith("ptp4l"):
        return f"ptp:{tag}"
    return None


def servo(
    daemon: str, tag: str | None, name: str | None, word: str | None, offset_ns: int, state: int, freq: float,
    delay_ns: int | None, holdover: bool,
) -> Reading | None:  # fmt: skip
    """A servo line from its parts; None where it does not say which clock it is about."""
    clock = name or _own(daemon, tag)
    if clock is None:
        return None
    parent = _source(word, clock, tag)
    form = f"{daemon}.servo"
    if abs(freq) >= FREQ_PPB_MAX:
        text = f"frequency {freq:.0f} ppb at its limit"
        return Reading(
            Kind.STATE, form, clock, parent, True, offset_ns, delay_ns, None, None, None, state, text
        )
    text_ = "holdover" if holdover else None
    return Reading(Kind.SERVO, form, clock, parent, True, offset_ns, delay_ns, freq, None, None, state, text_)


def _servo(daemon: str, tag: str | None, match: "re.Match[str]") -> Reading | None:
    name, word, offset, state, freq, _, delay, holdover = match.groups()
    offset_ns, delay_ns = _int(offset), None if delay is None else _int(delay)
    if offset_ns is None or (delay is not None and delay_ns is None):
        return None
    return servo(daemon, tag, name, word, offset_ns, int(state), float(freq), delay_ns, holdover is not None)


def _summary(daemon: str, tag: str | None, match: "re.Match[str]") -> Reading | None:
    name, rms, greatest, freq, _, delay, _ = match.groups()
    clock = name or _own(daemon, tag)
    rms_ns, max_ns = _int(rms), _int(greatest)
    delay_ns = None if delay is None else _int(delay)
    if clock is None or rms_ns is None or max_ns is None or rms_ns < 0 or max_ns < 0:
        return None
    # A summary has lost the sign: rms and max are sizes, the offset itself is unknown.
    at_limit = abs(float(freq)) >= FREQ_PPB_MAX
    return Reading(
        Kind.STATE if at_limit else Kind.SUMMARY, f"{daemon}.summary", clock,
        delay_ns=delay_ns, freq_ppb=None if at_limit else float(freq), error_ns=rms_ns, spread_ns=max_ns,
        text=f"frequency {freq} ppb at its limit" if at_limit else None,
    )  # fmt: skip


def _port(daemon: str, tag: str | None, match: "re.Match[str]", body: str) -> Reading | None:
    other = match[7]
    clock = _own(daemon, tag)
    if other is None:
        return Reading(Kind.STATE, f"{daemon}.port", clock, text=body)
    if _PORT_EVENT.fullmatch(other) is None:
        return None
    return Reading(Kind.EVENT, f"{daemon}.port_event", clock, text=body)


def message(daemon: str, tag: str | None, body: str) -> Reading | str | None:
    """What a message says; see the module's header."""
    clock = _own(daemon, tag)
    if (match := SERVO.fullmatch(body)) is not None:
        return _servo(daemon, tag, match)
    if body.startswith("port ") and (match := _PORT.fullmatch(body)) is not None:
        return _port(daemon, tag, match, body)
    if (match := _SUMMARY.fullmatch(body)) is not None:
        return _summary(daemon, tag, match)
    if (match := _TSTAMP.fullmatch(body)) is not None:
        return Reading(Kind.EVENT, f"{daemon}.tstamp", match[2], text=match[1])
    if (match := _SKIP.fullmatch(body)) is not None:
        return Reading(Kind.EVENT, f"{daemon}.skip", match[1], text=body)
    if (match := _BEST.fullmatch(body)) is not None:
        return Reading(Kind.EVENT, f"{daemon}.best_master", clock, match[1], False, text=body)
    if (match := _PHC.fullmatch(body)) is not None:
        return Reading(Kind.EVENT, f"{daemon}.phc", clock, text=match[1])
    if _CLOCKCHECK.fullmatch(body) is not None:
        return Reading(Kind.EVENT, f"{daemon}.clockcheck", clock, text=body)
    if (match := _DELAY.fullmatch(body)) is not None:
        delay_ns = _int(match[1])
        if clock is None or delay_ns is None:
            return None
        return Reading(Kind.EVENT, f"{daemon}.delay", clock, delay_ns=delay_ns, text=f"raw {match[2]}")
    if (match := _LOST_HOLDOVER.fullmatch(body)) is not None:
        return Reading(Kind.STATE, f"{daemon}.lost_holdover", match[1], offset_ns=_int(match[2]), text=body)
    if (match := _SELECTING.fullmatch(body)) is not None:
        return Reading(Kind.EVENT, f"{daemon}.selecting", match[1], text=body)
    if (match := _EEC.fullmatch(body)) is not None:
        name = (match[2] or "").strip()
        return Reading(
            Kind.STATE, f"{daemon}.eec", f"synce:{match[3] or match[4]}", text=f"{match[1]} {name}".strip()
        )
    if _UTC.fullmatch(body) is not None:
        return Reading(Kind.EVENT, f"{daemon}.utc", clock, text=body)
    if _EVENT.fullmatch(body) is not None or _PORT_CHANGED.fullmatch(body) is not None:
        return Reading(Kind.EVENT, f"{daemon}.event", clock, text=body)
    if _NOISE.fullmatch(body) is not None:
        return f"{daemon}.setup"
    return None
