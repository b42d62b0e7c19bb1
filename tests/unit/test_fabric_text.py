"""Vendors' route text, devices' own answers for one flow, hash settings and groups with buckets."""

import json
from typing import Any

import pytest

from producers.fabric import hashes, routes, routes_text
from producers.fabric.routes_text import Exact
from producers.report import Report
from schemas.errors import MalformedInput
from schemas.network import Route, RouteTable
from tests.unit.test_fabric_routes import APPL, table, ways

SONIC = """Codes: K - kernel route, C - connected, S - static, R - RIP,
       O - OSPF, B - BGP, > - selected route, * - FIB route

B   0.0.0.0/0 [20/0] via 10.0.0.1, PortChannel1, 00:00:01
K>* 0.0.0.0/0 [0/202] via 10.3.146.1, eth0, 1d11h20m
B>* 10.1.0.0/24 [20/0] via 10.0.0.1, PortChannel2, weight 2, 00:12:13
  *                    via 10.0.0.5, PortChannel5, weight 1, 00:12:13
C>* 10.0.0.0/31 is directly connected, PortChannel2, 1d11h
S>* 10.9.0.0/16 [1/0] unreachable (blackhole), weight 1, 00:01:00
B>  10.3.0.0/24 [200/0] via 10.10.10.10 (recursive), weight 1, 00:00:11
  *                       via 10.0.0.1, PortChannel2, weight 1, 00:00:11
  *                       via 10.0.0.5, PortChannel5, weight 1, 00:00:11
"""
NXOS = """IP Route Table for VRF "default"
'*' denotes best ucast next-hop
'[x/y]' denotes [preference/metric]

10.1.0.0/24, ubest/mbest: 2/0
    *via 10.0.0.1, Eth1/1, [110/41], 00:12:13, ospf-1, intra
    *via 10.0.0.5, Eth1/2, [110/41], 00:12:13, ospf-1, intra
     via 10.0.0.7, Eth1/3, [200/0], 00:12:13, bgp-65001, internal, tag 65001
10.0.0.0/31, ubest/mbest: 1/0, attached
    *via 10.0.0.0, Eth1/1, [0/0], 1w2d, direct
10.0.0.0/32, ubest/mbest: 1/0, attached
    *via 10.0.0.0, Eth1/1, [0/0], 1w2d, local
10.9.0.0/16, ubest/mbest: 1/0
    *via Null0, [220/0], 3d04h, bgp-65001, discard, tag 65001

IP Route Table for VRF "red"
10.1.0.0/24, ubest/mbest: 1/0
    *via 10.0.0.9, Eth1/9, [20/0], 00:12:13, bgp-65001, external, tag 65002
"""
EOS = """
VRF: default
Codes: C - connected, S - static, K - kernel,
       O - OSPF, B - BGP

Gateway of last resort:
 S        0.0.0.0/0 [1/0]
           via 10.255.0.1, Management1

 B E      10.1.0.0/24 [200/0] via 10.0.0.1, Ethernet1
                              via 10.0.0.5, Ethernet2
 B I      10.4.0.0/24 [200/0]
           via 10.0.0.1, Ethernet1, weight 2/3
           via 10.0.0.5, Ethernet2
 C        10.0.0.0/31
           directly connected, Ethernet1
 S        10.9.0.0/16 is directly connected, Null0
"""


def read_text(text: str) -> RouteTable:
    return routes_text.read(text, "sw", Report())


def test_sonic_text() -> None:
    found = read_text(SONIC)
    assert ways(found, "192.0.2.1") == [("10.3.146.1", "eth0", 1, "")]
    assert ways(found, "10.1.0.1") == [
        ("10.0.0.1", "PortChannel2", 2, ""),
        ("10.0.0.5", "PortChannel5", 1, ""),
    ]
    assert ways(found, "10.0.0.1") == [(None, "PortChannel2", 1, "")]
    assert ways(found, "10.9.0.1") == [(None, None, 1, "blackhole")]
    assert [port for _, port, _, _ in ways(found, "10.3.0.1")] == ["PortChannel2", "PortChannel5"]


def test_nxos_text() -> None:
    found = read_text(NXOS)
    assert ways(found, "10.1.0.1") == [("10.0.0.1", "Eth1/1", 1, ""), ("10.0.0.5", "Eth1/2", 1, "")]
    assert ways(found, "10.0.0.1") == [(None, "Eth1/1", 1, "")]
    assert ways(found, "10.9.0.1") == [(None, None, 1, "blackhole")]
    assert ways(found, "10.1.0.1", "red") == [("10.0.0.9", "Eth1/9", 1, "")]
    own = found.lookup("10.0.0.0")
    assert own is not None
    assert own.local


