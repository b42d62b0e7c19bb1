"""The straggler rule: who makes the others wait.

In a collective in which everybody depends on everybody, the last to arrive is the member whose own kernel is
shortest, and each other member waited for the difference. That is read on one clock each, so wrong clocks
cannot mislead it.

The last to arrive may itself be a victim, which came late out of another collective. What it did itself is
the time from the end of its previous collective to its begin in this one, on its own clock again. Only if
that is longer than the median member's, by 20 µs and 5 % of the time between its collectives, is it blamed,
and for no more than that; else whoever it waited for is blamed there.

Who comes before the last may be a straggler too, hidden behind a slower one: without the last the others would
have waited for it. So a member among the last quarter (8 at most) is blamed as well if the median member waited
for it by as much, and its own work was longer by as much. Blame for several at once is also blame by chance for
several: then µ counts all of them.

A rank is a straggler when it is blamed far more often than chance: over its last collectives (exponential
memory of 64), blamed k of n where the sizes of the collectives make µ expected. A rank that is slow for one
step is late to all collectives of the step, so 4 of them count as one trial: the Chernoff bound
P <= exp(-n/4·KL(k/n || µ/n)), corrected for the number of ranks, must fall below 1e-6; and what it costs the
median member must be at least 5 % of the time between its collectives and 20 µs.

In the evidence `collectives`, `blamed` and `expected_by_chance` are n, k and µ: weighted counts, the newest
collective with 1 and each older one with 1/64 less, so no integers; k/n and µ/n are shares. `cost_ns` and
`period_ns` are means by the same weights: what the rank's own work cost the median member each time, and the time
between its collectives. `operation`, `group`, `arrived`, `longest_wait`, `longest_wait_ns` and `median_wait_ns` are
of the one collective in which it was blamed last; these waits are whole, whoever had made it late.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from streams.arrays import Table
from streams.diagnosis.claims import STRAGGLER, Claim
from streams.diagnosis.window import Collectives, Directory, WindowEdges

I64 = NDArray[np.int64]
MEMORY = 1 - 1 / 64
TRIAL = 4  # collectives that count as one independent trial
P_MAX_LOG = -np.log(1e-6)
COST_SHARE_MIN = 0.05
COST_NS_MIN = 20_000
COLLECTIVES_MIN = 8
MEMBERS_MIN = 3
VICTIMS_MAX = 8
TOGETHER_SHARE, TOGETHER_MAX = 4, 8  # the last 1 in 4 members may be stragglers together, 8 at most


class Stragglers:
    """The rule's state: one row a member."""

    def __init__(self) -> None:
        self.table = Table(
            took_part=(np.float64, 0.0),
            blamed=(np.float64, 0.0),
            expected=(np.float64, 0.0),
            cost_ns=(np.float64, 0.0),  # mean of what it cost the median member when it was blamed
            period_ns=(np.float64, 0.0),  # mean time between two collectives of the member
            own_end_ns=(np.int64, 0),  # end of its last collective, on its own clock
            since_ns=(np.int64, 0),  # end of the first collective of the present run of blame
            misses=(np.int64, 0),  # collectives since it was last blamed
        )
        self.latest: dict[int, dict[str, Any]] = {}  # evidence of the last blame, by member

    def update(self, edges: WindowEdges, found: Collectives, directory: Directory) -> list[Claim]:
        """Take a window's collectives; gives the stragglers of this moment."""
        if (missing := len(directory.members) - len(self.table)) > 0:
            self.table.grow(missing)
        before = self._ends_before(edges, found)
        for k in range(len(found)):
            part = slice(found.start[k], found.start[k + 1])
            rows = found.row[part]
            if len(rows) >= MEMBERS_MIN:
                self._one(edges, rows, before[part], int(found.end_ns[k]), directory, int(found.group[k]))
        return self._claims(directory)

    def _ends_before(self, edges: WindowEdges, found: Collectives) -> I64:
        """For each entry of `found.row`, the end of its member's collective before, 0 if there is none.

        In the order of its own clock: the order of collectives of different groups is as good as clocks are.
        """
        member, end = edges.effect[found.row], edges.effect_ns[found.row]
        order = np.lexsort((end, member))
        first = np.append(True, np.diff(member[order]) != 0)[: len(order)]
        last = np.append(first[1:], True)[: len(order)]
        before = np.empty(len(order), np.int64)
        before[order] = np.where(first, self.table["own_end_ns"][member[order]], np.roll(end[order], 1))
        self.table["own_end_ns"][member[order][last]] = end[order][last]
        return before

    def _one(
        self, edges: WindowEdges, rows: I64, before: I64, end_ns: int, directory: Directory, group: int
    ) -> None:
        t = self.table
        members = edges.effect[rows]  # shortest own duration first
        wait = edges.duration_ns[rows] - edges.duration_ns[rows[0]]
        end = edges.effect_ns[rows]
        known = before > 0
        work = end - edges.duration_ns[rows] - before
        period = t["period_ns"][members]
        mean = np.where(period > 0, period * MEMORY + (end - before) * (1 - MEMORY), end - before)
        t["period_ns"][members] = np.where(known, mean, period)
        t["took_part"][members] = t["took_part"][members] * MEMORY + 1
        t["blamed"][members] *= MEMORY
        t["misses"][members] += 1
        blamed = 0
        for place in range(min(TOGETHER_MAX, max(1, len(rows) // TOGETHER_SHARE))):
            cost = int(np.median(np.delete(wait, place)) - wait[place])
            if cost < COST_NS_MIN:
                break  # nor does anybody who came earlier
            others = known & (np.arange(len(rows)) != place)
            if known[place] and others.any():
                cost = min(cost, int(work[place] - np.median(work[others])))
            elif place:
                break  # only the last needs no proof that its lateness is its own
            if cost >= max(COST_NS_MIN, COST_SHARE_MIN * t["period_ns"][members[place]]):
                self._blame(edges, rows, place, cost, end_ns, directory, group)
                blamed += 1
        t["expected"][members] = t["expected"][members] * MEMORY + max(1, blamed) / len(members)

    def _blame(
        self,
        edges: WindowEdges,
        rows: I64,
        place: int,
        cost: int,
        end_ns: int,
        directory: Directory,
        group: int,
    ) -> None:
        """Note what the member at `place` in `rows` (last to arrive first) cost the others in a collective."""
        t = self.table
        members = edges.effect[rows]
        waited = edges.duration_ns[rows] - edges.duration_ns[rows[place]]
        member = int(members[place])
        t["blamed"][member] += 1
        mean = t["cost_ns"][member]
        t["cost_ns"][member] = cost if mean == 0 else mean * MEMORY + cost * (1 - MEMORY)
        if t["misses"][member] > 3 or t["since_ns"][member] == 0:
            t["since_ns"][member] = end_ns
        t["misses"][member] = 0
        self.latest[member] = {
            "operation": int(edges.op[rows[0]]),
            "group": directory.groups.names[group],
            "arrived": place + 1,  # counted from the last
            "longest_wait": directory.members.names[int(members[-1])],
            "longest_wait_ns": int(waited[-1]),
            "median_wait_ns": int(np.median(np.delete(waited, place))),
            "victims": [directory.members.names[int(m)] for m in members[:place:-1][:VICTIMS_MAX]],
            "victims_total": len(members) - 1 - place,
        }

    def _claims(self, directory: Directory) -> list[Claim]:
        t = self.table
        n, k, mu = t["took_part"], t["blamed"], t["expected"]
        out = []
        enough = (n >= COLLECTIVES_MIN) & (k > mu)
        enough &= t["cost_ns"] >= np.maximum(COST_NS_MIN, COST_SHARE_MIN * t["period_ns"])
        for member in np.flatnonzero(enough).tolist():
            share, chance = min(1.0, k[member] / n[member]), mu[member] / n[member]
            divergence = share * np.log(share / chance)
            if share < 1:
                divergence += (1 - share) * np.log((1 - share) / (1 - chance))
            exponent = float(n[member] / TRIAL * divergence - np.log(len(t)))
            if exponent < P_MAX_LOG or member not in self.latest:
                continue
            latest = dict(self.latest[member])
            victims = tuple(latest.pop("victims"))
            name = directory.members.names[member]
            evidence = latest | {
                "collectives": round(float(n[member]), 1),
                "blamed": round(float(k[member]), 1),
                "expected_by_chance": round(float(mu[member]), 2),
                "cost_ns": int(t["cost_ns"][member]),
                "period_ns": int(t["period_ns"][member]),
                "log_p": round(-exponent, 1),
            }
            confidence = round(float(0.5 + 0.49 * share), 2)
            kind = "rank" if name.startswith("rank") else "source"
            out.append(
                Claim(STRAGGLER, kind, name, confidence, int(t["since_ns"][member]), victims, evidence)
            )
        return out

    def dump(self) -> tuple[Any, dict[str, Any]]:
        """For a snapshot: JSON part and arrays."""
        return [[member, found] for member, found in self.latest.items()], self.table.dump()

    def load(self, meta: Any, arrays: dict[str, Any]) -> None:
        """From `dump`."""
        self.latest = dict(meta)
        self.table.load(arrays)
