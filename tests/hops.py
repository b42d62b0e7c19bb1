"""INT reports made by hand, as a collector would publish them, through merge and paths."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from schemas import columns as c
from schemas.batch import Batch
from schemas.codec import decode_paths, encode_batch
from schemas.draft import Draft
from schemas.flow import flow_id
from schemas.pack import Head, SeqBook, Source
from schemas.paths import Paths as Record
from schemas.processor import Processor
from schemas.time import ClockState
from schemas.topics import batch_headers
from streams.causality.merge import Merge
from streams.causality.settings import MergeSettings
from streams.paths.stage import Paths, PathsSettings
from tempotrace.clockwork import FakeClock
from tempotrace.runtime.local import LocalRunner, MemoryLog

START_NS = 1_767_225_600_000_000_000
MS = 1_000_000
Hop = tuple[int, int | None, int | None]  # node, ingress port, egress port
CLOCK = ClockState("tap/clock", timescale=c.Timescale.TAI, status=c.Status.LOCKED, bound_ns=1000)


@dataclass
class Collector:
    """Publishes reports of one collector."""

    name: str = "tap/reports"
    incarnation: int = 7
    book: SeqBook = field(default_factory=SeqBook)
    reports: int = 0

    def __post_init__(self) -> None:
        self.source = Source(self.name, "tap", CLOCK, self.incarnation, ordered=False)
        self._draft = self._new()

    def _new(self) -> Draft:
        return Draft(Head("default", "fabric/0", self.name, "int"), self.book)

    def report(
        self,
        at_ns: int,
        flow: tuple[str, str, int, int] | None,
        hops: Sequence[Hop],
        *,
        length: int | None = 100,
        flags: c.ReportFlag = c.ReportFlag.FLOW,
        kind: c.HopKind = c.HopKind.HOP,
    ) -> None:
        """One report about a packet of a flow (source, destination, ports), seen `at_ns` after the start."""
        packet: dict[str, Any] = {}
        if flow is not None:
            src, dst, sport, dport = flow
            packet = {"src": src, "dst": dst, "sport": sport, "dport": dport, "protocol": 17}
            packet["flow"] = flow_id(src, dst, sport, dport, 17)
        for place, (node, port_in, port_out) in enumerate(hops):
            self._draft.row(
                self.source, START_NS + at_ns, kind=kind, entity=f"node:{node}", node=node,
                report=self.reports, hop=place, hops=len(hops), in_port=port_in, out_port=port_out,
                report_flags=int(flags), version=20, length=length, **packet,
            )  # fmt: skip
        self.reports += 1

    def batch(self) -> Batch:
        """All reports since the last one."""
        draft, self._draft = self._draft, self._new()
        return draft.build()


def paths_of(batches: Sequence[Batch], restart: int = 0, part_bytes_max: int = 480 * 1024) -> list[bytes]:
    """Values of the topic `paths`; with `restart`, both stages are taken up again after so many batches."""
    return [record.value or b"" for record in log_of(batches, restart, part_bytes_max).records("paths")]


def log_of(batches: Sequence[Batch], restart: int = 0, part_bytes_max: int = 480 * 1024) -> MemoryLog:
    """The log that holds these batches as events, and what merge and paths made of them."""
    clock = FakeClock()
    log = MemoryLog(clock)
    stages: list[Processor] = [Merge(MergeSettings(part_bytes_max=part_bytes_max)), Paths(PathsSettings())]
    runner = LocalRunner(stages, log, records_per_commit=1)
    for number, batch in enumerate(batches, 1):
        clock.advance(MS)
        log.append(
            "events",
            0,
            b"fabric/0",
            encode_batch(batch),
            tuple(batch_headers(batch.family, batch.count, "fabric/0")),
        )
        if restart and number % restart == 0:
            runner.run()
            runner.restart("merge")
            runner.restart("paths")
    runner.run()
    runner.flush("default")
    return log


def windows(values: Sequence[bytes]) -> list[Record]:
    """The records of windows among them."""
    found = [decode_paths(value) for value in values]
    return [each for each in found if isinstance(each, Record)]


def flows(record: Record) -> dict[int, dict[str, Any]]:
    """Flows of a window by id: each with its path as (link, share), and what else is known."""
    data = record.data
    out: dict[int, dict[str, Any]] = {}
    for k, number in enumerate(data["flow_id"].tolist()):
        first, count = int(data["flow_path_first"][k]), int(data["flow_path_count"][k])
        out[number] = {
            "path": [
                (record.strings[link], round(share, 6))
                for link, share in zip(
                    data["path_link"][first : first + count].tolist(),
                    data["path_share"][first : first + count].tolist(),
                    strict=True,
                )
            ],
            "bytes": int(data["flow_bytes"][k]),
            "reports": int(data["flow_reports"][k]),
            "source": c.PathSource(int(data["flow_path_source"][k])).name.lower(),
            "src": record.strings[data["flow_src"][k]],
            "dst": record.strings[data["flow_dst"][k]],
            "ports": (int(data["flow_src_port"][k]), int(data["flow_dst_port"][k])),
            "valid": (
                int(data["flow_valid_from_ns"][k]) - START_NS,
                int(data["flow_valid_to_ns"][k]) - START_NS,
            ),
        }
    return out


def links(record: Record) -> dict[tuple[str, str], tuple[int, int]]:
    """(layer, link) -> (flows, bytes) of a window."""
    data = record.data
    if "link_name" not in data:
        return {}
    assert np.isnan(data["link_capacity_bps"]).all()
    return {
        (record.strings[layer], record.strings[name]): (int(count), int(size))
        for layer, name, count, size in zip(
            data["link_layer"], data["link_name"], data["link_flows"], data["link_bytes"], strict=True
        )
    }
