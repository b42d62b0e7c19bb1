"""Clock logs of hosts as batches: `produce host --log FILE`.

One unordered source per file, daemon, tag and stamping clock. A row's entity is the clock that the line is
about, its stamp is the line's. See `grammar` for what is read, `survey` for why a file is read twice, and
`follow` for logs that grow.
"""

import hashlib
import heapq
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from producers.host.batching import FAMILY, Located, batches
from producers.host.grammar import Grammar
from producers.host.prefix import utc_ns
from producers.host.reading import BOOT
from producers.host.stampclocks import stamp_clock
from producers.host.survey import (
    SOURCES_IN_ALL_MAX,
    SOURCES_MAX,
    UNPLACED,
    SourceKey,
    Survey,
    host_of,
    survey,
)
from producers.host.textfile import TextFile
from producers.report import Report
from schemas.batch import Batch
from schemas.columns import Control
from schemas.draft import control
from schemas.errors import MalformedInput
from schemas.pack import Head, Source
from schemas.time import OUTSIDE

ROWS_MAX: Final = 4096


@dataclass(frozen=True)
class Options:
    """How logs are read. `scope` None: one from the content. `year`: for klog and syslog where nothing
    tells it."""

    tenant: str = "default"
    scope: str | None = None
    host: str | None = None
    publisher: str = "host-log"
    year: int | None = None
    rows: int = ROWS_MAX

    def near_ns(self) -> int | None:
        """The middle of the year given, in Unix ns."""
        return None if self.year is None else utc_ns(self.year, 7, 1, 0, 0, 0)

    def changing(self) -> str:
        """The options that change rows, for hashes."""
        return repr((self.host, self.year))


@dataclass
class Lines:
    """What became of the lines of all files: every line is counted once."""

    total: int = 0
    parsed: dict[str, int] = field(default_factory=dict)
    ignored: dict[str, int] = field(default_factory=dict)
    unknown: int = 0
    samples: list[str] = field(default_factory=list)

    def add(self, grammar: Grammar) -> None:
        """Count the lines of one file."""
        self.total += grammar.total
        self.unknown += grammar.unknown
        for mine, theirs in ((self.parsed, grammar.parsed), (self.ignored, grammar.ignored)):
            for form, count in theirs.items():
                mine[form] = mine.get(form, 0) + count
        self.samples = (self.samples + grammar.samples)[:10]

    def fields(self) -> dict[str, Any]:
        """As the contract wants it, with the counts by form and examples of what was not understood."""
        return {
            "total": self.total,
            "parsed": sum(self.parsed.values()),
            "ignored": sum(self.ignored.values()),
            "unknown": self.unknown,
            "parsed_by_form": dict(sorted(self.parsed.items())),
            "ignored_by_form": dict(sorted(self.ignored.items())),
            "unknown_samples": self.samples,
        }


@dataclass
class LogReport(Report):
    """The report of a log producer: with what became of the lines."""

    lines: Lines = field(default_factory=Lines)

    def fields(self) -> dict[str, Any]:
        return {"lines": self.lines.fields()}


@dataclass
class _File:
    """A file that is read: `name` is unique among the files of one run."""

    text: TextFile
    survey: Survey
    name: str
    host: str | None


def incarnation_of(digest: bytes, options: Options, scope: str) -> int:
    """What names the content of a file: int63, the same whenever the same is sent again."""
    made = hashlib.blake2b(digest + f"\0{options.changing()}\0{scope}".encode(), digest_size=8)
    return int.from_bytes(made.digest(), "little") >> 1


def read(paths: Sequence[Path], options: Options, report: LogReport) -> Iterator[Batch]:
    """Batches of all files, merged in time. A file that cannot be used costs one line in the report.

    Raises MalformedInput if no file could be opened at all.
    """
    files = _survey(paths, options, report)
    try:
        if not files:
            raise MalformedInput("no log could be read", ", ".join(str(path) for path in paths))
        scope = options.scope
        if scope is None:
            made = hashlib.blake2b(options.changing().encode(), digest_size=4)
            for digest in sorted(entry.survey.digest for entry in files):
                made.update(digest)
            scope = f"host-{made.hexdigest()}"
        hosts = {_host(entry, key.host, options) for entry in files for key in entry.survey.keys}
        if hosts:
            yield control(options.tenant, scope, options.publisher, [(Control.OPEN, len(hosts), "hosts")])
        streams = [_located(place, entry, options, scope) for place, entry in enumerate(files)]
        rows = streams[0] if len(streams) == 1 else heapq.merge(*streams, key=lambda each: each.order_ns)
        for batch in batches(rows, Head(options.tenant, scope, options.publisher, FAMILY), options.rows):
            report.events += batch.count
            report.batches += 1
            yield batch
    finally:
        for entry in files:
            entry.text.close()


