"""Coverage on measured exchanges whose true offset is 0, with a hidden path added to them.

Two-way exchanges of PTP event messages between namespaces of one kernel (ptp_raw_n*.csv): kind, seq, tA (sent),
tB (received). To the slave's stamps a *path* is added: offset, rate within ±RATE_PPB, a slow swing, one step at which
all of them are drawn anew. The estimator is told none of it: only its limits (DRIFT_PPB, WANDER_PPB_S), which
the path keeps to, and in half of the paths that its clock was stepped, as a daemon logs it. In the others the
step is larger than any delay and has to be found.

At every event time (EVENTS a gap between exchanges) the bound is what the exchanges up to the next one leave
possible. Between the last exchange before a step and the first after it nothing is known, and that is said.
"""

import csv
import gzip
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from schemas.errors import MalformedInput, cause_of
from schemas.time import NS
from streams.clock.hull import Hull, Interval, Limits
from streams.clock.window import SAMPLES_MIN, Tail
from tempotrace.coverage.laws import F64

I64 = NDArray[np.int64]
DRIFT_PPB: Final = 55_000.0
WANDER_PPB_S: Final = 300.0
RATE_PPB: Final = 50_000.0
SWING_NS: Final = 5_000.0  # with its period: at most 1.05 ppm, 219 ppb/s
SWING_S: Final = 30.0
LARGE_NS: Final = (50e6, 500e6)  # a step that nobody tells of
SMALL_NS: Final = (20e3, 20e6)
EVENTS: Final = 2
BLOCK_EVENTS: Final = 50  # of the bootstrap: about three seconds
SERIES: Final = tuple((load, node) for load in ("idle", "congested") for node in (1, 2, 3, 4))


@dataclass(frozen=True)
class Exchanges:
    """Two-way exchanges by order of the slave's stamps: parent sends t1, received t2; sent t3, received t4."""

    t1: I64
    t2: I64
    t3: I64
    t4: I64

    def __len__(self) -> int:
        return len(self.t1)


def load(path: Path) -> Exchanges:
    """The exchanges of a file: each sync with the next delay request. Raises MalformedInput."""
    pairs: list[tuple[int, int, int, int]] = []
    sync: tuple[int, int] | None = None
    try:
        with gzip.open(path, "rt") as lines:
            for row in csv.DictReader(lines):
                sent, received = int(row["tA_ns"]), int(row["tB_ns"])
                if row["kind"] == "sync":
                    sync = sent, received
                elif sync is not None:
                    pairs.append((*sync, sent, received))
                    sync = None
    except (OSError, EOFError, KeyError, ValueError) as error:
        raise MalformedInput(f"not a file of exchanges ({cause_of(error)})", str(path)) from None
    if len(pairs) < 2:
        raise MalformedInput("fewer than two exchanges", str(path))
    return Exchanges(*np.array(sorted(pairs, key=lambda pair: pair[1]), np.int64).T)


@dataclass(frozen=True)
class HiddenPath:
    """A hidden offset over time in s: before and after the step at `step_s`."""

    step_s: float
    announced: bool
    offset_ns: tuple[float, float]
    rate_ppb: tuple[float, float]
    phase: tuple[float, float]

    @classmethod
    def draw(cls, span_s: float, rng: np.random.Generator) -> "HiddenPath":
        """One in the middle half of a series of this length."""
        announced = bool(rng.random() < 0.5)
        step_s = float(rng.uniform(0.25, 0.75)) * span_s
        rates, phases = rng.uniform(-RATE_PPB, RATE_PPB, 2), rng.uniform(0, 2 * math.pi, 2)
        first = cls(
            step_s, announced, (float(rng.uniform(-1e6, 1e6)), 0.0), (rates[0], 0.0), (phases[0], 0.0)
        )
        low, high = SMALL_NS if announced else LARGE_NS
        size = float(np.exp(rng.uniform(math.log(low), math.log(high)))) * (1 if rng.random() < 0.5 else -1)
        level = float(first._part(np.array([step_s]), 0)[0]) + size
        second = cls(step_s, announced, (0.0, 0.0), (0.0, rates[1]), (0.0, phases[1]))
        after = level - float(second._part(np.array([step_s]), 1)[0])
        return cls(
            step_s, announced, (first.offset_ns[0], after), (float(rates[0]), float(rates[1])),
            (float(phases[0]), float(phases[1])),
        )  # fmt: skip

    def _part(self, t_s: F64, which: int) -> F64:
        swing = SWING_NS * np.sin(2 * math.pi * t_s / SWING_S + self.phase[which])
        out: F64 = self.offset_ns[which] + self.rate_ppb[which] * t_s + swing
        return out

    def at(self, t_s: F64) -> F64:
        """Offset in ns."""
        return np.where(t_s < self.step_s, self._part(t_s, 0), self._part(t_s, 1))


