"""Simulated jobs through merge and diagnosis: the faults that were put in are the incidents, and no other."""

from typing import Any

import pytest

from producers.sim import job
from tests.simulation.pipeline import Run, run

SEEDS = range(1, 11)
FEW = range(21, 23)


def right(found: Run) -> None:
    """Each fault is an incident, there is no other, and none of them is only a suspicion."""
    assert sorted(incident.component for incident in found.incidents) == sorted(found.faults())
    by_component = {fault["component"]: fault for fault in found.truth["faults"]}
    for incident in found.incidents:
        fault = by_component[incident.component]
        want = "straggler" if fault["class"] == "straggler" else "clock_fault"
        assert (incident.fault_class, incident.component_kind) == (want, fault["component_kind"])
        assert incident.confidence >= 0.8
        # The evidence that first shows it: not before the fault, and within half a second after.
        assert 0 <= incident.onset_ns - fault["onset_ns"] < 500_000_000
        if want == "clock_fault":
            evidence = found.evidence(incident)
            assert evidence["offset_low_ns"] <= fault["size"] <= evidence["offset_high_ns"]


@pytest.mark.parametrize("seed", SEEDS)
def test_a_straggler_and_a_clock_fault_are_told_apart(seed: int) -> None:
    found = run("straggler+clock-fault", seed)
    assert len(found.faults()) == 2
    right(found)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_healthy_job_has_no_incident(seed: int) -> None:
    assert run("healthy", seed).findings == []


@pytest.mark.parametrize("scenario", ["straggler", "clock-fault"])
@pytest.mark.parametrize("seed", FEW)
def test_one_fault_alone(scenario: str, seed: int) -> None:
    right(run(scenario, seed))


@pytest.mark.parametrize(
    "faults",
    [
        ("clock_step:host1:-250us@1s",),
        ("clock_step:host1:20us@1s",),
        ("clock_offset:host2:80us",),
        ("clock_step:host1:250us@1s", "clock_step:host3:-400us@1s"),
        ("straggler:rank5:30%@1s", "clock_step:host1:250us@1500ms"),  # a rank of the host whose clock it is
        ("straggler:rank3:10%@1s",),
        ("straggler:rank3:30%@500ms", "straggler:rank12:20%@500ms"),  # the second is never the last
        ("straggler:rank3:30%@500ms", "straggler:rank12:30%@1s"),
    ],
)
@pytest.mark.parametrize("seed", FEW)
def test_other_faults(faults: tuple[str, ...], seed: int) -> None:
    right(run("healthy", seed, faults=faults))


@pytest.mark.parametrize("seed", FEW)
@pytest.mark.parametrize(
    "size", [{"ranks": 8, "hosts": 8}, {"ranks": 32, "hosts": 4, "seconds": 2.5}], ids=str
)
def test_other_sizes(size: dict[str, Any], seed: int) -> None:
    right(run("straggler+clock-fault", seed, **size))


@pytest.mark.parametrize("seed", FEW)
@pytest.mark.parametrize("order", [(2, 0, 3), (0, 2, 0, 2, 3), (3, 2, 0)], ids=str)
def test_other_orders_of_groups(order: tuple[int, ...], seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no barrier of all follows, ranks are late because of others: they are victims, not stragglers."""
    monkeypatch.setattr(job, "PHASES", tuple(job.PHASES[place] for place in order))
    right(run("straggler+clock-fault", seed))


@pytest.mark.parametrize("seed", FEW)
def test_two_hosts_may_accuse_each_other(seed: int) -> None:
    found = run("clock-fault", seed, ranks=8, hosts=2)
    (incident,) = found.incidents
    assert incident.component == "host0/ptp0|host1/ptp0"
    (fault,) = found.truth["faults"]
    low, high = found.evidence(incident)["candidates"][fault["component"]]
    assert low <= fault["size"] <= high


@pytest.mark.parametrize("seed", FEW)
def test_a_slow_link_is_neither(seed: int) -> None:
    assert run("fabric", seed).findings == []
