"""`tempotrace clock experiment misorder`: how many pairs stamps put the wrong way round."""

from pathlib import Path
from typing import Annotated, Any

import typer

from tempotrace.cli.options import Json, emit
from tempotrace.cli.options import console as plain_console
from tempotrace.clockwork import seeded


def register(app: typer.Typer) -> None:
    """Add the command to the group `clock experiment`."""
    app.command(
        "misorder",
        help="The paper's shares of inverted pairs beside ours: by formula, by drawing, and what was calibrated "
        "to what.\n\nExample: tempotrace clock experiment misorder --plot misorder.html",
    )(misorder)


def misorder(
    samples: Annotated[
        int, typer.Option("--samples", metavar="N", min=1000, max=10**9, help="Pairs drawn for each row.")
    ] = 1_000_000,
    seed: Annotated[int, typer.Option("--seed", metavar="N", min=0, help="Decides the drawings.")] = 1,
    plot: Annotated[
        Path | None, typer.Option("--plot", metavar="FILE", help="Draw the curves: a .png or .html file.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Print the rows."""
    from tempotrace import chart, misorder_cases

    if plot is not None:
        chart.check_name(plot)
    result = {"seed": seed} | misorder_cases.run(samples, seeded(seed))
    if plot is not None:
        title = "How often stamps invert two events"
        result["plot"] = str(chart.write(plot, title, misorder_cases.charts()))
    emit(result, as_json, lambda: _show(result))


def _show(result: dict[str, Any]) -> None:
    from rich.table import Table

    console = plain_console()
    table = Table(
        "case",
        "published",
        "formula",
        "drawn",
        "calibrated to",
        title=f"Inverted pairs, % ({result['source']})",
    )
    for row in result["rows"]:
        published = "" if row["published"] is None else f"{row['published']:g}"
        drawn = f"{row['monte_carlo']:.3f} ± {row['monte_carlo_error']:.3f}"
        table.add_row(row["case"], published, f"{row['closed_form']:.3f}", drawn, row["calibrated_to"])
    console.print(table)
    kept = [row for row in result["rows"] if row["parameters"]["errors"] == "persistent"]
    table = Table(
        "gaps", "spread over pairs", "inverted again, if once", title="Errors that each clock keeps, %"
    )
    for row in kept:
        own = row["parameters"]
        spread = f"{own['deviation_over_pairs']:.2f} (drawn {own['deviation_over_pairs_drawn']:.2f})"
        table.add_row(own["gap_law"], spread, f"{own['inverted_again']:.2f}")
    console.print(table)
    names = ("gauss", "laplace", "student_5", "student_3")
    table = Table("inverted at most", *names, title="Gap needed, in σ of one clock (equal clocks)")
    for row in result["needed"]:
        table.add_row(f"{row['share']:g}", *(f"{row[name]:.2f}" for name in names))
    console.print(table)
    table = Table("gap", "inverted at most", *names, title="Greatest σ of each clock, ns")
    for row in result["quality"]:
        gap = f"{row['gap_ns'] / 1000:g} µs"
        table.add_row(gap, f"{row['share']:g}", *(f"{row[name]:,.0f}" for name in names))
    console.print(table)
    for claim in result["claims"]:
        console.print(f"- {claim}", markup=False, highlight=False)
    if "plot" in result:
        console.print(f"drawn: {result['plot']}", markup=False, highlight=False)
