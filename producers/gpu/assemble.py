"""From the traces of all ranks to batches: sources, clocks, keys, one order of time.

Keys: launches and waits are numbered within their trace, so their keys are hashed with its incarnation. A
collective known by its sequence number has the same key whenever and by whomever its trace is read into a
scope; one known by position only is hashed with all that was read, because positions in another reading mean
something else.
"""

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Final

import numpy as np

from producers.gpu import alignment, collectives, edges, parts
from producers.gpu.kineto import I64, Lane, Trace
from schemas import columns as c
from schemas.batch import Batch
from schemas.flat import Array
from schemas.pack import Group, Head, Source, Strings, pack
from schemas.time import TAI, ClockState

ROWS_MAX: Final = 4_096
_COLUMNS: Final = (
    "raw_ns", "source", "duration_ns", "kind", "entity", "name", "correlation", "device", "stream",
)  # fmt: skip
_ENDPOINT: Final = tuple(column.name for column in c.ENDPOINTS)


def _hash(*parts: object) -> bytes:
    return hashlib.blake2b(repr(parts).encode("utf-8", "replace"), digest_size=8).digest()


def _keys(seed: bytes, numbers: I64) -> Array:
    """64-bit keys of numbers under a seed, well mixed (the finaliser of splitmix64)."""
    with np.errstate(over="ignore"):
        x = numbers.astype(np.int64).view(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        x += np.uint64(int.from_bytes(seed, "little"))
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


class Assembly:
    """All rows of all traces in the order of time, and what hangs on them."""

    def __init__(
        self,
        traces: Mapping[str, Trace],
        *,
        tenant: str,
        scope: str | None,
        host: str | None,
        bound_ns: int | None,
        offset_ns: Mapping[str, int],
    ) -> None:
        self._bound_ns = bound_ns
        self.facts: Counter[str] = Counter()  # things met that are no fault of the input
        contents = [(label, trace.digest) for label, trace in traces.items()]
        whole = _hash(contents, host, bound_ns, sorted(offset_ns.items()))
        self.head = Head(tenant, scope or f"gpu-{whole[:4].hex()}", f"kineto-{whole.hex()}", "gpu")
        self.sources: list[Source] = []
        self._texts: dict[str, int] = {}
        self._value_names: dict[str, int] = {}
        self._groups: dict[Group, int] = {}
        unnamed_host = f"file-{_hash(contents)[:4].hex()}"
        start = np.cumsum([0, *(len(trace) for trace in traces.values())])
        rows: dict[str, list[Array]] = {name: [] for name in _COLUMNS}
        ends: list[dict[str, Array]] = []
        members: list[collectives.Member] = []
        for place, (label, trace) in enumerate(traces.items()):
            offset = offset_ns.get(label, 0)
            incarnation = _hash(trace.digest, host, bound_ns, offset, label, self.head.scope)
            first = len(self.sources)
            self._add_sources(label, trace, host or trace.host or unnamed_host, incarnation)
            self._add_rows(rows, label, trace, offset, first)
            started = edges.launches(trace)
            ends += self._edges_inside(trace, started, incarnation, int(start[place]))
            members += self._kernels(place, trace, started)
        self._values = self._sparse(traces, members, start)
        ends.append(self._collectives(members, start, whole))
        self._arrange({name: np.concatenate(parts) for name, parts in rows.items()}, ends)
        self.facts = +self.facts

    def _add_sources(self, label: str, trace: Trace, host: str, incarnation: bytes) -> None:
        name = _shown(label, trace)
        bound = self._bound_ns
        clock = ClockState(
            clock_id=f"{host}/kineto:{label}",
            parent=None if bound is None else TAI,
            kind=c.ClockKind.GPU_MAPPED,
            timescale=c.Timescale.ARBITRARY if trace.relative else c.Timescale.UTC,
            bound_ns=bound,
            quantum_ns=trace.quantum_ns,
            assurance=c.Assurance.CLAIMED,
            provenance="profiler trace"
            if bound is None
            else "profiler trace; bound claimed by --clock-bound",
        )
        devices = {lane.process for lane in trace.lanes if lane.device}
        threads = Counter(lane.number for lane in trace.lanes if not lane.device)
        for lane in trace.lanes:
            several = len(devices) > 1 if lane.device else threads[lane.number] > 1
            self.sources.append(
                Source(
                    name=f"{name}/{_lane_name(lane, several)}",
                    host=host,
                    clock=clock,
                    incarnation=int.from_bytes(incarnation, "little") & (2**63 - 1),
                    rank=trace.rank,
                    ordered=bool(lane.number),
                )
            )

    def _add_rows(
        self, rows: dict[str, list[Array]], label: str, trace: Trace, offset_ns: int, first_source: int
    ) -> None:
        name = _shown(label, trace)
        names = np.array([self._text(text) for text in trace.names], np.int64)
        on_device = np.array([lane.device for lane in trace.lanes], bool)[trace.lane]
        entities = np.full(len(trace), self._text(name), np.int64)
        for device in np.unique(trace.device[on_device]).tolist():
            if device != c.NULL_I64:
                entities[on_device & (trace.device == device)] = self._text(f"{name}/gpu{device}")
        rows["raw_ns"].append(trace.begin_ns + offset_ns)
        rows["duration_ns"].append(trace.duration_ns)
        rows["source"].append(trace.lane + first_source)
        rows["kind"].append(trace.kind)
        rows["entity"].append(entities)
        rows["name"].append(names[trace.name])
        rows["correlation"].append(trace.correlation)
        rows["device"].append(trace.device)
        rows["stream"].append(trace.stream)

    def _edges_inside(
        self, trace: Trace, started: edges.Launches, incarnation: bytes, start: int
    ) -> list[dict[str, Array]]:
        """Endpoints of launch and sync edges of one trace."""
        out = []
        for rows, role in ((started.causes, c.Role.CAUSE), (started.effects, c.Role.EFFECT)):
            keys = _keys(_hash("launch", incarnation), trace.correlation[rows])
            out.append(_endpoints(rows + start, c.Point.BEGIN, c.EdgeKind.LAUNCH, role, keys))
        self.facts["launches matched"] += int((started.call >= 0).sum())
        self.facts["device work without launch"] += int(
            (np.isin(trace.kind, edges.WORK) & (started.call < 0)).sum()
        )
        waits = edges.waits(trace, started)
        if waits:
            row, point, role_, number = np.array(waits, np.int64).T
            keys = _keys(_hash("sync", incarnation), number)
            out.append(_endpoints(row + start, point, c.EdgeKind.SYNC, role_, keys))
            self.facts["waits matched"] += len(np.unique(number))
        return out

    def _text(self, text: str) -> int:
        return self._texts.setdefault(text, len(self._texts))

    def _kernels(self, place: int, trace: Trace, started: edges.Launches) -> list[collectives.Member]:
        found = collectives.members(place, trace, started.call)
        here = int((trace.kind == c.GpuKind.COLLECTIVE).sum())
        self.facts["collective kernels"] += here
        self.facts["collective kernels unmatched: rank unknown"] += here - len(found)
        return found

    def _collectives(self, members: list[collectives.Member], start: I64, whole: bytes) -> dict[str, Array]:
        """One endpoint a member. A position is a key within this reading only."""
        unmatched: Counter[str] = Counter()
        found = alignment.match(members, unmatched)
        for reason, count in unmatched.items():
            self.facts[f"collective kernels unmatched: {reason}"] += count
        self.facts["collective kernels matched"] += len(found)
        keys: dict[alignment.Identity, int] = {}
        for each in found:
            if each.identity not in keys:
                seed = self.head.scope if each.identity[0] == "seq" else whole
                keys[each.identity] = int.from_bytes(_hash(seed, each.identity), "little")
        sides = np.array([_side(each.member) for each in found], np.int64).reshape(-1, 2)
        out = _endpoints(
            np.array([start[each.member.trace] + each.member.row for each in found], np.int64),
            sides[:, 0],
            c.EdgeKind.COLLECTIVE,
            sides[:, 1],
            np.array([keys[each.identity] for each in found], np.uint64),
        )
        groups = [each.member.group for each in found]
        peers = [each.member.peers is not None for each in found]
        out["ep_group"] = np.array([self._group(group) for group in groups], np.int64)
        out["ep_op"] = np.array([each.member.op for each in found], np.int64)
        out["ep_size"] = np.array(
            [2 if pair else group.size if group else 0 for group, pair in zip(groups, peers, strict=True)],
            np.int64,
        )
        out["ep_flags"] = np.array([c.ENDPOINT_ASSUMED * each.assumed for each in found], np.int64)
        return out

    def _group(self, group: Group | None) -> int:
        assert group is not None, "a member without a group is never matched"
        return self._groups.setdefault(group, len(self._groups))

    def _sparse(
        self, traces: Mapping[str, Trace], members: list[collectives.Member], start: I64
    ) -> tuple[I64, I64, Array]:
        """(row, name, number) of every number that hangs on a row."""
        found: list[tuple[int, str, float]] = []
        for place, trace in enumerate(traces.values()):
            found += [(int(start[place]) + row, "bytes", size) for row, size in trace.sizes.items()]
        for member in members:
            row = int(start[member.trace]) + member.row
            found += [(row, name, number) for name, number in member.values.items()]
        names = self._value_names
        return (
            np.array([row for row, _, _ in found], np.int64),
            np.array([names.setdefault(name, len(names)) for _, name, _ in found], np.int64),
            np.array([number for _, _, number in found], np.float64),
        )

    def _arrange(self, rows: dict[str, Array], ends: list[dict[str, Array]]) -> None:
        """Put all rows in order of time; those of a source by begin, longer first, place in the file."""
        count = len(rows["raw_ns"])
        length = np.where(rows["duration_ns"] == c.NULL_I64, 0, rows["duration_ns"])
        order = np.lexsort((np.arange(count), -length, rows["source"], rows["raw_ns"]))
        place = np.empty(count, np.int64)
        place[order] = np.arange(count)
        self.rows = {name: column[order] for name, column in rows.items()}
        joined = {name: np.concatenate([part[name] for part in ends]) for name in _ENDPOINT}
        joined["ep_row"] = place[joined["ep_row"]]
        by_row = np.argsort(joined["ep_row"], kind="stable")
        self.ends = {name: column[by_row] for name, column in joined.items()}
        row, name, number = self._values
        by_row = np.argsort(place[row], kind="stable")
        self.values = {"val_row": place[row][by_row], "val_name": name[by_row], "val": number[by_row]}
        # Each source's rows by their place, to know at a batch's end when the source goes on.
        self._by_source = np.argsort(self.rows["source"], kind="stable")
        self._rows_of = np.bincount(self.rows["source"], minlength=len(self.sources))
        self._first_of = np.cumsum(self._rows_of) - self._rows_of

    def batches(self, rows_max: int) -> Iterator[Batch]:
        """A heartbeat that lists all sources, then all rows. A source is final in the batch of its last row.

        The heartbeat lets no window close before every source is known: one that begins late is otherwise
        first heard of when its neighbours' next stamps are already past it. More sources than fit into one are
        listed in several, at first without a promise.
        """
        sent = np.zeros(len(self.sources), np.int64)
        texts, value_names, groups = list(self._texts), list(self._value_names), list(self._groups)
        cut = parts.rows(len(self.rows["raw_ns"]), rows_max, self.values["val_row"], self.values["val_name"])
        for part, heard, promised in chain(parts.heartbeats(len(self.sources)), cut):
            listed, source = np.unique(self.rows["source"][part], return_inverse=True)
            if heard is not None:
                listed = heard
            strings = Strings()
            columns = {name: self.rows[name][part] for name in _COLUMNS if name not in ("raw_ns", "source")}
            for name in ("entity", "name"):
                columns[name] = _relabel(columns[name], texts, strings)
            ends = _cut(self.ends, "ep_row", part)
            used = np.unique(ends["ep_group"][ends["ep_group"] != c.NULL_I64])
            grouped = ends["ep_group"] != c.NULL_I64
            ends["ep_group"] = np.where(grouped, np.searchsorted(used, ends["ep_group"]), c.NULL_I64)
            values = _cut(self.values, "val_row", part)
            values["val_name"] = _relabel(values["val_name"], value_names, strings)
            first = sent[listed]
            sent[listed] += np.bincount(source, minlength=len(listed))
            done = sent[listed] == self._rows_of[listed]
            yield pack(
                self.head,
                strings,
                [self.sources[place] for place in listed],
                first.tolist(),
                source,
                self.rows["raw_ns"][part],
                columns,
                groups=[groups[place] for place in used],
                endpoints=ends,
                values=values,
                watermark_ns=self._watermarks(listed, sent[listed]) if promised else None,
                final=done.tolist() if promised else None,
            )

    def _watermarks(self, listed: I64, sent: I64) -> list[int | None]:
        """Begin of each source's next row, of its last one where none is left; None if it has no rows."""
        rows_of = self._rows_of[listed]
        place = self._first_of[listed] + np.minimum(sent, rows_of - 1)
        begin = self.rows["raw_ns"][self._by_source[place]] if len(self._by_source) else place
        return [ns if count else None for ns, count in zip(begin.tolist(), rows_of.tolist(), strict=True)]


def _shown(label: str, trace: Trace) -> str:
    return label if trace.rank is None else f"rank{label}"


def _lane_name(lane: Lane, several: bool) -> str:
    """Name of a source within its rank; `several` devices, or equal threads of processes, are told apart."""
    if not lane.device:
        return f"thread {lane.process}:{lane.number}" if several else f"thread {lane.number}"
    what = f"stream {lane.number}" if lane.number else "waits"
    return f"device {lane.process} {what}" if several else what


def _side(member: collectives.Member) -> tuple[c.Point, c.Role]:
    """What of the member takes part: both its points; of a pair the sender's begin, the receiver's end."""
    if member.peers is not None:
        sends = member.op == c.Op.SEND
        return (c.Point.BEGIN, c.Role.CAUSE) if sends else (c.Point.END, c.Role.EFFECT)
    return c.Point.BOTH, c.Role.ROOT if member.root == member.rank else c.Role.MEMBER


def _endpoints(
    row: I64, point: c.Point | I64, kind: c.EdgeKind, role: c.Role | I64, key: Array
) -> dict[str, Array]:
    """Endpoint columns of equal length; group, operation, size and flags empty."""
    count = len(row)
    zero = np.zeros(count, np.int64)
    return {
        "ep_row": row,
        "ep_point": zero + point,
        "ep_kind": zero + kind,
        "ep_role": zero + role,
        "ep_key": key,
        "ep_group": np.full(count, c.NULL_I64),
        "ep_op": zero,
        "ep_size": zero,
        "ep_flags": zero,
    }


def _cut(table: Mapping[str, Array], key: str, part: slice) -> dict[str, Array]:
    """The entries of a sparse table, sorted by row, of a part of the rows, counted from its first."""
    low, high = np.searchsorted(table[key], (part.start, part.stop))
    out = {name: column[low:high] for name, column in table.items()}
    out[key] = out[key] - part.start
    return out


def _relabel(places: I64, texts: Sequence[str], strings: Strings) -> I64:
    """Places in a table of all texts as places in a batch's own."""
    used, local = np.unique(places, return_inverse=True)
    return np.array([strings.index(texts[place]) for place in used], np.int64)[local]
