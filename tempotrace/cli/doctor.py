"""`tempotrace doctor`: what this machine has and lacks."""

from pathlib import Path
from typing import Annotated

import typer

from tempotrace import doctor as examination
from tempotrace.cli.options import Bootstrap, Json, KafkaProperties, connect, emit

app = typer.Typer()


@app.command()
def doctor(
    lake: Annotated[
        Path | None,
        typer.Option("--lake", metavar="DIR", help="Also check every file of this lake by its checksum."),
    ] = None,
    bootstrap: Bootstrap = None,
    kafka_properties: KafkaProperties = None,
    as_json: Json = False,
) -> None:
    """Check packages, Java, Kafka, topics and devices, one line each; exit 1 if something needed is bad.

    Example: tempotrace doctor --lake ./lake
    """
    checks = examination.examine(connect(bootstrap, kafka_properties).kafka, lake)

    def human() -> None:
        for check in checks:
            print(f"{check.name:<9} {check.state:<7} {check.text}")

    healthy = all(check.state != examination.BAD for check in checks)
    emit({"healthy": healthy, "checks": [check._asdict() for check in checks]}, as_json, human)
    if not healthy:
        raise typer.Exit(1)
