"""The diagnosis stage: `merged` in, `findings` out. Rules see whole windows, never single events.

A window comes in parts; those that wait for the rest are held by reference. A scope's state lives until the
scope is closed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from schemas.codec import decode_merged, encode_record
from schemas.errors import MalformedInput, UnknownSchema
from schemas.merged import Merged
from schemas.processor import Output, Record, Ref
from schemas.records import PAYLOAD_BYTES_MAX, DeadLetter
from streams.arrays import pack_state, unpack_state
from streams.diagnosis.claims import Ledger
from streams.diagnosis.clocks import Clocks
from streams.diagnosis.stragglers import Stragglers
from streams.diagnosis.window import Directory, collectives, window_edges


@dataclass(frozen=True)
class DiagnosisSettings:
    """Settings of the stage. `hold_windows`: windows without a fault's evidence before it counts as ended."""

    tenant: str = "default"
    hold_windows: int = 100


class Diagnosis:
    """The processor."""

    name = "diagnosis"
    inputs = ("merged",)
    outputs = ("findings", "deadletter")
    joins = False

    def __init__(self, settings: DiagnosisSettings) -> None:
        self.settings = settings

    def start(self, partition: int, snapshot: bytes | None) -> "DiagnosisTask":
        """A task for a partition: fresh, or as the snapshot left it."""
        return DiagnosisTask(partition, self.settings, snapshot)


class _Scope:
    def __init__(self, settings: DiagnosisSettings) -> None:
        self.directory = Directory()
        self.stragglers = Stragglers()
        self.clocks = Clocks()
        self.ledger = Ledger(settings.hold_windows)
        self.parts: list[tuple[int, Merged]] = []  # of the window that is not whole yet, with their log offsets


class DiagnosisTask:
    """The diagnosis of one partition."""

    def __init__(self, partition: int, settings: DiagnosisSettings, snapshot: bytes | None) -> None:
        self.partition, self.settings = partition, settings
        self._scopes: dict[str, _Scope] = {}
        self._next: dict[str, int] = {}
        self._counts: dict[str, dict[tuple[str, ...], int]] = {}
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
        except (MalformedInput, UnknownSchema) as error:
            return [self._dead_letter(record, str(error))]
        if not isinstance(part, Merged):
            if part.closed:
                self._scopes.pop(part.scope, None)
            return []
        self._count("rows_in", len(part))
        scope = self._scopes.setdefault(part.scope, _Scope(self.settings))
        scope.parts.append((record.log_offset, part))
        if int(part.header["part"]) + 1 < int(part.header["parts"]):
            return []
        parts = [held for _, held in scope.parts]
        scope.parts.clear()
        return self._window(scope, parts, record)

    def _window(self, scope: _Scope, parts: Sequence[Merged], record: Record) -> list[Output]:
        self._count("windows_in", 1)
        edges = window_edges(parts, scope.directory)
        found = collectives(edges)
        claims = scope.stragglers.update(edges, found, scope.directory)
        claims += scope.clocks.update(edges, found, scope.directory)
        first = parts[0]
        findings = scope.ledger.update(
            self.settings.tenant,
            first.scope,
            (first.window_start_ns, first.window_end_ns),
            claims,
            (record.partition, record.offset),
        )
        out = []
        for finding in findings:
            self._count("findings", 1, finding.fault_class, finding.state)
            key = f"{finding.scope}/{finding.component}".encode()
            headers = (("tt-scope", finding.scope.encode()), ("tt-family", b"finding"))
            out.append(Output("findings", key, encode_record(finding), headers))
        return out

    def _count(self, name: str, number: int, *labels: str) -> None:
        if number:
            by_label = self._counts.setdefault(name, {})
            by_label[labels] = by_label.get(labels, 0) + number

    def _dead_letter(self, record: Record, detail: str) -> Output:
        self._count("deadlettered", 1, "malformed")
        value = record.value or b""
        letter = DeadLetter(
            tenant=self.settings.tenant,
            reason="malformed",
            detail=detail,
            topic=record.topic,
            partition=record.partition,
            offset=record.offset,
            append_ms=record.append_ms,
            events=0,
            payload=value[:PAYLOAD_BYTES_MAX],
        )
        return Output("deadletter", record.key, encode_record(letter), (("tt-family", b"deadletter"),))

    def pending(self) -> bool:
        """Nothing here waits for time to pass."""
        return False

    def refs(self) -> Sequence[Ref]:
        """Parts of windows that are not whole yet."""
        held = [
            Ref("merged", offset, 0, max(0, len(part) - 1))
            for scope in self._scopes.values()
            for offset, part in scope.parts
        ]
        return sorted(held, key=lambda ref: ref.offset)

    def reload(self, record: Record, first: int, last: int) -> None:
        """Take back a part."""
        part = decode_merged(record.value or b"")
        assert isinstance(part, Merged)
        self._scopes[part.scope].parts.append((record.log_offset, part))

    def snapshot(self) -> bytes:
        """Carry state as of next_offset."""
        arrays: dict[str, Any] = {}
        scopes = []
        for number, (name, scope) in enumerate(sorted(self._scopes.items())):
            meta = {"name": name, "directory": scope.directory.dump(), "ledger": scope.ledger.dump()}
            for rule, state in (("stragglers", scope.stragglers.dump()), ("clocks", scope.clocks.dump())):
                meta[rule] = state[0]
                arrays |= {f"{number}\0{rule}\0{key}": array for key, array in state[1].items()}
            scopes.append(meta)
        return pack_state({"next": self._next, "scopes": scopes}, arrays)

    def _load(self, snapshot: bytes) -> None:
        meta, arrays = unpack_state(snapshot)
        self._next = dict(meta["next"])
        for number, found in enumerate(meta["scopes"]):
            scope = self._scopes[found["name"]] = _Scope(self.settings)
            scope.directory = Directory.load(found["directory"])
            scope.ledger.load(found["ledger"])
            rules: tuple[tuple[str, Stragglers | Clocks], ...] = (
                ("stragglers", scope.stragglers),
                ("clocks", scope.clocks),
            )
            for rule, state in rules:
                prefix = f"{number}\0{rule}\0"
                mine = {key[len(prefix) :]: a for key, a in arrays.items() if key.startswith(prefix)}
                state.load(found[rule], mine)

    def counters(self) -> Mapping[str, Mapping[tuple[str, ...], int]]:
        """What was counted since the task was made."""
        return self._counts
