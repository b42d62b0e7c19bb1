"""Telemetry reports 0.5, 1.0 and 2.0: where in a UDP datagram each report's hops and flow are.

`read` makes the layout of a datagram from a Scan (see layout.py). A datagram is used whole or not at all: if
one of its reports does not follow the format, its bytes belong to the dead-letter topic, not half of them.
"""

from typing import NamedTuple

from producers.int import packet as packets
from producers.int.dialect import SPEC, Dialect
from producers.int.layout import Cut, Field, Scan, field
from producers.int.metadata import NO_WARNING, REPORT_10, REPORT_20, Embedded, HopLayout, find, slice_fields
from producers.int.packet import ETHERNET, IPV4, IPV6, Packet
from schemas.columns import IntWarning, ReportFlag
from schemas.errors import MalformedInput


class FlowLayout(NamedTuple):
    """Where the flow of a packet is: addresses of 32 or 128 bits, ports (None: 0), protocol."""

    src: Field
    dst: Field
    sport: Field | None
    dport: Field | None
    protocol: int
    length: Field


class ReportLayout(NamedTuple):
    """One report. `own` is the reporter's own row, which counts as the newest hop; it falls away where the
    newest hop of the stack is the reporter too. `report_ts` is the ingress stamp of the header (0.5, 1.0)."""

    begin: int
    end: int
    flags: ReportFlag
    warnings: IntWarning
    own: HopLayout | None
    stack: tuple[HopLayout, ...]
    flow: FlowLayout | None
    report_ts: Field | None


class DatagramLayout(NamedTuple):
    """One datagram. `version` is the report version times ten; `reporter` None: it names no node (0.5)."""

    version: int
    hw_id: Field
    seq: Field
    reporter: Field | None
    reports: tuple[ReportLayout, ...]


def read(scan: Scan, dialect: Dialect = SPEC) -> DatagramLayout:
    """The layout of one UDP payload. Raises MalformedInput if it is no report, Cut if it is part of one."""
    scan.need(0, 12, "the report header")
    version = scan.value(field(0, 4))
    if version == 0:
        return _report_05(scan, dialect)
    if version == 2:
        return _report_20(scan, dialect, NO_WARNING)
    if version == 1:
        try:
            return _report_10(scan, dialect)
        except MalformedInput as error:
            # Some senders of 2.0 say 1.
            try:
                return _report_20(scan, dialect, IntWarning.VERSION)
            except MalformedInput:
                raise error from None
    raise MalformedInput(f"no report: version {version}", "byte 0")


def _flags(scan: Scan, byte: int, skip: int, count: int = 3) -> ReportFlag:
    weights = (ReportFlag.DROP, ReportFlag.QUEUE, ReportFlag.FLOW, ReportFlag.INTERMEDIATE)
    flags = ReportFlag(0)
    for number in range(count):
        if scan.value(field(byte, 1, skip + number)):
            flags |= weights[number]
    return flags


def _report_05(scan: Scan, dialect: Dialect) -> DatagramLayout:
    following = scan.value(field(0, 4, 4))
    if following > 2:
        raise MalformedInput(f"no report 0.5: next protocol {following}", "byte 0")
    flags, warnings = _flags(scan, 1, 0), NO_WARNING
    if not scan.equals(field(1, 15, 3), 0):
        warnings |= IntWarning.RESERVED
    stamp, begin = field(8, 32), 12
    fields: list[tuple[str, Field]] = [("ingress_ts", stamp)]
    if following:
        scan.need(12, 16 if following == 2 else 12, "the report's own metadata")
        fields += [("node", field(12, 32)), ("in_port", field(16, 16)), ("out_port", field(18, 16))]
        if following == 1:
            fields += [("queue", field(20, 8)), ("drop_reason", field(21, 8))]
            begin = 24
        else:
            fields += [("queue", field(20, 8)), ("occupancy", field(21, 24)), ("egress_ts", field(24, 32))]
            begin = 28
    own = HopLayout(0, begin, tuple(fields), None)
    report = _report(
        scan, dialect, 0, begin, len(scan.data), ETHERNET, flags, warnings, own, bool(following), stamp
    )
    reporter = field(12, 32) if following else None
    return DatagramLayout(5, field(3, 6, 2), field(4, 32), reporter, (report,))


