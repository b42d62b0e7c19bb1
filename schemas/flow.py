"""The name of a flow: one number for addresses, ports and protocol, equal wherever the flow is seen.

Reports, captures, socket lists and the path stage all call this, so that a flow seen by one is found by the
others. The number is the first 8 bytes, little-endian, of BLAKE2b over: source and destination address
(16 bytes each; IPv4 as ::ffff:a.b.c.d), source port, destination port (2 bytes each, big-endian), protocol.
"""

import struct
from hashlib import blake2b
from ipaddress import IPv4Address, IPv6Address, ip_address

_TAIL = struct.Struct(">HHB")
_MAPPED = bytes(10) + b"\xff\xff"
_NULL = 2**64 - 1  # stands for "no flow" in a u64 column


def address_bytes(address: str | bytes) -> bytes:
    """The 16 bytes of an address given as text or as 4 or 16 bytes. Raises ValueError if it is none."""
    packed = ip_address(address).packed if isinstance(address, str) else address
    if len(packed) == 4:
        return _MAPPED + packed
    if len(packed) != 16:
        raise ValueError(f"an address of {len(packed)} bytes")
    return packed


def address_text(address: bytes) -> str:
    """The text of an address of 4 or 16 bytes; IPv4 in its own form, also where it was mapped into IPv6."""
    if len(address) == 4:
        return str(IPv4Address(address))
    if address[:12] == _MAPPED:
        return str(IPv4Address(address[12:]))
    return str(IPv6Address(address))


def flow_id(src: str | bytes, dst: str | bytes, sport: int, dport: int, protocol: int) -> int:
    """The flow's number, 0 to 2^64 - 2. Ports are 0 where the protocol has none."""
    canonical = address_bytes(src) + address_bytes(dst) + _TAIL.pack(sport, dport, protocol)
    return min(int.from_bytes(blake2b(canonical, digest_size=8).digest(), "little"), _NULL - 1)
