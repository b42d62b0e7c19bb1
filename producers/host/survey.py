"""The first reading of a log file: what is in it, before any of its rows is sent.

A batch must say what its reader cannot know yet: which hosts a file names, when its host was booted, below
which stamp no later row begins, which row is a source's last, and the hash of the content, which names the
source's incarnation. So a file is read twice, and this is what the first reading keeps: 28 bytes a row.
"""

import hashlib
from array import array
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from producers.host.boots import BootMap
from producers.host.grammar import Grammar, Row
from producers.host.reading import BOOT, SYSTEM
from producers.host.textfile import TextFile
from schemas.time import STAMP_NS_MAX, STAMP_NS_MIN, utc_to_tai

I64 = NDArray[np.int64]
UNPLACED = -(2**63)
# A log has a handful of sources; damaged or hostile ones must not fill our tables, nor a batch with names.
SOURCES_MAX = 4096  # of one file
SOURCES_IN_ALL_MAX = 10_000  # of all files read together


class SourceKey(NamedTuple):
    """What makes a source of its own: who wrote the line, and by which clock it is stamped."""

    host: str | None
    daemon: str
    tag: str | None
    clock: str
    quantum_ns: int


@dataclass
class Survey:
    """What one file holds. Arrays have one entry a row, in the order of the lines."""

    digest: bytes
    grammar: Grammar  # its counts: what became of each line
    keys: list[SourceKey]
    source: I64  # place in `keys`; -1 for rows that are left out: of sources beyond the limit, or `outside`
    placed_ns: I64  # nominal TAI; UNPLACED where the stamp has no map to it
    boot: I64  # place in `maps` of the row's host, for stamps since boot
    maps: dict[str | None, list[BootMap]]
    disorder_ns: int  # how far a row may lie below one before it, in placed time
    rows_of: I64  # by source
    outside: int  # rows of a time that cannot be placed
    hosts: set[str] = field(default_factory=set)  # named by the input

    def __len__(self) -> int:
        return len(self.source)


class _Rows:
    """Growing columns of the rows seen so far."""

    def __init__(self, sources_max: int) -> None:
        self.sources_max = sources_max
        self.keys: dict[SourceKey, int] = {}
        self.line, self.source, self.ns = array("q"), array("i"), array("q")

    def add(self, row: Row) -> None:
        stamp = row.stamp
        key = SourceKey(row.host, row.daemon, row.tag, stamp.clock, stamp.quantum_ns)
        place = self.keys.get(key)
        if place is None:
            place = -1
            if len(self.keys) < self.sources_max:
                place = self.keys[key] = len(self.keys)
        self.line.append(row.line)
        self.source.append(place)
        self.ns.append(stamp.ns)


def survey(file: TextFile, near_ns: int | None, sources_max: int = SOURCES_MAX) -> Survey:
    """Read a file to its end. `near_ns` (Unix) tells the year where lines have none."""
    grammar, rows, digest = Grammar(near_ns), _Rows(sources_max), hashlib.blake2b(digest_size=8)
    for lines in file.lines(digest):
        for row in grammar.feed(lines):
            rows.add(row)
    for row in grammar.finish():
        rows.add(row)
    keys = list(rows.keys)
    maps = {host: boots.maps() for host, boots in grammar.boots.items()}
    line, ns = np.array(rows.line, np.int64), np.array(rows.ns, np.int64)
    source = np.array(rows.source, np.int64)
    placed, boot = place(keys, maps, line, source, ns)
    outside = (placed != UNPLACED) & ((placed < STAMP_NS_MIN) | (placed > STAMP_NS_MAX))
    source[outside], placed[outside] = -1, UNPLACED
    known = placed[placed != UNPLACED]
    disorder = int((np.maximum.accumulate(known) - known).max()) if len(known) else 0
    return Survey(
        digest=digest.digest(),
        grammar=grammar,
        keys=keys,
        source=source,
        placed_ns=placed,
        boot=boot,
        maps=maps,
        disorder_ns=disorder,
        rows_of=np.bincount(source[source >= 0], minlength=len(keys)),
        outside=int(outside.sum()),
        hosts={key.host for key in keys if key.host is not None},
    )


def host_of(named: str | None, hosts: set[str], given: str | None, digest: bytes) -> str:
    """Whose clock a line is about. `named` by the line, `hosts` by its file, `given` by --host.

    --host counts for a file that names at most one host: clocks of several must not become one.
    """
    if len(hosts) > 1:
        if named is not None:
            return named
    elif given is None and hosts:
        return next(iter(hosts))
    return given or f"file-{digest.hex()[:8]}"


def place(
    keys: list[SourceKey], maps: dict[str | None, list[BootMap]], line: I64, source: I64, ns: I64
) -> tuple[I64, I64]:
    """Nominal TAI (UNPLACED where there is no map) and boot map of each row, from its line, source and
    stamp."""
    placed = np.full(len(ns), UNPLACED, np.int64)
    boot = np.zeros(len(ns), np.int64)
    for number, key in enumerate(keys):
        mine = np.flatnonzero(source == number)
        if key.clock == SYSTEM:
            placed[mine] = utc_to_tai(ns[mine])
        elif key.clock == BOOT:
            of_host = maps[key.host]
            at = np.searchsorted([entry.from_line for entry in of_host], line[mine], side="right") - 1
            boot[mine] = at
            for map_, entry in enumerate(of_host):
                if entry.boot_ns is not None and entry.unix_ns is not None:
                    chosen = mine[at == map_]
                    placed[chosen] = utc_to_tai(ns[chosen] + (entry.unix_ns - entry.boot_ns))
    return placed, boot
