"""What the clocks' daemons said in a window: its rows of the clock family, for the states of the scope's clocks."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streams.causality.intake import Part
from streams.clock.book import ClockBook
from streams.clock.states import Rows, States

Slots = NDArray[np.int32]
FAMILY = "clock"
WHOLE = ("offset_ns", "delay_ns", "error_ns")


def judge(
    parts: Sequence[Part], states: States, clocks: ClockBook, end_ns: int, count: Callable[..., None]
) -> Callable[[Slots], Slots]:
    """Take up the samples of a window that is about to leave; gives what applies a clock's state as of its end."""
    samples = samples_of(parts, clocks)
    if samples is not None:
        states.feed(samples)
        count("clock_epochs", states.epochs)
        states.epochs = 0

    def applied(slots: Slots) -> Slots:
        made, counts = clocks.applied(slots, states, end_ns)
        for name, number in counts.items():
            count(name, number)
        return made

    return applied


def samples_of(parts: Sequence[Part], clocks: ClockBook) -> Rows | None:
    """The window's clock rows in order of time (then of arrival); None without any.

    Rows whose own stamp has no place in TAI, or that were set apart, say when they came and not when they held.
    """
    found = []
    for part in parts:
        if part.chunk.batch.family != FAMILY or part.loose:
            continue
        slots = part.chunk.clock_of[part.chunk.batch.data["source"][part.rows]]
        rows = np.flatnonzero(clocks.map_of(slots)[3])
        if len(rows):
            found.append(_rows(part, rows, clocks["quantum_ns"][slots[rows]]))
    if not found:
        return None
    time_ns = np.concatenate([rows.time_ns for rows in found])
    order = np.argsort(time_ns, kind="stable")
    columns: dict[str, Any] = {}
    for name in Rows._fields:
        values = [getattr(rows, name) for rows in found]
        if isinstance(values[0], np.ndarray):
            columns[name] = np.concatenate(values)[order]
        else:
            flat = [text for texts in values for text in texts]
            columns[name] = [flat[at] for at in order.tolist()]
    return Rows(**columns)


def _rows(part: Part, at: NDArray[np.int64], quantum_ns: NDArray[np.int64]) -> Rows:
    batch, rows = part.chunk.batch, part.rows[at]

    def text(name: str) -> list[str | None]:
        return [batch.text(index) for index in batch.column(name)[rows].tolist()]

    return Rows(
        time_ns=part.time_ns[at],
        quantum_ns=quantum_ns,
        clock=text("entity"),
        parent=text("parent"),
        form=text("name"),
        text=text("text"),
        kind=batch.column("kind")[rows],
        servo=batch.column("servo")[rows],
        freq_ppb=batch.column("freq_ppb")[rows],
        **{name: batch.wide(name, rows) for name in WHOLE},
    )
