"""Topologies from every kind of file, and files that are none."""

import json

import pytest

from producers.fabric import topology as t
from schemas.errors import MalformedInput
from schemas.network import Topology, cable, port_key, topology
from tests.paths import shared_data

CLAB = """
name: lab
topology:
  defaults: {kind: nokia_srlinux}
  groups: {servers: {kind: linux}}
  nodes:
    leaf: {}
    spine: {kind: arista_ceos}
    router: {group: servers}
    gpu: {group: servers}
  links:
    - endpoints: ["leaf:e1-1", "spine:eth1"]
    - endpoints: ["router:eth1", "spine:eth2"]
    - endpoints: ["router:eth2", "leaf:e1-3"]
    - endpoints: [{node: gpu, interface: eth1}, "leaf:e1-2"]
    - endpoints: ["leaf:e1-9", "host:br0"]
"""
PLAIN = """
switches: [leaf]
links:
  - {a: "leaf:Ethernet0", b: "gpu0:eth0", gbps: 400, delay: 600ns}
  - {a: "leaf:Ethernet4", b: "gpu1:eth0", rate: 200Gbps}
"""
HPCC = """5 1 4
4
0 4 400Gbps 0.001ms 0
1 4 400Gbps 0.001ms 0
2 4 100Gbps 1us 0.01
3 4 100Gbps 0.000001 0
"""
SIMAI = """6 2 1 1 5 H100
4
5
0 4 2880Gbps 0.000025ms 0
1 4 2880Gbps 0.000025ms 0
0 5 400Gbps 0.0005ms 0
1 5 400Gbps 0.0005ms 0
2 5 400Gbps 0.0005ms 0
"""


def lldp(interfaces: object) -> str:
    return json.dumps({"lldp": {"interface": interfaces}})


def neighbour(name: str, port: str, kind: str = "ifname", router: bool = True) -> dict[str, object]:
    able = [{"type": "Router", "enabled": router}, {"type": "Station", "enabled": not router}]
    return {
        "chassis": {name: {"id": {"type": "mac", "value": "00:11:22:33:44:55"}, "capability": able}},
        "port": {
            "id": {"type": kind, "value": port},
            "descr": "Ethernet9",
            "auto-negotiation": {"supported": True, "current": "100GbaseCR4 - fibre"},
        },
    }


def links(found: Topology) -> set[str]:
    return {link.name for link in found.links}


def test_containerlab() -> None:
    found = t.read(CLAB, "lab.yml")
    assert found.kind == "containerlab"
    assert found.topology.switches == {"leaf", "spine", "router"}  # a linux node that routes is no host
    assert found.topology.hosts == {"gpu"}
    assert len(found.topology.links) == 8
    assert "gpu:eth1>leaf:e1-2" in links(found.topology)
    assert found.notes == ("lab.yml, link 5: leads out of the lab (leaf:e1-9 to host:br0); left out",)


def test_plain_yaml_knows_rates_and_delays() -> None:
    found = t.read(PLAIN, "f").topology
    one = found.out("leaf", "Ethernet0")
    assert one is not None
    assert (one.receiver, one.capacity_bps, one.delay_ns) == ("gpu0", 400e9, 600)
    assert found.out("gpu1", "eth0").capacity_bps == 200e9  # type: ignore[union-attr]
    assert found.hosts == {"gpu0", "gpu1"}


def test_csv() -> None:
    found = t.read("a,b,gbps\nleaf:1,spine:2,800\nleaf:2,gpu:1,\n", "f")
    assert found.kind == "csv"
    assert links(found.topology) == {"leaf:1>spine:2", "spine:2>leaf:1", "leaf:2>gpu:1", "gpu:1>leaf:2"}
    assert found.topology.out("leaf", "2").capacity_bps is None  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "listing",
    [
        lldp({"Ethernet0": neighbour("spine", "Ethernet4")}),
        lldp([{"Ethernet0": neighbour("spine", "Ethernet4")}]),
        json.dumps(
            {
                "lldp": [
                    {
                        "interface": [
                            {
                                "name": "Ethernet0",
                                "chassis": [
                                    {
                                        "name": [{"value": "spine"}],
                                        "capability": [{"type": "Router", "enabled": True}],
                                    }
                                ],
                                "port": [
                                    {
                                        "id": [{"type": "ifname", "value": "Ethernet4"}],
                                        "auto-negotiation": [{"current": [{"value": "100GbaseCR4"}]}],
                                    }
                                ],
                            }
                        ]
                    }
                ]
            }
        ),
    ],
)
def test_lldp_as_object_as_array_and_as_json0(listing: str) -> None:
    found = t.read(listing, "f", node="leaf").topology
    assert links(found) == {"leaf:Ethernet0>spine:Ethernet4", "spine:Ethernet4>leaf:Ethernet0"}
    assert found.switches >= {"spine"}
    assert found.links[0].capacity_bps == 100e9


