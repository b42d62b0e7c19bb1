"""When a host was booted, from its log alone: what CLOCK_REALTIME showed when CLOCK_MONOTONIC showed so much.

linuxptp stamps its lines with seconds since boot, and klog with UTC. Where a klog line directly follows a
linuxptp line, `UTC - since boot` is their difference plus the time that passed between the two lines: a few
ms of log latency or any wait, never less than nothing (but for the millisecond that linuxptp cuts off). So
the least difference of many pairs is the nearest, and it is claimed to be good to BOUND_NS, no more.

Both clocks are slewed alike, so the difference is constant until CLOCK_REALTIME is stepped. Pairs are taken
in runs; a run whose least difference lies STEP_NS or more from that before begins a new map, and so does a
CLOCK_MONOTONIC that went back, a reboot, with a new epoch."""

from dataclasses import dataclass, field
from typing import Final

from producers.host.reading import NS

RUN: Final = 32  # pairs
RUN_MIN: Final = 8  # pairs that a shorter last run needs to count
STEP_NS: Final = 100_000_000
BOUND_NS: Final = 5_000_000
REBOOT_NS: Final = 60 * NS  # daemons' lines interleave, but not by that much


@dataclass(frozen=True)
class BootMap:
    """From line `from_line` on: `boot_ns` since boot is `unix_ns`, within `bound_ns` as far as is known."""

    from_line: int
    epoch: int
    boot_ns: int | None = None
    unix_ns: int | None = None
    bound_ns: int | None = None
    pairs: int = 0
    provenance: str = ""

    @property
    def ahead_ns(self) -> int | None:
        """CLOCK_REALTIME less CLOCK_MONOTONIC, if known."""
        return None if self.unix_ns is None or self.boot_ns is None else self.unix_ns - self.boot_ns


@dataclass
class _Run:
    line: int
    epoch: int
    boot_ns: int = 0
    unix_ns: int = 0
    least: int | None = None
    pairs: int = 0


@dataclass
class Boots:
    """The pairs of one host, in the order of the lines."""

    _latest_ns: int = -1
    _epoch: int = 0
    _starts: list[int] = field(default_factory=lambda: [0])
    _runs: list[_Run] = field(default_factory=list)

    @property
    def epoch(self) -> int:
        """How often the host was booted again so far."""
        return self._epoch

    def see(self, line: int, boot_ns: int) -> None:
        """A stamp since boot, at this line."""
        if boot_ns < self._latest_ns - REBOOT_NS:
            self._epoch += 1
            self._starts.append(line)
            self._latest_ns = boot_ns
        elif boot_ns > self._latest_ns:
            self._latest_ns = boot_ns

    def pair(self, line: int, boot_ns: int, unix_ns: int) -> None:
        """A klog line of this time directly after a line with this stamp since boot."""
        run = self._runs[-1] if self._runs else None
        if run is None or run.pairs >= RUN or run.epoch != self._epoch:
            run = _Run(line, self._epoch)
            self._runs.append(run)
        run.pairs += 1
        if run.least is None or unix_ns - boot_ns < run.least:
            run.least, run.boot_ns, run.unix_ns = unix_ns - boot_ns, boot_ns, unix_ns

    def maps(self) -> list[BootMap]:
        """The maps by first line; one without a reference pair where an epoch shows none."""
        out = []
        for epoch, start in enumerate(self._starts):
            runs = [run for run in self._runs if run.epoch == epoch]
            usable = [run for run in runs if run.pairs >= RUN_MIN] or runs
            groups: list[list[_Run]] = []
            for run in usable:
                assert run.least is not None
                if groups and abs(run.least - _least(groups[-1])) < STEP_NS:
                    groups[-1].append(run)
                else:
                    groups.append([run])
            if not groups:
                out.append(BootMap(start, epoch))
            for place, group in enumerate(groups):
                best = min(group, key=lambda run: run.unix_ns - run.boot_ns)
                spread = max(run.least - _least(group) for run in group if run.least is not None)
                pairs = sum(run.pairs for run in group)
                # One pair alone may have waited for any time between its two lines.
                bound_ns = max(BOUND_NS, 2 * spread) if pairs >= RUN_MIN else None
                first = start if place == 0 else group[0].line
                said = (
                    f"boot time from {pairs} klog lines directly after linuxptp's, by the least log latency"
                )
                out.append(BootMap(first, epoch, best.boot_ns, best.unix_ns, bound_ns, pairs, said))
        return out


def _least(runs: list[_Run]) -> int:
    return min(run.least for run in runs if run.least is not None)
