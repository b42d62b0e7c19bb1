"""A GPU's timer mapped to its host: what every pair of readings leaves possible, with a hard bound.

Readings constrain (streams.clock.gpureads): no symmetry is assumed, so no delay can make a bound wrong.

Limits are declared, and named in the state's provenance: greatest rate against the host, greatest change of the
rate per second (wander), and `floor_ns`, the least time that both sides of a bracket take together. Within
them, the feasible set of (offset, rate) is bounded by two convex hulls (streams.kernels.feasible). What it
leaves is the bound: half its width, growing with the half-width of the feasible rates plus half of what they
can change within the horizon. (By the declared wander that is the whole, so two readings of one timer are held
to the same growth.)

Above its limits a clock must turn unknown, and not be wrong before that is seen:

1. the limits are judged as declared, and less the floor: a set narrower than what physics takes is empty;
2. the bound is taken from a second set with MARGIN times the limits, and without using the floor;
3. an empty set starts a new epoch, unknown until CONFIRM steps and `relock_s` have passed without another;
4. a state is *settled* by the CONFIRM steps after it; `broken` voids the states of as many steps before.

A state holds for `horizon_s` around the newest reading; beyond it there is none. Its anchor is that reading, or
as little before it as makes the set no wider than the best bracket of the window ever was.

Map bound and event bound differ: the map is of the timer itself; an event's stamp is a reading, centred in its
tick, which adds half of it (ADR 3 lets `diff_bound` do so from `quantum_ns`).
"""

import math
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from schemas.columns import Assurance, ClockKind, Status
from schemas.errors import Usage
from schemas.time import NS, ClockState
from streams.clock.gpureads import NONE, Constraints
from streams.kernels import feasible as kernel

I64 = NDArray[np.int64]
F64 = NDArray[np.float64]
MARGIN: Final = 2.0
JUMP_NS: Final = NS  # a step of this size is a reset, whatever the rate
_REBASE_S: Final = 100_000.0  # keeps a reading's float exact to 0.02 ns


@dataclass(frozen=True)
class Limits:
    """What is declared of a timer and of how it is read. Raises Usage where that can't be meant."""

    rate_ppb: float = 50_000.0
    wander_ppb_s: float = 20.0
    floor_ns: float = 0.0
    window_s: float = 120.0
    horizon_s: float = 2.0
    confirm: int = 64
    relock_s: float = 30.0

    def __post_init__(self) -> None:
        for name in ("rate_ppb", "wander_ppb_s", "window_s", "horizon_s"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value > 0):
                raise Usage(f"{name} of a GPU's clock is {value}: it must be positive")
        if not (self.floor_ns >= 0 and self.relock_s >= 0 and self.confirm >= 2):
            raise Usage("a GPU's clock needs floor_ns ≥ 0, relock_s ≥ 0 and confirm ≥ 2")
        if self.rate_ppb > 1e7:
            raise Usage(f"rate_ppb {self.rate_ppb:g}: no clock is off by more than 1 %")

    def array(self) -> F64:
        """As the kernel takes them."""
        out = np.zeros(kernel.LIMITS)
        out[[kernel.RATE, kernel.WANDER, kernel.SLACK]] = self.rate_ppb, self.wander_ppb_s, self.floor_ns
        out[[kernel.WINDOW, kernel.CONFIRM, kernel.RELOCK]] = self.window_s, self.confirm, self.relock_s
        out[[kernel.HORIZON, kernel.MARGIN]] = self.horizon_s, MARGIN
        return out


