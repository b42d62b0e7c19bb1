"""The telecom boundary clock's real log, whole: every line accounted for, nothing in the wrong clock.

The expected counts come from the text itself, by searches of a few words that share nothing with the grammar.
"""

import gzip
import re
from collections import Counter
from functools import cache

import numpy as np
import pytest

from producers.host.grammar import Grammar, Row
from producers.host.logs import LogReport, Options, read
from producers.host.reading import Kind
from schemas.batch import Batch
from tempotrace.clockcheck import check
from tests.paths import shared_data

TELECOM = ("time", "openshift-tbc-e810-log.txt.gz")


@cache
def text_lines() -> tuple[str, ...]:
    text = gzip.decompress(shared_data(*TELECOM).read_bytes()).decode()
    assert text.endswith("\n")
    return tuple(text.split("\n")[:-1])


@cache
def grammar_and_rows() -> tuple[Grammar, tuple[Row, ...]]:
    grammar = Grammar()
    rows = (*grammar.feed(text_lines()), *grammar.finish())
    return grammar, rows


def count(pattern: str) -> int:
    return sum(re.search(pattern, line) is not None for line in text_lines())


def test_every_line_is_counted_once() -> None:
    grammar, _ = grammar_and_rows()
    assert len(text_lines()) == grammar.total == 42_359
    assert grammar.total == sum(grammar.parsed.values()) + sum(grammar.ignored.values()) + grammar.unknown
    # The first line of all, which says from what the daemon was built.
    assert (grammar.unknown, [sample[:11] for sample in grammar.samples]) == (1, ["Git commit:"])


@pytest.mark.parametrize(
    ("form", "pattern", "expected"),
    [
        ("ptp4l.servo", r"^ptp4l\[.*master offset", 8059),
        ("phc2sys.servo", r"^phc2sys\[.*phc offset", 8040),
        ("ts2phc.servo", r"^ts2phc\[.* offset .*freq", 499),
        ("ts2phc.tstamp", r"^ts2phc\[.*adding tstamp", 499),
        ("ts2phc.skip", r"^ts2phc\[.*SKIP extts", 36),
        ("dpll", r"^dpll\[", 1500),
        ("t-bc", r"^T-BC\[", 508),
        ("ptp4l.port", r"^ptp4l\[.*port \d.*: [A-Z_]+ to [A-Z_]+ on", 44),
        ("ptp4l.best_master", r"^ptp4l\[.*selected (local|best)", 8),
        ("ptp4l.phc", r"^ptp4l\[.*as PTP clock", 12),
        ("process", r"PTP_PROCESS_STATUS", 36),
        ("clock_class", r"CLOCK_CLASS_CHANGE", 7),
    ],
)
def test_counts_by_form(form: str, pattern: str, expected: int) -> None:
    grammar, _ = grammar_and_rows()
    assert (expected, expected) == (count(pattern), grammar.parsed[form])


def test_other_counts() -> None:
    grammar, _ = grammar_and_rows()
    replies = sum(n for form, n in grammar.parsed.items() if form.startswith("pmc."))
    assert count(r"^\t[0-9a-f]{6}\.fffe.*RESPONSE MANAGEMENT") + count(r"^\t\t") == 235 == replies
    klog = sum(n for form, n in grammar.ignored.items() if form.startswith("klog.") and form != "klog.text")
    quoted = count(r"^[IWEF]\d{4} .*(PTP_PROCESS_STATUS|CLOCK_CLASS_CHANGE)")
    assert (quoted, klog) == (43, 14_830)
    assert count(r"^[IWEF]\d{4} \d\d:\d\d:\d\d\.\d{6} ") == klog + quoted
    assert count(r"^$") == 66 == grammar.ignored["blank"]


def test_no_row_is_in_the_wrong_clock() -> None:
    """Each row's clock against the words of its own line."""
    _, rows = grammar_and_rows()
    lines = text_lines()
    for row in rows:
        line = lines[row.line - 1]
        clock = str(row.reading.clock)
        if line.startswith("ptp4l["):
            assert clock == "ptp:" + line.split("[")[2].split(":")[0].rstrip("]")
        elif line.startswith("phc2sys["):
            assert clock == "CLOCK_REALTIME"
        elif line.startswith(("dpll[", "T-BC[")):
            assert clock == f"{line.split('[')[0]}:{line.split(' ')[1]}"
        elif line.startswith("ts2phc[") and row.reading.kind == Kind.SERVO:
            assert clock == line.split("] ")[1].split(" ")[0]


