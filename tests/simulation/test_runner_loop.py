"""The runner's loop over a made-up group: whatever is aborted, revoked or lost, the output is the same."""

import json
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from unittest.mock import Mock

import pytest

from schemas.columns import Control
from schemas.errors import BrokerAway, Fenced, LostInput, Setup
from schemas.metrics import Value
from tempotrace.clockwork import FakeClock, seeded
from tempotrace.runtime.failures import Aborted
from tempotrace.runtime.local import MemoryLog
from tempotrace.runtime.meters import Meters
from tempotrace.runtime.runner import ABORTS_IN_A_ROW_MAX, Runner, RunnerSettings
from tests.contract.sample import WINDOW, Summing
from tests.simulation.fake_group import FailingOutlet, FakeGroup

PARTITIONS = 2
DRAIN = RunnerSettings(drain=True, ticks=True)


def always_ours(group: FakeGroup) -> None:
    if not group.holding:
        group.assign()


@dataclass
class Trial:
    """One run of the summing stage over numbers 0..count−1, dealt over the partitions."""

    count: int = 40
    settings: RunnerSettings = DRAIN
    script: Callable[[FakeGroup], None] = always_ours
    fate: Callable[[], Exception | None] = lambda: None
    stop: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self.clock = FakeClock()
        self.log = MemoryLog(self.clock)
        self.group = FakeGroup(self.log, self.clock, PARTITIONS, self.script)
        self.outlet = FailingOutlet(self.log, self.fate)
        for number in range(self.count):
            self.log.append("events", number % PARTITIONS, b"scope", json.dumps([number]).encode())

    def run(self) -> dict[str, Value]:
        runner = Runner(Summing(), self.group, self.outlet, self.settings, self.clock, self.stop, Meters())
        runner.run()
        return runner.meters.values()

    def sums(self) -> list[list[int]]:
        """What came out, by partition."""
        return [
            [json.loads(record.value or b"")["sum"] for record in self.log.records("merged", part)]
            for part in range(PARTITIONS)
        ]

    def expected(self) -> list[list[int]]:
        """What must come out: windows of WINDOW numbers, the last one flushed."""
        dealt = [list(range(part, self.count, PARTITIONS)) for part in range(PARTITIONS)]
        return [[sum(own[at : at + WINDOW]) for at in range(0, len(own), WINDOW)] for own in dealt]


def test_a_drain_ends_by_itself() -> None:
    trial = Trial()
    counters = trial.run()
    assert trial.sums() == trial.expected()
    assert counters["events_in"] == 40
    assert counters["records_read"] == {("events",): 42}
    assert (trial.group.left, trial.group.closed) == (True, True)


def test_an_aborted_commit_is_done_again() -> None:
    fates: list[Exception | None] = [None, Aborted("once"), Aborted("twice"), None]
    trial = Trial(
        fate=lambda: fates.pop(0) if fates else None,
        settings=RunnerSettings(drain=True, ticks=True, bytes_per_commit=1),
    )
    counters = trial.run()
    assert trial.sums() == trial.expected()
    assert counters["events_in"] == 40
    assert counters["aborts"] == 2
    assert trial.outlet.aborts == 2


def test_aborts_without_end_are_an_error() -> None:
    trial = Trial(fate=lambda: Aborted("again"))
    with pytest.raises(BrokerAway, match=f"{ABORTS_IN_A_ROW_MAX + 1} commits in a row were aborted"):
        trial.run()
    assert trial.sums() == [[], []]
    assert trial.group.closed


def test_being_fenced_off_ends_the_stage_without_leaving() -> None:
    trial = Trial(fate=lambda: Fenced("another took over"))
    with pytest.raises(Fenced, match="another took over"):
        trial.run()
    assert (trial.group.left, trial.group.closed) == (False, True)


def test_an_error_in_a_callback_is_raised_by_the_loop() -> None:
    def revoking(group: FakeGroup) -> None:
        if group.polls == 1:
            group.assign()
        if group.polls == 4:
            group.revoke()

    trial = Trial(script=revoking, fate=lambda: Fenced("at the revocation"))
    with pytest.raises(Fenced, match="at the revocation"):
        trial.run()


