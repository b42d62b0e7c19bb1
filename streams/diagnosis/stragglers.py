"""The straggler rule: who makes the others wait.

In a collective in which everybody depends on everybody, the last to arrive is the member whose own kernel is
shortest, and each other member waited for the difference. That is read on one clock each, so wrong clocks
cannot mislead it.

The last to arrive may itself be a victim: if its previous collective was another one than most members', and
it waited there for at least half of what it now makes others wait, it is not blamed here: whoever was late
there is blamed there. (Where all come from the same collective, all left it together, and that wait explains
nothing.)

A rank is a straggler when it is blamed far more often than chance: over its last collectives (exponential
memory of 64), blamed k of n where the sizes of the collectives make µ expected. A rank that is slow for one
step is late to all collectives of the step, so 4 of them count as one trial: the Chernoff bound
P <= exp(-n/4·KL(k/n || µ/n)), corrected for the number of ranks, must fall below 1e-6; and what it costs the
median member must be at least 5 % of the time between its collectives and 20 µs.
"""

from typing import Any

import numpy as np

from streams.arrays import Table
from streams.diagnosis.claims import STRAGGLER, Claim
from streams.diagnosis.window import Collectives, Directory, WindowEdges

MEMORY = 1 - 1 / 64
TRIAL = 4  # collectives that count as one independent trial
P_MAX_LOG = -np.log(1e-6)
COST_SHARE_MIN = 0.05
COST_NS_MIN = 20_000
COLLECTIVES_MIN = 8
MEMBERS_MIN = 3
CHAIN_SHARE = 0.5
VICTIMS_MAX = 8


class Stragglers:
    """The rule's state: one row a member."""

    def __init__(self) -> None:
        self.table = Table(
            took_part=(np.float64, 0.0),
            blamed=(np.float64, 0.0),
            expected=(np.float64, 0.0),
            cost_ns=(np.float64, 0.0),  # mean of what the median member waited when this one was blamed
            period_ns=(np.float64, 0.0),  # mean time between two collectives of the member
            last_end_ns=(np.int64, 0),
            last_wait_ns=(np.int64, 0),
            last_collective=(np.int64, -1),
            since_ns=(np.int64, 0),  # end of the first collective of the present run of blame
            misses=(np.int64, 0),  # collectives since it was last blamed
        )
        self.collectives = 0
        self.latest: dict[int, dict[str, Any]] = {}  # evidence of the last blame, by member

    def update(self, edges: WindowEdges, found: Collectives, directory: Directory) -> list[Claim]:
        """Take a window's collectives; gives the stragglers of this moment."""
        if (missing := len(directory.members) - len(self.table)) > 0:
            self.table.grow(missing)
        for k in range(len(found)):
            rows = found.row[found.start[k] : found.start[k + 1]]
            if len(rows) >= MEMBERS_MIN:
                self._one(edges, rows, int(found.end_ns[k]), directory, int(found.group[k]))
        return self._claims(directory)

    def _one(self, edges: WindowEdges, rows: Any, end_ns: int, directory: Directory, group: int) -> None:
        t = self.table
        members = edges.effect[rows]  # shortest own duration first
        wait = edges.duration_ns[rows] - edges.duration_ns[rows[0]]
        last = int(members[0])
        cost = int(np.median(wait[1:]))
        before = t["last_collective"][members]
        elsewhere = np.mean(before[1:] != before[0]) > 0.5
        victim = before[0] >= 0 and elsewhere and t["last_wait_ns"][last] >= CHAIN_SHARE * max(cost, 1)
        period = np.where(t["last_end_ns"][members] > 0, end_ns - t["last_end_ns"][members], 0)
        known = period > 0
        old = t["period_ns"][members]
        mean = np.where(old > 0, old * MEMORY + period * (1 - MEMORY), period)
        t["period_ns"][members] = np.where(known, mean, old)
        t["took_part"][members] = t["took_part"][members] * MEMORY + 1
        t["expected"][members] = t["expected"][members] * MEMORY + 1 / len(members)
        t["blamed"][members] *= MEMORY
        t["misses"][members] += 1
        if cost >= COST_NS_MIN and not victim:
            t["blamed"][last] += 1
            mean = t["cost_ns"][last]
            t["cost_ns"][last] = cost if mean == 0 else mean * MEMORY + cost * (1 - MEMORY)
            if t["misses"][last] > 3 or t["since_ns"][last] == 0:
                t["since_ns"][last] = end_ns
            t["misses"][last] = 0
            most = len(rows) - 1
            self.latest[last] = {
                "operation": int(edges.op[rows[0]]),
                "group": directory.groups.names[group],
                "longest_wait": directory.members.names[int(members[most])],
                "longest_wait_ns": int(wait[most]),
                "median_wait_ns": cost,
                "victims": [directory.members.names[int(m)] for m in members[:0:-1][:VICTIMS_MAX]],
            }
        t["last_end_ns"][members] = end_ns
        t["last_wait_ns"][members] = wait
        t["last_collective"][members] = self.collectives
        self.collectives += 1

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
        return [
            self.collectives,
            [[member, found] for member, found in self.latest.items()],
        ], self.table.dump()

    def load(self, meta: Any, arrays: dict[str, Any]) -> None:
        """From `dump`."""
        self.collectives = meta[0]
        self.latest = dict(meta[1])
        self.table.load(arrays)
