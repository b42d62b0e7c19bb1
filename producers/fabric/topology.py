"""Topologies from files: containerlab, lldpcli's JSON, plain YAML or CSV lists of cables, HPCC and SimAI text.

Nothing here asks a device. A file's kind is seen from its content; `read` says which. Plain YAML is

    switches: [leaf1, spine1]          # optional
    hosts: [gpu1]                      # optional
    links:
      - {a: "leaf1:Ethernet0", b: "spine1:Ethernet4", gbps: 400}

and a CSV list of cables has columns a, b (each `node` or `node:port`) and, where known, gbps.
"""

import csv
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import yaml

from producers.fabric import lldp
from producers.fabric.shapes import mapping, word
from schemas.errors import MalformedInput
from schemas.network import HalfLink, Topology, cable, topology

NODES_MAX: Final = 4_000_000
_RATE: Final = re.compile(r"([\d.]+)\s*([kKmMgGtT]?)(?:i?[bB](?:it)?(?:ps|/s)?)?$")
_SCALE: Final = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12}
_TIME: Final = re.compile(r"([\d.]+)\s*(ns|us|ms|s)$")
_TIMES: Final = {"ns": 1.0, "us": 1e3, "ms": 1e6, "s": 1e9}
_HOST_KINDS: Final = ("linux", "host", "k8s-kind")


@dataclass(frozen=True)
class Parsed:
    """A topology and what kind of file it came from; `notes` are lines for people."""

    topology: Topology
    kind: str
    notes: tuple[str, ...] = ()


def read(text: str, where: str, node: str | None = None) -> Parsed:
    """A topology of any kind. `node` is the machine that an LLDP listing was taken on.

    Raises MalformedInput, naming the place.
    """
    start = text.lstrip()[:1]
    first = next((line for line in text.splitlines() if line.strip()), "")
    if start in ("{", "[") and not _plain_json(text):
        found, notes = lldp.read(text, where, node)
        return Parsed(found, "lldp", notes)
    numbers = first.split()
    if len(numbers) >= 3 and all(word.isdecimal() for word in numbers[:3]):
        return simulated(text, where)
    if "," in first and ":" not in first.split(",")[0] and "links" not in first:
        return cables(text, where)
    return listed(text, where)


def _plain_json(text: str) -> bool:
    """Whether it is one of our own or containerlab's topologies, written as JSON (which is YAML)."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return False
    return isinstance(found, dict) and bool({"links", "topology"} & found.keys())


def listed(text: str, where: str) -> Parsed:
    """containerlab's YAML, or plain YAML as above. Raises MalformedInput."""
    try:
        found = yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        mark = getattr(error, "problem_mark", None)
        place = f"{where}, line {mark.line + 1}" if mark is not None else where
        raise MalformedInput("no YAML (is it a template that was never filled in?)", place) from error
    if not isinstance(found, dict):
        raise MalformedInput("a topology in YAML is a mapping", where)
    inner = found.get("topology")
    if isinstance(inner, dict):
        return _containerlab(inner, where)
    return _plain(found, where)


def _containerlab(inner: Mapping[str, Any], where: str) -> Parsed:
    nodes = _mapping(inner.get("nodes"), where, "nodes")
    kinds = {name: _kind(node, inner, where) for name, node in nodes.items()}
    hosts = {name for name, kind in kinds.items() if _is(kind, _HOST_KINDS)}
    links: list[HalfLink] = []
    degree: dict[str, int] = {}
    notes = []
    for number, link in enumerate(_items(inner.get("links"), where, "links"), 1):
        at = f"{where}, link {number}"
        ends = link.get("endpoints") if isinstance(link, dict) else None
        if not isinstance(ends, list) or len(ends) != 2:
            notes.append(f"{at}: no pair of endpoints; left out")
            continue
        a, b = (_containerlab_end(end, at) for end in ends)
        if "" in (a[0], b[0]) or not {a[0], b[0]} <= nodes.keys():
            notes.append(f"{at}: leads out of the lab ({_shown(a)} to {_shown(b)}); left out")
            continue
        links += cable(*a, *b)
        for name, _ in (a, b):
            degree[name] = degree.get(name, 0) + 1
    # A `linux` node with several cables routes (FRR in a container); one that has a single cable is a host.
    routers = {name for name in hosts if degree.get(name, 0) > 1}
    return Parsed(
        topology(links, switches=(nodes.keys() - hosts) | routers, hosts=hosts - routers),
        "containerlab",
        tuple(notes),
    )


def _kind(node: Any, inner: Mapping[str, Any], where: str) -> str:
    node = node if isinstance(node, dict) else {}
    group = mapping(mapping(inner.get("groups"), where).get(word(node.get("group"))), where)
    defaults = mapping(inner.get("defaults"), where)
    return str(node.get("kind") or group.get("kind") or defaults.get("kind") or "")


def _is(kind: str, known: Sequence[str]) -> bool:
    return kind in known


def _containerlab_end(end: Any, at: str) -> tuple[str, str]:
    if isinstance(end, dict):  # the extended form: {node, interface}
        return str(end.get("node") or ""), str(end.get("interface") or "")
    if not isinstance(end, str) or ":" not in end:
        raise MalformedInput("an endpoint is node:interface", at)
    name, _, port = end.partition(":")
    return name, port