def _report_10(scan: Scan, dialect: Dialect) -> DatagramLayout:
    length, following = scan.value(field(0, 4, 4)), scan.value(field(1, 3))
    bits = scan.value(field(1, 6, 3))
    needed = 4 + bits.bit_count()
    if not needed <= length <= 10 or following > 2:
        raise MalformedInput(
            f"no report 1.0: {length} words of header for {needed}, next protocol {following}", "byte 0"
        )
    scan.need(0, 4 * length, "the report header")
    flags, rest = (
        _flags(scan, 2, 1 if dialect.flags_first else 7),
        field(2, 6, 4 if dialect.flags_first else 1),
    )
    warnings = NO_WARNING if scan.equals(rest, 0) else IntWarning.RESERVED
    if length > needed:
        if warnings:
            raise MalformedInput("no report 1.0: wrong length and reserved bits set", "byte 0")
        warnings |= IntWarning.METADATA_LENGTH
    stamp = field(12, 32)
    _, optional, _ = slice_fields(bits, 6, REPORT_10, 16)
    own = HopLayout(0, 4 * length, (("node", field(4, 32)), ("ingress_ts", stamp), *optional), None)
    told = (ETHERNET, IPV4, IPV6)[following]
    end = len(scan.data)
    report = _report(scan, dialect, 0, 4 * length, end, told, flags, warnings, own, bool(optional), stamp)
    return DatagramLayout(10, field(3, 6, 2), field(8, 32), field(4, 32), (report,))


def _report_20(scan: Scan, dialect: Dialect, warnings: IntWarning) -> DatagramLayout:
    scan.need(0, 12, "the report's group header")
    reports: list[ReportLayout] = []
    at, end = 8, len(scan.data)
    while at < end:
        if reports and _trailing(scan, at, end):
            last = reports[-1]
            reports[-1] = last._replace(warnings=last.warnings | IntWarning.TRAILING)
            break
        report = _individual(scan, dialect, at, end, warnings)
        reports.append(report)
        at = report.end
    width = dialect.hw_id_bits
    return DatagramLayout(
        20, field(0, width, 4), field(0, 28 - width, 4 + width), field(4, 32), tuple(reports)
    )


def _trailing(scan: Scan, at: int, end: int) -> bool:
    """Whether what follows the last report is too short for another, or nothing but zeros."""
    if end - at < 4:
        return True
    return all(scan.equals(field(byte, 8), 0) for byte in range(at, end))


def _individual(scan: Scan, dialect: Dialect, at: int, end: int, warnings: IntWarning) -> ReportLayout:
    """One report of a 2.0 datagram, its header at byte `at`."""
    scan.need(at, 4, "a report's header")
    kind, inner = scan.value(field(at, 4)), scan.value(field(at, 4, 4))
    length, metadata = scan.value(field(at + 1, 8)), scan.value(field(at + 2, 8))
    flags = _flags(scan, at + 3, 0, 4)
    if kind > 2 or inner > 5:
        raise MalformedInput(f"no report 2.0: type {kind}, inner type {inner}", f"byte {at}")
    if not scan.equals(field(at + 3, 4, 4), 0):
        if warnings:
            raise MalformedInput("no report 2.0: wrong version and reserved bits set", f"byte {at}")
        warnings |= IntWarning.RESERVED
    begin = at + 4
    if length == 255:
        stop = end
        if stop - begin < 4 * 255:
            raise Cut("a report is cut", f"byte {end}, {begin + 4 * 255} or more needed")
    elif length == 0 and (kind or inner):
        # Contents must follow, and only the datagram's end says how much.
        stop, warnings = end, warnings | IntWarning.REPORT_LENGTH
    else:
        stop = begin + 4 * length
        if stop > end:
            raise Cut("a report is cut", f"byte {end}, {stop} needed")
    node: tuple[tuple[str, Field], ...] = (("node", field(4, 32)),)
    own = HopLayout(at, begin - at, node, None)
    if kind == 0 and metadata:
        raise MalformedInput(f"a report of type 0 with metadata: {metadata} words", f"byte {at}")
    if kind == 2:
        _strict(flags, warnings, at)
        warnings |= IntWarning.REPORT_TYPE
        return ReportLayout(at, stop, flags, warnings, own, (), None, None)
    starts = [begin]
    if kind == 1:
        if begin + 8 > stop:
            raise Cut("a report's metadata header is cut", f"byte {stop}")
        bits = scan.value(field(begin, 16))
        needed, fields, unknown = slice_fields(bits, 16, REPORT_20, begin + 8)
        warnings |= IntWarning.RESERVED if unknown else NO_WARNING
        starts, warnings = _starts(scan, begin, needed, metadata, warnings)
        starts = [start for start in starts if start <= stop]
        if not starts or begin + 8 + 4 * needed > stop:
            raise Cut("a report's metadata is cut", f"byte {stop}")
        own = HopLayout(at, starts[0] - at, node + fields, None)
    has_own = len(own.fields) > 1
    if inner in (0, 2):
        if inner == 0 and starts[0] != stop:
            raise MalformedInput(
                f"a report without a packet has contents: {stop - starts[0]} bytes", f"byte {at}"
            )
        _strict(flags, warnings, at)
        return ReportLayout(at, stop, flags, warnings, own, (), None, None)
    if inner == 1:
        told, begin, stop_ = _packet_in_tlv(scan, starts[0], stop)
        if told is None:
            _strict(flags, warnings, at)
            return ReportLayout(at, stop, flags, warnings, own, (), None, None)
        report = _report(scan, dialect, at, begin, stop_, told, flags, warnings, own, has_own, None)
        return report._replace(end=stop)
    told = (ETHERNET, IPV4, IPV6)[inner - 3]
    for place, start in enumerate(starts):
        own = own._replace(size=start - at)
        try:
            return _report(scan, dialect, at, start, stop, told, flags, warnings, own, has_own, None)
        except MalformedInput:
            if place == len(starts) - 1:
                raise
    raise AssertionError("a report has at least one place where its packet may begin")


