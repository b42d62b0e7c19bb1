"""Routing tables as JSON: SONiC's APPL_DB and ASIC_DB, FRR's `show ip route json`, `ip -j route`.

Each reader gives the routes that the device forwards by: of several candidates for a prefix the one that FRR
selected and installed, of next hops those in the forwarding table. What is left out is counted by reason.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Final

from producers.fabric import asic
from producers.fabric.shapes import mapping, mappings, whole, word
from producers.report import Report
from schemas.errors import MalformedInput
from schemas.network import RECURSION_MAX, NextHop, Route, RouteTable, prefix

_NOWHERE: Final = ("0.0.0.0", "::", "")
_DEVICE_DROPS: Final = ("Null0", "null0", "blackhole", "Drop", "drop")
_DROPS: Final = ("blackhole", "reject", "unreachable", "admin-prohibited")


def read(text: str, switch: str, report: Report, where: str = "") -> RouteTable:
    """A table of any of these kinds. Raises MalformedInput."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise MalformedInput("no JSON", where or switch) from error
    return of_json(found, switch, report, where or switch)


def of_json(found: Any, switch: str, report: Report, where: str) -> RouteTable:
    """As `read`, of what json gives."""
    if isinstance(found, list):
        return iproute(found, switch, report, where)
    if not isinstance(found, dict):
        raise MalformedInput("no table of routes", where)
    keys = list(found)
    if any(key.startswith("ASIC_STATE:") for key in keys):
        return asic.tables(found, switch, report, where)
    if any(key.startswith(("ROUTE_TABLE:", "NEXTHOP_GROUP_TABLE:")) for key in keys):
        return appl_db(found, switch, report, where)
    if not keys or all(isinstance(entry, list | dict) for entry in found.values()):
        return frr(found, switch, report, where)
    raise MalformedInput("no table of routes", where)


def frr(found: Mapping[str, Any], switch: str, report: Report, where: str) -> RouteTable:
    """FRR's JSON: {prefix: [route, ...]}, or with `vrf all` {VRF: {prefix: [...]}}."""
    if found and all(isinstance(entry, dict) for entry in found.values()):
        tables = {str(vrf): entry for vrf, entry in found.items()}
    else:
        tables = {"default": found}
    return RouteTable(
        switch, {vrf: tuple(_frr_routes(table, report, where)) for vrf, table in tables.items()}
    )


def _frr_routes(table: Mapping[str, Any], report: Report, where: str) -> Iterable[Route]:
    for name, candidates in table.items():
        if not isinstance(candidates, list) or not all(isinstance(entry, dict) for entry in candidates):
            raise MalformedInput("a prefix has a list of routes", f"{where}, {name}")
        chosen = [entry for entry in candidates if entry.get("selected") and not entry.get("queued")]
        report.skip("route that the device did not select", len(candidates) - len(chosen))
        if not chosen:
            continue
        best = next((entry for entry in chosen if entry.get("installed")), chosen[0])
        hops = _frr_hops(mappings(best.get("nexthops"), f"{where}, {name}"), report, f"{where}, {name}")
        protocol = str(best.get("protocol", ""))
        yield Route(prefix(name), hops, protocol, local=protocol == "local")


def _frr_hops(listed: Iterable[Mapping[str, Any]], report: Report, where: str) -> tuple[NextHop, ...]:
    """Next hops in the forwarding table. Behind a recursive one FRR lists what it resolved to, where it did."""
    kept, recursive = [], []
    for hop in listed:
        if hop.get("duplicate") or not (hop.get("fib") or hop.get("active")):
            report.skip("next hop that is not in the forwarding table")
        elif hop.get("recursive") and not any(hop.get(name) for name in _DROPS):
            recursive.append(hop)
        else:
            kept.append(hop)
    return tuple(_frr_hop(hop, where) for hop in kept or recursive)


def _frr_hop(hop: Mapping[str, Any], where: str) -> NextHop:
    drop = next((name for name in _DROPS if hop.get(name)), "")
    gateway = hop.get("ip")
    return NextHop(
        str(gateway) if gateway not in (None, *_NOWHERE) else None,
        word(hop.get("interfaceName")) or None,
        max(1, whole(hop.get("weight"), 1, where)),
        drop,
        None if hop.get("vrf") in (None, 0) else str(hop["vrf"]),
    )


def iproute(found: list[Any], switch: str, report: Report, where: str) -> RouteTable:
    """`ip -j route`, also `ip -j -6 route` and `ip -j route show table all`."""
    best: dict[tuple[str, str], tuple[int, Route]] = {}
    for number, entry in enumerate(found, 1):
        if not isinstance(entry, dict) or "dst" not in entry:
            raise MalformedInput("a route has dst", f"{where}, route {number}")
        kind = str(entry.get("type", "unicast"))
        if kind in ("broadcast", "multicast", "anycast"):
            report.skip(f"{kind} route")
            continue
        at = f"{where}, route {number}"
        if _down(entry) and "nexthops" not in entry:
            report.skip("route whose link is down")
            continue
        drop = kind if kind in ("blackhole", "unreachable", "prohibit", "throw") else ""
        hops = [_ip_hop(hop, at) for hop in mappings(entry.get("nexthops"), at) or [entry] if not _down(hop)]
        if drop:
            hops = [NextHop(drop=drop)]
        table = str(entry.get("table", "main"))
        vrf = "default" if table in ("main", "local", "254", "255") else table
        text = str(entry["dst"])
        if text == "default":
            six = ":" in str(entry.get("gateway") or (hops[0].gateway if hops else "") or "")
            text = "::/0" if six else "0.0.0.0/0"
        route = Route(prefix(text), tuple(hops), str(entry.get("protocol", "")), local=kind == "local")
        metric = whole(entry.get("metric"), 0, at)
        known = best.get((vrf, str(route.prefix)))
        if known is not None and known[0] == metric and route.prefix.version == 6:
            # Older kernels list each next hop of an IPv6 route on its own.
            route = replace(route, next_hops=known[1].next_hops + route.next_hops)
            best[vrf, str(route.prefix)] = (metric, route)
            continue
        if known is not None:
            report.skip("route of a greater metric")
        if known is None or metric < known[0]:
            best[vrf, str(route.prefix)] = (metric, route)
    routes: dict[str, list[Route]] = {}
    for (vrf, _), (_, route) in best.items():
        routes.setdefault(vrf, []).append(route)
    return RouteTable(switch, {vrf: tuple(mine) for vrf, mine in routes.items()})


