"""The run: which stage after which, on which load, and the result as one object.

Passes are interleaved (copy, merge in memory, merge, copy, ...), so that a machine that is slower for a while
slows all of them, and a ratio means something where a rate alone does not.
"""

import threading
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from loadtest import copying, machine, report
from loadtest.fill import Filled, fill
from loadtest.ground import Ground
from loadtest.incidents import incidents
from loadtest.measure import Load, Pass, Stage, find
from loadtest.stages import DRAIN, Means, Outcome, in_memory, into_lake, through_kafka, total
from producers.sim.options import SimOptions
from schemas import topics
from schemas.errors import Usage
from streams.causality.warm import warm_up as compile_kernels
from tempotrace import wiring
from tempotrace.clockwork import Clock

EVENTS, QUICK_EVENTS = 2_000_000, 100_000
BATCH_EVENTS: Final = (4096, 500)
PASSES: Final = 3
FABRIC_SECONDS, QUICK_FABRIC_SECONDS = 4.0, 0.5  # simulated; about 65,000 events each, with reports of hops
FABRIC_BATCH_EVENTS: Final = 4096
FINDINGS, QUICK_FINDINGS = 2_000, 200
FAULTS: Final = ("straggler:rank12:30%@{:g}s", "clock_step:host3:-250us@{:g}s")
WARM_EVENTS: Final = 50_000
PEERS: Final = "none yet: what other frameworks do with the same events is a comparison of its own"

Say = Callable[[str], None]


@dataclass(frozen=True)
class Plan:
    """What is measured. Raises Usage where that makes no sense."""

    events: int = EVENTS
    sources: int = 64
    batch_events: tuple[int, ...] = BATCH_EVENTS
    passes: int = PASSES
    seed: int = 1
    compression: str = "none"
    fabric_seconds: float = FABRIC_SECONDS
    findings: int = FINDINGS

    def __post_init__(self) -> None:
        if not 1 <= self.passes <= 100:
            raise Usage(f"{self.passes} passes; choose 1 to 100")
        if not self.batch_events or len(set(self.batch_events)) < len(self.batch_events):
            raise Usage("name at least one size of batches, and none twice")
        if self.compression not in {"none", "lz4", "zstd"}:
            raise Usage(f"--compression {self.compression}: none, lz4 or zstd")
        for batch_events in self.batch_events:
            self.throughput("", batch_events)

    def throughput(self, tenant: str, batch_events: int) -> SimOptions:
        """The load whose size is asked for: many sources, 20 % of the events on edges."""
        return SimOptions(
            scenario="throughput",
            events=self.events,
            sources=self.sources,
            batch_events=batch_events,
            seed=self.seed,
            tenant=tenant,
        )

    def fabric(self, tenant: str) -> SimOptions:
        """A training job with collectives, probes, clocks, INT reports, a straggler and a clock fault."""
        return SimOptions(
            scenario="fabric",
            seconds=self.fabric_seconds,
            faults=tuple(fault.format(self.fabric_seconds / 4) for fault in FAULTS),
            batch_events=FABRIC_BATCH_EVENTS,
            seed=self.seed,
            tenant=tenant,
        )


