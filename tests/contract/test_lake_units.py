"""Units: every row once, whatever is interrupted, and nothing of a unit before all of it."""

import errno
import json
import os
import threading
from pathlib import Path

import duckdb
import pytest

from schemas import merged
from schemas.errors import Fenced, MalformedInput, Setup
from schemas.processor import PartitionWork
from sinks import units, views
from sinks.lake import TABLES_OF, LakeProcessor
from tempotrace import doctor
from tests.lakes import Sink, records, topic
from tests.parts import HOUR_NS, START_NS, Maker

PARTS = 6
ROWS = 40


class Crash(Exception):
    """The process ends here."""


def window_log(partition: int = 0, scope: str = "job", parts: int = PARTS) -> list[bytes]:
    """Windows that alternate between two hours, so that each unit of two has two files in `events`."""
    maker = Maker(count=ROWS, scope=scope, seed=partition + 1)
    return [merged.write(maker.part(k, START_NS + (k % 2) * HOUR_NS)) for k in range(parts)]


def counts(lake: Path) -> dict[str, tuple[int, int]]:
    """Rows and distinct events in the view, by table."""
    with views.connect(lake) as connection:
        identity = "(scope, source, incarnation, seq)"
        edge = "(scope, match_key)"
        keys = {"events": identity, "gpu_events": identity, "event_values": identity, "edges": edge}
        out = {}
        for table, key in keys.items():
            row = connection.execute(f"SELECT count(*), count(DISTINCT {key}) FROM {table}").fetchone()
            assert row is not None
            out[table] = (row[0], row[1])
        return out


