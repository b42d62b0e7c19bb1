"""Edges inside one trace: from a launch to what it started on the device, and from device work to who waits.

All stamps of a trace are of one clock, so calls of different threads can be compared here.

Launch: the host call and the device work of one correlation id. A graph launch starts many kernels; an id
that several host calls carry names none of them and is left out.

Sync, only where the trace determines both ends:
- a device synchronisation waits, in each stream, for the last work launched before the call (what a launch in
  another thread that overlaps the call started may or may not be waited for);
- a stream or event synchronisation only if CUPTI's `cuda_sync` record of the call names the stream, and for
  an event the recording call: then for the last work of that stream launched before the call, or the
  recording;
- a stream's wait for an event holds back the first work launched to that stream after the wait, until the
  last work launched before the recording has ended. A query (cudaEventQuery) waits for nothing, though CUPTI
  reports it in the same way.
"""

import re
from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from producers.gpu.kineto import I64, Trace
from schemas.columns import NULL_I64, GpuKind, Point, Role

WORK: Final = (GpuKind.KERNEL, GpuKind.MEMCPY, GpuKind.MEMSET, GpuKind.COLLECTIVE)
CALLS: Final = (GpuKind.RUNTIME, GpuKind.DRIVER)
_DEVICE_WAIT: Final = re.compile(r"(cuda|hip)DeviceSynchronize|cuCtxSynchronize")
_STREAM_WAIT: Final = re.compile(r"\w*StreamSynchronize")
_EVENT_WAIT: Final = re.compile(r"\w*EventSynchronize")


class Ends(NamedTuple):
    """One side of an edge: a point of a row, and a number that the sides of one edge share."""

    row: int
    point: Point
    role: Role
    number: int


@dataclass
class Launches:
    """Launch edges of a trace. `call` has each row's launching row, -1 if it has none or several."""

    call: I64
    causes: I64  # rows of host calls that started something
    effects: I64  # rows of device work that has a correlation id, whether its launch is in the trace or not
    ambiguous: int = 0  # correlation ids that several host calls carry


def launches(trace: Trace) -> Launches:
    """Match host calls and device work by correlation id."""
    call = np.full(len(trace), -1, np.int64)
    known = (trace.correlation != NULL_I64) & (trace.correlation != 0)
    work = np.flatnonzero(np.isin(trace.kind, WORK) & known)
    calls = np.flatnonzero(np.isin(trace.kind, CALLS) & known)
    ids, first, count = np.unique(trace.correlation[calls], return_index=True, return_counts=True)
    wanted = np.isin(ids, trace.correlation[work])
    once = wanted & (count == 1)
    ambiguous = ids[wanted & (count > 1)]
    effects = work[~np.isin(trace.correlation[work], ambiguous)]
    ids, rows = ids[once], calls[first[once]]
    if len(ids):
        place = np.minimum(np.searchsorted(ids, trace.correlation[effects]), len(ids) - 1)
        found = ids[place] == trace.correlation[effects]
        call[effects[found]] = rows[place[found]]
    return Launches(call, rows, effects, len(ambiguous))


class _Table:
    """Launches to one stream by one of their times, with their places in the order of the stream."""

    def __init__(self, t_ns: I64, place: I64) -> None:
        order = np.argsort(t_ns, kind="stable")
        self._t_ns = t_ns[order]
        self._last = np.maximum.accumulate(place[order])
        self._first = np.minimum.accumulate(place[order][::-1])[::-1]

    def last_before(self, t_ns: int) -> int:
        """Greatest place of the launches before `t_ns`; -1 if there are none."""
        at = int(np.searchsorted(self._t_ns, t_ns, side="left"))
        return int(self._last[at - 1]) if at else -1

    def first_after(self, t_ns: int) -> int:
        """Least place of the launches after `t_ns`; -1 if there are none."""
        at = int(np.searchsorted(self._t_ns, t_ns, side="right"))
        return int(self._first[at]) if at < len(self._t_ns) else -1


class _Stream:
    """Work of one stream whose launch is known.

    What one thread does is in the order of its begins. Between threads a call is before another one only if
    it has returned, and by more than the steps of the clock hide.
    """

    def __init__(self, trace: Trace, rows: I64, call: I64, end: I64) -> None:
        self._ran = rows[np.lexsort((rows, trace.begin_ns[rows]))]
        place = np.arange(len(rows))
        calls = call[self._ran]
        self._end = end
        self._trace = trace
        self._margin_ns = 2 * trace.quantum_ns
        self._returned, self._began = _Table(end[calls], place), _Table(trace.begin_ns[calls], place)
        lanes = trace.lane[calls]
        self._own = {
            lane: _Table(trace.begin_ns[calls][lanes == lane], place[lanes == lane])
            for lane in np.unique(lanes).tolist()
        }

    def before(self, call: int) -> int | None:
        """Row of the last work launched before this host call."""
        begin = int(self._trace.begin_ns[call])
        own = self._own.get(int(self._trace.lane[call]))
        place = self._returned.last_before(begin - self._margin_ns)
        place = max(place, own.last_before(begin) if own else -1)
        return int(self._ran[place]) if place >= 0 else None

    def after(self, call: int) -> int | None:
        """Row of the first work launched after this host call."""
        own = self._own.get(int(self._trace.lane[call]))
        places = [self._began.first_after(int(self._end[call]) + self._margin_ns)]
        places.append(own.first_after(int(self._trace.begin_ns[call])) if own else -1)
        place = min((each for each in places if each >= 0), default=-1)
        return int(self._ran[place]) if place >= 0 else None