def test_a_stop_commits_what_is_in_hand() -> None:
    stop = threading.Event()

    def stopping(group: FakeGroup) -> None:
        always_ours(group)
        if group.polls == 8:
            stop.set()

    trial = Trial(script=stopping, stop=stop, settings=RunnerSettings(ticks=True))
    counters = trial.run()
    assert 0 < counters["events_in"] < 40  # type: ignore[operator]
    read = counters["records_read"]
    assert read == {("events",): counters["events_in"]}
    assert trial.group.left


def test_ticks_come_after_silence_with_windows_open() -> None:
    stop = threading.Event()
    seen: list[float] = []

    def waiting(group: FakeGroup) -> None:
        always_ours(group)
        if group.appender.kinds and not seen:
            seen.append(trial.clock.monotonic())
        if trial.clock.monotonic() > 2:
            stop.set()

    trial = Trial(count=1, script=waiting, stop=stop, settings=RunnerSettings(ticks=True, tick_after=0.5))
    counters = trial.run()
    # One tick closes the window; from then on nothing is pending, and partition 1 never had any.
    assert trial.group.appender.kinds == [(("events", 0), Control.TICK)]
    assert counters["ticks"] == 1
    assert 0.5 <= seen[0] < 0.6
    assert trial.sums() == [[0], []]


def test_no_ticks_unless_asked_for() -> None:
    stop = threading.Event()

    def waiting(group: FakeGroup) -> None:
        always_ours(group)
        if trial.clock.monotonic() > 2:
            stop.set()

    trial = Trial(count=1, script=waiting, stop=stop, settings=RunnerSettings())
    trial.run()
    assert trial.group.appender.kinds == []


def test_outputs_in_hand_are_bounded() -> None:
    trial = Trial(settings=RunnerSettings(drain=True, ticks=True, bytes_per_commit=1))
    trial.run()
    windows = sum(map(len, trial.expected()))
    assert trial.outlet.commits >= windows - 1
    assert trial.sums() == trial.expected()


def test_input_without_outputs_is_committed_too() -> None:
    stop = threading.Event()

    def waiting(group: FakeGroup) -> None:
        always_ours(group)
        if trial.clock.monotonic() > 1.5:
            stop.set()

    trial = Trial(count=2, script=waiting, stop=stop, settings=RunnerSettings())
    trial.run()
    assert trial.outlet.commits == 1
    assert trial.outlet.resume("events", 0).next_offset == {"events": 1}


@pytest.mark.parametrize("seed", range(40))
def test_any_order_of_troubles_gives_the_same_output(seed: int) -> None:
    rng = seeded(seed)

    def troubled(group: FakeGroup) -> None:
        if not group.holding:
            group.assign()
        elif rng.random() < 0.08:
            group.revoke()
            if rng.random() < 0.5:
                group.assign()
        elif rng.random() < 0.08:
            group.lose()
            if rng.random() < 0.5:
                group.assign()
        group.records_per_poll = int(rng.integers(1, 6))

    in_a_row = [0]

    def fate() -> Exception | None:
        in_a_row[0] = in_a_row[0] + 1 if rng.random() < 0.3 and in_a_row[0] < ABORTS_IN_A_ROW_MAX else 0
        return Aborted("by chance") if in_a_row[0] else None

    settings = RunnerSettings(drain=True, ticks=True, bytes_per_commit=int(rng.integers(1, 300)))
    trial = Trial(count=120, settings=settings, script=troubled, fate=fate)
    counters = trial.run()
    assert trial.sums() == trial.expected()
    assert counters["events_in"] == 120
    assert counters["events_out"] == 120


def test_why_a_partition_could_not_be_taken_up_is_told_even_if_reading_fails_too() -> None:
    def script(group: FakeGroup) -> None:
        group.assign()
        raise LostInput("no offset stored")

    trial = Trial(script=script)
    trial.outlet.resume = Mock(side_effect=Setup("the lake cannot be read"))  # type: ignore[method-assign]
    with pytest.raises(Setup, match="the lake cannot be read"):
        trial.run()
