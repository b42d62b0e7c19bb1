"""A node of a probe mesh: UDP datagrams between nodes, stamped by the kernel when sent and when received.

Each probe is two events: a `send` row of the sender's source `<node>/mesh` and a `receive` row of the
receiver's, with equal keys, so an edge from cause to effect across two clocks. A source is one socket and
totally ordered by its stamps. Stamps of sent probes come back late, so rows wait in a heap until nothing
older can come: until every probe sent before has its stamp, and for SETTLE_NS, the time that a datagram may
spend between its stamp and the socket's queue. The low watermark is that time; the batch that states it holds
the rows below it.

A peer that has not been heard of for ALIVE_SECONDS gets greetings, which are no events, instead of probes: so
starting, stopping and dead nodes leave no probes without a receiver, and a probe without one was lost.
"""

import heapq
import math
import select
import socket
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from producers.batcher import Batcher, Emit
from producers.host import kernel_clock, probe
from producers.host.kernel_clock import Clock
from producers.host.probe import Datagram, Kind, edge_key
from producers.host.stamps import Address, StampedSocket
from producers.report import Report
from schemas.columns import Control, EdgeKind, Point, ProbeKind, Role, StampKind
from schemas.errors import MalformedInput, Setup, cause_of
from schemas.pack import Head, Source
from schemas.time import ClockState

ALIVE_SECONDS: Final = 3.0
LINGER_SECONDS: Final = 0.2  # after the farewell, for probes on their way
STAMP_SECONDS_MAX: Final = 1.0  # a sent probe whose stamp takes longer has none
STATE_SECONDS: Final = 1.0  # how often the clock is asked for its state
SETTLE_NS: Final = 10_000_000
ROWS_WAITING_MAX: Final = 2000  # rows that are not sent yet, more than the period's
RECENT_MAX: Final = 4096  # numbers by sender in which a repeated datagram is recognised


@dataclass(frozen=True)
class Options:
    """A node: its name, the host whose clocks it uses, where it listens, its peers' addresses by name."""

    node: str
    host: str
    listen: Address
    peers: Mapping[str, Address]
    interval_s: float = 0.02
    hosts: int | None = None  # distinct hosts in the mesh, if known


@dataclass
class MeshReport(Report):
    """Counts of a node; `skipped` by reason for datagrams and stamps of which no row was made."""

    sent: int = 0
    received: int = 0
    heard: set[str] = field(default_factory=set)

    def fields(self) -> dict[str, Any]:
        return {"sent": self.sent, "received": self.received, "peers": sorted(self.heard)}


class Row(NamedTuple):
    """An event that waits for its turn, in order of its stamp."""

    stamp_ns: int
    arrival: int
    kind: ProbeKind
    peer: str
    number: int
    key: int
    size: int


@dataclass
class Sent:
    """A datagram whose stamp is awaited: `after_ns` on the stamping clock, it cannot be older."""

    after_ns: int
    give_up_at: float
    row: Row | None  # None for greetings


