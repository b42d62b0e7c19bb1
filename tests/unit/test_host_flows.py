"""Flows of hosts: queue pairs joined across hosts, addresses, ports and owners, and what stays ambiguous."""

import json
from pathlib import Path

import pytest

from producers.host import rdma, roce
from producers.host.flows import Captured, Host, join, of_capture
from producers.host.netdevs import Netdev, netdevs
from producers.report import Report
from schemas.codes import SportSource
from schemas.errors import MalformedInput
from schemas.network import HostFlow

scapy = pytest.importorskip("scapy.all")


def sport_of(local: int, remote: int) -> int:
    return 49152 + (local * remote) % 16384


def pair(lqpn: int, rqpn: int, rq: int, sq: int, pid: int = 100, device: str = "mlx5_0") -> str:
    return (
        f"link {device}/1 lqpn {lqpn} rqpn {rqpn} type RC state RTS rq-psn {rq} sq-psn {sq} "
        f"path-mig-state MIGRATED pdn 8 pid {pid} comm python3 train.py\n"
    )


def gid(number: int, device: str = "mlx5_0") -> str:
    return (
        f"{device}\t1\t0\tfe80:0000:0000:0000:0e42:a1ff:fe2b:e4ce\t\t\tv1\teth0\n"
        f"{device}\t1\t1\tfe80:0000:0000:0000:0e42:a1ff:fe2b:e4ce\t\t\tv2\teth0\n"
        f"{device}\t1\t2\t0000:0000:0000:0000:0000:ffff:0a00:00{number:02x}\t10.0.0.{number}\tv1\teth0\n"
        f"{device}\t1\t3\t0000:0000:0000:0000:0000:ffff:0a00:00{number:02x}\t10.0.0.{number}\tv2\teth0\n"
    )


def host(name: str, number: int, *pairs: str, **more: object) -> Host:
    owners = {100: ("job7", number)}
    made = {"gids": rdma.gids(gid(number), name), "owners": owners, **more}
    return Host(name, rdma.queue_pairs("".join(pairs), name), **made)  # type: ignore[arg-type]


A, B = pair(17, 23, 500, 900), pair(23, 17, 910, 490)


def by_source(flows: list[HostFlow]) -> dict[str, HostFlow]:
    return {flow.key.src: flow for flow in flows}


def test_the_two_ends_of_a_connection_become_two_flows_with_owners_and_predicted_ports() -> None:
    found = join([host("a", 1, A), host("b", 2, B)], sport_of)
    assert found.ambiguous == []
    one = by_source(found.flows)["10.0.0.1"]
    assert (one.key.dst, one.key.sport, one.key.dport, one.key.qpn) == (
        "10.0.0.2",
        sport_of(17, 23),
        4791,
        23,
    )
    assert (one.sport_source, one.job, one.rank_src, one.rank_dst) == (SportSource.FORMULA, "job7", 1, 2)
    assert (one.src_host, one.dst_host, one.device, one.how) == ("a", "b", "mlx5_0/1", "the port's only GID")


def test_of_several_hosts_with_the_same_numbers_sequence_numbers_single_one_out() -> None:
    other = pair(23, 17, 700_000, 300_000)
    found = join([host("a", 1, A), host("b", 2, B), host("c", 3, other)], sport_of)
    assert {(f.src_host, f.dst_host) for f in found.flows} == {("a", "b"), ("b", "a")}
    assert [(str(one.end), one.why) for one in found.ambiguous] == [
        ("c mlx5_0/1 qp 23", "its peer fits another one better")
    ]


def test_what_cannot_be_told_is_listed_with_its_candidates() -> None:
    near = pair(23, 17, 912, 488)
    found = join([host("a", 1, A), host("b", 2, B), host("c", 3, near)], sport_of)
    assert found.flows == []
    mine = found.ambiguous[0]
    assert [str(end) for end in mine.candidates] == ["b mlx5_0/1 qp 23", "c mlx5_0/1 qp 23"]
    assert mine.why == "sequence numbers are near several"
    alone = join([host("a", 1, A)], sport_of)
    assert alone.ambiguous[0].why == "no host has the other end"


def test_sequence_numbers_wrap() -> None:
    assert rdma.psn_distance(5, 2**24 - 5) == 10
    assert rdma.psn_distance(2**24 - 5, 5) == 10