def test_offsets_are_those_of_the_text() -> None:
    _, rows = grammar_and_rows()
    lines = text_lines()
    samples = Counter[str]()
    for row in rows:
        if row.reading.kind != Kind.SERVO:
            continue
        words = lines[row.line - 1].split()
        assert int(words[words.index("offset") + 1]) == row.reading.offset_ns
        samples[str(row.reading.clock)] += 1
    # 99999999999 stands for no offset: 12 lines of dpll and 178 of T-BC.
    assert dict(samples) == {
        "ptp:ptp4l.1.config": 8059,
        "CLOCK_REALTIME": 8040,
        "/dev/ptp10": 499,
        "dpll:ens4f0": 484,
        "dpll:ens8f0": 1004,
        "T-BC:ens4f0": 330,
    }
    assert (count(r"^dpll.*offset 99999999999 "), count(r"^T-BC.*offset 99999999999 ")) == (12, 178)


def test_the_boot_time() -> None:
    grammar, rows = grammar_and_rows()
    (boot,) = grammar.boots[None].maps()
    assert (boot.epoch, boot.bound_ns, boot.pairs) == (0, 5_000_000, 1824)
    # Reports in Unix seconds, placed between lines since boot, agree with it to their second.
    assert boot.unix_ns is not None
    assert boot.boot_ns is not None
    before_ns = second_ns = 0
    checked = 0
    for row in rows:
        if row.stamp.clock == "CLOCK_MONOTONIC":
            before_ns = row.stamp.ns + boot.unix_ns - boot.boot_ns
            assert before_ns > second_ns - 10_000_000
            checked += second_ns > 0
        elif row.reading.form == "dpll":
            second_ns = row.stamp.ns
            assert before_ns < second_ns + 1_010_000_000
    assert checked > 10_000


def test_batches_hold_all_rows_in_order_of_their_sources() -> None:
    report = LogReport()
    batches: list[Batch] = list(read([shared_data(*TELECOM)], Options(), report))
    _, rows = grammar_and_rows()
    assert len(rows) == report.events == sum(batch.count for batch in batches[1:])
    assert max(batch.count for batch in batches) <= 4096
    entities = Counter(batch.text(int(at)) for batch in batches[1:] for at in batch.column("entity"))
    assert all(name is None or name.startswith("file-53838951/") for name in entities)
    ours = Counter(
        None if row.reading.clock is None else f"file-53838951/{row.reading.clock}" for row in rows
    )
    assert ours == entities
    raw = np.concatenate([batch.raw_ns() for batch in batches[1:]])
    assert sorted(row.stamp.ns for row in rows) == sorted(raw.tolist())


def test_clock_check_says_the_same() -> None:
    result, _ = check([shared_data(*TELECOM)], Options(host="tbc"))
    clocks = {clock["clock"]: clock for clock in result["clocks"]}
    ptp = clocks["tbc/ptp:ptp4l.1.config"]
    assert (ptp["kind"], ptp["status"], ptp["samples"], ptp["offset_ns"]) == ("ptp_hw", "locked", 8059, -2)
    assert ptp["parents"] == ["507c6f.fffe.1fb16c"]
    system = clocks["tbc/CLOCK_REALTIME"]
    assert (
        system["samples"],
        system["offset_ns"],
        system["parents"],
    ) == (8040, 7, ["tbc/ptp:ptp4l.1.config"])
    assert clocks["tbc/T-BC:ens4f0"]["bound_ns"] is None
    lines = result["lines"]
    assert (
        lines["total"],
        lines["parsed"],
        lines["ignored"],
        lines["unknown"],
    ) == (42_359, 19_554, 22_804, 1)


def test_the_corpora_of_line_variants() -> None:
    for name, total, unknown in (
        ("cloud-event-proxy-testlines.txt", 72, 0),
        ("openshift-linuxptp-testlines.txt", 196, 11),
    ):
        lines = shared_data("time", name).read_text().split("\n")[:-1]
        grammar = Grammar()
        rows = [*grammar.feed(lines), *grammar.finish()]
        assert (total, unknown) == (grammar.total, grammar.unknown), grammar.samples
        for row in rows:
            line = lines[row.line - 1]
            if row.reading.offset_ns is not None:
                words = line.split()
                assert int(words[words.index("offset") + 1]) == row.reading.offset_ns
