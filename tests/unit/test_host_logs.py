"""Log files as batches: sources, identity, promises, damage."""

import gzip
import io
import sys
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from producers.host.boots import Boots
from producers.host.logs import LogReport, Options, read
from producers.host.survey import SOURCES_MAX
from producers.host.textfile import LINE_BYTES_MAX, LineCutter, TextFile
from schemas import columns as c
from schemas.batch import Batch
from schemas.codec import decode_batch, encode_batch
from schemas.errors import MalformedInput

NS = 1_000_000_000
UTC0 = 1770000000  # 2026-02-02 02:40:00


def log(count: int = 40, boot_s: int = 500) -> str:
    """A servo a second, a klog line 2 ms after each, a report in Unix seconds every tenth."""
    lines = []
    for n in range(count):
        lines.append(f"ptp4l[{boot_s + n}.000]: [a.0] master offset {n - 5} s2 freq +1 path delay 100")
        lines.append(f"I0202 02:{40 + n // 60:02d}:{n % 60:02d}.002000  9 stats.go:1] state")
        if n % 10 == 0:
            lines.append(
                f"dpll[{UTC0 + n}]:[a.0] eth1 frequency_status 3 offset {n} phase_status 3 pps_status 1 s2"
            )
    return "\n".join(lines) + "\n"


def batches(paths: Sequence[Path], options: Options = Options()) -> tuple[list[Batch], LogReport]:
    report = LogReport()
    made = list(read(paths, options, report))
    for batch in made:
        assert decode_batch(encode_batch(batch)).count == batch.count
    return made, report


def sources(batch: Batch) -> dict[str, dict[str, int]]:
    names = (
        "src_flags",
        "src_first_seq",
        "src_last_seq",
        "src_low_watermark_ns",
        "src_incarnation",
        "src_clock",
    )
    return {
        str(batch.text(int(batch.data["src_name"][at]))): {name: int(batch.data[name][at]) for name in names}
        for at in range(batch.table_len("src"))
    }


def write(path: Path, text: str | bytes) -> Path:
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def test_a_file_becomes_an_open_row_and_rows_of_the_clock_family(tmp_path: Path) -> None:
    made, report = batches([write(tmp_path / "p.log", log())], Options(host="n1"))
    opened, data = made
    assert (opened.family, opened.count, int(opened.wide("number")[0])) == ("control", 1, 1)
    assert (data.family, data.count, report.events, report.batches) == ("clock", 44, 44, 1)
    assert {name: report.lines.fields()[name] for name in ("total", "parsed", "ignored", "unknown")} == {
        "total": 84,
        "parsed": 44,
        "ignored": 40,
        "unknown": 0,
    }
    found = sources(data)
    assert {
        "n1/p.log/ptp4l/a.0/CLOCK_MONOTONIC:1000000",
        "n1/p.log/dpll/a.0/CLOCK_REALTIME:1000000000",
    } == set(found)
    assert all(entry["src_flags"] == c.SOURCE_FINAL for entry in found.values())  # unordered, not live, final
    servo = np.flatnonzero(data.column("kind") == c.ClockKindOfRow.SERVO)
    first = int(servo[0])
    assert data.text(int(data.column("entity")[first])) == "n1/ptp:a.0"
    assert (
        int(data.wide("offset_ns")[first]), int(data.wide("delay_ns")[first]), int(data.raw_ns()[first])
    ) == (-5, 100, 500 * NS)  # fmt: skip


def test_the_boot_time_is_found_in_the_log(tmp_path: Path) -> None:
    made, _ = batches([write(tmp_path / "p.log", log())], Options(host="n1"))
    data = made[1].data
    names = [made[1].text(int(name)) for name in data["clk_id"]]
    boot = names.index("n1/CLOCK_MONOTONIC")
    # Of 40 pairs the year is known from the second on: 501 s after boot it was 02:40:01.002.
    assert (
        int(data["clk_ref_parent_ns"][boot]) - int(data["clk_ref_ns"][boot]) == (UTC0 - 500) * NS + 2_000_000
    )
    parent = made[1].text(int(data["clk_parent"][boot]))
    assert (int(data["clk_bound_ns"][boot]), parent) == (5_000_000, "n1/CLOCK_REALTIME")
    assert int(data["clk_assurance"][boot]) == c.Assurance.CLAIMED
    assert {"n1/CLOCK_MONOTONIC", "n1/CLOCK_REALTIME"} == set(names)


