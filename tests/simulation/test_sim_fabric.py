"""INT reports of a simulated job: they show the true paths, and a slow link shows in its queue."""

from collections import defaultdict
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from producers.sim.options import SimOptions
from schemas.batch import Batch
from schemas.flow import flow_id
from tests.simulation.sim_log import rows_by_source, seq_gaps, simulate, watermarks_broken

FABRIC = SimOptions(scenario="healthy", seed=5, hosts=6, ranks=12, seconds=1.0, fabric=True)
WIDE = ("node", "report", "report_seq", "hop", "hops", "in_port", "out_port", "latency", "occupancy", "sport",
        "reporter")  # fmt: skip


def hops_of(batches: list[Batch]) -> dict[str, np.ndarray[Any, Any]]:
    """The columns of all hops, in the order of the log."""
    parts: dict[str, list[Any]] = defaultdict(list)
    for batch in batches:
        if batch.family == "int":
            for name in WIDE:
                parts[name].append(batch.wide(name))
            for name in ("flow", "ingress_ts", "egress_ts"):
                parts[name].append(batch.column(name))
            for name in ("entity", "src", "dst"):
                parts[name].append(np.array(batch.strings)[batch.column(name)])
            parts["raw_ns"].append(batch.raw_ns())
    return {name: np.concatenate(columns) for name, columns in parts.items()}


def test_reports_show_the_true_paths() -> None:
    batches, report = simulate(FABRIC)
    hops = hops_of(batches)
    truth = {flow["flow"]: flow for flow in report.truth["flows"]}
    assert len(truth) == FABRIC.ranks
    assert {len(flow["path"]) for flow in truth.values()} == {1, 3}
    seen = set()
    for number in np.unique(hops["report"]):
        mine = hops["report"] == number
        flow = truth[int(hops["flow"][mine][0])]
        ports = zip(*(hops[name][mine].tolist() for name in ("node", "in_port", "out_port")), strict=True)
        into, out = zip(
            *((f"{node}:{port}", f"{node}:{onward}>") for node, port, onward in ports), strict=True
        )
        assert [a + b for a, b in zip(out, (*into[1:], ""), strict=True)] == flow["path"]
        assert hops["entity"][mine].tolist() == [f"node:{node}" for node in hops["node"][mine]]
        assert set(hops["reporter"][mine]) == {hops["node"][mine][-1]}
        assert hops["hop"][mine].tolist() == list(range(len(flow["path"])))
        assert set(hops["hops"][mine]) == {len(flow["path"])}
        assert (hops["src"][mine][0], hops["dst"][mine][0]) == (flow["src"], flow["dst"])
        assert len(set(hops["raw_ns"][mine])) == 1
        seen.add(flow["flow"])
    assert seen == set(truth)
    for number, flow in truth.items():
        assert number == flow_id(flow["src"], flow["dst"], flow["src_port"], 4791, 17)
        assert flow["rank_dst"] == (flow["rank_src"] + 2) % 12
    assert (watermarks_broken(batches), seq_gaps(batches)) == ([], [])


def test_switches_stamp_with_their_own_clocks() -> None:
    hops = hops_of(simulate(FABRIC)[0])
    stay = hops["egress_ts"].astype(np.int64) - hops["ingress_ts"].astype(np.int64)
    assert np.abs(stay - hops["latency"]).max() <= 2
    off = hops["ingress_ts"].astype(np.int64) - hops["raw_ns"]
    by_node = {node: off[hops["node"] == node] for node in np.unique(hops["node"]).tolist()}
    assert np.std([np.median(of) for of in by_node.values()]) > 1e7  # apart by some 0.1 to 1 s
    assert max(np.ptp(of) for of in by_node.values()) < 1e6  # but steady


def test_every_reporter_numbers_its_reports() -> None:
    hops = hops_of(simulate(FABRIC)[0])
    sink = hops["hop"] == hops["hops"] - 1
    for node in np.unique(hops["node"][sink]):
        numbers = hops["report_seq"][sink & (hops["node"] == node)]
        assert numbers.tolist() == list(range(len(numbers)))


def test_a_slow_link_fills_the_queue_before_it() -> None:
    faults = ("slow_link:host2:4x@500ms",)
    batches, report = simulate(replace(FABRIC, faults=faults))
    hops = hops_of(batches)
    late = hops["raw_ns"] > report.truth["start_ns"] + 520_000_000
    full = (hops["node"] == 100) & (hops["out_port"] == 3)  # the first leaf, towards its third host
    assert hops["occupancy"][late & full].min() > 1_000
    assert np.median(hops["occupancy"][~(late & full)]) < 100


@pytest.mark.parametrize("fabric", [False, True])
def test_the_fabric_changes_nothing_else(fabric: bool) -> None:
    batches, _ = simulate(replace(FABRIC, seconds=0.3, fabric=fabric))
    rows = rows_by_source(batches)
    assert ("collector/reports" in rows) == fabric
    plain = replace(FABRIC, seconds=0.3, fabric=False)
    for source, columns in rows_by_source(simulate(plain)[0]).items():
        for mine, theirs in zip(columns, rows[source], strict=True):
            np.testing.assert_array_equal(mine, theirs)


def test_a_single_host_has_no_flows() -> None:
    batches, report = simulate(replace(FABRIC, hosts=1, ranks=2, seconds=0.2))
    assert report.truth["flows"] == []
    assert not any(batch.count for batch in batches if batch.family == "int")
