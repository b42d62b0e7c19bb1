"""Where `tempotrace flows` gets its flows: the lake's tables, or a file (CSV, JSON or JSON lines)."""

import csv
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np

from producers.fabric.topology import read as read_topology
from schemas.errors import MalformedInput, Usage, cause_of
from schemas.flow import address_bytes
from sinks import views
from streams.paths.demand import Flows
from streams.paths.fabric import Fabric
from streams.paths.hashing import HashModel
from streams.paths.recorded import Recorded, Seen, connected, observed, on_fabric, slots_of
from streams.paths.route import Entries, by_hash
from streams.paths.topology import of_topology, parse_fabric
from streams.paths.whatif import with_ports

DEFAULT_GBPS: Final = 400.0
_ORDER: Final = ("observed", "observed_probe", "walked", "computed", "candidates")


@dataclass(frozen=True)
class Source:
    """What was read, in words and figures, for the head of a report."""

    what: str
    seen: list[Seen]
    capacity_bps: dict[str, float] = field(default_factory=dict)
    coverage: float | None = None
    interval_ns: tuple[int, int] | None = None
    counted: dict[str, tuple[float, float | None, float | None]] = field(default_factory=dict)
    """By link whose port was counted: bytes, mean use and coverage over the interval, None where unknown."""

    def head(self) -> dict[str, Any]:
        """As fields of a report."""
        known = [one.path_source or "unknown" for one in self.seen]
        return {
            "source": self.what,
            "coverage": self.coverage,
            "interval_ns": self.interval_ns,
            "path_sources": {name: known.count(name) / len(known) for name in sorted(set(known))}
            if known
            else {},
        }


def read_lake(lake: Path, tenant: str, scope: str | None) -> Source:
    """A tenant's flows over all windows: bytes summed, best known and latest path. Raises Setup, Usage."""
    where, arguments = "tenant = ?", [tenant]
    if scope is not None:
        where, arguments = where + " AND scope = ?", [tenant, scope]
    with views.connect(lake) as connection:
        rows = connection.execute(
            "SELECT src, dst, src_port, dst_port, protocol, job, sum(bytes), "
            "arg_max(path, (-list_position(?, path_source), window_start_ns)), "
            "arg_max(path_source, (-list_position(?, path_source), window_start_ns)), "
            "arg_max(agreement, (-list_position(?, path_source), window_start_ns)) FILTER (NOT isnan(agreement)), "
            f"min(window_start_ns), max(window_end_ns) FROM flows WHERE {where} GROUP BY ALL "
            "ORDER BY ALL",
            [list(_ORDER), list(_ORDER), list(_ORDER), *arguments],
        ).fetchall()
        links = connection.execute(
            "SELECT link, max(capacity_bps) FILTER (NOT isnan(capacity_bps)), sum(bytes), "
            "sum(bytes * coverage) FILTER (NOT isnan(coverage)), "
            "sum(bytes) FILTER (interval_ns IS NOT NULL), sum(interval_ns), "
            "sum(bytes) FILTER (NOT isnan(coverage)) "
            f"FROM links WHERE {where} GROUP BY ALL",
            arguments,
        ).fetchall()
    if not rows:
        raise Usage(f"the lake {lake} holds no flows of {tenant}" + (f" in {scope}" if scope else ""))
    seen = [_recorded((*row[:5], row[6]), row[7], row[5], tenant, row[8], row[9]) for row in rows]
    counted = [(size, covered) for _, _, size, covered, *_ in links if covered is not None and size]
    return Source(
        f"the lake in {lake}", seen, {name: bps for name, bps, *_ in links if bps},
        sum(c for _, c in counted) / sum(s for s, _ in counted) if counted else None,
        (min(row[10] for row in rows), max(row[11] for row in rows)),
        {
            name: (
                float(size), 8e9 * size / (bps * taken) if bps and taken else None, covered / whole if whole else None
            )
            for name, bps, _, covered, size, taken, whole in links
            if size is not None
        },
    )  # fmt: skip


