"""A simulated GPU job as batches: true times first, then what each host's clocks made of them.

One publisher a host. A row is published once what it tells has ended (a profiler knows no sooner), so the low
watermark of a source is the begin of its first row that still runs, or the simulated time where none does.
Rows do not depend on how the time is cut: pace and the greatest batch change batches, never events.
"""

import threading
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import numpy as np

from producers.sim.clocks import Clocks
from producers.sim.fabric import Fabric, IntFamily
from producers.sim.families import (
    ClockFamily,
    Family,
    GpuFamily,
    ProbeFamily,
    host_name,
)
from producers.sim.faults import Fault, describe, scenario_faults
from producers.sim.job import COMPUTE, LANES, STREAM, THREAD, Job, Shape
from producers.sim.mesh import Daemons, Mesh
from producers.sim.options import HEARTBEAT_NS, SimOptions, SimReport
from producers.sim.rows import I64, Pending, Rows
from producers.sim.throughput import wide_stream
from producers.sim.writer import Writer
from schemas.batch import Batch
from schemas.pack import Source
from schemas.time import NS

COLLECTOR = "collector"
Chunk = tuple[int, list[Batch]]  # simulated time since the start (ns), and what is published at it


class Clock(Protocol):
    """What a paced run asks about the real time."""

    def now_ns_tai(self) -> int: ...
    def wait(self, event: threading.Event, seconds: float) -> bool: ...


class Stage(Protocol):
    """A part of the cluster that makes rows round by round."""

    @property
    def frontier_ns(self) -> float: ...
    def step(self) -> Rows: ...


def read(options: SimOptions, report: SimReport, rng: np.random.Generator) -> Iterator[Batch]:
    """All batches of a simulation, in time. `rng` alone decides what falls by chance."""
    for _, batches in chunks(options, report, rng):
        yield from batches


def paced(
    options: SimOptions,
    report: SimReport,
    rng: np.random.Generator,
    stop: threading.Event,
    clock: Clock,
) -> Iterator[Batch]:
    """All batches, each as its time comes by `clock`, from `options.start_ns` on.

    Blocks in between. When `stop` is set, what has begun is told to its end at once, and all sources end.
    """
    for now_ns, batches in chunks(options, report, rng, stop):
        while not stop.is_set():
            ahead = options.start_ns + now_ns - clock.now_ns_tai()
            if ahead <= 0:
                break
            clock.wait(stop, ahead / NS)
        yield from batches


def run(
    options: SimOptions,
    report: SimReport,
    rng: np.random.Generator,
    emit: Callable[[Batch], None],
    stop: threading.Event,
    clock: Clock,
) -> None:
    """Emit what `paced` gives, until it ends: the shape of a live producer."""
    for batch in paced(options, report, rng, stop, clock):
        emit(batch)


def chunks(
    options: SimOptions, report: SimReport, rng: np.random.Generator, stop: threading.Event | None = None
) -> Iterator[Chunk]:
    """The simulation cut into spans of time. With `stop` set, what has begun is ended and the job closed."""
    if options.scenario == "throughput":
        yield from wide_stream(options, report, rng, stop)
        return
    cluster = Cluster(options, report, rng)
    yield 0, cluster.begin()
    now, last = 0, round(options.seconds * NS)
    while now < last and not (stop is not None and stop.is_set()):
        now = min(now + cluster.span_ns, last)
        yield now, cluster.until(now)
    yield from cluster.end()


