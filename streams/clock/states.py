"""The state of each clock of a scope, from the log alone: what its samples say, and what becomes of a claim.

Rows of the clock family go to the *relation* of their clock with the parent it was measured against
(streams.clock.relation). A stamp's clock is first what its batch's header states. `decide` then says what the merge
applies to it:

- a claim (assurance `claimed`) gives way to a hard or statistical bound of the same clock. The chain then goes
  through the measured parent, so that two clocks measured against one parent meet there; from that parent to TAI
  it is claimed still, as wide as the claim and the measurement together;
- a claim that a sample contradicts, whatever its assurance, is widened to cover the sample, and proves nothing;
- a statement of before a step, and a claim of before its daemon fell silent for long, say nothing any more: unknown;
- else the statement stands.

Epochs. A clock's errors cancel within one epoch alone, so each step, jump and reset, told by a row, by a statement that
counts a new epoch, or found by a sample, begins a new one for the clock. A window is judged when it leaves, and a step
may lie inside it: its stamps up to the last sample before are judged by the epoch that ended (`Before`), those from the
step on by the new one, and those between by neither: they are `torn`, comparable with nothing.

The claim stays on record: the state's provenance names it. The nominal map never changes, so a row lies where it lay.
A decided bound is one of |offset| from that map.

GM → PHC → system clock → GPU: a parent that has relations of its own goes on the chain with its measured step.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from schemas.columns import NULL_I64, NULL_U8, Assurance, Status
from schemas.columns import ClockKindOfRow as Kind
from schemas.time import NS
from streams.clock.estimate import ONE_WAY, REPORT, ROUND_TRIP, read_of, status_of
from streams.clock.known import PLAIN, Before, Clock, Look, Told, ended, parent_name
from streams.clock.relation import NEVER, Declared, Measured, Relation, Sample

I64 = NDArray[np.int64]
CLOCKS_MAX: Final = 20_000
WHY_MAX: Final = 200  # characters of what a row told
BACK_NS_MAX: Final = 20 * NS  # what is set back by more is not among the sources that hold a window
ERROR_NS_MAX: Final = 2**52  # 52 days: a sample that is further off, or less sure, is none
_SAMPLES: Final = (Kind.SERVO, Kind.MEASUREMENT, Kind.TRACKING)


class Rows(NamedTuple):
    """Rows of the clock family in order of time, all of one length; None, NULL_I64, NaN and 255 are unknown.

    `stated`: the epoch that the statement under which a row was stamped counts of the clock that the row is about; 0 if
    it counts none.
    """

    time_ns: I64  # TAI
    quantum_ns: I64  # of the stamp: the row is of some moment in [time_ns, time_ns + quantum_ns)
    stated: I64
    clock: Sequence[str | None]
    parent: Sequence[str | None]
    form: Sequence[str | None]
    text: Sequence[str | None]
    kind: NDArray[np.uint8]
    servo: NDArray[np.uint8]
    offset_ns: I64
    delay_ns: I64
    error_ns: I64
    freq_ppb: NDArray[np.float64]


class States:
    """Clocks by name."""

    def __init__(self, declared: Declared | None = None) -> None:
        self.declared = declared or Declared()
        self._clocks: dict[str, Clock] = {}
        self.changes = 0  # goes up whenever an answer may be another than before
        self.epochs = 0  # new epochs that were begun since the last look

    def __len__(self) -> int:
        return len(self._clocks)

    def feed(self, rows: Rows | None, told: Sequence[Told] = ()) -> None:
        """Take the rows and statements of the next window: rows in order of time as far as each source keeps it."""
        torn = [clock for clock in self._clocks.values() if clock.before is not None]
        for clock in torn:
            clock.before = None
        if torn or told or rows is not None:
            self.changes += 1
        waiting = sorted(told, reverse=True)
        for k in range(0 if rows is None else len(rows.time_ns)):
            assert rows is not None
            while waiting and waiting[-1].time_ns <= rows.time_ns[k]:
                self._restate(waiting.pop())
            self._row(rows, k, late=False)
        while waiting:
            self._restate(waiting.pop())

    def late(self, rows: Rows) -> None:
        """Rows that came too late for their window. What they measured is past; that a clock was stepped is not."""
        self.changes += 1
        for k in range(len(rows.time_ns)):
            self._row(rows, k, late=True)

    def _clock(self, name: str) -> Clock | None:
        """The clock of this name, new if need be; None where too many are known."""
        clock = self._clocks.get(name)
        if clock is None and len(self._clocks) < CLOCKS_MAX:
            clock = self._clocks[name] = Clock()
        return clock

    def _restate(self, told: Told) -> None:
        clock = self._clock(told.clock)
        if clock is None or told.epoch <= clock.stated:
            return
        if clock.relations:
            why = f"its statement counts epoch {told.epoch}"
            self._break(clock, told.time_ns - 1, told.time_ns, why, late=False)
            clock.restated = True
        clock.stated, clock.stated_ns = told.epoch, told.time_ns

    def _break(self, clock: Clock, last_ns: int, since_ns: int, why: str, late: bool) -> None:
        """Begin a new epoch, in which nothing of before holds. It began after `last_ns`, and by `since_ns` for sure."""
        if clock.before is None and not late:
            known = {
                parent: one for parent, one in clock.relations.items() if NEVER < one.as_of_ns <= last_ns
            }
            until = max((one.as_of_ns for one in known.values()), default=last_ns)
            kept = {parent: one.copy() for parent, one in known.items()}
            clock.before = Before(until, last_ns, clock.epoch, clock.stated, kept)
        elif clock.before is not None and last_ns < clock.before.last_ns:
            clock.before = clock.before._replace(
                until_ns=min(clock.before.until_ns, last_ns), last_ns=last_ns
            )
        for one in clock.relations.values():
            one.restart()
        clock.epoch, clock.why = clock.epoch + 1, why[:WHY_MAX]
        clock.told_ns, clock.since_ns, clock.restated = since_ns, max(clock.since_ns, since_ns), False
        self.epochs += 1

    def _row(self, rows: Rows, k: int, late: bool) -> None:
        name, form, text = rows.clock[k], rows.form[k] or "", rows.text[k]
        if name is None:
            return
        kind, servo = int(rows.kind[k]), int(rows.servo[k])
        at, doubt = int(rows.time_ns[k]), max(0, int(rows.quantum_ns[k]) - 1)
        status = status_of(kind, None if servo == NULL_U8 else servo, text)
        why = ended(form, text, status)
        clock = self._clocks.get(name)
        if why is not None:
            clock = self._clock(name)
            # A frequency stays at its limit for many rows: that is one reset.
            again = status == Status.UNKNOWN and clock is not None and clock.all_are(Status.UNKNOWN)
            if clock is not None and not again:
                self._break(clock, at - 1, at + doubt, why, late)
        if clock is None and form.endswith(".best_master"):
            clock = self._clock(name)
        if clock is not None and (not late or why is not None):
            self._master(clock, form, rows.parent[k], at, doubt, late)
            if status is not None:
                for relation in clock.relations.values():
                    relation.tell(status)
        if kind in _SAMPLES and rows.offset_ns[k] != NULL_I64 and not late:
            self._sample(rows, k, name, form, kind, status)

    def _master(self, clock: Clock, form: str, parent: str | None, at: int, doubt: int, late: bool) -> None:
        if form.endswith(".best_master") and parent is not None and clock.master != parent:
            if clock.master is not None:
                self._break(clock, at - 1, at + doubt, f"another master: {parent}", late)
            clock.master = parent

    def _sample(self, rows: Rows, k: int, name: str, form: str, kind: int, status: Status | None) -> None:
        read, delay, error = read_of(form), int(rows.delay_ns[k]), int(rows.error_ns[k])
        known = self._clocks.get(name)
        parent = parent_name(name, rows.parent[k] or (known.master if known is not None else None))
        if read == REPORT or parent == name or status in (Status.STEPPED, Status.UNKNOWN):
            return
        has_delay = delay != NULL_I64 and delay >= 0
        has_error = error != NULL_I64 and error >= 0 and kind != Kind.SERVO
        if not (has_delay or has_error or (read == ONE_WAY and delay != NULL_I64)):
            return  # nothing says how well it was read: pulses
        hard = read == ROUND_TRIP and has_delay and kind in (Kind.SERVO, Kind.MEASUREMENT)
        half = (delay + 1) // 2 if has_delay else 0
        if read == ONE_WAY:
            half = abs(delay) if delay != NULL_I64 else 0
        root = -1
        if has_error:
            # The daemon's error is against the root; of it the reading's own part is known here.
            root = max(0, error - half) if hard else 0
            half = half if hard else max(half, error)
        # When in its quantum the sample was taken is not known: the clock may have drifted as long.
        doubt = max(0, int(rows.quantum_ns[k]) - 1)
        half += math.ceil(self.declared.drift_ppb * 1e-9 * doubt)
        offset, freq = int(rows.offset_ns[k]), float(rows.freq_ppb[k])
        if max(abs(offset), half, root, doubt) > ERROR_NS_MAX:
            return
        clock, at = self._clock(name), int(rows.time_ns[k])
        if clock is None or (rows.stated[k] < clock.stated and at < clock.stated_ns + BACK_NS_MAX):
            return  # it may be of the epoch before, by a clock that went back
        relation = clock.relation(parent)
        if not hard and relation.hard_ns != NEVER:
            return  # another view of an error that is bracketed already
        if status is None and relation.status in (Status.UNKNOWN, Status.STEPPED):
            status = Status.LOCKED  # an exchange with a source that is followed, and no word of its state
        if status is not None:
            relation.tell(status)
        freq_known = math.isfinite(freq) and abs(freq) < 1e12
        locked = status is None or status == Status.LOCKED
        sample = Sample(at, offset, half, hard, locked, root, freq if freq_known else None, doubt)
        why = relation.contradicted(sample, self.declared)
        if why is not None:
            self._break(clock, min(relation.as_of_ns, at - 1), at + doubt, why, late=False)
        back = relation.back_ns(sample, self.declared)
        if back:
            clock.went_back(back)
        relation.take(sample, self.declared)

    def look(self, name: str, stated: int, at_ns: int, now_ns: int) -> Look | None:
        """A clock at a stamp (TAI) whose statement counts epoch `stated`, in a window that ends at `now_ns`; None for a
        clock of which no row told anything."""
        clock = self._clocks.get(name)
        if clock is None:
            return None
        before = clock.before
        if before is not None and at_ns <= before.until_ns and stated in (before.stated, clock.stated):
            found, void = self._best(before.relations, at_ns, now_ns)
            return Look(before.epoch, found, void_ns=void)
        if stated != clock.stated:
            return Look(clock.epoch)  # not the epoch that was measured
        if at_ns < clock.since_ns:
            return Look(clock.epoch, torn=True, why=clock.why)
        found, void = self._best(clock.relations, at_ns, now_ns)
        return Look(clock.epoch, found, NEVER if clock.restated else clock.since_ns, void, why=clock.why)

    def _best(
        self, relations: Mapping[str, Relation], at_ns: int, now_ns: int
    ) -> tuple[tuple[str, Relation, Measured] | None, int]:
        """(the relation that says most, by assurance, then by width at the newest sample of all; None where none says
        anything, and then since when that is so: NEVER if it was never otherwise)."""
        found, void = None, NEVER
        newest = max((one.as_of_ns for one in relations.values()), default=NEVER)
        for parent in sorted(relations):
            relation = relations[parent]
            state = relation.state(at_ns, now_ns, self.declared)
            if state.bound_ns is None:
                void = max(void, state.as_of_ns)
                continue
            grown = math.ceil(state.growth_ppb * 1e-9 * (newest - state.as_of_ns))
            rank = (-int(state.assurance), state.bound_ns + grown)
            if found is None or rank < found[0]:
                found = rank, (parent, relation, state)
        return (None, void) if found is None else (found[1], NEVER)

    def lineage(self, name: str) -> Iterator[Clock]:
        """A clock that rows told something of, and those that it and they were measured against."""
        seen: set[str] = set()
        waiting = [name]
        while waiting:
            one = waiting.pop()
            clock = self._clocks.get(one)
            if clock is None or one in seen:
                continue
            seen.add(one)
            yield clock
            waiting += sorted({*clock.relations, *(clock.before.relations if clock.before else ())})

    def cuts(self, name: str) -> set[int]:
        """Times at which what holds of a clock, or of one it was measured against, changes."""
        out: set[int] = set()
        for clock in self.lineage(name):
            out |= {clock.since_ns, *(one.began_ns for one in clock.relations.values())}
            if clock.before is not None:
                out |= {clock.before.until_ns + 1, *(one.began_ns for one in clock.before.relations.values())}
        return out

    def settled(self, names: Sequence[str], now_ns: int) -> tuple[int, int]:
        """(stamp from which on, end of a window up to which) all that is said of clocks now stays as it is."""
        since, until, void = NEVER, -NEVER, round(self.declared.void_after_s * NS)
        for name in names:
            since = max(since, *self.cuts(name), NEVER)
            for clock in self.lineage(name):
                ends = (one.as_of_ns + void for one in clock.relations.values())
                until = min([until, *(end for end in ends if end >= now_ns)])
        return since, until

    def version(self, name: str, at_ns: int, now_ns: int) -> tuple[int, ...]:
        """Changes whenever what `look` says of the clock or of its ancestors does, for a stamp at a time."""
        out: list[int] = []
        void = round(self.declared.void_after_s * NS)
        for clock in self.lineage(name):
            phase = 2 if at_ns >= clock.since_ns else 1
            if clock.before is not None and at_ns <= clock.before.until_ns:
                phase = 0
            out += [clock.epoch, clock.stated, phase]
            for _, one in sorted(clock.relations.items()):
                out += [one.version, now_ns > one.as_of_ns + void, at_ns < one.began_ns]
        return tuple(out)

    def dump(self) -> tuple[list[Any], dict[str, Any]]:
        """State for a snapshot: JSON part and arrays."""
        meta, tops = [], []
        for name, clock in sorted(self._clocks.items()):
            plain = []
            for parent, relation in sorted(clock.relations.items()):
                mine, top = relation.dump()
                plain.append([parent, mine])
                tops.append(top)
            meta.append([name, [getattr(clock, one) for one in PLAIN], plain])
        stacked = np.concatenate(tops) if tops else np.empty((0, 0))
        return meta, {"top": stacked, "rows": np.array([len(top) for top in tops], np.int64)}

    @classmethod
    def load(cls, meta: list[Any], arrays: dict[str, Any], declared: Declared | None = None) -> "States":
        """From `dump`."""
        out = cls(declared)
        spans = iter(zip(np.cumsum(arrays["rows"]).tolist(), arrays["rows"].tolist(), strict=True))
        for name, plain, relations in meta:
            clock = out._clocks[name] = Clock(**dict(zip(PLAIN, plain, strict=True)))
            for parent, mine in relations:
                end, rows = next(spans)
                clock.relations[parent] = Relation.load(mine, arrays["top"][end - rows : end])
        return out


def assured(state: Measured) -> bool:
    """Whether a state may take the place of a claim."""
    return state.bound_ns is not None and state.assurance != Assurance.CLAIMED
