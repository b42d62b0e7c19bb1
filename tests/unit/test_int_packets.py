"""INT in every kind of packet, and senders that deviate from the format."""

import struct

import pytest

from producers.int.dialect import SPEC, TOFINO, Dialect
from schemas.columns import IntWarning, ReportFlag
from schemas.errors import Usage
from tests import int_build as b

HOPS = [{"node": 3, "latency": 30}, {"node": 2, "latency": 20}, {"node": 1, "latency": 10}]
BITS = b.bitmap(0, 2)
MD_20 = b.md_20(HOPS, BITS)


def report(packet: bytes, flags: int = 4, inner_type: int = 3) -> bytes:
    return b.report_20(b.individual(packet, kind=0, flags=flags, inner_type=inner_type), node=50)


def nodes(payload: bytes, dialect: Dialect = SPEC) -> list[int | None]:
    return [row.get("node") for row in b.rows(b.decode([payload], dialect))]


@pytest.mark.parametrize("dialect", [SPEC, Dialect(dscp=0x17), Dialect(dscp=0x20, dscp_mask=0x20)])
@pytest.mark.parametrize("vlans", [(), (5,), (5, 6)])
def test_tcp_and_udp_under_ethernet(dialect: Dialect, vlans: tuple[int, ...]) -> None:
    dscp = 0x37 if dialect.dscp_mask == 0x20 else 0x17
    for proto, segment in ((17, b.udp(MD_20)), (6, b.tcp(MD_20)), (6, b.tcp(MD_20, options=b"\1" * 12))):
        v4 = b.ethernet(b.ipv4(segment, proto, dscp=dscp, options=b"\1" * 4), vlans=vlans)
        v6 = b.ethernet(b.ipv6(segment, proto, dscp=dscp), 0x86DD, vlans=vlans)
        assert nodes(report(v4), dialect) == [3, 2, 1]
        assert nodes(report(v6), dialect) == [3, 2, 1]


def test_without_its_signal_there_is_no_int() -> None:
    packet = b.ethernet(b.ipv4(b.udp(MD_20), dscp=1))
    assert nodes(report(packet), Dialect(dscp=0x17)) == [50]
    assert nodes(report(packet), Dialect(udp_ports=(4,))) == [50]
    assert nodes(report(packet), Dialect(marker=9)) == [50]


def test_a_packet_that_is_not_tracked_has_no_int() -> None:
    packet = b.ethernet(b.ipv4(b.udp(MD_20)))
    assert nodes(report(packet, flags=2)) == [50]
    # Without any reason given, the packet is looked at, and the sender named.
    found = b.rows(b.decode([report(packet, flags=0)]))
    assert [row["node"] for row in found] == [3, 2, 1]
    assert {row["warnings"] for row in found} == {IntWarning.UNFLAGGED}


def test_a_signal_that_promises_what_is_not_there() -> None:
    packet = b.ethernet(b.ipv4(b.udp(b"nothing of the kind", dport=4444)))
    got = b.decode([report(packet)], Dialect(udp_ports=(4444,)))
    assert list(got.failures) == [0]
    assert "INT" in str(got.failures[0])


def test_udp_port_signal_and_original_port() -> None:
    packet = b.ethernet(b.ipv4(b.udp(b.md_20(HOPS, BITS, npt=1, rest=4791), dport=4444)))
    got = b.decode([report(packet)], Dialect(udp_ports=(4444,)))
    assert [row["node"] for row in b.rows(got)] == [3, 2, 1]
    assert got.flows[got.flow[0]].dport == 4791
    assert b.rows(got)[0]["report_flags"] == ReportFlag.FLOW | ReportFlag.REDIRECTED


def test_inserted_udp_header_and_original_protocol() -> None:
    body = b.md_20(HOPS, BITS, npt=2, rest=6) + b.tcp(b"x", 1111, 2222)
    got = b.decode([report(b.ethernet(b.ipv4(b.udp(body, dport=4444))))], Dialect(udp_ports=(4444,)))
    assert [row["node"] for row in b.rows(got)] == [3, 2, 1]
    assert got.flows[got.flow[0]][3:] == (1111, 2222, 6)


def test_marker_signal() -> None:
    marker = 0x0123456789ABCDEF
    packet = b.ethernet(b.ipv4(b.udp(struct.pack(">Q", marker) + MD_20)))
    assert nodes(report(packet), Dialect(marker=marker)) == [3, 2, 1]


def test_int_before_tcp_options() -> None:
    segment = b.tcp(b"", options=b"\1" * 8)
    packet = b.ethernet(b.ipv4(segment[:20] + MD_20 + segment[20:], 6))
    assert nodes(report(packet), Dialect(tcp_options_first=False)) == [3, 2, 1]


