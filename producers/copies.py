"""Copies of a host's clock samples in the other scopes that need them.

A clock is judged scope by scope, so each scope whose events it stamps has to see its samples. A copy is thinned:
of each source, clock and form of row one a second by their own stamps, and every row that says something new
(a state, an event, another servo state or parent). A copied source is a source of its own in its scope: with its
own numbers and a new incarnation at each start, named `<source>@<scope it comes from>`, so that copies by several
publishers stay apart. It carries the promises of its original, which hold for a part of the rows too.

Only sources that promise something are copied, from their first promise on: what a followed log held before is
long past in a live scope, and would be late there.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from producers.cutting import compact, tables_only
from schemas import columns as c
from schemas.batch import I64, Batch, select
from schemas.draft import control

PERIOD_NS: Final = 1_000_000_000
LOOK_SECONDS: Final = 1.0
SCOPES_MAX: Final = 64
FAMILY: Final = "clock"
_NEWS: Final = (c.ClockKindOfRow.STATE, c.ClockKindOfRow.EVENT)
Origin = tuple[str, int]  # a source that is copied, and its incarnation
Key = tuple[Origin, str | None, str | None]  # source, clock that the row is about, form of the row
Said = tuple[int, int, str | None]  # stamp, servo state, parent


@dataclass
class _Copied:
    """A source as one scope knows it."""

    incarnation: int
    next_seq: int = 0


class _Scope:
    """What one scope has been told."""

    def __init__(self) -> None:
        self.sources: dict[Origin, _Copied] = {}
        self.last: Batch | None = None


class Copies:
    """Gives the copies of one publisher's batches. `events` counts the rows copied.

    `scopes` says which want them now; it is asked once a second. `incarnation` gives a new one at each call.
    """

    def __init__(self, scopes: Callable[[], Sequence[str]], incarnation: Callable[[], int]) -> None:
        self._wanted, self._new = scopes, incarnation
        self._scopes: dict[str, _Scope] = {}
        self._looked_at: float | None = None
        self._floor: dict[Origin, int] = {}  # the first promise of each source
        self._said: dict[Key, Said] = {}
        self.events = 0

    def take(self, batch: Batch, now: float) -> Iterator[Batch]:
        """The copies of a batch that was sent at `now` (seconds that never go back)."""
        if batch.family != FAMILY:
            return
        if self._looked_at is None or now - self._looked_at >= LOOK_SECONDS:
            self._looked_at = now
            yield from self._look(batch)
        entries = self._promising(batch)
        rows = self._chosen(batch, entries)
        if len(entries):
            for name, scope in self._scopes.items():
                scope.last = self._copy(batch, rows, entries, name, scope)
                self.events += scope.last.count
                yield scope.last
        self._forget(batch, entries)

    def _look(self, batch: Batch) -> Iterator[Batch]:
        """Begin with new scopes, end in those that nobody wants any more."""
        wanted = sorted({name for name in self._wanted() if name != batch.scope})[:SCOPES_MAX]
        for name in [name for name in self._scopes if name not in wanted]:
            last = self._scopes.pop(name).last
            if last is not None:
                yield tables_only(last, final=True)
        for name in wanted:
            if name not in self._scopes:
                self._scopes[name] = _Scope()
                rows = [(c.Control.OPEN, 1, "hosts")]
                yield control(batch.tenant, name, _publisher(batch), rows)

    def _promising(self, batch: Batch) -> I64:
        """Entries of the source table with a promise, now or before."""
        kept = []
        for place in range(batch.table_len("src")):
            source = _source(batch, place)
            mark = int(batch.data["src_low_watermark_ns"][place])
            if mark != c.NULL_I64:
                self._floor.setdefault(source, mark)
            if source in self._floor:
                kept.append(place)
        return np.array(kept, np.int64)

    def _forget(self, batch: Batch, entries: I64) -> None:
        """Sources that have ended."""
        ended = {_source(batch, place) for place in entries.tolist() if _final(batch, place)}
        if not ended:
            return
        self._said = {key: said for key, said in self._said.items() if key[0] not in ended}
        for source in ended:
            del self._floor[source]
            for scope in self._scopes.values():
                scope.sources.pop(source, None)

    def _chosen(self, batch: Batch, entries: I64) -> I64:
        """The rows to copy, ascending."""
        if not batch.count or not len(entries):
            return np.empty(0, np.int64)
        raw, at, kind = batch.raw_ns(), batch.column("source"), batch.wide("kind")
        entity, form, parent = (batch.column(name) for name in ("entity", "name", "parent"))
        servo = batch.wide("servo")
        chosen = []
        for row in np.flatnonzero(np.isin(at, entries)).tolist():
            source = _source(batch, int(at[row]))
            stamp = int(raw[row])
            if stamp < self._floor.get(source, stamp):
                continue
            key = (source, batch.text(int(entity[row])), batch.text(int(form[row])))
            known = self._said.get(key)
            said = (stamp, int(servo[row]), batch.text(int(parent[row])))
            if (
                known is None
                or int(kind[row]) in _NEWS
                or said[1:] != known[1:]
                or not 0 <= stamp - known[0] < PERIOD_NS
            ):
                self._said[key] = said
                chosen.append(row)
        return np.array(chosen, np.int64)

    def _copy(self, batch: Batch, rows: I64, entries: I64, name: str, scope: _Scope) -> Batch:
        strings = list(batch.strings)
        data = {column.name: batch.data[column.name] for column in c.CLOCKS if column.name in batch.data}
        counts = np.zeros(len(entries), np.int64)
        if len(rows):
            data |= select(batch, rows).data
            place = np.zeros(batch.table_len("src"), np.int64)
            place[entries] = np.arange(len(entries))
            mine = place[batch.column("source")[rows]]
            data["source"] = mine.astype("<u2")
            counts = np.bincount(mine, minlength=len(entries))
        for column in c.SOURCES:
            data[column.name] = batch.data[column.name][entries]  # a copy: fancy indexing
        for at, (entry, count) in enumerate(zip(entries.tolist(), counts.tolist(), strict=True)):
            origin = _source(batch, entry)
            copied = scope.sources.get(origin)
            if copied is None:
                copied = scope.sources[origin] = _Copied(self._new())
            data["src_name"][at] = len(strings)
            data["src_incarnation"][at] = copied.incarnation
            data["src_first_seq"][at] = copied.next_seq
            copied.next_seq += count
            data["src_last_seq"][at] = copied.next_seq - 1
            strings.append(f"{origin[0]}@{batch.scope}")
        made = replace(
            batch, scope=name, publisher=_publisher(batch), count=len(rows), strings=tuple(strings), data=data
        )
        return compact(made)


def _publisher(batch: Batch) -> str:
    return f"{batch.publisher}@{batch.scope}"


def _final(batch: Batch, place: int) -> bool:
    return bool(batch.data["src_flags"][place] & c.SOURCE_FINAL)


def _source(batch: Batch, place: int) -> Origin:
    """Name and incarnation of an entry of the source table."""
    return batch.strings[int(batch.data["src_name"][place])], int(batch.data["src_incarnation"][place])
