"""The command `produce host`: wrong usage, and live input without a broker."""

import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tempotrace import cli
from tempotrace.scopes import Registration, registered, registrations
from tests.ports import local_peers

MESH = ["produce", "host", "--mesh", "--node", "a", "--listen", "127.0.0.1:7"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["produce", "host", "--json"], "say what to read"),
        (["produce", "host", "--mesh"], "--mesh needs --node, --listen and at least one --peer"),
        (["produce", "host", "--mesh", "--log", "x"], "either --log FILE, --mesh or --rdma DEV"),
        (["produce", "host", "--log", "-", "--follow"], "not standard input"),
        (["produce", "host", "--log", "x", "--for", "1s"], "--for is for live input"),
        ([*MESH, "--peer", "b"], "write NAME=HOST:PORT"),
        ([*MESH, "--peer", "b=10.0.0.1"], "is no HOST:PORT"),
        ([*MESH, "--peer", "a=10.0.0.1:7"], "this node's own name"),
        ([*MESH, "--peer", "b=10.0.0.1:7", "--interval", "soon"], "is no length of time"),
        ([*MESH, "--peer", "b=10.0.0.1:7", "--interval", "10us"], "write 1ms to 1h"),
        ([*MESH, "--peer", "b=10.0.0.1:7", "--tenant", "No"], "no tenant name"),
    ],
)
def test_wrong_usage_is_one_line(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(arguments) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    assert said in lines[0]


def test_help_has_an_example(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["produce", "host", "--help"]) == 0
    assert "Example: tempotrace produce host --mesh" in capsys.readouterr().out


def test_without_a_broker_the_events_wait_for_the_next_start(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (port,) = local_peers(1).values()
    arguments = ["produce", "host", "--mesh", "--node", "a", "--listen", f"127.0.0.1:{port}"]
    arguments += ["--peer", "b=127.0.0.1:9", "--for", "200ms", "--bootstrap-servers", "127.0.0.1:1", "--json"]
    assert cli.run(arguments) == 0
    result = json.loads(capsys.readouterr().out)
    assert (result["events"], result["sent"], result["received"]) == (0, 0, 0)
    assert result["waiting"] >= 2  # the open row, the end of the source
    assert list((home / "spool" / "default-mesh-a").glob("*.seg")) != []
    assert registrations(home / "scopes") == []


def test_a_log_that_is_missing_is_said_at_once_and_so_is_its_coming(home: Path, tmp_path: Path) -> None:
    path = tmp_path / "ptp4l.log"
    command = [sys.executable, "-m", "tempotrace", "produce", "host", "--log", str(path), "--follow"]
    command += ["--for", "30s", "--bootstrap-servers", "127.0.0.1:1"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as running:
        assert running.stderr is not None
        said = [next(line for line in iter(running.stderr.readline, "") if str(path) in line)]
        path.write_text("ptp4l[5.125]: master offset 3 s2 freq +1 path delay 100\n")
        said.append(next(line for line in iter(running.stderr.readline, "") if str(path) in line))
        running.terminate()
        rest = running.stderr.read()
    assert [line.partition(f"{path}: ")[2].strip() for line in said] == [
        "No such file or directory; waiting for it",
        "is there now, and read from its start",
    ]
    assert "waiting for it" not in rest


def test_registrations_last_as_long_as_their_process(tmp_path: Path) -> None:
    one, two = Registration("t", "s", "h/c", "p"), Registration("t", "s2", "h/c", "p")
    with registered(tmp_path, [two, one]):
        assert registrations(tmp_path) == [one, two]
    assert registrations(tmp_path) == []
    (tmp_path / "left.json").write_text(json.dumps(one._asdict()))  # by a process that was killed
    assert registrations(tmp_path) == []
    assert list(tmp_path.glob("*.json")) == []
    assert registrations(tmp_path / "nowhere") == []


def test_a_registration_that_cannot_be_written_is_warned_of_and_no_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "pwrite", full)
    with registered(tmp_path, [Registration("t", "s", "h/c", "p")]):
        assert registrations(tmp_path) == []
    assert [record.getMessage() for record in caplog.records] == [
        f"scope s will get no samples of clock h/c, since it can't be listed in {tmp_path}: "
        "No space left on device"
    ]
    assert list(tmp_path.iterdir()) == []
