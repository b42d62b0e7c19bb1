"""Every table: its columns as the contracts list them, its values as the records say."""

import re
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from schemas import codec, merged, records
from schemas import columns as c
from schemas.merged import Merged
from sinks import tables, units
from sinks.lake import LakeProcessor
from sinks.layout import folder, sql_type
from tests.lakes import fresh, take
from tests.parts import APPEND_MS, HOUR_NS, START_NS, Maker, head

# the contract, with the types that SQL sees.
CONTRACT = {
    "events": "scope window_start_ns row source incarnation seq family kind entity name raw_ns "
    "time_ns bound_ns order_ns order_end_ns duration_ns host rank clock_id clock_epoch "
    "cause_source cause_incarnation cause_seq cause_point verdict topic partition "
    "log_offset",
    "event_values": "scope source incarnation seq name value",
    "gpu_events": "scope source incarnation seq correlation device stream",
    "probes": "scope source incarnation seq peer probe stamp bytes",
    "clock_samples": "scope source incarnation seq parent offset_ns delay_ns freq_ppb error_ns spread_ns "
    "servo text",
    "fabric_samples": "scope source incarnation seq tx_bytes rx_bytes interval_ns capacity_bps flow path_source",
    "hops": "scope source incarnation seq node hw_id report_seq report hop hops in_port out_port "
    "latency queue occupancy ingress_ts egress_ts tx_util drop_reason report_flags version "
    "warnings flow src dst sport dport protocol length",
    "edges": "scope window_start_ns kind group_name op match_key cause_source cause_incarnation "
    "cause_seq cause_point effect_source effect_incarnation effect_seq effect_point gap_ns "
    "diff_bound_ns verdict assumed",
    "windows": "scope window_start_ns window_end_ns rows late released_past inversions_raw "
    "inversions_after edges_unrepaired mode policy_version first_offset last_offset",
    "clocks": "scope clock_id epoch parent as_of_ns kind status offset_ns rate_ppb bound_ns "
    "growth_ppb assurance provenance",
    "flows": "flow_id src dst src_port dst_port protocol job rank_src rank_dst bytes path "
    "path_source agreement valid_from_ns valid_to_ns",
    "links": "layer link window_start_ns flows bytes capacity_bps utilisation coverage",
    "imbalance": "scope window_start_ns layer switch measure groups links flows bytes fim_routing fim_layer "
    "fim_null z p max_over_mean jain cov verdict coverage members",
    "hotspots": "scope window_start_ns kind link layer losses",
    "job_losses": "scope window_start_ns job flows bytes mean_loss",
    "polarisation": "scope window_start_ns layer_from layer_to z p",
    "switches": "scope window_start_ns node ns_per_tick unit_source latency_ns_per_tick implausible",
    "switch_offsets": "scope window_start_ns node neighbour status offset_ns bound_ns",
    "findings": "scope finding_id class component_kind component state confidence onset_ns "
    "window_start_ns evidence",
    "incidents": "incident_id scope class component_kind component confidence onset_ns detected_ns "
    "resolved_ns victims evidence",
    "alerts": "incident_id scope state",
    "late": "scope source incarnation seq reason",
    "deadletters": "reason topic partition log_offset at_ns payload",
    "archive": "topic partition log_offset append_ms key headers value",
}


def test_tables_are_those_of_the_contracts() -> None:
    assert tables.TABLES.keys() == CONTRACT.keys()


@pytest.mark.parametrize("name", CONTRACT)
def test_columns_are_those_of_the_contracts(name: str) -> None:
    found = [field.name for field in tables.TABLES[name].fields]
    assert [column for column in CONTRACT[name].split() if column not in found] == []
    assert len(set(found)) == len(found)


@pytest.mark.parametrize("name", CONTRACT)
def test_times_are_bigint_and_codes_are_words(name: str) -> None:
    kinds = {field.name: sql_type(field.type) for field in tables.TABLES[name].fields}
    times = {column: kind for column, kind in kinds.items() if column.endswith("_ns")}
    assert times == dict.fromkeys(times, "BIGINT")
    words = {"source", "kind", "verdict", "entity", "clock_id", "scope", "class", "evidence"} & kinds.keys()
    assert {column: kinds[column] for column in words} == dict.fromkeys(words, "VARCHAR")


