"""The clock rule: which clock's error explains the edges that contradict the stated bounds.

Each edge between two clocks bounds the error δ of either: with slack = gap + bound, an effect stamped by the
clock says δ <= slack, a cause says δ >= -slack (δ is clock minus truth, positive: ahead). A clock is blamed
when one δ satisfies all of its edges, δ = 0 does not, its error explains every violated edge that is left to
explain, and at least 3 matches with at least 2 peers accuse it. An error of a clock moves all clocks that
hang below it, so clocks are candidates together with their parents; of nested ones that explain the same the
highest is named. Where several unrelated clocks explain the same edges, the claim names them all.

Several clocks may be wrong at once, and an edge between two of them fits neither's δ. So a clock that stands
in violated edges with more peers than the others do bears no witness: whoever has most such peers is set
aside, its edges with it, and so on, until none is left or all that are left stand alike. Only edges to clocks
that bear witness bound a δ and accuse.

The window in which a clock is stepped mixes edges from before and after. So blame is told when two windows
with edges name the same clock one after the other, or at the end of the scope.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from schemas import columns as c
from streams.arrays import Table
from streams.diagnosis.claims import CLOCK_FAULT, Claim
from streams.diagnosis.ends import SUSPECT_NS, Ends
from streams.diagnosis.window import DEPTH, Collectives, Directory, WindowEdges

I64 = NDArray[np.int64]
Mask = NDArray[np.bool_]
Chains = NDArray[np.int32]  # by clock: itself and its parents up to the root, -1 beyond
FAR = 2**62
MATCHES_MIN, PEERS_MIN = 3, 2
VIOLATIONS_KEPT = 20_000
HOLD_NS = 10_000_000_000  # event time for which a violated edge stays evidence
WINDOWS_MIN = 2
PEERS_LISTED_MAX = 16


class Clocks:
    """The rule's state: the interval of δ by clock, the violated edges that still count, and skewed ends."""

    def __init__(self) -> None:
        self.table = Table(low_ns=(np.int64, -FAR), high_ns=(np.int64, FAR))
        # cause clock, effect clock, effect's time, key, kind: one row a violated edge
        self.violated = np.empty((0, 5), np.int64)
        self.ends = Ends()
        self.streak: dict[str, int] = {}  # windows in a row that blame a component

    def update(self, edges: WindowEdges, found: Collectives, directory: Directory) -> list[Claim]:
        """Take a window's edges; gives the clocks that are blamed or suspected at this moment."""
        if (missing := len(directory.clocks) - len(self.table)) > 0:
            self.table.grow(missing)
        chains = directory.chains()
        comparable = (
            (edges.bound_ns != c.NULL_I64)
            & (edges.cause_clock >= 0)
            & (edges.effect_clock >= 0)
            & (edges.cause_clock != edges.effect_clock)
        )
        self._keep(edges, comparable)
        self._constrain(edges, found, comparable, chains, self._witnesses(chains))
        blamed = self._blame(chains, directory)
        if comparable.any():
            self.streak = {claim.component: self.streak.get(claim.component, 0) + 1 for claim in blamed}
        self.ends.update(edges, found)
        sure = [claim for claim in blamed if self.streak.get(claim.component, 0) >= WINDOWS_MIN]
        return sure + self.ends.suspects(directory, blamed, edges.end_ns - SUSPECT_NS)

    def close(self, directory: Directory) -> list[Claim]:
        """Who is blamed or suspected at the end of the scope, however short a time that was."""
        blamed = self._blame(directory.chains(), directory)
        return blamed + self.ends.suspects(directory, blamed, FAR)

    def _keep(self, edges: WindowEdges, comparable: Mask) -> None:
        """Keep this window's violated edges, and let go of old ones."""
        wrong = np.flatnonzero(comparable & (edges.verdict == c.Verdict.VIOLATED))
        new = np.stack(
            (
                edges.cause_clock[wrong],
                edges.effect_clock[wrong],
                edges.effect_ns[wrong],
                edges.key[wrong].view(np.int64),
                edges.kind[wrong].astype(np.int64),
            ),
            axis=1,
        )
        held = self.violated[self.violated[:, 2] >= edges.end_ns - HOLD_NS]
        self.violated = np.concatenate((held, new))[-VIOLATIONS_KEPT:]

    def _witnesses(self, chains: Chains) -> Mask:
        """By clock, whether it bears witness against others. Peers are counted by the roots of the clocks."""
        root = chains[np.arange(len(chains)), (chains >= 0).sum(axis=1) - 1]
        pairs = np.unique(np.sort(root[self.violated[:, :2]], axis=1), axis=0)
        pairs = pairs[pairs[:, 0] != pairs[:, 1]]
        aside = np.zeros(len(chains), np.bool_)
        while len(pairs):
            clocks, peers = np.unique(pairs, return_counts=True)
            worst = clocks[peers == peers.max()]
            if len(worst) == len(clocks):
                break
            aside[worst] = True
            pairs = pairs[~aside[pairs].any(axis=1)]
        witness: Mask = ~aside[root]
        return witness

    def _constrain(
        self, edges: WindowEdges, found: Collectives, comparable: Mask, chains: Chains, witness: Mask
    ) -> None:
        """Narrow the intervals of δ by this window's edges."""
        low = np.full(len(self.table), -FAR, np.int64)
        high = np.full(len(self.table), FAR, np.int64)
        single = comparable.copy()
        single[found.row] = False
        use = np.flatnonzero(single)
        cause, effect = edges.cause_clock[use], edges.effect_clock[use]
        slack = edges.gap_ns[use] + edges.bound_ns[use]
        for mine, other, is_effect in ((effect, cause, True), (cause, effect, False)):
            for level in range(DEPTH):
                clock = chains[mine, level]
                outside = (clock >= 0) & ~(chains[other] == clock[:, None]).any(axis=1) & witness[other]
                if is_effect:
                    np.minimum.at(high, clock[outside], slack[outside])
                else:
                    np.maximum.at(low, clock[outside], -slack[outside])
        _constrain_collectives(edges, found, comparable, chains, witness, low, high)
        both_low = np.maximum(self.table["low_ns"], low)
        both_high = np.minimum(self.table["high_ns"], high)
        # A clock that was stepped fits no single δ before and after: begin again with this window.
        anew = both_low > both_high
        self.table["low_ns"][:] = np.where(anew, low, both_low)
        self.table["high_ns"][:] = np.where(anew, high, both_high)

    def _blame(self, chains: Chains, directory: Directory) -> list[Claim]:
        claims = []
        witness = self._witnesses(chains)
        left = self.violated
        while len(left):
            on_cause, on_effect = chains[left[:, 0]], chains[left[:, 1]]
            candidates = np.unique(np.concatenate((on_cause.ravel(), on_effect.ravel())))
            scored: list[tuple[int, int, Mask]] = []
            low, high = self.table["low_ns"][candidates], self.table["high_ns"][candidates]
            off = (candidates >= 0) & (low <= high) & ((low > 0) | (high < 0))
            for clock in candidates[off].tolist():
                explained = (on_cause == clock).any(axis=1) != (on_effect == clock).any(axis=1)
                mine_is_effect = (on_effect[explained] == clock).any(axis=1)
                if _accused(left[explained], mine_is_effect, witness):
                    scored.append((int(explained.sum()), clock, explained))
            if not scored:
                break
            # The first of those that explain most; another one's turn comes, unless it explains the same.
            _, _, most = max(scored, key=lambda one: one[0])
            best = [(clock, explained) for _, clock, explained in scored if np.array_equal(explained, most)]
            lower = {
                clock
                for clock, _ in best
                if any(other in directory.above(clock) for other, _ in best if other != clock)
            }
            named = [(clock, explained) for clock, explained in best if clock not in lower]
            claims.append(self._claim(named, left, directory))
            left = left[~named[0][1]]
        return claims

    def _claim(self, named: list[tuple[int, Mask]], rows: I64, directory: Directory) -> Claim:
        named = sorted(named, key=lambda one: directory.clocks.names[one[0]])
        clock, explained = named[0]
        rows = rows[explained]
        names = [directory.clocks.names[clock] for clock, _ in named]
        low, high = self._interval(clock)
        others = sorted({directory.clocks.names[int(k)] for k in rows[:, :2].ravel() if int(k) != clock})
        evidence: dict[str, Any] = {
            "verdict": "blamed" if len(named) == 1 else "ambiguous",
            "offset_low_ns": low,
            "offset_high_ns": high,
            "violated_edges": len(rows),
            "matches": len(np.unique(rows[:, 3:5], axis=0)),
            "peers": others[:PEERS_LISTED_MAX],
            "peers_total": len(others),
        }
        if len(named) > 1:
            # Each would explain all, by an error of its own; the interval above is the first one's.
            evidence["candidates"] = {
                name: self._interval(k) for name, (k, _) in zip(names, named, strict=True)
            }
        confidence = 0.95 if len(named) == 1 else round(0.9 / len(named), 2)
        return Claim(CLOCK_FAULT, "clock", "|".join(names), confidence, int(rows[:, 2].min()), (), evidence)

    def _interval(self, clock: int) -> tuple[int | None, int | None]:
        low, high = int(self.table["low_ns"][clock]), int(self.table["high_ns"][clock])
        return (low if low > -FAR else None), (high if high < FAR else None)

    def dump(self) -> tuple[Any, dict[str, Any]]:
        """For a snapshot: JSON part and arrays."""
        return [self.ends.dump(), self.streak], self.table.dump() | {"violated": self.violated}

    def load(self, meta: Any, arrays: dict[str, Any]) -> None:
        """From `dump`."""
        self.violated = arrays["violated"]
        self.table.load(arrays)
        ends, self.streak = meta
        self.ends.load(ends)


