"""One scope's merge: rows held by window, when a window may leave, what leaves, what came too late.

Release, from the log alone (docs/architecture.md, "Windows and release"): window [s, e) leaves when for every
open source its mapped low watermark less its bound has reached e + B, B being the greatest bound among them.
Without B an effect whose clock is slow would leave before its cause. Sources that are final, idle (their
publisher silent for `idle_after` of append time), detached or placed by append time hold nothing back.
"""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from schemas import columns as c
from schemas.batch import Batch, select
from schemas.codec import encode_batch, encode_record
from schemas.processor import Output, Record
from schemas.records import Progress
from schemas.time import append_to_tai
from streams.arrays import Table
from streams.causality.edges import pending_table
from streams.causality.emit import About, parts_of
from streams.causality.gather import GroupNames, Strings
from streams.causality.intake import Chunk, Part, canonical, split
from streams.causality.release import Edges, give_up, release
from streams.causality.settings import MergeSettings
from streams.causality.sources import LEAST, Sources, new_rows
from streams.clock.book import UNKNOWN, ClockBook
from streams.kernels.rows import take_rows

NEVER = np.iinfo(np.int64).max
STRINGS_MAX = 200_000  # texts kept before those no longer used are forgotten
CLOCKS_MAX = 20_000
Count = Callable[..., None]


