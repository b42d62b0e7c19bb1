"""How findings are put to people, and what `analyze` prints of small files."""

import re
from pathlib import Path
from typing import Any

import pytest

from tempotrace import cli, told
from tempotrace.cli import options
from tests.gpu_traces import job, raw

LOG = "".join(f"ptp4l[{n}.5]: [a.0] master offset {n} s2 freq +1 path delay 100\n" for n in range(99))
US = 1_000


def test_numbers_with_their_nouns() -> None:
    assert told.counted(1, "window") == "1 window"
    assert told.counted(5_137, "window") == "5,137 windows"
    assert told.counted(0, "match") == "0 matches"


def test_a_component_with_the_file_it_is_known_by() -> None:
    traces = {"3": "b.json", "host trace": "a.json"}
    assert told.component("h/kineto:3", traces) == "h/kineto:3 (rank 3, b.json)"
    assert told.component("h/kineto:4", traces) == "h/kineto:4 (rank 4)"
    assert told.component("h/kineto:host trace", traces) == "h/kineto:host trace (a.json)"
    assert told.component("rank3", traces) == "rank3 (b.json)"
    assert told.component("h/ptp0|g/ptp0", traces) == "h/ptp0 or g/ptp0"


def blame(low: int | None, high: int | None, **more: Any) -> str:
    evidence = (
        {"verdict": "blamed", "violated_edges": 1, "matches": 1, "peers": ["a"]} | {"peers_total": 1} | more
    )
    return told.why({"offset_low_ns": low, "offset_high_ns": high, **evidence})


@pytest.mark.parametrize(
    ("low", "high", "words"),
    [
        (40 * US, 60 * US, "ahead by 40 µs to 60 µs"),
        (-60 * US, -40 * US, "behind by 40 µs to 60 µs"),
        (40 * US, None, "ahead by at least 40 µs"),
        (None, -40 * US, "behind by at least 40 µs"),
        (-40 * US, 60 * US, "off by -40 µs to 60 µs"),
    ],
)
def test_a_clock_is_ahead_or_behind(low: int | None, high: int | None, words: str) -> None:
    rest = "; when last told, 1 edge in 1 match with 1 other clock contradicted its bound"
    assert blame(low, high) == words + rest


def test_peers_are_counted_and_not_only_listed() -> None:
    """The list in the evidence ends at 16."""
    listed = [f"k{n}" for n in range(16)]
    assert "in 9 matches with 56 other clocks" in blame(1, 2, matches=9, peers=listed, peers_total=56)
    old = {
        "verdict": "blamed",
        "offset_low_ns": 1,
        "offset_high_ns": 2,
        "violated_edges": 9,
        "matches": 9,
        "peers": listed,
    }
    assert "with at least 16 other clocks" in told.why(old)
    counted = {"violated_edges": 1_686, "other_clocks": 56}
    assert (
        told.why(old, counted)
        == "ahead by 1 ns to 2 ns; 1,686 edges with 56 other clocks contradict its bound"
    )


def test_a_straggler_in_shares_of_its_weighted_counts() -> None:
    evidence = {"blamed": 63.3, "collectives": 63.9, "expected_by_chance": 1.0, "cost_ns": 3_630_000}
    assert told.why(evidence) == (
        "late by its own work in 99% of its last 64 or so collectives (by chance 1.6%); "
        "that cost the others 3.63 ms each time, on average"
    )


def analyzed(capsys: pytest.CaptureFixture[str], *paths: Path) -> list[str]:
    assert cli.run(["analyze", *map(str, paths)]) == 0
    return capsys.readouterr().out.splitlines()


def test_a_clock_log_alone_shows_its_clock(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "ptp4l.log"
    path.write_text(LOG)
    (row,) = [line for line in analyzed(capsys, path) if "/ptp:a.0" in line]
    assert [" ".join(cell.split()) for cell in row.split("│")[2:6]] == [
        "ptp_sw",
        "locked",
        "98 ns",
        "±198 ns",
    ]


def test_ranks_of_a_larger_job_are_said_to_be_few(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(raw(job(0, 8)))
    assert "2 collectives incomplete: the traces are of 1 of 8 members of the job" in analyzed(capsys, path)


def test_a_pipe_breaks_no_line(capsys: pytest.CaptureFixture[str]) -> None:
    line = "word " * 60 + "end"
    options.console().print(line)
    options.console(stderr=True).print(line)
    assert capsys.readouterr() == (line + "\n", line + "\n")


def test_there_is_one_way_to_a_console() -> None:
    """Any other would break lines at 80 columns where it is no terminal."""
    modules = sorted(Path(cli.__file__).parents[1].rglob("*.py"))
    made = [path.name for path in modules if re.search(r"\bConsole\(", path.read_text())]
    assert made == ["options.py"]
