"""Clocks of a simulated cluster: what each reads at a true time, and what its daemon states.

Each host has a PHC `<host>/ptp0` (TAI, ±host bound), its system clock `<host>/CLOCK_REALTIME` (UTC, steered
after the PHC) and one clock a GPU `<host>/gpu<n>` (the device timer as the profiler maps it onto the PHC), so
two GPUs of a host meet at the PHC and two hosts at TAI.

An error is an offset, a slow swing (what looks like a rate for minutes) and a faster wander, all three within
0.8 of the stated bound: the statement is true by construction, at every time and without any state, until a
fault adds more. A reading is a monotonic function of true time but where a fault steps it back.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from producers.sim.faults import CLOCK_CLASSES, Fault
from schemas.columns import Assurance, ClockKind, Status, Timescale
from schemas.time import NS, TAI, TAI_UTC_DEFAULT_S, ClockState

I64 = NDArray[np.int64]
F64 = NDArray[np.float64]

REALTIME_BOUND_NS = 200
GPU_BOUND_NS = 700
HELD = 0.8  # share of the stated bound that an error ever reaches
_SLOW_S, _FAST_S = (60.0, 600.0), (2.0, 20.0)  # range of the periods of the slow swing and the wander


@dataclass(frozen=True)
class Errors:
    """Errors of `n` clocks against their parents, as parameters of shape (n,): ns, ns, rad/ns, rad, ..."""

    offset: F64
    slow: tuple[F64, F64, F64]  # amplitude, angular rate, phase
    fast: tuple[F64, F64, F64]

    @classmethod
    def draw(cls, bound_ns: F64, rng: np.random.Generator) -> "Errors":
        """Errors that stay within HELD of the bounds: the three shares of each clock add up to at most 1."""
        share = rng.dirichlet((1.0, 1.0, 1.0), len(bound_ns)) * HELD * bound_ns[:, None]
        sign = np.where(rng.random(len(bound_ns)) < 0.5, -1.0, 1.0)

        def swing(amplitude: F64, period_s: tuple[float, float]) -> tuple[F64, F64, F64]:
            period = np.exp(rng.uniform(np.log(period_s[0]), np.log(period_s[1]), len(bound_ns)))
            return amplitude, 2 * np.pi / (period * NS), rng.uniform(0, 2 * np.pi, len(bound_ns))

        return cls(sign * share[:, 0], swing(share[:, 1], _SLOW_S), swing(share[:, 2], _FAST_S))

    def at(self, clock: I64, true_ns: I64) -> F64:
        """Error (ns) of each clock named by index at each true time since the start. Shapes (k,), (k,)."""
        out = self.offset[clock]
        for amplitude, rate, phase in (self.slow, self.fast):
            out += amplitude[clock] * np.sin(rate[clock] * true_ns + phase[clock])
        return out


class Clocks:
    """All clocks of a cluster: host·(2 + gpus) is a host's PHC, + 1 its system clock, + 2 + n GPU n's."""

    def __init__(
        self,
        hosts: Sequence[str],
        gpus: int,
        start_ns: int,
        host_bound_ns: Sequence[int],
        faults: Sequence[Fault],
        rng: np.random.Generator,
    ) -> None:
        self.per_host = 2 + gpus
        self.hosts = len(hosts)
        self._start_ns = start_ns
        bounds = np.empty((self.hosts, self.per_host))
        bounds[:, 0] = host_bound_ns
        bounds[:, 1] = REALTIME_BOUND_NS
        bounds[:, 2:] = GPU_BOUND_NS
        self.errors = Errors.draw(bounds.ravel(), rng)
        nominal = np.full(bounds.shape, start_ns, np.int64)
        nominal[:, 1] -= TAI_UTC_DEFAULT_S * NS
        self._nominal: I64 = nominal.ravel()
        # (host, onset, size) of each fault that shifts a PHC, and with it all that is steered after it.
        self._shifts = [(f.place, f.onset_ns, round(f.size)) for f in faults if f.name in CLOCK_CLASSES]
        self.states = [
            self._state(host, place, round(bounds[number, place]))
            for number, host in enumerate(hosts)
            for place in range(self.per_host)
        ]

    def _state(self, host: str, place: int, bound_ns: int) -> ClockState:
        """What the daemon of a clock states. It holds until a fault."""
        realtime = place == 1
        names = ("ptp0", "CLOCK_REALTIME")
        reading = self._start_ns - (TAI_UTC_DEFAULT_S * NS if realtime else 0)
        return ClockState(
            clock_id=f"{host}/{names[place] if place < 2 else f'gpu{place - 2}'}",
            parent=TAI if place == 0 else f"{host}/ptp0",
            kind=ClockKind.GPU_MAPPED if place > 1 else ClockKind.PTP_HW,
            status=Status.LOCKED,
            timescale=Timescale.UTC if realtime else Timescale.TAI,
            utc_offset_s=TAI_UTC_DEFAULT_S,
            utc_offset_valid=True,
            ref_ns=reading,
            ref_parent_ns=self._start_ns,
            rate_ppb=0.0,
            bound_ns=bound_ns,
            as_of_ns=reading,
            growth_ppb=0.0,
            assurance=Assurance.HARD,
            provenance="simulated: the error is held within the bound",
        )

    def read(self, clock: I64, true_ns: I64) -> I64:
        """What clocks (by index) read at true times (ns since the start): raw stamps. Shapes (k,), (k,)."""
        host = clock // self.per_host
        phc = host * self.per_host
        error = self.errors.at(phc, true_ns)
        below = np.flatnonzero(clock != phc)
        error[below] += self.errors.at(clock[below], true_ns[below])
        out: I64 = self._nominal[clock] + true_ns + np.rint(error).astype(np.int64)
        for place, onset, size in self._shifts:
            out[(host == place) & (true_ns >= onset)] += size
        return out

    def lasted(self, clock: I64, begin_ns: I64, end_ns: I64) -> I64:
        """How long something took by clocks that were read at its true begin and end; at least 0.

        Wander within one event is left out: it is far below a clock's bound.
        """
        out: I64 = end_ns - begin_ns
        host = clock // self.per_host
        for place, onset, size in self._shifts:
            out[(host == place) & (begin_ns < onset) & (end_ns >= onset)] += size
        return np.maximum(out, 0)

    def floor(self, clock: I64, true_ns: I64) -> I64:
        """The least that clocks will read at or after true times: `read` less what a fault steps back."""
        out = self.read(clock, true_ns)
        host = clock // self.per_host
        for place, onset, size in self._shifts:
            if size < 0:
                out[(host == place) & (true_ns < onset)] += size
        return out
