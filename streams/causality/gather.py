"""A window as arrays: the rows of its parts, laid out by (source, sequence number), and their endpoints."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from schemas import columns as c
from schemas.batch import I64
from schemas.merged import length_ns
from streams.causality.intake import MARKS, Part
from streams.causality.sources import DEVICE_ROWS, Sources
from streams.kernels.rows import stable_by

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class Window:
    """Rows of a window in (source name, sequence) order: arrays of shape (rows,) unless said otherwise."""

    parts: Sequence[Part]
    gathered: I64  # place of each row in the concatenated parts
    part_start: I64  # (parts + 1,) first concatenated place of each part
    source: NDArray[np.int32]
    clock: NDArray[np.int32]
    seq: I64
    time_ns: I64
    raw_ns: I64
    duration: I64  # NULL_I64 where the end is unknown
    kind: NDArray[np.uint8]
    entity: NDArray[np.int32]
    name: NDArray[np.int32]
    loose: NDArray[np.bool_]
    chain: NDArray[np.int8]  # constraint from the row before, see streams.kernels.repair

    def __len__(self) -> int:
        return len(self.source)

    @cached_property
    def length_ns(self) -> I64:
        """Duration as the order sees it."""
        return length_ns(self.duration)


def _each(parts: Sequence[Part], name: str, null: int, dtype: Any) -> Array:
    """A packed column over all parts, null where a batch lacks it."""
    out = []
    for part in parts:
        packed = part.chunk.batch.data.get(name)
        if packed is None:
            out.append(np.full(len(part), null, dtype))
        else:
            out.append(packed[part.rows] if len(part) != len(packed) else packed)
    return np.concatenate(out)


def _texts(parts: Sequence[Part], name: str) -> NDArray[np.int32]:
    """A string column over all parts as the scope's string numbers; -1 for null."""
    out = []
    for part in parts:
        strings = part.chunk.strings
        packed = part.chunk.batch.data.get(name)
        if packed is None:
            out.append(np.full(len(part), -1, np.int32))
        else:
            out.append(strings[np.minimum(packed[part.rows], len(strings) - 1)])
    return np.concatenate(out)


def gather(parts: Sequence[Part], sources: Sources) -> Window:
    """The rows of these parts, which are in order of arrival (so by sequence number for each source)."""
    sizes = np.array([len(part) for part in parts], np.int64)
    start = np.concatenate(([0], np.cumsum(sizes)))
    source = np.concatenate([part.source for part in parts])
    seq = np.concatenate([part.seq for part in parts])
    layout, _ = stable_by(sources.name_order()[source], len(sources))
    by_source, by_seq = source[layout], seq[layout]
    if ((by_source[1:] == by_source[:-1]) & (by_seq[1:] < by_seq[:-1])).any():
        # Entries of one source that lie crosswise in a batch.
        layout = np.lexsort((seq, sources.name_order()[source]))
    durations = []
    raws = []
    for part in parts:
        batch = part.chunk.batch
        durations.append(batch.wide("duration_ns", part.rows))
        raws.append(batch.raw_ns(part.rows))
    clock = np.concatenate(
        [part.chunk.clock_of[part.chunk.batch.data["source"][part.rows]] for part in parts]
    )
    loose = np.repeat(np.array([part.loose for part in parts]), sizes)[layout]
    kind = _each(parts, "kind", c.NULL_U8, np.uint8)[layout]
    source = source[layout]
    time_ns = np.concatenate([part.time_ns for part in parts])[layout]
    duration = np.concatenate(durations)[layout]
    return Window(
        parts=parts,
        gathered=layout,
        part_start=start,
        source=source,
        clock=clock[layout],
        seq=seq[layout],
        time_ns=time_ns,
        raw_ns=np.concatenate(raws)[layout],
        duration=duration,
        kind=kind,
        entity=_texts(parts, "entity")[layout],
        name=_texts(parts, "name")[layout],
        loose=loose,
        chain=_chain(sources, source, kind, time_ns, duration, loose),
    )