def once(parts: int) -> dict[str, tuple[int, int]]:
    """What counts() gives when every row of so many windows is there once."""
    rows = {"events": ROWS, "gpu_events": ROWS, "event_values": ROWS // 10, "edges": ROWS // 5}
    return {table: (n * parts, n * parts) for table, n in rows.items()}


def stray(lake: Path) -> list[Path]:
    """Data files of no unit, and what is left in the staging folder."""
    kept = {
        str(file["path"]) for path in lake.glob("_units/*/*/*/*.json") for file in units.read_unit(path).files
    }
    found = [
        path
        for path in lake.glob("*/tenant=default/*/*/*.parquet")
        if str(path.relative_to(lake)) not in kept
    ]
    return found + list(lake.glob("_staging/*"))


def test_every_row_is_there_once(tmp_path: Path) -> None:
    Sink(tmp_path, records("merged", window_log())).run()
    assert counts(tmp_path) == once(PARTS)
    assert stray(tmp_path) == []
    assert units.verify(tmp_path)[1] == []


@pytest.mark.parametrize("step", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("unit", [1, 2])
def test_a_crash_before_any_step_of_a_commit(tmp_path: Path, step: int, unit: int) -> None:
    log = records("merged", window_log())
    done = [0]

    def crash(at: int) -> None:
        done[0] += at == 1
        if at == step and done[0] == unit:
            raise Crash

    sink = Sink(tmp_path, log, before_step=crash)
    with pytest.raises(Crash):
        sink.run()
    # Only after the fourth step the unit is there, and then all of it.
    assert counts(tmp_path) == once(2 * (unit if step == 5 else unit - 1))
    again = Sink(tmp_path, log)
    assert stray(tmp_path) == []
    again.run()
    assert counts(tmp_path) == once(PARTS)
    assert units.verify(tmp_path)[1] == []


@pytest.mark.parametrize("moved", [1, 2, 3, 5, 7])
def test_a_crash_amid_the_renames(tmp_path: Path, moved: int, monkeypatch: pytest.MonkeyPatch) -> None:
    log = records("merged", window_log())
    left = [moved]
    move = units._move

    def crash(source: Path, target: Path) -> None:
        if not left[0]:
            raise Crash
        left[0] -= 1
        move(source, target)

    sink = Sink(tmp_path, log)
    sink.run(units=1)
    with monkeypatch.context() as patch:
        patch.setattr(units, "_move", crash)
        with pytest.raises(Crash):
            sink.run()
    assert len(stray(tmp_path)) == moved + 1
    assert counts(tmp_path) == once(2)
    Sink(tmp_path, log).run(per_unit=3)
    assert counts(tmp_path) == once(PARTS)
    assert stray(tmp_path) == []


def test_a_restart_goes_on_and_repeats_nothing(tmp_path: Path) -> None:
    log = records("merged", window_log())
    Sink(tmp_path, log).run(per_unit=1, units=3)
    second = Sink(tmp_path, log)
    assert second.at == 3
    second.run(per_unit=3)
    third = Sink(tmp_path, log)
    assert third.at == PARTS
    third.run()
    assert counts(tmp_path) == once(PARTS)
    names = sorted(path.name for path in tmp_path.glob("_units/*/*/0/*.json"))
    assert names == ["0-0.json", "1-0.json", "2-0.json", "3-0.json"]


def test_clock_states_are_not_written_again_after_a_restart(tmp_path: Path) -> None:
    log = records("merged", window_log())
    for _ in range(3):
        Sink(tmp_path, log).run(per_unit=2, units=1)
    with views.connect(tmp_path) as connection:
        found = connection.execute("SELECT clock_id, count(*) FROM clocks GROUP BY 1 ORDER BY 1").fetchall()
    assert found == [(f"host{k}/CLOCK_REALTIME", 1) for k in range(4)]


def test_partitions_and_topics_side_by_side(tmp_path: Path) -> None:
    for partition in (0, 1):
        Sink(tmp_path, records("merged", window_log(partition, f"job{partition}"), partition)).run()
    Sink(tmp_path, records("events", [b"one", b"two"])).run()
    assert counts(tmp_path) == once(2 * PARTS)
    with views.connect(tmp_path) as connection:
        archived = connection.execute("SELECT log_offset, value FROM archive ORDER BY 1").fetchall()
    assert archived == [(0, b"one"), (1, b"two")]


def test_two_sinks_on_one_partition(tmp_path: Path) -> None:
    log = records("merged", window_log())
    first, second = Sink(tmp_path, log), Sink(tmp_path, log)
    first.run(units=1)
    with pytest.raises(Fenced, match="another sink writes the same partition"):
        second.run(per_unit=1)
    first.run()
    assert counts(tmp_path) == once(PARTS)
    Sink(tmp_path, log)
    assert stray(tmp_path) == []


def test_a_sink_that_was_taken_over_amid_a_commit(tmp_path: Path) -> None:
    log = records("merged", window_log())

    def taken_over(step: int) -> None:
        if step == 2:
            Sink(tmp_path, log).run(per_unit=3, units=1)

    slow = Sink(tmp_path, log, before_step=taken_over)
    with pytest.raises(Fenced):
        slow.run(units=1)
    assert counts(tmp_path) == once(3)
    Sink(tmp_path, log).run()
    assert counts(tmp_path) == once(PARTS)


def test_files_of_no_unit_are_removed_only_of_this_partition(tmp_path: Path) -> None:
    log = records("merged", window_log())
    Sink(tmp_path, log).run(units=1)
    folder = next(iter(tmp_path.glob("events/tenant=default/*/*")))
    data = next(iter(folder.glob("*.parquet"))).read_bytes()
    known = topic("merged")
    ours = folder / f"{units.unit_name(known, 0, 2)}.parquet"
    others = [folder / f"{units.unit_name(known, partition, 0)}.parquet" for partition in (1, 10)]
    for path in (ours, *others):
        path.write_bytes(data)
    assert counts(tmp_path) == once(2)
    Sink(tmp_path, log)
    assert [path.exists() for path in (ours, *others)] == [False, True, True]


def test_a_topic_made_again_tells_where_the_old_one_came_to(tmp_path: Path) -> None:
    log = records("merged", window_log())
    Sink(tmp_path, log).run()
    outlet = units.LakeOutlet(tmp_path, "default", lambda suffix: topic(suffix, "another"), TABLES_OF)
    resume = outlet.resume("merged", 0)
    # The snapshot is the old topic's: the runner compares the ids in it, stops, or accepts the loss.
    assert dict(resume.next_offset) == {"merged": PARTS}
    assert resume.snapshot is not None


def test_offsets_of_the_new_topic_stand_beside_those_of_the_old(tmp_path: Path) -> None:
    log = records("merged", window_log())
    Sink(tmp_path, log).run()
    maker = Maker(count=ROWS, scope="later", seed=9)
    new = records("merged", [merged.write(maker.part(k)) for k in range(2)])
    outlet = units.LakeOutlet(tmp_path, "default", lambda suffix: topic(suffix, "another"), TABLES_OF)
    outlet.resume("merged", 0)
    task = LakeProcessor("default").start(0, None)
    work = PartitionWork("merged", 0, {})
    for record in new:
        work.outputs += task.process(record)
    work.next_offset, work.snapshot = dict(task.next_offset), task.snapshot()
    outlet.commit([work])
    assert counts(tmp_path) == once(PARTS + 2)
    again = outlet.resume("merged", 0)
    assert dict(again.next_offset) == {"merged": 2}


def test_a_superseded_unit_is_skipped(tmp_path: Path) -> None:
    log = records("merged", window_log())
    Sink(tmp_path, log).run()
    home = next(iter(tmp_path.glob("_units/*/*/0")))
    # A unit of generation 1 over the first two, as compaction would write it; here with no files at all.
    (home / "0-1.json").write_text(json.dumps({"last": 3, "files": [], "snapshot": ""}))
    assert counts(tmp_path) == once(PARTS - 4)
    sink = Sink(tmp_path, log)
    assert sink.at == PARTS


@pytest.mark.parametrize(
    "content",
    ["", "{", "[]", '{"last": 1, "files": []}', '{"last": "x", "files": [], "snapshot": ""}'],
)
def test_a_damaged_unit_is_one_clear_error(tmp_path: Path, content: str) -> None:
    log = records("merged", window_log())
    Sink(tmp_path, log).run(units=1)
    path = next(iter(tmp_path.glob("_units/*/*/0/0-0.json")))
    path.write_text(content)
    with pytest.raises(MalformedInput, match=r"a unit of the lake is damaged.*0-0\.json"):
        Sink(tmp_path, log)


def test_a_missing_unit_is_one_clear_error(tmp_path: Path) -> None:
    log = records("merged", window_log())
    Sink(tmp_path, log).run()
    next(iter(tmp_path.glob("_units/*/*/0/2-0.json"))).unlink()
    with pytest.raises(MalformedInput, match="the unit from offset 4 does not follow the one that ends at 1"):
        Sink(tmp_path, log)


def test_a_damaged_or_missing_file_is_found(tmp_path: Path) -> None:
    log = records("merged", window_log())
    Sink(tmp_path, log).run()
    first, *_, last = sorted(
        tmp_path.glob("events/tenant=default/*/*/*.parquet"), key=lambda path: int(path.stem[-3])
    )
    content = bytearray(first.read_bytes())
    content[20] ^= 1
    first.write_bytes(content)
    assert [line.split(" does")[0] for line in units.verify(tmp_path)[1]] == [
        str(first.relative_to(tmp_path))
    ]
    last.unlink()
    with pytest.raises(MalformedInput, match="missing or of another size"):
        Sink(tmp_path, log)


def test_a_disk_that_refuses_is_one_clear_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    log = records("merged", window_log())
    sink = Sink(tmp_path, log)
    with monkeypatch.context() as patched:
        patched.setattr(units, "write_file", full)
        with pytest.raises(Setup, match="cannot be written: No space left"):
            sink.run()
    Sink(tmp_path, log).run()
    with monkeypatch.context() as patched:
        patched.setattr(os, "open", full)
        with pytest.raises(Setup, match="cannot be written"):
            Sink(tmp_path, log)


def test_a_reader_sees_only_whole_units(tmp_path: Path) -> None:
    windows = 40
    log = records("merged", window_log(parts=windows))
    views.prepare(tmp_path)
    done = threading.Event()
    seen: list[int] = []
    errors: list[BaseException] = []

    def read() -> None:
        try:
            with duckdb.connect(tmp_path / views.FILE, read_only=True) as connection:
                while not done.is_set():
                    row = connection.execute("SELECT count(*) FROM events").fetchone()
                    assert row is not None
                    seen.append(row[0])
        except BaseException as error:
            errors.append(error)

    reader = threading.Thread(target=read)
    reader.start()
    try:
        Sink(tmp_path, log).run(per_unit=2)
    finally:
        done.set()
        reader.join()
    assert errors == []
    assert [rows % (2 * ROWS) for rows in seen] == [0] * len(seen)
    assert seen == sorted(seen)
    assert len(set(seen)) > 3
    assert counts(tmp_path) == once(windows)


def test_the_doctor_checks_a_lake_that_is_named(tmp_path: Path) -> None:
    Sink(tmp_path, records("merged", window_log())).run()

    def said(lake: Path) -> tuple[str, str]:
        found = doctor.of_lake(lake)
        assert found.name == "lake"
        return found.state, found.text

    count = len(list(tmp_path.glob("_units/*/*/*/*.json")))
    assert said(tmp_path) == ("ok", f"{count} units in {tmp_path}, every file as its checksum says")
    assert said(tmp_path / "none")[0] == "absent"
    file = min(tmp_path.glob("events/tenant=default/*/*/*.parquet"))
    file.write_bytes(file.read_bytes()[:-1] + b"?")
    assert (said(tmp_path)[0], file.name in said(tmp_path)[1]) == ("bad", True)
    min(tmp_path.glob("_units/*/*/*/*.json")).write_text("{}")
    assert said(tmp_path)[0] == "bad"
