"""INT headers inside a packet: the shim, the instructions and the stack of hops, as places of fields.

A hop's slice is as many words as the header says, in the order of the instruction bits: baseline words, then
domain-specific ones, the checksum complement last. The newest hop comes first. All-ones: "not available".
"""

from typing import NamedTuple

from producers.int.dialect import Dialect
from producers.int.layout import Cut, Field, Scan, field
from producers.int.packet import GRE, TCP, UDP, Packet
from schemas.columns import IntWarning
from schemas.errors import MalformedInput

NO_WARNING = IntWarning(0)
MD, DESTINATION, MX = 1, 2, 3  # types of shim
VXLAN_INT = {0x05: False, 0x08: False, 0x80: True, 0x82: True}  # next protocol: whether INT is 2.x


class Entry(NamedTuple):
    """What one instruction bit adds to a slice: its words, and (column, first bit, bits) in them."""

    words: int
    fields: tuple[tuple[str, int, int], ...] = ()


_PORTS = Entry(1, (("in_port", 0, 16), ("out_port", 16, 16)))
_LATENCY = Entry(1, (("latency", 0, 32),))
_QUEUE = Entry(1, (("queue", 0, 8), ("occupancy", 8, 24)))
_DROP = Entry(1, (("queue", 0, 8), ("drop_reason", 8, 8)))
_UTIL = Entry(1, (("tx_util", 0, 32),))
_NODE = Entry(1, (("node", 0, 32),))
_LOGICAL = Entry(2, (("in_logical", 0, 32), ("out_logical", 32, 32)))
_CHECKSUM = Entry(1)
_INGRESS_32, _EGRESS_32 = Entry(1, (("ingress_ts", 0, 32),)), Entry(1, (("egress_ts", 0, 32),))
_INGRESS_64, _EGRESS_64 = Entry(2, (("ingress_ts", 0, 64),)), Entry(2, (("egress_ts", 0, 64),))
_BUFFER = Entry(1, (("buffer", 0, 8), ("buffer_occupancy", 8, 24)))

# Instruction bits by INT version (times ten); bit 0 is the most significant.
INSTRUCTIONS: dict[int, dict[int, Entry]] = {
    5: {
        0: _NODE, 1: _PORTS, 2: _LATENCY, 3: _QUEUE, 4: _INGRESS_32, 5: _EGRESS_32,
        6: Entry(1, (("queue", 0, 8), ("congestion", 8, 24))), 7: _UTIL, 15: _CHECKSUM,
    },
    10: {
        0: _NODE, 1: _PORTS, 2: _LATENCY, 3: _QUEUE, 4: _INGRESS_32, 5: _EGRESS_32,
        6: _LOGICAL, 7: _UTIL, 15: _CHECKSUM,
    },
    20: {
        0: _NODE, 1: _PORTS, 2: _LATENCY, 3: _QUEUE, 4: _INGRESS_64, 5: _EGRESS_64,
        6: _LOGICAL, 7: _UTIL, 8: _BUFFER, 15: _CHECKSUM,
    },
}  # fmt: skip
# Bits of the metadata in a report itself, by report version.
REPORT_10: dict[int, Entry] = {0: _PORTS, 1: _LATENCY, 2: _QUEUE, 3: _EGRESS_32, 4: _DROP, 5: _UTIL}
REPORT_20: dict[int, Entry] = {
    1: _PORTS, 2: _LATENCY, 3: _QUEUE, 4: _INGRESS_64, 5: _EGRESS_64, 6: _LOGICAL, 7: _UTIL, 8: _BUFFER,
    15: _DROP,
}  # fmt: skip


class HopLayout(NamedTuple):
    """One hop's bytes and where its numbers are in them. `int_version` None: the report's own metadata."""

    at: int
    size: int
    fields: tuple[tuple[str, Field], ...]
    int_version: int | None


class Embedded(NamedTuple):
    """INT headers found in a packet. Where INT replaced a port or protocol, what the packet had before."""

    hops: tuple[HopLayout, ...]
    version: int
    warnings: IntWarning
    sport: Field | None = None
    dport: Field | None = None
    protocol: int | None = None
    redirected: bool = False


def slice_fields(
    bitmap: int, width: int, table: dict[int, Entry], at: int
) -> tuple[int, tuple[tuple[str, Field], ...], bool]:
    """Words that a bitmap of `width` bits asks for, fields from byte `at` on, and whether a bit is unknown.

    An unknown instruction is one word, which nobody reads (the specification makes nodes fill it). A name may
    come twice, as the queue id of occupancy and of congestion: the first that is available counts.
    """
    words, unknown = 0, False
    fields: list[tuple[str, Field]] = []
    for bit in range(width):
        if bitmap >> (width - 1 - bit) & 1:
            entry = table.get(bit)
            if entry is None:
                words, unknown = words + 1, True
                continue
            fields += [(name, field(at + 4 * words, bits, skip)) for name, skip, bits in entry.fields]
            words += entry.words
    return words, tuple(fields), unknown


