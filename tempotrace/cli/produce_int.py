"""`tempotrace produce int`: telemetry reports of switches, from a UDP socket or from captures."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from producers.host.kernel_clock import machine_host
from producers.int import files, udp
from producers.int.collector import IntReport
from producers.int.dialect import DIALECTS, Dialect
from schemas.errors import Usage
from schemas.topics import FABRIC_TENANT, check_scope
from tempotrace.cli import feed
from tempotrace.cli.options import Bootstrap, Json, KafkaProperties, Scope, Tenant, connect, live_seconds
from tempotrace.cli.produce_host import address
from tempotrace.clockwork import WallClock, new_incarnation


def register(app: typer.Typer) -> None:
    """Add `int` to the group."""
    app.command("int")(int_)


def int_(
    udp_: Annotated[
        str | None, typer.Option("--udp", metavar="HOST:PORT", help="Listen here for reports, live.")
    ] = None,
    pcap: Annotated[
        list[Path] | None,
        typer.Option("--pcap", metavar="FILE", help="A capture, pcap or pcapng; repeatable."),
    ] = None,
    port: Annotated[
        list[int] | None,
        typer.Option(
            "--port",
            metavar="N",
            min=1,
            max=65_535,
            help="UDP port of the reports in captures. Default: wherever one is found.",
        ),
    ] = None,
    plane: Annotated[str, typer.Option("--plane", metavar="NAME", help="Plane of the fabric.")] = "0",
    dialect: Annotated[
        str, typer.Option("--dialect", metavar="NAME", help=f"Kind of sender: {', '.join(DIALECTS)}.")
    ] = "spec",
    int_dscp: Annotated[
        str | None,
        typer.Option("--int-dscp", metavar="VALUE[/MASK]", help="DSCP that says a packet carries INT."),
    ] = None,
    int_port: Annotated[
        list[int] | None,
        typer.Option(
            "--int-port",
            metavar="N",
            min=1,
            max=65_535,
            help="UDP destination port that says so; repeatable.",
        ),
    ] = None,
    int_marker: Annotated[
        str | None,
        typer.Option(
            "--int-marker", metavar="NUMBER", help="64-bit probe marker that says so, such as 0x1f…"
        ),
    ] = None,
    seconds: Annotated[
        str | None, typer.Option("--for", metavar="TIME", help="Stop listening after this time, such as 30s.")
    ] = None,
    host: Annotated[
        str | None,
        typer.Option("--host", metavar="NAME", help="Host whose clock stamps; alike in all processes of it."),
    ] = None,
    tenant: Tenant = FABRIC_TENANT,
    scope: Scope = None,
    bootstrap: Bootstrap = None,
    kafka_properties: KafkaProperties = None,
    as_json: Json = False,
) -> None:
    """Read telemetry reports (0.5, 1.0, 2.0) with INT: a row for every hop.

    Example: tempotrace produce int --udp 0.0.0.0:9000

    Example: tempotrace produce int --pcap reports.pcapng --port 9000
    """
    if (udp_ is None) == (not pcap):
        raise Usage("say what to read: either --udp HOST:PORT or --pcap FILE")
    scope = check_scope(scope or f"fabric/{plane}")
    spoken = dialect_of(dialect, int_dscp, int_port or [], int_marker)
    settings = connect(bootstrap, kafka_properties)
    report = IntReport()
    if pcap:
        if seconds is not None:
            raise Usage("--for goes with --udp: a capture is read to its end")
        ports = frozenset(port) if port else None
        options = files.Options(tenant, scope, host, ports, spoken)
        feed.publish(
            files.read(pcap, options, report), report, settings,
            tenant=tenant, scope=scope, as_json=as_json, what="captures",
        )  # fmt: skip
    else:
        assert udp_ is not None
        if port:
            raise Usage("--port goes with --pcap; --udp names its port itself")
        listen, number = address(udp_)
        where = host or machine_host()
        live = udp.Options(tenant, scope, where, listen, number, new_incarnation(), spoken)
        with udp.UdpCollector(live, report, WallClock()) as collector:
            feed.run_live(
                collector.run, report, settings,
                name=f"int-{collector.port}", tenant=tenant, scope=scope, clock_id=collector.clock_id,
                seconds=live_seconds(seconds), as_json=as_json,
            )  # fmt: skip
    if not as_json:
        _say(report)


def dialect_of(name: str, dscp: str | None, ports: list[int], marker: str | None) -> Dialect:
    """The dialect with the signals that were given. Raises Usage."""
    if name not in DIALECTS:
        raise Usage(f"--dialect {name}: there are {', '.join(DIALECTS)}")
    out = replace(DIALECTS[name], udp_ports=tuple(ports))
    if dscp is not None:
        value, _, mask = dscp.partition("/")
        out = replace(out, dscp=_number("--int-dscp", value), dscp_mask=_number("--int-dscp", mask or "0x3f"))
    if marker is not None:
        out = replace(out, marker=_number("--int-marker", marker))
    return out


def _number(option: str, text: str) -> int:
    try:
        return int(text, 0)
    except ValueError:
        raise Usage(f"{option} {text}: write a number, such as 23 or 0x17") from None


def _say(report: IntReport) -> None:
    versions = ", ".join(f"{count:,} of {name}" for name, count in sorted(report.by_version.items()))
    print(f"  {report.reports:,} reports ({versions or 'none'}), {report.hops:,} hops, {report.lost:,} lost")
    print(f"  at UDP port {', '.join(map(str, sorted(report.ports))) or '(none)'}")
    for reason, count in sorted(report.malformed.items()):
        print(f"  malformed {count:,}: {reason}")
    for kind, count in sorted(report.deviations.items()):
        print(f"  tolerated in {count:,} reports: {kind}")
    if report.dropped_by_kernel:
        print(f"  dropped {report.dropped_by_kernel:,} datagrams: receive queue full")
