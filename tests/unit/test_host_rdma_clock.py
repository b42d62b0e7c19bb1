"""RDMA devices through a pretended pyverbs; and the real one's names, where Debian's package is installed."""

import json
import subprocess
import threading
from pathlib import Path

import numpy as np
import pytest

from producers.host import rdma_clock, verbs
from producers.host.rdma_clock import TickClock
from schemas.batch import Batch
from schemas.columns import NULL_I64, ClockKindOfRow
from schemas.errors import Setup
from schemas.pack import Head
from streams.clock.gpureads import read_rows
from tempotrace import cli, doctor
from tempotrace.clockwork import FakeClock
from tests.fake_verbs import Card, install, uninstall

HEAD = Head("default", "s", "h/rdma-mlx5_0", "clock")


def sysfs(folder: Path, **phcs: str) -> Path:
    """Devices with their PHCs, as the kernel lists them."""
    for device, phc in phcs.items():
        (folder / device / "device" / "ptp" / phc).mkdir(parents=True)
    return folder


def sample(
    patch: pytest.MonkeyPatch, card: Card, folder: Path, seconds: float = 1.0, version: int = 44
) -> tuple[list[Batch], rdma_clock.RdmaReport]:
    """What a device gives in so many seconds of a clock that moves 1 µs at each look."""
    install(patch, {"mlx5_0": card}, version)
    clock, stop, batches = FakeClock(), threading.Event(), list[Batch]()
    end = clock.now_ns_utc() + round(seconds * 1e9)

    class Moving:
        def now_ns_utc(self) -> int:
            clock.advance(1_000)
            return clock.now_ns_utc()

        def monotonic(self) -> float:
            clock.advance(1_000)
            if clock.now_ns_utc() > end:
                stop.set()
            return clock.monotonic()

        def wait(self, event: threading.Event, seconds: float) -> bool:
            return clock.wait(event, seconds)

    report = rdma_clock.RdmaReport()
    sampler = rdma_clock.Sampler(
        rdma_clock.Options("mlx5_0", "h"),
        HEAD,
        5,
        verbs.Binding(),
        Moving(),
        report,
        sysfs(folder, mlx5_0="ptp3"),
    )
    sampler.run(batches.append, stop)
    sampler.close()
    return batches, report


