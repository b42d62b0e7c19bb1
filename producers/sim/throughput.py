"""The scenario `throughput`: many sources, little meaning, made fast; for benchmarks.

Time is a grid: row j of every source begins in cell j, which is a microsecond long for each source. In each
cell a tenth of the sources, drawn anew, are causes, and as many others their effects a network delay later:
20 % of the events are on edges. Every second host states ±1 µs, the others ±50 µs, and keeps to it, so that
by stamps alone a part of the effects comes before the cause.
"""

import math
import threading
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from producers.sim.clocks import Clocks
from producers.sim.families import Filled, endpoints, host_name, key_base, keys
from producers.sim.options import SimOptions, SimReport
from producers.sim.rows import I64, Rows
from producers.sim.writer import Writer
from schemas.batch import Batch
from schemas.columns import EdgeKind, GpuKind, Point, Role
from schemas.flat import Array
from schemas.pack import Source, Strings

CELL_NS_A_SOURCE = 1_000  # a million events a second of simulated time, over all sources
HOSTS_MIN, SOURCES_A_HOST = 8, 64
EDGES_A_SOURCE = 0.1  # in each cell; each edge has two events
# What a cell holds one after the other, as shares of it: a begin, a delay, a length.
BEGIN, DELAY, LENGTH = 0.5, 0.2, 0.3
DELAY_NS, DELAY_SIGMA = 20_000, 0.6  # log-normal; the median is at most 0.6 of the share of a cell
BOUNDS_NS = (1_000, 50_000)
NAMES = ("gemm_bf16_256x128_nn", "layer_norm", "elementwise_add", "flash_attention_fwd")
STREAM = 7
NO_ROLE = 255


