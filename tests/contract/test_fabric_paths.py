"""Port counters, flows of hosts and walked paths, through the merge and the paths stage, beside in-band telemetry."""

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from producers.fabric.counters import Counters
from producers.fabric.rows import FabricReport, Options, Path, Reading, read
from schemas import columns as c
from schemas import paths as p
from schemas.batch import Batch
from schemas.codec import decode_paths, encode_batch
from schemas.draft import Draft, control
from schemas.flow import flow_id
from schemas.network import FlowKey, HostFlow, cable, topology
from schemas.pack import Head, SeqBook, Source
from schemas.processor import Output, Record
from schemas.time import TAI, ClockState
from schemas.topics import batch_headers
from sinks.lake import LakeProcessor, LakeTask
from tempotrace import wiring
from tests.contract.processor_suite import Case, ProcessorSuite, run
from tests.contract.test_stages import records
from tests.lakes import take

MS = 1_000_000
UTC0 = 1_767_225_600_000 * MS  # Unix ns; a whole hundred of ms in TAI, too
TAI0 = UTC0 + 37_000 * MS
LINK, BACK = "leaf:Ethernet0>spine:Ethernet4", "spine:Ethernet4>leaf:Ethernet0"
TOPOLOGY = topology([*cable("leaf", "Ethernet0", "spine", "Ethernet4", 400e9)])
OBSERVED = FlowKey("10.0.0.1", "10.1.0.1", 17, 50_000, 4791, 23)
WALKED = FlowKey("10.0.0.2", "10.1.0.2", 17, 50_001, 4791, 24)


def hops() -> list[Batch]:
    """Reports of 1000 bytes over port 3 of node 7, at 20, 120, 220 and 270 ms."""
    clock = ClockState("h/CLOCK_REALTIME", parent=TAI, timescale=c.Timescale.UTC)
    source = Source("int/h", "h", clock, 7, ordered=False)
    book, out = SeqBook(), []
    for number, ms in enumerate((20, 120, 220, 270)):
        draft = Draft(Head("fabric", "fabric/0", "int/h", "int"), book)
        for hop, (node, into, outof) in enumerate(((7, 1, 3), (9, 4, 2))):
            draft.row(
                source, UTC0 + ms * MS, kind=c.HopKind.HOP, node=node, in_port=into, out_port=outof, report=number,
                hop=hop, hops=2, flow=number_of(OBSERVED), src=OBSERVED.src, dst=OBSERVED.dst,
                sport=OBSERVED.sport, dport=OBSERVED.dport, protocol=17, length=1000, report_flags=0,
            )  # fmt: skip
        draft.watermark(source, UTC0 + ms * MS)
        if ms == 270:
            draft.final(source)
        out.append(draft.build())
    return out


def number_of(key: FlowKey) -> int:
    return flow_id(key.src, key.dst, key.sport, key.dport, key.protocol)


def counters() -> list[Batch]:
    """Readings at 0, 250 and 350 ms, and at 0 ms two flows of hosts, one of them with a walked path."""
    readings = [
        Reading("leaf", UTC0 + ms * MS, {"Ethernet0": Counters(tx, rx)})
        for ms, tx, rx in ((0, 1, 5), (250, 10_001, 705), (350, 12_001, 705))
    ]
    flows = [
        HostFlow(OBSERVED, c.SportSource.CAPTURED, "h0", "h1", job="job7", rank_src=0, rank_dst=1),
        HostFlow(WALKED, c.SportSource.FORMULA, "h2", "h3", job="job7", rank_src=2, rank_dst=3),
    ]
    path = Path(
        WALKED, ((LINK, 0.25, 1), ("leaf:Ethernet8>spine2:Ethernet4", 0.75, 1)), c.PathSource.CANDIDATES, 0.9
    )
    options = Options("fabric", "fabric/0", "h", {("leaf", "Ethernet0"): (7, 3)})
    return list(read(readings, flows, [path], UTC0, TOPOLOGY, options, FabricReport()))


@cache
def events() -> tuple[Record, ...]:
    opened = control("fabric", "fabric/0", "test", [(c.Control.OPEN, 3, "sources")])
    batches = [opened, *counters(), *hops()]
    return tuple(
        Record("events", 0, k, TAI0 // MS, b.scope.encode(), encode_batch(b),
               tuple(batch_headers(b.family, b.count, b.scope)))
        for k, b in enumerate(batches)
    )  # fmt: skip


@cache
def merged() -> Sequence[Record]:
    return records(run(Case(lambda: wiring.merge("fabric"), events())), "merged")


