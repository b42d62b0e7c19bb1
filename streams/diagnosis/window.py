"""The edges of a whole window as arrays with the scope's own numbers for ranks, clocks and groups."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from schemas import columns as c
from schemas.merged import Merged
from schemas.time import TAI

I64 = NDArray[np.int64]
DEPTH = 4


class Names:
    """Numbers for names, in order of first sight."""

    def __init__(self, names: Sequence[str] = ()) -> None:
        self.names = list(names)
        self._number = {name: number for number, name in enumerate(self.names)}

    def __len__(self) -> int:
        return len(self.names)

    def number(self, name: str) -> int:
        """Number of a name, new if need be."""
        number = self._number.get(name)
        if number is None:
            number = self._number[name] = len(self.names)
            self.names.append(name)
        return number


class Directory:
    """Members (ranks, or sources without one), clocks with their parents, and groups of a scope."""

    def __init__(self) -> None:
        self.members = Names()
        self.clocks = Names()
        self.groups = Names()
        self.parent: dict[int, int] = {}

    def dump(self) -> list[Any]:
        """For a snapshot."""
        parents = [[child, parent] for child, parent in self.parent.items()]
        return [self.members.names, self.clocks.names, self.groups.names, parents]

    @classmethod
    def load(cls, meta: list[Any]) -> "Directory":
        """From `dump`."""
        out = cls()
        out.members, out.clocks, out.groups = (Names(names) for names in meta[:3])
        out.parent = dict(meta[3])
        return out

    def chains(self) -> NDArray[np.int32]:
        """By clock: itself and its parents up to the root (not TAI), -1 beyond. Shape (clocks, DEPTH)."""
        out = np.full((len(self.clocks), DEPTH), -1, np.int32)
        for clock in range(len(self.clocks)):
            at: int | None = clock
            for level in range(DEPTH):
                if at is None:
                    break
                out[clock, level] = at
                at = self.parent.get(at)
        return out

    def above(self, clock: int) -> set[int]:
        """The clock and all its parents."""
        out = {clock}
        while (up := self.parent.get(clock)) is not None and up not in out:
            out.add(up)
            clock = up
        return out

    def learn(self, part: Merged) -> tuple[I64, I64]:
        """Take up a part's tables; gives (member by source entry, clock by clock entry)."""
        data = part.data
        for entry in range(part.table_len("clk")):
            clock = self.clocks.number(part.clock_name(entry))
            parent = part.text(int(data["clk_parent"][entry]))
            if parent is not None and parent != TAI:
                self.parent[clock] = self.clocks.number(parent)
        clocks = [self.clocks.number(part.clock_name(entry)) for entry in range(part.table_len("clk"))]
        members = []
        for entry in range(part.table_len("src")):
            rank = int(data["src_rank"][entry])
            name = part.strings[int(data["src_name"][entry])] if rank == c.NULL_I32 else f"rank{rank}"
            members.append(self.members.number(name))
        return np.array(members, np.int64), np.array([*clocks, -1], np.int64)


@dataclass(frozen=True, eq=False)
class WindowEdges:
    """Edges of one window; every array has one entry an edge."""

    start_ns: int
    end_ns: int
    kind: NDArray[np.uint8]
    op: NDArray[np.uint8]
    group: I64
    key: NDArray[np.uint64]
    cause: I64  # member
    effect: I64
    cause_clock: I64  # -1: none
    effect_clock: I64
    gap_ns: I64
    bound_ns: I64  # NULL_I64: none
    verdict: NDArray[np.uint8]
    effect_ns: I64
    duration_ns: I64

    def __len__(self) -> int:
        return len(self.kind)


def window_edges(parts: Sequence[Merged], directory: Directory) -> WindowEdges:
    """The edges of all parts of a window, in their order."""
    columns: dict[str, list[Any]] = {name: [] for name in WindowEdges.__dataclass_fields__}
    for part in parts:
        if not part.table_len("edge"):
            continue
        data = part.data
        members, clocks = directory.learn(part)
        for name in ("kind", "op", "key", "gap_ns", "bound_ns", "verdict", "effect_ns"):
            columns[name].append(data[f"edge_{name}"])
        columns["duration_ns"].append(data["edge_effect_duration_ns"])
        groups = np.array([directory.groups.number(text) for text in ("", *part.strings)], np.int64)
        place = data["edge_group"].astype(np.int64)
        columns["group"].append(groups[np.where(place == c.NULL_U16, 0, place + 1)])
        for side in ("cause", "effect"):
            columns[side].append(members[data[f"edge_{side}_source"]])
            clock = data[f"edge_{side}_clock"]
            columns[f"{side}_clock"].append(clocks[np.minimum(clock, len(clocks) - 1)])
    first = parts[0]
    joined = {
        name: np.concatenate(found) if found else np.empty(0, _EMPTY.get(name, np.int64))
        for name, found in columns.items()
        if name not in ("start_ns", "end_ns")
    }
    return WindowEdges(first.window_start_ns, first.window_end_ns, **joined)


_EMPTY: dict[str, Any] = {"kind": np.uint8, "op": np.uint8, "verdict": np.uint8, "key": np.uint64}
EVERY_TO_EVERY = np.zeros(256, np.bool_)
EVERY_TO_EVERY[[c.Op.ALL_REDUCE, c.Op.ALL_GATHER, c.Op.REDUCE_SCATTER, c.Op.BARRIER, c.Op.ALL_TO_ALL]] = True


@dataclass(frozen=True, eq=False)
class Collectives:
    """Collectives in which every begin is a cause of every end, members sorted by their own duration.

    The shortest duration is that of the last to arrive: each member's kernel runs from its own begin to the
    common end, and durations are read on one clock each, so no two clocks are compared.
    """

    row: I64  # edge of each member
    start: I64  # (collectives + 1,)
    group: I64  # by collective
    end_ns: I64  # by collective: median end

    def __len__(self) -> int:
        return len(self.group)


def median(times_ns: I64) -> int:
    """Lower median of absolute times: a float holds them only to 256 ns."""
    return int(np.partition(times_ns, (len(times_ns) - 1) // 2)[(len(times_ns) - 1) // 2])


def collectives(edges: WindowEdges) -> Collectives:
    """The collectives of a window, in order of their ends."""
    rows = np.flatnonzero((edges.kind == c.EdgeKind.COLLECTIVE) & EVERY_TO_EVERY[edges.op])
    rows = rows[np.lexsort((edges.effect[rows], edges.duration_ns[rows], edges.key[rows], edges.group[rows]))]
    if not len(rows):
        return Collectives(rows, np.zeros(1, np.int64), rows, rows)
    key, group = edges.key[rows], edges.group[rows]
    head = np.flatnonzero(np.append(True, (key[1:] != key[:-1]) | (group[1:] != group[:-1])))
    start = np.append(head, len(rows))
    ends = np.array([median(edges.effect_ns[rows[a:b]]) for a, b in zip(head, start[1:], strict=True)])
    order = np.argsort(ends, kind="stable")
    sizes = np.diff(start)[order]
    laid = np.concatenate([rows[start[k] : start[k + 1]] for k in order])
    return Collectives(laid, np.concatenate(([0], np.cumsum(sizes))), group[head][order], ends[order])
