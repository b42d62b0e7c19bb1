"""What model a switch's settings come to, and how often a model is right.

A model chooses among a group's buckets; its rate of agreement is taken over choices that are known otherwise:
observed by in-band telemetry, or answered by the device itself. Nobody publishes how a chip orders the fields
or a group's members, so settings alone are a guess until choices confirm it. A model is given or follows from
settings; none is chosen by the choices that then judge it, which would flatter it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from ipaddress import ip_address
from math import gcd
from typing import Final
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from schemas.network import FlowKey, HashSettings, Route
from streams.paths.hashing import FIELD_SETS, HashModel, resilient_buckets, weighted_buckets

U8 = NDArray[np.uint8]

AGREEMENT_MIN: Final = 0.99
CHOICES_MIN: Final = (
    20  # fewer known choices are no calibration: luck alone is right half of the time at 2 ways
)
WEIGHTS_MAX: Final = 4096  # buckets that a weighted group is spread over at most
_FIELDS: Final = {
    "SRC_IP": "src", "DST_IP": "dst", "IP_PROTOCOL": "protocol", "L4_SRC_PORT": "sport", "L4_DST_PORT": "dport",
    "RDMA_BTH_DEST_QP": "qpn", "BTH_DEST_QP": "qpn", "DEST_QP": "qpn",
}  # fmt: skip
_ORDER: Final = ("src", "dst", "protocol", "sport", "dport", "qpn")
_ALGORITHMS: Final = {
    "CRC": HashModel("crc32"),
    "XOR": HashModel("xor16"),
    "CRC_32LO": HashModel("crc32", bits=16),
    "CRC_32HI": HashModel("crc32", offset=16),
    "CRC_CCITT": HashModel("crc16-ccitt"),
    "CRC16": HashModel("crc16"),
    "CRC32": HashModel("crc32"),
    "CRC32C": HashModel("crc32c"),
    "TOEPLITZ": HashModel("toeplitz"),
    "JENKINS": HashModel("jenkins"),
}
SPRAYS: Final = ("RANDOM",)


def of_settings(settings: HashSettings, lag: bool = False) -> HashModel | None:
    """The model that settings come to; None where the algorithm is not one of ours (CRC_XOR) or not told.

    Fields that differ from hop to hop (MAC addresses, ingress port) are left out: a model with them can only
    agree by what choices show.
    """
    algorithm = settings.lag_algorithm if lag else settings.algorithm
    base = _ALGORITHMS.get((algorithm or "").upper())
    if base is None:
        return None
    told = settings.lag_fields if lag else settings.fields
    names = {_FIELDS[name] for name in told if name in _FIELDS}
    fields = tuple(name for name in _ORDER if name in names) or FIELD_SETS["5tuple"]
    seed = settings.lag_seed if lag else settings.seed
    offset = (settings.lag_offset if lag else settings.offset) or 0
    return replace(base, fields=fields, seed=seed or 0, offset=min(base.offset + offset, base.width - 1))


def key_bytes(keys: Sequence[FlowKey], fields: Sequence[str]) -> U8:
    """Bytes of these fields, shape (keys, bytes). All keys are of one address family."""
    parts = []
    for key in keys:
        part = b""
        for name in fields:
            if name in ("src", "dst"):
                part += ip_address(getattr(key, name)).packed
            else:
                size = {"protocol": 1, "qpn": 3}.get(name, 2)
                part += int(getattr(key, name)).to_bytes(size, "big")
        parts.append(part)
    return np.frombuffer(b"".join(parts), np.uint8).reshape(len(keys), -1)


def number_of(name: str) -> int:
    """A number for a switch's or port's name, for seeds that differ by switch and port."""
    return crc32(name.encode())


def buckets(route: Route | None, weights: Sequence[int]) -> NDArray[np.int64] | None:
    """The bucket table of a group; None where each member is one bucket."""
    if route is not None and route.buckets is not None:
        return np.array(route.buckets, np.int64)
    if route is not None and route.resilient:
        return resilient_buckets(len(weights), max(route.resilient, len(weights)), [True] * len(weights))
    if len(set(weights)) < 2:
        return None
    common = gcd(*weights)
    reduced = [weight // common for weight in weights]
    if sum(reduced) > WEIGHTS_MAX:
        reduced = [max(1, weight * WEIGHTS_MAX // sum(weights)) for weight in weights]
    return weighted_buckets(reduced)


def place(
    model: HashModel, key: FlowKey, switch: str, port: str, table: NDArray[np.int64] | None, members: int
) -> int:
    """Which of `members` the model chooses for a flow that comes in by a port of a switch."""
    seed = model.seed
    if model.seed_by:
        seed = int(model.seeds(np.array([number_of(switch)]), np.array([number_of(port)]))[0])
    count = members if table is None else len(table)
    chosen = int(model.place(_hashed(model, key, seed & 0xFFFFFFFF), np.array([count]))[0])
    return chosen if table is None else int(table[chosen])


@lru_cache(maxsize=65_536)
def _hashed(model: HashModel, key: FlowKey, seed: int) -> NDArray[np.uint32]:
    """The hash of a flow: the switches of a path often share model and seed, and meet the same flow."""
    return model.hash(key_bytes([key], model.fields), np.array([seed], np.uint32))


@dataclass(frozen=True)
class Choice:
    """A choice that is known: of a flow at a switch, among `members`, and which one it was."""

    key: FlowKey
    switch: str
    port: str
    members: int
    chosen: int
    table: tuple[int, ...] | None = None


@dataclass(frozen=True)
class Rated:
    """A model and how often it was right, of how many known choices."""

    model: HashModel | None
    agreement: float | None = None
    choices: int = 0
    spray: bool = False  # the switch spreads packets, not flows

    @property
    def calibrated(self) -> bool:
        """Whether its choices count as paths."""
        return (
            self.model is not None
            and self.agreement is not None
            and self.choices >= CHOICES_MIN
            and self.agreement >= AGREEMENT_MIN
        )


def agreement(model: HashModel, choices: Sequence[Choice]) -> float | None:
    """Share of choices among two or more that the model gets right; None without any."""
    real = [choice for choice in choices if choice.members > 1]
    if not real:
        return None
    right = 0
    for choice in real:
        table = None if choice.table is None else np.array(choice.table, np.int64)
        right += choice.chosen == place(model, choice.key, choice.switch, choice.port, table, choice.members)
    return right / len(real)


def rate(model: HashModel | None, choices: Sequence[Choice]) -> Rated:
    """A given model, rated by all known choices."""
    if model is None:
        return Rated(None)
    real = [choice for choice in choices if choice.members > 1]
    return Rated(model, agreement(model, real), len(real))
