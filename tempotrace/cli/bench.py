"""`tempotrace bench`: what each stage takes, beside a bare copy through the same broker in the same run."""

import logging
from typing import Annotated

import typer
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from loadtest import machine, report
from loadtest.bench import (
    BATCH_EVENTS,
    EVENTS,
    PASSES,
    QUICK_EVENTS,
    QUICK_FABRIC_SECONDS,
    QUICK_FINDINGS,
    Plan,
    Run,
)
from loadtest.ground import existing_broker, own_broker
from tempotrace.cli.feed import stop_signals
from tempotrace.cli.options import Bootstrap, Compression, Json, KafkaProperties, connect, emit
from tempotrace.cli.options import console as plain_console
from tempotrace.clockwork import WallClock

app = typer.Typer()


@app.command()
def bench(
    events: Annotated[
        int | None, typer.Option("--events", metavar="N", help=f"Events of a pass ({EVENTS:,}).")
    ] = None,
    sources: Annotated[int, typer.Option("--sources", metavar="N", help="Sources of them.")] = 64,
    batch_events: Annotated[
        list[int] | None,
        typer.Option(
            "--batch-events",
            metavar="N",
            help=f"Most events of a batch; repeatable, the first is the main one ({BATCH_EVENTS[0]}, "
            f"{BATCH_EVENTS[1]}).",
        ),
    ] = None,
    passes: Annotated[
        int | None, typer.Option("--passes", metavar="N", help=f"Passes of each stage ({PASSES}).")
    ] = None,
    seed: Annotated[int, typer.Option("--seed", metavar="N", help="Of the simulation.")] = 1,
    compression: Compression = "none",
    quick: Annotated[
        bool, typer.Option("--quick", help=f"{QUICK_EVENTS:,} events, one size of batches, one pass.")
    ] = False,
    bootstrap: Bootstrap = None,
    kafka_properties: KafkaProperties = None,
    as_json: Json = False,
) -> None:
    """Measure each stage on prefilled events, beside a bare copy of the same events.

    Starts a broker of its own in a temporary folder, unless --bootstrap-servers or --kafka-properties names
    one; there it makes tenants of its own, and deletes them at the end.

    Example: tempotrace bench --events 2000000 --passes 5
    """
    sizes = tuple(batch_events or (BATCH_EVENTS[:1] if quick else BATCH_EVENTS))
    plan = Plan(
        events=(QUICK_EVENTS if quick else EVENTS) if events is None else events,
        sources=sources,
        batch_events=sizes,
        passes=(1 if quick else PASSES) if passes is None else passes,
        seed=seed,
        compression=compression,
        fabric_seconds=QUICK_FABRIC_SECONDS if quick else Plan.fabric_seconds,
        findings=QUICK_FINDINGS if quick else Plan.findings,
    )
    at_start = machine.facts()
    # Members that come and go are this command's normal life.
    logging.getLogger("tempotrace.runtime").setLevel(logging.WARNING)
    console = plain_console(stderr=True)
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with (
        stop_signals() as stop,
        Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar,
    ):
        task = bar.add_task("starting Apache Kafka", total=None)

        def say(text: str) -> None:
            bar.update(task, description=text)

        exists = bootstrap is not None or kafka_properties is not None
        place = existing_broker(connect(bootstrap, kafka_properties).kafka) if exists else own_broker()
        with place as ground:
            result = Run(plan, ground, WallClock(), stop, say).measure(at_start)
            say("clearing away")
    emit(result, as_json, lambda: report.show(result, plain_console()))
