"""Whole fabrics under chance: p values are uniform, FlowTracer's figures come out, large ones are quick."""

import math
from dataclasses import replace

import numpy as np
import pytest

from streams.paths import null
from streams.paths.chance import Effort
from streams.paths.demand import all_to_all, expert_groups, redrawn, ring, roce
from streams.paths.fabric import Fabric
from streams.paths.hashing import FIELD_SETS, HashModel
from streams.paths.imbalance import LayerSpread, layer_spread
from streams.paths.polarisation import polarisation
from streams.paths.route import by_hash
from streams.paths.solver import solve
from streams.paths.study import repeated, setup, study
from streams.paths.topology import clos, leaf_spine, rail_optimised
from streams.paths.whatif import fim_by_group, make

FIELDS = FIELD_SETS["5tuple"]


def uniform_p(sample: list[float]) -> float:
    """p of Kolmogorov's and Smirnov's test that a sample is uniform on [0, 1]."""
    x = np.sort(sample)
    n = len(x)
    distance = max(float((np.arange(1, n + 1) / n - x).max()), float((x - np.arange(n) / n).max()))
    root = math.sqrt(n)
    scaled = (root + 0.12 + 0.11 / root) * distance
    tail = sum((1 if k % 2 else -1) * math.exp(-2 * (k * scaled) ** 2) for k in range(1, 100))
    return min(1.0, 2 * tail)


def layer(
    fabric: Fabric, name: str, flows: object, model: HashModel, seed: int, draws: int = 400
) -> LayerSpread:
    found = layer_spread(
        fabric.groups, by_hash(fabric, flows, model), fabric.groups.layers.index(name), flows.bytes,  # type: ignore
        flows.units(FIELDS), fabric.links.capacity_bps, np.random.default_rng(seed), Effort(draws),  # type: ignore
    )  # fmt: skip
    assert found is not None
    return found


@pytest.mark.parametrize("kind", ["equal", "log-normal", "shared keys"])
def test_randomised_p_values_are_uniform(kind: str) -> None:
    fabric = leaf_spine(3, 6, 5)
    rng = np.random.default_rng(11)
    counts, sizes, decorrelated = [], [], HashModel("jenkins", seed_by="switch", seed=3)
    for draw in range(400):
        n = int(rng.integers(20, 60))
        src = rng.integers(0, 18, n)
        flows = roce(src, (src + rng.integers(1, 18, n)) % 18, 1.0, rng)
        if kind == "log-normal":
            flows = replace(flows, bytes=rng.lognormal(0, 1.5, n))
        if kind == "shared keys":
            flows = flows.select(np.repeat(np.arange(n), rng.integers(1, 4, n)))
        found = layer(fabric, "leaf-up", flows, decorrelated, draw)
        assert found.by_flows.null is not None
        assert found.by_bytes.null is not None
        assert ("exact" if kind != "shared keys" else "drawn") == found.by_flows.null.method
        counts.append(found.by_flows.null.randomised(rng.random()))
        sizes.append(found.by_bytes.null.randomised(rng.random()))
        total = found.by_bytes.null.below + found.by_bytes.null.equal + found.by_bytes.null.above
        assert math.isclose(total, 1.0, rel_tol=1e-6)
    assert uniform_p(counts) > 0.01
    assert uniform_p(sizes) > 0.01


def test_flowtracer() -> None:
    found = study("ecmp", "static", HashModel("crc32"), np.random.default_rng(20), 1500)
    assert (round(found["exact_mean"], 2), round(found["exact_sd"], 2)) == (36.54, 10.75)
    assert abs(found["a"]["fim_mean"] - found["exact_mean"]) < 4 * found["a"]["standard_error"]
    assert math.isclose(found["a"]["fim_sd"], found["exact_sd"], rel_tol=0.06)
    assert (found["b"]["fim_mean"], found["static_optimum"]) == (0.0, 0.0)
    assert found["difference_relative"] == -1.0
    assert "30 %" in found["paper"]


