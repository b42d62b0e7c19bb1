"""What-if modes, collisions, recorded flows, and the commands."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest

from schemas.errors import MalformedInput, Usage
from schemas.network import cable, topology
from streams.paths import collisions
from streams.paths.demand import flowtracer, parse_demand, roce
from streams.paths.fabric import build
from streams.paths.hashing import HashModel
from streams.paths.maxmin import complete, paths_of, wire_bytes
from streams.paths.recorded import Seen, ends_of, observed
from streams.paths.route import as_entries, by_hash, walk, whole_weights
from streams.paths.topology import clos, leaf_spine, of_topology, parse_fabric
from streams.paths.whatif import make, report

RNG = np.random.default_rng


@pytest.mark.parametrize(("mtu", "part"), [(1024, 0.926), (2048, 0.962), (4096, 0.980)])
def test_payload_over_wire(mtu: int, part: float) -> None:
    size = np.array([float(mtu * 1000)])
    assert part == round(float((size / wire_bytes(size, mtu))[0]), 3)
    assert wire_bytes(np.array([1.0]), mtu)[0] == 1 + 82


def test_rates_frozen_at_the_start_would_overstate_the_end() -> None:
    """The last completion, refilled at each, against the longest that first rates would give."""
    fabric = leaf_spine(2, 8, 8)
    rng = RNG(1)
    ratios = []
    for _ in range(20):
        flows = replace(flowtracer(rng), bytes=rng.lognormal(20, 1, 64))
        paths = paths_of(by_hash(fabric, flows, HashModel()), fabric.groups.link)
        capacity = fabric.links.capacity_bps / 8
        found = complete(paths, flows.bytes, capacity)
        assert found.refills > 20
        rate = collisions.sharing(fabric, flows, paths).rate
        ratios.append(float((flows.bytes / rate).max()) / found.seconds)
    assert np.mean(ratios) > 1.5


def test_what_elephants_lose() -> None:
    """Three flows of three hosts meet on one of two spines, a mouse on the other."""
    fabric = leaf_spine(2, 4, 2)
    flows = replace(
        roce(np.array([0, 1, 2, 3]), np.array([4, 5, 6, 7]), 1e9, RNG(1), np.array([0, 0, 1, 1])),
        bytes=np.array([1e9, 1e9, 1e9, 1e3]),
    )
    size = fabric.groups.size
    slots = walk(fabric, flows, lambda flow, _, __, group: (flow == 3) % size[group])
    paths = paths_of(as_entries(slots), fabric.groups.link)
    found = collisions.sharing(fabric, flows, paths)
    assert found.elephant.tolist() == [True, True, True, False]
    assert np.allclose([2 / 3, 2 / 3, 2 / 3, 0], found.loss)
    shown = collisions.summary(fabric, flows, paths, found)
    assert shown["links"] == 2  # up to the spine and down from it
    assert shown["losing"] == 3
    worst = shown["worst"][0]
    assert worst["link"] == "leaf0:5>spine0:1"
    assert (worst["elephants"], round(worst["overload"], 9), worst["jobs"]) == (3, 3.0, ["job0", "job1"])
    by_job = {row["job"]: row for row in shown["jobs"]}
    assert math.isclose(by_job["job0"]["mean_loss"], 2 / 3)
    assert by_job["job0"]["links_shared_with_others"] == 2
    assert shown["hot_links"][0]["link"] == "leaf0:5>spine0:1"


def test_pauses_hold_up_who_shares_a_port() -> None:
    """Host 0 sends to a crowded receiver and to a free one: with pauses the second goes no faster."""
    fabric = leaf_spine(2, 4, 4)
    src, dst = np.array([0, 0, 1, 2, 3]), np.array([4, 5, 4, 4, 4])
    flows = replace(roce(src, dst, 1e9, RNG(1)), bytes=np.array([1e9, 4e9, 1e9, 1e9, 1e9]))
    size = fabric.groups.size
    slots = walk(fabric, flows, lambda flow, _, __, group: flow % size[group])
    paths = paths_of(as_entries(slots), fabric.groups.link)
    capacity = fabric.links.capacity_bps / 8
    free = complete(paths, flows.bytes, capacity)
    held = complete(paths, flows.bytes, capacity, paused=True)
    unit = 1e9 / 50e9
    assert math.isclose(free.seconds, 5 * unit, rel_tol=1e-9)
    # A quarter of the rate until the crowd is through, after 4 units; then the last 3 of 4 parts alone.
    assert math.isclose(held.seconds, 7 * unit, rel_tol=1e-9)


@pytest.mark.parametrize(
    "mode",
    ["ecmp", "static", "flowlet", "flowlet:4", "spray", "rehash:crc32c,fields=5tuple+qpn", "qp-scale:4"],
)
def test_every_mode_carries_all_bytes(mode: str) -> None:
    fabric = clos(2, 2, 2, 4, 2)
    rng = RNG(3)
    flows = parse_demand("pairs:queue_pairs=2,bytes=1000000", fabric.endpoints, rng)
    case = make(mode, fabric, flows, HashModel(), rng)
    out = report(case, rng)
    assert math.isclose(out["bytes"], 16 * 2 * 1e6)
    assert json.loads(json.dumps(out, default=str))["mode"] == mode
    into = np.bincount(
        fabric.groups.link[case.entries.slot], case.entries.share * case.flows.bytes[case.entries.flow]
    )
    for end in range(fabric.endpoints):
        assert math.isclose(into[fabric.groups.link[fabric.groups.first[fabric.down[end]]]], 2e6)
    done = out["completion"]
    assert done["lower_bound_s"] <= done["seconds"] * (1 + 1e-9) <= done["pfc_range_s"][1] * (1 + 2e-9)
    assert [row["layer"] for row in out["layers"]] == ["leaf-up", "agg-up"]
    assert [row["layer"] for row in out["forced"]] == ["spine-down", "agg-down"]


def test_modes_that_are_none() -> None:
    fabric = leaf_spine(2, 2, 2)
    flows = parse_demand("pairs", 4, RNG(1))
    for mode in ("valiant", "static:3", "qp-scale", "qp-scale:0", "flowlet:x", "reroute", "rehash:md5"):
        with pytest.raises(Usage):
            make(mode, fabric, flows, HashModel(), RNG(1))
    for text in (
        "torus",
        "leaf-spine:leaves=2",
        "leaf-spine:leaves=2,hosts=2,spines=x",
        "clos:pods=0",
        "rail:hosts",
    ):
        with pytest.raises(Usage):
            parse_fabric(text)
    for text in ("tree", "ring:ranks=3", "all-to-all:size=3", "pairs:queue_pairs=0", "ring:colour=1"):
        with pytest.raises(Usage):
            parse_demand(text, 4, RNG(1))


def test_weights_of_links_make_weighted_groups() -> None:
    assert whole_weights(np.array([1 / 3, 2 / 3])) == [1, 2]
    assert whole_weights(np.array([0.4, 0.6])) == [2, 3]
    even = leaf_spine(2, 8, 4)
    spine = np.where(even.links.layer == even.links.layers.index("leaf-up"), even.links.receiver - 18, -1)
    weight = np.where(spine >= 0, np.array([3.0, 1.0, 2.0, 2.0])[spine], 1.0)
    fabric = build(even.nodes, even.endpoints, replace(even.links, weight=weight))
    flows = parse_demand("pairs:queue_pairs=500", 16, RNG(5))
    case = make("ecmp", fabric, flows, HashModel("jenkins"), RNG(1))
    load = np.bincount(fabric.groups.link[case.entries.slot], minlength=len(weight))
    share = [load[spine == k].sum() / 8000 for k in range(4)]
    assert np.allclose(share, np.array([3, 1, 2, 2]) / 8, atol=0.02)
    row = report(case, RNG(1))["layers"][0]
    assert (row["null_method"], row["verdict"]) == ("drawn", "like random")
    assert 24 < row["fim_layer"] < 28  # equal links that carry 3 : 1 : 2 : 2: 25
    assert row["fim_routing"] < 6
    shares = make("spray", fabric, flows, HashModel(), RNG(1)).entries
    assert {0.375, 0.125, 0.25} <= set(np.unique(shares.share).tolist())


def test_a_topology_as_read_is_a_fabric() -> None:
    """A host with two cables is two endpoints; planes that do not meet are no error, but no way either."""
    links = [
        *cable("h1", "e0", "l1", "p1", 1e11), *cable("h1", "e1", "m1", "p1"), *cable("h2", "e0", "l2", "p1"),
        *cable("l1", "p2", "s1", "p1"), *cable("l1", "p3", "s2", "p1"), *cable("l2", "p2", "s1", "p2"),
        *cable("l2", "p3", "s2", "p2"),
    ]  # fmt: skip
    fabric = of_topology(topology(links, switches=["m1"], hosts=["h1"]), 4e11)
    assert fabric.nodes[:3] == ("h1:e0", "h1:e1", "h2")
    assert fabric.link_name(0) == "h1:e0>l1:p1"
    assert fabric.links.capacity_bps[[0, 2]].tolist() == [1e11, 4e11]
    flows = roce(np.array([0]), np.array([2]), 1.0, RNG(1))
    slots = walk(fabric, flows, lambda flow, *_: np.zeros(len(flow), np.int64))
    used = [fabric.links.layers[fabric.links.layer[fabric.groups.link[s]]] for s in slots[0]]
    assert used == ["tier0-up", "tier1-up", "tier2-down", "tier1-down"]
    with pytest.raises(Usage):
        walk(fabric, roce(np.array([1]), np.array([2]), 1.0, RNG(1)), lambda flow, *_: flow)
    with pytest.raises(MalformedInput):
        of_topology(topology(cable("a", "1", "b", "1"), switches=["a", "b"]))


PATHS = {
    0: "h1:1>l1:9|l1:1>s1:1|s1:2>l2:1|l2:9>h2:1",
    1: "h1:1>l1:9|l1:2>s2:1|s2:2>l2:2|l2:9>h2:1",
    2: "h3:1>l1:8|l1:1>s1:1|s1:2>l2:1|l2:9>h2:1",
}


def seen(path: str, sport: int = 1, **more: object) -> Seen:
    steps = tuple((link, 1.0) for link in path.split("|"))
    return Seen("10.0.0.1", "10.0.1.1", sport, 4791, 17, 1e6, steps, **more)  # type: ignore[arg-type]


def test_recorded_paths_show_their_fabric() -> None:
    rows = [seen(PATHS[0], 1), seen(PATHS[1], 2), replace(seen(PATHS[2], 3), src="10.0.0.3", job="j")]
    found = observed(rows, {"l1:1>s1:1": 1e11}, 4e11)
    assert found.off_shortest == 0
    fabric, groups = found.fabric, found.fabric.groups
    up = int(groups.of_slot[found.entries.slot[1]])
    assert (groups.layers[groups.layer[up]], int(groups.size[up])) == ("tier1-up", 2)
    links = [fabric.link_name(int(groups.link[s])) for s in found.entries.slot[found.entries.flow == 0]]
    assert PATHS[0].split("|") == [name for name in links if name in PATHS[0]]
    assert fabric.links.capacity_bps[int(groups.link[found.entries.slot[1]])] == 1e11
    assert found.flows.jobs == (("", ""), ("", "j"))


def test_paths_of_telemetry_begin_and_end_at_switches() -> None:
    """As the stage writes them: from the first hop's egress to the last's, whose receiver is not known."""
    rows = [
        seen("1:1>3:1|3:2>2:1|2:9>", 1),
        seen("1:2>4:1|4:2>2:2|2:9>", 2),
        replace(seen("2:1>3:2|3:1>1:1|1:9>", 3), src="10.0.1.1", dst="10.0.0.1"),
    ]
    found = observed(rows, {}, 4e11)
    sizes = found.fabric.groups.size[found.fabric.groups.of_slot[found.entries.slot]]
    assert sizes.tolist() == [1, 2, 1, 1, 1, 2, 1, 1, 1, 1, 1, 1]
    assert found.off_shortest == 0
    longer = [*rows, seen("1:1>3:1|3:3>4:3|4:2>2:2|2:9>", 9)]
    assert observed(longer, {}, 4e11).off_shortest == 1


def test_broken_recordings() -> None:
    with pytest.raises(MalformedInput):
        ends_of("a-b")
    with pytest.raises(Usage):
        observed([replace(seen("a:1>b:1"), path=())], {}, 1.0)
    with pytest.raises(Usage):
        observed([], {}, 1.0)
