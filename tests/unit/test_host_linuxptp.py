"""Messages and prefixes of linuxptp: every form, every prefix, signs, units, clock names."""

# ruff: noqa: E501 (log lines are as long as they are)

import pytest

from producers.host import prefix
from producers.host.grammar import Grammar, Row
from producers.host.reading import Kind, Stamp

NS = 1_000_000_000


def rows(text: str, near_ns: int | None = None) -> list[Row]:
    grammar = Grammar(near_ns)
    return [*grammar.feed(text.split("\n")), *grammar.finish()]


def one(line: str) -> Row:
    found = rows(line)
    assert len(found) == 1, line
    return found[0]


SERVO = "master offset        -21 s2 freq   +1305 path delay       612"


@pytest.mark.parametrize(
    ("before", "stamp", "host", "tag"),
    [
        ("ptp4l[77.125]: ", Stamp("CLOCK_MONOTONIC", 77_125_000_000, 1_000_000), None, None),
        ("ptp4l[77.125]: [ptp4l.3.config:6] ", Stamp("CLOCK_MONOTONIC", 77_125_000_000, 1_000_000), None, "ptp4l.3.config"),
        ("ptp4l[77.125]: [ptp4l.3.config:{level}] ", Stamp("CLOCK_MONOTONIC", 77_125_000_000, 1_000_000), None, "ptp4l.3.config"),
        ("ptp4l[77.125]: [eth7] ", Stamp("CLOCK_MONOTONIC", 77_125_000_000, 1_000_000), None, "eth7"),
        ("^Cptp4l[77.125]: ", Stamp("CLOCK_MONOTONIC", 77_125_000_000, 1_000_000), None, None),
        ("\x1bptp4l[77.125]: ", Stamp("CLOCK_MONOTONIC", 77_125_000_000, 1_000_000), None, None),
        ("Feb 29 23:01:02 rack4 ptp4l[910]: [77.125] ", Stamp("CLOCK_MONOTONIC", 77_125_000_000, 1_000_000), "rack4", None),
        ("Feb  9 23:01:02.250 rack4 ptp4l[910]: [77.125] [c.0:6] ", Stamp("CLOCK_MONOTONIC", 77_125_000_000, 1_000_000), "rack4", "c.0"),
        ("2026-02-09T23:01:02.5+01:00 rack4 ptp4l[910]: ", Stamp("CLOCK_REALTIME", 1770674462_500_000_000, 100_000_000), "rack4", None),
        ("2026-02-09T22:01:02Z stdout F ptp4l[77.125]: ", Stamp("CLOCK_MONOTONIC", 77_125_000_000, 1_000_000), None, None),
        ("[   77.125000] rack4 ptp4l[910]: ", Stamp("CLOCK_MONOTONIC", 77_125_000_000, 1_000), "rack4", None),
        ("ptp4l[1770674462]: ", Stamp("CLOCK_REALTIME", 1770674462 * NS, NS), None, None),
        ("ptp4l[77]:[c.0] ", Stamp("CLOCK_REALTIME", 77 * NS, NS), None, "c.0"),
        ("ptp4l[77]: ", Stamp("CLOCK_MONOTONIC", 77 * NS, NS), None, None),
        ("", Stamp("line", 1, 1), None, None),
    ],
)  # fmt: skip
def test_every_prefix_gives_the_same_message(
    before: str, stamp: Stamp, host: str | None, tag: str | None
) -> None:
    row = one(before + SERVO)
    assert stamp == row.stamp
    assert (host, tag) == (row.host, row.tag)
    assert (
        row.reading.offset_ns, row.reading.delay_ns, row.reading.freq_ppb, row.reading.servo
    ) == (-21, 612, 1305.0, 2)  # fmt: skip
    assert f"ptp:{tag or 'ptp4l'}" == row.reading.clock


