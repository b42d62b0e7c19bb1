"""Two-way offsets freed of what the packets waited in switches.

Theory of operation. A two-way exchange between a master and a slave gives θ = ½[(t2 − t1) − (t4 − t3)], which is the
slave's offset plus half the difference of the two directions' delays. In-band telemetry tells how long a packet
stayed in each switch, on that switch's own clock, so no clock has to agree with another. Taking the sums R off,
θ − ½(R_there − R_back), leaves half the difference of the propagation delays, the rate error of the switches' clocks
times the residence (10 ns in 100 µs at 100 ppm), and quanta.

Routes differ: by ECMP the two directions, and two exchanges of one pair, may take other spines. So residence is
matched to the very packet where a report of it exists. Elsewhere it is *estimated* from the packets that took the
same path around that time: their mean, so that averages stay unbiased, with their range as the bound. That range
holds the packet's own residence with probability (n − 1)/(n + 1), if the n others waited alike: a statistical
statement, never a hard bound. An estimate says little of one packet's queue; it removes what a path has in common.
Fewer than `OTHERS_MIN` others: unknown, and the offset stays uncorrected and says so.

Times are int64 ns, each on the clock that took it. Arrays of one call have equal length unless said otherwise.
"""

import itertools
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

I64 = NDArray[np.int64]
U64 = NDArray[np.uint64]
F64 = NDArray[np.float64]
Bool = NDArray[np.bool_]

OTHERS_MIN: Final = 4
NULL_U64: Final = np.uint64(2**64 - 1)


@dataclass(frozen=True)
class Packets:
    """Reported packets: `key` tells a packet (equal to its exchange's), `path` its route, `time_ns` when it was
    seen, `residence_ns` its whole time inside switches. Only packets all of whose hops were reported."""

    key: U64
    path: I64
    time_ns: I64
    residence_ns: I64


@dataclass(frozen=True)
class Hops:
    """Hops of reports, in any order. `report` numbers the packets (places in the packets' own arrays), `hop` is the
    place on the path, `hops` how many the path has, `link` what was taken out of the switch, `residence_ns` egress −
    ingress on the switch's clock."""

    report: I64
    hop: I64
    hops: I64
    link: I64
    residence_ns: I64


def stayed(ingress: U64, egress: U64, latency: U64, int_version: U64, tick_ns: float) -> I64:
    """Residence in ns from the columns of family `int`, as widened to u64 with 2^64 − 1 for null; −1: unknown.

    Egress − ingress, which wraps at 32 bits before INT 2.0 (`int_version` 20) and at 64 since; the hop latency that
    the switch computed itself where either stamp is missing. `tick_ns`: length of the switch's unit.
    """
    stamped = (ingress != NULL_U64) & (egress != NULL_U64)
    ticks = egress - ingress  # modulo 2^64
    ticks = np.where(int_version == 20, ticks, ticks & np.uint64(2**32 - 1))
    ticks = np.where(stamped, ticks, latency)
    # A switch that stamps egress before ingress seems to keep a packet for most of the range of its counter.
    half = np.where(stamped & (int_version == 20), np.uint64(2**63), np.uint64(2**31))
    known = (stamped | (latency != NULL_U64)) & (ticks < half)
    return np.where(known, np.rint(np.where(known, ticks, 0).astype(np.float64) * tick_ns), -1).astype(
        np.int64
    )


def packets(hops: Hops, key: U64, time_ns: I64) -> tuple[Packets, list[tuple[int, ...]]]:
    """Sums over each packet's hops; packets with a hop missing or repeated, or a residence < 0, are left out.

    `key`, `time_ns`: one a packet. Gives the packets and the links of each path, by the number in `path`.
    """
    order = np.lexsort((hops.hop, hops.report))
    report, hop, total = hops.report[order], hops.hop[order], hops.hops[order]
    link, residence = hops.link[order], hops.residence_ns[order]
    paths: dict[tuple[int, ...], int] = {}
    kept: list[tuple[int, int, int]] = []
    edges = [0, *(np.flatnonzero(np.diff(report)) + 1).tolist(), len(report)] if len(report) else []
    for begin, end in itertools.pairwise(edges):
        whole = total[begin] == end - begin and (hop[begin:end] == np.arange(end - begin)).all()
        if whole and (residence[begin:end] >= 0).all():
            path = paths.setdefault(tuple(link[begin:end].tolist()), len(paths))
            kept.append((int(report[begin]), path, int(residence[begin:end].sum())))
    rows = np.array(kept, np.int64).reshape(-1, 3)
    found = Packets(key[rows[:, 0]], rows[:, 1], time_ns[rows[:, 0]], rows[:, 2])
    return found, list(paths)


