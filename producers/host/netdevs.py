"""Network interfaces of a host: which physical ports carry what leaves by one, its VLAN and its VRF.

From `ip -d -j link`. A bond in active-backup mode sends by its active port; in the other modes it hashes, and which
of its ports a flow takes only a capture on them tells: then all of them are named.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from schemas.errors import MalformedInput

_DEPTH_MAX: Final = 8


@dataclass(frozen=True)
class Netdev:
    """What leaves by an interface: the ports that may carry it, its VLAN (None: untagged), its VRF ("" default)."""

    ports: tuple[str, ...]
    vlan: int | None = None
    vrf: str = ""


def netdevs(text: str, where: str) -> dict[str, Netdev]:
    """All interfaces by name. Raises MalformedInput."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise MalformedInput("no JSON; is it of `ip -d -j link`?", where) from error
    if not isinstance(found, list) or not all(isinstance(e, dict) and "ifname" in e for e in found):
        raise MalformedInput("a list of interfaces", where)
    by_name: dict[str, Mapping[str, Any]] = {str(entry["ifname"]): entry for entry in found}
    try:
        return {name: _netdev(name, by_name) for name in by_name}
    except (AttributeError, TypeError) as error:  # a part is not of the kind that it has to be
        raise MalformedInput(f"not as `ip -d -j link` writes it: {error}", where) from error


def _info(entry: Mapping[str, Any]) -> Mapping[str, Any]:
    info = entry.get("linkinfo")
    return info if isinstance(info, dict) else {}


def _netdev(name: str, by_name: Mapping[str, Mapping[str, Any]], depth: int = 0) -> Netdev:
    entry = by_name[name]
    info = _info(entry)
    kind, data = info.get("info_kind"), info.get("info_data") or {}
    vrf = _vrf(entry, by_name)
    if depth < _DEPTH_MAX and kind in ("vlan", "macvlan", "ipvlan") and entry.get("link") in by_name:
        below = _netdev(str(entry["link"]), by_name, depth + 1)
        vlan = data.get("id") if kind == "vlan" else below.vlan
        return Netdev(below.ports, vlan, vrf or below.vrf)
    if kind == "bond":
        slaves = {n: e for n, e in by_name.items() if e.get("master") == name}
        active = data.get("active_slave")
        if data.get("mode") == "active-backup" and active in slaves:
            return Netdev((str(active),), None, vrf)
        up = tuple(n for n, e in slaves.items() if e.get("operstate", "UP") == "UP")
        return Netdev(up or tuple(slaves), None, vrf)
    return Netdev((name,), None, vrf)


def _vrf(entry: Mapping[str, Any], by_name: Mapping[str, Mapping[str, Any]]) -> str:
    master = entry.get("master")
    above = by_name.get(str(master)) if master is not None else None
    return str(master) if above is not None and _info(above).get("info_kind") == "vrf" else ""
