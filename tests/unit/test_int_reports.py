"""Telemetry reports of all versions, written from the specification's tables and read back."""

import json

import numpy as np
import pytest

from producers.int.pcap import read as read_capture
from schemas.columns import HopKind, IntWarning, ReportFlag
from schemas.flow import flow_id
from tests import int_build as b
from tests.paths import shared_data

HOPS_32 = [
    {"node": 30 - number, "in_port": 1 + number, "out_port": 11 + number, "latency": 500 + number,
     "queue": number, "occupancy": 4000 + number, "ingress_ts": 70_000 + number, "egress_ts": 80_000 + number,
     "tx_util": 90 + number}
    for number in range(3)
]  # fmt: skip
HOPS_64 = [
    {**hop, "ingress_ts": 2**40 + hop["ingress_ts"], "egress_ts": 2**40 + hop["egress_ts"],
     "in_logical": 1_000_000 + hop["in_port"], "out_logical": 2_000_000, "buffer": 3,
     "buffer_occupancy": 77}
    for hop in HOPS_32
]  # fmt: skip


def inner(body: bytes) -> bytes:
    return b.ethernet(b.ipv4(b.tcp(body + b"payload"), proto=6))


def check_path(found: list[dict[str, int]], expected: list[dict[str, int]]) -> None:
    """All of the expected numbers, newest hop first, and the places on the path."""
    assert [b.only(row, *hop) for row, hop in zip(found, expected, strict=True)] == expected
    assert [row["hop"] for row in found] == list(range(len(expected)))[::-1]
    assert {row["hops"] for row in found} == {len(expected)}


def test_report_05_with_int_05() -> None:
    hops = [{**hop, "congestion": 5} for hop in HOPS_32]
    bits = b.bitmap(0, 1, 2, 3, 4, 5, 6, 7, 15)
    got = b.decode([b.report_05(inner(b.md_05(hops, bits, dport=443)), hw_id=9, seq=2**32 - 2, stamp=123)])
    found = b.rows(got)
    check_path(found, hops)
    head = {"hw_id": 9, "report_seq": 2**32 - 2, "report_ts": 123, "version": 5, "int_version": 5}
    assert [b.only(row, *head) for row in found] == [head] * 3
    assert {row["kind"] for row in found} == {HopKind.HOP}
    assert {row["report_flags"] for row in found} == {ReportFlag.FLOW}
    assert {row["warnings"] for row in found} == {0}
    assert "reporter" not in found[0]
    flow = got.flows[got.flow[0]]
    assert flow == (flow_id("10.0.0.1", "10.0.0.2", 4000, 443, 6), "10.0.0.1", "10.0.0.2", 4000, 443, 6)


def test_report_05_drop_and_local_headers() -> None:
    drop = {"node": 5, "in_port": 2, "out_port": 9, "queue": 4, "drop_reason": 26}
    local = {"node": 6, "in_port": 3, "out_port": 8, "queue": 1, "occupancy": 999, "egress_ts": 2222}
    packet = inner(b"")
    found = b.rows(
        b.decode([b.report_05(packet, flags=1, drop=drop), b.report_05(packet, flags=2, local=local)])
    )
    assert [b.only(found[0], *drop), b.only(found[1], *local)] == [drop, local]
    assert [row["kind"] for row in found] == [HopKind.DROP, HopKind.QUEUE]
    assert [row["reporter"] for row in found] == [5, 6]
    assert [row["ingress_ts"] for row in found] == [1000, 1000]
    assert all("int_version" not in row for row in found)


def test_report_05_local_header_is_the_newest_hop_once() -> None:
    local = {"node": 31, "in_port": 3, "out_port": 8, "queue": 1, "occupancy": 999, "egress_ts": 2222}
    body = inner(b.md_05(HOPS_32, b.bitmap(0, 1)))
    found = b.rows(b.decode([b.report_05(body, local=local)]))
    assert [row["node"] for row in found] == [31, 30, 29, 28]
    same = b.rows(b.decode([b.report_05(body, local={**local, "node": 30})]))
    assert [row["node"] for row in same] == [30, 29, 28]
    assert b.only(same[0], "in_port", "out_port", "occupancy", "egress_ts", "hop", "hops") == {
        "in_port": 1, "out_port": 11, "occupancy": 999, "egress_ts": 2222, "hop": 2, "hops": 3,
    }  # fmt: skip


