"""`tempotrace produce host`: clock logs of hosts, and probes between them."""

import hashlib
import os
from contextlib import closing
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Annotated

import typer

from producers.host import mesh
from producers.host.follow import Follower
from producers.host.kernel_clock import REALTIME, machine_host
from producers.host.logs import LogReport, Options, read
from schemas import topics
from schemas.errors import Usage
from schemas.pack import Head
from schemas.time import NS, parse_duration_ns
from tempotrace.cli import feed
from tempotrace.cli.options import (
    DEFAULT_TENANT,
    Bootstrap,
    Json,
    KafkaProperties,
    Tenant,
    connect,
    live_seconds,
)
from tempotrace.clockwork import WallClock, new_incarnation
from tempotrace.settings import Settings

INTERVAL_NS_MIN, INTERVAL_NS_MAX = NS // 1000, 3600 * NS


def register(app: typer.Typer) -> None:
    """Add `host` to the group."""
    app.command("host")(host)


def host(
    log: Annotated[
        list[Path] | None,
        typer.Option(
            "--log", metavar="FILE", help="A clock log, plain or gzip, - for standard input; repeatable."
        ),
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", help="Go on with the logs as they grow.")] = False,
    year: Annotated[
        int | None, typer.Option("--year", min=1970, max=2115, help="Year of stamps that have none.")
    ] = None,
    as_mesh: Annotated[bool, typer.Option("--mesh", help="Send and receive probes, live.")] = False,
    node: Annotated[str | None, typer.Option("--node", metavar="NAME", help="This node's name.")] = None,
    listen: Annotated[
        str | None, typer.Option("--listen", metavar="HOST:PORT", help="UDP address of this node.")
    ] = None,
    peer: Annotated[
        list[str] | None,
        typer.Option("--peer", metavar="NAME=HOST:PORT", help="Another node; give one for each."),
    ] = None,
    interval: Annotated[
        str | None,
        typer.Option(
            "--interval", metavar="TIME", help="Time between probes to each peer (20ms) or readings (100ms)."
        ),
    ] = None,
    rdma_device: Annotated[
        str | None,
        typer.Option(
            "--rdma", metavar="DEV", help="Sample the clock and completion stamps of an RDMA device."
        ),
    ] = None,
    hosts: Annotated[
        int | None,
        typer.Option(
            "--hosts", metavar="N", min=1, max=65_535, help="Hosts in the mesh, if more than one node's."
        ),
    ] = None,
    seconds: Annotated[
        str | None, typer.Option("--for", metavar="TIME", help="Stop after this time, such as 30s.")
    ] = None,
    host_name: Annotated[
        str | None,
        typer.Option("--host", metavar="NAME", help="Host whose clocks these are; alike in all processes."),
    ] = None,
    tenant: Tenant = DEFAULT_TENANT,
    scope: Annotated[
        list[str] | None,
        typer.Option(
            "--scope",
            metavar="NAME",
            help="The job that the events belong to; repeatable for logs and --rdma, where several jobs need them.",
        ),
    ] = None,
    bootstrap: Bootstrap = None,
    kafka_properties: KafkaProperties = None,
    as_json: Json = False,
) -> None:
    """Read a host's clocks: the logs of ptp4l, phc2sys, ts2phc and chrony, probes between hosts, or an RDMA card.

    Probes carry the kernel's own stamps, those of the network card where it stamps all packets.

    Example: tempotrace produce host --log /var/log/ptp4l.log --follow

    Example: tempotrace produce host --mesh --node a --listen 10.0.0.1:7400 --peer b=10.0.0.2:7400

    Example: tempotrace produce host --rdma mlx5_0
    """
    topics.check_tenant(tenant)
    for name in scope or []:
        topics.check_scope(name)
    if as_mesh + bool(log) + (rdma_device is not None) != 1:
        raise Usage("say what to read: either --log FILE, --mesh or --rdma DEV")
    mode = "--mesh" if as_mesh else "--log" if log else "--rdma"
    heeds: dict[str, tuple[object, str]] = {
        "--node": (node, "--mesh"),
        "--listen": (listen, "--mesh"),
        "--peer": (peer or None, "--mesh"),
        "--hosts": (hosts, "--mesh"),
        "--interval": (interval, "--mesh --rdma"),
        "--follow": (follow or None, "--log"),
        "--year": (year, "--log"),
    }
    foreign = [name for name, (value, by) in heeds.items() if value is not None and mode not in by.split()]
    if foreign:
        raise Usage(f"{mode} does not take {', '.join(foreign)}")
    scopes = list(dict.fromkeys(scope or []))
    own = scopes[0] if scopes else None
    if len(scopes) > 1 and (as_mesh or Path("-") in (log or [])):
        raise Usage("a mesh is of one --scope, and so is standard input")
    settings = connect(bootstrap, kafka_properties)
    seconds_max = live_seconds(seconds)
    if as_mesh:
        options = mesh_options(
            node, listen, peer or [], interval or "20ms", hosts, host_name or machine_host()
        )
        _mesh(options, settings, tenant, own or "default", seconds_max, as_json)
    elif rdma_device is not None:
        interval_s = interval_seconds(interval or "100ms")
        _rdma(rdma_device, host_name or machine_host(), interval_s, settings, tenant, own or "default",
              scopes[1:], seconds_max, as_json)  # fmt: skip
    elif follow:
        _follow(
            log or [],
            Options(tenant, own or "default", host_name, year=year),
            scopes[1:],
            settings,
            seconds_max,
            as_json,
        )
    elif seconds is not None:
        raise Usage("--for is for live input: --mesh, --rdma, or --log with --follow")
    else:
        report = LogReport()
        readings = [
            # The same lines again for each scope, but counted once.
            read(
                log or [], Options(tenant, name, host_name, year=year), report if name == own else LogReport()
            )
            for name in (scopes or (None,))
        ]
        feed.publish(
            chain.from_iterable(readings),
            report,
            settings,
            tenant=tenant,
            scope=", ".join(scopes),
            as_json=as_json,
            what="clock logs",
        )


def _mesh(
    options: mesh.Options, settings: Settings, tenant: str, scope: str, seconds: float | None, as_json: bool
) -> None:
    report = mesh.MeshReport()
    head = Head(tenant, scope, f"mesh-{options.node}", "probe")
    running = mesh.Node(options, head, new_incarnation(), WallClock(), report)
    with closing(running):
        feed.run_live(
            running.run,
            report,
            settings,
            name=f"mesh-{options.node}",
            tenant=tenant,
            scope=scope,
            clock_id=running.clock_id,
            seconds=seconds,
            as_json=as_json,
        )


def _rdma(
    device: str,
    host_name: str,
    interval_s: float,
    settings: Settings,
    tenant: str,
    scope: str,
    more_scopes: list[str],
    seconds: float | None,
    as_json: bool,
) -> None:
    from producers.host import rdma_clock, verbs

    report = rdma_clock.RdmaReport()
    head = Head(tenant, scope, f"{host_name}/rdma-{device}", "clock")
    options = rdma_clock.Options(device, host_name, interval_s)
    running = rdma_clock.Sampler(options, head, new_incarnation(), verbs.Binding(), WallClock(), report)
    with closing(running):
        feed.run_live(
            running.run,
            report,
            settings,
            name=f"rdma-{device}",
            tenant=tenant,
            scope=scope,
            clock_id=running.clock_id,
            seconds=seconds,
            copies=feed.copies_of(host_name, tenant, scope, settings, more_scopes),
            as_json=as_json,
        )


def _follow(
    logs: list[Path],
    options: Options,
    more_scopes: list[str],
    settings: Settings,
    seconds: float | None,
    as_json: bool,
) -> None:
    if Path("-") in logs:
        raise Usage("--follow reads files, not standard input")
    scope = options.scope or "default"
    here = machine_host()
    report = LogReport()
    # Each set of files has its own spool: another set may be followed beside it.
    followed = repr([scope, *map(str, map(Path.absolute, logs))])
    name = f"log-{hashlib.blake2b(followed.encode(), digest_size=4).hexdigest()}"
    options = replace(options, publisher=f"{here}/{name}")
    clock = feed.LoopClock()
    follower = Follower(logs, options, clock, here, os.uname().nodename, report)
    feed.run_live(
        follower.run,
        report,
        settings,
        name=name,
        tenant=options.tenant,
        scope=scope,
        clock_id=f"{options.host or here}/{REALTIME}",
        seconds=seconds,
        continues=True,
        copies=feed.copies_of(options.host or here, options.tenant, scope, settings, more_scopes),
        loop=clock,
        as_json=as_json,
    )


def mesh_options(
    node: str | None,
    listen: str | None,
    peers: list[str],
    interval: str,
    hosts: int | None,
    host_name: str,
) -> mesh.Options:
    """A node from the command line's words. Raises Usage."""
    if node is None or listen is None or not peers:
        raise Usage("--mesh needs --node, --listen and at least one --peer")
    if len(node.encode()) > 255 or "/" in node or not node:
        raise Usage(f"node name {node!r}: use 1 to 255 bytes without a slash")
    interval_s = interval_seconds(interval)
    return mesh.Options(
        node=node,
        host=host_name,
        listen=address(listen),
        peers=dict(_peer(text, node) for text in peers),
        interval_s=interval_s,
        hosts=hosts,
    )


def interval_seconds(interval: str) -> float:
    """The length of an interval in s. Raises Usage."""
    return parse_duration_ns(interval, "--interval", INTERVAL_NS_MIN, INTERVAL_NS_MAX) / 1e9


def address(text: str) -> tuple[str, int]:
    """HOST:PORT or [IPv6]:PORT. Raises Usage."""
    name, _, port = text.rpartition(":")
    name = name.removeprefix("[").removesuffix("]")
    if not name or not port.isdecimal() or not 0 < int(port) < 65536:
        raise Usage(f"{text!r} is no HOST:PORT")
    return name, int(port)


def _peer(text: str, node: str) -> tuple[str, tuple[str, int]]:
    name, equals, at = text.partition("=")
    if not equals or not name:
        raise Usage(f"--peer {text!r}: write NAME=HOST:PORT")
    if name == node:
        raise Usage(f"--peer {text!r} is this node's own name")
    return name, address(at)