@pytest.mark.parametrize(
    ("line", "clock", "parent", "offset", "delay", "freq", "servo"),
    [
        ("phc2sys[9.001]: CLOCK_REALTIME phc offset  -37 s2 freq  +881 delay  702", "CLOCK_REALTIME", None, -37, 702, 881, 2),
        ("phc2sys[9.001]: [ptp4l.2.config] CLOCK_REALTIME phc offset 4 s1 freq -0 delay 1", "CLOCK_REALTIME", "ptp:ptp4l.2.config", 4, 1, 0, 1),
        ("phc2sys[9.001]: eth3 sys offset 12 s3 freq +5 delay 640", "eth3", "CLOCK_REALTIME", 12, 640, 5, 3),
        ("phc2sys[9.001]: CLOCK_REALTIME sys offset 12 s2 freq +5 delay 640", "CLOCK_REALTIME", None, 12, 640, 5, 2),
        ("phc2sys[9.001]: phc offset 55 s2 freq +5 delay 640", "CLOCK_REALTIME", None, 55, 640, 5, 2),
        ("phc2sys[9.001]: CLOCK_REALTIME phc offset 55 s2 freq +5", "CLOCK_REALTIME", None, 55, None, 5, 2),
        ("ts2phc[9.001]: [ts2phc.0.config:6] /dev/ptp3 offset  -6 s2 freq  -0", "/dev/ptp3", None, -6, None, 0, 2),
        ("ts2phc[9.001]: [ts2phc.0.config] eth3 master offset  8 s0 freq  +14", "eth3", None, 8, None, 14, 0),
        ("ts2phc[9.001]: dev/ptp3 offset  8 s0 freq  14", "dev/ptp3", None, 8, None, 14, 0),
        ("ptp4l[9.001]: master offset 1762884964848000001 s0 freq +0 path delay -35", "ptp:ptp4l", None, 1762884964848000001, -35, 0, 0),
    ],
)  # fmt: skip
def test_servo_lines_are_about_the_clock_they_name(
    line: str, clock: str, parent: str | None, offset: int, delay: int | None, freq: float, servo: int
) -> None:
    reading = one(line).reading
    assert (clock, parent) == (reading.clock, reading.parent)
    assert (offset, delay, freq, servo) == (
        reading.offset_ns, reading.delay_ns, reading.freq_ppb, reading.servo
    )  # fmt: skip
    assert reading.kind == Kind.SERVO


def test_holdover_is_said() -> None:
    reading = one("ts2phc[9.001]: [ts2phc.0.config:6] eth2 offset -1 s2 freq -39 holdover").reading
    assert (reading.text, reading.offset_ns) == ("holdover", -1)
    reading = one("ts2phc[9.001]: eth2 lost holdover lock (offset       1501)").reading
    assert (reading.kind, reading.clock, reading.offset_ns) == (Kind.STATE, "eth2", 1501)


def test_a_servo_at_its_limit_is_a_state_not_a_sample() -> None:
    reading = one("ptp4l[9.001]: master offset 31337 s2 freq -100000000 path delay 5").reading
    assert (reading.kind, reading.freq_ppb, reading.offset_ns) == (Kind.STATE, None, 31337)
    assert reading.text == "frequency -100000000 ppb at its limit"


@pytest.mark.parametrize(
    ("line", "clock", "rms", "most", "freq", "delay"),
    [
        ("ptp4l[9.001]: rms   12 max   31 freq  -1504 +/-  22 delay   310 +/-   4", "ptp:ptp4l", 12, 31, -1504, 310),
        ("ptp4l[9.001]: rms   12 max   31 freq  -1504 +/-  22", "ptp:ptp4l", 12, 31, -1504, None),
        ("phc2sys[9.001]: eth5 rms 70 max 90 freq +4 +/- 0 delay 3000 +/- 1", "eth5", 70, 90, 4, 3000),
        ("ptp4l[9.001]: [ptp4l.0.config] eth5 rms 70 max 90 freq +4 +/- 0 delay 3000 +/- 1", "eth5", 70, 90, 4, 3000),
    ],
)  # fmt: skip
def test_a_summary_has_no_sign_so_no_offset(
    line: str, clock: str, rms: int, most: int, freq: float, delay: int | None
) -> None:
    reading = one(line).reading
    assert (Kind.SUMMARY, clock, None) == (reading.kind, reading.clock, reading.offset_ns)
    assert (rms, most, freq, delay) == (
        reading.error_ns, reading.spread_ns, reading.freq_ppb, reading.delay_ns
    )  # fmt: skip


@pytest.mark.parametrize(
    ("message", "kind", "form"),
    [
        ("port 2 (eth1): SLAVE to FAULTY on FAULT_DETECTED (FT_UNSPECIFIED)", Kind.STATE, "ptp4l.port"),
        ("port 2: UNCALIBRATED to SLAVE on MASTER_CLOCK_SELECTED", Kind.STATE, "ptp4l.port"),
        ("port 2: LISTENING to SLAVE", Kind.STATE, "ptp4l.port"),
        ("port 1: new foreign master a0b1c2.fffe.d3e4f5-3", Kind.EVENT, "ptp4l.port_event"),
        ("port 1 (eth1): assuming the grand master role", Kind.EVENT, "ptp4l.port_event"),
        ("selected best master clock a0b1c2.fffe.d3e4f5", Kind.EVENT, "ptp4l.best_master"),
        ("selected local clock a0b1c2.fffe.d3e4f5 as best master", Kind.EVENT, "ptp4l.best_master"),
        ("clockcheck: clock jumped forward or running faster than expected!", Kind.EVENT, "ptp4l.clockcheck"),
        (
            "clockcheck: clock jumped backward or running slower than expected!",
            Kind.EVENT,
            "ptp4l.clockcheck",
        ),
        ("clockcheck: clock frequency changed unexpectedly!", Kind.EVENT, "ptp4l.clockcheck"),
        ("foreign master not using PTP timescale", Kind.EVENT, "ptp4l.utc"),
        ("selected /dev/ptp4 as PTP clock", Kind.EVENT, "ptp4l.phc"),
        ("delay   filtered         88   raw         82", Kind.EVENT, "ptp4l.delay"),
    ],
)
def test_states_and_events(message: str, kind: Kind, form: str) -> None:
    reading = one(f"ptp4l[5.000]: [ptp4l.1.config:5] {message}").reading
    assert (kind, form, "ptp:ptp4l.1.config") == (reading.kind, reading.form, reading.clock)
    assert reading.offset_ns is None


