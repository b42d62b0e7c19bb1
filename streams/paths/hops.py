"""Hops of a window as arrays, and what they say of flows and links.

A link is named by its sending port and, where the next hop of a report tells it, the receiving one:
`7:3>9:1` is port 3 of node 7 to port 1 of node 9; `7:3>` leaves the part of the fabric that reports.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from schemas import columns as c
from schemas.merged import Merged
from schemas.pack import Strings

I64 = NDArray[np.int64]
U64 = NDArray[np.uint64]
NO_FLOW = 2**64 - 1
ENDS = ("src", "dst", "sport", "dport", "protocol")
INTS = (
    "node",
    "in_port",
    "out_port",
    "report",
    "hop",
    "hops",
    "length",
    "report_flags",
    "latency",
    "ingress_ts",
    "egress_ts",
    "sport",
    "dport",
    "protocol",
)


@dataclass(frozen=True, eq=False)
class Hops:
    """Hops of one window, sorted by (report, hop). Integers as int64 with NULL_I64; text in `strings`."""

    strings: Strings
    report: I64  # number of the report in the window
    flow: U64
    time_ns: I64  # the collector's stamp, TAI
    column: dict[str, I64]  # INTS, and src and dst as places in `strings` (NULL_I64 for null)

    def __len__(self) -> int:
        return len(self.report)


def window_hops(parts: Sequence[Merged]) -> Hops:
    """The hops of all parts of a window; drops and rows without a flow are left out."""
    strings = Strings()
    owners: dict[tuple[str, int], int] = {}
    source: list[I64] = []
    flows: list[U64] = []
    times: list[I64] = []
    columns: dict[str, list[I64]] = {name: [] for name in (*INTS, "src", "dst")}
    for part in parts:
        data = part.data
        row = data.get("int_row")
        if row is None:
            continue
        flow = data["int_flow"] if "int_flow" in data else np.full(len(row), NO_FLOW, np.uint64)
        use = np.flatnonzero((data["kind"][row] == c.HopKind.HOP) & (flow != NO_FLOW))
        if not len(use):
            continue
        row = row[use]
        # A report's number is its collector's own, and begins anew with each of its lives.
        names = [
            owners.setdefault((part.strings[int(name)], int(life)), len(owners))
            for name, life in zip(data["src_name"], data["src_incarnation"], strict=True)
        ]
        source.append(np.array(names, np.int64)[data["source"][row]])
        flows.append(flow[use])
        times.append(part.time_ns()[row])
        for name in INTS:
            wide = part.wide(f"int_{name}")
            columns[name].append(wide[use] if len(wide) else np.full(len(use), c.NULL_I64))
        for name in ("src", "dst"):
            place = data.get(f"int_{name}")
            texts = np.array([*(strings.index(text) for text in part.strings), c.NULL_I64], np.int64)
            columns[name].append(
                texts[np.minimum(place[use], len(texts) - 1)]
                if place is not None
                else np.full(len(use), c.NULL_I64)
            )
    if not source:
        none = np.empty(0, np.int64)
        return Hops(strings, none, np.empty(0, np.uint64), none, dict.fromkeys(columns, none))
    joined = {name: np.concatenate(found) for name, found in columns.items()}
    of_source, report = np.concatenate(source), joined["report"]
    order = np.lexsort((joined["hop"], report, of_source))
    new = np.append(True, (np.diff(of_source[order]) != 0) | (np.diff(report[order]) != 0))
    return Hops(
        strings,
        np.cumsum(new) - 1,
        np.concatenate(flows)[order],
        np.concatenate(times)[order],
        {name: column[order] for name, column in joined.items()},
    )


@dataclass(frozen=True, eq=False)
class Crossings:
    """One entry for each (report, link): which link each report's packet took, hop by hop."""

    hop: I64  # place of the sending hop in the window's hops
    link: I64  # number in `names`
    names: list[str]
    layers: list[str]  # by link


def crossings(hops: Hops) -> Crossings:
    """Links from each hop to the next of the same report; the last hop's egress where it is known."""
    column = hops.column
    n = len(hops)
    if not n:
        return Crossings(np.empty(0, np.int64), np.empty(0, np.int64), [], [])
    follows = np.append(
        (hops.report[1:] == hops.report[:-1]) & (column["hop"][1:] == column["hop"][:-1] + 1), False
    )
    after = np.minimum(np.arange(n) + 1, n - 1)
    next_node = np.where(follows, column["node"][after], c.NULL_I64)
    next_port = np.where(follows, column["in_port"][after], c.NULL_I64)
    known = follows | (column["out_port"] != c.NULL_I64)
    use = np.flatnonzero(known)
    keys = np.stack(
        (column["node"][use], column["out_port"][use], next_node[use], next_port[use], column["hop"][use])
    )
    links, link = np.unique(keys, axis=1, return_inverse=True)
    names, layers = [], []
    for node, port, to, to_port, hop in links.T.tolist():
        names.append(f"{node}:{_shown(port)}>" + (f"{to}:{_shown(to_port)}" if to != c.NULL_I64 else ""))
        layers.append(f"hop{hop}" if to != c.NULL_I64 else "last")
    return Crossings(use, link.ravel(), names, layers)


def _shown(port: int) -> str:
    return "?" if port == c.NULL_I64 else str(port)


def report_bytes(hops: Hops) -> tuple[I64, I64]:
    """(first hop of each report, bytes of its packet; 0 where the report does not say)."""
    first = np.flatnonzero(np.append(True, np.diff(hops.report) != 0)) if len(hops) else np.empty(0, np.int64)
    length = hops.column["length"][first]
    return first, np.where(length == c.NULL_I64, 0, length)


def redirected(hops: Hops) -> Any:
    """By hop: whether a changed destination port asked for INT: the path may not be the flow's own then."""
    flags = hops.column["report_flags"]
    return (flags != c.NULL_I64) & ((flags & c.ReportFlag.REDIRECTED) != 0)
