"""`tempotrace produce fabric`: port counters, flows of hosts, and paths walked through routing tables."""

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from producers.fabric.rows import FabricReport, Options, read
from producers.fabric.rows import Path as Walked
from producers.fabric.shell import DIALECTS, Shell
from producers.fabric.sysfs import SysfsSampler
from producers.host.kernel_clock import machine_host
from schemas.errors import Usage, cause_of
from schemas.network import HostFlow
from schemas.time import NS, parse_duration_ns
from schemas.topics import FABRIC_TENANT, check_scope
from tempotrace import fabricdata
from tempotrace.cli import feed
from tempotrace.cli.options import (
    Bootstrap,
    Json,
    KafkaProperties,
    Scope,
    Tenant,
    connect,
    emit,
    live_seconds,
)
from tempotrace.clockwork import WallClock, new_incarnation
from tempotrace.used import require

if TYPE_CHECKING:
    from producers.fabric.query import Limits
    from streams.paths.walk import Walk

Files = list[Path] | None
Names = list[str] | None


def register(app: typer.Typer) -> None:
    """Add `fabric` to the group."""
    app.command("fabric")(fabric)


def fabric(
    topology: Annotated[
        Names,
        typer.Option(
            "--topology",
            metavar="[NODE=]FILE",
            help="containerlab or plain YAML, LLDP JSON (NODE= its machine), CSV, HPCC, SimAI, ibnetdiscover.",
        ),
    ] = None,
    routes: Annotated[
        Names,
        typer.Option(
            "--routes",
            metavar="SWITCH=FILE",
            help="A switch's routes: SONiC or FRR JSON, `ip -j route`, text of SONiC, NX-OS, EOS; hash settings too.",
        ),
    ] = None,
    lfts: Annotated[
        Names, typer.Option("--lfts", metavar="FILE", help="InfiniBand forwarding tables, of dump_lfts.")
    ] = None,
    ssh: Annotated[
        Path | None,
        typer.Option(
            "--ssh",
            metavar="FILE",
            help=f"Ask switches themselves: YAML {{switch: {{address, dialect}}}}; "
            f"dialects {', '.join(DIALECTS)}.",
        ),
    ] = None,
    counters: Annotated[
        Names,
        typer.Option(
            "--counters",
            metavar="NODE=FILE[@TIME]",
            help="COUNTERS_DB as JSON, or InfiniBand sysfs; two of one node give what was sent between.",
        ),
    ] = None,
    sysfs: Annotated[
        Path | None,
        typer.Option("--sysfs", metavar="DIR", help="Sample this host's InfiniBand ports, live."),
    ] = None,
    every: Annotated[str, typer.Option("--every", metavar="TIME", help="Pace of --sysfs.")] = "1s",
    seconds: Annotated[
        str | None, typer.Option("--for", metavar="TIME", help="Stop sampling after this time.")
    ] = None,
    node: Annotated[
        str | None, typer.Option("--node", metavar="NAME", help="This host's name in the topology.")
    ] = None,
    hosts: Annotated[
        Path | None,
        typer.Option("--hosts", metavar="DIR", help="One folder a host with qp.txt, gids.txt, ss.txt, ..."),
    ] = None,
    pcap: Annotated[Files, typer.Option("--pcap", metavar="FILE", help="A capture with RoCEv2.")] = None,
    flows: Annotated[
        Path | None, typer.Option("--flows", metavar="FILE", help="CSV or JSON list of flows.")
    ] = None,
    walk: Annotated[bool, typer.Option("--walk", help="Walk the flows through the tables.")] = False,
    exact: Annotated[
        Path | None,
        typer.Option(
            "--exact", metavar="FILE", help="Devices' own answers, JSON lines with switch, flow, text."
        ),
    ] = None,
    observed: Annotated[
        Path | None,
        typer.Option("--observed", metavar="FILE", help="Flows with observed paths, to rate models by."),
    ] = None,
    hash_: Annotated[
        str | None, typer.Option("--hash", metavar="MODEL", help="Hash of all switches: crc32c,seed=7,...")
    ] = None,
    lag_hash: Annotated[
        str | None, typer.Option("--lag-hash", metavar="MODEL", help="Hash of all switches' LAGs.")
    ] = None,
    addresses: Annotated[
        Path | None, typer.Option("--addresses", metavar="FILE", help="CSV: address, node, port.")
    ] = None,
    numbers: Annotated[
        Path | None,
        typer.Option(
            "--numbers", metavar="FILE", help="CSV: name, port, node_id, port_id of in-band telemetry."
        ),
    ] = None,
    paths: Annotated[
        Path | None, typer.Option("--paths", metavar="FILE", help="Write walked paths here, JSON lines.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Report, and send nothing.")] = False,
    timeout: Annotated[
        str, typer.Option("--timeout", metavar="TIME", help="Patience with a switch.")
    ] = "10s",
    concurrent: Annotated[int, typer.Option("--concurrent", min=1, help="Switches asked at a time.")] = 64,
    rate: Annotated[
        float | None, typer.Option("--rate", min=0.01, help="Most questions a second, over all switches.")
    ] = None,
    plane: Annotated[str, typer.Option("--plane", metavar="NAME", help="Plane of the fabric.")] = "0",
    host: Annotated[
        str | None, typer.Option("--host", metavar="NAME", help="Host whose clock stamps.")
    ] = None,
    tenant: Tenant = FABRIC_TENANT,
    scope: Scope = None,
    bootstrap: Bootstrap = None,
    kafka_properties: KafkaProperties = None,
    as_json: Json = False,
) -> None:
    """Read what ports counted and which flows there are; walk flows through switches' tables.

    Example: tempotrace produce fabric --topology lab.clab.yml --counters leaf1=t0.json@0 --counters leaf1=t1.json@1

    Example: tempotrace produce fabric --topology ibnetdiscover.txt --lfts lfts.txt --flows f.csv --walk --dry-run
    """
    report, clock = FabricReport(), WallClock()
    inputs = fabricdata.Inputs()
    fabricdata.read_topologies(topology or [], inputs, report)
    fabricdata.read_tables(routes or [], lfts or [], inputs, report)
    if addresses is not None:
        fabricdata.read_addresses(addresses, inputs)
    known = fabricdata.read_numbers(numbers) if numbers is not None else {}
    options = Options(tenant, check_scope(scope or f"fabric/{plane}"), host, known)
    if sysfs is not None:
        if counters or flows or hosts or pcap or walk or dry_run:
            raise Usage("--sysfs samples live, alone: read files, flows and walks in a run of their own")
        _sample(
            sysfs, options, node, inputs, every, seconds, report, clock, bootstrap, kafka_properties, as_json
        )
        return
    if not (counters or flows or hosts or pcap):
        raise Usage("nothing to read: give --counters, --flows, --hosts, --pcap or --sysfs")
    now_ns = clock.now_ns_utc()
    readings = fabricdata.read_counters(counters or [], inputs, now_ns, report)
    listed = _flows(hosts, pcap, flows, report)
    found: list[Walked] = []
    if walk:
        limits = _limits(timeout, concurrent, rate)
        walks, listed = _walk(inputs, listed, ssh, limits, exact, observed, (hash_, lag_hash), report)
        if paths is not None:
            _write(walks, paths)
        from tempotrace.fabricwalk import as_path

        found = [as_path(one) for one in walks]
    elif ssh is not None or paths is not None:
        raise Usage("--ssh and --paths go with --walk")
    at_ns = max((reading.at_ns for reading in readings), default=now_ns)
    report.more = {"topology": _shape(inputs), "tables": len(inputs.tables), **report.more}
    batches = read(readings, listed, found, at_ns, inputs.topology, options, report)
    if dry_run:
        for _ in batches:
            pass
        result = {
            "events": report.events,
            "batches": report.batches,
            "skipped": report.skipped,
            **report.fields(),
        }
        require(report.events, "fabric's data", report.warnings, result)
        feed.tell(report, 0)
        emit(result, as_json, lambda: _say(report))
        return
    settings = connect(bootstrap, kafka_properties)
    feed.publish(
        batches, report, settings, tenant=tenant, scope=options.scope, as_json=as_json, what="fabric's data"
    )
    if not as_json:
        _say(report)


