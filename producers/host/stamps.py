"""A UDP socket whose datagrams carry the kernel's own time of sending and of receiving (SO_TIMESTAMPING).

Stamps of sent datagrams come back on the socket's error queue, under a number that the kernel counts for each
(OPT_ID). The card's hardware stamps are used if the card is already set to stamp every packet both ways and
its clock can be read; nothing is switched on here, since a card's stamps belong to the host's PTP daemon.
"""

import array
import fcntl
import socket
import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

from producers.host.kernel_clock import Phc
from schemas.errors import Setup, cause_of

Address = tuple[str, int]

SO_TIMESTAMPING: Final = 37
SO_RXQ_OVFL: Final = 40
_TX_HARDWARE, _TX_SOFTWARE, _RX_HARDWARE, _RX_SOFTWARE = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_SOFTWARE, _RAW_HARDWARE = 1 << 4, 1 << 6
_OPT_ID, _OPT_TSONLY = 1 << 7, 1 << 11
_ORIGIN_TIMESTAMPING: Final = 4
_IP_RECVERR, _IPV6_RECVERR = 11, 25
_SIOCGIFADDR, _SIOCETHTOOL, _SIOCGHWTSTAMP = 0x8915, 0x8946, 0x89B1
_ETHTOOL_GET_TS_INFO: Final = 0x41
_STAMPS: Final = struct.Struct("=6q")  # software, unused, hardware; seconds and ns each
_ERROR: Final = struct.Struct("=IBBBBII")  # errno, origin, type, code, pad, info, data
_RECEIVE_BYTES: Final = 2048
_DRAIN_MAX: Final = 4096  # datagrams taken in one go, so that a flood cannot hold the caller
_BUFFER_BYTES: Final = 1 << 20


class Received(NamedTuple):
    """A datagram, its sender, and when the kernel got it; None if it has no such stamp."""

    data: bytes
    sender: Address
    stamp_ns: int | None


