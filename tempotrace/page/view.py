"""What a page shows of a case, as plain and bounded data: links, flows with their hops, groups, layers, the drawing.

The **share** of a link's capacity is, where the flows are of a known interval, their bytes over what the link could
carry in it; else what its flows would send were only the links of endpoints their limit, over its capacity (as in
`streams/paths/collisions.py`). Above 1 some of the flows have to wait.

How a link looks: `dead` where recorded flows should have come by chance and none did (Holm over its layer, p < 0.01) or
it has no capacity; `unknown` where no recorded path can tell, `assumed` where its capacity was not known and is taken.
Where paths are computed, a link without flows shows what the hash does, not that the link is dead.
"""

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from schemas.flow import address_text
from streams.paths.fabric import heights
from streams.paths.recorded import Seen
from streams.paths.sums import order_by, summed
from streams.paths.whatif import Case, Figures
from tempotrace.page import bands
from tempotrace.page.parts import Flow, Hop, Known, Link, Map, Side

I64 = NDArray[np.int64]
F64 = NDArray[np.float64]

DRAWN: Final = 200  # half-links up to which a fabric is drawn, beyond it is a map of switches × links
LINKS: Final = 150  # links with a card of their own, beyond what is drawn
FLOWS: Final = 200
ON_LINK: Final = 12  # flows named on a card
GROUPS: Final = 24
MAP_ROWS: Final = 48
MAP_COLUMNS: Final = 64
MAPS: Final = 4
DEAD_P: Final = 0.01
UNSEEN: Final = "(unseen)"


def side(
    case: Case, figures: Figures, known: Known, order: Side | None = None, *, alone: bool = False
) -> Side:
    """Gather one case. `order` is the other side of a comparison, whose order of switches is kept.

    `alone` on its page, a link whose port was counted has the share that its counters say, all traffic included, and
    layers without flows are only named; both sides of a comparison rest on flows alone, and have the same maps.
    """
    fabric, paths = case.fabric, figures.paths
    links, count = fabric.links, len(fabric.links)
    flows = summed(paths.link, paths.share, count)
    share, basis = _shares(case, figures, known)
    if alone and basis == "mean" and known.counted:
        counted = [known.counted.get(fabric.link_name(k)) for k in range(count)]
        said = np.array(
            [np.nan if one is None or one.utilisation is None else one.utilisation for one in counted]
        )
        share = np.where(np.isnan(said), share, said)
    dead, idle = _dead(case, figures)
    unknown = _unknown(case, known)
    inside = (links.sender >= fabric.endpoints) & (links.receiver >= fabric.endpoints)
    drawn = count <= DRAWN
    rank = np.where(dead, np.inf, np.where(unknown, -1.0, share))
    ranked = np.argsort(-rank, kind="stable")
    chosen = ranked if drawn else ranked[inside[ranked]][:LINKS]
    if order is not None and not drawn:  # the same links on both sides, so that they can be compared
        both = dict.fromkeys([*chosen.tolist(), *(link.number for link in order.links)])
        chosen = np.array(list(both), np.int64)
    carried = _carried(figures, chosen)

    def link(k: int, listed: bool = True) -> Link:
        name = fabric.link_name(k)
        return Link(
            k, name, _ends(case, k, name), links.layers[int(links.layer[k])], float(links.capacity_bps[k]),
            known.capacity is not None and name not in known.capacity, float(figures.sharing.load[k]), float(flows[k]),
            None if unknown[k] else float(share[k]), bool(dead[k]), idle.get(k), known.counted.get(name),
            carried.get(k, ()), bool(inside[k]), listed,
        )  # fmt: skip

    choice = {layer.name for layer in figures.layers}
    cards = tuple(link(k) for k in chosen.tolist())
    groups = bands.groups(case, figures, GROUPS)
    names = () if known.capacity is None else [fabric.link_name(k) for k in range(count)]
    return Side(
        figures.report, basis, cards, count,
        sum(name not in (known.capacity or ()) for name in names),
        _flows(case, figures, known, chosen), groups, sum(len(layer.groups) for layer in figures.layers),
        *(((), ()) if drawn else _maps(case, rank, inside, link, set(chosen.tolist()), order, choice, alone)),
        _nodes(case) if drawn else (), _ports(figures.report),
    )  # fmt: skip


