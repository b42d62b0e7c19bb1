"""Status, last offset and bound of a clock from its samples, each formula by hand."""

import numpy as np
import pytest

from schemas.columns import NULL_I64, ClockKind, Status
from schemas.columns import ClockKindOfRow as Kind
from streams.clock import estimate as e


def samples(
    rows: list[tuple[int, int | None, int | None, int | None, int | None, int | None, int]],
) -> e.Samples:
    """From (kind, offset, delay, error, spread, status, read) each."""
    kind, offset, delay, error, spread, status, read = zip(*rows, strict=True)

    def wide(values: tuple[int | None, ...]) -> e.I64:
        return np.array([NULL_I64 if value is None else value for value in values], np.int64)

    told = np.array([e.NO_STATUS if value is None else value for value in status], np.uint8)
    return e.Samples(
        wide(kind), wide(offset), wide(delay), wide(error), wide(spread), told, np.array(read, np.uint8)
    )


def servo(offset: int, delay: int | None = 100, status: Status = Status.LOCKED, read: int = e.ONE_WAY):  # type: ignore[no-untyped-def]
    return (Kind.SERVO, offset, delay, None, None, status, read)


def test_a_servo_is_bound_by_its_window_and_what_it_cannot_read() -> None:
    rows = [servo(-70), servo(5), servo(-3, delay=120)]
    found = e.estimate(samples(rows))
    assert (
        found.samples, found.at, found.offset_ns, found.bound_ns, found.status
    ) == (3, 2, -3, 70 + 120, Status.LOCKED)  # fmt: skip
    round_trip = [servo(offset, 501, read=e.ROUND_TRIP) for offset in (4, -9, 2)]
    assert e.estimate(samples(round_trip)).bound_ns == 9 + 251
    assert e.estimate(samples([servo(4, None, read=e.ROUND_TRIP)])).bound_ns == 4
    assert e.estimate(samples([servo(4, None, read=e.REPORT)])).bound_ns is None


def test_nothing_before_a_step_is_averaged_in() -> None:
    rows = [servo(10**15, status=Status.FREERUN), servo(10**15, status=Status.STEPPED), servo(20), servo(-30)]
    assert e.estimate(samples(rows)).bound_ns == 30 + 100


def test_the_window_forgets() -> None:
    offsets = [9999] + [int(np.sin(n) * 50) for n in range(300)]
    rows = samples([servo(offset) for offset in offsets])
    used = e.chosen(rows)
    naive = [
        max(abs(o) for o in offsets[max(0, at - e.WINDOW + 1) : at + 1]) + 100 for at in range(len(offsets))
    ]
    assert naive == e.bounds(rows, used).tolist()
    assert e.estimate(rows).bound_ns == naive[-1]


def test_states_and_events_are_no_samples_whatever_they_hold() -> None:
    rows = samples(
        [
            servo(7),
            (Kind.STATE, 10**15, 5, None, None, Status.UNKNOWN, 0),
            (Kind.EVENT, 10**9, 5, None, None, None, 0),
        ]
    )
    found = e.estimate(rows)
    assert (found.samples, found.offset_ns, found.status) == (1, 7, Status.UNKNOWN)


def test_chrony_is_bound_by_the_root_distance() -> None:
    rows = samples(
        [
            (Kind.MEASUREMENT, -900, 40, 3000, 1, None, e.ROUND_TRIP),
            (Kind.TRACKING, -500, 40, 2000, 1, Status.LOCKED, e.ROUND_TRIP),
            (Kind.STATISTICS, -1, None, None, 1, None, e.ROUND_TRIP),
        ]
    )
    found = e.estimate(rows)
    assert (
        found.samples, found.at, found.offset_ns, found.bound_ns, found.status
    ) == (3, 1, -500, 2500, Status.LOCKED)  # fmt: skip
    assert e.estimate(samples([(Kind.STATISTICS, -1, None, None, 1, None, e.ROUND_TRIP)])).bound_ns is None


def test_pmc_and_summaries() -> None:
    found = e.estimate(samples([(Kind.MEASUREMENT, -15, 300, None, None, None, e.ONE_WAY)]))
    assert (found.offset_ns, found.bound_ns) == (-15, 315)
    found = e.estimate(samples([(Kind.SUMMARY, None, 300, 20, 45, None, e.ONE_WAY)]))
    assert (found.samples, found.offset_ns, found.bound_ns) == (0, None, 345)


def test_no_rows_with_anything_are_unknown() -> None:
    found = e.estimate(samples([(Kind.EVENT, None, None, None, None, None, e.REPORT)]))
    assert (
        found.samples, found.at, found.offset_ns, found.bound_ns, found.status
    ) == (0, None, None, None, Status.UNKNOWN)  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "servo_", "text", "status"),
    [
        (Kind.SERVO, 0, None, Status.FREERUN),
        (Kind.SERVO, 1, None, Status.STEPPED),
        (Kind.SERVO, 2, None, Status.LOCKED),
        (Kind.SERVO, 3, None, Status.LOCKED),
        (Kind.SERVO, 2, "holdover", Status.HOLDOVER),
        (Kind.SERVO, None, "holdover T-BC", Status.HOLDOVER),
        (Kind.STATE, 2, "frequency -100000000 ppb at its limit", Status.UNKNOWN),
        (Kind.STATE, None, "port 1 (eth0): SLAVE to FAULTY on FAULT_DETECTED", Status.FREERUN),
        (Kind.STATE, None, "port 1 (eth0): UNCALIBRATED to SLAVE on MASTER_CLOCK_SELECTED", Status.LOCKED),
        (Kind.STATE, None, "port 2 (eth1): LISTENING to MASTER on RS_MASTER", None),
        (Kind.STATE, None, "not synchronised", Status.FREERUN),
        (Kind.TRACKING, None, None, Status.LOCKED),
        (Kind.MEASUREMENT, None, None, None),
        (Kind.EVENT, None, "clockcheck: clock frequency changed unexpectedly!", None),
    ],
)
def test_status_of_a_row(kind: Kind, servo_: int | None, text: str | None, status: Status | None) -> None:
    assert status == e.status_of(kind, servo_, text)


@pytest.mark.parametrize(
    ("name", "forms", "kind"),
    [
        ("ptp:a.0", {"ptp4l.servo", "ptp4l.phc"}, ClockKind.PTP_HW),
        ("ptp:a.0", {"ptp4l.servo"}, ClockKind.PTP_SW),
        ("CLOCK_REALTIME", {"chrony.tracking"}, ClockKind.NTP),
        ("CLOCK_REALTIME", {"phc2sys.servo"}, ClockKind.PTP_SW),
        ("/dev/ptp3", {"ts2phc.servo"}, ClockKind.PTP_HW),
        ("dpll:eth1", {"dpll"}, ClockKind.PTP_HW),
        ("a0b1c2.fffe.d3e4f5", {"pmc.CURRENT_DATA_SET"}, ClockKind.PTP_SW),
    ],
)
def test_kind_of_a_clock(name: str, forms: set[str], kind: ClockKind) -> None:
    assert kind == e.kind_of(name, forms)
