"""Cutting batches into messages, and the publisher on a transport in memory."""

from collections.abc import Callable

import numpy as np
import pytest

from producers import cutting
from producers.publisher import MemoryTransport, Publisher
from producers.transport import Done, Headers
from schemas import columns as c
from schemas.batch import Batch, select
from schemas.codec import decode_batch
from schemas.draft import Draft, control
from schemas.errors import BrokerAway, TempoError
from schemas.flat import Array
from schemas.pack import Head, SeqBook, Source
from schemas.time import ClockState

HEAD = Head("default", "job", "test", "probe")
CLOCK = ClockState("h/CLOCK_REALTIME", timescale=c.Timescale.UTC)
A = Source("a", "h", CLOCK, 7)
B = Source("b", "h", CLOCK, 7)
QUIET = Source("quiet", "h", CLOCK, 7)


def make(rows: int, book: SeqBook | None = None, name: Callable[[int], str] = str) -> Batch:
    draft = Draft(HEAD, book or SeqBook())
    for number in range(rows):
        source = A if number % 3 else B
        row = draft.row(source, 1000 + number, kind=0, name=name(number), peer="p", probe=number)
        draft.endpoint(row, c.Point.BEGIN, c.EdgeKind.MESSAGE, c.Role.CAUSE, number)
        draft.value(row, "x", float(number))
    for source in (A, B, QUIET):
        draft.watermark(source, 5000)
        draft.final(source)
    return draft.build()


def rows_of(batches: list[Batch]) -> list[tuple[str | None, int, int, str | None]]:
    out = []
    for batch in batches:
        for row in range(batch.count):
            source = batch.text(batch.data["src_name"][batch.column("source")[row]])
            name = batch.text(batch.column("name")[row])
            out.append((source, int(batch.seq()[row]), int(batch.raw_ns()[row]), name))
    return out


def test_small_batch_is_one_message() -> None:
    batch = make(10)
    pieces = list(cutting.messages(batch))
    assert [piece for piece, _ in pieces] == [batch]


@pytest.mark.parametrize("bytes_max", [600, 900, 2000, 20_000])
def test_cut_batch_has_the_same_rows_and_promises_last(bytes_max: int) -> None:
    batch = make(500)
    pieces = [decode_batch(payload) for _, payload in cutting.messages(batch, bytes_max)]
    sizes = [len(payload) for piece, payload in cutting.messages(batch, bytes_max) if piece.count > 1]
    assert len(pieces) > 2
    assert max(sizes, default=0) <= bytes_max
    assert rows_of(pieces) == rows_of([batch])
    assert sum(piece.table_len("ep") for piece in pieces) == 500
    assert sum(piece.table_len("val") for piece in pieces) == 500
    assert [cutting.makes_promises(piece) for piece in pieces] == [False] * (len(pieces) - 1) + [True]
    last = pieces[-1]
    assert last.count == 0
    assert [last.text(place) for place in last.data["src_name"]] == ["b", "a", "quiet"]
    assert list(last.data["src_first_seq"]) == [167, 333, 0]
    assert list(last.data["src_last_seq"]) == [166, 332, -1]
    assert list(last.data["src_low_watermark_ns"]) == [5000] * 3
    assert (last.data["src_flags"] & c.SOURCE_FINAL).all()


def test_endpoints_and_values_follow_their_rows() -> None:
    pieces = [piece for piece, _ in cutting.messages(make(200), 3000)]
    for piece in pieces[:-1]:
        assert list(piece.data["ep_key"]) == list(piece.column("probe")[piece.data["ep_row"]])
        assert list(piece.data["val"]) == [float(name) for name in _names(piece, piece.data["val_row"])]


def _names(batch: Batch, rows: Array) -> list[str]:
    return [str(batch.text(place)) for place in batch.column("name")[rows]]


def test_strings_that_dominate_the_size_are_cut_with_their_rows() -> None:
    batch = make(64, name=lambda number: f"{number}".zfill(1000))
    pieces = [piece for piece, _ in cutting.messages(batch, 8_000)]
    assert rows_of(pieces) == rows_of([batch])
    assert len(pieces) < 20


def test_one_row_larger_than_a_message_goes_out_whole() -> None:
    batch = make(3, name=lambda number: "x" * 2000 + str(number))
    pieces = [piece.count for piece, _ in cutting.messages(batch, 1000)]
    assert pieces == [1, 1, 1, 0]


def test_compact_keeps_null_strings() -> None:
    draft = Draft(HEAD, SeqBook())
    draft.row(A, 1, kind=0, name="gone", peer="gone too")
    draft.row(A, 2, kind=0, peer=None)
    batch = cutting.compact(select(draft.build(), np.array([1])))
    assert batch.text(batch.column("peer")[0]) is None
    assert sorted(batch.strings) == ["a", "h", "h/CLOCK_REALTIME"]


def test_messages_carry_topic_key_and_headers() -> None:
    transport = MemoryTransport()
    publisher = Publisher(transport)
    publisher.send(control("default", "job", "test", [(c.Control.OPEN, 2, "hosts")]))
    publisher.send(make(10))
    publisher.close()
    assert [sent.topic for sent in transport.sent] == ["tempotrace.default.events"] * 2
    assert [sent.key for sent in transport.sent] == [b"job"] * 2
    assert transport.sent[0].headers == (
        ("tt-family", b"control"),
        ("tt-count", b"1"),
        ("tt-scope", b"job"),
    )
    assert transport.sent[1].headers == (("tt-family", b"probe"), ("tt-count", b"10"), ("tt-scope", b"job"))
    assert (publisher.events, publisher.acked, publisher.batches) == (10, 10, 2)
    assert rows_of([decode_batch(transport.sent[1].value)]) == rows_of([make(10)])


class Stuck(MemoryTransport):
    """Acknowledges the first message, then fails or stays silent."""

    def __init__(self, error: TempoError | None) -> None:
        super().__init__()
        self.error = error
        self.held: list[Done] = []
        self.purged = False

    def send(self, topic: str, key: bytes, value: bytes, headers: Headers, done: Done) -> None:
        if not self.sent:
            super().send(topic, key, value, headers, done)
        elif self.error is not None:
            done(self.error)
        else:
            self.held.append(done)

    def flush(self, seconds: float) -> int:
        return len(self.held)

    def purge(self) -> None:
        self.purged = True


def test_unacknowledged_batches_are_an_error() -> None:
    transport = Stuck(None)
    publisher = Publisher(transport)
    book = SeqBook()
    publisher.send(make(3, book))
    publisher.send(make(4, book))
    with pytest.raises(BrokerAway, match=r"1 of 2 batches were not acknowledged \(4 of 7 events\)"):
        publisher.close()
    assert transport.purged
    assert (publisher.events, publisher.acked) == (7, 3)


def test_a_failed_batch_stops_the_next() -> None:
    transport = Stuck(BrokerAway("gone"))
    publisher = Publisher(transport)
    publisher.send(make(3))
    publisher.send(make(3))
    with pytest.raises(BrokerAway, match="gone"):
        publisher.send(make(3))
    assert publisher.batches == 2
    with pytest.raises(BrokerAway, match="gone"):
        publisher.close()
