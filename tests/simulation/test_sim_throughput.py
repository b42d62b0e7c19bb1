"""The wide stream for benchmarks: as many events and edges as promised, and true ones."""

from collections import Counter
from dataclasses import replace

import pytest

from producers.sim.options import SimOptions
from schemas.columns import EdgeKind
from tests.simulation.sim_log import edges, members, overlapping, rows_by_source, seq_gaps, simulate
from tests.simulation.sim_log import watermarks_broken as broken
from tests.simulation.true_times import true_times

WIDE = SimOptions(scenario="throughput", seed=3, events=30_001, sources=100)


@pytest.mark.parametrize("sources", [100, 64, 3])
def test_a_fifth_of_the_events_is_on_edges(sources: int) -> None:
    batches, _ = simulate(replace(WIDE, sources=sources))
    assert sum(batch.table_len("ep") for batch in batches) / WIDE.events == pytest.approx(0.2, abs=0.001)


@pytest.mark.parametrize(
    ("events", "sources"), [(30_001, 100), (1, 2), (500, 300), (20_000, 64), (2_000, 999)]
)
def test_it_has_exactly_the_events_asked_for(events: int, sources: int) -> None:
    batches, report = simulate(replace(WIDE, events=events, sources=sources))
    assert report.events == events
    rows = rows_by_source(batches)
    assert sum(len(seq) for seq, _, _ in rows.values()) == events
    assert len(rows) == min(sources, events)
    assert (broken(batches), seq_gaps(batches)) == ([], [])


def test_its_edges_hold_and_not_all_can_be_proven() -> None:
    batches, report = simulate(WIDE)
    groups = members(batches, report)
    assert {len(group) for group in groups.values()} == {2}
    bounds: Counter[int] = Counter()
    proven = inverted = 0
    for edge in edges(groups):
        assert edge.kind == EdgeKind.MESSAGE
        assert edge.true_gap_ns > 0
        assert not edge.violated
        bounds[edge.bound_ns] += 1
        proven += edge.gap_ns > edge.bound_ns
        inverted += edge.gap_ns < 0
    assert set(bounds) == {0, 2_000, 51_000, 100_000}  # eight hosts, by turns ±1 and ±50 µs
    assert 0.2 < proven / len(groups) < 0.4
    assert 0.2 < inverted / len(groups) < 0.4


def test_its_streams_do_not_overlap() -> None:
    _, report = simulate(WIDE)
    assert sum(overlapping(begin, end) for begin, end in true_times(report).values()) == 0
