"""Launch and sync edges inside one trace."""

import numpy as np

from producers.gpu import edges
from schemas.columns import Point, Role
from tests.gpu_traces import Event, call, launched, launches, trace, work


def sync(name: str, ts: float, dur: float, correlation: int, **args: int) -> Event:
    """CUPTI's record of a wait."""
    out = work(name, ts, dur, correlation, args.pop("stream", -1), "cuda_sync")
    out["args"] |= args
    return out


def waits(events: list[Event]) -> list[tuple[str, str, Point]]:
    """(cause, effect, effect's point) of each sync edge, by name of kernel or call."""
    found, started = launches(trace(events))
    ends = edges.waits(found, started)
    names = [found.names[place] for place in found.name]
    causes = [each for each in ends if each.role == Role.CAUSE]
    assert all(each.point == Point.END for each in causes)
    effects = {each.number: each for each in ends if each.role == Role.EFFECT}
    assert len(effects) == len(ends) - len(causes)
    return sorted(
        (names[each.row], names[effects[each.number].row], effects[each.number].point) for each in causes
    )


def test_a_launch_and_its_work_share_a_correlation() -> None:
    events = [*launched("a", 1, 5, 2, 10), *launched("b", 6, 9, 2, 11), work("lost", 12, 1, 12)]
    found, started = launches(trace(events))
    assert started.call.tolist() == [-1, 0, -1, 2, -1]
    assert started.causes.tolist() == [0, 2]
    assert started.effects.tolist() == [1, 3, 4]
    assert (found.begin_ns[started.effects] >= 0).all()


def test_a_graph_starts_many_kernels() -> None:
    events = [call("cudaGraphLaunch", 1, 3, 10), work("a", 5, 1, 10), work("b", 6, 1, 10)]
    _, started = launches(trace(events))
    assert started.call.tolist() == [-1, 0, 0]


def test_a_correlation_of_several_calls_names_none() -> None:
    events = [*launched("a", 1, 5, 2, 10), call("cudaMemcpyAsync", 8, 1, 10), *launched("b", 9, 12, 1, 11)]
    _, started = launches(trace(events))
    assert (started.call.tolist(), started.ambiguous) == ([-1, -1, -1, -1, 3], 1)
    assert started.effects.tolist() == [4]


def test_correlation_zero_is_none() -> None:
    _, started = launches(trace(launched("a", 1, 5, 2, 0)))
    assert (started.causes.size, started.effects.size) == (0, 0)


def test_a_device_synchronisation_waits_for_the_last_work_of_each_stream() -> None:
    events = [
        *launched("a", 1, 5, 9, 10, 7),
        *launched("b", 6, 15, 9, 11, 7),
        *launched("c", 10, 14, 3, 12, 9),
        call("cudaDeviceSynchronize", 20, 10, 13),
        *launched("d", 40, 45, 9, 14, 7),
    ]
    assert waits(events) == [
        ("b", "cudaDeviceSynchronize", Point.END),
        ("c", "cudaDeviceSynchronize", Point.END),
    ]


def test_a_launch_that_overlaps_the_call_may_or_may_not_be_waited_for() -> None:
    events = [
        *launched("a", 1, 5, 9, 10),
        call("cudaLaunchKernel", 18, 4, 11, tid=2),
        work("b", 25, 3, 11),
        call("cudaDeviceSynchronize", 20, 10, 13),
    ]
    assert waits(events) == [("a", "cudaDeviceSynchronize", Point.END)]


def test_between_threads_the_clocks_steps_are_allowed_for() -> None:
    """Whole µs hide up to one at a call's begin and one in its length; a thread's own order hides nothing."""
    for at, tid, known in ((13, 1, True), (14, 2, False), (15, 2, False), (16, 2, True)):
        events = [*launched("a", 10, 14, 2, 10), call("cudaDeviceSynchronize", at, 10, 13, tid)]
        events.append(call("cudaEventQuery", 50, 1, 14, 2))
        assert waits(events) == ([("a", "cudaDeviceSynchronize", Point.END)] if known else [])