class Scope:
    """The state of one scope. `count(name, n, *labels)` takes everything that is counted."""

    def __init__(self, name: str, partition: int, settings: MergeSettings, count: Count) -> None:
        self.name, self.partition, self.settings, self.count = name, partition, settings, count
        self.sources = Sources()
        self.clocks = ClockBook()
        self.strings = Strings()
        self.groups = GroupNames(self.strings)
        self.past: Table = pending_table()
        self.buckets: dict[int, list[Part]] = {}
        self.held = 0
        self.released_to: int | None = None
        self.closed = False
        self.joined = False
        self.opened = False
        self.expected_ranks = self.expected_hosts = self.expected_sources = 0
        self.first_ms = -1
        self.last_ms = -1
        self.deadline_ms = NEVER  # append time at which to look again without new input
        self.policy_version = 0
        self.late = self.duplicates = self.gaps = self.incomplete = 0
        self.unmatched = np.zeros((len(c.EdgeKind), 2), np.int64)
        self.first_offset = self.last_offset = -1
        self._blocker = -1  # the source that held the watermark back last time
        self._blocked_at = LEAST
        self._reloaded: Chunk | None = None  # the record that reload() took rows of last

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
        """Take a batch of rows; gives what is late. Late rows count as seen."""
        numbers = self.sources.number(batch)
        slots = self.clocks.slots_of(batch)
        data = batch.data
        skip, duplicates, missing, water = new_rows(
            self.sources.table["high_water"], numbers, data["src_first_seq"], data["src_last_seq"]
        )
        self.sources.table["high_water"][:] = water
        self.duplicates += duplicates
        self.gaps += missing
        self.count("duplicates", duplicates)
        self.count("gaps", missing)
        self.sources.advance(batch, numbers, slots, self.clocks, record.append_ms)
        if (data["src_flags"] & c.SOURCE_LIVE).any():
            self.sources.detach(self.settings.skew_max_ns)
        if not batch.count:
            return []
        chunk = self._chunk(batch, record, numbers, slots)
        seq, time_ns, keep = self._place(chunk, skip)
        if self.closed:
            return self._late(batch, np.flatnonzero(keep), "closed") if keep.any() else []
        detached = self.sources.table["detached"][numbers][data["source"]]
        loose = np.flatnonzero(keep & detached)
        rows = np.flatnonzero(keep & ~detached)
        out: list[Output] = []
        if self.released_to is not None:
            unplaced = self.sources.placed_by_append(self.clocks)[numbers][data["source"]]
            too_late = (time_ns[rows] < self.released_to) & ~unplaced[rows]
            if too_late.any():
                out = self._late(batch, rows[too_late], "late")
                rows = rows[~too_late]
        self._hold(chunk, rows, seq, time_ns, loose=False)
        if len(loose):
            self.count("detached_rows", len(loose), "skew")
            self._hold(chunk, loose, seq, time_ns, loose=True)
        if self.held > self.settings.rows_held_max:
            out += self._shed()
        return out

    def reload(self, batch: Batch, record: Record, first: int, last: int, loose: bool) -> None:
        """Take rows first..last back after a restart, without counting or lateness."""
        known = self._reloaded
        if known is None or known.read_offset != record.log_offset:
            numbers, slots = self.sources.number(batch), self.clocks.slots_of(batch)
            known = self._reloaded = self._chunk(batch, record, numbers, slots)
        none = np.full(batch.table_len("src"), np.iinfo(np.int64).min, np.int64)
        seq, time_ns, _ = self._place(known, none)
        self._hold(known, np.arange(first, last + 1), seq, time_ns, loose)

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

    def _place(self, chunk: Chunk, skip: Any) -> tuple[Any, Any, Any]:
        """(sequence number, TAI time, whether new) of every row of a batch."""
        batch, slots = chunk.batch, chunk.clock_of
        data, clocks = batch.data, self.clocks
        safe = np.where(slots < 0, 0, slots)
        lacking = slots < 0 if len(clocks) else np.ones(len(slots), np.bool_)
        if len(clocks):
            ref, tai = clocks["ref_ns"][safe], clocks["ref_tai_ns"][safe]
            rate = clocks["rate_ppb"][safe] * 1e-9
            lacking = lacking | ~clocks["placed"][safe]
        else:
            ref = tai = np.zeros(len(slots), np.int64)
            rate = np.zeros(len(slots), np.float64)
        seq, time_ns = np.empty(batch.count, np.int64), np.empty(batch.count, np.int64)
        keep = np.empty(batch.count, np.bool_)
        take_rows(
            data["source"], data["raw_dt"], data["src_first_seq"], skip, data["src_base_ns"],
            ref, tai, rate, seq, time_ns, keep,
        )  # fmt: skip
        if batch.table_len("esc") and "raw_dt" in batch.strings:
            delta = batch.raw_ns() - ref[data["source"]]
            time_ns = tai[data["source"]] + delta + np.rint(delta * rate[data["source"]]).astype(np.int64)
        if lacking.any():
            time_ns[lacking[data["source"]]] = append_to_tai(chunk.append_ms)
        return seq, time_ns, keep

    def _hold(self, chunk: Chunk, rows: Any, seq: Any, time_ns: Any, loose: bool) -> None:
        """Put rows into the windows they fall in; rows below the released end go to the window that is open."""
        if not len(rows):
            return
        length = self.settings.window_ns
        time = time_ns[rows]
        window = time // length
        if loose:
            window = np.full(len(rows), self._open_window(time), np.int64)
        elif self.released_to is not None:
            window = np.maximum(window, self.released_to // length)
        source = chunk.source_of[chunk.batch.data["source"][rows]]
        for place, part in split(chunk, rows.astype(np.int32), source, seq[rows], time, window, loose):
            self.buckets.setdefault(place, []).append(part)
        self.held += len(rows)

    def _open_window(self, time: Any) -> int:
        """The window open at this place in the log."""
        if self.released_to is not None:
            return self.released_to // self.settings.window_ns
        if self.buckets:
            return min(self.buckets)
        return int(time.min()) // self.settings.window_ns

    def _late(self, batch: Batch, rows: Any, reason: str) -> list[Output]:
        """Rows that can't be merged any more, as records of the topic `late`."""
        self.late += len(rows)
        self.count("late", len(rows), reason)
        part = select(batch, rows)
        headers = (
            ("tt-family", batch.family.encode()),
            ("tt-count", str(part.count).encode()),
            ("tt-scope", self.name.encode()),
            ("tt-reason", reason.encode()),
        )
        return [Output("late", self.name.encode(), encode_batch(part), headers)]

    def _shed(self) -> list[Output]:
        """Too many rows held: the source furthest ahead loses those of its last window to `late`."""
        out: list[Output] = []
        while self.held > self.settings.rows_held_max:
            last = max(self.buckets)
            parts = canonical(self.buckets.pop(last))
            newest = max(
                (int(part.time_ns.max()), self.sources.names[int(part.source[part.time_ns.argmax()])], k)
                for k, part in enumerate(parts)
            )
            furthest = int(parts[newest[2]].source[parts[newest[2]].time_ns.argmax()])
            kept = []
            for part in parts:
                mine = part.source == furthest
                if mine.any():
                    out += self._late(part.chunk.batch, np.sort(part.rows[mine]).astype(np.int64), "future")
                    self.held -= int(mine.sum())
                if not mine.all():
                    kept.append(part.only(~mine))
            if kept:
                self.buckets[last] = kept
        return out

    # Release

    def advance(self, now_ms: int, flush: bool = False) -> Iterator[Output]:
        """Release every window that may leave at this append time; with `flush` all of them."""
        if self.closed or not len(self.sources):
            return
        if not self.joined and not self._join(now_ms, flush):
            return
        limit, past = self._limit(now_ms, flush)
        length = self.settings.window_ns
        while self.buckets:
            window = min(self.buckets)
            if (window + 1) * length > limit:
                break
            yield from self._release(window, past)
        if 0 < limit < NEVER:
            end = limit // length * length
            if self.released_to is None or end > self.released_to:
                if self.released_to is not None:
                    yield self._progress(end)
                self.released_to = end
        if self._finished(now_ms) and not self.buckets:
            yield from self._close()

    def _join(self, now_ms: int, flush: bool) -> bool:
        """Whether the first window need not wait for members any more."""
        met = self.opened and self._everybody()
        grace = self.first_ms + self.settings.join_grace_ms
        if not met and not flush and now_ms < grace:
            self.deadline_ms = grace
            return False
        if not met:
            self.count("released_past", self._missing(), "join")
        self.joined = True
        return True

    def _limit(self, now_ms: int, flush: bool) -> tuple[int, dict[str, int]]:
        """(time up to which windows may leave, sources not waited for by reason)."""
        table = self.sources.table
        settings = self.settings
        if (
            not flush
            and 0 <= self._blocker < len(table)
            and table["watermark_ns"][self._blocker] == self._blocked_at
            and not table["final"][self._blocker]
            and now_ms < self.deadline_ms
        ):
            return (self.released_to if self.released_to is not None else LEAST), {}
        holds = ~table["final"] & ~self.sources.placed_by_append(self.clocks)
        heard = np.array(self.sources.heard_ms, np.int64)[table["publisher"]]
        idle = holds & (heard + settings.idle_after_ms < now_ms)
        detached = holds & table["detached"] & ~idle
        waits = holds & ~idle & ~detached
        past = {"idle": int(idle.sum()), "detached": int(detached.sum())}
        self._blocker = -1
        if flush:
            past["flush"] = int(waits.sum())
            return NEVER, past
        self.deadline_ms = int(heard[waits].min()) + settings.idle_after_ms + 1 if waits.any() else NEVER
        if not waits.any():
            return NEVER, past
        bound = np.zeros(len(table), np.int64)
        if len(self.clocks):
            slot = table["clock"]
            known = self.clocks["bound_ns"][np.where(slot < 0, 0, slot)]
            bound = np.where((slot < 0) | (known == UNKNOWN), 0, np.minimum(known, settings.bound_cap_ns))
        greatest = int(bound[waits].max())
        sure = np.where(waits, np.maximum(table["watermark_ns"], LEAST + 10**15) - bound, NEVER)
        self._blocker = int(sure.argmin())
        self._blocked_at = int(table["watermark_ns"][self._blocker])
        return int(sure[self._blocker]) - greatest, past

    def _finished(self, now_ms: int) -> bool:
        """Whether every source is final, or the scope has been silent for its time to live."""
        if self.sources.table["final"].all() and self._everybody():
            return True
        return now_ms - self.last_ms > self.settings.scope_ttl_ms

    def _everybody(self) -> bool:
        return self._missing() == 0

    def _missing(self) -> int:
        """Members announced and not listed yet."""
        ranks, hosts = self.sources.members()
        wanted = (self.expected_ranks - ranks, self.expected_hosts - hosts)
        return sum(max(0, number) for number in (*wanted, self.expected_sources - len(self.sources)))

    def _release(self, window: int, past: dict[str, int]) -> Iterator[Output]:
        length = self.settings.window_ns
        start, end = window * length, (window + 1) * length
        parts = canonical(self.buckets.pop(window))
        ahead = [
            part
            for later in sorted(self.buckets)
            if later <= window + self._lookahead()
            for part in canonical(self.buckets[later])
            if len(part.endpoints)
        ]
        done = release(
            parts, ahead, self.past, start, end, self.sources, self.clocks, self.groups, self.settings
        )
        stays = np.empty(len(done.leaves), np.bool_)
        stays[done.window.gathered] = ~done.leaves
        for k, part in enumerate(parts):
            mine = stays[done.window.part_start[k] : done.window.part_start[k + 1]]
            if mine.any():
                self.buckets.setdefault(window + 1, []).append(part.only(mine))
        left = int(done.leaves.sum())
        self.held -= left
        self.released_to = end
        for reason, number in past.items():
            self.count("released_past", number, reason)
        self._tell(done.edges)
        self.count("windows", 1)
        self.count("events_out", left)
        yield from self._records(done, done.edges, done.ends, start, end, sum(past.values()))
        self._tidy()

    def _lookahead(self) -> int:
        """Windows ahead whose rows can still be causes: twice the greatest bound, at least one window."""
        return 1 + 2 * self.settings.bound_cap_ns // self.settings.window_ns

    def _records(
        self, done: Any, edges: Edges, ends: dict[str, Any], start: int, end: int, past: int
    ) -> Iterator[Output]:
        about = About(
            self.settings.tenant, self.name, start, end, self.late, past, self.policy_version, self.partition,
            self.first_offset, self.last_offset,
        )  # fmt: skip
        key = self.name.encode()
        for payload in parts_of(
            done, edges, ends, about, self.sources, self.clocks, self.strings, self.settings.part_bytes_max
        ):
            yield Output("merged", key, payload, (("tt-scope", key), ("tt-family", b"merged")))
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
        edges, ends = give_up(self.past, self.sources, self.clocks, self.settings)
        self._tell(edges)
        end = start
        if len(edges):
            end = start + length
            yield from self._records(None, edges, ends, start, end, 0)
        self.closed = True
        self.released_to = end
        yield self._progress(end)
        self.count("scopes_closed", 1)

    def _tell(self, edges: Edges) -> None:
        self.unmatched += edges.unmatched
        self.incomplete += edges.incomplete
        self.count("edges_unrepaired", edges.unrepaired)
        self.count("contradictions", edges.contradictions)
        self.count("collectives_incomplete", edges.incomplete)
        for kind in c.EdgeKind:
            name = kind.name.lower()
            self.count("inversions_raw", int(edges.inversions_raw[kind]), name)
            self.count("inversions_after", int(edges.inversions_after[kind]), name)
            for verdict in c.Verdict:
                self.count("edges", int(edges.verdicts[kind, verdict]), name, verdict.name.lower())
            for side, role in enumerate(("cause", "effect")):
                self.count("unmatched", int(edges.unmatched[kind, side]), name, role)

    def _tidy(self) -> None:
        """Keep internal tables from growing for ever."""
        if len(self.strings.texts) > STRINGS_MAX:
            chunks = {id(p.chunk): p.chunk for parts in self.buckets.values() for p in parts}
            self.strings.compact([*(chunk.strings for chunk in chunks.values()), self.past["group"]])
        if len(self.clocks) > CLOCKS_MAX:
            chunks = {id(p.chunk): p.chunk for parts in self.buckets.values() for p in parts}
            used = [self.sources.table["clock"], self.past["clock"], *(ch.clock_of for ch in chunks.values())]
            new = self.clocks.compact(np.concatenate(used).astype(np.int64))
            for array in used:
                array[:] = np.where(array < 0, -1, new[array])
