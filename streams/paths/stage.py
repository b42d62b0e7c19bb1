"""The paths stage: `merged` in, `paths` out: flows with the links they took, links with what crossed them.

Here from in-band telemetry alone: every path is observed. Bytes are those of the packets that reports are
about. Capacity, utilisation and coverage need port counters, and are null without them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray

from schemas import columns as c
from schemas import paths as p
from schemas.codec import encode_record
from schemas.merged import Merged
from schemas.pack import Strings
from schemas.processor import Output, Record
from schemas.records import Progress
from streams.counts import Counts
from streams.paths.hops import ENDS, Crossings, Hops, crossings, redirected, report_bytes, window_hops
from streams.windows import WindowTask

Array = NDArray[Any]


@dataclass(frozen=True)
class PathsSettings:
    """Settings of the stage. A path not seen for `path_ttl_ns` of event time is forgotten."""

    tenant: str = "default"
    path_ttl_ns: int = 60_000_000_000


class Paths:
    """The processor."""

    name = "paths"
    inputs = ("merged",)
    outputs = ("paths", "deadletter")
    joins = False

    def __init__(self, settings: PathsSettings) -> None:
        self.settings = settings

    def start(self, partition: int, snapshot: bytes | None) -> WindowTask:
        """A task for a partition: fresh, or as the snapshot left it."""
        return WindowTask(
            self.settings.tenant, lambda name, count: PathsScope(name, self.settings, count), snapshot
        )


class PathsScope:
    """Since when each flow has taken the path it takes."""

    def __init__(self, name: str, settings: PathsSettings, count: Counts) -> None:
        self._name, self._settings, self._count = name, settings, count
        self._known: dict[int, tuple[int, int, int]] = {}  # flow -> (hash of its path, since, last seen)

    def window(self, parts: Sequence[Merged], record: Record) -> list[Output]:
        """Flows and links of a window; nothing where no report fell in it."""
        hops = window_hops(parts)
        if not len(hops):
            return []
        found = crossings(hops)
        first = parts[0]
        strings = Strings()
        data = self._flows(hops, found, strings) | _links(hops, found, strings)
        self._forget(first.window_end_ns)
        flows = len(data["flow_id"])
        self._count("flows", flows)
        self._count("hops", len(hops))
        self._count("links", len(found.names))
        self._count("events_out", flows)
        out = p.Paths(
            self._settings.tenant, self._name, first.window_start_ns, first.window_end_ns, strings.table, data
        )
        key = self._name.encode()
        headers = (("tt-scope", key), ("tt-family", b"paths"), ("tt-count", str(flows).encode()))
        return [Output("paths", key, p.write(out), headers)]

    def progress(self, progress: Progress, record: Record) -> list[Output]:
        """Pass progress on, so that readers of paths know how far they are."""
        key = self._name.encode()
        return [
            Output("paths", key, encode_record(progress), (("tt-scope", key), ("tt-family", b"progress")))
        ]

    def _flows(self, hops: Hops, found: Crossings, strings: Strings) -> dict[str, Array]:
        probe = redirected(hops)
        flow, of_hop = np.unique(hops.flow, return_inverse=True)
        flows = len(flow)
        # A flow with reports that leave the hashed fields alone is described by those only.
        own = np.zeros(flows, np.bool_)
        np.logical_or.at(own, of_hop, ~probe)
        use_hop = ~probe | ~own[of_hop]
        head, size = report_bytes(hops)
        total = np.zeros(flows, np.int64)
        np.add.at(total, of_hop[head], size)
        reports = np.bincount(of_hop[head[use_hop[head]]], minlength=flows)
        crossed = use_hop[found.hop]
        at, link = of_hop[found.hop[crossed]], found.link[crossed]
        place = hops.column["hop"][found.hop[crossed]]
        keys, seen = np.unique(np.stack((at, place, link)), axis=1, return_counts=True)
        share = seen / reports[keys[0]]
        names = np.array([strings.index(name) for name in found.names], np.int64)
        counts = np.bincount(keys[0], minlength=flows)
        start = np.cumsum(counts) - counts
        seen_from = np.full(flows, np.iinfo(np.int64).max)
        seen_to = np.full(flows, np.iinfo(np.int64).min)
        np.minimum.at(seen_from, of_hop, hops.time_ns)
        np.maximum.at(seen_to, of_hop, hops.time_ns)
        since = self._since(flow, start, counts, keys[2], found, seen_from, seen_to)
        any_hop = np.empty(flows, np.int64)
        any_hop[of_hop[::-1]] = np.arange(len(hops))[::-1]
        ends = {name: hops.column[name][any_hop] for name in ENDS}
        table = hops.strings.table
        text = {
            name: np.array(
                [c.NULL_U16 if k == c.NULL_I64 else strings.index(table[k]) for k in ends[name].tolist()],
                "<u2",
            )
            for name in ("src", "dst")
        }
        return {
            "flow_id": flow,
            "flow_src": text["src"],
            "flow_dst": text["dst"],
            "flow_src_port": _packed(ends["sport"], "<u2"),
            "flow_dst_port": _packed(ends["dport"], "<u2"),
            "flow_protocol": _packed(ends["protocol"], "u1"),
            "flow_job": np.full(flows, c.NULL_U16, "<u2"),
            "flow_rank_src": np.full(flows, c.NULL_I32, "<i4"),
            "flow_rank_dst": np.full(flows, c.NULL_I32, "<i4"),
            "flow_bytes": total,
            "flow_reports": reports.astype("<u4"),
            "flow_path_first": start.astype("<u4"),
            "flow_path_count": counts.astype("<u4"),
            "flow_path_source": np.where(own, c.PathSource.OBSERVED, c.PathSource.OBSERVED_PROBE).astype(
                "u1"
            ),
            "flow_agreement": np.full(flows, np.nan),
            "flow_valid_from_ns": since,
            "flow_valid_to_ns": seen_to,
            "flow_latency_ns": np.full(flows, c.NULL_I64),
            "path_link": names[keys[2]].astype("<u2") if len(names) else np.empty(0, "<u2"),
            "path_share": share,
        }

    def _since(
        self,
        flow: Array,
        start: Array,
        counts: Array,
        link: Array,
        found: Crossings,
        seen: Array,
        last: Array,
    ) -> Array:
        """When each flow was first seen on the links it takes now."""
        out = seen.copy()
        for k, number in enumerate(flow.tolist()):
            path = "|".join(found.names[j] for j in link[start[k] : start[k] + counts[k]].tolist())
            signature = int.from_bytes(blake2b(path.encode(), digest_size=7).digest(), "little")
            known = self._known.get(number)
            if known is not None and known[0] == signature:
                out[k] = min(known[1], int(out[k]))
            elif known is not None:
                self._count("path_changes", 1)
            self._known[number] = (signature, int(out[k]), int(last[k]))
        return out

    def _forget(self, now_ns: int) -> None:
        oldest = now_ns - self._settings.path_ttl_ns
        stale = [number for number, (_, _, last) in self._known.items() if last < oldest]
        for number in stale:
            del self._known[number]

    def dump(self) -> tuple[Any, dict[str, Any]]:
        """State for a snapshot: JSON part and arrays."""
        rows = [(number, *known) for number, known in self._known.items()]
        flat = np.array([row[0] for row in rows], np.uint64)
        rest = np.array([row[1:] for row in rows], np.int64).reshape(len(rows), 3)
        return None, {"flow": flat, "known": rest}

    def load(self, meta: Any, arrays: dict[str, Any]) -> None:
        """From `dump`."""
        pairs = zip(arrays["flow"].tolist(), arrays["known"].tolist(), strict=True)
        self._known = {number: tuple(known) for number, known in pairs}


def _links(hops: Hops, found: Crossings, strings: Strings) -> dict[str, Array]:
    """What crossed each link. A link that was crossed at several places on paths is one a layer."""
    links = len(found.names)
    if not links:
        return {}
    _, size = report_bytes(hops)
    through = size[hops.report[found.hop]]
    total = np.zeros(links, np.int64)
    np.add.at(total, found.link, through)
    pairs = np.unique(np.stack((found.link, hops.flow[found.hop].view(np.int64))), axis=1)
    unknown = np.full(links, np.nan)
    return {
        "link_layer": np.array([strings.index(layer) for layer in found.layers], "<u2"),
        "link_name": np.array([strings.index(name) for name in found.names], "<u2"),
        "link_flows": np.bincount(pairs[0], minlength=links).astype("<u4"),
        "link_bytes": total,
        "link_capacity_bps": unknown,
        "link_utilisation": unknown,
        "link_coverage": unknown,
    }


def _packed(wide: Array, dtype: str) -> Array:
    """Ports and protocols as packed; one that can't be told from null (65535, 255) counts as null."""
    top = np.iinfo(dtype).max
    return np.where((wide < 0) | (wide >= top), top, wide).astype(dtype)