def test_a_second_wait_of_a_thread_repeats_nothing() -> None:
    events = [
        *launched("a", 1, 5, 9, 10),
        call("cudaDeviceSynchronize", 20, 2, 13),
        call("cudaDeviceSynchronize", 30, 2, 14),
        call("cudaDeviceSynchronize", 40, 2, 15, tid=2),
    ]
    assert waits(events) == [("a", "cudaDeviceSynchronize", Point.END)] * 2


def test_with_two_devices_the_record_must_name_which() -> None:
    other = launched("b", 6, 9, 5, 11)
    other[1]["args"]["device"] = 1
    events = [*launched("a", 1, 5, 9, 10), *other, call("cudaDeviceSynchronize", 20, 2, 13)]
    assert waits(events) == []
    assert waits([*events, sync("Context Sync", 20, 2, 13, device=1)]) == [
        ("b", "cudaDeviceSynchronize", Point.END)
    ]


def test_a_stream_synchronisation_is_known_by_its_record_only() -> None:
    events = [
        *launched("a", 1, 5, 9, 10, 7),
        *launched("b", 6, 9, 5, 11, 9),
        call("cudaStreamSynchronize", 20, 2, 13),
    ]
    assert waits(events) == []
    assert waits([*events, sync("Stream Sync", 20, 2, 13, stream=9)]) == [
        ("b", "cudaStreamSynchronize", Point.END)
    ]
    assert waits([*events, sync("Stream Sync", 20, 2, 13, stream=5)]) == []
    twice = [sync("Stream Sync", 20, 2, 13, stream=9), sync("Stream Sync", 20, 2, 13, stream=7)]
    assert waits([*events, *twice]) == []


def events_of_a_recording() -> list[Event]:
    return [
        *launched("a", 1, 5, 30, 10, 7),
        call("cudaEventRecord", 6, 1, 50),
        *launched("b", 8, 36, 5, 11, 7),
    ]


def test_an_event_waits_for_what_was_launched_before_its_recording() -> None:
    record = sync("Event Sync", 20, 2, 13, wait_on_stream=7, wait_on_cuda_event_record_corr_id=50)
    record["args"] = {key.replace(" ", "_"): value for key, value in record["args"].items()}
    events = [*events_of_a_recording(), record]
    assert waits([*events, call("cudaEventSynchronize", 20, 20, 13)]) == [
        ("a", "cudaEventSynchronize", Point.END)
    ]
    assert waits([*events, call("cudaEventQuery", 20, 2, 13)]) == []  # asks, and does not wait
    record["args"]["wait_on_cuda_event_record_corr_id"] = -1
    assert waits([*events, call("cudaEventSynchronize", 20, 20, 13)]) == []


def test_a_streams_wait_holds_back_the_next_work_launched_to_it() -> None:
    record = sync("Stream Wait Event", 14, 2, 13, stream=9)
    record["args"] |= {"wait_on_stream": 7, "wait_on_cuda_event_record_corr_id": 50}
    events = [
        *events_of_a_recording(),
        *launched("early", 11, 12, 2, 20, 9),
        call("cudaStreamWaitEvent", 14, 2, 13),
        record,
        *launched("held", 17, 37, 2, 21, 9),
        *launched("later", 22, 40, 2, 22, 9),
    ]
    assert waits(events) == [("a", "held", Point.BEGIN)]


def test_last_is_by_the_streams_order_not_the_files() -> None:
    rng = np.random.default_rng(3)
    pairs = [launched(f"k{at}", 10 * at, 10 * at + 5, 4, at + 1) for at in range(40)]
    events = [each for at in rng.permutation(40) for each in pairs[at]]
    assert waits([*events, call("cudaDeviceSynchronize", 203, 10, 90)]) == [
        ("k20", "cudaDeviceSynchronize", Point.END)
    ]
