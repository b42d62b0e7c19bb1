"""The merge: `events` in, `merged`, `late` and `deadletter` out. See docs/architecture.md for the whole way.

One task a partition holds the scopes whose key hashes there. Everything is decided after each input record, so
polls, restarts and workers do not show in the output. The append time of a record is the only clock.
"""

import heapq
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from schemas import columns as c
from schemas.batch import Batch
from schemas.codec import decode_batch
from schemas.errors import MalformedInput, UnknownSchema
from schemas.metrics import Value
from schemas.processor import Output, Record, Ref
from streams.arrays import pack_state, unpack_state
from streams.causality import state
from streams.causality.gate import NEVER
from streams.causality.held import Budget
from streams.causality.scope import Scope
from streams.causality.settings import MergeSettings
from streams.counts import Counts
from streams.windows import dead_letter


class Merge:
    """The processor."""

    name = "merge"
    inputs = ("events",)
    outputs = ("merged", "late", "deadletter")
    joins = False

    def __init__(self, settings: MergeSettings) -> None:
        self.settings = settings

    def start(self, partition: int, snapshot: bytes | None) -> "MergeTask":
        """A task for a partition: fresh, or as the snapshot left it."""
        return MergeTask(partition, self.settings, snapshot)

    def warm_up(self) -> None:
        """Compile the kernels, before the group is joined."""
        from streams.causality.warm import warm_up

        warm_up()