def read_windows(lake: Path, tenant: str, scope: str | None, last: int) -> list[tuple[int, Seen]]:
    """(start of the window, flow as seen in it) of the last windows that hold flows, in order of time."""
    where, arguments = "tenant = ? AND len(path) > 0", [tenant]
    if scope is not None:
        where, arguments = where + " AND scope = ?", [tenant, scope]
    with views.connect(lake) as connection:
        rows = connection.execute(
            "SELECT window_start_ns, src, dst, src_port, dst_port, protocol, bytes, path, job, path_source "
            f"FROM flows WHERE {where} AND window_start_ns >= (SELECT min(start) FROM (SELECT DISTINCT "
            f"window_start_ns AS start FROM flows WHERE {where} ORDER BY start DESC LIMIT ?)) ORDER BY ALL",
            [*arguments, *arguments, last],
        ).fetchall()
    seen = [(row[0], _recorded(row[1:7], row[7], row[8], tenant, row[9])) for row in rows]
    return [(start, one) for start, one in seen if one.path]


def _recorded(
    ends: Sequence[Any],
    path: Any,
    job: str | None,
    tenant: str,
    known: str | None,
    agreement: float | None = None,
) -> Seen:
    """A flow from the lake's columns: src, dst, ports, protocol, bytes; steps of its path.

    A path with a gap is none.
    """
    src, dst, sport, dport, protocol, size = ends
    steps = tuple((step["link"], float(step["share"])) for step in path or ())
    return Seen(
        src or "",
        dst or "",
        sport or 0,
        dport or 0,
        protocol or 0,
        float(size or 0),
        steps if connected(steps) else (),
        job or "",
        tenant,
        path_source=known or "",
        agreement=agreement,
    )


def read_file(path: Path) -> Source:
    """Flows of a file with the columns src, dst, src_port, dst_port, protocol, bytes, job, tenant, qpn, path.

    Only src and dst are required. `path` is a list of links, or of {"link", "share"}; in CSV links joined
    by |.
    """
    return Source(f"file {path}", [_seen(row, where) for row, where in _rows(path)])


def _rows(path: Path) -> Iterable[tuple[Mapping[str, Any], str]]:
    try:
        text = path.read_text()
    except OSError as error:
        raise MalformedInput(f"cannot be read: {cause_of(error)}", str(path)) from error
    except UnicodeDecodeError as error:
        raise MalformedInput("is no text", str(path)) from error
    if text.lstrip().startswith(("[", "{")):
        try:
            whole = text.lstrip().startswith("[")
            found = (
                json.loads(text)
                if whole
                else [json.loads(line) for line in text.splitlines() if line.strip()]
            )
        except ValueError as error:
            raise MalformedInput(f"no JSON: {error}", str(path)) from error
        rows: list[Any] = found
    else:
        rows = list(csv.DictReader(text.splitlines()))
    for number, row in enumerate(rows, 1):
        if not isinstance(row, dict):
            raise MalformedInput("a flow is an object", f"{path}, row {number}")
        yield row, f"{path}, row {number}"


def _seen(row: Mapping[str, Any], where: str) -> Seen:
    try:
        number = {name: int(row.get(name) or fallback) for name, fallback in
                  (("src_port", 0), ("dst_port", 4791), ("protocol", 17), ("qpn", 0))}  # fmt: skip
        size = 1.0 if row.get("bytes") in (None, "") else float(row["bytes"])
        path = _path(row.get("path") or ())
        src, dst = str(row["src"]), str(row["dst"])
    except (KeyError, TypeError, ValueError) as error:
        raise MalformedInput(
            f"a flow needs src, dst and numbers where numbers belong: {error!r}", where
        ) from error
    if not (0 <= size < math.inf and 0 <= number["src_port"] < 65536 and 0 <= number["dst_port"] < 65536):
        raise MalformedInput("bytes below 0, or a port beyond 65535", where)
    return Seen(
        src,
        dst,
        number["src_port"],
        number["dst_port"],
        number["protocol"],
        size,
        path,
        str(row.get("job") or ""),
        str(row.get("tenant") or ""),
        number["qpn"],
        str(row.get("path_source") or ("given" if path else "")),
    )


def _path(given: Any) -> tuple[tuple[str, float], ...]:
    steps = given.split("|") if isinstance(given, str) else given
    return tuple(
        (str(step["link"]), float(step.get("share", 1)))
        if isinstance(step, dict)
        else (str(step).strip(), 1.0)
        for step in steps
    )


def read_fabric(text: str, gbps: float = DEFAULT_GBPS) -> Fabric:
    """A generated fabric by its description, or that of a topology file of any kind we read.

    Links without a capacity of their own have `gbps`. Raises MalformedInput.
    """
    path = Path(text)
    if not path.exists():
        return parse_fabric(text)
    try:
        content = path.read_text()
    except OSError as error:
        raise MalformedInput(f"cannot be read: {cause_of(error)}", str(path)) from error
    except UnicodeDecodeError as error:
        raise MalformedInput("is no text", str(path)) from error
    return of_topology(read_topology(content, str(path)).topology, gbps * 1e9)


