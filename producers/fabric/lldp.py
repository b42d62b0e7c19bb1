"""LLDP neighbours as `lldpcli show neighbors -f json` (or json0) lists them, of one machine or of several.

With a single interface lldpcli gives an object, with several an array of them; json0 wraps every value in a list.
Listings of several machines are given as {machine: listing}.
"""

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from schemas.errors import MalformedInput
from schemas.network import HalfLink, Topology, cable, topology


def read(text: str, where: str, node: str | None = None) -> tuple[Topology, tuple[str, ...]]:
    """The topology of a listing, and lines about neighbours left out. `node`: the machine that it was taken on.

    Raises MalformedInput.
    """
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise MalformedInput("no JSON", where) from error
    listings: dict[str, Any] = {}
    if isinstance(found, dict) and "lldp" not in found and "interface" not in found:
        listings = {str(name): listing for name, listing in found.items()}
    else:
        listings = {node or "": found}
    if "" in listings:
        raise MalformedInput("an LLDP listing does not name its own machine: say NODE=FILE", where)
    links: list[HalfLink] = []
    switches: set[str] = set()
    hosts: set[str] = set()
    notes = []
    for own, listing in listings.items():
        for port, entry in _lldp_interfaces(listing, f"{where}, {own}"):
            peer, capabilities = _chassis(entry)
            peer_port = _peer_port(entry)
            if not peer or not peer_port:
                notes.append(f"{where}: {own}:{port} has a neighbour without a name or port; left out")
                continue
            links += cable(own, port, peer, peer_port, _lldp_rate(entry))
            if capabilities & {"bridge", "router"}:
                switches.add(peer)
            elif "station" in capabilities:
                hosts.add(peer)
    return topology(_one_way_each(links), switches, hosts), tuple(notes)


def _one_way_each(links: Iterable[HalfLink]) -> list[HalfLink]:
    """Where both ends of a cable told of it, names by the machine itself count: the first one seen stays."""
    kept: dict[tuple[str, str], HalfLink] = {}
    for link in links:
        kept.setdefault((link.sender, link.sender_port), link)
    return list(kept.values())


def _lldp_interfaces(listing: Any, at: str) -> list[tuple[str, Mapping[str, Any]]]:
    inner = listing.get("lldp", listing) if isinstance(listing, dict) else listing
    parts = inner if isinstance(inner, list) else [inner]
    out: list[tuple[str, Mapping[str, Any]]] = []
    for part in parts:
        if not isinstance(part, dict):
            raise MalformedInput("no LLDP listing", at)
        given = part.get("interface", part if "lldp" not in part else [])
        for entry in given if isinstance(given, list) else [given]:
            if not isinstance(entry, dict):
                raise MalformedInput("no LLDP interface", at)
            if "name" in entry:  # json0: the name is a field
                out.append((str(entry["name"]), entry))
            else:
                out += [(str(name), found) for name, found in entry.items() if isinstance(found, dict)]
    return out


def _chassis(entry: Mapping[str, Any]) -> tuple[str, set[str]]:
    """(system name, enabled capabilities in lower case) of a neighbour."""
    chassis = _one(entry.get("chassis"))
    name = ""
    if "name" in chassis:
        name = _value(chassis["name"])
    elif len(chassis) == 1:  # json: {system name: {...}}
        name, inner = next(iter(chassis.items()))
        chassis = _one(inner)
    if not name:
        name = _value(_one(chassis.get("id")).get("value", chassis.get("id", "")))
    given = chassis.get("capability") or []
    enabled = {
        str(found.get("type", "")).lower()
        for found in (given if isinstance(given, list) else [given])
        if isinstance(found, dict) and found.get("enabled")
    }
    return str(name), enabled


def _peer_port(entry: Mapping[str, Any]) -> str:
    """The neighbour's interface: its id if that is a name, else its description, else the id."""
    port = _one(entry.get("port"))
    identity = _one(port.get("id"))
    kind, value = str(identity.get("type", "")), _value(identity.get("value", ""))
    if kind in ("ifname", "local"):
        return value
    return _value(port.get("descr", "")) or value


def _lldp_rate(entry: Mapping[str, Any]) -> float | None:
    current = _value(_one(_one(entry.get("port")).get("auto-negotiation")).get("current", ""))
    match = re.match(r"(\d+)(G?)(?:ig)?[Bb]", current)
    if match is None:
        return None
    return float(match[1]) * (1e9 if match[2] else 1e6)


def _one(given: Any) -> Mapping[str, Any]:
    """The mapping, or the first one of a list: json0 wraps everything in lists."""
    if isinstance(given, list):
        given = given[0] if given else {}
    return given if isinstance(given, dict) else {}


def _value(given: Any) -> str:
    while isinstance(given, list | dict):
        given = _one(given).get("value", "") if isinstance(given, dict) or given else ""
    return str(given)