class Node:
    """One node: `run` it, then `close` it. Uses one thread."""

    def __init__(
        self, options: Options, head: Head, incarnation: int, clock: Clock, report: MeshReport
    ) -> None:
        """Bind the socket. Raises Setup."""
        self._options = options
        self._head = head
        self._incarnation = incarnation
        self._clock = clock
        self._report = report
        self._mesh = probe.mesh_id(head.tenant, head.scope)
        self.socket = StampedSocket(*options.listen)
        self._peers = {name: self._resolve(name, at) for name, at in options.peers.items()}
        self._heard_at: dict[str, float] = {}
        self._recent: dict[str, tuple[int, dict[int, None]]] = {}  # by sender: incarnation, numbers
        self._pending: dict[int, Sent] = {}
        self._broken = False  # a send failed: numbers must restart
        self._rows: list[Row] = []
        self._fresh: list[Row] = []
        self._arrivals = 0
        self._probes = 0
        self._epoch = 0
        self._steps = kernel_clock.Steps(clock)
        self._now_ns = self._read_clock()
        self._safe_ns = self._now_ns - SETTLE_NS  # no row below it may come any more
        self._parents: tuple[ClockState, ...] = ()
        self._source = self._state()
        self._state_at = clock.monotonic()

    @property
    def clock_id(self) -> str:
        """Name of the clock that stamps the rows."""
        return self._source.clock.clock_id

    def close(self) -> None:
        """Give the address back."""
        self.socket.close()

    def run(self, emit: Emit, stop: threading.Event) -> None:
        """Probe the peers until `stop`, then take leave and end the source. Blocks where `emit` does."""
        batcher = Batcher(self._head, emit, self._clock.monotonic)
        # All nodes announce the whole mesh, so that the first window waits for the last of them to start.
        nodes = len(self._options.peers) + 1
        batcher.open([(Control.OPEN, self._options.hosts, "hosts"), (Control.OPEN, nodes, "sources")])
        poller = select.poll()
        poller.register(self.socket, select.POLLIN)
        probe_at, end_at = self._clock.monotonic(), math.inf
        while (now := self._clock.monotonic()) < end_at:
            if stop.is_set() and end_at == math.inf:
                self._send_all(Kind.FAREWELL)
                end_at, probe_at = now + LINGER_SECONDS, math.inf
            if now >= probe_at:
                self._send_all(Kind.PROBE)
                # Late by more than an interval: go on from now rather than catch up in a burst.
                probe_at = max(probe_at + self._options.interval_s, now)
            wait = min(probe_at, batcher.due_at, end_at) - self._clock.monotonic()
            poller.poll(math.ceil(max(wait, 0.0) * 1000))
            self._take()
            self._check_step(batcher)
            if batcher.due or len(self._rows) >= ROWS_WAITING_MAX:
                self._flush(batcher)
        self._flush(batcher, everything=True, final=True)

    def _resolve(self, name: str, address: Address) -> Address:
        try:
            found = socket.getaddrinfo(*address, family=self.socket.family, type=socket.SOCK_DGRAM)
        except OSError as error:
            self.socket.close()
            raise Setup(
                f"peer {name}: no address for {address[0]}:{address[1]} ({cause_of(error)})"
            ) from None
        host, port = found[0][4][:2]
        return str(host), int(port)

    def _send_all(self, kind: Kind) -> None:
        """One datagram to each peer: a probe, or a greeting if it may not be there."""
        if self._broken:
            if self._pending:
                return
            self.socket.restart_numbers()
            self._broken = False
        now = self._clock.monotonic()
        for peer, address in self._peers.items():
            alive = now - self._heard_at.get(peer, -math.inf) < ALIVE_SECONDS
            wanted = Kind.GREETING if kind is Kind.PROBE and not alive else kind
            number = self._probes
            self._probes += wanted is Kind.PROBE
            datagram = Datagram(wanted, self._mesh, self._options.node, self._incarnation, number)
            data = datagram.encode()
            after_ns = self._read_clock()
            try:
                sent = self.socket.send(data, address)
            except OSError:
                self._report.skip("a probe could not be sent")
                self._broken = True
                return
            row = None
            if wanted is Kind.PROBE:
                key = edge_key(self._options.node, self._incarnation, number)
                row = Row(0, 0, ProbeKind.SEND, peer, number, key, len(data))
            self._pending[sent] = Sent(after_ns, now + STAMP_SECONDS_MAX, row)

    def _take(self) -> None:
        """Take every stamp and datagram that waits; then nothing older than `_safe_ns` can come."""
        self._now_ns = self._read_clock()
        for number, stamp_ns in self.socket.sent():
            waiting = self._pending.pop(number, None)
            if waiting is not None and waiting.row is not None:
                self._report.sent += 1
                self._keep(waiting.row._replace(stamp_ns=stamp_ns))
        dropped = self.socket.dropped
        for data, _, stamp in self.socket.received():
            self._hear(data, stamp)
        self._report.skip("the receive queue was full", self.socket.dropped - dropped)
        now = self._clock.monotonic()
        for number in [n for n, waiting in self._pending.items() if waiting.give_up_at < now]:
            if self._pending.pop(number).row is not None:
                self._report.skip("a sent probe got no stamp")

    def _hear(self, data: bytes, stamp_ns: int | None) -> None:
        try:
            datagram = probe.parse(data)
        except MalformedInput:
            self._report.skip("malformed datagram")
            return
        sender = datagram.sender
        if datagram.mesh != self._mesh or sender not in self._peers:
            self._report.skip("datagram of another mesh or of no peer")
            return
        if datagram.kind is Kind.FAREWELL:
            self._heard_at.pop(sender, None)
            return
        self._heard_at[sender] = self._clock.monotonic()
        self._report.heard.add(sender)
        if datagram.kind is not Kind.PROBE:
            return
        incarnation, numbers = self._recent.get(sender, (datagram.incarnation, {}))
        if incarnation != datagram.incarnation:
            numbers = {}
        if datagram.number in numbers:
            self._report.skip("repeated datagram")
            return
        numbers[datagram.number] = None
        if len(numbers) > RECENT_MAX:
            del numbers[next(iter(numbers))]
        self._recent[sender] = (datagram.incarnation, numbers)
        if stamp_ns is None:
            self._report.skip("a received probe got no stamp")
            return
        key = edge_key(sender, datagram.incarnation, datagram.number)
        self._report.received += 1
        self._keep(Row(stamp_ns, 0, ProbeKind.RECEIVE, sender, datagram.number, key, len(data)))

    def _keep(self, row: Row) -> None:
        self._arrivals += 1
        self._fresh.append(row._replace(arrival=self._arrivals))

    def _check_step(self, batcher: Batcher) -> None:
        """Let what was taken join the rows, unless the clock was stepped meanwhile: then a new epoch begins.

        Which side of a step a stamp lies on cannot be known for what was taken since the last look.
        """
        fresh, self._fresh = self._fresh, []
        if self._steps.look():
            waiting = [sent for sent in self._pending.values() if sent.row is not None]
            self._report.skip("the clock was stepped", len(fresh) + len(waiting))
            self._pending = {
                number: Sent(sent.after_ns, sent.give_up_at, None) for number, sent in self._pending.items()
            }
            self._flush(batcher, everything=True)
            self._epoch += 1
            self._safe_ns = self._now_ns = self._read_clock()
            self._source = self._state()
            return
        for row in fresh:
            if row.stamp_ns < self._safe_ns:
                self._report.skip("a stamp came too late to be put in order")
            else:
                heapq.heappush(self._rows, row)
        oldest = min((sent.after_ns for sent in self._pending.values() if sent.row is not None), default=None)
        safe = self._now_ns - SETTLE_NS
        if self.socket.drained:
            self._safe_ns = max(self._safe_ns, safe if oldest is None else min(safe, oldest))

    def _flush(self, batcher: Batcher, everything: bool = False, final: bool = False) -> None:
        """Send the rows that nothing can precede any more, with the watermark that says so."""
        if self._clock.monotonic() - self._state_at > STATE_SECONDS:
            self._source, self._state_at = self._state(), self._clock.monotonic()
        stamp = StampKind.HARDWARE if self.socket.phc is not None else StampKind.KERNEL
        while self._rows and (everything or self._rows[0].stamp_ns < self._safe_ns):
            row = heapq.heappop(self._rows)
            at = batcher.draft.row(
                self._source,
                row.stamp_ns,
                kind=row.kind,
                entity=self._options.node,
                name="probe",
                peer=row.peer,
                probe=row.number,
                stamp=stamp,
                bytes=row.size,
            )
            role = Role.CAUSE if row.kind is ProbeKind.SEND else Role.EFFECT
            batcher.draft.endpoint(at, Point.BEGIN, EdgeKind.MESSAGE, role, row.key)
            self._report.events += 1
        batcher.send({self._source: self._safe_ns}, self._parents, final)
        self._report.batches += 1

    def _read_clock(self) -> int:
        """Now, on the clock that stamps (ns)."""
        if self.socket.phc is not None:
            return self.socket.phc.read().phc_ns
        return self._clock.now_ns_utc()

    def _state(self) -> Source:
        """The source with its clock's state as of now."""
        host = self._options.host
        clock = kernel_clock.realtime_state(
            host, self._clock.now_ns_utc(), self._epoch, kernel_clock.discipline()
        )
        if self.socket.phc is not None:
            self._parents = (clock,)
            phc = self.socket.phc
            clock = kernel_clock.phc_state(host, phc.index, self._epoch, phc.read())
        return Source(f"{self._options.node}/mesh", host, clock, self._incarnation, live=True)