@dataclass(frozen=True)
class States:
    """The state after each step, as columns of shape (steps,). `host_ns` is the host's time of the reading
    `anchor_ns`, centred in its tick; bounds in ns; where `known` is false nothing else but `epoch` means
    anything. Widths are the feasible set's, at the anchor (twice the bound) and at the newest reading; `narrowest_ns`
    is the best bracket in the window.
    """

    known: NDArray[np.bool_]
    epoch: I64
    newest_ns: I64
    anchor_ns: I64
    host_ns: I64
    rate_ppb: F64
    bound_ns: I64
    growth_ppb: F64
    width_ns: F64
    newest_width_ns: F64
    narrowest_ns: F64
    broken: NDArray[np.bool_]
    horizon_ns: int
    tick_ns: int

    def map(self, step: I64, gpu_ns: I64) -> tuple[I64, I64]:
        """(host time, map bound) of readings by the state of a step each; the bound is NONE where there is none."""
        age = gpu_ns - self.anchor_ns[step]
        host = self.host_ns[step] + age + np.rint(age * (self.rate_ppb[step] * 1e-9)).astype(np.int64)
        grown = np.ceil(self.growth_ppb[step] * 1e-9 * np.abs(age)).astype(np.int64)
        known = self.known[step] & (np.abs(gpu_ns - self.newest_ns[step]) <= self.horizon_ns)
        # The line was rounded to whole nanoseconds twice: at its anchor, and here.
        return host, np.where(known, self.bound_ns[step] + grown + 1, NONE)

    def event_bound(self, map_bound_ns: I64) -> I64:
        """Bound of an event's stamp: that of the map and half a tick."""
        return np.where(map_bound_ns == NONE, NONE, map_bound_ns + (self.tick_ns + 1) // 2)

    def settled(self, confirm: int) -> NDArray[np.bool_]:
        """Which states the `confirm` steps after them left standing; those too near the end are not yet."""
        steps = np.arange(len(self.known))
        nearest = np.where(self.broken, steps, np.iinfo(np.int64).max)
        following = np.minimum.accumulate(nearest[::-1])[::-1]
        after = np.append(following[1:], np.iinfo(np.int64).max)
        out: NDArray[np.bool_] = self.known & (after - steps > confirm) & (steps + confirm < len(steps))
        return out


class Mapper:
    """One GPU timer against one parent clock, online: give it constraints as they come.

    `source` says in the provenance what was read. Keeps at most a few hundred points, whatever comes.
    """

    def __init__(
        self, clock_id: str, parent: str, tick_ns: int, limits: Limits | None = None, source: str = "reads"
    ) -> None:
        if tick_ns < 1:
            raise Usage(f"a tick of {tick_ns} ns")
        self.clock_id, self.parent, self.tick_ns = clock_id, parent, tick_ns
        self.limits = limits or Limits()
        self._source = source
        self._array = self.limits.array()
        self._hulls = np.empty((5, 2, kernel.POINTS_MAX))
        self._ends = np.zeros((5, 2), np.int64)
        self._book = np.zeros(kernel.BOOK)
        self._book[[kernel.SINCE, kernel.RESET, kernel.LAST]] = -np.inf
        self._origin: tuple[int, int] | None = None  # GPU, host
        self._newest: tuple[int, int] = (0, 0)
        self._last: States | None = None

    def add(self, given: Constraints) -> States:
        """Take steps, in order; gives the state after each."""
        gpu = np.where(given.upper_gpu != NONE, given.upper_gpu, given.lower_gpu)
        host = np.where(given.upper_host != NONE, given.upper_host, given.lower_host)
        parts = []
        for start, stop, reset in self._runs(gpu, host):
            if reset:
                self._restart(int(gpu[start]), int(host[start]))
            self._rebase(int(gpu[start]))
            parts.append(self._advance(Constraints(*(side[start:stop] for side in given)), reset))
        if not parts:
            return self._states(np.empty((0, kernel.OUT)))
        out = States(**{name: _joined(parts, name) for name in States.__dataclass_fields__})
        self._last = out
        return out

    def state(self, at_ns: int | None = None) -> ClockState:
        """The clock as the last step leaves it; unknown for a reading `at_ns` beyond the horizon."""
        last = self._last
        epoch = int(self._book[kernel.EPOCH])
        if last is None or not last.known[-1] or (
            at_ns is not None and abs(at_ns - int(last.newest_ns[-1])) > last.horizon_ns
        ):  # fmt: skip
            return ClockState(
                self.clock_id,
                epoch,
                self.parent,
                ClockKind.GPU_MAPPED,
                Status.UNKNOWN,
                quantum_ns=self.tick_ns,
                provenance=f"{self._source}: {self._why(last, at_ns)}",
            )
        anchor = int(last.anchor_ns[-1])
        return ClockState(
            self.clock_id,
            epoch,
            self.parent,
            ClockKind.GPU_MAPPED,
            Status.LOCKED,
            ref_ns=anchor,
            ref_parent_ns=int(last.host_ns[-1]),
            rate_ppb=float(last.rate_ppb[-1]),
            bound_ns=int(last.bound_ns[-1]) + 1,
            as_of_ns=anchor,
            growth_ppb=float(last.growth_ppb[-1]),
            quantum_ns=self.tick_ns,
            assurance=Assurance.HARD,
            provenance=self._assumptions(),
        )

    def _assumptions(self) -> str:
        each = self.limits
        return (
            f"feasible set of {self._source}; assumes rate ≤ {each.rate_ppb * 1e-3:g} ppm, wander ≤ "
            f"{each.wander_ppb_s:g} ppb/s, both bounded at {MARGIN:g} times that, ticks ≤ {self.tick_ns} ns; "
            f"void {each.horizon_s:g} s after the last reading"
        )

    def _why(self, last: States | None, at_ns: int | None) -> str:
        if last is None:
            return "nothing read yet"
        if last.known[-1] and at_ns is not None:
            return f"more than {self.limits.horizon_s:g} s from the last reading"
        if self._book[kernel.EPOCH]:
            return "the declared limits were contradicted, and are not confirmed again yet"
        return "too few readings yet"

    def _runs(self, gpu: I64, host: I64) -> list[tuple[int, int, bool]]:
        """Stretches (first, past the last, whether it begins with a reset) between jumps of either clock."""
        if not len(gpu):
            return []
        fresh = self._origin is None
        before = (int(gpu[0]), int(host[0])) if fresh else self._newest
        d_gpu, d_host = np.diff(gpu, prepend=before[0]), np.diff(host, prepend=before[1])
        drift = MARGIN * self.limits.rate_ppb * 1e-9 * np.abs(d_gpu)
        jumps = np.flatnonzero(np.abs((d_host - d_gpu).astype(np.float64)) > JUMP_NS + drift)
        starts = sorted({0, *jumps.tolist()})
        self._newest = (int(gpu[-1]), int(host[-1]))
        if fresh:
            self._origin = before
        resets = set(jumps.tolist())
        return [(a, b, a in resets) for a, b in zip(starts, [*starts[1:], len(gpu)], strict=True)]

    def _restart(self, gpu_ns: int, host_ns: int) -> None:
        """A jump: forget all, count from here."""
        self._origin = (gpu_ns, host_ns)
        self._ends[:] = 0
        self._book[kernel.EPOCH] += 1
        self._book[[kernel.STEPS, kernel.RESET]] = 0.0
        self._book[[kernel.SINCE, kernel.LAST]] = -np.inf

    def _rebase(self, gpu_ns: int) -> None:
        """Move the origin when it lies too far back."""
        assert self._origin is not None
        seconds = (gpu_ns - self._origin[0]) // NS
        if seconds < _REBASE_S:
            return
        self._origin = (self._origin[0] + seconds * NS, self._origin[1] + seconds * NS)
        self._hulls[:, 0] -= seconds
        self._book[[kernel.SINCE, kernel.RESET, kernel.LAST]] -= seconds

    def _advance(self, given: Constraints, reset: bool) -> States:
        assert self._origin is not None
        sides = []
        for gpu, host in (given[:2], given[2:]):
            there = gpu != NONE
            x = np.where(there, gpu - self._origin[0], 0)
            y = np.where(there, host - self._origin[1], 0) - x
            side = np.array([x * 1e-9, y.astype(np.float64)])
            side[:, ~there] = np.nan
            sides.append(side)
        out = np.empty((len(given.upper_gpu), kernel.OUT))
        kernel.advance(self._hulls, self._ends, self._book, self._array, sides[0], sides[1], out)
        if reset:
            out[0, kernel.BROKEN] = 1.0
        return self._states(out)

    def _states(self, out: F64) -> States:
        gpu0, host0 = self._origin or (0, 0)
        usable = ~np.isnan(out[:, kernel.ANCHOR])
        known = (out[:, kernel.STATUS] == 1.0) & usable & np.isfinite(out[:, kernel.BOUND])

        def whole(column: F64) -> I64:
            return np.where(known, column, 0.0).astype(np.int64)

        ahead = whole(np.rint(out[:, kernel.ANCHOR] * NS))
        slope = np.where(known, out[:, kernel.SLOPE], 0.0)
        centred = out[:, kernel.CENTRE] + 0.5 * self.tick_ns * (1 + slope * 1e-9)
        return States(
            known=known,
            epoch=np.nan_to_num(out[:, kernel.EPOCHS]).astype(np.int64),
            newest_ns=gpu0 + whole(np.rint(out[:, kernel.LATEST] * NS)),
            anchor_ns=gpu0 + ahead,
            host_ns=host0 + ahead + whole(np.rint(centred)),
            rate_ppb=slope,
            bound_ns=whole(np.ceil(out[:, kernel.BOUND]) + 1),
            growth_ppb=np.where(known, out[:, kernel.GROWTH], 0.0),
            width_ns=np.where(known, 2 * out[:, kernel.BOUND], np.nan),
            newest_width_ns=out[:, kernel.NEWEST],
            narrowest_ns=out[:, kernel.NARROWEST],
            broken=out[:, kernel.BROKEN] == 1.0,
            horizon_ns=round(self.limits.horizon_s * NS),
            tick_ns=self.tick_ns,
        )


def _joined(parts: list[States], name: str) -> Any:
    values = [getattr(part, name) for part in parts]
    return values[0] if len(values) == 1 or isinstance(values[0], int) else np.concatenate(values)
