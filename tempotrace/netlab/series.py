"""Offsets in what a node wrote: four series, each node clock − master clock in ns.

- `ptp exchange`: ½((t2 − t1) − (t4 − t3)) of each sync message with the next delay request, from the raw stamps that
  ptp4l hands to its event monitor: stamping and queueing, nothing filtered.
- `ptp4l`: the offset that the daemon itself logs, once a second, after its filter of the path delay.
- `ntp exchange`: each valid exchange in chronyd's log, those too that it then left out because of their delay.
- `ntp used`: the exchanges that chronyd kept.
"""

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from producers.host.grammar import Grammar
from producers.host.reading import Kind

I64 = NDArray[np.int64]
NAMES: Final = ("ptp exchange", "ptp4l", "ntp exchange", "ntp used")

_SIGNALING: Final = 0xC
_HEADER: Final = 44  # PTP header and the port that the message is for
_SYNC, _DELAY = 0x8004, 0x7F00
_STAMP: Final = 10
_PORT: Final = 10


class Leg(NamedTuple):
    """One message's departure and arrival, each on its end's clock, in ns; the correction is taken off already."""

    sync: bool
    sequence: int
    left_ns: int
    arrived_ns: int


def read(files: dict[str, bytes]) -> dict[str, I64]:
    """All series of one node by name; those that it does not have are left out."""
    found = {
        "ptp exchange": two_way(legs(files.get("exchanges.hex", b"").decode("ascii", "replace"))),
        "ptp4l": _logged(files.get("ptp4l.log", b""), Kind.SERVO),
        "ntp exchange": _logged(files.get("measurements.log", b""), Kind.MEASUREMENT, Kind.EVENT),
        "ntp used": _logged(files.get("measurements.log", b""), Kind.MEASUREMENT),
    }
    return {name: series for name, series in found.items() if len(series)}


def _logged(content: bytes, *kinds: Kind) -> I64:
    readings = [row.reading for row in Grammar().feed(content.decode("utf-8", "replace").splitlines())]
    # chrony's tests A to C are of the packet and of what the server says of itself: without them there is no offset.
    return np.array(
        [
            each.offset_ns
            for each in readings
            if each.offset_ns is not None
            and each.kind in kinds
            and (each.kind != Kind.EVENT or (each.text or "").startswith("tests 111 111 "))
        ],
        np.int64,
    )


def legs(text: str) -> Iterator[Leg]:
    """The exchanges in a record of the event monitor: one message a line, in hex. Anything else is passed over."""
    for line in text.splitlines():
        try:
            message = bytes.fromhex(line)
        except ValueError:
            continue  # the last line of a process that was killed may be cut
        if len(message) >= _HEADER and message[0] & 0xF == _SIGNALING:
            yield from _records(message)


def _records(message: bytes) -> Iterator[Leg]:
    place = _HEADER
    while place + 4 <= len(message):
        kind, length = struct.unpack_from(">HH", message, place)
        body = message[place + 4 : place + 4 + length]
        place += 4 + length
        if len(body) < length:
            return
        # Sequence, departure, correction (ns · 2^16), for a sync the cumulative rate, and the arrival.
        between = 4 if kind == _SYNC else 0
        size = 2 + _STAMP + 8 + between + _STAMP
        if kind not in (_SYNC, _DELAY):
            continue
        for at in range(_PORT, len(body) - size + 1, size):
            (sequence,) = struct.unpack_from(">H", body, at)
            (correction,) = struct.unpack_from(">q", body, at + 2 + _STAMP)
            left = _stamp(body, at + 2) + (correction >> 16)
            yield Leg(kind == _SYNC, sequence, left, _stamp(body, at + size - _STAMP))


def _stamp(body: bytes, at: int) -> int:
    high, low, ns = struct.unpack_from(">HII", body, at)
    return (int(high) << 32 | int(low)) * 1_000_000_000 + int(ns)


def two_way(found: Iterator[Leg]) -> I64:
    """Offsets by the two-way formula: each sync with the delay request that follows it, each used once."""
    offsets = []
    sync: Leg | None = None
    for leg in found:
        if leg.sync:
            sync = leg
        elif sync is not None:
            down, up = sync.arrived_ns - sync.left_ns, leg.arrived_ns - leg.left_ns
            offsets.append((down - up) // 2)
            sync = None
    return np.array(offsets, np.int64)
