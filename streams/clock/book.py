"""Which clock a row was stamped by, what its stamp is in TAI, and how far two stamps can be compared.

A batch states its clocks with their parents (host clock, grandmaster, TAI). Each distinct one is a
*slot*: map to TAI, and chain of clocks up to the root with a bound at each step. What is in a slot follows from the
batch's own header, so a row means the same whenever it is read again.

`diff_bound` of two slots sums the bounds up to their lowest common ancestor: what two clocks share cancels.
Two readings of one clock and epoch differ by their quanta at most, plus the rate bound over the time between them.
Where there is no common root, or a bound is unknown, there is none.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from schemas import columns as c
from schemas.batch import Batch
from schemas.time import TAI
from streams.clock.decide import Chain
from streams.clock.statement import Line, Statement, Step, Value, integer, leaps_s, named, resolve
from streams.kernels.bounds import pair_bounds

I64 = NDArray[np.int64]
DEPTH = 4  # clocks from a stamp to its root: GPU, system clock, PHC, grandmaster; TAI is the end of the chain
UNKNOWN = c.NULL_I64
DECIDED_S = 1_000_000  # taken from the leap of a decided statement, which is none that a batch made
KNOWN_BYTES_MAX = 16 * 1024 * 1024
Total = tuple[int, float, int]  # bound to TAI, its growth (ppb), and the time (TAI) it is of
Key = tuple[Statement, int, Total | None]
ARRAYS = (
    ("ref_ns", np.int64, ()),
    ("ref_tai_ns", np.int64, ()),
    ("rate_ppb", np.float64, ()),
    ("bound_ns", np.int64, ()),  # to TAI at ref_ns; UNKNOWN if there is none
    ("growth_ppb", np.float64, ()),
    ("placed", np.bool_, ()),  # whether there is a map to TAI at all
    ("quantum_ns", np.int64, ()),
    ("node", np.int32, (DEPTH + 1,)),  # interned (clock, epoch) up to the root; -1 beyond
    ("step_bound_ns", np.int64, (DEPTH,)),
    ("step_growth_ppb", np.float64, (DEPTH,)),
    ("step_as_of_ns", np.int64, (DEPTH,)),  # TAI
    ("step_assurance", np.uint8, (DEPTH,)),
    ("step_epsilon", np.float64, (DEPTH,)),
)


@dataclass(frozen=True)
class Bounds:
    """How far pairs of stamps can be compared: greatest error of their difference (UNKNOWN if none), and
    whether a gap beyond it proves an order (assured)."""

    bound_ns: I64
    assured: NDArray[np.bool_]


class ClockBook:
    """The clock slots of one scope."""

    def __init__(self) -> None:
        self.rows: list[
            Statement
        ] = []  # the clock's statement and those of its parents, up to the root, by slot
        self._leaps: list[int] = []
        self._totals: list[
            Total | None
        ] = []  # of decided statements: the stated bound to TAI where it holds still
        self.counted: dict[
            int, list[tuple[str, int]]
        ] = {}  # clocks of a stated epoch after the first, by slot
        self._array = {name: np.empty((0, *shape), dtype) for name, dtype, shape in ARRAYS}
        self._size = 0
        self._nodes: dict[tuple[str, int], int] = {}
        self._slots: dict[Key, int] = {}
        self._known: dict[tuple[bytes, tuple[str, ...]], NDArray[np.int32]] = {}
        self._known_bytes = 0
        self._content: dict[int, tuple[str, int, str]] = {}
        self._resolved: dict[int, tuple[Line | None, list[Step], list[tuple[str, int]]]] = {}
        self.settled: dict[int, tuple[int, int, int]] = {}  # for streams.clock.apply, like the next two
        self.changes = -1
        self.decisions: dict[int, tuple[tuple[tuple[int, ...], ...], int]] = {}  # see streams.clock.apply

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, name: str) -> NDArray[Any]:
        """An array by slot; see ARRAYS."""
        return self._array[name][: self._size]

    def slots_of(self, batch: Batch) -> NDArray[np.int32]:
        """Slot of each entry of the batch's source table; -1 for a source without a clock.

        Raises MalformedInput for a clock whose statement can't be meant: a negative bound, a rate that is no
        number.
        """
        data = batch.data
        clock = data["src_clock"]
        used = np.unique(clock[clock != c.NULL_U16])
        if not len(used):
            return np.full(len(clock), -1, np.int32)
        leaps = leaps_s(batch, used)
        packed = [data[column.name].tobytes() for column in c.CLOCKS]
        key = (b"".join([clock.tobytes(), leaps.tobytes(), *packed]), batch.strings)
        known = self._known.get(key)
        if known is None:
            slots = np.full(c.NULL_U16 + 1, -1, np.int32)
            slots[used] = self._state(batch, used.tolist(), leaps.tolist())
            self._known_bytes += len(key[0]) + sum(map(len, batch.strings))
            if self._known_bytes > KNOWN_BYTES_MAX:
                self._known.clear()
                self._known_bytes = 0
            known = self._known[key] = slots[clock]
        return known.copy()

    def _state(self, batch: Batch, used: list[int], leaps: list[int]) -> list[int]:
        """Slots of these entries of the batch's clock table."""
        columns = []
        for column in c.CLOCKS:
            values = batch.data[column.name].tolist()
            if column.unit == "string":
                values = [batch.text(value) for value in values]
            elif column.dtype == "<f8":
                values = [None if value != value else value for value in values]
            columns.append(values)
        table = list(zip(*columns, strict=True))
        by_name = {row[0]: entry for entry, row in enumerate(table)}
        out = []
        for entry, leap in zip(used, leaps, strict=True):
            chain = [entry]
            while len(chain) < DEPTH:
                parent = by_name.get(table[chain[-1]][2])
                if parent is None or parent in chain:
                    break
                chain.append(parent)
            statement = tuple(table[k] for k in chain)
            slot = self._slots.get((statement, leap, None))
            out.append(self._add(statement, leap) if slot is None else slot)
        return out

    def _add(self, rows: Statement, leap_s: int) -> int:
        slot = self._write(rows[0], *resolve(rows, leap_s), None)
        self._note((rows, leap_s, None), slot)
        return slot

    def _write(
        self,
        row: tuple[Value, ...],
        line: Line | None,
        steps: list[Step],
        nodes: list[tuple[str, int]],
        at_most: Total | None,
    ) -> int:
        slot = self._size
        if slot == len(self._array["ref_ns"]):
            for name, old in self._array.items():
                bigger = np.empty((max(16, 2 * slot), *old.shape[1:]), old.dtype)
                bigger[:slot] = old
                self._array[name] = bigger
        self._size += 1
        array = self._array
        ref, tai, rate = line or (0, 0, 0.0)
        array["ref_ns"][slot], array["ref_tai_ns"][slot], array["rate_ppb"][slot] = ref, tai, rate * 1e9
        array["placed"][slot] = line is not None
        array["quantum_ns"][slot] = max(0, integer(named(row)["clk_quantum_ns"]))
        array["node"][slot] = -1
        for level, node in enumerate(nodes):
            array["node"][slot, level] = self._nodes.setdefault(node, len(self._nodes))
        for name, empty in (("step_bound_ns", UNKNOWN), ("step_assurance", 0), ("step_epsilon", 1.0)):
            array[name][slot] = empty
        array["step_growth_ppb"][slot] = 0.0
        array["step_as_of_ns"][slot] = 0
        for level, (bound, growth, as_of, assurance, epsilon) in enumerate(steps):
            array["step_bound_ns"][slot, level] = bound
            array["step_growth_ppb"][slot, level] = growth
            array["step_as_of_ns"][slot, level] = as_of
            array["step_assurance"][slot, level] = assurance
            array["step_epsilon"][slot, level] = epsilon
        total, growth_sum = UNKNOWN, 0.0
        if nodes and nodes[-1] == (TAI, 0) and all(step[0] != UNKNOWN for step in steps):
            grown = [math.ceil(step[1] * abs(tai - step[2]) * 1e-9) if step[1] else 0 for step in steps]
            total = sum(step[0] for step in steps) + sum(grown)
            growth_sum = sum(step[1] for step in steps)
        if at_most is not None:
            bound, growth, as_of = at_most
            bound += math.ceil(growth * abs(tai - as_of) * 1e-9)
            if total == UNKNOWN or bound < total:
                total, growth_sum = bound, growth
        array["bound_ns"][slot] = total
        array["growth_ppb"][slot] = growth_sum
        return slot

    def stated(self, slot: int) -> tuple[Line | None, list[Step], list[tuple[str, int]]]:
        """What was stated of a slot's clock, as `resolve` gives it; not to be changed."""
        known = self._resolved.get(slot)
        if known is None:
            known = self._resolved[slot] = resolve(self.rows[slot], self._leaps[slot])
        return known

    def total(self, slot: int) -> Total | None:
        """A slot's bound to TAI; None without one."""
        bound, growth = int(self["bound_ns"][slot]), float(self["growth_ppb"][slot])
        return None if bound == UNKNOWN else (bound, growth, int(self["ref_tai_ns"][slot]))

    def decided(self, slot: int, chain: Chain, line: Line | None, at_most: Total | None) -> tuple[int, bool]:
        """(slot of what was decided of a stated one, whether it is new). `at_most` limits the bound to TAI."""
        key = (chain.rows, self._leaps[slot] - DECIDED_S, at_most)
        made = self._slots.get(key, -1)
        if made >= 0:
            return made, False
        made = self._write(chain.rows[0], line, chain.steps, chain.nodes, at_most)
        self._note(key, made)
        return made, True

    def _note(self, key: Key, slot: int) -> None:
        self.rows.append(key[0])
        self._leaps.append(key[1])
        self._totals.append(key[2])
        self._slots[key] = slot
        self._mark(key, slot)

    def _mark(self, key: Key, slot: int) -> None:
        later = [(str(row[0]), integer(row[1])) for row in key[0] if row[1]]
        if later and key[1] >= 0:  # what was decided is no statement
            self.counted[slot] = later

    def bound_at(self, slots: NDArray[np.integer[Any]], t_ns: I64) -> I64:
        """Greatest error against TAI of stamps by slot and time (TAI); UNKNOWN where there is none."""
        if not self._size:
            return np.full(len(slots), UNKNOWN)
        safe = np.where(slots < 0, 0, slots)
        bound: I64 = np.where(slots < 0, UNKNOWN, self["bound_ns"][safe])
        growth = self["growth_ppb"][safe] * 1e-9
        if growth.any():
            age = np.abs(t_ns - self["ref_tai_ns"][safe])
            bound = np.where(bound == UNKNOWN, UNKNOWN, bound + np.ceil(growth * age).astype(np.int64))
        return bound

    def bound_of(self, slot: int, level: int) -> int:
        """Greatest error against TAI of a clock in a slot's chain (0 the slot's own), as stated; else UNKNOWN."""
        node, root = self["node"][slot], int((self["node"][slot] >= 0).sum()) - 1
        steps = self["step_bound_ns"][slot, level:root]
        if (TAI, 0) not in self._nodes or node[root] != self._nodes[TAI, 0] or (steps == UNKNOWN).any():
            return UNKNOWN
        return int(steps.sum())

    def diff_bound(
        self,
        a: I64,
        a_ns: I64,
        b: I64,
        b_ns: I64,
        epsilon_max: float,
        a_end: NDArray[np.bool_] | None = None,
        b_end: NDArray[np.bool_] | None = None,
    ) -> Bounds:
        """Bounds of pairs of stamps by slot (-1: no clock) and TAI time; all of shape (pairs,).

        A reading is rounded to its clock's quantum, which adds half of it; an end (`a_end`, `b_end`) was
        computed from a begin and a duration, each rounded, which adds a whole one.
        """
        bound, assured = np.empty(len(a), np.int64), np.empty(len(a), np.bool_)
        begins = np.zeros(len(a), np.bool_)
        pair_bounds(
            a, a_ns, begins if a_end is None else a_end, b, b_ns, begins if b_end is None else b_end,
            self["node"], self["step_bound_ns"], self["step_growth_ppb"], self["step_as_of_ns"],
            self["step_assurance"], self["step_epsilon"], self["quantum_ns"], epsilon_max, bound, assured,
        )  # fmt: skip
        return Bounds(bound, assured)

    def compact(self, used: I64) -> NDArray[np.int32]:
        """Forget all slots but these; gives the new slot of each old one (-1 if forgotten)."""
        kept = np.unique(used[used >= 0])
        new = np.full(self._size, -1, np.int32)
        new[kept] = np.arange(len(kept), dtype=np.int32)
        for name, array in self._array.items():
            self._array[name] = array[: self._size][kept]
        self.rows = [self.rows[slot] for slot in kept]
        self._leaps = [self._leaps[slot] for slot in kept]
        self._totals = [self._totals[slot] for slot in kept]
        self._size = len(kept)
        nodes = self["node"]
        alive = np.unique(nodes[nodes >= 0])
        names = list(self._nodes)
        self._nodes = {names[old]: place for place, old in enumerate(alive.tolist())}
        nodes[nodes >= 0] = np.searchsorted(alive, nodes[nodes >= 0])
        self._index()
        return new

    def _index(self) -> None:
        """Make the look-ups by statement anew."""
        self._slots = {
            key: slot for slot, key in enumerate(zip(self.rows, self._leaps, self._totals, strict=True))
        }
        self.counted.clear()
        for key, slot in self._slots.items():
            self._mark(key, slot)
        self._known.clear()
        self._known_bytes = 0
        self._content.clear()
        self.decisions.clear()
        self._resolved.clear()
        self.settled.clear()

    def content(self, slot: int) -> tuple[str, int, str]:
        """What sorts slots by what they say, not by when it was first said."""
        known = self._content.get(slot)
        if known is None:
            known = self._content[slot] = (repr(self.rows[slot]), self._leaps[slot], repr(self._totals[slot]))
        return known

    def map_of(self, slots: NDArray[np.int32]) -> tuple[I64, I64, NDArray[np.float64], NDArray[np.bool_]]:
        """(reference reading, TAI there, rate, whether there is a map) by slot; zeros where there is none."""
        if not self._size:
            none = np.zeros(len(slots), np.int64)
            return none, none, np.zeros(len(slots)), np.zeros(len(slots), np.bool_)
        safe = np.where(slots < 0, 0, slots)
        placed = (slots >= 0) & self["placed"][safe]
        ref, tai = np.where(placed, self["ref_ns"][safe], 0), np.where(placed, self["ref_tai_ns"][safe], 0)
        return ref, tai, np.where(placed, self["rate_ppb"][safe] * 1e-9, 0.0), placed

    def dump(self) -> tuple[list[object], dict[str, NDArray[np.generic]]]:
        """State for a snapshot: JSON part and arrays."""
        nodes = [[name, epoch] for name, epoch in self._nodes]
        return [self.rows, self._leaps, self._totals, nodes], {n: self[n].copy() for n, _, _ in ARRAYS}

    @classmethod
    def load(cls, meta: list[object], arrays: dict[str, NDArray[np.generic]]) -> "ClockBook":
        """From `dump`."""
        book = cls()
        rows, leaps, totals, nodes = meta
        assert isinstance(leaps, list)
        assert isinstance(rows, list)
        assert isinstance(totals, list)
        assert isinstance(nodes, list)
        book.rows = [tuple(tuple(row) for row in chain) for chain in rows]
        book._leaps = leaps
        book._totals = [None if total is None else tuple(total) for total in totals]
        book._array = {name: np.array(arrays[name]) for name, _, _ in ARRAYS}
        book._size = len(book.rows)
        book._nodes = {(name, epoch): place for place, (name, epoch) in enumerate(nodes)}
        book._index()
        return book
