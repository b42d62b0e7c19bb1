"""Each fast part of paths beside ten obvious lines."""

import itertools
import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.network import cable, topology
from streams.kernels.colour import colour
from streams.paths import maxmin, null
from streams.paths.colouring import coloured
from streams.paths.demand import roce
from streams.paths.fabric import Fabric, heights
from streams.paths.hashing import CRCS, HashModel, crc
from streams.paths.maxmin import Paths, complete, fair_rates, paths_of
from streams.paths.route import by_hash, random_choice, spray, walk
from streams.paths.solver import lower_bound, solve, source_ports
from streams.paths.topology import clos, leaf_spine, of_topology, rail_optimised

QUICK = settings(max_examples=60, deadline=None)


def crc_by_bits(kind: str, data: bytes) -> int:
    spec = CRCS[kind]
    value, top, mask = spec.init, 1 << (spec.width - 1), (1 << spec.width) - 1
    for byte in data:
        bits = f"{byte:08b}"
        for bit in reversed(bits) if spec.reflected else bits:
            out = bool(value & top) != (bit == "1")
            value = (value << 1) & mask
            if out:
                value ^= spec.poly
    if spec.reflected:
        value = int(f"{value:0{spec.width}b}"[::-1], 2)
    return value ^ spec.final


@QUICK
@given(kind=st.sampled_from(sorted(CRCS)), data=st.binary(min_size=1, max_size=40))
def test_crc(kind: str, data: bytes) -> None:
    assert crc_by_bits(kind, data) == int(crc(kind, np.frombuffer(data, np.uint8)[None])[0])


