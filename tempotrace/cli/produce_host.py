"""`tempotrace produce host`: clock logs of hosts, and probes between them."""

from contextlib import closing
from pathlib import Path
from typing import Annotated

import typer

from producers.host import kernel_clock, mesh
from schemas import topics
from schemas.errors import Usage
from schemas.pack import Head
from schemas.time import parse_duration_ns
from tempotrace.cli import feed
from tempotrace.cli.options import (
    DEFAULT_TENANT,
    Bootstrap,
    Json,
    KafkaProperties,
    Scope,
    Tenant,
    connect,
)
from tempotrace.clockwork import WallClock, new_incarnation

INTERVAL_SECONDS_MIN = 0.001


def register(app: typer.Typer) -> None:
    """Add `host` to the group."""
    app.command("host", no_args_is_help=True)(host)


def host(
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
        str, typer.Option("--interval", metavar="TIME", help="Time between probes to each peer.")
    ] = "20ms",
    hosts: Annotated[
        int | None, typer.Option("--hosts", metavar="N", help="Hosts in the mesh, if more than one node's.")
    ] = None,
    seconds: Annotated[
        str | None, typer.Option("--for", metavar="TIME", help="Stop after this time, such as 30s.")
    ] = None,
    host_name: Annotated[
        str | None,
        typer.Option("--host", metavar="NAME", help="Host whose clocks these are; alike in all processes."),
    ] = None,
    tenant: Tenant = DEFAULT_TENANT,
    scope: Scope = None,
    bootstrap: Bootstrap = None,
    kafka_properties: KafkaProperties = None,
    as_json: Json = False,
) -> None:
    """Read a host's clocks: probes between hosts, stamped by the kernel.

    Example: tempotrace produce host --mesh --node a --listen 10.0.0.1:7400 --peer b=10.0.0.2:7400
    """
    if not as_mesh:
        raise Usage("say what to read: --mesh")
    _mesh(node, listen, peer or [], interval, hosts, seconds, host_name, tenant, scope or "default",
          bootstrap, kafka_properties, as_json)  # fmt: skip


def _mesh(
    node: str | None,
    listen: str | None,
    peers: list[str],
    interval: str,
    hosts: int | None,
    seconds: str | None,
    host_name: str | None,
    tenant: str,
    scope: str,
    bootstrap: str | None,
    kafka_properties: Path | None,
    as_json: bool,
) -> None:
    if node is None or listen is None or not peers:
        raise Usage("--mesh needs --node, --listen and at least one --peer")
    if len(node.encode()) > 255 or "/" in node or not node:
        raise Usage(f"node name {node!r}: use 1 to 255 bytes without a slash")
    interval_s = parse_duration_ns(interval) / 1e9
    if interval_s < INTERVAL_SECONDS_MIN:
        raise Usage(f"--interval {interval} is too short: 1ms at least")
    options = mesh.Options(
        node=node,
        host=host_name or kernel_clock.machine_host(),
        listen=address(listen),
        peers=dict(_peer(text, node) for text in peers),
        interval_s=interval_s,
        hosts=hosts,
    )
    topics.check_tenant(tenant)
    settings = connect(bootstrap, kafka_properties)
    report = mesh.MeshReport()
    head = Head(tenant, scope, f"mesh-{node}", "probe")
    running = mesh.Node(options, head, new_incarnation(), WallClock(), report)
    with closing(running):
        feed.run_live(
            running.run,
            report,
            settings,
            name=f"mesh-{node}",
            tenant=tenant,
            scope=scope,
            clock_id=running.clock_id,
            seconds=None if seconds is None else parse_duration_ns(seconds) / 1e9,
            as_json=as_json,
        )


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
