"""One simulated publisher: its sources and their clocks, numbering, watermarks, and rows cut into batches."""

from collections.abc import Iterator, Sequence

import numpy as np

from producers.sim.clocks import Clocks
from producers.sim.families import Family
from producers.sim.options import SimOptions, SimReport
from producers.sim.rows import I64, Rows
from schemas.batch import Batch
from schemas.columns import Control
from schemas.draft import control
from schemas.pack import Head, SeqBook, Source, Strings, pack


class Writer:
    """Writes the rows of the sources numbered `first` and on, in the cluster's numbering.

    `clock` holds the index in `clocks` of the clock that stamps each of them, `phc` that of their host's PHC.
    """

    def __init__(
        self,
        name: str,
        host: int,
        sources: Sequence[Source],
        first: int,
        clock: I64,
        phc: int,
        clocks: Clocks,
        options: SimOptions,
        report: SimReport,
    ) -> None:
        self.host = host
        self.first = first
        self._name = name
        self._sources = list(sources)
        self._clock = clock
        self._clocks = clocks
        self._parents = [clocks.states[phc]]
        self._options = options
        self._report = report
        self._book = SeqBook()

    def __len__(self) -> int:
        return len(self._sources)

    def _head(self, family: str) -> Head:
        return Head(self._options.tenant, self._options.scope_name, self._name, family)

    def _count(self, batch: Batch) -> Batch:
        self._report.batches += 1
        self._report.events += batch.count if batch.family != "control" else 0
        return batch

    def open(self, ranks: int, hosts: int) -> Batch:
        """The batch that says how many ranks and hosts the job has."""
        rows = [(Control.OPEN, ranks, "ranks"), (Control.OPEN, hosts, "hosts")]
        options = self._options
        return self._count(control(options.tenant, options.scope_name, self._name, rows))

    def heartbeat(self, low_ns: I64, final: bool = False) -> Batch:
        """A batch without rows: no later row of a source begins below its `low_ns` (true time, by source)."""
        batch = pack(
            self._head("gpu"),
            Strings(),
            self._sources,
            [self._book.take(source, 0) for source in self._sources],
            np.empty(0, np.int64),
            np.empty(0, np.int64),
            {},
            parents=self._parents,
            watermark_ns=self._clocks.floor(self._clock, low_ns).tolist(),
            final=[final] * len(self._sources),
        )
        return self._count(batch)

    def write(self, family: Family, rows: Rows, low_ns: I64, now_ns: int) -> Iterator[Batch]:
        """Rows of this publisher, sorted by begin, as batches; `low_ns` as in heartbeat, for what follows."""
        size = self._options.batch_events
        for start in range(0, len(rows), size):
            part = rows.cut(start, start + size)
            rest = int(rows.begin[start + size]) if start + size < len(rows) else now_ns
            yield self._batch(family, part, np.minimum(low_ns, rest))

    def _batch(self, family: Family, rows: Rows, low_ns: I64) -> Batch:
        own = rows.source - self.first
        count = np.bincount(own, minlength=len(self._sources))
        used = np.flatnonzero(count)
        place = np.zeros(len(self._sources), np.int64)
        place[used] = np.arange(len(used))
        sources = [self._sources[number] for number in used]
        first_seq = [
            self._book.take(source, int(taken)) for source, taken in zip(sources, count[used], strict=True)
        ]
        strings = Strings()
        filled = family.fill(rows, self.host, strings)
        if self._report.keep_times:
            for number in used:
                mine = own == number
                self._report.keep(self._sources[number].name, rows.begin[mine], rows.end[mine])
        clock = self._clock[own]
        filled.columns["duration_ns"] = self._clocks.lasted(clock, rows.begin, rows.end)
        batch = pack(
            self._head(family.name),
            strings,
            sources,
            first_seq,
            place[own],
            self._clocks.read(clock, rows.begin),
            filled.columns,
            groups=filled.groups,
            parents=self._parents,
            endpoints=filled.endpoints,
            values=filled.values,
            watermark_ns=self._clocks.floor(self._clock[used], low_ns[used]).tolist(),
            final=None,
        )
        return self._count(batch)
