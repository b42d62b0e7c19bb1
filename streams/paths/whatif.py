"""What if flows were placed otherwise: modes of routing, each with its figures.

ecmp            as the switches hash (or, for recorded flows, as they went)
static          an assignment that makes the worst link lightest, with source ports that bring it about
flowlet[:N]     each flow in N parts (16), each part placed at random
spray           each flow over all members of every group
rehash:MODEL    another hash: `rehash:crc32c,seed=7,offset=3,fields=5tuple+qpn,by=switch,map=multiply`
qp-scale:N      each flow on N queue pairs, each with a source port of its own
reroute:FILE    ports or paths from a file, read by the caller
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from schemas.errors import Usage
from streams.paths import collisions, imbalance, maxmin, polarisation
from streams.paths.demand import Flows, scaled
from streams.paths.fabric import Fabric
from streams.paths.hashing import HashModel, parse_model
from streams.paths.imbalance import LayerSpread
from streams.paths.layer import layer_entries
from streams.paths.maxmin import Paths, paths_of
from streams.paths.route import Entries, as_entries, by_hash, mixture, random_choice, spray
from streams.paths.solver import Assignment, solve, source_ports
from streams.paths.sums import summed

I64 = NDArray[np.int64]
F64 = NDArray[np.float64]

MODES: Final = ("ecmp", "static", "flowlet", "spray", "rehash", "qp-scale", "reroute")
FLOWLETS: Final = 16
MTU: Final = 4096
PROPOSED: Final = 1000  # flows with a proposed port named in a report
EXACT_REFILLS: Final = 200_000_000  # flows × entries up to which every completion is a refill of its own
GRAIN: Final = 0.01
FLOWS_TIMED: Final = 200_000  # beyond, completion is not computed


@dataclass(frozen=True, eq=False)
class Case:
    """Flows on paths of a fabric. Keys and ports go by `model`; `routing` is how, in words."""

    fabric: Fabric
    flows: Flows
    entries: Entries
    model: HashModel
    mode: str
    routing: str
    assignment: Assignment | None = None


def make(
    mode: str,
    fabric: Fabric,
    flows: Flows,
    model: HashModel,
    rng: np.random.Generator,
    recorded: Entries | None = None,
    reroute: Callable[[str], Entries] | None = None,
) -> Case:
    """The case of one mode. Raises Usage for a mode it does not know or cannot do."""
    kind, _, argument = mode.partition(":")
    if kind not in MODES:
        raise Usage(f"no mode {mode!r}: one of {', '.join(MODES)}")
    if argument and kind in ("ecmp", "static", "spray"):
        raise Usage(f"{kind} takes no {argument!r}")
    if kind == "ecmp" and recorded is not None:
        return Case(fabric, flows, recorded, model, mode, "as recorded")
    if kind == "static":
        found = solve(fabric, flows, flows.bytes)
        return Case(fabric, flows, as_entries(found.slots), model, mode, "assigned", found)
    if kind == "spray":
        return Case(fabric, flows, spray(fabric, flows), model, mode, "split over all members by weight")
    if kind == "flowlet":
        parts = _number(argument or str(FLOWLETS), mode)
        choices = [random_choice(fabric.groups, model.seed, k) for k in range(parts)]
        return Case(
            fabric, flows, mixture(fabric, flows, choices), model, mode, f"{parts} flowlets a flow, at random"
        )
    if kind == "reroute":
        if reroute is None or not argument:
            raise Usage("reroute needs a file: reroute:FILE")
        return Case(fabric, flows, reroute(argument), model, mode, f"as {argument} says")
    if kind == "qp-scale":
        flows = scaled(flows, _number(argument, mode), rng)
    if kind == "rehash":
        model = parse_model(argument, model)
    return Case(fabric, flows, by_hash(fabric, flows, model), model, mode, f"computed by {_words(model)}")


def _number(text: str, mode: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 4096:
        raise Usage(f"{mode!r} needs a number from 1 to 4096")
    return int(text)


def _words(model: HashModel) -> str:
    by = {"": "one seed for all", "switch": "a seed for each switch", "port": "a seed for each ingress port"}
    fields = "+".join(model.fields)
    return f"{model.kind} over {fields}, {model.mapping}, offset {model.offset}, {by[model.seed_by]}"


def layers_of(case: Case, unit: I64, rng: np.random.Generator) -> list[LayerSpread]:
    """The spread of every layer in which a flow has a choice, in order of the fabric's layers."""
    found = (
        imbalance.layer_spread(
            case.fabric.groups,
            case.entries,
            layer,
            case.flows.bytes,
            unit,
            case.fabric.links.capacity_bps,
            rng,
        )
        for layer in range(len(case.fabric.groups.layers))
    )
    return [layer for layer in found if layer is not None]


