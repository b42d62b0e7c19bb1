"""Where profiler traces lie: plain JSON, gzip, tar (packed or not), or folders of these.

Nothing is unpacked to disk and nothing is read twice: each trace is handed on as a stream. A container's
kind is told by its first bytes, because names lie. What cannot be read costs one call of `broken` and no
more.
"""

import gzip
import io
import tarfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO, Any, Final

from schemas.errors import MalformedInput, cause_of

BUFFER_BYTES: Final = 1 << 20
NESTED_MAX: Final = 3  # gzip in tar in gzip; more is an attack
SUFFIXES: Final = (".json", ".gz", ".tgz", ".tar")  # what counts as a trace in a folder
READ_ERRORS: Final = (EOFError, zlib.error, gzip.BadGzipFile, tarfile.TarError, OSError, MalformedInput)

Use = Callable[[str, IO[bytes]], None]
Broken = Callable[[str, str], None]


def visit(paths: Iterable[Path], use: Use, broken: Broken) -> None:
    """Call `use(name, stream)` for every trace in `paths`, in order of name within each folder.

    An archive's traces come in the archive's order. `use` may raise MalformedInput: that trace is then
    broken, like one whose container is cut, and `broken(name, why)` is called for it, as for a path where
    nothing is.
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
            broken(str(path), "cannot be read: there is no such file")


def stem(name: str) -> str:
    """What a trace is called when it does not say its rank: the file's name without its format's suffixes."""
    base = PurePosixPath(name).name
    for suffix in (".gz", ".json", ".trace", ".pt"):
        base = base.removesuffix(suffix)
    return base or name


def _counts(path: Path, root: Path) -> bool:
    hidden = any(part.startswith(".") for part in path.relative_to(root).parts)
    return path.is_file() and not hidden and path.name.lower().endswith(SUFFIXES)


class _Container(MalformedInput):
    """The archive around a trace is what is broken, not the trace."""


class _Raw(io.RawIOBase):
    """A stream by a function that reads at most so many bytes; none means the end."""

    def __init__(self, read: Callable[[int], bytes]) -> None:
        self._read = read

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._read(len(buffer))
        buffer[: len(data)] = data
        return len(data)


def _file(path: Path, name: str, use: Use, broken: Broken) -> None:
    try:
        with path.open("rb", buffering=0) as raw:
            _stream(name, raw.read, use, broken, NESTED_MAX)
    except _Container as error:
        broken(name, str(error))
    except READ_ERRORS as error:
        broken(name, f"{_why(error)}; left out")


def _stream(name: str, read: Callable[[int], bytes], use: Use, broken: Broken, depth: int) -> None:
    """One trace or container. Raises READ_ERRORS where it is itself what is broken."""
    stream = io.BufferedReader(_Raw(read), BUFFER_BYTES)
    head = stream.peek(512)[:512]
    packed, archived = head[:2] == b"\x1f\x8b", head[257:262] == b"ustar"
    if depth == 0 and (packed or archived):
        raise MalformedInput(f"more than {NESTED_MAX} containers inside each other")
    if packed:
        with gzip.GzipFile(fileobj=stream, mode="rb") as unpacked:
            # One step at a time: what was unpacked before a cut is still read.
            _stream(name, unpacked.read1, use, broken, depth - 1)
    elif archived:
        _archive(stream, use, broken, depth - 1)
    else:
        use(name, stream)


def _archive(stream: IO[bytes], use: Use, broken: Broken, depth: int) -> None:
    with _headers():
        archive = tarfile.open(fileobj=stream, mode="r|")  # noqa: SIM115  # closed below
    with archive:
        while (member := _next(archive)) is not None:
            if not member.isfile() or PurePosixPath(member.name).name.startswith("."):
                continue
            try:
                _stream(member.name, _member(archive, member), use, broken, depth)
            except _Container:
                raise
            except READ_ERRORS as error:
                broken(member.name, f"{_why(error)}; left out")  # the archive itself can go on


@contextmanager
def _headers() -> Iterator[None]:
    """What tarfile raises for numbers in headers that are none, as its own error."""
    try:
        yield
    except (ValueError, ArithmeticError, LookupError, AssertionError) as error:
        raise tarfile.ReadError(f"bad header ({error})") from None


def _next(archive: tarfile.TarFile) -> tarfile.TarInfo | None:
    with _headers():
        return archive.next()


def _member(archive: tarfile.TarFile, member: tarfile.TarInfo) -> Callable[[int], bytes]:
    """Reads a file of an archive; its errors are the archive's."""
    body = archive.extractfile(member)
    assert body is not None, "a regular member has content"

    def read(size: int) -> bytes:
        try:
            with _headers():
                return body.read(size)
        except READ_ERRORS as error:
            raise _Container(f"{_why(error)} in {member.name}; that and what follows is left out") from None

    return read


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
            return f"cannot be read: {cause_of(error)}"
