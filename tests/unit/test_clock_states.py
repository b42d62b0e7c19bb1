"""Clock states from samples: intervals, epochs, what ends them, and what becomes of a claim."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.columns import Assurance, Status
from schemas.columns import ClockKindOfRow as Kind
from schemas.errors import Usage
from schemas.time import NS
from streams.clock.known import Look, parent_name
from streams.clock.relation import NEVER, Declared, Relation, Sample
from streams.clock.states import States
from tests.clock_rows import T0, ntp, rows

DRIFT = 50_000
GM1, GM2 = "38f3ab.fffe.3d6281", "507c6f.fffe.1fb06c"


def best(states: States, at_ns: int, clock: str = "h/CLOCK_REALTIME") -> Any:
    found = seen(states, at_ns, clock).found
    assert found is not None
    return found[2]


def seen(states: States, at_ns: int, clock: str = "h/CLOCK_REALTIME", now_ns: int | None = None) -> Look:
    """A clock at a stamp, as seen at the end of its window."""
    found = states.look(clock, 0, at_ns, at_ns if now_ns is None else now_ns)
    assert found is not None
    return found


def test_a_bracket_is_a_hard_bound_that_grows() -> None:
    states = States()
    states.feed(rows({"offset_ns": -70}))
    state = best(states, T0)
    assert (state.bound_ns, state.as_of_ns, state.growth_ppb, state.assurance, state.status) == (
        570, T0, DRIFT, Assurance.HARD, Status.LOCKED,
    )  # fmt: skip
    assert "drift at most 50 ppm" in state.why


def test_each_sample_narrows_what_the_others_left() -> None:
    states = States()
    # 200 ± 100 then, a millisecond later, 390 ± 200: [190, 590] and [100 - 50, 300 + 50] leave [190, 350].
    states.feed(
        rows({"offset_ns": 200, "delay_ns": 200}, {"time_ns": T0 + 10**6, "offset_ns": 390, "delay_ns": 400})
    )
    assert best(states, T0 + NS).bound_ns == 350


def test_a_stamp_in_whole_seconds_may_be_a_second_off() -> None:
    states = States()
    # Both of one second: each counts, and each may have been taken up to a second later.
    states.feed(rows(ntp(0, 4000, quantum_ns=NS), ntp(500, 2000, quantum_ns=NS, time_ns=T0)))
    state = best(states, T0 + NS)
    assert state.bound_ns == 500 + 1000 + DRIFT


@pytest.mark.parametrize(
    ("then", "why"),
    [
        ({"offset_ns": 10_000_000}, "moved by 9949000 ns"),
        ({"offset_ns": 2**33 + 40}, f"wrapped by {2**33 + 40} ns"),
        ({"servo": 1, "offset_ns": 40}, "stepped by its daemon"),
        ({"kind": int(Kind.STATE), "text": "frequency 100000000 ppb at its limit"}, "frequency at its limit"),
        (
            {
                "kind": int(Kind.EVENT), "form": "phc2sys.clockcheck", "servo": None, "offset_ns": None,
                "text": "clockcheck: clock jumped forward or running faster than expected!",
            },
            "clockcheck: clock jumped forward or running faster than expected!",
        ),
    ],
)  # fmt: skip
def test_what_ends_an_epoch_is_carried_into_no_bound(then: dict[str, Any], why: str) -> None:
    states = States()
    states.feed(rows({}, then))
    found = seen(states, T0 + NS)
    assert (found.epoch, found.broke_ns, found.why[: len(why)]) == (1, T0 + NS, why)
    assert states.epochs == 1
    offset = then.get("offset_ns") or 0
    states.feed(rows({"time_ns": T0 + 2 * NS, "offset_ns": offset, "delay_ns": 600}))
    after = best(states, T0 + 2 * NS)
    assert (after.bound_ns, after.status) == (abs(offset) + 300, Status.LOCKED)
    assert seen(states, T0 + 2 * NS).epoch == 1


def test_unknown_while_stepped_or_at_the_limit() -> None:
    for then in ({"servo": 1}, {"kind": int(Kind.STATE), "text": "frequency 1e8 ppb at its limit"}):
        states = States()
        states.feed(rows({}, then))
        assert seen(states, T0 + NS).found is None


def test_another_master_is_another_measurement() -> None:
    line = {"clock": "h/ptp:0", "parent": None, "form": "ptp4l.servo"}
    master = {
        "clock": "h/ptp:0", "kind": int(Kind.EVENT), "form": "ptp4l.best_master", "servo": None, "offset_ns": None,
    }  # fmt: skip
    states = States()
    states.feed(rows({**master, "parent": GM1}, {**line, "offset_ns": 30}, {**master, "parent": GM2}))
    found = seen(states, T0 + 2 * NS, "h/ptp:0")
    assert (found.found, found.epoch, found.why) == (None, 1, f"another master: {GM2}")
    states.feed(rows({**line, "time_ns": T0 + 3 * NS, "offset_ns": 40}))
    after = seen(states, T0 + 3 * NS, "h/ptp:0").found
    assert after is not None
    assert after[0] == GM2
    # ptp4l prints a mean delay, not a bracket: what it says is a claim.
    assert (after[2].bound_ns, after[2].assurance) == (40 + 1000, Assurance.CLAIMED)


@pytest.mark.parametrize(
    ("parent", "name"),
    [
        ("10.77.0.1", "10.77.0.1"),
        ("2001:db8::1", "2001:db8::1"),
        (GM1, GM1),
        ("h/ptp:ptp4l.0.config", "h/ptp:ptp4l.0.config"),
        ("TAI", "TAI"),
        ("169.254.169.123", "h/169.254.169.123"),  # a cloud's time service: each machine meets its own
        ("127.0.0.1", "h/127.0.0.1"),
        ("fe80::1", "h/fe80::1"),
        ("PPS", "h/PPS"),
        ("pool.ntp.org", "h/pool.ntp.org"),
        (None, "h/CLOCK_REALTIME master"),
    ],
)
def test_only_what_is_one_clock_for_all_has_one_name(parent: str | None, name: str) -> None:
    assert parent_name("h/CLOCK_REALTIME", parent) == name


def test_holdover_grows_by_the_drift_and_is_void_after_long() -> None:
    states = States(Declared(drift_ppb=20_000, void_after_s=10))
    states.feed(rows({}, {"text": "holdover", "offset_ns": None}))
    state = best(states, T0 + 9 * NS)
    assert (state.bound_ns, state.growth_ppb, state.status) == (500, 20_000, Status.HOLDOVER)
    late = seen(states, T0 + 9 * NS, now_ns=T0 + 10 * NS + 1)
    assert (late.found, late.void_ns, late.broke_ns) == (None, T0 + 10 * NS, NEVER)


def test_ten_thousand_locked_samples_make_a_statistical_bound() -> None:
    relation = Relation()
    relation.tell(Status.LOCKED)
    sizes = np.abs(np.random.default_rng(3).normal(0, 100, 10_000)).astype(np.int64)
    for k, size in enumerate(sizes.tolist()):
        relation.take(Sample(T0 + k, size, 40, False, True, freq_ppb=float(k % 2)), Declared())
    state = relation.state(T0 + 10_000, T0 + 10_000, Declared())
    ranked = np.sort(sizes)
    assert state.bound_ns == int(np.ceil(ranked[-1] + 0.15 * ranked[-2] + 40))
    assert (state.assurance, state.epsilon, state.growth_ppb) == (Assurance.STATISTICAL, 1e-4, 1.5)
    relation.tell(Status.HOLDOVER)
    assert relation.state(T0 + 10_000, T0 + 10_000, Declared()).assurance == Assurance.CLAIMED


def test_what_proves_is_kept_before_what_is_narrow() -> None:
    narrow = Relation()
    narrow.tell(Status.LOCKED)
    for k in range(10_000):
        narrow.take(Sample(T0 + k, 10, 500 if k else 20, True, True), Declared())
    assert narrow.state(T0 + 10_000, T0 + 10_000, Declared()).assurance == Assurance.HARD
    lenient = narrow.state(T0 + 10_000, T0 + 10_000, Declared(epsilon_max=1e-3))
    assert (lenient.assurance, lenient.bound_ns) == (
        Assurance.HARD,
        31,
    )  # ε is allowed, but it is no narrower


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 60), st.integers(0, 60))
def test_a_snapshot_on_the_way_changes_nothing(seed: int, n: int, cut: int) -> None:
    rng = np.random.default_rng(seed)
    entries = []
    for _ in range(n):
        entry: dict[str, Any] = {"offset_ns": int(rng.normal(0, 300)), "freq_ppb": float(rng.normal(0, 5))}
        if rng.random() < 0.3:
            entry = ntp(int(rng.normal(0, 300)), 900, int(rng.integers(0, 500)))
        if rng.random() < 0.1:
            entry |= {"servo": int(rng.integers(0, 3))}
        if rng.random() < 0.1:
            entry |= {"offset_ns": int(rng.normal(0, 1e9))}
        entries.append(entry)
    whole = States()
    whole.feed(rows(*entries))
    first = States()
    first.feed(rows(*entries[:cut]))
    second = States.load(*first.dump())
    rest = rows(*[{"time_ns": T0 + k * NS} | entry for k, entry in enumerate(entries)][cut:])
    if cut < n:
        second.feed(rest)
    assert repr(second.dump()) == repr(whole.dump())
    for states in (whole, second):
        states.feed(None)  # the next window: what was before an epoch is remembered for its own alone
    for at in (T0, T0 + n * NS, T0 + 2000 * NS):
        assert repr(second.look("h/CLOCK_REALTIME", 0, at, at)) == repr(
            whole.look("h/CLOCK_REALTIME", 0, at, at)
        )


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32))
def test_the_hard_bound_is_never_smaller_than_the_truth(seed: int) -> None:
    rng = np.random.default_rng(seed)
    t = np.sort(rng.uniform(0, 100, 80))
    rate = rng.uniform(-0.9, 0.9) * DRIFT
    truth = rng.normal(0, 1e5) + rate * t + 1000 * np.sin(t / 3)  # at most 333 ppb more
    states = States()
    for moment, offset in zip(t.tolist(), truth.tolist(), strict=True):
        there, back = rng.exponential(3000.0, 2)
        measured, delay = round(offset + (there - back) / 2), int(np.ceil(there + back)) + 2
        states.feed(rows(ntp(measured, delay, time_ns=T0 + int(moment * NS))))
        age = float(rng.uniform(0, 5))
        at = T0 + int((moment + age) * NS)
        state = best(states, at)
        later = offset + rate * age
        assert state.assurance == Assurance.HARD
        assert abs(later) - 1100 <= state.bound_ns + state.growth_ppb * 1e-9 * (at - state.as_of_ns)
        assert states.epochs == 0


@pytest.mark.parametrize("wrong", [{"drift_ppb": 0.0}, {"void_after_s": 0.0}, {"epsilon_max": 2.0}])
def test_declarations_that_cannot_be_meant(wrong: dict[str, float]) -> None:
    with pytest.raises(Usage):
        Declared(**wrong)
