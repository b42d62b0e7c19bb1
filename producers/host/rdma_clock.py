"""Clocks of RDMA devices: what a card's counter reads beside the host's clock, and what its completions are stamped.

Every interval gives up to three rows of the clock family, stamped by CLOCK_REALTIME before the reading:

- `rdma.clock`: the device's counter, read between two readings of the host's clock;
- `rdma.completion`: the raw stamp of a write from the device to itself, between its posting and its arrival;
- `rdma.wallclock`: the same completion by the card's wall clock (its PHC), where the driver gives that.

Each row's offset is clock − the middle of the bracket, its delay the bracket's width, its error half of that and
a tick: the clock was read within the bracket, so this error holds without any symmetry. The counter runs free
from an arbitrary start, so its offset is large, and only its change says anything.
"""

import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

from producers.batcher import Batcher, Emit
from producers.host import kernel_clock
from producers.host.kernel_clock import REALTIME
from producers.report import Report
from schemas.columns import ClockKindOfRow, Control
from schemas.errors import Setup
from schemas.pack import Head, Source

SYSFS: Final = Path("/sys/class/infiniband")
COMPLETION_SECONDS_MAX: Final = 0.01
FAILURES_MAX: Final = 10  # completions in a row that fail or do not come: then no more are asked for
STATE_SECONDS: Final = 1.0


class Clock(Protocol):
    """What is asked of the time; see tempotrace.clockwork."""

    def now_ns_utc(self) -> int: ...
    def monotonic(self) -> float: ...
    def wait(self, event: threading.Event, seconds: float) -> bool: ...


class Completion(Protocol):
    """One completion; see producers.host.verbs."""

    @property
    def number(self) -> int: ...
    @property
    def status(self) -> int: ...
    @property
    def ticks(self) -> int | None: ...
    @property
    def wallclock_ns(self) -> int | None: ...


class Loop(Protocol):
    """A queue pair that writes to itself."""

    def write(self) -> int: ...
    def poll(self) -> list[Any]: ...
    def close(self) -> None: ...


class Device(Protocol):
    """An open device."""

    name: str
    core_khz: int
    mask: int

    def ticks(self) -> int: ...
    def loop(self) -> Loop: ...
    def close(self) -> None: ...


class Binding(Protocol):
    """What gives devices."""

    def devices(self) -> list[str]: ...
    def open(self, name: str) -> Any: ...


class Found(NamedTuple):
    """A device as discovered. `why` says why it can't be used; rate and mask are 0 then."""

    name: str
    core_khz: int
    mask: int
    phc: str | None
    why: str = ""

    def text(self) -> str:
        """For people."""
        stamps = f"{self.core_khz / 1000:g} MHz, {self.mask.bit_length()} bits" if self.mask else "no stamps"
        return f"{self.name} ({self.why or stamps}{f', {self.phc}' if self.phc else ''})"


def phc_of(device: str, sysfs: Path = SYSFS) -> str | None:
    """The PHC of a device, such as `ptp0`; None if it has none, or several."""
    found = sorted(path.name for path in (sysfs / device / "device" / "ptp").glob("ptp[0-9]*"))
    return found[0] if len(found) == 1 else None


def discover(binding: Binding, sysfs: Path = SYSFS) -> list[Found]:
    """Every device here, opened once to be asked for its clock."""
    out = []
    for name in binding.devices():
        try:
            device = binding.open(name)
        except Setup as error:
            out.append(Found(name, 0, 0, phc_of(name, sysfs), str(error)))
            continue
        out.append(Found(name, device.core_khz, device.mask, phc_of(name, sysfs)))
        device.close()
    return out