@pytest.mark.parametrize(
    ("following", "shim", "body"),
    [
        (0x05, ">BxBB", None),
        (0x08, ">BxBB", b.header_10(HOPS, BITS)),
        (0x80, ">BBxB", b.header_20(HOPS, BITS)),
        (0x82, ">BBxB", b.header_20(HOPS, BITS)),
    ],
)
def test_vxlan_gpe(following: int, shim: str, body: bytes | None) -> None:
    if body is None:
        body = b.md_05(HOPS, BITS)[4:-4]
    words = len(body) // 4 + (1 if following < 0x80 else 0)
    kind = 1 if following < 0x80 else 0x10
    vxlan = bytes([0x0C, 0, 0, following]) + b"\0\0\1\0"
    inside = struct.pack(shim, kind, words, 3) + body + b.ethernet(b.ipv4(b.udp(b"tenant")))
    packet = b.ethernet(b.ipv4(b.udp(vxlan + inside, 55555, 4790)))
    got = b.decode([report(packet)])
    assert [row["node"] for row in b.rows(got)] == [3, 2, 1]
    assert got.flows[got.flow[0]][3:] == (55555, 4790, 17)


def test_geneve() -> None:
    body = b.header_20(HOPS, BITS)
    options = struct.pack(">HBB", 0x0102, 7, 1) + b"abcd"
    options += struct.pack(">HBB", 0x0103, 1, len(body) // 4) + body
    geneve = struct.pack(">BBHI", len(options) // 4, 0, 0x6558, 77 << 8) + options
    packet = b.ethernet(b.ipv4(b.udp(geneve + b"tenant", 55555, 6081)))
    assert nodes(report(packet)) == [3, 2, 1]


@pytest.mark.parametrize("flags", [0, 0x8000, 0xB000])
def test_gre(flags: int) -> None:
    body = b.header_20(HOPS, BITS)
    words = sum(flags & bit > 0 for bit in (0x8000, 0x2000, 0x1000))
    gre = struct.pack(">HH", flags, 0x9ABC) + bytes(4 * words)
    gre += struct.pack(">BBH", 0x10, len(body) // 4, 0x0800) + body
    packet = b.ethernet(b.ipv4(gre, 47))
    assert nodes(report(packet), Dialect(gre_type=0x9ABC)) == [3, 2, 1]
    assert nodes(report(packet), Dialect()) == [50]


def test_mx_has_instructions_and_no_stack() -> None:
    header = struct.pack(">IHHHH", 2 << 28, BITS, 0, 0, 0)
    packet = b.ethernet(b.ipv4(b.udp(struct.pack(">BBH", 0x30, 3, 0) + header + b"data")))
    own = b.individual(packet, bits=b.bitmap(1, 2), own={"in_port": 1, "out_port": 2, "latency": 7})
    found = b.rows(b.decode([b.report_20(own, node=50)]))
    assert [b.only(row, "node", "latency", "hop", "hops") for row in found] == [
        {"node": 50, "latency": 7, "hop": 0, "hops": 1}
    ]
    assert found[0]["warnings"] == 0


def test_ipv6_extension_headers_and_fragments() -> None:
    options = struct.pack(">BB6x", 17, 0)
    assert nodes(report(b.ethernet(b.ipv6(options + b.udp(MD_20), 0), 0x86DD))) == [3, 2, 1]
    later = b.ethernet(b.ipv4(MD_20, 17, fragment=100))
    assert nodes(report(later)) == [50]


def test_packet_without_ip() -> None:
    found = b.rows(b.decode([report(b.ethernet(bytes(28), 0x0806), flags=1)]))
    assert [(row["node"], row["warnings"]) for row in found] == [(50, IntWarning.INNER_UNKNOWN)]


# Deviations that public captures show (each names its kind, and the hops are right).


def test_lengths_left_zero() -> None:
    own = {"in_port": 1, "out_port": 2}
    one = b.individual(b.ethernet(b.ipv4(b.udp(MD_20))), bits=b.bitmap(1), own=own, length=0, md_length=0)
    found = b.rows(b.decode([b.report_20(one, node=50)]))
    assert [row["node"] for row in found] == [50, 3, 2, 1]
    assert {row["warnings"] for row in found} == {IntWarning.REPORT_LENGTH | IntWarning.METADATA_LENGTH}


def test_version_one_on_the_layout_of_two() -> None:
    one = b.individual(b.ethernet(b.ipv4(b.udp(MD_20))), bits=0)
    got = b.decode([b.report_20(one, node=50, version=1, seq=99)])
    found = b.rows(got)
    assert [row["node"] for row in found] == [3, 2, 1]
    assert {row["warnings"] for row in found} == {IntWarning.VERSION}
    assert [got.version.tolist(), got.seq.tolist()] == [[20], [99]]


@pytest.mark.parametrize("told", [4, 5])
def test_type_of_the_packet_is_wrong(told: int) -> None:
    found = b.rows(b.decode([report(b.ethernet(b.ipv4(b.udp(MD_20))), inner_type=told)]))
    assert [row["node"] for row in found] == [3, 2, 1]
    assert {row["warnings"] for row in found} == {IntWarning.INNER_TYPE}


def test_metadata_length_that_counts_the_fixed_part() -> None:
    packet = b.ethernet(b.ipv4(b.udp(MD_20)))
    one = b.individual(packet, bits=b.bitmap(2), own={"latency": 5}, md_length=3)
    found = b.rows(b.decode([b.report_20(one, node=50)]))
    assert [row["node"] for row in found] == [50, 3, 2, 1]
    assert {row["warnings"] for row in found} == {IntWarning.METADATA_LENGTH}


def test_counts_of_hops_that_differ() -> None:
    body = bytearray(b.md_05(HOPS, BITS))
    body[5] = 5  # instruction count
    found = b.rows(b.decode([b.report_05(b.ethernet(b.ipv4(b.udp(bytes(body)))))]))
    assert [row["node"] for row in found] == [3, 2, 1]
    assert {row["warnings"] for row in found} == {IntWarning.HOP_COUNT}


def test_limits_reached_are_told() -> None:
    body = bytearray(MD_20)
    body[4] |= 0x04  # hop count exceeded
    found = b.rows(b.decode([report(b.ethernet(b.ipv4(b.udp(bytes(body)))))]))
    assert {row["warnings"] for row in found} == {IntWarning.HOPS_EXCEEDED}


def test_instructions_of_a_later_version() -> None:
    words = [struct.pack(">III", node, 7, 0xFFFFFFFF) for node in (3, 2, 1)]
    header = struct.pack(">IHHHH", 2 << 28 | 3 << 8, b.bitmap(0, 2, 12), 0, 0, 0)
    body = header + b"".join(words)
    packet = b.ethernet(b.ipv4(b.udp(struct.pack(">BBH", 0x10, len(body) // 4, 0) + body)))
    found = b.rows(b.decode([report(packet)]))
    assert [b.only(row, "node", "latency") for row in found] == [
        {"node": node, "latency": 7} for node in (3, 2, 1)
    ]
    assert {row["warnings"] for row in found} == {IntWarning.RESERVED}


@pytest.mark.parametrize("tail", [b"\0", b"\1\2\3", bytes(4), bytes(30)])
def test_bytes_behind_the_last_report(tail: bytes) -> None:
    found = b.rows(b.decode([report(b.ethernet(b.ipv4(b.udp(MD_20)))) + tail]))
    assert [row["node"] for row in found] == [3, 2, 1]
    assert {row["warnings"] for row in found} == {IntWarning.TRAILING}


def test_ethernet_padding_is_no_part_of_the_packet() -> None:
    found = b.rows(b.decode([b.report_05(b.ethernet(b.ipv4(b.udp(b.md_05(HOPS, BITS)))) + bytes(9))]))
    assert [row["node"] for row in found] == [3, 2, 1]
    assert found[0]["warnings"] == 0


# Dialects.


def test_tofino_numbers() -> None:
    own = {"in_port": 0xFE05, "out_port": 7, "ingress_ts": 0xFFFF_0000_0000_0005}
    one = b.individual(b.ipv4(b.udp(b"x")), inner_type=4, bits=b.bitmap(1, 4), own=own)
    word = 2 << 28 | 11 << 24 | 0x123456
    payload = struct.pack(">II", word, 9) + one
    got = b.decode([payload], TOFINO)
    assert [got.hw_id.tolist(), got.seq.tolist()] == [[11], [0x123456]]
    assert b.only(b.rows(got)[0], *own) == {"in_port": 5, "out_port": 7, "ingress_ts": 5}


def test_flags_before_reserved_bits_in_10() -> None:
    payload = bytearray(b.report_10(b.ethernet(b.ipv4(b.udp(b"x"))), node=5, flags=0))
    payload[2] |= 0x40  # bit 17
    found = b.rows(b.decode([bytes(payload)], Dialect(flags_first=True)))
    assert found[0]["report_flags"] == ReportFlag.DROP


@pytest.mark.parametrize(
    "wrong",
    [{"dscp": 64}, {"dscp_mask": 0}, {"udp_ports": (0,)}, {"marker": 2**64}, {"hw_id_bits": 9},
     {"low_bits": (("queue", 9),)}, {"low_bits": (("nothing", 1),)}],
)  # fmt: skip
def test_a_dialect_is_checked(wrong: dict[str, object]) -> None:
    with pytest.raises(Usage):
        Dialect(**wrong)  # type: ignore[arg-type]  # that is the point


def test_flow_of_ipv6_and_mapped_addresses_is_one() -> None:
    plain = b.decode([report(b.ethernet(b.ipv4(b.udp(b"x"))))])
    mapped = b.ipv6(b.udp(b"x"), src="::ffff:10.0.0.1", dst="::ffff:10.0.0.2")
    other = b.decode([report(b.ethernet(mapped, 0x86DD))])
    assert plain.flows[0] == other.flows[0]
    assert plain.flow.tolist() == [0]
