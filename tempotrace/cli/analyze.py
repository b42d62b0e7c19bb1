"""`tempotrace analyze`: merge and diagnose files at once, without Kafka."""

import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.progress import Progress, SpinnerColumn, TextColumn
from rich.table import Table

from tempotrace import told
from tempotrace.analyze import analyze as run
from tempotrace.cli.options import DEFAULT_TENANT, Json, Tenant, emit, one_scope
from tempotrace.cli.options import console as plain_console
from tempotrace.cli.produce_gpu import clock_bound_ns as bound_ns
from tempotrace.cli.produce_gpu import clock_offsets_ns
from tempotrace.inputs import Choices
from tempotrace.told import counted

app = typer.Typer()


@app.command()
def analyze(
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE...", help="Profiler traces (or a folder of them), clock logs, captures."
        ),
    ],
    tenant: Tenant = DEFAULT_TENANT,
    scope: Annotated[
        str,
        typer.Option("--scope", metavar="NAME", help="The job that all of it is about.", callback=one_scope),
    ] = "files",
    host: Annotated[
        str | None, typer.Option("--host", metavar="NAME", help="Host that the files are of.")
    ] = None,
    clock_bound: Annotated[
        str | None,
        typer.Option("--clock-bound", metavar="TIME", help="Claim that ranks' clocks are that close to TAI."),
    ] = None,
    clock_offset: Annotated[
        list[str] | None,
        typer.Option("--clock-offset", metavar="RANK=TIME", help="Move all stamps of a rank, for trials."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Merge and diagnose files at once, without Kafka.

    Example: tempotrace analyze trace_rank*.json.gz ptp4l.log --clock-bound 1us
    """
    choices = Choices(
        tenant=tenant,
        scope=scope,
        host=host,
        clock_bound_ns=None if clock_bound is None else bound_ns(clock_bound),
        clock_offset_ns=clock_offsets_ns(clock_offset or []),
    )
    console = plain_console(stderr=True)
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TextColumn("{task.completed:,.0f} events"))
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("reading", total=None)
        result = run(
            files, choices, lambda events, what: bar.update(task, completed=events, description=what)
        )
    for entry in result["inputs"]:
        for line in entry["warnings"]:
            print(f"tempotrace: {line}", file=sys.stderr)
    emit(result, as_json, lambda: show(result))


def show(result: dict[str, Any]) -> None:
    """The result for people."""
    console = plain_console()
    console.print(
        f"{counted(result['events'], 'event')} read, {result['rows']:,} merged in "
        f"{counted(result['windows'], 'window')}, {result['late']:,} late, {result['deadlettered']:,} "
        f"dead-lettered; {counted(result['deadletters'], 'dead letter')}."
    )
    if result["edges"]:
        console.print(_edges(result))
    for line in told.unmatched(result["inputs"], result["collectives_incomplete"]):
        console.print(line)
    if result["longest_waits"]:
        console.print(told.waits(result["longest_waits"]))
    if clocks := told.all_clocks(result):
        console.print(told.clocks(clocks))
    if result["flows"]:
        console.print(f"{counted(result['flows'], 'flow record')}, one for each flow in each window.")
    if not result["incidents"]:
        console.print("No incident found.")
    traces = told.traces(result["inputs"])
    for incident in result["incidents"]:
        console.print(
            f"[bold]{incident['fault_class']}[/bold] {escape(told.component(incident['component'], traces))}, "
            f"confidence {incident['confidence']:.2f}: {told.why(incident['evidence'])}"
        )


def _edges(result: dict[str, Any]) -> Table:
    table = Table("edge", "proven", "inferred", "violated", "inverted as read", "after repair", "unmatched")
    for kind, counts in sorted(result["edges"].items()):
        lost = ", ".join(
            counted(count, side) for side, count in sorted(result["unmatched"].get(kind, {}).items())
        )
        table.add_row(
            kind,
            *(f"{counts.get(verdict, 0):,}" for verdict in ("proven", "inferred", "violated")),
            f"{result['inversions_raw'].get(kind, 0):,}",
            f"{result['inversions_after'].get(kind, 0):,}",
            lost or "0",
        )
    return table