class Cluster:
    """Hosts, their job and their mesh, up to the simulated time that was asked for."""

    def __init__(self, options: SimOptions, report: SimReport, rng: np.random.Generator) -> None:
        fate, clock_rng, job_rng, mesh_rng, daemon_rng, fabric_rng = rng.spawn(6)
        self.options = options
        self.shape = shape = Shape(options.hosts, options.gpus, options.step_ns, options.kernels)
        self.faults: list[Fault] = scenario_faults(
            options.scenario, options.faults, fate, options.ranks, options.hosts, options.seconds
        )
        bounds = [options.host_bound_ns] * options.hosts
        names = [host_name(host) for host in range(options.hosts)]
        self.clocks = Clocks(names, options.gpus, options.start_ns, bounds, self.faults, clock_rng)
        job = Job(shape, self.faults, job_rng)
        mesh = Mesh(shape, options.probe_ns, self.faults, mesh_rng)
        daemons = Daemons(shape, self.clocks, bounds, daemon_rng)
        self._parts: list[tuple[Family, Stage, Pending]] = [
            (GpuFamily(job, options.incarnation), job, Pending()),
            (ProbeFamily(shape, options.incarnation), mesh, Pending()),
            (ClockFamily(), daemons, Pending()),
        ]
        self._now_ns = 0
        self._hosts = options.hosts
        self._writers = [self._writer(host, names[host], report) for host in range(options.hosts)]
        flows: list[dict[str, Any]] = []
        if options.with_fabric:
            source = options.hosts * shape.per_host
            fabric = Fabric(shape, source, options.start_ns, self.faults, fabric_rng)
            self._parts.append((IntFamily(fabric.flows), fabric, Pending()))
            self._writers.append(self._collector(source, fabric_rng, report))
            self._hosts += 1
            flows = [flow.told() for flow in fabric.flows]
        rows_a_step = options.gpus * len(job.events)
        full = options.batch_events / rows_a_step * options.step_ns
        self.span_ns = HEARTBEAT_NS if options.live else round(min(max(full, HEARTBEAT_NS), NS))
        report.truth.update(
            scenario=options.scenario,
            seed=options.seed,
            scope=options.scope_name,
            start_ns=options.start_ns,
            faults=describe(self.faults, options.start_ns),
            flows=flows,
        )

    def _writer(self, host: int, name: str, report: SimReport) -> Writer:
        options, shape, per_host = self.options, self.shape, self.clocks.per_host
        sources: list[Source] = []
        clock: list[int] = []

        def add(source: str, place: int, rank: int | None, ordered: bool = True) -> None:
            clock.append(host * per_host + place)
            sources.append(
                Source(
                    source,
                    name,
                    self.clocks.states[clock[-1]],
                    options.incarnation,
                    rank,
                    ordered,
                    options.live,
                )
            )

        for gpu in range(shape.gpus):
            rank = host * shape.gpus + gpu
            add(f"rank{rank}/thread {STREAM[THREAD]}", 1, rank)
            for lane in range(COMPUTE, LANES):
                add(f"rank{rank}/stream {STREAM[lane]}", 2 + gpu, rank)
        add(f"{name}/probe", 0, None)
        add(f"{name}/ptp4l", 0, None, ordered=False)
        add(f"{name}/phc2sys", 1, None, ordered=False)
        return Writer(
            f"sim/{name}",
            host,
            sources,
            host * shape.per_host,
            np.array(clock),
            host * per_host,
            self.clocks,
            options,
            report,
        )

    def _collector(self, number: int, rng: np.random.Generator, report: SimReport) -> Writer:
        """The publisher of INT reports, a host of its own."""
        options = self.options
        clocks = Clocks([COLLECTOR], 0, options.start_ns, [options.host_bound_ns], (), rng)
        source = Source(
            f"{COLLECTOR}/reports",
            COLLECTOR,
            clocks.states[0],
            options.incarnation,
            ordered=False,
            live=options.live,
        )
        name = f"sim/{COLLECTOR}"
        return Writer(
            name, options.hosts, [source], number, np.zeros(1, np.int64), 0, clocks, options, report
        )

    def begin(self) -> list[Batch]:
        """What each publisher sends first: the size of the job, and its sources."""
        out = []
        for writer in self._writers:
            out.append(writer.open(self.options.ranks, self._hosts))
            out.append(writer.heartbeat(np.zeros(len(writer), np.int64)))
        return out

    def until(self, now_ns: int) -> list[Batch]:
        """All that can be told at `now_ns` and was not told before, and a heartbeat of every publisher."""
        for _, stage, pending in self._parts:
            while stage.frontier_ns <= now_ns:
                pending.add(stage.step())
        self._now_ns = now_ns
        return self._publish(now_ns, final=False)

    def end(self) -> Iterator[Chunk]:
        """Steps and rounds that have begun, told to their end; then the end of all sources."""
        last = max(pending.last_end() for _, _, pending in self._parts)
        while self._now_ns + self.span_ns < last:
            self._now_ns += self.span_ns
            yield self._now_ns, self._publish(self._now_ns, final=False)
        self._now_ns = max(self._now_ns, last)
        yield self._now_ns, self._publish(self._now_ns, final=True)

    def _publish(self, now_ns: int, final: bool) -> list[Batch]:
        taken = [(family, pending.take(now_ns)) for family, _, pending in self._parts]
        low = np.full(sum(map(len, self._writers)), now_ns, np.int64)
        for _, _, pending in self._parts:
            pending.lower(low)
        parts: list[list[tuple[Family, Rows]]] = [[] for _ in self._writers]
        for family, rows in taken:
            if rows is not None:
                for host, share in self._by_host(rows):
                    parts[host].append((family, share))
        out: list[Batch] = []
        for writer, own in zip(self._writers, parts, strict=True):
            mine = low[writer.first : writer.first + len(writer)]
            for family, rows in own:
                out += writer.write(family, rows, mine, now_ns)
            out.append(writer.heartbeat(mine, final))
        return out

    def _by_host(self, rows: Rows) -> Iterator[tuple[int, Rows]]:
        """Rows of each host, in time; those of one source keep their order."""
        host: I64 = rows.source // self.shape.per_host
        order = np.lexsort((rows.begin, host))
        rows = rows.take(order)
        cuts = np.searchsorted(host[order], np.arange(self._hosts + 1))
        for number in range(self._hosts):
            if cuts[number] < cuts[number + 1]:
                yield number, rows.cut(int(cuts[number]), int(cuts[number + 1]))
