"""Which slot holds for a stamp whose batch stated another: a window's stamps, judged by the states of its clocks."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from streams.clock.book import ClockBook
from streams.clock.decide import Chain, Moment, decide
from streams.clock.states import States

Slots = NDArray[np.int32]


def applied(
    book: ClockBook, slots: Slots, time_ns: NDArray[np.int64], states: States, now_ns: int
) -> tuple[Slots, dict[str, int]]:
    """(slots that hold, new decisions: how many of each kind) of stamps by stated slot (-1: no clock) and time (TAI).

    The window that is judged ends at `now_ns`. Stamps of one slot are one question, unless something changed of their
    clocks between the first and the last.
    """
    counts: dict[str, int] = {}
    if not len(states) or not len(book) or not len(slots):
        return slots, counts
    first, last = int(time_ns.min()), int(time_ns.max())
    size = len(book)
    used = np.zeros(size + 1, np.bool_)
    used[slots] = True  # -1 is the last place
    to = np.append(np.arange(size, dtype=np.int32), np.int32(-1))
    if book.changes != states.changes:
        book.changes = states.changes
        book.settled.clear()
    cut: list[tuple[int, list[int]]] = []
    cuts_of: dict[str, set[int]] = {}
    for slot in np.flatnonzero(used[:-1]).tolist():
        held = book.settled.get(slot)
        if held is not None and first >= held[0] and now_ns <= held[1]:
            to[slot] = held[2]
            continue
        cuts: set[int] = set()
        names = [str(row[0]) for row in book.rows[slot]]
        for name in names:
            if name not in cuts_of:
                cuts_of[name] = {at for at in states.cuts(name) if first < at <= last}
            cuts |= cuts_of[name]
        if cuts:
            cut.append((slot, sorted(cuts)))
        else:
            made = to[slot] = _slot(book, slot, Moment(states, first, now_ns), counts)
            since, until = states.settled(names, now_ns)
            if first >= since:
                book.settled[slot] = since, until, made
    out: NDArray[Any] = to[slots]
    for slot, edges in cut:
        mine = np.flatnonzero(slots == slot)
        stretch = np.searchsorted(np.array(edges, np.int64), time_ns[mine], side="right")
        for k in np.unique(stretch).tolist():
            moment = Moment(states, edges[k - 1] if k else first, now_ns)
            out[mine[stretch == k]] = _slot(book, slot, moment, counts)
    return out, counts


def _slot(book: ClockBook, slot: int, moment: Moment, counts: dict[str, int]) -> int:
    """What holds of a slot at a moment; worked out anew only where something changed."""
    rows = book.rows[slot]
    version = tuple(moment.states.version(str(row[0]), moment.at_ns, moment.now_ns) for row in rows)
    known = book.decisions.get(slot)
    if known is not None and known[0] == version:
        return known[1]
    found, made = None, slot
    if any(version):
        line, steps, nodes = book.stated(slot)
        found = decide(Chain(rows, steps, nodes), line, moment)
    if found is not None:
        # What is known better of a clock makes its bound to TAI no wider than was stated.
        made, new = book.decided(slot, found.chain, found.line, book.total(slot) if found.stands else None)
        if new:
            counts["clocks_decided"] = counts.get("clocks_decided", 0) + 1
            counts["claims_widened"] = counts.get("claims_widened", 0) + found.widened
    book.decisions[slot] = version, made
    return made
