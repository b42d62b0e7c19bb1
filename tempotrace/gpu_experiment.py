"""`tempotrace clock experiment gpu-map`: the map of GPU timers against simulated ones, whose truth is known.

Everything here is simulated (producers.sim.gputimer); nothing of it is a measurement of hardware. Five parts:

- `cases`: independent maps by ticks and jitter, each with events; violations of the map bound (at the timer's
  exact value) and of the event bound (at what a stamp shows) are counted apart, widths compared with brackets;
- `age`: reading stops, and pairs of events on two GPUs of a host are ordered by maps up to 64 s old;
- `overdriven`: timers beyond the declared limits. A state counts as wrong if it was settled and false; those that
  were false before their limits were seen to be broken are counted as `wrong_unsettled`;
- `residuals`: standard deviation of mapped less true time of events, by what was read.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from producers.sim import gputimer as sim
from streams.clock.gpumap import MARGIN, Limits, Mapper, States
from streams.clock.gpureads import NONE, brackets
from tempotrace import gpu_residuals
from tempotrace.clockwork import seeded

I64 = NDArray[np.int64]
F64 = NDArray[np.float64]

JITTERS: Final = {  # mean jitter there and back, in floors (both ways and a tick)
    "quiet": (0.03, 0.03),
    "busy": (0.5, 0.5),
    "one-sided": (0.02, 2.0),
    "congested": (2.5, 2.5),
}
READS: Final = 300
READ_EVERY_S: Final = 0.025
EVENTS: Final = 1_000
FLOOR_NS: Final = (200.0, 600.0)  # a way over PCIe
FLOOR_DECLARED_NS: Final = 400.0  # both ways
AGES_S: Final = (1, 4, 16, 64)
AGE_RUN_S: Final = 100.0
GAPS_LOG10_NS: Final = (2.0, 7.0)  # between the two events of a pair, either way round
OVER: Final = tuple(
    [("rate", factor) for factor in (1.5, 10.0)]
    + [("rate from 10 s on", factor) for factor in (1.5, 3.0, 10.0, 100.0)]
    + [("wander", factor) for factor in (3.0, 10.0, 30.0, 100.0, 1000.0)]
)
OVER_RUN_S: Final = 30.0


@dataclass(frozen=True)
class Settings:
    """How much of it to run."""

    maps: int = 10_200
    events: int = EVENTS
    seed: int = 1
    wander_ppb_s: float = 20.0


@dataclass(frozen=True)
class Run:
    """One simulated map: what was read, the states, and events with their true host times."""

    timer: sim.Timer
    reading: I64
    bracket_ns: F64  # tick-aware: of host stamps and of the timer, whose tick may last as the rate lets it
    floor_ns: float  # of a bracket, tick-aware
    states: States
    true_ns: F64
    stamp: I64
    exact: I64


def run(settings: Settings, progress: Any = None) -> dict[str, Any]:
    """All parts; `progress`, if any, is called with a share from 0 to 1."""
    tell = progress or (lambda share: None)
    limits = Limits(wander_ppb_s=settings.wander_ppb_s, floor_ns=FLOOR_DECLARED_NS)
    places = [(ticks, jitter) for ticks in sim.TICKS for jitter in JITTERS]
    each = max(1, -(-settings.maps // len(places)))
    few, more = max(2, each // 8), max(len(sim.TICKS) * len(JITTERS), each // 3)
    cases = []
    for number, (ticks, jitter) in enumerate(places):
        cases.append(_case(settings, limits, ticks, jitter, each, settings.seed * 1000 + number))
        tell(0.7 * (number + 1) / len(places))
    age = [
        entry
        for number, ticks in enumerate(sim.TICKS)
        for entry in _age(settings, limits, ticks, few, settings.seed * 1000 + 100 + number)
    ]
    tell(0.8)
    over = [
        _overdriven(settings, limits, kind, factor, more, settings.seed * 1000 + 200 + number)
        for number, (kind, factor) in enumerate(OVER)
    ]
    tell(0.95)
    residuals = [
        entry
        for number, ticks in enumerate(sim.TICKS)
        for entry in gpu_residuals.residuals(
            seeded(settings.seed * 1000 + 300 + number), ticks, settings.wander_ppb_s, few, settings.events
        )
    ]
    return {
        "simulated": True,
        "maps": sum(case["maps"] for case in cases),
        "events": sum(case["events"] for case in cases),
        "map_violations": sum(case["map_violations"] for case in cases),
        "event_violations": sum(case["event_violations"] for case in cases),
        "parameters": {
            "seed": settings.seed,
            "rate_ppm_declared": limits.rate_ppb / 1e3,
            "wander_ppb_s_declared": limits.wander_ppb_s,
            "floor_ns_declared": limits.floor_ns,
            "reads": READS,
            "read_every_s": READ_EVERY_S,
            "confirm": limits.confirm,
        },
        "cases": cases,
        "age": age,
        "overdriven": over,
        "residuals": residuals,
    }


def _path(rng: np.random.Generator, jitter: str, tick_ns: int) -> sim.Path:
    there, back = rng.uniform(*FLOOR_NS, 2)
    floor = there + back + tick_ns
    return sim.Path((there, back), (JITTERS[jitter][0] * floor, JITTERS[jitter][1] * floor))


def _mapped(
    rng: np.random.Generator,
    timer: sim.Timer,
    path: sim.Path,
    limits: Limits,
    moments_ns: F64,
    true_ns: F64,
) -> Run:
    before, reading, after = sim.exchange(timer, path, rng, moments_ns)
    mapper = Mapper("host/gpu", "host/CLOCK_REALTIME", timer.tick_ns, limits, "simulated brackets")
    given = brackets(before, reading, after, timer.tick_ns)
    return Run(
        timer,
        reading,
        (after + 1 - before).astype(np.float64) + timer.tick_ns * (1 + MARGIN * limits.rate_ppb * 1e-9),
        sum(path.floor_ns) + timer.tick_ns,
        mapper.add(given),
        true_ns,
        timer.read(true_ns),
        timer.exact(true_ns),
    )


def _steps(made: Run) -> I64:
    """The step whose state an event gets live: the last reading before it."""
    return np.searchsorted(made.reading, made.stamp, side="right") - 1


def _violations(made: Run, step: I64) -> tuple[NDArray[np.bool_], NDArray[np.bool_], I64]:
    """Of each event: whether the map's bound is false, whether the event's is, and the map's bound (or NONE)."""
    host, bound = made.states.map(step, made.stamp)
    known = bound != NONE
    event = known & (np.abs(host - made.true_ns) > made.states.event_bound(bound))
    # The map holds the middle of a tick against a reading: the exact timer is that reading and half a tick.
    at, exact_bound = made.states.map(step, made.exact - made.states.tick_ns // 2)
    # The exact value is itself cut off to 1 ns.
    false = (exact_bound != NONE) & (np.abs(at - made.true_ns) > exact_bound + 1)
    return false, event, bound


def _case(
    settings: Settings, limits: Limits, ticks: str, jitter: str, maps: int, seed: int
) -> dict[str, Any]:
    rng = seeded(seed)
    run_s = READS * READ_EVERY_S
    false_map = false_event = unknown = broken = 0
    at_anchor, at_newest, bounds, event_bounds = [], [], [], []
    against_median, loud = [], []
    for _ in range(maps):
        timer = sim.Timer.draw(rng, ticks, settings.wander_ppb_s, run_s)
        moments = sim.moments(rng, READS, READ_EVERY_S)
        true = rng.uniform(moments[limits.confirm], moments[-1] + READ_EVERY_S * 1e9, settings.events)
        made = _mapped(rng, timer, _path(rng, jitter, timer.tick_ns), limits, moments, true)
        step = _steps(made)
        wrong_map, wrong_event, bound = _violations(made, step)
        false_map += int(wrong_map.sum())
        false_event += int(wrong_event.sum())
        known = bound != NONE
        unknown += int((~known).sum())
        states = made.states
        broken += int(states.broken.any())
        held = states.known
        best = np.minimum.accumulate(made.bracket_ns)
        at_anchor.append(float(np.max(states.width_ns[held] / best[held])))
        at_newest.append(float(states.newest_width_ns[-1] / best[-1]))
        median = float(np.median(made.bracket_ns))
        against_median.append(float(states.width_ns[-1]) / median)
        loud.append(median - made.floor_ns >= 2 * made.floor_ns)
        bounds.append(float(np.median(bound[known])))
        event_bounds.append(float(np.median(states.event_bound(bound[known]))))
    ratio, is_loud = np.array(against_median), np.array(loud)
    return {
        "ticks": ticks,
        "jitter": jitter,
        "maps": maps,
        "events": maps * settings.events,
        "map_violations": false_map,
        "event_violations": false_event,
        "unknown": unknown,
        "maps_broken": broken,
        "map_bound_ns": float(np.median(bounds)),
        "event_bound_ns": float(np.median(event_bounds)),
        "width_over_narrowest_max": round(max(at_anchor), 6),
        "newest_width_over_narrowest_median": float(np.median(at_newest)),
        "width_over_median": float(np.median(ratio)),
        "loud_maps": int(is_loud.sum()),
        "loud_width_over_median_max": float(ratio[is_loud].max()) if is_loud.any() else None,
    }


def _age(settings: Settings, limits: Limits, ticks: str, pairs: int, seed: int) -> Iterator[dict[str, Any]]:
    """Two GPUs of a host, read for a while and then no more: pairs of events by age of the maps."""
    rng = seeded(seed)
    old = replace(limits, horizon_s=float(max(AGES_S)) + 1)
    reads_s = AGE_RUN_S - max(AGES_S) - 1
    moments_count = int(reads_s / READ_EVERY_S)
    counts = {age: np.zeros(6, np.int64) for age in AGES_S}
    printed: dict[int, list[float]] = {age: [] for age in AGES_S}
    for _ in range(pairs):
        mapped: dict[int, list[tuple[F64, I64, I64, F64]]] = {age: [] for age in AGES_S}
        moments = sim.moments(rng, moments_count, READ_EVERY_S)
        first = moments[-1] + np.repeat(AGES_S, settings.events) * 1e9
        apart = 10 ** rng.uniform(*GAPS_LOG10_NS, len(first)) * rng.choice((-1.0, 1.0), len(first))
        for number in range(2):
            timer = sim.Timer.draw(rng, ticks, settings.wander_ppb_s, AGE_RUN_S)
            path = _path(rng, "busy", timer.tick_ns)
            true = first if number == 0 else first + apart
            made = _mapped(rng, timer, path, old, moments, true)
            last = np.full(len(true), len(moments) - 1)
            host, bound = made.states.map(last, made.stamp)
            once = made.stamp - made.reading[0] + moments[0]  # one offset, taken at the first reading
            for place, age in enumerate(AGES_S):
                part = slice(place * settings.events, (place + 1) * settings.events)
                mapped[age].append((true[part], host[part], made.states.event_bound(bound[part]), once[part]))
        for age, (one, other) in mapped.items():
            gap = other[0] - one[0]
            seen = other[1] - one[1]
            bound = one[2] + other[2]
            beyond = np.abs(seen) > bound
            printed[age].append(float(np.median(bound)))
            counts[age] += (
                len(gap),
                int(beyond.sum()),
                int((beyond & (np.sign(seen) != np.sign(gap))).sum()),
                int((np.sign(seen) != np.sign(gap)).sum()),
                int((np.sign(other[3] - one[3]) != np.sign(gap)).sum()),
                int((np.abs(seen - gap) > bound).sum()),
            )
    for age, (pairs_seen, apart_count, inverted, inverted_any, inverted_once, false) in counts.items():
        yield {
            "ticks": ticks,
            "age_s": age,
            "pairs": int(pairs_seen),
            "pair_bound_ns": float(np.median(printed[age])),
            "pairs_apart": int(apart_count),
            "inverted_apart": int(inverted),
            "bound_violations": int(false),
            "inverted_share_by_map": float(inverted_any / pairs_seen),
            "inverted_share_by_one_offset": float(inverted_once / pairs_seen),
        }


def _overdriven(
    settings: Settings, limits: Limits, kind: str, factor: float, maps: int, seed: int
) -> dict[str, Any]:
    rng = seeded(seed)
    reads = int(OVER_RUN_S / READ_EVERY_S)
    events = wrong = live = unknown = seen = 0
    for number in range(maps):
        ticks = tuple(sim.TICKS)[number % len(sim.TICKS)]
        jitter = tuple(JITTERS)[number % len(JITTERS)]
        wander = settings.wander_ppb_s * (factor if kind == "wander" else 1.0)
        rate = limits.rate_ppb * factor if kind == "rate" else None
        timer = sim.Timer.draw(rng, ticks, wander, OVER_RUN_S, rate)
        if kind == "rate from 10 s on":
            timer = timer.with_step(10.0, limits.rate_ppb * factor, 0.5)
        moments = sim.moments(rng, reads, READ_EVERY_S)
        true = rng.uniform(moments[limits.confirm], moments[-1], settings.events)
        made = _mapped(rng, timer, _path(rng, jitter, timer.tick_ns), limits, moments, true)
        step = _steps(made)
        live += int(_violations(made, step)[1].sum())
        # What is settled is mapped by the reading after it, once those that follow have left it standing.
        after = np.minimum(step + 1, reads - 1)
        stands = made.states.settled(limits.confirm)[after]
        _, false, bound = _violations(made, after)
        wrong += int((false & stands).sum())
        unknown += int((~(stands & (bound != NONE))).sum())
        events += len(true)
        seen += int(made.states.broken.any())
    return {
        "limit": kind,
        "factor": factor,
        "maps": maps,
        "events": events,
        "wrong": wrong,
        "wrong_unsettled": live,
        "unknown_share": unknown / events,
        "maps_seen": seen,
    }