def _accused(rows: I64, mine_is_effect: Mask, witness: Mask) -> bool:
    """Whether enough of these violated edges, with enough peers, come from clocks that bear witness."""
    other = np.where(mine_is_effect, rows[:, 0], rows[:, 1])
    heard = witness[other]
    if len(np.unique(other[heard])) < PEERS_MIN:
        return False
    return len(np.unique(rows[heard][:, 3:5], axis=0)) >= MATCHES_MIN


def _constrain_collectives(
    edges: WindowEdges,
    found: Collectives,
    comparable: Mask,
    chains: Chains,
    witness: Mask,
    low: I64,
    high: I64,
) -> None:
    """Every begin before every end: each member's end against the others' latest begin, its begin against
    their earliest end. Edges tell one cause a member; here all are used, with the widest of the bounds.
    """
    if not len(found):
        return
    first = found.start[:-1]
    whole = np.logical_and.reduceat(comparable[found.row], first)
    of = np.repeat(np.arange(len(found)), np.diff(found.start))  # collective of each entry
    bound = np.maximum.reduceat(edges.bound_ns[found.row], first)
    use = whole[of]
    rows, of = found.row[use], of[use]
    end = edges.effect_ns[rows]
    begin = end - edges.duration_ns[rows]
    heard = witness[edges.effect_clock[rows]]
    for level in range(DEPTH):
        clock = chains[edges.effect_clock[rows], level].astype(np.int64)
        has = clock >= 0
        if not has.any():
            break
        # One place for each clock in each collective.
        places, place = np.unique(of[has] * len(chains) + clock[has], return_inverse=True)
        at, own = places // len(chains), places % len(chains)
        latest, earliest = _extremes(len(places), place, begin[has], end[has])
        told = heard[has]
        last, soonest = _extremes(len(places), place[told], begin[has][told], end[has][told])
        rest = heard & ~has
        rest_last, rest_soonest = _extremes(len(found), of[rest], begin[rest], end[rest])
        other_begin = np.maximum(_best_of_others(last, at), rest_last[at])
        other_end = np.minimum(-_best_of_others(-soonest, at), rest_soonest[at])
        above, below = other_begin > -FAR, other_end < FAR
        np.minimum.at(high, own[above], (earliest - other_begin + bound[at])[above])
        np.maximum.at(low, own[below], -(other_end - latest + bound[at])[below])


def _extremes(count: int, place: I64, begin: I64, end: I64) -> tuple[I64, I64]:
    """Latest begin and earliest end of each place; -FAR and FAR where there is none."""
    latest = np.full(count, -FAR, np.int64)
    np.maximum.at(latest, place, begin)
    earliest = np.full(count, FAR, np.int64)
    np.minimum.at(earliest, place, end)
    return latest, earliest


def _best_of_others(values: I64, group: I64) -> I64:
    """For each value the greatest other one of its group (numbered, in order); -FAR if there is none."""
    order = np.lexsort((values, group))
    ends = np.flatnonzero(np.append(np.diff(group[order]) != 0, True))
    before = np.maximum(ends - 1, 0)
    paired = (ends > 0) & (group[order[before]] == group[order[ends]])
    best, second = values[order[ends]], np.where(paired, values[order[before]], -FAR)
    place = np.searchsorted(group[order[ends]], group)
    # Where two share the greatest value, it is the second one too.
    return np.where(values == best[place], second[place], best[place])
