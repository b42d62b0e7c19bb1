"""The lab's parts without a lab: what nodes write, the scripts with stand-ins for daemons, fits and charts."""

import json
import os
import stat
import struct
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.errors import Setup, Usage
from tempotrace import chart
from tempotrace.cli import run as command
from tempotrace.clockwork import seeded
from tempotrace.netlab import report, run, series
from tests.paths import shared_data


def stamp(ns: int) -> bytes:
    second, rest = divmod(ns, 1_000_000_000)
    return struct.pack(">HII", second >> 32, second & 0xFFFFFFFF, rest)


def message(kind: int, *records: bytes) -> str:
    body = bytes(10) + b"".join(records)
    return (b"\x0c\x02" + bytes(42) + struct.pack(">HH", kind, len(body)) + body).hex()


def sync(sequence: int, left: int, arrived: int, correction: int = 0) -> bytes:
    return (
        struct.pack(">H", sequence)
        + stamp(left)
        + struct.pack(">q", correction << 16)
        + bytes(4)
        + stamp(arrived)
    )


def delay(sequence: int, left: int, arrived: int, correction: int = 0) -> bytes:
    return struct.pack(">H", sequence) + stamp(left) + struct.pack(">q", correction << 16) + stamp(arrived)


BASE = 1_796_099_200_969_278_509


def test_exchanges_of_the_event_monitor() -> None:
    text = "\n".join(
        [
            message(0x8004, sync(15, BASE, BASE + 13_866, 6), sync(16, BASE + 100_000, BASE + 113_000)),
            message(0x7F00, delay(3, BASE + 200_000, BASE + 230_000)),
            message(0x7F00, delay(4, BASE + 300_000, BASE + 330_000)),  # no sync since: not used
            message(0x2000, bytes(30)),
            "00" * 60,
            "not hex",
            message(0x8004, sync(17, BASE, BASE + 5))[:-3],
        ]
    )
    assert list(series.legs(text)) == [
        series.Leg(True, 15, BASE + 6, BASE + 13_866),
        series.Leg(True, 16, BASE + 100_000, BASE + 113_000),
        series.Leg(False, 3, BASE + 200_000, BASE + 230_000),
        series.Leg(False, 4, BASE + 300_000, BASE + 330_000),
    ]
    # 13 µs down, 30 µs up: the node seems 8.5 µs behind.
    assert series.two_way(series.legs(text)).tolist() == [-8500]


@given(st.binary(max_size=200), st.integers(0, 400))
def test_any_bytes_are_read_or_passed_over(noise: bytes, cut: int) -> None:
    whole = message(0x8004, sync(15, BASE, BASE + 9))
    for text in (noise.hex(), noise.decode("latin-1"), whole[:cut], ("0c02" + noise.hex())):
        list(series.legs(text))


def test_the_logs_of_a_node() -> None:
    log = shared_data("time", "netns-lab", "congested", "ptp4l_n1.log").read_bytes()
    lines = [
        "2026-12-01 04:26:36 10.77.0.1       N  1 111 111 1111  -3  0 1.00 -5.270e-07  5.958e-05  4.541e-07  "
        "0.000e+00  0.000e+00 7F7F0101 4B K K",
        "2026-12-01 04:26:36 10.77.0.1       N  1 111 111 1101  -3  0 1.00  2.000e-06  5.958e-05  4.541e-07  "
        "0.000e+00  0.000e+00 7F7F0101 4B K K",
        "2026-12-01 04:26:36 10.77.0.1       N  1 111 011 1111  -3  0 1.00  3.000e-06  5.958e-05  4.541e-07  "
        "0.000e+00  0.000e+00 7F7F0101 4B K K",
    ]
    found = series.read({"ptp4l.log": log, "measurements.log": "\n".join(lines).encode()})
    assert found["ntp exchange"].tolist() == [527, -2000]
    assert found["ntp used"].tolist() == [527]
    assert len(found["ptp4l"]) == sum(b"master offset" in line for line in log.splitlines())


def test_a_report_of_known_errors() -> None:
    rng = seeded(8)
    header = "2026-12-01 04:26:36 10.77.0.1       N  1 111 111 1111  -3  0 1.00"

    def log(node: int) -> bytes:
        offsets = rng.laplace(0, 1e-5, 400)
        tail = "5.958e-05  4.541e-07  0.000e+00  0.000e+00 7F7F0101 4B K K"
        return "\n".join(f"{header} {offset:.3e}  {tail}" for offset in offsets).encode()

    nodes = [run.NodeFiles(f"n{node}", "idle", {"measurements.log": log(node)}) for node in (1, 2, 3)]
    nodes.append(run.NodeFiles("n4", "idle", {}, "missing: chronyd"))
    result, charts = report.summarise(nodes, report.NAMESPACES_CAVEAT)
    assert result["warnings"] == ["n4, idle: missing: chronyd"]
    assert {row["best"] for row in result["series"]} <= {"laplace", "student"}
    assert [row["samples"] for row in result["series"] if row["series"] == "ntp used"] == [
        400,
        400,
        400,
        1200,
    ]
    shares = {row["gap_ns"]: row for row in result["inverted"] if row["series"] == "ntp used"}
    for gap in (10_000, 20_000, 50_000):
        assert shares[gap]["laplace"] == pytest.approx(shares[gap]["measured"], abs=2.0)
    # Here the tail is what tells the two apart: Gauss says 0.3 %, Laplace 0.8 %.
    assert shares[50_000]["measured"] > 2 * shares[50_000]["gauss"]
    assert [each.title for each in charts] == ["ntp exchange, idle, all nodes", "ntp used, idle, all nodes"]
    json.dumps(result)


