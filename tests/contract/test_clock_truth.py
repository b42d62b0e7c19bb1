"""Bounds in `merged` against the truth: hosts whose clocks drift, are stepped and are measured, through the merge."""

import math
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest

from schemas import columns as c
from schemas.codec import encode_batch
from schemas.draft import Draft
from schemas.pack import Head, SeqBook, Source
from schemas.processor import Record
from schemas.time import NS, TAI, ClockState
from streams.causality.merge import Merge
from streams.causality.settings import MergeSettings
from tests.contract.processor_suite import Case, run
from tests.contract.test_clock_merge import merged

MS = 1_000_000
T0 = 1_796_099_200 * NS  # TAI; the hosts' clocks count it
DRIFT_PPB = 50_000
CLAIM_NS = 200 * MS  # true whatever happens here
LENGTH_S = 8


@dataclass
class Host:
    """A host with one clock: offset (ns) at true time t (ns since T0) by stretches between steps."""

    name: str
    steps: list[tuple[int, float]]  # when (true), offset from then on
    rate: float
    swing: float
    counts: bool  # its statements count epochs
    tells: bool  # its daemon logs steps
    quantum_ns: int
    every_ns: int
    books: dict[str, SeqBook] = field(default_factory=dict)

    def offset(self, t: int) -> float:
        base = next(offset for at, offset in reversed(self.steps) if at <= t)
        return base + self.rate * t + self.swing * math.sin(t / NS)

    def reading(self, t: int) -> int:
        return T0 + t + round(self.offset(t))

    def clock(self, t: int, dated: bool) -> ClockState:
        epoch = sum(at <= t for at, _ in self.steps) - 1 if self.counts else 0
        t = max(t // (50 * MS) * 50 * MS, *(at for at, _ in self.steps if at <= t), 0)
        return ClockState(
            f"{self.name}/ptp0", epoch=epoch, parent=TAI, kind=c.ClockKind.PTP_HW, status=c.Status.LOCKED,
            timescale=c.Timescale.TAI, bound_ns=CLAIM_NS, as_of_ns=self.reading(t) if dated else None,
            growth_ppb=0.0, provenance="kernel",
        )  # fmt: skip


class World:
    """Hosts and their log, by seed."""

    def __init__(self, seed: int) -> None:
        self.rng = rng = np.random.default_rng(seed)
        self.hosts = [self._host(f"h{k}") for k in range(3)]
        self.dated = bool(rng.random() < 0.5)
        self.records: list[Record] = []
        self.flight: dict[int, int] = {}  # true time from send to receive, by key
        self._write()

    def _host(self, name: str) -> Host:
        rng = self.rng
        steps: list[tuple[int, float]] = [(-(2**62), float(rng.normal(0, 1e5)))]
        for size in rng.choice([1e4, 1e6, 2e7], int(rng.integers(0, 4))):
            at, offset = rng.uniform(1, LENGTH_S) * NS, rng.normal(0, size)
            steps.append((int(at), float(offset)))
        steps.sort()
        counts = bool(rng.random() < 0.4)
        return Host(
            name, steps, float(rng.uniform(-0.8, 0.8)) * DRIFT_PPB * 1e-9, float(rng.uniform(0, 5_000)), counts,
            not counts or bool(rng.random() < 0.5), int(rng.choice([1, 1, 1, 1000, NS])),
            int(rng.choice([15, 100, 300, 1000])) * MS,
        )  # fmt: skip

    def _draft(self, host: Host, what: str, family: str) -> Draft:
        publisher = f"{host.name} {what}"
        return Draft(Head("default", "job", publisher, family), host.books.setdefault(publisher, SeqBook()))

    def _send(self, draft: Draft, t: int) -> None:
        append_ms = (T0 - 37 * NS + t) // MS + 2
        self.records.append(
            Record("events", 0, len(self.records), append_ms, b"job", encode_batch(draft.build()))
        )

    def _write(self) -> None:
        # What happens, by true time; the log gets it in turns of 50 ms.
        turns = LENGTH_S * 20
        probes: list[list[tuple[int, int, int, bool]]] = [[] for _ in range(turns + 2)]
        steps = [at for host in self.hosts for at, _ in host.steps[1:]]
        for key in range(1, 1000):
            sent = int(self.rng.uniform(0, LENGTH_S * NS))
            if steps and self.rng.random() < 0.7:  # most of them around a step
                sent = int(self.rng.choice(steps)) + int(self.rng.normal(0, 20 * MS))
                sent = min(max(sent, 0), LENGTH_S * NS - 1)
            flight = int(self.rng.exponential(40_000)) + 2_000
            a, b = self.rng.choice(len(self.hosts), 2, replace=False).tolist()
            self.flight[key] = flight
            for t, host, sends in ((sent, a, True), (sent + flight, b, False)):
                probes[t // (50 * MS)].append((t, host, key, sends))
        due = [int(self.rng.uniform(0, 0.5 * NS)) for _ in self.hosts]
        told = [1] * len(self.hosts)
        for turn in range(turns + 1):
            end = (turn + 1) * 50 * MS
            for number, host in enumerate(self.hosts):
                self._probes(host, number, sorted(probes[turn]), end, turn == turns)
                log = self._draft(host, "log", "clock")
                events: list[tuple[int, bool]] = []
                while due[number] < end:
                    events.append((due[number], False))
                    due[number] += host.every_ns
                while told[number] < len(host.steps) and host.steps[told[number]][0] < end:
                    events.append((host.steps[told[number]][0], True))
                    told[number] += 1
                for t, is_step in sorted(events):
                    self._line(log, host, t, is_step)
                source = self._source(host, "log", end, host.quantum_ns)
                log.watermark(source, host.reading(end) - NS)
                if turn == turns:
                    log.final(source)
                self._send(log, end)

    def _source(self, host: Host, what: str, t: int, quantum_ns: int = 1) -> Source:
        clock = replace(host.clock(t, self.dated), quantum_ns=quantum_ns)
        return Source(f"{host.name}/{what}", host.name, clock, 1, ordered=False)

    def _line(self, log: Draft, host: Host, t: int, is_step: bool) -> None:
        source = self._source(host, "log", t, host.quantum_ns)
        stamp = host.reading(t) // host.quantum_ns * host.quantum_ns
        common: dict[str, Any] = {"entity": f"{host.name}/ptp0", "parent": "10.0.0.1"}
        if is_step:
            if host.tells:
                log.row(source, stamp, kind=c.ClockKindOfRow.SERVO, name="phc2sys.servo", servo=1, **common)
            return
        there, back = self.rng.exponential(3_000, 2)
        log.row(
            source, stamp, kind=c.ClockKindOfRow.MEASUREMENT, name="chrony.measurement",
            offset_ns=round(host.offset(t) + (there - back) / 2), delay_ns=int(there + back) + 3,
            error_ns=int(there + back) // 2 + 3, **common,
        )  # fmt: skip

    def _probes(
        self, host: Host, number: int, found: list[tuple[int, int, int, bool]], end: int, last: bool
    ) -> None:
        draft = self._draft(host, "probe", "probe")
        for t, mine, key, sends in found:
            if mine != number:
                continue
            source = self._source(host, "mesh", t)
            row = draft.row(source, host.reading(t), kind=c.ProbeKind.SEND if sends else c.ProbeKind.RECEIVE)
            role = c.Role.CAUSE if sends else c.Role.EFFECT
            draft.endpoint(row, c.Point.BEGIN, c.EdgeKind.MESSAGE, role, key)
        source = self._source(host, "mesh", end)
        draft.watermark(source, host.reading(end) - 100 * MS)
        if last:
            draft.final(source)
        self._send(draft, end)


SETTINGS = MergeSettings(bound_cap_ns=0, idle_after_ms=60_000, join_grace_ms=0)


@pytest.mark.parametrize("seed", range(24))
def test_no_bound_is_smaller_than_the_truth(seed: int) -> None:
    world = World(seed)
    parts = merged(run(Case(lambda: Merge(SETTINGS), world.records)))
    edges = known = proven = 0
    for part in parts:
        for k in range(part.table_len("edge")):
            data = part.data
            flight = world.flight[int(data["edge_key"][k])]
            edges += 1
            bound = int(data["edge_bound_ns"][k])
            verdict = int(data["edge_verdict"][k])
            if bound == c.NULL_I64:
                continue
            known += 1
            proven += verdict == c.Verdict.PROVEN
            wrong = abs(int(data["edge_gap_ns"][k]) - flight)
            assert wrong <= bound + 2, (
                seed,
                part.window_start_ns - T0,
                int(data["edge_key"][k]),
                wrong,
                bound,
            )
            assert verdict != c.Verdict.VIOLATED
    assert edges > 400
    assert known > 100
