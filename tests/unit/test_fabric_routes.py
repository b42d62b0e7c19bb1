"""Routing tables of SONiC, FRR, Linux and of three vendors' text; hash settings; exact answers."""

import json
from typing import Any

from producers.fabric import hashes, routes
from producers.report import Report
from schemas.network import NextHop, Route, RouteTable, prefix
from tests.paths import shared_data

Hop = tuple[str | None, str | None, int, str]


def table(found: Any) -> RouteTable:
    return routes.read(json.dumps(found), "sw", Report())


def ways(found: RouteTable, address: str, vrf: str = "default") -> list[Hop]:
    route = found.lookup(address, vrf)
    assert route is not None
    return [(h.gateway, h.port, h.weight, h.drop) for h in found.ways(route, vrf)]


def route(**more: Any) -> dict[str, Any]:
    return {"selected": True, "installed": True, "protocol": "bgp", **more}


def hop(ip: str, port: str | None, **more: Any) -> dict[str, Any]:
    found = {"ip": ip, "active": True, "fib": True, **more}
    return found | ({"interfaceName": port} if port else {})


def test_the_longest_prefix_wins() -> None:
    found = table(
        {
            "0.0.0.0/0": [route(nexthops=[hop("10.0.0.1", "Ethernet0")])],
            "10.1.0.0/16": [
                route(nexthops=[hop("10.0.0.3", "Ethernet4"), hop("10.0.0.5", "Ethernet8", weight=3)])
            ],
            "10.1.2.0/24": [route(nexthops=[{"unreachable": True, "blackhole": True, "fib": True}])],
            "fd00::/64": [route(nexthops=[hop("fe80::1", "Ethernet12")])],
        }
    )
    assert ways(found, "192.0.2.1") == [("10.0.0.1", "Ethernet0", 1, "")]
    assert ways(found, "10.1.9.9") == [("10.0.0.3", "Ethernet4", 1, ""), ("10.0.0.5", "Ethernet8", 3, "")]
    assert ways(found, "10.1.2.3") == [(None, None, 1, "blackhole")]
    assert ways(found, "fd00::7") == [("fe80::1", "Ethernet12", 1, "")]
    assert found.lookup("fd01::7") is None


def test_frr_uses_what_is_selected_and_in_the_forwarding_table() -> None:
    report = Report()
    dump = {
        "10.0.0.0/8": [
            {"protocol": "static", "nexthops": [{"ip": "10.9.9.9"}]},
            route(nexthops=[hop("10.0.0.1", "Ethernet0"), {"ip": "10.0.0.9", "interfaceName": "Ethernet4"}]),
        ],
        "10.3.0.0/24": [
            route(
                nexthops=[
                    {"ip": "10.10.10.10", "active": True, "recursive": True},
                    hop("10.0.0.1", "Ethernet0", resolver=True),
                    hop("10.0.0.5", "Ethernet8", resolver=True),
                ]
            ),
        ],
    }
    found = routes.read(json.dumps(dump), "sw", report)
    assert ways(found, "10.200.0.1") == [("10.0.0.1", "Ethernet0", 1, "")]
    assert [port for _, port, _, _ in ways(found, "10.3.0.1")] == ["Ethernet0", "Ethernet8"]
    assert report.skipped == {
        "route that the device did not select": 1,
        "next hop that is not in the forwarding table": 1,
    }


def test_a_gateway_without_an_interface_is_looked_up_in_turn() -> None:
    found = table(
        {
            "10.5.0.0/16": [
                route(nexthops=[{"ip": "10.10.10.10", "active": True, "recursive": True, "weight": 2}])
            ],
            "10.10.10.0/24": [
                route(nexthops=[hop("10.0.0.1", "Ethernet0"), hop("10.0.0.5", "Ethernet8", weight=3)])
            ],
            "10.6.0.0/16": [route(nexthops=[{"ip": "172.16.0.1", "active": True, "recursive": True}])],
        }
    )
    assert ways(found, "10.5.1.1") == [("10.0.0.1", "Ethernet0", 2, ""), ("10.0.0.5", "Ethernet8", 6, "")]
    assert ways(found, "10.6.1.1") == [("172.16.0.1", None, 1, "gateway without a route")]


def test_gateways_that_lead_to_each_other_end() -> None:
    loop = RouteTable(
        "sw",
        {
            "default": (
                Route(prefix("10.1.0.0/16"), (NextHop("10.2.0.1"),)),
                Route(prefix("10.2.0.0/16"), (NextHop("10.1.0.1"),)),
            )
        },
    )
    assert [drop for _, _, _, drop in ways(loop, "10.1.0.9")] == ["gateway without a route"]


