"""What `tempotrace produce fabric` is given, read: topologies, tables, counters, flows, exact answers."""

import csv
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import yaml

from producers.fabric import counters, hashes, infiniband, routes, routes_text, topology
from producers.fabric.rows import FabricReport, Reading
from producers.fabric.shell import Target
from producers.host import netdevs, rdma, roce
from producers.host.flows import Captured, Found, Host, join, of_capture, stated
from schemas.errors import MalformedInput, Usage, cause_of
from schemas.network import FlowKey, HalfLink, HostFlow, LidTable, RouteTable, Topology
from schemas.network import topology as make_topology
from streams.paths.hashing import sport_of_qpns
from tempotrace.flowdata import read_file


@dataclass
class Inputs:
    """All that was read."""

    topology: Topology | None = None
    tables: dict[str, RouteTable | LidTable] = field(default_factory=dict)
    addresses: dict[str, tuple[str, str]] = field(default_factory=dict)
    speeds: dict[str, dict[str, float]] = field(default_factory=dict)
    guids: dict[str, str] = field(default_factory=dict)
    kinds: list[str] = field(default_factory=list)


def named(text: str, what: str) -> tuple[str, str]:
    """(name, rest) of `NAME=FILE`. Raises Usage."""
    name, equals, rest = text.partition("=")
    if not equals or not name or not rest:
        raise Usage(f"{what} {text}: write NAME=FILE")
    return name, rest


def content(path: str | Path) -> str:
    """A file's text. Raises MalformedInput."""
    try:
        return Path(path).read_text()
    except OSError as error:
        raise MalformedInput(f"cannot be read: {cause_of(error)}", str(path)) from error
    except UnicodeDecodeError as error:
        raise MalformedInput("is no text", str(path)) from error


@contextmanager
def as_far_as_usable(report: FabricReport, kind: str) -> Iterator[None]:
    """One input of several: if it cannot be used, a warning says so and the others still are."""
    try:
        yield
    except MalformedInput as error:
        report.warn(str(error))
        report.skip(f"unusable {kind}")


