"""`tempotrace stream incidents`: keep incidents from findings."""

from typing import Any

import typer

from schemas.metrics import Value
from tempotrace.cli.options import (
    DEFAULT_TENANT,
    AcceptLoss,
    Bootstrap,
    Drain,
    Instance,
    Json,
    KafkaProperties,
    Tenant,
    connect,
    emit,
)


def register(app: typer.Typer) -> None:
    """Add the command to the group `stream`."""
    app.command()(incidents)


def incidents(
    drain: Drain = False,
    tenant: Tenant = DEFAULT_TENANT,
    instance: Instance = 0,
    accept_loss: AcceptLoss = False,
    bootstrap: Bootstrap = None,
    kafka_properties: KafkaProperties = None,
    as_json: Json = False,
) -> None:
    """Open, update and resolve incidents as findings come.

    Example: tempotrace stream incidents --drain --json
    """
    # Faust takes a while to import: only where it is used.
    from tempotrace.runtime.incidents import run_incidents

    settings = connect(bootstrap, kafka_properties)
    counters = run_incidents(
        settings.kafka, tenant, instance, settings.home, drain=drain, accept_loss=accept_loss
    )
    result = totals(counters)
    emit(
        result,
        as_json,
        lambda: print(
            f"{result['findings_in']:,} findings, {result['incidents_open']:,} incidents opened, "
            f"{result['incidents_updated']:,} updated, {result['incidents_resolved']:,} resolved"
        ),
    )


def totals(counters: dict[str, Value]) -> dict[str, Any]:
    """What --json prints, from the service's counters."""

    def table(name: str) -> dict[tuple[str, ...], Any]:
        value = counters.get(name, {})
        return dict(value) if not isinstance(value, int | float) else {(): value}

    changes = {state: count for (state,), count in table("incidents").items()}
    return {
        "findings_in": sum(table("records_read").values()),
        "incidents_open": changes.get("open", 0),
        "incidents_updated": changes.get("update", 0),
        "incidents_resolved": changes.get("resolve", 0),
        "findings_skipped": sum(table("findings_skipped").values()),
        "findings_unreadable": sum(table("unreadable").values()),
    }
