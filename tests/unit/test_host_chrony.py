"""chrony's logs and chronyc's output: signs, units, unknowns."""

# ruff: noqa: E501 (log lines are as long as they are)

from pathlib import Path

import numpy as np
import pytest

from producers.host.grammar import Grammar, Row
from producers.host.reading import Kind, Stamp
from producers.host.textfile import TextFile
from tests.paths import shared_data

NS = 1_000_000_000


def rows(text: str) -> list[Row]:
    grammar = Grammar()
    found = [*grammar.feed(text.split("\n")), *grammar.finish()]
    assert grammar.unknown == 0, grammar.samples
    return found


def one(text: str) -> Row:
    found = rows(text)
    assert len(found) == 1
    return found[0]


def test_a_measurement_is_positive_where_the_clock_is_slow() -> None:
    row = one(
        "2026-03-04 05:06:07 192.0.2.9       N  2 111 111 1111   6  6 0.50  2.500e-06  4.000e-05  1.000e-06"
        "  2.000e-03  3.000e-03 C0000209 4B K D"
    )
    assert Stamp("CLOCK_REALTIME", 1772600767 * NS, NS) == row.stamp
    reading = row.reading
    assert (
        reading.kind, reading.clock, reading.parent, reading.parent_here
    ) == (Kind.MEASUREMENT, "CLOCK_REALTIME", "192.0.2.9", False)  # fmt: skip
    assert (reading.offset_ns, reading.delay_ns, reading.spread_ns) == (-2500, 40_000, 1000)
    assert reading.error_ns == 1000 + 3_000_000 + (40_000 + 2_000_000) // 2


def test_a_failed_test_makes_it_an_event() -> None:
    reading = one(
        "2026-03-04 05:06:07 192.0.2.9       N  2 111 111 1101   6  6 0.50 -2.500e-06  4.000e-05  1.000e-06"
        "  2.000e-03  3.000e-03 C0000209 4I D D"
    ).reading
    assert (
        reading.kind,
        reading.offset_ns,
        reading.text,
    ) == (Kind.EVENT, 2500, "tests 111 111 1101 leap normal")


def test_tracking_is_positive_where_the_clock_is_fast() -> None:
    reading = one(
        "2026-03-04 05:06:07 192.0.2.9        3     -4.250      0.125  7.000e-05 N  2  3.000e-06  1.000e-09"
        "  2.000e-03  3.000e-03  1.000e-01"
    ).reading
    assert (reading.kind, reading.offset_ns, reading.freq_ppb) == (Kind.TRACKING, 70_000, -4250.0)
    assert (reading.delay_ns, reading.error_ns, reading.spread_ns) == (2_000_000, 4_000_000, 3000)


@pytest.mark.parametrize("source", ["0.0.0.0        ", "192.0.2.9      "])
def test_unsynchronised_has_no_offset(source: str) -> None:
    reading = one(
        f"2026-03-04 05:06:07 {source} 0      1.000 1000000.000  0.000e+00 ?  0  0.000e+00 -0.000e+00"
        "  1.000e+00  1.000e+00  1.500e+00"
    ).reading
    assert (reading.kind, reading.offset_ns, reading.text) == (Kind.STATE, None, "not synchronised")


def test_statistics_are_positive_where_the_clock_is_fast() -> None:
    reading = one(
        "2026-03-04 05:06:07 GPS              1.500e-03 -1.250e-02  7.392e-04  1.500e-06  4.307e-05 1.4e-02  10   0   6  0.00"
    ).reading
    assert (
        reading.kind, reading.offset_ns, reading.spread_ns, reading.parent
    ) == (Kind.STATISTICS, -12_500_000, 1_500_000, "GPS")  # fmt: skip
    assert dict(reading.values) == pytest.approx({"drift_ppb": 1500.0, "skew_ppb": 43_070.0, "samples": 10.0})


def test_banners_are_known() -> None:
    grammar = Grammar()
    banner = "=" * 80
    heading = (
        "   Date (UTC) Time     IP Address   L St 123 567 ABCD  LP RP Score    Offset  Peer del. Peer disp."
    )
    assert list(grammar.feed([banner, heading, banner])) == []
    assert (grammar.unknown, dict(grammar.ignored)) == (0, {"chrony.heading": 3})


def test_several_sources_in_one_second_stay_several() -> None:
    line = (
        "2026-03-04 05:06:07 {}       N  2 111 111 1111   6  6 0.50  {}e-06  4.000e-05  1.000e-06"
        "  2.000e-03  3.000e-03 C0000209 4B K D"
    )
    found = rows("\n".join(line.format(f"192.0.2.{n}", f"{n}.000") for n in (3, 1, 2)))
    assert [(row.reading.parent, row.reading.offset_ns) for row in found] == [
        ("192.0.2.3", -3000),
        ("192.0.2.1", -1000),
        ("192.0.2.2", -2000),
    ]


TRACKING = """\
Reference ID    : C0000209 (clock.example)
Stratum         : 2
Ref time (UTC)  : Wed Mar 04 05:06:07 2026
System time     : 0.000012500 seconds {system} of NTP time
Last offset     : -0.000000173 seconds
RMS offset      : 0.000000580 seconds
Frequency       : 1.500 ppm {frequency}
Residual freq   : +0.001 ppm
Skew            : 0.424 ppm
Root delay      : 0.000020000 seconds
Root dispersion : 0.000003000 seconds
Update interval : 1.0 seconds
Leap status     : {leap}"""


