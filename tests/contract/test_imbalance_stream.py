"""Imbalance of each window, as the paths stage puts it out, beside what `flows report` says of the same window."""

import json
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas import columns as c
from schemas.batch import Batch
from schemas.codec import decode_paths
from schemas.draft import Draft
from schemas.flow import flow_id
from schemas.imbalance import Imbalance
from schemas.pack import Head, SeqBook, Source, Strings
from schemas.processor import Record
from sinks import views
from streams.counts import Counts
from streams.paths.spreads import Spreads, Window
from streams.paths.stage import Paths, PathsSettings
from tempotrace import cli
from tests.contract.processor_suite import Case, ProcessorSuite
from tests.hops import CLOCK, MS, START_NS, Collector, log_of
from tests.lakes import Sink, records

LEAVES, HOSTS, SPINES, QUEUE_PAIRS = 3, 6, 4, 4
WINDOW_MS = 100
CAPACITY = 100e9


def flow(leaf: int, host: int, pair: int) -> tuple[str, str, int, int]:
    return f"10.0.{leaf}.{host}", f"10.0.{(leaf + 1) % LEAVES}.{host}", 50_000 + pair, 4791


def window(collector: Collector, number: int, spine_of: Any, sizes: Any) -> None:
    """A report of every flow in window `number`: `spine_of` and `sizes` by (leaf, host, queue pair)."""
    at = number * WINDOW_MS * MS
    for leaf in range(LEAVES):
        to = (leaf + 1) % LEAVES
        for host in range(HOSTS):
            for pair in range(QUEUE_PAIRS):
                spine = int(spine_of[leaf, host, pair])
                hops = [(1 + leaf, 100 + host, spine), (11 + spine, leaf, to), (1 + to, spine, 100 + host)]
                at += 1000
                collector.report(at, flow(leaf, host, pair), hops, length=int(sizes[leaf, host, pair]))


def told() -> Batch:
    """Jobs of the flows of two hosts' pairs, and counters of an uplink that say what it can do."""
    draft = Draft(Head("default", "fabric/0", "fabric", "fabric"), SeqBook())
    source = Source("fabric", "h", CLOCK, 7, ordered=False)
    for leaf in range(LEAVES):
        for host in range(HOSTS):
            for pair in range(QUEUE_PAIRS):
                src, dst, sport, dport = flow(leaf, host, pair)
                draft.row(
                    source, START_NS, kind=c.FabricKind.FLOW, flow=flow_id(src, dst, sport, dport, 17), src=src,
                    dst=dst, sport=sport, dport=dport, protocol=17, job=f"job{host % 2}", rank_src=0, rank_dst=1,
                )  # fmt: skip
    for ms, size in ((1, None), (60, 40_000)):
        draft.row(
            source, START_NS + ms * MS, kind=c.FabricKind.COUNTER, entity="1:0>11:0", node=1, port=0,
            tx_bytes=size, interval_ns=None if size is None else 59 * MS, capacity_bps=CAPACITY,
        )  # fmt: skip
    draft.final(source)
    return draft.build()


@cache
def batches() -> tuple[Batch, ...]:
    """Three windows: flows spread at random; the same but none over the last spine; each flow over one more."""
    rng = np.random.default_rng(5)
    shape = (LEAVES, HOSTS, QUEUE_PAIRS)
    spine = rng.integers(0, SPINES, shape)
    collector = Collector()
    out = [told()]
    for number, spine_of in enumerate((spine, np.minimum(spine, SPINES - 2), (spine + 1) % SPINES)):
        window(collector, number, spine_of, rng.integers(200, 9000, shape))
        out.append(collector.batch())
    return tuple(out)


@cache
def values() -> tuple[bytes, ...]:
    return tuple(record.value or b"" for record in log_of(batches()).records("paths"))


def lake_of(folder: Path, values_: Sequence[bytes]) -> Path:
    Sink(folder, records("paths", values_)).run()
    return folder


def rows(lake: Path, query: str) -> list[dict[str, Any]]:
    with views.connect(lake) as connection:
        found = connection.execute(query)
        names = [column[0] for column in found.description or ()]
        return [dict(zip(names, row, strict=True)) for row in found.fetchall()]


