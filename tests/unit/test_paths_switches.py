"""Ticks, offsets and plausible latencies of switches, against made switches whose clocks are known."""

import json

import numpy as np
import pytest

from schemas import columns as c
from schemas.pack import Strings
from streams.paths.hops import ENDS, INTS, Hops
from streams.paths.offsets import closure
from streams.paths.switches import Switches, SwitchUnits, by_flow
from tests.switch_world import BOTH, MS, START_NS, S, Switch, World, mixed, table, traffic


def test_ticks_are_found_and_offsets_hold_the_truth() -> None:
    world, switches = mixed(), Switches()
    for number in range(12):
        traffic(world, number, BOTH)
        found = world.window(switches, number)
        end = START_NS + (number + 1) * 100 * MS
        if number < 1:
            continue
        for pair in ((1, 2), (2, 3)):
            row = found[pair]
            assert row["status"] == c.Status.FREERUN
            assert abs(row["offset_ns"] - world.offset(*pair, end)) <= row["bound_ns"] < 25_000
            assert row["max_ns"] - row["min_ns"] <= 2 * row["bound_ns"] <= row["max_ns"] - row["min_ns"] + 1
            if number >= 2:
                true = world.switches[pair[1]].ppm * 1e3 - world.switches[pair[0]].ppm * 1e3
                assert abs(row["rate_ppb"] - true) <= row["rate_bound_ppb"]
    assert found[2, 3]["rate_bound_ppb"] < 50_000
    for node, switch in world.switches.items():
        row = found[node]
        assert (row["unit_ns"], row["unit_source"]) == (switch.tick_ns, c.UnitSource.ESTIMATED)
        assert (row["latency_unit_ns"], row["latency_source"]) == (switch.tick_ns, c.UnitSource.ESTIMATED)
        # The zero as the clock's rate has it, never earlier than it was, less the tick that was under way.
        rate_ns = switch.own(end) - (end - switch.zero_ns)
        assert -abs(rate_ns) - switch.tick_ns <= row["zero_max_ns"] - switch.zero_ns <= abs(rate_ns) + 600_000
        assert row["epoch"] == 0
        assert (row["hops"], row["implausible"], row["unchecked"]) == (40, 0, 0)


def test_one_direction_leaves_one_side_open() -> None:
    world, switches = mixed(), Switches()
    for number in range(3):
        traffic(world, number, [[1, 2, 3]])
        found = world.window(switches, number)
    end = START_NS + 300 * MS
    for pair in ((1, 2), (2, 3)):
        row = found[pair]
        assert row["status"] == c.Status.UNKNOWN
        assert (row["min_ns"], row["offset_ns"], row["bound_ns"]) == (None, None, None)
        assert world.offset(*pair, end) <= row["max_ns"] <= world.offset(*pair, end) + 50_000
    # Without a way back no round trip is known, so nothing can be called implausible.
    assert [found[node]["unchecked"] for node in (1, 2, 3)] == [20, 20, 20]