def test_addresses_by_the_connection_manager_then_nccls_log_then_the_only_gid() -> None:
    two = gid(1) + gid(9)
    twice = host("a", 1, A, gids=rdma.gids(two, "a"))
    found = join([twice, host("b", 2, B)], sport_of)
    assert found.flows == []
    assert "has 2 GIDs: 10.0.0.1, 10.0.0.9" in found.ambiguous[0].why
    line = (
        "a:100:456 [0] NCCL INFO NET/IB: NCCL Dev 0 IbDev 0 Port 1 qpn 17 mtu 5 "
        "GID 3 (0/900000AFFFF0000) fifoRkey=0x1\n"
    )
    logged = host("a", 1, A, gids=rdma.gids(two, "a"), nccl=rdma.nccl_pairs(line))
    assert by_source(join([logged, host("b", 2, B)], sport_of).flows)["10.0.0.9"].how == (
        "NCCL's log, the port's only GID"
    )
    text = (
        "link mlx5_0/1 cm-idn 0 lqpn 17 qp-type RC state CONNECT ps TCP pid 100 comm x "
        "src-addr 10.5.0.1:7 dst-addr 10.5.0.2:4\n"
    )
    managed = host("a", 1, A, gids=rdma.gids(two, "a"), cm_ids=rdma.cm_ids(text, "a"))
    assert "10.5.0.1" in by_source(join([managed, host("b", 2, B)], sport_of).flows)


def test_a_captured_port_counts_more_than_the_formula() -> None:
    captured = [Captured("10.0.0.1", "10.0.0.2", 23, 60000, 5000, 4)]
    flows = by_source(join([host("a", 1, A), host("b", 2, B)], sport_of, captured).flows)
    assert (flows["10.0.0.1"].key.sport, flows["10.0.0.1"].sport_source) == (60000, SportSource.CAPTURED)
    assert flows["10.0.0.1"].bytes == 5000
    assert flows["10.0.0.2"].sport_source == SportSource.FORMULA


def test_a_capture_that_refutes_the_formula_leaves_the_devices_other_ports_unknown() -> None:
    one, two = pair(17, 23, 500, 900), pair(18, 24, 1, 1)
    back = pair(23, 17, 900, 500) + pair(24, 18, 1, 1)
    captured = [Captured("10.0.0.1", "10.0.0.2", 23, 60000, 5000, 4)]
    found = join([host("a", 1, one, two), host("b", 2, back)], sport_of, captured).flows
    mine = {f.key.qpn: (f.key.sport, f.sport_source) for f in found if f.src_host == "a"}
    assert mine == {23: (60000, SportSource.CAPTURED), 24: (0, SportSource.UNKNOWN)}


def test_sockets_are_flows_with_their_own_ports() -> None:
    text = (
        "Netid State Recv-Q Send-Q Local Address:Port Peer Address:Port Process\n"
        'tcp   ESTAB 0 0 [::ffff:10.0.0.1]:4000 [::ffff:10.0.0.2]:5000 users:(("python",pid=100,fd=5))\n'
        "\t cubic wscale:7,7 bytes_acked:1234 segs_out:9\n"
        "tcp   LISTEN 0 128 0.0.0.0:22 0.0.0.0:*\n"
        "udp   ESTAB 0 0 [fe80::1%eth0]:1 [fe80::2%eth0]:2\n"
    )
    sockets = rdma.sockets(text, "a")
    assert [(s.protocol, s.src, s.bytes_sent) for s in sockets] == [
        (6, ("10.0.0.1", 4000), 1234),
        (17, ("fe80::1", 1), None),
    ]
    peer = rdma.sockets('ESTAB 0 0 10.0.0.2:5000 10.0.0.1:4000 users:(("x",pid=100,fd=1))\n', "b")
    flow = join([host("a", 1, sockets=sockets), host("b", 2, sockets=peer)], sport_of).flows[0]
    assert (flow.key.sport, flow.sport_source, flow.rank_src, flow.rank_dst, flow.bytes) == (
        4000, SportSource.CAPTURED, 1, 2, 1234,
    )  # fmt: skip


