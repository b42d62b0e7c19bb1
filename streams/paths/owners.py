"""Whose flows are: jobs and ranks as hosts told them, and flows whose path was walked instead of observed."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from schemas import columns as c
from schemas.pack import Strings
from streams.paths.told import FabricRows, Step, Told

Array = NDArray[Any]
# (flow, links, first seen, last seen) -> since when it takes this path
Since = Callable[[int, Sequence[str], int, int], int]


class Owners:
    """Flows that hosts told of, for as long as they keep telling."""

    def __init__(self) -> None:
        self._told: dict[int, Told] = {}

    def learn(self, flows: Sequence[Told]) -> None:
        """Take what hosts told; of one flow the latest counts."""
        for flow in flows:
            known = self._told.get(flow.flow)
            if known is None or known.time_ns <= flow.time_ns:
                self._told[flow.flow] = flow

    def columns(self, flow: Array, strings: Strings) -> dict[str, Array]:
        """Job and ranks of flows by number."""
        owners = [self._told.get(number) for number in flow.tolist()]
        jobs = [c.NULL_U16 if o is None or o.job is None else strings.index(o.job) for o in owners]
        return {
            "flow_job": np.array(jobs, "<u2"),
            "flow_rank_src": _ranks([None if o is None else o.rank_src for o in owners]),
            "flow_rank_dst": _ranks([None if o is None else o.rank_dst for o in owners]),
        }

    def flows(self, told: FabricRows, observed: set[int], strings: Strings, since: Since) -> dict[str, Array]:
        """Columns of the flows whose path was told in this window and that no report shows the path of."""
        paths: dict[int, list[Step]] = {}
        for step in told.steps:
            if step.flow not in observed and step.flow in self._told:
                paths.setdefault(step.flow, []).append(step)
        for flow, steps in paths.items():
            latest = max(step.time_ns for step in steps)
            paths[flow] = sorted((s for s in steps if s.time_ns == latest), key=lambda s: (s.hop, s.link))
        for entry in told.flows:  # flows without a path are listed, too
            if entry.flow not in observed:
                paths.setdefault(entry.flow, [])
        numbers = list(paths)
        n = len(numbers)
        owners = [self._told[number] for number in numbers]
        steps = [step for number in numbers for step in paths[number]]
        count = np.array([len(paths[number]) for number in numbers], np.int64)
        first = [
            since(f, [s.link for s in paths[f]], o.time_ns, o.time_ns)
            for f, o in zip(numbers, owners, strict=True)
        ]
        heads = [paths[number][0] if paths[number] else None for number in numbers]
        return {
            "flow_id": np.array(numbers, "<u8"),
            "flow_src": _texts([o.src for o in owners], strings),
            "flow_dst": _texts([o.dst for o in owners], strings),
            "flow_src_port": _small([o.sport for o in owners], "<u2"),
            "flow_dst_port": _small([o.dport for o in owners], "<u2"),
            "flow_protocol": _small([o.protocol for o in owners], "u1"),
            **self.columns(np.array(numbers, "<u8"), strings),
            "flow_bytes": np.full(n, c.NULL_I64),
            "flow_reports": np.zeros(n, "<u4"),
            "flow_path_first": (np.cumsum(count) - count).astype("<u4"),
            "flow_path_count": count.astype("<u4"),
            "flow_path_source": np.array([c.NULL_U8 if s is None else s.source for s in heads], "u1"),
            "flow_agreement": np.array(
                [np.nan if s is None or s.agreement is None else s.agreement for s in heads], np.float64
            ),
            "flow_valid_from_ns": np.array(first, np.int64),
            "flow_valid_to_ns": np.array([o.time_ns for o in owners], np.int64),
            "flow_latency_ns": np.full(n, c.NULL_I64),
            "path_link": np.array([strings.index(step.link) for step in steps], "<u2"),
            "path_share": np.array([step.share for step in steps], np.float64),
        }

    def forget(self, oldest_ns: int) -> None:
        """Drop flows that nobody told of since then."""
        for number in [number for number, told in self._told.items() if told.time_ns < oldest_ns]:
            del self._told[number]

    def dump(self) -> Any:
        """As JSON."""
        return [list(told) for told in self._told.values()]

    def load(self, meta: Any) -> None:
        """From `dump`."""
        self._told = {entry[0]: Told(*entry) for entry in meta}


def joined(observed: dict[str, Array], told: dict[str, Array]) -> dict[str, Array]:
    """Both sets of flows in one table, paths one after the other."""
    if not observed:
        return told
    steps = len(observed["path_link"])
    told = told | {"flow_path_first": (told["flow_path_first"] + steps).astype("<u4")}
    return {name: np.concatenate((observed[name], told[name])) for name in observed}


def _ranks(ranks: Sequence[int | None]) -> Array:
    return np.array([c.NULL_I32 if rank is None else rank for rank in ranks], "<i4")


def _texts(texts: Sequence[str | None], strings: Strings) -> Array:
    return np.array([c.NULL_U16 if text is None else strings.index(text) for text in texts], "<u2")


def _small(numbers: Sequence[int | None], dtype: str) -> Array:
    top = np.iinfo(dtype).max
    return np.array([top if number is None else min(number, top) for number in numbers], dtype)
