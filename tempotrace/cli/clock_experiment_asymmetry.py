"""`tempotrace clock experiment asymmetry`: in-band telemetry against asymmetric paths, on a simulated fabric."""

from pathlib import Path
from typing import Annotated, Any

import typer

from tempotrace.cli.options import Json, emit
from tempotrace.cli.options import console as plain_console
from tempotrace.clockwork import seeded


def register(app: typer.Typer) -> None:
    """Add the command to the group `clock experiment`."""
    app.command(
        "asymmetry",
        help="Correct two-way offsets by residence times, and blame the link that became slower: a simulated fabric "
        "with ECMP and queues.\n\nExample: tempotrace clock experiment asymmetry --trials 2000",
    )(asymmetry)


def asymmetry(
    trials: Annotated[
        int,
        typer.Option("--trials", metavar="N", min=10, max=1_000_000, help="Trials for each curve of blame."),
    ] = 2000,
    seed: Annotated[
        int, typer.Option("--seed", metavar="N", min=0, help="Decides what falls by chance.")
    ] = 1,
    plot: Annotated[
        Path | None, typer.Option("--plot", metavar="FILE", help="Draw the curves: a .png or .html file.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Run the trials."""
    from rich.progress import Progress

    from tempotrace import asymmetry_trial, chart

    if plot is not None:
        chart.check_name(plot)
    with Progress(console=plain_console(stderr=True), transient=True) as progress:
        task = progress.add_task("trials", total=len(asymmetry_trial.SHARES) * trials)
        result = {"seed": seed} | asymmetry_trial.run(trials, seeded(seed), lambda: progress.advance(task))
    if plot is not None:
        drawn = chart.write(plot, "Which link became slower (simulated)", asymmetry_trial.charts(result))
        result["plot"] = str(drawn)
    emit(result, as_json, lambda: _show(result))


def _show(result: dict[str, Any]) -> None:
    from rich.table import Table

    console = plain_console()
    fabric = result["fabric"]
    console.print(
        f"Simulated: {fabric['leaves']} leaves, {fabric['spines']} spines, {fabric['hosts']} hosts, ticks of "
        f"{result['tick_ns']} ns"
    )
    table = Table(
        "packets matched", "before", "after, matched", "after, estimated", "limit", "its bound holds",
        title="95 % of two-way errors are below, ns",
    )  # fmt: skip
    for row in result["correction"]:
        after = [
            "" if row[name] is None else f"{row[name]:,.0f}"
            for name in ("matched_p95_ns", "estimated_p95_ns")
        ]
        table.add_row(
            f"{100 * row['share_matched']:.0f} %", f"{row['before_p95_ns']:,.0f}", *after,
            f"{row['limit_ns']:,.0f}", f"{100 * row['bound_holds']:.2f} %",
        )  # fmt: skip
    console.print(table)
    for each in result["blame"]:
        table = Table(
            "extra delay / σ of a queue", "right class", "lower 95 %", "wrong class", "none blamed",
            title=f"{100 * each['share_matched']:.0f} % of packets matched, {each['trials']:,} trials",
        )  # fmt: skip
        for row in each["curve"]:
            shares = [
                f"{100 * row[name]:.2f} %" for name in ("class_hit", "class_hit_lower95", "wrong", "silent")
            ]
            table.add_row(f"{row['times_queue_sigma']:g}", *shares)
        console.print(table)
        console.print(
            f"without a fault ({each['faultless']:,} trials): {100 * each['false_blame']:.2f} % blamed, upper 95 % "
            f"{100 * each['false_blame_upper95']:.2f} %"
        )
    wide = [each for each in result["classes"] if each["size"] > 1]
    console.print(
        f"{len(result['classes'])} classes of links; {len(wide)} of more than one link, such as "
        f"{' and '.join(wide[0]['links'])}: {wide[0]['why']}" if wide else "every link is a class of its own"
    )  # fmt: skip
    console.print(
        f"paper: {100 * result['published_class_hit']:.1f} % attributed rightly, conditions not given"
    )
    if "plot" in result:
        console.print(f"drawn: {result['plot']}", markup=False, highlight=False)