def test_eos_text() -> None:
    found = read_text(EOS)
    assert ways(found, "192.0.2.1") == [("10.255.0.1", "Management1", 1, "")]
    assert ways(found, "10.1.0.1") == [("10.0.0.1", "Ethernet1", 1, ""), ("10.0.0.5", "Ethernet2", 1, "")]
    assert [weight for _, _, weight, _ in ways(found, "10.4.0.1")] == [2, 1]
    assert ways(found, "10.0.0.0") == [(None, "Ethernet1", 1, "")]
    assert ways(found, "10.9.0.1") == [(None, None, 1, "blackhole")]


def test_every_truncation_of_text_and_json_parses_or_is_refused() -> None:
    for text in (SONIC, NXOS, EOS):
        for end in range(len(text)):
            try:
                read_text(text[:end])
            except MalformedInput:
                continue
    whole = json.dumps(APPL)
    for end in range(len(whole)):
        with pytest.raises(MalformedInput):
            routes.read(whole[:end], "sw", Report())


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Egress port: Ethernet4\n", Exact("Ethernet4")),
        (
            "load-share type: 1\nHashing to path *192.168.1.1 Eth1/1\nFor route:\n",
            Exact("Eth1/1", "192.168.1.1"),
        ),
        ("Out Interface: port-channel10\nHashing to path *10.1.1.1\n", Exact("port-channel10", "10.1.1.1")),
        ("Hashing to path *10.0.0.1 (Ethernet1/1)\n", Exact("Ethernet1/1", "10.0.0.1")),
        ("Output Interface: Ethernet43\n", Exact("Ethernet43")),
        ('{"outputIntf": "Ethernet13/1"}', Exact("Ethernet13/1")),
        (
            "10.2.2.2 -> 192.168.1.11 : FastEthernet0/0 (next hop 10.0.0.1)\n",
            Exact("FastEthernet0/0", "10.0.0.1"),
        ),
        (
            "10.1.1.1 -> 10.2.2.2 => IP adj out of Gi0/1, addr 10.0.0.1",
            Exact("Gi0/1", "10.0.0.1"),
        ),
    ],
)
def test_exact_answers(text: str, expected: Exact) -> None:
    assert routes_text.exact(text) == expected


def test_no_answer_is_no_guess() -> None:
    with pytest.raises(MalformedInput, match="which way"):
        routes_text.exact("% Route not found\n")


def test_hash_settings_of_several_tables() -> None:
    found = hashes.settings(
        {
            "SWITCH_HASH|GLOBAL": {
                "ecmp_hash@": "SRC_IP,DST_IP",
                "ecmp_hash_algorithm": "CRC_32HI",
                "lag_hash@": "SRC_IP",
            },
            "SWITCH_TABLE:switch": {
                "ecmp_hash_seed": "10",
                "lag_hash_seed": "0x0b",
                "ecmp_hash_offset": "3",
                "fdb_aging_time": "600",
            },
        },
        "f",
    )
    assert found is not None
    assert (found.algorithm, found.fields, found.seed, found.offset) == (
        "CRC_32HI",
        ("SRC_IP", "DST_IP"),
        10,
        3,
    )
    assert (found.lag_algorithm, found.lag_fields, found.lag_seed, found.lag_offset) == (
        None,
        ("SRC_IP",),
        11,
        None,
    )
    assert hashes.settings({"SWITCH_TABLE:switch": {"fdb_aging_time": "600"}}, "f") is None
    with pytest.raises(MalformedInput, match="ecmp_hash_seed"):
        hashes.settings({"SWITCH_TABLE:switch": {"ecmp_hash_seed": "red"}}, "f")


def fine(dump: dict[str, Any]) -> Route:
    base = {"ROUTE_TABLE:10.1.0.0/16": {"ifname": "E0,E4", "nexthop": "10.0.0.1,10.0.0.3"}}
    found = hashes.with_buckets(table(base), dump, "f").lookup("10.1.0.1")
    assert found is not None
    return found


def test_fine_grained_groups_by_prefix_by_next_hop_and_with_their_buckets() -> None:
    group = {"FG_NHG|g": {"bucket_size": "30", "match_mode": "prefix-based"}}
    assert fine(group).resilient is None
    assert fine(group | {"FG_NHG_PREFIX|10.1.0.0/16": {"FG_NHG": "g"}}).resilient == 30
    members = {f"FG_NHG_MEMBER|10.0.0.{k}": {"FG_NHG": "g", "bank": "0"} for k in (1, 3)}
    assert fine(group | members).resilient == 30
    shown = {"FG_ROUTE_TABLE|10.1.0.0/16": {"0": "10.0.0.3@E4", "1": "10.0.0.1@E0", "2": "10.0.0.3@E4"}}
    assert fine(group | members | shown).buckets == (1, 0, 1)
    broken = {"FG_ROUTE_TABLE|10.1.0.0/16": {"0": "10.0.0.3@E4", "2": "10.0.0.1@E0"}}
    assert fine(group | members | broken).buckets is None