@dataclass
class Found:
    """Per event time: offset of the truth from the interval's middle, half-widths (ns); NaN where unknown."""

    error: F64
    half: F64  # ours
    plain: F64  # the hull with the same drift limit alone, of exchanges up to the event
    bracket: F64  # half the round trip of the exchange before, grown by the drift limit
    epochs: int
    statistical: int  # event times with history enough for the statistical bound


def follow(series: Exchanges, path: HiddenPath) -> Found:
    """Bounds at event times of one series under one path. Work on the slave's own readings."""
    origin = int(series.t1[0])

    def hidden(parent_ns: I64) -> I64:
        return np.rint(path.at((parent_ns - origin) / NS)).astype(np.int64)

    # The stamps of one kernel: parent and slave read the same, so the path can be added where it was read.
    t2, t3 = series.t2 + hidden(series.t2), series.t3 + hidden(series.t3)
    limits = Limits(DRIFT_PPB, WANDER_PPB_S)
    plain_limits = Limits(DRIFT_PPB)
    hull, plain, tail = Hull(limits), Hull(plain_limits), Tail.empty()
    step_ns = origin + round(path.step_s * NS)
    gaps = np.linspace(0, 1, EVENTS + 2)[1:-1]
    rows: list[tuple[float, float, float, float]] = []
    epochs, statistical = 1, 0
    for k in range(len(series)):
        exchange = (
            int(t2[k]), int(t2[k] - series.t1[k]), int(t3[k]), int(t3[k] - series.t4[k]),
        )  # fmt: skip
        told = path.announced and k > 0 and series.t2[k - 1] < step_ns <= series.t3[k]
        before: list[tuple[int, float, Interval | None]] = []
        if k:
            # Events by the parent's time: after a step back a reading comes twice.
            moments = series.t3[k - 1] + np.rint(gaps * (series.t2[k] - series.t3[k - 1])).astype(np.int64)
            truths = path.at((moments - origin) / NS)
            for moment, truth in zip(moments.tolist(), truths.tolist(), strict=True):
                reading = moment + round(truth)
                before.append((reading, truth, plain.interval(reading)))
        fresh = told or not hull.add(*exchange)
        if fresh or not plain.add(*exchange):
            hull, plain, tail = Hull(limits), Hull(plain_limits), Tail.empty()
            hull.add(*exchange)
            plain.add(*exchange)
            epochs += 1
            fresh = True
        width = 0.5 * float((t2[k - 1] - series.t1[k - 1]) - (t3[k - 1] - series.t4[k - 1]))
        for at, truth, was in before:
            found = None if fresh else hull.interval(at)
            if found is None or was is None:
                rows.append((math.nan, math.nan, math.nan, math.nan))
                continue
            bound = tail.bound(found.half)
            statistical += bound.epsilon is not None
            age_s = (at - 0.5 * float(t2[k - 1] + t3[k - 1])) / NS  # each side ages from its own message
            rows.append(
                (
                    truth - 0.5 * (found.low + found.high),
                    bound.bound_ns,
                    was.half,
                    width + DRIFT_PPB * age_s,
                )
            )
        middle = hull.interval(int(t3[k]))
        if middle is not None:
            tail.add(abs(0.5 * (exchange[1] + exchange[3]) - 0.5 * (middle.low + middle.high)))
    error, half, plain_half, bracket = np.array(rows).T
    return Found(error, half, plain_half, bracket, epochs, statistical)