@dataclass(frozen=True, eq=False)
class Figures:
    """A case's report, and what it was made of."""

    report: dict[str, Any]
    unit: I64  # number of each flow's distinct key
    layers: list[LayerSpread]
    paths: Paths
    sharing: collisions.Sharing


def report(case: Case, rng: np.random.Generator, mtu: int = MTU) -> dict[str, Any]:
    """All figures of a case, as JSON: see the contract for `layers`, `collisions`, `polarisation`."""
    return figures(case, rng, mtu).report


def figures(case: Case, rng: np.random.Generator, mtu: int = MTU) -> Figures:
    """The report of a case, with the arrays behind it."""
    fabric, flows = case.fabric, case.flows
    unit = flows.units(case.model.fields)
    layers = layers_of(case, unit, rng)
    paths = paths_of(case.entries, fabric.groups.link)
    found = collisions.sharing(fabric, flows, paths)
    tests = polarisation.polarisation(fabric.groups, case.entries, unit)
    out: dict[str, Any] = {
        "mode": case.mode, "routing": case.routing, "flows": len(flows), "bytes": float(flows.bytes.sum()),
        "keys": len(np.unique(unit)),
        "layers": [_layer_row(case, layer) for layer in layers], "forced": _forced(case, layers),
        "collisions": collisions.summary(fabric, flows, paths, found),
        "polarisation": polarisation.summary(fabric.groups, tests, fabric.nodes),
        "completion": completion(case, paths, mtu),
    }  # fmt: skip
    if case.assignment is not None:
        out["assignment"] = _proposal(case, case.assignment)
    return Figures(out, unit, layers, paths, found)


def _layer_row(case: Case, layer: LayerSpread) -> dict[str, Any]:
    groups, names = case.fabric.groups, case.fabric.nodes
    excess = np.argsort(-(layer.fim - np.nan_to_num(layer.fim_null)), kind="stable")[: imbalance.WORST]
    return {
        "layer": layer.name,
        "groups": len(layer.groups),
        "links": layer.links,
        "flows": layer.flows,
        "bytes": layer.bytes,
        **layer.by_flows.summary(),
        "by_bytes": layer.by_bytes.summary(),
        "worst_groups": [
            {
                "switch": names[int(groups.node[layer.groups[g]])],
                "links": int(groups.size[layer.groups[g]]),
                "fim": float(layer.fim[g]),
                "fim_null": None if np.isnan(layer.fim_null[g]) else float(layer.fim_null[g]),
            }
            for g in excess.tolist()
        ],
        "idle_links": [
            {"link": case.fabric.link_name(link), "expected": flows, "p": p}
            for link, flows, p in layer.idle[: imbalance.WORST]
        ],
        "idle_count": len(layer.idle),
    }


def _forced(case: Case, chosen: list[LayerSpread]) -> list[dict[str, Any]]:
    """Layers between switches where no flow had a choice: their spread follows from choices made before."""
    links = case.fabric.links
    inside = (links.sender >= case.fabric.endpoints) & (links.receiver >= case.fabric.endpoints)
    link = case.fabric.groups.link[case.entries.slot]
    size = case.entries.share * case.flows.bytes[case.entries.flow]
    rows = []
    for number, name in enumerate(links.layers):
        own = np.flatnonzero(inside & (links.layer == number))
        load = summed(link, case.entries.share, len(links))[own]
        if not load.sum() or name in {layer.name for layer in chosen}:
            continue
        most, jain, cov = imbalance.evenness(load / links.capacity_bps[own])
        share = links.capacity_bps[own] / links.capacity_bps[own].sum()
        rows.append(
            {
                "layer": name,
                "links": len(own),
                "flows": float(load.sum()),
                "bytes": float(summed(link, size, len(links))[own].sum()),
                "fim_layer": imbalance.fim(load, share * load.sum()),
                "max_over_mean": most,
                "jain": jain,
                "cov": cov,
            }
        )
    return rows


def completion(case: Case, paths: Paths, mtu: int = MTU) -> dict[str, Any]:
    """Seconds until all bytes are delivered by max-min fair share; a range for PFC; the bound."""
    capacity = case.fabric.links.capacity_bps / 8
    wire = maxmin.wire_bytes(case.flows.bytes, mtu)
    out: dict[str, Any] = {
        "mtu": mtu, "payload_bytes": float(case.flows.bytes.sum()), "wire_bytes": float(wire.sum()),
        "lower_bound_s": maxmin.link_bound(paths, wire, capacity), "left_out": list(maxmin.LEFT_OUT),
    }  # fmt: skip
    if len(case.flows) > FLOWS_TIMED:
        return out | {"seconds": None, "why_none": f"more than {FLOWS_TIMED:,} flows"}
    grain = 0.0 if len(case.flows) * len(paths.flow) <= EXACT_REFILLS else GRAIN
    fluid = maxmin.complete(paths, wire, capacity, grain=grain)
    paused = maxmin.complete(paths, wire, capacity, grain=grain, paused=True)
    return out | {
        "seconds": fluid.seconds, "mean_flow_s": float(fluid.by_flow.mean()) if len(wire) else 0.0,
        "pfc_range_s": [fluid.seconds, max(fluid.seconds, paused.seconds)], "refills": fluid.refills,
        "coalesced": fluid.coalesced, "grain": grain,
    }  # fmt: skip