def _survey(paths: Sequence[Path], options: Options, report: LogReport) -> list[_File]:
    files: list[_File] = []
    for path in paths:
        try:
            text = TextFile(path)
        except MalformedInput as error:
            report.warn(str(error))
            report.skip("unreadable file")
            continue
        room = SOURCES_IN_ALL_MAX - sum(len(entry.survey.keys) for entry in files)
        found = survey(text, options.near_ns(), min(SOURCES_MAX, room))
        same = next((entry for entry in files if entry.survey.digest == found.digest), None)
        report.warnings += text.warnings
        if same is not None:
            report.warn(f"{text.shown}: the same content as {same.text.shown}, left out")
            report.skip("same file twice")
            text.close()
            continue
        report.lines.add(found.grammar)
        report.skip("line not understood", found.grammar.unknown)
        report.skip("line says nothing of a clock", sum(found.grammar.ignored.values()))
        report.skip("row of a source too many", int((found.source < 0).sum()) - found.outside)
        report.skip(f"row of a {OUTSIDE}", found.outside)
        if found.outside:
            report.warn(f"{text.shown}: {found.outside} rows of a {OUTSIDE} left out")
        if not len(found):
            report.warn(f"{text.shown}: none of {found.grammar.total} lines is of a clock log's format")
        if line := _without_time(found):
            report.warn(f"{text.shown}: {line}")
        taken = any(entry.name == text.name for entry in files)
        name = f"{text.name}~{found.digest.hex()[:8]}" if taken else text.name
        host = options.host
        if host is not None and len(found.hosts) > 1:
            report.warn(
                f"{text.shown}: names {len(found.hosts)} hosts, so --host {host} counts for the rest only"
            )
        files.append(_File(text, found, name, host))
    return files


def _without_time(found: Survey) -> str:
    """What to say of rows whose time is not known; empty if there are none."""
    without = (found.placed_ns == UNPLACED) & (found.source >= 0)
    if not without.any():
        return ""
    clocks = {found.keys[place].clock for place in set(found.source[without].tolist())}
    why = (
        "stamped with the time since boot, and nothing in the file says when that was"
        if clocks == {BOOT}
        else "without a whole date, a time zone or any time"
    )
    todo = " (read where it is written, by --follow, it has its times)" if BOOT in clocks else ""
    return f"{int(without.sum())} rows are {why}: all of them get the time at which they are sent{todo}"


def _host(entry: _File, named: str | None, options: Options) -> str:
    return host_of(named, entry.survey.hosts, options.host, entry.survey.digest)


def _located(file: int, entry: _File, options: Options, scope: str) -> Iterator[Located]:
    """The rows of one file's second reading, with all that the first one found out."""
    found = entry.survey
    incarnation = incarnation_of(found.digest, options, scope)
    made: dict[tuple[int, int], tuple[Source, str]] = {}
    left = found.rows_of.tolist()
    grammar = Grammar(options.near_ns())
    rows = itertools.chain(
        itertools.chain.from_iterable(grammar.feed(lines) for lines in entry.text.lines()), grammar.finish()
    )
    latest_ns = UNPLACED
    places = zip(found.source.tolist(), found.placed_ns.tolist(), found.boot.tolist(), strict=True)
    for row, (place, placed_ns, boot) in zip(rows, places, strict=True):
        if place < 0:
            continue
        known = made.get((place, boot))
        if known is None:
            known = made[place, boot] = _source(entry, found.keys[place], boot, incarnation, options)
        source, host = known
        left[place] -= 1
        promise_ns = shift_ns = None
        if placed_ns != UNPLACED:
            latest_ns = max(latest_ns, placed_ns)
            promise_ns, shift_ns = latest_ns - found.disorder_ns, placed_ns - row.stamp.ns
        yield Located(latest_ns, row, source, host, file, promise_ns, shift_ns, left[place] == 0)


def _source(
    entry: _File, key: SourceKey, boot: int, incarnation: int, options: Options
) -> tuple[Source, str]:
    host = _host(entry, key.host, options)
    maps = entry.survey.maps.get(key.host, [])
    state = stamp_clock(host, key.clock, key.quantum_ns, maps[boot] if key.clock == BOOT else None)
    return Source(source_name(host, entry.name, key), host, state, incarnation, ordered=False), host


def source_name(host: str, file: str, key: SourceKey) -> str:
    """Name of a log's source, unique in a scope."""
    return "/".join((host, file, key.daemon, key.tag or "-", f"{key.clock}:{key.quantum_ns}"))
