"""The block decoder against the obvious one: on made reports, and on mutations that are still by the book."""

import numpy as np
import pytest

from schemas.columns import IntWarning
from tests import int_build as b
from tests.naive.int_reports import decode as obvious

NUMBERS = {name for table in b.WORDS.values() for parts in table.values() for name, _ in parts} | {
    "drop_reason"
}
# What the block decoder tells beside it, and reads all the same.
HARMLESS = IntWarning.ZERO_TIME | IntWarning.HOP_COUNT | IntWarning.HOPS_EXCEEDED | IntWarning.INT_ABSENT


def made(rng: np.random.Generator) -> bytes:
    """A random datagram by the book."""

    def hop() -> dict[str, int]:
        names = ("node", "in_port", "out_port", "latency", "queue", "occupancy", "ingress_ts", "egress_ts")
        more = (
            "tx_util",
            "in_logical",
            "out_logical",
            "buffer",
            "buffer_occupancy",
            "congestion",
            "drop_reason",
        )
        return {name: int(rng.integers(200)) for name in (*names, *more) if rng.random() < 0.8}

    def packet(version: int) -> bytes:
        table = sorted(b.WORDS[version])
        bits = b.bitmap(*[bit for bit in table if rng.random() < 0.5]) or 0x8000
        hops = [hop() for _ in range(rng.integers(1, 7))]
        body = {5: b.md_05, 10: b.md_10, 20: b.md_20}[version](hops, bits) + rng.bytes(int(rng.integers(9)))
        proto = int(rng.choice([6, 17]))
        return b.ipv4(b.tcp(body) if proto == 6 else b.udp(body), proto)

    version = int(rng.choice([5, 10, 20]))
    if version == 5:
        own = hop() if rng.random() < 0.5 else None
        return b.report_05(b.ethernet(packet(5)), local=own, flags=int(rng.choice([4, 5, 6])))
    if version == 10:
        return b.report_10(packet(10), node=5, bits=int(rng.integers(64)), own=hop(), proto=1)
    reports = []
    for _ in range(rng.integers(1, 4)):
        bits = b.bitmap(*[bit for bit in b.REPORT_20 if rng.random() < 0.5])
        kind = int(rng.integers(2))
        reports.append(b.individual(packet(20), kind=kind, inner_type=4, bits=bits, own=hop()))
    return b.report_20(*reports, node=7)


def changed(rng: np.random.Generator, data: bytes) -> bytes:
    out = bytearray(data)
    for _ in range(rng.integers(1, 3)):
        place = int(rng.integers(len(out)))
        out[place] = int(rng.integers(256)) if rng.random() < 0.5 else out[place] ^ 1 << int(rng.integers(8))
    return bytes(out)


@pytest.mark.parametrize("seed", range(6))
def test_agreement(seed: int) -> None:
    rng = np.random.default_rng(seed)
    whole = [made(rng) for _ in range(300)]
    payloads = whole + [changed(rng, whole[int(rng.integers(len(whole)))]) for _ in range(1200)]
    got = b.decode(payloads)
    found: dict[int, list[dict[str, int]]] = {}
    for place, row in zip(got.datagram.tolist(), b.rows(got), strict=True):
        found.setdefault(place, []).append(row)
    by_the_book = 0
    for place, payload in enumerate(payloads):
        expected = obvious(payload)
        if place < len(whole):
            assert expected is not None
        if expected is None:
            continue
        by_the_book += 1
        rows = found[place]
        assert {row["warnings"] & ~HARMLESS for row in rows} == {0}, (seed, place)
        for number, hops in enumerate(expected):
            of_report = [row for row in rows if row["report"] == number]
            numbers = [{name: row[name] for name in row if name in NUMBERS} for row in of_report]
            assert numbers == hops, (seed, place, number)
    assert by_the_book > 700
