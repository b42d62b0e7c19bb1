"""Following logs: rotation, truncation, restart, promises."""

import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np

from producers.host.follow import LAG_NS, Follower
from producers.host.logs import LogReport, Options
from producers.host.tail import Begin, End, Lines, Tail
from schemas import columns as c
from schemas.batch import Batch

NS = 1_000_000_000
UNIX0 = 1_770_000_000 * NS
BOOT0 = 5000.0


class Script:
    """A clock whose waits run the next step of a script, and that stops when there is none left."""

    def __init__(self, steps: list[Callable[[], object]]) -> None:
        self.steps = steps
        self.at = 0.0

    def now_ns_utc(self) -> int:
        return UNIX0 + round(self.at * NS)

    def monotonic(self) -> float:
        return BOOT0 + self.at

    def wait(self, event: threading.Event, seconds: float) -> bool:
        self.at += 1.0
        if not self.steps:
            event.set()
            return True
        self.steps.pop(0)()
        return event.is_set()


def servo(second: float, offset: int, host: str = "") -> str:
    line = f"[{second:.3f}] master offset {offset} s2 freq +1 path delay 100\n"
    return (
        f"Feb  2 02:40:00 {host} ptp4l[7]: {line}"
        if host
        else f"ptp4l{line[: line.index(']') + 1]}:{line[line.index(']') + 1 :]}"
    )


def append(path: Path, text: str) -> Callable[[], object]:
    def step() -> None:
        with path.open("a") as file:
            file.write(text)

    return step


def follow(
    path: Path, steps: list[Callable[[], object]], options: Options = Options(scope="s")
) -> tuple[list[Batch], LogReport]:
    report, emitted = LogReport(), list[Batch]()
    follower = Follower([path], options, Script(steps), "me-00000000", "me.example", report)
    follower.run(emitted.append, threading.Event())
    return emitted, report


def rows(batches: list[Batch]) -> list[tuple[int, int, int]]:
    """(incarnation, seq, offset) of every row."""
    out = []
    for batch in batches:
        if batch.family == "clock" and batch.count:
            incarnation = batch.data["src_incarnation"][batch.column("source")].tolist()
            out += list(zip(incarnation, batch.seq().tolist(), batch.wide("offset_ns").tolist(), strict=True))
    return out


def test_lines_are_read_as_they_come_and_half_lines_wait(tmp_path: Path) -> None:
    path = tmp_path / "p.log"
    whole = servo(5002, 3)
    batches, report = follow(
        path,
        [
            lambda: None,
            append(path, servo(5000, 1) + servo(5001, 2)),
            append(path, whole[:20]),
            append(path, whole[20:]),
            lambda: None,
        ],
    )
    found = rows(batches)
    assert [(seq, offset) for _, seq, offset in found] == [(0, 1), (1, 2), (2, 3)]
    assert len({incarnation for incarnation, _, _ in found}) == 1
    assert (report.events, report.lines.total) == (3, 3)
    assert [line.partition(": ")[2] for line in report.warnings] == [
        "No such file or directory; waiting for it",
        "is there now, and read from its start",
    ]
    assert (batches[0].family, int(batches[0].column("kind")[0])) == ("control", c.Control.OPEN)
    assert int(batches[-1].data["src_flags"][0]) & c.SOURCE_FINAL


def test_a_restart_reads_the_same_rows_again(tmp_path: Path) -> None:
    path = tmp_path / "p.log"
    path.write_text(servo(4990, 1) + servo(4991, 2))
    first = rows(follow(path, [append(path, servo(5001, 3))])[0])
    second = rows(follow(path, [append(path, servo(5003, 4))])[0])
    assert first == second[:3]
    assert second[3][1:] == (3, 4)
    assert rows(follow(path, [], Options(scope="t"))[0])[0][0] != first[0][0]


def test_rotation_reads_the_old_file_to_its_end_and_the_new_one_from_its_start(tmp_path: Path) -> None:
    path = tmp_path / "p.log"
    path.write_text(servo(5000, 1))

    def rotate() -> None:
        append(path, servo(5001, 2))()
        path.rename(tmp_path / "p.log.1")
        append(tmp_path / "p.log.1", servo(5002, 3))()
        path.write_text(servo(5003, 4))

    batches, report = follow(path, [lambda: None, rotate, append(path, servo(5004, 5))])
    found = rows(batches)
    assert [(seq, offset) for _, seq, offset in found] == [(0, 1), (1, 2), (2, 3), (0, 4), (1, 5)]
    assert found[0][0] == found[2][0] != found[3][0] == found[4][0]
    assert any("rotated" in line for line in report.warnings)
    assert report.lines.total == 5


