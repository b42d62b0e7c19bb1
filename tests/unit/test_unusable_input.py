"""The one rule for unusable input, on every command that reads files (see tempotrace.used)."""

import gzip
import hashlib
import json
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from producers.report import Report
from producers.transport import MemoryTransport
from schemas.batch import Batch
from tempotrace import cli
from tempotrace.cli import feed
from tempotrace.settings import Settings
from tempotrace.used import NothingUsed
from tests import int_build as b
from tests.gpu_traces import job, raw

Arguments = list[str]

COMMANDS: dict[str, Callable[[str], Arguments]] = {
    "produce host": lambda path: ["--log", path],
    "produce gpu": lambda path: ["--kineto", path],
    "produce int": lambda path: ["--pcap", path],
    "produce fabric --counters": lambda path: [f"leaf1={path}"],
    "produce fabric --flows": lambda path: [path],
    "produce fabric --hosts": lambda path: [path],
    "produce fabric --pcap": lambda path: [path],
    "produce files": lambda path: [path],
    "clock check": lambda path: [path],
    "analyze": lambda path: [path],
}
REPEATABLE = {name for name in COMMANDS if not name.endswith(("--flows", "--hosts"))}

NOISE = b"".join(hashlib.sha256(bytes([n])).digest() for n in range(150))
LOG = "".join(
    f"ptp4l[{n}.5]: [a.0] master offset {n} s2 freq +1 path delay 100\n" for n in range(99)
).encode()


def _report() -> bytes:
    packet = b.ethernet(b.ipv4(b.udp(b.md_20([{"node": 2}], b.bitmap(0)))))
    return b.report_20(b.individual(packet, kind=0), node=9)


def _loop(path: Path) -> None:
    path.symlink_to(path)


def _foreign_json(path: Path) -> None:
    path.write_text(json.dumps({"title": "Gospel", "songs": [1, 2]}))


BAD: dict[str, Callable[[Path], Any]] = {
    "missing": lambda path: None,
    "empty": lambda path: path.write_bytes(b""),
    "noise": lambda path: path.write_bytes(NOISE),
    "truncated gzip": lambda path: path.write_bytes(gzip.compress(NOISE)[:40]),
    "foreign text": lambda path: path.write_text("<html>\nGood morning\n</html>\n"),
    "foreign json": _foreign_json,
    "directory without inputs": lambda path: path.mkdir(),
    "cannot be opened": _loop,
    "cannot be read": lambda path: path.symlink_to("/proc/self/mem"),
}
GOOD: dict[str, bytes] = {
    "produce host": LOG,
    "produce gpu": raw(job(0)),
    "produce int": b.pcap([(10**18, b.frame(_report()))]),
    "produce fabric --counters": raw(
        {
            "COUNTERS_PORT_NAME_MAP": {"Ethernet0": "oid:0x1"},
            "COUNTERS:oid:0x1": {"SAI_PORT_STAT_IF_OUT_OCTETS": "5", "SAI_PORT_STAT_IF_IN_OCTETS": "0"},
        }
    ),
    "produce fabric --pcap": b.pcap([(10**18, b.frame(bytes(40), port=4791))]),
    "produce files": LOG,
    "clock check": LOG,
    "analyze": raw(job(0)),
}


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> MemoryTransport:
    """What goes to Kafka otherwise."""
    transport = MemoryTransport()
    monkeypatch.setattr(feed, "KafkaTransport", lambda *_, **__: transport)
    return transport


def call(command: str, *paths: Path) -> Arguments:
    group, name, *option = command.split() if " " in command else (command, "")
    out = [group, name] if name else [group]
    for path in paths:
        out += [*option, *COMMANDS[command](str(path))]
    return [*out, "--json"]


