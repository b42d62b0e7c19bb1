"""A live producer in a process of its own, for tests that kill it: emits until it is told or killed.

Arguments: spool folder, log file, incarnation, batches to emit (0: no end). Says each emitted batch's last
sequence number on stdout only once the spool has it.
"""

import sys
from pathlib import Path

from producers.live import LivePublisher
from producers.spool import Spool
from schemas.draft import Draft
from schemas.pack import Head, SeqBook, Source
from schemas.time import ClockState
from tempotrace.clockwork import WallClock
from tests.fake_transports import FileTransport


def main(folder: str, log: str, incarnation: str, batches: str) -> None:
    """Emit batches of three rows."""
    live = LivePublisher(Spool(Path(folder), segment_bytes=4096), FileTransport(Path(log)), WallClock())
    live.start()
    source = Source("n0/mesh", "h", ClockState("h/CLOCK_REALTIME"), int(incarnation), live=True)
    book = SeqBook()
    emitted = 0
    while batches == "0" or emitted < int(batches):
        draft = Draft(Head("default", "job", "n0", "probe"), book)
        for _ in range(3):
            draft.row(source, 1000 + emitted, kind=0)
        live.emit(draft.build())
        emitted += 1
        sys.stdout.write(f"{live.produced}\n")
        sys.stdout.flush()
    live.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