def _chain(
    sources: Sources,
    source: NDArray[np.int32],
    kind: NDArray[np.uint8],
    time_ns: I64,
    duration: I64,
    loose: NDArray[np.bool_],
) -> NDArray[np.int8]:
    """Program order: begin -> begin in an ordered source; end -> begin on a device unless the two overlap."""
    chain = np.zeros(len(source), np.int8)
    if len(source) < 2:
        return chain
    ordered = (sources.table["flags"][source[1:]] & c.SOURCE_ORDERED) != 0
    same = (source[1:] == source[:-1]) & ordered
    gpu = sources.table["family"][source[1:]] == 0
    device = gpu & DEVICE_ROWS[kind[1:]] & DEVICE_ROWS[kind[:-1]]
    apart = time_ns[1:] >= time_ns[:-1] + length_ns(duration[:-1])
    chain[1:] = np.where(same, np.where(device & apart & ~loose[1:] & ~loose[:-1], 2, 1), 0)
    return chain


ROW_MARKS: dict[str, Any] = {"source": np.int32, "seq": np.int64, "begin_ns": np.int64, "duration": np.int64}


def endpoints(parts: Sequence[Part], groups: "GroupNames") -> dict[str, Array]:
    """All endpoints of these parts by column of the pending table; their order is still their time."""
    some = [part for part in parts if len(part.endpoints)]
    kinds = {**MARKS, **ROW_MARKS}
    out = {
        name: np.concatenate([part.marks[name] for part in some]) if some else np.empty(0, dtype)
        for name, dtype in kinds.items()
    }
    clocks = [part.chunk.clock_of[part.marks["entry"]] for part in some]
    out["clock"] = np.concatenate(clocks) if some else np.empty(0, np.int32)
    named = [groups.of(part)[part.endpoints] for part in some]
    out["group"] = np.concatenate(named) if some else np.empty(0, np.int32)
    out["end_ns"] = out["begin_ns"] + out["duration"]
    out["order_ns"], out["order_end_ns"] = out["begin_ns"], out["end_ns"]
    out["window"] = np.zeros(len(out["key"]), np.int64)
    return out


class GroupNames:
    """The scope's number of a batch's process groups, as names: the group table of a batch is small."""

    def __init__(self, strings: "Strings") -> None:
        self._strings = strings

    def of(self, part: Part) -> NDArray[np.int32]:
        """By endpoint of the part's batch: number of its group's name, -1 without one."""
        data = part.chunk.batch.data
        group = data["ep_group"]
        if "grp_name" not in data:
            return np.full(len(group), -1, np.int32)
        by_group = np.append(part.chunk.strings[data["grp_name"]], np.int32(-1))
        return by_group[np.minimum(group, len(by_group) - 1)]


class Strings:
    """The scope's string table. Numbers are internal: what is output is sorted by text."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.generation = 0  # counts renumberings
        self._number: dict[str, int] = {}
        self._known: dict[tuple[str, ...], NDArray[np.int32]] = {}

    def number(self, text: str) -> int:
        """Number of a text, new if need be."""
        number = self._number.get(text)
        if number is None:
            number = self._number[text] = len(self.texts)
            self.texts.append(text)
        return number

    def numbers(self, table: tuple[str, ...]) -> NDArray[np.int32]:
        """Numbers of a batch's string table, with -1 at the end for null."""
        known = self._known.get(table)
        if known is None:
            if len(self._known) > 1024:
                self._known.clear()
            known = self._known[table] = np.array([*map(self.number, table), -1], np.int32)
        return known

    def compact(self, holders: Sequence[NDArray[np.int32]]) -> None:
        """Forget every text that none of these arrays of numbers names, and renumber the arrays in place."""
        held = {id(array): array for array in holders}
        used = np.zeros(len(self.texts) + 1, np.bool_)
        for array in held.values():
            used[array] = True
        new = np.cumsum(used[:-1], dtype=np.int32) - 1
        new = np.append(np.where(used[:-1], new, -1), np.int32(-1)).astype(np.int32)
        self.generation += 1
        self.texts = [text for text, kept in zip(self.texts, used[:-1], strict=True) if kept]
        self._number = {text: number for number, text in enumerate(self.texts)}
        self._known.clear()
        for array in held.values():
            array[:] = new[array]