def _shares(case: Case, figures: Figures, known: Known) -> tuple[F64, str]:
    """(share of capacity by link, what it rests on)."""
    capacity = case.fabric.links.capacity_bps / 8
    with np.errstate(divide="ignore", invalid="ignore"):
        if known.interval_ns is not None and known.interval_ns[1] > known.interval_ns[0]:
            seconds = (known.interval_ns[1] - known.interval_ns[0]) / 1e9
            return np.nan_to_num(figures.sharing.load / capacity / seconds), "mean"
        alone = figures.sharing.alone
        want = np.where(np.isfinite(alone), alone, 0.0)
        paths = figures.paths
        wanted = summed(paths.link, paths.share * want[paths.flow], len(capacity))
        return np.nan_to_num(wanted / capacity), "wanted"


def _dead(case: Case, figures: Figures) -> tuple[NDArray[np.bool_], dict[int, tuple[float, float]]]:
    dead = case.fabric.links.capacity_bps <= 0
    recorded = case.routing == "as recorded"
    idle = {}
    for layer in figures.layers:
        for link, expected, p in layer.idle:
            idle[link] = (expected, p)
            dead[link] |= recorded and p < DEAD_P
    return dead, idle


def _unknown(case: Case, known: Known) -> NDArray[np.bool_]:
    """Links of which no path tells: those that recorded paths only imply."""
    out = np.zeros(len(case.fabric.links), np.bool_)
    if known.seen is not None and case.fabric.links.names is not None:
        out[[UNSEEN in name for name in case.fabric.links.names]] = True
    return out


def _ends(case: Case, link: int, name: str) -> tuple[str, str, str, str]:
    links, nodes = case.fabric.links, case.fabric.nodes
    one, _, two = name.partition(">")
    ports = [side.rpartition(":")[2] if ":" in side else "" for side in (one, two)]
    sender, receiver = nodes[int(links.sender[link])], nodes[int(links.receiver[link])]
    return sender, "" if UNSEEN in ports[0] else ports[0], receiver, "" if UNSEEN in ports[1] else ports[1]


def _carried(figures: Figures, chosen: I64) -> dict[int, tuple[int, ...]]:
    """Flows named on each card, those that lose most first."""
    paths, loss = figures.paths, figures.sharing.loss
    size = len(figures.sharing.load)
    order = order_by(paths.link, size)
    sorted_links = paths.link[order]
    low, high = np.searchsorted(sorted_links, chosen), np.searchsorted(sorted_links, chosen, "right")
    out = {}
    for link, first, last in zip(chosen.tolist(), low.tolist(), high.tolist(), strict=True):
        on = np.unique(paths.flow[order[first:last]])
        out[link] = tuple(on[np.argsort(-loss[on], kind="stable")][:ON_LINK].tolist())
    return out


def _flows(case: Case, figures: Figures, known: Known, chosen: I64) -> tuple[Flow, ...]:
    """Those that lose most, then the largest."""
    flows, entries, found = case.flows, case.entries, figures.sharing
    top = np.lexsort((-flows.bytes, -np.round(found.loss, 6)))[:FLOWS]
    rows = []
    for k in top.tolist():
        first, last = np.searchsorted(entries.flow, [k, k + 1])
        steps = range(int(first), int(min(last, first + 64)))
        seen = known.seen[k] if known.seen is not None and case.routing == "as recorded" else None
        rate = float(found.rate[k]) * 8
        rows.append(
            Flow(
                k,
                (
                    address_text(flows.src_address[k].tobytes()), int(flows.sport[k]),
                    address_text(flows.dst_address[k].tobytes()), int(flows.dport[k]), int(flows.protocol[k]),
                ),
                float(flows.bytes[k]), "/".join(filter(None, flows.jobs[int(flows.job[k])])), float(found.loss[k]),
                rate, tuple(_hop(case, e, seen) for e in steps), _source(case, seen),
                None if seen is None else seen.agreement,
            )
        )  # fmt: skip
    return tuple(rows)