def test_report_10_with_int_10_and_own_metadata() -> None:
    hops = [{**hop, "in_logical": 70_000, "out_logical": 80_000} for hop in HOPS_32]
    bits = b.bitmap(0, 1, 2, 3, 4, 5, 6, 7)
    own = {
        "in_port": 21,
        "out_port": 22,
        "latency": 33,
        "queue": 2,
        "occupancy": 44,
        "egress_ts": 55,
        "tx_util": 66,
    }
    body = inner(b.md_10(hops, bits))
    found = b.rows(b.decode([b.report_10(body, node=99, bits=0b111101, own=own, stamp=1234)]))
    check_path(found, [{"node": 99, **own, "ingress_ts": 1234}, *hops])
    assert [row.get("int_version") for row in found] == [None, 10, 10, 10]
    assert {row["reporter"] for row in found} == {99}


def test_report_10_drop() -> None:
    own = {"in_port": 21, "out_port": 22, "queue": 2, "drop_reason": 44}
    found = b.rows(b.decode([b.report_10(inner(b""), node=99, bits=0b100010, own=own, flags=1)]))
    check_path(found, [{"node": 99, **own, "kind": HopKind.DROP}])


@pytest.mark.parametrize(("proto", "packet"), [(1, b.ipv4(b.udp(b"x"))), (2, b.ipv6(b.udp(b"x")))])
def test_report_10_of_a_bare_ip_packet(proto: int, packet: bytes) -> None:
    got = b.decode([b.report_10(packet, node=99, proto=proto)])
    found = b.rows(got)
    check_path(found, [{"node": 99, "ingress_ts": 1000}])
    assert found[0]["warnings"] == IntWarning.INT_ABSENT
    assert got.flows[got.flow[0]].dport == 5000


def test_report_20_with_int_20_and_all_metadata() -> None:
    bits = b.bitmap(0, 1, 2, 3, 4, 5, 6, 7, 8, 15)
    own = {**HOPS_64[0], "node": 77, "tx_util": 1}
    body = inner(b.md_20(HOPS_64, bits))
    report = b.individual(body, bits=b.bitmap(1, 2, 3, 4, 5, 6, 7, 8), own=own, flags=4 | 8)
    found = b.rows(b.decode([b.report_20(report, node=77, hw_id=63, seq=2**22 - 1)]))
    check_path(found, [own, *HOPS_64])
    head = {"hw_id": 63, "report_seq": 2**22 - 1, "version": 20, "reporter": 77}
    assert [b.only(row, *head) for row in found] == [head] * 4
    assert {row["report_flags"] for row in found} == {ReportFlag.FLOW | ReportFlag.INTERMEDIATE}
    assert {row["warnings"] for row in found} == {0}


def test_report_20_example_of_the_specification() -> None:
    """Type 1, inner IPv4, 14 words, 2 of them metadata, ports and queue."""
    own = {"in_port": 1, "out_port": 2, "queue": 3, "occupancy": 4}
    report = b.individual(b.ipv4(b.udp(b"x" * 12)), inner_type=4, bits=0x5000, own=own)
    assert report[:6] == bytes.fromhex("14 0e 02 20 50 00")
    check_path(b.rows(b.decode([b.report_20(report, node=5)])), [{"node": 5, **own}])


