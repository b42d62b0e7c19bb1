"""Clock logs that grow: `produce host --log FILE --follow`.

A followed file is read from its start, again after each restart, so that its rows have the same sequence
numbers whoever reads them; what was sent before is dropped downstream as known. Its incarnation is made of
device, inode, first line, options and scope, so a rotated or cut file is a new one.

The log is taken to be written on this host, unless its lines name another one. So the time since boot that
stamps its lines has a map that is read here, between two readings of the clock, and the follower may
promise that no line will come that is older than LAG_NS: without such promises a silent log would hold up
everybody's windows. Lines of an earlier boot have no map; neither have those of other hosts, whose sources
promise nothing."""

import hashlib
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

from producers.host.batching import FAMILY, Assembler, Located
from producers.host.boots import BootMap
from producers.host.grammar import Grammar, Row
from producers.host.logs import Lines as LineCounts
from producers.host.logs import LogReport, Options, incarnation_of, source_name
from producers.host.reading import BOOT, NS, SYSTEM
from producers.host.stampclocks import stamp_clock
from producers.host.survey import SOURCES_IN_ALL_MAX, SOURCES_MAX, SourceKey
from producers.host.tail import Begin, End, Lines, Tail
from schemas.batch import Batch
from schemas.columns import Control
from schemas.draft import control
from schemas.pack import Head, Source
from schemas.time import OUTSIDE, stamp_fits, unix_to_tai

WARNINGS_MAX: Final = 1000  # of one run
LAG_NS: Final = 2 * NS  # stamps in whole seconds, and lines that wait in a buffer
LOOK_S: Final = 0.05  # between two looks at the files: the heartbeat, too
STEP_NS: Final = 1_000_000  # CLOCK_REALTIME moved against CLOCK_MONOTONIC by more: a step


class Clock(Protocol):
    """What the follower asks about the time; see tempotrace.clockwork."""

    def now_ns_utc(self) -> int: ...
    def monotonic(self) -> float: ...
    def wait(self, event: threading.Event, seconds: float) -> bool: ...


@dataclass
class _Log:
    """One file while it is followed."""

    tail: Tail
    name: str
    number: int
    grammar: Grammar = field(default_factory=Grammar)
    incarnation: int = 0
    caught_up: bool = False
    trouble: str = ""  # why it cannot be read, as was last said
    fresh: bool = False  # lines from here on are of the boot that runs now
    sources: dict[tuple[SourceKey, BootMap | None], Source] = field(default_factory=dict)


