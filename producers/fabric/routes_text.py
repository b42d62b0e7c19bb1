"""Routes and exact answers as text: SONiC (FRR), NX-OS and EOS `show ip route`, and which way a flow takes.

An exact answer is what the device itself says of one flow: SONiC's ECMP calculator (`Egress port: Ethernet4`),
NX-OS `show routing hash` (`Hashing to path *10.0.0.1 Eth1/1`), EOS `show load-balance destination`
(`Output Interface: Ethernet43`), IOS `show ip cef exact-route`.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from producers.report import Report
from schemas.errors import MalformedInput
from schemas.network import NextHop, Route, RouteTable, prefix

_ADDRESS: Final = r"[0-9a-fA-F:.]+"
_PREFIX: Final = rf"(?P<prefix>{_ADDRESS}/\d+|0\.0\.0\.0|default)"
# FRR: `B>* 10.0.0.0/24 [20/0] via 10.1.1.1, Ethernet0, weight 1, 00:12:13`; EOS: ` B E   10.0.0.0/24 [200/0]`.
_HEAD: Final = re.compile(rf"^\s*(?P<code>[A-Za-z][A-Za-z0-9 >*%]*?)\s+{_PREFIX}(?=[\s,]|$)(?P<rest>.*)$")
_MARKED: Final = re.compile(r"^[A-Za-z][ a-z]*>", re.MULTILINE)
_NXOS: Final = re.compile(rf"^{_PREFIX}, ubest/mbest: (?P<best>\d+)/\d+(?P<rest>.*)$")
_VIA: Final = re.compile(
    rf"via\s+(?P<via>{_ADDRESS}|[A-Za-z][\w/.:-]*)(?:%(?P<vrf>[\w-]+))?(?P<rest>[^\n]*)$"
)
_WEIGHT: Final = re.compile(r"(?:weight|wt)[ :]+(\d+)")
_CONNECTED: Final = re.compile(r"directly connected,?\s*(?P<port>[\w/.:-]+)?")
_UNREACHABLE: Final = re.compile(r"unreachable|\(blackhole\)|\bdiscard\b|\bblackhole\b")
_VRF_LINE: Final = re.compile(r'^(?:VRF:?\s+|IP(?:v6)? Route Table for VRF\s+)"?(?P<vrf>[\w-]+)"?:?\s*$')
_NULL: Final = re.compile(r"^[Nn]ull\s*0$|^Null$|^Drop$")
_PORT: Final = re.compile(r"^[A-Za-z][\w/.:-]*$")
_AGE: Final = re.compile(r"^(?:\d+[wdhms])+\d*|^[\d:.]+$|^\[|^never$")


@dataclass
class _Pending:
    prefix: str
    vrf: str
    protocol: str
    selected: bool
    hops: list[NextHop] = field(default_factory=list)
    local: bool = False


def read(text: str, switch: str, report: Report, where: str = "") -> RouteTable:
    """The routes of a `show ip route` of any of the three. Raises MalformedInput if there is none."""
    routes: dict[str, dict[str, Route]] = {}
    for entry in _entries(text, report):
        if not entry.selected:
            report.skip("route that the device did not select")
            continue
        if not entry.hops:
            report.skip("route without a next hop")
            continue
        made = Route(prefix(entry.prefix), tuple(entry.hops), entry.protocol, local=entry.local)
        mine = routes.setdefault(entry.vrf, {})
        if str(made.prefix) in mine:
            report.skip("second route of a prefix")
            continue
        mine[str(made.prefix)] = made
    if not routes:
        raise MalformedInput("no route in this text", where or switch)
    return RouteTable(switch, {vrf: tuple(mine.values()) for vrf, mine in routes.items()})


def _entries(text: str, report: Report) -> Iterator[_Pending]:
    now: _Pending | None = None
    vrf, legend, nxos = "default", False, False
    # FRR lists unselected routes too and marks the others by `>`; the other two list what is selected.
    marked = _MARKED.search(text) is not None
    for line in text.replace("\r", "").splitlines():
        stripped = line.strip()
        if not stripped:
            legend = False
            continue
        if stripped.startswith(("Codes:", "Gateway of last resort")):
            legend = stripped.startswith("Codes:")
            continue
        found = _VRF_LINE.match(stripped)
        if found is not None:
            vrf = found["vrf"]
            continue
        head = _NXOS.match(line)
        if head is not None:
            nxos = True
        elif not legend and not nxos:
            head = _HEAD.match(line)
        if head is not None and (nxos or not legend):
            if now is not None:
                yield now
            now = _started(head, vrf, nxos, marked)
            _add(now, head["rest"], nxos, report)
        elif now is not None and not legend:
            _add(now, line, nxos, report)
    if now is not None:
        yield now


def _started(head: "re.Match[str]", vrf: str, nxos: bool, marked: bool) -> _Pending:
    text = "0.0.0.0/0" if head["prefix"] in ("default", "0.0.0.0") else head["prefix"]
    if nxos:
        return _Pending(text, vrf, "", True)
    code = head["code"].strip()
    return _Pending(text, vrf, code[:1], ">" in code or not marked, local=code[:1] == "L")


def _add(entry: _Pending, text: str, nxos: bool, report: Report) -> None:
    connected = _CONNECTED.search(text)
    if connected is not None:
        port = connected["port"] or None
        drop = "blackhole" if port is not None and _NULL.match(port) else ""
        entry.hops.append(NextHop(port=None if drop else port, drop=drop))
        return
    found = _VIA.search(text)
    if found is None:
        if _UNREACHABLE.search(text):
            entry.hops.append(NextHop(drop="blackhole"))
        return
    if nxos and not text.lstrip().startswith("*"):
        report.skip("next hop that is not a best one")
        return
    if "inactive" in text or ("(recursive)" in text and _resolved_follows(entry)):
        report.skip("next hop that is not in the forwarding table")
        return
    rest = [part.strip() for part in found["rest"].split(",") if part.strip()]
    weight = _WEIGHT.search(found["rest"])
    if re.fullmatch(_ADDRESS, found["via"]):
        port = next((p for p in rest if _PORT.match(p) and not _AGE.match(p) and not _is_word(p)), None)
        gateway: str | None = found["via"]
    else:
        port, gateway = found["via"], None
    drop = "blackhole" if (port and _NULL.match(port)) or "discard" in rest else ""
    if nxos and ("direct" in rest or "local" in rest):  # its own address or net: the address is the device's
        gateway = None
        entry.local = entry.local or "local" in rest
        entry.protocol = "local" if entry.local else "direct"
    if "(recursive)" in found["rest"]:
        port = None
    entry.hops.append(
        NextHop(gateway, None if drop else port, int(weight[1]) if weight else 1, drop, found["vrf"])
    )
    if port is not None and entry.hops and any(hop.port is None and not hop.drop for hop in entry.hops):
        # FRR: below a recursive next hop stand those it resolved to, which are what is installed.
        entry.hops = [hop for hop in entry.hops if hop.port is not None or hop.drop]


def _resolved_follows(entry: _Pending) -> bool:
    return any(hop.port is not None for hop in entry.hops)


_WORDS: Final = frozenset(
    ("intra", "inter", "direct", "local", "attached", "discard", "onlink", "static", "internal", "external",
     "segid", "hmm", "am", "best")
)  # fmt: skip
_WORD_STARTS: Final = ("weight", "tag", "bgp-", "ospf-", "isis-", "type-", "label", "seg6")


def _is_word(text: str) -> bool:
    """Words of a route line that look like an interface but are none."""
    return text in _WORDS or text.startswith(_WORD_STARTS)


@dataclass(frozen=True)
class Exact:
    """The device's own answer for one flow: the interface, or the next hop's address, or both."""

    port: str | None
    gateway: str | None = None


_EXACT: Final = (
    re.compile(r"Hashing to path \*?(?P<gateway>[0-9a-fA-F:.]+)(?:\s+\(?(?P<port>[A-Za-z][\w/.:-]*)\)?)?"),
    re.compile(r"Egress port:\s*(?P<port>[A-Za-z][\w/.:-]*)"),
    re.compile(r"Out(?:put)? [Ii]nterface:\s*(?P<port>[A-Za-z][\w/.:-]*)"),
    re.compile(r'"outputIntf":\s*"(?P<port>[\w/.:-]+)"'),
    re.compile(rf"->\s*{_ADDRESS}\s*=>.*?out of (?P<port>[\w/.:-]+), addr (?P<gateway>{_ADDRESS})"),
    re.compile(rf"->\s*{_ADDRESS}\s*:\s*(?P<port>[\w/.:-]+) \(next hop (?P<gateway>{_ADDRESS})\)"),
)


def exact(text: str, where: str = "") -> Exact:
    """An exact answer of any of these devices. Raises MalformedInput if there is none."""
    port = gateway = None
    for pattern in _EXACT:
        found = pattern.search(text)
        if found is None:
            continue
        parts = found.groupdict()
        port = port or parts.get("port")
        gateway = gateway or (parts.get("gateway") or "").rstrip(".:,") or None
    if port is None and gateway is None:
        raise MalformedInput("the device did not say which way the flow takes", where)
    return Exact(port, gateway)
