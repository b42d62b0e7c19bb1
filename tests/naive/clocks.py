"""Clocks the obvious way: chains of statements up to a root, one stamp at a time."""

import math
from dataclasses import dataclass
from itertools import count

from schemas import columns as c
from schemas.time import NS, TAI, TAI_UTC_DEFAULT_S, ClockState, unix_to_tai


@dataclass(frozen=True)
class Chain:
    """A clock and its parents as a batch states them, from the stamp up; `leap_s` is TAI - UTC near the stamps."""

    clocks: tuple[ClockState, ...]
    leap_s: int

    @property
    def nodes(self) -> list[tuple[str, int]]:
        """(clock, epoch) up to the root: the last parent named, or TAI for a clock that counts it."""
        out = [(clock.clock_id, clock.epoch) for clock in self.clocks]
        top = self.clocks[-1]
        if top.parent is not None:
            out.append((top.parent, 0))
        elif top.timescale != c.Timescale.ARBITRARY:
            out.append((TAI, 0))
        return out

    def line(self, level: int = 0) -> tuple[int, int, float] | None:
        """(reading, TAI, rate) of the map from this level's clock to TAI; None if there is none."""
        clock = self.clocks[level]
        above: tuple[int, int, float] | None
        if level + 1 < len(self.clocks):
            above = self.line(level + 1)
        else:
            above = (0, 0, 0.0) if self.nodes[-1] == (TAI, 0) else None
        if clock.ref_ns is not None and clock.ref_parent_ns is not None and above is not None:
            reading, tai, rate = above
            gone = clock.ref_parent_ns - reading
            own = (clock.rate_ppb or 0.0) * 1e-9
            return clock.ref_ns, tai + gone + round(gone * rate), (1 + own) * (1 + rate) - 1
        if clock.timescale == c.Timescale.TAI:
            return 0, 0, 0.0
        if clock.timescale in (c.Timescale.UTC, c.Timescale.UTC_SMEARED):
            return 0, self.leap_s * NS, 0.0
        return None

    def tai(self, raw_ns: int, level: int = 0) -> int | None:
        """A reading of a clock of the chain in TAI."""
        line = self.line(level)
        if line is None:
            return None
        gone = raw_ns - line[0]
        return line[1] + gone + round(gone * (line[2] * 1e9 * 1e-9))

    def step(self, level: int, t_ns: int) -> int | None:
        """Bound of a clock of the chain to its parent at a time (TAI)."""
        clock = self.clocks[level]
        if clock.bound_ns is None or not clock.growth_ppb or clock.as_of_ns is None:
            return clock.bound_ns
        line = self.line(level)
        if line is None:
            return None  # a bound that grows from a moment that has no place in TAI
        as_of = line[1] + clock.as_of_ns - line[0]
        return clock.bound_ns + math.ceil(clock.growth_ppb * 1e-9 * abs(t_ns - as_of))

    def sure(self, level: int) -> tuple[c.Assurance, float | None]:
        """Assurance of a step, and how often it fails."""
        return self.clocks[level].assurance, self.clocks[level].epsilon

    def rate_ppb(self) -> float:
        """Rate of the clock against its parent, at most."""
        clock = self.clocks[0]
        return 0.0 if clock.as_of_ns is None else clock.growth_ppb or 0.0

    def to_tai(self, t_ns: int) -> int | None:
        """Bound to TAI."""
        nodes = self.nodes
        if nodes[-1] != (TAI, 0):
            return None
        steps = [self.step(level, t_ns) for level in range(len(self.clocks))]
        return None if None in steps else sum(step for step in steps if step is not None)


def chain_of(clock: ClockState, stated: list[ClockState], near_ns: int) -> Chain:
    """The chain of a clock among the clocks that a batch states. `near_ns`: a reading, for the leap table."""
    chain = [clock]
    by_name = {other.clock_id: other for other in stated}
    while chain[-1].parent in by_name:
        chain.append(by_name[chain[-1].parent or ""])
    leap_s = 0
    if clock.timescale in (c.Timescale.UTC, c.Timescale.UTC_SMEARED):
        leap_s = (unix_to_tai(near_ns) - near_ns) // NS
    return Chain(tuple(chain), leap_s or TAI_UTC_DEFAULT_S)


def diff_bound(
    a: Chain | None, a_ns: int, a_end: bool, b: Chain | None, b_ns: int, b_end: bool, epsilon_max: float
) -> tuple[int | None, bool]:
    """(greatest error of the difference of two stamps, whether it proves); None without a common root or bound."""
    if a is None or b is None:
        return None, False
    nodes_a, nodes_b = a.nodes, b.nodes
    if not nodes_a or not nodes_b:
        return None, False
    if nodes_a[0] == nodes_b[0]:
        drift = math.ceil(max(a.rate_ppb(), b.rate_ppb()) * 1e-9 * abs(b_ns - a_ns))
        return a.clocks[0].quantum_ns + b.clocks[0].quantum_ns + drift, True
    common = next((node for node in nodes_a if node in nodes_b), None)
    if common is None:
        return None, False
    total, epsilon, assured = 0, 0.0, True
    for chain, t_ns, nodes in ((a, a_ns, nodes_a), (b, b_ns, nodes_b)):
        for level in count():
            if nodes[level] == common:
                break
            step = chain.step(level, t_ns)
            if step is None:
                return None, False
            total += step
            assurance, fails = chain.sure(level)
            assured &= assurance != c.Assurance.CLAIMED
            if assurance == c.Assurance.STATISTICAL:
                epsilon += 1.0 if fails is None else fails
    quanta = a.clocks[0].quantum_ns * (1 + a_end) + b.clocks[0].quantum_ns * (1 + b_end)
    if max(a.clocks[0].quantum_ns, b.clocks[0].quantum_ns) > 1:
        total += math.ceil(quanta / 2)
    return total, assured and epsilon <= epsilon_max


def verdict(gap_ns: int, bound: tuple[int | None, bool]) -> c.Verdict:
    """What time says of an edge."""
    bound_ns, assured = bound
    if bound_ns is None:
        return c.Verdict.INFERRED
    if gap_ns < -bound_ns:
        return c.Verdict.VIOLATED
    return c.Verdict.PROVEN if assured and gap_ns > bound_ns else c.Verdict.INFERRED
