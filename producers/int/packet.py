"""The packet inside a report, as far as its flow and the place of its INT headers are concerned.

The packet may be cut by the reporting switch: its own length field then says more than is there. What must be
there is the header that names its type; without it the bytes are no packet.
"""

from typing import NamedTuple

from producers.int.layout import Cut, Field, Scan, field
from schemas.errors import MalformedInput

ETHERNET, IPV4, IPV6 = "Ethernet", "IPv4", "IPv6"
TCP, UDP, GRE = 6, 17, 47
_TAGS = (0x8100, 0x88A8, 0x9100)
_MPLS = (0x8847, 0x8848)
# Other types of frame that switches report: ARP, LACP, PAUSE, LLDP, PTP, RoCEv1, MACsec, PPPoE, EAPOL.
_OTHER = (0x0806, 0x8809, 0x8808, 0x88CC, 0x88F7, 0x8915, 0x88E5, 0x8863, 0x8864, 0x888E)
# What is seen behind IPv6 headers: extensions, and TCP, UDP, ICMPv6, tunnels, ESP, none, OSPF, PIM, SCTP...
_FOLLOW_IPV6 = (
    0, 4, 6, 17, 41, 43, 44, 46, 47, 50, 51, 58, 59, 60, 88, 89, 103, 112, 115, 132, 135, 136, 137, 139, 140,
    253, 254,
)  # fmt: skip
_EXTENSIONS = (0, 43, 60, 135, 139, 140)  # IPv6 headers of 8 + 8·n bytes that lead to another


class Packet(NamedTuple):
    """Where a packet's parts are. No addresses: it is no IP packet. No `payload`: no TCP or UDP header."""

    begin: int  # of the IP header, or of the frame
    end: int  # behind its last byte that is there
    cut: bool  # it was longer
    src: Field | None = None  # 32 or 128 bits
    dst: Field | None = None
    protocol: int | None = None
    length: Field | None = None  # IPv4's total or IPv6's payload length
    dscp: Field | None = None
    sport: Field | None = None
    dport: Field | None = None
    transport: int | None = None  # byte behind the IP headers; None in a later fragment
    payload: int | None = None  # byte behind the TCP or UDP header


def read(scan: Scan, begin: int, end: int, told: str, options_first: bool = True) -> tuple[Packet, bool]:
    """The packet at `begin` and whether it is of the type that the report told; if not, it is what it looks.

    Raises MalformedInput if the bytes are no packet of any type.
    """
    try:
        return of_type(scan, begin, end, told, options_first), True
    except MalformedInput as first:
        for other in (ETHERNET, IPV4, IPV6):
            if other == told:
                continue
            try:
                packet = of_type(scan, begin, end, other, options_first)
            except MalformedInput:
                continue
            # Four bits make an IP header of much: against the report's word, its length must agree as well.
            if other == ETHERNET or (not packet.cut and end - packet.end < 4):
                return packet, False
        raise first


def of_type(scan: Scan, begin: int, end: int, kind: str, options_first: bool = True) -> Packet:
    """The packet of this type at `begin`. Raises MalformedInput if it is none."""
    if kind == ETHERNET:
        return _ethernet(scan, begin, end, options_first)
    return _ip(scan, begin, end, 4 if kind == IPV4 else 6, options_first)


def _ethernet(scan: Scan, begin: int, end: int, options_first: bool) -> Packet:
    at = begin + 12
    if at + 2 > end:
        raise Cut("the Ethernet header is cut", f"byte {end}")
    kind = scan.value(field(at, 16))
    at += 2
    for _ in range(4):
        if kind not in _TAGS:
            break
        if at + 4 > end:
            raise Cut("the VLAN tag is cut", f"byte {end}")
        kind = scan.value(field(at + 2, 16))
        at += 4
    if kind in _MPLS:
        for _ in range(8):
            if at + 4 > end:
                raise Cut("the MPLS label is cut", f"byte {end}")
            at += 4
            if scan.value(field(at - 2, 1, 7)):
                break
        if at >= end:
            raise Cut("the packet under MPLS is cut", f"byte {end}")
        return _ip(scan, at, end, scan.value(field(at, 4)), options_first)
    if kind == 0x0800:
        return _ip(scan, at, end, 4, options_first)
    if kind == 0x86DD:
        return _ip(scan, at, end, 6, options_first)
    if kind in _OTHER:
        return Packet(begin, end, False)
    raise MalformedInput(f"no packet that is known: EtherType {kind:#06x}", f"byte {at - 2}")


