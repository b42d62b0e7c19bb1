"""Capture files: pcap (microseconds and nanoseconds, both byte orders) and pcapng, and the UDP in them.

A file is a buffer (mapped, so of any size) and an index of its frames. One that breaks off gives the frames
that are whole, and a line that says so.
"""

import struct
from array import array
from functools import partial
from typing import Final, NamedTuple

import numpy as np

from producers.int.layout import I64, U8, Array, Field, Reader, Rows, Scan, field
from producers.int.packet import ETHERNET, IPV4, IPV6, UDP, Packet, of_type
from schemas.errors import MalformedInput
from schemas.time import OUTSIDE, stamp_fits

# Magic number in file order: (byte order, units of a stamp's fraction per second, extra header bytes).
_MAGIC: Final = {
    b"\xa1\xb2\xc3\xd4": (">", 1_000_000, 0),
    b"\xd4\xc3\xb2\xa1": ("<", 1_000_000, 0),
    b"\xa1\xb2\x3c\x4d": (">", 1_000_000_000, 0),
    b"\x4d\x3c\xb2\xa1": ("<", 1_000_000_000, 0),
    b"\xa1\xb2\xcd\x34": (">", 1_000_000, 8),
    b"\x34\xcd\xb2\xa1": ("<", 1_000_000, 8),
}
_SECTION: Final = b"\x0a\x0d\x0d\x0a"
_FRAME_BYTES_MAX: Final = 2**18
NS: Final = 1_000_000_000
OUTSIDE_FRAME: Final = f"frame with a {OUTSIDE}"


class Capture(NamedTuple):
    """The frames of a capture: data[at : at + size] each, in order of their stamps (ns UTC).

    `quantum_ns` is the coarsest step of the stamps, `warnings` lines about what could not be read, `skipped`
    counts frames without a place in time by reason.
    """

    data: U8
    at: I64
    size: I64
    stamp_ns: I64
    link: I64
    quantum_ns: int
    warnings: tuple[str, ...]
    skipped: dict[str, int]


