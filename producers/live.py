"""Publishes live input, which cannot wait: through the spool, by two threads.

    emit (any thread) -> queue, 8 MiB -> writer: append, sync -> spool -> sender: send -> acknowledge

An event counts as produced once it is synced. The writer syncs whatever came while the last sync ran, so the
cost of a sync is shared. The sender keeps the order: after a failure it gives up all that is in flight and
goes on from the first batch that is not acknowledged. While the broker is away the spool fills; when it is
full the newest batches are dropped, and a `loss` control row says so as soon as there is room again.
"""

import logging
import threading
from collections.abc import Callable
from typing import Final

from producers.cutting import tables_only
from producers.ledger import LossBook, OpenSources, sources_of
from producers.message import Item, outgoing
from producers.sender import Monotonic, Sender, decode
from producers.spool import Spool
from producers.transport import Transport
from schemas.batch import Batch
from schemas.codec import encode_batch
from schemas.errors import cause_of

QUEUE_BYTES_MAX: Final = 8 * 2**20
# Heartbeats are left out while more batches than this wait: the next one says more.
BACKLOG_OF_HEARTBEATS: Final = 64
POLL_SECONDS: Final = 0.005

log = logging.getLogger(__name__)


class LivePublisher:
    """Publishes the batches of one live producer. Owns the spool and the transport from `start` to `close`.

    Counters: `produced` events safe in the spool, `lost` events by reason, `recovered` batches found in the
    spool, `heartbeats_skipped`; and what the `sender` counts.
    """

    def __init__(
        self,
        spool: Spool,
        transport: Transport,
        clock: Monotonic,
        *,
        retry_s: float = 1.0,
        continues: bool = False,
    ) -> None:
        """`continues`: sources keep their incarnation over a restart (followed files), so those of a
        predecessor do not end here.
        """
        self._spool = spool
        self._transport = transport
        self._clock = clock
        self.sender = Sender(spool, transport, clock, retry_s)
        self._changed = threading.Condition()
        self._queue: list[tuple[Item, bytes]] = []
        self._queue_bytes = 0
        self._failure: BaseException | None = None
        self._closing = False
        self._commits = 0  # counts what the sender may have to look at
        self._written = False
        self._patience_s = 0.0
        self._threads: list[threading.Thread] = []
        self.produced = 0
        self.heartbeats_skipped = 0
        self.lost: dict[str, int] = {}
        self.recovered = 0
        self._appended = 0
        self._recover(continues)

    @property
    def backlog(self) -> int:
        """Batches in the spool that are not acknowledged."""
        return self._appended - self.sender.settled

    @property
    def spool_bytes(self) -> int:
        """Bytes of the spool on disk."""
        return self._spool.bytes_used

    def start(self) -> None:
        """Begin to write and send, in two threads."""
        for work, name in ((self._write_all, "spool writer"), (self._send_all, "spool sender")):
            thread = threading.Thread(target=self._guarded, args=(work,), name=name, daemon=True)
            self._threads.append(thread)
            thread.start()

    def emit(self, item: Item) -> None:
        """Take a batch or a dead letter. Blocks while 8 MiB wait for the disk; raises Setup if it refuses."""
        pieces = [(piece, message.value) for piece, message in outgoing(item)]
        with self._changed:
            while self._queue_bytes > QUEUE_BYTES_MAX and self._failure is None:
                self._changed.wait()
            if self._failure is not None:
                raise self._failure
            self._queue += pieces
            self._queue_bytes += sum(len(payload) for _, payload in pieces)
            self._changed.notify_all()

    def close(self, patience_s: float = 10.0) -> int:
        """End all sources, send what is left as long as acknowledgements come at least every `patience_s`.

        Gives the number of batches that stay in the spool, for the next start to send. Raises what a thread
        raised.
        """
        with self._changed:
            self._closing = True
            self._patience_s = patience_s
            self.sender.heard_at = self._clock.monotonic()
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()
        self._transport.purge()
        self.sender.settle()
        self._spool.close()
        if self._failure is not None:
            raise self._failure
        return self.backlog

    # The writer.

    def write_once(self) -> None:
        """Write and sync everything that waits in the queue."""
        with self._changed:
            items, self._queue, self._queue_bytes = self._queue, [], 0
            self._changed.notify_all()
        produced = sum(self._write(item, payload) for item, payload in items)
        self._commit(produced)

    def finish_writing(self) -> None:
        """Write what waits, then what was dropped, then the end of every source that is still open."""
        self.write_once()
        self._report_losses()
        for batch in self._open.ends():
            self._append(batch, encode_batch(batch), beyond_limit=True)
        self._commit(0)

    def _write(self, item: Item, payload: bytes) -> int:
        """Append one item, or drop it for a counted reason; the events taken."""
        if not isinstance(item, Batch):
            reason = self._append(item, payload)
            if reason is not None:
                self.lost[f"{reason}: dead letters"] = self.lost.get(f"{reason}: dead letters", 0) + 1
            return 0
        batch = item
        counted = batch.count if batch.family != "control" else 0
        ends = any(final for *_, final in sources_of(batch))
        heartbeat = not batch.count and not ends
        if heartbeat and self.backlog > BACKLOG_OF_HEARTBEATS:
            self.heartbeats_skipped += 1
            return 0
        if self._losses and self._spool.fits(len(payload) + 4096):
            self._report_losses()
        reason = self._append(
            batch, payload, beyond_limit=batch.family == "control" or (ends and not counted)
        )
        if reason is None:
            return counted
        if counted:
            if reason not in self.lost:
                log.warning("%s: the newest events are dropped, and reported on the topic", reason)
            self.lost[reason] = self.lost.get(reason, 0) + counted
            self._losses.drop(batch, reason)
            if ends:
                rest = tables_only(batch)
                self._append(rest, encode_batch(rest), beyond_limit=True)
        return 0

    def _append(self, item: Item, payload: bytes, beyond_limit: bool = False) -> str | None:
        reason = self._spool.append(payload, beyond_limit=beyond_limit)
        if reason is None:
            if isinstance(item, Batch):
                self._open.see(item)
            self._appended += 1
        return reason

    def _report_losses(self) -> None:
        for batch in self._losses.reports():
            if self._append(batch, encode_batch(batch), beyond_limit=True) is not None:
                return  # the disk is full: later
        self._losses.clear()

    def _commit(self, produced: int) -> None:
        """Make the lists and then the batches safe: no batch can be sent before its sources are on record."""
        for name, book in (("open", self._open), ("lost", self._losses)):
            if book.changed:
                try:
                    self._spool.note(name, book.stored())
                    book.changed = False
                except OSError as error:
                    log.warning("cannot note %s sources in the spool: %s", name, cause_of(error))
        self._spool.sync()
        with self._changed:
            self.produced += produced
            self._commits += 1
            self._changed.notify_all()

    def _recover(self, continues: bool) -> None:
        """Take over what a predecessor left: its batches, what it dropped, the end of its sources."""
        self._open = OpenSources(self._spool.noted("open"))
        self._losses = LossBook(self._spool.noted("lost"))
        while (entry := self._spool.read()) is not None:
            self.recovered += 1
            found = decode(entry)
            if found is not None and isinstance(found[0], Batch):
                self._open.see(found[0])
        self._spool.rewind()
        self._appended = self.recovered
        if self.recovered or self._losses:
            log.info("the spool holds %d batches of an earlier run: they are sent first", self.recovered)
        self._report_losses()
        for batch in self._open.ends() if not continues else ():
            self._append(batch, encode_batch(batch), beyond_limit=True)
        self._commit(0)

    def _write_all(self) -> None:
        while True:
            with self._changed:
                while not self._queue and not self._closing:
                    self._changed.wait()
                closing = self._closing
            self.write_once()
            if closing:
                break
        self.finish_writing()
        with self._changed:
            self._written = True
            self._commits += 1
            self._changed.notify_all()

    # The sender.

    def send_once(self, seconds: float) -> bool:
        """Send what may be sent, wait at most so long for acknowledgements; whether work is left."""
        return self.sender.step(seconds)

    def _send_all(self) -> None:
        while True:
            with self._changed:
                seen = self._commits
            more = self.send_once(POLL_SECONDS)
            with self._changed:
                now = self._clock.monotonic()
                given_up = self._closing and now - self.sender.heard_at > self._patience_s
                if (self._written and not more) or given_up or self._failure is not None:
                    return
                if not self.sender.waiting:
                    # Until the writer has more, or the next attempt after a failure is due.
                    pause = max(self.sender.retry_at - now, 0.0) if more else None
                    if self._commits == seen:
                        self._changed.wait(pause)

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:
            log.error("the spool stopped: %s", error)
            with self._changed:
                self._failure = error
                self._commits += 1
                self._changed.notify_all()
