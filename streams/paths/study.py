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

from streams.paths import null
from streams.paths.demand import Flows, flowtracer
from streams.paths.fabric import Fabric
from streams.paths.hashing import HashModel
from streams.paths.topology import leaf_spine
from streams.paths.whatif import Case, fim_by_group, make

PAPER: Final = "static routing: 30 % less imbalance than ECMP (arXiv 2410.17078)"
HOSTS, LEAVES, SPINES, QUEUE_PAIRS = 8, 2, 8, 4
DRAWS: Final = 1000
LAYER: Final = "leaf-up"


def setup(rng: np.random.Generator) -> tuple[Fabric, Flows]:
    """The fabric and one draw of its flows."""
    return leaf_spine(LEAVES, HOSTS, SPINES), flowtracer(rng)


def study(a: str, b: str, model: HashModel, rng: np.random.Generator, draws: int = DRAWS) -> dict[str, Any]:
    """FIM by group of both modes over draws of the flows, the exact values, and the difference."""
    fabric = leaf_spine(LEAVES, HOSTS, SPINES)
    found: dict[str, list[np.ndarray[Any, np.dtype[np.float64]]]] = {"a": [], "b": []}
    for _ in range(draws):
        flows = flowtracer(rng)
        for side, mode in (("a", a), ("b", b)):
            case: Case = make(mode, fabric, flows, model, rng)
            found[side].append(fim_by_group(case, LAYER))
    flows_a_group = HOSTS * QUEUE_PAIRS
    out: dict[str, Any] = {
        "draws": draws, "groups": LEAVES, "links_a_group": SPINES, "flows_a_group": flows_a_group,
        "exact_mean": null.fim_mean(flows_a_group, SPINES), "exact_sd": null.fim_sd(flows_a_group, SPINES),
        "static_optimum": null.static_optimum(flows_a_group, SPINES), "paper": PAPER,
    }  # fmt: skip
    for side, mode in (("a", a), ("b", b)):
        each = np.array(found[side])
        # Both groups of a draw are one observation: their flows need not be independent.
        by_draw = each.mean(axis=1)
        out[side] = {
            "mode": mode,
            "fim_mean": float(each.mean()),
            "fim_sd": float(each.std(ddof=1)) if draws > 1 else None,
            "standard_error": float(by_draw.std(ddof=1)) / math.sqrt(draws) if draws > 1 else None,
        }
    one, two = out["a"]["fim_mean"], out["b"]["fim_mean"]
    out["difference_points"] = two - one
    out["difference_relative"] = (two - one) / one if one else None
    return out