@dataclass(frozen=True)
class Residence:
    """Of one direction of each exchange, NaN where unknown.

    `bound_ns`: of its error, 0 where matched. `spread_ns`: standard deviation of one packet about the estimate;
    `shared_ns`: of the estimate itself, an error that all have in common that were estimated from the same packets.
    Both are 0 where the residence is the packet's own.
    """

    ns: F64
    bound_ns: F64
    spread_ns: F64
    shared_ns: F64
    matched: Bool


def residence(known: Packets, key: U64, path: I64, time_ns: I64, window_ns: int) -> Residence:
    """Residence of each message: its own where its key was reported, else from the packets of its path (−1: unknown
    path) within ± `window_ns`."""
    ns, bound, spread, shared = (np.full(len(key), np.nan) for _ in range(4))
    matched = np.zeros(len(key), bool)
    if len(known.key):
        order = np.argsort(known.key, kind="stable")
        place = np.minimum(np.searchsorted(known.key[order], key), len(order) - 1)
        matched = known.key[order][place] == key
        ns[matched] = known.residence_ns[order][place][matched]
        bound[matched] = spread[matched] = shared[matched] = 0.0
    by_path = np.lexsort((known.time_ns, known.path))
    paths, times, waited = known.path[by_path], known.time_ns[by_path], known.residence_ns[by_path]
    for wanted in np.unique(path[~matched]).tolist():
        first, last = np.searchsorted(paths, [wanted, wanted + 1])
        rows = np.flatnonzero(~matched & (path == wanted))
        begin = first + np.searchsorted(times[first:last], time_ns[rows] - window_ns, "left")
        end = first + np.searchsorted(times[first:last], time_ns[rows] + window_ns, "right")
        cache: dict[tuple[int, int], tuple[float, float, float, float]] = {}
        for row, low, high in zip(rows.tolist(), begin.tolist(), end.tolist(), strict=True):
            if high - low < OTHERS_MIN:
                continue
            if (low, high) not in cache:
                others = waited[low:high]
                apart = float(np.std(others, ddof=1))
                error = apart / float(np.sqrt(len(others)))
                cache[low, high] = float(np.mean(others)), float(np.ptp(others)), apart, error
            ns[row], bound[row], spread[row], shared[row] = cache[low, high]
    return Residence(ns, bound, spread, shared, matched)


def two_way(t1: I64, t2: I64, t3: I64, t4: I64) -> F64:
    """Slave − master by the two-way formula: t1, t4 on the master's clock, t2, t3 on the slave's."""
    return ((t2 - t1) - (t4 - t3)) / 2.0


@dataclass(frozen=True)
class Corrected:
    """Offsets slave − master. `bound_ns`: of what the correction may have wrong, propagation and quanta apart.

    Where a direction's residence is unknown, the offset is the plain two-way one, its bound NaN."""

    offset_ns: F64
    bound_ns: F64
    matched: Bool
    corrected: Bool


def correct(plain_ns: F64, there: Residence, back: Residence) -> Corrected:
    """Take half the difference of the residences off two-way offsets."""
    shift = (there.ns - back.ns) / 2.0
    known = np.isfinite(shift)
    return Corrected(
        np.where(known, plain_ns - np.where(known, shift, 0.0), plain_ns),
        np.where(known, (there.bound_ns + back.bound_ns) / 2.0, np.nan),
        there.matched & back.matched,
        known,
    )
