"""Probe datagrams byte by byte, the kernel's statements about its clocks, steps, a node on two sockets."""

import struct
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from producers.host import kernel_clock, mesh, probe, stamps
from producers.host.kernel_clock import Discipline, Steps, parse_phc, phc_state, realtime_state
from producers.host.probe import Datagram, Kind
from producers.ledger import sources_of
from schemas import columns as c
from schemas.batch import Batch
from schemas.errors import MalformedInput, Setup
from schemas.pack import Head
from schemas.time import TAI
from tempotrace.clockwork import FakeClock, WallClock

WHOLE = Datagram(Kind.PROBE, 2**64 - 1, "nöde", 2**63 - 1, 2**32 - 1)


def test_datagram_round_trip() -> None:
    assert probe.parse(WHOLE.encode()) == WHOLE


def test_every_truncation_and_trailing_bytes_are_refused() -> None:
    data = WHOLE.encode()
    for size in range(len(data)):
        with pytest.raises(MalformedInput):
            probe.parse(data[:size])
    for extra in (b"\0", b"x" * 100):
        with pytest.raises(MalformedInput):
            probe.parse(data + extra)


def test_every_flipped_bit_is_refused() -> None:
    data = WHOLE.encode()
    for place in range(len(data) * 8):
        broken = bytearray(data)
        broken[place // 8] ^= 1 << place % 8
        with pytest.raises(MalformedInput):
            probe.parse(bytes(broken))


@given(st.binary(max_size=300))
def test_noise_is_malformed_and_nothing_else(data: bytes) -> None:
    with pytest.raises(MalformedInput):
        probe.parse(data)


def test_keys_depend_on_every_part() -> None:
    keys = {
        probe.edge_key(*parts)
        for parts in [("a", 1, 1), ("b", 1, 1), ("a", 2, 1), ("a", 1, 2), ("a", 11, 1), ("a1", 1, 1)]
    }
    assert len(keys) == 6
    assert all(0 <= key < 2**64 for key in keys)


def test_an_unsynchronised_clock_has_no_bound() -> None:
    state = realtime_state("h", 5, 3, Discipline(False, 16_000_000_000, 37))
    assert (state.bound_ns, state.status, state.kind) == (None, c.Status.FREERUN, c.ClockKind.FREE)
    assert (state.clock_id, state.epoch, state.parent) == ("h/CLOCK_REALTIME", 3, TAI)
    assert state.timescale == c.Timescale.UTC
    assert realtime_state("h", 5, 3, None).status == c.Status.UNKNOWN


def test_a_synchronised_clock_claims_what_its_kernel_says() -> None:
    state = realtime_state("h", 5, 0, Discipline(True, 250_000, 37))
    assert (state.bound_ns, state.as_of_ns, state.growth_ppb) == (250_000, 5, 500_000.0)
    assert (state.utc_offset_s, state.utc_offset_valid) == (37, True)
    assert state.assurance == c.Assurance.CLAIMED
    unset = realtime_state("h", 5, 0, Discipline(True, 250_000, 0))
    assert (unset.utc_offset_s, unset.utc_offset_valid) == (None, False)


def test_this_kernel_says_something() -> None:
    said = kernel_clock.discipline()
    assert said is not None
    assert said.max_error_ns > 0


def test_host_names_differ_by_machine() -> None:
    def read(path: Path) -> str:
        if path == Path("/etc/machine-id"):
            raise FileNotFoundError
        return "0123456789abcdef0123456789abcdef\n"

    def nothing(path: Path) -> str:
        raise FileNotFoundError

    assert kernel_clock.machine_host(read).endswith("-01234567")
    assert kernel_clock.machine_host(nothing) == kernel_clock.machine_host(read)[: -len("-01234567")]


class Steppable(FakeClock):
    """CLOCK_REALTIME can be stepped apart from CLOCK_MONOTONIC."""

    offset_ns = 0

    def now_ns_utc(self) -> int:
        return super().now_ns_utc() + self.offset_ns


@pytest.mark.parametrize("size", [-5_000_000_000, -2_000, 2_000, 1_000_000, 10**18])
def test_steps_are_found_once(size: int) -> None:
    clock = Steppable()
    steps = Steps(clock)
    clock.advance(50_000_000)
    assert steps.look() == 0
    clock.offset_ns += size
    assert abs(steps.look() - size) <= 600  # a float of seconds resolves that much at 10^9
    clock.advance(50_000_000)
    assert steps.look() == 0


def test_real_clocks_do_not_look_stepped() -> None:
    steps = Steps(WallClock())
    assert [steps.look() for _ in range(2000)].count(0) == 2000


def test_phc_takes_the_narrowest_bracket() -> None:
    raw = bytearray(16 + 16 * 51)
    moments = [(10, 0), (99, 500), (10, 900), (100, 300), (10, 1000), (101, 7), (10, 5000)]
    for place, (seconds, ns) in enumerate(moments):
        struct.pack_into("=qII", raw, 16 + 16 * place, seconds, ns, 0)
    reading = parse_phc(bytes(raw), 3)
    assert reading == (100_000_000_300, 10_000_000_950, 51)
    state = phc_state("h", 4, 1, reading)
    assert (state.clock_id, state.parent, state.bound_ns) == ("h/ptp4", "h/CLOCK_REALTIME", 51)
    assert (state.ref_ns, state.ref_parent_ns) == (100_000_000_300, 10_000_000_950)


def test_stamps_of_a_control_message() -> None:
    content = struct.pack("=6q", 1, 2, 0, 0, 3, 4)
    assert stamps.parse_stamp(content, hardware=False) == 1_000_000_002
    assert stamps.parse_stamp(content, hardware=True) == 3_000_000_004
    assert stamps.parse_stamp(struct.pack("=6q", 1, 2, 0, 0, 0, 0), hardware=True) is None
    assert stamps.parse_stamp(content[:-1], hardware=False) is None


def test_loopback_has_no_hardware_clock() -> None:
    assert stamps.hardware_clock("127.0.0.1") is None
    assert stamps.hardware_clock("203.0.113.77") is None


def test_numbers_of_sent_datagrams_restart() -> None:
    here = stamps.StampedSocket("127.0.0.1", 0)
    try:
        for expected in ([0, 1, 2], [0, 1]):
            for number in expected:
                assert here.send(b"x" * 64, here.address) == number
            found: list[int] = []
            while len(found) < len(expected):
                found += [number for number, _ in here.sent()]
            assert found == expected
            here.restart_numbers()
    finally:
        here.close()


def test_a_taken_port_and_an_unknown_peer_are_one_clear_line() -> None:
    here = stamps.StampedSocket("127.0.0.1", 0)
    with pytest.raises(Setup, match=r"cannot listen on UDP 127\.0\.0\.1:\d+: Address already in use"):
        stamps.StampedSocket(*here.address)
    here.close()
    options = mesh.Options("a", "h", ("127.0.0.1", 0), {"b": ("no-such-host.invalid", 1)})
    with pytest.raises(Setup, match=r"peer b: no address for no-such-host\.invalid:1"):
        mesh.Node(options, Head("t", "s", "a", "probe"), 1, WallClock(), mesh.MeshReport())


class SteppedWall(WallClock):
    """The real clock, which the test steps back after some readings."""

    def __init__(self) -> None:
        self.offset_ns = 0

    def now_ns_utc(self) -> int:
        return super().now_ns_utc() + self.offset_ns


def test_a_step_begins_an_epoch_and_costs_only_what_is_in_doubt() -> None:
    """One node alone: its peer's port is a socket of ours that answers with probes of its own."""
    clock = SteppedWall()
    peer = stamps.StampedSocket("127.0.0.1", 0)
    report = mesh.MeshReport()
    head = Head("t", "s", "a", "probe")
    node = mesh.Node(
        mesh.Options("a", "h", ("127.0.0.1", 0), {"b": peer.address}, 0.002), head, 1, clock, report
    )
    batches: list[Batch] = []
    stop = threading.Event()
    number = 0

    def emit(batch: Batch) -> None:
        nonlocal number
        batches.append(batch)
        peer.send(Datagram(Kind.PROBE, probe.mesh_id("t", "s"), "b", 5, number).encode(), node.socket.address)
        number += 1
        if report.sent > 30 and clock.offset_ns == 0:
            clock.offset_ns = -60 * 10**9
        if report.sent > 60:
            stop.set()

    node.run(emit, stop)
    node.close()
    peer.close()
    epochs = [int(batch.data["clk_epoch"][0]) for batch in batches[1:]]
    assert sorted(set(epochs)) == [0, 1]
    assert epochs == sorted(epochs)
    assert report.events == sum(batch.count for batch in batches[1:])
    for epoch in (0, 1):
        assert any(batch.count for batch, at in zip(batches[1:], epochs, strict=True) if at == epoch)
    assert set(report.skipped) <= {"the clock was stepped"}
    assert (
        0 <= report.sent + report.received - report.events <= report.skipped.get("the clock was stepped", 0)
    )
    finals = [final for batch in batches[1:] for *_, final in sources_of(batch)]
    assert finals == [False] * (len(finals) - 1) + [True]
