"""`tempotrace analyze`: merge and diagnose files at once, without Kafka."""

import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn
from rich.table import Table

from schemas.time import format_ns
from tempotrace.analyze import analyze as run
from tempotrace.cli.options import DEFAULT_TENANT, Json, Tenant, emit, one_scope
from tempotrace.cli.options import console as plain_console
from tempotrace.cli.produce_gpu import clock_bound_ns as bound_ns
from tempotrace.cli.produce_gpu import clock_offsets_ns
from tempotrace.inputs import Choices

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
    console = Console(stderr=True)
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
        f"{result['events']:,} events read, {result['rows']:,} merged in {result['windows']:,} windows, "
        f"{result['late']:,} late, {result['deadlettered']:,} dead-lettered; "
        f"{result['deadletters']:,} dead letters."
    )
    if result["edges"]:
        table = Table(
            "edge", "proven", "inferred", "violated", "inverted as read", "after repair", "unmatched"
        )
        for kind, counts in sorted(result["edges"].items()):
            lost = ", ".join(
                f"{n:,} {side}s" for side, n in sorted(result["unmatched"].get(kind, {}).items())
            )
            table.add_row(
                kind,
                *(f"{counts.get(verdict, 0):,}" for verdict in ("proven", "inferred", "violated")),
                f"{result['inversions_raw'].get(kind, 0):,}",
                f"{result['inversions_after'].get(kind, 0):,}",
                lost or "0",
            )
        console.print(table)
    if result["longest_waits"]:
        table = Table("collective", "group", "members", "last to arrive", "waited longest", "for")
        for wait in result["longest_waits"]:
            table.add_row(
                wait["operation"],
                wait["group"],
                str(wait["members"]),
                wait["last_to_arrive"],
                wait["longest_wait"],
                format_ns(wait["longest_wait_ns"]),
            )
        console.print(table)
    if not result["incidents"]:
        console.print("No incident found.")
    for incident in result["incidents"]:
        console.print(
            f"[bold]{incident['fault_class']}[/bold] {incident['component']} "
            f"(confidence {incident['confidence']:.2f}): {_why(incident['evidence'])}"
        )


def _why(evidence: dict[str, Any]) -> str:
    low, high = evidence.get("offset_low_ns"), evidence.get("offset_high_ns")
    if low is not None or high is not None:
        ends = [format_ns(end) if end is not None else "?" for end in (low, high)]
        return (
            f"{evidence['verdict']}; ahead by {ends[0]} to {ends[1]}; {evidence['violated_edges']} edges in "
            f"{evidence['matches']} matches contradict its bound, with {len(evidence['peers'])} peers"
        )
    if "collectives_skewed" in evidence:
        return (
            f"a suspect: its ends are off by {format_ns(evidence['end_skew_mean_ns'])} in "
            f"{evidence['collectives_skewed']} of {evidence['collectives']} collectives"
        )
    return (
        f"last to arrive in {evidence['blamed']} of its last {evidence['collectives']} collectives "
        f"(by chance {evidence['expected_by_chance']}), costs the others {format_ns(evidence['cost_ns'])} each"
    )
