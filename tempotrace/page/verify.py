"""Commands that check what a page says of a link or a flow, ready for a shell: every name is quoted.

Which system a switch runs is not known here; the form of its port's name says which it can be.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from shlex import quote
from typing import Final

from tempotrace.page.parts import Flow, Link, Side

# (form of the port's name, system, command on the device).
_COUNTERS: Final = (
    (re.compile(r"Ethernet\d+"), "SONiC", "show interfaces counters -i {port}"),
    (re.compile(r"Ethernet\d+(/\d+)*"), "EOS", "show interfaces {port} counters rates"),
    (re.compile(r"Eth(ernet)?\d+(/\d+)+"), "NX-OS", "show interface {port} counters"),
    (re.compile(r"(swp|eth|ens|enp|eno|bond)[\w.]+"), "Linux", "ip -s link show dev {port}"),
    (re.compile(r"(mlx5|ib)\w+"), "InfiniBand", "perfquery -x"),
)


@dataclass(frozen=True)
class Again:
    """How the page's figures can be had once more: the command, and the lake and tenant if that is the input."""

    command: str
    lake: str | None = None
    tenant: str = ""


def of_link(link: Link, again: Again) -> Iterator[tuple[str, str]]:
    """(what it is, command) for a link: the sender's counters where its port's name tells how, then ours."""
    sender, port, _, _ = link.ends
    for form, system, command in _COUNTERS:
        if form.fullmatch(port):
            yield f"{system}, on the switch", f"ssh -- {quote(sender)} {quote(command.format(port=port))}"
    if again.lake is not None:
        name, tenant = (word.replace("'", "''") for word in (link.name, again.tenant))
        sql = (
            "SELECT window_start_ns, flows, bytes, capacity_bps, utilisation, coverage FROM links "
            f"WHERE tenant = '{tenant}' AND link = '{name}' ORDER BY 1"
        )
        yield "by window", f"tempotrace sql --lake {quote(again.lake)} {quote(sql)}"
    else:
        yield "the figures again", again.command


def of_flow(flow: Flow, side: Side, again: Again) -> Iterator[tuple[str, str]]:
    """(what it is, command): the first choice on the path, where devices answer for one flow; then ours."""
    yield from _choice(flow, side)
    if again.lake is not None:
        src, sport, dst, dport, _ = flow.ends
        tenant = again.tenant.replace("'", "''")
        sql = (
            "SELECT window_start_ns, bytes, path, path_source, agreement FROM flows "
            f"WHERE tenant = '{tenant}' AND src = '{src}' AND src_port = {sport} AND dst = '{dst}' "
            f"AND dst_port = {dport} ORDER BY 1"
        )
        yield "by window", f"tempotrace sql --lake {quote(again.lake)} {quote(sql)}"
    else:
        yield "the figures again", again.command


def _choice(flow: Flow, side: Side) -> Iterator[tuple[str, str]]:
    src, sport, dst, dport, protocol = flow.ends
    by_number = {link.number: link for link in side.links}
    for hop in flow.path[1:]:
        link = by_number.get(hop.link)
        if link is None or "only way" in hop.how:
            continue
        sender, port = link.ends[:2]
        if re.fullmatch(r"Eth(ernet)?\d+(/\d+)+", port):
            yield "NX-OS", f"ssh -- {quote(sender)} {quote(f'show routing hash {src} {dst} {sport} {dport}')}"
        if re.fullmatch(r"Ethernet\d+(/\d+)*", port):
            before = by_number.get(flow.path[0].link)
            into = before.ends[3] if before is not None else ""
            yield (
                "EOS",
                f"ssh -- {quote(sender)} "
                + quote(
                    f"show load-balance destination ip ingress-interface {quote(into)} src-ipv4-address {src} "
                    f"dst-ipv4-address {dst} ip-protocol {protocol} src-l4-port {sport} dst-l4-port {dport}"
                ),
            )
        return
