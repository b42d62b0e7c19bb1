"""What a simulation is asked for, checked once, and what it tells besides its batches."""

import hashlib
from dataclasses import dataclass, field
from typing import Any

from producers.report import Report
from producers.sim.faults import DAY_NS, SCENARIOS, parse_fault
from producers.sim.rows import I64
from schemas.errors import Usage
from schemas.time import CLAIM_NS_MAX, NS, OUTSIDE, STAMP_NS_MAX, STAMP_NS_MIN

START_NS = 1_767_225_600 * NS  # 2026-01-01T00:00:00 TAI
HEARTBEAT_NS = 50_000_000
BATCH_EVENTS_MAX = 4096
STEP_NS_MIN = 5_000_000
# Not part of what an event is: how events are cut into batches and to whom they are sent.
_CUT = ("batch_events", "live", "tenant", "scope")


@dataclass(frozen=True)
class SimOptions:
    """Options of `produce sim`. `events` and `sources` are for the scenario `throughput` alone.

    Raises Usage when two of them do not fit.
    """

    scenario: str = "straggler+clock-fault"
    seed: int = 1
    hosts: int = 8
    ranks: int = 64
    seconds: float = 10.0
    step_ns: int = 50_000_000
    kernels: int = 5  # compute kernels a phase
    probe_ns: int = 100_000_000  # time between two probes of a host to the same peer
    host_bound_ns: int = 1_000
    faults: tuple[str, ...] = ()
    fabric: bool = False  # with INT reports of the job's flows
    events: int = 2_000_000
    sources: int = 64
    start_ns: int = START_NS
    batch_events: int = BATCH_EVENTS_MAX
    live: bool = False
    tenant: str = "default"
    scope: str = ""

    def __post_init__(self) -> None:
        if self.scenario not in SCENARIOS:
            raise Usage(f"no scenario {self.scenario!r}; there are {', '.join(SCENARIOS)}")
        if self.hosts < 1 or self.ranks < self.hosts or self.ranks % self.hosts:
            raise Usage(
                f"{self.ranks} ranks on {self.hosts} hosts: every host needs the same number, at least 1"
            )
        if not 0 < self.seconds <= 86_400:
            raise Usage(f"{self.seconds} seconds; a job lasts more than 0 and at most 86400")
        if not STEP_NS_MIN <= self.step_ns <= 10 * NS:
            raise Usage("a step lasts 5ms to 10s")
        if not 1 <= self.kernels <= 200:
            raise Usage(f"{self.kernels} kernels a phase; 1 to 200 are possible")
        if not 10_000_000 <= self.probe_ns <= 10 * NS:
            raise Usage("probes are sent every 10ms to 10s")
        if not 1 <= self.host_bound_ns <= CLAIM_NS_MAX:
            raise Usage("a clock bound is 1ns to 20000h")
        # A day for the job, and one for its clocks' faults.
        if not STAMP_NS_MIN + DAY_NS <= self.start_ns <= STAMP_NS_MAX - 2 * DAY_NS:
            raise Usage(f"the job would begin at a {OUTSIDE}, or too near to their ends")
        if not 1 <= self.batch_events <= 65_536:
            raise Usage(f"{self.batch_events} events a batch; 1 to 65536 are possible")
        if self.events < 1 or not 2 <= self.sources <= 60_000:
            raise Usage("throughput needs at least 1 event, and 2 to 60000 sources")
        if self.seed < 0:
            raise Usage("a seed is 0 or greater")
        for spec in self.faults:
            parse_fault(spec, self.ranks, self.hosts)

    @property
    def gpus(self) -> int:
        """GPUs (and ranks) a host."""
        return self.ranks // self.hosts

    @property
    def with_fabric(self) -> bool:
        """Whether INT reports are part of it."""
        return self.fabric or self.scenario == "fabric"

    def _digest(self, *more: str) -> bytes:
        parts = [f"{name}={value!r}" for name, value in sorted(vars(self).items()) if name not in _CUT]
        return hashlib.blake2b("\0".join([*parts, *more]).encode(), digest_size=8).digest()

    @property
    def scope_name(self) -> str:
        """The scope asked for, else `sim-` and a hash of scenario, seed and what else changes events."""
        return self.scope or f"sim-{self._digest().hex()[:8]}"

    @property
    def incarnation(self) -> int:
        """The same for the same events in the same scope (int63)."""
        return int.from_bytes(self._digest(self.scope_name), "little") >> 1


@dataclass
class SimReport(Report):
    """Counts, the faults and, where `keep_times` asks for it, when every event truly happened.

    `times`: by source, the true begins and ends of its rows in pieces (ns since the start), in order of seq.
    """

    truth: dict[str, Any] = field(default_factory=dict)
    keep_times: bool = False
    times: dict[str, list[tuple[I64, I64]]] = field(default_factory=dict)

    def keep(self, source: str, begin: I64, end: I64) -> None:
        """Note the true begin and end of the next rows of a source (ns since the start)."""
        self.times.setdefault(source, []).append((begin, end))

    def fields(self) -> dict[str, Any]:
        return {"faults": self.truth.get("faults", [])}