class MergeTask:
    """The merge of one partition."""

    def __init__(self, partition: int, settings: MergeSettings, snapshot: bytes | None) -> None:
        self.partition, self.settings = partition, settings
        self._count = Counts()
        self._scopes: dict[str, Scope] = {}
        self._next: dict[str, int] = {}
        self._now_ms = -1
        self._budget = Budget()
        self._deadlines: list[tuple[int, str]] = []  # a heap; those that are not in _planned are void
        self._planned: dict[str, int] = {}
        self._policy_version = 0
        self._loose_refs: dict[
            tuple[int, int], int
        ] = {}  # window, by (offset, first row) of the snapshot's refs
        if snapshot is not None:
            meta, arrays = unpack_state(snapshot)
            self._next = dict(meta["next"])
            self._now_ms = meta["now_ms"]
            self._policy_version = meta["policy_version"]
            self._loose_refs = {(offset, first): window for offset, first, window in meta["loose"]}
            for scope in state.load(meta["scopes"], arrays, self._new_scope):
                self._scopes[scope.name] = scope
                self._plan(scope)

    @property
    def next_offset(self) -> Mapping[str, int]:
        return self._next

    def process(self, record: Record) -> list[Output]:
        """Take the next record of `events`."""
        self._next["events"] = record.log_offset + 1
        self._now_ms = max(self._now_ms, record.append_ms)
        try:
            batch = decode_batch(record.value or b"")
            if batch.tenant != self.settings.tenant:
                raise MalformedInput(f"the batch is of tenant {batch.tenant!r}", "tenant")
            if batch.family == "control":
                out = self._control(batch, record)
            else:
                out = self._data(batch, record)
        except UnknownSchema as error:
            out = [self._dead_letter(record, "unknown_schema", str(error))]
        except MalformedInput as error:
            out = [self._dead_letter(record, "malformed", str(error))]
        out += self._look()
        while self._budget.rows > self.settings.rows_held_max:
            out += max(self._scopes.values(), key=lambda each: (each.held.rows, each.name)).shed()
        return out

    def _new_scope(self, name: str) -> Scope:
        scope = Scope(name, self.partition, self.settings, self._count, self._budget)
        scope.held.policy = self._policy_version
        return scope

    def _data(self, batch: Batch, record: Record) -> list[Output]:
        if not batch.table_len("src"):  # it says no more than that its publisher lives
            self._count("batches_in", 1, batch.family)
            if batch.scope in self._scopes:
                self._scopes[batch.scope].heard(record)
                self._scopes[batch.scope].sources.heard(batch, record.append_ms)
            return []
        scope = self._scopes.get(batch.scope) or self._new_scope(batch.scope)
        out = scope.accept(batch, record)
        self._scopes[scope.name] = scope
        self._count("events_in", batch.count)
        self._count("batches_in", 1, batch.family)
        out += scope.advance(self._now_ms)
        self._plan(scope)
        return out

    def _control(self, batch: Batch, record: Record) -> list[Output]:
        out: list[Output] = []
        numbers = batch.wide("number")
        for row, kind in enumerate(batch.column("kind").tolist()):
            text = batch.text(int(batch.column("text")[row])) or ""
            number = int(numbers[row])
            self._count(
                "control_rows", 1, c.Control(kind).name.lower() if kind < len(c.Control) else "unknown"
            )
            if kind == c.Control.OPEN:
                scope = self._scopes.setdefault(batch.scope, self._new_scope(batch.scope))
                scope.heard(record)
                scope.open(max(0, number), text)
                self._plan(scope)
            elif kind == c.Control.FLUSH:
                for name in sorted(self._scopes):
                    out += self._scopes[name].advance(self._now_ms, flush=True)
            elif kind == c.Control.POLICY:
                self._policy_version = number
                for scope in self._scopes.values():
                    scope.held.policy = number
            elif kind == c.Control.LOSS:
                self._count("losses", max(0, number), _reason(text))
        return out

    def _plan(self, scope: Scope) -> None:
        """Remember when to look at a scope again although nothing of it came."""
        ttl_ms = scope.last_ms + self.settings.scope_ttl_ms + 1
        when = ttl_ms if scope.closed else min(scope.gate.deadline_ms, ttl_ms)
        when = max(when, self._now_ms + 1)
        if when < NEVER and when < self._planned.get(scope.name, NEVER):
            self._planned[scope.name] = when
            heapq.heappush(self._deadlines, (when, scope.name))

    def _look(self) -> list[Output]:
        """Release what append time alone has made ready; drop scopes that were silent for their time to live."""
        out: list[Output] = []
        while self._deadlines and self._deadlines[0][0] <= self._now_ms:
            when, name = heapq.heappop(self._deadlines)
            if self._planned.get(name) != when:
                continue
            del self._planned[name]
            scope = self._scopes[name]
            out += scope.advance(self._now_ms)
            silent = self._now_ms - scope.last_ms > self.settings.scope_ttl_ms
            if silent and (scope.closed or not len(scope.sources)):
                del self._scopes[name]
                self._count("scopes_dropped", 1)
            else:
                self._plan(scope)
        return out

    def _dead_letter(self, record: Record, reason: str, detail: str) -> Output:
        stated = record.header("tt-count") or b""
        events = int(stated) if stated.isdigit() and len(stated) <= 18 else 0
        self._count("deadlettered", max(1, events), reason)
        return dead_letter(self.settings.tenant, record, reason, detail, events)

    def pending(self) -> bool:
        """Whether rows wait in open windows."""
        return any(len(scope.held) for scope in self._scopes.values())

    def _held(self) -> list[tuple[Ref, int | None]]:
        """Every run of rows that is held, and the window of loose ones, in order of reloading."""
        found = [
            (ref, window if part.loose else None)
            for scope in self._scopes.values()
            for window, parts in scope.held.windows()
            for part in parts
            for ref in part.refs()
        ]
        return sorted(found, key=lambda entry: (entry[0].offset, entry[0].first))

    def refs(self) -> Sequence[Ref]:
        """Rows held, to be read again after a restart."""
        return [ref for ref, _ in self._held()]

    def snapshot(self) -> bytes:
        """Carry state as of next_offset."""
        arrays: dict[str, Any] = {}
        scopes = state.dump([self._scopes[name] for name in sorted(self._scopes)], arrays)
        meta = {
            "next": self._next,
            "now_ms": self._now_ms,
            "policy_version": self._policy_version,
            "loose": [[ref.offset, ref.first, window] for ref, window in self._held() if window is not None],
            "scopes": scopes,
        }
        return pack_state(meta, arrays)

    def reload(self, record: Record, first: int, last: int) -> None:
        """Take back rows first..last of a record."""
        batch = decode_batch(record.value or b"")
        loose_in = self._loose_refs.get((record.log_offset, first))
        self._scopes[batch.scope].reload(batch, record, first, last, loose_in)

    def counters(self) -> Mapping[str, Value]:
        """What was counted since the task was made, and what it holds now."""
        scopes = self._scopes.values()
        return self._count.totals() | {
            "rows_held": sum(scope.held.rows for scope in scopes),
            "scopes": len(scopes),
            "sources": sum(len(scope.sources) for scope in scopes),
            "watermark_ns": min((scope.released_to or 0 for scope in scopes if not scope.closed), default=0),
        }


def _reason(text: str) -> str:
    """Why a producer lost events, as a metric's label: a short word, for labels must stay few."""
    try:
        reason = str(json.loads(text)["reason"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return "unstated"
    return reason if re.fullmatch(r"[a-z][a-z0-9_ -]{0,39}", reason) else "other"