class Follower:
    """Follows log files until stopped. `host` is this machine's name for its clocks, `node` its plain one."""

    def __init__(
        self, paths: Sequence[Path], options: Options, clock: Clock, host: str, node: str, report: LogReport
    ) -> None:
        self._options, self._clock, self._report = options, clock, report
        self._host, self._node = options.host or host, node.split(".")[0]
        self._scope = options.scope or "default"
        head = Head(options.tenant, self._scope, options.publisher, FAMILY)
        self._made = Assembler(head)
        names = [path.name for path in paths]
        self._logs = [
            _Log(Tail(path), path.name if names.count(path.name) == 1 else str(path), number)
            for number, path in enumerate(paths)
        ]
        self._boot = self._read_boot()

    def run(self, emit: Callable[[Batch], None], stop: threading.Event) -> None:
        """Read, emit and look again until `stop` is set; then end all sources. `emit` may block."""
        options = self._options
        emit(control(options.tenant, self._scope, options.publisher, [(Control.OPEN, 1, "hosts")]))
        while True:
            for log in self._logs:
                self._events(log, log.tail.poll(), emit)
            self._beat(emit)
            if self._clock.wait(stop, LOOK_S):
                break
        for log in self._logs:
            self._events(log, log.tail.close(), emit)
        self._emit(emit)

    def _events(
        self, log: _Log, events: Iterable[Begin | Lines | End], emit: Callable[[Batch], None]
    ) -> None:
        for event in events:
            if isinstance(event, Begin):
                self._begin(log, event)
            elif isinstance(event, Lines):
                if event.lines and not event.old:
                    log.fresh = True
                for row in log.grammar.feed(event.lines):
                    self._add(log, row, emit)
                log.caught_up = event.caught_up
            else:
                for row in log.grammar.finish():
                    self._add(log, row, emit)
                self._report.lines.add(log.grammar)
                log.grammar = Grammar()
                self._made.finish(log.number)
                if event.reason != "closed":
                    self._warn(
                        f"{log.tail.path}: {event.reason}; the file that is there now is read from its start"
                    )
        if log.tail.trouble != log.trouble:
            log.trouble = log.tail.trouble
            if log.trouble:
                self._warn(f"{log.trouble}; waiting for it")
            else:
                self._warn(f"{log.tail.path}: is there now, and read from its start")

    def _begin(self, log: _Log, event: Begin) -> None:
        options = self._options
        identity = hashlib.blake2b(digest_size=8)
        identity.update(f"{event.device}\0{event.inode}\0{event.first_line}".encode())
        log.incarnation = incarnation_of(identity.digest(), options, self._scope)
        now_ns = self._clock.now_ns_utc()
        log.grammar = Grammar(options.near_ns() or now_ns)
        log.sources = {}
        # A file not changed since this boot holds lines of earlier ones only, until a new line comes.
        log.fresh = event.changed_ns >= _ahead(self._boot)
        log.caught_up = False

    def _add(self, log: _Log, row: Row, emit: Callable[[Batch], None]) -> None:
        if row.stamp.clock == SYSTEM and not stamp_fits(row.stamp.ns):
            self._report.skip(f"row of a {OUTSIDE}")
            self._warn(f"{log.tail.path}: rows of a {OUTSIDE} left out")
            return
        local = row.host is None or row.host.split(".")[0] == self._node
        host = self._host if local else str(row.host)
        boot = self._map_of(log, row, local)
        key = SourceKey(row.host, row.daemon, row.tag, row.stamp.clock, row.stamp.quantum_ns)
        source = log.sources.get((key, boot))
        known = len(log.sources)
        if source is None and (
            known >= SOURCES_MAX or sum(len(each.sources) for each in self._logs) >= SOURCES_IN_ALL_MAX
        ):
            self._report.skip("row of a source too many")
            return
        if source is None:
            state = stamp_clock(host, key.clock, key.quantum_ns, boot)
            name = source_name(host, log.name, key)
            source = Source(name, host, state, log.incarnation, ordered=False, live=True)
            log.sources[key, boot] = source
        shift_ns = None
        if local and row.stamp.clock == SYSTEM:
            shift_ns = unix_to_tai(row.stamp.ns) - row.stamp.ns
        elif boot is not None and boot.boot_ns is not None and boot.unix_ns is not None:
            shift_ns = unix_to_tai(boot.unix_ns) - boot.boot_ns
        if len(self._made) >= self._options.rows or self._made.clashes(source):
            self._emit(emit)
        self._made.add(Located(0, row, source, host, log.number, None, shift_ns, False))
        self._report.events += 1

    def _map_of(self, log: _Log, row: Row, local: bool) -> BootMap | None:
        """The map of a stamp since boot: this boot's, if the line is of this host and boot."""
        if row.stamp.clock != BOOT:
            return None
        boots = log.grammar.boots[row.host]
        latest = boots.epoch
        if not local or not log.fresh or row.stamp.ns > self._clock.monotonic() * NS + LAG_NS:
            return BootMap(0, latest)
        return BootMap(
            0, latest, self._boot.boot_ns, self._boot.unix_ns, self._boot.bound_ns, 1, self._boot.provenance
        )

    def _read_boot(self) -> BootMap:
        """CLOCK_REALTIME against CLOCK_MONOTONIC, read here and now."""
        before = self._clock.monotonic()
        unix_ns = self._clock.now_ns_utc()
        after = self._clock.monotonic()
        middle, half = (before + after) / 2, (after - before) / 2
        return BootMap(
            0, 0, round(middle * NS), unix_ns, round(half * NS) + 1000, 1,
            "CLOCK_REALTIME read between two readings of CLOCK_MONOTONIC on this host",
        )  # fmt: skip

    def _beat(self, emit: Callable[[Batch], None]) -> None:
        """Emit what there is, and the promise of every file that is read to its end."""
        now = self._read_boot()
        if abs(_ahead(now) - _ahead(self._boot)) > STEP_NS:
            self._boot = now
        for log in self._logs:
            if log.caught_up:
                self._made.promise(log.number, unix_to_tai(self._clock.now_ns_utc()) - LAG_NS)
        self._emit(emit)

    def _emit(self, emit: Callable[[Batch], None]) -> None:
        batch = self._made.build()
        if batch.table_len("src"):
            emit(batch)
            self._report.batches += 1

    def counts(self) -> LineCounts:
        """What became of the lines so far, of the files that are open, too."""
        out = LineCounts(
            self._report.lines.total, dict(self._report.lines.parsed), dict(self._report.lines.ignored),
            self._report.lines.unknown, list(self._report.lines.samples),
        )  # fmt: skip
        for log in self._logs:
            out.add(log.grammar)
        return out

    def _warn(self, line: str) -> None:
        if len(self._report.warnings) < WARNINGS_MAX:
            self._report.warn(line)


def _ahead(boot: BootMap) -> int:
    """CLOCK_REALTIME less CLOCK_MONOTONIC of a map that was read here."""
    assert boot.ahead_ns is not None
    return boot.ahead_ns