def _plain(found: Mapping[str, Any], where: str) -> Parsed:
    links: list[HalfLink] = []
    for number, link in enumerate(_items(found.get("links"), where, "links"), 1):
        at = f"{where}, link {number}"
        if not isinstance(link, dict):
            raise MalformedInput("a link is {a, b, gbps}", at)
        links += _cable(link, at, number)
    return Parsed(topology(links, _names(found, "switches"), _names(found, "hosts")), "yaml")


def _names(found: Mapping[str, Any], name: str) -> list[str]:
    given = found.get(name) or []
    return [str(entry) for entry in given] if isinstance(given, list | dict) else []


def cables(text: str, where: str) -> Parsed:
    """A CSV list of cables. Raises MalformedInput."""
    links: list[HalfLink] = []
    rows = csv.DictReader(text.splitlines())
    for number, row in enumerate(rows, 1):
        links += _cable(
            {(k or "").strip().lower(): v for k, v in row.items()}, f"{where}, row {number}", number
        )
    if not links:
        raise MalformedInput("no cable in this list", where)
    return Parsed(topology(links), "csv")


def _cable(row: Mapping[str, Any], at: str, number: int) -> tuple[HalfLink, HalfLink]:
    """The cable of a mapping with a and b (or src and dst), ports apart or behind a colon."""
    ends = []
    for name, other in (("a", "src"), ("b", "dst")):
        given = row.get(name) or row.get(other)
        if given in (None, ""):
            raise MalformedInput(f"a cable has {name} and the other end", at)
        node, colon, port = str(given).partition(":")
        port = port if colon else str(row.get(f"{name}_port") or row.get(f"{other}_port") or f"link{number}")
        ends.append((node.strip(), port.strip()))
    gbps = row.get("gbps")
    rate = row.get("rate") or row.get("bandwidth") or row.get("capacity")
    try:
        bps = float(gbps) * 1e9 if gbps not in (None, "") else rate_bps(str(rate)) if rate else None
        delay = delay_ns(str(row["delay"])) if row.get("delay") else None
    except (OverflowError, TypeError, ValueError) as error:
        raise MalformedInput(f"no rate or delay: {error}", at) from None
    return cable(*ends[0], *ends[1], bps, delay)


def simulated(text: str, where: str) -> Parsed:
    """HPCC's (`nodes switches links`) or SimAI's (`nodes gpus_per_server nvswitches switches links type`) text.

    Ports are numbered at each node in order of its links, from 1, as the simulators do.
    """
    lines = [line.split() for line in text.splitlines() if line.strip()]
    head = lines[0]
    simai = len(head) >= 6
    try:
        nodes = int(head[0])
        if not 0 < nodes <= NODES_MAX:
            raise ValueError(f"{nodes} nodes")
        counted = int(head[2]) + int(head[3]) if simai else int(head[1])
        expected = int(head[4] if simai else head[2])
        switches: list[int] = []
        at = 1
        while len(switches) < counted and at < len(lines):
            switches += [int(word) for word in lines[at]]
            at += 1
        ports: dict[int, int] = {}
        links: list[HalfLink] = []
        rows = lines[at : at + expected]
        for row in rows:
            one, two = int(row[0]), int(row[1])
            if not (0 <= one < nodes and 0 <= two < nodes):
                raise ValueError(f"no node {max(one, two)}")
            for end in (one, two):
                ports[end] = ports.get(end, 0) + 1
            loss = float(row[4]) if len(row) > 4 else None
            links += cable(
                str(one), str(ports[one]), str(two), str(ports[two]), rate_bps(row[2]), delay_ns(row[3]), loss
            )
    except (IndexError, OverflowError, ValueError) as error:
        raise MalformedInput(f"not as its first line says: {error}", where) from error
    if len(switches) != counted or len(rows) != expected:
        raise MalformedInput(
            f"{len(switches)} switches and {len(rows)} links, not {counted} and {expected}", where
        )
    hosts = {str(k) for k in range(nodes)} - {str(k) for k in switches}
    return Parsed(topology(links, map(str, switches), hosts), "simai" if simai else "hpcc")


def rate_bps(text: str) -> float:
    """Bits per second of `400Gbps`, `25G`, `1e9`. Raises ValueError."""
    match = _RATE.match(text.strip())
    if match is None:
        return float(text)
    return float(match[1]) * _SCALE[match[2].lower()]


def delay_ns(text: str) -> int:
    """Nanoseconds of `0.001ms`; a bare number counts seconds, as in the simulators. Raises ValueError."""
    match = _TIME.match(text.strip())
    return round(float(match[1]) * _TIMES[match[2]]) if match else round(float(text) * 1e9)


def _mapping(given: Any, where: str, name: str) -> Mapping[str, Any]:
    if not isinstance(given, dict):
        raise MalformedInput(f"{name} is a mapping", where)
    return given


def _items(given: Any, where: str, name: str) -> list[Any]:
    if not isinstance(given, list):
        raise MalformedInput(f"{name} is a list", where)
    return given


def _shown(end: tuple[str, str]) -> str:
    return ":".join(end)
