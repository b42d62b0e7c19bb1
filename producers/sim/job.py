"""A training job in true time: what each rank's host thread and GPU do, before any clock is read.

A step has four phases. In each, a rank's compute kernels run on stream 7 one after the other, then a
collective kernel on stream 20 begins; it ends on all members a transfer time after the last of them began.
The host thread launches the whole step ahead and then waits for its last collective.

    phase 1   all-to-all over `ep<n>`, the ranks with place n on each host
    phase 2   all-gather over `world`
    phase 3   all-reduce over `tp<h>`, the ranks of host h
    phase 4   all-reduce over `world`, on which the host thread waits

A group's delay reaches others through the next collective only, and each smaller group is followed by
`world`: so a slow rank is the last to arrive in all its collectives and makes nobody else the last. (In other
orders its neighbours are late as victims: work for the diagnosis, but not for a plain scenario.)
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from producers.sim.faults import Fault
from producers.sim.rows import Rows
from schemas.columns import GpuKind, Op

F64 = NDArray[np.float64]
I64 = NDArray[np.int64]

THREAD, COMPUTE, COMMUNICATION = 0, 1, 2  # lanes: the three sources of a rank
LANES = 3
PROBE, PTP4L, PHC2SYS = 0, 1, 2  # the sources of a host beside its ranks' lanes
HOST_SOURCES = 3
STREAM = {THREAD: 1, COMPUTE: 7, COMMUNICATION: 20}
KERNELS = (
    "gemm_bf16_256x128_nn",
    "flash_attention_fwd",
    "layer_norm",
    "gemm_bf16_128x256_tn",
    "elementwise_add",
)
_WEIGHT = (0.35, 0.25, 0.05, 0.3, 0.05)  # share of a phase, by the kernel's place modulo 5
_JITTER = 0.03  # of a kernel's length: sigma of its logarithm


class Collective(NamedTuple):
    """The collective that ends a phase. `group`: world, tp or ep."""

    op: Op
    name: str
    group: str
    transfer_ns: float
    bytes: int


PHASES = (
    Collective(Op.ALL_TO_ALL, "ncclDevKernel_SendRecv", "ep", 120_000, 16 << 20),
    Collective(Op.ALL_GATHER, "ncclDevKernel_AllGather_RING_LL", "world", 200_000, 64 << 20),
    Collective(Op.ALL_REDUCE, "ncclDevKernel_AllReduce_Sum_bf16_RING_LL", "tp", 100_000, 32 << 20),
    Collective(Op.ALL_REDUCE, "ncclDevKernel_AllReduce_Sum_bf16_RING_LL", "world", 400_000, 128 << 20),
)


class Event(NamedTuple):
    """One event of a rank's step. `device`: its (or its target's) place among the step's device events."""

    lane: int
    kind: GpuKind
    name: str
    device: int
    collective: Collective | None = None


@dataclass(frozen=True)
class Shape:
    """Size of a job. A step lasts about `step_ns`; a phase has `kernels` compute kernels."""

    hosts: int
    gpus: int
    step_ns: int
    kernels: int

    @property
    def ranks(self) -> int:
        return self.hosts * self.gpus

    @property
    def per_host(self) -> int:
        """Sources of a host: three lanes a rank, then its probe socket and its two clock daemons."""
        return LANES * self.gpus + HOST_SOURCES

    def lane(self, rank: I64, lane: I64) -> I64:
        """Numbers of ranks' lanes among all sources of the cluster."""
        return rank * LANES + lane + rank // self.gpus * HOST_SOURCES

    def service(self, host: I64, service: int) -> I64:
        """Numbers of hosts' probe sockets or daemons among all sources of the cluster."""
        return host * self.per_host + LANES * self.gpus + service

    def members(self, collective: Collective) -> int:
        """Number of ranks in one of the collective's groups."""
        return {"world": self.ranks, "tp": self.gpus, "ep": self.hosts}[collective.group]

    def events(self) -> tuple[Event, ...]:
        """The events of one rank in one step, by lane and in program order: the same in every step."""
        device: list[Event] = []
        for collective in PHASES:
            for place in range(self.kernels):
                name = KERNELS[place % len(KERNELS)]
                device.append(Event(COMPUTE, GpuKind.KERNEL, name, len(device)))
            if self.members(collective) > 1:
                event = Event(COMMUNICATION, GpuKind.COLLECTIVE, collective.name, len(device), collective)
                device.append(event)
        launches = [Event(THREAD, GpuKind.RUNTIME, "cudaLaunchKernel", event.device) for event in device]
        wait = Event(THREAD, GpuKind.RUNTIME, "cudaStreamSynchronize", -1)
        return (
            *launches,
            wait,
            *(event for event in device if event.lane == COMPUTE),
            *(event for event in device if event.lane == COMMUNICATION),
        )


