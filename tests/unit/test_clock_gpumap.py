"""The map of a GPU's timer: what readings say, bounds, resets, limits, and the state that comes out."""

import contextlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from producers.gpu import nccl
from schemas.columns import Assurance, ClockKind, Status
from schemas.errors import MalformedInput, Usage
from streams.clock import gpureads
from streams.clock.gpumap import Limits, Mapper, States
from streams.clock.gpureads import NONE, Constraints, brackets
from tests.paths import shared_data

TICK = 64
I64 = NDArray[np.int64]
HOST0, GPU0 = 1_700_000_000 * 10**9, 987_654_321 * 10**6
SOME = Limits(confirm=4, relock_s=0.5)


def timer(host: I64, ppb: int = 7_000) -> I64:
    """What a timer of a constant rate shows at host times, exactly."""
    ahead = host - HOST0
    exact = GPU0 + ahead + ahead * ppb // 10**9
    out: I64 = exact - exact % TICK
    return out


def reads(
    count: int = 40, start: int = HOST0, ppb: int = 7_000, early: int = 300, late: int = 500
) -> Constraints:
    """Brackets every 50 ms."""
    at = start + np.arange(count) * 50_000_000
    return brackets(at - early, timer(at, ppb), at + late, TICK)


def mapper(limits: Limits = SOME) -> Mapper:
    return Mapper("h/gpu0", "h/CLOCK_REALTIME", TICK, limits, "test reads")


def test_a_bracket_is_two_constraints_a_tick_apart() -> None:
    given = brackets(np.array([10, 0]), np.array([128, 64]), np.array([30, 9]), 64, 4)
    assert [side.tolist() for side in given] == [[64, 128], [13, 34], [128, 192], [0, 10]]


def test_launches_bound_from_below_and_waits_from_above() -> None:
    given = gpureads.launches(
        np.array([5, NONE]), np.array([100, 200]), np.array([150, 260]), np.array([NONE, 400]), 10
    )
    assert given.lower_gpu.tolist() == [110, NONE]
    assert given.lower_host.tolist() == [5, NONE]
    assert given.upper_gpu.tolist() == [NONE, 260]
    assert given.upper_host.tolist() == [NONE, 400]


def test_a_nic_exchange_is_one_step() -> None:
    sent, seen, wrote, received = (np.array([n]) for n in (5, 100, 200, 300))
    given = gpureads.nic_writes(sent, seen, wrote, received, 64)
    assert [side.tolist() for side in given] == [[200], [300], [164], [5]]


def test_nccls_own_example_bounds_its_gpu() -> None:
    for name in ("profiler-example-2gpu.fixed.json", "profiler-example-2gpu.verbatim.txt"):
        found = nccl.parse(shared_data("gpu", "nccl", name).read_bytes())
        assert found.start_gpu.tolist() == [1756135989724672000]
        assert found.stop_gpu.tolist() == [1756135989732831232]
        assert found.start_seen_ns.tolist() == [119_711_888]
        assert (found.launch_ns.tolist(), found.stop_seen_ns.tolist()) == ([NONE], [NONE])
        assert found.tick_ns() == 1024
        given = gpureads.nccl(
            found.launch_ns, found.start_gpu, found.start_seen_ns, found.stop_gpu, found.stop_seen_ns, 1024
        )
        assert given.upper_gpu.tolist() == [1756135989724672000]
        # One side bounds nothing: unknown, and said so.
        got = Mapper("h/gpu0", "h/nccl:1", 1024)
        got.add(given)
        assert (got.state().status, got.state().bound_ns) == (Status.UNKNOWN, None)


def test_nccl_records_with_launch_and_stop() -> None:
    text = b"""[{"cat":"KERNEL_LAUNCH","ph":"b","pid":1,"ts":5.0,"id":0},
    {"cat":"KERNEL_LAUNCH","ph":"b","pid":1,"ts":90.0,"id":1},
    {"cat":"GPU","ph":"b","pid":1,"id":4,"ts":100.0,"args":{"StartGpuClk":2048,"StopGpuClk":4096}},
    {"cat":"GPU","ph":"e","pid":1,"id":4,"ts":120.5},
    {"cat":"GPU","ph":"b","pid":1,"id":5,"ts":130.0,"args":{"StartGpuClk":"x"}},
    {"cat":"GPU","ph":"b","pid":1,"id":6,"ts":null}]"""
    found = nccl.parse(text)
    assert (found.launch_ns.tolist(), found.stop_seen_ns.tolist()) == ([5_000], [120_500])
    assert found.skipped == {"no GPU stamp": 1, "bad time or process": 1}
    given = gpureads.nccl(
        found.launch_ns, found.start_gpu, found.start_seen_ns, found.stop_gpu, found.stop_seen_ns, 1024
    )
    assert given.upper_gpu.tolist() == [2048, NONE, 4096]
    assert given.lower_gpu.tolist() == [NONE, 3072, NONE]


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=300))
def test_nccl_records_parse_or_are_malformed(data: bytes) -> None:
    with contextlib.suppress(MalformedInput):
        nccl.parse(data)


