"""Flows as arrays, and those that collectives make: rings, all-to-all in expert groups, FlowTracer's."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from schemas.errors import Usage
from streams.paths.hashing import ROCE_PORT, sport_of_qpns

U8 = NDArray[np.uint8]
U64 = NDArray[np.uint64]
I64 = NDArray[np.int64]
I32 = NDArray[np.int32]
F64 = NDArray[np.float64]

UDP: Final = 17
QPN_FIRST, QPN_END = 2, 1 << 24  # 0 and 1 are reserved by InfiniBand


@dataclass(frozen=True, eq=False)
class Flows:
    """One entry a flow. `src` and `dst` are endpoints of a fabric, −1 where none is known."""

    src: I32
    dst: I32
    src_address: U8  # (flows, 4) or (flows, 16), network order
    dst_address: U8
    protocol: I64
    sport: I64
    dport: I64
    qpn: I64  # the receiver's, as in the packet; 0 if unknown
    bytes: F64
    job: I32  # a place in `jobs`
    jobs: tuple[tuple[str, str], ...] = (("", ""),)  # (tenant, job)

    def __len__(self) -> int:
        return len(self.src)

    def key(self, fields: Sequence[str]) -> U8:
        """Bytes of these fields, shape (flows, bytes), in the order of the names."""
        parts = []
        for name in fields:
            if name == "src":
                parts.append(self.src_address)
            elif name == "dst":
                parts.append(self.dst_address)
            elif name == "protocol":
                parts.append(_big_endian(self.protocol, 1))
            elif name == "qpn":
                parts.append(_big_endian(self.qpn, 3))
            else:
                parts.append(_big_endian(self.sport if name == "sport" else self.dport, 2))
        return np.hstack(parts)

    def units(self, fields: Sequence[str]) -> I64:
        """Number of each flow's distinct key: flows with equal fields always go together."""
        key = self.key(fields)
        state = np.full(len(key), 0x9E3779B97F4A7C15, np.uint64)
        for column in key.T:  # 64 well-mixed bits: two of a million keys meet with probability 3e-8
            state = (state ^ column) * np.uint64(0xD6E8FEB86659FD93)
            state ^= state >> np.uint64(32)
        _, unit = np.unique(state, return_inverse=True)
        return unit

    def select(self, use: I64) -> "Flows":
        """Only these flows, in this order (one may come several times)."""
        names = (
            "src",
            "dst",
            "src_address",
            "dst_address",
            "protocol",
            "sport",
            "dport",
            "qpn",
            "bytes",
            "job",
        )
        return replace(self, **{name: getattr(self, name)[use] for name in names})


def _big_endian(value: I64, size: int) -> U8:
    return value.astype(">u4").view(np.uint8).reshape(-1, 4)[:, 4 - size :]


def addresses(endpoint: I32) -> U8:
    """10.0.0.0/8 addresses of generated endpoints, shape (n, 4); the first is 10.0.0.1."""
    return _big_endian((endpoint.astype(np.int64) + 1) | (10 << 24), 4)


def roce(src: I64, dst: I64, size: F64 | float, rng: np.random.Generator, jobs: I64 | None = None) -> Flows:
    """RoCEv2 flows between generated endpoints on random queue pairs; ports by the kernel's formula."""
    n = len(src)
    local, remote = rng.integers(QPN_FIRST, QPN_END, (2, n))
    job = np.zeros(n, np.int32) if jobs is None else jobs.astype(np.int32)
    names = (
        tuple(("", f"job{k}") for k in range(int(job.max()) + 1 if n else 1))
        if jobs is not None
        else (("", ""),)
    )
    return Flows(
        src.astype(np.int32),
        dst.astype(np.int32),
        addresses(src.astype(np.int32)),
        addresses(dst.astype(np.int32)),
        np.full(n, UDP),
        sport_of_qpns(local, remote),
        np.full(n, ROCE_PORT),
        remote,
        np.broadcast_to(np.asarray(size, np.float64), n).copy(),
        job,
        names,
    )


def redrawn(flows: Flows, rng: np.random.Generator) -> Flows:
    """The same flows on other queue pairs, so from other source ports."""
    local, remote = rng.integers(QPN_FIRST, QPN_END, (2, len(flows)))
    return replace(flows, sport=sport_of_qpns(local, remote), qpn=remote)


