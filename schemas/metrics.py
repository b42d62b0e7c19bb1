"""Every metric of every stage: name, kind, unit, labels, meaning. The page docs/metrics.md is made from this.

A task counts under these names (`Task.counters`), the runner adds its own, and the exporter shows all of them
as `tempotrace_<name>` with the labels tenant, stage and instance before a metric's own (`_total` is added to
counters, as Prometheus expects). A name that is not listed here cannot be exported: conformance tests say so.

    python -m schemas.metrics     writes docs/metrics.md
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from schemas.codes import Control, EdgeKind, Verdict

Kind = Literal["counter", "gauge", "histogram"]
Number = int | float
# A metric's values: a number, or numbers by the values of its labels.
Value = Number | Mapping[tuple[str, ...], Number]

EVERY_STAGE: Final = ("merge", "paths", "diagnosis", "lake")
COMMIT_SECONDS_BUCKETS: Final = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)


@dataclass(frozen=True)
class Metric:
    """One metric. `combine` says how the values of several partitions make the stage's value."""

    name: str
    kind: Kind
    unit: str
    meaning: str
    labels: tuple[str, ...] = ()
    stages: tuple[str, ...] = EVERY_STAGE
    combine: Literal["sum", "min", "max"] = "sum"

    @property
    def exported(self) -> str:
        """Name under which Prometheus sees it."""
        return f"tempotrace_{self.name}" + ("_total" if self.kind == "counter" else "")


MERGE: Final = ("merge",)
PATHS: Final = ("paths",)
DIAGNOSIS: Final = ("diagnosis",)
INCIDENTS: Final = ("incidents",)
LAKE: Final = ("lake",)
ALERTS: Final = ("alerts",)
PRODUCE: Final = ("produce",)
READERS: Final = (*EVERY_STAGE, "incidents", "alerts")
COUNTING: Final = ("merge", "lake")
WRITERS: Final = (*EVERY_STAGE, "incidents")
WINDOWED: Final = ("merge", "paths", "diagnosis")

