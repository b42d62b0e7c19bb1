"""The figures of imbalance that are known exactly, and what layers and groups do to them."""

import math
from dataclasses import replace

import numpy as np
import pytest

from streams.paths import null
from streams.paths.demand import Flows, flowtracer, roce
from streams.paths.fabric import Groups
from streams.paths.hashing import FIELD_SETS, HashModel
from streams.paths.imbalance import LayerSpread, evenness, fim, holm, layer_spread
from streams.paths.polarisation import chi_square_above, polarisation, summary
from streams.paths.route import Entries, as_entries, by_hash, spray, walk
from streams.paths.solver import solve
from streams.paths.topology import clos, leaf_spine

FIELDS = FIELD_SETS["5tuple"]


@pytest.mark.parametrize(
    ("flows", "links", "mean", "digits"),
    [(32, 8, 36.54, 2), (16, 8, 50.6, 1), (16, 4, 33.78, 2), (8, 2, 27.34, 2), (128, 32, 38.46, 2)],
)
def test_exact_means(flows: int, links: int, mean: float, digits: int) -> None:
    assert mean == round(null.fim_mean(flows, links), digits)


def test_exact_deviation_and_steps() -> None:
    assert round(null.fim_sd(32, 8), 2) == 10.75
    chance = null.exact_sum(32, 8)
    possible = np.flatnonzero(chance > 0) * 2 / 8 * 100 / 32
    assert np.diff(possible).min() == 6.25


@pytest.mark.parametrize(
    ("mean", "percent"), [(1, 73.6), (2, 54.1), (4, 39.1), (8, 27.9), (16, 19.8), (32, 14.1), (64, 10.0)]
)
def test_the_limit_of_many_links(mean: float, percent: float) -> None:
    assert percent == round(null.fim_poisson(mean), 1)
    assert math.isclose(null.fim_mean(int(mean) * 4096, 4096), null.fim_poisson(mean), rel_tol=5e-4)


def test_evenness_of_128_flows_on_32_links() -> None:
    load = np.random.default_rng(1).multinomial(128, np.full(32, 1 / 32), 20_000)
    most, jain, cov = np.array([evenness(row.astype(np.float64)) for row in load]).mean(axis=0)
    assert math.isclose(most, 2.16, abs_tol=0.01)
    assert math.isclose(jain, 0.807, abs_tol=0.001)
    assert math.isclose(cov, 0.488, abs_tol=0.001)


@pytest.mark.parametrize(
    ("flows", "links", "least"), [(32, 8, 0.0), (12, 8, 33.333), (4, 8, 100.0), (33, 8, 5.303)]
)
def test_static_optimum(flows: int, links: int, least: float) -> None:
    assert least == round(null.static_optimum(flows, links), 3)
    load = np.bincount(np.arange(flows) % links, minlength=links).astype(np.float64)
    assert math.isclose(
        fim(load, np.full(links, flows / links)), null.static_optimum(flows, links), abs_tol=1e-9
    )


@pytest.mark.parametrize(("sigma", "percent"), [(0.5, 42), (1.0, 56), (1.5, 74), (2.0, 91)])
def test_by_bytes_the_null_is_another(sigma: float, percent: float) -> None:
    rng = np.random.default_rng(4)
    weight = np.full(8, 1 / 8)
    mean = np.mean([null.draw_sums(weight, rng.lognormal(0, sigma, 32), 4, rng).mean() for _ in range(6000)])
    assert math.isclose(mean * 100 / 8, percent, abs_tol=2.0)


def test_flows_of_one_key_go_together() -> None:
    sizes = np.full(8, 4.0)
    drawn = null.draw_sums(np.full(8, 1 / 8), sizes, 40_000, np.random.default_rng(5)) * 100 / 8
    assert math.isclose(null.fim_mean(8, 8), 68.72, abs_tol=0.005)
    assert math.isclose(float(drawn.mean()), null.fim_mean(8, 8), abs_tol=4 * float(drawn.std()) / 200)


def one_group(load: list[list[int]], weight: list[float] | None = None) -> tuple[Groups, Entries, Flows]:
    """Groups in one layer with these loads, a flow of one byte for each."""
    links = len(load[0])
    groups = len(load)
    share = np.tile(np.array(weight or [1 / links] * links), groups)
    made = Groups(
        ("up",),
        np.zeros(groups, np.int32),
        np.arange(groups, dtype=np.int32),
        np.arange(groups) * links,
        np.full(groups, links),
        np.arange(groups * links, dtype=np.int32),
        share,
    )
    slot = np.repeat(np.arange(groups * links), np.ravel(load)).astype(np.int32)
    n = len(slot)
    flows = roce(np.arange(n), np.arange(n) + n, 1.0, np.random.default_rng(1))
    return made, Entries(np.arange(n, dtype=np.int32), slot, np.ones(n), True), flows


