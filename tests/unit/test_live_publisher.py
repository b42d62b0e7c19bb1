"""The live publisher, step by step on a scripted broker: order, one copy, losses, restarts."""

import os
from pathlib import Path

from producers.live import BACKLOG_OF_HEARTBEATS, LivePublisher
from producers.spool import Spool
from schemas import columns as c
from schemas.codec import decode_batch
from schemas.draft import control
from schemas.errors import BrokerAway, MissingTopic
from schemas.pack import SeqBook
from tempotrace.clockwork import FakeClock
from tests.fake_transports import ScriptedTransport
from tests.live_runs import Run, expected, finals_in, losses_in, make, rows_in


def test_what_is_emitted_arrives_once_in_order(tmp_path: Path) -> None:
    run = Run(tmp_path)
    for _ in range(20):
        run.emit(5)
    assert (run.live.produced, run.live.sender.acked) == (100, 0)
    run.send()
    assert rows_in(run.transport) == expected(0, 100)
    assert (run.live.produced, run.live.sender.acked, run.live.sender.batches, run.live.backlog) == (
        100,
        100,
        20,
        0,
    )
    assert {sent.key for sent in run.transport.log} == {b"job"}
    assert run.transport.log[0].headers == (
        ("tt-family", b"probe"),
        ("tt-count", b"5"),
        ("tt-scope", b"job"),
    )


