"""Lost datagrams, by the numbers that senders give them: one count per (node, hw_id, destination).

Numbers wrap (22, 24, 32 or 48 bits). A step forward of up to half the number space means that the numbers
between are lost, until one of them arrives late. A longer step could as well be a restart: it is `ambiguous`,
nothing is counted as lost and counting goes on from the new number.

Two things look like a great loss and are none. A damaged number stands alone: so a step of more than 1,024 either
way counts only once the stream's next number lies as near to the new one; until then, and if it does not, the
number is `ambiguous` and counting goes on from the one before. And a sender that starts again, at 0 or anywhere,
may seem to step forward: in half of all cases by less than half the space, which for 32 bits is up to two thousand
million. So a step of more than 2^21 (half the least number space) that is also more than a thousand times what came
of the stream so far is `ambiguous`, too: of a stream of which less than a thousandth arrives, no count means much.
"""

from collections.abc import Iterator
from typing import Final

import numpy as np
from numpy.typing import NDArray

I64 = NDArray[np.int64]

STREAMS_MAX: Final = 65_536
COUNTED: Final = ("lost", "late", "repeated", "ambiguous", "forgotten")  # attributes of Sequences
MISSING_MAX: Final = 1024  # numbers per stream that may still arrive late
COPY_WITHIN: Final = 1024  # how far back a number counts as a copy and not as a restart
STEP_ALWAYS: Final = 1 << 21  # a step up to here may always be a loss
STEP_TIMES_SEEN: Final = 1000  # a longer one up to so many times what came of the stream


class _Stream:
    __slots__ = ("doubted", "last", "missing", "moved", "seen")

    def __init__(self, first: int) -> None:
        self.last = first
        self.doubted: int | None = None  # a number far from `last`, until the next one tells what it was
        self.missing: dict[int, None] = {}
        self.seen = 1
        self.moved = False


class Sequences:
    """Counts what is missing. `lost` datagrams, `late` ones that were counted as lost for a while, `repeated`
    numbers, `ambiguous` steps, `forgotten` streams (more than 65,536 at once)."""

    def __init__(self) -> None:
        self._streams: dict[int, _Stream] = {}
        self.lost = self.late = self.repeated = self.ambiguous = self.forgotten = 0

    @property
    def constant(self) -> int:
        """Streams of several datagrams whose number never moves: nothing can be said of their losses."""
        return sum(stream.seen > 1 and not stream.moved for stream in self._streams.values())

    def see(self, key: I64, number: I64, bits: int) -> None:
        """Numbers of `bits` bits in order of arrival, and the stream that each belongs to. Shapes (n,)."""
        mask = (1 << bits) - 1
        for stream, numbers in _by_key(key, number):
            known = self._streams.get(stream)
            if known is None:
                if len(self._streams) >= STREAMS_MAX:
                    del self._streams[next(iter(self._streams))]
                    self.forgotten += 1
                known = self._streams[stream] = _Stream(int(numbers[0]))
                numbers = numbers[1:]
                if not len(numbers):
                    continue
            if (int(numbers[0]) - known.last) & mask == 1 and (np.diff(numbers) & mask == 1).all():
                known.moved, known.last, known.doubted = True, int(numbers[-1]), None
                known.seen += len(numbers)
                continue
            for value in numbers.tolist():
                known.seen += 1
                if value == known.doubted:
                    self.repeated += 1
                    continue
                if known.doubted is not None:
                    self._settle(known, value, mask)
                self._step(known, value, mask)

    def _step(self, stream: _Stream, number: int, mask: int) -> None:
        step = (number - stream.last) & mask
        if step == 0:
            self.repeated += 1
            return
        stream.moved = True
        if step - 1 <= MISSING_MAX:
            self._lose(stream, step, mask)
        elif number in stream.missing:
            del stream.missing[number]
            self.lost -= 1
            self.late += 1
        elif mask + 1 - step <= COPY_WITHIN:
            self.repeated += 1
        else:
            self.ambiguous += 1
            stream.doubted = number

    def _settle(self, stream: _Stream, number: int, mask: int) -> None:
        """What the number that was doubted means, by the next one."""
        assert stream.doubted is not None
        beyond = (number - stream.doubted) & mask
        if beyond - 1 <= MISSING_MAX or mask + 1 - beyond <= COPY_WITHIN:
            step = (stream.doubted - stream.last) & mask
            if step <= (mask + 1) // 2 and step <= max(STEP_ALWAYS, STEP_TIMES_SEEN * stream.seen):
                self.ambiguous -= 1
                self._lose(stream, step, mask)
            else:
                stream.missing.clear()
                stream.last = stream.doubted
        stream.doubted = None

    def _lose(self, stream: _Stream, step: int, mask: int) -> None:
        """Go on by a step; the numbers in between are lost."""
        self.lost += step - 1
        for value in range(max(1, step - MISSING_MAX), step):
            stream.missing[(stream.last + value) & mask] = None
        while len(stream.missing) > MISSING_MAX:
            del stream.missing[next(iter(stream.missing))]
        stream.last = (stream.last + step) & mask


def _by_key(key: I64, number: I64) -> Iterator[tuple[int, I64]]:
    """The numbers of each key, in order of arrival; those of one key may come in several pieces."""
    if not len(key):
        return
    if (key == key[0]).all():
        yield int(key[0]), number
        return
    # 16 bits are sorted by radix, ten times as fast as whole keys; keys that share them may alternate.
    mixed = key.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    order = np.argsort((mixed >> np.uint64(48)).astype(np.uint16), kind="stable")
    arranged, numbers = key[order], number[order]
    heads = np.flatnonzero(arranged[1:] != arranged[:-1]) + 1
    begin = 0
    for end in [*heads.tolist(), len(key)]:
        yield int(arranged[begin]), numbers[begin:end]
        begin = end