def _strict(flags: ReportFlag, warnings: IntWarning, at: int) -> None:
    """Refuse a report that deviates where no packet in it shows that it is a report at all."""
    if warnings or not flags & (ReportFlag.DROP | ReportFlag.QUEUE | ReportFlag.FLOW):
        raise MalformedInput("no report 2.0: no packet, and not as the format wants it", f"byte {at}")


def _starts(
    scan: Scan, begin: int, needed: int, metadata: int, warnings: IntWarning
) -> tuple[list[int], IntWarning]:
    """Where the packet may begin behind metadata whose fixed part is at byte `begin`, best place first."""
    plain = begin + 8 + 4 * needed
    if metadata == needed:
        return [plain], warnings
    if metadata == 0:
        return [plain], warnings | IntWarning.METADATA_LENGTH
    if metadata < needed:
        raise MalformedInput(
            f"report metadata too short for its bitmap: {metadata} words for {needed}", f"byte {begin}"
        )
    told = begin + 8 + 4 * metadata
    if scan.equals(field(begin + 2, 16), 0) and scan.equals(field(begin + 4, 16), 0):
        # No domain that could have added words: either the length or the domain is wrong.
        return [told, plain], warnings | IntWarning.METADATA_LENGTH
    return [told], warnings


def _packet_in_tlv(scan: Scan, at: int, end: int) -> tuple[str | None, int, int]:
    """The first packet in a list of TLVs: its type, begin and end. None: they hold no packet."""
    while at < end:
        if at + 4 > end:
            raise Cut("a TLV is cut", f"byte {end}")
        kind, length = scan.value(field(at, 4)), scan.value(field(at + 1, 8))
        stop = at + 4 + 4 * length
        if stop > end:
            raise Cut("a TLV is cut", f"byte {end}, {stop} needed")
        if kind in (1, 2, 3):
            return (ETHERNET, IPV4, IPV6)[kind - 1], at + 4, stop
        at = stop
    return None, end, end


def _report(
    scan: Scan,
    dialect: Dialect,
    at: int,
    begin: int,
    end: int,
    told: str,
    flags: ReportFlag,
    warnings: IntWarning,
    own: HopLayout,
    has_own: bool,
    stamp: Field | None,
) -> ReportLayout:
    """A report whose packet lies in bytes `begin` to `end`; `has_own`: it has metadata of the reporter."""
    packet, as_told = packets.read(scan, begin, end, told, dialect.tcp_options_first)
    if not as_told:
        warnings |= IntWarning.INNER_TYPE
    if packet.src is None:
        warnings |= IntWarning.INNER_UNKNOWN
    if packet.cut:
        flags |= ReportFlag.CUT
    reasons = flags & (ReportFlag.DROP | ReportFlag.QUEUE | ReportFlag.FLOW)
    if not reasons:
        warnings |= IntWarning.UNFLAGGED
    if stamp is not None and scan.equals(stamp, 0):
        warnings |= IntWarning.ZERO_TIME
    found = None
    if ReportFlag.FLOW in flags or not reasons:
        found = find(scan, packet, dialect)
        if found is None and ReportFlag.FLOW in flags and not has_own:
            warnings |= IntWarning.INT_ABSENT
    stack: tuple[HopLayout, ...] = ()
    if found is not None:
        warnings |= found.warnings
        stack = found.hops
        if found.redirected:
            flags |= ReportFlag.REDIRECTED
    needs_own = has_own or not stack or ReportFlag.DROP in flags
    return ReportLayout(
        at, end, flags, warnings, own if needs_own else None, stack, _flow(packet, found), stamp
    )


def _flow(packet: Packet, found: Embedded | None) -> FlowLayout | None:
    """The packet's flow as it was before INT changed ports or protocol."""
    if packet.src is None or packet.dst is None or packet.protocol is None or packet.length is None:
        return None
    flow = FlowLayout(packet.src, packet.dst, packet.sport, packet.dport, packet.protocol, packet.length)
    if found is not None:
        flow = flow._replace(
            sport=found.sport or flow.sport,
            dport=found.dport or flow.dport,
            protocol=found.protocol if found.protocol is not None else flow.protocol,
        )
    return flow