@pytest.mark.parametrize(("system", "sign"), [("slow", -1), ("fast", 1)])
@pytest.mark.parametrize(("frequency", "rate"), [("slow", -1500.0), ("fast", 1500.0)])
def test_chronyc_tracking_says_slow_or_fast(system: str, sign: int, frequency: str, rate: float) -> None:
    row = one(TRACKING.format(system=system, frequency=frequency, leap="Normal"))
    assert (sign * 12_500, rate, 13_000) == (
        row.reading.offset_ns,
        row.reading.freq_ppb,
        row.reading.error_ns,
    )
    assert (Stamp("CLOCK_REALTIME", 1772600767 * NS, NS), "clock.example") == (row.stamp, row.reading.parent)


def test_chronyc_tracking_not_synchronised_is_a_state() -> None:
    reading = one(TRACKING.format(system="slow", frequency="fast", leap="Not synchronised")).reading
    assert (reading.kind, reading.offset_ns) == (Kind.STATE, None)


@pytest.mark.parametrize(
    ("line", "kind", "offset", "error"),
    [
        ("^* clock.example                 2   6   377    11   -479ns[ -621ns] +/-  134ns", Kind.MEASUREMENT, -479, 134),
        ("^+ clock.example                 2   6    17   2m    +12us[  +14us] +/- 3021us", Kind.MEASUREMENT, 12_000, 3_021_000),
        ("#- PPS0                          0   4   377     9  +1500ms[+1501ms] +/-   10s", Kind.MEASUREMENT, 1_500_000_000, 10_000_000_000),
        ("^x clock.example                 2  10   377   12h    +12us[  +14us] +/- 3021us", Kind.EVENT, 12_000, 3_021_000),
        ("^? clock.example                 0   6     0     -     +0ns[   +0ns] +/-    0ns", Kind.STATE, None, None),
    ],
)  # fmt: skip
def test_chronyc_sources_are_positive_where_the_clock_is_fast(
    line: str, kind: Kind, offset: int | None, error: int | None
) -> None:
    reading = one(line).reading
    assert (kind, offset, error) == (reading.kind, reading.offset_ns, reading.error_ns)


def test_chronyc_csv() -> None:
    tracking = (
        "C0000209,clock.example,3,1772600767.875000000,0.000012500,-0.000000173,0.000000580,1.500,0.001,0.424,"
        "0.000020000,0.000003000,64.2,Normal"
    )
    row = one(tracking)
    assert (Stamp("CLOCK_REALTIME", 1772600767 * NS, NS), -12_500, 1500.0, 13_000) == (
        row.stamp, row.reading.offset_ns, row.reading.freq_ppb, row.reading.error_ns
    )  # fmt: skip
    row = one("^,*,clock.example,2,6,377,11,-0.000000479,-0.000000621,0.000000134")
    assert (Stamp("line", 1, 1), -479, 134) == (row.stamp, row.reading.offset_ns, row.reading.error_ns)
    row = one("clock.example,17,8,16,0.001,0.405,0.000000042,0.000002219")
    assert (row.reading.kind, row.reading.offset_ns, row.reading.spread_ns) == (Kind.STATISTICS, 42, 2219)


def read(path: Path) -> list[Row]:
    grammar = Grammar()
    with TextFile(path) as text:
        found = [row for lines in text.lines() for row in grammar.feed(lines)]
    assert (0, grammar.total) == (
        grammar.unknown,
        sum(grammar.parsed.values()) + sum(grammar.ignored.values()),
    )
    return found


@pytest.mark.parametrize("load", ["idle", "congested"])
@pytest.mark.parametrize("series", [f"{kind}_n{node}" for kind in ("raw", "sel") for node in (1, 2, 3, 4)])
def test_measurements_and_statistics_agree_on_the_sign(load: str, series: str) -> None:
    """The two logs write the same exchanges with opposite signs; made equal, they go up and down together."""
    folder = shared_data("time", "netns-lab", load)
    accepted: dict[int, list[int]] = {}
    for row in read(folder / f"chrony_{series}_measurements.log.gz"):
        if row.reading.kind == Kind.MEASUREMENT and row.reading.offset_ns is not None:
            accepted.setdefault(row.stamp.ns, []).append(row.reading.offset_ns)
    pairs = [
        (np.mean(accepted[row.stamp.ns]), row.reading.offset_ns)
        for row in read(folder / f"chrony_{series}_statistics.log.gz")
        if row.stamp.ns in accepted
    ]
    assert len(pairs) >= 12
    assert np.corrcoef(np.array(pairs).T)[0, 1] > 0.35


def test_ptp_and_ntp_see_a_queue_with_the_same_sign() -> None:
    """Measured: congestion on the way from the server makes ptp4l print +1.7 ms and chrony −1.7 ms."""
    folder = shared_data("time", "netns-lab", "congested")
    ptp = [
        row.reading.offset_ns for row in read(folder / "ptp4l_n2.log") if row.reading.offset_ns is not None
    ]
    ntp = [
        row.reading.offset_ns
        for row in read(folder / "chrony_raw_n2_measurements.log.gz")
        if row.reading.offset_ns is not None
    ]
    assert np.median(ptp) == pytest.approx(1_700_000, rel=0.1)
    assert np.median(ntp) == pytest.approx(1_700_000, rel=0.1)
