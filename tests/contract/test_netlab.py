"""The lab for real: namespaces, ptp4l, chronyd. Skipped where the machine lacks the rights or the tools."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tempotrace.netlab import run
from tests.paths import REPO

pytestmark = pytest.mark.skipif(run.missing() is not None, reason=f"no lab here: {run.missing()}")
COMMAND = [sys.executable, "-m", "tempotrace", "clock", "experiment", "netns"]


def namespaces() -> set[str]:
    """Every network namespace that some process is in, and every name of one."""
    found = {f"name:{path.name}" for path in Path("/run/netns").glob("*")}
    for link in Path("/proc").glob("[0-9]*/ns/net"):
        try:
            found.add(str(link.readlink()))
        except OSError:
            continue  # that process has just ended
    return found


def daemons(word: str) -> list[int]:
    """Processes with this word in their command line."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if word.encode() in path.read_bytes():
                found.append(int(path.parent.name))
        except OSError:
            continue
    return found


def until(done: object, seconds: float = 30.0) -> None:
    end = time.monotonic() + seconds
    while not done():  # type: ignore[operator]
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.05)


def test_three_nodes_measured_and_nothing_left(tmp_path: Path) -> None:
    before = namespaces()
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    done = subprocess.run(
        [*COMMAND, "--nodes", "3", "--seconds", "12", "--json", "--plot", str(tmp_path / "fits.html")],
        cwd=REPO, env=environment, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["caveat"].startswith("One kernel and one oscillator")
    got = {(row["load"], row["series"], row["node"]) for row in result["series"]}
    wanted = {(load, "ntp exchange", node) for load in ("idle", "congested") for node in ("n1", "n2", "all")}
    assert wanted <= got
    assert ("idle", "ptp exchange", "all") in got
    for row in result["series"]:
        # True offsets are 0: idle medians stay small, though no machine's scheduling is promised.
        if row["load"] == "idle":
            assert abs(row["median_ns"]) < 1_000_000
        assert set(row["laws"]) == {"gauss", "laplace", "student"}
    rights = int(result["about"]["n1"][-1].rpartition(" ")[2], 16)
    assert rights >> 25 & 1 == 0  # CAP_SYS_TIME
    assert "<svg" in (tmp_path / "fits.html").read_text()
    assert namespaces() <= before
    assert list(tmp_path.glob("tempotrace-*")) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_however_it_ends_nothing_stays(tmp_path: Path, number: signal.Signals) -> None:
    before = namespaces()
    process = subprocess.Popen(
        [*COMMAND, "--nodes", "2", "--seconds", "600"],
        cwd=REPO, env=os.environ | {"TMPDIR": str(tmp_path)},
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    try:
        until(lambda: daemons("/run/tempotrace-node") and namespaces() - before)
        process.send_signal(number)
        code = process.wait(30)
    finally:
        process.kill()
    assert code == (-number if number == signal.SIGKILL else 130)
    until(lambda: not daemons("/run/tempotrace-node"))
    until(lambda: namespaces() <= before)
    if number != signal.SIGKILL:
        assert list(tmp_path.glob("tempotrace-*")) == []
