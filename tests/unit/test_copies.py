"""Clock samples in the other scopes that need them: which rows, as whose, with which promises, until when."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import count

from producers.copies import SCOPES_MAX, Copies
from producers.ledger import sources_of
from schemas import columns as c
from schemas.batch import Batch
from schemas.codec import decode_batch, encode_batch
from schemas.columns import ClockKindOfRow
from schemas.draft import Draft
from schemas.pack import Head, SeqBook, Source
from schemas.time import TAI, ClockState
from schemas.topics import batch_headers
from streams.causality.merge import Merge
from streams.causality.settings import MergeSettings
from tempotrace.clockwork import FakeClock
from tempotrace.runtime.local import LocalRunner, MemoryLog

MS, S = 1_000_000, 1_000_000_000
T0 = 1_790_000_000 * S
CLOCK = ClockState("h/CLOCK_REALTIME", parent=TAI, timescale=c.Timescale.UTC)


class Publisher:
    """Publishes samples of one source in the scope `home`, and copies them."""

    def __init__(self, *scopes: str) -> None:
        self.scopes: Sequence[str] = scopes
        self.book, self.incarnation = SeqBook(), 7
        numbers = count(100)
        self.copies = Copies(lambda: self.scopes, lambda: next(numbers))
        self.now = 0.0

    @property
    def source(self) -> Source:
        return Source("h/p.log", "h", CLOCK, self.incarnation, ordered=False, live=True)

    def send(
        self,
        stamps: Sequence[int],
        watermark: int | None,
        final: bool = False,
        servo: Callable[[int], int] = lambda at: 2,
        kind: ClockKindOfRow = ClockKindOfRow.SERVO,
    ) -> list[Batch]:
        draft = Draft(Head("default", "home", "p", "clock"), self.book)
        for at in stamps:
            row = draft.row(
                self.source, at, kind=kind, entity="h/ptp0", name="servo", offset_ns=(at - T0) // MS,
                servo=servo(at), duration_ns=0,
            )  # fmt: skip
            draft.value(row, "at", float(at - T0))
        if watermark is not None:
            draft.watermark(self.source, watermark)
        if final:
            draft.final(self.source)
        self.now += 1.0
        out = [decode_batch(encode_batch(each)) for each in self.copies.take(draft.build(), self.now)]
        return [each for each in out if each.scope != "home"]


def offsets(batches: Sequence[Batch]) -> list[int]:
    """Offsets of the rows in all batches; each must carry its value."""
    out: list[int] = []
    for batch in batches:
        if batch.family == "clock" and batch.count:
            found = batch.wide("offset_ns").tolist()
            assert batch.data["val"].tolist() == [float(each * MS) for each in found]
            assert batch.raw_ns().tolist() == [T0 + each * MS for each in found]
            out += found
    return out


def test_one_a_second_and_every_change() -> None:
    p = Publisher("job")
    opened, empty = p.send([], T0)
    assert (opened.family, opened.scope, opened.column("kind").tolist()) == (
        "control",
        "job",
        [c.Control.OPEN],
    )
    assert (empty.count, empty.publisher) == (0, "p@home")
    assert sources_of(empty) == [(("h/p.log@home", 100), 0, -1, False)]
    stamps = [T0 + n * 100 * MS for n in range(25)]
    (copy,) = p.send(stamps, stamps[-1])
    assert offsets([copy]) == [0, 1000, 2000]
    assert sources_of(copy) == [(("h/p.log@home", 100), 0, 2, False)]
    assert int(copy.data["src_low_watermark_ns"][0]) == stamps[-1]
    later = [T0 + 2500 * MS + n * 100 * MS for n in range(10)]
    (copy,) = p.send(later, later[-1], servo=lambda at: 1 if at == later[2] else 2)
    assert offsets([copy]) == [2700, 2800]  # the servo leaves its state, and comes back
    assert sources_of(copy)[0][1:3] == (3, 4)
    (copy,) = p.send([T0 + 3500 * MS, T0 + 3510 * MS], T0 + 3510 * MS, kind=ClockKindOfRow.STATE)
    assert offsets([copy]) == [3500, 3510]
    assert p.copies.events == 7


def test_what_a_log_held_before_its_first_promise_is_not_copied() -> None:
    p = Publisher("job")
    old = [T0 + n * S for n in range(-50, 0)]
    assert [each.family for each in p.send(old, None)] == ["control"]
    (copy,) = p.send([*old[-3:], T0, T0 + S], T0)
    assert offsets([copy]) == [0, 1000]
    (copy,) = p.send([T0 + 2 * S], None)  # a batch without a promise in between
    assert offsets([copy]) == [2000]


def test_each_scope_has_its_own_numbers_and_end() -> None:
    p = Publisher("a")
    p.send([], T0)
    p.send([T0 + S], T0 + S)
    p.scopes = ["a", "b", "home"]
    found = p.send([T0 + 3 * S], T0 + 3 * S)
    assert [(each.scope, each.family) for each in found] == [("b", "control"), ("a", "clock"), ("b", "clock")]
    assert [sources_of(each) for each in found[1:]] == [
        [(("h/p.log@home", 100), 1, 1, False)],
        [(("h/p.log@home", 101), 0, 0, False)],
    ]
    p.scopes = ["b"]
    ended, other = p.send([T0 + 5 * S], T0 + 5 * S)
    assert (ended.scope, sources_of(ended)) == ("a", [(("h/p.log@home", 100), 2, 1, True)])
    assert (other.scope, sources_of(other)) == ("b", [(("h/p.log@home", 101), 1, 1, False)])
    p.scopes = ["a", "b"]
    again = [each for each in p.send([T0 + 7 * S], T0 + 7 * S) if each.scope == "a"]
    assert sources_of(again[1]) == [(("h/p.log@home", 102), 0, 0, False)]


def test_a_rotated_file_is_another_source_there_too() -> None:
    p = Publisher("job")
    p.send([], T0)
    (last,) = p.send([T0 + S], T0 + S, final=True)
    assert sources_of(last) == [(("h/p.log@home", 100), 0, 0, True)]
    p.incarnation = 8
    (fresh,) = p.send([T0 + 2 * S], T0 + 2 * S)
    assert sources_of(fresh) == [(("h/p.log@home", 101), 0, 0, False)]


def test_scopes_are_bounded_and_other_families_left_alone() -> None:
    p = Publisher(*(f"job{n}" for n in range(SCOPES_MAX + 9)))
    assert len({each.scope for each in p.send([], T0)}) == SCOPES_MAX
    probe = Draft(Head("default", "home", "p", "probe"), SeqBook())
    probe.row(replace(p.source, name="n0"), T0, kind=0, name="probe")
    assert list(p.copies.take(probe.build(), 99.0)) == []


def test_the_merge_takes_copies_without_gaps() -> None:
    log = MemoryLog(FakeClock())
    p = Publisher("job")
    batches = p.send([], T0)
    for n in range(1, 60):
        batches += p.send([T0 + n * 250 * MS], T0 + n * 250 * MS, final=n == 59)
    for batch in batches:
        headers = tuple(batch_headers(batch.family, batch.count, batch.scope))
        log.append("events", 0, batch.scope.encode(), encode_batch(batch), headers)
    runner = LocalRunner([Merge(MergeSettings())], log)
    runner.run()
    runner.flush("default")
    counters = runner.counters("merge")
    assert {name: counters.get(name) for name in ("events_in", "events_out", "duplicates", "gaps", "late")} == {
        "events_in": 15, "events_out": 15, "duplicates": None, "gaps": None, "late": None,
    }  # fmt: skip
    assert counters["scopes_closed"] == 1
