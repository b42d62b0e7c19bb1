"""The state of each clock of a scope, from the log alone: what its samples say, and what becomes of a claim.

Rows of the clock family go to the *relation* of their clock with the parent it was measured against
(streams.clock.relation). A stamp's clock is first what its batch's header states. `decide` then says what the merge
applies to it:

- a claim (assurance `claimed`) gives way to a hard or statistical bound of the same clock. The chain then goes
  through the measured parent, so that two clocks measured against one parent meet there; from that parent to TAI
  it is claimed still, as wide as the claim and the measurement together;
- a claim that a sample contradicts, whatever its assurance, is widened to cover the sample, and proves nothing;
- else the statement stands.

The claim stays on record: the state's provenance names it. The nominal map never changes, so a row lies where it lay.
A decided bound is one of |offset| from that map.

GM → PHC → system clock → GPU: a parent that has relations of its own goes on the chain with its measured step.
"""

import math
import re
from collections.abc import Sequence
from ipaddress import ip_address
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from schemas.columns import NULL_I64, NULL_U8, Assurance, Status
from schemas.columns import ClockKindOfRow as Kind
from schemas.time import TAI
from streams.clock.estimate import ONE_WAY, REPORT, ROUND_TRIP, read_of, status_of
from streams.clock.relation import NEVER, Declared, Measured, Relation, Sample

I64 = NDArray[np.int64]
RELATIONS_MAX: Final = 8  # of one clock: those with the oldest samples go first
CLOCKS_MAX: Final = 20_000
_IDENTITY: Final = re.compile(r"[0-9a-f]{6}\.[0-9a-f]{4}\.[0-9a-f]{6}(-\d+)?$")
_SAMPLES: Final = (Kind.SERVO, Kind.MEASUREMENT, Kind.TRACKING)