def as_json(text: str, where: str) -> dict[str, Any]:
    """A JSON object. Raises MalformedInput."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise MalformedInput("no JSON", where) from error
    if not isinstance(found, dict):
        raise MalformedInput("no JSON object", where)
    return found


def read_topologies(files: Sequence[str], inputs: Inputs, report: FabricReport) -> None:
    """All topology files as one. An LLDP listing of one machine is given as NODE=FILE."""
    links: list[HalfLink] = []
    switches, hosts, lids = set[str](), set[str](), dict[int, tuple[str, str]]()
    for given in files:
        node, path = named(given, "--topology") if "=" in given else (None, given)
        text = content(path)
        if "\nswitchguid=" in text or "\ncaguid=" in text:
            found, guids = infiniband.discovered(text, str(path))
            inputs.guids |= guids
            inputs.kinds.append("ibnetdiscover")
            lids |= found.lids
        else:
            parsed = topology.read(text, str(path), node)
            found = parsed.topology
            inputs.kinds.append(parsed.kind)
            for note in parsed.notes:
                report.warn(note)
        links += found.links
        switches |= found.switches
        hosts |= found.hosts
    if files:
        inputs.topology = make_topology(links, switches, hosts - switches, lids)


def read_tables(files: Sequence[str], lfts: Sequence[str], inputs: Inputs, report: FabricReport) -> None:
    """Routing tables by switch; several files of one switch (APPL_DB, hash settings, groups) are one dump."""
    parts: dict[str, list[str]] = {}
    for given in files:
        switch, path = named(given, "--routes")
        parts.setdefault(switch, []).append(path)
    for switch, paths in parts.items():
        dump: dict[str, Any] = {}
        table: RouteTable | None = None
        for path in paths:
            text = content(path)
            if text.lstrip()[:1] == "[":
                table = routes.read(text, switch, report, path)
            elif text.lstrip()[:1] == "{":
                dump |= as_json(text, path)
            else:
                table = routes_text.read(text, switch, report, path)
        where = ", ".join(paths)
        if dump and (table is None or any(key.startswith("ROUTE_TABLE:") for key in dump)):
            table = routes.of_json(dump, switch, report, where)
        if table is None:
            raise MalformedInput(f"holds no routes of {switch}", where)
        inputs.tables[switch] = replace(
            hashes.with_buckets(table, dump, where), hashing=hashes.settings(dump, where) or table.hashing
        )
        inputs.speeds[switch] = counters.speeds_of(dump)
    for path in lfts:
        inputs.tables |= infiniband.forwarding(content(path), inputs.guids, path)


def read_addresses(path: Path, inputs: Inputs) -> None:
    """Owners of addresses: CSV with the columns address, node, and port where the address has one."""
    for number, row in enumerate(csv.DictReader(content(path).splitlines()), 1):
        try:
            inputs.addresses[str(ip_address(row["address"]))] = (row["node"], row.get("port") or "")
        except (KeyError, ValueError) as error:
            raise MalformedInput("columns address, node[, port]", f"{path}, row {number}") from error


def read_counters(files: Sequence[str], inputs: Inputs, now_ns: int, report: FabricReport) -> list[Reading]:
    """Readings of `SWITCH=FILE[@TIME]`: COUNTERS_DB dumps, or InfiniBand's sysfs as folder or {path: content}.

    TIME is in ISO 8601 or Unix seconds; without it the file's own time counts.
    """
    out = []
    for given in files:
        node, rest = named(given, "--counters")
        path, at, time = rest.rpartition("@")
        if not at:
            path, time = rest, ""
        at_ns = _time_ns(time, given) if time else None
        with as_far_as_usable(report, "counters"):
            found = _counted(path, inputs.speeds.get(node, {}))
            out.append(Reading(node, _mtime_ns(Path(path), now_ns) if at_ns is None else at_ns, found))
    return out


def _counted(path: str, speeds: dict[str, float]) -> dict[str, counters.Counters]:
    """What a dump or a folder of sysfs holds. Raises MalformedInput."""
    if Path(path).is_dir():
        return counters.of_sysfs(counters.sysfs_files(Path(path)), path)
    dump = as_json(content(path), path)
    if any("/ports/" in key for key in dump):
        return counters.of_sysfs({key: str(value) for key, value in dump.items()}, path)
    return counters.of_sonic(dump, path, speeds | counters.speeds_of(dump))


def _mtime_ns(path: Path, now_ns: int) -> int:
    try:
        return min(path.stat().st_mtime_ns, now_ns)
    except OSError as error:
        raise MalformedInput(f"cannot be read: {cause_of(error)}", str(path)) from error


def _time_ns(text: str, given: str) -> int:
    try:
        if text.replace(".", "", 1).isdecimal():
            whole, _, part = text.partition(".")
            return int(whole) * 10**9 + int(part.ljust(9, "0")[:9] or 0)
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise Usage(
            f"--counters {given}: {text} is no time; write 2026-01-31T12:00:00Z or Unix seconds"
        ) from None
    if moment.tzinfo is None:
        raise Usage(f"--counters {given}: {text} names no time zone; write Z for UTC")
    return round(moment.timestamp() * 1e6) * 1000


def sport_of(local: int, remote: int) -> int:
    """The kernel's source port of a connected queue pair."""
    import numpy as np

    return int(sport_of_qpns(np.array([local]), np.array([remote]))[0])


_PARTS = ("qp.txt", "cm_id.txt", "gids.txt", "link.txt", "link.json", "ss.txt", "nccl.log")