def test_every_row_keeps_every_column(tmp_path: Path) -> None:
    part = Maker(count=50).part(offset=12)
    found = take(fresh(), "merged", merged.write(part))
    events = found["events"].to_pydict()
    strings = part.strings
    entry = part.data["source"]
    assert events["row"] == list(range(50))
    assert events["source"] == [strings[part.data["src_name"][s]] for s in entry]
    assert events["incarnation"] == [7 + s for s in entry]
    assert events["seq"] == part.seq().tolist()
    assert events["name"] == [strings[at] for at in part.data["name"]]
    assert events["entity"] == [f"gpu{s}" for s in entry]
    assert events["kind"] == ["kernel"] * 50
    assert events["family"] == ["gpu"] * 50
    assert events["raw_ns"] == part.raw_ns().tolist()
    assert events["time_ns"] == (part.raw_ns() - 40).tolist()
    assert events["bound_ns"] == [1000] * 50
    assert events["order_ns"] == part.order_ns().tolist()
    assert events["order_end_ns"] == part.order_end_ns().tolist()
    assert events["duration_ns"] == part.data["duration_ns"].tolist()
    assert events["host"] == ["host0"] * 50
    assert events["rank"] == entry.tolist()
    assert events["clock_id"] == [f"host{s % 4}/CLOCK_REALTIME" for s in entry]
    assert events["clock_epoch"] == [0] * 50
    caused = set(part.data["cause_row"].tolist())
    assert [row for row, word in enumerate(events["verdict"]) if word is not None] == sorted(caused)
    for row in range(50):
        expected = (events["source"][row - 1], events["incarnation"][row - 1], events["seq"][row - 1], 0)
        cause = tuple(events[f"cause_{word}"][row] for word in ("source", "incarnation", "seq", "point"))
        assert cause == (expected if row in caused else (None,) * 4)
    assert set(zip(events["topic"], events["partition"], events["log_offset"], strict=True)) == {
        ("tempotrace.default.events", 0, 12)
    }
    edges = found["edges"].to_pydict()
    assert edges["kind"] == ["launch"] * 10
    assert edges["verdict"] == ["inferred"] * 10
    assert edges["match_key"] == part.data["edge_key"].tolist()
    assert edges["effect_seq"] == [events["seq"][row] for row in sorted(caused)]
    assert edges["effect_rank"] == [events["rank"][row] for row in sorted(caused)]
    assert edges["cause_clock"] == [events["clock_id"][row - 1] for row in sorted(caused)]
    assert edges["assumed"] == [False] * 10
    values = found["event_values"].to_pydict()
    assert values["value"] == part.data["val"].tolist()
    assert values["seq"] == [events["seq"][row] for row in range(0, 50, 10)]
    own = found["gpu_events"].to_pydict()
    assert own["correlation"] == list(range(50))
    assert own["stream"] == [7] * 50
    window = found["windows"].to_pylist()[0]
    assert (window["rows"], window["inversions_raw"], window["inversions_after"]) == (50, 3, 0)
    assert (window["inversions_raw_launch"], window["inversions_raw_collective"]) == (2, 1)
    written = units.write_file([found["events"]], tmp_path / "file.parquet", "events")
    assert written["rows"] == 50
    assert pq.read_table(tmp_path / "file.parquet").to_pydict() == events


def test_nulls_and_escapes() -> None:
    part = Maker(sources=1, count=3, clocks=1).part()
    data = {name: column.copy() for name, column in part.data.items()}
    strings = (*part.strings, "raw_dt", "duration_ns", "gpu_correlation")
    data["duration_ns"][0] = c.NULL_U32
    data["duration_ns"][1] = c.NULL_U32
    data["raw_dt"][2] = c.NULL_U32
    data["gpu_correlation"][:2] = c.NULL_U32
    data["entity"][0] = c.NULL_U16
    data["kind"][1], data["kind"][2] = c.NULL_U8, 200
    data["src_rank"][:] = c.NULL_I32
    data["map_bound_ns"][:] = c.NULL_I64
    places = [strings.index(name) for name in ("duration_ns", "raw_dt", "gpu_correlation")]
    data["esc_row"] = np.array([1, 2, 1], "<u4")
    data["esc_column"] = np.array(places, "<u2")
    data["esc_value"] = np.array([2**40, -5, 2**41], "<i8")
    found = take(fresh(), "merged", merged.write(Merged(part.header, strings, data)))
    events = found["events"].to_pydict()
    assert events["duration_ns"] == [None, 2**40, int(data["duration_ns"][2])]
    assert events["raw_ns"][2] == -5
    assert events["entity"] == [None, "gpu0", "gpu0"]
    assert events["kind"] == ["kernel", None, "200"]
    assert events["rank"] == [None] * 3
    assert events["bound_ns"] == [None] * 3
    assert found["gpu_events"].to_pydict()["correlation"] == [None, 2**41, 2]


