"""Flows met in reports, kept as columns so that a block's rows are joined to them by place."""

from typing import Final, NamedTuple

import numpy as np

from producers.int.layout import I64, Array, Field, Rows
from producers.int.report import FlowLayout
from schemas.flow import address_text, flow_id

_MIX = np.array(
    [0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0xD6E8FEB86659FD93, 0xFF51AFD7ED558CCD],
    np.uint64,
)


class Flow(NamedTuple):
    """A flow by number and by name."""

    flow: int
    src: str
    dst: str
    sport: int
    dport: int
    protocol: int


class Flows:
    """Flows met so far, as columns: `number` (schemas.flow), `src` and `dst` (places in `addresses`), ports
    and protocol. What was added stays in its place until `clear`."""

    _DTYPES: Final = (np.uint64, np.int64, np.int64, np.uint16, np.uint16, np.uint8)

    def __init__(self) -> None:
        self._place_of: dict[bytes, int] = {}
        self._address_of: dict[bytes, int] = {}
        self.addresses: list[str] = []
        self._columns = [np.empty(256, dtype) for dtype in self._DTYPES]

    def __len__(self) -> int:
        return len(self._place_of)

    def __getitem__(self, place: int) -> Flow:
        number, src, dst, sport, dport, protocol = (int(column[place]) for column in self._columns)
        return Flow(number, self.addresses[src], self.addresses[dst], sport, dport, protocol)

    @property
    def columns(self) -> list[Array]:
        """Number, source, destination, source port, destination port, protocol."""
        return [column[: len(self)] for column in self._columns]

    def places(self, rows: Rows, flow: FlowLayout) -> I64:
        """Each datagram's place in the list, added at need. Shape (count,)."""
        zero = np.zeros(rows.count, np.uint64)
        sport = zero if flow.sport is None else rows.take(flow.sport).astype(np.uint64)
        dport = zero if flow.dport is None else rows.take(flow.dport).astype(np.uint64)
        ports = sport << np.uint64(24) | dport << np.uint64(8) | np.uint64(flow.protocol)
        parts = [Field(where.at + bit, min(64, where.bits)) for where in (flow.src, flow.dst)
                 for bit in range(0, where.bits, 64)]  # fmt: skip
        keys = np.stack([*(rows.take(part).astype(np.uint64) for part in parts), ports])
        first, which = distinct(keys)
        found = [self._intern(keys[:, place], flow.src.bits // 8) for place in first.tolist()]
        return np.array(found, np.int64)[which]

    def _intern(self, key: Array, size: int) -> int:
        """Place of (words of the source, words of the destination, ports and protocol)."""
        raw = key.tobytes()
        known = self._place_of.get(raw)
        if known is not None:
            return known
        half = (len(key) - 1) // 2
        words = [int(word) for word in key]
        src = b"".join(word.to_bytes(size // half, "big") for word in words[:half])
        dst = b"".join(word.to_bytes(size // half, "big") for word in words[half:-1])
        ports = words[-1] >> 24, words[-1] >> 8 & 0xFFFF, words[-1] & 0xFF
        place = len(self)
        if place == len(self._columns[0]):
            self._columns = [np.concatenate([column, np.empty_like(column)]) for column in self._columns]
        row = (flow_id(src, dst, *ports), self._address(src), self._address(dst), *ports)
        for column, value in zip(self._columns, row, strict=True):
            column[place] = value
        self._place_of[raw] = place
        return place

    def _address(self, address: bytes) -> int:
        known = self._address_of.get(address)
        if known is None:
            known = self._address_of[address] = len(self.addresses)
            self.addresses.append(address_text(address))
        return known


def distinct(keys: Array) -> tuple[I64, I64]:
    """Of keys (words, n; u64): where each distinct one is first, and which one each is. Shapes (k,), (n,).

    A key may be listed more than once (where two share a hash and alternate); two keys never share a place.
    """
    count = keys.shape[1]
    if count and (keys == keys[:, :1]).all():
        return np.zeros(1, np.int64), np.zeros(count, np.int64)
    mixed = np.zeros(count, np.uint64)
    for number, word in enumerate(keys):
        mixed = (mixed + word) * _MIX[number % len(_MIX)]
    # 16 bits are sorted by radix, ten times as fast as whole keys.
    order = np.argsort((mixed >> np.uint64(48)).astype(np.uint16), kind="stable")
    arranged = keys[:, order]
    head = np.ones(count, bool)
    head[1:] = (arranged[:, 1:] != arranged[:, :-1]).any(axis=0)
    which = np.empty(count, np.int64)
    which[order] = np.cumsum(head) - 1
    return order[head], which
