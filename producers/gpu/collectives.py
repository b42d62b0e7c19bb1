"""Which collective operation a device kernel is part of, in which group.

Operation: by the kernel's name; a send/recv or generic kernel is what the `nccl:` span around its launch
says. Group: by the kernel's arguments (name and ranks; a list that was cut is looked up by name in the
header, and is no key if that fails); a trace of before 2024 says nothing, then it is all ranks of the job,
marked `assumed`.
"""

import ast
import math
import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from producers.gpu.kineto import I64, Trace
from schemas.columns import GpuKind, Op
from schemas.pack import Group

_OPERATIONS: Final = {
    "allreduce": Op.ALL_REDUCE,
    "allreducebarrier": Op.BARRIER,
    "allgather": Op.ALL_GATHER,
    "allgatherv": Op.ALL_GATHER,
    "reducescatter": Op.REDUCE_SCATTER,
    "reducescatterv": Op.REDUCE_SCATTER,
    "barrier": Op.BARRIER,
    "broadcast": Op.BROADCAST,
    "scatter": Op.SCATTER,
    "reduce": Op.REDUCE,
    "gather": Op.GATHER,
    "alltoall": Op.ALL_TO_ALL,
    "alltoallv": Op.ALL_TO_ALL,
    "send": Op.SEND,
    "recv": Op.RECV,
}
# ncclKernel_AllReduce_…, ncclDevKernel_AllReduce_…; before NCCL 2.8 ncclAllReduceRingLLKernel_…
_KERNEL: Final = re.compile(
    r"nccl(?:\w*?Kernel_)?(AllReduce|AllGather|ReduceScatter|Broadcast|Reduce|AllToAll)", re.IGNORECASE
)
_PEERS: Final = re.compile(r"(send|recv) (\d+)(->|<-)(\d+)")
_ROOTED: Final = (Op.BROADCAST, Op.SCATTER, Op.REDUCE, Op.GATHER)
# Operations in which every member hands in equally many elements, so that the number helps to align.
_EQUAL: Final = (Op.ALL_REDUCE, Op.ALL_GATHER, Op.REDUCE_SCATTER, Op.BROADCAST, Op.REDUCE)
_BYTES: Final = {
    "float": 4, "double": 8, "half": 2, "bfloat16": 2, "int": 4, "long": 8, "short": 2, "short int": 2,
    "long int": 8, "char": 1, "signed char": 1, "byte": 1, "unsigned char": 1, "bool": 1,
    "complexfloat": 8, "complexdouble": 16,
}  # fmt: skip
SPLITS_MAX: Final = 16_384  # numbers of one event; the splits of a larger group count as unknown
ASSUMED_GROUP: Final = "all ranks (assumed)"


@dataclass(frozen=True)
class Member:
    """One kernel's part in one collective. `row` is the kernel's row in its trace."""

    trace: int
    row: int
    rank: int
    lane: int
    begin_ns: int
    op: Op
    group: Group | None  # None: the trace names a group without telling who is in it
    assumed: bool  # the group is an assumption
    elements: int | None = None
    sequence: int | None = None
    peers: tuple[int, int] | None = None  # (sender, receiver), ranks of the job
    root: int | None = None  # rank of the job
    values: Mapping[str, float] = field(default_factory=dict)

    @property
    def token(self) -> tuple[Op, int | None]:
        """What aligning compares: both sides of a send are one operation."""
        op = Op.SEND if self.op == Op.RECV else self.op
        return op, self.elements if op in _EQUAL or op == Op.SEND else None

    @property
    def splits_unknown(self) -> bool:
        return self.op == Op.ALL_TO_ALL and not any(name.startswith("bytes_to_") for name in self.values)


def operation(text: str) -> Op:
    """Operation that a `nccl:` span, a kernel's name part or a "Collective name" means."""
    plain = re.sub(r"\W|_", "", text.lower().removeprefix("nccl:").split(" ")[0])
    for ending in ("coalesced", "base", "oop", "intotensor", "tensor", "single"):
        plain = plain.removesuffix(ending)
    return _OPERATIONS.get(plain, Op.UNKNOWN)


def members(place: int, trace: Trace, launch: I64) -> list[Member]:
    """The collective kernels of one trace. `launch` has each row's launching row, -1 if there is none.

    Empty if the trace does not tell its rank: then nobody knows who it is in a group.
    """
    if trace.rank is None:
        return []
    spans = _Spans(trace)
    known: dict[tuple[Any, ...], Group | None] = {}
    out = []
    for row in np.flatnonzero(trace.kind == GpuKind.COLLECTIVE).tolist():
        args = trace.args[row]
        span = spans.around(int(launch[row])) if launch[row] >= 0 else None
        title = trace.names[trace.name[span]] if span is not None else str(args.get("Collective name", ""))
        match = _KERNEL.match(trace.names[trace.name[row]])
        op = _OPERATIONS[match[1].lower()] if match else operation(title)
        described = args if "In msg nelems" in args else (trace.args[span] if span is not None else {})
        elements, itemsize = _elements(described)
        group, assumed = _group(trace, args, known)
        peers = _peers(op, title, args, group, trace.rank)
        if op in (Op.SEND, Op.RECV) and peers is None:
            op = Op.UNKNOWN
        root = _number(args.get("Rank")) if op in _ROOTED else None
        if root is not None:
            root = group.ranks[root] if group and group.ranks and root < len(group.ranks) else None
        sequence = _number(args.get("Seq"))
        out.append(
            Member(
                trace=place,
                row=row,
                rank=trace.rank,
                lane=int(trace.lane[row]),
                begin_ns=int(trace.begin_ns[row]),
                op=op,
                group=group,
                assumed=assumed,
                elements=elements,
                sequence=sequence,
                peers=peers,
                root=root,
                values=_values(op, args, group, elements, itemsize),
            )
        )
    return out


