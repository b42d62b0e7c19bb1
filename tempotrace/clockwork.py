"""The one place that reads the wall clock and makes random generators.

Everything else is handed a Clock (and a generator) by its constructor, so that a test decides what time it
is and which numbers fall. `tests/unit/test_tidiness.py` holds the rest of the code to it.
"""

import secrets
import threading
import time
from typing import Final, Protocol

import numpy as np

# Since 2017 TAI has been 37 s ahead of UTC; the contract lets an unknown offset count as that.
TAI_MINUS_UTC_NS: Final = 37 * 1_000_000_000


class Clock(Protocol):
    """What code may ask about the time."""

    def now_ns_tai(self) -> int:
        """Wall time in ns TAI since 1970."""
        ...

    def now_ns_utc(self) -> int:
        """Wall time in ns since the Unix epoch."""
        ...

    def monotonic(self) -> float:
        """Seconds from some fixed moment; never goes back."""
        ...

    def wait(self, event: threading.Event, seconds: float) -> bool:
        """Wait until the event is set, for at most so many seconds; whether it was set."""
        ...


class WallClock:
    """The machine's own clocks."""

    def now_ns_tai(self) -> int:
        # Not CLOCK_TAI: the kernel's offset is 0 until some daemon sets it, and nothing shows which it is.
        return time.time_ns() + TAI_MINUS_UTC_NS

    def now_ns_utc(self) -> int:
        return time.time_ns()

    def monotonic(self) -> float:
        return time.monotonic()

    def wait(self, event: threading.Event, seconds: float) -> bool:
        return event.wait(seconds)


class FakeClock:
    """A clock that stands still until told to advance. Waiting moves it on at once."""

    def __init__(self, now_ns_tai: int = 1_700_000_000_000_000_000) -> None:
        self._ns = now_ns_tai
        self._begin_ns = now_ns_tai

    def advance(self, ns: int) -> None:
        """Let so many nanoseconds pass."""
        assert ns >= 0, ns
        self._ns += ns

    def now_ns_tai(self) -> int:
        return self._ns

    def now_ns_utc(self) -> int:
        return self._ns - TAI_MINUS_UTC_NS

    def monotonic(self) -> float:
        return (self._ns - self._begin_ns) / 1e9

    def wait(self, event: threading.Event, seconds: float) -> bool:
        if not event.is_set():
            self.advance(round(seconds * 1e9))
        return event.is_set()


def seeded(seed: int) -> np.random.Generator:
    """A generator whose numbers depend on the seed alone."""
    return np.random.default_rng(seed)


def new_incarnation() -> int:
    """A fresh incarnation of a live source: 1 to 2^63 − 1, at random."""
    return secrets.randbelow(2**63 - 1) + 1


def random_bytes(count: int) -> bytes:
    """Bytes for identifiers that must differ everywhere."""
    return secrets.token_bytes(count)
