"""The runner without Kafka, and with it what both runners share: slots, frames, taking up, losses."""

import json

import pytest

from schemas.columns import Control
from schemas.errors import LostInput, MalformedInput, Setup
from schemas.processor import Ref
from tempotrace.clockwork import FakeClock
from tempotrace.runtime.frame import Frame, pack, unpack
from tempotrace.runtime.local import LocalRunner, MemoryLog, MemoryOutlet
from tempotrace.runtime.restore import Loss, take_up
from tempotrace.runtime.slots import combined
from tests.contract.sample import Copying, Joining, Summing


def fill(log: MemoryLog, count: int, topic: str = "events", partition: int = 0) -> None:
    for number in range(count):
        log.append(topic, partition, b"scope", json.dumps([number]).encode())


def sums(log: MemoryLog, topic: str = "merged", partition: int = 0) -> list[int]:
    return [json.loads(record.value or b"")["sum"] for record in log.records(topic, partition)]


def test_appends_are_stamped_by_the_clock() -> None:
    clock = FakeClock(1_700_000_037_000_000_000)
    log = MemoryLog(clock)
    log.append("events", 0, None, b"a")
    clock.advance(5_000_000)
    log.append("events", 0, None, b"b")
    assert [record.append_ms for record in log.records("events")] == [1_700_000_000_000, 1_700_000_000_005]


def test_a_chain_runs_to_the_end() -> None:
    log = MemoryLog(FakeClock())
    runner = LocalRunner([Summing(), Joining()], log)
    fill(log, 9)
    runner.run()
    assert sums(log) == [3, 12, 21]
    assert runner.counters("merge") == {
        "events_in": 9,
        "events_out": 9,
        "windows": 3,
        "rows_held": 0,
        "deadlettered": {},
    }
    # `merged` holds no lists of numbers, which is what the second stage wants: each is dead-lettered.
    assert runner.counters("diagnosis")["unreadable"] == {("malformed",): 3}
    assert len(log.records("deadletter")) == 3


def test_flush_closes_the_open_window_on_every_partition() -> None:
    log = MemoryLog(FakeClock())
    runner = LocalRunner([Summing()], log, partitions=2)
    fill(log, 4)
    fill(log, 1, partition=1)
    runner.flush("default")
    assert sums(log) == [3, 3]
    assert sums(log, partition=1) == [0]


def test_a_restart_goes_on_from_the_last_commit() -> None:
    log = MemoryLog(FakeClock())
    runner = LocalRunner([Summing()], log, records_per_commit=2)
    fill(log, 5)
    runner.run()
    assert sums(log) == [3]
    runner.restart("merge")
    fill(log, 1)
    runner.run()
    assert sums(log) == [3, 3 + 4 + 0]
    assert runner.counters("merge")["events_in"] == 6


def test_forgetting_keeps_what_is_still_referred_to() -> None:
    log = MemoryLog(FakeClock())
    runner = LocalRunner([Summing()], log, forget=True)
    fill(log, 7)
    runner.run()
    assert log.range("events", 0) == (6, 7)
    assert sums(log) == [3, 12]
    runner.restart("merge")
    fill(log, 2)
    runner.run()
    assert sums(log) == [3, 12, 6 + 0 + 1]


def test_frame_round_trip() -> None:
    refs = [Ref("events", 2**40, 0, 3), Ref("paths", 7, 1, 1)]
    frame = Frame({"events": 2**40 + 1}, {"events": "a", "paths": "b"}, refs)
    assert unpack(pack(frame, b"state")) == (frame, b"state")
    assert unpack(pack(Frame({}, {"events": "a"}), b"")) == (Frame({}, {"events": "a"}, []), b"")


def test_a_cut_frame_is_malformed() -> None:
    whole = pack(Frame({"events": 1}, {"events": "a"}, [Ref("events", 0, 0, 0)]), b"")
    for length in range(len(whole)):
        with pytest.raises(MalformedInput):
            unpack(whole[:length])


def started(count: int) -> tuple[MemoryLog, MemoryOutlet]:
    """A log of which the first `count` records are processed and committed."""
    log = MemoryLog(FakeClock())
    outlet = MemoryOutlet(log)
    fill(log, count)
    LocalRunner([Summing()], log, outlets={"merge": outlet}).run()
    return log, outlet


