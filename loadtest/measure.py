"""A stopwatch, what one pass of a stage took, and the figures of a stage over its passes."""

import gc
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

CpuOf = Callable[[], float | None]


class Pass(NamedTuple):
    """One pass. Bytes are those of keys and values as the client sees them, before compression.

    `broker_cpu_seconds` is None where the broker is not a process of ours.
    """

    events: int
    seconds: float
    cpu_seconds: float
    broker_cpu_seconds: float | None
    records_in: int
    records_out: int
    bytes_in: int
    bytes_out: int


class Amounts(NamedTuple):
    """What a pass moved."""

    events: int
    records_in: int
    records_out: int
    bytes_in: int
    bytes_out: int


class Stopwatch:
    """Wall time, processor time of this process with all its threads, and that of the broker.

    From the first `start` to the last `lap`: work that was not committed does not count, nor do joining a
    group before and leaving it afterwards. `lap` may be called in another thread.
    """

    def __init__(self, broker_cpu: CpuOf = lambda: None) -> None:
        self._broker_cpu = broker_cpu
        self._begin: tuple[float, float, float | None] | None = None
        self._end: tuple[float, float, float | None] | None = None
        gc.collect()  # what an earlier stage left behind is not this one's to clear away

    def start(self) -> None:
        """Begin to measure; a second call changes nothing."""
        if self._begin is None:
            self._begin = self._now()

    def lap(self) -> None:
        """All that was done until now counts."""
        self._end = self._now()

    def measured(self, amounts: Amounts) -> Pass:
        """The pass, once started and lapped."""
        assert self._begin is not None
        assert self._end is not None
        (wall, cpu, broker), (wall_end, cpu_end, broker_end) = self._begin, self._end
        used = None if broker is None or broker_end is None else broker_end - broker
        return Pass(
            events=amounts.events,
            seconds=wall_end - wall,
            cpu_seconds=cpu_end - cpu,
            broker_cpu_seconds=used,
            records_in=amounts.records_in,
            records_out=amounts.records_out,
            bytes_in=amounts.bytes_in,
            bytes_out=amounts.bytes_out,
        )

    def _now(self) -> tuple[float, float, float | None]:
        return time.monotonic(), time.process_time(), self._broker_cpu()


@dataclass(frozen=True)
class Load:
    """A stream of events that stages are measured on; stages of one load compare with its own copy."""

    name: str  # "" is the one that matters most; others follow the stage's name
    scenario: str
    sources: int | None  # None: as many as the scenario has
    batch_events: int


@dataclass
class Stage:
    """A stage on one load, and its passes."""

    stage: str
    load: Load
    passes: list[Pass]

    @property
    def name(self) -> str:
        """The stage, with the load's name unless that is the main one."""
        return f"{self.stage}-{self.load.name}" if self.load.name else self.stage

    @property
    def events_per_s(self) -> float:
        """By the median pass."""
        return self.passes[0].events / self.seconds_median

    @property
    def seconds_median(self) -> float:
        """Of all passes."""
        return statistics.median(each.seconds for each in self.passes)

    @property
    def bytes_in_per_s(self) -> float:
        """By the median pass."""
        return self.passes[0].bytes_in / self.seconds_median

    def figures(self, copy: "Stage | None") -> dict[str, Any]:
        """As JSON tells it; `copy` is the bare copy of the same load."""
        one = self.passes[0]
        seconds = sorted(each.seconds for each in self.passes)
        millions = one.events / 1e6
        broker = [each.broker_cpu_seconds for each in self.passes if each.broker_cpu_seconds is not None]
        return {
            "name": self.name,
            "scenario": self.load.scenario,
            "sources": self.load.sources,
            "batch_events": self.load.batch_events,
            "events": one.events,
            "passes": len(self.passes),
            "seconds_median": self.seconds_median,
            "seconds_min": seconds[0],
            "seconds_max": seconds[-1],
            "events_per_s": self.events_per_s,
            "ns_per_event": 1e9 / self.events_per_s,
            "ratio_to_copy": None if copy is None else self.events_per_s / copy.events_per_s,
            "cpu_s_per_million": statistics.median(each.cpu_seconds for each in self.passes) / millions,
            "broker_cpu_s_per_million": statistics.median(broker) / millions if broker else None,
            "records_in": one.records_in,
            "records_out": one.records_out,
            "events_per_record": one.events / one.records_in,
            "bytes_in_per_event": one.bytes_in / one.events,
            "bytes_out_per_event": one.bytes_out / one.events,
        }


def find(stages: Sequence[Stage], stage: str, load: Load) -> Stage | None:
    """A stage on a load, if it was measured."""
    return next((each for each in stages if each.stage == stage and each.load == load), None)