def find(scan: Scan, packet: Packet, dialect: Dialect) -> Embedded | None:
    """INT headers in the packet, or None.

    Raises MalformedInput where a signal says that INT is there and it can't be read, Cut where its beginning
    is there and consistent but not all of it.
    """
    if packet.protocol == GRE and dialect.gre_type is not None:
        return _gre(scan, packet, dialect.gre_type)
    at = packet.payload
    if at is None or packet.dport is None:
        return None
    if packet.protocol == UDP:
        if any(scan.equals(packet.dport, port) for port in dialect.udp_ports):
            found = _shim(scan, packet, at)
            return found._replace(redirected=True)
        if scan.equals(packet.dport, dialect.geneve_port):
            return _geneve(scan, packet, at, dialect.geneve_class)
        if any(scan.equals(packet.dport, port) for port in dialect.vxlan_ports):
            found_ = _vxlan(scan, packet, at)
            if found_ is not None:
                return found_
    if dialect.dscp is not None and packet.dscp is not None:
        wanted = dialect.dscp & dialect.dscp_mask
        if _masked(scan, packet.dscp, dialect.dscp_mask) == wanted:
            return _shim(scan, packet, at)
    if dialect.marker is not None and at + 8 <= packet.end and scan.equals(field(at, 64), dialect.marker):
        return _shim(scan, packet, at + 8)
    if dialect.signalled:
        return None
    try:
        return _shim(scan, packet, at, sure=False)
    except Cut:
        raise
    except MalformedInput:
        return None


def _masked(scan: Scan, place: Field, mask: int) -> int:
    """A field's bits under a mask, each asked for by itself."""
    value = 0
    for bit in range(place.bits):
        weight = 1 << (place.bits - 1 - bit)
        if mask & weight and scan.value(Field(place.at + bit, 1)):
            value |= weight
    return value


def _shim(scan: Scan, packet: Packet, at: int, sure: bool = True) -> Embedded:
    """INT over TCP or UDP, shim at byte `at`. Not `sure`: only its own consistency says that it is INT."""
    _whole(scan, packet, at, 4, "the INT shim", sure)
    kind = scan.value(field(at, 8))
    if kind < 16:  # 0.5 and 1.0: the type is a byte, the length counts the shim, and in 0.5 a tail
        found, end = _read(
            scan, packet, at + 4, at + 4 * scan.value(field(at + 2, 8)), kind, False, True, sure
        )
        if found.version == 5 and not scan.equals(field(end + 1, 16), 0):
            found = found._replace(dport=field(end + 1, 16))
        return found
    end = at + 4 + 4 * scan.value(field(at + 1, 8))
    found, end = _read(scan, packet, at + 4, end, kind >> 4, True, False, sure)
    placement = kind >> 2 & 3
    if placement == 1:
        return found._replace(dport=field(at + 2, 16), redirected=True)
    if placement == 2:
        protocol = scan.value(field(at + 3, 8))
        found = found._replace(protocol=protocol, redirected=True)
        if protocol in (TCP, UDP) and end + 4 <= packet.end:
            found = found._replace(sport=field(end, 16), dport=field(end + 2, 16))
    return found


def _vxlan(scan: Scan, packet: Packet, at: int) -> Embedded | None:
    """INT in VXLAN-GPE, VXLAN header at byte `at`: None where the next protocol is no INT."""
    if at + 8 > packet.end or not scan.value(field(at, 1, 5)):  # the flag "next protocol is given"
        return None
    following = scan.value(field(at + 3, 8))
    if following not in VXLAN_INT:
        return None
    at += 8
    _whole(scan, packet, at, 4, "the INT shim")
    if VXLAN_INT[following]:
        form, end = scan.value(field(at, 4)), at + 4 + 4 * scan.value(field(at + 1, 8))
    else:
        form, end = scan.value(field(at, 8)), at + 4 * scan.value(field(at + 2, 8))
    return _read(scan, packet, at + 4, end, form, VXLAN_INT[following])[0]


def _gre(scan: Scan, packet: Packet, gre_type: int) -> Embedded | None:
    """INT 2.x in GRE: None where the protocol type is another."""
    at = packet.transport
    if at is None or at + 4 > packet.end or not scan.equals(field(at + 2, 16), gre_type):
        return None
    # Checksum, key and sequence number take a word each where their flag is set.
    at += 4 + 4 * sum(scan.value(field(at, 1, bit)) for bit in (0, 2, 3))
    _whole(scan, packet, at, 4, "the INT shim")
    end = at + 4 + 4 * scan.value(field(at + 1, 8))
    return _read(scan, packet, at + 4, end, scan.value(field(at, 4)), True)[0]


