"""Small worlds made from a seed: hosts with true and false clocks, events, edges, and the log that tells of them.

Edges follow true time, so that there always is a causal order; what the log says of it is as wrong as clocks,
watermarks, publishers and the network make it.
"""

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from schemas import columns as c
from schemas.pack import Source
from schemas.time import NS, ClockState
from tests.naive.clocks import chain_of
from tests.naive.log import End, Log, Post, Row, Say

T0_MS = 1_700_000_000_000
T0_NS = T0_MS * 1_000_000 + 37 * NS  # the same moment, TAI
MS = 1_000_000
OPS = (c.Op.ALL_REDUCE, c.Op.BARRIER, c.Op.ALL_TO_ALL, c.Op.BROADCAST, c.Op.REDUCE, c.Op.GATHER, c.Op.UNKNOWN)


@dataclass
class Happening:
    """An event as it truly was (ns after T0), and the endpoints it takes part with."""

    thread: "Thread"
    begin: int
    length: int
    ends: list[End] = field(default_factory=list)
    sent: bool = False


@dataclass
class Thread:
    """A source, the family of its rows, and how wrong its clock is."""

    source: Source
    family: str
    kind: int
    parents: tuple[ClockState, ...]
    error_ns: int
    happenings: list[Happening] = field(default_factory=list)
    seq: int = 0
    told: int = 0  # true time up to which rows were sent

    def raw(self, true_ns: int) -> int:
        """What the clock reads at a true time."""
        chain = chain_of(self.source.clock, [self.source.clock, *self.parents], T0_NS - 37 * NS)
        line = chain.line()
        if line is None:
            return true_ns
        return line[0] + round((T0_NS + true_ns + self.error_ns - line[1]) / (1 + line[2]))


