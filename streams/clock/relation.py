"""One clock against one parent, online: what samples leave possible of its offset, and how that was found.

A *hard* sample brackets the offset by its own round trip (phc2sys's delay, an NTP exchange): offset ± delay/2. Between
samples the interval grows by the declared drift on both sides; each sample narrows it to what both allow. An empty
intersection, a step told by the daemon, a jump its clockcheck saw, another master, a frequency at its limit, and a wrap
of 2³³ ns end the epoch: nothing is carried over.

Other samples (ptp4l with a filtered one-way delay, chrony's own estimate) bound nothing physically. They enter
the window of sizes (streams.clock.window) and give, as a claim, the greatest size of the last CHUNK to 2·CHUNK samples,
each with what its reading cannot see. Of these the one that the offset was surely furthest out by is kept too: a
statement that denies it is contradicted.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final, NamedTuple

import numpy as np

from schemas.columns import Assurance, Status
from schemas.errors import Usage
from schemas.time import NS
from streams.clock.window import BLOCKS, HOLDOVER, RANKS, Tail

CHUNK: Final = 50
WRAP_NS: Final = 2**33
WRAP_SLACK_NS: Final = 10_000_000
NEVER: Final = -(2**62)


@dataclass(frozen=True)
class Declared:
    """What is declared of every clock of a scope. Raises Usage for what can't be meant.

    drift_ppb: greatest rate of a clock against its parent, slewing by its daemon included (ClockBound's 50 ppm).
    void_after_s: a state older than that is unknown. epsilon_max: a statistical bound that fails more often than
    that does not take the place of a hard one, since it proves nothing.
    """

    drift_ppb: float = 50_000.0
    void_after_s: float = 1_000.0
    epsilon_max: float = 1e-6

    def __post_init__(self) -> None:
        if not (0 < self.drift_ppb <= 1e7 and 0 < self.void_after_s < 1e9 and 0 <= self.epsilon_max <= 1):
            raise Usage(f"clocks can't be declared like that: {self}")


class Sample(NamedTuple):
    """One measurement: offset ± error at a time (TAI), all ns. `root_ns`: greatest error of the parent against TAI
    as the daemon states it, -1 if it does not. `locked`: the daemon follows the parent. `doubt_ns`: how much later
    than its time it may have been taken."""

    time_ns: int
    offset_ns: int
    error_ns: int
    hard: bool
    locked: bool
    root_ns: int = -1
    freq_ppb: float | None = None
    doubt_ns: int = 0


class Measured(NamedTuple):
    """A state: greatest |offset| at `as_of_ns` (None: unknown) and its growth away from it. Of an unknown one
    `as_of_ns` is since when it has been so: NEVER where nothing was ever known."""

    bound_ns: int | None
    as_of_ns: int
    growth_ppb: float
    assurance: Assurance
    epsilon: float | None
    status: Status
    why: str


@dataclass
class Relation:
    """The carry state of one pair; all but `tail` are numbers."""

    tail: Tail = field(default_factory=Tail.empty)
    status: int = int(Status.UNKNOWN)
    began_ns: int = NEVER  # when the first sample of the epoch had been taken for sure
    hard_ns: int = NEVER  # last hard sample
    low: int = 0  # what hard samples leave possible: the sample that binds on each side, and its time
    low_ns: int = NEVER
    high: int = 0
    high_ns: int = NEVER
    as_of_ns: int = NEVER  # last sample of any kind
    offset: int = 0
    error: int = 0
    root: int = -1
    narrowest: int = -1  # least error of a reading in this epoch
    chunk: int = 0  # samples in the chunk that is filled
    reach: int = 0  # greatest |offset| + error in it, and in the one before
    reach_before: int = 0
    beyond: int = (
        -1
    )  # the most by which the clock was surely off TAI or its parent in it (-1: by nothing), and when
    beyond_ns: int = NEVER
    beyond_before: int = -1
    beyond_before_ns: int = NEVER
    freq: float = math.nan
    changes: int = 0  # of the frequency in this epoch, their sum and the greatest of the last chunks
    change_sum: float = 0.0
    change_most: float = 0.0
    version: int = 0
    left: int = 0  # greatest offset by the last sample of the epoch before, and its time
    left_ns: int = NEVER

    def restart(self) -> None:
        """Forget all samples: they are of another epoch."""
        version, status = self.version + 1, self.status
        left = (self.left, self.left_ns)
        if self.as_of_ns != NEVER:
            left = self.offset + self.error, self.as_of_ns
        fresh = Relation()
        for one in fields(Relation):
            setattr(self, one.name, getattr(fresh, one.name))
        self.version, self.status, (self.left, self.left_ns) = version, status, left

    def tell(self, status: Status) -> None:
        """Take what a daemon says of its own state."""
        if status != self.status:
            self.status = int(status)
            self.version += 1

    def take(self, sample: Sample, declared: Declared) -> bool:
        """Take a sample that contradicts nothing. False: it is older than the last one, and is left out."""
        if sample.time_ns < self.as_of_ns:
            return False
        if sample.hard:
            self._narrow(sample, declared)
        self._count(sample)
        self.as_of_ns, self.offset, self.error = sample.time_ns, sample.offset_ns, sample.error_ns
        self.root, self.version = sample.root_ns, self.version + 1
        if self.began_ns == NEVER:
            self.began_ns = sample.time_ns + sample.doubt_ns
        return True

    def contradicted(self, sample: Sample, declared: Declared) -> str | None:
        """Why a sample cannot be of the epoch so far; None if it can. The caller then begins a new one."""
        if self.as_of_ns == NEVER:
            return None
        jump = sample.offset_ns - self.offset
        if abs(jump) > WRAP_NS // 2 and abs(jump - round(jump / WRAP_NS) * WRAP_NS) < WRAP_SLACK_NS:
            return f"wrapped by {jump} ns"
        if not sample.hard or self.hard_ns == NEVER:
            return None
        low, high = sample.offset_ns - sample.error_ns, sample.offset_ns + sample.error_ns
        least, most = self.interval(sample.time_ns, declared)
        if low <= most and high >= least:
            return None
        gone = low - most if low > most else high - least
        return f"moved by {gone} ns, more than a drift of {declared.drift_ppb / 1e3:g} ppm can"

    def back_ns(self, sample: Sample, declared: Declared) -> int:
        """By how much the clock may have gone back, if a sample is the first of an epoch; 0 if it can't have."""
        if self.as_of_ns != NEVER or self.left_ns == NEVER:
            return 0
        drift = math.ceil(declared.drift_ppb * 1e-9 * abs(sample.time_ns - self.left_ns))
        return max(0, self.left + drift - sample.offset_ns + sample.error_ns)

    def _narrow(self, sample: Sample, declared: Declared) -> None:
        low, high = sample.offset_ns - sample.error_ns, sample.offset_ns + sample.error_ns
        now = sample.time_ns
        drift = declared.drift_ppb * 1e-9
        if self.hard_ns == NEVER or low >= self.low - drift * (now - self.low_ns):
            self.low, self.low_ns = low, now
        if self.hard_ns == NEVER or high <= self.high + drift * (now - self.high_ns):
            self.high, self.high_ns = high, now
        self.hard_ns = now

    def interval(self, at_ns: int, declared: Declared) -> tuple[int, int]:
        """(least, greatest) offset possible at a time by the hard samples of this epoch, of which there are some."""
        drift = declared.drift_ppb * 1e-9
        return (
            self.low - math.ceil(drift * abs(at_ns - self.low_ns)),
            self.high + math.ceil(drift * abs(at_ns - self.high_ns)),
        )

    def _count(self, sample: Sample) -> None:
        size = abs(sample.offset_ns)
        sure = size - sample.error_ns - max(0, sample.root_ns)
        if self.narrowest < 0 or sample.error_ns < self.narrowest:
            self.narrowest = sample.error_ns
        if self.chunk == CHUNK:
            self.chunk, self.reach_before, self.reach, self.change_most = 0, self.reach, 0, 0.0
            self.beyond_before, self.beyond_before_ns = self.beyond, self.beyond_ns
            self.beyond = -1
        self.chunk += 1
        self.reach = max(self.reach, size + sample.error_ns)
        if sure > self.beyond:
            self.beyond, self.beyond_ns = sure, sample.time_ns
        if sample.locked:
            self.tail.add(float(size))
        if sample.freq_ppb is not None:
            if not math.isnan(self.freq):
                change = abs(sample.freq_ppb - self.freq)
                self.changes, self.change_sum = self.changes + 1, self.change_sum + change
                self.change_most = max(self.change_most, change)
            self.freq = sample.freq_ppb

    @property
    def out(self) -> int:
        """Greatest |offset| + error of the last CHUNK to 2·CHUNK samples."""
        return max(self.reach, self.reach_before)

    def furthest(self) -> Sequence[tuple[int, int]]:
        """(least possible |offset|, its time) of those of the last samples that leave no doubt that there was one."""
        both = ((self.beyond, self.beyond_ns), (self.beyond_before, self.beyond_before_ns))
        return [one for one in both if one[0] >= 0]

    def copy(self) -> "Relation":
        """A copy that no later sample changes."""
        return replace(self, tail=Tail(self.tail.top.copy(), self.tail.fill, self.tail.full))

    def state(self, at_ns: int, now_ns: int, declared: Declared) -> Measured:
        """What may be applied to stamps at `at_ns` (TAI) in a window that ends at `now_ns`."""
        status, drift = Status(self.status), declared.drift_ppb
        unknown = Measured(None, NEVER, drift, Assurance.CLAIMED, None, status, "")
        if self.as_of_ns == NEVER:
            return unknown
        void_ns = self.as_of_ns + round(declared.void_after_s * NS)
        if now_ns > void_ns:
            why = f"no sample for {declared.void_after_s:g} s"
            return unknown._replace(as_of_ns=void_ns, status=Status.UNKNOWN, why=why)
        if at_ns < self.began_ns:
            return unknown._replace(why="before the first sample")
        if status in (Status.UNKNOWN, Status.STEPPED):
            return unknown
        hard = None
        if self.hard_ns != NEVER:
            low, high = self.interval(self.hard_ns, declared)
            hard = max(abs(low), abs(high))
        if status == Status.LOCKED:
            found = self.tail.bound(math.inf if hard is None else float(hard), float(self.narrowest))
            usable = hard is None or (found.epsilon or 1.0) <= declared.epsilon_max
            if found.epsilon is not None and usable:
                return Measured(
                    math.ceil(found.bound_ns), self.as_of_ns, min(drift, self.holdover_ppb() or drift),
                    Assurance.STATISTICAL, found.epsilon, status,
                    f"order statistic of {found.samples} samples and half the narrowest round trip",
                )  # fmt: skip
        if hard is not None:
            return Measured(
                hard, self.hard_ns, drift, Assurance.HARD, None, status,
                f"two-way exchanges, drift at most {drift / 1e3:g} ppm, no untold step since the last",
            )  # fmt: skip
        return Measured(
            self.out, self.as_of_ns, drift, Assurance.CLAIMED, None, status,
            f"greatest of the last samples with what a reading can't see; {self.tail.samples} of "
            f"the calibration points of a statistical bound",
        )  # fmt: skip

    def holdover_ppb(self) -> float:
        """Growth by past changes of the frequency: fbclock's, and at least the greatest of late. 0: none seen."""
        if not self.changes:
            return 0.0
        return max(HOLDOVER * self.change_sum / self.changes, self.change_most)

    def dump(self) -> tuple[list[Any], np.ndarray[Any, np.dtype[np.float64]]]:
        """(plain values in order of PLAIN, rows of the tail that hold something)."""
        plain = [getattr(self, name) for name in PLAIN]
        plain = [None if value != value else value for value in plain]
        return [*plain, self.tail.fill, self.tail.full], self.tail.top[: self.tail.full + 1]

    @classmethod
    def load(cls, plain: list[Any], top: np.ndarray[Any, np.dtype[np.float64]]) -> "Relation":
        """From `dump`."""
        values: Mapping[str, Any] = dict(zip(PLAIN, plain[:-2], strict=True))
        made = cls(**values)
        if values["freq"] is None:
            made.freq = math.nan
        whole = np.zeros((BLOCKS + 1, RANKS))
        whole[: len(top)] = top
        made.tail = Tail(whole, plain[-2], plain[-1])
        return made


PLAIN: Final = tuple(one.name for one in fields(Relation) if one.name != "tail")
