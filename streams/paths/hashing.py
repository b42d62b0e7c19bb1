"""How switches choose among next hops: hash models, the fields they read, and RoCEv2's source ports.

A model maps a flow's key (bytes of the chosen fields, in their order on the wire) to one of `buckets` places:
hash, shift right by `offset`, then modulo or multiply-and-shift. A seed is given a place of its own, since
for a linear hash (CRC, XOR) it matters where: as initial value, XORed to the result, or as a prefix of the
key, it only permutes 2^k members. A different polynomial, Toeplitz key or field set does more.

Everything is vectorised over flows; keys are arrays of shape (flows, bytes), uint8.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from schemas.errors import Usage

U8 = NDArray[np.uint8]
U32 = NDArray[np.uint32]
I64 = NDArray[np.int64]

ROCE_PORT: Final = 4791
SPORT_FIRST: Final = 0xC000  # RoCEv2 source ports are 0xC000 to 0xFFFF


@dataclass(frozen=True)
class _Crc:
    width: int
    poly: int
    init: int
    reflected: bool
    final: int


CRCS: Final = {
    "crc16": _Crc(16, 0x8005, 0, True, 0),
    "crc16-ccitt": _Crc(16, 0x1021, 0xFFFF, False, 0),
    "crc16-xmodem": _Crc(16, 0x1021, 0, False, 0),
    "crc16-kermit": _Crc(16, 0x1021, 0, True, 0),
    "crc16-dnp": _Crc(16, 0x3D65, 0, True, 0xFFFF),
    "crc32": _Crc(32, 0x04C11DB7, 0xFFFFFFFF, True, 0xFFFFFFFF),
    "crc32c": _Crc(32, 0x1EDC6F41, 0xFFFFFFFF, True, 0xFFFFFFFF),
    "crc32-bzip2": _Crc(32, 0x04C11DB7, 0xFFFFFFFF, False, 0xFFFFFFFF),
    "crc32-koopman": _Crc(32, 0x741B8CD7, 0xFFFFFFFF, True, 0xFFFFFFFF),
}
KINDS: Final = (*CRCS, "xor8", "xor16", "toeplitz", "jenkins")
FIELDS: Final = ("src", "dst", "protocol", "sport", "dport", "qpn")
FIELD_SETS: Final = {
    "5tuple": ("src", "dst", "protocol", "sport", "dport"),
    "5tuple+qpn": ("src", "dst", "protocol", "sport", "dport", "qpn"),
    "addresses": ("src", "dst"),
    "ports": ("sport", "dport"),
}
# The key that Microsoft publishes for receive-side scaling, with hashes to verify an implementation by.
TOEPLITZ_KEY: Final = bytes.fromhex(
    "6d5a56da255b0ec24167253d43a38fb0d0ca2bcbae7b30b477cb2da38030f20c6a42b73bbeac01fa"
)


@dataclass(frozen=True)
class HashModel:
    """One switch model's way to choose. Seeds may differ by switch and by ingress port.

    `seed_by` is "" (all switches share `seed`), "switch", or "port" (a seed for each ingress port).
    Of the shifted hash `bits` low bits count (0: all). `mapping` is "modulo" or "multiply"; `seed_as` is
    "init", "xor" or "prefix" (Toeplitz: the seed makes the
    key; Jenkins: its initial value). Raises Usage for a name it does not know.
    """

    kind: str = "crc32"
    seed: int = 0
    seed_by: str = ""
    seed_as: str = "init"
    offset: int = 0
    mapping: str = "modulo"
    fields: tuple[str, ...] = FIELD_SETS["5tuple"]
    bits: int = 0

    def __post_init__(self) -> None:
        _known("hash", self.kind, KINDS)
        _known("seed_by", self.seed_by, ("", "switch", "port"))
        _known("seed_as", self.seed_as, ("init", "xor", "prefix"))
        _known("mapping", self.mapping, ("modulo", "multiply"))
        for name in self.fields:
            _known("field", name, FIELDS)
        if not 0 <= self.offset < self.width:
            raise Usage(f"a hash of {self.width} bits has no offset {self.offset}")
        if self.bits and (not 0 < self.bits <= self.width or self.mapping != "modulo"):
            raise Usage(f"bits={self.bits}: 1 to {self.width}, and with map=modulo")

    @property
    def width(self) -> int:
        """Bits of the hash."""
        if self.kind in CRCS:
            return CRCS[self.kind].width
        return {"xor8": 8, "xor16": 16}.get(self.kind, 32)

    def hash(self, key: U8, seed: U32) -> U32:
        """Hash of each key; `seed` has one entry a flow (or one for all)."""
        if self.seed_as == "prefix" and self.kind not in ("toeplitz", "jenkins"):
            prefix = np.broadcast_to(seed.astype(">u4"), len(key)).copy().view(np.uint8).reshape(-1, 4)
            return self._plain(np.hstack((prefix, key)), np.zeros(1, np.uint32))
        return self._plain(key, seed)

    def _plain(self, key: U8, seed: U32) -> U32:
        if self.kind == "toeplitz":
            return _toeplitz(key, seed)
        if self.kind == "jenkins":
            return jenkins(key, seed)
        mask = np.uint32((1 << self.width) - 1)
        if self.kind in CRCS:
            if self.seed_as == "xor":
                return crc(self.kind, key) ^ (seed & mask)
            return crc(self.kind, key, seed & mask)
        return _xor(key, self.width) ^ (seed & mask)

    @property
    def linear(self) -> bool:
        """Whether hash(key, seed) = hash(key, 0) ^ `effect`(seed)."""
        return self.kind in CRCS or self.kind.startswith("xor")

    def effect(self, seed: U32, size: int) -> U32:
        """What each seed XORs into the unseeded hash of a key of `size` bytes, for a linear hash."""
        distinct, which = np.unique(seed, return_inverse=True)
        nothing = np.zeros((len(distinct), size), np.uint8)
        unseeded = self._plain(nothing[:1], np.zeros(1, np.uint32))
        return (self.hash(nothing, distinct) ^ unseeded)[which]

    def unseeded(self, key: U8) -> U32:
        """The hash without any seed, not even a prefix of zeros."""
        return self._plain(key, np.zeros(1, np.uint32))

    def choose(self, key: U8, seed: U32, buckets: I64) -> I64:
        """Place of each flow, 0 to buckets − 1; `buckets` has one entry a flow (or one for all)."""
        return self.place(self.hash(key, seed), buckets)

    def place(self, hashed: U32, buckets: I64) -> I64:
        """Place of each hash, 0 to buckets − 1."""
        value = hashed.astype(np.uint64)
        count = buckets.astype(np.uint64)
        if self.mapping == "modulo":
            value = value >> np.uint64(self.offset)
            if self.bits:
                value = value & np.uint64((1 << self.bits) - 1)
            return (value % count).astype(np.int64)
        mask = np.uint64((1 << self.width) - 1)
        high = (value << np.uint64(self.offset)) & mask
        return ((high * count) >> np.uint64(self.width)).astype(np.int64)

    def seeds(self, switch: NDArray[Any], port: NDArray[Any]) -> U32:
        """The seed that each flow meets at a switch, coming in by a port."""
        if not self.seed_by:
            return np.full(1, self.seed & 0xFFFFFFFF, np.uint32)
        return mixed(self.seed, switch, port if self.seed_by == "port" else np.zeros(1, np.int64))


def _known(what: str, value: str, known: Sequence[str]) -> None:
    if value not in known:
        raise Usage(f"no {what} {value!r}: one of {', '.join(name or 'none' for name in known)}")


def parse_model(text: str, base: HashModel | None = None) -> HashModel:
    """A model from `crc32c,seed=7,offset=3,fields=5tuple+qpn,by=switch,as=xor,map=multiply`. Raises Usage."""
    model = base or HashModel()
    changes: dict[str, Any] = {}
    names = {"by": "seed_by", "as": "seed_as", "map": "mapping"}
    for part in filter(None, text.split(",")):
        name, equals, value = part.partition("=")
        if not equals:
            changes["kind"] = name
        elif name in ("seed", "offset", "bits"):
            try:
                changes[name] = int(value, 0)
            except ValueError:
                raise Usage(f"{name}={value} is no number") from None
        elif name == "fields":
            changes["fields"] = FIELD_SETS.get(value) or tuple(value.split("+"))
        elif name in names:
            changes[names[name]] = value
        else:
            raise Usage(f"no setting {name!r} of a hash: seed, offset, bits, fields, by, as, map")
    return replace(model, **changes)


def mixed(seed: int, *numbers: NDArray[Any]) -> U32:
    """A well-mixed 32-bit number of a seed and more (the finaliser of splitmix64, number after number)."""
    state = np.full(1, seed & (2**64 - 1), np.uint64)
    for number in numbers:
        state = (state ^ number.astype(np.uint64)) + np.uint64(0x9E3779B97F4A7C15)
        state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        state = state ^ (state >> np.uint64(31))
    return (state & np.uint64(0xFFFFFFFF)).astype(np.uint32)


@cache
def _crc_table(kind: str) -> U32:
    spec = CRCS[kind]
    top, mask = 1 << (spec.width - 1), (1 << spec.width) - 1
    reflected_poly = int(f"{spec.poly:0{spec.width}b}"[::-1], 2)
    table = []
    for byte in range(256):
        value = byte if spec.reflected else byte << (spec.width - 8)
        for _ in range(8):
            if spec.reflected:
                value = (value >> 1) ^ (reflected_poly if value & 1 else 0)
            else:
                value = ((value << 1) & mask) ^ (spec.poly if value & top else 0)
        table.append(value)
    return np.array(table, np.uint32)


def crc(kind: str, key: U8, seed: U32 | None = None) -> U32:
    """CRC of each row of `key`, shape (flows, bytes); `seed` is XORed to the initial value."""
    spec, table = CRCS[kind], _crc_table(kind)
    mask, eight = np.uint32((1 << spec.width) - 1), np.uint32(8)
    value = np.full(len(key), spec.init, np.uint32)
    if seed is not None:
        value ^= seed
    for column in key.T:
        if spec.reflected:
            value = (value >> eight) ^ table[(value ^ column) & np.uint32(0xFF)]
        else:
            value = ((value << eight) & mask) ^ table[(value >> np.uint32(spec.width - 8)) ^ column]
    out: U32 = value ^ np.uint32(spec.final)
    return out


def _xor(key: U8, width: int) -> U32:
    if width == 8:
        folded: U32 = np.bitwise_xor.reduce(key, axis=1).astype(np.uint32)
        return folded
    even = np.pad(key, ((0, 0), (0, key.shape[1] % 2)))
    words: U32 = np.bitwise_xor.reduce(np.ascontiguousarray(even).view(">u2"), axis=1).astype(np.uint32)
    return words


@cache
def _toeplitz_table(seed: int, size: int) -> U32:
    """Hash of every value of every byte, shape (size, 256): the hash of a key is the XOR of its bytes'."""
    key = bytearray(TOEPLITZ_KEY)
    if seed:  # another seed is another key altogether, not a rotation
        places = mixed(seed, np.arange(len(key)))
        key = bytearray((places & 0xFF).astype(np.uint8).tobytes())
    stream = int.from_bytes(bytes(key) * (1 + size // 32), "big")
    length = 8 * len(key) * (1 + size // 32)
    windows = np.array([(stream >> (length - 32 - k)) & 0xFFFFFFFF for k in range(8 * size)], np.uint32)
    bits = (np.arange(256)[:, None] >> np.arange(7, -1, -1)) & 1
    return np.stack(
        [
            np.bitwise_xor.reduce(np.where(bits, windows[8 * k : 8 * k + 8], np.uint32(0)), axis=1)
            for k in range(size)
        ]
    ).astype(np.uint32)


def _toeplitz(key: U8, seed: U32) -> U32:
    out = np.zeros(len(key), np.uint32)
    for one in np.unique(seed).tolist():
        use = slice(None) if len(seed) == 1 else np.flatnonzero(seed == one)
        table = _toeplitz_table(one, key.shape[1])
        part = out[use]
        for place, column in enumerate(key[use].T):
            part ^= table[place, column]
        out[use] = part
    return out


def _rotated(value: U32, bits: int) -> U32:
    return (value << np.uint32(bits)) | (value >> np.uint32(32 - bits))


def jenkins(key: U8, seed: U32) -> U32:
    """Bob Jenkins' lookup3 of each row (his hashlittle, result c)."""
    size = key.shape[1]
    words = np.zeros((len(key), max(1, -(-size // 12)) * 12), np.uint8)
    words[:, :size] = key
    part = words.view("<u4").astype(np.uint32)
    a = np.broadcast_to(np.uint32((0xDEADBEEF + size) & 0xFFFFFFFF) + seed, len(key)).copy()
    b, c = a.copy(), a.copy()
    if size == 0:
        return c
    last = part.shape[1] - 3
    for k in range(0, last, 3):
        a, b, c = a + part[:, k], b + part[:, k + 1], c + part[:, k + 2]
        a, c = (a - c) ^ _rotated(c, 4), c + b
        b, a = (b - a) ^ _rotated(a, 6), a + c
        c, b = (c - b) ^ _rotated(b, 8), b + a
        a, c = (a - c) ^ _rotated(c, 16), c + b
        b, a = (b - a) ^ _rotated(a, 19), a + c
        c, b = (c - b) ^ _rotated(b, 4), b + a
    a, b, c = a + part[:, last], b + part[:, last + 1], c + part[:, last + 2]
    c = (c ^ b) - _rotated(b, 14)
    a = (a ^ c) - _rotated(c, 11)
    b = (b ^ a) - _rotated(a, 25)
    c = (c ^ b) - _rotated(b, 16)
    a = (a ^ c) - _rotated(c, 4)
    b = (b ^ a) - _rotated(a, 14)
    out: U32 = (c ^ b) - _rotated(b, 24)
    return out


def sport_of_label(label: I64) -> I64:
    """RoCEv2's UDP source port for a flow label of 20 bits, as the Linux kernel computes it."""
    low, high = label & 0x3FFF, label & 0xFC000
    return (low ^ (high >> 14)) | SPORT_FIRST


def label_of_qpns(local: I64, remote: I64) -> I64:
    """The flow label (20 bits) that the kernel gives a connected queue pair without one of its own."""
    value = local.astype(np.uint64) * remote.astype(np.uint64)
    value = value ^ (value >> np.uint64(20))
    value = value ^ (value >> np.uint64(40))
    return (value & np.uint64(0xFFFFF)).astype(np.int64)


def sport_of_qpns(local: I64, remote: I64) -> I64:
    """RoCEv2's UDP source port of a connected queue pair, predicted: a host may have set another."""
    return sport_of_label(label_of_qpns(local, remote))


def weighted_buckets(weights: Sequence[int]) -> I64:
    """Bucket table of a weighted group: each member as often as its weight, spread over the table."""
    total = sum(weights)
    if total < 1 or min(weights) < 0:
        raise Usage(f"weights {list(weights)} of a group must be >= 0 and not all 0")
    places = [((2 * k + 1) / (2 * w), m) for m, w in enumerate(weights) for k in range(w)]
    return np.array([member for _, member in sorted(places)], np.int64)


def resilient_buckets(members: int, buckets: int, alive: Sequence[bool]) -> I64:
    """Bucket table of a resilient group: only the buckets of dead members move, in turn, to live ones."""
    live = [member for member in range(members) if alive[member]]
    if not live or buckets < members:
        raise Usage(f"a resilient group of {members} needs a live member and >= {members} buckets")
    table = np.arange(buckets) % members
    dead = np.flatnonzero(~np.asarray(alive, np.bool_)[table])
    table[dead] = np.array(live)[np.arange(len(dead)) % len(live)]
    return table
