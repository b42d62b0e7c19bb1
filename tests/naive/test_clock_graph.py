"""`diff_bound` on random graphs of clocks with true bounds: safe, symmetric, no wider than the plain sum."""

import math

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.columns import Assurance, Timescale
from schemas.draft import Draft
from schemas.pack import Head, SeqBook, Source
from schemas.time import NS, TAI, ClockState
from streams.clock.book import DEPTH, UNKNOWN, ClockBook

T0 = 1_796_099_200 * NS
SPAN = 100 * NS


class Graph:
    """Clocks in a tree below TAI, each with a true error against its parent that its statement allows."""

    def __init__(self, seed: int) -> None:
        self.rng = rng = np.random.default_rng(seed)
        self.clocks: list[ClockState] = []
        self.parent: list[int] = []
        self.error: list[tuple[float, float]] = []  # at as_of, and its growth per ns
        level: list[int] = []
        for k in range(int(rng.integers(2, 12))):
            above = [n for n in range(k) if level[n] < DEPTH - 1]
            parent = int(rng.choice(above)) if above and rng.random() < 0.7 else -1
            bound, growth = int(rng.integers(0, 100_000)), float(rng.choice([0.0, 20.0, 50_000.0]))
            as_of = T0 + int(rng.integers(0, SPAN))
            self.clocks.append(
                ClockState(
                    f"c{k}", parent=f"c{parent}" if parent >= 0 else TAI, timescale=Timescale.TAI, bound_ns=bound,
                    as_of_ns=as_of, growth_ppb=growth, quantum_ns=int(rng.choice([1, 8, 1000])),
                    assurance=Assurance.HARD,
                )
            )  # fmt: skip
            # At the edge of what the statement allows as often as not: that is where a bound must hold.
            share = float(rng.choice([-1.0, 1.0, rng.uniform(-1, 1)]))
            slope = growth * 1e-9 * float(rng.choice([-1.0, 1.0, rng.uniform(-1, 1)]))
            self.error.append((share * bound, slope if share * slope >= 0 else -slope))
            self.parent.append(parent)
            level.append(level[parent] + 1 if parent >= 0 else 0)

    def true_error(self, clock: int, at_ns: int) -> float:
        """Against TAI at a time: sums up to the root. It grows on both sides of as_of."""
        total = 0.0
        while clock >= 0:
            base, slope = self.error[clock]
            total += base + slope * abs(at_ns - (self.clocks[clock].as_of_ns or 0))
            clock = self.parent[clock]
        return total

    def chain(self, clock: int) -> list[ClockState]:
        """Its parents."""
        out = []
        while (clock := self.parent[clock]) >= 0:
            out.append(self.clocks[clock])
        return out

    def slots(self, book: ClockBook) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
        draft = Draft(Head("t", "s", "p", "probe"), SeqBook())
        for number, clock in enumerate(self.clocks):
            draft.row(Source(f"s{number}", "h", clock, 1), T0, kind=0)
            for parent in self.chain(number):
                draft.parent(parent)
        return book.slots_of(draft.build())


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 2**32))
def test_the_bound_of_a_difference_is_safe_symmetric_and_no_wider_than_the_sum(seed: int) -> None:
    graph, book = Graph(seed), ClockBook()
    slots = graph.slots(book).astype(np.int64)
    rng, n = graph.rng, 40
    a, b = rng.integers(0, len(slots), n), rng.integers(0, len(slots), n)
    at = T0 + rng.integers(0, SPAN, n)  # the same true moment on both: what differs is error alone
    # What each clock shows at that moment, rounded to its quantum.
    errors = []
    for clocks in (a, b):
        shown = []
        for clock, moment in zip(clocks.tolist(), at.tolist(), strict=True):
            quantum = graph.clocks[clock].quantum_ns
            reading = moment + round(graph.true_error(clock, moment))
            shown.append((reading + quantum // 2) // quantum * quantum - moment)
        errors.append(np.array(shown, np.int64))
    bounds = book.diff_bound(slots[a], at, slots[b], at, 1e-6)
    back = book.diff_bound(slots[b], at, slots[a], at, 1e-6)
    assert bounds.bound_ns.tolist() == back.bound_ns.tolist()
    assert bounds.assured.all()
    assert (bounds.bound_ns != UNKNOWN).all()
    # A stamp beside the moment by its own error ages its growth by no more than that: far below 1 ns here.
    assert (np.abs(errors[0] - errors[1]) <= bounds.bound_ns + 2).all(), f"seed {seed}"
    quanta = np.array([clock.quantum_ns for clock in graph.clocks])
    to_tai = book.bound_at(slots[a].astype(np.int32), at), book.bound_at(slots[b].astype(np.int32), at)
    same = a == b
    # bound_at grows a whole chain from one moment, so it is compared where growth cannot differ.
    still = np.array([_still(graph, int(k)) and _still(graph, int(j)) for k, j in zip(a, b, strict=True)])
    plain = to_tai[0] + to_tai[1] + (quanta[a] + quanta[b] + 1) // 2
    assert (bounds.bound_ns <= plain)[still & ~same].all()
    sums = np.array([_sum(graph, int(k), int(t)) for k, t in zip(a, at, strict=True)]) + np.array(
        [_sum(graph, int(k), int(t)) for k, t in zip(b, at, strict=True)]
    )
    assert (bounds.bound_ns <= sums + (quanta[a] + quanta[b] + 1) // 2)[~same].all()
    assert (bounds.bound_ns == quanta[a] * 2)[same].all()


def _still(graph: Graph, clock: int) -> bool:
    return not any(state.growth_ppb for state in [graph.clocks[clock], *graph.chain(clock)])


def _sum(graph: Graph, clock: int, at_ns: int) -> int:
    """The plain sum of all bounds up to TAI, each grown by its own age."""
    total = 0
    for state in [graph.clocks[clock], *graph.chain(clock)]:
        grown = math.ceil((state.growth_ppb or 0.0) * 1e-9 * abs(at_ns - (state.as_of_ns or 0)))
        total += (state.bound_ns or 0) + grown
    return total


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32))
def test_two_readings_of_one_clock_differ_by_its_rate_and_its_quanta(seed: int) -> None:
    graph, book = Graph(seed), ClockBook()
    slots = graph.slots(book).astype(np.int64)
    rng, n = graph.rng, 30
    clock = rng.integers(0, len(slots), n)
    t, u = T0 + rng.integers(0, SPAN, n), T0 + rng.integers(0, SPAN, n)
    bounds = book.diff_bound(slots[clock], t, slots[clock], u, 1e-6)
    for k in range(n):
        state = graph.clocks[int(clock[k])]
        drift = math.ceil((state.growth_ppb or 0.0) * 1e-9 * abs(int(t[k]) - int(u[k])))
        assert bounds.bound_ns[k] == 2 * state.quantum_ns + drift
        base, slope = graph.error[int(clock[k])]
        own = [base + slope * abs(int(at) - (state.as_of_ns or 0)) for at in (t[k], u[k])]
        assert abs(own[0] - own[1]) <= bounds.bound_ns[k] + 1
