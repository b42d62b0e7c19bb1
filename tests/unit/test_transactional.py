"""A transactional producer whose client fails in each of the ways that it can."""

import threading
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from schemas.errors import BrokerAway, Fenced
from tempotrace.clockwork import FakeClock
from tempotrace.runtime import transactional
from tempotrace.runtime.failures import Aborted
from tempotrace.runtime.transactional import Stuck, Transactional, within

Step = Callable[[], None]


def failing(code: int, **flags: bool) -> Step:
    """A call that raises this error of the client."""

    def call() -> None:
        raise KafkaException(KafkaError(code, "as told", **flags))

    return call


class Client:
    """Stands for librdkafka's producer: notes its calls; `plans` says what the next call of a name does."""

    def __init__(self, plans: dict[str, list[Step]]) -> None:
        self.plans, self.calls = plans, list[str]()

    def _call(self, name: str) -> None:
        self.calls.append(name)
        if self.plans.get(name):
            self.plans[name].pop(0)()

    def init_transactions(self, timeout: float) -> None:
        self._call("init")

    def begin_transaction(self) -> None:
        self._call("begin")

    def flush(self, timeout: float) -> int:
        self._call("flush")
        return 0

    def send_offsets_to_transaction(self, offsets: Any, group: Any, timeout: float) -> None:
        self._call("offsets")

    def commit_transaction(self, timeout: float) -> None:
        self._call("commit")

    def abort_transaction(self, timeout: float) -> None:
        self._call("abort")


class Made:
    """Makes clients; the first has the plans."""

    def __init__(self, **plans: list[Step]) -> None:
        self.plans, self.clients = plans, list[Client]()
        self.clock, self.ours = FakeClock(), True
        self.released = threading.Event()

    def __call__(self) -> Any:
        self.clients.append(Client({} if self.clients else self.plans))
        return self.clients[-1]

    def transactional(self) -> Transactional:
        return Transactional("acme.merge.0", self, lambda: self.ours, self.clock)

    def hang(self) -> None:
        """A call that only returns when the test is over."""
        self.released.wait()

    def late(self) -> None:
        """The broker has ended the transaction meanwhile."""
        self.clock.advance(11_000_000_000)
        failing(KafkaError.INVALID_PRODUCER_EPOCH, fatal=True)()

    @property
    def calls(self) -> list[list[str]]:
        return [client.calls for client in self.clients]


OFFSETS = [TopicPartition("acme.events", 0, 7, "{}")]


def committed(transaction: Transactional) -> None:
    transaction.begin()
    transaction.flush()
    transaction.commit(OFFSETS, None)


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transactional, "STUCK_SECONDS", 0.05)


@pytest.mark.parametrize("where", ["offsets", "commit"])
def test_a_call_that_never_returns_is_left_behind_and_the_id_taken_over(where: str) -> None:
    made = Made()
    made.plans[where] = [made.hang]
    transaction = made.transactional()
    with pytest.raises(Aborted, match="did not answer"):
        committed(transaction)
    assert made.calls[1] == ["init"]
    committed(transaction)
    assert made.calls[1] == ["init", "begin", "flush", "offsets", "commit"]
    made.released.set()


def test_an_abort_that_never_returns_is_left_behind_too() -> None:
    made = Made()
    made.plans["abort"] = [made.hang]
    transaction = made.transactional()
    transaction.begin()
    transaction.abort()
    assert (made.calls, transaction.phase) == ([["init", "begin", "abort"], ["init"]], "idle")
    made.released.set()


def test_a_transaction_that_the_broker_ended_by_its_age_is_done_again_by_a_new_producer() -> None:
    made = Made()
    made.plans["commit"] = [made.late]
    transaction = made.transactional()
    with pytest.raises(Aborted):
        committed(transaction)
    committed(transaction)
    assert made.calls[1] == ["init", "begin", "flush", "offsets", "commit"]


@pytest.mark.parametrize("end", ["late", "hang"])
def test_whoever_has_lost_its_name_does_not_take_the_id_back(end: str) -> None:
    made = Made()
    made.plans["commit"], made.ours = [getattr(made, end)], False
    with pytest.raises(Fenced, match="another process"):
        committed(made.transactional())
    assert len(made.clients) == 1
    made.released.set()


@pytest.mark.parametrize("where", ["begin", "flush", "offsets", "commit"])
def test_a_young_transaction_that_is_fenced_has_a_successor(where: str) -> None:
    made = Made(**{where: [failing(KafkaError.PRODUCER_FENCED, fatal=True)]})
    with pytest.raises(Fenced):
        committed(made.transactional())
    assert len(made.clients) == 1


def test_what_the_client_wants_aborted_is_aborted_by_the_same_producer() -> None:
    made = Made(commit=[failing(KafkaError.UNKNOWN_MEMBER_ID, txn_requires_abort=True)])
    transaction = made.transactional()
    with pytest.raises(Aborted):
        committed(transaction)
    committed(transaction)
    again = ["begin", "flush", "offsets", "commit"]
    assert made.calls == [["init", *again, "abort", *again]]


def test_what_the_client_calls_passing_is_tried_again() -> None:
    made = Made(offsets=[failing(KafkaError._TIMED_OUT, retriable=True)] * 3)
    committed(made.transactional())
    assert made.calls == [["init", "begin", "flush", "offsets", "offsets", "offsets", "offsets", "commit"]]


def test_an_id_that_nobody_hands_out_is_an_absent_broker() -> None:
    made = Made()
    made.plans["init"] = [made.hang]
    with pytest.raises(BrokerAway, match=r"taking the transactional id acme\.merge\.0"):
        made.transactional()
    made.released.set()


def test_after_a_broker_that_stayed_away_a_new_producer_finds_out() -> None:
    made = Made()

    def away() -> None:
        made.clock.advance(70_000_000_000)
        failing(KafkaError._TIMED_OUT, retriable=True)()

    made.plans["commit"] = [away]
    transaction = made.transactional()
    with pytest.raises(BrokerAway):
        committed(transaction)
    transaction.settled()
    committed(transaction)
    assert made.calls[1] == ["init", "begin", "flush", "offsets", "commit"]


def test_what_was_left_open_is_ended_before_anything_else() -> None:
    made = Made()
    transaction = made.transactional()
    transaction.begin()
    transaction.settled()
    assert (made.calls, transaction.phase) == ([["init", "begin"], ["init"]], "idle")


def test_within_gives_what_the_call_raises() -> None:
    with pytest.raises(ValueError, match="so it is"):
        within(5, lambda: (_ for _ in ()).throw(ValueError("so it is")))
    with pytest.raises(Stuck):
        within(0.01, threading.Event().wait)
