"""One clear parser, run on whole blocks of datagrams: layouts and the questions that lead to them.

Theory of operation. A parser never looks at bytes itself: it asks a `Scan`, which answers and writes the
question down. What the parser returns is no values but a *layout*: which field of which hop lies at which
bits. The layout therefore depends on the datagram's size and on the answers alone, and every other datagram of
that size that would give the same answers has the same layout. So one datagram of a kind is parsed in plain
Python, and its thousands of brothers are found by asking numpy the same questions, and read by numpy from the
same places. Nothing is decided twice and there is no second parser to keep in step.

A `Field` counts bits from the datagram's first byte, most significant bit first (network order).
"""

from collections.abc import Callable, Iterator
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from schemas.errors import MalformedInput

I64 = NDArray[np.int64]
U8 = NDArray[np.uint8]
Array = NDArray[Any]
T = TypeVar("T")


class Field(NamedTuple):
    """A number of `bits` bits (1 to 64) that begins at bit `at`."""

    at: int
    bits: int


def field(byte: int, bits: int, skip: int = 0) -> Field:
    """The field of `bits` bits that begins `skip` bits into byte `byte`."""
    return Field(8 * byte + skip, bits)


class Cut(MalformedInput):
    """The datagram ends before what it announces."""


class Scan:
    """The bytes of one datagram, and every question that was asked of them."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.exact: list[tuple[Field, int]] = []  # (field, its value)
        self.other: list[tuple[Field, bool, int, bool]] = []  # (field, "at least"?, operand, answer)

    def need(self, begin: int, size: int, what: str) -> None:
        """Raise Cut unless `size` bytes from `begin` on are there."""
        if begin + size > len(self.data):
            raise Cut(f"{what} is cut", f"byte {len(self.data)}, {begin + size} needed")

    def peek(self, place: Field) -> int:
        """A field's value, not written down: for values, never for decisions."""
        begin, end = place.at // 8, (place.at + place.bits + 7) // 8
        self.need(begin, end - begin, "a field")
        whole = int.from_bytes(self.data[begin:end], "big")
        return whole >> (8 * end - place.at - place.bits) & ((1 << place.bits) - 1)

    def value(self, place: Field) -> int:
        """A field whose value the layout depends on."""
        value = self.peek(place)
        self.exact.append((place, value))
        return value

    def equals(self, place: Field, wanted: int) -> bool:
        """Whether a field has this value; any other is as good as another."""
        answer = self.peek(place) == wanted
        if answer:
            self.exact.append((place, wanted))
        else:
            self.other.append((place, False, wanted, False))
        return answer

    def least(self, place: Field, limit: int) -> bool:
        """Whether a field is `limit` or more."""
        answer = self.peek(place) >= limit
        self.other.append((place, True, limit, answer))
        return answer


class Words:
    """Equally long datagrams as columns of 16-bit words, made when asked for. Rows: datagrams."""

    def __init__(self, rows: U8) -> None:
        size = rows.shape[1]
        if size % 2:
            rows = np.pad(rows, ((0, 0), (0, 1)))
        self._rows = np.ascontiguousarray(rows).view(">u2")
        self._made: dict[int, NDArray[np.uint16]] = {}
        self.count = rows.shape[0]

    def word(self, place: int) -> NDArray[np.uint16]:
        """16-bit word number `place` of every datagram, native order. Shape (count,)."""
        made = self._made.get(place)
        if made is None:
            made = self._made[place] = self._rows[:, place].astype(np.uint16)
        return made

    def take(self, place: Field) -> Array:
        """A field of every datagram as u2, u4 or u8, whichever is the first to hold it. Shape (count,)."""
        at, bits = place
        first, last = at // 16, (at + bits - 1) // 16
        spare = 16 * (last + 1) - at - bits
        if first == last:
            single = self.word(first)
            if bits == 16:
                return single
            return single >> np.uint16(spare) & np.uint16((1 << bits) - 1)
        if last - first == 1:
            pair = self.word(first).astype(np.uint32) << np.uint32(16) | self.word(last)
            if bits == 32:
                return pair
            return pair >> np.uint32(spare) & np.uint32((1 << bits) - 1)
        # Up to five words: all but the last make at most 64 bits, of which the leading ones may not be ours.
        out = self.word(first).astype(np.uint64)
        if at % 16:
            out &= np.uint64((1 << (16 - at % 16)) - 1)
        for number in range(first + 1, last):
            out = out << np.uint64(16) | self.word(number)
        return out << np.uint64(16 - spare) | (self.word(last) >> np.uint16(spare))

    def pick(self, rows: Array) -> "Words":
        """Only these rows (mask or indices)."""
        out = Words.__new__(Words)
        out._rows = self._rows[rows]
        out._made = {place: word[rows] for place, word in self._made.items()}
        out.count = len(out._rows)
        return out

    def row(self, number: int, size: int) -> bytes:
        """The bytes of one datagram."""
        return bytes(self._rows[number].tobytes()[:size])


