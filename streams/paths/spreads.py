"""Imbalance of each window: the figures of `tempotrace flows report`, from the flows that one window shows.

The fabric is what paths show, those of this window and of earlier ones as far back as paths are remembered, so
that a link which nobody took this time still counts as a member of its group. Nulls that are drawn are drawn
from the same seed in every window: a window's figures depend on the window and on the links known, on nothing
else. What would take longer than a window lasts is not done, and counted: see `EFFORT` and the limits below.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from schemas import columns as c
from schemas.errors import MalformedInput, Usage
from schemas.flow import address_bytes
from streams.counts import Counts
from streams.paths import collisions, polarisation
from streams.paths.chance import Effort
from streams.paths.hashing import FIELD_SETS
from streams.paths.imbalance import layer_spread
from streams.paths.maxmin import paths_of
from streams.paths.recorded import Recorded, Seen, connected, ends_of, observed
from streams.paths.spreadrows import Loads, Table, hotspots, job_rows, layer_rows

Array = NDArray[Any]

SEED: Final = 1  # of what is drawn; that of `flows report` unless told otherwise
EFFORT: Final = Effort(drawn=4_000_000, exact=10_000_000)  # some 40 ms a layer
FLOWS_MAX: Final = 50_000  # of a window
LINKS_KEPT: Final = 65_536
WAYS_MAX: Final = 4_000_000  # links × nodes that paths begin at
DEFAULT_BPS: Final = 400e9


@dataclass(frozen=True)
class Window:
    """What the paths record of a window holds: columns of flows, paths and links, and their strings."""

    end_ns: int
    data: Mapping[str, Array]
    strings: tuple[str, ...]


class Spreads:
    """The links that paths showed of late, and what they make of a window's flows."""

    def __init__(self, count: Counts, default_bps: float = DEFAULT_BPS) -> None:
        self._count, self._default_bps = count, default_bps
        self._links: dict[str, int] = {}  # between switches -> end of the last window that it was seen in

    def window(self, window: Window, capacity_bps: Mapping[str, float]) -> Table | None:
        """The rows of a window, None where no flow had a choice. `capacity_bps`: of links, where it is known."""
        seen = self._seen(window)
        if not seen:
            return None
        if len(seen) > FLOWS_MAX:
            self._count("imbalance_skipped", len(seen), "flows")
            return None
        leaves = {ends_of(one.path[0][0])[0] for one in seen}
        if (len(self._links) + len({name for one in seen for name, _ in one.path})) * len(leaves) > WAYS_MAX:
            self._count("imbalance_skipped", len(seen), "fabric")
            return None
        try:
            found = observed(seen, capacity_bps, self._default_bps, list(self._links))
        except (MalformedInput, Usage):  # an endpoint with two homes, say
            self._count("imbalance_skipped", len(seen), "paths")
            return None
        self._learn(found, seen, window.end_ns)
        return _table(found, Loads(window.data, window.strings, capacity_bps))

    def _seen(self, window: Window) -> list[Seen]:
        """The window's flows that have a path and addresses, in the order in which a report reads them."""
        data, strings = window.data, window.strings
        names = ("flow_src", "flow_dst", "flow_src_port", "flow_dst_port", "flow_protocol", "flow_bytes",
                 "flow_job", "flow_path_first", "flow_path_count")  # fmt: skip
        if not len(data.get("flow_id", ())):
            return []
        rows = zip(*(data[name].tolist() for name in names), strict=True)
        links = [strings[k] for k in data["path_link"].tolist()]
        shares = data["path_share"].tolist()
        known: dict[int, bool] = {c.NULL_U16: False}
        out, without, broken = [], 0, 0
        for src, dst, sport, dport, protocol, size, job, first, count in rows:
            if not count:
                continue
            for end in (src, dst):
                if end not in known:
                    known[end] = _is_address(strings[end])
            if not (known[src] and known[dst]):
                without += 1
                continue
            path = tuple(zip(links[first : first + count], shares[first : first + count], strict=True))
            if not connected(path):
                broken += 1
                continue
            out.append(
                Seen(
                    strings[src], strings[dst], 0 if sport == c.NULL_U16 else sport,
                    0 if dport == c.NULL_U16 else dport, 0 if protocol == c.NULL_U8 else protocol,
                    float(max(size, 0)), path, "" if job == c.NULL_U16 else strings[job],
                )
            )  # fmt: skip
        self._count("imbalance_skipped", without, "addresses")
        self._count("imbalance_skipped", broken, "gaps")
        out.sort(key=lambda one: (one.src, one.dst, one.src_port, one.dst_port, one.protocol))
        return out

    def _learn(self, found: Recorded, seen: Sequence[Seen], now_ns: int) -> None:
        """Remember the links between switches that these flows took; of too many, those seen last."""
        fabric = found.fabric
        names = fabric.links.names or ()
        inside = (fabric.links.sender >= fabric.endpoints) & (fabric.links.receiver >= fabric.endpoints)
        between = {names[k] for k in np.flatnonzero(inside).tolist()}
        for name in dict.fromkeys(name for one in seen for name, _ in one.path):
            if name in between:
                self._links.pop(name, None)  # so that the order is by last sight
                self._links[name] = now_ns
        for name in list(self._links)[: max(0, len(self._links) - LINKS_KEPT)]:
            del self._links[name]

    def forget(self, oldest_ns: int) -> None:
        """Drop links that no flow took since then."""
        for name in [name for name, last in self._links.items() if last < oldest_ns]:
            del self._links[name]

    def dump(self) -> Any:
        """As JSON."""
        return list(self._links.items())

    def load(self, meta: Any) -> None:
        """From `dump`."""
        self._links = dict(meta)


def _is_address(text: str) -> bool:
    try:
        address_bytes(text)
    except ValueError:
        return False
    return True


def _table(found: Recorded, loads: Loads) -> Table | None:
    fabric, flows, entries = found.fabric, found.flows, found.entries
    unit = flows.units(FIELD_SETS["5tuple"])
    rng = np.random.default_rng(SEED)
    table = Table()
    layers = []
    for layer in range(len(fabric.groups.layers)):
        spread = layer_spread(
            fabric.groups,
            entries,
            layer,
            flows.bytes,
            unit,
            fabric.links.capacity_bps,
            rng,
            EFFORT,
            by_group=True,
        )
        if spread is not None:
            layers.append(spread)
            layer_rows(table, fabric, spread, loads)
    if not layers:
        return None
    paths = paths_of(entries, fabric.groups.link)
    sharing = collisions.sharing(fabric, flows, paths)
    hotspots(table, fabric, layers, collisions.summary(fabric, flows, paths, sharing))
    job_rows(table, collisions.by_job(flows, paths, sharing, len(flows.jobs)))
    tests = polarisation.polarisation(fabric.groups, entries, unit)
    for row in polarisation.summary(fabric.groups, tests, fabric.nodes, 0)["layers"]:
        table.add(
            "pol", **{"from": row["layer_from"], "to": row["layer_to"]},
            tests=row["tests"], polarised=row["polarised"], unknown=row["unknown"], z=row["z"], p=row["p"],
        )  # fmt: skip
    return table