@dataclass
class Run:
    """A run in progress. A set `stop` ends it soon, with KeyboardInterrupt."""

    plan: Plan
    ground: Ground
    clock: Clock
    stop: threading.Event
    say: Say
    stages: list[Stage] = field(default_factory=list)
    findings: dict[Load, int] = field(default_factory=dict)  # that the last pass of diagnosis wrote

    def __post_init__(self) -> None:
        self._means = Means(self.ground, self.plan.compression, self.clock, self.stop)
        self._copies = self.ground.tenant("copies")

    def measure(self, at_start: dict[str, Any]) -> dict[str, Any]:
        """Everything, as the object that --json prints; `at_start`: machine.facts() before the broker ran."""
        self._warm_up()
        self._go_on("incidents")
        kept = incidents(self.ground, self.plan.findings, self.stop)
        if kept is None:
            raise KeyboardInterrupt
        loads = list(self._fill())
        for number in range(1, self.plan.passes + 1):
            for filled in loads:
                self._pass(filled, f"pass {number} of {self.plan.passes}")
        return self._result(at_start, kept)

    def _warm_up(self) -> None:
        """Let kernels be compiled, and the broker's JVM come up to speed, before anything counts."""
        self._go_on("warming up")
        compile_kernels()
        tenant = self.ground.tenant("warm")
        load = Load("warm", "throughput", None, BATCH_EVENTS[0])
        options = SimOptions("throughput", events=WARM_EVENTS, batch_events=load.batch_events, tenant=tenant)
        filled, _ = fill(self.ground, tenant, load, options)
        for act in (self._copy, self._merge, self._read):
            if act(filled) is None:
                raise KeyboardInterrupt

    def _fill(self) -> Iterator[Filled]:
        plan = self.plan
        for number, batch_events in enumerate(plan.batch_events):
            name = str(batch_events) if number else ""
            load = Load(name, "throughput", plan.sources, batch_events)
            yield self._filled(load, plan.throughput(self.ground.tenant(f"t{number}"), batch_events))
        load = Load("fabric", "fabric", None, FABRIC_BATCH_EVENTS)
        yield self._filled(load, plan.fabric(self.ground.tenant("fabric")))

    def _filled(self, load: Load, options: SimOptions) -> Filled:
        self._go_on(f"making events: scenario {load.scenario}, {load.batch_events} a batch")
        filled, timings = fill(self.ground, options.tenant, load, options)
        for stage, taken in timings._asdict().items():
            self._add(stage, load, taken)
        return filled

    def _pass(self, filled: Filled, text: str) -> None:
        """One pass of every stage on a load. `merged` then holds what this pass's merge wrote, alone."""
        load, tenant = filled.load, filled.tenant
        self._step("copy", filled, text, self._copy)
        self._step("merge-memory", filled, text, self._merge_in_memory)
        self.ground.empty(tenant, "merged")
        self._step("merge", filled, text, self._merge)
        if load.scenario == "throughput" and load.name:
            return  # other sizes of batches: what reads `merged` does not see them
        self._step("read", filled, text, self._read)
        self._step("paths", filled, text, self._paths)
        self._step("diagnosis", filled, text, self._diagnosis)
        self._step("lake", filled, text, self._lake)
        self._step("archive", filled, text, self._archive)

    def _step(self, stage: str, filled: Filled, text: str, act: Callable[[Filled], Pass | None]) -> None:
        name = Stage(stage, filled.load, []).name
        self._go_on(f"{text}: {name}")
        taken = act(filled)
        if taken is None:
            raise KeyboardInterrupt
        assert taken.events == filled.events, f"{name} took {taken.events} of {filled.events} events"
        self._add(stage, filled.load, taken)

    def _go_on(self, text: str) -> None:
        if self.stop.is_set():
            raise KeyboardInterrupt
        self.say(text)

    def _add(self, stage: str, load: Load, taken: Pass) -> None:
        known = find(self.stages, stage, load)
        if known is None:
            known = Stage(stage, load, [])
            self.stages.append(known)
        known.passes.append(taken)

    # The stages.

    def _copy(self, filled: Filled) -> Pass | None:
        source, target = topics.topic(filled.tenant, "events"), topics.topic(self._copies, "events")
        self.ground.empty(self._copies, "events")
        member = self.ground.member(filled.tenant, "copy")
        return copying.copy(
            self.ground.kafka,
            member,
            source,
            len(filled.records),
            target,
            DRAIN,
            self.plan.compression,
            self.clock,
            self.ground.stopwatch(),
            self.stop,
        )

    def _read(self, filled: Filled) -> Pass | None:
        source = topics.topic(filled.tenant, "merged")
        member = self.ground.member(filled.tenant, "read")
        return copying.read(
            self.ground.kafka, member, source, filled.events, self.ground.stopwatch(), self.stop
        )

    def _merge_in_memory(self, filled: Filled) -> Pass | None:
        return _whole(in_memory(wiring.merge(filled.tenant), filled.records, self.stop))

    def _merge(self, filled: Filled) -> Pass | None:
        return _whole(through_kafka(self._means, wiring.merge(filled.tenant), filled.tenant))

    def _paths(self, filled: Filled) -> Pass | None:
        return _taken(through_kafka(self._means, wiring.paths(filled.tenant), filled.tenant))

    def _diagnosis(self, filled: Filled) -> Pass | None:
        outcome = through_kafka(self._means, wiring.diagnosis(filled.tenant), filled.tenant)
        if outcome is not None:
            self.findings[filled.load] = total(outcome.counters, "findings")
        return _taken(outcome)

    def _lake(self, filled: Filled) -> Pass | None:
        outcome = into_lake(self._means, filled.tenant, "merged", filled.events)
        if outcome is not None:
            stored = total(outcome.counters, "events_out")
            assert stored == filled.events, f"the lake holds {stored} of {filled.events} events"
        return _taken(outcome)

    def _archive(self, filled: Filled) -> Pass | None:
        outcome = into_lake(self._means, filled.tenant, "events", filled.events)
        if outcome is not None:
            stored = total(outcome.counters, "rows_written")
            assert stored == len(filled.records), f"{stored} of {len(filled.records)} records archived"
        return _taken(outcome)

    # The result.

    def _result(self, at_start: dict[str, Any], kept: dict[str, Any]) -> dict[str, Any]:
        figures = [stage.figures(find(self.stages, "copy", stage.load)) for stage in self.stages]
        result = {
            "machine": at_start,
            "versions": machine.versions(),
            "parameters": asdict(self.plan),
            "stages": figures,
            "incidents": kept,
            "limits": [self._limit(stage) for stage in self.stages if stage.stage in report.LIMITS],
            "peers": [],
            "peers_note": PEERS,
        }
        return result | {"sentences": report.sentences(result, sum(self.findings.values()))}

    def _limit(self, stage: Stage) -> dict[str, Any]:
        return {
            "name": stage.name,
            "events_per_s": stage.events_per_s,
            "bytes_per_s": stage.bytes_in_per_s,
            "meaning": report.LIMITS[stage.stage],
        }


def _taken(outcome: Outcome | None) -> Pass | None:
    return None if outcome is None else outcome.taken


def _whole(outcome: Outcome | None) -> Pass | None:
    """The pass of a merge, once it is seen to have put out every event that it took."""
    if outcome is None:
        return None
    taken, out = outcome.taken.events, total(outcome.counters, "events_out")
    assert out == taken, f"the merge took {taken} events and put out {out}: {dict(outcome.counters)}"
    return outcome.taken