def test_a_source_without_a_clock_is_placed_by_append_time() -> None:
    part = Maker(sources=1, count=3, clocks=1).part()
    data = {name: column.copy() for name, column in part.data.items()}
    data["src_clock"][:] = c.NULL_U16
    data["src_flags"][:] = merged.PLACED_BY_APPEND
    for name in [name for name in data if name.startswith(("clk_", "map_"))]:
        del data[name]
    for name in [name for name in data if name.startswith(("edge_", "cause_"))]:
        del data[name]
    events = take(fresh(), "merged", merged.write(Merged(part.header, part.strings, data)))[
        "events"
    ].to_pydict()
    assert events["clock_id"] == events["clock_epoch"] == events["bound_ns"] == [None] * 3
    assert events["verdict"] == events["cause_seq"] == events["cause_source"] == [None] * 3
    assert events["time_ns"] == [APPEND_MS * 1_000_000 + 37_000_000_000] * 3


def test_every_family_has_its_table() -> None:
    part = Maker(sources=4, count=8, clocks=1, families=("gpu", "probe", "clock", "int")).part()
    data = {name: column.copy() for name, column in part.data.items()}
    data["kind"] = np.zeros(8, "u1")
    strings = part.strings
    names = np.full(1, strings.index("TAI"), "<u2")
    for family in ("probe", "clock", "int"):
        row = int(np.flatnonzero(data["source"] == ("gpu", "probe", "clock", "int").index(family))[0])
        data[f"{family}_row"] = np.array([row], "<u4")
        for column in c.FAMILIES[family]:
            value = names if column.unit == "string" else np.full(1, 1, column.dtype)
            data[f"{family}_{column.name}"] = value.astype(column.dtype)
    del data["clock_offset_ns"]  # an absent column is all null
    data["int_egress_ts"][0] = 2**64 - 1
    data["int_flow"][0] = 2**64 - 2
    found = take(fresh(), "merged", merged.write(Merged(part.header, strings, data)))
    assert set(found["events"].to_pydict()["kind"]) == {"cpu_op", "send", "servo", "hop"}
    probe, clock, hop = (found[name].to_pylist()[0] for name in ("probes", "clock_samples", "hops"))
    assert (probe["kind"], probe["peer"], probe["stamp"], probe["bytes"]) == ("send", "TAI", "kernel", 1)
    assert (clock["parent"], clock["offset_ns"], clock["delay_ns"], clock["freq_ppb"]) == (
        "TAI",
        None,
        1,
        1.0,
    )
    assert (hop["ingress_ts"], hop["egress_ts"], hop["flow"], hop["dport"]) == (1, None, 2**64 - 2, 1)


def test_windows_are_written_once_and_clocks_on_change() -> None:
    task = fresh()
    maker = Maker(count=4, clocks=2)
    first = maker.part()
    assert take(task, "merged", merged.write(first)).keys() >= {"windows", "clocks"}
    second = maker.part()
    later = Merged({**second.header, "part": 1, "parts": 2}, second.strings, second.data)
    assert not take(task, "merged", merged.write(later), 1).keys() & {"windows", "clocks"}
    third = maker.part()
    third.data["clk_status"] = np.array([c.Status.LOCKED, c.Status.HOLDOVER], "u1")
    again = LakeProcessor("default").start(1, task.snapshot())
    assert dict(again.next_offset) == {"merged": 2}
    clocks = take(again, "merged", merged.write(third), 2)["clocks"].to_pylist()
    assert [(row["clock_id"], row["status"], row["offset_ns"]) for row in clocks] == [
        ("host1/CLOCK_REALTIME", "holdover", 40)
    ]
    closed = records.Progress(
        tenant="default", scope="job", released_to_ns=0, closed=True, first_offset=0, last_offset=0,
        duplicates=0, gaps=0, unmatched=[], incomplete=0,
    )  # fmt: skip
    assert take(again, "merged", codec.encode_record(closed), 3) == {}
    assert take(again, "merged", merged.write(maker.part()), 4)["clocks"].num_rows == 2