RUNNER: Final = (
    Metric("records_read", "counter", "records", "Input records taken.", ("topic",), READERS),
    Metric("bytes_read", "counter", "B", "Bytes of their keys and values.", ("topic",), READERS),
    Metric(
        "records_written", "counter", "records", "Records committed, snapshots apart.", ("topic",), WRITERS
    ),
    Metric("bytes_written", "counter", "B", "Bytes of their keys and values.", ("topic",), WRITERS),
    Metric("snapshot_bytes", "counter", "B", "Bytes of the snapshots committed."),
    Metric("commits", "counter", "commits", "Commits that succeeded."),
    Metric("aborts", "counter", "commits", "Commits that were aborted, after which work was done again."),
    Metric("commit_seconds", "histogram", "s", "Time from handing work over until it is committed."),
    Metric(
        "restores", "counter", "tasks", "Partitions taken up from a snapshot: restarts, rebalances, aborts."
    ),
    Metric("partitions", "gauge", "partitions", "Input partitions in hand.", (), READERS),
    Metric(
        "lag_records",
        "gauge",
        "records",
        "Last stable offset less the position, by partition; transaction markers count.",
        ("topic", "partition"),
        READERS,
    ),
    Metric(
        "ticks", "counter", "records", "Ticks appended to silent partitions with open windows.", (), MERGE
    ),
    Metric("lost_records", "counter", "records", "Input lost and accepted by --accept-loss.", ("topic",)),
    Metric("origins_malformed", "counter", "records", "Records whose tt-origin could not be read: ignored."),
)
TASKS: Final = (
    Metric(
        "events_in", "counter", "events", "Rows of the batches taken, control rows apart.", (), EVERY_STAGE
    ),
    Metric("events_out", "counter", "events", "Rows written.", (), EVERY_STAGE),
    Metric("batches_in", "counter", "batches", "Batches, or parts of windows, taken.", ("family",)),
    Metric(
        "parts_lost",
        "counter",
        "parts",
        "Parts of windows of which another part was unreadable.",
        (),
        WINDOWED,
    ),
    Metric("deadlettered", "counter", "events", "Events that could not be used.", ("reason",), COUNTING),
    Metric(
        "unreadable",
        "counter",
        "records",
        "Input records that could not be read; events lost with them count as dead-lettered by the lake.",
        ("reason",),
        tuple(stage for stage in READERS if stage != "merge"),
    ),
    Metric(
        "late", "counter", "events", "Events that came after their window, or too early.", ("reason",), MERGE
    ),
    Metric(
        "duplicates", "counter", "events", "Events seen before (same sequence number): dropped.", (), MERGE
    ),
    Metric("gaps", "counter", "events", "Sequence numbers that never came.", (), MERGE),
    Metric("control_rows", "counter", "rows", "Control rows taken.", ("kind",), MERGE),
    Metric("losses", "counter", "events", "Events that a producer said it had to drop.", ("reason",), MERGE),
    Metric("windows", "counter", "windows", "Windows released.", (), WINDOWED),
    Metric("released_past", "counter", "sources", "Sources a window did not wait for.", ("reason",), MERGE),
    Metric("detached_rows", "counter", "events", "Rows placed by the log, not by time.", ("reason",), MERGE),
    Metric("edges", "counter", "edges", "Edges found.", ("kind", "verdict"), MERGE),
    Metric("inversions_raw", "counter", "edges", "Effect before cause as mapped.", ("kind",), MERGE),
    Metric("inversions_after", "counter", "edges", "Effect before cause by order_ns.", ("kind",), MERGE),
    Metric("edges_unrepaired", "counter", "edges", "Edges known after their effect had left.", (), MERGE),
    Metric("contradictions", "counter", "edges", "Edges given up because they form a cycle.", (), MERGE),
    Metric("unmatched", "counter", "endpoints", "Endpoints given up alone.", ("kind", "role"), MERGE),
    Metric("collectives_incomplete", "counter", "operations", "Collectives with members missing.", (), MERGE),
    Metric(
        "collectives_unknown",
        "counter",
        "operations",
        "Collectives without edges: operation or root unknown.",
        (),
        MERGE,
    ),
    Metric(
        "watermark_ns", "gauge", "ns", "Least time (TAI) up to which a scope is out.", (), WINDOWED, "min"
    ),
    Metric("clock_epochs", "counter", "epochs", "Steps, jumps and resets found in clock samples.", (), MERGE),
    Metric(
        "clocks_decided",
        "counter",
        "states",
        "Clock states made from samples, in place of a claim.",
        (),
        MERGE,
    ),
    Metric("claims_widened", "counter", "states", "Stated bounds that a sample contradicts.", (), MERGE),
    Metric("scopes_closed", "counter", "scopes", "Scopes whose sources are all final.", (), MERGE),
    Metric("scopes_dropped", "counter", "scopes", "Scopes silent for their time to live.", (), MERGE),
    Metric("rows_held", "gauge", "rows", "Rows of open windows.", (), WINDOWED),
    Metric("scopes", "gauge", "scopes", "Scopes with state.", (), WINDOWED),
    Metric("sources", "gauge", "sources", "Sources with state.", (), MERGE),
    Metric("hops", "counter", "hops", "Hops taken from INT rows.", (), PATHS),
    Metric("flows", "counter", "flows", "Flow records written.", (), PATHS),
    Metric("path_changes", "counter", "flows", "Flows seen on another path than before.", (), PATHS),
    Metric("links", "counter", "links", "Link loads written.", (), PATHS),
    Metric("imbalance_rows", "counter", "rows", "Layers and groups whose imbalance was written.", (), PATHS),
    Metric(
        "imbalance_skipped",
        "counter",
        "flows",
        "Flows left out of their window's imbalance: no addresses, gaps in paths, paths that contradict, too many.",
        ("reason",),
        PATHS,
    ),
    Metric("findings", "counter", "findings", "Findings written.", ("fault_class", "state"), DIAGNOSIS),
    Metric("rows_written", "counter", "rows", "Rows written to the lake.", ("table",), LAKE),
    Metric("units", "counter", "units", "Units committed to the lake.", (), LAKE),
    Metric("incidents", "counter", "changes", "Changes of incidents.", ("state",), INCIDENTS),
    Metric(
        "findings_skipped",
        "counter",
        "findings",
        "Findings that changed nothing: applied before, or the end of a fault that is not open.",
        (),
        INCIDENTS,
    ),
    Metric("alerts", "counter", "alerts", "Alerts sent.", ("sink", "result"), ALERTS),
)
DERIVED: Final = (
    Metric(
        "watermark_age_seconds", "gauge", "s", "Wall time less watermark_ns, at the scrape.", (), WINDOWED
    ),
    Metric("uptime_seconds", "gauge", "s", "Time since the process started its stage.", (), READERS),
)
PRODUCERS: Final = (
    Metric("produced_events", "counter", "events", "Events handed to Kafka.", ("family",), PRODUCE),
    Metric("produced_batches", "counter", "batches", "Batches handed to Kafka.", ("family",), PRODUCE),
    Metric("skipped", "counter", "items", "Input that was not used.", ("reason",), PRODUCE),
    Metric("spool_bytes", "gauge", "B", "Bytes that wait in the spool.", (), PRODUCE),
    Metric(
        "spool_dropped", "counter", "events", "Events for which the spool had no room.", ("reason",), PRODUCE
    ),
    Metric(
        "heartbeats_skipped",
        "counter",
        "batches",
        "Heartbeats left out because many batches waited in the spool.",
        (),
        PRODUCE,
    ),
    Metric("acked_events", "counter", "events", "Events that the brokers acknowledged.", (), PRODUCE),
)
METRICS: Final[Mapping[str, Metric]] = {
    metric.name: metric for metric in (*RUNNER, *TASKS, *DERIVED, *PRODUCERS)
}
assert len(METRICS) == len((*RUNNER, *TASKS, *DERIVED, *PRODUCERS)), "a metric is listed twice"
_KINDS: Final = tuple(kind.name.lower() for kind in EdgeKind)
_REASONS: Final = (("malformed",), ("unknown_schema",))
# Series that a stage shows as 0 before they count, so that an alert can tell none from not there. Where the values of
# labels come from the input (topics, families, tables) there is no such list.
LABEL_VALUES: Final[Mapping[str, tuple[tuple[str, ...], ...]]] = {
    "deadlettered": _REASONS,
    "unreadable": _REASONS,
    "late": (("late",), ("future",), ("closed",)),
    "released_past": (("idle",), ("detached",), ("flush",), ("join",)),
    "detached_rows": (("skew",),),
    "control_rows": tuple((kind.name.lower(),) for kind in Control),
    "edges": tuple((kind, verdict.name.lower()) for kind in _KINDS for verdict in Verdict),
    "inversions_raw": tuple((kind,) for kind in _KINDS),
    "inversions_after": tuple((kind,) for kind in _KINDS),
    "unmatched": tuple((kind, role) for kind in _KINDS for role in ("cause", "effect")),
    "imbalance_skipped": tuple((reason,) for reason in ("flows", "fabric", "paths", "addresses", "gaps")),
    "findings": tuple(
        (fault, state) for fault in ("straggler", "clock_fault") for state in ("present", "absent")
    ),
    "incidents": (("open",), ("update",), ("resolve",)),
    "alerts": (("lines", "written"),),
}


