"""`tempotrace produce fabric`: its inputs together, walks with models rated, and what it sends and says."""

import json
from pathlib import Path
from typing import Any

import pytest

from producers.transport import MemoryTransport
from schemas import codec
from schemas.codes import FabricKind
from schemas.errors import MalformedInput, Usage
from schemas.network import FlowKey
from streams.paths.hashing import HashModel, parse_model
from streams.paths.models import place
from tempotrace.cli import feed
from tempotrace.cli.produce_fabric import fabric

MODEL = "crc32c,seed=11"


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> MemoryTransport:
    """What goes to Kafka otherwise."""
    transport = MemoryTransport()
    monkeypatch.setattr(feed, "KafkaTransport", lambda *_, **__: transport)
    return transport


def write(folder: Path, **files: Any) -> None:
    for name, content in files.items():
        text = content if isinstance(content, str) else json.dumps(content)
        (folder / name.replace("__", ".")).write_text(text)


def appl_db(leaf: int) -> dict[str, Any]:
    """A leaf with four spines: its own subnet, the other's by four next hops."""
    other = 1 - leaf
    return {
        f"ROUTE_TABLE:10.{leaf}.0.0/24": {"ifname": "Vlan10", "nexthop": "0.0.0.0"},
        f"ROUTE_TABLE:10.{other}.0.0/24": {
            "ifname": ",".join(f"Ethernet{4 * k}" for k in range(4)),
            "nexthop": ",".join(f"172.16.{leaf}.{k}" for k in range(4)),
        },
        f"NEIGH_TABLE:Ethernet100:10.{leaf}.0.1": {"neigh": "02:00:00:00:00:01"},
        "PORT_TABLE:Ethernet0": {"speed": "400000"},
    }


