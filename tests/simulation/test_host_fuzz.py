"""Mutated logs: never a crash, never a silently wrong sign, every line counted.

The oracle reads the one number that matters from the mutated line by splitting it at blanks, and knows
nothing else of the format. TEMPOTRACE_MUTATIONS sets how many mutations are made (100,000 take about a
minute)."""

# ruff: noqa: E501 (log lines are as long as they are)

import os
from collections.abc import Callable

import numpy as np
import pytest

from producers.host.grammar import Grammar, Row
from producers.host.logs import LogReport, Options, read
from producers.host.reading import INT63, Kind

MUTATIONS = int(os.environ.get("TEMPOTRACE_MUTATIONS", "10000"))
SEED = 20_260_801


def word_after(word: str, factor: int = 1) -> Callable[[str], int]:
    """The integer behind a word."""

    def read_(line: str) -> int:
        words = line.split()
        return factor * round(float(words[words.index(word) + 1]))

    return read_


def column(at: int, factor: int) -> Callable[[str], int]:
    """A column in seconds, in ns."""

    def read_(line: str) -> int:
        return factor * round(float(line.split()[at]) * 1e9)

    return read_


def said(line: str) -> int:
    """chronyc's System time: slow is negative."""
    words = line.split(":", 1)[1].split()
    return {"slow": -1, "fast": 1}[words[2]] * round(float(words[0]) * 1e9)


LINES: dict[str, tuple[str, Callable[[str], int]]] = {
    "ptp4l.servo": ("ptp4l[912.031]: [a.0.config:6] master offset       -431 s2 freq   +1870 path delay      1204", word_after("offset")),
    "phc2sys.servo": ("Feb  2 02:40:07 rack9 phc2sys[77]: [912.031] CLOCK_REALTIME phc offset       318 s2 freq  -20170 delay    701", word_after("offset")),
    "ts2phc.servo": ("ts2phc[912.031]: [b.0.config:6] /dev/ptp4 offset        -19 s3 freq      -7 holdover", word_after("offset")),
    "dpll": ("dpll[1770000000]:[b.0.config] eth2 frequency_status 3 offset -12 phase_status 3 pps_status 1 s2", word_after("offset")),
    "t-bc": ("T-BC[1770000000]:[b.0.config] eth2 offset -44 T-BC-STATUS s2", word_after("offset")),
    "gnss": ("gnss[1770000000]:[b.0.config] eth2 gnss_status 5 offset 17 s2", word_after("offset")),
    "chrony.measurement": ("2026-03-04 05:06:07 192.0.2.9       N  2 111 111 1111   6  6 0.50 -2.625e-05  4.000e-05  1.000e-06  2.000e-03  3.000e-03 C0000209 4B K D", column(11, -1)),
    "chrony.tracking": ("2026-03-04 05:06:07 192.0.2.9        3     -4.250      0.125 -7.125e-05 N  2  3.000e-06  1.000e-09  2.000e-03  3.000e-03  1.000e-01", column(6, 1)),
    "chrony.statistics": ("2026-03-04 05:06:07 GPS              1.500e-03 -1.250e-02  7.392e-04  1.500e-06  4.307e-05 1.4e-02  10   0   6  0.00", column(4, 1)),
    "pmc.CURRENT_DATA_SET": ("\ta0b1c2.fffe.d3e4f5-0 seq 0 RESPONSE MANAGEMENT CURRENT_DATA_SET\n\t\tstepsRemoved     1\n\t\toffsetFromMaster -15875.0", word_after("offsetFromMaster")),
    "chronyc.tracking": ("Reference ID    : C0000209 (clock.example)\nRoot delay      : 0.000020000 seconds\nRoot dispersion : 0.000003000 seconds\nFrequency       : 1.500 ppm slow\nLeap status     : Normal\nSystem time     : 0.000012500 seconds slow of NTP time", said),
}  # fmt: skip


