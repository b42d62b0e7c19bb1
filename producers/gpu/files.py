"""Where profiler traces lie: plain JSON, gzip, tar (packed or not), or folders of these.

Nothing is unpacked to disk and nothing is read twice: each trace is handed on as a stream. A container's
kind is told by its first bytes, because names lie. What cannot be read costs one call of `broken` and no
more.
"""

import gzip
import io
import tarfile
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path, PurePosixPath
from typing import IO, Any, Final, cast

from schemas.errors import MalformedInput, Usage

BUFFER_BYTES: Final = 1 << 20
NESTED_MAX: Final = 3  # gzip in tar in gzip; more is an attack
SUFFIXES: Final = (".json", ".gz", ".tgz", ".tar")  # what counts as a trace in a folder
READ_ERRORS: Final = (EOFError, zlib.error, gzip.BadGzipFile, tarfile.TarError, OSError, MalformedInput)

Use = Callable[[str, IO[bytes]], None]
Broken = Callable[[str, str], None]


def visit(paths: Iterable[Path], use: Use, broken: Broken) -> None:
    """Call `use(name, stream)` for every trace in `paths`, in order of name within each folder.

    An archive's traces come in the archive's order. `use` may raise MalformedInput: that trace is then
    broken, like one whose container is cut, and `broken(name, why)` is called for it. Raises Usage for a
    path that does not exist.
    """
    for path in paths:
        if path.is_dir():
            found = sorted(each for each in path.rglob("*") if _counts(each, path))
            if not found:
                broken(str(path), "holds no .json, .json.gz, .tar or .tar.gz file")
            for each in found:
                _file(each, str(each.relative_to(path)), use, broken)
        elif path.exists():
            _file(path, path.name, use, broken)
        else:
            raise Usage(f"{path} does not exist; give a trace, an archive of traces or a folder of them")


def stem(name: str) -> str:
    """What a trace is called when it does not say its rank: the file's name without its format's suffixes."""
    base = PurePosixPath(name).name
    for suffix in (".gz", ".json", ".trace", ".pt"):
        base = base.removesuffix(suffix)
    return base or name


def _counts(path: Path, root: Path) -> bool:
    hidden = any(part.startswith(".") for part in path.relative_to(root).parts)
    return path.is_file() and not hidden and path.name.lower().endswith(SUFFIXES)


def _file(path: Path, name: str, use: Use, broken: Broken) -> None:
    try:
        with path.open("rb", buffering=0) as raw:
            _stream(name, raw, use, broken, NESTED_MAX)
    except READ_ERRORS as error:
        broken(name, _why(error))


def _stream(name: str, raw: IO[bytes], use: Use, broken: Broken, depth: int) -> None:
    """One trace or container. Raises READ_ERRORS where it is itself what is broken."""
    stream = io.BufferedReader(cast(io.RawIOBase, raw), BUFFER_BYTES)  # it needs readinto and no more
    head = stream.peek(512)[:512]
    if depth == 0 and (head[:2] == b"\x1f\x8b" or head[257:262] == b"ustar"):
        raise MalformedInput(f"more than {NESTED_MAX} containers inside each other")
    if head[:2] == b"\x1f\x8b":
        with gzip.GzipFile(fileobj=stream) as unpacked:
            _stream(name, unpacked, use, broken, depth - 1)  # type: ignore[arg-type]  # reads as IO[bytes]
    elif head[257:262] == b"ustar":
        _archive(name, stream, use, broken, depth - 1)
    else:
        use(name, stream)


class _Container(MalformedInput):
    """The archive around a trace is what is broken, not the trace."""


class _Member(io.RawIOBase):
    """A trace inside an archive, whose errors tell on which side of it they arose."""

    def __init__(self, name: str, body: IO[bytes]) -> None:
        self._name = name
        self._body = body

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        try:
            data = self._body.read(len(buffer))
        except READ_ERRORS as error:
            raise _Container(f"{_why(error)} in {self._name}; what follows is lost") from None
        buffer[: len(data)] = data
        return len(data)


def _archive(name: str, stream: IO[bytes], use: Use, broken: Broken, depth: int) -> None:
    with tarfile.open(fileobj=stream, mode="r|") as archive:
        for member in archive:
            if not member.isfile() or PurePosixPath(member.name).name.startswith("."):
                continue
            body = archive.extractfile(member)
            assert body is not None, "a regular member has content"
            try:
                _stream(member.name, _Member(member.name, body), use, broken, depth)  # type: ignore[arg-type]
            except _Container:
                raise
            except READ_ERRORS as error:
                broken(member.name, _why(error))  # the archive itself can go on


def _why(error: BaseException) -> str:
    match error:
        case EOFError():
            return "the gzip file is cut short"
        case gzip.BadGzipFile() | zlib.error():
            return f"the gzip file is damaged: {error}"
        case tarfile.TarError():
            return f"the tar archive is damaged: {error}"
        case MalformedInput():
            return str(error)
        case _:
            return f"cannot be read: {error}"