def spine(_: int) -> dict[str, Any]:
    return {
        f"ROUTE_TABLE:10.{leaf}.0.0/24": {"ifname": f"Ethernet{leaf}", "nexthop": f"172.17.{leaf}.1"}
        for leaf in range(2)
    }


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two leaves, four spines, a host each, as files."""
    links = [{"a": f"h{leaf}:eth0", "b": f"leaf{leaf}:Ethernet100", "gbps": 400} for leaf in range(2)]
    links += [
        {"a": f"leaf{leaf}:Ethernet{4 * k}", "b": f"spine{k}:Ethernet{leaf}", "gbps": 400}
        for leaf in range(2)
        for k in range(4)
    ]
    switches = [f"{kind}{k}" for kind, count in (("leaf", 2), ("spine", 4)) for k in range(count)]
    write(tmp_path, topo__yml={"switches": switches, "hosts": ["h0", "h1"], "links": links})
    for k in range(2):
        write(tmp_path, **{f"leaf{k}__json": appl_db(k)})
    for k in range(4):
        write(tmp_path, **{f"spine{k}__json": spine(k)})
    return tmp_path


def routes(folder: Path) -> list[str]:
    return [f"{path.stem}={path}" for path in sorted(folder.glob("*[0-9].json"))]


def chosen(sport: int, model: HashModel) -> int:
    key = FlowKey("10.0.0.1", "10.1.0.1", 17, sport, 4791)
    return place(model, key, "leaf0", "Ethernet100", None, 4)


def flow_list(ports: range) -> str:
    return "src,dst,src_port\n" + "".join(f"10.0.0.1,10.1.0.1,{port}\n" for port in ports)


def observed(ports: range, wrong: int = 0) -> list[dict[str, Any]]:
    """Flows of h0 to h1 with paths as `MODEL` chooses them, the first `wrong` of them otherwise."""
    out = []
    for number, port in enumerate(ports):
        k = (chosen(port, parse_model(MODEL)) + (number < wrong)) % 4
        path = ["h0:eth0>leaf0:Ethernet100", f"leaf0:Ethernet{4 * k}>spine{k}:Ethernet0"]
        out.append({"src": "10.0.0.1", "dst": "10.1.0.1", "src_port": port, "path": path})
    return out


def run(capsys: pytest.CaptureFixture[str], **options: Any) -> dict[str, Any]:
    fabric(as_json=True, **options)
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_walks_with_a_model_that_observed_paths_confirm(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(folder, flows__csv=flow_list(range(60000, 60050)), seen__json=observed(range(50000, 50100)))
    out = run(
        capsys, topology=[str(folder / "topo.yml")], routes=routes(folder), flows=folder / "flows.csv", walk=True,
        observed=folder / "seen.json", hash_=MODEL, paths=folder / "paths.jsonl", dry_run=True,
    )  # fmt: skip
    assert (out["walks"], out["path_sources"], out["ends"]) == (50, {"computed": 50}, {"arrived": 50})
    assert out["models"]["leaf0"]["ecmp"] == {
        "model": "crc32c", "agreement": 1.0, "choices": 100, "calibrated": True,
    }  # fmt: skip
    assert out["topology"] == {"kinds": ["yaml"], "switches": 6, "hosts": 2, "links": 20}
    lines = [json.loads(line) for line in (folder / "paths.jsonl").read_text().splitlines()]
    assert len(lines) == 50
    for line in lines:
        k = chosen(line["src_port"], parse_model(MODEL))
        assert [step["link"] for step in line["path"]] == [
            "h0:eth0>leaf0:Ethernet100",
            f"leaf0:Ethernet{4 * k}>spine{k}:Ethernet0",
            f"spine{k}:Ethernet1>leaf1:Ethernet{4 * k}",
            "leaf1:Ethernet100>h1:eth0",
        ]
        assert (line["path_source"], line["agreement"], line["ends"]) == ("computed", 1.0, {"arrived": 1.0})


@pytest.mark.parametrize(("wrong", "source"), [(0, "computed"), (2, "candidates")])
def test_below_99_percent_paths_are_candidates(
    folder: Path, capsys: pytest.CaptureFixture[str], wrong: int, source: str
) -> None:
    write(folder, flows__csv=flow_list(range(60000, 60003)), seen__json=observed(range(50000, 50100), wrong))
    out = run(
        capsys, topology=[str(folder / "topo.yml")], routes=routes(folder), flows=folder / "flows.csv", walk=True,
        observed=folder / "seen.json", hash_=MODEL, dry_run=True,
    )  # fmt: skip
    assert out["path_sources"] == {source: 3}
    assert out["models"]["leaf0"]["ecmp"]["agreement"] == 1 - wrong / 100


def test_exact_answers_make_walked_paths(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answer = {
        "switch": "leaf0", "src": "10.0.0.1", "dst": "10.1.0.1", "sport": 60000, "port_in": "Ethernet100",
        "text": "Egress port: Ethernet8\n",
    }  # fmt: skip
    write(folder, flows__csv=flow_list(range(60000, 60002)), exact__jsonl=json.dumps(answer) + "\n")
    out = run(
        capsys, topology=[str(folder / "topo.yml")], routes=routes(folder), flows=folder / "flows.csv", walk=True,
        exact=folder / "exact.jsonl", paths=folder / "p.jsonl", dry_run=True,
    )  # fmt: skip
    assert out["path_sources"] == {"walked": 1, "candidates": 1}
    first = json.loads((folder / "p.jsonl").read_text().splitlines()[0])
    assert first["path"][1] == {"link": "leaf0:Ethernet8>spine2:Ethernet0", "share": 1.0, "how": "exact"}


def counters(tx: int) -> dict[str, Any]:
    return {
        "COUNTERS_PORT_NAME_MAP": {"Ethernet0": "oid:0x1"},
        "COUNTERS:oid:0x1": {"SAI_PORT_STAT_IF_OUT_OCTETS": str(tx), "SAI_PORT_STAT_IF_IN_OCTETS": "0"},
    }


def test_everything_is_sent_to_the_fabrics_tenant(
    folder: Path, sent: MemoryTransport, capsys: pytest.CaptureFixture[str]
) -> None:
    write(folder, flows__csv=flow_list(range(60000, 60002)), c0__dump=counters(5), c1__dump=counters(1005))
    files = [f"leaf0={folder / 'c0.dump'}@1700000000", f"leaf0={folder / 'c1.dump'}@2023-11-14T22:13:21Z"]
    out = run(
        capsys, topology=[str(folder / "topo.yml")], routes=routes(folder), flows=folder / "flows.csv", walk=True,
        counters=files, plane="3",
    )  # fmt: skip
    assert (out["tenant"], out["scope"], out["counters"], out["flows"], out["paths"]) == (
        "fabric", "fabric/3", 2, 2, 2,
    )  # fmt: skip
    assert out["counter_states"] == {"first": 1, "ok": 1}
    rows = [codec.decode_batch(message.value) for message in sent.sent][-1]
    kinds = rows.wide("kind").tolist()
    assert {kind: kinds.count(kind) for kind in FabricKind} == {
        FabricKind.COUNTER: 2, FabricKind.FLOW: 2, FabricKind.HOP: 2 * (1 + 4 + 4 + 4),
    }  # fmt: skip
    at = max(k for k, kind in enumerate(kinds) if kind == FabricKind.COUNTER)
    assert (rows.wide("tx_bytes")[at], rows.wide("interval_ns")[at]) == (1000, 10**9)
    assert rows.column("capacity_bps")[at] == 400e9


def test_hosts_and_sysfs(folder: Path, sent: MemoryTransport, capsys: pytest.CaptureFixture[str]) -> None:
    for name, pair, gid in (("a", "lqpn 17 rqpn 23", 1), ("b", "lqpn 23 rqpn 17", 2)):
        (folder / "hosts" / name).mkdir(parents=True)
        write(
            folder / "hosts" / name,
            qp__txt=f"link mlx5_0/1 {pair} type RC state RTS rq-psn 1 sq-psn 1 pdn 8 pid 9 comm x\n",
            gids__txt=f"mlx5_0 1 3 0000:0000:0000:0000:0000:ffff:0a00:000{gid} 10.0.0.{gid} v2 eth0\n",
        )
        (folder / "hosts" / name / "9.environ").write_text(f"RANK={gid}\0SLURM_JOB_ID=77\0")
    out = run(capsys, hosts=folder / "hosts", dry_run=True)
    assert (out["flows"], out["sport_sources"], out["ambiguous"]) == (2, {"formula": 2}, [])


def test_live_sysfs_through_the_spool(
    tmp_path: Path, sent: MemoryTransport, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEMPOTRACE_HOME", str(tmp_path / "home"))
    place = tmp_path / "sys" / "mlx5_0" / "ports" / "1"
    (place / "counters").mkdir(parents=True)
    write(place, rate="400 Gb/sec (4X NDR)\n", state="4: ACTIVE\n")
    write(place / "counters", port_xmit_data="5\n", port_rcv_data="7\n")
    out = run(capsys, sysfs=tmp_path / "sys", every="20ms", seconds="200ms", host="here")
    assert out["counters"] == out["events"] >= 2
    assert out["counter_states"]["first"] == 1
    last = [codec.decode_batch(message.value) for message in sent.sent if message.topic.endswith("events")]
    data = [batch for batch in last if batch.family == "fabric" and batch.count]
    assert data[0].strings[int(data[0].column("entity")[0])] == "here:mlx5_0:1>"
    assert int(data[0].data["tx_total"][0]) == 20


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({}, "nothing to read"),
        ({"routes": ["leaf0"]}, "NAME=FILE"),
        ({"walk": True, "flows": Path("flows.csv")}, "needs --topology"),
        ({"paths": Path("x"), "flows": Path("flows.csv")}, "go with --walk"),
        ({"counters": ["leaf0=c0.dump@yesterday"]}, "is no time"),
        ({"counters": ["leaf0=c0.dump@2023-11-14T22:13:21"]}, "no time zone"),
        ({"sysfs": Path("/nowhere")}, "no such folder"),
        ({"pcap": [Path("nowhere.pcap")]}, "No such file"),
        ({"hosts": Path("nowhere")}, "no folder of a host"),
    ],
)
def test_wrong_usage_is_told(
    folder: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], told: str
) -> None:
    monkeypatch.chdir(folder)
    write(folder, flows__csv=flow_list(range(60000, 60002)), c0__dump=counters(5))
    with pytest.raises((Usage, MalformedInput), match=told):
        fabric(dry_run="sysfs" not in options, **options)
