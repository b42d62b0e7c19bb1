"""Simulated rows as the columns of a batch: one filler a family, with its strings and keys."""

import hashlib
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from producers.sim.job import (
    STREAM,
    THREAD,
    Job,
    Shape,
)
from producers.sim.rows import I64, U64, Rows, mix
from schemas.columns import (
    NULL_I64,
    ClockKindOfRow,
    EdgeKind,
    Op,
    Point,
    ProbeKind,
    Role,
    StampKind,
)
from schemas.flat import Array
from schemas.pack import Group, Strings
from schemas.time import TAI

PROBE_BYTES = 64
LOCKED = 2  # servo state of a daemon that holds its clock


@dataclass
class Filled:
    """What a batch holds beside sources, stamps and durations; see schemas.pack.pack."""

    columns: dict[str, Array]
    groups: list[Group] = field(default_factory=list)
    endpoints: dict[str, Array] | None = None
    values: dict[str, Array] | None = None


class Family(Protocol):
    """Turns rows of one host into columns."""

    name: str

    def fill(self, rows: Rows, host: int, strings: Strings) -> Filled: ...


def key_base(*parts: object) -> int:
    """Where the keys of one pair of partners begin: a hash of what names them, 64 bits."""
    text = "\0".join(str(part) for part in parts)
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")


def keys(base: U64, number: I64) -> U64:
    """Edge keys from bases and numbers that both sides know. Shapes (k,), (k,)."""
    return mix(base + number.astype(np.uint64))


def host_name(host: int) -> str:
    return f"host{host}"


