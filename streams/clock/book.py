"""Which clock a row was stamped by, what its stamp is in TAI, and how far two stamps can be compared.

A batch states its clocks with their parents (host clock, grandmaster, TAI). Each distinct statement becomes a
*slot*: the affine map to TAI, and the chain of clocks up to the root with a bound at each step. Everything in
a slot follows from the batch's own header, so a row means the same whenever it is read again.

`diff_bound` of two slots sums the bounds up to their lowest common ancestor: what two clocks share cancels.
Two readings of the same clock and epoch differ by no more than their quanta, plus the rate bound over the time
between them. Where there is no common root, or a bound is unknown, there is none.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from schemas import columns as c
from schemas.batch import Batch
from schemas.time import NS, TAI, TAI_UTC_DEFAULT_S, utc_to_tai

I64 = NDArray[np.int64]
DEPTH = 4  # clocks from a stamp to its root: GPU, system clock, PHC, grandmaster; TAI is the end of the chain
UNKNOWN = c.NULL_I64
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
        self.rows: list[list[tuple[int | float | str | None, ...]]] = []  # statements up to the root, by slot
        self._array = {name: np.empty((0, *shape), dtype) for name, dtype, shape in ARRAYS}
        self._size = 0
        self._nodes: dict[tuple[str, int], int] = {}
        self._slots: dict[bytes, int] = {}

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, name: str) -> NDArray[np.generic]:
        """An array by slot; see ARRAYS."""
        return self._array[name][: self._size]

    def slots_of(self, batch: Batch) -> NDArray[np.int32]:
        """Slot of each entry of the batch's source table; -1 for a source without a clock."""
        data = batch.data
        clock = data["src_clock"]
        base = data["src_base_ns"]
        out = np.full(len(clock), -1, np.int32)
        for place in np.unique(clock[clock != c.NULL_U16]):
            mine = clock == place
            out[mine] = self._slot(batch, int(place), int(base[mine].max()))
        return out

    def _slot(self, batch: Batch, place: int, near_ns: int) -> int:
        chain = self._chain(batch, place)
        rows = [self._row(batch, entry) for entry in chain]
        leap = 0
        first = rows[0]
        if first[5] in (c.Timescale.UTC, c.Timescale.UTC_SMEARED):
            leap = self._leap_s(first, near_ns)
        key = repr((rows, leap)).encode()
        slot = self._slots.get(key)
        if slot is None:
            slot = self._slots[key] = self._add(rows, leap)
        return slot

    @staticmethod
    def _leap_s(row: tuple[int | float | str | None, ...], near_ns: int) -> int:
        """TAI - UTC for the nominal map: the table's; 37 s where the stamp lies before the table."""
        offset = (int(utc_to_tai(np.int64(near_ns))) - near_ns) // NS  # type: ignore[arg-type]  # 0-d works
        return offset or TAI_UTC_DEFAULT_S

    @staticmethod
    def _chain(batch: Batch, place: int) -> list[int]:
        """Entries of the batch's clock table from a clock up to the last parent that the batch describes."""
        by_name = {int(name): entry for entry, name in enumerate(batch.data["clk_id"])}
        chain = [place]
        while len(chain) < DEPTH:
            parent = by_name.get(int(batch.data["clk_parent"][chain[-1]]))
            if parent is None or parent in chain:
                break
            chain.append(parent)
        return chain

    @staticmethod
    def _row(batch: Batch, entry: int) -> tuple[int | float | str | None, ...]:
        out: list[int | float | str | None] = []
        for column in c.CLOCKS:
            value = batch.data[column.name][entry].item()
            if column.unit == "string":
                out.append(batch.text(value))
            elif value != value:
                out.append(None)
            else:
                out.append(value)
        return tuple(out)

    def _add(self, rows: list[tuple[int | float | str | None, ...]], leap_s: int) -> int:
        slot = self._size
        if slot == len(self._array["ref_ns"]):
            for name, old in self._array.items():
                grown = np.empty((max(16, 2 * slot), *old.shape[1:]), old.dtype)
                grown[:slot] = old
                self._array[name] = grown
        self._size += 1
        self.rows.append(rows)
        # From the root down: the map to TAI, and the chain of bounds.
        mapped: tuple[int, int, float] | None = None
        steps: list[tuple[int, float, int, int, float]] = []
        nodes: list[tuple[str, int]] = []
        for level in range(len(rows) - 1, -1, -1):
            row = dict(zip((column.name for column in c.CLOCKS), rows[level], strict=True))
            name, epoch = str(row["clk_id"]), _int(row["clk_epoch"])
            scale = _int(row["clk_timescale"])
            parent = row["clk_parent"]
            if not nodes:
                if parent is not None:
                    nodes = [(str(parent), 0)]
                elif scale != c.Timescale.ARBITRARY:
                    nodes = [(TAI, 0)]
                if nodes == [(TAI, 0)]:
                    mapped = (0, 0, 0.0)
            ref, ref_parent = _int(row["clk_ref_ns"]), _int(row["clk_ref_parent_ns"])
            rate = _float(row["clk_rate_ppb"]) * 1e-9
            if ref != UNKNOWN and ref_parent != UNKNOWN and mapped is not None:
                p_ref, p_tai, p_rate = mapped
                delta = ref_parent - p_ref
                mapped = (ref, p_tai + delta + round(delta * p_rate), (1 + rate) * (1 + p_rate) - 1)
            elif scale == c.Timescale.TAI:
                mapped = (0, 0, 0.0)
            elif scale in (c.Timescale.UTC, c.Timescale.UTC_SMEARED):
                mapped = (0, (leap_s or TAI_UTC_DEFAULT_S) * NS, 0.0)
            else:
                mapped = None
            if nodes:
                as_of = _int(row["clk_as_of_ns"])
                if as_of != UNKNOWN and mapped is not None:
                    as_of = mapped[1] + as_of - mapped[0]
                epsilon = row["clk_epsilon"]
                steps.insert(
                    0,
                    (
                        _int(row["clk_bound_ns"]),
                        _float(row["clk_growth_ppb"]) if as_of != UNKNOWN else 0.0,
                        as_of if as_of != UNKNOWN else 0,
                        _int(row["clk_assurance"]),
                        1.0 if epsilon is None else float(epsilon),
                    ),
                )
            nodes.insert(0, (name, epoch))
        self._write(slot, rows[0], mapped, steps, nodes)
        return slot

    def _write(
        self,
        slot: int,
        row: tuple[int | float | str | None, ...],
        mapped: tuple[int, int, float] | None,
        steps: list[tuple[int, float, int, int, float]],
        nodes: list[tuple[str, int]],
    ) -> None:
        array = self._array
        ref, tai, rate = mapped or (0, 0, 0.0)
        array["ref_ns"][slot], array["ref_tai_ns"][slot], array["rate_ppb"][slot] = ref, tai, rate * 1e9
        array["placed"][slot] = mapped is not None
        names = [column.name for column in c.CLOCKS]
        array["quantum_ns"][slot] = max(0, _int(row[names.index("clk_quantum_ns")]))
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
        if nodes[-1] == (TAI, 0) and all(step[0] != UNKNOWN for step in steps):
            grown = [math.ceil(step[1] * abs(tai - step[2]) * 1e-9) if step[1] else 0 for step in steps]
            total = sum(step[0] for step in steps) + (sum(grown) if ref else 0)
            growth_sum = sum(step[1] for step in steps)
        array["bound_ns"][slot] = total
        array["growth_ppb"][slot] = growth_sum

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
        known = (a >= 0) & (b >= 0)
        a, b = np.where(known, a, 0), np.where(known, b, 0)
        node = self["node"]
        na, nb = node[a], node[b]
        at_a = np.full(len(a), -1, np.int8)
        at_b = np.full(len(a), -1, np.int8)
        for i in range(DEPTH, -1, -1):
            for j in range(DEPTH, -1, -1):
                # Going down from the roots, the last match found is the lowest common ancestor.
                same = (na[:, i] == nb[:, j]) & (na[:, i] >= 0)
                at_a[same], at_b[same] = i, j
        found = known & (at_a >= 0)
        same_clock = found & (at_a == 0) & (at_b == 0)
        bound = np.zeros(len(a), np.int64)
        epsilon = np.zeros(len(a), np.float64)
        assured = found.copy()
        for slots, times, height in ((a, a_ns, at_a), (b, b_ns, at_b)):
            for level in range(DEPTH):
                below = found & (height > level)
                if not below.any():
                    break
                step = self["step_bound_ns"][slots, level]
                found &= ~below | (step != UNKNOWN)
                growth = self["step_growth_ppb"][slots, level]
                age = np.abs(times - self["step_as_of_ns"][slots, level])
                grown = step + np.ceil(np.where(growth > 0, growth * 1e-9 * age, 0.0)).astype(np.int64)
                bound += np.where(below & (step != UNKNOWN), grown, 0)
                kind = self["step_assurance"][slots, level]
                assured &= ~below | (kind != c.Assurance.CLAIMED)
                chance = self["step_epsilon"][slots, level]
                epsilon += np.where(below & (kind == c.Assurance.STATISTICAL), chance, 0.0)
        if a_end is not None and b_end is not None:
            halves = self["quantum_ns"][a] * (1 + a_end) + self["quantum_ns"][b] * (1 + b_end)
            coarse = (self["quantum_ns"][a] > 1) | (self["quantum_ns"][b] > 1)
            bound += np.where(coarse, (halves + 1) // 2, 0)
        if same_clock.any():
            drift = self["step_growth_ppb"][a, 0] * 1e-9 * np.abs(b_ns - a_ns)
            readout = self["quantum_ns"][a] + self["quantum_ns"][b]
            bound = np.where(same_clock, readout + np.ceil(drift).astype(np.int64), bound)
        return Bounds(np.where(found, bound, UNKNOWN), found & assured & (epsilon <= epsilon_max))

    def compact(self, used: I64) -> NDArray[np.int32]:
        """Forget all slots but these; gives the new slot of each old one (-1 if forgotten)."""
        kept = np.unique(used[used >= 0])
        new = np.full(self._size, -1, np.int32)
        new[kept] = np.arange(len(kept), dtype=np.int32)
        for name, array in self._array.items():
            self._array[name] = array[: self._size][kept]
        self.rows = [self.rows[slot] for slot in kept]
        self._slots = {key: int(new[slot]) for key, slot in self._slots.items() if new[slot] >= 0}
        self._size = len(kept)
        return new

    def dump(self) -> tuple[list[object], dict[str, NDArray[np.generic]]]:
        """State for a snapshot: JSON part and arrays."""
        keys = sorted(self._slots, key=self._slots.__getitem__)
        nodes = [[name, epoch] for name, epoch in self._nodes]
        return [[key.decode() for key in keys], self.rows, nodes], {n: self[n].copy() for n, _, _ in ARRAYS}

    @classmethod
    def load(cls, meta: list[object], arrays: dict[str, NDArray[np.generic]]) -> "ClockBook":
        """From `dump`."""
        book = cls()
        keys, rows, nodes = meta
        assert isinstance(keys, list) and isinstance(rows, list) and isinstance(nodes, list)
        book.rows = [[tuple(row) for row in chain] for chain in rows]
        book._array = {name: np.array(arrays[name]) for name, _, _ in ARRAYS}
        book._size = len(book.rows)
        book._nodes = {(name, epoch): place for place, (name, epoch) in enumerate(nodes)}
        book._slots = {key.encode(): slot for slot, key in enumerate(keys)}
        return book


def _int(value: int | float | str | None) -> int:
    assert isinstance(value, int)
    return value


def _float(value: int | float | str | None) -> float:
    assert value is None or isinstance(value, int | float)
    return 0.0 if value is None else float(value)