def test_ip_route() -> None:
    found = table(
        [
            {"dst": "default", "gateway": "10.0.0.1", "dev": "eth0", "metric": 100},
            {"dst": "default", "gateway": "10.0.0.2", "dev": "eth1", "metric": 50},
            {
                "dst": "10.1.0.0/16",
                "protocol": "bgp",
                "nexthops": [
                    {"gateway": "10.0.0.3", "dev": "eth2", "weight": 1, "flags": []},
                    {"gateway": "10.0.0.5", "dev": "eth3", "weight": 2, "flags": []},
                    {"gateway": "10.0.0.7", "dev": "eth4", "weight": 2, "flags": ["dead", "linkdown"]},
                ],
            },
            {"type": "blackhole", "dst": "10.2.0.0/16"},
            {"dst": "10.3.0.0/16", "via": {"family": "inet6", "host": "fe80::1"}, "dev": "eth2"},
            {"type": "local", "dst": "10.0.0.9", "dev": "lo", "table": "local"},
            {"type": "broadcast", "dst": "10.0.0.255", "dev": "eth0"},
            {"dst": "10.9.0.0/16", "gateway": "10.0.0.1", "dev": "eth9", "table": "42"},
        ]
    )
    assert ways(found, "192.0.2.1") == [("10.0.0.2", "eth1", 1, "")]
    assert ways(found, "10.1.0.1") == [("10.0.0.3", "eth2", 1, ""), ("10.0.0.5", "eth3", 2, "")]
    assert ways(found, "10.2.0.1") == [(None, None, 1, "blackhole")]
    assert ways(found, "10.3.0.1") == [("fe80::1", "eth2", 1, "")]
    assert ways(found, "10.9.0.1", "42") == [("10.0.0.1", "eth9", 1, "")]
    local = found.lookup("10.0.0.9")
    assert local is not None
    assert local.local


def test_next_hops_of_ipv6_that_older_kernels_list_apart_are_one_route() -> None:
    one = {"dst": "fd00::/64", "dev": "eth0", "metric": 1024}
    found = table(
        [
            one | {"gateway": "fe80::1"},
            one | {"gateway": "fe80::2"},
            one | {"gateway": "fe80::3", "metric": 2000},
        ]
    )
    assert [gateway for gateway, *_ in ways(found, "fd00::9")] == ["fe80::1", "fe80::2"]


APPL = {
    "ROUTE_TABLE:10.1.0.0/16": {
        "ifname": "PortChannel1,Ethernet8",
        "nexthop": "10.0.0.1,10.0.0.3",
        "weight": "3,1",
    },
    "ROUTE_TABLE:10.2.0.0/16": {"nexthop_group": "g1"},
    "ROUTE_TABLE:10.3.0.0/16": {"blackhole": "true"},
    "ROUTE_TABLE:10.4.0.0/24": {"ifname": "Vlan10", "nexthop": "0.0.0.0"},
    "ROUTE_TABLE:Vrf_red:10.1.0.0/16": {
        "type": "hash",
        "value": {"ifname": "Ethernet16", "nexthop": "10.8.0.1"},
    },
    "ROUTE_TABLE:fd00::/64": {"ifname": "Ethernet8", "nexthop": "fc00::2"},
    "NEXTHOP_GROUP_TABLE:g1": {"ifname": "Ethernet0,Ethernet8", "nexthop": "10.0.0.5,10.0.0.3"},
    "LAG_MEMBER_TABLE:PortChannel1:Ethernet0": {"status": "enabled"},
    "LAG_MEMBER_TABLE:PortChannel1:Ethernet4": {"status": "enabled"},
    "LAG_MEMBER_TABLE:PortChannel1:Ethernet12": {"status": "disabled"},
    "NEIGH_TABLE:Vlan10:10.4.0.7": {"neigh": "00:00:00:00:00:01"},
    "INTF_TABLE:Ethernet20": {"vrf_name": "Vrf_red"},
}


def test_appl_db() -> None:
    found = table(APPL)
    assert ways(found, "10.1.0.1") == [("10.0.0.1", "PortChannel1", 3, ""), ("10.0.0.3", "Ethernet8", 1, "")]
    assert [port for _, port, _, _ in ways(found, "10.2.0.1")] == ["Ethernet0", "Ethernet8"]
    assert ways(found, "10.3.0.1") == [(None, None, 1, "blackhole")]
    assert ways(found, "10.4.0.7") == [(None, "Vlan10", 1, "")]
    assert ways(found, "10.1.0.1", found.vrf_of("Ethernet20")) == [("10.8.0.1", "Ethernet16", 1, "")]
    assert ways(found, "fd00::9") == [("fc00::2", "Ethernet8", 1, "")]
    assert found.lags == {"PortChannel1": ("Ethernet0", "Ethernet4")}
    assert found.neighbours == {"10.4.0.7": "Vlan10"}


