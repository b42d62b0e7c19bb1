"""Paths of a simulated fabric: every flow on the links that the simulator sent it over."""

import pytest

from producers.sim.fabric import PACKET_BYTES
from schemas.codec import decode_paths
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
