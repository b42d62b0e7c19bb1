"""Captures to batches: formats, ports, noise, dead letters, order in time, identity, sequences."""

import struct
from pathlib import Path

import numpy as np
import pytest

from producers.int import files
from producers.int.collector import IntReport
from producers.int.files import Options, read
from producers.int.pcap import read as read_capture
from schemas.batch import Batch
from schemas.codec import decode_batch, encode_batch, encode_record
from schemas.columns import NULL_I64, SOURCE_FINAL, Control
from schemas.errors import MalformedInput
from schemas.records import DeadLetter
from tests import int_build as b
from tests.paths import shared_data

NS = 1_000_000_000
T0 = 1_700_000_000 * NS + 123_456_000
HOPS = [{"node": 2}, {"node": 1}]
OPTIONS = Options("fabric", "fabric/0")


def report(seq: int = 0, node: int = 9, sport: int = 4000) -> bytes:
    packet = b.ethernet(b.ipv4(b.udp(b.md_20(HOPS, b.bitmap(0)), sport=sport)))
    return b.report_20(b.individual(packet, kind=0), node=node, seq=seq)


def run(*paths: Path, options: Options = OPTIONS) -> tuple[list[Batch], list[DeadLetter], IntReport]:
    """All batches, through the codec, and dead letters."""
    found = IntReport()
    items = list(read(paths, options, found))
    batches = [decode_batch(encode_batch(item)) for item in items if isinstance(item, Batch)]
    dead = [item for item in items if isinstance(item, DeadLetter)]
    assert all(encode_record(item) for item in dead)
    assert batches[0].family == "control"
    assert batches[0].column("kind").tolist() == [Control.OPEN]
    return batches[1:], dead, found


def save(folder: Path, data: bytes, name: str = "x.pcap") -> Path:
    path = folder / name
    path.write_bytes(data)
    return path


FRAMES = [(T0 + 1_000 * number, b.frame(report(number))) for number in range(5)]


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("kind", ["us", "ns", "ng-us", "ng-ns", "ng-2^30"])
def test_every_kind_of_capture(tmp_path: Path, order: str, kind: str) -> None:
    data = {
        "us": b.pcap(FRAMES, order=order),
        "ns": b.pcap(FRAMES, order=order, ns=True),
        "ng-us": b.pcapng(FRAMES, order=order, resolution=6),
        "ng-ns": b.pcapng(FRAMES, order=order, resolution=9),
        "ng-2^30": b.pcapng(FRAMES, order=order, resolution=0x80 | 30),
    }[kind]
    batches, dead, found = run(save(tmp_path, data))
    stamps = np.concatenate([batch.raw_ns() for batch in batches])
    expected = np.repeat([stamp for stamp, _ in FRAMES], 2)
    assert np.abs(stamps - expected).max() <= (1 if kind == "ng-2^30" else 0)
    assert [found.reports, found.hops, found.lost, len(dead)] == [5, 10, 0, 0]
    assert found.fields()["by_version"] == {"2.0": 5}
    assert found.fields()["ports"] == [9000]
    quantum = {"us": 1000, "ns": 1, "ng-us": 1000, "ng-ns": 1, "ng-2^30": 1}[kind]
    assert batches[0].data["clk_quantum_ns"].tolist() == [quantum]


@pytest.mark.parametrize("make", [b.pcap, b.pcapng])
def test_a_capture_cut_at_every_byte(make: object, tmp_path: Path) -> None:
    data = make(FRAMES)  # type: ignore[operator]  # one of two functions
    counts = []
    for size in range(4, len(data) + 1):
        capture = read_capture(data[:size])
        counts.append(len(capture.at))
        whole = size == len(data) or not capture.warnings
        assert len(capture.warnings) <= 1
        assert whole or "breaks off" in capture.warnings[0]
    assert counts == sorted(counts)
    assert set(counts) == {0, 1, 2, 3, 4, 5}
    _, _, found = run(save(tmp_path, data[:-7]))
    assert found.reports == 4
    assert len(found.warnings) == 1
    assert "x.pcap: the capture breaks off" in found.warnings[0]


