"""`tempotrace clock experiment gpu-map`: simulated GPU timers mapped to their host, against the truth."""

from typing import Annotated, Any

import typer

from schemas.errors import Usage
from schemas.time import format_ns
from tempotrace.cli.options import Json, emit
from tempotrace.cli.options import console as plain_console


def register(app: typer.Typer) -> None:
    """Add `gpu-map` to the group."""
    app.command("gpu-map")(gpu_map)


def gpu_map(
    maps: Annotated[int, typer.Option("--maps", metavar="N", min=20, help="Independent maps.")] = 10_200,
    events: Annotated[int, typer.Option("--events", metavar="N", min=10, help="Events of each map.")] = 1_000,
    wander: Annotated[
        float,
        typer.Option(
            "--wander", metavar="PPB/S", help="Greatest change of a rate per second, declared and true."
        ),
    ] = 20.0,
    seed: Annotated[int, typer.Option("--seed", metavar="N", min=0, help="Which timers and delays.")] = 1,
    as_json: Json = False,
) -> None:
    """Map simulated GPU timers to their host and count where a bound is false.

    All of it is simulated, with ticks, rates and delays as measured on GPUs, and an assumed wander.

    Example: tempotrace clock experiment gpu-map --maps 1200
    """
    from rich.progress import Progress

    from tempotrace import gpu_experiment as experiment

    if not 0 < wander < 1e6:
        raise Usage(f"--wander {wander:g}: it must be above 0 and below 1e6")
    console = plain_console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("Mapping simulated timers", total=1.0)
        result = experiment.run(
            experiment.Settings(maps, events, seed, wander), lambda share: bar.update(task, completed=share)
        )
    emit(result, as_json, lambda: _show_gpu_map(result))


def _show_gpu_map(result: dict[str, Any]) -> None:
    from rich.table import Table

    console = plain_console()

    def table(title: str, entries: list[dict[str, Any]], columns: dict[str, str]) -> None:
        shown = Table(*columns.values(), title=title, title_justify="left")
        for entry in entries:
            shown.add_row(*(_cell(name, entry[name]) for name in columns))
        console.print(shown)

    table(
        f"Simulated: {result['maps']:,} maps, {result['events']:,} events; false bounds of the map "
        f"{result['map_violations']:,}, of events {result['event_violations']:,}",
        result["cases"],
        {
            "ticks": "ticks, ns",
            "jitter": "jitter",
            "map_violations": "false (map)",
            "event_violations": "false (event)",
            "unknown": "unknown",
            "map_bound_ns": "map bound",
            "event_bound_ns": "event bound",
            "width_over_narrowest_max": "width / best bracket, most",
            "width_over_median": "width / median bracket",
            "loud_maps": "maps with jitter ≥ 2 floors",
            "loud_width_over_median_max": "there, most",
        },
    )
    table(
        "No reads any more: pairs of events on two GPUs of a host",
        result["age"],
        {
            "ticks": "ticks, ns",
            "age_s": "age, s",
            "pair_bound_ns": "bound of a pair",
            "pairs_apart": "pairs further apart",
            "inverted_apart": "inverted of these",
            "inverted_share_by_map": "inverted of all",
            "inverted_share_by_one_offset": "by one offset",
        },
    )
    table(
        "Driven above the declared limits",
        result["overdriven"],
        {
            "limit": "limit",
            "factor": "times",
            "events": "events",
            "wrong": "wrong",
            "wrong_unsettled": "wrong before it was seen",
            "unknown_share": "unknown",
            "maps_seen": "maps seen to break it",
        },
    )
    table(
        "Mapped less true time of events (published: the paper's figure, for NIC stamps a design target)",
        result["residuals"],
        {
            "ticks": "ticks, ns",
            "method": "method",
            "std_ns": "standard deviation",
            "rms_ns": "rms",
            "bound_ns": "bound",
            "published_ns": "published",
        },
    )


def _cell(name: str, value: Any) -> str:
    if value is None:
        return "-"
    if name.endswith("_ns"):
        return format_ns(value)
    if "share" in name:
        return f"{value:.2%}"
    return f"{value:.3f}" if isinstance(value, float) and "over" in name else f"{value:,}" if isinstance(
        value, int
    ) else str(value) if isinstance(value, str) else f"{value:g}"  # fmt: skip