def spread(groups: Groups, entries: Entries, flows: Flows, capacity: np.ndarray | None = None) -> LayerSpread:
    capacity = np.ones(len(groups.link)) if capacity is None else capacity
    rng = np.random.default_rng(2)
    found = layer_spread(groups, entries, 0, flows.bytes, flows.units(FIELDS), capacity, rng)
    assert found is not None
    return found


def test_demand_alone_is_no_imbalance_of_routing() -> None:
    found = spread(*one_group([[1] * 4, [2] * 4, [4] * 4, [9] * 4])).by_flows
    assert found.fim_routing == 0.0
    assert found.fim_layer == 62.5
    assert (found.max_over_mean, found.jain, found.cov) == (1.0, 1.0, 0.0)
    assert found.null is not None
    assert found.null.verdict(found.fim_routing) == "better than random"


def test_a_layer_weighs_its_groups_by_their_flows() -> None:
    found = spread(*one_group([[2, 0], [3, 5]]))
    assert found.fim.tolist() == [100.0, 25.0]
    assert found.by_flows.fim_routing == (2 * 100 + 8 * 25) / 10


def test_weighted_groups_are_judged_by_their_weights() -> None:
    found = spread(*one_group([[6, 2, 4]], [0.5, 1 / 6, 1 / 3]), np.array([3.0, 1.0, 2.0]))
    assert math.isclose(found.by_flows.fim_routing, 0.0, abs_tol=1e-9)
    assert math.isclose(found.by_flows.fim_layer, 0.0, abs_tol=1e-9)
    assert found.by_flows.null is not None
    assert found.by_flows.null.method == "drawn"
    drawn = np.random.default_rng(3).multinomial(12, [0.5, 1 / 6, 1 / 3], 20_000)
    simulated = 100 * (np.abs(drawn - [6, 2, 4]) / [6, 2, 4]).mean(axis=1).mean()
    assert math.isclose(float(found.fim_null[0]), simulated, rel_tol=0.01)
    assert math.isclose(found.by_flows.null.mean, simulated, rel_tol=0.02)


def test_the_null_counts_distinct_keys() -> None:
    groups, entries, flows = one_group([[8, 8, 8, 8, 0, 0, 0, 0]])
    quarter = np.repeat(np.arange(0, 32, 4), 4)
    together = replace(flows.select(quarter), bytes=flows.bytes)
    apart = spread(groups, entries, flows).by_flows.null
    joined = spread(groups, entries, together).by_flows.null
    assert apart is not None
    assert joined is not None
    assert math.isclose(apart.mean, null.fim_mean(32, 8), rel_tol=1e-9)
    assert math.isclose(joined.mean, null.fim_mean(8, 8), rel_tol=1e-9)
    assert apart.p < 1e-6 < 0.01 < joined.p


def test_a_split_flow_has_no_null() -> None:
    fabric = leaf_spine(2, 8, 8)
    flows = flowtracer(np.random.default_rng(1))
    found = layer_spread(
        fabric.groups,
        spray(fabric, flows),
        fabric.groups.layers.index("leaf-up"),
        flows.bytes,
        flows.units(FIELDS),
        fabric.links.capacity_bps,
        np.random.default_rng(1),
    )
    assert found is not None
    assert found.by_flows.null is None
    assert math.isclose(found.by_flows.fim_routing, 0.0, abs_tol=1e-9)


def test_idle_links_are_judged_by_their_chance() -> None:
    groups, entries, flows = one_group([[20, 20, 24, 0], [1, 0, 1, 1]])
    found = spread(groups, entries, flows).idle
    assert [row[:2] for row in found] == [(3, 16.0), (5, 0.75)]
    assert math.isclose(found[0][2], 8 * 0.75**64, rel_tol=1e-9)
    assert found[1][2] == 1.0


def test_holm() -> None:
    assert [round(p, 9) for p in holm(np.array([0.01, 0.04, 0.03, 0.005])).tolist()] == [
        0.03,
        0.06,
        0.06,
        0.02,
    ]


def fabric_of_pods() -> tuple[object, Flows]:
    fabric = clos(8, 4, 4, 16, 4)
    rng = np.random.default_rng(0)
    src = np.repeat(np.arange(fabric.endpoints), 40)
    return fabric, roce(src, (src + 64 * rng.integers(1, 8, len(src))) % fabric.endpoints, 1.0, rng)


