"""Live counters of a host's InfiniBand and RoCE ports, read from sysfs at a steady pace."""

import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Final, Protocol

from producers.fabric.counters import of_sysfs, sysfs_files
from producers.fabric.rows import FabricReport, Options, Reading, Sampler
from producers.host.kernel_clock import Steps, discipline, realtime_state
from schemas.batch import Batch
from schemas.codes import Control
from schemas.draft import Draft, control
from schemas.errors import MalformedInput
from schemas.network import Topology
from schemas.pack import Head, SeqBook, Source

ROOT: Final = Path("/sys/class/infiniband")


class Clock(Protocol):
    """What is asked of a clock (tempotrace.clockwork has one)."""

    def now_ns_utc(self) -> int: ...
    def monotonic(self) -> float: ...


class SysfsSampler:
    """Reads all ports every `every_s` seconds. A reading that fails is counted, and the next one is tried."""

    def __init__(
        self,
        root: Path,
        options: Options,
        node: str,
        topology: Topology | None,
        report: FabricReport,
        clock: Clock,
        incarnation: int,
        every_s: float = 1.0,
    ) -> None:
        """`node` is the host's name in the topology."""
        assert options.host is not None
        self._root, self._node, self._report, self._clock = root, node, report, clock
        self._every_s = every_s
        self._host = options.host
        self._head = Head(options.tenant, options.scope, f"fabric/{self._host}", "fabric")
        self._sampler = Sampler(topology, options, report)
        self._book = SeqBook()
        self._steps = Steps(clock)
        self._epoch = 0
        state = realtime_state(self._host, clock.now_ns_utc(), 0, discipline())
        self._source = Source(
            f"fabric/{self._host}/counters/{node}", self._host, state, incarnation, ordered=False, live=True
        )

    def run(self, emit: Callable[[Batch], None], stop: threading.Event) -> None:
        """Emit an `open` row, then a batch a reading, until `stop`."""
        emit(control(self._head.tenant, self._head.scope, self._head.publisher, [(Control.OPEN, 1, "hosts")]))
        due = self._clock.monotonic()
        while True:
            emit(self._sample())
            due += self._every_s
            if stop.wait(max(0.0, due - self._clock.monotonic())):
                break
        draft = Draft(self._head, self._book)
        draft.final(self._source)
        emit(draft.build())

    def _sample(self) -> Batch:
        now = self._clock.now_ns_utc()
        if self._steps.look():
            self._epoch += 1
        self._source = replace(self._source, clock=realtime_state(self._host, now, self._epoch, discipline()))
        draft = Draft(self._head, self._book)
        try:
            ports = of_sysfs(sysfs_files(self._root), str(self._root))
        except MalformedInput as error:
            self._report.skip("reading without a port")
            if str(error) not in self._report.warnings:
                self._report.warn(str(error))
        else:
            self._sampler.add(Reading(self._node, now, ports), draft, self._source)
        draft.watermark(self._source, now)
        self._report.events += len(draft)
        self._report.batches += 1
        return draft.build()
