"""Routing, colouring and the solver beside breadth-first search and all assignments."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.network import cable, topology
from streams.kernels.colour import colour
from streams.paths.colouring import coloured
from streams.paths.demand import roce
from streams.paths.fabric import Fabric, heights
from streams.paths.hashing import HashModel
from streams.paths.maxmin import paths_of
from streams.paths.route import by_hash, random_choice, spray, walk
from streams.paths.solver import lower_bound, solve, source_ports
from streams.paths.topology import clos, leaf_spine, of_topology, rail_optimised

QUICK = settings(max_examples=60, deadline=None)


def of_cables(cables: list[tuple[str, str, float]]) -> Fabric:
    """A fabric of cables on ports of their own."""
    ends = [cable(a, f"a{k}", b, f"b{k}", gbps * 1e9) for k, (a, b, gbps) in enumerate(cables)]
    return of_topology(topology(link for pair in ends for link in pair))


FABRICS = [
    leaf_spine(3, 4, 2, cables=2),
    clos(3, 2, 2, 3, 2),
    rail_optimised(6, 2, 3, 3),
    of_cables(
        [
            ("h1", "a", 400),
            ("h2", "b", 400),
            ("h3", "b", 400),
            ("a", "s", 400),
            ("a", "t", 400),
            ("b", "s", 400),
            ("b", "t", 100),
            ("a", "s", 400),
        ]
    ),
]


def shortest(fabric: Fabric, src: int, dst: int) -> set[tuple[int, ...]]:
    """All shortest paths as links, by breadth first search that never passes through an endpoint."""
    out: dict[int, list[int]] = {}
    for link, node in enumerate(fabric.links.sender.tolist()):
        out.setdefault(node, []).append(link)
    trails: list[tuple[int, ...]] = [(link,) for link in out[src]]
    while trails:
        ends = {trail for trail in trails if fabric.links.receiver[trail[-1]] == dst}
        if ends:
            return ends
        trails = [
            (*trail, link)
            for trail in trails
            if fabric.links.receiver[trail[-1]] >= fabric.endpoints
            for link in out[int(fabric.links.receiver[trail[-1]])]
        ]
    return set()


@pytest.mark.parametrize("fabric", FABRICS, ids=["leaf-spine", "clos", "rail", "cables"])
def test_routing_takes_shortest_paths_and_all_of_them(fabric: Fabric) -> None:
    rng = np.random.default_rng(1)
    pairs = np.array([(a, b) for a in range(fabric.endpoints) for b in range(fabric.endpoints) if a != b])
    many = pairs[np.repeat(np.arange(len(pairs)), 60)]
    flows = roce(many[:, 0], many[:, 1], 1.0, rng)
    link = fabric.groups.link
    for slots in (
        walk(fabric, flows, random_choice(fabric.groups, 1)),
        walk(fabric, flows, random_choice(fabric.groups, 2, 5)),
    ):
        taken: dict[tuple[int, int], set[tuple[int, ...]]] = {}
        for (a, b), row in zip(many.tolist(), slots.tolist(), strict=True):
            taken.setdefault((a, b), set()).add(tuple(int(link[s]) for s in row if s >= 0))
        for (a, b), paths in taken.items():
            assert paths <= shortest(fabric, a, b)
    some = pairs[:: max(1, len(pairs) // 20)]
    entries = spray(fabric, roce(some[:, 0], some[:, 1], 1.0, rng))
    for k, (a, b) in enumerate(some.tolist()):
        expected = shortest(fabric, a, b)
        own = entries.flow == k
        assert {x for path in expected for x in path} == set(link[entries.slot[own]].tolist())
        assert math.isclose(float(entries.share[own][0]), 1.0)
        into = fabric.links.receiver[link[entries.slot[own]]] == b
        assert math.isclose(float(entries.share[own][into].sum()), 1.0)


def test_hashing_hop_by_hop() -> None:
    fabric = clos(3, 2, 2, 3, 2)
    rng = np.random.default_rng(2)
    src = rng.integers(0, fabric.endpoints, 300)
    flows = roce(src, (src + rng.integers(1, fabric.endpoints, 300)) % fabric.endpoints, 1.0, rng)
    model = HashModel("crc32c", seed=5, seed_by="port", offset=1)
    entries = by_hash(fabric, flows, model, {"agg-up": HashModel("jenkins", seed_by="switch")})
    groups = fabric.groups
    for k in range(len(flows)):
        slots = entries.slot[entries.flow == k].tolist()
        for before, slot in itertools.pairwise(slots[:-1]):
            group = int(groups.of_slot[slot])
            used = (
                model
                if groups.layers[groups.layer[group]] != "agg-up"
                else HashModel("jenkins", seed_by="switch")
            )
            seed = used.seeds(np.array([groups.node[group]]), np.array([groups.link[before]]))
            key = flows.select(np.array([k])).key(used.fields)
            place = used.choose(key, seed, np.array([groups.size[group]]))
            assert int(groups.first[group] + place[0]) == slot


@QUICK
@given(
    vertices=st.integers(1, 12),
    colours=st.integers(1, 7),
    part=st.floats(0.2, 1.0),
    seed=st.integers(0, 10_000),
)
def test_edge_colouring(vertices: int, colours: int, part: float, seed: int) -> None:
    """Some edges of a union of random matchings: no two of one colour may meet."""
    rng = np.random.default_rng(seed)
    edges = [
        pair
        for _ in range(colours)
        for pair in zip(range(vertices), rng.permutation(vertices).tolist(), strict=True)
        if rng.random() < part
    ]
    edges = [edges[k] for k in rng.permutation(len(edges))]
    left, right = np.array(edges, np.int32).reshape(-1, 2).T
    found = colour(left.copy(), right.copy(), vertices, vertices, colours).tolist()
    assert all(0 <= one < colours for one in found)
    for side in (left.tolist(), right.tolist()):
        assert len(set(zip(side, found, strict=True))) == len(edges)


@pytest.mark.parametrize(
    "fabric",
    [*FABRICS[:3], leaf_spine(5, 7, 4), clos(4, 4, 4, 6, 3), rail_optimised(8, 4, 4, 6, cables=2)],
    ids=["leaf-spine", "clos", "rail", "oversubscribed", "pods", "rails of two cables"],
)
def test_equal_flows_are_spread_evenly(fabric: Fabric) -> None:
    """Every group's links within one flow of each other, both ways, whatever the demand."""
    rng = np.random.default_rng(9)
    for _ in range(20):
        src = rng.integers(0, fabric.endpoints, 150)
        dst = (src + rng.integers(1, fabric.endpoints, 150)) % fabric.endpoints
        flows = roce(src, dst, 1.0, rng)
        slots = coloured(fabric, flows, flows.bytes)
        assert slots is not None
        used = slots >= 0
        load = np.bincount(slots[used], minlength=len(fabric.groups.link))
        link_load = np.bincount(fabric.groups.link[slots[used]], minlength=len(fabric.links))
        height = heights(fabric)
        for g in range(len(fabric.groups)):
            first, size = int(fabric.groups.first[g]), int(fabric.groups.size[g])
            way_up = height[fabric.links.receiver[fabric.groups.link[first]]] > height[fabric.groups.node[g]]
            if size > 1 and way_up:
                assert np.ptp(load[first : first + size]) <= 1
        leaf = np.isin(fabric.links.receiver, fabric.leaves) & (fabric.links.sender >= fabric.endpoints)
        for one in fabric.leaves.tolist():
            assert np.ptp(link_load[leaf & (fabric.links.receiver == one)]) <= 1
        choices = [shortest(fabric, int(a), int(b)) for a, b in zip(src[:20], dst[:20], strict=True)]
        found = solve(fabric, flows, flows.bytes)
        for row, paths in zip(found.slots.tolist(), choices, strict=False):
            assert tuple(int(fabric.groups.link[s]) for s in row if s >= 0) in paths


