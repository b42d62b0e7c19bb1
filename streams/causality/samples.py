"""What the clocks' daemons said in a window: its rows of the clock family, for the states of the scope's clocks."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streams.causality.intake import Chunk, Part
from streams.clock.apply import applied
from streams.clock.book import ClockBook
from streams.clock.known import Told
from streams.clock.states import Rows, States

I64 = NDArray[np.int64]
Slots = NDArray[np.int32]
Apply = Callable[[Slots, I64], Slots]
FAMILY = "clock"
WHOLE = ("offset_ns", "delay_ns", "error_ns")


def judge(
    parts: Sequence[Part],
    states: States,
    clocks: ClockBook,
    start_ns: int,
    end_ns: int,
    count: Callable[..., None],
) -> Apply:
    """Take up what the rows of a window that is about to leave say of clocks; gives what applies that to stamps, by
    slot as stated and time (TAI)."""
    told = told_of(parts, clocks)
    samples = samples_of(parts, clocks, start_ns)
    if samples is not None or told or len(states):
        states.feed(samples, told)
    _epochs(states, count)

    def apply(slots: Slots, time_ns: I64) -> Slots:
        made, counts = applied(clocks, slots, time_ns, states, end_ns)
        for name, number in counts.items():
            count(name, number)
        return made

    return apply


def late(
    chunk: Chunk, rows: I64, time_ns: I64, states: States, clocks: ClockBook, count: Callable[..., None]
) -> None:
    """Rows of a batch that are too late for their window. A step that they tell is none the less one."""
    if chunk.batch.family == FAMILY:
        slots = chunk.clock_of[chunk.batch.data["source"][rows]]
        states.late(_rows(chunk, rows, time_ns[rows], slots, clocks))
        _epochs(states, count)


def _epochs(states: States, count: Callable[..., None]) -> None:
    if states.epochs:
        count("clock_epochs", states.epochs)
        states.epochs = 0


def told_of(parts: Sequence[Part], clocks: ClockBook) -> list[Told]:
    """Where rows of a window are stated to be of a later epoch of their clock, or of one that it hangs on."""
    counted = clocks.counted
    if not counted:
        return []
    first: dict[tuple[str, int], int] = {}
    for part in parts:
        if part.loose:
            continue
        slots = part.chunk.clock_of[part.chunk.batch.data["source"][part.rows]]
        for slot in np.unique(slots).tolist():
            for node in counted.get(slot, ()):
                at = int(part.time_ns[slots == slot].min())
                first[node] = min(at, first.get(node, at))
    return [Told(at, name, epoch) for (name, epoch), at in first.items()]


def samples_of(parts: Sequence[Part], clocks: ClockBook, start_ns: int) -> Rows | None:
    """The window's clock rows; None without any. In order of time, but each source in its own order: where a clock
    went back, what was logged later has the lesser stamp.

    Rows whose own stamp has no place in TAI, or that were set apart, say when they came and not when they held. Those
    from before the window were taken up with their own, or come from a clock that went back.
    """
    found, sources = [], []
    for part in parts:
        if part.chunk.batch.family != FAMILY or part.loose:
            continue
        slots = part.chunk.clock_of[part.chunk.batch.data["source"][part.rows]]
        at = np.flatnonzero(clocks.map_of(slots)[3] & (part.time_ns >= start_ns))
        if len(at):
            sources.append(part.source[at])
            found.append(_rows(part.chunk, part.rows[at], part.time_ns[at], slots[at], clocks))
    if not found:
        return None
    order = _in_order(np.concatenate([rows.time_ns for rows in found]), np.concatenate(sources))
    columns: dict[str, Any] = {}
    for name in Rows._fields:
        values = [getattr(rows, name) for rows in found]
        if isinstance(values[0], np.ndarray):
            columns[name] = np.concatenate(values)[order]
        else:
            flat = [text for texts in values for text in texts]
            columns[name] = [flat[at] for at in order.tolist()]
    return Rows(**columns)


def _in_order(time_ns: I64, source: NDArray[np.int32]) -> I64:
    """Places by time and then arrival; a row counts as no earlier than those before it of its source."""
    latest = time_ns.copy()
    for number in np.unique(source).tolist():
        mine = source == number
        latest[mine] = np.maximum.accumulate(time_ns[mine])
    return np.argsort(latest, kind="stable")


def _rows(chunk: Chunk, rows: NDArray[Any], time_ns: I64, slots: Slots, clocks: ClockBook) -> Rows:
    batch = chunk.batch

    def text(name: str) -> list[str | None]:
        return [batch.text(index) for index in batch.column(name)[rows].tolist()]

    clock = text("entity")
    stated = [
        dict(clocks.counted.get(slot, ())).get(name or "", 0)
        for slot, name in zip(slots.tolist(), clock, strict=True)
    ]
    return Rows(
        time_ns=time_ns,
        quantum_ns=clocks["quantum_ns"][slots],
        stated=np.array(stated, np.int64),
        clock=clock,
        parent=text("parent"),
        form=text("name"),
        text=text("text"),
        kind=batch.column("kind")[rows],
        servo=batch.column("servo")[rows],
        freq_ppb=batch.column("freq_ppb")[rows],
        **{name: batch.wide(name, rows) for name in WHOLE},
    )