def stated_capacities(text: str) -> frozenset[str] | None:
    """Links of a topology file that have a capacity of their own; None for a generated fabric: all have."""
    path = Path(text)
    if not path.exists():
        return None
    found = read_topology(path.read_text(), str(path)).topology
    return frozenset(link.name for link in found.links if link.capacity_bps)


def placed(source: Source, fabric: Fabric | None, model: HashModel, gbps: float) -> Recorded:
    """Flows on a fabric: computed over the one given, else as they were recorded."""
    if fabric is None:
        with_path = [one for one in source.seen if one.path]
        return observed(with_path, source.capacity_bps, gbps * 1e9, counted=sorted(source.counted))
    flows = on_fabric(source.seen, fabric)
    return Recorded(fabric, flows, by_hash(fabric, flows, model), 0)


def reroute(path: str, fabric: Fabric, flows: Flows, entries: Entries, model: HashModel) -> Entries:
    """Entries after a file of changes: rows of src, dst, src_port, dst_port and `new_src_port`, or `path`.

    Other flows stay where they are. Raises Usage for a row that names no flow or no link of the fabric.
    """
    known: dict[tuple[bytes, bytes, int, int], int] = {}
    for k in range(len(flows)):
        known[_key(flows, k)] = k
    ports = np.full(len(flows), -1, np.int64)
    paths: dict[int, list[str]] = {}
    for row, where in _rows(Path(path)):
        one = _seen(row, where)
        try:
            width = flows.src_address.shape[1]
            ends = address_bytes(one.src)[-width:], address_bytes(one.dst)[-width:]
            key = (*ends, one.src_port, one.dst_port)
        except ValueError:  # names of endpoints
            key = _key(on_fabric([one], fabric), 0)
        if key not in known:
            raise Usage(f"{where} names no flow: {one.src}:{one.src_port} to {one.dst}:{one.dst_port}")
        if one.path:
            paths[known[key]] = [name for name, _ in one.path]
        elif row.get("new_src_port"):
            ports[known[key]] = int(row["new_src_port"])
        else:
            raise Usage(f"{where} has neither new_src_port nor path")
    return _changed(fabric, flows, entries, model, ports, paths)


def _changed(
    fabric: Fabric, flows: Flows, entries: Entries, model: HashModel, ports: Any, paths: dict[int, list[str]]
) -> Entries:
    """Entries where some flows have other ports, and some other paths."""
    moved = np.flatnonzero(ports >= 0)
    taken = by_hash(fabric, with_ports(flows, ports).select(moved), model)
    flow, slot, share = [moved[taken.flow]], [taken.slot.astype(np.int64)], [taken.share]
    if paths:
        number = {fabric.link_name(k): k for k in range(len(fabric.links))}
        for k, names in paths.items():
            unknown = [name for name in names if name not in number]
            if unknown:
                raise Usage(f"{unknown[0]} is no link of the fabric ({fabric.link_name(0)} is one)")
            link = np.array([number[name] for name in names])
            target = np.full(len(link), fabric.leaf[flows.dst[k]])
            groups, found, off = slots_of(fabric, link, target)
            if off:
                raise Usage(f"the path {' | '.join(names)} is on no shortest way to its destination")
            ends = groups.first[[fabric.up[flows.src[k]], fabric.down[flows.dst[k]]]]
            found = found[~np.isin(found, ends)]
            slot.append(np.concatenate((ends[:1], found, ends[1:])))
            flow.append(np.full(len(found) + 2, k))
            share.append(np.ones(len(found) + 2))
    stay = ~np.isin(entries.flow, np.concatenate((moved, np.array(list(paths), np.int64))))
    flow.append(entries.flow[stay].astype(np.int64))
    slot.append(entries.slot[stay].astype(np.int64))
    share.append(entries.share[stay])
    order = np.argsort(np.concatenate(flow), kind="stable")
    shares = np.concatenate(share)[order]
    return Entries(
        np.concatenate(flow)[order].astype(np.int32), np.concatenate(slot)[order].astype(np.int32), shares,
        bool((shares == 1).all()),
    )  # fmt: skip


def _key(flows: Flows, k: int) -> tuple[bytes, bytes, int, int]:
    return (
        flows.src_address[k].tobytes(),
        flows.dst_address[k].tobytes(),
        int(flows.sport[k]),
        int(flows.dport[k]),
    )
