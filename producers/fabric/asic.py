"""SONiC's ASIC_DB: what the chip was told, as SAI objects by kind and id, followed from route to port."""

import json
from collections.abc import Mapping
from typing import Any, Final

from producers.fabric.shapes import whole, word
from producers.report import Report
from schemas.errors import MalformedInput
from schemas.network import NextHop, Route, RouteTable, prefix

_MEMBER: Final = "SAI_NEXT_HOP_GROUP_MEMBER_ATTR"
_INTERFACE: Final = "SAI_ROUTER_INTERFACE_ATTR"


def tables(found: Mapping[str, Any], switch: str, report: Report, where: str) -> RouteTable:
    """Routes by virtual router. Ports keep their SAI object ids, or have names by HOSTIF entries."""
    by_kind: dict[str, dict[str, Mapping[str, Any]]] = {}
    for key, entry in found.items():
        if key.startswith("ASIC_STATE:SAI_OBJECT_TYPE_"):
            kind, _, name = key.removeprefix("ASIC_STATE:SAI_OBJECT_TYPE_").partition(":")
            by_kind.setdefault(kind, {})[name] = entry if isinstance(entry, dict) else {}
    chip = _Chip(by_kind, report)
    routes: dict[str, list[Route]] = {}
    vrs = sorted({_route_key(name, where)[1] for name in by_kind.get("ROUTE_ENTRY", {})})
    default = _default_router(by_kind, vrs)
    for name, entry in by_kind.get("ROUTE_ENTRY", {}).items():
        text, vr = _route_key(name, where)
        route = chip.route(text, entry)
        if route is not None:
            routes.setdefault("default" if vr == default else vr, []).append(route)
    return RouteTable(switch, {vrf: tuple(mine) for vrf, mine in routes.items()}, chip.lags())


def _default_router(by_kind: Mapping[str, Mapping[str, Any]], vrs: list[str]) -> str:
    for entry in by_kind.get("SWITCH", {}).values():
        if "SAI_SWITCH_ATTR_DEFAULT_VIRTUAL_ROUTER_ID" in entry:
            return str(entry["SAI_SWITCH_ATTR_DEFAULT_VIRTUAL_ROUTER_ID"])
    return vrs[0] if vrs else ""


def _route_key(name: str, where: str) -> tuple[str, str]:
    try:
        inner = json.loads(name)
        return str(inner["dest"]), str(inner["vr"])
    except (ValueError, KeyError, TypeError) as error:
        raise MalformedInput(
            "a route entry's key is {dest, switch_id, vr}", f"{where}, {name[:80]}"
        ) from error


def _place(member: Mapping[str, Any]) -> int:
    """Place of a member in its group: of a bucket, or of an ordered group; 0 in a group without order."""
    return whole(
        member.get(f"{_MEMBER}_INDEX", member.get(f"{_MEMBER}_SEQUENCE_ID")), 0, "next hop group member"
    )


class _Chip:
    """SAI objects by kind and id, followed from route to port."""

    def __init__(self, by_kind: Mapping[str, Mapping[str, Mapping[str, Any]]], report: Report) -> None:
        self._kinds, self._report = by_kind, report
        self._members: dict[str, list[Mapping[str, Any]]] = {}
        for entry in by_kind.get("NEXT_HOP_GROUP_MEMBER", {}).values():
            group = str(entry.get(f"{_MEMBER}_NEXT_HOP_GROUP_ID"))
            self._members.setdefault(group, []).append(entry)
        self._names = {
            str(entry.get("SAI_HOSTIF_ATTR_OBJ_ID")): str(entry["SAI_HOSTIF_ATTR_NAME"])
            for entry in by_kind.get("HOSTIF", {}).values()
            if "SAI_HOSTIF_ATTR_NAME" in entry
        }

    def lags(self) -> dict[str, tuple[str, ...]]:
        """Member ports of each LAG."""
        out: dict[str, list[str]] = {}
        for entry in self._kinds.get("LAG_MEMBER", {}).values():
            lag, port = entry.get("SAI_LAG_MEMBER_ATTR_LAG_ID"), entry.get("SAI_LAG_MEMBER_ATTR_PORT_ID")
            if lag and port and entry.get("SAI_LAG_MEMBER_ATTR_EGRESS_DISABLE", "false") != "true":
                out.setdefault(self._port(str(lag)), []).append(self._port(str(port)))
        return {lag: tuple(ports) for lag, ports in out.items()}

    def route(self, text: str, entry: Mapping[str, Any]) -> Route | None:
        action = str(entry.get("SAI_ROUTE_ENTRY_ATTR_PACKET_ACTION", "SAI_PACKET_ACTION_FORWARD"))
        if action in ("SAI_PACKET_ACTION_DROP", "SAI_PACKET_ACTION_DENY"):
            return Route(prefix(text), (NextHop(drop="blackhole"),))
        target = entry.get("SAI_ROUTE_ENTRY_ATTR_NEXT_HOP_ID")
        if target is None:
            self._report.skip("route without a next hop")
            return None
        target = str(target)
        if target in self._kinds.get("NEXT_HOP_GROUP", {}):
            return self._group(text, target)
        if target in self._kinds.get("PORT", {}):  # to the CPU: the device's own address
            return Route(prefix(text), (NextHop(port=self._port(target)),), local=True)
        return Route(prefix(text), (self._hop(target, 1),))

    def _group(self, text: str, group: str) -> Route:
        members = self._members.get(group, [])
        kind = str(self._kinds["NEXT_HOP_GROUP"][group].get("SAI_NEXT_HOP_GROUP_ATTR_TYPE", ""))
        ordered = sorted(members, key=_place)
        targets = [str(m.get(f"{_MEMBER}_NEXT_HOP_ID")) for m in ordered]
        if kind.endswith("FINE_GRAIN_ECMP"):  # one member a bucket
            distinct = list(dict.fromkeys(targets))
            hops = tuple(self._hop(target, targets.count(target)) for target in distinct)
            return Route(prefix(text), hops, buckets=tuple(distinct.index(target) for target in targets))
        weights = [max(1, whole(m.get(f"{_MEMBER}_WEIGHT"), 1, text)) for m in ordered]
        return Route(prefix(text), tuple(self._hop(t, w) for t, w in zip(targets, weights, strict=True)))

    def _hop(self, target: str, weight: int) -> NextHop:
        hop = self._kinds.get("NEXT_HOP", {}).get(target)
        if hop is None:  # connected: the route leads to a router interface
            return NextHop(port=self._interface(target), weight=weight)
        gateway = hop.get("SAI_NEXT_HOP_ATTR_IP")
        interface = self._interface(str(hop.get("SAI_NEXT_HOP_ATTR_ROUTER_INTERFACE_ID", "")))
        return NextHop(word(gateway) or None, interface, weight)

    def _interface(self, identity: str) -> str:
        interface = self._kinds.get("ROUTER_INTERFACE", {}).get(identity)
        if interface is None:
            return identity
        port = interface.get(f"{_INTERFACE}_PORT_ID", interface.get(f"{_INTERFACE}_VLAN_ID"))
        return self._port(str(port)) if port is not None else identity

    def _port(self, identity: str) -> str:
        return self._names.get(identity, identity)