@given(st.integers(0, 600), st.sampled_from([b"", b"{", b"\x00", b"1e999", b'"ts": 1e30, ', b"[[[["]))
@settings(max_examples=200, deadline=None)
def test_broken_nccl_records_parse_or_are_malformed(place: int, put: bytes) -> None:
    text = b"""[{"cat":"KERNEL_LAUNCH","ph":"b","pid":1,"ts":5.0,"id":0},
    {"cat":"GPU","ph":"b","pid":1,"id":4,"ts":100.0,"args":{"StartGpuClk":2048,"StopGpuClk":4096}},
    {"cat":"GPU","ph":"e","pid":1,"id":4,"ts":120.5}]"""
    with contextlib.suppress(MalformedInput):
        nccl.parse(text[:place] + put + text[place + 1 :])


def errors(states: States, step: int, host: I64, ppb: int = 7_000) -> tuple[I64, I64]:
    mapped, bound = states.map(np.full(len(host), step), timer(host, ppb))
    return np.abs(mapped - host), states.event_bound(bound)


def test_events_lie_within_map_bound_and_half_a_tick() -> None:
    states = mapper().add(reads())
    assert states.known.tolist() == [False] * 3 + [True] * 37
    host = HOST0 + np.arange(10**9, 3 * 10**9, 1_234_567)
    error, bound = errors(states, 39, host)
    assert (bound != NONE).all()
    assert (error <= bound).all()
    # At the last reading: half of 300 + 500 + tick and host's own nanosecond, a few for the drift, half a tick.
    at_newest = errors(states, 39, HOST0 + np.array([39 * 50_000_000]))[1]
    assert int(at_newest[0]) < (300 + 500 + TICK) // 2 + TICK // 2 + 8
    assert 2 * states.bound_ns[-1] <= 300 + 500 + TICK + 5
    assert states.width_ns[-1] <= 300 + 500 + TICK + 1


def test_the_state_says_what_it_rests_on() -> None:
    got = mapper()
    assert (got.state().status, got.state().provenance) == (Status.UNKNOWN, "test reads: nothing read yet")
    got.add(reads(2))
    assert got.state().provenance == "test reads: too few readings yet"
    states = got.add(reads(40, HOST0 + 100_000_000))
    state = got.state()
    assert (state.clock_id, state.parent, state.kind) == ("h/gpu0", "h/CLOCK_REALTIME", ClockKind.GPU_MAPPED)
    assert (state.status, state.assurance, state.quantum_ns) == (Status.LOCKED, Assurance.HARD, TICK)
    assert state.provenance == (
        "feasible set of test reads; assumes rate ≤ 50 ppm, wander ≤ 20 ppb/s, both bounded at 2 times that, "
        "ticks ≤ 64 ns; void 2 s after the last reading"
    )
    # The affine map of the state is that of the columns, and covers as much.
    assert state.rate_ppb is not None
    assert state.ref_ns is not None
    assert state.ref_parent_ns is not None
    host = HOST0 + 2_100_000_000 + np.arange(50) * 10_000_000
    reading = timer(host)
    mapped, bound = states.map(np.full(50, 39), reading)
    for stamp, at, limit, true in zip(
        reading.tolist(), mapped.tolist(), bound.tolist(), host.tolist(), strict=True
    ):
        by_state = (
            state.ref_parent_ns
            + (stamp - state.ref_ns)
            + round((stamp - state.ref_ns) * state.rate_ppb * 1e-9)
        )
        assert by_state == at
        assert state.bound_at(stamp) == limit
        assert abs(by_state - true) <= limit + TICK // 2