@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize("command", COMMANDS)
def test_nothing_usable_is_one_line_and_exit_1(
    command: str, bad: str, tmp_path: Path, sent: MemoryTransport, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "input"
    BAD[bad](path)
    code = cli.run(call(command, path))
    out, err = capsys.readouterr()
    lines = err.splitlines()
    assert (code, len(lines)) == (1, 1), err
    assert lines[0].startswith("tempotrace: nothing of the ")
    assert "input" in lines[0]
    assert lines[0].removeprefix("tempotrace: ") == json.loads(out)["error"]


@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize("command", sorted(REPEATABLE))
def test_the_rest_of_the_input_is_used(
    command: str, bad: str, tmp_path: Path, sent: MemoryTransport, capsys: pytest.CaptureFixture[str]
) -> None:
    good, path = tmp_path / "good", tmp_path / "input"
    good.write_bytes(GOOD[command])
    assert cli.run(call(command, good)) == 0
    alone = json.loads(capsys.readouterr().out)
    BAD[bad](path)
    assert cli.run(call(command, path, good)) == 0
    out, err = capsys.readouterr()
    result = json.loads(out)
    assert result.get("events") == alone.get("events") != 0
    assert len(result.get("clocks", ())) == len(alone.get("clocks", ()))
    assert sum("input" in line for line in err.splitlines()) >= 1


@pytest.mark.parametrize(
    "arguments",
    [
        ["produce", "host"],
        ["produce", "gpu"],
        ["produce", "int", "--pcap", "x", "--udp", "127.0.0.1:9"],
        ["produce", "fabric", "--counters", "x"],
        ["produce", "files"],
        ["clock", "check"],
        ["analyze"],
    ],
)
def test_a_wrong_command_line_is_exit_2(
    arguments: Arguments, sent: MemoryTransport, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(arguments) == 2


def test_what_became_of_each_kind_of_files_is_in_the_result(
    tmp_path: Path, sent: MemoryTransport, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whoever runs `produce files` can tell which file is of no use, and why."""
    path, good = tmp_path / "junk.log", tmp_path / "a.json"
    path.write_text("hello\n")
    good.write_bytes(GOOD["analyze"])
    for code, paths in ((1, [path]), (0, [path, good])):
        assert cli.run(["produce", "files", *map(str, paths), "--json"]) == code
        inputs = json.loads(capsys.readouterr().out)["inputs"]
        (logs,) = [each for each in inputs if each["kind"] == "logs"]
        assert (logs["files"], logs["events"]) == ([str(path)], 0)
        assert logs["warnings"] == [f"{path}: none of 1 lines is of a clock log's format"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read every file")
@pytest.mark.parametrize("command", sorted(set(COMMANDS) - {"produce fabric --hosts"}))
def test_a_file_without_the_right_to_read_it(
    command: str, tmp_path: Path, sent: MemoryTransport, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "input"
    path.write_bytes(b"x")
    path.chmod(0)
    assert cli.run(call(command, path)) == 1
    assert "Permission denied" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["produce int", "produce files", "analyze"])
def test_a_capture_without_a_report_is_not_used(
    command: str, tmp_path: Path, sent: MemoryTransport, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "web.pcap"
    path.write_bytes(b.pcap([(10**18, b.frame(b"GET / HTTP/1.1", port=80))]))
    assert cli.run([*call(command, path)[:-1]]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines()[-1].endswith("no report was found at any port")
    assert err.count("\n") == 1


def test_a_stop_before_anything_was_read_names_no_scope(
    sent: MemoryTransport, capsys: pytest.CaptureFixture[str]
) -> None:
    def stopped(stop: threading.Event) -> Iterator[Batch]:
        stop.set()
        yield from ()

    settings = Settings(Path("x"), {"bootstrap.servers": "127.0.0.1:1"})
    with pytest.raises(SystemExit) as raised:
        feed.publish(stopped, Report(), settings, tenant="t", scope="")
    assert raised.value.code == 130
    assert capsys.readouterr().out.splitlines()[0] == "0 events in 0 batches sent to tenant t."


def test_counts_come_with_the_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "diary"
    path.write_text("Monday\nTuesday\n\n")
    assert cli.run(call("clock check", path)) == 1
    found = json.loads(capsys.readouterr().out)
    assert (found["clocks"], found["lines"]["total"]) == ([], 3)


def test_many_reasons_are_cut() -> None:
    error = NothingUsed("logs", [f"file {n}" for n in range(5)], {"events": 0, "warnings": []})
    assert str(error) == "nothing of the logs could be used: file 0; file 1; file 2 (and 2 more)"
    assert error.result == {"events": 0}
    assert str(NothingUsed("logs", [], {})) == "nothing of the logs could be used: it is empty"