def test_input_that_retention_took_is_lost() -> None:
    log, outlet = started(3)
    fill(log, 6)
    log.forget("events", 0, 5)
    with pytest.raises(LostInput, match=r"events/0: offsets 3 to 4 are gone, the log begins at 5"):
        take_up(Summing(), "events", 0, outlet, log)
    losses: list[Loss] = []
    slot, _ = take_up(Summing(), "events", 0, outlet, log, losses.append)
    assert [(loss.topic, loss.partition, loss.first, loss.last) for loss in losses] == [("events", 0, 3, 4)]
    assert slot.next_offset == {"events": 5}
    assert json.loads(slot.task.snapshot())["carry"] == 3


def test_rows_of_an_open_window_that_retention_took_are_lost() -> None:
    log, outlet = started(5)
    log.forget("events", 0, 4)
    with pytest.raises(LostInput, match="offsets 3 to 3 are gone"):
        take_up(Summing(), "events", 0, outlet, log)
    losses: list[Loss] = []
    slot, _ = take_up(Summing(), "events", 0, outlet, log, losses.append)
    assert [(loss.first, loss.last) for loss in losses] == [(3, 3)]
    assert list(slot.task.refs()) == [Ref("events", 4, 0, 0)]


def test_a_topic_made_anew_is_another_log() -> None:
    log, outlet = started(5)
    log.remake("events")
    fill(log, 8)
    with pytest.raises(LostInput, match="made anew"):
        take_up(Summing(), "events", 0, outlet, log)
    losses: list[Loss] = []
    slot, known = take_up(Summing(), "events", 0, outlet, log, losses.append)
    assert len(losses) == 1
    assert slot.next_offset == {"events": 0}
    assert slot.task.pending() is False
    assert known is False


@pytest.mark.parametrize("lost", ["the whole topic", "a part"])
def test_an_accepted_loss_is_not_asked_again_though_nothing_follows(lost: str) -> None:
    log, outlet = started(4)
    if lost == "a part":
        fill(log, 9)
        log.forget("events", 0, 9)
    else:
        log.remake("events")
    losses: list[Loss] = []
    slot, _ = take_up(Summing(), "events", 0, outlet, log, losses.append)
    assert (len(losses), slot.dirty) == (1, True)
    outlet.commit([slot.hand_over()])
    again, known = take_up(Summing(), "events", 0, outlet, log)  # raises LostInput if it is
    assert (again.next_offset, again.dirty, known) == (slot.next_offset, False, True)
    fill(log, 12)
    record = log.at("events", 0, again.next_offset["events"])
    assert record is not None
    again.take(record)
    outlet.commit([again.hand_over()])
    last, _ = take_up(Summing(), "events", 0, outlet, log)
    assert last.next_offset["events"] == slot.next_offset["events"] + 1


def test_a_log_that_ends_too_early_is_another_log() -> None:
    log, outlet = started(5)
    kept = log.topic_id("events")
    log.remake("events")
    log.topic_id = lambda topic: kept  # type: ignore[method-assign]
    with pytest.raises(LostInput, match="the log ends at 0, before offset 5"):
        take_up(Summing(), "events", 0, outlet, log)


@pytest.mark.parametrize("state", [b"{}", b"not JSON", b'{"next": {}, "carry": 0}'])
def test_a_state_of_another_version_is_told_and_nothing_is_lost(state: bytes) -> None:
    log, outlet = started(3)
    kept = outlet.resume("events", 0)
    frame, _ = unpack(kept.snapshot or b"")
    outlet.resume = lambda topic, partition: kept._replace(snapshot=pack(frame, state))  # type: ignore[method-assign]
    with pytest.raises(Setup, match="merge kept for events/0 is of another version"):
        take_up(Summing(), "events", 0, outlet, log)


def test_a_task_that_disagrees_with_the_log_is_our_bug() -> None:
    log = MemoryLog(FakeClock())
    log.append("events", 0, None, b"[1]")
    slot, _ = take_up(Summing(), "events", 0, MemoryOutlet(log), log)
    slot.take(log.records("events")[0])
    slot.known["events"] = 7
    with pytest.raises(AssertionError):
        slot.hand_over()


def test_control_rows_carry_their_kind() -> None:
    log = MemoryLog(FakeClock())
    LocalRunner([Copying()], log).flush("default")
    assert log.records("events")[0].header("tt-family") == b"control"
    assert len(log.records("merged")) == 1
    assert int(Control.FLUSH) == 2


def test_counters_of_several_tasks() -> None:
    assert combined([{"windows": 1, "watermark_ns": 5}, {"windows": 2, "watermark_ns": 3}]) == {
        "windows": 3,
        "watermark_ns": 3,
    }
    assert combined([{"late": {("a",): 1}}, {"late": {("a",): 2, ("b",): 1}}]) == {
        "late": {("a",): 3, ("b",): 1}
    }