def distribution(keys: int, links: int) -> dict[int, float]:
    """Chance of each S·L/2, by going through all placements."""
    out: Counter[int] = Counter()
    for placement in itertools.product(range(links), repeat=keys):
        load = Counter(placement)
        out[sum(abs(load[link] * links - keys) for link in range(links)) // 2] += 1
    return {value: count / links**keys for value, count in out.items()}


@pytest.mark.parametrize(
    ("keys", "links"), [(1, 2), (2, 2), (5, 2), (3, 3), (7, 3), (6, 4), (5, 5), (2, 6), (9, 2)]
)
def test_exact_distribution(keys: int, links: int) -> None:
    expected = distribution(keys, links)
    found = null.exact_sum(keys, links)
    assert sorted(expected) == np.flatnonzero(found > 1e-15).tolist()
    for value, chance in expected.items():
        assert math.isclose(found[value], chance, rel_tol=1e-9)
    mean = sum(value * chance for value, chance in expected.items()) * 2 / links
    square = sum((value * 2 / links) ** 2 * chance for value, chance in expected.items())
    assert math.isclose(links * null.mean_deviation(keys, 1 / links), mean, rel_tol=1e-9)
    assert math.isclose(null.sum_variance(keys, links), square - mean**2, rel_tol=1e-9, abs_tol=1e-12)


@QUICK
@given(keys=st.integers(1, 300), links=st.integers(2, 40))
def test_moments_and_distribution_agree(keys: int, links: int) -> None:
    chance = null.exact_sum(keys, links)
    at = np.arange(len(chance)) * 2 / links
    assert math.isclose(float(chance @ at), links * null.mean_deviation(keys, 1 / links), rel_tol=1e-8)
    spread = float(chance @ (at - chance @ at) ** 2)
    assert math.isclose(spread, null.sum_variance(keys, links), rel_tol=1e-6, abs_tol=1e-9)


def fill_step_by_step(on: list[dict[int, float]], capacity: list[float]) -> list[float]:
    """Max-min fair rates: raise all together to the next full link, stop its flows, go on."""
    rate = [0.0] * len(on)
    open_ = {f for f, links in enumerate(on) if links}
    left = list(capacity)
    while open_:
        want = [sum(on[f].get(link, 0.0) for f in open_) for link in range(len(capacity))]
        step = min(left[k] / want[k] for k in range(len(capacity)) if want[k] > 0)
        full = {k for k in range(len(capacity)) if want[k] > 0 and left[k] / want[k] <= step * (1 + 1e-9)}
        for f in open_:
            rate[f] += step
        left = [left[k] - step * want[k] for k in range(len(capacity))]
        open_ = {f for f in open_ if not full & set(on[f])}
    return rate


def run_step_by_step(on: list[dict[int, float]], capacity: list[float], size: list[float]) -> list[float]:
    """When each flow ends, with rates made anew at every end."""
    left, end, now = list(size), [0.0] * len(on), 0.0
    live = {f for f in range(len(on)) if size[f] > 0}
    while live:
        rate = fill_step_by_step([links if f in live else {} for f, links in enumerate(on)], capacity)
        step = min(left[f] / rate[f] for f in live)
        now += step
        for f in list(live):
            left[f] -= rate[f] * step
            if left[f] <= 1e-9 * size[f]:
                end[f] = now
                live.remove(f)
    return end


@st.composite
def networks(draw: st.DrawFn) -> tuple[list[dict[int, float]], list[float], list[float]]:
    links = draw(st.integers(1, 7))
    share = st.sampled_from([1.0, 1.0, 1.0, 0.5, 0.25])
    one = st.dictionaries(st.integers(0, links - 1), share, min_size=1, max_size=4)
    on = draw(st.lists(one, min_size=1, max_size=12))
    capacity = draw(st.lists(st.sampled_from([1.0, 2.0, 3.5, 10.0]), min_size=links, max_size=links))
    size = draw(st.lists(st.sampled_from([1.0, 2.0, 5.0, 7.25]), min_size=len(on), max_size=len(on)))
    return on, capacity, size


def as_paths(on: list[dict[int, float]]) -> Paths:
    rows = [(f, link, share) for f, links in enumerate(on) for link, share in links.items()]
    flow, link, share = (np.array(column) for column in zip(*rows, strict=True))
    return Paths(flow.astype(np.int32), link.astype(np.int32), share.astype(np.float64))


@settings(max_examples=200, deadline=None)
@given(networks())
def test_max_min(network: tuple[list[dict[int, float]], list[float], list[float]]) -> None:
    on, capacity, _ = network
    rate, limit = fair_rates(as_paths(on), len(on), np.array(capacity))
    assert np.allclose(fill_step_by_step(on, capacity), rate, rtol=1e-7)
    load = np.zeros(len(capacity))
    for f, links in enumerate(on):
        for link, share in links.items():
            load[link] += share * rate[f]
    assert (load <= np.array(capacity) * (1 + 1e-9)).all()
    # Every flow names a link that is full.
    at = as_paths(on).link[limit]
    assert np.allclose(load[at], np.array(capacity)[at])


@settings(max_examples=100, deadline=None)
@given(networks())
def test_completion(network: tuple[list[dict[int, float]], list[float], list[float]]) -> None:
    on, capacity, size = network
    found = complete(as_paths(on), np.array(size), np.array(capacity))
    expected = run_step_by_step(on, capacity, size)
    assert np.allclose(expected, found.by_flow, rtol=1e-6)
    bytes_ = np.zeros(len(capacity))
    for f, links in enumerate(on):
        for link, share in links.items():
            bytes_[link] += share * size[f]
    assert math.isclose(found.bound, float((bytes_ / capacity).max()), rel_tol=1e-12)
    assert found.seconds >= found.bound * (1 - 1e-9)
    slower = complete(as_paths(on), np.array(size), np.array(capacity), paused=True)
    assert slower.seconds >= found.bound * (1 - 1e-9)


@QUICK
@given(networks())
def test_pauses_only_slow_down(network: tuple[list[dict[int, float]], list[float], list[float]]) -> None:
    on, capacity, _ = network
    paths = as_paths(on)
    fair, _ = fair_rates(paths, len(on), np.array(capacity))
    paused = maxmin.paused_rates(paths, len(on), np.array(capacity))
    assert (paused <= fair * (1 + 1e-9)).all()
    assert (paused > 0).all()


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
