"""The spool as a store: order, limits, locks, and what a crash may leave at its end."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from producers.spool import FRAME, MAGIC, Entry, Spool
from schemas.errors import Setup


def payload(number: int, size: int = 20) -> bytes:
    return f"{number:08d}".encode().ljust(size, b".")


def read_all(spool: Spool) -> list[Entry]:
    return list(iter(spool.read, None))


def fill(folder: Path, count: int) -> None:
    """What a process leaves that is killed after `count` synced payloads."""
    spool = Spool(folder)
    for number in range(count):
        assert spool.append(payload(number)) is None
    spool.sync()
    os.close(spool._lock)  # as the kernel does at its end


def test_reads_only_what_is_synced(tmp_path: Path) -> None:
    spool = Spool(tmp_path)
    spool.append(payload(1))
    assert spool.read() is None
    spool.sync()
    assert [entry.payload for entry in read_all(spool)] == [payload(1)]
    spool.rewind()
    assert [entry.payload for entry in read_all(spool)] == [payload(1)]
    assert not spool.empty


def test_acknowledged_payloads_are_gone_at_the_next_start(tmp_path: Path) -> None:
    spool = Spool(tmp_path)
    for number in range(10):
        spool.append(payload(number))
    spool.sync()
    entries = read_all(spool)
    spool.acknowledge(entries[6].end)
    spool.close()
    again = Spool(tmp_path)
    assert [entry.payload for entry in read_all(again)] == [payload(number) for number in (7, 8, 9)]


def test_an_empty_spool_leaves_no_segment(tmp_path: Path) -> None:
    spool = Spool(tmp_path)
    spool.append(payload(1))
    spool.sync()
    spool.acknowledge(read_all(spool)[-1].end)
    assert spool.empty
    spool.close()
    assert list(tmp_path.glob("*.seg")) == []
    again = Spool(tmp_path)
    again.append(payload(2))
    again.sync()
    assert [entry.payload for entry in read_all(again)] == [payload(2)]


def test_segments_go_when_they_are_acknowledged(tmp_path: Path) -> None:
    spool = Spool(tmp_path, segment_bytes=100)
    for number in range(30):
        spool.append(payload(number))
    spool.sync()
    assert len(list(tmp_path.glob("*.seg"))) == 10
    entries = read_all(spool)
    assert [entry.payload for entry in entries] == [payload(number) for number in range(30)]
    spool.acknowledge(entries[14].end)
    assert len(list(tmp_path.glob("*.seg"))) == 6  # the fifth holds the position itself
    spool.acknowledge(entries[15].end)
    assert len(list(tmp_path.glob("*.seg"))) == 5
    assert spool.bytes_used == sum(path.stat().st_size for path in tmp_path.glob("*.seg"))


def test_full(tmp_path: Path) -> None:
    spool = Spool(tmp_path, bytes_max=400)
    reasons = [spool.append(payload(number)) for number in range(20)]
    taken = reasons.count(None)
    assert reasons == [None] * taken + ["spool full"] * (20 - taken)
    assert taken >= 8
    assert spool.bytes_used <= 400
    assert spool.append(payload(99), beyond_limit=True) is None
    spool.sync()
    entries = read_all(spool)
    assert [entry.payload for entry in entries] == [*(payload(n) for n in range(taken)), payload(99)]
    spool.acknowledge(entries[-1].end)
    assert spool.append(payload(5)) is None


def test_disk_full_takes_nothing_by_halves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spool = Spool(tmp_path)
    spool.append(payload(1))
    write = os.write
    calls = []

    def short(descriptor: int, data: bytes) -> int:
        calls.append(descriptor)
        if len(calls) == 1:
            return write(descriptor, data[:5])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", short)
    assert spool.append(payload(2)) == "disk full"
    monkeypatch.setattr(os, "write", write)
    assert spool.append(payload(3)) is None
    spool.sync()
    assert [entry.payload for entry in read_all(spool)] == [payload(1), payload(3)]
    os.close(spool._lock)
    assert Spool(tmp_path).damage == {}


def test_disk_full_at_a_new_segment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spool = Spool(tmp_path, segment_bytes=40)
    assert spool.append(payload(1)) is None
    spool.sync()
    write = os.write

    def refuse(descriptor: int, data: bytes) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", refuse)
    assert spool.append(payload(2)) == "disk full"
    monkeypatch.setattr(os, "write", write)
    spool.acknowledge(read_all(spool)[-1].end)
    assert spool.empty
    assert spool.append(payload(3)) is None
    spool.sync()
    assert [entry.payload for entry in read_all(spool)] == [payload(3)]


def test_one_process_holds_the_folder(tmp_path: Path) -> None:
    spool = Spool(tmp_path)
    with pytest.raises(Setup, match=f"in use by process {os.getpid()}"):
        Spool(tmp_path)
    script = f"from producers.spool import Spool\nfrom pathlib import Path\nSpool(Path({str(tmp_path)!r}))"
    other = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert other.returncode == 1
    assert f"in use by process {os.getpid()}" in other.stderr
    spool.close()
    assert Spool(tmp_path).empty


def test_a_crash_at_every_byte_of_the_tail(tmp_path: Path) -> None:
    fill(tmp_path / "whole", 3)
    whole = next((tmp_path / "whole").glob("*.seg")).read_bytes()
    frame = FRAME.size + 20
    assert len(whole) == len(MAGIC) + 3 * frame
    for size in range(len(whole)):
        folder = tmp_path / str(size)
        folder.mkdir()
        (folder / f"{1:016d}.seg").write_bytes(whole[:size])
        spool = Spool(folder)
        kept = max(size - len(MAGIC), 0) // frame
        assert [entry.payload for entry in read_all(spool)] == [payload(n) for n in range(kept)]
        torn = size - len(MAGIC) - kept * frame if size >= len(MAGIC) else size
        assert spool.damage.get("torn tail", 0) == torn
        spool.append(payload(50))
        spool.sync()
        assert [entry.payload for entry in read_all(spool)] == [payload(50)]
        os.close(spool._lock)
        again = Spool(folder)
        assert again.damage == {}
        assert [entry.payload for entry in read_all(again)] == [
            *(payload(n) for n in range(kept)),
            payload(50),
        ]
        again.close()


def test_a_segment_that_was_only_begun(tmp_path: Path) -> None:
    fill(tmp_path, 2)
    (tmp_path / f"{2:016d}.seg").write_bytes(MAGIC)
    spool = Spool(tmp_path)
    assert spool.damage == {}
    spool.append(payload(2))
    spool.sync()
    assert [entry.payload for entry in read_all(spool)] == [payload(0), payload(1), payload(2)]


@pytest.mark.parametrize("tail", [b"\0" * 64, b"\xff" * 64, MAGIC, b"\x08\0\0\0\0\0\0\0" + b"x" * 8])
def test_rubbish_after_the_last_frame_is_cut_off(tmp_path: Path, tail: bytes) -> None:
    fill(tmp_path, 2)
    with next(tmp_path.glob("*.seg")).open("ab") as file:
        file.write(tail)
    spool = Spool(tmp_path)
    assert spool.damage == {"torn tail": len(tail)}
    assert [entry.payload for entry in read_all(spool)] == [payload(0), payload(1)]


def test_damage_in_the_middle_costs_the_rest_of_its_segment(tmp_path: Path) -> None:
    spool = Spool(tmp_path, segment_bytes=100)
    for number in range(9):
        spool.append(payload(number))
    spool.sync()
    os.close(spool._lock)
    first = sorted(tmp_path.glob("*.seg"))[0]
    content = bytearray(first.read_bytes())
    content[len(MAGIC) + FRAME.size + 20 + FRAME.size] ^= 1
    first.write_bytes(content)
    again = Spool(tmp_path)
    assert again.damage == {"damaged segment": 2 * (FRAME.size + 20)}
    assert [entry.payload for entry in read_all(again)] == [payload(n) for n in (0, 3, 4, 5, 6, 7, 8)]
    assert first.with_suffix(".bad").read_bytes() == bytes(content)


@given(raw=st.binary(max_size=40))
@settings(max_examples=50, deadline=None)
def test_a_broken_position_only_means_sending_more(
    raw: bytes, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("spool")
    fill(folder, 4)
    (folder / "acked").write_bytes(raw)
    assert [entry.payload for entry in read_all(Spool(folder))] == [payload(n) for n in range(4)]


def test_notes_survive_and_are_replaced(tmp_path: Path) -> None:
    spool = Spool(tmp_path)
    assert spool.noted("open") == []
    spool.note("open", [b"a", b"bb"])
    spool.note("open", [b"ccc"])
    spool.close()
    assert Spool(tmp_path).noted("open") == [b"ccc"]


class Model(RuleBasedStateMachine):
    """Whatever is appended, synced, read, acknowledged, killed: what is read again is what a list says."""

    def __init__(self) -> None:
        super().__init__()
        import tempfile

        self.place = tempfile.TemporaryDirectory()
        self.spool = self.open()
        self.written = 0  # payloads appended
        self.synced = 0
        self.acked = 0
        self.read: list[Entry] = []  # since acked

    def open(self) -> Spool:
        return Spool(Path(self.place.name), segment_bytes=90)

    @rule(size=st.integers(10, 120))
    def append(self, size: int) -> None:
        before = self.spool._written.segment
        assert self.spool.append(payload(self.written, size)) is None
        if self.spool._written.segment != before:
            self.synced = self.written  # a new segment syncs the one before
        self.written += 1

    @rule()
    def sync(self) -> None:
        self.spool.sync()
        self.synced = self.written

    @rule(count=st.integers(1, 5))
    def take(self, count: int) -> None:
        for _ in range(count):
            entry = self.spool.read()
            if entry is None:
                assert self.acked + len(self.read) == self.synced
                return
            assert entry.payload.rstrip(b".") == f"{self.acked + len(self.read):08d}".encode()
            self.read.append(entry)

    @rule(count=st.integers(1, 5))
    def acknowledge(self, count: int) -> None:
        done, self.read = self.read[:count], self.read[count:]
        if done:
            self.spool.acknowledge(done[-1].end)
            self.acked += len(done)

    @rule()
    def rewind(self) -> None:
        self.spool.rewind()
        self.read = []

    @rule(kill=st.booleans())
    def restart(self, kill: bool) -> None:
        if kill:
            os.close(self.spool._lock)
        else:
            self.spool.close()
        self.spool = self.open()
        self.synced = self.written
        self.read = []

    @invariant()
    def empty_means_all_acknowledged(self) -> None:
        assert self.spool.empty == (self.acked == self.written)

    def teardown(self) -> None:
        os.close(self.spool._lock)
        self.place.cleanup()


TestModel = Model.TestCase
TestModel.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
