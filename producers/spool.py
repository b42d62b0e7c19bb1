"""A write-ahead log on disk for what live input brings, so that neither a dead broker nor kill -9 loses it.

A folder holds segments `<number>.seg` (8 bytes of magic, then frames), the position up to which everything
was acknowledged (`acked`), and two small lists that a restart needs: `open`, the sources that have not ended,
and `lost`, what was dropped and not yet reported. A frame is length (u32), CRC-32 over length and payload
(u32), payload. One process holds the folder, by a lock that ends with it.

What a crash leaves, by the moment at which it comes:
1. in `append`: a frame without its end; it was never counted as produced, and the next start cuts it off;
2. after `sync`: whole frames; the next start sends them first;
3. after sending: the same frames once more; their rows have the same identity, so the merge drops them;
4. after `acknowledge`: the position may be older than it was (it is not synced), which is case 3.
A frame that is broken anywhere but at the end is damage of the disk: the rest of its segment cannot be read,
is kept aside as `.bad`, and counted.
"""

import fcntl
import os
import struct
import threading
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from schemas.errors import Setup, cause_of

MAGIC: Final = b"TTSPOOL1"
FRAME: Final = struct.Struct("<II")
POSITION: Final = struct.Struct("<QQI")
PAYLOAD_BYTES_MAX: Final = 16 * 1024 * 1024


class Position(NamedTuple):
    """A place between two frames. Order is the order of writing."""

    segment: int
    offset: int


class Entry(NamedTuple):
    """A payload and the position after it."""

    end: Position
    payload: bytes


