"""Ends of collectives ought to agree: clocks whose ends do not are suspects.

Members whose end is off by more than max(20 µs, 3 x the trailing median of the spread) in 3 collectives of a
group make their clock a suspect: less than blame, and said to be so. A faulty clock often skews ends before
enough edges accuse it, perhaps under another name; so a suspect is told only when it has been one for a
second of event time without blame, or at the end of the scope.
"""

from collections import deque
from typing import Any, Final

import numpy as np

from streams.diagnosis.claims import CLOCK_FAULT, Claim
from streams.diagnosis.window import Collectives, Directory, WindowEdges, median

HOLD_NS: Final = 10_000_000_000  # event time for which a skewed end stays evidence
SKEW_NS_MIN: Final = 20_000
SKEW_SPREADS: Final = 3
SKEW_COLLECTIVES_MIN: Final = 3
MEMBERS_MIN: Final = 3
SPREADS_KEPT: Final = 31
SUSPECT_NS: Final = 1_000_000_000
CONFIDENCE: Final = 0.4


class Ends:
    """Skewed ends of a scope."""

    def __init__(self) -> None:
        self.spreads: dict[int, deque[float]] = {}  # by group
        # (group, clock) -> [collectives, first ns, sum of ns, last ns]
        self.skewed: dict[tuple[int, int], list[int]] = {}
        self.considered: dict[int, int] = {}  # collectives by group

    def update(self, edges: WindowEdges, found: Collectives) -> None:
        """Count the members of a window's collectives whose ends are off."""
        for k in range(len(found)):
            rows = found.row[found.start[k] : found.start[k + 1]]
            clock = edges.effect_clock[rows]
            if len(rows) < MEMBERS_MIN or len(np.unique(clock)) < MEMBERS_MIN:
                continue
            group = int(found.group[k])
            off = edges.effect_ns[rows] - median(edges.effect_ns[rows])
            spread = float(np.median(np.abs(off)))
            trail = self.spreads.setdefault(group, deque(maxlen=SPREADS_KEPT))
            limit = max(SKEW_NS_MIN, SKEW_SPREADS * (float(np.median(trail)) if trail else spread))
            trail.append(spread)
            self.considered[group] = self.considered.get(group, 0) + 1
            for place in np.flatnonzero((np.abs(off) > limit) & (clock >= 0)):
                entry = self.skewed.setdefault((group, int(clock[place])), [0, int(found.end_ns[k]), 0, 0])
                entry[0] += 1
                entry[2] += int(off[place])
                entry[3] = int(found.end_ns[k])
        self.skewed = {key: entry for key, entry in self.skewed.items() if entry[3] >= edges.end_ns - HOLD_NS}

    def suspects(self, directory: Directory, blames: list[Claim], since_ns: int) -> list[Claim]:
        """Clocks with skewed ends, at `since_ns` already, that no blame explains.

        If most clocks below one are skewed, it is that one.
        """
        covered = {name for claim in blames for name in claim.component.split("|")}
        blamed = {clock for clock, name in enumerate(directory.clocks.names) if name in covered}
        suspects: dict[int, list[int]] = {}
        of_group: dict[int, int] = {}
        for (group, clock), (count, first, total, _) in self.skewed.items():
            if count < SKEW_COLLECTIVES_MIN or directory.above(clock) & blamed:
                continue
            entry = suspects.setdefault(clock, [0, first, 0])
            suspects[clock] = [entry[0] + count, min(entry[1], first), entry[2] + total]
            of_group[clock] = of_group.get(clock, 0) + self.considered.get(group, 0)
        below: dict[int, set[int]] = {}
        for child, parent in directory.parent.items():
            below.setdefault(parent, set()).add(child)
        raised: dict[int, list[int]] = {}
        for parent, children in below.items():
            found = children & set(suspects)
            if len(found) >= 2 and len(found) * 2 > len(children):
                raised.update({child: [parent] for child in found})
        claims: dict[int, list[int]] = {}
        for clock, (count, first, total) in suspects.items():
            name = raised.get(clock, [clock])[0]
            entry = claims.setdefault(name, [0, first, 0, 0])
            claims[name] = [
                entry[0] + count,
                min(entry[1], first),
                entry[2] + total,
                entry[3] + of_group[clock],
            ]
        return [
            Claim(
                CLOCK_FAULT,
                "clock",
                directory.clocks.names[clock],
                CONFIDENCE,
                first,
                (),
                {
                    "verdict": "suspect",
                    "why": "ends of its collectives are off; no edge contradicts its bound",
                    "collectives_skewed": count,
                    "collectives": considered,
                    "end_skew_mean_ns": round(total / count),
                },
            )
            for clock, (count, first, total, considered) in claims.items()
            if first <= since_ns
        ]

    def dump(self) -> Any:
        """For a snapshot, as JSON."""
        spreads = [[group, list(trail)] for group, trail in self.spreads.items()]
        skewed = [[group, clock, entry] for (group, clock), entry in self.skewed.items()]
        return [spreads, skewed, list(self.considered.items())]

    def load(self, meta: Any) -> None:
        """From `dump`."""
        spreads, skewed, considered = meta
        self.spreads = {group: deque(trail, maxlen=SPREADS_KEPT) for group, trail in spreads}
        self.skewed = {(group, clock): entry for group, clock, entry in skewed}
        self.considered = dict(considered)