def test_nothing_is_sent_before_it_is_safe(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.live.emit(make(run.book, 3))
    run.send()
    assert run.transport.log == []
    assert run.live.produced == 0
    run.live.write_once()
    run.send()
    assert rows_in(run.transport) == expected(0, 3)


def test_broker_away_then_back(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.transport.away = BrokerAway("no broker answers")
    for _ in range(10):
        run.emit(5)
        run.send()
    assert run.transport.log == []
    assert run.live.produced == 50
    run.transport.away = None
    run.send()
    assert run.transport.log == []  # the next attempt is due a second after the last
    run.clock.advance(1_000_000_000)
    run.send()
    assert rows_in(run.transport) == expected(0, 50)


def test_missing_topic_is_waited_for(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.transport.away = MissingTopic("no topic")
    run.emit(5)
    run.send()
    run.transport.away = None
    run.clock.advance(1_000_000_000)
    run.send()
    assert rows_in(run.transport) == expected(0, 5)


def test_a_refused_batch_keeps_its_place(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.emit(2)
    run.send()
    run.transport.refuse = BrokerAway("refused")
    for _ in range(5):
        run.emit(2)
    run.send()
    assert run.transport.purges == 1
    run.transport.refuse = None
    run.clock.advance(1_000_000_000)
    run.send()
    assert rows_in(run.transport) == expected(0, 12)
    assert run.live.sender.acked == 12


def test_an_acknowledgement_beyond_a_failure_is_not_sent_again(tmp_path: Path) -> None:
    """Two scopes lie in two partitions: one may fail while the other goes on."""
    run = Run(tmp_path)
    run.live.emit(make(run.book, 1, name="a", scope="one"))
    run.live.emit(make(run.book, 1, name="b", scope="two"))
    run.live.write_once()
    run.transport.hold = True
    run.live.send_once(0)
    (_, fails), (sent, succeeds) = run.transport.waiting
    run.transport.waiting.clear()
    run.transport.log.append(sent)
    succeeds(None)
    fails(BrokerAway("refused"))
    run.live.send_once(0)
    run.transport.hold = False
    run.clock.advance(1_000_000_000)
    run.send()
    assert rows_in(run.transport) == [("b", 7, 0), ("a", 7, 0)]
    assert (run.live.sender.acked, run.live.backlog) == (2, 0)


def test_heartbeats_are_left_out_of_a_backlog(tmp_path: Path) -> None:
    run = Run(tmp_path)
    for _ in range(BACKLOG_OF_HEARTBEATS + 50):
        run.emit(0)
    assert run.live.heartbeats_skipped == 49
    run.send()
    run.emit(0)
    assert run.live.heartbeats_skipped == 49


def test_full_spool_drops_the_newest_and_says_so(tmp_path: Path) -> None:
    run = Run(tmp_path, bytes_max=20_000, segment_bytes=2_000)
    run.transport.away = BrokerAway("away")
    run.send()
    for _ in range(100):
        run.emit(5)
    kept = run.live.produced
    assert 100 <= kept < 500
    assert run.live.lost == {"spool full": 500 - kept}
    assert run.spool.bytes_used <= 20_000
    run.transport.away = None
    run.clock.advance(1_000_000_000)
    run.send()
    run.emit(5)
    run.send()
    assert rows_in(run.transport) == expected(0, kept) + expected(500, 505)
    assert losses_in(run.transport) == [
        {
            "events": 500 - kept,
            "source": "n0/mesh",
            "incarnation": 7,
            "first_seq": kept,
            "last_seq": 499,
            "reason": "spool full",
        }
    ]
    kinds = [decode_batch(sent.value).family for sent in run.transport.log]
    assert kinds[-2:] == ["control", "probe"]  # the gap is explained before it is seen


def test_losses_survive_a_kill(tmp_path: Path) -> None:
    run = Run(tmp_path, bytes_max=20_000, segment_bytes=2_000)
    for _ in range(100):
        run.emit(5)
    kept = run.live.produced
    run.kill()
    again = Run(tmp_path)
    again.send()
    assert rows_in(again.transport) == expected(0, kept)
    assert [(loss["first_seq"], loss["last_seq"]) for loss in losses_in(again.transport)] == [(kept, 499)]
    assert finals_in(again.transport) == [("n0/mesh", 7)]
    again.kill()
    third = Run(tmp_path)
    third.send()
    assert losses_in(third.transport) == []


def test_a_successor_sends_the_rest_then_ends_the_sources_then_its_own(tmp_path: Path) -> None:
    run = Run(tmp_path)
    for _ in range(4):
        run.emit(5)
    run.transport.silent = True
    run.live.send_once(0)  # the broker has all of it, and we never heard
    assert rows_in(run.transport) == expected(0, 20)
    run.emit(5)
    run.kill()

    again = Run(tmp_path)
    assert again.live.recovered == 5
    again.emit(3, incarnation=8)
    again.send()
    assert rows_in(again.transport) == expected(0, 25) + expected(0, 3, incarnation=8)
    assert finals_in(again.transport) == [("n0/mesh", 7)]
    families = [decode_batch(sent.value).count for sent in again.transport.log]
    assert families == [5, 5, 5, 5, 5, 0, 3]


def test_sources_of_a_predecessor_end_though_its_spool_is_empty(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.emit(5)
    run.send()
    run.kill()
    again = Run(tmp_path)
    again.send()
    assert rows_in(again.transport) == []
    assert finals_in(again.transport) == [("n0/mesh", 7)]
    again.kill()
    third = Run(tmp_path)
    third.send()
    assert third.transport.log == []


def test_sources_that_continue_are_not_ended_by_a_restart(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.emit(5)
    run.send()
    run.kill()
    transport = ScriptedTransport()
    live = LivePublisher(Spool(tmp_path), transport, FakeClock(), continues=True)
    live.start()
    live.emit(make(run.book, 2))
    assert live.close() == 0
    assert rows_in(transport) == expected(5, 7)
    assert finals_in(transport) == [("n0/mesh", 7)]  # by close
    assert [decode_batch(sent.value).count for sent in transport.log] == [2, 0]


def test_close_ends_the_sources(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.live.start()
    run.live.emit(control("default", "job", "node", [(c.Control.OPEN, None, None)]))
    for _ in range(10):
        run.live.emit(make(run.book, 5))
    assert run.live.close() == 0
    assert rows_in(run.transport) == expected(0, 50)
    assert finals_in(run.transport) == [("n0/mesh", 7)]
    assert decode_batch(run.transport.log[0].value).family == "control"
    assert list(tmp_path.glob("*.seg")) == []


class Impatient(FakeClock):
    """Each look at it takes a second."""

    def monotonic(self) -> float:
        self.advance(1_000_000_000)
        return super().monotonic()


def test_close_without_a_broker_leaves_the_rest_for_the_next_start(tmp_path: Path) -> None:
    transport = ScriptedTransport()
    transport.away = BrokerAway("away")
    live = LivePublisher(Spool(tmp_path), transport, Impatient(), retry_s=0.01)
    live.start()
    live.emit(make(SeqBook(), 5))
    assert live.close() == 2
    assert live.produced == 5
    again = Run(tmp_path)
    again.send()
    assert rows_in(again.transport) == expected(0, 5)
    assert finals_in(again.transport) == [("n0/mesh", 7)]


def test_a_batch_of_another_version_is_counted_and_passed(tmp_path: Path) -> None:
    spool = Spool(tmp_path)
    spool.append(b"\xc3\x01" + b"12345678" + b"later than us")
    spool.sync()
    os.close(spool._lock)
    run = Run(tmp_path)
    run.emit(2)
    run.send()
    assert run.live.sender.unreadable == 1
    assert rows_in(run.transport) == expected(0, 2)
    assert run.spool.empty