class _Index:
    """Frames found so far."""

    def __init__(self) -> None:
        self.at, self.size, self.stamp, self.link = array("q"), array("q"), array("q"), array("q")
        self.quantum_ns = 1
        self.warnings: list[str] = []
        self.skipped: dict[str, int] = {}

    def add(self, at: int, size: int, stamp_ns: int, link: int) -> None:
        if not stamp_fits(stamp_ns):
            self.skipped[OUTSIDE_FRAME] = self.skipped.get(OUTSIDE_FRAME, 0) + 1
            return
        self.at.append(at)
        self.size.append(size)
        self.stamp.append(stamp_ns)
        self.link.append(link)

    def units(self, per_second: int) -> None:
        self.quantum_ns = max(self.quantum_ns, -(-NS // per_second))


def read(buffer: bytes | memoryview) -> Capture:
    """Index a capture file's bytes. Raises MalformedInput if they are none."""
    data = np.frombuffer(buffer, np.uint8)
    magic = bytes(data[:4])
    index = _Index()
    if magic in _MAGIC:
        _pcap(memoryview(buffer), index, *_MAGIC[magic])
    elif magic == _SECTION:
        _pcapng(memoryview(buffer), index)
    else:
        raise MalformedInput("no capture: neither pcap nor pcapng", f"first bytes {magic.hex() or 'none'}")
    stamp = np.array(index.stamp, np.int64)
    order = np.argsort(stamp, kind="stable")
    at, size, link = (np.array(part, np.int64)[order] for part in (index.at, index.size, index.link))
    return Capture(data, at, size, stamp[order], link, index.quantum_ns, tuple(index.warnings), index.skipped)


def _pcap(data: memoryview, index: _Index, order: str, per_second: int, extra: int) -> None:
    if len(data) < 24:
        index.warnings.append(f"the capture breaks off in its header, at byte {len(data)}")
        return
    link = struct.unpack_from(order + "I", data, 20)[0] & 0xFFFF
    index.units(per_second)
    header, scale = struct.Struct(order + "IIII"), NS // per_second
    at, end = 24, len(data)
    while at < end:
        begin = at + 16 + extra
        if begin > end:
            index.warnings.append(f"the capture breaks off in a frame's header, at byte {end}")
            return
        seconds, fraction, size, _ = header.unpack_from(data, at)
        if size > _FRAME_BYTES_MAX:
            index.warnings.append(f"the capture is broken: a frame of {size} bytes at byte {at}")
            return
        if begin + size > end:
            index.warnings.append(f"the capture breaks off in a frame, at byte {end}")
            return
        index.add(begin, size, seconds * NS + fraction * scale, link)
        at = begin + size


class _Interface(NamedTuple):
    link: int
    per_second: int
    offset_ns: int


def _pcapng(data: memoryview, index: _Index) -> None:
    order, interfaces = "<", list[_Interface]()
    at, end = 0, len(data)
    while at < end:
        if at + 12 > end:
            index.warnings.append(f"the capture breaks off in a block's header, at byte {end}")
            return
        if bytes(data[at : at + 4]) == _SECTION:
            marks = {b"\x1a\x2b\x3c\x4d": ">", b"\x4d\x3c\x2b\x1a": "<"}
            order = marks.get(bytes(data[at + 8 : at + 12]), "")
            interfaces = []
            if not order:
                index.warnings.append(f"the capture is broken: a section of unknown byte order at byte {at}")
                return
        kind, size = struct.unpack_from(order + "II", data, at)
        if size < 12 or size % 4:
            index.warnings.append(f"the capture is broken: a block of {size} bytes at byte {at}")
            return
        if at + size > end:
            index.warnings.append(f"the capture breaks off in a block, at byte {end}")
            return
        body = data[at + 8 : at + size - 4]
        try:
            _block(kind, body, at + 8, order, interfaces, index)
        except (struct.error, IndexError):
            index.skipped["broken pcapng block"] = index.skipped.get("broken pcapng block", 0) + 1
        at += size


def _block(
    kind: int, body: memoryview, at: int, order: str, interfaces: list[_Interface], index: _Index
) -> None:
    """One block of a pcapng file, its body at byte `at`. Raises struct.error or IndexError if broken."""
    if kind == 1:
        interfaces.append(_interface(body, order))
        index.units(interfaces[-1].per_second)
    elif kind in (2, 6):  # packet (old) and enhanced packet: the same but for the interface's width
        number, high, low, size, _ = struct.unpack_from(order + "IIIII", body, 0)
        if kind == 2:  # 16 bits of interface, 16 of drops
            number = struct.unpack_from(order + "H", body, 0)[0]
        source = interfaces[number]
        if 20 + size > len(body):
            raise IndexError
        stamp = (high << 32 | low) * NS // source.per_second + source.offset_ns
        index.add(at + 20, size, stamp, source.link)
    elif kind == 3:
        reason = "frame without a stamp (simple packet block)"
        index.skipped[reason] = index.skipped.get(reason, 0) + 1


def _interface(body: memoryview, order: str) -> _Interface:
    link = struct.unpack_from(order + "H", body, 0)[0]
    per_second, offset_ns, at = 1_000_000, 0, 8
    while at + 4 <= len(body):
        code, size = struct.unpack_from(order + "HH", body, at)
        value = bytes(body[at + 4 : at + 4 + size])
        if code == 0:
            break
        if code == 9 and size:  # if_tsresol: a power of 10, or of 2 if the high bit is set
            per_second = 2 ** (value[0] & 0x7F) if value[0] & 0x80 else 10 ** value[0]
        elif code == 14 and size >= 8:  # if_tsoffset
            offset_ns = struct.unpack_from(order + "q", value)[0] * NS
        at += 4 + size + -size % 4
    return _Interface(link, per_second, offset_ns)


# What is in the frames.


class Outer(NamedTuple):
    """Where a frame's UDP payload is, and between whom it went."""

    src: Field
    dst: Field
    port: Field
    begin: int
    end: int


class Payloads(NamedTuple):
    """UDP payloads of a block of frames, in order: data[at : at + size]; addresses as two u64."""

    frame: I64
    at: I64
    size: I64
    src: Array  # (2, n) u64
    dst: Array  # (2, n) u64
    port: I64


_IP_LINKS: Final = (12, 14, 101, 228, 229)
_MAPPED: Final = np.uint64(0xFFFF) << np.uint64(32)  # ::ffff:a.b.c.d


def outer(scan: Scan, link: int) -> Outer | str:
    """The UDP of a frame of this link type, or why there is none."""
    try:
        packet = _packet(scan, link)
    except MalformedInput:
        return "not IP"
    if packet is None:
        return f"link type {link}"
    if packet.src is None or packet.dst is None:
        return "not IP"
    if packet.protocol != UDP:
        return "not UDP"
    if packet.dport is None or packet.payload is None or packet.transport is None:
        return "IP fragment or cut"
    if packet.src.bits == 32 and not scan.equals(field(packet.begin + 6, 1, 2), 0):
        return "IP fragment or cut"  # the first fragment: the rest of the datagram is elsewhere
    length = scan.value(field(packet.transport + 4, 16))
    if length < 8:
        return "broken UDP"
    return Outer(
        packet.src, packet.dst, packet.dport, packet.payload, min(packet.end, packet.transport + length)
    )


def _packet(scan: Scan, link: int) -> Packet | None:
    """The packet in a frame; None for a link type that is not read."""
    end = len(scan.data)
    if link == 1:
        return of_type(scan, 0, end, ETHERNET)
    if link in _IP_LINKS:
        begin = 0
    elif link in (0, 108):
        begin = 4
    elif link == 113:
        begin = 16
    elif link == 276:
        begin = 20
    else:
        return None
    scan.need(begin, 1, "the frame")
    return of_type(scan, begin, end, IPV6 if scan.value(field(begin, 4)) == 6 else IPV4)


class Frames:
    """Finds the UDP payloads in frames. Remembers their layouts."""

    def __init__(self) -> None:
        self._readers: dict[int, Reader[Outer | str]] = {}

    def payloads(self, capture: Capture, begin: int, end: int, skipped: dict[str, int]) -> Payloads:
        """UDP payloads of the frames `begin` to `end` of a capture; what has none is counted in `skipped`."""
        parts: list[Payloads] = []
        chosen = slice(begin, end)
        links = capture.link[chosen]
        for link in np.unique(links).tolist():
            frames = np.flatnonzero(links == link)
            reader = self._readers.setdefault(link, Reader(partial(outer, link=link)))
            at = capture.at[chosen][frames]
            for layout, places, rows in reader.read(capture.data, at, capture.size[chosen][frames], {}):
                if isinstance(layout, str):
                    skipped[layout] = skipped.get(layout, 0) + rows.count
                    continue
                size = np.full(rows.count, layout.end - layout.begin, np.int64)
                src, dst = (_address(rows, where) for where in (layout.src, layout.dst))
                port = rows.take(layout.port).astype(np.int64)
                parts.append(Payloads(frames[places], at[places] + layout.begin, size, src, dst, port))
        if len(parts) == 1:
            return parts[0]
        none, pair = np.empty(0, np.int64), np.empty((2, 0), np.uint64)
        parts.append(Payloads(none, none, none, pair, pair, none))
        order = np.argsort(np.concatenate([part.frame for part in parts]), kind="stable")
        columns = (np.concatenate(column, axis=-1)[..., order] for column in zip(*parts, strict=True))
        return Payloads(*columns)


def _address(rows: Rows, where: Field) -> Array:
    """An address field as two words of 64 bits, IPv4 mapped into IPv6. Shape (2, count)."""
    take, out = rows.take, np.zeros((2, rows.count), np.uint64)
    if where.bits == 32:
        out[1] = _MAPPED | take(where)
    else:
        out[0], out[1] = take(Field(where.at, 64)), take(Field(where.at + 64, 64))
    return out
