"""Profiler traces as batches: one clock a rank, one source a thread or stream, merged in time over all ranks.

All traces are held as arrays (about 100 bytes an event) before the first batch leaves: the ranks' order,
their collectives and the merge in time need them all. The batches themselves are made one at a time.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from producers.gpu import files, kineto
from producers.gpu.assemble import ROWS_MAX, Assembly
from producers.gpu.kineto import Trace
from producers.report import Report
from schemas import columns as c
from schemas.batch import Batch
from schemas.draft import control
from schemas.errors import MalformedInput, Usage
from schemas.time import OUTSIDE, stamp_fits


@dataclass(frozen=True)
class Options:
    """How traces are read. What changes rows or clocks is part of the scope's and the incarnations' hash.

    `clock_bound_ns` claims that every rank's clock is that close to TAI. `clock_offset_ns` moves all stamps
    of a rank (by its number, or the file's stem where it tells none), for trials.
    """

    tenant: str = "default"
    scope: str | None = None
    host: str | None = None
    clock_bound_ns: int | None = None
    clock_offset_ns: Mapping[str, int] = field(default_factory=dict)
    rows_max: int = ROWS_MAX


@dataclass
class KinetoReport(Report):
    """What became of the traces. `skipped` counts entries of traceEvents by reason, and whole files.

    `facts` counts what was met that is no fault: edges found, work whose launch is missing, collectives that
    stay unmatched and why.
    """

    scope: str = ""
    files: int = 0
    ranks: int = 0
    world_size: int | None = None  # of the job, as the traces say; the greatest
    traces: dict[str, str] = field(default_factory=dict)  # file by label: the rank, else the file's stem
    facts: dict[str, int] = field(default_factory=dict)

    def fields(self) -> dict[str, Any]:
        """The producer's own fields of the `--json` result."""
        return {
            "scope": self.scope,
            "files": self.files,
            "ranks": self.ranks,
            "world_size": self.world_size,
            "traces": dict(self.traces),
            "facts": dict(self.facts),
        }


def read(paths: Sequence[Path], options: Options, report: KinetoReport) -> Iterator[Batch]:
    """Batches of all traces in `paths`: `open`, a heartbeat that lists every source, then rows.

    What cannot be used costs one line in `report.warnings`; its figures are complete when the iterator ends.
    Raises Usage for an option that fits nothing, MalformedInput if no trace could be read at all.
    """
    traces = _collect(paths, report)
    for label in options.clock_offset_ns:
        if label not in traces:
            raise Usage(f"--clock-offset names rank {label}, the input holds {', '.join(traces)}")
        begin_ns, offset_ns = traces[label].begin_ns, options.clock_offset_ns[label]
        if len(begin_ns) and not (
            stamp_fits(int(begin_ns.min()) + offset_ns) and stamp_fits(int(begin_ns.max()) + offset_ns)
        ):
            raise Usage(f"--clock-offset of rank {label} moves it to a {OUTSIDE}: give a smaller one")
    whole = Assembly(
        traces,
        tenant=options.tenant,
        scope=options.scope,
        host=options.host,
        bound_ns=options.clock_bound_ns,
        offset_ns=options.clock_offset_ns,
    )
    report.scope = whole.head.scope
    report.facts |= whole.facts
    if report.ranks:
        opened = [(c.Control.OPEN, report.ranks, "ranks")]
        report.batches += 1
        yield control(options.tenant, report.scope, whole.head.publisher, opened)
    for batch in whole.batches(options.rows_max):
        report.events += batch.count
        report.batches += 1
        yield batch


def _collect(paths: Sequence[Path], report: KinetoReport) -> dict[str, Trace]:
    """Traces by label, in order of rank, then of the stems of those that tell no rank."""
    parsed: list[tuple[str, Trace]] = []

    def use(name: str, stream: IO[bytes]) -> None:
        parsed.append((name, kineto.parse(stream)))

    def broken(name: str, why: str) -> None:
        report.warn(f"{name}: {why}")
        report.skip("unreadable file")

    files.visit(paths, use, broken)
    by_label: dict[str, tuple[str, Trace]] = {}
    for name, trace in sorted(parsed, key=lambda each: each[0]):
        label = _label(name, trace)
        if label in by_label:
            claim = f"is called {label!r}" if trace.rank is None else f"claims rank {label}"
            report.warn(f"{name}: {claim}, as {by_label[label][0]} does; left out")
            report.skip("rank given twice", trace.events)
            continue
        by_label[label] = name, trace
        for reason, count in trace.skipped.items():
            report.skip(reason, count)
        if not len(trace):
            report.warn(f"{name}: holds no complete event")
        elif trace.rank is None:
            report.warn(f"{name}: tells no rank; used as {label!r}, and its collectives stay unmatched")
        if trace.relative:
            report.warn(f"{name}: has no baseTimeNanoseconds; its times count from an unknown start")
        untimed = trace.skipped["bad time"] + trace.skipped[OUTSIDE]
        if untimed:
            report.warn(f"{name}: {untimed} events without a usable time left out")
        if trace.skipped[kineto.BEYOND]:
            report.warn(f"{name}: {trace.skipped[kineto.BEYOND]} events with a {kineto.BEYOND} left out")
    if not by_label:
        more = f" (and {len(report.warnings) - 1} more)" if len(report.warnings) > 1 else ""
        raise MalformedInput(f"{report.warnings[0]}{more}" if report.warnings else "no trace was given")
    report.files = len(by_label)
    report.ranks = sum(trace.rank is not None for _, trace in by_label.values())
    worlds = [trace.world_size for _, trace in by_label.values() if trace.world_size is not None]
    report.world_size = max(worlds, default=None)
    order = sorted(
        by_label, key=lambda label: (by_label[label][1].rank is None, by_label[label][1].rank, label)
    )
    report.traces = {label: by_label[label][0] for label in order}
    return {label: by_label[label][1] for label in order}


def _label(name: str, trace: Trace) -> str:
    """The rank's number, else the file's stem, told apart from any rank's."""
    if trace.rank is not None:
        return str(trace.rank)
    stem = files.stem(name)
    return f"file {stem}" if re.fullmatch(r"(rank)?\d+", stem) else stem
