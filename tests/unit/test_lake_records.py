"""Paths, incidents, late rows, dead letters and the archive as tables of the lake."""

from dataclasses import replace

import numpy as np

from schemas import codec, pack, paths, records
from schemas import columns as c
from schemas.batch import encode_batch
from schemas.draft import Draft
from schemas.flat import Array
from schemas.processor import Record
from schemas.time import ClockState
from sinks.lake import LakeProcessor
from tests.lakes import fresh, take
from tests.parts import APPEND_MS, START_NS


def test_flows_and_links() -> None:
    strings = pack.Strings()
    text = {word: strings.index(word) for word in ("10.0.0.1", "10.0.0.2", "leaf", "a", "b", "c")}

    def fill(columns: tuple[c.Column, ...], count: int, **known: object) -> dict[str, Array]:
        out = {}
        for column in columns:
            dtype = np.dtype(column.dtype)
            default = np.nan if dtype.kind == "f" else np.iinfo(dtype).max
            if dtype.kind == "i":
                default = np.iinfo(dtype).min
            out[column.name] = np.array(known.get(column.name, [default] * count), dtype)
        return out

    data = fill(
        paths.FLOWS, 2, flow_id=[1, 2**64 - 1], flow_src=[text["10.0.0.1"]] * 2, flow_src_port=[4791, 65535],
        flow_path_first=[1, 0], flow_path_count=[2, 1], flow_path_source=[0, 4], flow_bytes=[10, 20],
    )  # fmt: skip
    data |= fill(paths.PATH, 3, path_link=[text["a"], text["b"], text["c"]], path_share=[1.0, 0.5, 0.25])
    data |= fill(paths.LINKS, 1, link_layer=[text["leaf"]], link_name=[text["a"]], link_bytes=[30])
    record = paths.Paths("default", "job", START_NS, START_NS + 1, strings.table, data)
    found = take(fresh(), "paths", paths.write(record))
    flows = found["flows"].to_pydict()
    assert flows["flow_id"] == [1, 2**64 - 1]
    assert flows["src"] == ["10.0.0.1"] * 2
    assert flows["dst"] == [None, None]
    assert flows["src_port"] == [4791, None]
    assert flows["path"] == [
        [{"link": "b", "share": 0.5}, {"link": "c", "share": 0.25}],
        [{"link": "a", "share": 1.0}],
    ]
    assert flows["path_source"] == ["observed", "candidates"]
    assert flows["agreement"] == [None, None]
    link = found["links"].to_pylist()[0]
    assert (link["layer"], link["link"], link["bytes"], link["flows"]) == ("leaf", "a", 30, None)
    assert (link["utilisation"], link["window_start_ns"]) == (None, START_NS)


INCIDENT = records.Incident(
    tenant="default", incident_id="i1", scope="job", fault_class="straggler", component_kind="rank",
    component="3", state="open", confidence=0.75, onset_ns=START_NS, detected_ns=START_NS + 5,
    resolved_ns=None, victims=["1", "2"], evidence='{"n": 1}', findings=2, through_ns=9, origin_partition=0,
    origin_offset=9,
)  # fmt: skip


def test_incidents_and_their_alerts() -> None:
    task = fresh()
    found = take(task, "incidents", codec.encode_record(INCIDENT))
    incident = found["incidents"].to_pylist()[0]
    assert (incident["class"], incident["victims"], incident["resolved_ns"]) == (
        "straggler",
        ["1", "2"],
        None,
    )
    alert = found["alerts"].to_pylist()[0]
    assert (alert["alert_id"], alert["at_ns"]) == ("i1-open", START_NS + 5)
    assert alert["text"] == "straggler of rank 3 found, confidence 0.75"
    update = replace(INCIDENT, state="update")
    assert take(task, "incidents", codec.encode_record(update), 1).keys() == {"incidents"}
    resolved = replace(INCIDENT, state="resolve", resolved_ns=START_NS + 50)
    again = LakeProcessor("default").start(1, task.snapshot())
    assert take(again, "incidents", codec.encode_record(resolved), 2)["alerts"].to_pylist()[0]["at_ns"] == (
        START_NS + 50
    )
    assert take(again, "incidents", codec.encode_record(resolved), 3).keys() == {"incidents"}


def test_late_rows_keep_their_identity() -> None:
    book, head_ = pack.SeqBook(), pack.Head("default", "job", "p", "gpu")
    source = pack.Source("rank0/main", "h", ClockState("h/CLOCK_REALTIME"), 77, rank=0)
    draft = Draft(head_, book)
    for at in range(3):
        draft.row(source, START_NS + at, kind=c.GpuKind.CPU_OP)
    late = take(fresh(), "late", encode_batch(draft.build()), 4)["late"].to_pylist()
    assert [(row["source"], row["incarnation"], row["seq"], row["raw_ns"]) for row in late] == [
        ("rank0/main", 77, seq, START_NS + seq) for seq in range(3)
    ]
    assert {(row["reason"], row["topic"], row["log_offset"]) for row in late} == {
        ("late", "tempotrace.default.late", 4)
    }


def test_dead_letters_and_the_archive() -> None:
    letter = records.DeadLetter(
        tenant="default", reason="malformed", detail="cut", topic="tempotrace.default.events", partition=2,
        offset=5, append_ms=APPEND_MS, events=3, payload=b"\x00x", inputs=7,
    )  # fmt: skip
    row = take(fresh(), "deadletter", codec.encode_record(letter))["deadletters"].to_pylist()[0]
    assert (row["topic"], row["partition"], row["log_offset"], row["payload"]) == (
        "tempotrace.default.events", 2, 5, b"\x00x",
    )  # fmt: skip
    assert (row["events"], row["inputs"]) == (3, 7)
    assert row["at_ns"] == APPEND_MS * 1_000_000 + 37_000_000_000
    kept = take(fresh(), "events", b"anything", 6)["archive"].to_pylist()[0]
    assert (kept["key"], kept["value"], kept["append_ms"], kept["log_offset"]) == (
        b"job",
        b"anything",
        APPEND_MS,
        6,
    )
    assert kept["headers"] == [{"name": "tt-count", "value": b"3"}, {"name": "tt-reason", "value": b"late"}]


def test_a_count_that_no_column_holds_counts_as_none() -> None:
    for count, events in ((b"9" * 30, 0), (b"-1", 0), (b"x", 0), (b"7", 7)):
        (output,) = fresh().process(
            Record("merged", 1, 0, APPEND_MS, b"job", b"noise", (("tt-count", count),))
        )
        assert (output.topic, output.value.to_pylist()[0]["events"]) == ("deadletters", events)
