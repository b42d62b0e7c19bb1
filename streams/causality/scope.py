"""One scope's merge: rows held by window, what leaves, what came too late. When a window may leave: gate.py."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from schemas import columns as c
from schemas.batch import Batch
from schemas.codec import encode_record
from schemas.processor import Output, Record
from schemas.records import Progress
from streams.arrays import Table
from streams.causality.edges import pending_table
from streams.causality.emit import About, parts_of
from streams.causality.gate import NEVER, Gate
from streams.causality.gather import GroupNames, Strings
from streams.causality.held import Budget, Held
from streams.causality.intake import Chunk, late_records
from streams.causality.outgoing import Edges, give_up
from streams.causality.placing import check_times, place, watermarks
from streams.causality.release import Released, release
from streams.causality.samples import judge, late
from streams.causality.settings import MergeSettings
from streams.causality.sources import LEAST, Sources, new_rows
from streams.causality.tables import Tables
from streams.clock.book import ClockBook
from streams.clock.states import States
from streams.kernels.rows import raise_windows

STRINGS_MAX = 200_000  # texts kept before those no longer used are forgotten
CLOCKS_MAX = 20_000
Count = Callable[..., None]


class Scope:
    """The state of one scope. `count(name, n, *labels)` takes everything that is counted."""

    def __init__(
        self, name: str, partition: int, settings: MergeSettings, count: Count, budget: Budget
    ) -> None:
        self.name, self.partition, self.settings, self.count = name, partition, settings, count
        self.gate = Gate(settings)
        self.held = Held(budget)
        self.sources = Sources()
        self.clocks = ClockBook()
        self.states = States(settings.declared)
        self.strings = Strings()
        self.groups = GroupNames(self.strings)
        self.tables = Tables(self.sources, self.clocks, self.strings)
        self.past: Table = pending_table()
        self.released_to: int | None = None
        self.closed = False
        self.joined = False
        self.opened = False
        self.expected_ranks = self.expected_hosts = self.expected_sources = 0
        self.first_ms = -1
        self.last_ms = -1
        self.late = self.duplicates = self.gaps = self.incomplete = 0
        self.unmatched = np.zeros((len(c.EdgeKind), 2), np.int64)
        self.first_offset = self.last_offset = -1
        self._reloaded: tuple[Chunk, Any, Any] | None = None  # the record that reload() took rows of last
        self._reload_window = np.empty(0, np.int64)
        self._strings_max, self._clocks_max = STRINGS_MAX, CLOCKS_MAX

    # Input

    def heard(self, record: Record) -> None:
        """Note a record of this scope."""
        if self.first_ms < 0:
            self.first_ms = record.append_ms
        self.last_ms = max(self.last_ms, record.append_ms)
        if self.first_offset < 0:
            self.first_offset = record.offset
        self.last_offset = record.offset

    def open(self, number: int, what: str) -> None:
        """Take an announcement of how many ranks, hosts or sources to expect; the greatest counts."""
        self.opened = True
        if what == "hosts":
            self.expected_hosts = max(self.expected_hosts, number)
        elif what == "sources":
            self.expected_sources = max(self.expected_sources, number)
        else:
            self.expected_ranks = max(self.expected_ranks, number)

    def accept(self, batch: Batch, record: Record) -> list[Output]:
        """Take a batch of rows; gives what is late. Late rows count as seen.

        Raises MalformedInput, with nothing taken, for times and clocks that can't be meant.
        """
        data = batch.data
        slots = self.clocks.slots_of(batch)
        marks = watermarks(batch, slots, self.clocks)
        check_times(batch, slots, self.clocks)
        numbers = self.sources.number(batch)
        self.heard(record)
        high_water = self.sources.table["high_water"]
        skip, duplicates, missing = new_rows(high_water, numbers, data["src_first_seq"], data["src_last_seq"])
        self.duplicates += duplicates
        self.gaps += missing
        self.count("duplicates", duplicates)
        self.count("gaps", missing)
        self.sources.advance(batch, numbers, slots, marks, record.append_ms, self.settings.skew_max_ns)
        self.closed = self.closed and not self.sources.going_on(numbers)  # a live publisher came back: ADR 12
        if not batch.count:
            return []
        chunk = self._chunk(batch, record, numbers, slots)
        seq, time_ns, keep = place(chunk, skip, self.clocks)
        if self.closed:
            return self._late(batch, np.flatnonzero(keep), "closed") if keep.any() else []
        detached = self.sources.table["detached"][numbers][data["source"]]
        loose = np.flatnonzero(keep & detached)
        rows = np.flatnonzero(keep & ~detached)
        out: list[Output] = []
        if self.released_to is not None:
            placed = self.clocks.map_of(slots)[3][data["source"][rows]]
            too_late = (time_ns[rows] < self.released_to) & placed
            if too_late.any():
                out = self._late(batch, rows[too_late], "late")
                late(chunk, rows[too_late], time_ns, self.states, self.clocks, self.count)
                rows = rows[~too_late]
        self.held.hold(chunk, rows, seq, time_ns, self._windows(chunk, rows, time_ns), loose=False)
        if len(loose):
            self.count("detached_rows", len(loose), "skew")
            window = np.full(len(loose), self._open_window(time_ns[loose]), np.int64)
            self.held.hold(chunk, loose, seq, time_ns, window, loose=True)
        return out

    def reload(self, batch: Batch, record: Record, first: int, last: int, loose_in: int | None) -> None:
        """Take rows first..last back after a restart, without counting or lateness; loose ones with their window."""
        if self._reloaded is None or self._reloaded[0].read_offset != record.log_offset:
            numbers, slots = self.sources.number(batch), self.clocks.slots_of(batch)
            chunk = self._chunk(batch, record, numbers, slots)
            none = np.full(batch.table_len("src"), np.iinfo(np.int64).min, np.int64)
            seq, time_ns, _ = place(chunk, none, self.clocks)
            self._reloaded = chunk, seq, time_ns
        chunk, seq, time_ns = self._reloaded
        rows = np.arange(first, last + 1)
        if loose_in is not None:
            window = np.full(len(rows), loose_in, np.int64)
        else:
            if not len(self._reload_window):
                self._reload_window = np.full(len(self.sources), LEAST, np.int64)
            window = self._windows(chunk, rows, time_ns, self._reload_window)
        self.held.hold(chunk, rows, seq, time_ns, window, loose=loose_in is not None)

    def _chunk(self, batch: Batch, record: Record, numbers: Any, slots: Any) -> Chunk:
        return Chunk(
            batch,
            record.topic,
            record.log_offset,
            record.partition,
            record.offset,
            record.append_ms,
            numbers,
            slots,
            self.strings.numbers(batch.strings),
        )

    def _windows(self, chunk: Chunk, rows: Any, time_ns: Any, last: Any = None) -> Any:
        """Window of each row: that of its time, but none that has left, and none before an earlier row's.

        A row of an ordered source follows the row before it, so its place in the order can't be in an earlier
        window even where a clock went back. `last` is the last window by source.
        """
        window = time_ns[rows] // self.settings.window_ns
        if self.released_to is not None:
            window = np.maximum(window, self.released_to // self.settings.window_ns)
        source = chunk.source_of[chunk.batch.data["source"][rows]]
        if last is None:
            last = self.sources.table["window"]
        raise_windows(source, (self.sources.table["flags"] & c.SOURCE_ORDERED) != 0, last, window)
        return window

    def _open_window(self, time: Any) -> int:
        """The window open at this place in the log."""
        if self.released_to is not None:
            return self.released_to // self.settings.window_ns
        if self.held.first is not None:
            return self.held.first
        return int(time.min()) // self.settings.window_ns

    def _late(self, batch: Batch, rows: Any, reason: str) -> list[Output]:
        """Rows that can't be merged any more."""
        self.late += len(rows)
        self.count("late", len(rows), reason)
        return list(late_records(batch, rows, self.name, reason))

    def shed(self) -> list[Output]:
        """Too many rows are held: the source furthest ahead loses those of its last window to `late`."""
        return [
            output
            for chunk, rows in self.held.shed(self.sources)
            for output in self._late(chunk.batch, rows, "future")
        ]

    # Release

    def advance(self, now_ms: int, flush: bool = False) -> Iterator[Output]:
        """Release every window that may leave at this append time; with `flush` all of them."""
        if self.closed or not len(self.sources):
            return
        if not self.joined and not self._join(now_ms, flush):
            return
        length = self.settings.window_ns
        next_end = None if self.released_to is None else self.released_to + length
        limit, past = self.gate.limit(self.sources, self.clocks, now_ms, next_end, flush)
        while (window := self.held.first) is not None and (window + 1) * length <= limit:
            yield from self._release(window, past)
        if 0 < limit < NEVER:
            end = limit // length * length
            if self.released_to is None or end > self.released_to:
                if self.released_to is not None:
                    yield self._progress(end)
                self.released_to = end
        if self._finished(now_ms) and not self.held:
            yield from self._close()

    def _join(self, now_ms: int, flush: bool) -> bool:
        """Whether the first window need not wait for members any more."""
        met = self.opened and self._missing() == 0
        grace = self.first_ms + self.settings.join_grace_ms
        if not met and not flush and now_ms < grace:
            self.gate.deadline_ms = grace
            return False
        if not met:
            self.count("released_past", self._missing(), "join")
        self.joined = True
        return True

    def _finished(self, now_ms: int) -> bool:
        """Whether every source is final, or the scope has been silent for its time to live."""
        return bool(self.sources.table["final"].all()) or now_ms - self.last_ms > self.settings.scope_ttl_ms

    def _missing(self) -> int:
        """Members announced and not listed yet."""
        ranks, hosts = self.sources.members()
        wanted = (self.expected_ranks - ranks, self.expected_hosts - hosts)
        return sum(max(0, number) for number in (*wanted, self.expected_sources - len(self.sources)))

    def _release(self, window: int, past: dict[str, int]) -> Iterator[Output]:
        length = self.settings.window_ns
        start, end = window * length, (window + 1) * length
        parts, version = self.held.take(window)
        ahead = self.held.after(window, window + self._lookahead())
        apply = judge(parts, self.states, self.clocks, start, end, self.count)
        done = release(
            parts, ahead, self.past, start, end, self.sources, self.clocks, self.groups, self.settings, apply
        )  # fmt: skip
        stays = np.empty(len(done.leaves), np.bool_)
        stays[done.window.gathered] = ~done.leaves
        for k, part in enumerate(parts):
            mine = stays[done.window.part_start[k] : done.window.part_start[k + 1]]
            if mine.any():
                self.held.put(window + 1, part.only(mine))
        left = int(done.leaves.sum())
        self.held.count(-left)
        self.released_to = end
        for reason, number in past.items():
            self.count("released_past", number, reason)
        self._told(done.edges)
        self.count("windows", 1)
        self.count("events_out", left)
        yield from self._records(done, done.edges, start, end, sum(past.values()), version)
        self._tidy()

    def _lookahead(self) -> int:
        """Windows ahead whose rows can still be causes: twice the greatest bound, at least one window."""
        return 1 + 2 * self.settings.bound_cap_ns // self.settings.window_ns

    def _records(
        self, done: Released | None, edges: Edges, start: int, end: int, past: int, policy: int
    ) -> Iterator[Output]:
        about = About(
            self.settings.tenant, self.name, start, end, self.late, past, policy, self.partition,
            self.first_offset, self.last_offset,
        )  # fmt: skip
        key = self.name.encode()
        for payload, rows in parts_of(
            done,
            edges,
            about,
            self.sources,
            self.clocks,
            self.strings,
            self.tables,
            self.settings.part_bytes_max,
        ):
            headers = (("tt-scope", key), ("tt-family", b"merged"), ("tt-count", str(rows).encode()))
            yield Output("merged", key, payload, headers)
        self.late = 0
        self.first_offset = -1

    def _progress(self, end: int) -> Output:
        record = Progress(
            tenant=self.settings.tenant,
            scope=self.name,
            released_to_ns=end,
            closed=self.closed,
            first_offset=self.first_offset,
            last_offset=self.last_offset,
            duplicates=self.duplicates,
            gaps=self.gaps,
            unmatched=[int(n) for n in self.unmatched.ravel()],
            incomplete=self.incomplete,
        )
        self.duplicates = self.gaps = self.incomplete = 0
        self.unmatched[:] = 0
        key = self.name.encode()
        return Output("merged", key, encode_record(record), (("tt-scope", key), ("tt-family", b"progress")))

    def _close(self) -> Iterator[Output]:
        """Give up what is pending, tell it, and end the scope."""
        length = self.settings.window_ns
        start = self.released_to if self.released_to is not None else 0
        edges = give_up(self.past, self.sources, self.clocks, self.settings)
        self._told(edges)
        end = start
        if len(edges):
            end = start + length
            yield from self._records(None, edges, start, end, 0, self.held.policy)
        self.closed = True
        self.released_to = end
        yield self._progress(end)
        self.count("scopes_closed", 1)

    def _told(self, edges: Edges) -> None:
        self.unmatched += edges.unmatched
        self.incomplete += edges.incomplete
        edges.count(self.count)

    def _tidy(self) -> None:
        """Keep internal tables from growing for ever. Each look costs as much as they hold, so it has to pay."""
        if len(self.strings.texts) > self._strings_max:
            self.strings.compact([*(chunk.strings for chunk in self.held.chunks()), self.past["group"]])
            self._strings_max = max(STRINGS_MAX, 2 * len(self.strings.texts))
        if len(self.clocks) > self._clocks_max:
            used = [
                self.sources.table["clock"],
                self.past["clock"],
                *(ch.clock_of for ch in self.held.chunks()),
            ]
            new = self.clocks.compact(np.concatenate(used).astype(np.int64))
            for array in used:
                array[:] = np.where(array < 0, -1, new[array])
            self.tables.forget()
            self._clocks_max = max(CLOCKS_MAX, 2 * len(self.clocks))
