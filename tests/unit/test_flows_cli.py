"""The commands `tempotrace flows report` and `flows compare`."""

import json
import math
from pathlib import Path

import pytest

from tempotrace import cli
from tests.paths import shared_data

PATHS = {
    0: "h1:1>l1:9|l1:1>s1:1|s1:2>l2:1|l2:9>h2:1",
    1: "h1:1>l1:9|l1:2>s2:1|s2:2>l2:2|l2:9>h2:1",
    2: "h3:1>l1:8|l1:1>s1:1|s1:2>l2:1|l2:9>h2:1",
}


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> dict[str, object]:
    code = cli.run(["flows", *map(str, arguments), "--json"])
    out = capsys.readouterr().out
    assert code == 0, out
    assert len(out.strip().splitlines()) == 1
    return json.loads(out)  # type: ignore[no-any-return]


LAYER_FIELDS = {
    "layer",
    "groups",
    "links",
    "flows",
    "bytes",
    "fim_routing",
    "fim_layer",
    "fim_null",
    "z",
    "p",
    "max_over_mean",
    "jain",
    "cov",
}


def test_compare_without_input_runs_flowtracers_setup(capsys: pytest.CaptureFixture[str]) -> None:
    out = run(capsys, "compare", "--draws", 50)
    assert "FlowTracer" in str(out["input"])
    a, b, study = (dict(out[name]) for name in ("a", "b", "study"))  # type: ignore[call-overload]
    for side in (a, b):
        assert set(side["layers"][0]) >= LAYER_FIELDS
        assert {"collisions", "polarisation", "completion"} <= set(side)
    assert a["flows"] == 64
    assert b["layers"][0]["fim_routing"] == 0.0
    assert b["assignment"]["optimal"]
    assert b["assignment"]["without_port"] == 0
    assert len({(f["src"], f["proposed_src_port"]) for f in b["assignment"]["flows"]}) == 64
    assert study["draws"] == 50
    points = out["difference"]["layers"][0]["fim_routing_points"]  # type: ignore[index]
    assert -a["layers"][0]["fim_routing"] == points


def test_proposed_ports_can_be_tried(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The ports that `static` proposes, given back as a reroute, make hashing as even as it."""
    out = run(capsys, "compare", "--draws", 2, "--seed", 4)
    rows = out["b"]["assignment"]["flows"]  # type: ignore[index]
    file = tmp_path / "flows.json"
    file.write_text(json.dumps(rows))
    changes = tmp_path / "changes.json"
    changes.write_text(
        json.dumps([row | {"new_src_port": row["proposed_src_port"], "path": []} for row in rows])
    )
    fabric = "leaf-spine:leaves=2,hosts=8,spines=8"
    made = run(capsys, "compare", "--flows", file, "--fabric", fabric, "--b", f"reroute:{changes}")
    assert made["a"]["layers"][0]["fim_routing"] > 10  # type: ignore[index]
    assert made["b"]["layers"][0]["fim_routing"] == 0.0  # type: ignore[index]


def test_report_of_a_file_with_paths(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "flows.csv"
    rows = [f"10.0.0.1,10.0.1.1,{k},4791,1000,{PATHS[0 if k < 6 else 1]}" for k in range(8)]
    file.write_text("\n".join(["src,dst,src_port,dst_port,bytes,path", *rows]))
    out = run(capsys, "report", "--flows", file)
    row = out["layers"][0]  # type: ignore[index]
    assert (row["layer"], row["groups"], row["links"], row["flows"]) == ("tier1-up", 1, 2, 8)
    assert row["fim_routing"] == 50.0
    assert math.isclose(row["fim_null"], 27.34375)
    assert out["path_sources"] == {"given": 1.0}
    moved = run(capsys, "compare", "--flows", file, "--b", "static")
    assert moved["b"]["layers"][0]["fim_routing"] == 0.0  # type: ignore[index]
    changes = tmp_path / "change.csv"
    changes.write_text(f"src,dst,src_port,path\n10.0.0.1,10.0.1.1,0,{PATHS[1]}\n")
    moved = run(capsys, "compare", "--flows", file, "--b", f"reroute:{changes}")
    assert moved["b"]["layers"][0]["fim_routing"] == 25.0  # type: ignore[index]


def test_a_fabric_from_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fabric = tmp_path / "fabric.csv"
    hosts = [f"h{k},l{k // 2},100" for k in range(4)]
    fabric.write_text(
        "\n".join(["a,b,gbps", *hosts, *(f"l{k},s{n},100" for k in range(2) for n in range(2))])
    )
    flows = tmp_path / "flows.json"
    rows = [
        {"src": f"h{k % 2}", "dst": f"h{2 + k % 2}", "src_port": 49152 + k, "bytes": 10} for k in range(40)
    ]
    flows.write_text("\n".join(json.dumps(row) for row in rows))
    out = run(capsys, "report", "--flows", flows, "--fabric", fabric)
    row = out["layers"][0]  # type: ignore[index]
    assert (row["layer"], row["groups"], row["links"], row["flows"]) == ("tier1-up", 1, 4, 40)


def test_a_lab_of_containers_and_flows_without_bytes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fabric = shared_data("fabric", "topo", "clos02.clab.yml")
    flows = tmp_path / "flows.csv"
    flows.write_text("src,dst,src_port,bytes\nclient1,client3,50000,0.0\nclient1,client4,50001,0.0\n")
    out = run(capsys, "compare", "--flows", flows, "--fabric", fabric, "--b", "static")
    for side in (out["a"], out["b"]):
        assert side["completion"]["seconds"] >= 0  # type: ignore[index]
        assert side["layers"][0]["layer"] == "tier1-up"  # type: ignore[index]
    assert cli.run(["flows", "report", "--flows", str(flows), "--fabric", str(fabric)]) == 0


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("src,dst\n10.0.0.1,10.0.0.2\n", 2),  # no path and no fabric
        ("src,bytes\n10.0.0.1,1\n", 1),
        ("src,dst,bytes\n10.0.0.1,10.0.0.2,x\n", 1),
        ("src,dst,src_port\n10.0.0.1,10.0.0.2,70000\n", 1),
        ("[1, 2]", 1),
        ("{not json", 1),
    ],
)
def test_broken_files_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, code: int
) -> None:
    file = tmp_path / "flows"
    file.write_text(text)
    assert code == cli.run(["flows", "report", "--flows", str(file), "--json"])
    assert "error" in json.loads(capsys.readouterr().out)


def test_report_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [
        "flows",
        "report",
        "--fabric",
        "clos:pods=2,leaves=2,aggs=2,hosts=4,uplinks=2",
        "--demand",
        "ring",
    ]
    assert cli.run(arguments) == 0
    assert "polarisation" in capsys.readouterr().out
    assert cli.run(["flows", "compare", "--draws", "2", "--b", "spray"]) == 0
    assert "FlowTracer" in capsys.readouterr().out
    assert cli.run(["flows", "report", "--demand", "ring"]) == 2
    assert cli.run(["flows", "compare", "--fabric", "clos:pods=2"]) == 2
