"""`tempotrace broker`: a local Apache Kafka for work, tests and the demo."""

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from tempotrace import broker, topics_admin
from tempotrace.cli.options import Json, emit
from tempotrace.settings import home_folder

app = typer.Typer()

Data = Annotated[
    Path | None,
    typer.Option("--data", metavar="DIR", help="Data folder (default: the last one, else <home>/broker)."),
]


def _say(text: str) -> None:
    if sys.stderr.isatty():
        print(f"{text} ...", file=sys.stderr)


def _folder(data: Path | None) -> Path:
    return data or broker.default_folder(home_folder())


def _result(found: broker.Status) -> dict[str, Any]:
    return {
        "running": found.running,
        "bootstrap": found.bootstrap,
        "data": str(found.data),
        "pids": list(found.pids),
    }


@app.command()
def start(
    brokers: Annotated[int | None, typer.Option(help="1 or 3 nodes (default: as before, else 1).")] = None,
    data: Data = None,
    port: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=65535,
            help="Port of the first node, 0 for a free one (default: as before, else 9092).",
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Start it, and make the tenants `default` and `fabric`.

    Example: tempotrace broker start --port 9192 --data /tmp/kafka
    """
    home = home_folder()
    found = broker.start(data or broker.folder_to_start(home), port, brokers, home=home, say=_say)
    topics_admin.prepare({"bootstrap.servers": found.bootstrap})
    emit(
        _result(found),
        as_json,
        lambda: print(f"Apache Kafka answers at {found.bootstrap}; its data are in {found.data}"),
    )


@app.command()
def stop(data: Data = None, as_json: Json = False) -> None:
    """Stop it and wait until it has ended; the data stay.

    Example: tempotrace broker stop
    """
    found = broker.stop(_folder(data), home=home_folder())
    count = sum(pid is not None for pid in found.pids)
    emit(
        {"stopped": count, "data": str(found.data)},
        as_json,
        lambda: print(f"stopped {count} node(s) of {found.data}" if count else f"none ran on {found.data}"),
    )


@app.command()
def status(data: Data = None, as_json: Json = False) -> None:
    """Say whether it runs, and where.

    Example: tempotrace broker status --json
    """
    found = broker.status(_folder(data))

    def human() -> None:
        if not any(found.pids):
            print(f"no broker runs on {found.data}")
            return
        for address, pid in zip(found.bootstrap.split(","), found.pids, strict=True):
            print(f"{address} {f'runs, pid {pid}' if pid else 'is down'}")
        print(f"data: {found.data}")

    emit(_result(found), as_json, human)
