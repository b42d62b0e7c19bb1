"""`tempotrace produce gpu`: profiler traces of a job's ranks."""

from pathlib import Path
from typing import Annotated

import typer

from producers.gpu.read import KinetoReport, Options, read
from schemas.errors import Usage
from schemas.time import CLAIM_NS_MAX, parse_duration_ns
from tempotrace.cli.feed import publish
from tempotrace.cli.options import DEFAULT_TENANT, Bootstrap, Json, KafkaProperties, Scope, Tenant, connect


def register(app: typer.Typer) -> None:
    """Add the command to the group `produce`."""
    app.command(
        "gpu",
        help="Read PyTorch profiler (Kineto) traces: one clock a rank, one source a thread or stream.\n\n"
        "Example: tempotrace produce gpu --kineto traces/ --clock-bound 1us",
    )(gpu)


def gpu(
    kineto: Annotated[
        list[Path],
        typer.Option(
            "--kineto", metavar="PATH", help="A trace, .gz, .tar.gz or folder of ranks; repeatable."
        ),
    ],
    host: Annotated[
        str | None, typer.Option("--host", metavar="NAME", help="Host of all ranks, whatever the traces say.")
    ] = None,
    clock_bound: Annotated[
        str | None,
        typer.Option(
            "--clock-bound", metavar="TIME", help="Claim that every rank's clock is this close to TAI: 1us."
        ),
    ] = None,
    clock_offset: Annotated[
        list[str] | None,
        typer.Option(
            "--clock-offset", metavar="RANK=TIME", help="Move all stamps of one rank, for trials: 3=-50us."
        ),
    ] = None,
    tenant: Tenant = DEFAULT_TENANT,
    scope: Scope = None,
    bootstrap: Bootstrap = None,
    kafka_properties: KafkaProperties = None,
    as_json: Json = False,
) -> None:
    """Send all ranks' events, merged in time."""
    options = Options(
        tenant=tenant,
        scope=scope,
        host=host,
        clock_bound_ns=None if clock_bound is None else clock_bound_ns(clock_bound),
        clock_offset_ns=clock_offsets_ns(clock_offset or ()),
    )
    settings = connect(bootstrap, kafka_properties)
    report = KinetoReport()
    publish(
        read(kineto, options, report),
        report,
        settings,
        tenant=tenant,
        scope=scope or "",  # a default scope is known, and reported, once the input has been read
        as_json=as_json,
        what="profiler traces",
    )


def clock_bound_ns(text: str) -> int:
    """`--clock-bound` in ns. Raises Usage unless it is a length of time from 0 to what a clock may claim."""
    return parse_duration_ns(text, "--clock-bound", 0, CLAIM_NS_MAX)


def clock_offsets_ns(given: list[str] | tuple[str, ...]) -> dict[str, int]:
    """`--clock-offset` values as ns by rank. Raises Usage."""
    out: dict[str, int] = {}
    for text in given:
        rank, found, offset = text.rpartition("=")
        if not found or not rank:
            raise Usage(f"--clock-offset {text}: write RANK=TIME, such as 3=-50us")
        if rank in out:
            raise Usage(f"--clock-offset names rank {rank} twice")
        out[rank] = parse_duration_ns(offset, f"--clock-offset {rank}:")
    return out
