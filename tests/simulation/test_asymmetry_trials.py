"""Correction and blame on simulated fabrics, held to the limits of the design; a failure names its seed."""

import json

import pytest

from tempotrace import asymmetry_trial
from tempotrace.asymmetry_trial import Fabric
from tempotrace.cli import run
from tempotrace.clockwork import seeded


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("fabric", [Fabric(), Fabric(3, 2, 2), Fabric(6, 4, 1)])
def test_matched_residence_leaves_propagation_and_ticks(fabric: Fabric, seed: int) -> None:
    row = asymmetry_trial.correction(fabric, 4000, 1.0, seeded(seed))
    assert row["before_p95_ns"] > 5 * row["limit_ns"], seed
    assert row["matched_p95_ns"] <= row["limit_ns"], seed
    assert row["bound_holds"] == 1.0, seed


@pytest.mark.parametrize("seed", range(3))
def test_estimates_keep_within_their_bound_as_often_as_they_say(seed: int) -> None:
    row = asymmetry_trial.correction(Fabric(), 4000, 0.0, seeded(seed))
    assert row["matched_p95_ns"] is None
    # A direction's own residence is beyond the range of 12 others with 2/13; both ways together rarely are.
    assert row["bound_holds"] > 0.98, seed
    assert row["estimated_p95_ns"] < row["before_p95_ns"], seed


@pytest.mark.parametrize("share", [1.0, 0.0])
def test_blame_falls_on_the_right_class_and_on_no_healthy_link(share: float) -> None:
    result = asymmetry_trial.blame(Fabric(), 250, asymmetry_trial.EXCHANGES, share, seeded(11), lambda: None)
    assert result["faultless"] == 50
    assert result["false_blame"] <= 0.02
    for row in result["curve"]:
        assert row["class_hit"] + row["wrong"] + row["silent"] == pytest.approx(1.0)
        if row["times_queue_sigma"] >= 5:
            assert row["class_hit"] >= 0.995
    if share == 0.0:
        # Half a queue's σ drowns in three queues a path: silence, not guesses.
        assert result["curve"][0]["silent"] > 0.95


def test_the_command_as_json(capsys: pytest.CaptureFixture[str], tmp_path: object) -> None:
    command = ["clock", "experiment", "asymmetry", "--json", "--trials", "20", "--plot", f"{tmp_path}/a.html"]
    assert run(command) == 0
    result = json.loads(capsys.readouterr().out)
    assert (result["fabric"]["leaves"], result["fabric"]["spines"], result["simulated"]) == (4, 3, True)
    assert [row["times_queue_sigma"] for row in result["blame"][0]["curve"]] == list(asymmetry_trial.TIMES)
    assert [each["size"] for each in result["classes"]].count(2) == 8
    assert result["correction"][0]["matched_within"] is True