def test_owners_by_environment() -> None:
    assert rdma.owner({"SLURM_JOB_ID": "77", "RANK": "3", "SLURM_PROCID": "4"}) == ("77", 3)
    assert rdma.owner({"RANK": "x"}) == ("", None)
    with pytest.raises(MalformedInput, match="lqpn is a number"):
        rdma.queue_pairs("link mlx5_0/1 lqpn x rqpn 3 type RC\n", "f")


def packet(src: str, dst: str, sport: int, opcode: int, qpn: int, size: int = 100) -> bytes:
    bth = bytes((opcode, 0, 0xFF, 0xFF, 0)) + qpn.to_bytes(3, "big") + bytes(4)
    frame = (
        scapy.Ether() / scapy.IP(src=src, dst=dst) / scapy.UDP(sport=sport, dport=4791) / (bth + bytes(size))
    )
    return bytes(frame)


def test_roce_in_a_capture(tmp_path: Path) -> None:
    frames = [
        packet("10.0.0.1", "10.0.0.2", 50001, 0x0A, 23),
        packet("10.0.0.1", "10.0.0.2", 50001, 0x0A, 23),
        packet("10.0.0.2", "10.0.0.1", 0, 0x81, 17, 16),  # a congestion notification
        packet("10.0.0.2", "10.0.0.1", 60000, 0x81, 17, 16),  # one with a port of the card's own
        packet("10.0.0.2", "10.0.0.1", 50002, 0x11, 17, 4),  # an acknowledgement
        bytes(scapy.Ether() / scapy.IP() / scapy.UDP(dport=53) / b"x"),
        bytes(scapy.Ether() / scapy.IP() / scapy.UDP(sport=9, dport=4791) / b"short"),
    ]
    path = tmp_path / "roce.pcap"
    scapy.wrpcap(str(path), [scapy.Ether(frame) for frame in frames])
    report = Report()
    found = {(c.src, c.qpn, c.sport): (c.packets, c.bytes) for c in roce.captured(path, report)}
    assert found == {
        ("10.0.0.1", 23, 50001): (2, 2 * (20 + 8 + 12 + 100)),
        ("10.0.0.2", 17, None): (2, 2 * (20 + 8 + 12 + 16)),
        ("10.0.0.2", 17, 50002): (1, 20 + 8 + 12 + 4),
    }
    assert report.skipped == {"RoCE packet cut before its transport header": 1, "UDP to another port": 1}
    alone = of_capture(roce.captured(path, Report()))
    assert {f.key.sport: f.sport_source for f in alone} == {
        50001: SportSource.CAPTURED, 50002: SportSource.CAPTURED, 0: SportSource.UNKNOWN,
    }  # fmt: skip


def link(
    name: str, kind: str = "", data: dict[str, object] | None = None, **more: object
) -> dict[str, object]:
    info = {"linkinfo": {"info_kind": kind, "info_data": data or {}}} if kind else {}
    return {"ifname": name, "operstate": "UP", **info, **more}


def test_the_ports_behind_an_interface_its_vlan_and_its_vrf() -> None:
    links = [
        link("eth0", master="bond0"),
        link("eth1", master="bond0"),
        link("eth2", master="bond0", operstate="DOWN"),
        link("bond0", "bond", {"mode": "802.3ad"}),
        link("bond0.100", "vlan", {"id": 100}, link="bond0", master="blue"),
        link("blue", "vrf", {"table": 10}),
        link("eth8", master="bond1"),
        link("eth9", master="bond1"),
        link("bond1", "bond", {"mode": "active-backup", "active_slave": "eth9"}),
    ]
    found = netdevs(json.dumps(links), "f")
    assert found["bond0.100"] == Netdev(("eth0", "eth1"), 100, "blue")
    assert found["bond1"] == Netdev(("eth9",))
    assert found["eth2"] == Netdev(("eth2",))
    with pytest.raises(MalformedInput, match="ip -d -j link"):
        netdevs("1: lo: <LOOPBACK>", "f")
    table = gid(1).replace("v2\teth0", "v2\tbond0.100")
    one = host("a", 1, A, gids=rdma.gids(table, "a"), netdevs=found)
    flow = by_source(join([one, host("b", 2, B)], sport_of).flows)["10.0.0.1"]
    assert (flow.netdev, flow.ports, flow.vlan, flow.vrf) == ("bond0.100", ("eth0", "eth1"), 100, "blue")
