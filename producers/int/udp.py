"""Receives reports on a UDP socket: kernel receive stamps, drops of the receive queue counted, heartbeats.

The collector's clock is this host's CLOCK_REALTIME, by which the kernel stamps each datagram as it comes in.
Stamps of datagrams still to be read are not below the moment at which the socket was last found empty, less a
window for what the kernel was just handling: that is the low watermark.
"""

import json
import socket
import struct
import threading
from collections.abc import Callable
from dataclasses import dataclass
from select import POLLIN, poll
from typing import Final, Protocol

import numpy as np

from producers.int.collector import Collector, Datagrams, IntReport
from producers.int.decode import Decoder
from producers.int.dialect import SPEC, Dialect
from schemas.batch import Batch
from schemas.columns import Control, Timescale
from schemas.draft import control
from schemas.errors import Setup, Usage, cause_of
from schemas.flow import address_bytes
from schemas.pack import Head, Source
from schemas.records import DeadLetter
from schemas.time import TAI, ClockState

HEARTBEAT_S: Final = 0.05
WINDOW_NS: Final = 50_000_000  # how far below the clock a stamp may be that is still to be read
BLOCK_MAX: Final = 2048  # datagrams decoded at a time
DATAGRAM_BYTES_MAX: Final = 65_535
BUFFER_BYTES: Final = 4 * 2**20
RECEIVE_QUEUE_BYTES: Final = 32 * 2**20
# Linux numbers that Python's socket module does not name.
_SO_RCVBUFFORCE: Final = 33
_SO_TIMESTAMPNS: Final = 35
_IP_PKTINFO: Final = 8
_SO_MEMINFO: Final = 55  # nine u32; the last but none is the count of drops
_MEMINFO_DROPS: Final = 8
_TIMESPEC: Final = struct.Struct("qq")
_CONTROL_BYTES: Final = 256


class Clock(Protocol):
    """The part of a clock that the receiver needs."""

    def now_ns_utc(self) -> int: ...

    def monotonic(self) -> float: ...


@dataclass(frozen=True)
class Options:
    """A live collector: where it listens, and whose it is. `incarnation` is new at each start."""

    tenant: str
    scope: str
    host: str
    address: str
    port: int
    incarnation: int
    dialect: Dialect = SPEC


