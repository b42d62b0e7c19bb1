"""A simulation read back from its encoded batches, and its edges tried the obvious way."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from producers.sim.cluster import read
from producers.sim.options import SimOptions, SimReport
from schemas.batch import Batch
from schemas.codec import decode_batch, encode_batch
from schemas.columns import NULL_I64, NULL_U16, EdgeKind, Op, Point, Role, Timescale
from schemas.time import NS, TAI
from tempotrace.clockwork import seeded
from tests.simulation.true_times import true_times

SMALL = SimOptions(scenario="healthy", seed=7, hosts=4, ranks=8, seconds=1.0, step_ns=20_000_000)


@dataclass(frozen=True)
class Member:
    """One end of an edge. Times in ns TAI: begin and end as stamped and mapped, and as they truly were."""

    role: Role
    op: Op
    size: int
    source: str
    host: str
    rank: int
    clocks: tuple[tuple[str, int], ...]  # clock and bound to its parent, up to TAI
    point: Point
    mapped: tuple[int, int]
    true: tuple[int, int]


@dataclass(frozen=True)
class Edge:
    """A cause before an effect."""

    kind: EdgeKind
    cause: Member
    effect: Member
    gap_ns: int  # by stamps
    bound_ns: int
    true_gap_ns: int

    @property
    def violated(self) -> bool:
        return self.gap_ns < -self.bound_ns

    @property
    def hosts(self) -> set[str]:
        return {self.cause.host, self.effect.host}


def simulate(options: SimOptions) -> tuple[list[Batch], SimReport]:
    """All batches of a simulation, once encoded and decoded, and the report with true times."""
    report = SimReport(keep_times=True)
    batches = [decode_batch(encode_batch(b)) for b in read(options, report, seeded(options.seed))]
    return batches, report


def rows_by_source(batches: list[Batch]) -> dict[str, tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """By source: seq, raw stamp and duration of its rows, in the order of the log."""
    parts = defaultdict(list)
    for batch in batches:
        if not batch.count or batch.family == "control":
            continue
        source, seq, raw, lasts = (
            batch.column("source"),
            batch.seq(),
            batch.raw_ns(),
            batch.wide("duration_ns"),
        )
        for place in range(batch.table_len("src")):
            mine = source == place
            name = batch.strings[batch.data["src_name"][place]]
            parts[name].append((seq[mine], raw[mine], lasts[mine]))
    return {
        name: (
            np.concatenate([part[0] for part in found]),
            np.concatenate([part[1] for part in found]),
            np.concatenate([part[2] for part in found]),
        )
        for name, found in parts.items()
    }


def clock_chain(batch: Batch, source: int) -> tuple[int, tuple[tuple[str, int], ...]]:
    """What must be added to a source's stamps for TAI, and its clocks up to TAI with their bounds."""
    data = batch.data
    places = {batch.strings[name]: place for place, name in enumerate(data["clk_id"])}
    place = int(data["src_clock"][source])
    shift = 37 * NS if data["clk_timescale"][place] == Timescale.UTC else 0
    chain = []
    name = batch.strings[data["clk_id"][place]]
    while name != TAI:
        place = places[name]
        chain.append((name, int(data["clk_bound_ns"][place])))
        name = batch.strings[data["clk_parent"][place]]
    return shift, tuple(chain)


def diff_bound(a: Member, b: Member) -> int:
    """Bounds summed up to the first clock that both chains share."""
    shared = {name for name, _ in a.clocks} & {name for name, _ in b.clocks}
    return sum(bound for member in (a, b) for name, bound in member.clocks if name not in shared)


def members(batches: list[Batch], report: SimReport) -> dict[tuple[EdgeKind, int], list[Member]]:
    """Endpoints by (kind, key)."""
    times = true_times(report)
    out = defaultdict(list)
    for batch in batches:
        if not batch.table_len("ep"):
            continue
        data, seq, raw, lasts = batch.data, batch.seq(), batch.raw_ns(), batch.wide("duration_ns")
        chains = [clock_chain(batch, place) for place in range(batch.table_len("src"))]
        for at in range(batch.table_len("ep")):
            row = int(data["ep_row"][at])
            source = int(data["source"][row])
            name = batch.strings[data["src_name"][source]]
            shift, chain = chains[source]
            begin = int(raw[row]) + shift
            true_begin, true_end = times[name]
            member = Member(
                Role(data["ep_role"][at]),
                Op(data["ep_op"][at]),
                int(data["ep_size"][at]),
                name,
                batch.strings[data["src_host"][source]],
                int(data["src_rank"][source]),
                chain,
                Point(data["ep_point"][at]),
                (begin, begin + int(lasts[row])),
                (int(true_begin[seq[row]]), int(true_end[seq[row]])),
            )
            out[EdgeKind(data["ep_kind"][at]), int(data["ep_key"][at])].append(member)
    return out


def edges(groups: dict[tuple[EdgeKind, int], list[Member]]) -> Iterator[Edge]:
    """Every edge, members of a collective paired one by one."""
    for (kind, _), group in groups.items():
        for cause in group:
            for effect in group:
                if cause is effect or cause.role == Role.EFFECT or effect.role == Role.CAUSE:
                    continue
                ends = kind == EdgeKind.COLLECTIVE
                i = 1 if not ends and cause.point == Point.END else 0
                j = 1 if ends or effect.point == Point.END else 0
                yield Edge(
                    kind,
                    cause,
                    effect,
                    effect.mapped[j] - cause.mapped[i],
                    diff_bound(cause, effect),
                    effect.true[j] - cause.true[i],
                )


def watermarks_broken(batches: list[Batch]) -> list[str]:
    """Sources with a row below what an earlier batch promised, or a promise lower than an earlier one."""
    promised: dict[str, int] = {}
    broken = []
    for batch in batches:
        if batch.family == "control":
            continue
        raw, source = batch.raw_ns(), batch.data.get("source", np.empty(0, int))
        for place in range(batch.table_len("src")):
            name = batch.strings[batch.data["src_name"][place]]
            mine = raw[source == place]
            mark = int(batch.data["src_low_watermark_ns"][place])
            assert mark != NULL_I64
            before = promised.get(name, mark)
            if mark < before or (len(mine) and int(mine.min()) < before):
                broken.append(name)
            promised[name] = mark
    return broken


def seq_gaps(batches: list[Batch]) -> list[str]:
    """Sources whose entries do not number their rows from 0 without a gap."""
    expected: dict[str, int] = defaultdict(int)
    wrong = []
    for batch in batches:
        for place in range(batch.table_len("src")):
            name = batch.strings[batch.data["src_name"][place]]
            if batch.data["src_first_seq"][place] != expected[name]:
                wrong.append(name)
            expected[name] = int(batch.data["src_last_seq"][place]) + 1
    return wrong


def overlapping(begin: np.ndarray, end: np.ndarray) -> int:
    """Number of events that begin before the one ahead of them has ended."""
    return sum(b[0] < a[1] for a, b in pairwise(zip(begin.tolist(), end.tolist(), strict=True)))


def group_names(batch: Batch) -> list[str | None]:
    """Process group of each endpoint."""
    return [
        None if group == NULL_U16 else batch.strings[batch.data["grp_name"][group]]
        for group in batch.data["ep_group"]
    ]