def _ip(scan: Scan, begin: int, end: int, version: int, options_first: bool) -> Packet:
    if version == 4:
        return _ipv4(scan, begin, end, options_first)
    if version == 6:
        return _ipv6(scan, begin, end, options_first)
    raise MalformedInput(f"no IP header: version {version}", f"byte {begin}")


def _ipv4(scan: Scan, begin: int, end: int, options_first: bool) -> Packet:
    if begin + 20 > end:
        raise Cut("the IPv4 header is cut", f"byte {end}")
    version, words = scan.value(field(begin, 4)), scan.value(field(begin, 4, 4))
    if version != 4 or words < 5:
        raise MalformedInput(f"no IPv4 header: version {version}, {words} words", f"byte {begin}")
    if begin + 4 * words > end:
        raise Cut("the IPv4 options are cut", f"byte {end}")
    length = field(begin + 2, 16)
    if not scan.least(length, 4 * words):
        raise MalformedInput("an IPv4 packet shorter than its header", f"byte {begin + 2}")
    cut, end = _end(scan, length, 0, begin, end)
    packet = Packet(
        begin, end, cut,
        src=field(begin + 12, 32), dst=field(begin + 16, 32), protocol=scan.value(field(begin + 9, 8)),
        length=length, dscp=field(begin + 1, 6),
    )  # fmt: skip
    if not scan.equals(field(begin + 6, 13, 3), 0):
        return packet
    return _transport(scan, packet._replace(transport=begin + 4 * words), options_first)


def _ipv6(scan: Scan, begin: int, end: int, options_first: bool) -> Packet:
    if begin + 40 > end:
        raise Cut("the IPv6 header is cut", f"byte {end}")
    version = scan.value(field(begin, 4))
    if version != 6:
        raise MalformedInput(f"no IPv6 header: version {version}", f"byte {begin}")
    length = field(begin + 4, 16)
    cut, end = _end(scan, length, 40, begin, end)
    packet = Packet(
        begin, end, cut,
        src=field(begin + 8, 128), dst=field(begin + 24, 128), length=length, dscp=field(begin, 6, 4),
    )  # fmt: skip
    at, kind = begin + 40, scan.value(field(begin + 6, 8))
    if kind not in _FOLLOW_IPV6:
        raise MalformedInput(f"no IPv6 header: next header {kind}", f"byte {begin + 6}")
    for _ in range(8):
        if kind == 44 and at + 8 <= end:  # fragment: only the first holds the next header's beginning
            if not scan.equals(field(at + 2, 13), 0):
                return packet._replace(protocol=scan.value(field(at, 8)))
            size = 8
        elif kind in _EXTENSIONS and at + 8 <= end:
            size = 8 + 8 * scan.value(field(at + 1, 8))
        elif kind == 51 and at + 8 <= end:
            size = 8 + 4 * scan.value(field(at + 1, 8))
        else:
            break
        kind = scan.value(field(at, 8))
        at += size
    packet = packet._replace(protocol=kind)
    if at > end or kind in (*_EXTENSIONS, 44, 51):
        return packet
    return _transport(scan, packet._replace(transport=at), options_first)


def _end(scan: Scan, length: Field, more: int, begin: int, end: int) -> tuple[bool, int]:
    """Whether an IP packet was cut, and the byte behind what is left of it.

    The exact length matters only where bytes follow the packet; where it fills the space or is cut, packets
    of all lengths look alike.
    """
    there = end - begin - more
    if scan.least(length, there):
        return scan.least(length, there + 1), end
    return False, begin + more + scan.value(length)


def _transport(scan: Scan, packet: Packet, options_first: bool) -> Packet:
    at = packet.transport
    assert at is not None
    if packet.protocol not in (TCP, UDP) or at + 4 > packet.end:
        return packet
    packet = packet._replace(sport=field(at, 16), dport=field(at + 2, 16))
    size = 8
    if packet.protocol == TCP:
        if at + 20 > packet.end:
            return packet
        size = 4 * scan.value(field(at + 12, 4)) if options_first else 20
        if size < 20:
            return packet
    if at + size > packet.end:
        return packet
    return packet._replace(payload=at + size)
