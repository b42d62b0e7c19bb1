"""RoCEv2 flows in captures: who sends to which queue pair, by which source port, how much.

The base transport header stands at the start of the UDP payload: opcode (1 byte), flags, partition (2), reserved
(1), destination queue pair (3), a bit and packet sequence number (4). A congestion notification (opcode 0x81) is
made by the card, often with port 0 or one of its own: it teaches no port of the flow that it is about.
"""

import mmap
from pathlib import Path
from typing import Final

import numpy as np

from producers.host.flows import ROCE_PORT, Captured
from producers.int.pcap import Capture, Frames, read
from producers.report import Report
from schemas.errors import MalformedInput, cause_of
from schemas.flow import address_text

CNP: Final = 0x81
_BTH_BYTES: Final = 12
_FRAMES_MAX: Final = 65_536
_IP_BYTES: Final = {4: 20, 6: 40}


def captured(path: Path, report: Report) -> list[Captured]:
    """Flows of a capture, in order of (source, destination, queue pair, port). Raises MalformedInput."""
    try:
        with path.open("rb") as file:
            try:
                buffer = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
            except (ValueError, OSError):  # empty, or no regular file
                buffer = memoryview(file.read())
    except OSError as error:
        raise MalformedInput(f"cannot be read: {cause_of(error)}", str(path)) from error
    try:
        capture = read(buffer)
    except MalformedInput as error:
        raise MalformedInput(error.what, f"{path}: {error.where}") from error
    for line in capture.warnings:
        report.warn(f"{path}: {line}; what came before is used")
    return flows(capture, report)


def flows(capture: Capture, report: Report) -> list[Captured]:
    """As `captured`, of an indexed capture."""
    found: dict[tuple[int, ...], list[int]] = {}
    frames = Frames()
    skipped: dict[str, int] = {}
    for begin in range(0, len(capture.at), _FRAMES_MAX):
        payloads = frames.payloads(capture, begin, min(begin + _FRAMES_MAX, len(capture.at)), skipped)
        roce = payloads.port == ROCE_PORT
        whole = roce & (payloads.size >= _BTH_BYTES)
        report.skip("RoCE packet cut before its transport header", int((roce & ~whole).sum()))
        report.skip("UDP to another port", int((~roce).sum()))
        at = payloads.at[whole]
        data = capture.data
        opcode = data[at]
        qpn = data[at + 5].astype(np.int64) << 16 | data[at + 6].astype(np.int64) << 8 | data[at + 7]
        sport = data[at - 8].astype(np.int64) << 8 | data[at - 7]
        size = data[at - 4].astype(np.int64) << 8 | data[at - 3]
        src, dst = payloads.src[:, whole], payloads.dst[:, whole]
        teaches = (opcode != CNP) & (sport != 0)
        keys = np.stack((*src, *dst, qpn.view(np.uint64), np.where(teaches, sport, 0).view(np.uint64)))
        distinct, which, count = np.unique(keys, axis=1, return_inverse=True, return_counts=True)
        total = np.zeros(distinct.shape[1], np.int64)
        np.add.at(total, which.ravel(), size)
        for k, key in enumerate(distinct.T.tolist()):
            entry = found.setdefault(tuple(key), [0, 0])
            four = key[0] == 0 and key[1] >> 32 == 0xFFFF
            entry[0] += int(total[k]) + int(count[k]) * _IP_BYTES[4 if four else 6]
            entry[1] += int(count[k])
    for reason, number in skipped.items():
        report.skip(reason, number)
    return [
        Captured(
            address_text(key[0].to_bytes(8, "big") + key[1].to_bytes(8, "big")),
            address_text(key[2].to_bytes(8, "big") + key[3].to_bytes(8, "big")),
            key[4], key[5] or None, totals[0], totals[1],
        )
        for key, totals in sorted(found.items())
    ]  # fmt: skip
