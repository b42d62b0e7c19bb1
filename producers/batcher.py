"""Gathers the rows of one live publisher into batches, by count and by time.

Every batch lists all the publisher's sources with their low watermarks, so a batch that happens to have no
rows is the heartbeat.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from schemas.batch import Batch
from schemas.columns import Control
from schemas.draft import Draft, control
from schemas.pack import Head, SeqBook, Source
from schemas.time import ClockState

ROWS_MAX: Final = 500
PERIOD_SECONDS: Final = 0.05

Emit = Callable[[Batch], None]


class Batcher:
    """Batches of one family, each sent to every scope given. `monotonic`: seconds that never go back."""

    def __init__(
        self,
        head: Head,
        emit: Emit,
        monotonic: Callable[[], float],
        *,
        more_scopes: Sequence[str] = (),
        rows_max: int = ROWS_MAX,
        period_s: float = PERIOD_SECONDS,
    ) -> None:
        self._head = head
        self._emit = emit
        self._monotonic = monotonic
        self._scopes = (head.scope, *more_scopes)
        self._rows_max = rows_max
        self._period_s = period_s
        self._book = SeqBook()
        self._draft = Draft(head, self._book)
        self._due_at = monotonic()

    @property
    def draft(self) -> Draft:
        """Where the next rows go; a new one after each `send`."""
        return self._draft

    @property
    def due_at(self) -> float:
        """When to call `send` at the latest, on the given clock."""
        return self._due_at

    @property
    def due(self) -> bool:
        """Whether a batch is full, or its time has come."""
        return len(self._draft) >= self._rows_max or self._monotonic() >= self._due_at

    def open(self, rows: Sequence[tuple[Control, int | None, str | None]]) -> None:
        """Announce the publisher in every scope, before its data."""
        for scope in self._scopes:
            self._emit(control(self._head.tenant, scope, self._head.publisher, rows))

    def send(
        self,
        watermarks: Mapping[Source, int],
        parents: Sequence[ClockState] = (),
        final: bool = False,
    ) -> None:
        """Send the rows so far. `watermarks` has every source, and a time on its clock below which no later
        row begins. `parents`: clocks that stamp no row but that a source's clock was measured against.
        """
        draft, self._draft = self._draft, Draft(self._head, self._book)
        for source, raw_ns in watermarks.items():
            draft.watermark(source, raw_ns)
            if final:
                draft.final(source)
        for clock in parents:
            draft.parent(clock)
        batch = draft.build()
        for scope in self._scopes:
            self._emit(batch if scope == batch.scope else replace(batch, scope=scope))
        self._due_at = self._monotonic() + self._period_s