def test_nothing_measured_is_an_error() -> None:
    with pytest.raises(Setup, match="h1, as found: no route"):
        report.summarise([run.NodeFiles("h1", "as found", {}, "no route")], report.HOSTS_CAVEAT)


DAEMONS = {
    "id": 'echo 0',
    "getent": 'echo "192.0.2.7 STREAM $2"',
    "ip": 'echo "192.0.2.7 via 192.0.2.1 dev enp1s0 src 192.0.2.9"',
    "setpriv": 'shift 2\nif [ "$1" = sed ]; then echo 000001fffdffffff; else exec "$@"; fi',
    "ptp4l": '[ "$1" = -v ] && echo 9.9 && exit\necho "ptp4l[1.000]: master offset 7 s0 freq +1 path delay 3" >&2\n'
    'cp "$2" "$KEEP/ptp4l.conf"; exec sleep 60',
    "chronyd": '[ "$1" = -v ] && exit\nwhile [ "$1" != -f ]; do shift; done\n'
    'cp "$2" "$KEEP/chrony.conf"; exec sleep 60',
    "ssh": 'for last; do :; done\nexec sh -c "$last"',
}  # fmt: skip


@pytest.fixture
def stand_ins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Programs of these names that stand in for the real ones; gives the folder where they keep things."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name, text in DAEMONS.items():
        program = folder / name
        program.write_text(f"#!/bin/sh\n{text}\n")
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    monkeypatch.setenv("KEEP", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return tmp_path


def test_hosts_run_the_nodes_script(stand_ins: Path) -> None:
    master, slave = run.hosts(["a.example", "root@b.example"], 1, lambda _: None)
    assert (master.node, master.load, master.failed) == ("a.example", "as found", None)
    assert slave.failed is None
    assert (
        slave.files["about"].decode().splitlines()[-1]
        == "interface enp1s0, effective rights 000001fffdffffff"
    )
    assert series.read(slave.files)["ptp4l"].tolist() == [7]
    # Whichever wrote last is kept; both have the lines that the two roles share.
    assert "time_stamping software" in (stand_ins / "ptp4l.conf").read_text()
    assert "port 11123" in (stand_ins / "chrony.conf").read_text()
    assert list(stand_ins.glob("tempotrace-node.*")) == []


@pytest.mark.parametrize(
    ("program", "text", "message"),
    [
        ("setpriv", "echo 000001ffffffffff", "right to set the clock could not be taken away"),
        ("ip", ":", "no interface leads to a.example"),
        ("chronyd", "echo no rights >&2; exit 1", "chronyd ended early (1): no rights"),
        ("id", "echo 5", "needs root"),
    ],
)
def test_why_a_host_failed(stand_ins: Path, program: str, text: str, message: str) -> None:
    (stand_ins / "bin" / program).write_text(f"#!/bin/sh\n{text}\n")
    if program == "id":  # not root, and sudo refuses
        (stand_ins / "bin" / "sudo").write_text('#!/bin/sh\nshift\nexec "$@"\n')
        (stand_ins / "bin" / "sudo").chmod(0o755)
    _, slave = run.hosts(["a.example", "b.example"], 1, lambda _: None)
    assert slave.files == {}
    assert message in (slave.failed or "")
    assert list(stand_ins.glob("tempotrace-node.*")) == []


def test_a_node_stops_at_the_end_of_its_stdin(stand_ins: Path) -> None:
    script = run.node_script(False, "192.0.2.7", "eth0", "", 600, "no-such-python")
    began = time.monotonic()
    process = subprocess.Popen(["sh", "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    while not (stand_ins / "chrony.conf").exists():
        assert time.monotonic() - began < 20
        time.sleep(0.02)
    out, _ = process.communicate(timeout=20)  # closes stdin
    assert (process.returncode, out) == (130, b"")
    assert list(stand_ins.glob("tempotrace-node.*")) == []


@pytest.mark.parametrize("names", [["a"], ["a", "a"], ["a", "-oProxyCommand=x"], ["a", "b c"]])
def test_names_that_are_no_hosts(names: list[str]) -> None:
    with pytest.raises(Usage, match="--hosts"):
        run.hosts(names, 1, lambda _: None)


def test_without_root_or_tools_it_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert command(["clock", "experiment", "netns", "--json"]) == 1
    assert json.loads(capsys.readouterr().out) == {"error": "network namespaces need root: run it with sudo"}
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setenv("PATH", "/nowhere")
    assert command(["clock", "experiment", "netns", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["error"].startswith("missing: unshare, setpriv, ip, tc, ptp4l")


def test_charts_with_nothing_or_odd_values_are_drawn(tmp_path: Path) -> None:
    odd = chart.Curve("odd", np.array([0.0, 1.0, np.nan, 10.0]), np.array([0.0, 1e-9, 1.0, np.inf]))
    charts = [
        chart.Chart("none", "x", "y"),
        chart.Chart("odd <b>", "x", "y", [odd], log_x=True, log_y=True),
        chart.Chart("flat", "x", "y", [chart.Curve("f", np.ones(3), np.ones(3))], note="<i>"),
    ]
    page = chart.write(tmp_path / "c.html", "a & b", charts).read_text()
    assert (page.count("<svg"), "<b>" in page, "<i>" in page, "nan" in page) == (3, False, False, False)
