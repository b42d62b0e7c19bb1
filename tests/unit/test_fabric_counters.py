"""What ports counted: differences, wraps and resets; COUNTERS_DB and sysfs; readings as rows."""

import json
from pathlib import Path

import pytest

from producers.fabric import counters as k
from producers.fabric.counters import Counters
from producers.fabric.rows import FabricReport, Options, Reading, read
from schemas.batch import Batch
from schemas.codes import CounterState, FabricKind
from schemas.errors import MalformedInput
from schemas.network import cable, topology
from tests.paths import shared_data

S = 1_000_000_000
T0 = 1_700_000_000 * S


@pytest.mark.parametrize(
    ("before", "now", "bits", "most", "expected"),
    [
        (100, 350, 64, None, (250, CounterState.OK)),
        (None, 350, 64, None, (None, CounterState.FIRST)),
        (100, None, 64, None, (None, CounterState.UNSUPPORTED)),
        (2**64 - 10, 20, 64, 1e9, (30, CounterState.WRAPPED)),
        (2**64 - 10, 20, 64, None, (30, CounterState.WRAPPED)),
        (5_000_000, 20, 64, 1e9, (None, CounterState.RESET)),
        (5_000_000, 20, 64, None, (None, CounterState.RESET)),
        (2**32 - 10, 20, 32, 25, (None, CounterState.RESET)),  # a wrap would be more than the port carries
        (2**32 - 10, 20, 32, 30, (30, CounterState.WRAPPED)),
        (2**32 - 1, 2**32 - 1, 32, None, (None, CounterState.SATURATED)),
    ],
)
def test_differences(
    before: int | None,
    now: int | None,
    bits: int,
    most: float | None,
    expected: tuple[int | None, CounterState],
) -> None:
    assert k.difference(before, now, bits, most) == expected


def test_data_of_infiniband_counts_words() -> None:
    done = k.change(Counters(10, 20, unit=4, drops=1), Counters(15, 40, unit=4, drops=3), S)
    assert (done.tx_bytes, done.rx_bytes, done.drops, done.errors, done.state) == (
        20,
        80,
        2,
        None,
        CounterState.OK,
    )


def sonic(**out: int) -> dict[str, object]:
    return {
        "COUNTERS_PORT_NAME_MAP": {"Ethernet0": "oid:0x1", "Ethernet4": "oid:0x2"},
        "COUNTERS:oid:0x1": {
            "SAI_PORT_STAT_IF_OUT_OCTETS": str(out.get("tx", 0)), "SAI_PORT_STAT_IF_IN_OCTETS": str(out.get("rx", 0)),
            "SAI_PORT_STAT_IF_IN_ERRORS": "2", "SAI_PORT_STAT_PFC_3_RX_PKTS": "7",
        },
        "COUNTERS:oid:0x9": {"SAI_QUEUE_STAT_BYTES": "1"},
    }  # fmt: skip


def test_counters_db_by_port_name() -> None:
    found = k.of_sonic(sonic(tx=1000, rx=800), "f", {"Ethernet0": 400e9})
    assert found == {"Ethernet0": Counters(1000, 800, None, 2, 7, 400e9)}
    assert k.speeds_of(
        {"PORT|Ethernet0": {"speed": "400000"}, "PORT_TABLE:Ethernet4": {"value": {"speed": "100"}}}
    ) == {
        "Ethernet0": 400e9,
        "Ethernet4": 100e6,
    }
    with pytest.raises(MalformedInput, match="COUNTERS_PORT_NAME_MAP"):
        k.of_sonic({}, "f")
    with pytest.raises(MalformedInput, match="Ethernet0"):
        k.of_sonic(sonic() | {"COUNTERS:oid:0x1": {"SAI_PORT_STAT_IF_OUT_OCTETS": "-4"}}, "f")


def sysfs(root: Path, **files: str) -> None:
    place = root / "mlx5_0" / "ports" / "1"
    for name, content in {
        "rate": "400 Gb/sec (4X NDR)\n", "state": "4: ACTIVE\n", "counters/port_xmit_data": "100\n",
        "counters/port_rcv_data": "200\n", "counters/port_xmit_wait": "N/A (no PMA)\n",
        "counters/port_xmit_discards": "3\n", **files,
    }.items():  # fmt: skip
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text(content)


