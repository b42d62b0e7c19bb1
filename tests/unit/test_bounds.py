"""Options whose values are out of range: exit 2, one line, one JSON object, and nothing is read or sent."""

import json

import pytest

from schemas import topics
from schemas.errors import Usage
from schemas.time import (
    BOUND_NS_MAX,
    CLAIM_NS_MAX,
    DURATION_NS_MAX,
    EARLIEST_NS,
    LATEST_NS,
    NS,
    STAMP_NS_MAX,
    STAMP_NS_MIN,
    parse_duration_ns,
    stamp_fits,
)
from tempotrace import cli

OUTSIDE = "a time outside the years 1896 to 2116"
MESH = ["produce", "host", "--mesh", "--node", "a", "--listen", "127.0.0.1:7", "--peer", "b=127.0.0.1:8"]
SIM = ["produce", "sim", "--ranks", "8", "--hosts", "2", "--seconds", "0.2"]
GPU = ["produce", "gpu", "--kineto", "none.json"]
INT = ["produce", "int", "--pcap", "none.pcap"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([*GPU, "--clock-bound", "9999999999999s"], "--clock-bound 9999999999999s is out of range"),
        ([*GPU, "--clock-bound", "-1us"], "write 0s to 20000h"),
        ([*GPU, "--clock-offset", "34=9000000000s"], "34: 9000000000s is out of range"),
        (["analyze", "none.json", "--clock-bound", "9999999999999s"], "write 0s to 20000h"),
        (["analyze", "none.json", "--tenant", "a b"], "is no tenant name"),
        (["analyze", "none.json", "--scope", "a\nb"], "is no name of a scope"),
        (["produce", "files", "none.json", "--scope", " "], "is no name of a scope"),
        ([*GPU, "--scope", "a\nb"], "is no name of a scope"),
        ([*INT, "--plane", "a\nb"], "is no name of a scope"),
        (["produce", "host", "--log", "none.log", "--scope", "a\tb"], "is no name of a scope"),
        ([*SIM, "--start", "9999-01-01T00:00:00"], OUTSIDE),
        ([*SIM, "--start", "2261-12-31T00:00:00"], OUTSIDE),
        ([*SIM, "--start", "0001-01-01T00:00:00"], OUTSIDE),
        ([*SIM, "--start", "2116-02-18T00:00:00"], OUTSIDE),
        ([*SIM, "--clock-bound", "9999999999999s"], "write 1ns to 20000h"),
        ([*SIM, "--step", "9" * 400 + "s"], "is out of range"),
        ([*SIM, "--fault", "clock_step:host1:-9999999999s@0.1s"], "write -24h to 24h"),
        ([*SIM, "--fault", "clock_step:host1:1ms@-1s"], "write 0s to 24h"),
        ([*SIM, "--fault", "slow_link:host1:" + "9" * 400 + "x"], "should look like 4x"),
        ([*MESH, "--for", "99999999999h"], "--for 99999999999h is out of range"),
        ([*MESH, "--for", "-1s"], "write 1ns to 500000h"),
        ([*MESH, "--hosts", "-3"], "'--hosts'"),
        ([*MESH, "--interval", "2h"], "write 1ms to 1h"),
        ([*INT, "--port", "-1"], "'--port'"),
        ([*INT, "--port", "70000"], "'--port'"),
        ([*INT, "--int-port", "70000"], "'--int-port'"),
        (["produce", "int", "--udp", "127.0.0.1:7", "--for", "0s"], "write 1ns to 500000h"),
    ],
)
def test_an_option_out_of_range_is_wrong_usage(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run([*arguments, "--json"]) == 2
    captured = capsys.readouterr()
    assert said in json.loads(captured.out)["error"]
    assert captured.err.count("\n") == 1


@pytest.mark.parametrize(
    ("text", "ns"),
    [("50us", 50_000), ("-1.5ms", -1_500_000), ("2 s", 2 * NS), ("500000h", DURATION_NS_MAX), ("0h", 0)],
)
def test_lengths_of_time(text: str, ns: int) -> None:
    assert parse_duration_ns(text) == ns


def test_bounds_are_part_of_the_range_and_written_as_they_are_read() -> None:
    assert parse_duration_ns("90s", "--x", 90 * NS, 90 * NS) == 90 * NS
    with pytest.raises(Usage, match=r"--x 91s is out of range: write 90s to 1501ms"):
        parse_duration_ns("91s", "--x", 90 * NS, 1_501_000_000)


def test_limits_hold_together() -> None:
    assert CLAIM_NS_MAX < BOUND_NS_MAX
    assert [stamp_fits(ns) for ns in (STAMP_NS_MIN - 1, STAMP_NS_MIN, STAMP_NS_MAX, STAMP_NS_MAX + 1)] == [
        False, True, True, False,
    ]  # fmt: skip
    assert EARLIEST_NS < STAMP_NS_MIN
    assert STAMP_NS_MAX < LATEST_NS


@pytest.mark.parametrize("name", ["fabric/0", "gpu-1a2b3c4d", "a b", "é", "x" * 200])
def test_names_of_scopes(name: str) -> None:
    assert topics.check_scope(name) == name


@pytest.mark.parametrize("name", ["", " a", "a ", "a\nb", "a\0", "\x1b[31m", "x" * 201, "\ud800"])
def test_names_that_no_scope_has(name: str) -> None:
    with pytest.raises(Usage):
        topics.check_scope(name)