@dataclass(frozen=True)
class Grid:
    """Size of the stream."""

    sources: int
    events: int

    @property
    def hosts(self) -> int:
        return -(-self.sources // self.per_host)

    @property
    def per_host(self) -> int:
        """Sources of a host; the last host may have fewer."""
        return -(-self.sources // max(HOSTS_MIN, -(-self.sources // SOURCES_A_HOST)))

    @property
    def cell_ns(self) -> int:
        return self.sources * CELL_NS_A_SOURCE

    @property
    def cells(self) -> int:
        """Cells with a row; the last may lack some sources."""
        return -(-self.events // self.sources)

    def edges_before(self, cell: I64) -> I64:
        """Edges in all cells before each of these."""
        return (cell * (EDGES_A_SOURCE * self.sources)).astype(np.int64)

    def ranks(self, host: int) -> range:
        """Sources of a host; each is a rank."""
        return range(host * self.per_host, min((host + 1) * self.per_host, self.sources))


class WideFamily:
    """Kernels, one stream a rank; some of them ends of a message."""

    name = "gpu"

    def __init__(self, grid: Grid) -> None:
        self._grid = grid

    def fill(self, rows: Rows, host: int, strings: Strings) -> Filled:
        count, ranks, number = len(rows), self._grid.ranks(host), rows.more["number"]
        names = np.array([strings.index(name) for name in NAMES])
        entities = np.array([strings.index(f"rank{rank}") for rank in ranks])
        own = rows.source - ranks[0]
        columns = {
            "kind": np.full(count, int(GpuKind.KERNEL)),
            "entity": entities[own],
            "name": names[(number + own) % len(NAMES)],
            "correlation": number + 1,
            "device": own,
            "stream": np.full(count, STREAM),
        }
        row = np.flatnonzero(rows.more["role"] != NO_ROLE)
        role, key = rows.more["role"][row].astype(np.int64), rows.more["key"][row]
        return Filled(columns, endpoints=endpoints(row, Point.BEGIN, EdgeKind.MESSAGE, role, key))


def wide_stream(
    options: SimOptions, report: SimReport, rng: np.random.Generator, stop: threading.Event | None = None
) -> Iterator[tuple[int, list[Batch]]]:
    """The stream in spans of time, as cluster.chunks: `options.events` events, fewer if stopped."""
    grid = Grid(options.sources, options.events)
    clock_rng, rng = rng.spawn(2)
    bounds = [BOUNDS_NS[host % 2] for host in range(grid.hosts)]
    names = [host_name(host) for host in range(grid.hosts)]
    clocks = Clocks(names, 0, options.start_ns, bounds, [], clock_rng)
    writers = [_writer(host, grid, clocks, options, report) for host in range(grid.hosts)]
    report.truth.update(
        scenario=options.scenario,
        seed=options.seed,
        scope=options.scope_name,
        start_ns=options.start_ns,
        faults=[],
    )
    begun: list[Batch] = []
    for writer in writers:
        begun += [writer.open(grid.sources, grid.hosts), writer.heartbeat(np.zeros(len(writer), np.int64))]
    yield 0, begun
    family = WideFamily(grid)
    base = np.uint64(key_base("wide", options.incarnation))
    depth = max(options.batch_events // grid.per_host, 1)  # cells that fill a batch of each host
    now = 0
    for first in range(0, grid.cells, depth):
        if stop is not None and stop.is_set():
            break
        last = min(first + depth, grid.cells)
        rows = _rows(grid, np.arange(first, last), base, rng)
        now = last * grid.cell_ns
        out: list[Batch] = []
        for writer in writers:
            low = np.full(len(writer), now, np.int64)
            out += writer.write(family, _of_host(rows, grid, writer.host), low, now)
        yield now, out
    yield now, [writer.heartbeat(np.full(len(writer), now, np.int64), final=True) for writer in writers]


def _writer(host: int, grid: Grid, clocks: Clocks, options: SimOptions, report: SimReport) -> Writer:
    phc = host * clocks.per_host
    name = host_name(host)
    sources = [
        Source(
            f"rank{rank}/stream {STREAM}",
            name,
            clocks.states[phc],
            options.incarnation,
            rank=rank,
            live=options.live,
        )
        for rank in grid.ranks(host)
    ]
    clock = np.full(len(sources), phc)
    first = grid.ranks(host)[0]
    return Writer(f"sim/{name}", host, sources, first, clock, phc, clocks, options, report)


def _rows(grid: Grid, cell: I64, base: np.uint64, rng: np.random.Generator) -> Rows:
    """All rows of some cells, as arrays of shape (cells, sources)."""
    shape = (len(cell), grid.sources)
    begin = (rng.random(shape, np.float32) * (BEGIN * grid.cell_ns)).astype(np.int64) + cell[
        :, None
    ] * grid.cell_ns
    lasts = (rng.random(shape, np.float32) * (LENGTH * grid.cell_ns)).astype(np.int64) // 2 + 1
    role = np.full(shape, NO_ROLE, np.uint8)
    key = np.zeros(shape, np.uint64)
    whole = int(np.searchsorted(cell, grid.events // grid.sources))  # cells that lack no source
    most = math.ceil(EDGES_A_SOURCE * grid.sources)
    before = grid.edges_before(cell[:whole, None])
    number = before + np.arange(most)
    real = number < grid.edges_before(cell[:whole, None] + 1)
    cause = (rng.integers(0, grid.sources, (whole, 1)) + np.arange(most)) % grid.sources
    # Turned by as many places as there are causes, or more, so that no cause is an effect too.
    effect = (cause + rng.integers(most, grid.sources - most + 1, (whole, 1))) % grid.sources
    longest = DELAY * grid.cell_ns
    delay = min(DELAY_NS, 0.6 * longest) * np.exp(DELAY_SIGMA * rng.standard_normal(effect.shape))
    at, place = np.nonzero(real)
    cause, effect = cause[at, place], effect[at, place]
    begin[at, effect] = begin[at, cause] + np.clip(delay[at, place], 1, longest).astype(np.int64)
    role[at, cause], role[at, effect] = int(Role.CAUSE), int(Role.EFFECT)
    key[at, cause] = key[at, effect] = keys(np.full(len(at), base), number[real])
    more: dict[str, Array] = {"role": role, "key": key, "number": np.broadcast_to(cell[:, None], shape)}
    return Rows(np.broadcast_to(np.arange(grid.sources), shape), begin, begin + lasts, more)


def _of_host(rows: Rows, grid: Grid, host: int) -> Rows:
    """The rows of a host in time: cells do not overlap, so each is sorted alone."""
    ranks = grid.ranks(host)
    mine = slice(ranks[0], ranks[-1] + 1)
    order = np.argsort(rows.begin[:, mine], axis=1)
    line = np.arange(len(order))[:, None]

    def flat(column: Array) -> Array:
        out: Array = column[:, mine][line, order].ravel()
        return out

    more = {name: flat(column) for name, column in rows.more.items()}
    out = Rows(flat(rows.source), flat(rows.begin), flat(rows.end), more)
    kept = out.more["number"] * grid.sources + out.source < grid.events
    return out if kept.all() else out.take(kept)
