"""What the runner itself counts, and the stage's whole account for the exporter. Safe between threads."""

import threading
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import NamedTuple

from schemas.metrics import COMMIT_SECONDS_BUCKETS, METRICS, Number, Value


class Histogram(NamedTuple):
    """Observations by upper edge (the last has none), cumulative as Prometheus wants them, and their sum."""

    edges: Sequence[float]
    cumulative: Sequence[int]
    total: float


@dataclass
class _Buckets:
    counts: list[int] = field(default_factory=lambda: [0] * (len(COMMIT_SECONDS_BUCKETS) + 1))
    total: float = 0.0


class Meters:
    """Counters, gauges and histograms by registered name."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._own: dict[str, dict[tuple[str, ...], Number]] = {}
        self._buckets: dict[str, _Buckets] = {}
        self._tasks: Mapping[str, Value] = {}

    def add(self, name: str, number: Number, *labels: str) -> None:
        """Count."""
        assert METRICS[name].kind == "counter", name
        assert len(labels) == len(METRICS[name].labels), name
        with self._lock:
            table = self._own.setdefault(name, {})
            table[labels] = table.get(labels, 0) + number

    def set(self, name: str, number: Number, *labels: str) -> None:
        """Set a gauge."""
        assert METRICS[name].kind == "gauge", name
        assert len(labels) == len(METRICS[name].labels), name
        with self._lock:
            self._own.setdefault(name, {})[labels] = number

    def observe(self, name: str, number: float) -> None:
        """Add an observation to a histogram."""
        assert METRICS[name].kind == "histogram", name
        with self._lock:
            buckets = self._buckets.setdefault(name, _Buckets())
            buckets.counts[bisect_left(COMMIT_SECONDS_BUCKETS, number)] += 1
            buckets.total += number

    def show_tasks(self, counters: Mapping[str, Value]) -> None:
        """The tasks' own counters as of now; the mapping must not change afterwards."""
        with self._lock:
            self._tasks = counters

    def values(self) -> dict[str, Value]:
        """All counters and gauges, those of the tasks too."""
        with self._lock:
            own: dict[str, Value] = {
                name: dict(table) if METRICS[name].labels else table[()] for name, table in self._own.items()
            }
            return {**self._tasks, **own}

    def histograms(self) -> dict[str, Histogram]:
        """All histograms."""
        with self._lock:
            return {name: _histogram(buckets) for name, buckets in self._buckets.items()}


def _histogram(buckets: _Buckets) -> Histogram:
    return Histogram(COMMIT_SECONDS_BUCKETS, list(accumulate(buckets.counts)), buckets.total)


def no_observation() -> Histogram:
    """A histogram that nothing was observed for yet."""
    return _histogram(_Buckets())
