"""One clear parser, run on whole blocks of datagrams: layouts and the questions that lead to them.

Theory of operation. A parser never looks at bytes itself: it asks a `Scan`, which answers and writes the
question down. What the parser returns is no values but a *layout*: which field of which hop lies at which
bits. So the layout depends on the datagram's size and on the answers alone, and every other datagram of that
size that would give the same answers has the same layout. One datagram of a kind is parsed in plain Python;
its thousands of brothers are found by asking numpy the same questions, and read by numpy from the same
places. Nothing is decided twice, and there is no second parser to keep in step.

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


class Rows:
    """Datagrams of one size, one under the other, and their fields as columns."""

    def __init__(self, data: U8, size: int) -> None:
        """`data` has shape (count, width), contiguous, of a width of whole 8 bytes; `size` of them count."""
        assert data.flags.c_contiguous
        assert data.shape[1] % 8 == 0
        assert size <= data.shape[1]
        self.data = data
        self.size = size
        self.count = data.shape[0]

    def words(self) -> NDArray[np.uint64]:
        """The bytes as words of 64 bits in the machine's order. Shape (count, width / 8)."""
        return self.data.view(np.uint64)

    def view(self, byte: int, bits: int) -> Array:
        """The 8, 16, 32 or 64 bits from byte `byte` on, big-endian, not copied. Shape (count,)."""
        width = bits // 8
        assert 0 <= byte <= self.data.shape[1] - width
        out: Array = np.ndarray((self.count,), f">u{width}", self.data, byte, (self.data.shape[1],))
        return out

    def take(self, place: Field) -> Array:
        """A field as u1, u2, u4 or u8, in the machine's order. Shape (count,)."""
        at, bits = place
        if at % 8 == 0 and bits in (8, 16, 32, 64):
            view = self.view(at // 8, bits)
            return view.astype(view.dtype.newbyteorder("="))
        # Not a number of its own: the narrowest one that covers it, shifted and masked.
        last = (at + bits + 7) // 8
        for wide in (8, 16, 32, 64):
            first = max(0, last - wide // 8)
            spare = 8 * first + wide - at - bits
            if 8 * first <= at and spare >= 0:
                view = self.view(first, wide)
                value: Array = view.astype(view.dtype.newbyteorder("="))
                value >>= value.dtype.type(spare)
                value &= value.dtype.type((1 << bits) - 1)
                return value
        raise AssertionError(f"a field of {bits} bits at bit {at} lies in no 64 bits")

    def pick(self, rows: Array) -> "Rows":
        """Only these rows (mask or indices)."""
        return Rows(self.data[rows], self.size)

    def row(self, number: int) -> bytes:
        """The bytes of one datagram."""
        return self.data[number, : self.size].tobytes()


class Known(Generic[T]):
    """A layout, and the questions that show whether another datagram of the size has it too."""

    def __init__(self, layout: T, scan: Scan) -> None:
        self.layout = layout
        width = -(-len(scan.data) // 8)
        mask, wanted = bytearray(8 * width), bytearray(8 * width)
        for place, value in scan.exact:
            for bit in range(place.bits):
                at = place.at + bit
                mask[at // 8] |= 0x80 >> at % 8
                if value >> (place.bits - 1 - bit) & 1:
                    wanted[at // 8] |= 0x80 >> at % 8
        pairs = zip(np.frombuffer(mask, np.uint64), np.frombuffer(wanted, np.uint64), strict=True)
        self._exact = [(place, *pair) for place, pair in enumerate(pairs) if pair[0]]
        self._other = list(dict.fromkeys(scan.other))

    def holds(self, rows: Rows) -> NDArray[np.bool_]:
        """Which of the datagrams have this layout. Shape (count,)."""
        words = rows.words()
        differs = np.zeros(rows.count, np.uint64)
        for place, mask, wanted in self._exact:
            differs |= words[:, place] & mask ^ wanted
        out: NDArray[np.bool_] = differs == 0
        for field_, least, operand, answer in self._other:
            value = rows.take(field_)
            if operand >> 8 * value.dtype.itemsize:  # beyond what the field can hold
                fits = np.zeros(rows.count, bool)
            else:
                fits = value >= operand if least else value == operand
            out &= fits if answer else ~fits
        return out


class Group(NamedTuple, Generic[T]):
    """Datagrams of a block that share a layout: their places in the block, ascending, and their bytes."""

    layout: T
    places: I64
    rows: Rows


class Reader(Generic[T]):
    """Applies a parser to blocks of datagrams and remembers the layouts that it has met.

    `parse` makes a layout from a Scan or raises MalformedInput. What is remembered is bounded and changes the
    speed only.
    """

    SIZES_MAX, LAYOUTS_MAX, NEW_MAX = 2048, 24, 64

    def __init__(self, parse: Callable[[Scan], T]) -> None:
        self._parse = parse
        self._known: dict[int, list[Known[T]]] = {}  # by size, last used first

    def read(self, data: U8, at: I64, size: I64, failures: dict[int, MalformedInput]) -> Iterator[Group[T]]:
        """Groups of the datagrams data[at : at + size]; those that do not parse go to `failures` by place."""
        for length in np.unique(size).tolist():
            places = np.flatnonzero(size == length)
            rows = Rows(gather(data, at[places], length), length)
            yield from self._one_size(places, rows, failures)

    def _one_size(self, places: I64, rows: Rows, failures: dict[int, MalformedInput]) -> Iterator[Group[T]]:
        if len(self._known) >= self.SIZES_MAX and rows.size not in self._known:
            self._known.clear()
        known = self._known.setdefault(rows.size, [])
        used: list[Known[T]] = []
        for candidate in known:
            same = candidate.holds(rows)
            if same.all():
                used.append(candidate)
                yield Group(candidate.layout, places, rows)
                places = places[:0]
                break
            if same.any():
                used.append(candidate)
                yield Group(candidate.layout, places[same], rows.pick(same))
                places, rows = places[~same], rows.pick(~same)
        left = np.ones(len(places), bool)
        new = 0
        for number in range(len(places)):
            if not left[number]:
                continue
            scan = Scan(rows.row(number))
            try:
                layout = self._parse(scan)
            except MalformedInput as error:
                failures[int(places[number])] = error
                continue
            if new >= self.NEW_MAX:  # too many kinds of one size to ask all the rest about each
                one = np.array([number])
                yield Group(layout, places[one], rows.pick(one))
                continue
            new += 1
            found = Known(layout, scan)
            used.append(found)
            same = found.holds(rows) & left
            assert same[number], "a layout that does not hold for the datagram it was made from"
            yield Group(layout, places[same], rows if same.all() else rows.pick(same))
            left &= ~same
        self._known[rows.size] = list(dict.fromkeys([*used, *known]))[: self.LAYOUTS_MAX]


def gather(data: U8, at: I64, size: int) -> U8:
    """The `size` bytes from each place on, and more to fill whole 8 bytes. Shape (len(at), width)."""
    width = -(-size // 8) * 8
    if not len(at) or not size:
        return np.zeros((len(at), width), np.uint8)
    assert at.min() >= 0, "a datagram before its block"
    assert at.max() + size <= len(data), "a datagram beyond its block"
    if at.max() + width > len(data):
        data = np.concatenate([data[at.min() :], np.zeros(8, np.uint8)])
        at = at - at.min()
    # An item of `width` bytes at every place of the buffer, so that numpy copies a datagram at a time.
    items: Array = np.ndarray((len(data) - width + 1,), f"V{width}", data, strides=(1,))
    return items[at].view(np.uint8).reshape(len(at), width)
