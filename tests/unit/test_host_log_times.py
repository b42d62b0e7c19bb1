"""Log files whose rows have no time of their own, one that can't be placed, or more sources than a batch holds."""

from pathlib import Path

import pytest

from tests.unit.test_host_logs import NS, UTC0, batches, log


@pytest.mark.parametrize(
    ("prefix", "why"),
    [
        ("ptp4l[5.125]: ", "2 rows are stamped with the time since boot, and nothing in the file says when"),
        ("Feb  2 02:40:00 h ptp4l[7]: [500.125] ", "2 rows are stamped with the time since boot"),
        ("Feb  2 02:40:00 h ptp4l[7]: ", "2 rows are without a whole date"),
        ("", "2 rows are without a whole date"),
    ],
)
def test_rows_without_a_time_are_warned_of_once_a_file(prefix: str, why: str, tmp_path: Path) -> None:
    files = [tmp_path / "a.log", tmp_path / "b.log"]
    for number, path in enumerate(files):
        path.write_text(f"{prefix}master offset {number} s2 freq +1 path delay 100\n" * 2)
    _, report = batches(files)
    assert len(report.warnings) == 2
    for path, line in zip(files, report.warnings, strict=True):
        assert line.startswith(f"{path}: {why}")
        assert "the time at which they are sent" in line
        assert ("--follow" in line) == ("boot" in why)


def test_rows_with_a_map_from_boot_are_not_warned_of(tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    path.write_text(log())
    _, report = batches([path])
    assert report.warnings == []


FAR = "2190-01-01T00:00:00Z h ptp4l[3]: [a.0] master offset 9 s2 freq +1 path delay 100\n"


def test_a_line_of_a_time_that_cannot_be_placed_costs_itself(tmp_path: Path) -> None:
    path = tmp_path / "p.log"
    near = "2026-02-02T02:40:00Z h ptp4l[3]: [a.0] master offset 5 s2 freq +1 path delay 100\n"
    path.write_text(near + FAR + "I0202 02:40:01.002000  9 stats.go:1] state\n")
    made, report = batches([path])
    (rows,) = [batch for batch in made if batch.family == "clock"]
    assert rows.raw_ns().tolist() == [UTC0 * NS]
    assert report.skipped["row of a time outside the years 1896 to 2116"] == 1
    assert "row of a source too many" not in report.skipped
    assert report.warnings == [f"{path}: 1 rows of a time outside the years 1896 to 2116 left out"]


def test_sources_of_all_files_together_fit_a_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("producers.host.logs.SOURCES_IN_ALL_MAX", 5)
    paths = []
    for name in "ab":
        paths.append(tmp_path / f"{name}.log")
        paths[-1].write_text(
            "".join(
                f"ptp4l[{n}.5]: [{name}{n}.0] master offset 1 s2 freq +1 path delay 100\n" for n in range(4)
            )
        )
    made, report = batches(paths)
    assert report.skipped["row of a source too many"] == 3
    assert sum(batch.count for batch in made if batch.family == "clock") == 5


def test_a_byte_order_mark_costs_no_line(tmp_path: Path) -> None:
    path = tmp_path / "p.log"
    path.write_text("\ufeffptp4l[1.5]: [a.0] master offset 1 s2 freq +1 path delay 100\n")
    _, report = batches([path])
    assert (report.events, report.lines.unknown) == (1, 0)