class UdpCollector:
    """A bound socket and what becomes of its datagrams. Close it, or use it as a context manager.

    Raises Setup if the address cannot be bound, Usage if it is none.
    """

    def __init__(self, options: Options, report: IntReport, clock: Clock) -> None:
        self._options, self._report, self._clock = options, report, clock
        self._socket = _bind(options.address, options.port)
        self.address, self.port = self._socket.getsockname()[:2]
        realtime = ClockState(
            f"{options.host}/CLOCK_REALTIME",
            parent=TAI,
            timescale=Timescale.UTC,
            provenance="kernel receive stamps",
        )
        name = f"int/{options.host}:{self.port}"
        self._source = Source(name, options.host, realtime, options.incarnation, ordered=False, live=True)
        self._publisher = f"{name}/{options.incarnation}"
        self._collector = Collector(
            Head(options.tenant, options.scope, self._publisher, "int"),
            self._source,
            Decoder(options.dialect),
            report,
            origin=f"udp {self.address}",
            seq_bits=28 - options.dialect.hw_id_bits,
        )
        self._begin_block()
        self._targets: dict[str, bytes] = {}
        report.dropped_by_kernel = 0

    def __enter__(self) -> "UdpCollector":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def clock_id(self) -> str:
        """The clock that stamps the datagrams."""
        return self._source.clock.clock_id

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    def run(self, emit: Callable[[Batch | DeadLetter], None], stop: threading.Event) -> None:
        """Receive until `stop` is set, which is seen within 50 ms; then end the source.

        `emit` gets an `open` row, then batches, dead letters, and a heartbeat at least every 50 ms.
        """
        options = self._options
        emit(control(options.tenant, options.scope, self._publisher, [(Control.OPEN, 1, "hosts")]))
        ready = poll()
        ready.register(self._socket, POLLIN)
        beat_at, last = self._clock.monotonic() + HEARTBEAT_S, 0
        while not stop.is_set():
            ready.poll(max(0, round(1000 * (beat_at - self._clock.monotonic()))))
            before_ns = self._clock.now_ns_utc()
            drained = self._receive()
            now = self._clock.monotonic()
            if drained and now < beat_at:
                continue
            beat_at = now + HEARTBEAT_S
            # Never back: a promise holds even if the host's clock is set back.
            last = max(last, (before_ns if drained else self._stamp[-1]) - WINDOW_NS)
            self._publish(emit, last)
        # What came before the stop may be many blocks; what comes during this is not waited for.
        ended_ns = self._clock.now_ns_utc()
        while not self._receive() and self._stamp[-1] < ended_ns:
            self._publish(emit, last)
        self._publish(emit, last)
        for item in self._collector.end(last):
            emit(item)

    def _publish(self, emit: Callable[[Batch | DeadLetter], None], watermark_ns: int) -> None:
        """Emit what was received, or a heartbeat where nothing was."""
        self._count_drops(emit)
        sent = 0
        if self._at:
            for item in self._collector.take(self._received(), watermark_ns):
                emit(item)
                sent += isinstance(item, Batch)
        if not sent:
            for item in self._collector.heartbeat(watermark_ns):
                emit(item)

    def _receive(self) -> bool:
        """Read what waits in the socket, up to a block; whether that was all."""
        buffer = self._buffer.data
        while len(self._at) < BLOCK_MAX and self._filled + DATAGRAM_BYTES_MAX <= BUFFER_BYTES:
            begin = self._filled
            try:
                count, ancillary, _, sender = self._socket.recvmsg_into(
                    [buffer[begin : begin + DATAGRAM_BYTES_MAX]], _CONTROL_BYTES
                )
            except BlockingIOError:
                return True
            stamp_ns, target = self._ancillary(ancillary)
            self._at.append(begin)
            self._size.append(count)
            self._stamp.append(stamp_ns)
            self._ends.append(self._bytes_of(sender[0]) + target)
            self._filled += count
        return False

    def _received(self) -> Datagrams:
        """The block of datagrams read so far; the next goes into a buffer of its own."""
        words = np.frombuffer(b"".join(self._ends), ">u8").reshape(-1, 4).T.astype(np.uint64)
        port = np.full(len(self._at), self.port, np.int64)
        at, size, stamp = (np.array(part, np.int64) for part in (self._at, self._size, self._stamp))
        block = Datagrams(self._buffer, at, size, stamp, words[:2], words[2:], port)
        self._begin_block()
        return block

    def _begin_block(self) -> None:
        self._buffer = np.empty(BUFFER_BYTES, np.uint8)
        self._at: list[int] = []
        self._size: list[int] = []
        self._stamp: list[int] = []
        self._ends: list[bytes] = []
        self._filled = 0

    def _ancillary(self, ancillary: list[tuple[int, int, bytes]]) -> tuple[int, bytes]:
        """Kernel stamp (ns UTC) and destination address of a datagram."""
        stamp_ns, target = 0, self._bytes_of(self.address)
        for level, kind, value in ancillary:
            if level == socket.SOL_SOCKET and kind == _SO_TIMESTAMPNS:
                seconds, rest = _TIMESPEC.unpack_from(value)
                stamp_ns = seconds * 1_000_000_000 + rest
            elif level == socket.IPPROTO_IP and kind == _IP_PKTINFO:
                target = address_bytes(value[8:12])
            elif level == socket.IPPROTO_IPV6 and kind == socket.IPV6_PKTINFO:
                target = value[:16]
        # The kernel stamps from the first datagram after the option was set; before, the clock has to do.
        return stamp_ns or self._clock.now_ns_utc(), target

    def _bytes_of(self, address: str) -> bytes:
        known = self._targets.get(address)
        if known is None:
            if len(self._targets) > 65_536:
                self._targets.clear()
            known = self._targets[address] = address_bytes(address.partition("%")[0])
        return known

    def _count_drops(self, emit: Callable[[Batch | DeadLetter], None]) -> None:
        """Publish how many datagrams the kernel has dropped since the last look."""
        raw = self._socket.getsockopt(socket.SOL_SOCKET, _SO_MEMINFO, 36)
        drops = struct.unpack("9I", raw)[_MEMINFO_DROPS]
        known = self._report.dropped_by_kernel or 0
        if drops > known:
            self._report.dropped_by_kernel = drops
            if not known:
                self._report.warn(
                    "the receive queue overflowed: datagrams were dropped by the kernel, and counted"
                )
            text = {
                "source": self._source.name,
                "incarnation": self._source.incarnation,
                "reason": "receive queue full (datagrams)",
            }
            options = self._options
            rows = [(Control.LOSS, drops - known, json.dumps(text))]
            emit(control(options.tenant, options.scope, self._publisher, rows))


def _bind(address: str, port: int) -> socket.socket:
    """A non-blocking UDP socket with stamps and packet information."""
    try:
        found = socket.getaddrinfo(address, port, type=socket.SOCK_DGRAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        raise Usage(
            f"--udp {address}: {cause_of(error)}; write an address of this host, such as 0.0.0.0:9000"
        ) from None
    family, _, _, _, where = found[0]
    out = socket.socket(family, socket.SOCK_DGRAM)
    try:
        try:
            out.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, RECEIVE_QUEUE_BYTES)
        except PermissionError:  # without the right to go beyond net.core.rmem_max
            out.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_QUEUE_BYTES)
        out.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
        if family == socket.AF_INET:
            out.setsockopt(socket.IPPROTO_IP, _IP_PKTINFO, 1)
        else:
            out.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_RECVPKTINFO, 1)
        out.bind(where)
        out.setblocking(False)
    except OSError as error:
        out.close()
        raise Setup(f"cannot listen on UDP {address} port {port}: {cause_of(error)}") from None
    return out
