"""`tempotrace sink`: what leaves the log for people and other programs."""

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from schemas import topics
from schemas.errors import Usage
from tempotrace.cli.options import (
    DEFAULT_LAKE,
    DEFAULT_TENANT,
    AcceptLoss,
    Bootstrap,
    Drain,
    Instance,
    Json,
    KafkaProperties,
    Lake,
    Tenant,
    connect,
    emit,
)

app = typer.Typer(help="Write the lake, send alerts.\n\nExample: tempotrace sink lake --drain")

# A unit is cut after so many seconds, or so many bytes of Arrow tables (about a million events).
UNIT_SECONDS = 2.0
UNIT_BYTES = 192 * 1024 * 1024


@app.callback()
def _group() -> None:
    """A callback keeps this a group whatever it holds."""


@app.command()
def lake(
    drain: Drain = False,
    tenant: Tenant = DEFAULT_TENANT,
    folder: Lake = DEFAULT_LAKE,
    instance: Instance = 0,
    accept_loss: AcceptLoss = False,
    bootstrap: Bootstrap = None,
    kafka_properties: KafkaProperties = None,
    as_json: Json = False,
) -> None:
    """Write a tenant's topics into Parquet tables with SQL views, every row once.

    Example: tempotrace sink lake --drain && tempotrace sql "FROM rank_waits()"
    """
    from sinks import views
    from sinks.lake import TABLES_OF, LakeProcessor
    from sinks.units import LakeOutlet, TopicId
    from tempotrace.runtime.kafka_log import KafkaLog
    from tempotrace.runtime.meters import Meters
    from tempotrace.runtime.runner import RunnerSettings
    from tempotrace.runtime.stage import run_stage

    settings = connect(bootstrap, kafka_properties)
    committed = [0]

    def outlet(log: KafkaLog, meters: Meters) -> LakeOutlet:
        def count() -> None:
            committed[0] += 1
            meters.add("units", 1)

        def topic(suffix: str) -> TopicId:
            return TopicId(topics.topic(tenant, suffix), log.topic_id(suffix))

        views.prepare(folder)  # not before the topics are known to be there
        return LakeOutlet(folder, tenant, topic, TABLES_OF, on_unit=count)

    counted = run_stage(
        LakeProcessor(tenant),
        settings.kafka,
        tenant,
        instance,
        settings.stages,
        RunnerSettings(
            drain=drain,
            accept_loss=accept_loss,
            commits_for_lag=True,
            commit_after=UNIT_SECONDS,
            commit_idle_after=UNIT_SECONDS,
            bytes_per_commit=UNIT_BYTES,
        ),
        make_outlet=outlet,
    )
    result = {"lake": str(folder.resolve()), "units": committed[0], **_lake_result(counted)}
    emit(
        result,
        as_json,
        lambda: print(
            f"{result['lake']}: {result['units']} units, "
            + (", ".join(f"{table} {rows:,}" for table, rows in result["rows"].items()) or "nothing new")
        ),
    )


@app.command()
def alerts(
    drain: Drain = False,
    to: Annotated[Path | None, typer.Option("--to", metavar="FILE", help="A file to append to.")] = None,
    tenant: Tenant = DEFAULT_TENANT,
    instance: Instance = 0,
    accept_loss: AcceptLoss = False,
    bootstrap: Bootstrap = None,
    kafka_properties: KafkaProperties = None,
    as_json: Json = False,
) -> None:
    """Write one JSON line for each incident that opens or is resolved.

    A restart goes on where the last run to the same target ended. Times are ns TAI.

    Example: tempotrace sink alerts --to alerts.jsonl
    """
    from sinks.alerts import AlertProcessor, alert_id
    from sinks.lines import LinesOutlet
    from tempotrace.runtime.kafka_log import KafkaLog
    from tempotrace.runtime.meters import Meters
    from tempotrace.runtime.runner import RunnerSettings
    from tempotrace.runtime.stage import run_stage

    if as_json and to is None:
        raise Usage("--json needs --to FILE: without it stdout is where the alerts go")
    settings = connect(bootstrap, kafka_properties)
    name = f"alerts-{tenant}-{instance}.json"
    state = settings.home / name if to is None else to.with_name(f".{to.name}.{name}")
    sent = [0]

    def outlet(log: KafkaLog, meters: Meters) -> LinesOutlet:
        def count() -> None:
            sent[0] += 1
            meters.add("alerts", 1, "lines", "written")

        return LinesOutlet(to or sys.stdout, state, alert_id, on_line=count)

    run_stage(
        AlertProcessor(tenant),
        settings.kafka,
        tenant,
        instance,
        settings.stages,
        RunnerSettings(drain=drain, accept_loss=accept_loss, commits_for_lag=True),
        make_outlet=outlet,
    )
    emit(
        {"alerts": sent[0], "to": str(to)},
        as_json,
        lambda: print(f"{sent[0]} alerts", file=sys.stderr),
    )


def _lake_result(counted: dict[str, Any]) -> dict[str, Any]:
    """What --json tells of a run: rows by table, records that could not be read, events lost with them."""
    rows = {labels[0]: count for labels, count in sorted(dict(counted.get("rows_written", {})).items())}
    unread = {labels[0]: count for labels, count in sorted(dict(counted.get("unreadable", {})).items())}
    lost = sum(dict(counted.get("deadlettered", {})).values())
    return {"events": rows.get("events", 0), "rows": rows, "deadlettered": lost, "unreadable": unread}
