"""The links of a window as columns of the paths record."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from schemas import columns as c
from schemas.pack import Strings
from streams.paths.counted import I64, Counted, Load
from streams.paths.hops import Crossings, Hops, report_bytes
from streams.paths.told import Count

Array = NDArray[Any]
PORT = "port"  # layer of a link that is counted and that no flow was seen on


def link_rows(
    hops: Hops, found: Crossings, counts: Sequence[Count], counted: Counted, strings: Strings
) -> dict[str, Array]:
    """What crossed each link, and what its ports counted.

    A link that was crossed at several places on paths is one row a layer; a counted one is one row, in the layer
    where most of it is. Bytes are those counted in the intervals that ended in the window (null if none did), or
    of flows where nobody counts.
    """
    crossed = _Crossed(hops, found)
    loads = counted.window(counts, crossed.by_name())
    rows: list[tuple[str, str, int, Load]] = []
    for place, name in enumerate(found.names):
        if not counted.is_counted(name):
            rows.append(
                (found.layers[place], name, crossed.flows([place]), Load(by_flows=crossed.total(place)))
            )
    for name, load in loads.items():
        if counted.is_counted(name):
            places = crossed.places.get(name, [])
            layer = max(places, key=crossed.total, default=None)
            flows = crossed.flows(places)
            rows.append((PORT if layer is None else found.layers[layer], name, flows, load))
    if not rows:
        return {}
    layers, names, flows_, loads_ = zip(*rows, strict=True)
    watched = [counted.is_counted(name) for name in names]
    return {
        "link_layer": np.array([strings.index(layer) for layer in layers], "<u2"),
        "link_name": np.array([strings.index(name) for name in names], "<u2"),
        "link_flows": np.array(flows_, "<u4"),
        "link_bytes": np.array(
            [
                _null(load.bytes) if seen else load.by_flows
                for load, seen in zip(loads_, watched, strict=True)
            ],
            np.int64,
        ),
        "link_capacity_bps": np.array(
            [np.nan if load.capacity_bps is None else load.capacity_bps for load in loads_]
        ),
        "link_utilisation": np.array([load.utilisation for load in loads_]),
        "link_coverage": np.array([load.coverage for load in loads_]),
        "link_attributed": np.array([load.by_flows for load in loads_], np.int64),
        "link_interval_ns": np.array([_null(load.interval_ns) for load in loads_], np.int64),
    }


def _null(number: int | None) -> int:
    return c.NULL_I64 if number is None else number


class _Crossed:
    """Reports by link."""

    def __init__(self, hops: Hops, found: Crossings) -> None:
        self.places: dict[str, list[int]] = {}
        for place, name in enumerate(found.names):
            self.places.setdefault(name, []).append(place)
        links = len(found.names)
        _, size = report_bytes(hops)
        self._size = size[hops.report[found.hop]] if links else np.empty(0, np.int64)
        self._time = hops.time_ns[found.hop]
        self._flow = hops.flow[found.hop]
        self._order = np.lexsort((self._time, found.link))
        ends = np.cumsum(np.bincount(found.link, minlength=links)) if links else np.empty(0, np.int64)
        self._starts = np.concatenate((np.zeros(1, np.int64), ends))
        self._totals = np.zeros(links, np.int64)
        np.add.at(self._totals, found.link, self._size)

    def _of(self, place: int) -> I64:
        return self._order[self._starts[place] : self._starts[place + 1]]

    def total(self, place: int) -> int:
        """Bytes of reports over a link of one layer."""
        return int(self._totals[place])

    def flows(self, places: Sequence[int]) -> int:
        """Distinct flows over these."""
        if not places:
            return 0
        return len(np.unique(np.concatenate([self._flow[self._of(place)] for place in places])))

    def by_name(self) -> dict[str, tuple[I64, I64]]:
        """Times and bytes of the reports over each link, by time."""
        out = {}
        for name, places in self.places.items():
            rows = np.concatenate([self._of(place) for place in places])
            rows = rows[np.argsort(self._time[rows], kind="stable")]
            out[name] = (self._time[rows], self._size[rows])
        return out


def packed(wide: Array, dtype: str) -> Array:
    """Ports and protocols as packed; one that can't be told from null (65535, 255) counts as null."""
    top = np.iinfo(dtype).max
    return np.where((wide < 0) | (wide >= top), top, wide).astype(dtype)