class World:
    """Everything that a seed decides."""

    def __init__(self, seed: int, placed: bool = False) -> None:
        """`placed`: every clock has a map to TAI."""
        self.placed = placed
        self.rng = np.random.default_rng(seed)
        self.threads: dict[str, list[Thread]] = {}
        self.log = Log()
        self.keys = iter(range(1, 10**9))
        self.length = int(self.rng.integers(20, 90)) * MS
        for host in range(self.pick(1, 3)):
            self.threads[f"publisher{host}"] = self._host(f"host{host}", host)
        self._edges()

    def pick(self, low: int, high: int) -> int:
        """A whole number from low to high."""
        return int(self.rng.integers(low, high + 1))

    def chance(self, share: float) -> bool:
        return bool(self.rng.random() < share)

    def _clock(self, name: str) -> tuple[ClockState, tuple[ClockState, ...], int]:
        """(clock, parents, its true error): mostly within the bound."""
        bound = self.pick(0, 6) * MS // 2 if self.chance(0.9) else None
        error = self.pick(-(bound or MS), bound or MS) * (3 if self.chance(0.15) else 1)
        common: dict[str, Any] = {
            "bound_ns": bound,
            "assurance": c.Assurance(self.pick(0, 2)),
            "epsilon": float(self.rng.choice([1e-9, 4e-7, 9e-7, 0.1])),
            "quantum_ns": int(self.rng.choice([1, 1, 1000, 7])),
        }
        shape = self.pick(0, 5 if self.placed else 6)
        if shape == 0:
            return ClockState(name, parent="TAI", timescale=c.Timescale.TAI, **common), (), error
        if shape == 1:
            return ClockState(name, timescale=c.Timescale.UTC, **common), (), error
        if shape == 2:  # under a grandmaster that is stated
            master = ClockState(
                "gm", parent="TAI" if self.chance(0.7) else None, timescale=c.Timescale.TAI, bound_ns=100,
                assurance=c.Assurance.HARD,
            )  # fmt: skip
            return ClockState(name, parent="gm", timescale=c.Timescale.TAI, **common), (master,), error
        if shape == 3:  # mapped to a host clock, with a rate
            reading, at = self.pick(0, 10**9), T0_NS - 37 * NS + self.pick(0, 10**7)
            host = ClockState(f"{name}/host", parent="TAI", timescale=c.Timescale.UTC, bound_ns=2000)
            growth: dict[str, Any] = {"growth_ppb": 1234.5, "as_of_ns": reading} if self.chance(0.5) else {}
            mapped = ClockState(
                name, epoch=self.pick(0, 1), parent=host.clock_id, ref_ns=reading, ref_parent_ns=at,
                rate_ppb=float(self.pick(-50_000, 50_000)) + 0.317, **common, **growth,
            )  # fmt: skip
            return mapped, (host,), error
        if shape == 4:  # the reference pair takes an offset away
            claimed = self.pick(-5, 5) * MS
            return (
                ClockState(
                    name,
                    parent="gm",
                    timescale=c.Timescale.TAI,
                    ref_ns=T0_NS + claimed,
                    ref_parent_ns=T0_NS,
                    **common,
                ),
                (ClockState("gm", parent="TAI", timescale=c.Timescale.TAI, bound_ns=0),),
                error,
            )
        if shape == 5:  # no common root with the rest
            return ClockState(name, parent="island", timescale=c.Timescale.TAI, **common), (), error
        return ClockState(name, timescale=c.Timescale.ARBITRARY, **common), (), 0

    def _host(self, name: str, rank: int) -> list[Thread]:
        live = self.chance(0.4)
        clock, parents, error = self._clock(f"{name}/clock")
        threads = []
        for place in range(self.pick(1, 3)):
            if self.chance(0.3):
                clock, parents, error = self._clock(f"{name}/clock{place}")
            family, kind = [("gpu", c.GpuKind.CPU_OP), ("gpu", c.GpuKind.KERNEL), ("probe", 0)][
                self.pick(0, 2)
            ]
            source = Source(f"{name}/{place}", name, clock, 5, rank, ordered=self.chance(0.8), live=live)
            far = 300 * MS if live and self.chance(0.15) else 0
            thread = Thread(source, family, kind, parents, error + far)
            at = 0
            for _ in range(self.pick(0, 14)):
                at += self.pick(1, self.length // 8)
                length = int(self.rng.choice([0, 0, self.pick(1, 3 * MS), self.pick(1, 20 * MS)]))
                thread.happenings.append(Happening(thread, at, length))
            threads.append(thread)
        return threads

    def _edges(self) -> None:
        everything = [h for threads in self.threads.values() for t in threads for h in t.happenings]
        everything.sort(key=lambda h: h.begin)
        if len(everything) < 3:
            return
        for _ in range(self.pick(0, len(everything))):
            i, j = sorted(self.rng.choice(len(everything), 2, replace=False).tolist())
            cause, effect = everything[i], everything[j]
            kind = c.EdgeKind(self.pick(0, 3))
            key, size = next(self.keys), self.pick(0, 2)
            assumed = self.chance(0.2)
            ends = [
                (cause, End(c.Point.BEGIN, kind, c.Role.CAUSE, key, size=size, assumed=assumed)),
                (effect, End(c.Point.BEGIN, kind, c.Role.EFFECT, key, assumed=assumed)),
            ]
            if cause.begin + cause.length < effect.begin + effect.length and self.chance(0.5):
                ends = [
                    (cause, End(c.Point.END, kind, c.Role.CAUSE, key, size=size)),
                    (effect, End(c.Point.END, kind, c.Role.EFFECT, key)),
                ]
            elif cause.begin >= effect.begin:
                continue
            for happening, end in ends:
                if not self.chance(0.08):
                    happening.ends.append(end)
        for _ in range(self.pick(0, 3)):
            members = self.rng.choice(len(everything), min(len(everything), self.pick(2, 5)), replace=False)
            self._collective([everything[k] for k in members.tolist()])

    def _collective(self, members: list[Happening]) -> None:
        last = max(h.begin for h in members)
        op, key, kind = OPS[self.pick(0, len(OPS) - 1)], next(self.keys), c.EdgeKind.COLLECTIVE
        size = int(self.rng.choice([len(members), len(members), len(members) + 1, 0]))
        root = self.pick(0, len(members) - 1) if self.chance(0.9) else -1
        for place, member in enumerate(members):
            member.length = max(member.length, last - member.begin + self.pick(1, MS))
            role = c.Role.ROOT if place == root else c.Role.MEMBER
            member.ends.append(End(c.Point.BOTH, kind, role, key, op, size, self.chance(0.1), "world"))

    # The log

    def write(self) -> Log:
        """The log, from the announcement to the last batch and a flush."""
        log, now = self.log, 0
        self.apart = self.chance(0.2)  # the last publisher in a scope of its own
        for scope in {self._scope(publisher): 0 for publisher in self.threads}:
            if self.chance(0.8):
                ranks = sum(self._scope(publisher) == scope for publisher in self.threads)
                ranks += 1 if self.chance(0.15) else 0
                log.messages.append(Say(T0_MS, scope, ((c.Control.OPEN, ranks, "ranks"),)))
        silent = str(self.rng.choice(list(self.threads))) if self.chance(0.2) else ""
        restarted = str(self.rng.choice(list(self.threads))) if self.chance(0.2) else ""
        stepped = str(self.rng.choice(list(self.threads))) if self.chance(0.25) else ""
        while now < self.length + 40 * MS:
            now += self.pick(1, 12) * MS
            for publisher, threads in self.threads.items():
                if publisher == silent and now > self.length // 2:
                    continue
                if publisher == restarted and now > self.length // 2:
                    restarted = ""
                    self._restart(threads)
                if publisher == stepped and now > self.length // 2:
                    stepped = ""
                    self._step(threads)
                if self.chance(0.7):
                    self._posts(publisher, threads, now, now > self.length + 20 * MS and self.chance(0.5))
            if self.chance(0.2):
                log.messages.append(Say(self._ms(now), "", ((c.Control.TICK, None, None),)))
            if self.chance(0.1) and log.messages:
                log.messages.append(log.messages[self.pick(0, len(log.messages) - 1)])
            if self.chance(0.05):
                version = self.pick(1, 9)
                log.messages.append(Say(self._ms(now), "", ((c.Control.POLICY, version, "policy"),)))
            if self.chance(0.02):
                log.messages.append(Say(self._ms(now), "", ((c.Control.FLUSH, None, None),)))
        for _ in range(self.pick(0, 3)):
            now += 30 * MS
            log.messages.append(Say(self._ms(now), "", ((c.Control.TICK, None, None),)))
        if self.chance(0.7):
            log.messages.append(Say(self._ms(now), "", ((c.Control.FLUSH, None, None),)))
        return log

    def _scope(self, publisher: str) -> str:
        return "other" if self.apart and publisher == list(self.threads)[-1] else "job"

    def _ms(self, now: int) -> int:
        return T0_MS + now // MS + 2

    def _step(self, threads: list[Thread]) -> None:
        """Set the clocks of these threads, mostly back: a new epoch, in which they err by something else."""
        by = self.pick(-20, 5) * MS
        for thread in threads:
            clock = replace(thread.source.clock, epoch=thread.source.clock.epoch + 1)
            thread.source = replace(thread.source, clock=clock)
            thread.error_ns += by

    @staticmethod
    def _restart(threads: list[Thread]) -> None:
        for thread in threads:
            old = thread.source
            thread.source = Source(
                old.name, old.host, old.clock, old.incarnation + 1, old.rank, old.ordered, old.live
            )
            thread.seq = 0

    def _posts(self, publisher: str, threads: list[Thread], now: int, final: bool) -> None:
        for family in ("gpu", "probe"):
            mine = [t for t in threads if t.family == family]
            if not mine:
                continue
            sources, first, marks, rows = [], [], [], []
            for thread in mine:
                due = [h for h in thread.happenings if not h.sent and h.begin <= now]
                if due and self.chance(0.05):
                    thread.seq += 1  # a row is lost on the way
                    due.pop(0).sent = True
                sources.append(thread.source)
                first.append(thread.seq)
                thread.seq += len(due)
                mark = now + (5 * MS if self.chance(0.1) else 0)
                marks.append(thread.raw(mark) if self.chance(0.9) or not due else None)
                for happening in due:
                    happening.sent = True
                    raw = thread.raw(happening.begin)
                    length = None if not happening.length and self.chance(0.1) else happening.length
                    row = Row(
                        thread.source, raw, length, thread.kind, f"name{raw % 3}", tuple(happening.ends)
                    )
                    rows.append((happening.begin, row))
            rows.sort(key=lambda pair: pair[0])
            parents = tuple(dict.fromkeys(parent for thread in mine for parent in thread.parents))
            self.log.messages.append(
                Post(
                    self._ms(now), self._scope(publisher), publisher, family, tuple(sources), tuple(first),
                    tuple(row for _, row in rows), tuple(marks), tuple([final] * len(mine)), parents,
                )
            )  # fmt: skip
