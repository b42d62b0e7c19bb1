"""A second decoder of reports, with nothing but the specification and `struct`: slow, strict, obvious.

It reads reports 0.5, 1.0 and 2.0 with INT-MD over TCP or UDP in Ethernet or IPv4, without VLAN, options or
tolerance. Whatever is not exactly so gives None: no opinion.
"""

import struct

from tests.int_build import REPORT_10, REPORT_20, WORDS

Row = dict[str, int]


class Strange(Exception):
    """Not a plain report by the book."""


def want(condition: bool) -> None:
    if not condition:
        raise Strange


class Bytes:
    """Bytes taken from the front."""

    def __init__(self, data: bytes) -> None:
        self.left = data

    def take(self, count: int) -> bytes:
        want(len(self.left) >= count)
        out, self.left = self.left[:count], self.left[count:]
        return out

    def number(self, count: int) -> int:
        return int.from_bytes(self.take(count), "big")


def fields(data: Bytes, parts: list[tuple[str, int]]) -> Row:
    """Named numbers of so many bits each; all-ones are left out."""
    width = sum(bits for _, bits in parts)
    whole, out = data.number(width // 8), {}
    for name, bits in parts:
        width -= bits
        value = whole >> width & (1 << bits) - 1
        if value != (1 << bits) - 1 and name not in ("pad", "checksum"):
            out[name] = value
    return out


def decode(payload: bytes) -> list[list[Row]] | None:
    """Rows of each report, newest hop first; None where there is anything that is not by the book."""
    try:
        return _datagram(Bytes(payload))
    except Strange:
        return None


def _datagram(data: Bytes) -> list[list[Row]]:
    want(len(data.left) >= 12)
    version = data.left[0] >> 4
    if version == 0:
        return [_report_05(data)]
    if version == 1:
        return [_report_10(data)]
    want(version == 2)
    data.take(4)
    node = data.number(4)
    out = []
    while data.left:
        out.append(_individual(data, node))
    want(bool(out))
    return out


def _report_05(data: Bytes) -> list[Row]:
    word, _, stamp = struct.unpack(">III", data.take(12))
    following, flow = word >> 24 & 15, word >> 21 & 1
    want(following <= 2 and word & 0x1FFFC0 == 0 and bool(word >> 21 & 7))
    own: Row = {"ingress_ts": stamp}
    if following:
        own |= fields(data, [("node", 32), ("in_port", 16), ("out_port", 16)])
        own |= fields(
            data,
            [("queue", 8), ("drop_reason", 8), ("pad", 16)]
            if following == 1
            else [("queue", 8), ("occupancy", 24), ("egress_ts", 32)],
        )
    hops = _int(_ethernet(data.left), flow)
    return _path(own, bool(following), bool(word >> 23 & 1), hops)


def _report_10(data: Bytes) -> list[Row]:
    word, node, _, stamp = struct.unpack(">IIII", data.take(16))
    length, proto, bits = word >> 24 & 15, word >> 21 & 7, word >> 15 & 63
    want(proto <= 1 and length == 4 + bits.bit_count() and word & 0x7E00 == 0 and word >> 6 & 7 > 0)
    own: Row = {"node": node, "ingress_ts": stamp}
    for number, parts in enumerate(REPORT_10):
        if bits & 32 >> number:
            own = {**fields(data, parts), **own}
    packet = _ethernet(data.left) if proto == 0 else _ipv4(data.left)
    return _path(own, bits > 0, bool(word >> 8 & 1), _int(packet, word >> 6 & 1))


def _individual(data: Bytes, node: int) -> list[Row]:
    kinds, length, metadata, reasons = data.take(4)
    kind, inner = kinds >> 4, kinds & 15
    want(kind <= 1 and inner in (3, 4) and 0 < length < 255 and reasons & 15 == 0 and reasons >> 5 > 0)
    body = Bytes(data.take(4 * length))
    own: Row = {"node": node}
    if kind == 1:
        bits, domain, domain_bits, _ = struct.unpack(">HHHH", body.take(8))
        want(domain == 0 == domain_bits)
        before = len(body.left)
        for bit in range(16):
            if bits & 0x8000 >> bit:
                want(bit in REPORT_20)
                own = {**fields(body, REPORT_20[bit]), **own}
        want(before - len(body.left) == 4 * metadata)
    else:
        want(metadata == 0)
    packet = _ethernet(body.left) if inner == 3 else _ipv4(body.left)
    return _path(own, len(own) > 1 or metadata > 0, bool(reasons >> 7), _int(packet, reasons >> 5 & 1))


def _path(own: Row, has_own: bool, dropped: bool, hops: list[Row]) -> list[Row]:
    if not (has_own or dropped or not hops):
        return hops
    if hops and "node" in own and hops[0].get("node") == own["node"]:
        return [{**own, **hops[0]}, *hops[1:]]
    return [own, *hops]


def _ethernet(frame: bytes) -> tuple[int, bytes]:
    want(len(frame) >= 14 and frame[12:14] == b"\x08\x00")
    return _ipv4(frame[14:])


def _ipv4(packet: bytes) -> tuple[int, bytes]:
    """Protocol and what the IP header is followed by."""
    want(len(packet) >= 20 and packet[0] == 0x45 and packet[6] & 0x3F == 0 and packet[7] == 0)
    length = int.from_bytes(packet[2:4], "big")
    want(20 <= length <= len(packet))
    return packet[9], packet[20:length]


def _int(packet: tuple[int, bytes], flow: int) -> list[Row]:
    """Hops of INT-MD behind TCP or UDP; a tracked packet must carry them, another must not."""
    proto, segment = packet
    if not flow:
        return []
    want(proto in (6, 17) and len(segment) >= (20 if proto == 6 else 8))
    want(proto == 6 or segment[2:4] not in (b"\x17\xc1", b"\x12\xb5", b"\x12\xb6"))  # Geneve, VXLAN
    data = Bytes(segment[4 * (segment[12] >> 4) if proto == 6 else 8 :])
    want(proto == 17 or segment[12] >> 4 >= 5)
    first, second, third, _ = data.take(4)
    if first == 1:  # 0.5 or 1.0
        want(data.left[:1] != b"" and data.left[0] >> 4 in (0, 1))
        version = 5 if data.left[0] >> 4 == 0 else 10
        rest = Bytes(data.take(4 * third - 4 if third else 0))
    else:
        want(first == 0x10)
        version, rest = 20, Bytes(data.take(4 * second))
    head, bits, domain = struct.unpack(">IHH", rest.take(8))
    want(head >> 28 == {5: 0, 10: 1, 20: 2}[version])
    if version == 20:
        want(rest.number(4) == 0 and domain == 0 and head & 0x07FFE000 == 0)
    elif version == 10:
        want(head & 0x007FE000 == 0)
    else:
        want(head & 0x00E00000 == 0)
        rest = Bytes(rest.left[: len(rest.left) - 4] if len(rest.left) >= 4 else b"x")
    words = head >> 16 & 31 if version == 5 else head >> 8 & 31
    want(words > 0 and len(rest.left) % (4 * words) == 0)
    want(all(bit in WORDS[version] for bit in range(16) if bits & 0x8000 >> bit))
    hops = []
    while rest.left:
        part, hop = Bytes(rest.take(4 * words)), Row()
        for bit in range(16):
            if bits & 0x8000 >> bit:
                hop = {**fields(part, WORDS[version][bit]), **hop}
        want(not part.left)
        hops.append(hop)
    return hops