class Rows(NamedTuple):
    """Rows of the clock family in order of time, all of one length; None, NULL_I64, NaN and 255 are unknown."""

    time_ns: I64  # TAI
    quantum_ns: I64  # of the stamp: the row is of some moment in [time_ns, time_ns + quantum_ns)
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
    """Relations by clock and parent."""

    def __init__(self, declared: Declared | None = None) -> None:
        self.declared = declared or Declared()
        self._clocks: dict[str, dict[str, Relation]] = {}
        self._master: dict[str, str] = {}  # what a clock's daemon last named as its best master
        self.epochs = 0  # new epochs that were begun since the last look

    def __len__(self) -> int:
        return len(self._clocks)

    def feed(self, rows: Rows) -> None:
        """Take rows, in order of time."""
        for k in range(len(rows.time_ns)):
            clock, form = rows.clock[k], rows.form[k] or ""
            if clock is None:
                continue
            kind, servo, text = int(rows.kind[k]), int(rows.servo[k]), rows.text[k]
            self._events(clock, form, text, rows.parent[k])
            status = status_of(kind, None if servo == NULL_U8 else servo, text)
            if status is not None:
                self._tell(clock, status)
            if kind in _SAMPLES and rows.offset_ns[k] != NULL_I64:
                self._sample(rows, k, clock, form, kind, status)

    def _events(self, clock: str, form: str, text: str | None, parent: str | None) -> None:
        """New epochs by what a daemon tells."""
        known = self._clocks.get(clock, {})
        if form.endswith(".clockcheck") and text is not None and "jumped" in text:
            self._restart(known, text)
        elif form.endswith(".best_master") and parent is not None and self._master.get(clock) != parent:
            if clock in self._master:
                self._restart(known, f"another master: {parent}")
            if len(self._master) < CLOCKS_MAX:
                self._master[clock] = parent

    def _tell(self, clock: str, status: Status) -> None:
        known = self._clocks.get(clock, {})
        if status == Status.STEPPED:
            self._restart(known, "stepped by its daemon")
        elif status == Status.UNKNOWN:
            self._restart(known, "frequency at its limit")
        for relation in known.values():
            relation.tell(status)

    def _restart(self, known: dict[str, Relation], why: str) -> None:
        for relation in known.values():
            before = relation.epoch
            relation.restart(why)
            self.epochs += relation.epoch - before

    def _sample(self, rows: Rows, k: int, clock: str, form: str, kind: int, status: Status | None) -> None:
        read, delay, error = read_of(form), int(rows.delay_ns[k]), int(rows.error_ns[k])
        if read == REPORT:
            return
        parent = parent_name(clock, rows.parent[k] or self._master.get(clock))
        if parent == clock or status in (Status.STEPPED, Status.UNKNOWN):
            return
        known = self._clocks.get(clock)
        if known is None:
            if len(self._clocks) >= CLOCKS_MAX:
                return
            known = self._clocks[clock] = {}
        relation = known.get(parent)
        if relation is None:
            if len(known) >= RELATIONS_MAX:
                del known[min(known, key=lambda name: (known[name].as_of_ns, name))]
            relation = known[parent] = Relation()
        has_delay = delay != NULL_I64 and delay >= 0
        hard = read == ROUND_TRIP and has_delay and kind in (Kind.SERVO, Kind.MEASUREMENT)
        if not hard and relation.hard_ns != NEVER:
            return  # another view of an error that is bracketed already
        half = (delay + 1) // 2 if has_delay else 0
        if read == ONE_WAY:
            half = delay if has_delay else abs(delay) if delay != NULL_I64 else 0
        root = -1
        if error != NULL_I64 and kind != Kind.SERVO:
            # The daemon's error is against the root; of it the reading's own part is known here.
            root = max(0, error - half) if hard else 0
            half = half if hard else max(half, error)
        freq = float(rows.freq_ppb[k])
        locked = status is None or status == Status.LOCKED
        if status is not None:
            relation.tell(status)
        elif relation.status in (Status.UNKNOWN, Status.STEPPED):
            relation.tell(
                Status.LOCKED
            )  # an exchange with a source that is followed, and no word of its state
        before = relation.epoch
        # When in its quantum the sample was taken is not known: the clock may have drifted as long.
        half += math.ceil(self.declared.drift_ppb * 1e-9 * max(0, int(rows.quantum_ns[k]) - 1))
        relation.take(
            Sample(
                int(rows.time_ns[k]), int(rows.offset_ns[k]), half, hard, locked, root,
                None if freq != freq else freq,
            ),
            self.declared,
        )  # fmt: skip
        self.epochs += relation.epoch - before

    def best(self, clock: str, at_ns: int) -> tuple[str, Relation, Measured] | None:
        """The relation of a clock that says most at a time: by assurance, then by width; None without any."""
        found = None
        for parent in sorted(self._clocks.get(clock, {})):
            relation = self._clocks[clock][parent]
            state = relation.state(at_ns, self.declared)
            bound = 2**62 if state.bound_ns is None else state.bound_ns
            rank = (state.bound_ns is None, -int(state.assurance), bound)
            if found is None or rank < found[0]:
                found = rank, (parent, relation, state)
        return None if found is None else found[1]

    def version(self, clock: str, at_ns: int) -> tuple[int, ...]:
        """Changes whenever `best` of the clock or of its ancestors does."""
        out: list[int] = []
        seen: set[tuple[str, str]] = set()
        waiting = [clock]
        while waiting:
            name = waiting.pop()
            for parent, relation in sorted(self._clocks.get(name, {}).items()):
                if (name, parent) not in seen:
                    seen.add((name, parent))
                    void = at_ns - relation.as_of_ns > self.declared.void_after_s * 1e9
                    out += [relation.version, void, at_ns < relation.began_ns]
                    waiting.append(parent)
        return tuple(out)

    def dump(self) -> tuple[list[Any], dict[str, Any]]:
        """State for a snapshot: JSON part and arrays."""
        meta, tops, sizes = [], [], []
        for clock, known in sorted(self._clocks.items()):
            for parent, relation in sorted(known.items()):
                plain, top = relation.dump()
                meta.append([clock, parent, plain])
                tops.append(top)
                sizes.append(len(top))
        stacked = np.concatenate(tops) if tops else np.empty((0, 0))
        return [meta, sorted(self._master.items())], {"top": stacked, "rows": np.array(sizes, np.int64)}

    @classmethod
    def load(cls, meta: list[Any], arrays: dict[str, Any], declared: Declared | None = None) -> "States":
        """From `dump`."""
        out = cls(declared)
        relations, master = meta
        ends = np.cumsum(arrays["rows"])
        for (clock, parent, plain), end, rows in zip(relations, ends, arrays["rows"], strict=True):
            out._clocks.setdefault(clock, {})[parent] = Relation.load(plain, arrays["top"][end - rows : end])
        out._master = dict(master)
        return out


def parent_name(clock: str, parent: str | None) -> str:
    """The name under which a parent is one clock for all who were measured against it.

    An address, a PTP identity and a name with its host are; `PPS`, a pool's host name, a link-local or loopback address
    (each machine has its own behind it) and a parent without a name are this host's alone.
    """
    host = clock.rsplit("/", 1)[0]
    if parent is None:
        return f"{clock} master"
    if "/" in parent or parent == TAI or _IDENTITY.match(parent):
        return parent
    try:
        address = ip_address(parent)
    except ValueError:
        return f"{host}/{parent}"
    return f"{host}/{parent}" if address.is_link_local or address.is_loopback else parent


def contradicts(relation: Relation, claim_ns: int) -> bool:
    """Whether the last sample cannot be within a claimed bound of the offset (the parent's own error allowed for)."""
    low, high = relation.possible()
    return max(low, -high) > claim_ns + max(0, relation.root)


def assured(state: Measured) -> bool:
    """Whether a state may take the place of a claim."""
    return state.bound_ns is not None and state.assurance != Assurance.CLAIMED
