"""A live publisher on a scripted broker, moved on by hand, and what it sent, as tests want to see it."""

import json
import os
from pathlib import Path

from producers.live import LivePublisher
from producers.spool import Spool
from schemas import columns as c
from schemas.batch import Batch
from schemas.codec import decode_batch
from schemas.draft import Draft
from schemas.pack import Head, SeqBook, Source
from schemas.time import ClockState
from tempotrace.clockwork import FakeClock
from tests.fake_transports import ScriptedTransport

CLOCK = ClockState("h/CLOCK_REALTIME", timescale=c.Timescale.UTC)
Row = tuple[str, int, int]  # source, incarnation, seq


def source(incarnation: int, name: str = "n0/mesh") -> Source:
    return Source(name, "h", CLOCK, incarnation, live=True)


def make(book: SeqBook, rows: int, incarnation: int = 7, name: str = "n0/mesh", scope: str = "job") -> Batch:
    draft = Draft(Head("default", scope, "node", "probe"), book)
    for _ in range(rows):
        draft.row(source(incarnation, name), 1000, kind=0, name="probe")
    draft.watermark(source(incarnation, name), 1000)
    return draft.build()


def rows_in(transport: ScriptedTransport) -> list[Row]:
    out = []
    for sent in transport.log:
        batch = decode_batch(sent.value)
        for row in range(batch.count if batch.family != "control" else 0):
            entry = batch.column("source")[row]
            name = batch.strings[batch.data["src_name"][entry]]
            out.append((name, int(batch.data["src_incarnation"][entry]), int(batch.seq()[row])))
    return out


def losses_in(transport: ScriptedTransport) -> list[dict[str, object]]:
    out = []
    for sent in transport.log:
        batch = decode_batch(sent.value)
        if batch.family != "control":
            continue
        for row in range(batch.count):
            if batch.column("kind")[row] == c.Control.LOSS:
                text = json.loads(batch.text(batch.column("text")[row]) or "")
                out.append({"events": int(batch.wide("number")[row]), **text})
    return out


def finals_in(transport: ScriptedTransport) -> list[tuple[str, int]]:
    out = []
    for sent in transport.log:
        batch = decode_batch(sent.value)
        for entry in range(batch.table_len("src")):
            if batch.data["src_flags"][entry] & c.SOURCE_FINAL:
                name = batch.strings[batch.data["src_name"][entry]]
                out.append((name, int(batch.data["src_incarnation"][entry])))
    return out


def expected(first: int, last: int, incarnation: int = 7) -> list[Row]:
    return [("n0/mesh", incarnation, seq) for seq in range(first, last)]


class Run:
    """A publisher on a folder, moved on by hand."""

    def __init__(self, folder: Path, bytes_max: int = 2**20, segment_bytes: int = 2**14) -> None:
        self.clock = FakeClock()
        self.transport = ScriptedTransport()
        self.spool = Spool(folder, bytes_max=bytes_max, segment_bytes=segment_bytes)
        self.live = LivePublisher(self.spool, self.transport, self.clock)
        self.book = SeqBook()

    def emit(self, rows: int, incarnation: int = 7) -> None:
        self.live.emit(make(self.book, rows, incarnation))
        self.live.write_once()

    def send(self) -> None:
        for _ in range(50):
            if not self.live.send_once(0):
                return

    def kill(self) -> None:
        os.close(self.spool._lock)
