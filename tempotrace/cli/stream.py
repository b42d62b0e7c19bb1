"""`tempotrace stream`: run one stage of the pipeline."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from schemas.metrics import Number, Value
from schemas.processor import Processor
from schemas.time import parse_duration_ns
from tempotrace import wiring
from tempotrace.cli import stream_incidents
from tempotrace.cli.options import (
    DEFAULT_TENANT,
    AcceptLoss,
    Bootstrap,
    Codec,
    Compression,
    Drain,
    Instance,
    Json,
    KafkaProperties,
    Tenant,
    connect,
    emit,
)
from tempotrace.runtime.runner import RunnerSettings
from tempotrace.runtime.stage import run_stage
from tempotrace.settings import Settings
from tempotrace.told import counted

app = typer.Typer(help="Run a stage until stopped, or with --drain to the end of the log.")


@app.command()
def merge(
    window: Annotated[
        str | None, typer.Option("--window", metavar="TIME", help="Length of a window (100ms).")
    ] = None,
    drain: Drain = False,
    tenant: Tenant = DEFAULT_TENANT,
    instance: Instance = 0,
    accept_loss: AcceptLoss = False,
    compression: Compression = "none",
    bootstrap: Bootstrap = None,
    kafka_properties: KafkaProperties = None,
    as_json: Json = False,
) -> None:
    """Bring a tenant's events into causal order, window by window.

    Example: tempotrace stream merge --drain --json
    """
    processor = wiring.merge(tenant, None if window is None else parse_duration_ns(window))
    settings = RunnerSettings(drain=drain, accept_loss=accept_loss, ticks=True)
    counters = _run(processor, connect(bootstrap, kafka_properties), tenant, instance, settings, compression)
    result = merge_result(counters)

    def human() -> None:
        print(
            f"{counted(result['events_in'], 'event')} in, {result['events_out']:,} out in "
            f"{counted(result['windows'], 'window')}; {result['late']:,} late, "
            f"{counted(result['duplicates'], 'duplicate')}, "
            f"{result['deadlettered']:,} dead-lettered"
        )
        for kind, verdicts in result["edges"].items():
            print(f"{kind} edges: " + ", ".join(f"{n:,} {verdict}" for verdict, n in verdicts.items()))

    emit(result, as_json, human)


@app.command()
def paths(
    drain: Drain = False,
    tenant: Tenant = DEFAULT_TENANT,
    instance: Instance = 0,
    accept_loss: AcceptLoss = False,
    compression: Compression = "none",
    bootstrap: Bootstrap = None,
    kafka_properties: KafkaProperties = None,
    switches: Annotated[
        Path | None,
        typer.Option("--switches", metavar="FILE", help="What switches count in, as in `7: bmv2` (YAML)."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Follow flows over the fabric, load its links, and say how evenly flows spread.

    Example: tempotrace stream paths --tenant fabric --drain
    """
    settings = RunnerSettings(drain=drain, accept_loss=accept_loss)
    counters = _run(
        wiring.paths(tenant, switches),
        connect(bootstrap, kafka_properties),
        tenant,
        instance,
        settings,
        compression,
    )
    result = {name: total(counters, name) for name in ("events_in", "windows", "hops", "flows", "links")}
    result["unreadable"] = total(counters, "unreadable")
    emit(result, as_json, lambda: print(_sentence(result)))


@app.command()
def diagnose(
    drain: Drain = False,
    tenant: Tenant = DEFAULT_TENANT,
    instance: Instance = 0,
    accept_loss: AcceptLoss = False,
    compression: Compression = "none",
    bootstrap: Bootstrap = None,
    kafka_properties: KafkaProperties = None,
    as_json: Json = False,
) -> None:
    """Name stragglers and faulty clocks, with the evidence.

    Example: tempotrace stream diagnose --drain
    """
    settings = RunnerSettings(drain=drain, accept_loss=accept_loss)
    counters = _run(
        wiring.diagnosis(tenant),
        connect(bootstrap, kafka_properties),
        tenant,
        instance,
        settings,
        compression,
    )
    result = {name: total(counters, name) for name in ("events_in", "windows", "unreadable", "findings")}
    findings = {"/".join(labels): count for labels, count in table(counters, "findings").items()}
    emit({**result, "by_class": findings}, as_json, lambda: print(_sentence(result)))


stream_incidents.register(app)


def _run(
    processor: Processor,
    settings: Settings,
    tenant: str,
    instance: int,
    how: RunnerSettings,
    compression: Codec,
) -> dict[str, Value]:
    return run_stage(
        processor, settings.kafka, tenant, instance, settings.stages, how, compression=compression
    )


def merge_result(counters: Mapping[str, Value]) -> dict[str, Any]:
    """What `stream merge --json` prints, from the stage's counters."""
    edges: dict[str, dict[str, Number]] = {}
    for (kind, verdict), count in table(counters, "edges").items():
        edges.setdefault(kind, {})[verdict] = count
    unmatched: dict[str, dict[str, Number]] = {}
    for (kind, role), count in table(counters, "unmatched").items():
        unmatched.setdefault(kind, {})[role] = count
    plain = ("events_in", "events_out", "duplicates", "gaps", "late", "deadlettered", "windows")
    return {
        **{name: total(counters, name) for name in plain},
        "late_by_reason": by_label(counters, "late"),
        "deadlettered_by_reason": by_label(counters, "deadlettered"),
        "released_past": by_label(counters, "released_past"),
        "inversions_raw": by_label(counters, "inversions_raw"),
        "inversions_after": by_label(counters, "inversions_after"),
        "edges": edges,
        "edges_unrepaired": total(counters, "edges_unrepaired"),
        "unmatched": unmatched,
        "collectives_incomplete": total(counters, "collectives_incomplete"),
    }


def table(counters: Mapping[str, Value], name: str) -> Mapping[tuple[str, ...], Number]:
    """A metric's numbers by its labels; empty if nothing was counted."""
    value = counters.get(name, {})
    return value if isinstance(value, Mapping) else {(): value}


def total(counters: Mapping[str, Value], name: str) -> Number:
    """A metric's numbers added up over its labels."""
    return sum(table(counters, name).values())


def by_label(counters: Mapping[str, Value], name: str) -> dict[str, Number]:
    """A metric with one label, by its value."""
    return {label: count for (label,), count in table(counters, name).items()}


def _sentence(result: Mapping[str, Number]) -> str:
    return ", ".join(f"{count:,} {name.replace('_', ' ')}" for name, count in result.items())
