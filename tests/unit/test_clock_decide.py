"""What the merge applies to a stated clock: claims that give way, that are widened, and that stand."""

from dataclasses import replace
from typing import Any

import numpy as np

from schemas.columns import Assurance, ClockKind, Status, Timescale
from schemas.draft import Draft
from schemas.pack import Head, SeqBook, Source
from schemas.time import NS, TAI, ClockState
from streams.clock.apply import applied
from streams.clock.book import UNKNOWN, ClockBook
from streams.clock.known import Told
from streams.clock.states import States
from tests.clock_rows import T0, ntp, rows

CLAIM = ClockState(
    clock_id="h/CLOCK_REALTIME", parent=TAI, kind=ClockKind.NTP, status=Status.LOCKED, timescale=Timescale.UTC,
    bound_ns=5_000_000, as_of_ns=T0 - 37 * NS, growth_ppb=500_000.0, provenance="kernel: maxerror",
)  # fmt: skip


def slots_of(book: ClockBook, *stated: tuple[ClockState, ...]) -> np.ndarray[Any, np.dtype[np.int32]]:
    """Slots of stamps on the first clock of each chain."""
    draft = Draft(Head("t", "s", "p", "probe"), SeqBook())
    for number, (clock, *parents) in enumerate(stated):
        source = Source(f"s{number}", "h", clock, 1)
        draft.row(source, T0, kind=0)
        for parent in parents:
            draft.parent(parent)
    return book.slots_of(draft.build())


def judged(book: ClockBook, slots: Any, states: States, at_ns: int) -> Any:
    """What holds of stamps at a time, in a window that ends there."""
    return applied(book, slots, np.full(len(slots), at_ns, np.int64), states, at_ns)