class Spool:
    """The log of one publisher. One thread may write (append, sync) and one read (read, acknowledge, rewind).

    `damage` counts bytes by reason that recovery could not use: `torn tail` (case 1) and `damaged segment`.
    """

    def __init__(self, folder: Path, *, bytes_max: int = 256 * 2**20, segment_bytes: int = 4 * 2**20) -> None:
        """Take the folder and recover what is in it. Raises Setup if another process holds it."""
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.damage: dict[str, int] = {}
        self._bytes_max = bytes_max
        self._segment_bytes = min(segment_bytes, max(bytes_max // 8, 1))
        self._mutex = threading.Lock()
        self._lock = _lock(folder)
        self._sizes: dict[int, int] = {}
        self._acked_fd = os.open(folder / "acked", os.O_RDWR | os.O_CREAT, 0o600)
        self._acked, last = self._recover()
        self._cursor = self._acked
        self._written = self._synced = Position(last, self._sizes.get(last, 0))
        self._out: int | None = None
        self._in: tuple[int, int] | None = None  # segment, descriptor

    @property
    def bytes_used(self) -> int:
        """Bytes on disk."""
        return sum(self._sizes.values())

    @property
    def empty(self) -> bool:
        """Whether everything that was written is acknowledged."""
        with self._mutex:
            at = self._acked
            return all(
                size <= (at.offset if number == at.segment else len(MAGIC))
                for number, size in self._sizes.items()
            )

    def fits(self, size: int) -> bool:
        """Whether payloads of so many bytes in all can be taken within the limit, headers being small."""
        return self.bytes_used + size <= self._bytes_max

    def append(self, payload: bytes, *, beyond_limit: bool = False) -> str | None:
        """Write a payload; None, or the reason why it was not taken (`spool full`, `disk full`).

        It is safe only after `sync`. `beyond_limit` is for the few records that must not be dropped.
        """
        assert 0 < len(payload) <= PAYLOAD_BYTES_MAX
        size = FRAME.size + len(payload)
        if not beyond_limit and not self.fits(size):
            return "spool full"
        try:
            if self._out is None or self._written.offset + size > self._segment_bytes:
                self._next_segment()
            assert self._out is not None
            frame = _frame(payload)
            done = 0
            while done < len(frame):
                done += os.write(self._out, frame[done:])
        except FileExistsError:
            raise  # a segment's number is never used twice: our bug
        except OSError:
            if self._out is not None:
                os.ftruncate(self._out, self._written.offset)
            return "disk full"
        with self._mutex:
            self._written = Position(self._written.segment, self._written.offset + size)
            self._sizes[self._written.segment] = self._written.offset
        return None

    def sync(self) -> None:
        """Make all that was appended safe, and let it be read. Raises Setup if the disk refuses."""
        end = self._written
        if self._out is not None and end > self._synced:
            try:
                os.fdatasync(self._out)
            except OSError as error:
                raise Setup(f"cannot write the spool in {self.folder}: {cause_of(error)}") from error
        with self._mutex:
            self._synced = end

    def read(self) -> Entry | None:
        """The next synced payload, None if there is none."""
        with self._mutex:
            cursor, synced = self._cursor, self._synced
            while cursor < synced and cursor.offset >= self._sizes.get(cursor.segment, 0):
                cursor = Position(cursor.segment + 1, len(MAGIC))
        if cursor >= synced:
            return None
        source = self._reading(cursor.segment)
        length, crc = FRAME.unpack(os.pread(source, FRAME.size, cursor.offset))
        payload = os.pread(source, length, cursor.offset + FRAME.size)
        if len(payload) != length or crc != _crc(payload):
            raise Setup(f"the disk gives back something else than was written to {self.folder}")
        self._cursor = Position(cursor.segment, cursor.offset + FRAME.size + length)
        return Entry(self._cursor, payload)

    def acknowledge(self, end: Position) -> None:
        """Forget everything up to this position."""
        with self._mutex:
            self._acked = max(self._acked, end)
            gone = [number for number in self._sizes if number < self._acked.segment]
            for number in gone:
                del self._sizes[number]
        crc = zlib.crc32(POSITION.pack(*self._acked, 0)[:-4])
        os.pwrite(self._acked_fd, POSITION.pack(*self._acked, crc), 0)
        for number in gone:
            self._path(number).unlink()

    def rewind(self) -> None:
        """Read again from the first payload that is not acknowledged."""
        self._cursor = self._acked

    def note(self, name: str, payloads: list[bytes]) -> None:
        """Replace one of the small lists, safely."""
        path = self.folder / name
        fresh = path.with_suffix(".new")
        with fresh.open("wb") as file:
            file.write(b"".join(_frame(payload) for payload in payloads))
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(path)
        _sync_folder(self.folder)

    def noted(self, name: str) -> list[bytes]:
        """One of the small lists, as far as it can be read."""
        path = self.folder / name
        return [payload for _, payload in _frames(path.read_bytes())] if path.exists() else []

    def close(self) -> None:
        """Give the folder back; segments whose every payload is acknowledged go."""
        if self.empty:
            for number in list(self._sizes):
                self._path(number).unlink()
            self._sizes.clear()
        for descriptor in (self._out, self._in[1] if self._in else None, self._acked_fd, self._lock):
            if descriptor is not None:
                os.close(descriptor)
        self._out = self._in = None

    def _path(self, number: int) -> Path:
        return self.folder / f"{number:016d}.seg"

    def _next_segment(self) -> None:
        """Begin a segment; what the one before holds is made safe first, so only the last can be torn."""
        self.sync()
        number = self._written.segment + 1
        fresh = os.open(self._path(number), os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o600)
        try:
            os.write(fresh, MAGIC)
            _sync_folder(self.folder)
        except OSError:
            os.close(fresh)
            self._path(number).unlink()
            raise
        if self._out is not None:
            os.close(self._out)
        self._out = fresh
        with self._mutex:
            self._sizes[number] = len(MAGIC)
            self._written = Position(number, len(MAGIC))
            self._synced = self._written

    def _reading(self, number: int) -> int:
        if self._in is None or self._in[0] != number:
            if self._in is not None:
                os.close(self._in[1])
                self._in = None
            self._in = (number, os.open(self._path(number), os.O_RDONLY))
        return self._in[1]

    def _recover(self) -> tuple[Position, int]:
        """Check every segment, cut what cannot be used, delete what was acknowledged.

        Gives the acknowledged position, and the greatest segment number that was ever used.
        """
        numbers = sorted(int(path.stem) for path in self.folder.glob("*.seg") if path.stem.isdecimal())
        raw = os.pread(self._acked_fd, POSITION.size, 0)
        acked = Position(0, 0)
        if len(raw) == POSITION.size and zlib.crc32(raw[:-4]) == POSITION.unpack(raw)[2]:
            acked = Position(*POSITION.unpack(raw)[:2])
        for number in numbers:
            path = self._path(number)
            if number < acked.segment:
                path.unlink()
                continue
            content = path.read_bytes()
            ends = [len(MAGIC)] if content.startswith(MAGIC) else [0]
            if ends[0]:
                ends += [len(MAGIC) + end for end, _ in _frames(content[len(MAGIC) :])]
            if ends[-1] < len(content):
                self._cut(path, content, ends[-1], last=number == numbers[-1])
            if ends[-1] > len(MAGIC):
                self._sizes[number] = ends[-1]
            else:
                path.unlink()
            if number == acked.segment and acked.offset not in ends:
                acked = Position(number, len(MAGIC))
        if self._sizes and min(self._sizes) > acked.segment:
            acked = Position(min(self._sizes), len(MAGIC))
        return acked, max([acked.segment, *numbers])

    def _cut(self, path: Path, content: bytes, end: int, last: bool) -> None:
        """Take off what follows `end` in a segment."""
        reason = "torn tail" if last else "damaged segment"
        self.damage[reason] = self.damage.get(reason, 0) + len(content) - end
        if not last:
            path.with_suffix(".bad").write_bytes(content)
        with path.open("r+b") as file:
            file.truncate(end)
            os.fsync(file.fileno())


def _crc(payload: bytes) -> int:
    # The length takes part, so that a tail of zeros is no valid empty frame.
    return zlib.crc32(payload, zlib.crc32(struct.pack("<I", len(payload))))


def _frame(payload: bytes) -> bytes:
    return FRAME.pack(len(payload), _crc(payload)) + payload


def _frames(content: bytes) -> Iterator[tuple[int, bytes]]:
    """(end, payload) of each frame up to the first that is cut or broken."""
    at = 0
    while at + FRAME.size <= len(content):
        length, crc = FRAME.unpack_from(content, at)
        payload = content[at + FRAME.size : at + FRAME.size + length]
        if len(payload) != length or crc != _crc(payload):
            return
        at += FRAME.size + length
        yield at, payload


def _lock(folder: Path) -> int:
    """Hold the folder for this process; the kernel lets it go when the process ends. Raises Setup."""
    descriptor = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        owner = os.pread(descriptor, 32, 0).decode(errors="replace").strip() or "another process"
        os.close(descriptor)
        raise Setup(
            f"the spool {folder} is in use by process {owner}: stop that producer, or name this one otherwise"
        ) from None
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, str(os.getpid()).encode(), 0)
    return descriptor


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