def test_report_20_drop_and_queue_in_one_datagram() -> None:
    dropped = {"in_port": 1, "out_port": 2, "queue": 3, "drop_reason": 9}
    queued = {"queue": 5, "occupancy": 123_456, "latency": 9}
    packet = b.ipv4(b.udp(b"x"))
    got = b.decode(
        [
            b.report_20(
                b.individual(packet, inner_type=4, bits=b.bitmap(1, 15), own=dropped, flags=1),
                b.individual(packet, inner_type=4, bits=b.bitmap(2, 3), own=queued, flags=2),
                b.individual(inner(b.md_20(HOPS_64, b.bitmap(0, 4))), kind=0),
                node=8,
            )
        ]
    )
    found = b.rows(got)
    assert got.reports.tolist() == [3]
    assert [row["report"] for row in found] == [0, 1, 2, 2, 2]
    assert [row["kind"] for row in found] == [
        HopKind.DROP,
        HopKind.QUEUE,
        HopKind.HOP,
        HopKind.HOP,
        HopKind.HOP,
    ]
    assert b.only(found[0], *dropped) == dropped
    assert b.only(found[1], *queued) == queued
    assert [row["node"] for row in found] == [8, 8, 30, 29, 28]


def test_report_20_domain_specific_words() -> None:
    own = {"in_port": 1, "out_port": 2}
    hops = HOPS_64[:2]
    body = inner(b.md_20(hops, b.bitmap(0, 2, 15), domain_id=5, domain=b"DDDDEEEE", source_only=b"SSSS"))
    report = b.individual(body, bits=b.bitmap(1), own=own, domain=b"RRRR", domain_id=5)
    found = b.rows(b.decode([b.report_20(report, node=6)]))
    check_path(
        found, [{"node": 6, **own}, *({name: hop[name] for name in ("node", "latency")} for hop in hops)]
    )
    assert found[0]["warnings"] == 0


def test_report_20_without_packet_and_of_unread_types() -> None:
    reports = [
        b.individual(b"", inner_type=0, bits=b.bitmap(2), own={"latency": 4}),
        b.individual(b"", inner_type=2, bits=0),
        b.individual(b"\x20\x02\x00\x00" + b"ioamtest", kind=2, inner_type=0),
        b.individual(b"\x00\x01\x00\x00wxyz" + b"\x20\x07\x00\x00" + b.ipv4(b.udp(b"")), inner_type=1),
    ]
    got = b.decode([b.report_20(*reports, node=6)])
    found = b.rows(got)
    assert [row["node"] for row in found] == [6] * 4
    assert found[0]["latency"] == 4
    assert found[2]["warnings"] == IntWarning.REPORT_TYPE
    assert [place >= 0 for place in got.flow.tolist()] == [False, False, False, True]


def test_not_available_is_null() -> None:
    body = inner(b.md_20([{"node": 4, "queue": 2}], b.bitmap(0, 1, 2, 3, 4, 5, 6, 7, 8)))
    found = b.rows(b.decode([b.report_20(b.individual(body, kind=0), node=9)]))
    assert set(found[0]) & set(HOPS_64[0]) == {"node", "queue"}


def test_the_public_capture_against_its_decode() -> None:
    expected = json.loads(shared_data("int", "onos-int_report-v05.expected.json").read_text())
    capture = read_capture(shared_data("int", "onos-int_report-v05.pcap").read_bytes())
    payload = bytes(capture.data[capture.at[0] + 42 : capture.at[0] + capture.size[0]])
    got = b.decode([payload])
    found = b.rows(got)
    want = expected[0]
    assert len(expected) == len(capture.at) == 1
    assert capture.stamp_ns[0] == round(want["t"] * 1e6) * 1000
    assert [row["node"] for row in found] == want["node_ids_newest_first"]
    assert got.version.tolist() == [5]
    assert [got.hw_id[0], got.seq[0]] == [want["report"]["hw_id"], want["report"]["seq"]]
    assert {row["report_ts"] for row in found} == {want["report"]["ingress_ts"]}
    flow = got.flows[got.flow[0]]
    assert flow[1:] == (
        want["inner"]["src"], want["inner"]["dst"], want["inner"]["sport"], want["tail"]["dport"],
        want["tail"]["proto"],
    )  # fmt: skip
    assert {row["warnings"] for row in found} == {IntWarning.ZERO_TIME}
    assert np.unique(got.flow).tolist() == [0]
