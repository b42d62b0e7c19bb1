"""The paths stage: `merged` in, `paths` out: flows with the links they took, links with what crossed them, and
how evenly the flows spread.

Paths are observed by in-band telemetry; flows that hosts list, and paths that were walked for them, come in rows
of family `fabric`, as do the counters of ports. Bytes of flows are those of the packets that reports are about.
Capacity, utilisation and coverage need counters, and are null without them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray

from schemas import columns as c
from schemas import imbalance
from schemas import paths as p
from schemas.codec import encode_record
from schemas.merged import Merged
from schemas.pack import Strings
from schemas.processor import Output, Record
from schemas.records import Progress
from streams.counts import Counts
from streams.paths.counted import Counted
from streams.paths.hops import ENDS, Crossings, Hops, crossings, redirected, report_bytes, window_hops
from streams.paths.linkrows import link_rows, packed
from streams.paths.owners import Owners, joined
from streams.paths.spreads import DEFAULT_BPS, Spreads, Window
from streams.paths.switches import Switches, SwitchUnits, by_flow
from streams.paths.told import fabric_rows
from streams.windows import WindowTask

Array = NDArray[Any]


@dataclass(frozen=True)
class PathsSettings:
    """Settings of the stage. A path not seen for `path_ttl_ns` of event time is forgotten.

    `default_bps` is taken for the capacity of links of which no counter says it, for losses and loads by layer.
    `switches` says what switches count in, of those where that is known; of others it is estimated.
    """

    tenant: str = "default"
    path_ttl_ns: int = 60_000_000_000
    default_bps: float = DEFAULT_BPS
    switches: tuple[SwitchUnits, ...] = ()


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
            self.name,
            self.settings.tenant,
            lambda name, count: PathsScope(name, self.settings, count),
            snapshot,
        )


class PathsScope:
    """Since when each flow has taken the path it takes."""

    def __init__(self, name: str, settings: PathsSettings, count: Counts) -> None:
        self._name, self._settings, self._count = name, settings, count
        self._known: dict[int, tuple[int, int, int]] = {}  # flow -> (hash of its path, since, last seen)
        self._counted = Counted()
        self._owners = Owners()
        self._spreads = Spreads(count, settings.default_bps)
        self._switches = Switches(settings.switches)

    def window(self, parts: Sequence[Merged], record: Record) -> list[Output]:
        """Flows and links of a window; nothing where neither a report nor a row of the fabric fell in it."""
        hops, told = window_hops(parts), fabric_rows(parts)
        if not len(hops) and not any(told):
            return []
        first = parts[0]
        self._counted.learn(told.counts)
        self._owners.learn(told.flows)
        found = crossings(hops)
        found = replace(found, names=[self._counted.name(name) for name in found.names])
        strings = Strings()
        clocks, latency = self._switches.window(hops, first.window_end_ns)
        seen = self._flows(hops, found, latency, strings) if len(hops) else {}
        observed = set(seen["flow_id"].tolist()) if seen else set()
        data = joined(seen, self._owners.flows(told, observed, strings, self._changed))
        links = link_rows(hops, found, told.counts, self._counted, strings)
        table = self._spreads.window(
            Window(first.window_end_ns, data | links, strings.table), self._counted.capacities()
        )
        self._forget(first.window_end_ns)
        flows = len(data["flow_id"])
        self._count("flows", flows)
        self._count("hops", len(hops))
        self._count("links", len(links.get("link_name", ())))
        self._count("events_out", flows)
        if not flows and not links:
            return []
        out = p.Paths(
            self._settings.tenant,
            self._name,
            first.window_start_ns,
            first.window_end_ns,
            strings.table,
            data | links | clocks,
        )
        key = self._name.encode()
        headers = (("tt-scope", key), ("tt-family", b"paths"), ("tt-count", str(flows).encode()))
        written = [Output("paths", key, p.write(out), headers)]
        if table is not None:
            columns, words = table.columns()
            spread = imbalance.Imbalance(
                out.tenant, out.scope, out.window_start_ns, out.window_end_ns, words, columns
            )
            self._count("imbalance_rows", len(spread))
            headers = (("tt-scope", key), ("tt-family", b"imbalance"), ("tt-count", b"0"))
            written.append(Output("paths", key, imbalance.write(spread), headers))
        return written

    def progress(self, progress: Progress, record: Record) -> list[Output]:
        """Pass progress on, so that readers of paths know how far they are."""
        key = self._name.encode()
        return [
            Output("paths", key, encode_record(progress), (("tt-scope", key), ("tt-family", b"progress")))
        ]

    def _flows(self, hops: Hops, found: Crossings, latency: Array, strings: Strings) -> dict[str, Array]:
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
            "flow_src_port": packed(ends["sport"], "<u2"),
            "flow_dst_port": packed(ends["dport"], "<u2"),
            "flow_protocol": packed(ends["protocol"], "u1"),
            **self._owners.columns(flow, strings),
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
            "flow_latency_ns": by_flow(latency, of_hop[head], flows),
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
            path = [found.names[j] for j in link[start[k] : start[k] + counts[k]].tolist()]
            out[k] = self._changed(number, path, int(out[k]), int(last[k]))
        return out

    def _changed(self, flow: int, path: Sequence[str], first_ns: int, last_ns: int) -> int:
        """Since when the flow takes this path, seen from `first_ns` to `last_ns` now."""
        signature = int.from_bytes(blake2b("|".join(path).encode(), digest_size=7).digest(), "little")
        known = self._known.get(flow)
        if known is not None and known[0] == signature:
            first_ns = min(known[1], first_ns)
        elif known is not None:
            self._count("path_changes", 1)
        self._known[flow] = (signature, first_ns, last_ns)
        return first_ns

    def _forget(self, now_ns: int) -> None:
        oldest = now_ns - self._settings.path_ttl_ns
        stale = [number for number, (_, _, last) in self._known.items() if last < oldest]
        for number in stale:
            del self._known[number]
        self._owners.forget(oldest)
        self._counted.forget(oldest)
        self._spreads.forget(oldest)
        self._switches.forget(oldest)

    def dump(self) -> tuple[Any, dict[str, Any]]:
        """State for a snapshot: JSON part and arrays."""
        rows = [(number, *known) for number, known in self._known.items()]
        flat = np.array([row[0] for row in rows], np.uint64)
        rest = np.array([row[1:] for row in rows], np.int64).reshape(len(rows), 3)
        meta = {
            "counted": self._counted.dump(),
            "owners": self._owners.dump(),
            "spreads": self._spreads.dump(),
            "switches": self._switches.dump(),
        }
        return meta, {"flow": flat, "known": rest}

    def load(self, meta: Any, arrays: dict[str, Any]) -> None:
        """From `dump`."""
        pairs = zip(arrays["flow"].tolist(), arrays["known"].tolist(), strict=True)
        self._known = {number: tuple(known) for number, known in pairs}
        self._counted.load(meta["counted"])
        self._owners.load(meta["owners"])
        self._spreads.load(meta["spreads"])
        self._switches.load(meta["switches"])
