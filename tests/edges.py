"""Edges of windows made by hand, for tests of the rules."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from schemas import columns as c
from streams.diagnosis.window import Directory, WindowEdges

START_NS = 1_767_225_600_000_000_000
WINDOW_NS = 100_000_000
_FIELDS = tuple(WindowEdges.__dataclass_fields__)[2:]  # all but the window's own begin and end
_DTYPES = {"kind": np.uint8, "op": np.uint8, "verdict": np.uint8, "key": np.uint64}


@dataclass
class Windows:
    """Makes windows one after the other, all of one scope. Times are ns since the begin of the window."""

    directory: Directory = field(default_factory=Directory)
    number: int = -1
    _rows: list[dict[str, Any]] = field(default_factory=list)
    _keys: int = 0

    def clock(self, name: str, parent: str | None = None) -> None:
        """A clock and what it was measured against (None: TAI)."""
        number = self.directory.clocks.number(name)
        if parent is not None:
            self.directory.parent[number] = self.directory.clocks.number(parent)

    def message(
        self, cause_clock: str, effect_clock: str, gap_ns: int, bound_ns: int = 1_000, at_ns: int = 0
    ) -> None:
        """A message between the hosts of two clocks; it is violated if the gap says so."""
        names = self.directory.clocks
        self._keys += 1
        self._rows.append(
            {
                "kind": c.EdgeKind.MESSAGE, "op": 0, "group": 0, "key": self._keys,
                "cause": self.directory.members.number(cause_clock),
                "effect": self.directory.members.number(effect_clock),
                "cause_clock": names.number(cause_clock), "effect_clock": names.number(effect_clock),
                "gap_ns": gap_ns, "bound_ns": bound_ns, "effect_ns": at_ns, "duration_ns": 0,
                "verdict": c.Verdict.VIOLATED if gap_ns < -bound_ns else c.Verdict.INFERRED,
            }
        )  # fmt: skip

    def collective(
        self,
        members: Sequence[tuple[str, str, int, int]],
        group: str = "world",
        bound_ns: int | None = 1_000,
        op: c.Op = c.Op.ALL_REDUCE,
    ) -> None:
        """Members as (name, clock, begin, end): one edge each, from the other one that began last."""
        self._keys += 1
        for place, (name, clock, begin, end) in enumerate(members):
            others = [each for at, each in enumerate(members) if at != place]
            cause = max(others, key=lambda each: each[2])
            gap = end - cause[2]
            self._rows.append(
                {
                    "kind": c.EdgeKind.COLLECTIVE, "op": op, "key": self._keys,
                    "group": self.directory.groups.number(group),
                    "cause": self.directory.members.number(cause[0]),
                    "effect": self.directory.members.number(name),
                    "cause_clock": self.directory.clocks.number(cause[1]),
                    "effect_clock": self.directory.clocks.number(clock),
                    "gap_ns": gap, "bound_ns": c.NULL_I64 if bound_ns is None else bound_ns,
                    "effect_ns": end, "duration_ns": end - begin,
                    "verdict": c.Verdict.VIOLATED
                    if bound_ns is not None and gap < -bound_ns
                    else c.Verdict.INFERRED,
                }
            )  # fmt: skip

    def take(self) -> WindowEdges:
        """The window so far; the next one begins."""
        self.number += 1
        start = START_NS + self.number * WINDOW_NS
        rows, self._rows = self._rows, []
        columns = {
            name: np.array([int(row[name]) for row in rows], _DTYPES.get(name, np.int64)) for name in _FIELDS
        }
        columns["effect_ns"] = columns["effect_ns"] + start
        return WindowEdges(start, start + WINDOW_NS, **columns)
