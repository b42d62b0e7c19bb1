"""`tempotrace clock`: what is known of clocks."""

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from schemas.time import format_ns
from tempotrace.cli import clock_coverage, clock_experiment
from tempotrace.cli.options import Json, emit
from tempotrace.cli.options import console as plain_console
from tempotrace.used import require

app = typer.Typer(help="Check clock logs; experiments on order.")
app.add_typer(clock_experiment.app, name="experiment")


@app.callback()
def _group() -> None:
    """Check clock logs; experiments on order."""


@app.command()
def check(
    files: Annotated[
        list[Path], typer.Argument(metavar="FILE...", help="Logs, plain or gzip; - is standard input.")
    ],
    host: Annotated[
        str | None,
        typer.Option("--host", metavar="NAME", help="Host of the clocks, where the log names none."),
    ] = None,
    year: Annotated[
        int | None, typer.Option("--year", min=1970, max=2261, help="Year of stamps that have none.")
    ] = None,
    plot: Annotated[
        Path | None, typer.Option("--plot", metavar="FILE", help="Draw the offsets: a .png or .html file.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Say what logs of ptp4l, phc2sys, ts2phc, pmc, chrony and OpenShift's daemon hold of each clock.

    Offsets are clock − parent: positive is ahead. Bounds are claimed, by the formulae in
    streams/clock/estimate.py.

    Example: tempotrace clock check /var/log/ptp4l.log measurements.log.gz --plot clocks.html
    """
    from producers.host.logs import Options
    from tempotrace import clockplot
    from tempotrace.clockcheck import check as run

    result, series = run(files, Options(host=host, year=year))
    require(len(result["clocks"]), "logs", result["warnings"], result)
    for warning in result["warnings"]:
        print(warning, file=sys.stderr)
    if plot is not None:
        result["plot"] = {"file": str(plot), "clocks": clockplot.write(plot, series)}
    emit(result, as_json, lambda: _show(result))


def _show(result: dict[str, Any]) -> None:
    from rich.table import Table

    console = plain_console()
    table = Table("clock", "kind", "status", "samples", "offset", "bound", "parent")
    for entry in result["clocks"]:
        table.add_row(
            entry["clock"], entry["kind"], entry["status"], f"{entry['samples']:,}",
            _amount(entry["offset_ns"]), _amount(entry["bound_ns"]), ", ".join(entry["parents"]),
        )  # fmt: skip
    console.print(table)
    lines = result["lines"]
    console.print(
        f"{lines['total']:,} lines: {lines['parsed']:,} parsed, {lines['ignored']:,} say nothing of a clock, "
        f"{lines['unknown']:,} not understood"
    )
    for sample in lines["unknown_samples"]:
        console.print(f"  not understood: {sample}", markup=False, highlight=False)


def _amount(value: int | None) -> str:
    return "unknown" if value is None else format_ns(value)


clock_coverage.register(app)