def bootstrap_limit(
    missed: NDArray[np.bool_], rng: np.random.Generator, rounds: int = 2000, confidence: float = 0.95
) -> float:
    """Lower limit of the coverage by resampling blocks of BLOCK_EVENTS consecutive event times."""
    blocks = len(missed) // BLOCK_EVENTS
    sums = missed[: blocks * BLOCK_EVENTS].reshape(blocks, BLOCK_EVENTS).sum(axis=1)
    if not sums.any():
        return 1.0
    totals = np.array([sums[rng.integers(0, blocks, blocks)].sum() for _ in range(rounds)])
    return 1.0 - float(np.quantile(totals, confidence)) / (blocks * BLOCK_EVENTS)


def files_of(folder: Path) -> dict[tuple[str, int], Path]:
    """The file of each series, by load and node. Raises MalformedInput where one is missing."""
    found = {(load_, node): folder / load_ / f"ptp_raw_n{node}.csv.gz" for load_, node in SERIES}
    missing = [path for path in found.values() if not path.is_file()]
    if missing:
        more = f" (and {len(missing) - 1} more)" if len(missing) > 1 else ""
        raise MalformedInput(f"no such file{more}", str(missing[0]))
    return found


def run(folder: Path, paths: int, rng: np.random.Generator) -> dict[str, Any]:
    """Coverage and widths of `paths` hidden paths on each series found in the folder. Raises MalformedInput."""
    rows: list[dict[str, Any]] = []
    missed_all: list[NDArray[np.bool_]] = []
    for (load_, node), path in files_of(folder).items():
        series = load(path)
        span_s = float(series.t1[-1] - series.t1[0]) / NS
        found = [follow(series, HiddenPath.draw(span_s, rng)) for _ in range(paths)]
        error, half, plain, bracket = (
            np.concatenate([getattr(each, name) for each in found])
            for name in ("error", "half", "plain", "bracket")
        )
        known = ~np.isnan(half)
        missed = np.abs(error[known]) > half[known] + 1.0  # 1 ns of rounding
        missed_all.append(missed)
        rows.append(
            {
                "load": load_,
                "node": f"n{node}",
                "exchanges": len(series),
                "paths": paths,
                "events": int(known.sum()),
                "unknown": int((~known).sum()),
                "epochs": sum(each.epochs for each in found),
                "misses": int(missed.sum()),
                "statistical_events": sum(each.statistical for each in found),
                "coverage_limit": bootstrap_limit(missed, rng),
                "width_ns": float(np.median(half[known])),
                "width_hull_ns": float(np.median(plain[known])),
                "width_bracket_ns": float(np.median(bracket[known])),
                "wider_than_hull": int((half[known] > plain[known] + 1.0).sum()),
                "wider_than_bracket": int((half[known] > bracket[known] + 1.0).sum()),
            }
        )
    missed = np.concatenate(missed_all)
    statistical = sum(row["statistical_events"] for row in rows)
    return {
        "drift_ppb": DRIFT_PPB,
        "wander_ppb_s": WANDER_PPB_S,
        "series": rows,
        "misses": int(missed.sum()),
        "events": len(missed),
        "coverage_limit": bootstrap_limit(missed, rng),
        "mode": "statistical" if statistical else "hard",
        "why": f"{statistical} of {len(missed)} event times have {SAMPLES_MIN} calibration points of their epoch",
        "holds": bool(
            not missed.any() and not any(r["wider_than_hull"] + r["wider_than_bracket"] for r in rows)
        ),
    }
