"""InfiniBand's fabric: `ibnetdiscover` gives cables and LIDs, `dump_lfts` each switch's forwarding table.

Nodes are named by their descriptions, which people know; where two nodes have the same one, its GUID is added.
Ports are numbers. Tables are by LID: a path is walked from table to table, nothing is hashed.
"""

import re
from collections import Counter
from dataclasses import dataclass
from typing import Final

from schemas.errors import MalformedInput
from schemas.network import HalfLink, LidTable, Topology, topology

_NODE: Final = re.compile(
    r'^(?P<kind>Switch|Ca|Hca|Rt)\s+(?P<ports>\d+)\s+"(?P<id>[^"]+)"\s*(?:#\s*"(?P<name>[^"]*)"(?P<rest>.*))?$'
)
_PORT: Final = re.compile(
    r'^\[(?P<port>\d+)\](?:\([0-9a-fA-F]+\))?\s+"(?P<peer>[^"]+)"\[(?P<peer_port>\d+)\](?:\([0-9a-fA-F]+\))?'
    r"\s*(?:#(?P<rest>.*))?$"
)
_LID: Final = re.compile(r"\blid (\d+)(?: lmc (\d+))?")
_SPEED: Final = re.compile(r"\b(?P<width>\d+)x(?P<speed>[A-Z][A-Z0-9]*)\b")
# Signalling times coding, Gbit/s a lane of data.
_LANE_GBPS: Final = {
    "SDR": 2.0, "DDR": 4.0, "QDR": 8.0, "FDR10": 10.0, "FDR": 13.64, "EDR": 25.0, "HDR": 50.0, "NDR": 100.0,
    "XDR": 200.0,
}  # fmt: skip
_TABLE: Final = re.compile(
    r"^Unicast lids \[.*?\] of switch (?:.*?)guid (?P<guid>0x[0-9a-fA-F]+)(?: \((?P<name>.*)\))?:?\s*$"
)
_ENTRY: Final = re.compile(r"^(?P<lid>0x[0-9a-fA-F]+)\s+(?P<port>\d+)\s*:?.*$")
_NO_PORT: Final = 255
LMC_MAX: Final = 7  # three bits


@dataclass
class _Node:
    identity: str
    kind: str
    name: str
    lid: int | None = None
    lmc: int = 0


def discovered(text: str, where: str) -> tuple[Topology, dict[str, str]]:
    """(topology with LIDs, node name by GUID in 16 hex digits) of ibnetdiscover's listing. Raises MalformedInput."""
    nodes: dict[str, _Node] = {}
    found: list[tuple[str, str, str, str, str]] = []
    port_lids: list[tuple[str, str, int, int]] = []
    now: _Node | None = None
    for number, line in enumerate(text.splitlines(), 1):
        head = _NODE.match(line)
        if head is not None:
            now = _Node(head["id"], head["kind"], head["name"] or head["id"])
            lid = _LID.search(head["rest"] or "")
            if lid is not None and head["kind"] == "Switch":
                now.lid, now.lmc = int(lid[1]), int(lid[2] or 0)
            nodes[now.identity] = now
            continue
        if not line.startswith("["):
            continue
        row = _PORT.match(line)
        if row is None or now is None:
            raise MalformedInput("no port of a node", f"{where}, line {number}")
        rest = row["rest"] or ""
        found.append((now.identity, row["port"], row["peer"], row["peer_port"], rest))
        lid = _LID.search(rest.partition('"')[0])
        if now.kind != "Switch" and lid is not None:
            port_lids.append((now.identity, row["port"], int(lid[1]), int(lid[2] or 0)))
    if not nodes:
        raise MalformedInput("no node in this listing", where)
    names = _names(nodes)
    links = []
    for one, port, two, peer_port, rest in found:
        if two not in nodes:
            raise MalformedInput(f"node {two} is not described", where)
        links.append(HalfLink(names[one], port, names[two], peer_port, _rate(rest)))
    port_lids += [(node.identity, "0", node.lid, node.lmc) for node in nodes.values() if node.lid]
    lids = {
        lid_ + k: (names[identity], port)
        for identity, port, lid_, lmc in port_lids
        for k in range(1 << min(lmc, LMC_MAX))
    }
    switches = [names[node.identity] for node in nodes.values() if node.kind == "Switch"]
    hosts = [names[node.identity] for node in nodes.values() if node.kind != "Switch"]
    by_guid = {node.identity[2:]: names[node.identity] for node in nodes.values()}
    return topology(links, switches, hosts, lids), by_guid


def _names(nodes: dict[str, _Node]) -> dict[str, str]:
    count = Counter(node.name for node in nodes.values())
    return {
        identity: node.name if count[node.name] == 1 else f"{node.name} {identity}"
        for identity, node in nodes.items()
    }


def _rate(rest: str) -> float | None:
    found = _SPEED.search(rest.rpartition('"')[2])
    if found is None or found["speed"] not in _LANE_GBPS:
        return None
    return int(found["width"]) * _LANE_GBPS[found["speed"]] * 1e9


def forwarding(text: str, names: dict[str, str], where: str) -> dict[str, LidTable]:
    """Tables by switch of `dump_lfts`. `names` as `discovered` gives them. Raises MalformedInput."""
    out: dict[str, LidTable] = {}
    ports: dict[int, int] | None = None
    for number, line in enumerate(text.splitlines(), 1):
        head = _TABLE.match(line.strip())
        if head is not None:
            ports = {}
            guid = f"{int(head['guid'], 16):016x}"
            name = names.get(guid) or head["name"] or guid
            out[name] = LidTable(name, ports)
            continue
        entry = _ENTRY.match(line.strip())
        if entry is None:
            continue
        if ports is None:
            raise MalformedInput("an entry before its switch", f"{where}, line {number}")
        if int(entry["port"]) != _NO_PORT:
            ports[int(entry["lid"], 16)] = int(entry["port"])
    if not out:
        raise MalformedInput("no forwarding table in this dump", where)
    return out
