"""Publishers that stop and come back in one scope: what merges on, and what stays closed."""

import pytest

from schemas import columns as c
from schemas.codec import decode_merged
from schemas.draft import Draft
from schemas.pack import Head, SeqBook, Source
from schemas.processor import Record
from schemas.records import Progress
from schemas.time import ClockState
from streams.causality.settings import MergeSettings
from tests.contract.test_merge_limits import flush, merged_parts, record
from tests.naive.compare import run
from tests.naive.worlds import MS, T0_MS, T0_NS

CLOCK = ClockState("host/clock", parent="TAI", timescale=c.Timescale.TAI, bound_ns=1000)
S = 1000 * MS


class Publisher:
    """Sends runs of five rows, a second apart; each run ends its source."""

    def __init__(self, live: bool) -> None:
        self.live, self.book, self.records = live, SeqBook(), list[Record]()

    def run(self, at_s: int, incarnation: int, book: SeqBook | None = None) -> None:
        draft = Draft(Head("default", "job", f"p{incarnation}", "probe"), book or self.book)
        source = Source("s", "h", CLOCK, incarnation, live=self.live)
        for k in range(5):
            draft.row(source, T0_NS + at_s * S + k * MS, kind=0)
        self._send(draft.build(), at_s)  # the last rows and the end come apart, as at a stop
        draft = Draft(Head("default", "job", f"p{incarnation}", "probe"), book or self.book)
        draft.final(source)
        self._send(draft.build(), at_s)

    def _send(self, batch: object, at_s: int) -> None:
        self.records.append(record(batch, len(self.records), T0_MS + at_s * 1000))  # type: ignore[arg-type]


@pytest.mark.parametrize("incarnations", [(1, 1), (1, 2)], ids=["goes on", "begins anew"])
def test_a_live_publisher_that_comes_back_is_merged(incarnations: tuple[int, int]) -> None:
    publisher = Publisher(live=True)
    for k, incarnation in enumerate(incarnations):
        publisher.run(10 * k, incarnation)
    outputs, task = run(MergeSettings(join_grace_ms=0), publisher.records)
    assert sum(map(len, merged_parts(outputs))) == 10
    assert task.counters().get("late", {}) == {}
    ends = [
        part.closed for part in map(decode_merged, (o.value for o in outputs)) if isinstance(part, Progress)
    ]
    assert ends.count(True) == 2  # closed at each stop, and open between them
    assert task.counters()["scopes_closed"] == 2


def test_it_waits_for_a_live_publisher_that_came_back() -> None:
    """As it would for any: its rows do not leave before its watermark allows."""
    publisher = Publisher(live=True)
    publisher.run(0, 1)
    publisher.run(10, 1)
    held = publisher.records[:3]  # without the second end
    outputs, _ = run(MergeSettings(join_grace_ms=0), held)
    assert sum(map(len, merged_parts(outputs))) == 5
    outputs, _ = run(MergeSettings(join_grace_ms=0), [*held, flush(3)])
    assert sum(map(len, merged_parts(outputs))) == 10


def test_an_incarnation_that_was_replaced_does_not_come_back() -> None:
    publisher = Publisher(live=True)
    first, second = SeqBook(), SeqBook()
    publisher.run(0, 1, first)
    publisher.run(10, 2, second)
    publisher.run(20, 1, first)
    outputs, task = run(MergeSettings(join_grace_ms=0), publisher.records)
    assert sum(map(len, merged_parts(outputs))) == 10
    assert task.counters().get("late", {}) == {("closed",): 5}


def test_a_file_that_is_over_stays_over() -> None:
    publisher = Publisher(live=False)
    publisher.run(0, 1)
    publisher.run(10, 2)
    outputs, task = run(MergeSettings(join_grace_ms=0), publisher.records)
    assert sum(map(len, merged_parts(outputs))) == 5
    assert task.counters().get("late", {}) == {("closed",): 5}
