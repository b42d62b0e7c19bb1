"""Probe datagrams: bytes in, a datagram or MalformedInput out.

Layout (big-endian): magic "TTpr", version 1, kind, length of the sender's name, 0, mesh (u64), incarnation
(i64), number (u32), name in UTF-8, CRC-32 of all before it.
"""

import hashlib
import struct
import zlib
from enum import IntEnum
from typing import Final, NamedTuple

from schemas.errors import MalformedInput

MAGIC: Final = b"TTpr"
VERSION: Final = 1
NAME_BYTES_MAX: Final = 255
_HEAD: Final = struct.Struct(">4sBBBBQqI")


class Kind(IntEnum):
    """A probe becomes events; a greeting finds out who is there; a farewell says that nobody is any more."""

    PROBE = 0
    GREETING = 1
    FAREWELL = 2


class Datagram(NamedTuple):
    """What a node sends. `mesh` tells meshes apart, `number` counts the sender's probes."""

    kind: Kind
    mesh: int
    sender: str
    incarnation: int
    number: int

    def encode(self) -> bytes:
        """The bytes to send."""
        name = self.sender.encode()
        assert len(name) <= NAME_BYTES_MAX
        head = _HEAD.pack(MAGIC, VERSION, self.kind, len(name), 0, self.mesh, self.incarnation, self.number)
        return head + name + struct.pack(">I", zlib.crc32(head + name))


def parse(data: bytes) -> Datagram:
    """The datagram in these bytes, exactly. Raises MalformedInput."""
    if len(data) < _HEAD.size + 4 or not data.startswith(MAGIC):
        raise MalformedInput("not a probe datagram")
    _, version, kind, length, zero, mesh, incarnation, number = _HEAD.unpack_from(data)
    if version != VERSION or kind > max(Kind) or zero or len(data) != _HEAD.size + length + 4:
        raise MalformedInput(f"a probe of version {version}, kind {kind}, {len(data)} bytes")
    if zlib.crc32(data[:-4]) != int.from_bytes(data[-4:], "big"):
        raise MalformedInput("the checksum of a probe does not fit")
    try:
        sender = data[_HEAD.size : -4].decode()
    except UnicodeDecodeError:
        raise MalformedInput("a probe's sender is not UTF-8") from None
    return Datagram(Kind(kind), mesh, sender, incarnation, number)


def mesh_id(tenant: str, scope: str) -> int:
    """Which mesh a probe belongs to (u64)."""
    return _hash64(f"{tenant}\0{scope}")


def edge_key(sender: str, incarnation: int, number: int) -> int:
    """Key of the edge from sending to receiving a probe (u64), the same on both sides."""
    return _hash64(f"{sender}\0{incarnation}\0{number}")


def _hash64(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")
