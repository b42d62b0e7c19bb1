"""The live collector on loopback: bounded datagrams, kernel stamps, end of the source, drops."""

import socket
import threading
from collections.abc import Callable

import numpy as np
import pytest

from producers.int import udp
from producers.int.collector import IntReport
from producers.int.letters import WHOLE
from producers.int.udp import Options, UdpCollector
from schemas.batch import Batch
from schemas.columns import SOURCE_FINAL, SOURCE_LIVE
from schemas.errors import Setup, Usage
from schemas.records import DeadLetter
from tempotrace.clockwork import WallClock
from tests import int_build as b

REPORT = b.report_20(
    b.individual(b.ethernet(b.ipv4(b.udp(b.md_20([{"node": 2}, {"node": 1}], b.bitmap(0))))), kind=0), node=9
)


def options(address: str = "127.0.0.1", port: int = 0) -> Options:
    return Options("fabric", "fabric/0", "here", address, port, 42)


class Run:
    """A collector in a thread. `until` waits for a condition on what was emitted."""

    def __init__(self, address: str = "127.0.0.1") -> None:
        self.report = IntReport()
        self.items: list[Batch | DeadLetter] = []
        self.collector = UdpCollector(options(address), self.report, WallClock())
        self._changed = threading.Condition()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self.collector.run, args=(self._take, self._stop))

    def start(self, stopped: bool = False) -> "Run":
        if stopped:
            self._stop.set()
        self._thread.start()
        return self

    def _take(self, item: Batch | DeadLetter) -> None:
        with self._changed:
            self.items.append(item)
            self._changed.notify_all()

    def until(self, condition: Callable[[], bool]) -> None:
        with self._changed:
            assert self._changed.wait_for(condition, timeout=20)

    def end(self) -> None:
        self._stop.set()
        self._thread.join(timeout=20)
        assert not self._thread.is_alive()
        self.collector.close()

    @property
    def batches(self) -> list[Batch]:
        return [item for item in self.items if isinstance(item, Batch) and item.family == "int"]


@pytest.mark.parametrize(("address", "family"), [("127.0.0.1", socket.AF_INET), ("::1", socket.AF_INET6)])
def test_a_bounded_number_of_datagrams(address: str, family: socket.AddressFamily) -> None:
    try:
        run = Run(address)
    except Setup:
        pytest.skip(f"this machine has no {address}")
    begin_ns = WallClock().now_ns_utc()
    run.start()
    with socket.socket(family, socket.SOCK_DGRAM) as sender:
        for number in range(100):
            payload = bytearray(REPORT)
            payload[3] = number
            sender.sendto(payload, (address, run.collector.port))
        sender.sendto(b"binary noise", (address, run.collector.port))
        run.until(lambda: run.report.reports == 100 and sum(run.report.malformed.values()) == 1)
    run.end()
    end_ns = WallClock().now_ns_utc()
    first = run.items[0]
    assert isinstance(first, Batch)
    assert first.family == "control"
    rows = sum(batch.count for batch in run.batches)
    assert [rows, run.report.events, run.report.hops, run.report.lost] == [200, 200, 200, 0]
    stamps = np.concatenate([batch.raw_ns() for batch in run.batches if batch.count])
    assert begin_ns <= stamps.min() <= stamps.max() <= end_ns
    dead = [item for item in run.items if isinstance(item, DeadLetter)]
    assert [(item.payload, item.tenant) for item in dead] == [(b"binary noise", "fabric")]
    assert address in dead[0].detail
    last = run.batches[-1]
    assert last.data["src_flags"].tolist() == [SOURCE_FINAL | SOURCE_LIVE]
    marks = [int(batch.data["src_low_watermark_ns"][0]) for batch in run.batches]
    known = [mark for mark in marks if mark > 0]
    assert known == sorted(known)
    # What was promised held: rows came no lower than the mark before them.
    low = 0
    for batch in run.batches:
        if batch.count:
            assert batch.raw_ns().min() >= low
        low = max(low, int(batch.data["src_low_watermark_ns"][0]))


def test_noise_without_end_makes_few_dead_letters() -> None:
    run = Run()
    run.start()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        for number in range(600):
            sender.sendto(b"noise" if number % 2 else REPORT, ("127.0.0.1", run.collector.port))
        run.until(lambda: run.report.reports == 300 and sum(run.report.malformed.values()) == 300)
    run.end()
    dead = [item for item in run.items if isinstance(item, DeadLetter)]
    assert len(dead) <= 2 * (WHOLE + 1)  # one interval, or two
    assert sum(item.inputs for item in dead) == 300
    assert sum(run.report.unused().values()) == 300
    assert isinstance(run.items[-1], Batch)


def test_heartbeats_come_without_reports() -> None:
    run = Run().start()
    run.until(lambda: len(run.batches) >= 4)
    run.end()
    assert {batch.count for batch in run.batches} == {0}
    assert run.report.events == 0


def test_drops_of_the_kernel_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(udp, "RECEIVE_QUEUE_BYTES", 4096)
    run = Run()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        for _ in range(500):  # nobody reads yet
            sender.sendto(REPORT, ("127.0.0.1", run.collector.port))
    run.start()
    run.until(lambda: run.report.dropped_by_kernel is not None and run.report.dropped_by_kernel > 0)
    run.until(lambda: run.report.reports + (run.report.dropped_by_kernel or 0) >= 500)
    run.end()
    assert run.report.reports + (run.report.dropped_by_kernel or 0) == 500
    losses = [
        int(item.wide("number")[0])
        for item in run.items[1:]
        if isinstance(item, Batch) and item.family == "control"
    ]
    assert sum(losses) == run.report.dropped_by_kernel
    assert len(run.report.warnings) >= 1


def test_a_port_that_is_taken_and_an_address_that_is_none() -> None:
    first = UdpCollector(options(), IntReport(), WallClock())
    with first, pytest.raises(Setup, match=f"port {first.port}"):
        UdpCollector(options(port=first.port), IntReport(), WallClock())
    with pytest.raises(Usage, match="--udp no such host"):
        UdpCollector(options("no such host"), IntReport(), WallClock())


def test_what_came_before_the_stop_is_read_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(udp, "BLOCK_MAX", 16)
    run = Run()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        for _ in range(200):
            sender.sendto(REPORT, ("127.0.0.1", run.collector.port))
    run.start(stopped=True).end()
    assert run.report.reports == 200
