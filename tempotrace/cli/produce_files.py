"""`tempotrace produce files`: traces, logs and captures side by side in one scope."""

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import typer

from producers.report import Report
from tempotrace.cli.feed import publish
from tempotrace.cli.options import (
    DEFAULT_TENANT,
    Bootstrap,
    Json,
    KafkaProperties,
    Tenant,
    connect,
    one_scope,
)
from tempotrace.inputs import Choices, Feed, Item, feeds, side_by_side, sort_out


@dataclass
class FilesReport(Report):
    """The sum over the producers, and what each of them tells of its files."""

    running: list[Feed] = field(default_factory=list)

    def fields(self) -> dict[str, Any]:
        """The producers' own parts of the `--json` result."""
        return {"inputs": [feed.told() for feed in self.running]}


def register(app: typer.Typer) -> None:
    """Add the command to the group `produce`."""
    app.command(
        "files",
        help="Send files of several kinds into one scope, where they can be compared.\n\n"
        "Example: tempotrace produce files traces/ ptp4l.log int.pcap --scope job42",
    )(files)


def files(
    paths: Annotated[
        list[Path],
        typer.Argument(metavar="FILE...", help="Traces (or a folder of them), clock logs, captures."),
    ],
    scope: Annotated[
        str,
        typer.Option("--scope", metavar="NAME", help="The job that all of it is about.", callback=one_scope),
    ] = "files",
    host: Annotated[
        str | None, typer.Option("--host", metavar="NAME", help="Host that the files are of.")
    ] = None,
    tenant: Tenant = DEFAULT_TENANT,
    bootstrap: Bootstrap = None,
    kafka_properties: KafkaProperties = None,
    as_json: Json = False,
) -> None:
    """Send files of several kinds into one scope."""
    running = feeds(sort_out(paths), Choices(tenant=tenant, scope=scope, host=host))
    report = FilesReport(running=running)

    def items(stop: threading.Event) -> Iterator[Item]:
        for item in side_by_side(running):
            if stop.is_set():
                break
            yield item
        for feed in running:
            for reason, count in feed.report.skipped.items():
                report.skip(f"{feed.kind}: {reason}", count)
            for line in feed.report.warnings:
                report.warn(line)

    publish(
        items,
        report,
        connect(bootstrap, kafka_properties),
        tenant=tenant,
        scope=scope,
        as_json=as_json,
        what="files",
    )
