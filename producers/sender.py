"""The half of a live publisher that reads the spool, sends, and acknowledges: each batch once, in order.

After a failure everything in flight is given up and sent again from the first batch that is not acknowledged.
A batch beyond it that was acknowledged meanwhile (it went to another partition) is not sent again.
"""

import logging
from collections import deque
from dataclasses import dataclass
from typing import Final, Protocol

from producers.message import Item, Message, of_payload
from producers.spool import Entry, Position, Spool
from producers.transport import Transport
from schemas.errors import MalformedInput, TempoError, UnknownSchema

FLIGHT_BYTES_MAX: Final = 16 * 2**20
FLIGHT_MAX: Final = 256

log = logging.getLogger(__name__)


class Monotonic(Protocol):
    """The part of a clock that is needed here."""

    def monotonic(self) -> float: ...


@dataclass
class Flight:
    """A batch that was sent: where it ends in the spool, its events, whether it is acknowledged."""

    end: Position
    events: int
    size: int
    acked: bool = False


class Sender:
    """Sends what the spool holds. One thread uses it.

    Counters: `acked` events and `batches` that the brokers acknowledged, `settled` batches that left the
    spool, `unreadable` ones among them, which another version wrote. `restarts` after failures.
    `heard_at`: time of the last acknowledgement.
    """

    def __init__(self, spool: Spool, transport: Transport, clock: Monotonic, retry_s: float) -> None:
        self._spool = spool
        self._transport = transport
        self._clock = clock
        self._retry_s = retry_s
        self._checked: set[str] = set()
        self._flights: deque[Flight] = deque()
        self._flight_bytes = 0
        self._acked_ahead: set[Position] = set()
        self._trouble: TempoError | None = None
        self._told = ""
        self.retry_at = 0.0
        self.heard_at = clock.monotonic()
        self.acked = 0
        self.batches = 0
        self.settled = 0
        self.unreadable = 0
        self.restarts = 0

    @property
    def waiting(self) -> bool:
        """Whether acknowledgements are awaited."""
        return bool(self._flights)

    def step(self, seconds: float) -> bool:
        """Send what may be sent, wait at most so long for acknowledgements; whether work is left."""
        if self._clock.monotonic() >= self.retry_at:
            try:
                self._fill()
            except TempoError as error:
                self._trouble = error
        if self._flights:
            self._transport.poll(seconds)
        self.settle()
        if self._trouble is not None:
            self._start_over(self._trouble)
        return bool(self._flights) or not self._spool.empty

    def _fill(self) -> None:
        while (
            len(self._flights) < FLIGHT_MAX
            and self._flight_bytes < FLIGHT_BYTES_MAX
            and self._trouble is None
            and (entry := self._spool.read()) is not None
        ):
            flight = Flight(entry.end, 0, len(entry.payload))
            self._flights.append(flight)
            self._flight_bytes += flight.size
            found = decode(entry)
            self.unreadable += found is None
            if found is None or entry.end in self._acked_ahead:
                self._acked_ahead.discard(entry.end)
                flight.acked = True
                continue
            message = found[1]
            if message.topic not in self._checked:
                self._transport.check(message.topic)
                self._checked.add(message.topic)
            flight.events = message.events
            self._send(message, flight)

    def _send(self, message: Message, flight: Flight) -> None:
        generation = self.restarts

        def done(error: TempoError | None) -> None:
            if generation != self.restarts:
                return
            if error is None:
                flight.acked = True
                self.heard_at = self._clock.monotonic()
                self.acked += flight.events
                self.batches += 1
            else:
                self._trouble = self._trouble or error

        self._transport.send(message.topic, message.key, message.value, message.headers, done)

    def settle(self) -> None:
        """Let the spool forget the batches up to the first that is still under way."""
        end, count = None, 0
        while self._flights and self._flights[0].acked:
            flight = self._flights.popleft()
            self._flight_bytes -= flight.size
            end, count = flight.end, count + 1
        if end is not None:
            self._told = ""
            self._spool.acknowledge(end)
            self.settled += count

    def _start_over(self, trouble: TempoError) -> None:
        """Give up all that is in flight; the next round reads on from the first unacknowledged batch."""
        self._transport.purge()
        self.restarts += 1
        self.settle()
        self._acked_ahead |= {flight.end for flight in self._flights if flight.acked}
        self._flights.clear()
        self._flight_bytes = 0
        self._checked.clear()
        self._spool.rewind()
        self._trouble = None
        self.retry_at = self._clock.monotonic() + self._retry_s
        if str(trouble) != self._told:
            self._told = str(trouble)
            log.warning("events wait in the spool: %s", trouble)


def decode(entry: Entry) -> tuple[Item, Message] | None:
    """What an entry holds; None, with a warning, if this version cannot read it."""
    try:
        return of_payload(entry.payload)
    except (MalformedInput, UnknownSchema) as error:
        log.warning("a batch in the spool cannot be sent (written by another version?): %s", error)
        return None
