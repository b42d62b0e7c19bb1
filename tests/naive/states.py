"""Clock states the obvious way: every sample is kept, and each question is answered from all of them.

Of what docs/clocks.md says this knows two-way exchanges, told steps, statements that count epochs, and silence.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from schemas import columns as c
from schemas.time import NS, TAI
from tests.naive.clocks import Chain
from tests.naive.judged import Judged

BACK_NS_MAX = 20 * NS


class Row(NamedTuple):
    """A row of the clock family: a told step (`half_ns` None), or offset ± half against a parent."""

    time_ns: int
    quantum_ns: int
    clock: str
    stated: int
    parent: str
    offset_ns: int = 0
    half_ns: int | None = None
    root_ns: int = -1


@dataclass
class Epoch:
    """What was measured of a clock between two steps. `told_ns`: when the step before it was over."""

    told_ns: int | None = None
    since_ns: int | None = None
    by_statement: bool = False
    samples: dict[str, list[Row]] = field(default_factory=dict)

    def last(self, parent: str) -> Row | None:
        return self.samples.get(parent, [None])[-1]


@dataclass
class Known:
    """A clock: its epochs, the last of which goes on. `before`: epoch, its stated number, and up to which stamp it
    holds, in the window that is judged; `first_ns`: no stamp of the next epoch is known to lie before it."""

    epochs: list[Epoch] = field(default_factory=lambda: [Epoch()])
    stated: int = 0
    stated_ns: int | None = None
    parents: dict[str, tuple[int, int]] = field(
        default_factory=dict
    )  # last offset + half of an epoch that ended, when
    before: tuple[int, int, int, int, dict[str, list[Row]]] | None = None


class Held(NamedTuple):
    """What is known of a clock at a stamp: of an epoch, `best` measurement, since when nothing is known."""

    epoch: int
    best: tuple[str, int, int] | None = None  # parent, bound, as of
    samples: Sequence[Row] = ()
    broke_ns: int | None = None
    void_ns: int | None = None
    torn: bool = False


class NaiveStates:
    """All clocks of a scope."""

    def __init__(self, drift_ppb: float, void_after_s: float) -> None:
        self.drift, self.void_ns = drift_ppb * 1e-9, round(void_after_s * NS)
        self.clocks: dict[str, Known] = {}

    def feed(self, rows: Sequence[Row], told: Mapping[tuple[str, int], int]) -> None:
        """The rows of a window in their order, and where its rows are stated to be of which epoch."""
        for clock in self.clocks.values():
            clock.before = None
        waiting = sorted((at, name, epoch) for (name, epoch), at in told.items())
        for row in rows:
            while waiting and waiting[0][0] <= row.time_ns:
                self._restate(*waiting.pop(0))
            self._row(row, late=False)
        for one in waiting:
            self._restate(*one)

    def late(self, row: Row) -> None:
        if row.half_ns is None:
            self._row(row, late=True)

    def _restate(self, at: int, name: str, epoch: int) -> None:
        clock = self.clocks.setdefault(name, Known())
        if epoch <= clock.stated:
            return
        if clock.parents or any(one.samples for one in clock.epochs):
            self._break(clock, at - 1, at, late=False)
            clock.epochs[-1].by_statement = True
        clock.stated, clock.stated_ns = epoch, at

    def _break(self, clock: Known, last_ns: int, told_ns: int, late: bool) -> None:
        now = clock.epochs[-1]
        if clock.before is None and not late:
            kept = {p: list(rows) for p, rows in now.samples.items() if rows[-1].time_ns <= last_ns}
            until = max((rows[-1].time_ns for rows in kept.values()), default=last_ns)
            clock.before = (len(clock.epochs) - 1, clock.stated, until, last_ns, kept)
        elif clock.before is not None and last_ns < clock.before[3]:
            number, stated, until, _, kept = clock.before
            clock.before = (number, stated, min(until, last_ns), last_ns, kept)
        for parent, rows in now.samples.items():
            clock.parents[parent] = rows[-1].offset_ns + (rows[-1].half_ns or 0), rows[-1].time_ns
        since = told_ns if now.since_ns is None else max(now.since_ns, told_ns)
        clock.epochs.append(Epoch(told_ns, since))

    def _row(self, row: Row, late: bool) -> None:
        doubt = max(0, row.quantum_ns - 1)
        clock = self.clocks.setdefault(row.clock, Known())
        if row.half_ns is None:
            self._break(clock, row.time_ns - 1, row.time_ns + doubt, late)
            return
        if (
            row.stated < clock.stated
            and clock.stated_ns is not None
            and row.time_ns < clock.stated_ns + BACK_NS_MAX
        ):
            return
        row = row._replace(half_ns=row.half_ns + math.ceil(self.drift * doubt))
        assert row.half_ns is not None
        low, high = row.offset_ns - row.half_ns, row.offset_ns + row.half_ns
        before = clock.epochs[-1].samples.get(row.parent)
        if before:
            least, most = self._interval(before, row.time_ns)
            if low > most or high < least:
                self._break(clock, min(before[-1].time_ns, row.time_ns - 1), row.time_ns + doubt, late=False)
            elif row.time_ns < before[-1].time_ns:
                return
        now = clock.epochs[-1]
        if row.parent in clock.parents and row.parent not in now.samples:
            left, at = clock.parents[row.parent]
            back = max(0, left + math.ceil(self.drift * abs(row.time_ns - at)) - low)
            if back:
                assert now.told_ns is not None
                assert now.since_ns is not None
                now.since_ns = max(now.since_ns, now.told_ns + back)
                if clock.before is not None:
                    number, stated, until, last, kept = clock.before
                    clock.before = (number, stated, min(until, last - back), last, kept)
        now.samples.setdefault(row.parent, []).append(row)

    def _interval(self, rows: Sequence[Row], at_ns: int) -> tuple[int, int]:
        """(least, greatest) offset that all samples leave possible."""
        grown = [math.ceil(self.drift * abs(at_ns - row.time_ns)) for row in rows]
        half = [row.half_ns or 0 for row in rows]
        return (
            max(row.offset_ns - h - g for row, h, g in zip(rows, half, grown, strict=True)),
            min(row.offset_ns + h + g for row, h, g in zip(rows, half, grown, strict=True)),
        )

    def look(self, name: str, stated: int, at_ns: int, now_ns: int) -> Held | None:
        clock = self.clocks.get(name)
        if clock is None:
            return None
        number = len(clock.epochs) - 1
        now = clock.epochs[-1]
        if (
            clock.before is not None
            and at_ns <= clock.before[2]
            and stated in (clock.before[1], clock.stated)
        ):
            return self._best(clock.before[4], clock.before[0], at_ns, now_ns)
        if stated != clock.stated:
            return Held(number)
        if now.since_ns is not None and at_ns < now.since_ns:
            return Held(number, torn=True)
        found = self._best(now.samples, number, at_ns, now_ns)
        return found._replace(broke_ns=None if now.by_statement else now.since_ns)

    def _best(self, samples: Mapping[str, list[Row]], number: int, at_ns: int, now_ns: int) -> Held:
        newest = max((rows[-1].time_ns for rows in samples.values()), default=0)
        known, void = [], None
        for parent, rows in sorted(samples.items()):
            last = rows[-1].time_ns
            if now_ns > last + self.void_ns:
                void = max(last + self.void_ns, void or 0)
            elif at_ns >= rows[0].time_ns + max(0, rows[0].quantum_ns - 1):
                low, high = self._interval(rows, last)
                bound = max(abs(low), abs(high))
                known.append((bound + math.ceil(self.drift * (newest - last)), parent, bound, last))
        if not known:
            return Held(number, void_ns=void)
        _, parent, bound, last = min(known)
        return Held(number, (parent, bound, last), samples[parent])

    def judge(self, chain: Chain, at_ns: int, now_ns: int) -> Chain:
        """What holds of a stated chain at a stamp, in a window that ends at `now_ns`."""
        if chain.line() is None and not any(clock.clock_id in self.clocks for clock in chain.clocks):
            return chain
        lost: list[str] = []
        nodes, steps, changed = self._from(chain, 0, at_ns, now_ns, lost)
        if not changed:
            return chain
        return Judged(chain, nodes[:5], steps[:4], None if lost else chain)

    def _from(self, chain: Chain, level: int, at_ns: int, now_ns: int, lost: list[str]) -> Any:
        if level >= min(len(chain.nodes) - 1, len(chain.clocks)):
            return chain.nodes[level:], [], False
        nodes, steps, changed = self._from(chain, level + 1, at_ns, now_ns, lost)
        clock, (name, stated) = chain.clocks[level], chain.nodes[level]
        held = self.look(name, stated, at_ns, now_ns) or Held(0)
        node = (name, _mixed(stated, held.epoch))
        mine = _stated_step(chain, level)
        bound, growth, as_of, _, _ = mine
        if held.torn:
            lost.append(name)
            return [], [(None, 0.0, 0, c.Assurance.CLAIMED, 1.0)], True
        plain = _plain(chain, level)
        outdated = held.broke_ns is not None and as_of < held.broke_ns
        claimed = clock.assurance == c.Assurance.CLAIMED
        if held.best is not None and plain:
            parent, measured, last = held.best
            step = (measured, self.drift * 1e9, last, c.Assurance.HARD, None)
            if outdated:
                lost.append(name)
            if outdated or claimed:
                return *self._measured(
                    chain, level, node, step, parent, nodes, steps, outdated, at_ns, now_ns
                ), True
            root = held.samples[-1].root_ns
            if (
                parent == chain.nodes[level + 1][0] or (chain.nodes[level + 1][0] == TAI and root >= 0)
            ) and bound is not None:
                recent = held.samples[-_recent(len(held.samples)) :]
                worst = [(abs(r.offset_ns) - (r.half_ns or 0) - max(0, r.root_ns), r.time_ns) for r in recent]
                most = max(worst)[0]
                at = next(at for surely, at in worst if surely == most)
                if most >= 0 and most > bound + math.ceil(growth * 1e-9 * abs(at - as_of)):
                    lost.append(name)
                    out = max(max(abs(r.offset_ns) + (r.half_ns or 0) for r in recent), measured) + max(
                        0, root
                    )
                    wide = (
                        out,
                        max(growth, self.drift * 1e9),
                        held.samples[-1].time_ns,
                        c.Assurance.CLAIMED,
                        1.0,
                    )
                    return [node, *nodes], [wide, *steps], True
        elif outdated or (held.void_ns is not None and claimed and as_of < held.void_ns and plain):
            lost.append(name)
            return [node, *nodes], [(None, 0.0, 0, c.Assurance.CLAIMED, 1.0), *steps], True
        return [node, *nodes], [mine, *steps], changed or node != (name, stated)

    def _measured(
        self, chain: Chain, level: int, node: Any, step: Any, parent: str, nodes: Any, steps: Any,
        outdated: bool, at_ns: int, now_ns: int,
    ) -> Any:  # fmt: skip
        names = [name for name, _ in nodes]
        if parent in names:
            at = names.index(parent)
            return [node, *nodes[at:]], [step, *steps[at:]]
        above = self.look(parent, 0, at_ns, now_ns) or Held(0)
        assert above.best is None, "parents of the worlds are not measured"
        if above.torn:
            return [node], [step]
        out = [node, (parent, _mixed(0, above.epoch))]
        claims = [_stated_step(chain, k) for k in range(level, len(chain.nodes) - 1)]
        if outdated or chain.nodes[-1] != (TAI, 0) or any(one[0] is None for one in claims):
            return out, [step]
        both = [*claims, step]
        total = sum(one[0] + math.ceil(one[1] * 1e-9 * abs(step[2] - one[2])) for one in both)
        growth = sum(one[1] for one in both)
        return [*out, (TAI, 0)], [step, (total, growth, step[2], c.Assurance.CLAIMED, 1.0)]


def _stated_step(chain: Chain, level: int) -> Any:
    clock = chain.clocks[level]
    growth = (clock.growth_ppb or 0.0) if clock.as_of_ns is not None else 0.0
    if growth and chain.line(level) is None:
        return None, 0.0, 0, clock.assurance, clock.epsilon
    return clock.bound_ns, growth, _as_of(chain, level), clock.assurance, clock.epsilon


def _recent(count: int) -> int:
    """Samples in the chunk of 50 that is filled, and the full one before it."""
    return count if count <= 100 else (count - 1) % 50 + 51


def _mixed(stated: int, found: int) -> int:
    return stated if not found else found << 16 | stated


def _as_of(chain: Chain, level: int) -> int:
    clock, line = chain.clocks[level], chain.line(level)
    if clock.as_of_ns is None or line is None:
        return 0
    return line[1] + clock.as_of_ns - line[0]


def _plain(chain: Chain, level: int) -> bool:
    """Whether the clock is read as it stands."""
    clock = chain.clocks[level]
    if clock.ref_ns is None or clock.ref_parent_ns is None:
        return clock.timescale != c.Timescale.ARBITRARY
    return (clock.ref_parent_ns - clock.ref_ns) % NS == 0 and not clock.rate_ppb
