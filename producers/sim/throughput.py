"""The scenario `throughput`: many sources, little meaning, made fast; for benchmarks.

Time is a grid: row j of every source begins in the first half of cell j. In every second cell a fifth of the
sources, drawn anew, are causes, and as many sources of the next cell their effects: 20 % of the events are on
edges, each from 0.5 to 1.5 cells long. Every second host states ±1 µs, the others ±50 µs, and keeps to it.
"""

import threading
from collections.abc import Iterator

import numpy as np

from producers.sim.clocks import Clocks
from producers.sim.families import Filled, endpoints, key_base, keys
from producers.sim.options import SimOptions, SimReport
from producers.sim.rows import Rows
from producers.sim.writer import Writer
from schemas.batch import Batch
from schemas.columns import EdgeKind, GpuKind, Point, Role
from schemas.flat import Array
from schemas.pack import Source, Strings

EVENTS_A_SECOND = 1_000_000  # of simulated time, over all sources
SOURCES_A_HOST = 64
ON_EDGES = 0.2
BOUNDS_NS = (1_000, 50_000)
NAMES = ("gemm_bf16_256x128_nn", "layer_norm", "elementwise_add", "flash_attention_fwd")
STREAM = 7
NO_ROLE = 255


class WideFamily:
    """Kernels, one stream a rank; some of them ends of a message."""

    name = "gpu"

    def __init__(self, sources: int) -> None:
        self._sources = sources

    def fill(self, rows: Rows, host: int, strings: Strings) -> Filled:
        count = len(rows)
        first = host * SOURCES_A_HOST
        names = np.array([strings.index(name) for name in NAMES])
        ranks = range(first, min(first + SOURCES_A_HOST, self._sources))
        entities = np.array([strings.index(f"rank{rank}") for rank in ranks])
        own = rows.source - first
        number = rows.more["number"]
        columns = {
            "duration_ns": rows.end - rows.begin,
            "kind": np.full(count, int(GpuKind.KERNEL)),
            "entity": entities[own],
            "name": names[(number + own) % len(NAMES)],
            "correlation": number + 1,
            "device": own % 8,
            "stream": np.full(count, STREAM),
        }
        row = np.flatnonzero(rows.more["role"] != NO_ROLE)
        role, key = rows.more["role"][row].astype(np.int64), rows.more["key"][row]
        return Filled(columns, endpoints=endpoints(row, Point.BEGIN, EdgeKind.MESSAGE, role, key))


def wide_stream(
    options: SimOptions, report: SimReport, rng: np.random.Generator, stop: threading.Event | None = None
) -> Iterator[tuple[int, list[Batch]]]:
    """The stream in spans of time, as cluster.chunks: `options.events` events, fewer if stopped."""
    count = options.sources
    cell_ns = count * 1_000_000_000 // EVENTS_A_SECOND
    hosts = -(-count // SOURCES_A_HOST)
    clock_rng, rng = rng.spawn(2)
    bounds = [BOUNDS_NS[host % 2] for host in range(hosts)]
    clocks = Clocks([f"host{h}" for h in range(hosts)], 0, options.start_ns, bounds, [], clock_rng)
    writers = [_writer(host, count, clocks, options, report) for host in range(hosts)]
    report.truth.update(
        scenario=options.scenario,
        seed=options.seed,
        scope=options.scope_name,
        start_ns=options.start_ns,
        faults=[],
    )
    yield 0, [batch for writer in writers for batch in _begin(writer, count, hosts)]
    family = WideFamily(count)
    base = np.uint64(key_base("wide", options.incarnation))
    # Chunks of whole cause and effect cells, of about one batch a host.
    depth = max(options.batch_events // min(count, SOURCES_A_HOST) // 2 * 2, 2)
    cells = -(-options.events // count)
    edges = 0
    now = 0
    for first in range(0, cells, depth):
        if stop is not None and stop.is_set():
            break
        rows, edges = _cells(options, rng, first, min(depth, cells - first), cell_ns, base, edges)
        now = (first + depth) * cell_ns
        out: list[Batch] = []
        for writer in writers:
            low = np.full(len(writer), now, np.int64)
            last = writer.first + len(writer)
            out += writer.write(family, _of_host(rows, writer.first, last, options.events, count), low, now)
        yield now, out
    yield now, [writer.heartbeat(np.full(len(writer), now, np.int64), final=True) for writer in writers]


def _writer(host: int, count: int, clocks: Clocks, options: SimOptions, report: SimReport) -> Writer:
    ranks = range(host * SOURCES_A_HOST, min((host + 1) * SOURCES_A_HOST, count))
    phc = host * clocks.per_host
    state = clocks.states[phc]
    sources = [
        Source(
            f"rank{rank}/stream {STREAM}", f"host{host}", state, options.incarnation, rank, True, options.live
        )
        for rank in ranks
    ]
    clock = np.full(len(sources), phc)
    return Writer(f"sim/host{host}", host, sources, ranks[0], clock, phc, clocks, options, report)


def _begin(writer: Writer, ranks: int, hosts: int) -> Iterator[Batch]:
    yield writer.open(ranks, hosts)
    yield writer.heartbeat(np.zeros(len(writer), np.int64))


def _cells(
    options: SimOptions,
    rng: np.random.Generator,
    first: int,
    depth: int,
    cell_ns: int,
    base: np.uint64,
    edges: int,
) -> tuple[Rows, int]:
    """Cells first.. of all sources, as arrays of shape (depth, sources); and the edges made so far."""
    count = options.sources
    begin = (rng.random((depth, count), np.float32) * (0.5 * cell_ns)).astype(np.int64)
    lasts = (rng.random((depth, count), np.float32) * (0.3 * cell_ns)).astype(np.int64) + 1
    cell = np.arange(first, first + depth)
    begin += cell[:, None] * cell_ns
    role = np.full((depth, count), NO_ROLE, np.uint8)
    key = np.zeros((depth, count), np.uint64)
    whole = min(depth, options.events // count - first)  # the last cell may lack some sources
    pairs = whole // 2
    each = round(ON_EDGES * count)
    if pairs > 0 and each:
        at = 2 * np.arange(pairs)[:, None]
        cause = (rng.integers(0, count, (pairs, 1)) + np.arange(each)) % count
        effect = (cause + rng.integers(1, count, (pairs, 1))) % count
        number = keys(np.full(pairs * each, base), edges + np.arange(pairs * each)).reshape(pairs, each)
        role[at, cause], key[at, cause] = int(Role.CAUSE), number
        role[at + 1, effect], key[at + 1, effect] = int(Role.EFFECT), number
        edges += pairs * each
    source = np.broadcast_to(np.arange(count), (depth, count))
    number_of = np.broadcast_to(cell[:, None], (depth, count))
    more: dict[str, Array] = {"role": role, "key": key, "number": number_of}
    return Rows(source, begin, begin + lasts, more), edges


def _of_host(cells: Rows, first: int, last: int, events: int, count: int) -> Rows:
    """The rows of sources first..last - 1 in time: cells do not overlap, so each is sorted alone."""
    mine = slice(first, last)
    begin = cells.begin[:, mine]
    order = np.argsort(begin, axis=1)
    line = np.arange(len(begin))[:, None]

    def flat(column: Array) -> Array:
        out: Array = column[:, mine][line, order].ravel()
        return out

    rows = Rows(
        flat(cells.source),
        flat(cells.begin),
        flat(cells.end),
        {name: flat(column) for name, column in cells.more.items()},
    )
    if (int(cells.more["number"][-1, 0]) + 1) * count <= events:
        return rows
    return rows.take(rows.more["number"] * count + rows.source < events)