def report(lake: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    code = cli.run(["flows", "report", "--lake", str(lake), "--json"])
    out = capsys.readouterr().out
    assert code == 0, out
    return json.loads(out)  # type: ignore[no-any-return]


FIGURES = ("fim_routing", "fim_layer", "fim_null", "null_sd", "z", "p", "max_over_mean", "jain", "cov")


def test_a_window_has_the_figures_that_a_report_of_it_has(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = [value for value in values() if getattr(decode_paths(value), "window_start_ns", 0) == START_NS]
    assert len(first) == 2
    lake = lake_of(tmp_path / "lake", first)
    said = report(lake, capsys)
    assert said["layers"]
    found = rows(lake, "SELECT * FROM imbalance WHERE switch IS NULL ORDER BY layer, measure DESC")
    assert [(r["layer"], r["measure"]) for r in found] == [
        (row["layer"], measure) for row in said["layers"] for measure in ("flows", "bytes")
    ]
    for row, expected in zip(found[::2], said["layers"], strict=True):
        other = found[found.index(row) + 1]
        for one, figures in ((row, expected), (other, expected["by_bytes"])):
            assert {name: one[name] for name in FIGURES} == pytest.approx(
                {name: figures[name] for name in FIGURES}, rel=1e-9
            )
            assert one["verdict"] == figures["verdict"].replace(" ", "_")
            assert (one["null_method"], one["null_draws"]) == (figures["null_method"], figures["null_draws"])
        for name in ("groups", "links", "flows", "bytes"):
            assert row[name] == expected[name]
        assert row["idle"] == expected["idle_count"]
    hot = rows(lake, "SELECT * FROM hotspots WHERE kind = 'hot'")
    assert [(r["link"], r["bytes"], r["seconds"], r["over_mean"]) for r in hot] == [
        (r["link"], r["bytes"], r["seconds"], r["over_mean"])
        for r in said["collisions"]["hot_links"]
        if r["over_mean"] > 1
    ]
    colliding = rows(lake, "SELECT * FROM hotspots WHERE kind = 'collision'")
    assert colliding
    for one, expected in zip(colliding, said["collisions"]["worst"], strict=True):
        for name in ("link", "layer", "elephants", "bytes"):
            assert one[name] == expected[name]
        assert one["overload"] == pytest.approx(expected["overload"])
        assert [loss["loss"] for loss in one["losses"]] == [flow["loss"] for flow in expected["flows"]]
        assert [loss["flow_id"] for loss in one["losses"]] == [
            flow_id(f["src"], f["dst"], f["src_port"], f["dst_port"], f["protocol"])
            for f in expected["flows"]
        ]
    jobs = rows(lake, "SELECT * FROM job_losses")
    assert {job["job"] for job in jobs} == {"job0", "job1"}
    for one, expected in zip(jobs, said["collisions"]["jobs"], strict=True):
        for name in ("job", "flows", "bytes", "mean_loss", "max_loss", "links_shared_with_others"):
            assert one[name] == expected[name]
    # One link of the fabric is counted, and known to be a quarter as fast as links are assumed to be.
    up = rows(lake, "SELECT * FROM imbalance WHERE switch = '1' AND measure = 'flows'")[0]
    assert up["capacity_known"] == 1 / SPINES
    assert up["coverage"] == pytest.approx(
        rows(lake, "SELECT coverage FROM links WHERE coverage IS NOT NULL")[0]["coverage"]
    )


def test_a_group_has_its_links_and_an_exact_null(tmp_path: Path) -> None:
    lake = lake_of(tmp_path / "lake", values())
    query = f"SELECT * FROM imbalance WHERE window_start_ns = {START_NS} AND switch IS NOT NULL"
    found = rows(lake, query)
    assert {(r["switch"], r["measure"]) for r in found} == {(s, m) for s in "123" for m in ("flows", "bytes")}
    loads = rows(lake, f"SELECT link, flows, attributed FROM links WHERE window_start_ns = {START_NS}")
    by_link = {row["link"]: row for row in loads}
    for row in found:
        if row["measure"] == "bytes":
            assert (row["members"], row["null_method"]) == ([], "drawn")
            continue
        leaf = int(row["switch"])
        up = [f"{leaf}:{spine}>{11 + spine}:{leaf - 1}" for spine in range(SPINES)]
        assert sorted(member["link"] for member in row["members"]) == up
        counts = np.array([member["flows"] for member in row["members"]])
        assert counts.tolist() == [by_link[m["link"]]["flows"] for m in row["members"]]
        assert [m["bytes"] for m in row["members"]] == [
            by_link[m["link"]]["attributed"] for m in row["members"]
        ]
        mean = HOSTS * QUEUE_PAIRS / SPINES
        assert row["fim_routing"] == pytest.approx(100 * np.abs(counts - mean).mean() / mean)
        assert row["max_over_mean"] == pytest.approx(counts.max() / mean)
        assert row["jain"] == pytest.approx(counts.sum() ** 2 / SPINES / (counts**2).sum())
        assert row["cov"] == pytest.approx(counts.std() / mean)
        assert row["null_method"] == "exact"


def test_a_link_that_flows_took_before_counts_as_idle(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lake = lake_of(tmp_path / "lake", values())
    found = rows(
        lake,
        "SELECT * FROM imbalance WHERE switch IS NULL AND measure = 'flows' ORDER BY window_start_ns",
    )
    assert [row["window_start_ns"] for row in found] == [START_NS + k * WINDOW_MS * MS for k in range(3)]
    assert [(row["links"], row["idle"]) for row in found] == [(LEAVES * SPINES, k) for k in (0, LEAVES, 0)]
    assert found[1]["verdict"] == "worse_than_random"
    idle = rows(lake, "SELECT link, expected, p FROM hotspots WHERE kind = 'idle' ORDER BY link")
    keys = HOSTS * QUEUE_PAIRS
    assert [row["link"] for row in idle] == [f"{1 + leaf}:3>14:{leaf}" for leaf in range(LEAVES)]
    assert idle[0]["expected"] == keys / SPINES
    assert idle[0]["p"] == pytest.approx((1 - 1 / SPINES) ** keys * LEAVES * SPINES)
    # A report of the whole lake sees the same links in every window; it takes all of them for equally fast there.
    over_time = report(lake, capsys)["over_time"]
    for row, expected in zip(found, over_time, strict=True):
        for name in ("fim_routing", "fim_null", "z", "p", "max_over_mean"):
            assert row[name] == pytest.approx(expected[name]), name


class TestPathsWithImbalance(ProcessorSuite):
    def case(self) -> Case:
        merged = log_of(batches(), part_bytes_max=3_000).records("merged")
        assert any(isinstance(decode_paths(value), Imbalance) for value in values())
        again = merged[0]._replace(offset=merged[-1].offset + 1)
        return Case(lambda: Paths(PathsSettings()), (*merged, again))


def _window(paths: Sequence[Sequence[str]], sources: Sequence[str]) -> Window:
    strings = Strings()
    count = len(paths)
    steps = [strings.index(link) for path in paths for link in path]
    lengths = np.array([len(path) for path in paths], np.int64)
    return Window(
        100,
        {
            "flow_id": np.arange(count, dtype="<u8"),
            "flow_src": np.array([strings.index(src) for src in sources], "<u2"),
            "flow_dst": np.full(count, strings.index("10.0.0.9"), "<u2"),
            "flow_src_port": np.arange(count).astype("<u2"),
            "flow_dst_port": np.full(count, 4791, "<u2"),
            "flow_protocol": np.full(count, 17, "u1"),
            "flow_bytes": np.full(count, c.NULL_I64),
            "flow_job": np.full(count, c.NULL_U16, "<u2"),
            "flow_path_first": (np.cumsum(lengths) - lengths).astype("<u4"),
            "flow_path_count": lengths.astype("<u4"),
            "path_link": np.array(steps, "<u2"),
            "path_share": np.ones(len(steps)),
        },
        strings.table,
    )


NODES = st.sampled_from(["1", "2", "3", "h1", ""])
LINKS = st.builds("{}:{}>{}:{}".format, NODES, st.integers(0, 2), NODES, st.integers(0, 2)) | st.sampled_from(
    ["1:1>", "2:?>", "eth0", "", ">", "a>b", "1:1>2:1"]
)
FLOWS = st.tuples(st.lists(LINKS, max_size=4), st.sampled_from(["10.0.0.1", "10.0.0.2", "lid:7", "::1"]))


@settings(max_examples=300, deadline=None, derandomize=True)
@given(st.lists(st.lists(FLOWS, max_size=5), min_size=1, max_size=3))
def test_any_paths_give_figures_or_are_counted(windows: list[list[tuple[list[str], str]]]) -> None:
    count = Counts()
    spreads = Spreads(count)
    for flows in windows:
        found = spreads.window(_window([path for path, _ in flows], [src for _, src in flows]), {})
        if found is not None:
            columns, strings = found.columns()
            assert len(columns["imb_layer"]) >= 2
            assert set(columns["imb_measure"].tolist()) == {c.Measure.FLOWS}
            assert {strings[k] for k in columns["imb_layer"].tolist()}
        again = Spreads(Counts())
        again.load(json.loads(json.dumps(spreads.dump())))
        assert again.dump() == spreads.dump()


def test_links_are_forgotten_and_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streams.paths.spreads.LINKS_KEPT", 2)
    spreads = Spreads(Counts())
    for spine in "ABC":
        path = [[f"1:{spine}>{spine}:1", f"{spine}:2>2:1", "2:9>"]] * 2
        spreads.window(_window(path, ["10.0.0.1", "10.0.0.2"]), {})
    assert [name for name, _ in spreads.dump()] == ["1:C>C:1", "C:2>2:1"]
    spreads.forget(101)
    assert spreads.dump() == []


def test_too_many_flows_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streams.paths.spreads.FLOWS_MAX", 1)
    count = Counts()
    assert Spreads(count).window(_window([["1:1>2:1"]] * 2, ["10.0.0.1"] * 2), {}) is None
    assert count.totals() == {"imbalance_skipped": {("flows",): 2}}


def test_a_path_with_a_gap_is_left_out() -> None:
    whole = ["1:1>11:1", "11:2>2:1", "2:9>"]
    other = ["1:2>12:1", "12:2>2:2", "2:9>"]
    gap = ["1:1>", "11:2>2:1", "2:9>"]
    sources = ["10.0.0.1", "10.0.0.2", "10.0.0.3"]
    count = Counts()
    found = Spreads(count).window(_window([whole, other, gap], sources), {})
    assert found is not None
    columns, _ = found.columns()
    assert columns["imb_flows"].tolist() == [2, 2]
    assert count.totals() == {"imbalance_skipped": {("gaps",): 1}}


def test_a_flow_that_changed_its_path_has_branches_and_no_null() -> None:
    """Half of its reports over one spine, half over the other."""
    branched = ["1:1>11:1", "1:2>12:1", "11:2>2:1", "12:2>2:2", "2:9>"]
    one = _window([branched], ["10.0.0.1"])
    shares = {"path_share": np.array([0.5, 0.5, 0.5, 0.5, 1.0])}
    found = Spreads(Counts()).window(replace(one, data={**one.data, **shares}), {})
    assert found is not None
    columns, _ = found.columns()
    assert columns["imb_fim_routing"].tolist() == [0, 0]
    assert columns["imb_null_method"].tolist() == [c.NULL_U8] * 2
    assert np.isnan(columns["imb_p"]).all()


def test_the_record_of_a_window_follows_its_paths() -> None:
    kinds = [type(decode_paths(value)).__name__ for value in values()]
    assert kinds[:6] == ["Paths", "Imbalance"] * 3


def test_suite_has_windows_in_parts() -> None:
    records_: Sequence[Record] = log_of(batches(), part_bytes_max=3_000).records("merged")
    assert len(records_) > 6