def test_no_row_lies_below_a_promise_made_before(tmp_path: Path) -> None:
    made, _ = batches([write(tmp_path / "p.log", log(200))], Options(host="n1", rows=7))
    promised: dict[str, int] = {}
    for batch in made[1:]:
        names = [str(batch.text(int(name))) for name in batch.data["src_name"]]
        for source, raw in zip(batch.column("source").tolist(), batch.raw_ns().tolist(), strict=True):
            assert raw >= promised.get(names[source], raw)
        for name, entry in sources(batch).items():
            assert (
                entry["src_low_watermark_ns"] >= promised.get(name, -(2**63))
                or entry["src_flags"] & c.SOURCE_FINAL
            )
            promised[name] = entry["src_low_watermark_ns"]
    # All open sources are promised for in each batch, with rows or without.
    assert all(len(sources(batch)) == 2 for batch in made[2:-5])


def test_the_same_content_is_the_same_events(tmp_path: Path) -> None:
    plain = write(tmp_path / "p.log", log())
    packed = write(tmp_path / "q.log", gzip.compress(log().encode()))
    a, b = batches([plain])[0][1], batches([packed])[0][1]
    incarnations = {entry["src_incarnation"] for batch in (a, b) for entry in sources(batch).values()}
    assert (1, a.scope) == (len(incarnations), b.scope)
    changed = batches([plain], Options(host="other"))[0][1]
    assert changed.scope != a.scope
    assert {entry["src_incarnation"] for entry in sources(changed).values()}.isdisjoint(incarnations)


def test_sequence_numbers_have_no_gap_over_batches(tmp_path: Path) -> None:
    made, _ = batches([write(tmp_path / "p.log", log(100))], Options(rows=9))
    following: dict[str, int] = {}
    for batch in made[1:]:
        for name, entry in sources(batch).items():
            assert following.get(name, 0) == entry["src_first_seq"]
            following[name] = entry["src_last_seq"] + 1
    assert sorted(following.values()) == [10, 100]


def test_two_files_are_merged_in_time_and_one_content_is_sent_once(tmp_path: Path) -> None:
    early = write(tmp_path / "b.log", log(20))
    late = write(tmp_path / "a.log", "\n".join(
        f"dpll[{UTC0 + n}]:[b.0] eth1 frequency_status 3 offset 1 phase_status 3 pps_status 1 s2"
        for n in range(5, 25)
    ))  # fmt: skip
    twice = write(tmp_path / "c.log", log(20))
    made, report = batches([late, early, twice], Options(host="n1"))
    assert report.skipped["same file twice"] == 1
    assert len(report.warnings) == 1
    rows = [row for batch in made[1:] for row in batch.raw_ns().tolist()]
    placed = [raw if raw > 10**18 else raw + (UTC0 - 500) * NS for raw in rows]
    # Merged by a running maximum: out of order by no more than the log itself is.
    assert max(before - after for before, after in pairwise(placed)) <= NS
    assert len(rows) == 22 + 20


def test_files_of_one_name_have_sources_of_their_own(tmp_path: Path) -> None:
    for folder in ("x", "y"):
        (tmp_path / folder).mkdir()
    made, _ = batches(
        [write(tmp_path / "x" / "p.log", log(20)), write(tmp_path / "y" / "p.log", log(21))],
        Options(host="n"),
    )
    names = {name for batch in made[1:] for name in sources(batch)}
    assert len(names) == 4


def test_a_reboot_is_an_epoch_and_cuts_the_batch(tmp_path: Path) -> None:
    made, _ = batches(
        [write(tmp_path / "p.log", log(20, boot_s=90000) + log(20, boot_s=100))], Options(host="n1")
    )
    epochs = [
        {
            int(batch.data["clk_epoch"][entry["src_clock"]])
            for name, entry in sources(batch).items()
            if "MONOTONIC" in name
        }
        for batch in made[1:]
    ]
    assert [{0}, {1}] == epochs


def test_hosts_of_a_syslog_stay_apart(tmp_path: Path) -> None:
    text = "\n".join(
        f"Feb  2 02:40:0{n} {host} ptp4l[7]: [{n}.000] master offset {n} s2 freq +1 path delay 100"
        for n in range(5)
        for host in ("left", "right")
    )
    made, report = batches([write(tmp_path / "s.log", text)])
    assert int(made[0].wide("number")[0]) == 2
    entities = {made[1].text(int(at)) for at in made[1].column("entity")}
    assert {"left/ptp:ptp4l", "right/ptp:ptp4l"} == entities
    made, report = batches([write(tmp_path / "s.log", text)], Options(host="given"))
    assert {"left/ptp:ptp4l", "right/ptp:ptp4l"} == {made[1].text(int(at)) for at in made[1].column("entity")}
    assert ["names 2 hosts" in line for line in report.warnings] == [False, True]


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda packed: packed[: len(packed) // 2], "ends early"),
        (lambda packed: packed[:200] + bytes(60) + packed[260:], "damaged"),
        (lambda packed: packed + b"more", "left out"),
    ],
)
def test_a_damaged_gzip_file_is_used_as_far_as_it_goes(tmp_path: Path, damage, said: str) -> None:  # type: ignore[no-untyped-def]
    rng = np.random.default_rng(1)
    text = "\n".join(
        f"ptp4l[{n}.000]: [a.0] master offset {rng.integers(-(10**9), 10**9)} s2 freq +1 path delay 100"
        for n in range(400)
    )
    _, report = batches([write(tmp_path / "p.log.gz", damage(gzip.compress(text.encode())))])
    assert 0 < report.events <= 400
    assert [said in line for line in report.warnings if "rows are" not in line] == [True]


