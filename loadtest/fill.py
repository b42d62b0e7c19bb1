"""The input: simulated events, made once, then encoded and published by the producers' own code."""

from dataclasses import dataclass
from typing import NamedTuple

from loadtest.ground import Ground
from loadtest.measure import Amounts, Load, Pass, Stopwatch
from producers.publisher import KafkaTransport, MemoryTransport, Publisher, Transport
from producers.sim.cluster import read
from producers.sim.options import SimOptions, SimReport
from producers.transport import Sent
from schemas.batch import Batch
from schemas.processor import Record
from tempotrace.clockwork import seeded

APPEND_MS = 1_767_225_600_000  # of the records in memory: any constant will do, as all sources end themselves


@dataclass(frozen=True)
class Filled:
    """A tenant's `events` on the broker, and the same records in memory."""

    load: Load
    tenant: str
    events: int
    records: list[Record]


class Timings(NamedTuple):
    """How long it took to make the batches, to encode them, and to publish them (which encodes them too)."""

    generate: Pass
    encode: Pass
    publish: Pass


def fill(ground: Ground, tenant: str, load: Load, options: SimOptions) -> tuple[Filled, Timings]:
    """Make the events of a simulation and publish them. Raises what publishing raises."""
    watch = Stopwatch()
    watch.start()
    batches = list(read(options, SimReport(), seeded(options.seed)))
    watch.lap()
    memory = MemoryTransport()
    encode_watch, encoder = _send(batches, memory, Stopwatch())
    sizes = sum(len(sent.key) + len(sent.value) for sent in memory.sent)
    amounts = Amounts(encoder.events, encoder.batches, encoder.batches, 0, sizes)
    publish_watch, publisher = _send(batches, KafkaTransport(ground.kafka), ground.stopwatch())
    assert publisher.acked == encoder.events
    timings = Timings(
        watch.measured(amounts), encode_watch.measured(amounts), publish_watch.measured(amounts)
    )
    return Filled(load, tenant, encoder.events, _records(memory.sent)), timings


def _send(batches: list[Batch], transport: Transport, watch: Stopwatch) -> tuple[Stopwatch, Publisher]:
    publisher = Publisher(transport)
    watch.start()
    for batch in batches:
        publisher.send(batch)
    publisher.close()
    watch.lap()
    return watch, publisher


def _records(sent: list[Sent]) -> list[Record]:
    return [
        Record("events", 0, offset, APPEND_MS, each.key, each.value, each.headers)
        for offset, each in enumerate(sent)
    ]