def _geneve(scan: Scan, packet: Packet, at: int, geneve_class: int) -> Embedded | None:
    """INT as a Geneve option, Geneve header at byte `at`: None where there is no such option."""
    if at + 8 > packet.end:
        return None
    end = at + 8 + 4 * scan.value(field(at, 6, 2))
    at += 8
    while at + 4 <= min(end, packet.end):
        words = scan.value(field(at + 3, 5, 3))
        if scan.equals(field(at, 16), geneve_class):
            form = scan.value(field(at + 2, 8))
            _whole(scan, packet, at + 4, 8, "the INT header")
            new = scan.value(field(at + 4, 4)) == 2
            return _read(scan, packet, at + 4, at + 4 + 4 * words, form, new)[0]
        at += 4 + 4 * words
    return None


def _read(
    scan: Scan,
    packet: Packet,
    at: int,
    end: int,
    form: int,
    new: bool,
    tailed: bool = False,
    sure: bool = True,
) -> tuple[Embedded, int]:
    """INT from the header at byte `at` to byte `end`, and the byte behind its stack.

    `new`: what comes before it is of version 2.x. `tailed`: version 0.5 has a tail of 4 bytes before `end`.
    """
    if form not in ((MD, DESTINATION, MX) if new else (MD, DESTINATION)):
        raise MalformedInput(f"no INT: type {form}", f"byte {at - 4}")
    header = 12 if new else 8
    _whole(scan, packet, at, header, "the INT header", sure)
    version = {0: 5, 1: 10, 2: 20}.get(scan.value(field(at, 4)))
    if version is None or (version == 20) != new:
        raise MalformedInput("no INT header: another version than its shim", f"byte {at}")
    if end - at < header + (4 if tailed and version == 5 else 0):
        raise MalformedInput("INT's length is less than its header", f"byte {at}")
    skip, bits = {5: (8, 3), 10: (9, 10), 20: (7, 12)}[version]
    if not sure and scan.value(field(at, bits, skip)):
        raise MalformedInput("no INT header: reserved bits are set", f"byte {at}")
    if form == MD:
        stop = end - 4 if tailed and version == 5 else end
        hops, warnings = _stack(scan, at, stop, version)
    else:
        stop, hops = end, ()
        warnings = IntWarning.INT_UNKNOWN if form == DESTINATION else NO_WARNING
    _whole(scan, packet, at, end - at, "the INT stack")
    return Embedded(hops, version, warnings), stop


def _stack(scan: Scan, at: int, end: int, version: int) -> tuple[tuple[HopLayout, ...], IntWarning]:
    """The hops between the header at byte `at` and byte `end`, newest first."""
    header = 12 if version == 20 else 8
    words, rest = divmod(end - at - header, 4)
    assert not rest, "lengths of INT are whole words"
    bitmap = scan.value(field(at + 4, 16))
    needed, _, unknown = slice_fields(bitmap, 16, INSTRUCTIONS[version], 0)
    warnings = IntWarning.RESERVED if unknown else NO_WARNING
    total = None
    if version == 5:
        each, total = scan.value(field(at + 1, 5, 3)), scan.value(field(at + 3, 8))
        if each != needed and needed * total == words:
            each, warnings = needed, warnings | IntWarning.HOP_COUNT
        exceeded = scan.value(field(at, 1, 7))
    else:
        each = scan.value(field(at + 2, 5, 3))
        exceeded = scan.value(field(at, 2, 7 if version == 10 else 5))  # hops and MTU
    if exceeded:
        warnings |= IntWarning.HOPS_EXCEEDED
    if each < needed:
        raise MalformedInput(
            f"INT hops too short for their instructions: {each} words for {needed}", f"byte {at}"
        )
    if not each:
        if words:
            raise MalformedInput(f"INT stack without instructions: {words} words", f"byte {at}")
        return (), warnings
    count, extra = divmod(words, each)
    if extra and (version != 20 or scan.equals(field(at + 6, 16), 0)):
        # Only in a domain of its own may the source add words, behind the oldest slice.
        raise MalformedInput(f"INT stack not a whole number of hops: {words} words of {each}", f"byte {at}")
    if total is not None and total != count:
        warnings |= IntWarning.HOP_COUNT
    hops = []
    for number in range(count):
        begin = at + header + 4 * each * number
        size = 4 * (each + (extra if number == count - 1 else 0))
        fields = slice_fields(bitmap, 16, INSTRUCTIONS[version], begin)[1]
        hops.append(HopLayout(begin, size, fields, version))
    return tuple(hops), warnings


def _whole(scan: Scan, packet: Packet, at: int, size: int, what: str, sure: bool = True) -> None:
    """Raise where the packet ends too early: Cut if the reporter cut it and INT is sure to be there."""
    if at + size > packet.end:
        if packet.cut and sure:
            raise Cut(f"{what} is cut", f"byte {packet.end}")
        raise MalformedInput(f"{what} does not fit the packet", f"byte {packet.end}")