class _Spans:
    """The `nccl:` annotations of a trace's threads."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._end = trace.end_ns()
        spans = [row for row in trace.args if trace.kind[row] == GpuKind.ANNOTATION]
        by_lane: dict[int, list[int]] = defaultdict(list)
        for row in sorted(spans, key=lambda each: int(trace.begin_ns[each])):
            by_lane[int(trace.lane[row])].append(row)
        self._rows = by_lane
        self._begin = {lane: trace.begin_ns[rows] for lane, rows in by_lane.items()}

    def around(self, call: int) -> int | None:
        """The innermost span of the call's thread that holds the call."""
        trace = self._trace
        lane = int(trace.lane[call])
        if lane not in self._rows:
            return None
        rows = self._rows[lane]
        last = int(np.searchsorted(self._begin[lane], trace.begin_ns[call], side="right"))
        for row in reversed(rows[max(0, last - 16) : last]):  # spans nest a few deep at most
            if self._end[row] >= self._end[call]:
                return row
        return None


def _number(value: Any) -> int | None:
    return value if type(value) is int and 0 <= value < 2**53 else None


def _elements(args: Mapping[str, Any]) -> tuple[int | None, int | None]:
    """Elements that a member hands in, and bytes of one: from the kernel's arguments or the span's inputs."""
    count, kind = _number(args.get("In msg nelems")), args.get("dtype")
    dims, kinds = args.get("Input Dims"), args.get("Input type")
    shape = dims[0] if type(dims) is list and len(dims) == 1 else None
    if count is None and type(shape) is list and shape and all(_number(each) is not None for each in shape):
        count = _number(math.prod(shape))
        kind = kinds[0] if type(kinds) is list and kinds else None
    plain = str(kind).lower().removeprefix("c10::")
    return count, 1 if plain.startswith("float8") else _BYTES.get(plain)


def _listed(text: Any) -> list[int] | None:
    """A list of numbers that an argument holds as text; None if it is cut or no list."""
    if type(text) is str:
        try:
            text = ast.literal_eval(text) if len(text) < 1_000_000 else None
        except (ValueError, SyntaxError, RecursionError, MemoryError):
            return None
    if type(text) is not list or any(_number(each) is None for each in text):
        return None
    return text


def _group(
    trace: Trace, args: Mapping[str, Any], known: dict[Any, Group | None]
) -> tuple[Group | None, bool]:
    """The process group of a kernel (None if its ranks are unknown), and whether it is an assumption."""
    name, listed = args.get("Process Group Name"), args.get("Process Group Ranks")
    size = _number(args.get("Group size"))
    start, stride = _number(args.get("Global rank start")), _number(args.get("Global rank stride"))
    if name is None and listed is None and size is None:
        if trace.world_size is None or trace.rank is None or trace.rank >= trace.world_size:
            return None, True
        return Group(ASSUMED_GROUP, trace.world_size, tuple(range(trace.world_size))), True
    key = (str(name), str(listed), size, start, stride)
    if key not in known:
        known[key] = _stated_group(trace, str(name or ""), listed, size, start, stride)
    return known[key], False


def _stated_group(
    trace: Trace, name: str, listed: Any, size: int | None, start: int | None, stride: int | None
) -> Group | None:
    ranks = _listed(listed)
    if not ranks or (size is not None and len(ranks) != size):
        ranks = list(trace.groups.get(name, ()))
    if not ranks and size and start is not None and (stride or size == 1) and size < 2**20:
        ranks = [start + step * (stride or 1) for step in range(size)]
    if not ranks and size is not None and size == trace.world_size:
        ranks = list(range(size))  # as many members as the job has ranks: all of them
    fits = ranks and max(ranks) < 2**31 and len(set(ranks)) == len(ranks)
    if not fits or trace.rank not in ranks or size not in (None, len(ranks)):
        return None
    return Group(name, len(ranks), tuple(ranks))


def _peers(
    op: Op, title: str, args: Mapping[str, Any], group: Group | None, rank: int | None
) -> tuple[int, int] | None:
    """Sender and receiver of a send or recv, as ranks of the job."""
    if op not in (Op.SEND, Op.RECV) or group is None or group.ranks is None or rank is None:
        return None
    other = _number(args.get("Dst Rank" if op == Op.SEND else "Src Rank"))
    match = _PEERS.search(title)
    if other is None and match is not None:
        place = int(match[4])
        other = group.ranks[place] if place < len(group.ranks) else None
    if other is None or other == rank or other not in group.ranks:
        return None
    return (rank, other) if op == Op.SEND else (other, rank)


def _values(
    op: Op, args: Mapping[str, Any], group: Group | None, elements: int | None, itemsize: int | None
) -> dict[str, float]:
    """Numbers of a collective: bytes handed in and got, and to whom where the splits are known."""
    if elements is None or itemsize is None:
        return {}
    values = {"bytes": float(elements * itemsize)}
    got = _number(args.get("Out msg nelems"))
    if got is not None:
        values["bytes_out"] = float(got * itemsize)
    splits = _listed(args.get("In split size"))
    if (
        op == Op.ALL_TO_ALL
        and splits
        and group
        and group.ranks
        and len(splits) == len(group.ranks) <= SPLITS_MAX
    ):
        total = sum(splits)  # splits count rows of the tensor
        for rank, split in zip(group.ranks, splits, strict=True):
            values[f"bytes_to_{rank}"] = values["bytes"] * split / total if total else 0.0
    return values
