"""`tempotrace demo`: the whole pipeline on live input made on the spot."""

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from schemas.errors import Usage
from tempotrace import broker
from tempotrace.cli.options import DEFAULT_LAKE, Json, Lake, connect, emit
from tempotrace.cli.options import console as plain_console
from tempotrace.clockwork import WallClock
from tempotrace.demo import report
from tempotrace.demo.run import Plan, run, with_broker

app = typer.Typer()
_Files = list[Path] | None


@app.command()
def demo(
    folder: Lake = DEFAULT_LAKE,
    seconds: Annotated[float, typer.Option("--seconds", metavar="S", help="Length of the live part.")] = 10.0,
    seed: Annotated[int, typer.Option("--seed", metavar="N", help="Which rank and which clock fail.")] = 1,
    kineto: Annotated[
        _Files, typer.Option("--kineto", metavar="PATH", help="Your profiler traces too.")
    ] = None,
    ptp4l: Annotated[_Files, typer.Option("--ptp4l", metavar="FILE", help="Your clock logs too.")] = None,
    pcap: Annotated[_Files, typer.Option("--pcap", metavar="FILE", help="Your captures of INT too.")] = None,
    keep_broker: Annotated[bool, typer.Option("--keep-broker", help="Leave the broker running.")] = False,
    as_json: Json = False,
) -> None:
    """Run the whole pipeline on live input made on the spot.

    A mesh of four node processes with kernel stamps, and a simulated 64-GPU job with one straggler and one
    clock fault, go through a real Kafka into the lake.

    Example: tempotrace demo --seconds 20
    """
    for path in (*(kineto or ()), *(ptp4l or ()), *(pcap or ())):
        if not path.exists():
            raise Usage(f"there is no file {path}")
    if not 2 <= seconds <= 3600:
        raise Usage("--seconds: the faults need at least 2 s to show; 3600 at most")
    clock = WallClock()
    begun = clock.monotonic()
    console = plain_console(stderr=True)
    plan = Plan(
        lake=folder,
        seconds=seconds,
        seed=seed,
        kineto=tuple(kineto or ()),
        logs=tuple(ptp4l or ()),
        captures=tuple(pcap or ()),
    )
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("", total=None)

        def say(text: str) -> None:
            console.print(f"demo: {text}", highlight=False)

        def look(now: dict[str, float]) -> None:
            bar.update(
                task,
                description=f"{now['read']:,.0f} events read, {now['merged']:,.0f} merged, "
                f"{now['stored']:,.0f} rows stored, {now['findings']:.0f} findings",
            )

        settings, started = with_broker(connect(None, None), say)
        try:
            outcome = run(plan, settings, clock, say, look)
        finally:
            if started and not keep_broker:
                say("stopping the broker")
                broker.stop(broker.default_folder(settings.home), settings.home)
    found = report.result(outcome, folder.resolve(), clock.monotonic() - begun)
    for line in found["warnings"]:
        print(f"tempotrace: {line}", file=sys.stderr)
    emit(found, as_json, lambda: report.show(found, started and not keep_broker))