@cache
def windows() -> dict[int, p.Paths]:
    """The paths record of each window, by ms since the start."""
    outputs: list[Output] = run(Case(lambda: wiring.paths("fabric"), merged()))
    found = [decode_paths(output.value or b"") for output in outputs if output.topic == "paths"]
    return {(one.window_start_ns - TAI0) // MS: one for one in found if isinstance(one, p.Paths)}


def links(ms: int) -> dict[str, dict[str, Any]]:
    one = windows()[ms]
    names = [one.strings[k] for k in one.data["link_name"].tolist()]
    columns = {n.removeprefix("link_"): v.tolist() for n, v in one.data.items() if n.startswith("link_")}
    return {name: {key: column[k] for key, column in columns.items()} for k, name in enumerate(names)}


def flows(ms: int) -> dict[int, dict[str, Any]]:
    one = windows()[ms]
    out = {}
    for k, number in enumerate(one.data["flow_id"].tolist()):
        row = {n.removeprefix("flow_"): v[k].item() for n, v in one.data.items() if n.startswith("flow_")}
        steps = range(row["path_first"], row["path_first"] + row["path_count"])
        row["path"] = [
            (one.strings[int(one.data["path_link"][s])], float(one.data["path_share"][s])) for s in steps
        ]
        out[number] = row
    return out


def test_counted_bytes_are_those_of_the_interval_and_coverage_compares_like_with_like() -> None:
    first = links(0)[LINK]  # a reading without one before it: nothing to compare with
    assert (first["bytes"], first["attributed"], first["interval_ns"]) == (c.NULL_I64, 1000, c.NULL_I64)
    assert first["capacity_bps"] == 400e9
    between = links(100)[LINK]
    assert (between["bytes"], between["attributed"], between["flows"]) == (c.NULL_I64, 1000, 1)
    counted = links(200)[LINK]
    # 20, 120 and 220 ms lie in the interval of 250 ms, 270 ms does not; both of the window are its own.
    assert (counted["bytes"], counted["interval_ns"], counted["attributed"]) == (10_000, 250 * MS, 2000)
    assert counted["coverage"] == 3000 / 10_000
    assert counted["utilisation"] == 10_000 * 8 / (400e9 * 0.25)
    after = links(300)[LINK]
    assert (after["bytes"], after["coverage"], after["attributed"]) == (2000, 1000 / 2000, 0)


def test_what_a_port_received_counts_for_the_other_direction_where_nobody_else_counts() -> None:
    assert (links(200)[BACK]["bytes"], links(200)[BACK]["coverage"]) == (700, 0.0)
    assert links(300)[BACK]["bytes"] == 0
    assert np.isnan(links(300)[BACK]["coverage"])


def test_links_that_nobody_counts_stay_as_they_were() -> None:
    last = links(200)["9:2>"]
    assert (last["bytes"], last["attributed"], last["interval_ns"]) == (2000, 2000, c.NULL_I64)
    assert np.isnan(last["coverage"])


def test_flows_have_owners_and_observed_ones_use_the_counted_links_names() -> None:
    mine = flows(100)[number_of(OBSERVED)]
    one = windows()[100]
    assert (one.strings[mine["job"]], mine["rank_src"], mine["rank_dst"]) == ("job7", 0, 1)
    assert mine["path"] == [(LINK, 1.0), ("9:2>", 1.0)]
    assert mine["path_source"] == c.PathSource.OBSERVED


def test_a_walked_flow_is_listed_with_its_path_and_how_it_is_known() -> None:
    mine = flows(0)[number_of(WALKED)]
    assert mine["path"] == [(LINK, 0.25), ("leaf:Ethernet8>spine2:Ethernet4", 0.75)]
    assert (mine["path_source"], mine["agreement"], mine["bytes"]) == (
        c.PathSource.CANDIDATES,
        0.9,
        c.NULL_I64,
    )
    assert (mine["src_port"], mine["rank_src"], mine["reports"]) == (50_001, 2, 0)
    assert set(flows(0)) == {number_of(OBSERVED), number_of(WALKED)}


class TestPathsOfAFabric(ProcessorSuite):
    def case(self) -> Case:
        return Case(lambda: wiring.paths("fabric"), merged())


class TestLakeOfAFabric(ProcessorSuite):
    def case(self) -> Case:
        return Case(lambda: LakeProcessor("fabric"), merged())


def test_the_lake_has_samples_with_names_for_codes() -> None:
    taken = [take(LakeTask("fabric", None), "merged", record.value or b"") for record in merged()]
    found = [
        row for tables in taken if "fabric_samples" in tables for row in tables["fabric_samples"].to_pylist()
    ]
    states = {row["state"] for row in found if row["kind"] == "counter"}
    assert states == {"first", "ok"}
    assert {row["sport_source"] for row in found if row["kind"] == "flow"} == {"captured", "formula"}
    assert {row["path_source"] for row in found if row["kind"] == "hop"} == {"candidates"}