def test_truncation_begins_a_new_incarnation(tmp_path: Path) -> None:
    path = tmp_path / "p.log"
    path.write_text(servo(5000, 1) + servo(5001, 2))
    batches, report = follow(path, [lambda: None, lambda: path.write_text(servo(5002, 7)), lambda: None])
    found = rows(batches)
    assert [(seq, offset) for _, seq, offset in found] == [(0, 1), (1, 2), (0, 7)]
    assert found[0][0] != found[2][0]
    assert any("truncated" in line for line in report.warnings)


def test_the_map_from_boot_is_read_here_and_promises_follow_the_time(tmp_path: Path) -> None:
    path = tmp_path / "p.log"
    path.write_text(servo(4999, 1))
    batches, _ = follow(path, [lambda: None, lambda: None, lambda: None])
    data = next(batch for batch in batches if batch.count and batch.family == "clock").data
    assert UNIX0 - round(BOOT0 * NS) == int(data["clk_ref_parent_ns"][0]) - int(data["clk_ref_ns"][0])
    beats = [batch for batch in batches if batch.family == "clock" and not batch.count]
    promised = [int(batch.data["src_low_watermark_ns"][0]) for batch in beats]
    # A silent log does not hold up anybody: one more second each time, LAG_NS behind.
    assert [round(BOOT0 + at) * NS - LAG_NS for at in (1, 2, 3)] == promised[:3]


def test_lines_of_an_earlier_boot_have_no_time(tmp_path: Path) -> None:
    path = tmp_path / "p.log"
    path.write_text(servo(900_000, 1) + servo(900_001, 2))
    batches, _ = follow(path, [append(path, servo(5001, 3)), lambda: None])
    references = {}
    for batch in batches:
        for at in range(batch.table_len("src") if batch.family == "clock" else 0):
            clock = int(batch.data["src_clock"][at])
            references[int(batch.data["clk_epoch"][clock])] = int(batch.data["clk_ref_ns"][clock])
    assert {0, 1} == set(references)
    assert (references[0] == c.NULL_I64, references[1] == c.NULL_I64) == (True, False)


def test_lines_of_another_host_are_of_another_host(tmp_path: Path) -> None:
    path = tmp_path / "s.log"
    path.write_text(servo(5000, 1, "me") + servo(5000, 2, "you"))
    batches, _ = follow(path, [lambda: None])
    entities = {
        batch.text(int(at)) for batch in batches if batch.family == "clock" for at in batch.column("entity")
    }
    assert {"me-00000000/ptp:ptp4l", "you/ptp:ptp4l"} == entities
    for batch in batches:
        for at in range(batch.table_len("src") if batch.family == "clock" else 0):
            if str(batch.text(int(batch.data["src_host"][at]))) == "you":
                assert int(batch.data["src_low_watermark_ns"][at]) == c.NULL_I64


def test_a_tail_gives_each_byte_once_whatever_the_pieces(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    path = tmp_path / "p.log"
    path.write_bytes(b"")
    tail, seen, written = Tail(path), list[str](), b""
    for _ in range(200):
        piece = bytes(rng.choice([97, 98, 10], size=int(rng.integers(0, 9))).astype(np.uint8))
        written += piece
        with path.open("ab") as file:
            file.write(piece)
        for event in tail.poll():
            seen += event.lines if isinstance(event, Lines) else []
    kinds = [type(event) for event in tail.close()]
    assert written.decode().split("\n")[: len(seen)] == seen
    assert kinds[-1] is End
    again = Tail(path)
    assert sum(isinstance(event, Begin) for event in again.poll()) == 1
    list(again.close())


def test_a_line_of_a_time_that_cannot_be_placed_costs_itself(tmp_path: Path) -> None:
    path = tmp_path / "p.log"
    far = "2190-01-01T00:00:00Z me ptp4l[3]: [a.0] master offset 9 s2 freq +1 path delay 100\n"
    near = far.replace("2190", "2026").replace("offset 9", "offset 5")
    path.write_text(near + far)
    emitted, report = follow(path, [])
    assert [offset for _, _, offset in rows(emitted)] == [5]
    assert report.skipped == {"row of a time outside the years 1896 to 2116": 1}
    assert report.warnings == [f"{path}: rows of a time outside the years 1896 to 2116 left out"]