def _down(hop: Mapping[str, Any]) -> bool:
    flags = hop.get("flags")
    return isinstance(flags, list) and ("dead" in flags or "linkdown" in flags)


def _ip_hop(hop: Mapping[str, Any], where: str) -> NextHop:
    gateway = hop.get("gateway")
    if gateway is None and isinstance(hop.get("via"), dict):  # an IPv4 route over an IPv6 neighbour
        gateway = hop["via"].get("host")
    return NextHop(
        word(gateway) or None, word(hop.get("dev")) or None, max(1, whole(hop.get("weight"), 1, where))
    )


def appl_db(found: Mapping[str, Any], switch: str, report: Report, where: str) -> RouteTable:
    """SONiC's APPL_DB: routes, next hop groups, LAG members, neighbours, interfaces' VRFs."""
    routes: dict[str, list[Route]] = {}
    lags: dict[str, list[str]] = {}
    neighbours: dict[str, str] = {}
    vrfs: dict[str, str] = {}
    groups = {
        key.partition(":")[2]: mapping(entry, f"{where}, {key}")
        for key, entry in found.items()
        if key.startswith("NEXTHOP_GROUP_TABLE:")
    }
    for key, entry in found.items():
        table, _, name = key.partition(":")
        entry = mapping(entry, f"{where}, {key}")
        if "value" in entry:
            entry = mapping(entry["value"], f"{where}, {key}")
        if table == "ROUTE_TABLE":
            vrf, text = _vrf_of(name)
            hops = _appl_hops(entry, groups, found, report, f"{where}, {key}")
            if hops is not None:
                routes.setdefault(vrf, []).append(Route(prefix(text), hops, str(entry.get("protocol", ""))))
        elif table == "LAG_MEMBER_TABLE":
            lag, _, port = name.partition(":")
            if entry.get("status", "enabled") == "enabled":
                lags.setdefault(lag, []).append(port)
        elif table == "NEIGH_TABLE":
            port, _, address = name.partition(":")
            neighbours[address] = port
        elif table == "INTF_TABLE" and entry.get("vrf_name"):
            vrfs[name.partition(":")[0]] = str(entry["vrf_name"])
    return RouteTable(
        switch,
        {vrf: tuple(mine) for vrf, mine in routes.items()},
        {lag: tuple(ports) for lag, ports in lags.items()},
        neighbours,
        vrfs,
    )


def _vrf_of(name: str) -> tuple[str, str]:
    """(VRF, prefix) of a key: a VRF stands before the prefix, `Vrf_red:10.0.0.0/8`."""
    head, colon, rest = name.partition(":")
    if colon and head.startswith(("Vrf", "mgmt", "Vnet")):
        return head, rest
    return "default", name


def _appl_hops(
    entry: Mapping[str, Any],
    groups: Mapping[str, Mapping[str, Any]],
    found: Mapping[str, Any],
    report: Report,
    at: str,
    depth: int = 0,
) -> tuple[NextHop, ...] | None:
    if str(entry.get("blackhole", "false")) == "true":
        return (NextHop(drop="blackhole"),)
    group = word(entry.get("nexthop_group"))
    if depth > RECURSION_MAX:
        raise MalformedInput("next hop groups that lead to each other", at)
    if group:
        if group in groups:
            return _appl_hops(groups[group], groups, found, report, at, depth + 1)
        by_class = found.get(f"CLASS_BASED_NEXT_HOP_GROUP_TABLE:{group}")
        if by_class is None:
            report.skip("route to a next hop group that is not listed")
            return None
        # Which member counts depends on the packet's class, which a flow list does not say: take them all.
        report.warn(f"{at}: class-based group {group}: all its members are taken as candidates")
        names = _split(mapping(by_class, at).get("members"))
        hops = [
            _appl_hops(groups[name], groups, found, report, at, depth + 1) or ()
            for name in names
            if name in groups
        ]
        return tuple(hop for part in hops for hop in part)
    ports = _split(entry.get("ifname"))
    gateways = _split(entry.get("nexthop"))
    weights = _split(entry.get("weight"))
    if len(gateways) > 1 and len(ports) not in (0, len(gateways)):
        raise MalformedInput(f"{len(gateways)} next hops on {len(ports)} interfaces", at)
    out = []
    for k in range(max(len(ports), len(gateways))):
        gateway = gateways[k] if k < len(gateways) else ""
        port = ports[k] if k < len(ports) else None
        drop = "blackhole" if port in _DEVICE_DROPS else ""
        weight = int(weights[k]) if k < len(weights) and weights[k].isdecimal() else 1
        out.append(NextHop(None if gateway in _NOWHERE else gateway, port, max(1, weight), drop))
    if not out:
        report.skip("route without a next hop")
        return None
    return tuple(out)


def _split(given: Any) -> list[str]:
    return [part.strip() for part in str(given).split(",")] if given else []