class TickClock:
    """Raw stamps to ns: counts wraps of `mask`, in either direction, and keeps the ticks exact.

    Stamps may come a little out of order; two in a row must lie less than half the mask apart.
    Raises Setup for a device that stamps nothing or does not say how fast it counts.
    """

    def __init__(self, core_khz: int, mask: int) -> None:
        if mask <= 0 or mask & (mask + 1) or core_khz <= 0:
            raise Setup(
                f"the device gives no completion stamps (counter {core_khz} kHz, mask {mask:#x}): another "
                "firmware or driver may"
            )
        self._khz, self._mask = core_khz, mask
        self._last: int | None = None

    @property
    def tick_ns(self) -> int:
        """Greatest time that a tick stands for."""
        return -(-1_000_000 // self._khz)

    def ns(self, ticks: int) -> int:
        """ns since the counter's zero, of the middle of the tick's value: rounded down."""
        if self._last is None:
            self._last = ticks & self._mask
        else:
            ahead = (ticks - self._last) & self._mask
            self._last += ahead - (self._mask + 1 if ahead > self._mask // 2 else 0)
        return self._last * 1_000_000 // self._khz


@dataclass(frozen=True)
class Options:
    """Which device, the host whose clocks these are, how often."""

    device: str
    host: str
    interval_s: float = 0.1


@dataclass
class RdmaReport(Report):
    """Counts of the rows by form."""

    rows: dict[str, int] = field(default_factory=dict)
    device: str = ""

    def fields(self) -> dict[str, Any]:
        return {"device": self.device, "rows": dict(self.rows)}


class Sampler:
    """Samples one device: `run` it, then `close` it. Uses one thread."""

    def __init__(
        self,
        options: Options,
        head: Head,
        incarnation: int,
        binding: Binding,
        clock: Clock,
        report: RdmaReport,
        sysfs: Path = SYSFS,
    ) -> None:
        """Open the device. Raises Setup."""
        self._options, self._head, self._incarnation = options, head, incarnation
        self._clock, self._report = clock, report
        self._device: Device = binding.open(options.device)
        try:
            self._ticks = TickClock(self._device.core_khz, self._device.mask)
        except Setup:
            self._device.close()
            raise
        report.device = Found(
            options.device, self._device.core_khz, self._device.mask, phc_of(options.device, sysfs)
        ).text()
        self._loop: Loop | None = None
        try:
            self._loop = self._device.loop()
        except Setup as error:
            report.warn(f"{error}; the counter is read without completions")
        self._failures = 0
        self._counter = f"{options.host}/{options.device}"
        self._wall = f"{options.host}/{phc_of(options.device, sysfs) or f'{options.device}:wallclock'}"
        self._steps = kernel_clock.Steps(clock)
        self._epoch = 0
        self._source = self._state()
        self._state_at = clock.monotonic()

    @property
    def clock_id(self) -> str:
        """Name of the clock that stamps the rows."""
        return self._source.clock.clock_id

    def close(self) -> None:
        """Give the device back."""
        if self._loop is not None:
            self._loop.close()
        self._device.close()

    def run(self, emit: Emit, stop: threading.Event) -> None:
        """Sample until `stop`, then end the source. Blocks where `emit` does."""
        batcher = Batcher(self._head, emit, self._clock.monotonic)
        batcher.open([(Control.OPEN, 1, "hosts")])
        sample_at = self._clock.monotonic()
        while not stop.is_set():
            now = self._clock.monotonic()
            if now >= sample_at:
                self._sample(batcher)
                sample_at = max(sample_at + self._options.interval_s, now)
            if batcher.due:
                self._send(batcher)
            self._clock.wait(stop, max(min(sample_at, batcher.due_at) - self._clock.monotonic(), 0.0))
        self._send(batcher, final=True)

    def _sample(self, batcher: Batcher) -> None:
        before = self._clock.now_ns_utc()
        ticks = self._device.ticks()
        after = self._clock.now_ns_utc()
        found = [("rdma.clock", self._counter, before, self._ticks.ns(ticks), after)]
        if self._loop is not None:
            found += self._completion(self._loop)
        if self._steps.look():
            # Which side of the step these lie on can't be told.
            self._report.skip("the clock was stepped", len(found))
            self._send(batcher)
            self._epoch += 1
            self._source = self._state()
            return
        for name, entity, begun, reading, ended in found:
            width = ended - begun
            batcher.draft.row(
                self._source,
                begun,
                kind=ClockKindOfRow.READ,
                entity=entity,
                name=name,
                duration_ns=0,
                parent=self.clock_id,
                offset_ns=reading - (begun + ended) // 2,
                delay_ns=width,
                error_ns=width // 2 + 1 + self._ticks.tick_ns,
            )
            self._report.events += 1
            self._report.rows[name] = self._report.rows.get(name, 0) + 1

    def _completion(self, loop: Loop) -> list[tuple[str, str, int, int, int]]:
        """(form, clock, before, reading, after) of a write to itself."""
        before = self._clock.now_ns_utc()
        give_up_at = self._clock.monotonic() + COMPLETION_SECONDS_MAX
        found: Completion | None = None
        why = "a write did not complete"
        try:
            number = loop.write()
            while found is None and self._clock.monotonic() <= give_up_at:
                found = next((each for each in loop.poll() if each.number == number), None)
        except Setup as error:
            why = str(error)
        after = self._clock.now_ns_utc()
        if found is None or found.status:
            self._report.skip(why if found is None else f"a write failed with status {found.status}")
            self._failures += 1
            if self._failures == FAILURES_MAX:
                self._report.warn(f"{FAILURES_MAX} writes in a row failed; the counter is read without them")
                loop.close()
                self._loop = None
            return []
        self._failures = 0
        out = []
        if found.ticks is not None:
            out.append(("rdma.completion", self._counter, before, self._ticks.ns(found.ticks), after))
        if found.wallclock_ns is not None:
            out.append(("rdma.wallclock", self._wall, before, found.wallclock_ns, after))
        return out

    def _send(self, batcher: Batcher, final: bool = False) -> None:
        if self._clock.monotonic() - self._state_at > STATE_SECONDS:
            self._source, self._state_at = self._state(), self._clock.monotonic()
        batcher.send({self._source: self._clock.now_ns_utc()}, (), final)
        self._report.batches += 1

    def _state(self) -> Source:
        """The source, with the state of the clock that stamps it as of now."""
        clock = kernel_clock.realtime_state(
            self._options.host, self._clock.now_ns_utc(), self._epoch, kernel_clock.discipline()
        )
        assert clock.clock_id == f"{self._options.host}/{REALTIME}"
        return Source(f"{self._options.host}/rdma/{self._options.device}", self._options.host, clock, self._incarnation,
                      ordered=False, live=True)  # fmt: skip
