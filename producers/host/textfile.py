"""Log files as lines: plain or gzip, damaged or not, from a path or from a pipe.

What can be read is read: a gzip file that ends early or is damaged gives the lines before the damage, bytes
that are no UTF-8 become U+FFFD, a line beyond LINE_BYTES_MAX is cut. `warnings` says each of it once.
"""

import contextlib
import hashlib
import shutil
import sys
import tempfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Final

from schemas.errors import MalformedInput, cause_of

CHUNK: Final = 1 << 20
LINE_BYTES_MAX: Final = 64 * 1024
GZIP_MAGIC: Final = b"\x1f\x8b"
_BINARY_PROBE: Final = 4096


class LineCutter:
    """Bytes in, lines out, in any pieces. `cut` counts the lines that were too long."""

    def __init__(self) -> None:
        self._rest = b""
        self._skipping = False
        self.cut = 0

    def feed(self, data: bytes) -> list[str]:
        """The lines that are whole now, without their ends."""
        lines = (self._rest + data).split(b"\n")
        self._rest = lines.pop()
        if self._skipping and lines:
            # The rest of a line whose beginning has been given already.
            lines.pop(0)
            self._skipping = False
        if len(self._rest) > LINE_BYTES_MAX:
            if not self._skipping:
                lines.append(self._rest)
                self._skipping = True
            self._rest = b""
        if any(len(line) > LINE_BYTES_MAX for line in lines):
            self.cut += sum(len(line) > LINE_BYTES_MAX for line in lines)
            lines = [line[:LINE_BYTES_MAX] for line in lines]
        if not lines:
            return []
        # One decoding for all; no other character ends a line here.
        return b"\n".join(lines).decode("utf-8", "replace").split("\n")

    def finish(self) -> list[str]:
        """The last line, if it has no end."""
        rest, self._rest = self._rest, b""
        return [rest.decode("utf-8", "replace")] if rest and not self._skipping else []


class TextFile:
    """One log file that can be read more than once. Close it, or use it as a context manager."""

    def __init__(self, path: Path) -> None:
        """Open the file; the path `-` is standard input. Raises MalformedInput if it cannot be opened."""
        self.warnings: list[str] = []
        self.name = "stdin" if str(path) == "-" else path.name
        self.shown = "stdin" if str(path) == "-" else str(path)
        self._file: IO[bytes] = _spooled(sys.stdin.buffer) if str(path) == "-" else _opened(path)

    def __enter__(self) -> "TextFile":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def chunks(self) -> Iterator[bytes]:
        """The content, unpacked, from the start."""
        self._file.seek(0)
        first = self._read()
        packed = first.startswith(GZIP_MAGIC)
        source = self._unpacked(first) if packed else self._plain(first)
        probe = True
        for data in source:
            if probe and b"\0" in data[:_BINARY_PROBE]:
                self._warn("looks like binary data, not a log")
            probe = False
            yield data

    def lines(self, digest: "hashlib.blake2b | None" = None) -> Iterator[list[str]]:
        """The lines from the start, some thousand at a time; the content is added to `digest`."""
        cutter = LineCutter()
        for data in self.chunks():
            if digest is not None:
                digest.update(data)
            if lines := cutter.feed(data):
                yield lines
        if lines := cutter.finish():
            yield lines
        if cutter.cut:
            self._warn(f"{cutter.cut} lines longer than {LINE_BYTES_MAX} bytes are cut")

    def _read(self) -> bytes:
        try:
            return self._file.read(CHUNK)
        except OSError as error:
            self._warn(f"cannot be read further: {cause_of(error)}; what came before is used")
            return b""

    def _plain(self, first: bytes) -> Iterator[bytes]:
        data = first
        while data:
            yield data
            data = self._read()

    def _unpacked(self, first: bytes) -> Iterator[bytes]:
        """All members of a gzip file, as far as they are whole."""
        inflate = zlib.decompressobj(wbits=31)
        data, done = first, 0
        while True:
            if not data:
                data = self._read()
                if not data:
                    if not inflate.eof:
                        self._warn(f"the gzip file ends early; the first {done} bytes of text are used")
                    return
            if inflate.eof:
                if not data.startswith(GZIP_MAGIC[: len(data)]):
                    if data.strip(b"\0"):
                        self._warn("what follows the gzip data is left out")
                    return
                inflate = zlib.decompressobj(wbits=31)
            before = inflate.copy()
            try:
                text = inflate.decompress(data, CHUNK)
            except zlib.error:
                text = _up_to_damage(before, data)
                if text:
                    yield text
                self._warn(f"the gzip file is damaged; the first {done + len(text)} bytes of text are used")
                return
            data = inflate.unconsumed_tail or inflate.unused_data
            done += len(text)
            if text:
                yield text

    def _warn(self, text: str) -> None:
        line = f"{self.shown}: {text}"
        if line not in self.warnings:
            self.warnings.append(line)


def _up_to_damage(inflate: "zlib._Decompress", data: bytes) -> bytes:
    """What a damaged piece holds before its damage."""
    out = bytearray()
    with contextlib.suppress(zlib.error):
        for at in range(len(data)):
            out += inflate.decompress(data[at : at + 1])
    return bytes(out)


def _opened(path: Path) -> IO[bytes]:
    try:
        file = path.open("rb")
    except OSError as error:
        raise MalformedInput(f"cannot open the log: {cause_of(error)}", str(path)) from error
    if file.seekable():
        return file
    with file:
        return _spooled(file)


def _spooled(source: IO[bytes]) -> IO[bytes]:
    """A pipe's content in a file without a name, since it is read twice."""
    copy = tempfile.TemporaryFile()  # noqa: SIM115 (its owner closes it)
    try:
        shutil.copyfileobj(source, copy)
    except BaseException:
        copy.close()
        raise
    return copy
