"""A released window as `merged` records, cut into parts that fit a message."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import pairwise

import numpy as np

from schemas import merged as m
from streams.causality.gather import Strings
from streams.causality.outgoing import Edges
from streams.causality.part import PartBuilder
from streams.causality.release import Released
from streams.causality.rows import final_order, rows_of
from streams.causality.sections import sections
from streams.causality.sources import Sources
from streams.causality.tables import Tables
from streams.clock.book import ClockBook

ROW_BYTES, EDGE_BYTES = 30, 100  # about, for the first guess of how many parts a window takes


@dataclass(frozen=True)
class About:
    """What the header of each part says beside its rows."""

    tenant: str
    scope: str
    window_start_ns: int
    window_end_ns: int
    late: int
    released_past: int
    policy_version: int
    partition: int
    first_offset: int
    last_offset: int
    mode: str = "normal"


def parts_of(
    released: Released | None,
    edges: Edges,
    about: About,
    sources: Sources,
    clocks: ClockBook,
    strings: Strings,
    tables: Tables,
    part_bytes_max: int,
) -> Iterator[tuple[bytes, int]]:
    """(record, its rows) of a window. `released` is None where only edges are left to tell (the end of a scope)."""
    tables.refresh()
    rows, own = None, {}
    weight = EDGE_BYTES * len(edges)
    if released is not None:
        order = final_order(released, about.window_start_ns)
        rows, own = rows_of(released, order, sources, clocks), sections(released, order)
        weight += ROW_BYTES * len(rows) + sum(section.nbytes for section in own.values())
    count = 0 if rows is None else len(rows)
    parts = max(1, -(-weight // part_bytes_max))
    cuts = [(count * k // parts, len(edges) * k // parts) for k in range(parts + 1)]
    waiting = list(pairwise(cuts))[::-1]
    done: list[tuple[int, int, PartBuilder]] = []
    while waiting:
        (row, edge), (row_end, edge_end) = first, last = waiting.pop()
        builder = PartBuilder(sources, strings, tables)
        if rows is not None:
            builder.rows(rows, row, row_end, about.window_start_ns)
            for family, section in own.items():
                builder.section(family, section, row, row_end)
        builder.edges(edges, edge, edge_end)
        builder.build()
        # A part that its tables make too large after all is cut in two.
        if builder.size > part_bytes_max and max(row_end - row, edge_end - edge) > 1:
            middle = ((row + row_end) // 2, (edge + edge_end) // 2)
            waiting += [(middle, last), (first, middle)]
        else:
            done.append((row, row_end - row, builder))
    statistics = done[0][2].data
    statistics["inversions_raw"] = edges.inversions_raw
    statistics["inversions_after"] = edges.inversions_after
    statistics["verdicts"] = np.ascontiguousarray(edges.verdicts.ravel())
    for k, (row, length, builder) in enumerate(done):
        header: dict[str, str | int] = {
            **asdict(about),
            "part": k,
            "parts": len(done),
            "first_row": row,
            "count": length,
            "rows": count,
            "edges_unrepaired": edges.unrepaired,
        }
        yield m.write(m.Merged(header, builder.strings, builder.data)), length