def test_a_claim_gives_way_to_what_was_measured() -> None:
    book, states = ClockBook(), States()
    other = replace(CLAIM, clock_id="g/CLOCK_REALTIME")
    stated = slots_of(book, (CLAIM,), (other,))
    states.feed(rows(ntp(1000, 20_000), ntp(-2000, 30_000, clock="g/CLOCK_REALTIME", time_ns=T0)))
    at = np.array([T0, T0])
    before = book.diff_bound(stated[:1].astype(np.int64), at[:1], stated[1:].astype(np.int64), at[1:], 1e-6)
    assert (before.bound_ns.tolist(), before.assured.tolist()) == ([10_000_000], [False])
    held, counts = judged(book, stated, states, T0)
    assert counts == {"clocks_decided": 2, "claims_widened": 0}
    # Both were measured against 10.0.0.1, so they meet there, and that proves.
    after = book.diff_bound(held[:1].astype(np.int64), at[:1], held[1:].astype(np.int64), at[1:], 1e-6)
    assert (after.bound_ns.tolist(), after.assured.tolist()) == ([11_000 + 17_000], [True])
    # To TAI it is the claim still, no wider than before, and it says where it comes from.
    assert book.bound_at(held, at).tolist() == [5_000_000, 5_000_000]
    assert book.bound_at(held, at + NS).tolist() == [5_500_000, 5_500_000]
    assert "claimed 5000000 ns (kernel: maxerror)" in str(book.rows[held[0]][0][-1])
    assert book.map_of(held)[3].all()
    # Until the next sample the state is the same slot; other clocks are left alone.
    again, counts = judged(book, stated, states, T0 + NS // 2)
    assert (again.tolist(), counts) == (held.tolist(), {})
    kept, _ = judged(book, np.array([-1], np.int32), states, T0)
    assert kept.tolist() == [-1]


def test_a_measured_parent_that_the_batch_knows_keeps_its_own_chain() -> None:
    book, states = ClockBook(), States()
    phc = ClockState(
        "h/ptp0", parent="gm", timescale=Timescale.TAI, bound_ns=90, assurance=Assurance.HARD, provenance="x"
    )
    system = replace(CLAIM, parent="h/ptp0")
    stated = slots_of(book, (system, phc), (phc,))
    states.feed(rows({"parent": "h/ptp0", "offset_ns": 100, "delay_ns": 400}))
    held, _ = judged(book, stated, states, T0)
    at = np.array([T0])
    bound = book.diff_bound(held[:1].astype(np.int64), at, held[1:].astype(np.int64), at, 1e-6)
    assert (bound.bound_ns.tolist(), bound.assured.tolist()) == ([300], [True])
    assert held[1] == stated[1]


def test_a_statement_that_a_sample_contradicts_is_widened_and_proves_nothing() -> None:
    book, states = ClockBook(), States()
    sure = replace(CLAIM, bound_ns=1000, growth_ppb=0.0, assurance=Assurance.HARD)
    exact = replace(sure, clock_id="g/CLOCK_REALTIME")
    stated = slots_of(book, (sure,), (exact,))
    at = np.array([T0])
    states.feed(rows(ntp(50_000, 20_000, root=300)))
    held, counts = judged(book, stated, states, T0)
    assert counts == {"clocks_decided": 1, "claims_widened": 1}
    assert held[1] == stated[1]
    bound = book.diff_bound(held[:1].astype(np.int64), at, held[1:].astype(np.int64), at, 1e-6)
    assert (bound.bound_ns.tolist(), bound.assured.tolist()) == ([60_000 + 300 + 1000], [False])
    told = str(book.rows[held[0]][0][-1])
    assert told.startswith("widened: it was off by 39700 ns at least, against what was claimed 1000 ns")
    # A sample that its claim allows changes nothing.
    calm, fresh = States(), ClockBook()
    stated = slots_of(fresh, (sure,))
    calm.feed(rows(ntp(9_000, 20_000, root=300)))
    assert judged(fresh, stated, calm, T0)[0].tolist() == stated.tolist()


def test_a_corrected_clock_is_not_judged_by_its_readings() -> None:
    book, states = ClockBook(), States()
    mapped = replace(CLAIM, ref_ns=5, ref_parent_ns=T0, rate_ppb=0.0)
    stated = slots_of(book, (mapped,))
    states.feed(rows(ntp(0, 20_000)))
    assert judged(book, stated, states, T0)[0].tolist() == stated.tolist()


def test_a_void_measurement_leaves_a_claim_of_since_then_alone() -> None:
    book, states = ClockBook(), States()
    fresh = replace(CLAIM, as_of_ns=T0 - 37 * NS + 1500 * NS)
    stated = slots_of(book, (CLAIM,), (fresh,))
    states.feed(rows(ntp(0, 20_000)))
    held, _ = judged(book, stated, states, T0)
    assert [str(book.rows[slot][0][-1])[:8] for slot in held] == ["measured", "measured"]
    late = np.full(2, T0 + 2000 * NS)
    held, _ = judged(book, stated, states, T0 + 2000 * NS)
    assert book.bound_at(held, late).tolist() == [UNKNOWN, 5_000_000 + 500 * 500_000]
    assert str(book.rows[held[0]][0][-1]).startswith("unknown: its samples are too old; claimed 5000000 ns")
    assert held[1] == stated[1]


def test_a_told_step_ends_what_was_stated_and_measured_before_it() -> None:
    book, states = ClockBook(), States()
    sure = replace(CLAIM, bound_ns=900, growth_ppb=0.0, assurance=Assurance.HARD)
    fresh = replace(CLAIM, as_of_ns=T0 - 37 * NS + 3 * NS)
    stated = slots_of(book, (sure,), (CLAIM,), (fresh,))
    step = {"servo": 1, "offset_ns": None, "parent": "10.0.0.1"}
    states.feed(rows(ntp(0, 200), {"time_ns": T0 + 2 * NS} | step))
    at = np.repeat(T0 + np.array([0, 1, 2]) * NS, 3)
    held, _ = applied(book, np.tile(stated, 3), at, states, T0 + 4 * NS)
    told = [str(book.rows[slot][0][-1]).split("; claimed")[0] for slot in held]
    measured = "measured: two-way exchanges, drift at most 50 ppm, no untold step since the last"
    torn = "unknown: of which epoch is not known (stepped by its daemon)"
    lost = "unknown: stepped by its daemon, and not measured since"
    assert told[:6] == [str(book.rows[stated[0]][0][-1]), measured, measured, torn, torn, torn]
    assert told[6:] == [lost, lost, "kernel: maxerror"]
    # Errors cancel within an epoch: not across it, and with what is torn not at all.
    a, b = np.array([1, 4, 7, 8, 1]), np.array([2, 4, 8, 8, 7])
    slots = held.astype(np.int64)
    bounds = book.diff_bound(slots[a], at[a], slots[b], at[b], 1e-6)
    assert bounds.bound_ns.tolist() == [2, UNKNOWN, 2, 2, UNKNOWN]


def test_a_statement_of_a_new_epoch_ends_what_was_measured() -> None:
    book, states = ClockBook(), States()
    later = replace(CLAIM, epoch=1, as_of_ns=T0 - 37 * NS)
    stated = slots_of(book, (CLAIM,), (later,))
    assert book.counted == {int(stated[1]): [("h/CLOCK_REALTIME", 1)]}
    states.feed(rows(ntp(0, 200)))
    # Rows of an epoch that was not told yet, as those in windows ahead.
    assert [str(book.rows[slot][0][-1])[:8] for slot in judged(book, stated, states, T0)[0]] == [
        "measured",
        "kernel: ",
    ]
    states.feed(None, [Told(T0 + NS, "h/CLOCK_REALTIME", 1)])
    held, _ = judged(book, stated, states, T0 + NS)
    assert [str(book.rows[slot][0][-1])[:8] for slot in held] == ["kernel: ", "kernel: "]
    states.feed(rows(ntp(0, 200, time_ns=T0 + 2 * NS), ntp(0, 400, time_ns=T0 + 3 * NS, stated=1)))
    held, _ = judged(book, stated, states, T0 + 3 * NS)
    assert [str(book.rows[slot][0][-1])[:8] for slot in held] == ["kernel: ", "measured"]
    assert book.rows[held[1]][0][11] == 200  # by the sample that is of this epoch for sure
    assert [book.rows[slot][0][1] for slot in held] == [0 | 1 << 16, 1 | 1 << 16]


def test_decided_states_survive_a_snapshot_and_compaction() -> None:
    book, states = ClockBook(), States()
    stated = slots_of(book, (CLAIM,))
    states.feed(rows(ntp(0, 20_000)))
    held, _ = judged(book, stated, states, T0)
    meta, arrays = book.dump()
    again = ClockBook.load(meta, arrays)
    found, counts = judged(again, stated, states, T0)
    assert (found.tolist(), counts) == (held.tolist(), {})
    new = again.compact(np.array([int(held[0])], np.int64))
    assert again.bound_at(new[held], np.array([T0])).tolist() == book.bound_at(held, np.array([T0])).tolist()
    assert again.bound_at(new[held], np.array([T0]))[0] != UNKNOWN
