"""The diagnosis stage: `merged` in, `findings` out. Rules see whole windows, never single events."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from schemas.codec import encode_record
from schemas.merged import Merged
from schemas.processor import Output, Record
from schemas.records import Progress
from streams.counts import Counts
from streams.diagnosis.claims import Claim, Ledger
from streams.diagnosis.clocks import Clocks
from streams.diagnosis.stragglers import Stragglers
from streams.diagnosis.window import Directory, collectives, window_edges
from streams.windows import WindowTask


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

    def start(self, partition: int, snapshot: bytes | None) -> WindowTask:
        """A task for a partition: fresh, or as the snapshot left it."""
        return WindowTask(
            self.name,
            self.settings.tenant,
            lambda name, count: DiagnosisScope(name, self.settings, count),
            snapshot,
        )


class DiagnosisScope:
    """The rules' state for one scope."""

    def __init__(self, name: str, settings: DiagnosisSettings, count: Counts) -> None:
        self._name, self._settings, self._count = name, settings, count
        self._directory = Directory()
        self._stragglers = Stragglers()
        self._clocks = Clocks()
        self._ledger = Ledger(settings.hold_windows)
        self._window = (0, 0)  # the last one taken

    def window(self, parts: Sequence[Merged], record: Record) -> list[Output]:
        """Run the rules on a window; gives the findings that are new, changed, due or ended."""
        edges = window_edges(parts, self._directory)
        found = collectives(edges)
        claims = self._stragglers.update(edges, found, self._directory)
        claims += self._clocks.update(edges, found, self._directory)
        self._window = (parts[0].window_start_ns, parts[0].window_end_ns)
        return self._tell(claims, record)

    def progress(self, progress: Progress, record: Record) -> list[Output]:
        """Windows without rows change nothing; at the end of the scope its rules have their last word."""
        return self._tell(self._clocks.close(self._directory), record) if progress.closed else []

    def _tell(self, claims: list[Claim], record: Record) -> list[Output]:
        origin = (record.partition, record.offset)
        findings = self._ledger.update(self._settings.tenant, self._name, self._window, claims, origin)
        out = []
        for finding in findings:
            self._count("findings", 1, finding.fault_class, finding.state)
            self._count("events_out", 1)
            key = f"{finding.scope}/{finding.component}".encode()
            headers = (("tt-scope", finding.scope.encode()), ("tt-family", b"finding"), ("tt-count", b"1"))
            out.append(Output("findings", key, encode_record(finding), headers))
        return out

    def dump(self) -> tuple[Any, dict[str, Any]]:
        """State for a snapshot: JSON part and arrays."""
        stragglers, s_arrays = self._stragglers.dump()
        clocks, c_arrays = self._clocks.dump()
        arrays = {f"s\0{key}": a for key, a in s_arrays.items()} | {
            f"c\0{key}": a for key, a in c_arrays.items()
        }
        return [self._directory.dump(), self._ledger.dump(), stragglers, clocks, self._window], arrays

    def load(self, meta: Any, arrays: dict[str, Any]) -> None:
        """From `dump`."""
        directory, ledger, stragglers, clocks, window = meta
        self._window = (window[0], window[1])
        self._directory = Directory.load(directory)
        self._ledger.load(ledger)
        self._stragglers.load(stragglers, {key[2:]: a for key, a in arrays.items() if key[0] == "s"})
        self._clocks.load(clocks, {key[2:]: a for key, a in arrays.items() if key[0] == "c"})