def mutate(text: str, rng: np.random.Generator) -> str:
    """One to three changes: a character replaced, put in or taken out, a piece doubled, cut off or moved."""
    alphabet = "0123456789+-. \t[]():se\0é٣"
    for _ in range(int(rng.integers(1, 4))):
        at = int(rng.integers(0, len(text) + 1))
        other = int(rng.integers(0, len(text) + 1))
        low, high = min(at, other), max(at, other)
        letter = alphabet[int(rng.integers(0, len(alphabet)))]
        text = (
            text[:at] + letter + text[at + 1 :],
            text[:at] + letter + text[at:],
            text[:at] + text[at + 1 :],
            text[:high] + text[low:high] + text[high:],
            text[:at],
            text[low:high] + text[:low] + text[high:],
        )[int(rng.integers(0, 6))]
    return text


def judge(text: str, rows: list[Row]) -> int:
    """Check the offset of every row that has one against its own line; how many were checked."""
    checked = 0
    lines = text.split("\n")
    for row in rows:
        reading = row.reading
        if reading.offset_ns is None or reading.form not in LINES:
            continue
        assert abs(reading.offset_ns) <= INT63
        oracle = LINES[reading.form][1]
        line = lines[row.line - 1]
        # A reply of several lines has one with the number: the first of that name.
        if reading.form == "pmc.CURRENT_DATA_SET":
            line = next(each for each in lines if each.split()[:1] == ["offsetFromMaster"])
        elif reading.form == "chronyc.tracking":
            line = next(each for each in lines if each.split(":")[0].rstrip() == "System time")
        assert oracle(line) == pytest.approx(reading.offset_ns, abs=1), (line, reading)
        checked += 1
    return checked


@pytest.mark.parametrize("form", LINES)
def test_mutated_lines(form: str) -> None:
    rng = np.random.default_rng(SEED + len(form))
    line, oracle = LINES[form]
    grammar = Grammar()
    rows = [*grammar.feed(line.split("\n")), *grammar.finish()]
    assert [oracle(line.split("\n")[-1])] == [row.reading.offset_ns for row in rows]
    checked = 0
    for _ in range(MUTATIONS // len(LINES)):
        text = mutate(line, rng)
        grammar = Grammar()
        rows = [*grammar.feed(text.split("\n")), *grammar.finish()]
        assert grammar.total == len(text.split("\n"))
        assert grammar.total == sum(grammar.parsed.values()) + sum(grammar.ignored.values()) + grammar.unknown
        checked += judge(text, rows)
    assert checked > MUTATIONS // len(LINES) // 50, "mutations that leave nothing to read test nothing"


def test_mutated_files_make_batches(tmp_path) -> None:  # type: ignore[no-untyped-def]
    """Whole files of mutated lines go all the way: every row in a batch, every line counted."""
    rng = np.random.default_rng(SEED)
    texts = [text for text, _ in LINES.values()]
    for number in range(10):
        lines = [mutate(texts[int(rng.integers(0, len(texts)))], rng) for _ in range(MUTATIONS // 100)]
        path = tmp_path / f"{number}.log"
        path.write_bytes("\n".join(lines).encode("utf-8", "surrogatepass"))
        report = LogReport()
        batches = list(read([path], Options(rows=50), report))
        counted = report.lines.fields()
        assert counted["total"] == counted["parsed"] + counted["ignored"] + counted["unknown"]
        assert report.events == sum(batch.count for batch in batches if batch.family == "clock") > 0


def test_the_fast_way_gives_the_same_as_the_grammar() -> None:
    """Servo lines are taken whole by one expression; with a blank before them they take the long way."""
    rng = np.random.default_rng(SEED)
    for form in ("ptp4l.servo", "ts2phc.servo"):
        for _ in range(MUTATIONS // 10):
            line = mutate(LINES[form][0], rng)
            if "\n" in line:
                continue
            fast, slow = Grammar(), Grammar()
            slow_rows = list(slow.feed(["\x01" + line]))
            assert slow_rows == list(fast.feed([line]))
            assert (slow.parsed, slow.unknown) == (fast.parsed, fast.unknown)


def test_the_long_way_keeps_kinds() -> None:
    for form, (line, _) in LINES.items():
        grammar = Grammar()
        (row,) = [*grammar.feed(line.split("\n")), *grammar.finish()]
        assert (form, True) == (
            row.reading.form,
            row.reading.kind in (Kind.SERVO, Kind.MEASUREMENT, Kind.TRACKING, Kind.STATISTICS),
        )
