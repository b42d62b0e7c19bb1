"""Who counts what is lost with a record: every event once, whoever else could not read it."""

import io
from typing import Any

import fastavro
import pytest

from schemas import codec, flat, records
from schemas.processor import Processor, Record
from schemas.records import DeadLetter
from sinks.lake import LakeProcessor
from tempotrace import wiring

HEADERS = (("tt-family", b"merged"), ("tt-count", b"40"))
BROKEN = Record("merged", 2, 8, 1_790_000_000_000, b"job", b"noise", HEADERS)


def letter_of(processor: Processor) -> DeadLetter:
    (output,) = processor.start(2, None).process(BROKEN)
    assert output.topic == "deadletter"
    assert dict(output.headers)["tt-count"] == b"0"
    return records.read(DeadLetter, codec.decode_record(output.value))


def test_events_of_a_broken_merged_record_count_once() -> None:
    readers: list[Processor] = [wiring.paths("default"), wiring.diagnosis("default")]
    letters = [letter_of(processor) for processor in readers]
    assert [(letter.events, letter.inputs, letter.offset) for letter in letters] == [(0, 1, 8)] * 2
    assert [letter.detail.split(":")[0] for letter in letters] == ["paths", "diagnosis"]
    lake = LakeProcessor("default").start(2, None)
    (row,) = lake.process(BROKEN)
    rows = row.value.to_pylist()
    for place, letter in enumerate(letters):
        record = Record("deadletter", 2, place, BROKEN.append_ms, None, codec.encode_record(letter))
        rows += lake.process(record)[0].value.to_pylist()
    assert [(row["events"], row["inputs"], row["log_offset"]) for row in rows] == [
        (40, 1, 8), (0, 1, 8), (0, 1, 8),
    ]  # fmt: skip
    assert lake.counters()["deadlettered"] == {("malformed",): 40}
    assert lake.counters()["unreadable"] == {("malformed",): 1}


@pytest.mark.parametrize("make", [wiring.paths, wiring.diagnosis])
def test_a_reader_of_merged_counts_records(make: Any) -> None:
    task = make("default").start(2, None)
    task.process(BROKEN)
    assert task.counters()["unreadable"] == {("malformed",): 1}
    assert "deadlettered" not in task.counters()


def test_a_letter_without_inputs_stands_for_one_record() -> None:
    """As written before the field was there; its schema is still shipped."""
    schemas = [avsc for avsc in codec._registry().values() if avsc["name"] == "DeadLetter"]
    (older,) = [avsc for avsc in schemas if "inputs" not in {field["name"] for field in avsc["fields"]}]
    letter = DeadLetter(
        tenant="t",
        reason="r",
        detail="d",
        topic="events",
        partition=0,
        offset=1,
        append_ms=2,
        events=3,
        payload=b"",
    )
    body = io.BytesIO()
    fastavro.schemaless_writer(body, fastavro.parse_schema(older), records.write(letter))
    payload = b"\xc3\x01" + flat.fingerprint(older) + body.getvalue()
    assert records.read(DeadLetter, codec.decode_record(payload)) == letter
