"""Lines of OpenShift's linuxptp daemon (`dpll[…]`, `T-BC[…]`, `GM[…]`, `gnss[…]` and its own of ptp4l and
ts2phc).

They name a network port, but each is about another thing at that port: the loop in its clock chip, the
boundary clock as a whole, the receiver. So the clock is `dpll:<port>`, `T-BC:<port>`, `GM:<port>`,
`gnss:<port>`, and nothing of them is mixed with the port's own clock, which phc2sys and ts2phc name
plainly.

Its states are not the servo's: s0 free running, s1 holdover, s2 locked; so `servo` is null for s1, and the
text begins with the state. An offset of 99999999999 (or with `nmea_status 0` any) is how the daemon says
that it has none."""

import re

from producers.host.reading import INT63, OFFSET_UNKNOWN, SYSTEM, Kind, Reading

_INT = r"([+-]?\d{1,19})"
_DPLL = re.compile(
    rf"(\S+) +frequency_status (-?\d+) +offset +{_INT} +phase_status (-?\d+) +pps_status (-?\d+) +s([0-3])",
    re.A,
)
_TBC = re.compile(rf"(\S+) +offset +{_INT} +T-BC-STATUS +s([0-3])", re.A)
_GM = re.compile(r"(\S+) +T-GM-STATUS +s([0-3])", re.A)
_GNSS = re.compile(rf"(\S+) +gnss_status (-?\d+) +offset +{_INT} +s([0-3])", re.A)
_TS2PHC = re.compile(
    rf"(\S+) +(?:(nmea_status) (-?\d+) +)?offset +{_INT}(?: +pps_status (-?\d+))? +s([0-3])", re.A
)
_CLASS = re.compile(r"CLOCK_CLASS_CHANGE +(\d{1,3})(?:\.0+)?", re.A)
_PROCESS = re.compile(r"PTP_PROCESS_STATUS:(\d)", re.A)


_STATES = {"0": "freerun", "1": "holdover", "2": "locked", "3": "locked"}
_SERVO = {"0": 0, "2": 2, "3": 3}


def _report(
    form: str, clock: str, offset: str, state: str, said: str | None = None, known: bool = True
) -> Reading | None:
    offset_ns = int(offset)
    if abs(offset_ns) > INT63:
        return None
    text = " ".join(filter(None, (_STATES[state], said)))
    if not known or abs(offset_ns) >= OFFSET_UNKNOWN:
        return Reading(
            Kind.STATE, form, clock, servo=_SERVO.get(state), text=f"{text} (offset {offset} is none)"
        )
    return Reading(Kind.SERVO, form, clock, offset_ns=offset_ns, servo=_SERVO.get(state), text=text)


def message(daemon: str, tag: str | None, body: str) -> Reading | None:
    """What a message of the daemon says, or None where it is none of its lines. `body` is stripped."""
    if daemon == "dpll" and (match := _DPLL.fullmatch(body)) is not None:
        port, frequency, offset, phase, pps, servo = match.groups()
        return _report(
            "dpll",
            f"dpll:{port}",
            offset,
            servo,
            f"frequency_status {frequency} phase_status {phase} pps_status {pps}",
        )
    if daemon == "T-BC" and (match := _TBC.fullmatch(body)) is not None:
        return _report("t-bc", f"T-BC:{match[1]}", match[2], match[3])
    if daemon == "GM" and (match := _GM.fullmatch(body)) is not None:
        return Reading(
            Kind.STATE,
            "gm",
            f"GM:{match[1]}",
            servo=_SERVO.get(match[2]),
            text=f"{_STATES[match[2]]} T-GM-STATUS",
        )
    if daemon == "gnss" and (match := _GNSS.fullmatch(body)) is not None:
        return _report("gnss", f"gnss:{match[1]}", match[3], match[4], f"gnss_status {match[2]}")
    if daemon == "ts2phc" and (match := _TS2PHC.fullmatch(body)) is not None:
        port, nmea, status, offset, pps, servo = match.groups()
        if nmea is not None:
            return _report(
                "ts2phc.nmea", f"nmea:{port}", offset, servo, f"nmea_status {status}", known=status != "0"
            )
        return _report("ts2phc.status", port, offset, servo, None if pps is None else f"pps_status {pps}")
    clock = f"ptp:{tag or daemon}" if daemon == "ptp4l" else SYSTEM if daemon == "phc2sys" else None
    if (match := _CLASS.fullmatch(body)) is not None:
        return Reading(Kind.STATE, "clock_class", clock, text=f"clock class {match[1]}")
    if (match := _PROCESS.fullmatch(body)) is not None:
        return Reading(
            Kind.EVENT, "process", clock, text=f"{daemon} {'started' if match[1] == '1' else 'stopped'}"
        )
    return None
