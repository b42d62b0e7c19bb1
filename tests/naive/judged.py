"""A clock's chain after the states had their word: as stated, with other bounds."""

import math
from typing import Any

from schemas import columns as c
from schemas.time import TAI
from tests.naive.clocks import Chain


class Judged(Chain):
    """A chain with nodes, steps (bound, growth ppb, as of TAI, assurance) and the bound to TAI of its own."""

    def __init__(
        self, chain: Chain, nodes: list[tuple[str, int]], steps: list[Any], at_most: Chain | None
    ) -> None:
        super().__init__(chain.clocks, chain.leap_s)
        object.__setattr__(self, "own", (nodes, steps, at_most))
        object.__setattr__(self, "stated", chain)

    own: tuple[list[tuple[str, int]], list[Any], Chain | None]
    stated: Chain

    def line(self, level: int = 0) -> tuple[int, int, float] | None:
        return self.stated.line(level)

    @property
    def nodes(self) -> list[tuple[str, int]]:
        return self.own[0]

    def step(self, level: int, t_ns: int) -> int | None:
        bound, growth, as_of, _, _ = self.own[1][level]
        if bound is None or not growth:
            return None if bound is None else int(bound)
        return int(bound + math.ceil(growth * 1e-9 * abs(t_ns - as_of)))

    def sure(self, level: int) -> tuple[c.Assurance, float | None]:
        return self.own[1][level][3], self.own[1][level][4]

    def rate_ppb(self) -> float:
        return float(self.own[1][0][1]) if self.own[1] else 0.0

    def to_tai(self, t_ns: int) -> int | None:
        nodes, steps, at_most = self.own
        line = self.line()
        assert line is not None
        dated = [step[2] for step in steps if step[0] is not None and step[1]]
        ref = dated[0] if dated and not line[2] else line[1]
        total, growth = None, 0.0
        if nodes and nodes[-1] == (TAI, 0) and all(step[0] is not None for step in steps):
            total = sum(step[0] + math.ceil(step[1] * abs(ref - step[2]) * 1e-9) for step in steps)
            growth = sum(step[1] for step in steps)
        stated = at_most.to_tai(ref) if at_most is not None else None
        if stated is not None and (total is None or stated < total):
            assert at_most is not None
            total, growth = stated, _growth(at_most)
        return None if total is None else total + math.ceil(growth * 1e-9 * abs(t_ns - ref))


def _growth(chain: Chain) -> float:
    return sum((clock.growth_ppb or 0.0) for clock in chain.clocks if clock.as_of_ns is not None)