def _sample(
    root: Path, options: Options, node: str | None, inputs: fabricdata.Inputs, every: str, seconds: str | None,
    report: FabricReport, clock: WallClock, bootstrap: str | None, kafka_properties: Path | None, as_json: bool,
) -> None:  # fmt: skip
    """Sample sysfs, live."""
    if not root.is_dir():
        raise Usage(f"--sysfs {root}: no such folder; InfiniBand's is /sys/class/infiniband")
    where = options.host or machine_host()
    sampler = SysfsSampler(
        root, replace(options, host=where), node or where, inputs.topology, report, clock, new_incarnation(),
        parse_duration_ns(every, "--every", NS // 1000, 24 * 3600 * NS) / 1e9,
    )  # fmt: skip
    feed.run_live(
        sampler.run, report, connect(bootstrap, kafka_properties), name=f"fabric-{where}", tenant=options.tenant,
        scope=options.scope, clock_id=f"{where}/CLOCK_REALTIME",
        seconds=live_seconds(seconds), as_json=as_json,
    )  # fmt: skip


def _flows(hosts: Path | None, pcap: Files, flows: Path | None, report: FabricReport) -> list[HostFlow]:
    """Flows of all kinds of input; what stays ambiguous is told."""
    captures = fabricdata.read_captures(pcap or [], report)
    listed: list[HostFlow] = []
    if flows is not None:
        with fabricdata.as_far_as_usable(report, "list of flows"):
            listed += fabricdata.read_flows(flows)
            if not listed:
                report.warn(f"{flows}: holds no flow")
    if hosts is not None:
        with fabricdata.as_far_as_usable(report, "hosts"):
            joined = fabricdata.read_hosts(hosts, captures)
            listed += joined.flows
            report.more["ambiguous"] = [
                {"queue_pair": str(one.end), "candidates": [str(c) for c in one.candidates], "why": one.why}
                for one in joined.ambiguous
            ]
    listed += fabricdata.captured_flows(captures, listed)
    sources: dict[str, int] = {}
    for flow in listed:
        name = flow.sport_source.name.lower()
        sources[name] = sources.get(name, 0) + 1
    report.more["sport_sources"] = sources
    return listed


def _limits(timeout: str, concurrent: int, rate: float | None) -> "Limits":
    from producers.fabric.query import Limits

    seconds = parse_duration_ns(timeout, "--timeout", 1, 24 * 3600 * NS) / 1e9
    return Limits(concurrent, seconds, rate)


def _walk(
    inputs: fabricdata.Inputs, listed: list[HostFlow], ssh: Path | None, limits: "Limits", exact: Path | None,
    observed: Path | None, models: tuple[str | None, str | None], report: FabricReport,
) -> tuple[list["Walk"], list[HostFlow]]:  # fmt: skip
    """Walk all flows, asking switches where --ssh says how; (walks, the flows with addresses for names)."""
    from producers.fabric import query
    from streams.paths.hashing import parse_model
    from tempotrace import fabricwalk

    if inputs.topology is None:
        raise Usage("--walk needs --topology")
    device: Shell | None = None
    unreached: dict[str, str] = {}
    inconsistent: set[str] = set()
    if ssh is not None:
        targets = fabricdata.read_targets(ssh)
        device = Shell(targets, report)
        said = query.run(query.collect(targets, device, limits))
        inputs.tables |= said.tables
        unreached, inconsistent = said.unreached, said.inconsistent
        report.more["asked"] = said.asked
    if not inputs.tables and not unreached:
        raise Usage("--walk needs tables: --routes, --lfts or --ssh")
    answers = fabricwalk.read_exact(exact) if exact is not None else {}
    net = replace(
        fabricwalk.network(inputs, listed),
        answers=answers,
        unreached=unreached,
        inconsistent=frozenset(inconsistent),
    )
    known = fabricwalk.known_choices(net, observed, answers)
    ecmp, lag = (None if text is None else parse_model(text) for text in models)
    net = replace(net, choosers=fabricwalk.choosers(net.tables, known, ecmp, lag))
    listed = fabricwalk.resolve(net, listed)
    keys = [flow.key for flow in listed]
    if device is None:
        walks = fabricwalk.walks(net, keys)
    else:
        walks, net = fabricwalk.walks_asking(net, keys, device, limits)
    report.more |= fabricwalk.summary(walks, net)
    return walks, listed


def _write(walks: list["Walk"], path: Path) -> None:
    from tempotrace.fabricwalk import shown

    try:
        with path.open("w") as file:
            for one in walks:
                file.write(json.dumps(shown(one)) + "\n")
    except OSError as error:
        raise Usage(f"--paths {path} cannot be written: {cause_of(error)}") from error


def _shape(inputs: fabricdata.Inputs) -> dict[str, Any] | None:
    found = inputs.topology
    if found is None:
        return None
    return {
        "kinds": inputs.kinds,
        "switches": len(found.switches),
        "hosts": len(found.hosts),
        "links": len(found.links),
    }


def _say(report: FabricReport) -> None:
    fields = report.fields()
    print(f"  {report.counters:,} counters, {report.flows:,} flows, {report.paths:,} paths")
    for name in ("sport_sources", "path_sources", "ends"):
        if fields.get(name):
            shown = ", ".join(f"{count:,} {what}" for what, count in fields[name].items())
            print(f"  {name.replace('_', ' ')}: {shown}")
    for one in fields.get("ambiguous", ()):
        print(f"  ambiguous: {one['queue_pair']}: {one['why']}")
    for switch, why in fields.get("unreached", {}).items():
        print(f"  unreached: {switch}: {why}")
    for switch in fields.get("inconsistent", ()):
        print(f"  inconsistent: {switch} changed while it was read")
