"""`tempotrace clock coverage`: how often stated bounds hold, where the truth is known."""

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from schemas.time import format_ns
from tempotrace.cli.options import Json, emit
from tempotrace.cli.options import console as plain_console


def register(app: typer.Typer) -> None:
    """Add the command to the group `clock`."""
    app.command()(coverage)


def coverage(
    intervals: Annotated[
        int, typer.Option("--intervals", min=1000, help="Independent intervals of each family.")
    ] = 2_000_000,
    history: Annotated[
        list[int] | None,
        typer.Option("--history", min=1, help="Calibration points before an event; may be repeated."),
    ] = None,
    noise: Annotated[
        float, typer.Option("--noise", min=0.0, max=10.0, help="Scale of measurement noise over the error's.")
    ] = 0.2,
    netns: Annotated[
        Path | None,
        typer.Option(
            "--netns",
            metavar="DIR",
            help="Measured exchanges: a folder with idle/ and congested/, each with ptp_raw_n<N>.csv.gz.",
        ),
    ] = None,
    paths: Annotated[int, typer.Option("--paths", min=1, help="Hidden paths on each measured series.")] = 100,
    seed: Annotated[int, typer.Option("--seed", min=0)] = 1,
    as_json: Json = False,
) -> None:
    """Count how often bounds of clock error hold: simulated families, and measured exchanges with a hidden path.

    The statistical bound (ε = 1e-4) holds for a family if the exact lower 95 % limit of its coverage is at least
    99.99 % and its mean width at most 1.5 × the oracle's quantile. Heavy tails need some two million intervals to
    show it. Hard bounds on the hidden paths must never miss. Exit 1 if either fails.

    Example: tempotrace clock coverage --history 10000
    """
    import numpy as np

    from tempotrace.coverage import hidden
    from tempotrace.coverage.intervals import family
    from tempotrace.coverage.laws import FAMILIES

    if netns is not None:
        hidden.files_of(netns)  # before the simulations, which take minutes
    generators = np.random.default_rng(seed).spawn(2)
    families = []
    for samples in history or [1_000, 10_000, 100_000]:
        for name in FAMILIES:
            families.append(family(name, samples, intervals, noise, generators[0]))
            print(f"{name}, history {samples:,}: done", file=sys.stderr)
    result: dict[str, Any] = {"seed": seed, "families": families}
    if netns is not None:
        result["netns"] = hidden.run(netns, paths, generators[1])
    held = [row["holds"] for row in families if "holds" in row]
    result["holds"] = all(held) and result.get("netns", {"holds": True})["holds"]
    emit(result, as_json, lambda: _show(result))
    if not result["holds"]:
        raise typer.Exit(1)


def _show(result: dict[str, Any]) -> None:
    from rich.table import Table

    console = plain_console()
    table = Table(
        "family", "history", "intervals", "misses", "lower 95 %", "width", "fbclock", "ClockBound",
        title="Simulated: coverage of the clock error at event times; widths over the oracle's 1 - 1e-4 quantile",
    )  # fmt: skip
    for row in result["families"]:
        if row["mode"] == "hard":
            continue
        others = [row["others"][name] for name in ("fbclock", "clockbound")]
        table.add_row(
            row["family"], f"{row['history']:,}", f"{row['intervals']:,}",
            f"{row['misses']:,}", f"{100 * row['coverage_limit']:.4f} %",
            f"{row['width']:.2f} (median {row['width_median']:.2f})",
            *(f"{100 * other['coverage']:.2f} % at {other['width']:.2f}" for other in others),
        )  # fmt: skip
    if table.row_count:
        console.print(table)
    for row in result["families"]:
        if row["mode"] == "hard":
            console.print(f"{row['family']}: {row['why']}, so the hard bound stands", highlight=False)
    netns = result.get("netns")
    if netns is None:
        return
    table = Table(
        "series", "paths", "events", "unknown", "misses", "lower 95 %", "half-width",
        "hull, drift only", "half round trip",
        title=f"Measured exchanges, hidden path: drift ≤ {netns['drift_ppb'] / 1e3:g} ppm, wander ≤ "
        f"{netns['wander_ppb_s']:g} ppb/s (medians)",
    )  # fmt: skip
    for row in netns["series"]:
        table.add_row(
            f"{row['load']} {row['node']}", str(row["paths"]), f"{row['events']:,}", f"{row['unknown']:,}",
            f"{row['misses']:,}", f"{100 * row['coverage_limit']:.3f} %",
            *(format_ns(row[name]) for name in ("width_ns", "width_hull_ns", "width_bracket_ns")),
        )  # fmt: skip
    console.print(table)
    console.print(f"{netns['mode']} bound: {netns['why']}", highlight=False)
