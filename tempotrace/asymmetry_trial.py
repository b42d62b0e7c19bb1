"""A simulated leaf-spine fabric on which the correction of asymmetry, and the blame of a link, are tried.

Hosts hang off leaves, leaves off every spine; each directed link has its own propagation delay, each switch port a
queue. Every message picks its spine by ECMP. Truth is known: the clocks' offsets, each packet's residence, the faulty
link. Only what telemetry would show reaches the code that is tried: stamps in ticks, residences in ticks.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from streams.clock import asymmetry, attribution
from streams.clock.asymmetry import Packets
from streams.clock.misorder import bisect
from tempotrace.chart import Chart, Curve

I64 = NDArray[np.int64]
F64 = NDArray[np.float64]
TICK_NS: Final = 8
TIMES: Final = (0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 7.0, 10.0)
SHARES: Final = (1.0, 0.5, 0.0)  # of messages whose own residence was reported
FAULTLESS: Final = 0.2
SWITCHES: Final = 3
EXCHANGES: Final = 240  # two-way, in each period: ten for each pair of hosts on different leaves
_OTHERS: Final = 12  # reported packets of others on each path in each period


@dataclass(frozen=True)
class Fabric:
    """Sizes, with directed links numbered: hosts' ways up, ways down, leaf → spine, spine → leaf."""

    leaves: int = 4
    spines: int = 3
    per_leaf: int = 2

    @property
    def hosts(self) -> int:
        return self.leaves * self.per_leaf

    @property
    def links(self) -> int:
        return 2 * self.hosts + 2 * self.leaves * self.spines

    def route(self, sender: I64, receiver: I64, spine: I64) -> I64:
        """The four links of each message, in order; shape (n, 4)."""
        up, down = 2 * self.hosts, 2 * self.hosts + self.leaves * self.spines
        first = up + (sender // self.per_leaf) * self.spines + spine
        second = down + (receiver // self.per_leaf) * self.spines + spine
        return np.stack([sender, first, second, self.hosts + receiver], axis=1)

    def path(self, sender: I64, receiver: I64, spine: I64) -> I64:
        """A number for each route."""
        return (sender * self.hosts + receiver) * self.spines + spine

    def name(self, link: int) -> str:
        """What a link is called."""
        hosts, middle = self.hosts, self.leaves * self.spines
        if link < 2 * hosts:
            host = link % hosts
            leaf = host // self.per_leaf
            return f"h{host}>leaf{leaf}" if link < hosts else f"leaf{leaf}>h{host}"
        leaf, spine = divmod((link - 2 * hosts) % middle, self.spines)
        return f"leaf{leaf}>spine{spine}" if link < 2 * hosts + middle else f"spine{spine}>leaf{leaf}"


@dataclass(frozen=True)
class Legs:
    """One-way messages with all their truth. `queue_ns` (n, 3): time in each switch."""

    sender: I64
    receiver: I64
    spine: I64
    links: I64
    queue_ns: F64


def _ticks(ns: F64) -> I64:
    return np.floor(ns / TICK_NS).astype(np.int64) * TICK_NS


def _pairs(fabric: Fabric, count: int, rng: np.random.Generator) -> tuple[I64, I64]:
    """Hosts of different leaves."""
    first = rng.integers(0, fabric.hosts, count)
    leaf = (first // fabric.per_leaf + rng.integers(1, fabric.leaves, count)) % fabric.leaves
    return first, leaf * fabric.per_leaf + rng.integers(0, fabric.per_leaf, count)


def _legs(fabric: Fabric, sender: I64, receiver: I64, level: F64, rng: np.random.Generator) -> Legs:
    """Route each message by ECMP and let it wait: exponentially, by its port's `level` (one a link)."""
    spine = rng.integers(0, fabric.spines, len(sender))
    links = fabric.route(sender, receiver, spine)
    wait = 400.0 + rng.exponential(1.0, (len(sender), SWITCHES)) * level[links[:, 1:]]
    return Legs(sender, receiver, spine, links, wait)


def _measured(legs: Legs, rng: np.random.Generator) -> I64:
    """Residence as switches stamp it: ingress and egress, each in ticks of a clock with its own phase."""
    begin = rng.uniform(0, 1e6, legs.queue_ns.shape)
    return np.asarray((_ticks(begin + legs.queue_ns) - _ticks(begin)).sum(axis=1), np.int64)


def _reports(fabric: Fabric, level: F64, rng: np.random.Generator) -> Packets:
    """Packets of others on every path: what an estimate has to go by. Their keys match nothing."""
    pair = np.array([(a, b) for a in range(fabric.hosts) for b in range(fabric.hosts)])
    pair = pair[pair[:, 0] // fabric.per_leaf != pair[:, 1] // fabric.per_leaf]
    sender, receiver = np.repeat(pair, _OTHERS * fabric.spines, axis=0).T
    spine = np.tile(np.repeat(np.arange(fabric.spines), _OTHERS), len(pair))
    links = fabric.route(sender, receiver, spine)
    wait = 400.0 + rng.exponential(1.0, (len(sender), SWITCHES)) * level[links[:, 1:]]
    legs = Legs(sender, receiver, spine, links, wait)
    key = np.arange(len(sender), dtype=np.uint64) + np.uint64(1 << 40)
    path = fabric.path(sender, receiver, spine)
    return Packets(key, path, np.zeros(len(sender), np.int64), _measured(legs, rng))


def _known(
    fabric: Fabric, legs: Legs, share: float, level: F64, rng: np.random.Generator
) -> asymmetry.Residence:
    """Residence of each leg: `share` of them reported themselves, the others estimated."""
    key = np.arange(len(legs.sender), dtype=np.uint64)
    path = fabric.path(legs.sender, legs.receiver, legs.spine)
    mine = rng.random(len(key)) < share
    own = _measured(legs, rng)
    others = _reports(fabric, level, rng) if not mine.all() else None
    parts = [Packets(key[mine], path[mine], np.zeros(mine.sum(), np.int64), own[mine])]
    if others is not None:
        parts.append(others)
    known = Packets(
        *(np.concatenate([getattr(each, name) for each in parts]) for name in Packets.__annotations__)
    )
    return asymmetry.residence(known, key, path, np.zeros(len(key), np.int64), 1)


def correction(fabric: Fabric, exchanges: int, share: float, rng: np.random.Generator) -> dict[str, Any]:
    """Two-way offsets before and after correction, `share` of the messages matched; errors in ns (truth known)."""
    propagation = rng.uniform(25, 500, fabric.links)  # 5 to 100 m of cable, each direction its own
    level = 2_000 * rng.lognormal(0, 0.7, fabric.links)
    master, slave = _pairs(fabric, exchanges, rng)
    offset = rng.normal(0, 50_000, exchanges)
    there, back = (_legs(fabric, *ends, level, rng) for ends in ((master, slave), (slave, master)))
    travel = [propagation[each.links].sum(axis=1) for each in (there, back)]
    t1 = rng.uniform(0, 1e9, exchanges)
    t2 = t1 + travel[0] + there.queue_ns.sum(axis=1) + offset
    t3 = t2 + rng.uniform(1e4, 1e6, exchanges)
    t4 = t3 - offset + travel[1] + back.queue_ns.sum(axis=1)
    plain = asymmetry.two_way(*(_ticks(each) for each in (t1, t2, t3, t4)))
    after = asymmetry.correct(plain, *(_known(fabric, each, share, level, rng) for each in (there, back)))
    half = np.abs(travel[0] - travel[1]) / 2
    # Four stamps of hosts and two of each of three switches, each way: each off by up to a tick, uniformly.
    tick_sigma = TICK_NS / np.sqrt(12) * np.sqrt(4 + 4 * SWITCHES) / 2
    before_p95 = float(np.quantile(np.abs(plain - offset), 0.95))
    limit = max(0.05 * before_p95, float(np.quantile(half, 0.95)) + 2 * tick_sigma)
    error = np.abs(after.offset_ns - offset)
    left = np.abs(after.offset_ns - offset - (travel[0] - travel[1]) / 2)
    inside = left[after.corrected] <= after.bound_ns[after.corrected] + 5 * tick_sigma

    def p95(rows: NDArray[np.bool_]) -> float | None:
        return float(np.quantile(error[rows], 0.95)) if rows.any() else None

    matched = p95(after.matched)
    return {
        "exchanges": exchanges,
        "share_matched": share,
        "both_ways_matched": float(after.matched.mean()),
        "before_p95_ns": before_p95,
        "limit_ns": limit,
        "matched_p95_ns": matched,
        "matched_within": None if matched is None else matched <= limit,
        "estimated_p95_ns": p95(~after.matched),
        "half_propagation_difference_p95_ns": float(np.quantile(half, 0.95)),
        "tick_sigma_ns": float(tick_sigma),
        "bound_holds": float(inside.mean()),
    }


def binomial_lower(hits: int, trials: int, miss: float = 0.05) -> float:
    """The exact (Clopper-Pearson) one-sided lower limit of a share: where P(≥ hits) is `miss`."""
    if hits == 0:
        return 0.0

    def at_least(share: float) -> float:
        logs = [
            math.lgamma(trials + 1) - math.lgamma(k + 1) - math.lgamma(trials - k + 1)
            + k * math.log(share) + (trials - k) * math.log1p(-share)
            for k in range(hits, trials + 1)
        ]  # fmt: skip
        return math.fsum(math.exp(each) for each in logs)

    return bisect(lambda share: at_least(share) - miss, 1e-12, 1 - 1e-12)


def _messages(
    fabric: Fabric, exchanges: int, share: float, sigma_ns: float, rng: np.random.Generator
) -> attribution.Means:
    """Two periods of exchanges of random pairs, without a fault, as `attribution` is to see them."""
    propagation = rng.uniform(25, 500, fabric.links)
    level = np.full(fabric.links, sigma_ns)  # an exponential's standard deviation is its mean
    parts = []
    for now in (False, True):
        clock = rng.normal(0, 50_000, fabric.hosts)
        first, second = _pairs(fabric, exchanges, rng)
        legs = _legs(fabric, np.concatenate([first, second]), np.concatenate([second, first]), level, rng)
        known = _known(fabric, legs, share, level, rng)
        left = rng.uniform(0, 1e9, len(legs.sender))
        arrived = left + propagation[legs.links].sum(axis=1) + legs.queue_ns.sum(axis=1)
        arrived += clock[legs.receiver] - clock[legs.sender]
        delay = (_ticks(arrived) - _ticks(left)) - known.ns
        ticks = TICK_NS * np.sqrt(8 / 12)  # two stamps of hosts, six of switches
        taken = np.zeros((len(delay), fabric.links), bool)
        taken[np.arange(len(delay))[:, None], legs.links] = True
        path = fabric.path(legs.sender, legs.receiver, legs.spine)
        period = np.full(len(delay), now)
        noise = np.hypot(ticks, known.spread_ns)
        parts.append((legs.sender, legs.receiver, path, taken, period, delay, noise, known.shared_ns))
    return attribution.means(
        attribution.Messages(*(np.concatenate(each) for each in zip(*parts, strict=True)))
    )


def blame(
    fabric: Fabric,
    trials: int,
    exchanges: int,
    share: float,
    rng: np.random.Generator,
    step: Callable[[], None],
) -> dict[str, Any]:
    """Trials of blame at extra delays of TIMES × the σ of one queue; a fifth of them without a fault.

    A trial's fabric, routes, clocks and queues are drawn anew; its curve adds each delay to the same draw.
    """
    sigma = 2_000.0
    faultless = round(FAULTLESS * trials)
    hits, silent, wrong = (np.zeros(len(TIMES), int) for _ in range(3))
    false = 0
    sizes: dict[int, int] = {}
    for trial in range(trials):
        plain = _messages(fabric, exchanges, share, sigma, rng)
        shape = attribution.geometry(plain, fabric.hosts)
        if trial < faultless:
            found = attribution.blame(plain, shape)
            false += found is not None and found.blamed
        else:
            link = int(rng.integers(fabric.links))
            late = plain.now & plain.link[:, link]
            for place, times in enumerate(TIMES):
                delay = plain.delay_ns + times * sigma * late
                found = attribution.blame(replace(plain, delay_ns=delay), shape)
                if found is None or not found.blamed:
                    silent[place] += 1
                elif link in found.links:
                    hits[place] += 1
                    if place == len(TIMES) - 1:
                        sizes[len(found.links)] = sizes.get(len(found.links), 0) + 1
                else:
                    wrong[place] += 1
        step()
    tried = trials - faultless
    return {
        "share_matched": share,
        "trials": trials,
        "faultless": faultless,
        "false_blame": false / max(1, faultless),
        "false_blame_upper95": 1 - binomial_lower(faultless - false, faultless) if faultless else None,
        "queue_sigma_ns": sigma,
        "curve": [
            {
                "times_queue_sigma": times,
                "class_hit": hits[place] / tried,
                "class_hit_lower95": binomial_lower(int(hits[place]), tried),
                "wrong": wrong[place] / tried,
                "silent": silent[place] / tried,
            }
            for place, times in enumerate(TIMES)
        ],
        "class_sizes": dict(sorted(sizes.items())),
    }


def run(trials: int, rng: np.random.Generator, step: Callable[[], None]) -> dict[str, Any]:
    """The result of `clock experiment asymmetry`; `step` is called after each trial, `3 × trials` times in all."""
    fabric = Fabric()
    shape = attribution.geometry(_messages(fabric, 300, 1.0, 2_000.0, rng), fabric.hosts)
    return {
        "fabric": {
            "leaves": fabric.leaves,
            "spines": fabric.spines,
            "hosts": fabric.hosts,
            "links": fabric.links,
        },
        "simulated": True,
        "exchanges_per_period": EXCHANGES,
        "tick_ns": TICK_NS,
        "published_class_hit": 0.991,
        "correction": [correction(fabric, 20_000, share, rng) for share in SHARES],
        "blame": [blame(fabric, trials, EXCHANGES, share, rng, step) for share in SHARES],
        "classes": [
            {
                "links": [fabric.name(link) for link in links],
                "size": len(links),
                "why": attribution.why(links),
            }
            for links in shape.classes
        ],
        "unjudged": [fabric.name(link) for link in shape.unjudged],
    }


def charts(result: dict[str, Any]) -> list[Chart]:
    """Class hits against the extra delay."""
    curves = [
        Curve(
            f"{100 * each['share_matched']:.0f} % matched",
            np.array([row["times_queue_sigma"] for row in each["curve"]]),
            np.array([100 * row["class_hit"] for row in each["curve"]]),
        )
        for each in result["blame"]
    ]
    note = f"Simulated, {result['blame'][0]['trials']:,} trials a curve, a fifth of them without a fault."
    return [
        Chart("Right class blamed", "extra delay / σ of one queue", "of faulty trials, %", curves, note=note)
    ]