def test_a_latency_beyond_the_round_trip_is_implausible() -> None:
    world, switches = mixed(), Switches()
    for number in range(2):
        traffic(world, number, BOTH)
        world.window(switches, number)
    traffic(world, 2, BOTH, latency={1: 50_000})  # 50 ms in the spine's µs
    hops = world.hops()
    columns, latency = switches.window(hops, START_NS + 300 * MS)
    found = table(columns)
    assert [found[node]["implausible"] for node in (1, 2, 3)] == [0, 40, 0]
    assert found[2]["latency_ns"] is None
    assert (latency == c.NULL_I64).all()
    traffic(world, 3, BOTH)
    columns, latency = switches.window(world.hops(), START_NS + 400 * MS)
    assert table(columns)[2]["latency_ns"] % 1000 == 0
    assert ((latency > 0) & (latency < 40_000)).all()
    assert by_flow(latency, np.zeros(len(latency), np.int64), 2).tolist() == [
        int(np.sort(latency)[(len(latency) - 1) // 2]), c.NULL_I64,
    ]  # fmt: skip


def test_what_is_configured_holds_from_the_first_packet() -> None:
    world = mixed()
    units = [SwitchUnits(1, 1.0, 1.0, world.switches[1].zero_ns), SwitchUnits(2, 1000.0, 1000.0)]
    switches = Switches(units)
    world.packet([1, 2], START_NS)
    world.packet([2, 1], START_NS + 1000)
    found = world.window(switches, 0)
    assert [found[node]["unit_source"] for node in (1, 2)] == [c.UnitSource.CONFIGURED] * 2
    assert (found[1]["zero_ns"], found[2]["zero_ns"]) == (world.switches[1].zero_ns, None)
    assert abs(found[1, 2]["offset_ns"] - world.offset(1, 2, START_NS + 100 * MS)) <= found[1, 2]["bound_ns"]


def test_a_tick_that_nothing_fits_stays_unknown() -> None:
    world, switches = World({1: Switch(START_NS - S, 3), 2: Switch(START_NS - S)}), Switches()
    for number in range(4):
        traffic(world, number, [[1, 2], [2, 1]])
        found = world.window(switches, number)
    assert np.isnan(found[1]["unit_ns"])
    assert found[1]["unit_source"] == found[1]["latency_source"] == c.UnitSource.UNKNOWN
    assert (found[2]["unit_ns"], (1, 2) in found) == (1.0, False)
    assert (found[1]["latency_ns"], found[1]["hops"], found[1]["unchecked"]) == (None, 40, 0)


@pytest.mark.parametrize("stamp", [0, c.NULL_I64, -1, 2**62])
def test_stamps_that_measure_nothing_are_passed_over(stamp: int) -> None:
    world, switches = mixed(), Switches()
    every = dict.fromkeys(range(3), stamp)
    for number in range(3):
        traffic(world, number, BOTH, ingress_ts=every)
        found = world.window(switches, number)
    assert [found[node]["unit_ns"] for node in (1, 2, 3)] == [1, 1000, 8]
    end = START_NS + 300 * MS
    assert abs(found[1, 2]["offset_ns"] - world.offset(1, 2, end)) <= found[1, 2]["bound_ns"]
    assert found[1]["left_out_ns"] is None


def test_a_restart_begins_an_epoch_and_no_offset_crosses_it() -> None:
    world, switches = mixed(), Switches()
    for number in range(3):
        traffic(world, number, BOTH)
        world.window(switches, number)
    world.switches[2] = Switch(START_NS + 250 * MS, 1000, -30.0)
    traffic(world, 3, BOTH)
    found = world.window(switches, 3)
    assert [found[node]["epoch"] for node in (1, 2, 3)] == [0, 1, 0]
    end = START_NS + 400 * MS
    for pair in ((1, 2), (2, 3)):
        assert abs(found[pair]["offset_ns"] - world.offset(*pair, end)) <= found[pair]["bound_ns"]


@pytest.mark.parametrize("late", [False, True])
def test_stamps_of_32_bits_wrap_into_a_new_epoch(late: bool) -> None:
    """Also where a stamp from before the wrap comes last."""
    world, switches = World({1: Switch(START_NS - 4_044_967_296), 2: Switch(START_NS - S)}), Switches()
    for number in range(4):  # switch 1 wraps 250 ms after the start
        for k in range(20):
            for path in ([1, 2], [2, 1]):
                world.packet(path, START_NS + number * 100 * MS + k * 5 * MS)
        for row in world.rows:
            for name in ("ingress_ts", "egress_ts"):
                row[name] %= 2**32
        if late and number == 2:
            world.rows[0]["time"] = world.rows[1]["time"] = START_NS + 299 * MS
        found = world.window(switches, number)
    assert [found[node]["epoch"] for node in (1, 2)] == [1, 0]
    assert [found[node]["unit_ns"] for node in (1, 2)] == [1, 1]
    true = world.offset(1, 2, START_NS + 400 * MS) + 2**32
    assert abs(found[1, 2]["offset_ns"] - true) <= found[1, 2]["bound_ns"] < 25_000


def test_a_clock_that_jumps_ahead_begins_an_epoch() -> None:
    world, switches = mixed(), Switches()
    for number in range(3):
        traffic(world, number, BOTH)
        world.window(switches, number)
    world.switches[2].zero_ns -= 3600 * S
    traffic(world, 3, BOTH)
    found = world.window(switches, 3)
    assert [found[node]["epoch"] for node in (1, 2, 3)] == [0, 1, 0]
    assert abs(found[1, 2]["offset_ns"] - world.offset(1, 2, START_NS + 400 * MS)) <= found[1, 2]["bound_ns"]


def test_a_clock_that_was_set_is_told_and_the_older_side_dropped() -> None:
    world, switches = mixed(), Switches()
    for number in range(3):
        traffic(world, number, BOTH)
        world.window(switches, number)
    world.switches[1] = Switch(world.switches[1].zero_ns + 5 * MS)  # 5 ms back
    traffic(world, 3, [[2, 1]])
    found = world.window(switches, 3)
    assert (found[1, 2]["status"], found[1, 2]["max_ns"], found[1, 2]["bound_ns"]) == (
        c.Status.STEPPED,
        None,
        None,
    )
    assert [(found[node]["implausible"], found[node]["unchecked"]) for node in (1, 2)] == [(0, 20)] * 2
    traffic(world, 4, BOTH)
    found = world.window(switches, 4)
    end = START_NS + 500 * MS
    assert abs(found[1, 2]["offset_ns"] - world.offset(1, 2, end)) <= found[1, 2]["bound_ns"]
    assert [(found[node]["implausible"], found[node]["unchecked"]) for node in (1, 2)] == [(0, 0)] * 2


def test_round_trips_go_through_other_switches() -> None:
    """Traffic in a ring: no packet goes the way of another back, yet every path has a round trip."""
    world = World({node: Switch(START_NS - node * S) for node in (1, 2, 3, 10, 11)})
    switches = Switches()
    for number in range(2):
        traffic(world, number, [[1, 10, 2], [2, 11, 3], [3, 10, 1]])
        found = world.window(switches, number)
    assert {found[node]["unchecked"] for node in world.switches} == {0}
    assert (found[1, 10]["status"], found[2, 10]["status"]) == (c.Status.FREERUN, c.Status.UNKNOWN)


def test_the_tightest_chain_of_bounds_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    bounds = [(1, 2, 5), (2, 3, -2), (1, 3, 9), (3, 1, 4), (1, 2, 6)]
    wanted = [(1, 2), (1, 3), (2, 1), (3, 2), (2, 2), (1, 4)]
    assert closure(bounds, wanted) == [5, 3, 2, 9, 7, None]
    assert closure([(1, 2, 5), (2, 1, -6)], wanted) is None
    monkeypatch.setattr("streams.paths.offsets.SEARCHED_MAX", 2)
    assert closure(bounds, wanted) == [5, 9, None, None, None, None]


def test_what_latency_leaves_out_is_measured() -> None:
    world, switches = World({1: Switch(START_NS - S), 2: Switch(START_NS - S)}), Switches()
    for number in range(3):
        traffic(world, number, [[1, 2], [2, 1]])
        for row in world.rows:
            row["latency"] -= 250
        found = world.window(switches, number)
    assert [found[node]["left_out_ns"] for node in (1, 2)] == [250, 250]


def test_state_comes_back_and_is_forgotten() -> None:
    world, switches = mixed(), Switches()
    for number in range(3):
        traffic(world, number, BOTH)
        world.window(switches, number)
    again = Switches()
    again.load(json.loads(json.dumps(switches.dump())))
    assert again.dump() == switches.dump() != Switches().dump()
    traffic(world, 3, BOTH)
    hops = world.hops()
    one, two = (each.window(hops, START_NS + 400 * MS) for each in (switches, again))
    assert {n: v.tobytes() for n, v in one[0].items()} == {n: v.tobytes() for n, v in two[0].items()}
    assert one[1].tolist() == two[1].tolist()
    switches.forget(START_NS + S)
    assert switches.dump() == Switches().dump()


@pytest.mark.parametrize("unit_ns", [None, 1.0, 1000.0, 6.4])
def test_any_numbers_are_taken(unit_ns: float | None) -> None:
    rng = np.random.default_rng(1)
    switches = Switches([SwitchUnits(node, unit_ns, unit_ns) for node in (1, 2, 3)])
    pool = np.array([c.NULL_I64, -1, 0, 1, 2, 1000, 2**32 - 1, 2**48, 2**61, 2**63 - 1])
    for number in range(200):
        n = int(rng.integers(1, 30))
        column = {name: rng.choice(pool, n) for name in (*INTS, *ENDS)}
        column["node"] = rng.choice([c.NULL_I64, 1, 2, 3, 2**32 - 2], n)
        column["latency"] = rng.choice([c.NULL_I64, 0, 5, 2**32 - 2], n)
        column["hop"] = rng.integers(0, 3, n)
        report = np.sort(rng.integers(0, 9, n))
        hops = Hops(
            Strings(),
            report,
            rng.integers(0, 4, n).astype(np.uint64),
            START_NS + rng.integers(0, S, n),
            column,
        )
        columns, latency = switches.window(hops, START_NS + number * S)
        assert len(latency) == len(np.unique(report))
        assert set(columns.get("node_id", np.empty(0)).tolist()) == set(column["node"].tolist()) - {
            c.NULL_I64
        }
    json.dumps(switches.dump())
