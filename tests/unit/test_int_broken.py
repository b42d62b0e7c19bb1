"""Whole, cut at every byte, with bytes behind, mutated, and noise: hops or MalformedInput, nothing else.

The block decoder must give what it gives for each datagram by itself, whatever lies beside it in the block.
"""

import numpy as np
import pytest

from producers.int.decode import Decoder, Hops
from producers.int.dialect import SPEC, Dialect
from producers.int.layout import Scan
from producers.int.report import DatagramLayout, read
from schemas.errors import MalformedInput
from tests import int_build as b

ALL_20 = b.bitmap(0, 1, 2, 3, 4, 5, 6, 7, 8)
HOP = {"node": 7, "in_port": 1, "out_port": 2, "latency": 3, "queue": 4, "occupancy": 5}


def samples() -> dict[str, bytes]:
    """A datagram of each kind."""
    hops = [{**HOP, "node": node} for node in (9, 8, 7)]
    tcp, udp = (lambda body: b.ethernet(b.ipv4(b.tcp(body + b"data"), 6))), (lambda body: b.ipv4(b.udp(body)))
    vxlan = bytes([0x0C, 0, 0, 0x82]) + b"\0\0\1\0" + b.md_20(hops, ALL_20) + b.ethernet(b.ipv4(b.udp(b"")))
    geneve_int = b.header_20(hops[:2], b.bitmap(0, 2))
    geneve = bytes([1 + len(geneve_int) // 4, 0, 0x65, 0x58, 0, 0, 1, 0, 1, 3, 1, len(geneve_int) // 4])
    own = {**HOP, "drop_reason": 4}
    return {
        "05": b.report_05(tcp(b.md_05(hops, b.bitmap(0, 1, 2, 3)))),
        "05 drop": b.report_05(tcp(b""), drop=own, flags=1),
        "05 local": b.report_05(tcp(b.md_05(hops, b.bitmap(0, 2))), local={**HOP, "egress_ts": 9}),
        "10": b.report_10(tcp(b.md_10(hops, b.bitmap(0, 1, 6))), node=9, bits=0b111000, own=own),
        "10 v6": b.report_10(b.ipv6(b.udp(b.md_10(hops, 0x8000))), node=9, proto=2),
        "20": b.report_20(b.individual(tcp(b.md_20(hops, ALL_20)), bits=0x5000, own=own), node=10),
        "20 many": b.report_20(
            b.individual(udp(b"x"), inner_type=4, bits=b.bitmap(1, 15), own=own, flags=1),
            b.individual(udp(b.md_20(hops, b.bitmap(0, 4))), inner_type=4, kind=0),
            b.individual(b"", inner_type=0, bits=b.bitmap(2), own=own),
            node=10,
        ),
        "20 vxlan": b.report_20(b.individual(b.ethernet(b.ipv4(b.udp(vxlan, 9, 4790))), kind=0), node=10),
        "20 geneve": b.report_20(
            b.individual(b.ethernet(b.ipv4(b.udp(geneve + geneve_int, 9, 6081))), kind=0), node=10
        ),
    }


SAMPLES = samples()


def layout(payload: bytes, dialect: Dialect = SPEC) -> DatagramLayout | None:
    """The clear parser on one datagram: a layout whose hops lie in their reports and apart, or None."""
    try:
        found = read(Scan(payload), dialect)
    except MalformedInput:
        return None
    assert found.reports
    at = 0
    for report in found.reports:
        assert at <= report.begin <= report.end <= len(payload)
        at = report.end
        spans = [(hop.at, hop.at + hop.size) for hop in report.stack]
        if report.own is not None:
            spans.insert(0, (report.own.at, report.own.at + report.own.size))
        inside = report.begin
        for begin, end in spans:
            assert inside <= begin <= end <= report.end
            inside = end
        for hop in report.stack:
            for _, place in hop.fields:
                assert 8 * hop.at <= place.at
                assert place.at + place.bits <= 8 * (hop.at + hop.size)
    return found


def same(one: Hops, many: Hops, place: int) -> None:
    """The rows of datagram `place` in a block are those that it gives by itself."""
    chosen = many.datagram == place
    for name in sorted({*one.columns, *many.columns}):
        null = np.iinfo((one.columns.get(name, many.columns.get(name))).dtype).max  # type: ignore[union-attr]
        alone = one.columns.get(name, np.full(len(one), null))
        beside = many.columns[name][chosen] if name in many.columns else np.full(int(chosen.sum()), null)
        assert alone.tolist() == beside.tolist(), name
    alone_flows = [one.flows[flow] if flow >= 0 else None for flow in one.flow.tolist()]
    beside_flows = [many.flows[flow] if flow >= 0 else None for flow in many.flow[chosen].tolist()]
    assert alone_flows == beside_flows
    assert (place in many.failures) == (0 in one.failures)


@pytest.mark.parametrize("name", SAMPLES)
def test_every_truncation_and_trailing_bytes(name: str) -> None:
    whole = SAMPLES[name]
    cuts = [whole[:size] for size in range(len(whole) + 1)] + [whole + bytes([7]) * more for more in range(9)]
    together = b.decode(cuts)
    full = b.rows(b.decode([whole]))
    for place, payload in enumerate(cuts):
        found = layout(payload)
        assert (found is None) == (place in together.failures), place
        same(b.decode([payload]), together, place)
    assert [b.rows(b.decode([whole]))] == [full]
    assert len(full) >= 1
    # A stack that is cut is given up whole: a report shows all of its hops, or the reporter's row alone.
    per_report = [row["report"] for row in full]
    for place in range(len(whole)):
        reports = together.columns["report"][together.datagram == place].tolist()
        for number in set(reports):
            assert reports.count(number) in (1, per_report.count(number)), place


def mutants(count: int, seed: int) -> list[bytes]:
    """Samples with bytes changed, cut out, doubled or swapped between two, mostly in their headers."""
    rng = np.random.default_rng(seed)
    names = list(SAMPLES)
    out = []
    for _ in range(count):
        data = bytearray(SAMPLES[names[rng.integers(len(names))]])
        for _ in range(rng.integers(1, 4)):
            place = int(rng.integers(len(data)))
            action = rng.integers(6)
            if action < 3:
                data[place] = int(rng.integers(256))
            elif action == 3:
                data[place] ^= 1 << int(rng.integers(8))
            elif action == 4 and len(data) > 8:
                del data[place : place + int(rng.integers(1, 5))]
            else:
                other = SAMPLES[names[rng.integers(len(names))]]
                data = data[:place] + bytearray(other[place:])
            if not data:
                data = bytearray(1)
        out.append(bytes(data))
    return out


@pytest.mark.parametrize("seed", range(4))
def test_mutations(seed: int) -> None:
    payloads = mutants(1500, seed)
    decoder = Decoder()
    together = b.decode(payloads, decoder=decoder)
    again = b.decode(payloads, decoder=decoder)  # now with all layouts known
    assert again.failures.keys() == together.failures.keys()
    good = 0
    for place, payload in enumerate(payloads):
        found = layout(payload)
        assert (found is None) == (place in together.failures), (seed, place)
        good += found is not None
        alone = b.decode([payload])
        same(alone, together, place)
        same(alone, again, place)
    assert 200 < good < 1400


def test_random_bytes_are_hardly_ever_reports() -> None:
    rng = np.random.default_rng(5)
    payloads = [rng.bytes(int(size)) for size in rng.integers(0, 300, 20_000)]
    got = b.decode(payloads)
    assert len(payloads) - len(got.failures) <= 4


@pytest.mark.parametrize(
    "noise",
    [
        bytes.fromhex("000084000000000100000000") + b"\x0b_googlecast\x04_tcp\x05local\0\0\x0c\0\1",  # mDNS
        bytes.fromhex("000000000001000000000000") + b"\x0b_googlecast\x04_tcp\x05local\0\0\x0c\0\1",
        b"M-SEARCH * HTTP/1.1\r\nHOST:239.255.255.250:1900\r\n\r\n",
        bytes.fromhex("0101060012345678000080000000000000000000") + bytes(220),  # DHCP
        bytes.fromhex("0005000a00000001") + bytes(100),  # NetFlow's beginning
        b"",
        bytes(64),
        b"\x10" * 64,
        b"\x20" * 64,
        b"\xff" * 64,
    ],
)
def test_noise_is_no_report(noise: bytes) -> None:
    got = b.decode([noise, SAMPLES["20"], noise])
    assert list(got.failures) == [0, 2]
    assert set(got.datagram.tolist()) == {1}
