"""Switches asked over ssh: a command for the table, and where the device has one a command for a flow's way.

Nothing is configured on a device, and no password is asked for: keys must be in place. Commands come from a
dialect by the kind of device; the route generation is a digest of the table itself, so it needs nothing of
the device but that it prints its routes again.
"""

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Final

from producers.fabric import routes, routes_text
from producers.fabric.query import Question
from producers.fabric.routes_text import Exact
from producers.report import Report
from schemas.errors import MalformedInput, Usage
from schemas.network import RouteTable


@dataclass(frozen=True)
class Dialect:
    """Commands of one kind of device. `exact` has the flow's fields in braces; "" where there is none."""

    table: str
    exact: str = ""


DIALECTS: Final = {
    "sonic": Dialect("sonic-db-dump -n APPL_DB -y"),
    "frr": Dialect("vtysh -c 'show ip route vrf all json'"),
    "linux": Dialect("ip -j route show table all"),
    "nxos": Dialect("show ip route vrf all", "show routing hash {src} {dst} {sport} {dport}"),
    "eos": Dialect(
        "show ip route vrf all | no-more",
        "show load-balance destination ip ingress-interface {port_in} src-ipv4-address {src} dst-ipv4-address {dst} "
        "ip-protocol {protocol} src-l4-port {sport} dst-l4-port {dport}",
    ),
}


@dataclass(frozen=True)
class Target:
    """Where a switch is: `[user@]host` for ssh, and its dialect."""

    address: str
    dialect: str


class Shell:
    """A Device over ssh. `command` may be replaced, for a jump host or a test: the remote command comes last."""

    def __init__(
        self,
        targets: Mapping[str, Target],
        report: Report,
        command: Sequence[str] = ("ssh", "-o", "BatchMode=yes", "{address}"),
    ) -> None:
        """Raises Usage for a dialect that there is not."""
        for target in targets.values():
            if target.dialect not in DIALECTS:
                raise Usage(f"no dialect {target.dialect!r}: one of {', '.join(DIALECTS)}")
        self._targets, self._report, self._command = dict(targets), report, tuple(command)

    async def read(self, switch: str) -> RouteTable:
        text = await self._ask(switch, DIALECTS[self._targets[switch].dialect].table)
        table = parse(text, switch, self._report)
        return replace(table, generation=digest(table))

    async def generation(self, switch: str) -> str:
        text = await self._ask(switch, DIALECTS[self._targets[switch].dialect].table)
        return digest(parse(text, switch, Report()))

    async def exact(self, question: Question) -> Exact | None:
        switch, key, port_in = question
        pattern = DIALECTS[self._targets[switch].dialect].exact
        if not pattern:
            return None
        filled = pattern.format(
            src=key.src, dst=key.dst, protocol=key.protocol, sport=key.sport, dport=key.dport, port_in=port_in
        )
        return routes_text.exact(await self._ask(switch, filled), switch)

    async def _ask(self, switch: str, command: str) -> str:
        target = self._targets[switch]
        words = [word.replace("{address}", target.address) for word in self._command]
        process = await asyncio.create_subprocess_exec(
            *words, command, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        try:
            out, error = await process.communicate()
        except asyncio.CancelledError:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            raise
        if process.returncode:
            said = error.decode(errors="replace").strip().splitlines()
            raise OSError(said[-1] if said else f"exit status {process.returncode}")
        return out.decode(errors="replace")


def parse(text: str, switch: str, report: Report) -> RouteTable:
    """A table as JSON or as text. Raises MalformedInput."""
    if text.lstrip()[:1] in ("{", "["):
        return routes.read(text, switch, report)
    if not text.strip():
        raise MalformedInput("the device printed nothing", switch)
    return routes_text.read(text, switch, report)


def digest(table: RouteTable) -> str:
    """A digest of what a table forwards by: the order of prefixes and ages of routes do not count."""
    routes_ = sorted(
        (vrf, str(route.prefix), repr(route.next_hops), repr(route.buckets))
        for vrf, mine in table.routes.items()
        for route in mine
    )
    rest = (sorted(table.lags.items()), sorted(table.neighbours.items()), sorted(table.vrfs.items()))
    return blake2b(repr((routes_, rest)).encode(), digest_size=12).hexdigest()