@pytest.mark.parametrize(
    "fabric", [clos(4, 4, 4, 8, 4), rail_optimised(16, 8, 8, 8)], ids=["clos of 128", "rail of 128"]
)
def test_flowtracers_comparison_on_other_fabrics(fabric: Fabric) -> None:
    """Over draws of the queue pairs hashing is at what chance gives, and static at its optimum, layer by layer."""
    rng = np.random.default_rng(21)
    flows = ring(rng.permutation(128)[None], 1e9, rng, 4)
    good = HashModel("jenkins", seed_by="switch", seed=1)
    found = repeated("ecmp", "static", fabric, flows, good, rng, 200)["layers"]
    assert list(found) == (["leaf-up", "agg-up"] if "agg0" in fabric.nodes else ["leaf-up"])
    static = make("static", fabric, flows, good, rng)
    for name, row in found.items():
        ecmp = row["a"]
        assert abs(ecmp["fim_mean"] - ecmp["chance_mean"]) < 4 * ecmp["standard_error"]
        fims, held, links = fim_by_group(static, fabric.groups.layers.index(name))
        least = [null.static_optimum(round(f), n) for f, n in zip(held.tolist(), links.tolist(), strict=True)]
        assert np.allclose(fims, least)
        assert math.isclose(row["b"]["fim_mean"], float(held @ np.array(least) / held.sum()), abs_tol=1e-9)


@pytest.mark.parametrize(("kind", "moves"), [("crc32", False), ("crc16-ccitt", False), ("toeplitz", True)])
def test_a_seed_of_the_hash_moves_fim_only_where_it_must(kind: str, moves: bool) -> None:
    rng = np.random.default_rng(2)
    fabric, flows = setup(rng)
    found = {
        layer(fabric, "leaf-up", flows, HashModel(kind, seed=seed), 1).by_flows.fim_routing
        for seed in range(24)
    }
    assert moves == (len(found) > 1)
    six = leaf_spine(2, 8, 6)
    found = {
        layer(six, "leaf-up", flows, HashModel(kind, seed=seed), 1).by_flows.fim_routing for seed in range(24)
    }
    assert len(found) > 1


@pytest.mark.parametrize(
    ("fabric", "names"),
    [
        (clos(4, 8, 8, 16, 8), ("leaf-up", "agg-up")),
        (rail_optimised(64, 8, 16, 16), ("leaf-up",)),
        (clos(8, 16, 8, 16, 8), ("leaf-up", "agg-up")),
    ],
    ids=["clos of 512", "rail of 512", "clos of 2,048"],
)  # fmt: skip
def test_larger_fabrics_follow_the_same_law(fabric: Fabric, names: tuple[str, ...]) -> None:
    rng = np.random.default_rng(8)
    flows = ring(rng.permutation(fabric.endpoints)[None], 1e9, rng, 4)
    good, z = HashModel("jenkins", seed_by="switch", seed=2), {name: [] for name in names}  # type: ignore
    for draw in range(12):
        for name in names:
            found = layer(fabric, name, redrawn(flows, rng), good, draw).by_flows
            assert found.null is not None
            z[name].append(found.null.z(found.fim_routing))
    for name in names:  # the sum of 12 z has a standard deviation of 3.5
        assert abs(sum(z[name])) < 4 * math.sqrt(12)
    placed = make("static", fabric, flows, good, rng)
    assert placed.assignment is not None
    assert placed.assignment.optimal


@pytest.mark.timeout(120)
def test_a_million_flows() -> None:
    """Expert groups of 64 in 16,384 GPUs: paths, FIM and null of 1,032,192 flows."""
    fabric = clos(16, 32, 16, 32, 32)
    assert fabric.endpoints == 16_384
    rng = np.random.default_rng(1)
    flows = all_to_all(expert_groups(16_384, 64, 256), 1e6, rng)
    assert len(flows) == 1_032_192
    crossed = HashModel("crc32", seed_by="switch")
    entries = by_hash(fabric, flows, crossed)
    unit = flows.units(FIELDS)
    rows = {}
    for name in ("leaf-up", "agg-up"):
        number = fabric.groups.layers.index(name)
        rows[name] = layer_spread(
            fabric.groups, entries, number, flows.bytes, unit, fabric.links.capacity_bps, rng
        )  # fmt: skip
    first, second = rows["leaf-up"], rows["agg-up"]
    assert first is not None
    assert second is not None
    assert first.by_flows.null is not None
    assert second.by_flows.null is not None
    assert first.by_flows.null.verdict(first.by_flows.fim_routing) == "like random"
    # The same polynomial in both tiers: whatever the seeds, the second follows the first.
    assert second.by_flows.null.verdict(second.by_flows.fim_routing) == "worse than random"
    assert len(polarisation(fabric.groups, entries, unit).keys) == 16 * 32 * 16


def test_static_beats_hashing_where_sizes_differ() -> None:
    fabric = leaf_spine(4, 16, 16)
    rng = np.random.default_rng(6)
    flows = replace(ring(rng.permutation(64)[None], 1.0, rng, 4), bytes=rng.lognormal(20, 1, 256))
    found = solve(fabric, flows, flows.bytes)
    assert found.worst <= 1.02 * found.bound
