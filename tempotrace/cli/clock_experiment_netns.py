"""`tempotrace clock experiment netns`: clock daemons measured for real, here or on hosts."""

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from schemas.errors import Usage
from schemas.time import format_ns
from tempotrace.cli.options import Json, emit
from tempotrace.cli.options import console as plain_console


def register(app: typer.Typer) -> None:
    """Add the command to the group `clock experiment`."""
    app.command(
        "netns",
        help="Measure ptp4l and chronyd on this machine, in network namespaces (needs root), and fit laws of error. "
        "No clock is set, nothing stays.\n\nExample: sudo tempotrace clock experiment netns --nodes 5 --plot n.html",
    )(netns)


def netns(
    nodes: Annotated[
        int, typer.Option("--nodes", metavar="N", min=2, max=64, help="Namespaces, the master among them.")
    ] = 5,
    seconds: Annotated[
        int, typer.Option("--seconds", metavar="S", min=10, max=3600, help="Measured for, under each load.")
    ] = 60,
    idle_only: Annotated[
        bool, typer.Option("--idle-only", help="Leave out the second run, with queues on the odd nodes' way in.")
    ] = False,
    hosts: Annotated[
        str | None,
        typer.Option(
            "--hosts", metavar="A,B,...",
            help="Measure between these hosts over ssh instead, the first as master. No traffic is made.",
        ),
    ] = None,
    plot: Annotated[
        Path | None, typer.Option("--plot", metavar="FILE", help="Draw the fits: a .png or .html file.")
    ] = None,
    as_json: Json = False,
) -> None:  # fmt: skip
    """Run the nodes, read what they wrote, fit."""
    from tempotrace import chart
    from tempotrace.netlab import report, run

    if plot is not None:
        chart.check_name(plot)

    def say(text: str) -> None:
        print(text, file=sys.stderr)

    if hosts is not None:
        if idle_only:
            raise Usage("--idle-only is for namespaces: no load is made on hosts")
        found, caveat = run.hosts(hosts.split(","), seconds, say), report.HOSTS_CAVEAT
    else:
        loads = ("idle",) if idle_only else ("idle", "congested")
        found, caveat = run.namespaces(nodes, loads, seconds, say), report.NAMESPACES_CAVEAT
    result, charts = report.summarise(found, caveat)
    result = {"seconds": seconds, "nodes": len({each.node for each in found})} | result
    for warning in result["warnings"]:
        say(warning)
    if plot is not None:
        result["plot"] = str(chart.write(plot, "Clock daemons, measured", charts))
    emit(result, as_json, lambda: _show(result))


def _show(result: dict[str, Any]) -> None:
    from rich.table import Table

    console = plain_console()
    table = Table(
        "load", "series", "node", "samples", "median", "σ", "p99 of |x|", "AIC Gauss", "Laplace", "Student-t (ν)",
        "best", "corr.", title="Offset from the master",
    )  # fmt: skip
    for row in result["series"]:
        laws = row["laws"]
        least = min(law["aic"] for law in laws.values())
        aic = [f"+{laws[name]['aic'] - least:.0f}" for name in ("gauss", "laplace", "student")]
        amounts = [format_ns(round(row[name])) for name in ("median_ns", "deviation_ns", "p99_abs_ns")]
        table.add_row(
            row["load"], row["series"], row["node"], f"{row['samples']:,}", *amounts, aic[0], aic[1],
            f"{aic[2]} ({laws['student']['nu']:.1f})", row["best"], f"{row['correlation']:.2f}",
        )  # fmt: skip
    console.print(table)
    table = Table(
        "load", "series", "gap", "measured", "Gauss", "Laplace", title="Pairs that such errors invert, %"
    )
    for row in result["inverted"]:
        shares = [f"{row[name]:.2f}" for name in ("measured", "gauss", "laplace")]
        table.add_row(row["load"], row["series"], format_ns(row["gap_ns"]), *shares)
    console.print(table)
    console.print(result["note"], markup=False, highlight=False)
    if "plot" in result:
        console.print(f"drawn: {result['plot']}", markup=False, highlight=False)
    console.print(result["caveat"], markup=False, highlight=False, style="bold")
