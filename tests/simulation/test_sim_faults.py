"""How faults are written down, and which a scenario has."""

import pytest

from producers.sim.faults import SCENARIOS, Fault, describe, parse_fault, scenario_faults
from schemas.errors import Usage
from tempotrace.clockwork import seeded


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("straggler:rank12:25%@2s", Fault("straggler", 12, 0.25, 2_000_000_000)),
        ("straggler:rank0", Fault("straggler", 0, 0.3, 0)),
        ("clock_offset:host3:-50us", Fault("clock_offset", 3, -50_000.0, 0)),
        ("clock_step:host7@1.5s", Fault("clock_step", 7, 250_000.0, 1_500_000_000)),
        ("slow_link:host1:2.5x@10ms", Fault("slow_link", 1, 2.5, 10_000_000)),
    ],
)
def test_a_fault_is_read_as_written(text: str, fault: Fault) -> None:
    assert parse_fault(text, ranks=16, hosts=8) == fault


@pytest.mark.parametrize(
    "text",
    [
        "",
        "straggler",
        "quake:rank1",
        "straggler:host1",
        "straggler:rank16",
        "straggler:rank1:30",
        "straggler:rank1:0%",
        "clock_step:rank1",
        "clock_step:host8",
        "clock_step:host1:soon",
        "clock_step:host1:1ms@later",
        "clock_step:host1:1ms@-1s",
        "clock_offset:host1:1ms@1s",
        "slow_link:host1:0.5x",
    ],
)
def test_what_is_no_fault_is_refused(text: str) -> None:
    with pytest.raises(Usage):
        parse_fault(text, ranks=16, hosts=8)


@pytest.mark.parametrize("seed", range(20))
def test_the_demo_has_its_two_faults_on_two_hosts(seed: int) -> None:
    slow, clock = scenario_faults("straggler+clock-fault", (), seeded(seed), 64, 8, 10.0)
    assert (slow.name, clock.name) == ("straggler", "clock_step")
    assert slow.place // 8 != clock.place
    assert abs(clock.size) >= 100 * 1_000
    assert slow.size >= 0.2


def test_every_scenario_is_described() -> None:
    classes = {
        name: [fault["class"] for fault in describe(scenario_faults(name, (), seeded(1), 8, 4, 1.0), 0)]
        for name in SCENARIOS
    }
    assert classes == {
        "healthy": [],
        "straggler": ["straggler"],
        "clock-fault": ["clock_step"],
        "straggler+clock-fault": ["straggler", "clock_step"],
        "fabric": ["slow_link"],
        "throughput": [],
    }


def test_faults_are_described_with_the_part_to_blame() -> None:
    faults = [parse_fault(text, 16, 8) for text in ("straggler:rank9:25%@1s", "clock_offset:host2:1ms")]
    assert describe(faults, 1_000) == [
        {"class": "straggler", "component_kind": "rank", "component": "rank9", "onset_ns": 1_000_001_000,
         "size": 0.25},
        {"class": "clock_offset", "component_kind": "clock", "component": "host2/ptp0", "onset_ns": 1_000,
         "size": 1_000_000.0},
    ]  # fmt: skip
