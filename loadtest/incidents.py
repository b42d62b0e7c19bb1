"""The one stage that takes records one at a time, by design: incidents, kept by Faust.

It is measured by what it leaves in the log: the append times of the first and the last incident that it wrote.
So its start, and what Faust does before the first record, do not count.
"""

import threading
from collections.abc import Iterator
from typing import Any, Final

from confluent_kafka import Producer

from loadtest.ground import Ground
from schemas import topics
from schemas.codec import encode_record
from schemas.records import Finding
from schemas.time import NS
from tempotrace.runtime.incidents import run_incidents
from tempotrace.runtime.reading import Reader

SCOPE: Final = "bench"
WINDOW_NS: Final = 100_000_000
ONSET_NS: Final = 1_767_225_600 * NS
LOOK_SECONDS: Final = 0.1
ANSWER_SECONDS_MAX: Final = 30.0


def incidents(ground: Ground, findings: int, stop: threading.Event) -> dict[str, Any] | None:
    """Open so many incidents, each by a finding of its own; None if stopped. `findings` must be 2 or more."""
    tenant = ground.tenant("findings")
    ground.groups.append(topics.incidents_app(tenant))
    _publish(ground, tenant, findings)
    done = threading.Event()  # the service sets it at its end, too
    watching = threading.Thread(target=_pass_on, args=(stop, done), daemon=True)
    watching.start()
    try:
        run_incidents(ground.kafka, tenant, 0, ground.folder, drain=True, stop=done)
    finally:
        done.set()
        watching.join()
    if stop.is_set():
        return None
    written = list(_append_ms(ground, tenant))
    assert len(written) == findings, f"{findings} findings gave {len(written)} incidents"
    seconds = (written[-1] - written[0]) / 1000
    return {"findings": findings, "seconds": seconds, "findings_per_s": (findings - 1) / seconds}


def _pass_on(stop: threading.Event, done: threading.Event) -> None:
    while not done.is_set():
        if stop.wait(LOOK_SECONDS):
            done.set()


def _publish(ground: Ground, tenant: str, findings: int) -> None:
    producer = Producer({**ground.kafka, "acks": "all", "enable.idempotence": True})
    name = topics.topic(tenant, "findings")
    for number in range(findings):
        record = encode_record(_finding(tenant, number))
        producer.produce(name, record, f"{SCOPE}/rank{number}".encode(), 0)
    left = producer.flush(ANSWER_SECONDS_MAX)
    assert left == 0, f"{left} findings were not acknowledged"


def _finding(tenant: str, number: int) -> Finding:
    start = ONSET_NS + number * WINDOW_NS
    return Finding(
        tenant=tenant,
        scope=SCOPE,
        finding_id=f"{number:016x}",
        fault_class="straggler",
        component_kind="rank",
        component=f"rank{number}",
        state="present",
        confidence=0.9,
        onset_ns=start,
        window_start_ns=start,
        window_end_ns=start + WINDOW_NS,
        victims=[],
        evidence="{}",
        origin_partition=0,
        origin_offset=number,
    )


def _append_ms(ground: Ground, tenant: str) -> Iterator[int]:
    """Append time of each record of `incidents`."""
    reader = Reader(ground.kafka, f"{topics.PREFIX}.{tenant}.times", topics.topic(tenant, "incidents"), 0, 0)
    try:
        while (message := reader.next()) is not None:
            yield int(message.timestamp()[1])
    finally:
        reader.close()
