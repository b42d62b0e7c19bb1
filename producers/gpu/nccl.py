"""NCCL's profiler records, as far as a map of the GPU's timer needs them: bytes in, stamps out.

The plugin's example writes a file for each rank, so for one GPU: a JSON list of events, `ts` in µs since the
plugin started, on the host's clock; a kernel's channel (category GPU) holds the timer's own stamps, StartGpuClk
and StopGpuClk in ns. What orders the two clocks: a stamp was written before the host saw it, so a channel's `b`
record follows its start and its `e` record its stop. From below there is little: no record tells which launch
a channel belongs to, so the first timed launch of its process stands for all of them (a `ts` of 0 was not timed).
Files cut off in the middle, as the example publishes one, are used up to the cut.
"""

import json
import re
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from schemas.columns import NULL_I64
from schemas.errors import MalformedInput

I64 = NDArray[np.int64]
NONE: Final = NULL_I64
TICKS: Final = (1_024, 128, 96, 64, 32)
_EVENT: Final = re.compile(r"\{[^{}]*(?:\{[^{}]*\}[^{}]*)?\}")


@dataclass(frozen=True)
class Channels:
    """Channels of NCCL kernels by process, all of shape (channels,): host times in ns since the plugin's start,
    stamps in ns on the GPU's timer, NONE where a record lacks one. `skipped` counts events of no use by reason.
    """

    process: I64
    launch_ns: I64
    start_gpu: I64
    start_seen_ns: I64
    stop_gpu: I64
    stop_seen_ns: I64
    skipped: dict[str, int] = field(default_factory=dict)

    def tick_ns(self) -> int:
        """The greatest known tick that divides all stamps; 1 if none does."""
        stamps = np.concatenate([self.start_gpu, self.stop_gpu])
        stamps = stamps[stamps != NONE]
        return next((tick for tick in TICKS if len(stamps) and not (stamps % tick).any()), 1)


def parse(data: bytes) -> Channels:
    """The channels in a profiler's file. Raises MalformedInput if it holds no event at all."""
    skipped: dict[str, int] = {}
    events = _events(data, skipped)
    launches: dict[int, int] = {}
    rows: list[list[int]] = []
    open_rows: dict[tuple[int, Any], int] = {}
    for event in events:
        process = event.get("pid")
        at, kind, phase = _ns(event.get("ts")), event.get("cat"), event.get("ph")
        if at is None or not isinstance(process, int) or abs(process) >= 2**62:
            skipped["bad time or process"] = skipped.get("bad time or process", 0) + 1
        elif kind == "KERNEL_LAUNCH" and phase == "b":
            if at > 0:
                launches[process] = min(at, launches.get(process, at))
        elif kind == "GPU" and phase == "b":
            args = event.get("args")
            begun, ended = (_clock(args, name) for name in ("StartGpuClk", "StopGpuClk"))
            if begun == NONE and ended == NONE:
                skipped["no GPU stamp"] = skipped.get("no GPU stamp", 0) + 1
                continue
            open_rows[process, str(event.get("id"))] = len(rows)
            rows.append([process, NONE, begun, at, ended, NONE])
        elif kind == "GPU" and phase == "e":
            row = open_rows.pop((process, str(event.get("id"))), None)
            if row is not None:
                rows[row][5] = at
    table = np.array(rows, np.int64).reshape(-1, 6)
    for number, first in launches.items():
        table[(table[:, 0] == number) & (table[:, 3] >= first), 1] = first
    process, launch, start, start_seen, stop, stop_seen = table.T
    return Channels(process, launch, start, start_seen, stop, stop_seen, skipped)


def _events(data: bytes, skipped: dict[str, int]) -> list[dict[str, Any]]:
    text = data.decode("utf-8", "replace")
    try:
        whole = json.loads(text)
        found = whole if isinstance(whole, list) else []
    except (ValueError, RecursionError):
        found = []
        for match in _EVENT.finditer(text):
            try:
                found.append(json.loads(match.group()))
            except ValueError:
                skipped["not JSON"] = skipped.get("not JSON", 0) + 1
    events = [event for event in found if isinstance(event, dict) and "ph" in event]
    if not events:
        raise MalformedInput("no event of NCCL's profiler in it")
    return events


def _ns(value: object) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    # Plugin times are small; what does not fit is no time.
    return round(value * 1_000) if -1e15 < value < 1e15 else None


def _clock(args: object, name: str) -> int:
    value = args.get(name) if isinstance(args, dict) else None
    if isinstance(value, bool) or not isinstance(value, int) or not 0 < value < 2**62:
        return NONE
    return value
