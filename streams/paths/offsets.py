"""Bounds on the offsets between clocks of switches: from packets one way, and through other switches.

A bound from A to B and one from B to C give one from A to C, so that of all ways round the tightest counts: the
shortest path in the graph of bounds. There is no circle of negative length: around one, offsets cancel, and what
is left is the time that packets took.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from streams.paths.ticks import READING_MAX, Tick

Array = NDArray[Any]
I64 = NDArray[np.int64]

DRIFT: Final = 2e-4  # of one oscillator against another: 100 ppm each, the limit of IEEE 802.3
KEPT_MAX: Final = 65_536  # pairs of switches
SEARCHED_MAX: Final = 128  # switches; beyond, only direct bounds count
FAR: Final = READING_MAX  # no bound


@dataclass
class Way:
    """The least (later stamp − earlier stamp) of packets one way, each on its own switch's clock."""

    least_ns: int
    at_ns: int
    epochs: tuple[int, int]

    def at(self, time_ns: int) -> int:
        """The bound that it gives at another time."""
        return self.least_ns + int(DRIFT * abs(time_ns - self.at_ns))


def distinct(one: I64, two: I64) -> tuple[I64, I64]:
    """(distinct pairs of switches, shape (2, pairs); the place of each entry's pair)."""
    low = np.uint64(32)
    key = (one.astype(np.uint64) << low) | two.astype(np.uint64)
    keys, which = np.unique(key, return_inverse=True)
    return np.stack((keys >> low, keys & np.uint64(2**32 - 1))).astype(np.int64), which


class Ways:
    """Ways by (from, to)."""

    def __init__(self) -> None:
        self.known: dict[tuple[int, int], Way] = {}

    def learn(self, one: I64, two: I64, least: I64, time_ns: I64, ticks: Mapping[int, Tick]) -> Array:
        """Take packets from switch `one` to `two`, one entry each; the distinct pairs, shape (2, pairs)."""
        pairs, which = distinct(one, two)
        order = np.lexsort((least, which))
        first = order[np.searchsorted(which[order], np.arange(pairs.shape[1]))]
        for k, (a, b) in enumerate(pairs.T.tolist()):
            new = Way(int(least[first[k]]), int(time_ns[first[k]]), (ticks[a].epoch, ticks[b].epoch))
            old = self.known.pop((a, b), None)  # so that the order is by last sight
            keep = old is not None and old.epochs == new.epochs and old.at(new.at_ns) < new.least_ns
            self.known[a, b] = old if keep and old is not None else new
        for key in list(self.known)[: max(0, len(self.known) - KEPT_MAX)]:
            del self.known[key]
        return pairs

    def get(self, a: int, b: int, ticks: Mapping[int, Tick]) -> Way | None:
        """The way from a to b, if both clocks still count as they did."""
        way = self.known.get((a, b))
        return way if way is not None and way.epochs == (ticks[a].epoch, ticks[b].epoch) else None

    def bounds(self, between: tuple[int, int], ticks: Mapping[int, Tick]) -> Iterator[tuple[int, int, int]]:
        """(from, to, greatest offset of the latter's clock at any time between these two)."""
        since, until = between
        epoch = {node: tick.epoch for node, tick in ticks.items()}
        for (a, b), way in self.known.items():
            if way.epochs == (epoch.get(a), epoch.get(b)):
                away = max(until - way.at_ns, way.at_ns - since)
                yield a, b, way.least_ns + int(DRIFT * away)

    def forget(self, before_ns: int) -> None:
        """Drop bounds from before that time."""
        self.known = {pair: way for pair, way in self.known.items() if way.at_ns >= before_ns}

    def dump(self) -> Any:
        """As JSON."""
        return [[a, b, w.least_ns, w.at_ns, *w.epochs] for (a, b), w in self.known.items()]

    def load(self, meta: Any) -> None:
        """From `dump`."""
        self.known = {(a, b): Way(least, at, (one, two)) for a, b, least, at, one, two in meta}


def closure(
    bounds: Iterable[tuple[int, int, int]], wanted: Sequence[tuple[int, int]]
) -> list[int | None] | None:
    """The tightest bound of each wanted pair, directly or through other switches, of (from, to, bound) as given.

    None where the bounds contradict each other: a clock was set.
    """
    known: dict[tuple[int, int], int] = {}
    for a, b, bound in bounds:
        known[a, b] = min(known.get((a, b), FAR), bound)
    nodes = sorted({node for pair in known for node in pair})
    if len(nodes) > SEARCHED_MAX:
        return [known.get(pair) for pair in wanted]
    place = {node: k for k, node in enumerate(nodes)}
    table = np.full((len(nodes), len(nodes)), FAR)
    for (a, b), bound in known.items():
        table[place[a], place[b]] = bound
    for k in range(len(nodes)):
        one, two = table[:, k, None], table[None, k, :]
        table = np.minimum(table, np.where((one < FAR) & (two < FAR), np.maximum(one + two, -FAR), FAR))
    if (np.diagonal(table) < 0).any():
        return None
    out = [table[place[a], place[b]] if a in place and b in place else FAR for a, b in wanted]
    return [int(bound) if bound < FAR else None for bound in out]