def test_ts2phc_names_the_clock_of_a_pulse() -> None:
    reading = one(
        "ts2phc[5.000]: [ts2phc.0.config:7] adding tstamp 1700000037.000000012 to clock /dev/ptp7"
    ).reading
    assert (reading.clock, reading.text) == ("/dev/ptp7", "1700000037.000000012")
    reading = one(
        "ts2phc[5.000]: [ts2phc.0.config:7] eth9 SKIP extts index 1 at 1700000037.000000012"
    ).reading
    assert (reading.clock, reading.form) == ("eth9", "ts2phc.skip")


@pytest.mark.parametrize(
    "line",
    [
        "ptp4l[9.001]: [c.0] port 1 (eth4): SLAVE to",
        "ptp4l[9.001]: [c.0] port 1 (eth4): to SLAVE on MASTER_CLOCK_SELECTED",
        "ptp4l[9.001]: [c.0] port 1 (",
        "ptp4l[9.001]: master offset notanint s2 freq -1 path delay 5",
        "ptp4l[9.001]: master offset 5 s4 freq -1 path delay 5",
        "ptp4l[9.001]: master offset 5 s2 freq -1 path delay",
        "ptp4l[9.001]: master offset 99999999999999999999 s2 freq -1 path delay 5",
        "ptp4l[9.001]: master offset 9223372036854775808 s2 freq -1 path delay 5",
        "ptp4l[9.001: master offset 5 s2 freq -1 path delay 5",
        "ts2phc[9.001]: offset 5 s2 freq -1",
        "ptp5l[9.001]: master offset 5 s2 freq -1 path delay 5",
        "sshd[12]: Accepted publickey for root",
        "ptp4l[9.001]: master offset ٣ s2 freq -1 path delay 5",
    ],
)
def test_what_is_not_the_grammar_is_not_understood(line: str) -> None:
    grammar = Grammar()
    assert list(grammar.feed([line])) == []
    assert (1, 1, [line]) == (grammar.total, grammar.unknown, grammar.samples)


def test_the_grandmaster_named_last_is_the_parent() -> None:
    text = (
        "ptp4l[1.000]: [a] master offset 1 s2 freq +0 path delay 1\n"
        "ptp4l[2.000]: [a] selected best master clock a0b1c2.fffe.d3e4f5\n"
        "ptp4l[3.000]: [a] master offset 1 s2 freq +0 path delay 1\n"
        "ptp4l[3.000]: [b] master offset 1 s2 freq +0 path delay 1\n"
        "ptp4l[3.500]: [a] master offset 1 s2 freq +0.5 path delay 1\n"
        "ptp4l[4.000]: [a] selected local clock 00b1c2.fffe.d3e4f5 as best master\n"
        "ptp4l[5.000]: [a] master offset 1 s2 freq +0 path delay 1"
    )
    parents = [
        (row.reading.clock, row.reading.parent) for row in rows(text) if row.reading.kind == Kind.SERVO
    ]
    master = "a0b1c2.fffe.d3e4f5"
    assert [
        ("ptp:a", None),
        ("ptp:a", master),
        ("ptp:b", None),
        ("ptp:a", master),
        ("ptp:a", None),
    ] == parents


def test_klog_takes_the_nearest_year_and_a_leap_second() -> None:
    near_ns = prefix.utc_ns(2027, 1, 1, 0, 0, 1)
    entry = prefix.klog("I1231 23:59:60.250000   17 stats.go:63] text", near_ns)
    assert entry is not None
    assert Stamp("CLOCK_REALTIME", prefix.utc_ns(2027, 1, 1, 0, 0, 0) + 250_000_000, 1000) == entry.stamp  # type: ignore[operator]
    assert prefix.klog("I1331 23:59:60.250000   17 stats.go:63] text", near_ns).stamp is None  # type: ignore[union-attr]
    assert prefix.klog("I1231 23:59:59.250000   17 stats.go:63] text", None).stamp is None  # type: ignore[union-attr]
