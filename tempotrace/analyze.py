"""The stages on files, without Kafka: the same processors over a log in memory."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from producers.cutting import messages
from producers.host import logs
from schemas.batch import Batch
from schemas.codec import encode_record
from schemas.metrics import Value
from schemas.processor import Outlet, Processor
from schemas.topics import batch_headers
from streams.causality.merge import Merge
from streams.causality.settings import MergeSettings
from streams.diagnosis.stage import Diagnosis, DiagnosisSettings
from streams.paths.stage import Paths, PathsSettings
from tempotrace import clockcheck
from tempotrace.clockwork import FakeClock
from tempotrace.inputs import Choices, feeds, side_by_side, sort_out
from tempotrace.runtime.local import LocalRunner, MemoryLog
from tempotrace.summary import Summary, incidents_of
from tempotrace.used import require

RECORD_NS = 1_000_000  # append time that passes with each record, so that a run is the same every time


def analyze(
    paths: Sequence[Path],
    choices: Choices,
    say: Callable[[int, str], None],
    lake: tuple[Sequence[Processor], dict[str, Outlet]] | None = None,
) -> dict[str, Any]:
    """Merge, paths and diagnosis over files; gives the result as `--json` prints it.

    `say(events, what)` is called as input is read. With `lake`, its processors and outlets run too.
    """
    clock = FakeClock()
    log = MemoryLog(clock)
    processors: list[Processor] = [
        Merge(MergeSettings(tenant=choices.tenant)),
        Paths(PathsSettings(tenant=choices.tenant)),
        Diagnosis(DiagnosisSettings(tenant=choices.tenant)),
    ]
    outlets: dict[str, Outlet] = {}
    if lake is not None:
        processors += lake[0]
        outlets = lake[1]
    runner = LocalRunner(processors, log, outlets=outlets)
    chosen = sort_out(paths)
    running = feeds(chosen, choices)
    events = 0
    for item in side_by_side(running):
        clock.advance(RECORD_NS)
        if isinstance(item, Batch):
            for piece, payload in messages(item):
                headers = tuple(batch_headers(piece.family, piece.count, piece.scope))
                log.append("events", 0, piece.scope.encode(), payload, headers)
                events += 0 if piece.family == "control" else piece.count
        else:
            log.append("deadletter", 0, None, encode_record(item))
        say(events, "reading")
    told = [line for feed in running for line in feed.report.warnings]
    require(events, "files", told, {"inputs": [feed.told() for feed in running], "events": 0})
    say(events, "merging")
    runner.run()
    runner.flush(choices.tenant)
    summary = Summary()
    summary.take(log.records("merged"))
    return {
        "inputs": [feed.told() for feed in running],
        "events": events,
        "rows": summary.rows,
        "late": _total(runner.counters("merge").get("late", 0)),
        "deadlettered": _total(runner.counters("merge").get("deadlettered", 0)),
        "deadletters": len(log.records("deadletter")),
        "windows": summary.windows,
        "edges": summary.edges,
        "inversions_raw": summary.inversions_raw,
        "inversions_after": summary.inversions_after,
        "edges_unrepaired": summary.edges_unrepaired,
        "unmatched": summary.unmatched,
        "collectives_incomplete": summary.incomplete,
        "longest_waits": summary.waits,
        "clocks": [summary.clocks[name] for name in sorted(summary.clocks)],
        "clock_logs": _clock_logs(chosen.logs, choices),
        "incidents": [
            {**asdict(incident), "evidence": json.loads(incident.evidence)}
            for incident in incidents_of(log.records("findings"))
        ],
        "flows": _total(runner.counters("paths").get("flows", 0)),
    }


def _clock_logs(paths: Sequence[Path], choices: Choices) -> list[dict[str, Any]]:
    """The clocks that the logs are about, as `clock check` has them."""
    if not paths:
        return []
    result, _ = clockcheck.check(paths, logs.Options(tenant=choices.tenant, host=choices.host))
    entries: list[dict[str, Any]] = result["clocks"]
    return entries


def _total(value: Value) -> int:
    """A counter's sum over its labels."""
    return int(sum(value.values())) if isinstance(value, Mapping) else int(value)