def test_asic_db_with_weights_and_buckets() -> None:
    def key(dest: str) -> str:
        return "ASIC_STATE:SAI_OBJECT_TYPE_ROUTE_ENTRY:" + json.dumps(
            {"dest": dest, "switch_id": "s", "vr": "v"}
        )

    base = "ASIC_STATE:SAI_OBJECT_TYPE_"
    member = "SAI_NEXT_HOP_GROUP_MEMBER_ATTR_"
    dump: dict[str, Any] = {
        key("10.1.0.0/16"): {"SAI_ROUTE_ENTRY_ATTR_NEXT_HOP_ID": "g"},
        key("10.2.0.0/16"): {"SAI_ROUTE_ENTRY_ATTR_NEXT_HOP_ID": "f"},
        key("10.3.0.0/16"): {"SAI_ROUTE_ENTRY_ATTR_PACKET_ACTION": "SAI_PACKET_ACTION_DROP"},
        f"{base}NEXT_HOP_GROUP:g": {
            "SAI_NEXT_HOP_GROUP_ATTR_TYPE": "SAI_NEXT_HOP_GROUP_TYPE_DYNAMIC_UNORDERED_ECMP"
        },
        f"{base}NEXT_HOP_GROUP:f": {
            "SAI_NEXT_HOP_GROUP_ATTR_TYPE": "SAI_NEXT_HOP_GROUP_TYPE_FINE_GRAIN_ECMP"
        },
        f"{base}HOSTIF:h": {"SAI_HOSTIF_ATTR_OBJ_ID": "p0", "SAI_HOSTIF_ATTR_NAME": "Ethernet0"},
    }
    for k in range(2):
        dump[f"{base}NEXT_HOP:n{k}"] = {
            "SAI_NEXT_HOP_ATTR_IP": f"10.0.0.{k}",
            "SAI_NEXT_HOP_ATTR_ROUTER_INTERFACE_ID": f"r{k}",
        }
        dump[f"{base}ROUTER_INTERFACE:r{k}"] = {"SAI_ROUTER_INTERFACE_ATTR_PORT_ID": f"p{k}"}
        dump[f"{base}NEXT_HOP_GROUP_MEMBER:m{k}"] = {
            f"{member}NEXT_HOP_GROUP_ID": "g",
            f"{member}NEXT_HOP_ID": f"n{k}",
            f"{member}WEIGHT": str(k + 1),
        }
    for bucket, k in enumerate((0, 1, 1, 0, 1)):
        dump[f"{base}NEXT_HOP_GROUP_MEMBER:b{bucket}"] = {
            f"{member}NEXT_HOP_GROUP_ID": "f",
            f"{member}NEXT_HOP_ID": f"n{k}",
            f"{member}INDEX": str(bucket),
        }
    found = table(dump)
    assert ways(found, "10.1.0.1") == [("10.0.0.0", "Ethernet0", 1, ""), ("10.0.0.1", "p1", 2, "")]
    assert ways(found, "10.3.0.1") == [(None, None, 1, "blackhole")]
    fine = found.lookup("10.2.0.1")
    assert fine is not None
    assert fine.buckets == (0, 1, 1, 0, 1)


def test_shared_sonic_dumps() -> None:
    counts = {}
    for name in (
        "appl_db_route",
        "asic_db_route",
        "asic0_ip_route",
        "frr_ip_route",
        "frr_ip_special_route",
        "frr_ipv6_route",
    ):
        text = shared_data("fabric", "sonic", f"{name}.json").read_text()
        found = routes.read(text, name, Report()).routes["default"]
        counts[name] = (len(found), sum(len(route.next_hops) > 1 for route in found))
    assert counts == {
        "appl_db_route": (10, 3),
        "asic_db_route": (10, 3),
        "asic0_ip_route": (19, 14),
        "frr_ip_route": (38, 33),
        "frr_ip_special_route": (6, 0),
        "frr_ipv6_route": (73, 65),
    }
    special = routes.read(
        shared_data("fabric", "sonic", "frr_ip_special_route.json").read_text(), "s", Report()
    )
    assert {hop.drop for route in special.routes["default"] for hop in route.next_hops} == {
        "blackhole",
        "reject",
        "unreachable",
        "admin-prohibited",
    }
    pbh = json.loads(shared_data("fabric", "sonic", "pbh_hash.json").read_text())
    four = hashes.policies(pbh, "f")["inner_v4_hash"]
    assert four.fields[0] == ("INNER_IP_PROTOCOL", "")
    assert ("INNER_DST_IPV4", "255.0.0.0") in four.fields
    said = hashes.settings(
        json.loads(shared_data("fabric", "sonic", "hash_ecmp_and_lag.json").read_text()), "f"
    )
    assert said is not None
    assert (said.algorithm, said.lag_algorithm, len(said.fields)) == ("CRC", "XOR", 17)
