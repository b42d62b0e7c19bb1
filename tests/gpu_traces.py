"""Small profiler traces for the tests, made the same way every time."""

import gzip
import io
import json
import tarfile
from pathlib import Path
from typing import Any

from producers.gpu import edges, kineto
from producers.gpu.kineto import Trace
from producers.gpu.read import KinetoReport, Options, read
from schemas import codec
from schemas.batch import Batch

START_US = 1_700_000_000_000_000
HOST, GPU = 4_000, 0
Event = dict[str, Any]


def event(name: str, cat: str, ts: float, dur: float | None, tid: Any, pid: Any = HOST, **args: Any) -> Event:
    """A complete event; `ts` counts from START_US. Underscores in names of arguments stand for blanks."""
    out: Event = {"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid, "ts": START_US + ts}
    if dur is not None:
        out["dur"] = dur
    out["args"] = {key.replace("_", " "): value for key, value in args.items()}
    return out


def call(name: str, ts: float, dur: float, correlation: int, tid: int = 1) -> Event:
    """A call of the CUDA runtime."""
    return event(name, "cuda_runtime", ts, dur, tid, correlation=correlation)


def work(
    name: str, ts: float, dur: float, correlation: int, stream: int = 7, cat: str = "kernel", **args: Any
) -> Event:
    """Work of a device."""
    return event(name, cat, ts, dur, stream, GPU, correlation=correlation, stream=stream, device=GPU, **args)


def launched(
    name: str, at: float, ts: float, dur: float, correlation: int, stream: int = 7, **args: Any
) -> list[Event]:
    """A kernel with its launch, which takes 3 µs from `at` on."""
    return [
        call("cudaLaunchKernel", at, 3, correlation),
        work(name, ts, dur, correlation, stream, **args),
    ]


def span(name: str, ts: float, dur: float, tid: int = 1, **args: Any) -> Event:
    """An annotation of a host thread."""
    return event(name, "user_annotation", ts, dur, tid, **args)


def trace(events: list[Any], rank: int | None = 0, world: int | None = 2, **header: Any) -> dict[str, Any]:
    """A whole trace, with the profiler's own span and what else stands in real ones."""
    about: dict[str, Any] = {"backend": "nccl"}
    if rank is not None:
        about["rank"] = rank
    if world is not None:
        about["world_size"] = world
    own: Event = {
        "ph": "X",
        "cat": "Trace",
        "name": "PyTorch Profiler (0)",
        "pid": "Spans",
        "ts": 0,
        "dur": 9,
    }
    rest: list[Event] = [
        {"ph": "M", "name": "process_name", "pid": HOST, "args": {"name": "python3"}},
        {"ph": "i", "name": "Record Window End", "ts": 1, "s": "g"},
    ]
    return {"schemaVersion": 1, "distributedInfo": about, "traceEvents": [*events, own, *rest], **header}


def job(rank: int, world: int = 4) -> dict[str, Any]:
    """One rank of a job: two ops, a copy, an all-to-all and an all-reduce; later ranks arrive later."""
    late = 10 * rank
    return trace(
        [
            event("aten::mm", "cpu_op", 0, 40, 1),
            event("aten::empty", "cpu_op", 0, 4, 1),
            event("autograd", "cpu_op", 20, 30, 2),
            *launched("sgemm", 5, 12, 20, 11),
            call("cudaMemcpyAsync", 10, 2, 12),
            work("Memcpy HtoD", 33, 2, 12, 9, "gpu_memcpy", bytes=4096),
            span("nccl:all_to_all", 50 + late, 20, Input_Dims=[[64]], Input_type=["float"]),
            *launched("ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t", 55 + late, 60 + late, 100 - late, 13, 84),
            span("nccl:all_reduce", 80 + late, 20, Input_Dims=[[10, 2]], Input_type=["c10::BFloat16"]),
            *launched("ncclKernel_AllReduce_RING_LL_Sum_float", 85 + late, 170 + late, 80 - late, 14, 84),
            call("cudaDeviceSynchronize", 150, 120, 15),
        ],
        rank,
        world,
    )


def raw(content: Any) -> bytes:
    return json.dumps(content).encode()


def parse(content: Any) -> Trace:
    return kineto.parse(io.BytesIO(content if isinstance(content, bytes) else raw(content)))


def launches(content: Any) -> tuple[Trace, edges.Launches]:
    found = parse(content)
    return found, edges.launches(found)


def folder(path: Path, files: dict[str, bytes]) -> Path:
    """A folder of these files."""
    for name, data in files.items():
        target = path / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)
    return path


def archive(files: dict[str, bytes]) -> bytes:
    """A .tar.gz of these files, the same bytes every time."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return gzip.compress(packed.getvalue(), mtime=0)


def batches(path: Path, **options: Any) -> tuple[list[Batch], KinetoReport]:
    """All batches of a path, each passed through the codec, and the report."""
    report = KinetoReport()
    found = [
        codec.decode_batch(codec.encode_batch(each)) for each in read([path], Options(**options), report)
    ]
    return found, report


def rows(found: list[Batch]) -> list[tuple[str, int, int, str]]:
    """(source, seq, raw_ns, name) of every row in the order sent."""
    out = []
    for batch in found:
        if batch.family != "gpu" or not batch.count:
            continue
        sources = [batch.strings[place] for place in batch.data["src_name"]]
        for source, seq, ns, name in zip(
            batch.column("source"), batch.seq(), batch.raw_ns(), batch.column("name"), strict=True
        ):
            out.append((sources[source], int(seq), int(ns), batch.strings[name]))
    return out


def endpoints(found: list[Batch]) -> list[dict[str, Any]]:
    """Every endpoint as a dict, with the source, name and rank of its row and its group's name."""
    out = []
    for batch in found:
        if not batch.table_len("ep"):
            continue
        source, name, seq = batch.column("source"), batch.column("name"), batch.seq()
        raw_ns, duration = batch.raw_ns(), batch.wide("duration_ns")
        for place, row in enumerate(batch.data["ep_row"].tolist()):
            group = int(batch.data["ep_group"][place])
            out.append(
                {
                    **{key: int(batch.data[f"ep_{key}"][place]) for key in _ENDPOINT},
                    "group": None if group == 65_535 else batch.strings[batch.data["grp_name"][group]],
                    "source": batch.strings[batch.data["src_name"][source[row]]],
                    "rank": int(batch.data["src_rank"][source[row]]),
                    "name": batch.strings[name[row]],
                    "seq": int(seq[row]),
                    "begin_ns": int(raw_ns[row]),
                    "end_ns": int(raw_ns[row] + duration[row]),
                }
            )
    return out


def values(found: list[Batch]) -> list[tuple[str, str, float]]:
    """(name of the row, name, number) of every number."""
    return [
        (batch.strings[batch.column("name")[row]], batch.strings[name], float(number))
        for batch in found
        if batch.table_len("val")
        for row, name, number in zip(
            batch.data["val_row"], batch.data["val_name"], batch.data["val"], strict=True
        )
    ]


_ENDPOINT = ("point", "kind", "role", "key", "op", "size", "flags")
