"""What a merged log says at a glance: edges and verdicts, who waited for whom, the clocks, the incidents."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from schemas import columns as c
from schemas.codec import decode_merged, decode_record
from schemas.merged import Merged
from schemas.processor import Record
from schemas.records import Finding, Incident, read
from sinks.windows import offset_ns
from streams.diagnosis.incidents import fold, key_of
from streams.diagnosis.window import Directory, collectives, window_edges

WAITS_KEPT: Final = 10


@dataclass
class Summary:
    """Filled window by window."""

    rows: int = 0
    windows: int = 0
    edges: dict[str, dict[str, int]] = field(default_factory=dict)
    inversions_raw: dict[str, int] = field(default_factory=dict)
    inversions_after: dict[str, int] = field(default_factory=dict)
    edges_unrepaired: int = 0
    unmatched: dict[str, dict[str, int]] = field(default_factory=dict)
    incomplete: int = 0
    waits: list[dict[str, Any]] = field(default_factory=list)
    clocks: dict[str, dict[str, Any]] = field(default_factory=dict)
    _directory: Directory = field(default_factory=Directory)

    def take(self, records: Iterable[Record]) -> None:
        """Take the records of one partition of `merged`, in order."""
        waiting: dict[str, list[Merged]] = {}
        for record in records:
            part = decode_merged(record.value or b"")
            if isinstance(part, Merged):
                held = waiting.setdefault(part.scope, [])
                held.append(part)
                if int(part.header["part"]) + 1 == int(part.header["parts"]):
                    self._window(waiting.pop(part.scope))
                continue
            self.incomplete += part.incomplete
            for place, count in enumerate(part.unmatched):
                if count:
                    kind, side = c.EdgeKind(place // 2).name.lower(), ("cause", "effect")[place % 2]
                    entry = self.unmatched.setdefault(kind, {})
                    entry[side] = entry.get(side, 0) + count

    def _window(self, parts: Sequence[Merged]) -> None:
        self.windows += 1
        first = parts[0]
        self.edges_unrepaired += int(first.header["edges_unrepaired"])
        for total, found in ((self.inversions_raw, "raw"), (self.inversions_after, "after")):
            for kind, count in first.inversions(found).items():
                if count:
                    total[kind] = total.get(kind, 0) + count
        for kind, by_verdict in first.verdicts().items():
            for verdict, count in by_verdict.items():
                if count:
                    entry = self.edges.setdefault(kind, {})
                    entry[verdict] = entry.get(verdict, 0) + count
        for part in parts:
            self.rows += len(part)
            self._clocks(part)
        self._waits(parts)

    def _waits(self, parts: Sequence[Merged]) -> None:
        """The collectives in which somebody waited longest, by each member's own duration.

        `last_ns` and `longest_ns` are durations of kernels, of the last to arrive and of who was in the
        collective longest. The difference is waiting.
        """
        edges = window_edges(parts, self._directory)
        found = collectives(edges)
        names = self._directory.members.names
        for k in range(len(found)):
            rows = found.row[found.start[k] : found.start[k + 1]]
            members, duration = edges.effect[rows], edges.duration_ns[rows]
            self.waits.append(
                {
                    "operation": c.Op(int(edges.op[rows[0]])).name.lower(),
                    "group": self._directory.groups.names[int(found.group[k])],
                    "members": len(rows),
                    "end_ns": int(found.end_ns[k]),
                    "last_to_arrive": names[int(members[0])],
                    "last_ns": int(duration[0]),
                    "longest_wait": names[int(members[-1])],
                    "longest_ns": int(duration[-1]),
                    "longest_wait_ns": int(duration[-1] - duration[0]),
                    "median_wait_ns": int(np.median(duration[1:] - duration[0])) if len(rows) > 1 else 0,
                }
            )
        self.waits.sort(key=lambda wait: (-int(wait["longest_wait_ns"]), int(wait["end_ns"])))
        del self.waits[WAITS_KEPT:]

    def _clocks(self, part: Merged) -> None:
        data = part.data
        offsets = offset_ns(part)
        for entry in range(part.table_len("clk")):
            bound, offset = int(data["clk_bound_ns"][entry]), int(offsets[entry])
            self.clocks[part.clock_name(entry)] = {
                "clock": part.clock_name(entry),
                "parent": part.text(int(data["clk_parent"][entry])),
                "kind": c.ClockKind(int(data["clk_kind"][entry])).name.lower(),
                "status": c.Status(int(data["clk_status"][entry])).name.lower(),
                "timescale": c.Timescale(int(data["clk_timescale"][entry])).name.lower(),
                "offset_ns": None if offset == c.NULL_I64 else offset,
                "bound_ns": None if bound == c.NULL_I64 else bound,
                "assurance": c.Assurance(int(data["clk_assurance"][entry])).name.lower(),
            }


def incidents_of(findings: Iterable[Record]) -> list[Incident]:
    """The incidents that these findings make, in order of onset; what the incidents service would keep."""
    kept: dict[str, Incident] = {}
    for record in findings:
        finding = read(Finding, decode_record(record.value or b""))
        after = fold(kept.get(key_of(finding)), finding, record.append_ms)
        if after is not None:
            kept[key_of(finding)] = after
    return sorted(kept.values(), key=lambda incident: (incident.onset_ns, incident.incident_id))