def _proposal(case: Case, found: Assignment) -> dict[str, Any]:
    out: dict[str, Any] = {
        "worst_link_s": found.worst, "lower_bound_s": found.bound, "optimal": found.optimal,
        "over_bound": found.worst / found.bound if found.bound else 1.0, "passes": found.passes,
    }  # fmt: skip
    few = np.arange(min(len(case.flows), PROPOSED))
    some = case.flows.select(few)
    ports = source_ports(case.fabric, some, found.slots[few], case.model)
    link = case.fabric.groups.link
    out["ports_for"] = _words(case.model)
    out["without_port"] = int((ports < 0).sum())
    out["flows"] = [
        collisions.flow_row(some, k)
        | {
            "proposed_src_port": int(ports[k]) if ports[k] >= 0 else None,
            "path": [case.fabric.link_name(int(link[s])) for s in found.slots[k].tolist() if s >= 0],
        }
        for k in few.tolist()
    ]
    return out


def difference(a: dict[str, Any], b: dict[str, Any]) -> dict[str, Any]:
    """b beside a: by layer the points of FIM (b − a) and the relative change, losses, completion."""
    by_name = {row["layer"]: row for row in b["layers"]}
    layers = []
    for row in a["layers"]:
        other = by_name.get(row["layer"])
        if other is None:
            continue
        layers.append(
            {
                "layer": row["layer"],
                "fim_routing_points": other["fim_routing"] - row["fim_routing"],
                "fim_routing_relative": _relative(row["fim_routing"], other["fim_routing"]),
                "fim_layer_points": other["fim_layer"] - row["fim_layer"],
                "fim_routing_bytes_points": other["by_bytes"]["fim_routing"] - row["by_bytes"]["fim_routing"],
                "max_over_mean": other["max_over_mean"] - row["max_over_mean"],
            }
        )
    one, two = a["completion"]["seconds"], b["completion"]["seconds"]
    return {
        "layers": layers,
        "mean_loss": b["collisions"]["mean_loss"] - a["collisions"]["mean_loss"],
        "colliding_links": b["collisions"]["links"] - a["collisions"]["links"],
        "completion_s": None if one is None or two is None else two - one,
        "completion_relative": None if one is None or two is None else _relative(one, two),
    }


def _relative(one: float, two: float) -> float | None:
    return (two - one) / one if one else None


def with_ports(flows: Flows, ports: I64) -> Flows:
    """The same flows with other source ports; −1 keeps a flow's own."""
    return replace(flows, sport=np.where(ports < 0, flows.sport, ports))


def fim_by_group(case: Case, layer: int) -> tuple[F64, F64, I64]:
    """(FIM by flows in percent, flows, links) of each group of a layer that has a choice and carries flows."""
    part = layer_entries(case.fabric.groups, case.entries, layer)
    if part is None:
        return np.zeros(0), np.zeros(0), np.zeros(0, np.int64)
    load = summed(part.slot, part.share, len(part.link))
    total = summed(part.of_slot, load, len(part.group))
    deviation = np.abs(load / (total[part.of_slot] * part.weight) - 1)
    return 100 * summed(part.of_slot, deviation, len(part.group)) / part.size, total, part.size


def over_time(case: Case, window: I64) -> list[dict[str, Any]]:
    """Imbalance by flows, by window and layer. `window` is where each flow of the case was seen."""
    fabric, flows, entries = case.fabric, case.flows, case.entries
    unit, one = flows.units(case.model.fields), np.ones(len(flows))
    of_entry = window[entries.flow]
    rng = np.random.default_rng(0)  # keys that go together are of unequal weight, so their null is drawn
    rows = []
    for start in np.unique(window).tolist():
        use = of_entry == start
        part = Entries(entries.flow[use], entries.slot[use], entries.share[use], entries.whole)
        for layer in range(len(fabric.groups.layers)):
            found = imbalance.layer_spread(
                fabric.groups, part, layer, one, unit, fabric.links.capacity_bps, rng
            )
            if found is None:
                continue
            figures = found.by_flows.summary()
            rows.append(
                {
                    "window_start_ns": int(start),
                    "layer": found.name,
                    "groups": len(found.groups),
                    "flows": found.flows,
                }
                | {
                    name: figures[name]
                    for name in ("fim_routing", "fim_layer", "fim_null", "z", "p", "max_over_mean")
                }
            )
    return rows