class Job:
    """Runs the job step by step. Times are ns since the start."""

    def __init__(self, shape: Shape, faults: Sequence[Fault], rng: np.random.Generator) -> None:
        self.shape = shape
        self.events = shape.events()
        self._rng = rng
        self._stragglers = [fault for fault in faults if fault.name == "straggler"]
        self._slow = [fault for fault in faults if fault.name == "slow_link"]
        self._device = sorted((e for e in self.events if e.lane != THREAD), key=lambda e: e.device)
        spent = sum(c.transfer_ns for c in PHASES if shape.members(c) > 1) + 40_000
        phase_ns = (shape.step_ns - spent) / len(PHASES)
        weight = np.array([_WEIGHT[place % len(_WEIGHT)] for place in range(shape.kernels)])
        self._kernel_ns = phase_ns * weight / weight.sum()
        assert phase_ns > 0, "a step must outlast its collectives"
        self.steps = 0
        # All have just left the barrier with which a job begins.
        self._thread_free: F64 = rng.uniform(0, 50_000, shape.ranks)
        self._compute_free: F64 = np.zeros(shape.ranks)
        self._communication_free: F64 = np.zeros(shape.ranks)

    @property
    def frontier_ns(self) -> float:
        """No event of the next step begins before it."""
        return float(self._thread_free.min())

    def step(self) -> Rows:
        """Simulate one step of all ranks. `more` holds `event` (index into `events`) and `step`."""
        ranks, device = self.shape.ranks, self._device
        rng, count = self._rng, len(device)
        length = 3_000 + 2_000 * rng.random((ranks, count))
        gap = 1_000 + 2_000 * rng.random((ranks, count))
        first = self._thread_free + 20_000 * np.exp(0.2 * rng.standard_normal(ranks))
        launched = first[:, None] + np.cumsum(length + gap, axis=1) - (length + gap)
        ready = launched + 2_000 + 2_500 * np.exp(0.3 * rng.standard_normal((ranks, count)))
        noise = np.exp(_JITTER * rng.standard_normal((ranks, count)))
        begin = np.empty((ranks, count))
        end = np.empty((ranks, count))
        kernel = 0
        for place, event in enumerate(device):
            if event.collective is None:
                at = np.maximum(self._compute_free, ready[:, place])
                lasts = self._kernel_ns[kernel % self.shape.kernels] * noise[:, place]
                kernel += 1
                for fault in self._stragglers:
                    if at[fault.place] >= fault.onset_ns:
                        lasts[fault.place] *= 1 + fault.size
                until = at + lasts
                self._compute_free = until + 500
            else:
                at = np.maximum(self._communication_free, ready[:, place])
                at = np.maximum(at, self._compute_free)
                until = self._transfer(event.collective, at)
                self._communication_free = until + 500
                # The next phase's first kernel waits for the collective's event.
                self._compute_free = until + 1_000
            begin[:, place] = at
            end[:, place] = until
        waits = launched[:, -1] + length[:, -1] + 1_500
        returns = np.maximum(waits, end.max(axis=1)) + 4_000 + 2_000 * rng.random(ranks)
        self._thread_free = returns + 5_000
        return self._rows(launched, launched + length, waits, returns, begin, end)

    def _transfer(self, collective: Collective, at: F64) -> F64:
        """When a collective that its members entered at `at` (ranks,) ends on each of them."""
        shape, rng = self.shape, self._rng
        entered = at.reshape(shape.hosts, shape.gpus)
        axis = {"world": (0, 1), "tp": (1,), "ep": (0,)}[collective.group]
        last = entered.max(axis=axis, keepdims=True)
        lasts = collective.transfer_ns * np.exp(0.05 * rng.standard_normal(last.shape))
        if collective.group != "tp":
            for fault in self._slow:
                lasts = np.where(last >= fault.onset_ns, lasts * fault.size, lasts)
        ends: F64 = last + lasts + 1_500 * rng.random(entered.shape)
        return ends.ravel()

    def _rows(self, launched: F64, returned: F64, waits: F64, returns: F64, begin: F64, end: F64) -> Rows:
        """The step's arrays of shape (ranks, launches or device events) as rows, by rank and event."""
        ranks, width = self.shape.ranks, len(self.events)
        order = [event.device for event in self.events if event.lane != THREAD]
        rank = np.repeat(np.arange(ranks), width)
        event = np.tile(np.arange(width), ranks)
        lane = np.array([event.lane for event in self.events])
        begins = np.concatenate([launched, waits[:, None], begin[:, order]], axis=1)
        ends = np.concatenate([returned, returns[:, None], end[:, order]], axis=1)
        more = {"event": event, "step": np.full(len(event), self.steps)}
        self.steps += 1
        return Rows(
            self.shape.lane(rank, lane[event]),
            begins.ravel().astype(np.int64),
            ends.ravel().astype(np.int64),
            more,
        )
