"""`clock check`: what it says of clocks, and its plots."""

import json
from pathlib import Path

import numpy as np
import pytest

from producers.host.logs import Options
from schemas.errors import Usage
from tempotrace import clockplot
from tempotrace.clockcheck import check
from tests.paths import shared_data


def servo(second: float, offset: int, state: int = 2) -> str:
    return f"ptp4l[{second:.3f}]: [a.0] master offset {offset} s{state} freq +1 path delay 100"


def write(path: Path, *lines: str) -> Path:
    path.write_text("\n".join(lines) + "\n")
    return path


def test_the_fields_that_others_rely_on(tmp_path: Path) -> None:
    path = write(
        tmp_path / "p.log", servo(10, 900, 0), servo(11, 800, 1), servo(12, -7), "", "no clock", servo(13, 4)
    )
    result, series = check([path], Options(host="n1"))
    (clock,) = result["clocks"]
    expected = {
        "clock": "n1/ptp:a.0",
        "kind": "ptp_sw",
        "status": "locked",
        "samples": 4,
        "offset_ns": 4,
        "bound_ns": 107,
        "first_ns": 10 * 10**9,
        "last_ns": 13 * 10**9,
        "states": [
            {"status": "freerun", "from_ns": 10 * 10**9},
            {"status": "stepped", "from_ns": 11 * 10**9},
            {"status": "locked", "from_ns": 12 * 10**9},
        ],
    }
    assert expected == {name: clock[name] for name in expected}
    # The log does not say when the host was booted: these are seconds since then.
    assert (clock["timescale"], clock["stamp_clock"]) == ("arbitrary", "CLOCK_MONOTONIC")
    lines = {name: result["lines"][name] for name in ("total", "parsed", "ignored", "unknown")}
    assert lines == {"total": 6, "parsed": 4, "ignored": 1, "unknown": 1}
    assert series[0].offset_ns[-1:].tolist() == [4]
    json.dumps(result)


def test_unix_stamps_become_tai(tmp_path: Path) -> None:
    path = write(
        tmp_path / "p.log",
        "dpll[1770000000]:[a.0] eth1 frequency_status 3 offset 1 phase_status 3 pps_status 1 s2",
    )
    clock = check([path], Options(host="n1"))[0]["clocks"][0]
    assert (
        clock["first_ns"],
        clock["timescale"],
        clock["clock"],
    ) == (1770000037 * 10**9, "tai", "n1/dpll:eth1")


def test_several_clocks_in_one_second_stay_several(tmp_path: Path) -> None:
    path = write(
        tmp_path / "p.log",
        *(f"ts2phc[9.00{n}]: [t.0] /dev/ptp{n} offset {n} s2 freq +0" for n in range(4)),
        "phc2sys[9.004]: [ptp4l.0] CLOCK_REALTIME phc offset 9 s2 freq +0 delay 40",
    )
    clocks = check([path], Options(host="n1"))[0]["clocks"]
    assert [(clock["clock"], clock["offset_ns"]) for clock in clocks] == [
        ("n1//dev/ptp0", 0),
        ("n1//dev/ptp1", 1),
        ("n1//dev/ptp2", 2),
        ("n1//dev/ptp3", 3),
        ("n1/CLOCK_REALTIME", 9),
    ]
    assert clocks[-1]["parents"] == ["n1/ptp:ptp4l.0"]


def test_files_of_one_host_are_one_clock(tmp_path: Path) -> None:
    tracking = (
        "2026-03-04 05:06:0{} 192.0.2.9        3     -4.250      0.125  {}e-05 N  2  3.000e-06  1.000e-09"
        "  2.000e-03  3.000e-03  1.000e-01"
    )
    late = write(tmp_path / "a.log", tracking.format(9, "1.000"))
    early = write(tmp_path / "b.log", tracking.format(2, "2.000"))
    (clock,) = check([late, early], Options(host="n1"))[0]["clocks"]
    assert (clock["samples"], clock["offset_ns"], clock["kind"]) == (2, 10_000, "ntp")
    assert clock["last_ns"] - clock["first_ns"] == 7 * 10**9


def test_a_missing_file_is_a_warning(tmp_path: Path) -> None:
    path = write(tmp_path / "p.log", servo(10, 1))
    result, _ = check([path, tmp_path / "none.log"], Options())
    assert ["none.log" in line for line in result["warnings"]] == [True]
    result, _ = check([tmp_path / "none.log"], Options())
    assert (result["clocks"], len(result["warnings"])) == ([], 1)


@pytest.mark.parametrize("suffix", [".html", ".png"])
def test_plots(tmp_path: Path, suffix: str) -> None:
    if suffix == ".png":
        pytest.importorskip("matplotlib", reason="a .png needs matplotlib")
    path = write(tmp_path / "p.log", *(servo(10 + n, n % 17 - 8) for n in range(3000)))
    _, series = check([path], Options(host="<n1>"))
    target = tmp_path / f"plot{suffix}"
    assert clockplot.write(target, series) == 1
    data = target.read_bytes()
    assert data.startswith(b"\x89PNG" if suffix == ".png" else b"<!doctype html>")
    if suffix == ".html":
        assert b"&lt;n1&gt;/ptp:a.0" in data
        assert b"<n1>" not in data
        assert len(data) < 200_000
    with pytest.raises(Usage):
        clockplot.write(tmp_path / "plot.gif", series)


def test_thinning_keeps_every_excursion() -> None:
    values = np.zeros(10_000, np.int64)
    values[7777], values[1234] = 99, -98
    seconds, low, high = clockplot.thin(np.arange(10_000, dtype=np.int64), values, values)
    assert (low.min(), high.max()) == (-98, 99)
    assert len(seconds) <= clockplot.COLUMNS


def test_the_netns_logs() -> None:
    for load, node, sign in (("idle", "n1", 0), ("congested", "n2", 1)):
        result, _ = check([shared_data("time", "netns-lab", load, f"ptp4l_{node}.log")], Options(host="h"))
        (clock,) = result["clocks"]
        assert (clock["samples"], clock["parents"][0]) >= (92, "ee5c83.fffe.0452c7")
        assert result["lines"]["unknown"] == 0
        if sign:
            assert clock["bound_ns"] > 1_000_000