def test_what_is_no_capture(tmp_path: Path) -> None:
    good, bad = save(tmp_path, b.pcap(FRAMES)), save(tmp_path, b"ptp4l[1.2]: master offset", "x.log")
    _, _, found = run(bad, good)
    assert [found.reports, found.skipped] == [5, {"file that is no capture": 1}]
    assert "x.log" in found.warnings[0]
    with pytest.raises(MalformedInput, match="cannot be read"):
        list(read([tmp_path], OPTIONS, IntReport()))
    with pytest.raises(MalformedInput, match="no capture"):
        list(read([bad, save(tmp_path, b"", "empty")], OPTIONS, IntReport()))


@pytest.mark.parametrize("src", ["10.9.0.1", "fd00::9"])
def test_link_types_and_addresses(tmp_path: Path, src: str) -> None:
    frame = b.frame(report(), src=src, dst="fd00::1" if ":" in src else "10.9.0.9")
    ip = frame[14:]
    links = {
        1: frame,
        101: ip,
        0: struct.pack("<I", 2) + ip,
        113: bytes(14) + b"\x08\x00" + ip,
        276: b"\x08\x00" + bytes(18) + ip,
    }
    for link, data in links.items():
        _, _, found = run(save(tmp_path, b.pcap([(T0, data)], link=link)))
        assert [found.reports, found.skipped] == [1, {}]
    _, _, found = run(save(tmp_path, b.pcap([(T0, frame)], link=147)))
    assert [found.reports, found.skipped] == [0, {"link type 147": 1}]


def test_noise_is_counted_by_reason_and_dead_lettered(tmp_path: Path) -> None:
    mdns = bytes.fromhex("000084000000000100000000") + b"\x0b_googlecast\x04_tcp\x05local\0\0\x0c\0\1"
    icmp6 = b.ethernet(b.ipv6(b"\x87\0\0\0" + bytes(20), 58), 0x86DD)
    others = [
        b.ethernet(bytes(28), 0x0806),
        icmp6,
        b.ethernet(b.ipv4(b.tcp(b"x"), 6)),
        b.ethernet(b.ipv4(b.udp(mdns, 5353, 5353), dst="224.0.0.251")),
        b.ethernet(b.ipv4(b"later part", fragment=9)),
        b.ethernet(b"cut"),
    ]
    noise = [b"\xff" * 20, report(7)[:-20], mdns]
    frames = [(T0, data) for data in others]
    frames += [(T0 + 1, b.frame(data)) for data in noise] + [(T0 + 2, b.frame(report()))]
    batches, dead, found = run(save(tmp_path, b.pcap(frames)))
    assert found.skipped == {"not IP": 2, "not UDP": 2, "UDP to another port": 1, "IP fragment or cut": 1}
    assert [found.reports, found.lost, found.fields()["malformed"]] == [1, 0, 3]
    assert [item.payload for item in dead] == noise
    content = b.pcap(frames)
    assert [content[item.offset :][: len(item.payload)] for item in dead] == noise
    assert sum(found.malformed.values()) == 3
    assert {(item.tenant, item.topic.rsplit(":", 1)[1]) for item in dead} == {("fabric", "9000")}
    assert sum(batch.count for batch in batches) == 2


def test_given_ports_only(tmp_path: Path) -> None:
    frames = [(T0, b.frame(report(), port=port)) for port in (9000, 9001, 9002)]
    path = save(tmp_path, b.pcap(frames))
    _, _, found = run(path)
    assert [found.reports, found.ports] == [3, {9000, 9001, 9002}]
    _, _, found = run(path, options=Options("fabric", "fabric/0", ports=frozenset({9001})))
    assert [found.reports, found.ports, found.skipped] == [1, {9001}, {"UDP to another port": 2}]
    _, _, found = run(path, options=Options("fabric", "fabric/0", ports=frozenset({1})))
    assert [found.reports, found.warnings] == [0, ["no report was found at port 1"]]


