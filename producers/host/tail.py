"""A text file that grows, is rotated or cut: `tail -F` without waiting. The caller decides when to look
again.

A file is known by device, inode and its first line, so its content begins when that line is whole. It ends
when the path leads to another file (the old one is read to its end first), when it became shorter than what
was read, or when the tail is closed. A path without a file is waited for."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

from producers.host.textfile import LineCutter
from schemas.errors import cause_of

READ_MAX: Final = 1 << 20  # bytes taken in one look: the rest comes with the next


@dataclass(frozen=True)
class Begin:
    """A file begins. `old` bytes of it were there when it was opened, last changed at `changed_ns` (Unix)."""

    device: int
    inode: int
    first_line: str
    old: int
    changed_ns: int


@dataclass(frozen=True)
class Lines:
    """The next whole lines; `caught_up`: nothing more is there now. `old`: they were there at the
    beginning."""

    lines: list[str]
    caught_up: bool
    old: bool


@dataclass(frozen=True)
class End:
    """No line of this file follows, for the reason given."""

    reason: str


class Tail:
    """One path. `poll` gives what happened since the last one, and never blocks (unless the disk does)."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.trouble = ""  # why the path cannot be read now, if so
        self._file: IO[bytes] | None = None
        self._cutter = LineCutter()
        self._begun = False
        self._position = self._old = 0

    def poll(self) -> Iterator[Begin | Lines | End]:
        """What is new. Begin comes before the first lines of each file, End after its last."""
        if self._file is None and not self._open():
            return
        assert self._file is not None
        try:
            data = self._file.read(READ_MAX)
            if data:
                yield from self._take(data)
                if len(data) == READ_MAX:
                    return
            reason = self._gone()
            if reason is not None:
                # What was written between the last look and the rotation.
                while data := self._file.read(READ_MAX):
                    yield from self._take(data)
                yield from self._end(reason)
            elif self._begun:
                yield Lines([], True, False)
        except OSError as error:
            self.trouble = f"{self.path}: {cause_of(error)}"
            yield from self._end("unreadable")

    def close(self) -> Iterator[Begin | Lines | End]:
        """Give the last line, if it has no end, and End."""
        if self._file is not None:
            yield from self._end("closed")

    def _open(self) -> bool:
        try:
            self._file = self.path.open("rb")
        except OSError as error:
            self.trouble = f"{self.path}: {cause_of(error)}"
            return False
        self.trouble = ""
        self._cutter, self._begun, self._position = LineCutter(), False, 0
        self._old = os.fstat(self._file.fileno()).st_size
        return True

    def _take(self, data: bytes) -> Iterator[Begin | Lines]:
        assert self._file is not None
        self._position += len(data)
        lines = self._cutter.feed(data)
        if not lines:
            return
        if not self._begun:
            yield self._begin(lines[0])
        yield Lines(lines, len(data) < READ_MAX, self._position <= self._old)

    def _begin(self, first_line: str) -> Begin:
        assert self._file is not None
        self._begun = True
        status = os.fstat(self._file.fileno())
        return Begin(status.st_dev, status.st_ino, first_line, self._old, status.st_mtime_ns)

    def _gone(self) -> str | None:
        """Why the open file is not the path's any more, or None if it is."""
        assert self._file is not None
        mine = os.fstat(self._file.fileno())
        if mine.st_size < self._position:
            return "truncated"
        try:
            there = self.path.stat()
        except FileNotFoundError:
            return None  # moved away; the new one is not made yet, and the writer may still use this one
        return None if (there.st_dev, there.st_ino) == (mine.st_dev, mine.st_ino) else "rotated"

    def _end(self, reason: str) -> Iterator[Begin | Lines | End]:
        assert self._file is not None
        lines = self._cutter.finish()
        # The rest of a truncated file's last line is lost: what was read of it is no line.
        if lines and reason != "truncated":
            if not self._begun:
                yield self._begin(lines[0])
            yield Lines(lines, True, False)
        if self._begun:
            yield End(reason)
        self._file.close()
        self._file, self._begun = None, False
