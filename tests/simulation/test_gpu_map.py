"""The experiment gpu-map, small: its limits hold; and the simulated timer is what it says."""

import json
from typing import Any

import numpy as np
import pytest

from producers.sim import gputimer
from tempotrace import cli, gpu_experiment
from tempotrace.clockwork import seeded

SEED = 11
Result = dict[str, Any]


@pytest.fixture(scope="module")
def result() -> Result:
    return gpu_experiment.run(gpu_experiment.Settings(maps=60, events=300, seed=SEED))


def test_no_bound_is_false(result: Result) -> None:
    assert (result["maps"], result["events"]) == (60, 18_000), SEED
    assert (result["map_violations"], result["event_violations"]) == (0, 0), SEED
    assert [case["unknown"] for case in result["cases"]] == [0] * len(result["cases"]), SEED
    for case in result["cases"]:
        half_tick = max(gputimer.TICKS[case["ticks"]]) / 2
        assert case["event_bound_ns"] == case["map_bound_ns"] + half_tick


def test_the_set_is_narrower_than_the_brackets(result: Result) -> None:
    assert max(case["width_over_narrowest_max"] for case in result["cases"]) <= 1.0, SEED
    loud = [case for case in result["cases"] if case["jitter"] == "congested"]
    assert [case["loud_maps"] for case in loud] == [case["maps"] for case in loud]
    assert max(case["loud_width_over_median_max"] for case in loud) <= 0.5, SEED


def test_no_order_is_wrong_beyond_the_printed_bound(result: Result) -> None:
    oldest = [entry for entry in result["age"] if entry["age_s"] == 64]
    assert len(oldest) == len(gputimer.TICKS)
    assert all(entry["pairs_apart"] > 50 for entry in oldest)
    assert sum(entry["inverted_apart"] + entry["bound_violations"] for entry in result["age"]) == 0, SEED
    # One offset taken at the start does get them wrong.
    assert all(entry["inverted_share_by_one_offset"] > 0.1 for entry in oldest)


def test_beyond_the_limits_it_says_unknown_and_is_not_wrong(result: Result) -> None:
    assert sum(entry["wrong"] for entry in result["overdriven"]) == 0, SEED
    for entry in result["overdriven"]:
        if entry["limit"].startswith("rate") or entry["factor"] >= 30:
            assert entry["maps_seen"] >= 0.9 * entry["maps"], entry
            assert entry["unknown_share"] > 0.5, entry


def test_nic_stamps_meet_the_design_target_in_the_simulation(result: Result) -> None:
    by = {(entry["ticks"], entry["method"]): entry for entry in result["residuals"]}
    fine = [ticks for ticks, steps in gputimer.TICKS.items() if max(steps) <= 128]
    assert [by[ticks, "NIC stamps"]["std_ns"] <= 56 for ticks in fine] == [True] * 4, SEED
    assert all(2_000 < by[ticks, "software correlation"]["std_ns"] < 2_500 for ticks in fine)
    assert sum(entry["bound_violations"] or 0 for entry in result["residuals"]) == 0


def test_a_seed_gives_the_same_again() -> None:
    small = gpu_experiment.Settings(maps=20, events=20, seed=3)
    assert gpu_experiment.run(small) == gpu_experiment.run(small)


def test_the_command_prints_one_object_or_tables(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["clock", "experiment", "gpu-map", "--maps", "20", "--events", "20"]
    assert cli.run([*asked, "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert (printed["simulated"], printed["maps"], printed["parameters"]["seed"]) == (True, 20, 1)
    assert cli.run(asked) == 0
    assert "Simulated: 20 maps, 400 events; false bounds of the map 0, of events 0" in capsys.readouterr().out
    assert cli.run([*asked, "--wander", "0"]) == 2


@pytest.mark.parametrize("ticks", list(gputimer.TICKS))
def test_the_timer_holds_its_ticks_rate_and_wander(ticks: str) -> None:
    timer = gputimer.Timer.draw(seeded(SEED), ticks, 20.0, 100.0)
    fine = np.arange(0, 20_000_000, 7)
    read = timer.read(fine)
    steps = np.diff(np.unique(read))
    assert set(steps.tolist()) == set(gputimer.TICKS[ticks])
    assert ((timer.exact(fine) - read >= 0) & (timer.exact(fine) - read < timer.tick_ns)).all()
    host = np.arange(0, 100_000, 250) * 1_000_000
    ahead = (timer.exact(host) - timer.start_ns - host).astype(float)
    rate = np.diff(ahead) / 0.25
    assert np.abs(np.mean(rate)) > 3_000
    assert np.max(np.abs(np.diff(rate))) / 0.25 <= 20.0 + 50  # readings to 1 ns blur a second difference
