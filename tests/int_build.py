"""Writes telemetry reports, INT headers, packets and captures, straight from the specification's tables.

Written apart from the parser, so that the tables here are a second reading of the text. Hops are mappings of
column names to numbers; what a mapping lacks is written as all-ones ("not available").
"""

import struct
from collections.abc import Mapping, Sequence
from ipaddress import ip_address
from typing import Any

import numpy as np

from producers.int.decode import Decoder, Hops
from producers.int.dialect import SPEC, Dialect

Hop = Mapping[str, int]

# name and width in bits of what each instruction bit writes, by INT version
WORDS: dict[int, dict[int, list[tuple[str, int]]]] = {
    5: {0: [("node", 32)], 1: [("in_port", 16), ("out_port", 16)], 2: [("latency", 32)],
        3: [("queue", 8), ("occupancy", 24)], 4: [("ingress_ts", 32)], 5: [("egress_ts", 32)],
        6: [("queue", 8), ("congestion", 24)], 7: [("tx_util", 32)], 15: [("checksum", 32)]},
    10: {0: [("node", 32)], 1: [("in_port", 16), ("out_port", 16)], 2: [("latency", 32)],
         3: [("queue", 8), ("occupancy", 24)], 4: [("ingress_ts", 32)], 5: [("egress_ts", 32)],
         6: [("in_logical", 32), ("out_logical", 32)], 7: [("tx_util", 32)], 15: [("checksum", 32)]},
    20: {0: [("node", 32)], 1: [("in_port", 16), ("out_port", 16)], 2: [("latency", 32)],
         3: [("queue", 8), ("occupancy", 24)], 4: [("ingress_ts", 64)], 5: [("egress_ts", 64)],
         6: [("in_logical", 32), ("out_logical", 32)], 7: [("tx_util", 32)],
         8: [("buffer", 8), ("buffer_occupancy", 24)], 15: [("checksum", 32)]},
}  # fmt: skip
REPORT_10 = [
    [("in_port", 16), ("out_port", 16)], [("latency", 32)], [("queue", 8), ("occupancy", 24)],
    [("egress_ts", 32)], [("queue", 8), ("drop_reason", 8), ("pad", 16)], [("tx_util", 32)],
]  # fmt: skip
REPORT_20 = {
    **{bit: WORDS[20][bit] for bit in range(1, 9)},
    15: [("queue", 8), ("drop_reason", 8), ("pad", 16)],
}


def bitmap(*bits: int) -> int:
    """A 16-bit instruction bitmap; bit 0 is the most significant."""
    return sum(0x8000 >> bit for bit in bits)


