"""PyTorch profiler (Kineto) traces: bytes in, arrays out. No files, no clock.

A trace is one JSON object whose `traceEvents` may be gigabytes long, so events are taken one at a time and
only numbers and distinct names are kept. What describes the whole (rank, base of the times) may stand before
or after the events, hence times are turned into ns at the end.

Times are µs. As float64 they are exact: whole µs up to 2^53; with a base, three decimals are exact while the
time from the base is below 2^43 µs (101 days; Kineto's bases are at most a quarter of a year old); without
one, a double of today's Unix µs has steps of a quarter. What the steps are is read off the numbers and stated
as the clock's quantum.
"""

import re
from array import array
from collections import Counter
from dataclasses import dataclass, field
from typing import IO, Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from producers.gpu.window import JsonWindow
from schemas.columns import NULL_I64, GpuKind
from schemas.errors import MalformedInput
from schemas.time import OUTSIDE, STAMP_NS_MAX

I64 = NDArray[np.int64]
NAME_CHARS_MAX: Final = 4_000
US_MAX: Final = 4e15  # beyond it (the year 2096) ns no longer fit the arithmetic
BEYOND: Final = "number beyond 64 bits"  # why an event is skipped
BASE_NS_MAX: Final = 4 * 10**18
ABSOLUTE_US_MIN: Final = 3e14  # 1979: earlier times cannot be Unix time of a profiler

_KINDS: Final = {
    "cpu_op": GpuKind.CPU_OP,
    "operator": GpuKind.CPU_OP,
    "cuda_runtime": GpuKind.RUNTIME,
    "runtime": GpuKind.RUNTIME,
    "cuda_driver": GpuKind.DRIVER,
    "driver": GpuKind.DRIVER,
    "kernel": GpuKind.KERNEL,
    "gpu_memcpy": GpuKind.MEMCPY,
    "memcpy": GpuKind.MEMCPY,
    "gpu_memset": GpuKind.MEMSET,
    "memset": GpuKind.MEMSET,
    "user_annotation": GpuKind.ANNOTATION,
    "gpu_user_annotation": GpuKind.GPU_ANNOTATION,
    "cuda_sync": GpuKind.SYNC,
    "python_function": GpuKind.PYTHON,
}
_SPAN: Final = "trace"  # category of the profiler's own span, which is no event of the job
_ON_DEVICE: Final = frozenset((GpuKind.KERNEL, GpuKind.MEMCPY, GpuKind.MEMSET, GpuKind.GPU_ANNOTATION))
_NCCL: Final = re.compile(r"nccl\w*Kernel")
_NUMBER: Final = frozenset((int, float))


class _Beyond(Exception):
    """A number of an event that 64 bits can't hold."""


class Lane(NamedTuple):
    """What becomes a source: a host thread, a stream, or the unordered lane of waits that CUPTI reports."""

    device: bool
    process: str  # pid of a thread, device of a stream
    number: str  # tid or stream; empty: the lane of waits


@dataclass
class Trace:
    """One trace. Row arrays have an entry for each complete event, in the file's order (ns)."""

    digest: bytes
    rank: int | None
    world_size: int | None
    host: str | None
    groups: dict[str, tuple[int, ...]]  # rank lists that the header gives in full, by name
    quantum_ns: int
    relative: bool  # times count from a start that the trace does not tell
    begin_ns: I64
    duration_ns: I64
    kind: I64
    name: I64
    lane: I64
    correlation: I64
    device: I64
    stream: I64
    names: list[str]
    lanes: list[Lane]
    args: dict[int, dict[str, Any]]  # of collective kernels, `nccl:` spans and waits
    sizes: dict[int, float]  # bytes of copies and sets
    events: int  # all entries of traceEvents
    skipped: Counter[str] = field(default_factory=Counter)

    def __len__(self) -> int:
        return len(self.begin_ns)

    def end_ns(self) -> I64:
        """End of each row; its begin where the end is unknown."""
        return self.begin_ns + np.where(self.duration_ns == NULL_I64, 0, self.duration_ns)