def test_a_common_seed_uses_a_quarter_of_the_uplinks() -> None:
    fabric = clos(8, 4, 4, 16, 4)
    _, flows = fabric_of_pods()
    layer = fabric.groups.layers.index("agg-up")
    fims = {}
    used = {}
    for kind, by in (("crc32", ""), ("crc32", "switch"), ("jenkins", "switch")):
        entries = by_hash(fabric, flows, HashModel(kind, seed_by=by))
        found = layer_spread(
            fabric.groups, entries, layer, flows.bytes, flows.units(FIELDS), fabric.links.capacity_bps,
            np.random.default_rng(1),
        )  # fmt: skip
        assert found is not None
        fims[kind, by] = found.by_flows.fim_routing
        links = np.unique(fabric.groups.link[entries.slot])
        used[kind, by] = int((fabric.links.layer[links] == layer).sum())
        tests = summary(
            fabric.groups, polarisation(fabric.groups, entries, flows.units(FIELDS)), fabric.nodes
        )
        expected = "none" if kind == "jenkins" else "polarised"
        assert expected == tests["verdict"]
        # Given the ToR each switch makes one choice of four, with whatever seeds.
        choices = tests["layers"][0]
        assert (128 if kind == "crc32" else 512) == choices["used_choices"]
        assert choices["possible_choices"] == 512
        assert (choices["z"] > 100) == (kind == "crc32")
    assert fims["crc32", ""] == 150.0
    assert used["crc32", ""] == 32
    assert 32 < used["crc32", "switch"] < 128
    assert used["jenkins", "switch"] == 128
    assert fims["jenkins", "switch"] < 8


def test_a_second_polynomial_or_offset_ends_polarisation() -> None:
    fabric, flows = clos(8, 4, 4, 16, 4), fabric_of_pods()[1]
    for other in (
        HashModel("crc32c"),
        HashModel("crc32", offset=2),
        HashModel("crc32", fields=FIELD_SETS["5tuple+qpn"]),
    ):
        entries = by_hash(fabric, flows, HashModel("crc32"), {"agg-up": other})
        found = polarisation(fabric.groups, entries, flows.units(FIELD_SETS["5tuple+qpn"]))
        assert {"none"} == {found.verdict(k) for k in range(len(found.keys))}


def test_few_flows_say_nothing_of_polarisation() -> None:
    fabric = clos(2, 4, 4, 4, 4)
    rng = np.random.default_rng(0)
    src = np.arange(fabric.endpoints)
    flows = roce(src, (src + 16) % 32, 1.0, rng)
    entries = by_hash(fabric, flows, HashModel())
    tests = summary(fabric.groups, polarisation(fabric.groups, entries, flows.units(FIELDS)), fabric.nodes)
    assert (tests["verdict"], tests["tested"]) == ("unknown", 0)
    assert tests["unknown"] > 0


def test_chi_square_tail() -> None:
    table = [
        (3.841459, 1, 0.05),
        (5.991465, 2, 0.05),
        (7.814728, 3, 0.05),
        (18.47531, 7, 0.01),
        (52.1914, 31, 0.01),
    ]
    for value, freedom, p in table:
        assert math.isclose(chi_square_above(np.array([value]), np.array([freedom]))[0], p, rel_tol=1e-4)


def test_static_is_at_its_optimum_and_better_than_random() -> None:
    fabric = leaf_spine(2, 8, 8)
    flows = flowtracer(np.random.default_rng(3))
    found = solve(fabric, flows, flows.bytes)
    assert found.optimal
    part = layer_spread(
        fabric.groups, as_entries(found.slots), fabric.groups.layers.index("leaf-up"), flows.bytes,
        flows.units(FIELDS), fabric.links.capacity_bps, np.random.default_rng(1),
    )  # fmt: skip
    assert part is not None
    assert part.by_flows.fim_routing == 0.0
    assert part.by_flows.null is not None
    assert part.by_flows.null.verdict(0.0) == "better than random"


def test_paths_are_walked_to_the_end() -> None:
    fabric = clos(2, 2, 2, 2, 2)
    flows = roce(np.array([0, 0, 0]), np.array([1, 2, 7]), 1.0, np.random.default_rng(1))
    slots = walk(fabric, flows, lambda flow, *_: np.zeros(len(flow), np.int64))
    assert (slots >= 0).sum(axis=1).tolist() == [2, 4, 6]
    names = [fabric.link_name(int(fabric.groups.link[s])) for s in slots[2]]
    assert [n.split(">")[0] for n in names] == [
        "host0:1",
        "leaf0:3",
        "agg0:3",
        "spine0:2",
        "agg2:2",
        "leaf3:2",
    ]