def zeros(stage: str) -> dict[str, Value]:
    """Counters of a stage before anything was counted: those without labels, and the series of LABEL_VALUES."""
    out: dict[str, Value] = {}
    for metric in METRICS.values():
        if metric.kind == "counter" and stage in metric.stages:
            if not metric.labels:
                out[metric.name] = 0
            elif metric.name in LABEL_VALUES:
                out[metric.name] = dict.fromkeys(LABEL_VALUES[metric.name], 0)
    return out


def check(counters: Mapping[str, Value], stage: str | None = None) -> list[str]:
    """What is wrong with counters: unknown names, labels of another number, a metric of another stage."""
    wrong = []
    for name, value in counters.items():
        metric = METRICS.get(name)
        if metric is None:
            wrong.append(f"{name} is not in schemas.metrics")
            continue
        if stage is not None and stage in READERS and stage not in metric.stages:
            wrong.append(f"{name} is not listed for stage {stage}")
        keys: Iterable[tuple[str, ...]] = value.keys() if isinstance(value, Mapping) else [()]
        wrong += [
            f"{name} has labels {metric.labels}, not values {key!r}"
            for key in keys
            if len(key) != len(metric.labels)
        ]
    return wrong


def page() -> str:
    """Text of docs/metrics.md."""
    lines = [
        "# Metrics",
        "",
        "Made from `schemas/metrics.py` by `python -m schemas.metrics`. Every stage serves `/metrics`,",
        "`/healthz` and `/readyz` on a free loopback port, which it writes to",
        "`TEMPOTRACE_HOME/stages/<tenant>-<stage>-<instance>.json`. All metrics carry the labels `tenant`,",
        "`stage` and `instance`, then their own.",
        "",
        "Counters without labels, those by reason, kind, verdict, role or state, and `commit_seconds` are 0 from the",
        "start; series of topics, partitions, families and tables, and gauges, appear once there is something to say.",
        "",
    ]
    stages = list(dict.fromkeys(stage for metric in METRICS.values() for stage in metric.stages))
    for stage in stages:
        lines += [f"## {stage}", "", "| metric | kind | unit | labels | meaning |", "|---|---|---|---|---|"]
        lines += [
            f"| `{m.exported}` | {m.kind} | {m.unit} | {', '.join(m.labels)} | {m.meaning} |"
            for m in METRICS.values()
            if stage in m.stages
        ]
        lines.append("")
    return "\n".join(lines)


def main() -> None:
    """Write the page."""
    target = Path(__file__).resolve().parent.parent / "docs" / "metrics.md"
    target.parent.mkdir(exist_ok=True)
    target.write_text(page())


if __name__ == "__main__":
    main()
