"""What every stage that reads `merged` shares: parts joined to windows, scopes, dead letters, snapshots.

A window comes in parts. Those that wait for the rest are held by reference; a scope's state lives until the
scope is closed. A stage gives a `WindowScope` that takes whole windows and gives outputs.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from schemas.codec import decode_merged, encode_record
from schemas.errors import MalformedInput, UnknownSchema
from schemas.merged import Merged
from schemas.metrics import Value
from schemas.processor import Output, Record, Ref
from schemas.records import PAYLOAD_BYTES_MAX, DeadLetter, Progress
from streams.arrays import pack_state, unpack_state
from streams.counts import Counts


class WindowScope(Protocol):
    """The state of one scope in a stage."""

    def window(self, parts: Sequence[Merged], record: Record) -> list[Output]:
        """Take a whole window; `record` is the one that held its last part."""
        ...

    def progress(self, progress: Progress, record: Record) -> list[Output]:
        """Take a progress record of the scope; if it says closed, this is the last call."""
        ...

    def dump(self) -> tuple[Any, dict[str, Any]]:
        """State for a snapshot: JSON part and arrays."""
        ...

    def load(self, meta: Any, arrays: dict[str, Any]) -> None:
        """From `dump`."""
        ...


class WindowTask:
    """A task over one partition of `merged`."""

    def __init__(
        self, stage: str, tenant: str, make: Callable[[str, Counts], WindowScope], snapshot: bytes | None
    ) -> None:
        """`stage`: who could not read, in dead letters."""
        self._stage, self._tenant, self._make = stage, tenant, make
        self._count = Counts()
        self._scopes: dict[str, WindowScope] = {}
        self._parts: dict[
            str, list[tuple[int, Merged]]
        ] = {}  # of windows that are not whole, with log offsets
        self._next: dict[str, int] = {}
        self._released_ns = 0  # end of the last window taken
        if snapshot is not None:
            self._load(snapshot)

    @property
    def next_offset(self) -> Mapping[str, int]:
        return self._next

    def process(self, record: Record) -> list[Output]:
        """Take the next record of `merged`."""
        self._next[record.topic] = record.log_offset + 1
        try:
            part = decode_merged(record.value or b"")
        except UnknownSchema as error:
            return [self._refuse(record, "unknown_schema", str(error))]
        except MalformedInput as error:
            return [self._refuse(record, "malformed", str(error))]
        if part.tenant != self._tenant:
            return [self._refuse(record, "malformed", f"the record is of tenant {part.tenant!r}")]
        if not isinstance(part, Merged):
            scope = self._scopes.get(part.scope)
            out = scope.progress(part, record) if scope is not None else []
            if part.closed:
                self._scopes.pop(part.scope, None)
            return out
        self._count("events_in", len(part))
        self._count("batches_in", 1, "merged")
        held = self._parts.setdefault(part.scope, [])
        if held and held[0][1].window_end_ns != part.window_end_ns:
            # A later part of that window could not be read: what came of it is given up, not joined to another.
            self._count("parts_lost", len(held))
            held.clear()
        held.append((record.log_offset, part))
        if int(part.header["part"]) + 1 < int(part.header["parts"]):
            return []
        del self._parts[part.scope]
        self._count("windows", 1)
        self._released_ns = part.window_end_ns
        return self._scope(part.scope).window([kept for _, kept in held], record)

    def _refuse(self, record: Record, reason: str, detail: str) -> Output:
        # Other stages read the record too. Its events are lost to the lake, so the lake counts them, once.
        self._count("unreadable", 1, reason)
        return dead_letter(self._tenant, record, reason, f"{self._stage}: {detail}", events=0)

    def _scope(self, name: str) -> WindowScope:
        scope = self._scopes.get(name)
        if scope is None:
            scope = self._scopes[name] = self._make(name, self._count)
        return scope

    def pending(self) -> bool:
        """Nothing here waits for time to pass."""
        return False

    def refs(self) -> Sequence[Ref]:
        """Parts of windows that are not whole yet."""
        held = [
            Ref("merged", offset, 0, max(0, len(part) - 1))
            for parts in self._parts.values()
            for offset, part in parts
        ]
        return sorted(held, key=lambda ref: ref.offset)

    def reload(self, record: Record, first: int, last: int) -> None:
        """Take back a part."""
        part = decode_merged(record.value or b"")
        assert isinstance(part, Merged)
        self._parts.setdefault(part.scope, []).append((record.log_offset, part))

    def snapshot(self) -> bytes:
        """Carry state as of next_offset."""
        arrays: dict[str, Any] = {}
        scopes = []
        for number, name in enumerate(sorted(self._scopes)):
            meta, found = self._scopes[name].dump()
            arrays |= {f"{number}\0{key}": array for key, array in found.items()}
            scopes.append([name, meta])
        return pack_state({"next": self._next, "released": self._released_ns, "scopes": scopes}, arrays)

    def _load(self, snapshot: bytes) -> None:
        meta, arrays = unpack_state(snapshot)
        self._next = dict(meta["next"])
        self._released_ns = meta["released"]
        for number, (name, state) in enumerate(meta["scopes"]):
            prefix = f"{number}\0"
            mine = {key[len(prefix) :]: a for key, a in arrays.items() if key.startswith(prefix)}
            self._scope(name).load(state, mine)

    def counters(self) -> Mapping[str, Value]:
        """What was counted since the task was made, and what it holds now."""
        held = sum(len(part) for parts in self._parts.values() for _, part in parts)
        return self._count.totals() | {
            "rows_held": held,
            "scopes": len(self._scopes),
            "watermark_ns": self._released_ns,
        }


def dead_letter(tenant: str, record: Record, reason: str, detail: str, events: int) -> Output:
    """An input record that could not be used, for the topic `deadletter`."""
    letter = DeadLetter(
        tenant=tenant,
        reason=reason,
        detail=detail,
        topic=record.topic,
        partition=record.partition,
        offset=record.offset,
        append_ms=record.append_ms,
        events=events,
        payload=(record.value or b"")[:PAYLOAD_BYTES_MAX],
    )
    headers = (("tt-family", b"deadletter"), ("tt-count", str(events).encode()))
    return Output("deadletter", record.key, encode_record(letter), headers)