@pytest.mark.parametrize("version", [44, 59])
def test_a_device_gives_its_counter_its_completions_and_its_wall_clock(
    version: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    card = Card()
    batches, report = sample(monkeypatch, card, tmp_path, version=version)
    assert report.device == "mlx5_0 (156.25 MHz, 48 bits, ptp3)"
    assert (report.warnings, report.skipped) == ([], {})
    assert set(report.rows) == {"rdma.clock", "rdma.completion", "rdma.wallclock"}
    assert len(set(report.rows.values())) == 1
    data = [batch for batch in batches if batch.family == "clock" and batch.count]
    assert sum(batch.count for batch in data) == report.events == 3 * report.rows["rdma.clock"] > 20
    first = data[0]
    names = [first.text(int(each)) for each in first.column("name")[:3]]
    entities = [first.text(int(each)) for each in first.column("entity")[:3]]
    assert names == ["rdma.clock", "rdma.completion", "rdma.wallclock"]
    assert entities == ["h/mlx5_0", "h/mlx5_0", "h/ptp3"]
    assert set(first.column("kind").tolist()) == {int(ClockKindOfRow.READ)}
    assert {first.text(int(each)) for each in first.column("parent")} == {"h/CLOCK_REALTIME"}
    begun, width, offset = first.raw_ns(), first.column("delay_ns"), first.column("offset_ns")
    # 200 ticks of 6.4 ns from the start; the wall clock stands still.
    assert int(offset[0]) == 1_000_200 * 1_000_000 // 156_250 - (int(begun[0]) + int(width[0]) // 2)
    assert int(offset[2]) == card.wallclock_ns - (int(begun[2]) + int(width[2]) // 2)
    assert (first.column("error_ns") == width // 2 + 1 + 7).all()
    assert (width > 0).all()
    # The log holds the bracket whole.
    given = read_rows(begun[:1], offset[:1], width[:1], 7)
    assert [side.tolist() for side in given] == [
        [6_401_280], [int(begun[0] + width[0]) + 1], [6_401_287], [int(begun[0])]
    ]  # fmt: skip
    assert (offset != NULL_I64).all()
    assert card.closed == ["qp", "mr", "pd", "cq", "context"]
    assert card.pair.attributes.ah_attr.is_global == 1


def test_infiniband_is_addressed_by_its_lid(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    card = Card(ethernet=False)
    sample(monkeypatch, card, tmp_path, 0.2)
    assert vars(card.pair.attributes.ah_attr) == {"port_num": 1, "dlid": 7}


def test_a_driver_without_wall_clock_gives_raw_stamps(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    report = sample(monkeypatch, Card(wallclock=False), tmp_path, 0.5)[1]
    assert set(report.rows) == {"rdma.clock", "rdma.completion"}


def test_a_device_that_refuses_a_pair_is_still_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    card = Card(pairs=False)
    report = sample(monkeypatch, card, tmp_path, 0.5)[1]
    assert set(report.rows) == {"rdma.clock"}
    assert report.warnings == [
        "RDMA device mlx5_0 refuses a queue pair to itself: EPERM; the counter is read without completions"
    ]


@pytest.mark.parametrize(
    ("card", "reason"),
    [(Card(status=12), "a write failed with status 12"), (Card(lost=True), "a write did not complete")],
)
def test_failing_writes_are_counted_and_given_up(
    card: Card, reason: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    report = sample(monkeypatch, card, tmp_path, 3.0)[1]
    assert report.skipped == {reason: rdma_clock.FAILURES_MAX}
    assert report.warnings == ["10 writes in a row failed; the counter is read without them"]
    assert report.rows["rdma.clock"] > 2 * rdma_clock.FAILURES_MAX
    assert card.closed == ["qp", "mr", "pd", "cq", "context"]


@pytest.mark.parametrize(("khz", "mask"), [(0, 2**48 - 1), (156_250, 0), (156_250, 0b101)])
def test_a_device_that_stamps_nothing_is_refused(
    khz: int, mask: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    card = Card(core_khz=khz, mask=mask)
    with pytest.raises(Setup, match="gives no completion stamps"):
        sample(monkeypatch, card, tmp_path)
    assert card.closed == ["context"]


def test_ticks_are_counted_over_wraps_and_a_little_back() -> None:
    clock = TickClock(1_000_000, 2**8 - 1)
    assert [clock.ns(ticks) for ticks in (250, 2, 255, 120, 240)] == [250, 258, 255, 376, 496]
    fine = TickClock(156_250, 2**64 - 1)
    assert (fine.tick_ns, fine.ns(10**15)) == (7, 64 * 10**14)
    rng = np.random.default_rng(4)
    wide, start = TickClock(78_125, 2**32 - 1), 1_000
    true = start + np.cumsum(rng.integers(0, 2**31 - 1, 1000))
    assert [wide.ns(int(each) % 2**32) for each in true] == [int(each) * 1_000_000 // 78_125 for each in true]


def test_discovery_names_every_device(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    install(monkeypatch, {"mlx5_1": Card(mask=0), "mlx5_0": Card()})
    folder = sysfs(tmp_path, mlx5_0="ptp0")
    found = rdma_clock.discover(verbs.Binding(), folder)
    assert [each.text() for each in found] == ["mlx5_0 (156.25 MHz, 48 bits, ptp0)", "mlx5_1 (no stamps)"]
    (folder / "mlx5_0" / "device" / "ptp" / "ptp1").mkdir()
    assert rdma_clock.phc_of("mlx5_0", folder) is None


def test_the_doctor_shows_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, {"mlx5_0": Card()})
    assert doctor._rdma() == ("rdma", "ok", "devices: mlx5_0 (156.25 MHz, 48 bits)")
    install(monkeypatch, {})
    assert doctor._rdma() == ("rdma", "absent", "no devices here: no RDMA clocks or completions")
    uninstall(monkeypatch)
    monkeypatch.setattr(rdma_clock, "SYSFS", Path("/none"))
    assert doctor._rdma() == ("rdma", "absent", "no devices here: no RDMA clocks or completions")


@pytest.mark.parametrize(
    ("cards", "message"),
    [
        (None, "pyverbs is missing"),
        ({}, "no RDMA device mlx5_0: no RDMA device is here"),
        ({"mlx5_7": Card()}, "no RDMA device mlx5_0: the devices here are mlx5_7"),
    ],
)
def test_the_command_says_what_is_missing_and_ends(
    cards: dict[str, Card] | None,
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if cards is None:
        uninstall(monkeypatch)
    else:
        install(monkeypatch, cards)
    assert cli.run(["produce", "host", "--rdma", "mlx5_0", "--json"]) == 1
    assert message in json.loads(capsys.readouterr().out)["error"]


def test_only_one_thing_is_read_at_a_time(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["produce", "host", "--rdma", "mlx5_0", "--mesh"]) == 2
    assert cli.run(["produce", "host"]) == 2
    assert "either --log FILE, --mesh or --rdma DEV" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--rdma", "mlx5_0", "--year", "2026"], "--rdma does not take --year"),
        (["--log", "-", "--node", "a", "--interval", "5ms"], "--log does not take --node, --interval"),
        (["--mesh", "--node", "a", "--follow"], "--mesh does not take --follow"),
    ],
)
def test_options_of_another_way_of_reading_are_refused(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(["produce", "host", *arguments]) == 2
    assert message in capsys.readouterr().err


def test_debians_pyverbs_has_the_names_that_are_used() -> None:
    python = Path("/usr/bin/python3")
    asked = """
import pyverbs.device as d, pyverbs.cq as cq, pyverbs.qp as qp, pyverbs.wr as wr, pyverbs.addr as a
import pyverbs.pd, pyverbs.mr, pyverbs.pyverbs_error as e, pyverbs.enums as n
assert issubclass(d.PyverbsRDMAError, e.PyverbsError)
assert {'query_device_ex', 'query_rt_values_ex', 'query_port', 'query_gid'} <= set(dir(d.Context))
assert {'hca_core_clock', 'completion_timestamp_mask'} <= set(dir(d.DeviceAttrEx))
assert {'start_poll', 'poll_next', 'end_poll', 'read_timestamp', 'read_completion_wallclock_ns', 'wr_id',
        'status'} <= set(dir(cq.CQEX))
cq.CqInitAttrEx(cqe=32, wc_flags=n.IBV_WC_STANDARD_FLAGS | n.IBV_WC_EX_WITH_COMPLETION_TIMESTAMP
                | n.IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK)
caps = qp.QPCap(max_send_wr=16, max_recv_wr=1, max_send_sge=1, max_recv_sge=1)
qp.QPInitAttr(qp_type=n.IBV_QPT_RC, cap=caps, sq_sig_all=1)
attr = qp.QPAttr(port_num=1)
for name in ('qp_access_flags', 'path_mtu', 'dest_qp_num', 'rq_psn', 'sq_psn', 'max_rd_atomic',
             'max_dest_rd_atomic', 'min_rnr_timer', 'timeout', 'retry_cnt', 'rnr_retry'):
    setattr(attr, name, 1)
gid = a.GID('fe80:0000:0000:0000:0000:0000:0000:0001')
attr.ah_attr = a.AHAttr(port_num=1, is_global=1, gr=a.GlobalRoute(dgid=gid, sgid_index=0))
attr.ah_attr = a.AHAttr(port_num=1, dlid=7)
request = wr.SendWR(wr_id=3, opcode=n.IBV_WR_RDMA_WRITE, num_sge=1, sg=[wr.SGE(0, 8, 1)],
                    send_flags=n.IBV_SEND_SIGNALED)
request.set_wr_rdma(1, 2)
assert {'buf', 'lkey', 'rkey'} <= set(dir(pyverbs.mr.MR)) and n.IBV_LINK_LAYER_ETHERNET == 2
"""
    probe = "import pyverbs.enums"
    if (
        not python.exists()
        or subprocess.run([python, "-c", probe], capture_output=True, check=False).returncode
    ):
        pytest.skip("Debian's python3-pyverbs is not installed")
    ran = subprocess.run([python, "-c", asked], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