def _source(case: Case, seen: Seen | None) -> str:
    if seen is not None:
        return seen.path_source or "unknown"
    return {"static": "proposed", "spray": "split", "flowlet": "split", "reroute": "as the file says"}.get(
        case.mode.partition(":")[0], "computed"
    )


def _hop(case: Case, entry: int, seen: Seen | None) -> Hop:
    groups, slot = case.fabric.groups, int(case.entries.slot[entry])
    link, share = int(groups.link[slot]), float(case.entries.share[entry])
    name, size = case.fabric.link_name(link), int(groups.size[groups.of_slot[slot]])
    source = _source(case, seen)
    if seen is not None:
        told = any(name == step for step, _ in seen.path)
        how = source if told else "implied: the end's own link"
        how += ", next hop not named" if told and name.endswith(">") else ""
    elif size == 1:
        how = "the only way"
    else:
        how = {"computed": "computed: hash, 1 of", "proposed": "proposed: 1 of", "split": "split over"}.get(
            source, f"{source}: 1 of"
        ) + f" {size}"
    return Hop(link, name, how if share == 1 else f"{how}, {share:.1%} of the flow")


def _maps(
    case: Case,
    rank: F64,
    inside: NDArray[np.bool_],
    link: Any,
    listed: set[int],
    order: Side | None,
    chosen: set[str],
    alone: bool,
) -> tuple[tuple[Map, ...], tuple[str, ...]]:
    """(maps, layers that no flow takes). Those in which flows have a choice come first, the worst of them first."""
    empty: list[str] = []
    fabric, links = case.fabric, case.fabric.links
    out: list[tuple[bool, float, Map]] = []
    for number, name in enumerate(links.layers):
        own = np.flatnonzero(inside & (links.layer == number))
        if not len(own):
            continue
        if alone and rank[own].max() == 0:
            empty.append(name)
            continue
        switch, which = np.unique(links.sender[own], return_inverse=True)
        worst = np.full(len(switch), -np.inf)
        np.maximum.at(worst, which, rank[own])
        top = np.argsort(-worst, kind="stable")[:MAP_ROWS]
        before = None if order is None else next((one for one in order.maps if one.layer == name), None)
        if before is not None:
            place = {fabric.nodes[int(s)]: k for k, s in enumerate(switch.tolist())}
            top = np.array([place[row] for row, _ in before.rows])
        width = int(np.bincount(which).max())
        rows = []
        for k in top.tolist():
            cells = own[which == k]
            if before is None and width > MAP_COLUMNS:
                cells = np.sort(cells[np.argsort(-rank[cells], kind="stable")[:MAP_COLUMNS]])
            elif width > MAP_COLUMNS and before is not None:
                cells = np.array([one.number for one in dict(before.rows)[fabric.nodes[int(switch[k])]]])
            rows.append((fabric.nodes[int(switch[k])], tuple(link(c, c in listed) for c in cells.tolist())))
        out.append((name not in chosen, -float(rank[own].max()), Map(name, tuple(rows), len(switch), width)))
    if order is not None:
        made = {one.layer: one for *_, one in out}
        return tuple(made[one.layer] for one in order.maps), order.empty
    return tuple(one for *_, one in sorted(out, key=lambda row: row[:2])[:MAPS]), tuple(empty)


def _nodes(case: Case) -> tuple[tuple[str, int], ...]:
    return tuple(zip(case.fabric.nodes, heights(case.fabric).tolist(), strict=True))


def _ports(report: dict[str, Any]) -> tuple[tuple[str, int | str, str, int | str, int], ...]:
    """Proposed source ports: (source, its port, destination, its port, the new port)."""
    rows = report.get("assignment", {}).get("flows", [])
    return tuple(
        (row["src"], row["src_port"], row["dst"], row["dst_port"], row["proposed_src_port"])
        for row in rows
        if row["proposed_src_port"] is not None
    )
