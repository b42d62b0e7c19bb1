"""The clocks that a Linux kernel stamps packets with, and what it states about them. Nothing sets a clock.

CLOCK_REALTIME: `ntp_gettime` says whether a daemon keeps it and the greatest error that follows from what the
daemon said last, which the kernel lets grow by 500 ppm. Without a daemon no bound is known: None.
CLOCK_MONOTONIC is slewed with it, so their difference changes by steps alone; that is how a step is found.

A network card's own clock (PHC) is read by one request that brackets each reading between two of the system
clock, so the map to CLOCK_REALTIME is a measurement whose bound is half of the narrowest bracket.
"""

import ctypes
import fcntl
import os
import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from schemas.columns import Assurance, ClockKind, Status, Timescale
from schemas.time import TAI, ClockState

REALTIME: Final = "CLOCK_REALTIME"
MAXERROR_GROWTH_PPB: Final = 500_000.0  # how fast the kernel lets maxerror grow
PHC_GROWTH_PPB: Final = 100_000.0  # 100 ppm, what a cheap crystal may be off by
STEP_NS_MIN: Final = 1_000
_TIME_ERROR: Final = 5
_PTP_SYS_OFFSET: Final = 0x43403D05  # _IOW('=', 5, struct ptp_sys_offset)
_SAMPLES: Final = 5
_MOMENT: Final = struct.Struct("=qII")


class Clock(Protocol):
    """What is asked of a clock (tempotrace.clockwork has one)."""

    def now_ns_utc(self) -> int: ...
    def monotonic(self) -> float: ...


class Discipline(NamedTuple):
    """What the kernel says of CLOCK_REALTIME: greatest error in ns, TAI − UTC in s (0: nobody set it)."""

    synchronised: bool
    max_error_ns: int
    tai_offset_s: int


class _NtpTime(ctypes.Structure):
    _fields_ = (
        ("time", ctypes.c_long * 2),
        ("maxerror", ctypes.c_long),
        ("esterror", ctypes.c_long),
        ("tai", ctypes.c_long),
        ("reserved", ctypes.c_long * 4),
    )


def machine_host(read: Callable[[Path], str] = Path.read_text) -> str:
    """The name of this machine's clocks: hostname-<8 hex of machine-id>, so that two of one name differ."""
    name = os.uname().nodename
    for place in ("/etc/machine-id", "/var/lib/dbus/machine-id"):
        try:
            identity = read(Path(place)).strip()
        except OSError:
            continue
        if identity:
            return f"{name}-{identity[:8]}"
    return name


def discipline() -> Discipline | None:
    """What the kernel says of CLOCK_REALTIME; None where it says nothing."""
    try:
        ask = ctypes.CDLL(None, use_errno=True).ntp_gettimex
    except (OSError, AttributeError):
        return None
    answer = _NtpTime()
    state = ask(ctypes.byref(answer))
    if state < 0:
        return None
    return Discipline(state != _TIME_ERROR, answer.maxerror * 1000, answer.tai)


def realtime_state(host: str, now_ns: int, epoch: int, said: Discipline | None) -> ClockState:
    """CLOCK_REALTIME of a host as its kernel states it at `now_ns` (Unix ns)."""
    clock = ClockState(clock_id=f"{host}/{REALTIME}", epoch=epoch, parent=TAI, timescale=Timescale.UTC)
    if said is None or not said.synchronised:
        return replace(
            clock,
            kind=ClockKind.FREE,
            status=Status.UNKNOWN if said is None else Status.FREERUN,
            provenance="kernel: states nothing" if said is None else "kernel: not synchronised",
        )
    return replace(
        clock,
        kind=ClockKind.NTP,
        status=Status.LOCKED,
        utc_offset_s=said.tai_offset_s or None,
        utc_offset_valid=bool(said.tai_offset_s),
        bound_ns=said.max_error_ns,
        as_of_ns=now_ns,
        growth_ppb=MAXERROR_GROWTH_PPB,
        assurance=Assurance.CLAIMED,
        provenance="kernel: maxerror as its daemon keeps it",
    )


class Steps:
    """Finds steps of CLOCK_REALTIME by its difference to CLOCK_MONOTONIC."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._difference_ns, self._doubt_ns = self._measure()

    def look(self) -> int:
        """Size of a step since the last look, in ns (positive: forward); 0 if there was none."""
        difference, doubt = self._measure()
        step = difference - self._difference_ns
        if abs(step) <= STEP_NS_MIN + doubt + self._doubt_ns:
            if doubt < self._doubt_ns:
                self._difference_ns, self._doubt_ns = difference, doubt
            return 0
        self._difference_ns, self._doubt_ns = difference, doubt
        return step

    def _measure(self) -> tuple[int, int]:
        """(CLOCK_REALTIME − CLOCK_MONOTONIC, its doubt) in ns, from the narrowest of three brackets."""
        brackets = []
        for _ in range(3):
            before = self._clock.monotonic()
            now = self._clock.now_ns_utc()
            after = self._clock.monotonic()
            brackets.append((round((after - before) * 1e9), now - round((before + after) / 2 * 1e9)))
        width, difference = min(brackets)
        return difference, width // 2 + 1


class PhcReading(NamedTuple):
    """One moment on a PHC and on CLOCK_REALTIME, ± bound_ns."""

    phc_ns: int
    realtime_ns: int
    bound_ns: int


def parse_phc(raw: bytes, samples: int) -> PhcReading:
    """The narrowest bracket in a filled `struct ptp_sys_offset`: system, PHC, system, PHC, ..., system."""
    moments = [
        seconds * 1_000_000_000 + ns
        for seconds, ns, _ in (_MOMENT.unpack_from(raw, 16 + 16 * place) for place in range(2 * samples + 1))
    ]
    width, middle, phc = min(
        (after - before, (before + after) // 2, phc)
        for before, phc, after in zip(moments[::2], moments[1::2], moments[2::2], strict=False)
    )
    return PhcReading(phc, middle, width // 2 + 1)


class Phc:
    """The clock of a network card, open for reading. Raises OSError if it may not be read."""

    def __init__(self, index: int, device: Path | None = None) -> None:
        self.index = index
        self._fd = os.open(device or Path(f"/dev/ptp{index}"), os.O_RDONLY)

    def read(self) -> PhcReading:
        """The clock beside CLOCK_REALTIME, now."""
        buffer = bytearray(16 + 16 * 51)
        struct.pack_into("=I", buffer, 0, _SAMPLES)
        fcntl.ioctl(self._fd, _PTP_SYS_OFFSET, buffer)
        return parse_phc(bytes(buffer), _SAMPLES)

    def close(self) -> None:
        """Stop reading."""
        os.close(self._fd)


def phc_state(host: str, index: int, epoch: int, reading: PhcReading) -> ClockState:
    """A PHC as measured against the host's CLOCK_REALTIME."""
    return ClockState(
        clock_id=f"{host}/ptp{index}",
        epoch=epoch,
        parent=f"{host}/{REALTIME}",
        ref_ns=reading.phc_ns,
        ref_parent_ns=reading.realtime_ns,
        rate_ppb=0.0,
        bound_ns=reading.bound_ns,
        as_of_ns=reading.phc_ns,
        growth_ppb=PHC_GROWTH_PPB,
        assurance=Assurance.CLAIMED,
        provenance="PTP_SYS_OFFSET: half the narrowest bracket; 100 ppm assumed between readings",
    )