def read_hosts(folder: Path, captures: Sequence[Captured]) -> Found:
    """Flows of hosts: a folder with one folder a host, which holds what commands printed there.

    `qp.txt` (rdma resource show qp), `cm_id.txt`, `gids.txt` (show_gids), `link.txt` (rdma link), `link.json`
    (ip -d -j link), `ss.txt` (ss -tunpi), `nccl.log`, and `PID.environ` (/proc/PID/environ) for each process;
    whatever is there is used.
    """
    hosts = []
    for place in sorted(folder.iterdir()) if folder.is_dir() else []:
        if not place.is_dir():
            continue
        text = {name: content(place / name) if (place / name).exists() else "" for name in _PARTS}
        owners = {}
        for environ in sorted(place.glob("*.environ")):
            if environ.stem.isdecimal():
                pairs = (entry.partition("=") for entry in content(environ).replace("\n", "\0").split("\0"))
                owners[int(environ.stem)] = rdma.owner({name: value for name, _, value in pairs})
        at = str(place)
        hosts.append(
            Host(
                place.name, rdma.queue_pairs(text["qp.txt"], at), rdma.cm_ids(text["cm_id.txt"], at),
                rdma.gids(text["gids.txt"], at), rdma.nccl_pairs(text["nccl.log"]),
                rdma.sockets(text["ss.txt"], at), owners,
                netdevs.netdevs(text["link.json"], at) if text["link.json"] else {}, rdma.netdevs(text["link.txt"]),
            )
        )  # fmt: skip
    if not hosts:
        raise MalformedInput("holds no folder of a host", str(folder))
    return join(hosts, sport_of, captures)


def read_captures(files: Sequence[Path], report: FabricReport) -> list[Captured]:
    """RoCE flows of captures."""
    out: list[Captured] = []
    for path in files:
        with as_far_as_usable(report, "capture"):
            out += roce.captured(path, report)
    return out


def read_flows(path: Path) -> list[HostFlow]:
    """A list of flows: columns src, dst, src_port, dst_port, protocol, qpn, job, bytes (tempotrace.flowdata)."""
    out = []
    for seen in read_file(path).seen:
        key = FlowKey(seen.src, seen.dst, seen.protocol, seen.src_port, seen.dst_port, seen.qpn)
        out.append(stated(HostFlow(key, job=seen.job, bytes=int(seen.bytes), how="list"), sport_of, None))
    return out


def captured_flows(captures: Sequence[Captured], known: Iterable[HostFlow]) -> list[HostFlow]:
    """Flows of captures that no host was found to own."""
    owned = {(flow.key.src, flow.key.dst, flow.key.qpn) for flow in known}
    return [f for f in of_capture(captures) if (f.key.src, f.key.dst, f.key.qpn) not in owned]


def read_numbers(path: Path) -> dict[tuple[str, str], tuple[int, int]]:
    """In-band telemetry's numbers of nodes and ports: CSV with the columns name, port, node_id, port_id."""
    out = {}
    for number, row in enumerate(csv.DictReader(content(path).splitlines()), 1):
        try:
            out[row["name"], row["port"]] = (int(row["node_id"]), int(row["port_id"]))
        except (KeyError, TypeError, ValueError) as error:
            raise MalformedInput("columns name, port, node_id, port_id", f"{path}, row {number}") from error
    return out


def read_targets(path: Path) -> dict[str, Target]:
    """Where switches are: YAML `{switch: {address: admin@10.0.0.1, dialect: sonic}}`."""
    try:
        found = yaml.safe_load(content(path))
    except yaml.YAMLError as error:
        raise MalformedInput("no YAML", str(path)) from error
    if not isinstance(found, Mapping):
        raise MalformedInput("targets are a mapping", str(path))
    out = {}
    for name, entry in found.items():
        if not isinstance(entry, dict) or "dialect" not in entry:
            raise MalformedInput("a target is {address, dialect}", f"{path}, {name}")
        out[str(name)] = Target(str(entry.get("address") or name), str(entry["dialect"]))
    return out