def test_two_gzip_members_are_one_file(tmp_path: Path) -> None:
    half = log(10).encode()
    _, report = batches(
        [write(tmp_path / "p.gz", gzip.compress(half[:700]) + gzip.compress(half[700:]) + bytes(9))]
    )
    assert (report.events, report.warnings) == (11, [])


def test_a_foreign_or_binary_file_costs_one_line_and_the_rest_is_used(tmp_path: Path) -> None:
    noise = np.random.default_rng(2).bytes(50_000)
    paths = [
        write(tmp_path / "noise.bin", noise),
        write(tmp_path / "foreign.log", "2026-02-02 GET /index.html\nnothing here\n"),
        tmp_path / "missing.log",
        write(tmp_path / "p.log", log(10)),
        write(tmp_path / "empty.log", ""),
    ]
    _, report = batches(paths)
    assert report.events == 11
    assert report.skipped["unreadable file"] == 1
    for name in ("noise.bin", "foreign.log", "missing.log", "empty.log"):
        assert any(name in line for line in report.warnings), name
    lines = report.lines.fields()
    assert lines["total"] == lines["parsed"] + lines["ignored"] + lines["unknown"]


def test_no_file_at_all_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(MalformedInput, match="no log could be read"):
        batches([tmp_path / "missing.log"])


def test_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    class Stdin:
        buffer = io.BytesIO(log(10).encode())

    monkeypatch.setattr(sys, "stdin", Stdin)
    made, report = batches([Path("-")])
    assert report.events == 11
    assert all("/stdin/" in name for name in sources(made[1]))


@pytest.mark.parametrize("size", [1, 7, 1000, LINE_BYTES_MAX + 1])
def test_lines_do_not_depend_on_how_bytes_arrive(size: int) -> None:
    data = b"one\r\n\ntwo \xff\n" + b"x" * (LINE_BYTES_MAX + 5000) + b"\nlast"
    cutter = LineCutter()
    lines = [
        line for at in range(0, len(data), size) for line in cutter.feed(data[at : at + size])
    ] + cutter.finish()
    assert lines[:3] == ["one\r", "", "two \ufffd"]
    assert (len(lines[3]), lines[4], len(lines), cutter.cut) == (LINE_BYTES_MAX, "last", 5, 1)


def test_a_file_is_read_twice_alike(tmp_path: Path) -> None:
    with TextFile(write(tmp_path / "p.gz", gzip.compress(log().encode()))) as text:
        assert list(text.lines()) == list(text.lines())


def test_boot_maps_follow_steps_and_reboots() -> None:
    boots = Boots()
    line = 0
    for start, shift, latency in ((1000, 50_000, 7), (1200, 50_000, 3), (1400, 62_000, 4), (10, 90_000, 5)):
        for n in range(64):
            line += 1
            boot_ns = (start + n) * NS
            boots.see(line, boot_ns)
            boots.pair(line, boot_ns, boot_ns + shift * NS + (latency + n % 5) * 1_000_000)
    maps = boots.maps()
    assert [
        (entry.from_line, entry.epoch, round((entry.unix_ns - entry.boot_ns) / NS))  # type: ignore[operator]
        for entry in maps
    ] == [(0, 0, 50_000), (129, 0, 62_000), (193, 1, 90_000)]
    first = maps[0]
    assert first.unix_ns - first.boot_ns == 50_000 * NS + 3_000_000  # type: ignore[operator]
    assert (first.pairs, first.bound_ns) == (128, 8_000_000)


def test_sources_without_end_are_counted_not_kept(tmp_path: Path) -> None:
    text = "\n".join(
        f"ptp4l[{n}.000]: [tag{n}] master offset 1 s2 freq +1 path delay 100" for n in range(SOURCES_MAX + 10)
    )
    made, report = batches([write(tmp_path / "p.log", text + "\n" + text)])
    assert (report.events, report.skipped["row of a source too many"]) == (2 * SOURCES_MAX, 20)
    assert len(made) > 2
