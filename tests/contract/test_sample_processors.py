"""The suite itself, on small processors that have all that a stage can have."""

import json

import pytest

from schemas.codec import encode_batch
from schemas.columns import Control
from schemas.draft import control
from schemas.processor import Output, Record
from schemas.topics import batch_headers
from tests.contract.processor_suite import Case, ProcessorSuite, run
from tests.contract.sample import Joining, Summing, SummingTask


def numbers(topic: str, offset: int, values: list[int]) -> Record:
    return Record(topic, 0, offset, 1000 + offset, b"scope", json.dumps(values).encode())


def tick(topic: str, offset: int) -> Record:
    value = encode_batch(control("default", "", "test", [(Control.TICK, None, None)]))
    return Record(topic, 0, offset, 1000 + offset, None, value, tuple(batch_headers("control", 1, "")))


class TestSumming(ProcessorSuite):
    def case(self) -> Case:
        records = [numbers("events", offset, [offset, 1]) for offset in range(10)]
        return Case(Summing, [*records, tick("events", 10), numbers("events", 11, [7])])

    def test_what_it_puts_out(self) -> None:
        sums = [json.loads(output.value)["sum"] for output in run(self.case())]
        assert sums == [0 + 1 + 2 + 3, 3 + 4 + 5 + 3, 6 + 7 + 8 + 3, 9 + 1]


class TestJoining(ProcessorSuite):
    def case(self) -> Case:
        records = [numbers(("merged", "paths")[n % 2], n // 2, [n]) for n in range(11)]
        return Case(Joining, records)


class Leaky(Summing):
    """A processor that forgets its open rows at a restart: the suite must see it."""

    def start(self, partition: int, snapshot: bytes | None) -> "LeakyTask":
        return LeakyTask(partition, snapshot)


class LeakyTask(SummingTask):
    def reload(self, record: Record, first: int, last: int) -> None:
        """Takes nothing back."""


class Raising(Summing):
    """A processor that dies of bad input."""

    def start(self, partition: int, snapshot: bytes | None) -> "RaisingTask":
        return RaisingTask(partition, snapshot)


class RaisingTask(SummingTask):
    def process(self, record: Record) -> list[Output]:
        json.loads(record.value or b"")
        return super().process(record)


def test_the_suite_sees_lost_rows() -> None:
    suite = TestSumming()
    broken = Case(Leaky, suite.case().records)
    suite.case = lambda: broken  # type: ignore[method-assign]
    with pytest.raises(AssertionError):
        suite.test_restored_at_every_record()


def test_the_suite_sees_a_raise() -> None:
    suite = TestSumming()
    broken = Case(Raising, suite.case().records[:9])
    suite.case = lambda: broken  # type: ignore[method-assign]
    with pytest.raises((ValueError, TypeError)):
        suite.test_broken_records_are_dead_lettered_or_counted()