class Known(Generic[T]):
    """A layout, and the questions that show whether another datagram of the size has it too."""

    def __init__(self, layout: T, scan: Scan) -> None:
        self.layout = layout
        mask, wanted = bytearray(len(scan.data) + 1), bytearray(len(scan.data) + 1)
        for place, value in scan.exact:
            for bit in range(place.bits):
                at = place.at + bit
                mask[at // 8] |= 0x80 >> at % 8
                if value >> (place.bits - 1 - bit) & 1:
                    wanted[at // 8] |= 0x80 >> at % 8
        self._exact = [
            (place, np.uint16(int.from_bytes(mask[2 * place : 2 * place + 2], "big")),
             np.uint16(int.from_bytes(wanted[2 * place : 2 * place + 2], "big")))
            for place in range(len(mask) // 2)
            if mask[2 * place] or mask[2 * place + 1]
        ]  # fmt: skip
        self._other = list(dict.fromkeys(scan.other))

    def holds(self, words: Words) -> NDArray[np.bool_]:
        """Which of the datagrams have this layout. Shape (count,)."""
        differs = np.zeros(words.count, np.uint16)
        for place, mask, wanted in self._exact:
            word = words.word(place)
            differs |= (word if mask == 0xFFFF else word & mask) ^ wanted
        out: NDArray[np.bool_] = differs == 0
        for place_, least, operand, answer in self._other:
            value = words.take(place_)
            if operand >> 8 * value.dtype.itemsize:  # beyond what the field can hold
                fits = np.zeros(words.count, bool)
            else:
                fits = value >= operand if least else value == operand
            out &= fits if answer else ~fits
        return out


class Group(NamedTuple, Generic[T]):
    """Datagrams of a block that share a layout: their places in the block (ascending) and their words."""

    layout: T
    rows: I64
    words: Words


class Reader(Generic[T]):
    """Applies a parser to blocks of datagrams and remembers the layouts that it has met.

    `parse` makes a layout from a Scan or raises MalformedInput. What is remembered is bounded and changes the
    speed only.
    """

    SIZES_MAX, LAYOUTS_MAX, NEW_MAX = 2048, 24, 64

    def __init__(self, parse: Callable[[Scan], T]) -> None:
        self._parse = parse
        self._known: dict[int, list[Known[T]]] = {}  # by size, last used first

    def read(
        self, data: U8, at: I64, size: I64, failures: dict[int, MalformedInput]
    ) -> Iterator[Group[T]]:
        """Groups of the datagrams data[at : at + size]; those that do not parse go to `failures` by place."""
        for length in np.unique(size).tolist():
            rows = np.flatnonzero(size == length)
            yield from self._one_size(rows, Words(gather(data, at[rows], length)), length, failures)

    def _one_size(
        self, rows: I64, words: Words, length: int, failures: dict[int, MalformedInput]
    ) -> Iterator[Group[T]]:
        if len(self._known) >= self.SIZES_MAX and length not in self._known:
            self._known.clear()
        known = self._known.setdefault(length, [])
        used: list[Known[T]] = []
        for candidate in known:
            same = candidate.holds(words)
            if same.all():
                used.append(candidate)
                yield Group(candidate.layout, rows, words)
                rows = rows[:0]
                break
            if same.any():
                used.append(candidate)
                yield Group(candidate.layout, rows[same], words.pick(same))
                rows, words = rows[~same], words.pick(~same)
        left = np.ones(len(rows), bool)
        new = 0
        for place in range(len(rows)):
            if not left[place]:
                continue
            scan = Scan(words.row(place, length))
            try:
                layout = self._parse(scan)
            except MalformedInput as error:
                failures[int(rows[place])] = error
                continue
            if new >= self.NEW_MAX:  # too many kinds of one size to ask all the rest about each
                one = np.array([place])
                yield Group(layout, rows[one], words.pick(one))
                continue
            new += 1
            found = Known(layout, scan)
            used.append(found)
            same = found.holds(words) & left
            assert same[place], "a layout that does not hold for the datagram it was made from"
            yield Group(layout, rows[same], words if same.all() else words.pick(same))
            left &= ~same
        self._known[length] = list(dict.fromkeys([*used, *known]))[: self.LAYOUTS_MAX]


def gather(data: U8, at: I64, size: int) -> U8:
    """The `size` bytes from each place on. Shape (len(at), size)."""
    if not size:
        return np.empty((len(at), 0), np.uint8)
    assert len(at) == 0 or (at.min() >= 0 and at.max() + size <= len(data)), "a datagram outside its block"
    # An item of `size` bytes at every place of the buffer, so that numpy copies a datagram at a time.
    items: Array = np.ndarray((len(data) - size + 1,), f"V{size}", data, strides=(1,))
    return items[at].view(np.uint8).reshape(len(at), size)
