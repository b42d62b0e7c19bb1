"""Paths of a simulated fabric: every flow on the links that the simulator sent it over."""

from itertools import combinations

import pytest

from producers.sim.fabric import PACKET_BYTES, SWITCH_NS
from schemas.codec import decode_paths
from schemas.codes import Status
from schemas.paths import Paths
from tests.hops import flows, links
from tests.simulation.pipeline import run


@pytest.mark.parametrize("seed", range(1, 5))
def test_observed_paths_are_the_true_ones(seed: int) -> None:
    found = run("fabric", seed, hosts=8, ranks=16, seconds=1.0)
    truth = {flow["flow"]: flow for flow in found.truth["flows"]}
    assert len(truth) == 16
    assert {len(flow["path"]) for flow in truth.values()} == {1, 3}
    total = dict.fromkeys(truth, 0)
    crossed = 0
    seen = 0
    for record in found.log.records("paths"):
        window = decode_paths(record.value or b"")
        if not isinstance(window, Paths):
            continue
        seen += 1
        for number, flow in flows(window).items():
            true = truth[number]
            assert flow["path"] == [(link, 1.0) for link in true["path"]]
            assert (flow["src"], flow["dst"], flow["ports"]) == (
                true["src"], true["dst"], (true["src_port"], true["dst_port"]),
            )  # fmt: skip
            assert flow["source"] == "observed"
            assert flow["bytes"] == flow["reports"] * PACKET_BYTES
            total[number] += int(flow["reports"])
        for (_, name), (count, size) in links(window).items():
            assert count == sum(name in truth[number]["path"] for number in flows(window))
            crossed += size
    assert seen >= 10
    # One report of each flow every 20 ms, the one at the end of the job too.
    assert set(total.values()) == {51}
    assert crossed == PACKET_BYTES * sum(total[number] * len(flow["path"]) for number, flow in truth.items())


def test_clocks_of_switches_agree_around_every_circle() -> None:
    """Each switch counts nanoseconds from a zero of its own, off by up to a second and 10 ppm."""
    found = run("fabric", 2, hosts=16, ranks=64, seconds=0.6)
    records = [decode_paths(record.value or b"") for record in found.log.records("paths")]
    window = [one for one in records if isinstance(one, Paths)][-2].data
    assert set(window["node_unit_ns"].tolist()) == set(window["node_latency_unit_ns"].tolist()) == {1.0}
    assert window["node_implausible"].sum() == 0
    assert (window["node_hops"] > window["node_unchecked"]).all()
    assert (window["flow_latency_ns"] >= SWITCH_NS).all()
    assert set(window["node_left_out_ns"].tolist()) <= {-1, 0, 1}
    both = window["pair_status"] == Status.FREERUN
    offset = {
        (one, two): (middle, half)
        for one, two, middle, half in zip(
            *(window[f"pair_{name}"][both].tolist() for name in ("from", "to", "offset_ns", "bound_ns")),
            strict=True,
        )
    }
    leaves, spines = ({pair[k] for pair in offset} for k in (0, 1))
    circles = 0
    for one, two in combinations(sorted(leaves), 2):
        ways = [
            (offset[one, s], offset[two, s]) for s in sorted(spines) if {(one, s), (two, s)} <= offset.keys()
        ]
        for (a, b), (c, d) in combinations(ways, 2):
            circles += 1
            assert abs((a[0] - b[0]) - (c[0] - d[0])) <= a[1] + b[1] + c[1] + d[1] < 200_000
            assert abs(a[0]) > 1_000_000
    assert circles == 2
