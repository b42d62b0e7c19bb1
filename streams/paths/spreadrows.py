"""Imbalance of a window as rows of its record: layers and groups, links that stand out, losses of jobs."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from schemas import columns as c
from schemas import imbalance as schema
from schemas.flow import flow_id
from schemas.pack import Strings
from streams.paths.fabric import Fabric
from streams.paths.imbalance import LayerSpread, Spread, holm
from streams.paths.null import Null
from streams.paths.rows import pack_rows

Array = NDArray[Any]
F64 = NDArray[np.float64]

LEVEL: Final = 0.05  # of verdicts, and of the test of idle links
GROUPS_NAMED: Final = 128  # of a layer
MEMBERS_NAMED: Final = 8_192  # of a record
JOBS_NAMED: Final = 1_024
_PREFIX: Final = {"imb": schema.SPREADS, "mem": schema.MEMBERS, "hot": schema.HOTSPOTS, "loss": schema.LOSSES,
                  "job": schema.JOBS, "pol": schema.POLARISED}  # fmt: skip


class Table:
    """Rows of a record, by the prefix of their columns."""

    def __init__(self) -> None:
        self._rows: dict[str, list[dict[str, Any]]] = {prefix: [] for prefix in _PREFIX}

    def add(self, prefix: str, **values: Any) -> None:
        """A row; columns without a value are null."""
        self._rows[prefix].append(values)

    def count(self, prefix: str) -> int:
        """Rows of this prefix so far."""
        return len(self._rows[prefix])

    def columns(self) -> tuple[dict[str, Array], tuple[str, ...]]:
        """(packed columns, their strings); a run without rows is absent."""
        strings = Strings()
        out: dict[str, Array] = {}
        for prefix, columns in _PREFIX.items():
            out |= pack_rows(columns, prefix, self._rows[prefix], strings)
        return out, strings.table


class Loads:
    """What counters say of links in the window."""

    def __init__(
        self, data: Mapping[str, Array], strings: tuple[str, ...], capacity_bps: Mapping[str, float]
    ) -> None:
        self._capacity = capacity_bps
        self._counted: dict[str, tuple[float, float]] = {}  # link -> bytes, and those that flows account for
        names = ("link_name", "link_bytes", "link_coverage")
        for name, size, coverage in zip(*(data.get(n, np.empty(0)).tolist() for n in names), strict=True):
            if coverage == coverage and size > 0:
                self._counted[strings[name]] = (size, size * coverage)

    def coverage(self, links: Iterable[str]) -> float | None:
        """Attributed over counted bytes of these links; None if none was counted."""
        known = [self._counted[link] for link in links if link in self._counted]
        whole = sum(size for size, _ in known)
        return sum(covered for _, covered in known) / whole if whole else None

    def capacity_known(self, links: Sequence[str]) -> float:
        """Share of these links whose capacity is known."""
        return sum(link in self._capacity for link in links) / len(links)


def layer_rows(table: Table, fabric: Fabric, layer: LayerSpread, loads: Loads) -> None:
    """A layer and its groups, by flows and by bytes."""
    names = [fabric.link_name(k) for k in np.unique(layer.part.link).tolist()]
    about = {"coverage": loads.coverage(names), "capacity_known": loads.capacity_known(names)}
    _, which = np.unique(layer.part.link, return_inverse=True)
    measures = [(c.Measure.FLOWS, layer.by_flows)]
    if layer.bytes > 0:
        measures.append((c.Measure.BYTES, layer.by_bytes))
    for measure, spread in measures:
        assert spread.groups is not None
        idle = int((np.bincount(which, spread.groups.load) == 0).sum())
        chance = spread.null
        table.add(
            "imb", layer=layer.name, measure=measure, groups=len(layer.groups), links=layer.links,
            flows=layer.flows, bytes=layer.bytes, fim_routing=spread.fim_routing, fim_layer=spread.fim_layer,
            max_over_mean=spread.max_over_mean, jain=spread.jain, cov=spread.cov, idle=idle,
            member_first=0, member_count=0, **about,
            **_chance(chance, spread.fim_routing, None if chance is None else chance.p),
        )  # fmt: skip
    judged = [(measure, spread, _adjusted(spread)) for measure, spread in measures]
    excess = layer.fim - np.nan_to_num(layer.fim_null)
    for g in np.lexsort((-excess, judged[0][2]))[:GROUPS_NAMED].tolist():
        _group_rows(table, fabric, layer, g, judged, loads)


def _group_rows(
    table: Table,
    fabric: Fabric,
    layer: LayerSpread,
    g: int,
    measures: Sequence[tuple[c.Measure, Spread, F64]],
    loads: Loads,
) -> None:
    part = layer.part
    slots = slice(int(part.first[g]), int(part.first[g] + part.size[g]))
    names = [fabric.link_name(k) for k in part.link[slots].tolist()]
    by_flows, by_bytes = layer.by_flows.groups, layer.by_bytes.groups
    assert by_flows is not None
    first, named = table.count("mem"), table.count("mem") + len(names) <= MEMBERS_NAMED
    size = np.zeros(len(names)) if by_bytes is None else by_bytes.load[slots]
    if named:
        for name, weight, flows, load in zip(
            names, part.weight[slots].tolist(), by_flows.load[slots].tolist(), size.tolist(), strict=True
        ):
            table.add("mem", link=name, weight=weight, flows=flows, bytes=load)
    for measure, spread, adjusted in measures:
        found = spread.groups
        assert found is not None
        if not found.total[g] > 0:
            continue
        chance = found.nulls[g] if found.nulls else None
        with_members = named and measure == c.Measure.FLOWS
        table.add(
            "imb", layer=layer.name, switch=fabric.nodes[int(fabric.groups.node[layer.groups[g]])],
            measure=measure, groups=1, links=len(names), flows=float(by_flows.total[g]), bytes=float(size.sum()),
            fim_routing=float(found.fim[g]), max_over_mean=float(found.max_over_mean[g]),
            jain=float(found.jain[g]), cov=float(found.cov[g]), idle=int((found.load[slots] == 0).sum()),
            coverage=loads.coverage(names), capacity_known=loads.capacity_known(names),
            member_first=first if with_members else 0, member_count=len(names) if with_members else 0,
            **_chance(chance, float(found.fim[g]), float(adjusted[g])),
        )  # fmt: skip


def _adjusted(spread: Spread) -> F64:
    """p of each group by Holm; 1 where nothing is known of chance."""
    assert spread.groups is not None
    found = spread.groups
    if not found.nulls:
        return np.ones(len(found.fim))
    return holm(np.array([chance.p for chance in found.nulls]))


def _chance(chance: Null | None, observed: float, p: float | None) -> dict[str, Any]:
    if chance is None or p is None:
        return {}
    verdict = c.Evenness.LIKE_RANDOM
    if p < LEVEL:
        worse = observed > chance.mean
        verdict = c.Evenness.WORSE_THAN_RANDOM if worse else c.Evenness.BETTER_THAN_RANDOM
    return {
        "fim_null": chance.mean, "null_sd": chance.sd, "null_method": c.NullMethod[chance.method.upper()],
        "null_draws": chance.draws, "z": chance.z(observed), "p": p, "verdict": verdict,
    }  # fmt: skip


def hotspots(table: Table, fabric: Fabric, layers: Sequence[LayerSpread], found: Mapping[str, Any]) -> None:
    """Links that stand out; `found` as of `collisions.summary`."""
    for row in found["worst"]:
        first = table.count("loss")
        for flow in row["flows"]:
            number = flow_id(flow["src"], flow["dst"], flow["src_port"], flow["dst_port"], flow["protocol"])
            table.add("loss", flow=number, share=flow["loss"])
        table.add(
            "hot", kind=c.Hotspot.COLLISION, link=row["link"], layer=row["layer"], bytes=row["bytes"],
            elephants=row["elephants"], overload=row["overload"], loss_first=first, loss_count=len(row["flows"]),
        )  # fmt: skip
    for row in found["hot_links"]:
        if row["over_mean"] > 1:
            table.add(
                "hot", kind=c.Hotspot.HOT, link=row["link"], layer=row["layer"], bytes=row["bytes"],
                seconds=row["seconds"], over_mean=row["over_mean"], loss_first=0, loss_count=0,
            )  # fmt: skip
    for layer in layers:
        for link, expected, p in layer.idle:
            if p >= LEVEL:
                break
            table.add(
                "hot", kind=c.Hotspot.IDLE, link=fabric.link_name(link), layer=layer.name, bytes=0.0,
                expected=expected, p=p, loss_first=0, loss_count=0,
            )  # fmt: skip


def job_rows(table: Table, rows: Sequence[Mapping[str, Any]]) -> None:
    """Losses by job, the worst first."""
    for row in rows[:JOBS_NAMED]:
        table.add(
            "job", name=row["job"] or None, flows=row["flows"], bytes=row["bytes"], loss_mean=row["mean_loss"],
            loss_max=row["max_loss"], links_shared=row["links_shared_with_others"],
        )  # fmt: skip