def write(hop: Hop, parts: Sequence[tuple[str, int]]) -> bytes:
    value, width = 0, 0
    for name, bits in parts:
        value, width = value << bits | hop.get(name, (1 << bits) - 1), width + bits
    return value.to_bytes(width // 8, "big")


def slice_of(hop: Hop, bits: int, version: int, domain: bytes = b"") -> bytes:
    """One hop's slice: baseline, domain-specific words, checksum complement."""
    table = WORDS[version]
    out = b"".join(write(hop, table[bit]) for bit in range(15) if bits & 0x8000 >> bit)
    return out + domain + (write(hop, table[15]) if bits & 1 else b"")


def stack_of(hops: Sequence[Hop], bits: int, version: int, domain: bytes = b"") -> bytes:
    return b"".join(slice_of(hop, bits, version, domain) for hop in hops)


def md_05(hops: Sequence[Hop], bits: int, *, next_proto: int = 6, dport: int = 80) -> bytes:
    """Shim, header, stack and tail of INT 0.5 over TCP or UDP."""
    stack = stack_of(hops, bits, 5)
    shim = struct.pack(">BBBB", 1, 0, (16 + len(stack)) // 4, 0)
    header = struct.pack(">BBBBHH", 0, bits.bit_count(), 8, len(hops), bits, 0)
    return shim + header + stack + struct.pack(">BHB", next_proto, dport, 0)


def header_10(hops: Sequence[Hop], bits: int, flags: int = 0) -> bytes:
    words = len(slice_of({}, bits, 10)) // 4
    return struct.pack(">IHH", 1 << 28 | flags << 23 | words << 8 | 5, bits, 0) + stack_of(hops, bits, 10)


def md_10(hops: Sequence[Hop], bits: int) -> bytes:
    """Shim, header and stack of INT 1.0 over TCP or UDP."""
    body = header_10(hops, bits)
    return struct.pack(">BBBB", 1, 0, (4 + len(body)) // 4, 0) + body


def header_20(
    hops: Sequence[Hop], bits: int, *, domain_id: int = 0, domain: bytes = b"", source_only: bytes = b""
) -> bytes:
    words = len(slice_of({}, bits, 20, domain)) // 4
    header = struct.pack(">IHHHH", 2 << 28 | words << 8 | 7, bits, domain_id, 0x8000 if domain else 0, 0)
    return header + stack_of(hops, bits, 20, domain) + source_only


def md_20(
    hops: Sequence[Hop], bits: int, *, kind: int = 1, npt: int = 0, rest: int = 0, **more: Any
) -> bytes:
    """Shim, header and stack of INT 2.x over TCP or UDP. `rest`: the shim's last 16 bits."""
    body = header_20(hops, bits, **more)
    return struct.pack(">BBH", kind << 4 | npt << 2, len(body) // 4, rest) + body


def udp(payload: bytes, sport: int = 4000, dport: int = 5000) -> bytes:
    return struct.pack(">HHHH", sport, dport, 8 + len(payload), 0) + payload


def tcp(payload: bytes, sport: int = 4000, dport: int = 5000, options: bytes = b"") -> bytes:
    words = 5 + len(options) // 4
    return struct.pack(">HHIIBBHHH", sport, dport, 1, 1, words << 4, 16, 100, 0, 0) + options + payload


def ipv4(
    payload: bytes, proto: int = 17, src: str = "10.0.0.1", dst: str = "10.0.0.2", dscp: int = 0,
    options: bytes = b"", fragment: int = 0,
) -> bytes:  # fmt: skip
    words = 5 + len(options) // 4
    head = struct.pack(
        ">BBHHHBBH", 0x40 | words, dscp << 2, 4 * words + len(payload), 7, fragment, 64, proto, 0
    )
    return head + ip_address(src).packed + ip_address(dst).packed + options + payload


def ipv6(payload: bytes, proto: int = 17, src: str = "fd00::1", dst: str = "fd00::2", dscp: int = 0) -> bytes:
    head = struct.pack(">IHBB", 6 << 28 | dscp << 22, len(payload), proto, 64)
    return head + ip_address(src).packed + ip_address(dst).packed + payload


def ethernet(payload: bytes, kind: int = 0x0800, vlans: Sequence[int] = ()) -> bytes:
    tags = b"".join(struct.pack(">HH", 0x8100, vlan) for vlan in vlans)
    return bytes.fromhex("020000000001020000000002") + tags + struct.pack(">H", kind) + payload


def report_05(
    inner: bytes, *, flags: int = 4, hw_id: int = 1, seq: int = 7, stamp: int = 1000,
    drop: Hop | None = None, local: Hop | None = None,
) -> bytes:  # fmt: skip
    """Report 0.5. `flags`: 1 drop, 2 queue, 4 flow."""
    following = 1 if drop is not None else 2 if local is not None else 0
    bits = (flags & 1) << 31 | (flags >> 1 & 1) << 30 | (flags >> 2 & 1) << 29
    word = following << 24 | bits >> 8 | hw_id
    out = struct.pack(">III", word, seq, stamp)
    if drop is not None:
        out += write(drop, [("node", 32), ("in_port", 16), ("out_port", 16)])
        out += write(drop, [("queue", 8), ("drop_reason", 8), ("pad", 16)])
    if local is not None:
        out += write(local, [("node", 32), ("in_port", 16), ("out_port", 16)])
        out += write(local, [("queue", 8), ("occupancy", 24), ("egress_ts", 32)])
    return out + inner


def report_10(
    inner: bytes, *, node: int, bits: int = 0, own: Hop | None = None, flags: int = 4, hw_id: int = 1,
    seq: int = 7, stamp: int = 1000, proto: int = 0, length: int | None = None,
) -> bytes:  # fmt: skip
    """Report 1.0. `bits`: the six metadata bits, b0 the most significant."""
    optional = b"".join(
        write(own or {}, parts) for number, parts in enumerate(REPORT_10) if bits & 32 >> number
    )
    words = 4 + len(optional) // 4 if length is None else length
    reasons = (flags & 1) << 8 | (flags >> 1 & 1) << 7 | (flags >> 2 & 1) << 6
    word = 1 << 28 | words << 24 | proto << 21 | bits << 15 | reasons | hw_id
    return struct.pack(">IIII", word, node, seq, stamp) + optional + inner


def individual(
    inner: bytes, *, kind: int = 1, inner_type: int = 3, bits: int = 0, own: Hop | None = None,
    flags: int = 4, domain: bytes = b"", domain_id: int = 0, length: int | None = None,
    md_length: int | None = None,
) -> bytes:  # fmt: skip
    """One report of a 2.0 datagram. `flags`: 1 drop, 2 queue, 4 flow, 8 intermediate."""
    main = b""
    metadata = b""
    if kind == 1:
        metadata = b"".join(write(own or {}, REPORT_20[bit]) for bit in range(16) if bits & 0x8000 >> bit)
        metadata += domain
        main = struct.pack(">HHHH", bits, domain_id, 0x8000 if domain else 0, 0)
    pad = -(len(inner)) % 4
    body = main + metadata + inner + bytes(pad)
    words = len(body) // 4 if length is None else length
    md_words = len(metadata) // 4 if md_length is None else md_length
    reasons = sum(0x80 >> bit for bit in range(4) if flags >> bit & 1)
    return struct.pack(">BBBB", kind << 4 | inner_type, words, md_words, reasons) + body


def report_20(*reports: bytes, node: int, hw_id: int = 1, seq: int = 7, version: int = 2) -> bytes:
    return struct.pack(">II", version << 28 | hw_id << 22 | seq, node) + b"".join(reports)


def frame(payload: bytes, *, port: int = 9000, src: str = "10.9.0.1", dst: str = "10.9.0.9") -> bytes:
    """A report's datagram as an Ethernet frame."""
    inner = udp(payload, 50000, port)
    if ip_address(src).version == 6:
        return ethernet(ipv6(inner, src=src, dst=dst), 0x86DD)
    return ethernet(ipv4(inner, src=src, dst=dst))


def pcap(frames: Sequence[tuple[int, bytes]], *, order: str = "<", ns: bool = False, link: int = 1) -> bytes:
    """A capture of (ns, frame)."""
    out = struct.pack(order + "IHHiIII", 0xA1B23C4D if ns else 0xA1B2C3D4, 2, 4, 0, 0, 65535, link)
    for stamp, data in frames:
        rest = stamp % 10**9 // (1 if ns else 1000)
        out += struct.pack(order + "IIII", stamp // 10**9, rest, len(data), len(data)) + data
    return out


def pcapng(
    frames: Sequence[tuple[int, bytes]], *, order: str = "<", resolution: int = 9, link: int = 1
) -> bytes:
    """The same as pcapng; `resolution` as in if_tsresol."""

    def block(kind: int, body: bytes) -> bytes:
        body += bytes(-len(body) % 4)
        size = 12 + len(body)
        return struct.pack(order + "II", kind, size) + body + struct.pack(order + "I", size)

    out = block(0x0A0D0D0A, struct.pack(order + "IHHq", 0x1A2B3C4D, 1, 0, -1))
    option = struct.pack(order + "HHB3xHH", 9, 1, resolution, 0, 0)
    out += block(1, struct.pack(order + "HHI", link, 0, 65535) + option)
    per_second = 2 ** (resolution & 0x7F) if resolution & 0x80 else 10**resolution
    for stamp, data in frames:
        units = stamp * per_second // 10**9
        head = struct.pack(order + "IIIII", 0, units >> 32, units & 0xFFFFFFFF, len(data), len(data))
        out += block(6, head + data)
    return out


def decode(payloads: Sequence[bytes], dialect: Dialect = SPEC, decoder: Decoder | None = None) -> Hops:
    """Datagrams through the block decoder."""
    size = np.array([len(payload) for payload in payloads], np.int64)
    at = np.cumsum(size) - size
    return (decoder or Decoder(dialect)).decode(np.frombuffer(b"".join(payloads), np.uint8), at, size)


def rows(hops: Hops) -> list[dict[str, int]]:
    """Rows as mappings without nulls and without what all tests would repeat."""
    out = []
    for number in range(len(hops)):
        row = {}
        for name, values in hops.columns.items():
            if values[number] != np.iinfo(values.dtype).max:
                row[name] = int(values[number])
        out.append(row)
    return out


def only(row: Mapping[str, int], *names: str) -> dict[str, int]:
    return {name: row[name] for name in names if name in row}