def test_a_fabric_that_is_no_clos_is_left_to_the_search() -> None:
    fabric = FABRICS[3]
    flows = roce(np.array([0, 0, 0]), np.array([1, 1, 2]), 1.0, np.random.default_rng(1))
    assert coloured(fabric, flows, flows.bytes) is None
    assert solve(fabric, flows, flows.bytes).worst > 0


@QUICK
@given(
    size=st.lists(st.integers(1, 9), min_size=1, max_size=7),
    spines=st.integers(2, 3),
    seed=st.integers(0, 1000),
)
def test_the_solver_and_its_bound(size: list[int], spines: int, seed: int) -> None:
    """Against all assignments of a few flows; the solver may miss the best, the bound must never pass it."""
    fabric = leaf_spine(2, 4, spines)
    rng = np.random.default_rng(seed)
    src = rng.integers(0, 8, len(size))
    flows = roce(src, (src + rng.integers(1, 8, len(size))) % 8, np.array(size, np.float64), rng)
    choices = [sorted(shortest(fabric, int(a), int(b))) for a, b in zip(flows.src, flows.dst, strict=True)]
    capacity = fabric.links.capacity_bps / 8
    best = math.inf
    for assignment in itertools.product(*choices):
        load = np.zeros(len(capacity))
        for one, path in zip(size, assignment, strict=True):
            load[list(path)] += one
        best = min(best, float((load / capacity).max()))
    found = solve(fabric, flows, flows.bytes)
    bound = lower_bound(fabric, flows, flows.bytes)
    assert bound == found.bound
    assert bound <= best * (1 + 1e-9)
    assert best * (1 - 1e-9) <= found.worst <= best * 1.34
    for row, paths in zip(found.slots.tolist(), choices, strict=True):
        assert tuple(int(fabric.groups.link[s]) for s in row if s >= 0) in paths


def test_proposed_ports_bring_the_assignment_about() -> None:
    fabric = clos(3, 2, 2, 3, 2)
    rng = np.random.default_rng(3)
    src = np.arange(fabric.endpoints)
    flows = roce(src, (src + 7) % fabric.endpoints, 1.0, rng)
    found = solve(fabric, flows, flows.bytes)
    model = HashModel("jenkins", seed_by="switch")
    ports = source_ports(fabric, flows, found.slots, model)
    assert (ports >= 0xC000).all()
    assert (ports <= 0xFFFF).all()
    from streams.paths.whatif import with_ports

    entries = by_hash(fabric, with_ports(flows, ports), model)
    assert paths_of(entries, fabric.groups.link).link.tolist() == [
        int(fabric.groups.link[s]) for row in found.slots.tolist() for s in row if s >= 0
    ]