def test_lost_by_node_engine_and_destination(tmp_path: Path) -> None:
    frames = [
        b.frame(report(10)), b.frame(report(5, node=8)), b.frame(report(13)), b.frame(report(6, node=8)),
        b.frame(report(90), dst="10.9.0.10"), b.frame(report(14)), b.frame(report(91), dst="10.9.0.10"),
        b.frame(report(3), port=9001),
        b.frame(b.report_05(b.ethernet(b.ipv4(b.udp(b"x"))), seq=50), src="10.9.0.5"),
        b.frame(b.report_05(b.ethernet(b.ipv4(b.udp(b"x"))), seq=70), src="10.9.0.6"),
        b.frame(b.report_05(b.ethernet(b.ipv4(b.udp(b"x"))), seq=53), src="10.9.0.5"),
    ]  # fmt: skip
    _, _, found = run(
        save(tmp_path, b.pcap([(T0 + place, data) for place, data in enumerate(frames)], ns=True))
    )
    assert found.lost == 2 + 2
    assert found.fields()["sequence"] == {
        "late": 0,
        "repeated": 0,
        "ambiguous": 0,
        "forgotten": 0,
        "constant": 0,
    }


def test_rows_of_a_batch(tmp_path: Path) -> None:
    nameless = b.report_05(b.ethernet(b.ipv4(b.udp(b"x", sport=65535))), flags=1, seq=2**32 - 1)
    batches, _, _ = run(save(tmp_path, b.pcap([(T0, b.frame(report(3))), (T0 + 5000, b.frame(nameless))])))
    batch = batches[0]
    text = [batch.text(place) for place in batch.column("entity").tolist()]
    assert text == ["node:2", "node:1", "node:10.9.0.1"]
    assert [batch.text(place) for place in batch.column("name").tolist()] == ["hop", "hop", "drop"]
    assert batch.wide("report_seq").tolist() == [3, 3, 2**32 - 1]
    assert batch.wide("report").tolist() == [0, 0, 1]
    assert batch.wide("sport").tolist() == [4000, 4000, 65535]
    assert batch.wide("reporter").tolist() == [9, 9, NULL_I64]
    assert batch.wide("duration_ns").tolist() == [0, 0, 0]
    assert {batch.text(place) for place in batch.column("src").tolist()} == {"10.0.0.1"}
    assert batch.strings[batch.data["src_name"][0]].startswith("int/file-")
    assert batch.strings[batch.data["clk_id"][0]].endswith("/pcap")
    assert batch.data["src_flags"].tolist() == [0]
    assert batches[-1].data["src_flags"].tolist() == [SOURCE_FINAL]


def test_blocks_keep_promises_and_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "FRAMES_MAX", 8)
    rng = np.random.default_rng(1)
    times = {}
    for name in ("a", "c"):
        stamps = T0 + 1000 * np.sort(rng.integers(0, 10**6, 50))
        stamps[20:22] = stamps[20:22][::-1]  # captured out of order
        times[name] = stamps
        frames = [(int(stamp), b.frame(report(number))) for number, stamp in enumerate(stamps)]
        save(tmp_path, b.pcap(frames), name)
    batches, _, found = run(tmp_path / "a", tmp_path / "c")
    assert [found.reports, found.lost] == [100, 0]
    low: dict[str, int] = {}
    seqs: dict[str, list[int]] = {}
    firsts = []
    for batch in batches:
        source = batch.strings[batch.data["src_name"][0]]
        if batch.count:
            assert batch.raw_ns().min() >= low.get(source, 0)
            firsts.append(int(batch.raw_ns()[0]))
            seqs.setdefault(source, []).extend(batch.seq().tolist())
        low[source] = int(batch.data["src_low_watermark_ns"][0])
    assert firsts == sorted(firsts)
    assert [numbers == list(range(100)) for numbers in seqs.values()] == [True, True]
    assert len(seqs) == 2
    assert found.batches == len(batches)


def test_the_same_file_is_the_same_events(tmp_path: Path) -> None:
    one, other = save(tmp_path, b.pcap(FRAMES)), save(tmp_path, b.pcap(FRAMES), "copy.pcap")
    first = [encode_batch(batch) for batch in run(one)[0]]
    assert first == [encode_batch(batch) for batch in run(other)[0]]
    moved = Options("fabric", "fabric/1")
    again = run(one, options=moved)[0][0].data["src_incarnation"]
    assert again.tolist() != run(one)[0][0].data["src_incarnation"].tolist()
    assert run(one, one)[2].reports == 5