def parse(stream: IO[bytes]) -> Trace:
    """Read one trace to its end. Raises MalformedInput; errors of the stream itself pass through."""
    text = JsonWindow(stream)
    rows = _Rows()
    header: dict[str, Any] = {}
    found = False
    match text.peek():
        case "[":  # the bare list of events that the format also allows
            found = True
            text.at += 1
            text.items(rows.add)
        case "{":
            text.at += 1
            while (char := text.peek()) != "}":
                if header or found:
                    text.expect(",")
                    char = text.peek()
                if char != '"':
                    raise text.wrong("a key was expected")
                key = text.value()
                text.expect(":")
                if key == "traceEvents" and text.peek() == "[":
                    found = True
                    text.at += 1
                    text.items(rows.add)
                else:
                    header[key] = text.value()
            text.at += 1
        case "":
            raise MalformedInput("the file is empty")
        case _:
            raise MalformedInput("not a profiler trace: neither a JSON object nor a list")
    if text.peek():
        raise text.wrong("something follows the trace")
    if not found:
        raise MalformedInput("not a profiler trace: it has no list traceEvents")
    return rows.finish(header, text.digest.digest())


class _Rows:
    """Columns of a trace in the making."""

    def __init__(self) -> None:
        self.ts, self.dur = array("d"), array("d")
        self.kind, self.name, self.lane = array("b"), array("i"), array("i")
        self.correlation, self.device, self.stream = array("q"), array("q"), array("q")
        self.names: dict[str, int] = {}
        self.lanes: dict[Lane, int] = {}
        self.args: dict[int, dict[str, Any]] = {}
        self.sizes: dict[int, float] = {}
        self.skipped: Counter[str] = Counter()
        self.events = 0

    def add(self, event: Any) -> None:
        """Keep a complete event; count all else by its phase or by what is wrong with it."""
        self.events += 1
        if type(event) is not dict:
            self.skipped["not an event"] += 1
            return
        phase = event.get("ph")
        if phase != "X":
            self.skipped[f"phase {phase!s:.8}"] += 1
            return
        category = str(event.get("cat", "")).lower()
        if category == _SPAN:
            self.skipped["profiler span"] += 1
            return
        ts: Any = event.get("ts")
        if type(ts) not in _NUMBER or not -US_MAX < ts < US_MAX:
            self.skipped["bad time"] += 1
            return
        dur: Any = event.get("dur")
        if type(dur) not in _NUMBER or not 0 <= dur < US_MAX:
            dur = np.nan
        name = str(event.get("name", ""))
        args = event.get("args")
        if type(args) is not dict:
            args = {}
        kind = _KINDS.get(category, GpuKind.OTHER)
        if kind == GpuKind.KERNEL and _NCCL.match(name):
            kind = GpuKind.COLLECTIVE
        row = len(self.ts)
        try:
            correlation = _whole(args.get("correlation"))
            if kind in (GpuKind.MEMCPY, GpuKind.MEMSET) and type(args.get("bytes")) in _NUMBER:
                self.sizes[row] = _size(args["bytes"])
            self._place(kind, event.get("pid"), event.get("tid"), args)
        except _Beyond:
            self.sizes.pop(row, None)
            self.skipped[BEYOND] += 1
            return
        self.ts.append(ts)
        self.dur.append(dur)
        self.kind.append(kind)
        place = self.names.get(name)
        if place is None:
            place = self.names[name] = len(self.names)
        self.name.append(place)
        self.correlation.append(correlation)
        if kind in (GpuKind.COLLECTIVE, GpuKind.SYNC) or (
            kind == GpuKind.ANNOTATION and name.startswith("nccl:")
        ):
            self.args[row] = args

    def _place(self, kind: GpuKind, pid: Any, tid: Any, args: dict[str, Any]) -> None:
        """Lane, device and stream of a row. Raises _Beyond, and then has noted nothing."""
        named = type(tid) is str and tid.startswith("stream ")
        if kind in _ON_DEVICE or kind == GpuKind.COLLECTIVE or kind == GpuKind.SYNC or named:
            device = _whole(args.get("device", pid))
            stream = _whole(args.get("stream", tid[7:] if named else tid))
            # A wait is stamped by the host, at the call: it has no place in its stream's order.
            number = "" if kind == GpuKind.SYNC else str(tid if stream == NULL_I64 else stream)
            lane = Lane(True, str(pid if device == NULL_I64 else device), number)
        else:
            device, stream = NULL_I64, _whole(tid)
            _whole(pid)
            lane = Lane(False, str(pid), "?" if tid is None else str(tid))
        place = self.lanes.get(lane)
        if place is None:
            place = self.lanes[lane] = len(self.lanes)
        self.lane.append(place)
        self.device.append(device)
        self.stream.append(stream)

    def finish(self, header: dict[str, Any], digest: bytes) -> Trace:
        """The trace, once all of the file is known."""
        about = header.get("distributedInfo")
        about = about if type(about) is dict else {}
        base = _integer(header.get("baseTimeNanoseconds"))
        if not 0 < base < BASE_NS_MAX:
            base = 0
        ts, dur = np.array(self.ts, np.float64), np.array(self.dur, np.float64)
        begin, duration = _to_ns(ts) + base, _to_ns(np.where(np.isnan(dur), 0, dur))
        duration[np.isnan(dur)] = NULL_I64
        duration[begin + duration > STAMP_NS_MAX] = NULL_I64
        keep = (begin >= 0) & (begin <= STAMP_NS_MAX)
        self.skipped["bad time"] += int((begin < 0).sum())
        self.skipped[OUTSIDE] += int((begin > STAMP_NS_MAX).sum())
        moved = np.cumsum(keep) - 1
        host = header.get("hostname", header.get("host_name"))
        rank, world = _integer(about.get("rank")), _integer(about.get("world_size"))
        return Trace(
            digest=digest,
            rank=rank if 0 <= rank < 2**31 else None,
            world_size=world if 0 < world < 2**31 else None,
            host=host if type(host) is str and host else None,
            groups=_groups(about.get("pg_config")),
            quantum_ns=_quantum(ts[keep], dur[keep]),
            # By the middle one: a single odd time does not change what all the others mean.
            relative=bool(keep.any()) and not base and float(np.median(ts[keep])) < ABSOLUTE_US_MIN,
            begin_ns=begin[keep],
            duration_ns=duration[keep],
            kind=np.array(self.kind, np.int64)[keep],
            name=np.array(self.name, np.int64)[keep],
            lane=np.array(self.lane, np.int64)[keep],
            correlation=np.array(self.correlation, np.int64)[keep],
            device=np.array(self.device, np.int64)[keep],
            stream=np.array(self.stream, np.int64)[keep],
            names=[_printable(name) for name in self.names],
            lanes=[
                Lane(lane.device, _printable(lane.process), _printable(lane.number)) for lane in self.lanes
            ],
            args={int(moved[row]): args for row, args in self.args.items() if keep[row]},
            sizes={int(moved[row]): size for row, size in self.sizes.items() if keep[row]},
            events=self.events,
            skipped=+self.skipped,
        )


