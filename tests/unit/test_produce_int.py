"""`tempotrace produce int`: its options, and what it sends and says."""

import json
import socket
from pathlib import Path

import pytest

from producers.int.dialect import TOFINO, Dialect
from producers.transport import MemoryTransport
from schemas import codec
from schemas.errors import Usage
from tempotrace.cli import feed, produce_int
from tempotrace.cli.produce_int import dialect_of
from tests import int_build as b

PACKET = b.ethernet(b.ipv4(b.udp(b.md_20([{"node": 2}, {"node": 1}], b.bitmap(0)))))
REPORT = b.report_20(b.individual(PACKET, kind=0), node=9)


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> MemoryTransport:
    """What goes to Kafka otherwise."""
    transport = MemoryTransport()
    monkeypatch.setattr(feed, "KafkaTransport", lambda *_, **__: transport)
    return transport


def capture(folder: Path) -> Path:
    path = folder / "x.pcap"
    path.write_bytes(b.pcap([(10**18, b.frame(REPORT)), (10**18, b.frame(b"noise"))]))
    return path


def test_a_capture_goes_to_the_fabric(
    tmp_path: Path, sent: MemoryTransport, capsys: pytest.CaptureFixture[str]
) -> None:
    produce_int.int_(pcap=[capture(tmp_path)], plane="7", as_json=True)
    out = json.loads(capsys.readouterr().out)
    wanted = {
        "reports": 1, "hops": 2, "events": 2, "lost": 0, "malformed": 1, "by_version": {"2.0": 1},
        "ports": [9000], "tenant": "fabric", "scope": "fabric/7", "skipped": {},
    }  # fmt: skip
    assert {name: out[name] for name in wanted} == wanted
    topics = [message.topic for message in sent.sent]
    assert topics == [
        "tempotrace.fabric.events",
        "tempotrace.fabric.deadletter",
        "tempotrace.fabric.events",
        "tempotrace.fabric.events",
    ]
    assert codec.decode_record(sent.sent[1].value)["payload"] == b"noise"
    assert codec.decode_batch(sent.sent[2].value).scope == "fabric/7"


def test_for_people(tmp_path: Path, sent: MemoryTransport, capsys: pytest.CaptureFixture[str]) -> None:
    produce_int.int_(pcap=[capture(tmp_path)])
    out = capsys.readouterr().out
    assert "1 reports (1 of 2.0), 2 hops, 0 lost" in out
    assert "at UDP port 9000" in out
    assert "malformed 1: " in out


def test_live_through_the_spool(
    tmp_path: Path,
    sent: MemoryTransport,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TEMPOTRACE_HOME", str(tmp_path))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    produce_int.int_(udp_=f"localhost:{port}", seconds="300ms", host="here", as_json=True)
    out = json.loads(capsys.readouterr().out)
    wanted = {
        "reports": 0,
        "hops": 0,
        "lost": 0,
        "malformed": 0,
        "waiting": 0,
        "scope": "fabric/0",
        "dropped": {},
    }
    assert {name: out[name] for name in wanted} == wanted
    batches = [codec.decode_batch(message.value) for message in sent.sent]
    assert [batches[0].family, batches[-1].family] == ["control", "int"]
    assert batches[-1].strings[batches[-1].data["src_host"][0]] == "here"
    assert batches[-1].data["src_flags"].tolist() == [6]


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        {"udp_": "127.0.0.1:1", "pcap": [Path("x")]},
        {"pcap": [Path("x")], "seconds": "1s"},
        {"udp_": "127.0.0.1:1", "port": [5]},
        {"udp_": "127.0.0.1"},
        {"udp_": "no such host:1"},
        {"pcap": [Path("x")], "dialect": "klingon"},
        {"pcap": [Path("x")], "int_dscp": "high"},
        {"pcap": [Path("x")], "int_dscp": "99"},
    ],
)
def test_wrong_usage(wrong: dict[str, object], sent: MemoryTransport) -> None:
    with pytest.raises(Usage):
        produce_int.int_(**wrong)  # type: ignore[arg-type]  # that is the point


def test_dialects_and_signals() -> None:
    assert dialect_of("spec", None, [], None) == Dialect()
    assert dialect_of("tofino", None, [], None) == TOFINO
    assert dialect_of("spec", "0x17/0x1f", [4, 5], "0x10") == Dialect(
        dscp=0x17, dscp_mask=0x1F, udp_ports=(4, 5), marker=16
    )