def test_beyond_the_horizon_nothing_is_known() -> None:
    got = mapper()
    states = got.add(reads())
    newest = int(states.newest_ns[-1])
    assert got.state(newest + 2 * 10**9).status == Status.LOCKED
    late = got.state(newest + 2 * 10**9 + 1)
    assert (late.status, late.bound_ns) == (Status.UNKNOWN, None)
    assert late.provenance == "test reads: more than 2 s from the last reading"
    bounds = states.map(np.array([39, 39]), newest + np.array([2 * 10**9, 2 * 10**9 + 1]))[1]
    assert (bounds != NONE).tolist() == [True, False]


def test_pieces_give_the_same_as_the_whole() -> None:
    whole = mapper().add(reads(60))
    parts = mapper()
    given = reads(60)
    got = [parts.add(Constraints(*(side[a : a + 7] for side in given))) for a in range(0, 60, 7)]
    for name in ("known", "epoch", "anchor_ns", "host_ns", "bound_ns", "growth_ppb"):
        assert np.concatenate([getattr(each, name) for each in got]).tolist() == getattr(whole, name).tolist()


def test_a_rate_beyond_the_limit_is_never_known() -> None:
    got = mapper()
    states = got.add(reads(200, ppb=120_000))
    assert not states.known[5:].any()
    assert states.broken.any()
    assert "contradicted" in str(got.state().provenance)


def test_a_reset_of_the_timer_begins_a_new_epoch() -> None:
    got = mapper()
    got.add(reads())
    at = HOST0 + 2 * 10**9 + np.arange(40) * 50_000_000
    states = got.add(brackets(at - 300, timer(at) - timer(at[:1]), at + 500, TICK))
    assert states.broken.tolist() == [True] + [False] * 39
    assert set(states.epoch.tolist()) == {1}
    # Known again after four steps and half a second.
    assert np.flatnonzero(states.known)[0] == 10
    error = np.abs(states.map(np.full(40, 39), timer(at) - timer(at[:1]))[0] - at)
    assert error.max() <= 400 + TICK


def test_a_small_step_of_the_host_is_seen_too() -> None:
    got = mapper()
    got.add(reads())
    at = HOST0 + 2 * 10**9 + np.arange(40) * 50_000_000
    states = got.add(brackets(at - 300 + 5_000, timer(at), at + 500 + 5_000, TICK))
    assert states.broken.tolist() == [True] + [False] * 39


def test_readings_that_go_back_contradict() -> None:
    got = mapper()
    got.add(reads())
    at = HOST0 + 2 * 10**9 + np.arange(3) * 50_000_000
    states = got.add(Constraints(*(side[::-1] for side in brackets(at - 300, timer(at), at + 500, TICK))))
    assert states.broken.any()


def test_settled_states_stand_until_enough_steps_have_passed() -> None:
    got = mapper()
    given = reads(40)
    given.upper_host[20:] += 5_000
    given.lower_host[20:] += 5_000
    states = got.add(given)
    assert np.flatnonzero(states.broken).tolist() == [20]
    stands = states.settled(4)
    assert np.flatnonzero(stands)[[0, -1]].tolist() == [3, 35]
    assert not stands[16:20].any()


def test_months_of_readings_keep_their_precision() -> None:
    got = mapper(Limits(confirm=4, relock_s=0.0, window_s=10.0, wander_ppb_s=1.0))
    for day in range(0, 200, 20):
        states = got.add(reads(40, HOST0 + day * 86_400 * 10**9))
    assert states.known[-1]
    last = HOST0 + 180 * 86_400 * 10**9 + np.array([39 * 50_000_000])
    error, bound = errors(states, 39, last)
    assert error[0] <= bound[0] < 480


@pytest.mark.parametrize(
    "wrong",
    [{"rate_ppb": 0.0}, {"wander_ppb_s": -1.0}, {"floor_ns": -1.0}, {"confirm": 1}, {"rate_ppb": 1e8}],
)
def test_limits_that_cannot_be_meant(wrong: dict[str, float]) -> None:
    with pytest.raises(Usage):
        Limits(**wrong)  # type: ignore[arg-type]


def test_nothing_given_is_nothing_known() -> None:
    none = np.empty(0, np.int64)
    assert len(mapper().add(Constraints(none, none, none, none)).known) == 0
    with pytest.raises(Usage):
        Mapper("h/gpu0", "h/CLOCK_REALTIME", 0)
