"""Lines of OpenShift's daemon, and pmc's replies."""

# ruff: noqa: E501 (log lines are as long as they are)

import pytest

from producers.host.grammar import Grammar, Row
from producers.host.reading import Kind, Stamp

NS = 1_000_000_000


def rows(text: str, near_ns: int | None = None) -> list[Row]:
    grammar = Grammar(near_ns)
    found = [*grammar.feed(text.split("\n")), *grammar.finish()]
    assert grammar.total == sum(grammar.parsed.values()) + sum(grammar.ignored.values()) + grammar.unknown
    return found


@pytest.mark.parametrize(
    ("line", "clock", "kind", "offset", "servo", "state"),
    [
        ("dpll[1770000001]:[ts2phc.0.config] eth2 frequency_status 3 offset -7 phase_status 3 pps_status 1 s2", "dpll:eth2", Kind.SERVO, -7, 2, "locked"),
        ("dpll[1770000001]:[ts2phc.0.config] eth2 frequency_status 1 offset 99999999999 phase_status 4 pps_status 0 s0", "dpll:eth2", Kind.STATE, None, 0, "freerun"),
        ("T-BC[1770000001]:[ptp4l.0.config] eth2  offset  44 T-BC-STATUS s1", "T-BC:eth2", Kind.SERVO, 44, None, "holdover"),
        ("T-BC[1770000001]:[ptp4l.0.config] eth2 offset 99999999999 T-BC-STATUS s0", "T-BC:eth2", Kind.STATE, None, 0, "freerun"),
        ("GM[1770000001]:[ts2phc.0.config] eth2 T-GM-STATUS s1", "GM:eth2", Kind.STATE, None, None, "holdover"),
        ("gnss[1770000001]:[ts2phc.0.config] eth2 gnss_status 5 offset 3 s2", "gnss:eth2", Kind.SERVO, 3, 2, "locked"),
        ("ts2phc[1770000001]:[ts2phc.0.config] eth2 nmea_status 0 offset 999999 s0", "nmea:eth2", Kind.STATE, None, 0, "freerun"),
        ("ts2phc[1770000001]:[ts2phc.0.config] eth2 nmea_status 1 offset 0 s2", "nmea:eth2", Kind.SERVO, 0, 2, "locked"),
        ("ts2phc[1770000001]:[ts2phc.0.config] eth2 offset 5100 pps_status 0 s0", "eth2", Kind.SERVO, 5100, 0, "freerun"),
        ("ptp4l[1770000001]:[ptp4l.0.config] CLOCK_CLASS_CHANGE 165.000000", "ptp:ptp4l.0.config", Kind.STATE, None, None, "clock"),
        ("phc2sys[1770000001]:[ptp4l.0.config] PTP_PROCESS_STATUS:0", "CLOCK_REALTIME", Kind.EVENT, None, None, "phc2sys"),
        ("I0202 02:40:01.000777  99 daemon.go:9] ts2phc[1770000001]:[ts2phc.0.config] PTP_PROCESS_STATUS:1", None, Kind.EVENT, None, None, "ts2phc"),
    ],
)  # fmt: skip
def test_reports(
    line: str, clock: str | None, kind: Kind, offset: int | None, servo: int | None, state: str
) -> None:
    (row,) = rows(line)
    assert Stamp("CLOCK_REALTIME", 1770000001 * NS, NS) == row.stamp
    assert (clock, kind, offset, servo) == (
        row.reading.clock, row.reading.kind, row.reading.offset_ns, row.reading.servo
    )  # fmt: skip
    assert state == str(row.reading.text).split(" ")[0]


def test_klog_that_quotes_a_daemon_is_no_line_of_it() -> None:
    quote = "E0202 02:40:01.000777  99 log_parsing.go:65] Failed to extract: ptp4l[3.250]: master offset 5 s2 freq +1 path delay 9"
    grammar = Grammar()
    assert list(grammar.feed([quote])) == []
    assert dict(grammar.ignored) == {"klog.log_parsing.go": 1}


REPLY = """\
I0202 02:40:01.250000  99 pmc.go:44] result: sending: GET TIME_STATUS_NP
\ta0b1c2.fffe.d3e4f5-0 seq 0 RESPONSE MANAGEMENT TIME_STATUS_NP\x20
\t\tmaster_offset              -3205
\t\tingress_time               1770000001000000000
\t\tgmPresent                  {present}
\t\tgmIdentity                 00b1c2.fffe.d3e4f5
ptp4l[9.001]: master offset 5 s2 freq -1 path delay 5"""


def test_a_reply_ends_with_the_first_line_that_is_not_its_own() -> None:
    near_ns = 1770000000 * NS
    reply, servo = rows(REPLY.format(present="true"), near_ns)
    assert (Stamp("CLOCK_REALTIME", 1770000001_250_000_000, 1000), 2) == (reply.stamp, reply.line)
    assert (
        reply.reading.clock, reply.reading.parent, reply.reading.offset_ns
    ) == ("a0b1c2.fffe.d3e4f5", "00b1c2.fffe.d3e4f5", -3205)  # fmt: skip
    assert (servo.reading.offset_ns, servo.reading.clock) == (5, "ptp:ptp4l")


def test_without_a_grandmaster_there_is_no_offset() -> None:
    reply = rows(REPLY.format(present="false"))[0]
    assert (
        reply.reading.kind,
        reply.reading.offset_ns,
        reply.reading.text,
    ) == (Kind.STATE, None, "no grandmaster")
    assert Stamp("line", 2, 1) == reply.stamp  # no year known: the line's place


def test_other_replies() -> None:
    text = """\
sending: GET CURRENT_DATA_SET
\ta0b1c2.fffe.d3e4f5-0 seq 0 RESPONSE MANAGEMENT CURRENT_DATA_SET
\t\tstepsRemoved     1
\t\toffsetFromMaster -15875.0
\t\tmeanPathDelay    27817.0
sending: GET TIME_PROPERTIES_DATA_SET
\ta0b1c2.fffe.d3e4f5-0 seq 0 RESPONSE MANAGEMENT TIME_PROPERTIES_DATA_SET
\t\tcurrentUtcOffset      37
\t\tcurrentUtcOffsetValid 0
\t\tptpTimescale          0
\ta0b1c2.fffe.d3e4f5-1 seq 0 RESPONSE MANAGEMENT PORT_DATA_SET
\t\tportState               UNCALIBRATED"""
    current, properties, port = rows(text)
    assert (current.reading.offset_ns, current.reading.delay_ns) == (-15875, 27817)
    assert properties.reading.text == "currentUtcOffset=37 currentUtcOffsetValid=0 ptpTimescale=0"
    assert port.reading.text == "port 1: UNCALIBRATED"