def scaled(flows: Flows, times: int, rng: np.random.Generator) -> Flows:
    """Each flow on `times` queue pairs of its own, with its bytes divided among them."""
    if times < 1:
        raise Usage("qp-scale needs a number >= 1")
    more = flows.select(np.repeat(np.arange(len(flows)), times))
    return redrawn(replace(more, bytes=more.bytes / times), rng)


def ring(members: I64, size: float, rng: np.random.Generator, queue_pairs: int = 1) -> Flows:
    """Rings: each row of `members` (rings, ranks) sends to its next, `size` bytes a queue pair."""
    members = np.atleast_2d(members)
    src = np.repeat(members.ravel(), queue_pairs)
    dst = np.repeat(np.roll(members, -1, axis=1).ravel(), queue_pairs)
    jobs = np.repeat(np.arange(len(members)), members.shape[1] * queue_pairs)
    return roce(src, dst, size, rng, jobs if len(members) > 1 else None)


def all_to_all(members: I64, size: float, rng: np.random.Generator) -> Flows:
    """All-to-all in each row of `members` (groups, ranks): every rank to every other, `size` bytes each."""
    members = np.atleast_2d(members)
    count = members.shape[1]
    one, two = np.nonzero(~np.eye(count, dtype=np.bool_))
    src, dst = members[:, one], members[:, two]
    jobs = np.repeat(np.arange(len(members)), len(one))
    return roce(src.ravel(), dst.ravel(), size, rng, jobs if len(members) > 1 else None)


def expert_groups(endpoints: int, size: int, stride: int = 1) -> I64:
    """Members of expert groups, shape (groups, size), neighbours `stride` apart."""
    if endpoints % (size * stride):
        raise Usage(f"{endpoints} endpoints are no multiple of {size} × {stride}")
    return np.arange(endpoints).reshape(-1, size, stride).swapaxes(1, 2).reshape(-1, size)


def flowtracer(rng: np.random.Generator, size: float = 1 << 30) -> Flows:
    """FlowTracer's test: 16 hosts on two leaves, each sends on 4 queue pairs to its peer opposite."""
    src = np.repeat(np.arange(16), 4)
    return roce(src, (src + 8) % 16, size, rng)


def parse_demand(text: str, endpoints: int, rng: np.random.Generator) -> Flows:
    """Flows from `ring:queue_pairs=4`, `all-to-all:size=64,stride=256`, or `pairs:queue_pairs=4` (each
    endpoint to the one half-way round); `ranks=` limits a ring's length, `bytes=` is per flow. Raises Usage.
    """
    kind, _, rest = text.partition(":")
    known = {
        "ring": {"queue_pairs": 1, "ranks": endpoints, "shuffle": 0}, "all-to-all": {"size": 64, "stride": 1},
        "pairs": {"queue_pairs": 4},
    }  # fmt: skip
    if kind not in known:
        raise Usage(f"no demand {kind!r}: one of {', '.join(known)}")
    value: dict[str, float] = {"bytes": float(1 << 30), **known[kind]}
    for part in filter(None, rest.split(",")):
        name, _, number = part.partition("=")
        if name not in value or not number.replace(".", "", 1).isdecimal():
            raise Usage(f"{part!r} of the demand is none of {', '.join(value)} with a number")
        value[name] = float(number)
    if kind == "all-to-all":
        size, stride = int(value["size"]), int(value["stride"])
        if size < 2 or stride < 1:
            raise Usage("all-to-all needs size >= 2 and stride >= 1")
        return all_to_all(expert_groups(endpoints, size, stride), value["bytes"], rng)
    pairs = int(value["queue_pairs"])
    if pairs < 1:
        raise Usage("queue_pairs must be >= 1")
    if kind == "pairs":
        src = np.repeat(np.arange(endpoints), pairs)
        return roce(src, (src + endpoints // 2) % endpoints, value["bytes"], rng)
    ranks = int(value["ranks"])
    if ranks < 2 or endpoints % ranks:
        raise Usage(f"a ring of {ranks} does not divide {endpoints} endpoints")
    order = rng.permutation(endpoints) if value["shuffle"] else np.arange(endpoints)
    return ring(order.reshape(-1, ranks), value["bytes"], rng, pairs)