class StampedSocket:
    """A bound UDP socket. `phc` is the clock of its hardware stamps, None for the kernel's CLOCK_REALTIME."""

    def __init__(self, host: str, port: int) -> None:
        """Bind. Raises Setup if the address is taken, foreign or unknown."""
        try:
            family, kind, protocol, _, address = socket.getaddrinfo(
                host, port, type=socket.SOCK_DGRAM, flags=socket.AI_PASSIVE
            )[0]
            self._socket = socket.socket(family, kind, protocol)
        except OSError as error:
            raise Setup(f"cannot listen on UDP {host}:{port}: {cause_of(error)}") from None
        try:
            self._socket.bind(address)
        except OSError as error:
            self._socket.close()
            raise Setup(f"cannot listen on UDP {host}:{port}: {cause_of(error)}") from None
        self._socket.setblocking(False)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER_BYTES)
        self._socket.setsockopt(socket.SOL_SOCKET, SO_RXQ_OVFL, 1)
        self.phc = hardware_clock(self._socket.getsockname()[0]) if family == socket.AF_INET else None
        sources = _TX_SOFTWARE | _RX_SOFTWARE | _SOFTWARE
        if self.phc is not None:
            sources = _TX_HARDWARE | _RX_HARDWARE | _RAW_HARDWARE
        self._flags = sources | _OPT_TSONLY
        self._next_id = 0
        self.dropped = 0  # datagrams for which the receive queue had no room
        self.drained = True
        self.restart_numbers()

    @property
    def family(self) -> int:
        """Address family, for finding peers."""
        return self._socket.family

    @property
    def address(self) -> Address:
        """Where it listens."""
        host, port = self._socket.getsockname()[:2]
        return host, port

    def fileno(self) -> int:
        """For poll()."""
        return self._socket.fileno()

    def close(self) -> None:
        """Give the address back."""
        self._socket.close()
        if self.phc is not None:
            self.phc.close()

    def send(self, data: bytes, address: Address) -> int:
        """Send a datagram; its number among the stamps of sent ones.

        Raises OSError. The kernel may or may not have counted a datagram that it then refused: after an error
        nothing may be sent before `restart_numbers`, and that only when no stamp is awaited any more.
        """
        self._socket.sendto(data, address)
        number, self._next_id = self._next_id, (self._next_id + 1) & 0xFFFFFFFF
        return number

    def restart_numbers(self) -> None:
        """Let the kernel count sent datagrams from 0 again."""
        for flags in (self._flags, self._flags | _OPT_ID):
            self._socket.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPING, flags)
        self._next_id = 0

    def received(self) -> Iterator[Received]:
        """All datagrams that wait, up to some thousands; `drained` says whether those were all."""
        self.drained = False
        for _ in range(_DRAIN_MAX):
            try:
                data, control, _, sender = self._socket.recvmsg(_RECEIVE_BYTES, 256)
            except BlockingIOError:
                self.drained = True
                return
            except ConnectionError:
                continue  # a peer's port is closed
            stamp = None
            for level, kind, content in control:
                if level == socket.SOL_SOCKET and kind == SO_TIMESTAMPING:
                    stamp = self._stamp(content)
                elif level == socket.SOL_SOCKET and kind == SO_RXQ_OVFL:
                    self.dropped = struct.unpack("=I", content)[0]
            yield Received(data, sender[:2], stamp)

    def sent(self) -> Iterator[tuple[int, int]]:
        """(number, stamp in ns) of sent datagrams whose stamps have come."""
        for _ in range(_DRAIN_MAX):
            try:
                _, control, _, _ = self._socket.recvmsg(0, 256, socket.MSG_ERRQUEUE)
            except BlockingIOError:
                return
            stamp = number = None
            for level, kind, content in control:
                if level == socket.SOL_SOCKET and kind == SO_TIMESTAMPING:
                    stamp = self._stamp(content)
                elif kind in (_IP_RECVERR, _IPV6_RECVERR):
                    _, origin, _, _, _, _, data = _ERROR.unpack_from(content)
                    number = data if origin == _ORIGIN_TIMESTAMPING else None
            if number is not None and stamp is not None:
                yield number, stamp

    def _stamp(self, content: bytes) -> int | None:
        return parse_stamp(content, hardware=self.phc is not None)


def parse_stamp(content: bytes, hardware: bool) -> int | None:
    """The wanted one of the three stamps in a control message, in ns; None if the kernel did not take it."""
    if len(content) != _STAMPS.size:
        return None
    times = _STAMPS.unpack(content)
    seconds, ns = times[4:6] if hardware else times[0:2]
    return (seconds * 1_000_000_000 + ns) or None


def hardware_clock(address: str) -> Phc | None:
    """The readable clock of the card with this IPv4 address, if it is set to stamp all packets both ways."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            request = struct.pack("=16s24x", name.encode()[:15])
            try:
                answer = fcntl.ioctl(probe, _SIOCGIFADDR, request)
            except OSError:
                continue  # no IPv4 address
            if socket.inet_ntoa(answer[20:24]) != address:
                continue
            try:
                _, transmit, receive = struct.unpack("=3i", _asked(probe, name, _SIOCGHWTSTAMP, bytes(12)))
                asked = struct.pack("=I40x", _ETHTOOL_GET_TS_INFO)
                index = struct.unpack_from("=IIi", _asked(probe, name, _SIOCETHTOOL, asked))[2]
                if transmit == 1 and receive == 1 and index >= 0:
                    return Phc(index)
            except OSError:
                pass  # the card has no such stamps, or its clock is not ours to read
            return None
    return None


def _asked(probe: socket.socket, interface: str, request: int, content: bytes) -> bytes:
    """What the driver wrote over `content` in answer to an ioctl that takes a pointer to it."""
    buffer = array.array("B", content)
    place, _ = buffer.buffer_info()
    fcntl.ioctl(probe, request, struct.pack("=16sQ16x", interface.encode()[:15], place))
    return buffer.tobytes()