def _to_ns(us: NDArray[np.float64]) -> I64:
    """µs as whole ns. The fraction is split off first: it is exact then, where µs × 1000 would not be."""
    whole = np.floor(us)
    return whole.astype(np.int64) * 1_000 + np.rint((us - whole) * 1_000).astype(np.int64)


def _quantum(ts: NDArray[np.float64], dur: NDArray[np.float64]) -> int:
    """Step of the readings in ns: 1000 if all are whole µs, else what a double of that size can show."""
    length = dur[~np.isnan(dur)]
    if not len(ts) or ((ts == np.floor(ts)).all() and (length == np.floor(length)).all()):
        return 1_000
    return max(1, round(float(np.spacing(np.abs(ts).max())) * 1_000))


def _integer(value: Any) -> int:
    """An integer that a header or argument gives as a number or in digits; NULL_I64 for all else."""
    if type(value) is str and len(value) < 20 and value.removeprefix("-").isdecimal():
        value = int(value)
    if type(value) is not int or not -(2**63) < value < 2**63:
        return NULL_I64
    return value


def _whole(value: Any) -> int:
    """As `_integer`, for what an event says. Raises _Beyond."""
    number = _integer(value)
    if number == NULL_I64 and (type(value) is int or (type(value) is float and np.isinf(value))):
        raise _Beyond
    return number


def _size(value: float) -> float:
    """A number of bytes. Raises _Beyond."""
    if not -(2**63) < value < 2**63:
        raise _Beyond
    return float(value)


def _groups(config: Any) -> dict[str, tuple[int, ...]]:
    """Process groups whose rank list is whole."""
    out = {}
    for entry in config if type(config) is list else ():
        if type(entry) is not dict or type(entry.get("ranks")) is not list:
            continue
        ranks = tuple(entry["ranks"])
        whole = all(type(rank) is int and 0 <= rank < 2**31 for rank in ranks)
        if ranks and whole and entry.get("pg_size", len(ranks)) == len(ranks):
            out[str(entry.get("pg_name", ""))] = ranks
    return out


def _printable(text: str) -> str:
    """Text that UTF-8 can carry (JSON can write half a surrogate pair), of bounded length."""
    return text[:NAME_CHARS_MAX].encode("utf-8", "backslashreplace").decode()
