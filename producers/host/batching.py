"""Rows of clock logs into batches of the clock family."""

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from producers.host.grammar import Row
from producers.host.reading import SYSTEM
from producers.host.stampclocks import system_clock
from schemas.batch import Batch
from schemas.draft import Draft
from schemas.pack import Head, SeqBook, Source

FAMILY: Final = "clock"


class Located(NamedTuple):
    """A row with its source and what may be promised after it.

    `order_ns` is the time to merge files by. No later row of the same `file` lies below `promise_ns` (TAI),
    which is `shift_ns` above the source's own clock; both None where the stamps have no map to TAI. `last`:
    no row of this source follows."""

    order_ns: int
    row: Row
    source: Source
    host: str
    file: int
    promise_ns: int | None
    shift_ns: int | None
    last: bool


class Assembler:
    """Collects rows for the next batch. Every batch renews the promises of all open sources."""

    def __init__(self, head: Head) -> None:
        self._head = head
        self._book = SeqBook()
        self._draft = Draft(head, self._book)
        self._open: dict[str, tuple[Source, int, int | None]] = {}  # by name: source, file, shift
        self._in_draft: dict[str, Source] = {}
        self._promise: dict[int, int] = {}
        self._names: dict[tuple[str, str], str] = {}

    def __len__(self) -> int:
        return len(self._draft)

    def clashes(self, source: Source) -> bool:
        """Whether the batch must be cut first: this source's clock has a new epoch or map."""
        return self._in_draft.get(source.name, source) != source

    def add(self, entry: Located) -> None:
        """Add a row; the caller has asked `clashes`."""
        row, source, reading = entry.row, entry.source, entry.row.reading
        draft = self._draft
        entity = None if reading.clock is None else self._name(entry.host, reading.clock)
        parent = reading.parent
        if parent is not None and reading.parent_here:
            parent = self._name(entry.host, parent)
        at = draft.row(
            source, row.stamp.ns, kind=reading.kind, entity=entity, name=reading.form, parent=parent,
            offset_ns=reading.offset_ns, delay_ns=reading.delay_ns, freq_ppb=reading.freq_ppb,
            error_ns=reading.error_ns, spread_ns=reading.spread_ns, servo=reading.servo, text=reading.text,
        )  # fmt: skip
        for name, number in reading.values:
            draft.value(at, name, number)
        self._touch(source)
        self._open[source.name] = (source, entry.file, entry.shift_ns)
        if entry.promise_ns is not None:
            self._promise[entry.file] = entry.promise_ns
        if entry.last:
            draft.final(source)
            del self._open[source.name]

    def promise(self, file: int, tai_ns: int) -> None:
        """No later row of this file lies below this time."""
        self._promise[file] = tai_ns

    def finish(self, file: int) -> None:
        """No row of any source of this file follows."""
        for name, (source, of_file, _) in list(self._open.items()):
            if of_file == file:
                self._touch(source)
                self._draft.final(source)
                del self._open[name]

    def build(self) -> Batch:
        """The batch: its rows, and the promises of all sources that are open. The next one begins empty."""
        draft = self._draft
        for source, file, shift_ns in self._open.values():
            if shift_ns is not None and file in self._promise:
                self._touch(source)
                draft.watermark(source, self._promise[file] - shift_ns)
        self._draft = Draft(self._head, self._book)
        self._in_draft = {}
        return draft.build()

    def _touch(self, source: Source) -> None:
        """State what the source's clock hangs on."""
        self._in_draft.setdefault(source.name, source)
        if source.clock.parent is not None:
            self._draft.parent(system_clock(source.clock.parent.removesuffix(f"/{SYSTEM}"), 1))

    def _name(self, host: str, clock: str) -> str:
        known = self._names.get((host, clock))
        if known is None:
            known = self._names[host, clock] = f"{host}/{clock}"
        return known


def batches(rows: Iterable[Located], head: Head, rows_max: int) -> Iterator[Batch]:
    """Batches of at most so many rows, cut where a stamping clock changes."""
    made = Assembler(head)
    for entry in rows:
        if len(made) >= rows_max or made.clashes(entry.source):
            yield made.build()
        made.add(entry)
    if len(made):
        yield made.build()