def waits(trace: Trace, started: Launches) -> list[Ends]:
    """Both sides of every sync edge that the trace determines; sides of one edge share their number."""
    streams = _streams(trace, started.call)
    devices = {device for device, _ in streams}
    out: list[Ends] = []
    records = _records(trace)
    calls = np.flatnonzero(np.isin(trace.kind, CALLS) & (trace.duration_ns != NULL_I64))
    by_id: dict[int, list[int]] = defaultdict(list)
    covered: set[tuple[int, int]] = set()  # (thread, work) that an earlier call of the thread waited for
    for row in calls.tolist():
        by_id[int(trace.correlation[row])].append(row)
    for row in calls[np.argsort(trace.begin_ns[calls], kind="stable")].tolist():
        name = trace.names[trace.name[row]]
        record = records.get(int(trace.correlation[row]))
        causes: list[int | None] = []
        if _DEVICE_WAIT.fullmatch(name):
            device = int(trace.device[record]) if record is not None else NULL_I64
            if device == NULL_I64 and len(devices) == 1:
                device = next(iter(devices))
            causes = [stream.before(row) for key, stream in streams.items() if key[0] == device]
        elif record is not None and _STREAM_WAIT.fullmatch(name):
            waited = streams.get((int(trace.device[record]), int(trace.stream[record])))
            causes = [waited.before(row)] if waited else []
        elif record is not None and _EVENT_WAIT.fullmatch(name):
            causes = [_recorded(trace, record, streams, by_id)]
        thread = int(trace.lane[row])
        new = [each for each in causes if each is not None and (thread, each) not in covered]
        covered.update((thread, each) for each in new)
        out += [Ends(each, Point.END, Role.CAUSE, row) for each in new]
        if new:
            out.append(Ends(row, Point.END, Role.EFFECT, row))
    for correlation, record in records.items():
        if not trace.names[trace.name[record]].startswith("Stream Wait Event"):
            continue
        held = streams.get((int(trace.device[record]), int(trace.stream[record])))
        waiting = by_id.get(correlation, [])
        cause = _recorded(trace, record, streams, by_id)
        if held is None or cause is None or len(waiting) != 1:
            continue
        effect = held.after(waiting[0])
        if effect is not None and effect != cause:
            out.append(Ends(cause, Point.END, Role.CAUSE, record))
            out.append(Ends(effect, Point.BEGIN, Role.EFFECT, record))
    return out


def _streams(trace: Trace, call: I64) -> dict[tuple[int, int], _Stream]:
    """Launched work by (device, stream)."""
    launched = np.flatnonzero(call >= 0)
    end = trace.end_ns()
    keys = np.stack([trace.device[launched], trace.stream[launched]], axis=1)
    return {
        (device, stream): _Stream(trace, launched[(keys == (device, stream)).all(axis=1)], call, end)
        for device, stream in (np.unique(keys, axis=0).tolist() if len(launched) else ())
    }


def _records(trace: Trace) -> dict[int, int]:
    """CUPTI's record of each waiting call, by the call's correlation id; ids that come twice tell nothing."""
    rows = np.flatnonzero(trace.kind == GpuKind.SYNC).tolist()
    count = Counter(int(trace.correlation[row]) for row in rows)
    return {
        int(trace.correlation[row]): row
        for row in rows
        if count[int(trace.correlation[row])] == 1 and trace.correlation[row] not in (NULL_I64, 0)
    }


def _recorded(
    trace: Trace, record: int, streams: dict[tuple[int, int], _Stream], by_id: dict[int, list[int]]
) -> int | None:
    """The last work before the recording of the event that is waited for."""
    args = trace.args[record]
    stream, recording = args.get("wait_on_stream"), args.get("wait_on_cuda_event_record_corr_id")
    if type(stream) is not int or type(recording) is not int or recording <= 0:
        return None
    calls = [row for row in by_id.get(recording, []) if "EventRecord" in trace.names[trace.name[row]]]
    # The record names the device that waits; a stream of that number may exist on others too.
    found = [each for (_, number), each in streams.items() if number == stream]
    if len(calls) != 1 or len(found) != 1:
        return None
    return found[0].before(calls[0])