class GpuFamily:
    """Launches, kernels and collectives of the ranks.

    Keys: launch by (rank, correlation), sync by (rank, step), collective by (group, sequence in the group).
    """

    name = "gpu"

    def __init__(self, job: Job, incarnation: int) -> None:
        self._shape = shape = job.shape
        self._events = job.events
        self._devices = sum(1 for event in job.events if event.device >= 0 and event.lane != THREAD)
        self._incarnation = incarnation
        self._names = list(dict.fromkeys(event.name for event in job.events))
        self._name = np.array([self._names.index(event.name) for event in job.events])
        self._kind = np.array([int(event.kind) for event in job.events])
        self._stream = np.array([STREAM[event.lane] for event in job.events])
        self._on_device = np.array([event.lane != THREAD for event in job.events])
        self._device = np.array([event.device for event in job.events])
        # Collectives of a group in one step: how many, and the place of each among them, number its keys.
        self._joins = [event for event in job.events if event.collective is not None]
        self._groups = list(dict.fromkeys(e.collective.group for e in self._joins if e.collective))
        self._launch = np.array([key_base("launch", incarnation, r) for r in range(shape.ranks)], np.uint64)
        self._sync = np.array([key_base("sync", incarnation, r) for r in range(shape.ranks)], np.uint64)
        joins = [event.collective for event in job.events]
        self._group = np.array([self._groups.index(j.group) if j else -1 for j in joins])
        self._bytes = np.array([j.bytes if j else 0 for j in joins])
        self._op = np.array([int(j.op) if j else int(Op.NONE) for j in joins])
        self._size = np.array([shape.members(j) if j else 0 for j in joins])
        self._per_step = np.bincount(self._group[self._group >= 0], minlength=len(self._groups))
        self._turn = np.zeros(len(joins), np.int64)
        for group in range(len(self._groups)):
            members = np.flatnonzero(self._group == group)
            self._turn[members] = np.arange(len(members))
        self._last = max((p for p, e in enumerate(job.events) if e.lane != THREAD), key=self._place_of)
        self._wait = next(p for p, e in enumerate(job.events) if e.lane == THREAD and e.device < 0)

    def _place_of(self, place: int) -> int:
        return int(self._device[place])

    def _group_of(self, rank: int, kind: str) -> Group:
        shape = self._shape
        host, place = divmod(rank, shape.gpus)
        if kind == "world":
            return Group("world", shape.ranks, tuple(range(shape.ranks)))
        if kind == "tp":
            first = host * shape.gpus
            return Group(f"tp{host}", shape.gpus, tuple(range(first, first + shape.gpus)))
        return Group(f"ep{place}", shape.hosts, tuple(range(place, shape.ranks, shape.gpus)))

    def fill(self, rows: Rows, host: int, strings: Strings) -> Filled:
        shape, event, step = self._shape, rows.more["event"], rows.more["step"]
        local = (rows.source - host * shape.per_host) // 3
        first = host * shape.gpus
        rank = first + local
        on_device = self._on_device[event]
        names = np.array([strings.index(name) for name in self._names])
        threads = np.array([strings.index(f"rank{first + place}") for place in range(shape.gpus)])
        devices = np.array([strings.index(f"rank{first + place}/gpu{place}") for place in range(shape.gpus)])
        numbered = self._device[event] >= 0
        correlation = step * self._devices + self._device[event] + 1
        columns: dict[str, Array] = {
            "kind": self._kind[event],
            "entity": np.where(on_device, devices[local], threads[local]),
            "name": names[self._name[event]],
            "correlation": np.where(numbered, correlation, NULL_I64),
            "device": np.where(on_device, local, NULL_I64),
            "stream": self._stream[event],
        }
        parts = [self._launches(numbered, on_device, rank, correlation), self._syncs(event, rank, step)]
        groups: list[Group] = []
        values: dict[str, Array] | None = None
        joins = np.flatnonzero(self._group[event] >= 0)
        if len(joins):
            groups, part = self._collectives(joins, event[joins], local[joins], first, step[joins])
            parts.append(part)
            values = self._values(joins, event[joins], rank[joins], strings)
        endpoints = {
            name: np.concatenate(
                [part[name].astype(np.uint64) if name == "ep_key" else part[name] for part in parts]
            )
            for name in parts[0]
        }
        return Filled(columns, groups, endpoints, values)

    def _launches(self, numbered: Array, on_device: Array, rank: I64, correlation: I64) -> dict[str, Array]:
        row = np.flatnonzero(numbered)
        role = np.where(on_device[row], int(Role.EFFECT), int(Role.CAUSE))
        return endpoints(
            row, Point.BEGIN, EdgeKind.LAUNCH, role, keys(self._launch[rank[row]], correlation[row])
        )

    def _syncs(self, event: I64, rank: I64, step: I64) -> dict[str, Array]:
        row = np.flatnonzero((event == self._last) | (event == self._wait))
        role = np.where(event[row] == self._last, int(Role.CAUSE), int(Role.EFFECT))
        return endpoints(row, Point.END, EdgeKind.SYNC, role, keys(self._sync[rank[row]], step[row]))

    def _collectives(
        self, row: I64, event: I64, local: I64, first: int, step: I64
    ) -> tuple[list[Group], dict[str, Array]]:
        kinds, gpus = len(self._groups), self._shape.gpus
        table: dict[Group, int] = {}
        place = np.empty((gpus, kinds), np.int64)
        base = np.empty((gpus, kinds), np.uint64)
        for rank in range(gpus):
            for kind, name in enumerate(self._groups):
                group = self._group_of(first + rank, name)
                place[rank, kind] = table.setdefault(group, len(table))
                base[rank, kind] = key_base("collective", self._incarnation, group.name)
        kind_of = self._group[event]
        number = step * self._per_step[kind_of] + self._turn[event]
        part = endpoints(
            row,
            Point.BOTH,
            EdgeKind.COLLECTIVE,
            np.full(len(row), int(Role.MEMBER)),
            keys(base[local, kind_of], number),
        )
        part["ep_group"] = place[local, kind_of]
        part["ep_op"] = self._op[event]
        part["ep_size"] = self._size[event]
        return list(table), part

    def _values(self, row: I64, event: I64, rank: I64, strings: Strings) -> dict[str, Array]:
        """Bytes of each collective; of an all-to-all also the (equal) splits to each member."""
        shape = self._shape
        split = np.flatnonzero(self._op[event] == int(Op.ALL_TO_ALL))
        peer = (rank[split] % shape.gpus)[:, None] + np.arange(0, shape.ranks, shape.gpus)
        to = {number: strings.index(f"bytes_to_{number}") for number in np.unique(peer).tolist()}
        name = np.array([to[number] for number in peer.ravel().tolist()], np.int64)
        each = np.repeat(self._bytes[event[split]] // shape.hosts, shape.hosts)
        return {
            "val_row": np.concatenate([row, np.repeat(row[split], shape.hosts)]),
            "val_name": np.concatenate([np.full(len(row), strings.index("bytes")), name]),
            "val": np.concatenate([self._bytes[event], each]).astype(np.float64),
        }


def endpoints(row: I64, point: Point, kind: EdgeKind, role: Array, key: U64) -> dict[str, Array]:
    """Endpoints of edges that are no collectives, by column name. Shapes (k,)."""
    count = len(row)
    return {
        "ep_row": row,
        "ep_point": np.full(count, int(point)),
        "ep_kind": np.full(count, int(kind)),
        "ep_role": role,
        "ep_key": key,
        "ep_group": np.full(count, NULL_I64),
        "ep_op": np.zeros(count, np.int64),
        "ep_size": np.zeros(count, np.int64),
        "ep_flags": np.zeros(count, np.int64),
    }


class ProbeFamily:
    """Probes of the mesh: each a message edge, its key by (sender, number)."""

    name = "probe"

    def __init__(self, shape: Shape, incarnation: int) -> None:
        self._hosts = shape.hosts
        self._base = np.array([key_base("probe", incarnation, h) for h in range(shape.hosts)], np.uint64)

    def fill(self, rows: Rows, host: int, strings: Strings) -> Filled:
        count, kind, number = len(rows), rows.more["kind"], rows.more["number"]
        peers = np.array([strings.index(host_name(peer)) for peer in range(self._hosts)])
        sends = kind == int(ProbeKind.SEND)
        columns: dict[str, Array] = {
            "kind": kind,
            "entity": np.full(count, strings.index(host_name(host))),
            "name": np.where(sends, strings.index("probe_send"), strings.index("probe_receive")),
            "peer": peers[rows.more["peer"]],
            "probe": number,
            "stamp": np.full(count, int(StampKind.HARDWARE)),
            "bytes": np.full(count, PROBE_BYTES),
        }
        role = np.where(sends, int(Role.CAUSE), int(Role.EFFECT))
        key = keys(self._base[rows.more["sender"]], number)
        return Filled(
            columns, endpoints=endpoints(np.arange(count), Point.BEGIN, EdgeKind.MESSAGE, role, key)
        )


class ClockFamily:
    """Servo lines of ptp4l and phc2sys."""

    name = "clock"

    def fill(self, rows: Rows, host: int, strings: Strings) -> Filled:
        count, daemon = len(rows), rows.more["daemon"]
        name = host_name(host)
        clock = [strings.index(f"{name}/ptp0"), strings.index(f"{name}/CLOCK_REALTIME")]
        parent = [strings.index(TAI), strings.index(f"{name}/ptp0")]
        columns: dict[str, Array] = {
            "kind": np.full(count, int(ClockKindOfRow.SERVO)),
            "entity": np.array(clock)[daemon],
            "name": np.full(count, strings.index("servo")),
            "parent": np.array(parent)[daemon],
            "offset_ns": rows.more["offset"],
            "delay_ns": rows.more["delay"],
            "freq_ppb": rows.more["freq"],
            "servo": np.full(count, LOCKED),
        }
        return Filled(columns)