def test_many_rows_are_cut_into_batches(tmp_path: Path) -> None:
    frames = [(T0 + number, b.frame(report(number, sport=1000 + number % 700))) for number in range(6000)]
    batches, _, found = run(save(tmp_path, b.pcap(frames, ns=True)))
    assert [sum(batch.count for batch in batches), found.lost] == [12_000, 0]
    assert max(batch.count for batch in batches) == 4096
    sports = np.concatenate([batch.wide("sport") for batch in batches if batch.count])
    assert sports.tolist() == np.repeat(1000 + np.arange(6000) % 700, 2).tolist()
    reports = np.concatenate([batch.wide("report") for batch in batches if batch.count])
    assert reports.tolist() == np.repeat(np.arange(6000), 2).tolist()


def test_the_public_capture(tmp_path: Path) -> None:
    batches, dead, found = run(shared_data("int", "onos-int_report-v05.pcap"))
    assert [found.reports, found.hops, found.lost, len(dead)] == [1, 3, 0, 0]
    assert found.fields()["by_version"] == {"0.5": 1}
    assert found.ports == {1234}
    assert found.deviations == {"zero time": 1}
    assert batches[0].wide("node").tolist() == [2, 3, 1]
    assert batches[0].raw_ns().tolist() == [1518507719283993000] * 3


def ng_capture(options: bytes, *stamps: int) -> bytes:
    """A pcapng of one interface with these options and a frame at each stamp, as the file counts."""

    def block(kind: int, body: bytes) -> bytes:
        body += bytes(-len(body) % 4)
        size = struct.pack("<I", len(body) + 12)
        return struct.pack("<I", kind) + size + body + size

    data = b.frame(report())
    head = block(0x0A0D0D0A, struct.pack("<IHHq", 0x1A2B3C4D, 1, 0, -1))
    head += block(1, struct.pack("<HHI", 1, 0, 65535) + options)
    for stamp in stamps:
        ends = struct.pack("<IIIII", 0, stamp >> 32, stamp & 0xFFFFFFFF, len(data), len(data))
        head += block(6, ends + data)
    return head


RESOLUTION = {code: struct.pack("<HHB3xI", 9, 1, code, 0) for code in (0, 6, 9, 63, 0x80, 0xBF, 0xFF)}
OFFSET = {seconds: struct.pack("<HHqI", 14, 8, seconds, 0) for seconds in (-(2**63), 5, 2**63 - 1)}


@pytest.mark.parametrize(
    ("options", "stamps", "used_ns", "outside"),
    [
        (RESOLUTION[0], (1_700_000_000, 2**64 - 1), [1_700_000_000 * NS], 1),
        (RESOLUTION[0x80], (2**64 - 1, 7), [7 * NS], 1),
        (RESOLUTION[6], (2**64 - 1, 7), [7_000], 1),
        (RESOLUTION[9], (2**64 - 1, 7), [7], 1),
        (RESOLUTION[63], (2**64 - 1, 7), [0, 0], 0),
        (RESOLUTION[0xBF], (2**63,), [NS], 0),
        (RESOLUTION[0xFF], (2**64 - 1,), [0], 0),
        (OFFSET[-(2**63)], (1_700_000_000_000_000,), [], 1),
        (OFFSET[2**63 - 1], (1_700_000_000_000_000,), [], 1),
        (OFFSET[5], (1_700_000_000_000_000,), [1_700_000_005 * NS], 0),
    ],
)
def test_frames_of_a_time_that_cannot_be_placed_are_left_out(
    tmp_path: Path, options: bytes, stamps: tuple[int, ...], used_ns: list[int], outside: int
) -> None:
    path = save(tmp_path, ng_capture(options, *stamps))
    batches, _, found = run(path)
    assert [ns for batch in batches for ns in batch.raw_ns()[:: len(HOPS)].tolist()] == used_ns
    assert found.skipped.get("frame with a time outside the years 1896 to 2116", 0) == outside
    said = [f"{path}: 1 frames with a time outside the years 1896 to 2116 left out"]
    assert found.warnings[:outside] == said[:outside]