def test_sysfs_from_a_folder(tmp_path: Path) -> None:
    sysfs(tmp_path)
    found = k.of_sysfs(k.sysfs_files(tmp_path), "f")
    assert found == {"mlx5_0:1": Counters(100, 200, 3, None, None, 400e9, True, 4, 64)}
    sysfs(tmp_path, **{"counters/port_xmit_data": f"{2**32 - 1}\n"})
    assert k.of_sysfs(k.sysfs_files(tmp_path), "f")["mlx5_0:1"].bits == 32
    with pytest.raises(MalformedInput, match="no InfiniBand device"):
        k.sysfs_files(tmp_path / "mlx5_0")


TOPOLOGY = topology([*cable("leaf", "Ethernet0", "spine", "Ethernet4", 400e9)])


def batches(readings: list[Reading], options: Options | None = None) -> tuple[list[Batch], FabricReport]:
    report = FabricReport()
    made = read(readings, [], [], T0, TOPOLOGY, options or Options("fabric", "fabric/0"), report)
    return list(made), report


def test_readings_become_rows_with_differences_link_names_and_capacity() -> None:
    readings = [
        Reading("leaf", T0 + n * S, {"Ethernet0": Counters(1000 * n, 300 * n, 5, 0, None)}) for n in range(3)
    ]
    numbers = {("leaf", "Ethernet0"): (7, 3)}
    (opened, rows), report = batches(readings, Options("fabric", "fabric/0", numbers=numbers))
    assert opened.family == "control"
    assert rows.family == "fabric"
    assert rows.wide("kind").tolist() == [FabricKind.COUNTER] * 3
    assert {rows.strings[i] for i in rows.column("entity").tolist()} == {"leaf:Ethernet0>spine:Ethernet4"}
    assert {rows.strings[i] for i in rows.column("back").tolist()} == {"spine:Ethernet4>leaf:Ethernet0"}
    assert rows.wide("tx_bytes").tolist()[1:] == [1000, 1000]
    assert rows.wide("rx_bytes").tolist()[1:] == [300, 300]
    assert rows.wide("interval_ns").tolist()[1:] == [S, S]
    assert rows.column("capacity_bps").tolist() == [400e9] * 3
    assert (rows.wide("node").tolist(), rows.wide("port").tolist()) == ([7] * 3, [3] * 3)
    assert report.states == {"first": 1, "ok": 2}
    assert report.events == 3


def test_the_same_reading_twice_is_told_and_the_same_files_are_the_same_events() -> None:
    reading = Reading("leaf", T0, {"Ethernet0": Counters(1000, 300)})
    first, report = batches([reading, reading])
    assert report.skipped == {"reading not later than the one before": 1}
    again, _ = batches([reading, reading])
    assert first[1].data["src_incarnation"].tolist() == again[1].data["src_incarnation"].tolist()
    other, _ = batches([Reading("leaf", T0, {"Ethernet0": Counters(1001, 300)})])
    assert first[1].data["src_incarnation"].tolist() != other[1].data["src_incarnation"].tolist()


def test_shared_counters() -> None:
    found = k.of_sonic(json.loads(shared_data("fabric", "sonic", "counters_db.json").read_text()), "f")
    assert {name: (c.tx, c.rx) for name, c in found.items()} == {
        "Ethernet0": (1000, 800), "Ethernet4": (4000, 400), "Ethernet8": (6000, 600),
    }  # fmt: skip
    h100 = json.loads(shared_data("fabric", "ib", "gpud-h100-sys-class-infiniband.json").read_text())
    ports = k.of_sysfs(h100, "f")
    assert len(ports) == 9
    assert (ports["mlx5_0:1"].tx, ports["mlx5_0:1"].capacity_bps) == (230442669431839, 400e9)
    others = json.loads(shared_data("fabric", "ib", "procfs-sys-class-infiniband.json").read_text())
    assert sorted(k.of_sysfs(others, "f")) == ["hfi1_0:1", "mlx4_0:1", "mlx4_0:2", "mlx5_0:1"]
