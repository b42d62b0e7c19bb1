"""FlowTracer's experiment, repeated: many draws of the flows at one hash, one way of routing beside another.

16 hosts with 400 Gbit/s on two leaves of eight, eight spines, 4 queue pairs from each host to its peer on the
other leaf: 64 flows, and two groups of eight uplinks with 32 flows each. What is drawn are the queue pairs,
so the source ports; the hash stays (a seed of a CRC would only permute the links). Each group's exact
expectation is 36.54 %, its standard deviation 10.75. FlowTracer (arXiv 2410.17078) reports 30 % less
imbalance for static routing than for ECMP on its own fabric and flows; its metric is not published in full.
"""

import math
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from streams.paths import null
from streams.paths.demand import Flows, flowtracer, redrawn
from streams.paths.fabric import Fabric
from streams.paths.hashing import HashModel
from streams.paths.topology import leaf_spine
from streams.paths.whatif import fim_by_group, make

I64 = NDArray[np.int64]
F64 = NDArray[np.float64]

PAPER: Final = "static routing: 30 % less imbalance than ECMP (arXiv 2410.17078)"
HOSTS, LEAVES, SPINES, QUEUE_PAIRS = 8, 2, 8, 4
DRAWS: Final = 1000
LAYER: Final = "leaf-up"


def setup(rng: np.random.Generator) -> tuple[Fabric, Flows]:
    """The fabric and one draw of its flows."""
    return leaf_spine(LEAVES, HOSTS, SPINES), flowtracer(rng)


def study(a: str, b: str, model: HashModel, rng: np.random.Generator, draws: int = DRAWS) -> dict[str, Any]:
    """FIM by group of both modes over draws of the set-up's flows, the exact values, and the difference."""
    fabric, flows = setup(rng)
    held = HOSTS * QUEUE_PAIRS
    out = repeated(a, b, fabric, flows, model, rng, draws)["layers"][LAYER]
    return {
        "draws": draws, "groups": LEAVES, "links_a_group": SPINES, "flows_a_group": held,
        "exact_mean": null.fim_mean(held, SPINES), "exact_sd": null.fim_sd(held, SPINES),
        "static_optimum": null.static_optimum(held, SPINES), "paper": PAPER, **out,
    }  # fmt: skip


def repeated(
    a: str, b: str, fabric: Fabric, flows: Flows, model: HashModel, rng: np.random.Generator, draws: int
) -> dict[str, Any]:
    """Both modes over draws of the queue pairs of the same flows: by layer, means of FIM and their errors.

    `chance_mean` is the mean over draws of what chance gives, for the flows that each group held.
    """
    layers = [
        k
        for k in range(len(fabric.groups.layers))
        if (fabric.groups.size[fabric.groups.layer == k] > 1).any()
    ]
    fixed = {
        side: make(mode, fabric, flows, model, rng)
        for side, mode in (("a", a), ("b", b))
        if mode in ("static", "spray")  # no queue pair changes these
    }
    found: dict[tuple[str, int], list[tuple[float, float, F64]]] = {}
    for _ in range(draws):
        flows = redrawn(flows, rng)
        for side, mode in (("a", a), ("b", b)):
            case = fixed.get(side) or make(mode, fabric, flows, model, rng)
            for layer in layers:
                each, held, size = fim_by_group(case, layer)
                if len(each):
                    chance = float(held @ _chance(held, size) / held.sum())
                    found.setdefault((side, layer), []).append(
                        (float(held @ each / held.sum()), chance, each)
                    )
    out: dict[str, Any] = {}
    for layer in layers:
        if ("a", layer) in found and ("b", layer) in found:
            row = {side: _summary(mode, found[side, layer]) for side, mode in (("a", a), ("b", b))}
            one, two = row["a"]["fim_mean"], row["b"]["fim_mean"]
            out[fabric.groups.layers[layer]] = row | {
                "difference_points": two - one, "difference_relative": (two - one) / one if one else None
            }  # fmt: skip
    return {"draws": draws, "layers": out}


def _chance(held: F64, size: I64) -> F64:
    """Exact mean FIM by chance of groups with so many flows and links; whole flows only count so."""
    known: dict[tuple[int, int], float] = {}
    pairs = [(round(flows), links) for flows, links in zip(held.tolist(), size.tolist(), strict=True)]
    for pair in set(pairs):
        known[pair] = null.fim_mean(*pair) if pair[0] else 0.0
    return np.array([known[pair] for pair in pairs])


def _summary(mode: str, draws: list[tuple[float, float, F64]]) -> dict[str, Any]:
    """Mean, spread of single groups, and the standard error by draws (a draw's groups need not be independent)."""
    by_draw = np.array([routing for routing, _, _ in draws])
    groups = np.concatenate([each for _, _, each in draws])
    return {
        "mode": mode, "fim_mean": float(by_draw.mean()), "fim_sd": float(groups.std(ddof=1)),
        "standard_error": float(by_draw.std(ddof=1)) / math.sqrt(len(draws)),
        "chance_mean": float(np.mean([chance for _, chance, _ in draws])),
    }  # fmt: skip