def test_a_clock_read_in_steps_of_two_sizes_does_not_change_by_turns() -> None:
    task = fresh()
    maker = Maker(count=1, clocks=1)
    found = []
    for offset, (quantum, bound) in enumerate([(1, 5), (10**9, 5), (1, 5), (10**9, 5), (1, 6), (10**9, 5)]):
        part = maker.part()
        part.data["clk_quantum_ns"] = np.array([quantum], "<i8")
        part.data["clk_bound_ns"] = np.array([bound], "<i8")
        tables = take(task, "merged", merged.write(part), offset)
        found += (
            [(row["quantum_ns"], row["bound_ns"]) for row in tables["clocks"].to_pylist()]
            if "clocks" in tables
            else []
        )
    assert found == [(1, 5), (10**9, 5), (1, 6)]


def test_offsets_are_without_leap_seconds() -> None:
    part = Maker(count=1, clocks=4).part()
    strings, leap_ns = part.strings, 37_000_000_000
    data = part.data
    host0 = int(data["clk_id"][0])
    tai = strings.index("TAI")
    scale = c.Timescale
    data["clk_timescale"] = np.array([scale.TAI, scale.UTC, scale.UTC, scale.UTC_SMEARED], "u1")
    data["clk_parent"] = np.array([data["clk_id"][2], host0, tai, data["clk_id"][2]], "<u2")
    data["clk_ref_ns"] = np.array([START_NS + leap_ns + 1, START_NS + 2, START_NS + 3, START_NS + 4], "<i8")
    data["clk_ref_parent_ns"] = np.array([START_NS, START_NS + leap_ns, START_NS + leap_ns, START_NS], "<i8")
    clocks = take(fresh(), "merged", merged.write(part))["clocks"].to_pydict()
    assert clocks["offset_ns"] == [1, 2, 3, 4]


def test_a_window_without_rows_of_a_kind_has_no_table() -> None:
    empty = Merged(head(), (), {name: np.empty(0, d) for name, d in ((k.name, k.dtype) for k in merged.ROWS)})
    assert take(fresh(), "merged", merged.write(empty)).keys() == {"windows"}


@pytest.mark.parametrize("suffix", ["merged", "paths", "findings", "incidents", "late", "deadletter"])
@pytest.mark.parametrize(
    ("value", "reason"),
    [(b"", "malformed"), (b"noise", "malformed"), (b"\xc3\x01" + b"\x07" * 9, "unknown_schema")],
)
def test_what_cannot_be_read_is_a_dead_letter(suffix: str, value: bytes, reason: str) -> None:
    task = fresh()
    row = take(task, suffix, value, 8)["deadletters"].to_pylist()[0]
    assert (row["reason"], row["topic"], row["log_offset"], row["payload"], row["events"]) == (
        reason, f"tempotrace.default.{suffix}", 8, value, 3 if suffix in ("merged", "late", "deadletter") else 0,
    )  # fmt: skip
    assert task.counters()["unreadable"] == {(reason,): 1}
    # Late events and those of a dead letter were counted by the stage that wrote the record.
    assert task.counters()["deadlettered"] == ({(reason,): 3} if suffix == "merged" else {})


def test_another_tenants_record_is_a_dead_letter() -> None:
    part = Maker(count=2).part()
    foreign = Merged({**part.header, "tenant": "red"}, part.strings, part.data)
    found = take(fresh(), "merged", merged.write(foreign))
    assert found.keys() == {"deadletters"}
    assert re.search("'red'", found["deadletters"].to_pylist()[0]["detail"])


@pytest.mark.parametrize(
    ("time_ns", "expected"),
    [
        (0, "date=1970-01-01/hour=00"),
        (HOUR_NS - 1, "date=1970-01-01/hour=00"),
        (-1, "date=1969-12-31/hour=23"),
        (START_NS, "date=2023-11-14/hour=22"),
        (2**63 - 1, "date=2262-04-11/hour=23"),
    ],
)
def test_folders(time_ns: int, expected: str) -> None:
    assert folder("blue", time_ns) == f"tenant=blue/{expected}"
