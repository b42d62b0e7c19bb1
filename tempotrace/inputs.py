"""Files of several kinds read into one scope: which producer reads which, and their batches side by side."""

import codecs
import gzip
import tarfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, Final

from producers.cutting import tables_only, without_promises
from producers.gpu import read as kineto
from producers.host import logs
from producers.int import collector, files
from producers.report import Report
from schemas.batch import Batch
from schemas.errors import MalformedInput
from schemas.records import DeadLetter

Item = Batch | DeadLetter
CAPTURE_MAGIC: Final = (
    b"\xa1\xb2\xc3\xd4",
    b"\xd4\xc3\xb2\xa1",
    b"\xa1\xb2\x3c\x4d",
    b"\x4d\x3c\xb2\xa1",
    b"\x0a\x0d\x0d\x0a",
)
SNIFF_BYTES: Final = 4096


@dataclass(frozen=True)
class Files:
    """Input files by what they are."""

    kineto: tuple[Path, ...] = ()
    logs: tuple[Path, ...] = ()
    captures: tuple[Path, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.kineto or self.logs or self.captures)


@dataclass(frozen=True)
class Choices:
    """How the files are read."""

    tenant: str = "default"
    scope: str = "files"
    host: str | None = None
    clock_bound_ns: int | None = None
    clock_offset_ns: Mapping[str, int] = field(default_factory=dict)


@dataclass
class Feed:
    """One producer at work: its batches, and what it reports meanwhile."""

    kind: str
    paths: tuple[Path, ...]
    batches: Iterator[Item]
    report: Report

    def told(self) -> dict[str, Any]:
        """What became of the files, as `--json` prints it."""
        return {
            **self.report.fields(),
            "kind": self.kind,
            "files": [str(path) for path in self.paths],
            "events": self.report.events,
            "skipped": dict(self.report.skipped),
            "warnings": list(self.report.warnings),
        }


def sort_out(paths: Sequence[Path]) -> Files:
    """Tell what each file is by its content. A folder is one of profiler traces.

    What cannot be read counts as a log: its producer says what is wrong with it.
    """
    found: dict[str, list[Path]] = {"kineto": [], "logs": [], "captures": []}
    for path in paths:
        try:
            found[_kind(path)].append(path)
        except OSError:
            found["logs"].append(path)
    return Files(**{kind: tuple(chosen) for kind, chosen in found.items()})


def _kind(path: Path) -> str:
    if path.is_dir() or _is_archive(path):
        return "kineto"
    with path.open("rb") as file:
        head = file.read(SNIFF_BYTES)
    if head[:4] in CAPTURE_MAGIC:
        return "captures"
    if head[:2] == b"\x1f\x8b":
        try:
            with gzip.open(path) as file:
                head = file.read(SNIFF_BYTES)
        except (OSError, EOFError, zlib.error):
            head = b"{" if ".json" in path.name else b""  # the producer says what is wrong with it
    return "kineto" if head.removeprefix(codecs.BOM_UTF8).lstrip()[:1] in (b"{", b"[") else "logs"


def _is_archive(path: Path) -> bool:
    try:
        return tarfile.is_tarfile(path)
    except (EOFError, zlib.error):  # a gzip file that is cut
        return False
    except (
        ValueError,
        ArithmeticError,
        LookupError,
    ):  # an archive whose headers hold nonsense: its reader says so
        return True


def feeds(chosen: Files, choices: Choices) -> list[Feed]:
    """A producer for each kind of file that is there, all in one scope."""
    out: list[Feed] = []
    if chosen.kineto:
        gpu_report = kineto.KinetoReport()
        options = kineto.Options(
            tenant=choices.tenant,
            scope=choices.scope,
            host=choices.host,
            clock_bound_ns=choices.clock_bound_ns,
            clock_offset_ns=choices.clock_offset_ns,
        )
        traces = kineto.read(chosen.kineto, options, gpu_report)
        out.append(Feed("kineto", chosen.kineto, _as_far_as_usable(traces, gpu_report), gpu_report))
    if chosen.logs:
        log_report = logs.LogReport()
        log_options = logs.Options(tenant=choices.tenant, scope=choices.scope, host=choices.host)
        rows = logs.read(chosen.logs, log_options, log_report)
        out.append(Feed("logs", chosen.logs, _as_far_as_usable(rows, log_report), log_report))
    if chosen.captures:
        int_report = collector.IntReport()
        int_options = files.Options(tenant=choices.tenant, scope=choices.scope, host=choices.host)
        batches = files.read(chosen.captures, int_options, int_report)
        out.append(Feed("captures", chosen.captures, _as_far_as_usable(batches, int_report), int_report))
    return out


def _as_far_as_usable(batches: Iterator[Item], report: Report) -> Iterator[Item]:
    """The batches; if nothing of these files can be used, the files of other kinds still are."""
    try:
        yield from batches
    except MalformedInput as error:
        if not report.warnings:
            report.warn(str(error))


def side_by_side(running: Sequence[Feed]) -> Iterator[Item]:
    """Batches of all feeds, one of each in turn.

    First each feed's sources are listed, without a promise: so the scope waits for all feeds before anything
    leaves, although their times may lie years apart.
    """
    waiting: list[Iterator[Item]] = []
    listings: list[Batch] = []
    for feed in running:
        begun: list[Item] = []
        for item in feed.batches:
            begun.append(item)
            if isinstance(item, Batch) and item.table_len("src"):
                listings.append(tables_only(without_promises(item)))
                break
        opened = [item for item in begun if isinstance(item, Batch) and item.family == "control"]
        yield from opened
        rest = [item for item in begun if item not in opened]
        waiting.append(chain(rest, feed.batches))
    yield from listings
    while waiting:
        for batches in list(waiting):
            found = next(batches, None)
            if found is None:
                waiting.remove(batches)
            else:
                yield found