def test_lldp_of_several_machines_tells_each_cable_twice() -> None:
    both = {
        "leaf": json.loads(
            lldp([{"E0": neighbour("spine", "E4")}, {"E1": neighbour("gpu", "x", "mac", False)}])
        ),
        "spine": json.loads(lldp({"E4": neighbour("leaf", "E0")})),
    }
    found = t.read(json.dumps(both), "f").topology
    assert len(found.links) == 4
    assert found.hosts == {"gpu"}
    assert found.out("leaf", "E1").receiver_port == "Ethernet9"  # type: ignore[union-attr]


def test_lldp_without_its_own_machine_is_refused() -> None:
    with pytest.raises(MalformedInput, match="NODE=FILE"):
        t.read(lldp({"Ethernet0": neighbour("spine", "Ethernet4")}), "f")


def test_hpcc() -> None:
    found = t.read(HPCC, "f")
    assert (found.kind, len(found.topology.links)) == ("hpcc", 8)
    assert found.topology.switches == {"4"}
    third = found.topology.out("2", "1")
    assert third is not None
    assert (third.receiver, third.receiver_port, third.capacity_bps, third.delay_ns, third.loss) == (
        "4",
        "3",
        100e9,
        1000,
        0.01,
    )
    assert found.topology.out("3", "1").delay_ns == 1000  # type: ignore[union-attr]  # a bare number: seconds


def test_simai() -> None:
    found = t.read(SIMAI, "f")
    assert found.kind == "simai"
    assert found.topology.switches == {"4", "5"}
    assert found.topology.hosts == {"0", "1", "2", "3"}
    assert found.topology.out("0", "2").receiver == "5"  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{{ range }}",
        "[1, 2]",
        "a: b",
        "5 1 4\n4\n0 4 x y z\n",
        "3 1 2\n2\n0 2 1G 1us 0\n",
        "a,b\nx\n",
        "topology: {nodes: []}",
    ],
)
def test_what_is_no_topology_says_where(text: str) -> None:
    with pytest.raises(MalformedInput, match="here"):
        t.read(text, "here", node="n")


def test_every_truncation_parses_or_is_refused() -> None:
    for text in (CLAB, PLAIN, HPCC, SIMAI, lldp({"E0": neighbour("spine", "E4")})):
        for end in range(len(text)):
            try:
                t.read(text[:end], "f", node="n")
            except MalformedInput:
                continue


def test_a_port_with_two_far_ends_is_refused() -> None:
    with pytest.raises(MalformedInput, match="two far ends"):
        topology([*cable("a", "1", "b", "1"), *cable("a", "1", "c", "1")])


def test_ports_in_other_spellings() -> None:
    assert port_key("Eth1/1") == port_key("Ethernet1/1") == port_key("Et1/1") == "ethernet1/1"
    assert port_key("Po10") == port_key("port-channel10") == port_key("PortChannel10")
    assert port_key("e1-1") == "e1-1"


def test_shared_labs() -> None:
    shapes = {}
    for name in ("clos01", "clos02", "clos02-setup", "frr01"):
        found = t.read(shared_data("fabric", "topo", f"{name}.clab.yml").read_text(), name).topology
        shapes[name] = (len(found.switches), len(found.hosts), len(found.links))
    assert shapes == {
        "clos01": (3, 2, 8),
        "clos02": (10, 4, 32),
        "clos02-setup": (10, 4, 32),
        "frr01": (3, 3, 12),
    }
