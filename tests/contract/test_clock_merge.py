"""The merge applies what samples say of the clocks: verdicts, bounds, provenance; the same over restarts."""

from typing import Any

import numpy as np

from schemas import columns as c
from schemas.codec import decode_merged, encode_batch
from schemas.draft import Draft
from schemas.merged import Merged
from schemas.pack import Head, SeqBook, Source
from schemas.processor import Output, Record
from schemas.time import NS, TAI, ClockState
from streams.causality import scope
from streams.causality.merge import Merge
from streams.causality.settings import MergeSettings
from tests.contract.processor_suite import Case, ProcessorSuite, plain, run

MS = 1_000_000
UTC0 = 1_796_099_200 * NS
HOSTS = ("a", "b")
FLIGHT_NS = 60_000
STEP_S = 6  # host a's daemon steps its clock (a row says so), and no sample follows for a second


def claimed(host: str, bound_ns: int) -> ClockState:
    return ClockState(
        f"{host}/CLOCK_REALTIME", parent=TAI, kind=c.ClockKind.NTP, status=c.Status.LOCKED,
        timescale=c.Timescale.UTC, bound_ns=bound_ns, as_of_ns=UTC0, growth_ppb=0.0, provenance="kernel",
    )  # fmt: skip


def records(error_ns: int = 0, bound_ns: int = 5 * MS) -> list[Record]:
    """Ten seconds of two hosts: a probe from a to b each 100 ms from 50 ms on, and one exchange of each with
    10.0.0.1 each second from the second on, of ± 10 µs, which sees that a is ahead by `error_ns`."""
    out: list[Record] = []
    books: dict[str, SeqBook] = {}

    def send(draft: Draft, last_ns: int) -> None:
        value = encode_batch(draft.build())
        append_ms = (UTC0 + last_ns) // MS + 5
        out.append(Record("events", 0, len(out), append_ms, b"job", value))

    for tick in range(100):
        at = tick * 100 * MS
        for host in HOSTS:
            clock = claimed(host, bound_ns)
            book = books.setdefault(f"{host} probe", SeqBook())
            draft = Draft(Head("default", "job", f"{host} probe", "probe"), book)
            probes = Source(f"{host}/mesh", host, clock, 1)
            sends = host == "a"
            stamp = UTC0 + at + 50 * MS + (error_ns if sends else FLIGHT_NS)
            row = draft.row(probes, stamp, kind=c.ProbeKind.SEND if sends else c.ProbeKind.RECEIVE)
            draft.endpoint(
                row, c.Point.BEGIN, c.EdgeKind.MESSAGE, c.Role.CAUSE if sends else c.Role.EFFECT, tick + 1
            )
            draft.watermark(probes, UTC0 + at + 90 * MS)
            if tick == 99:
                draft.final(probes)
            send(draft, at + 90 * MS)
            book = books.setdefault(f"{host} log", SeqBook())
            draft = Draft(Head("default", "job", f"{host} log", "clock"), book)
            log = Source(f"{host}/log", host, clock, 1, ordered=False)
            second = tick // 10
            common: dict[str, Any] = {"entity": clock.clock_id, "parent": "10.0.0.1"}
            if tick % 10 == 0 and host == "a" and second == STEP_S:
                draft.row(
                    log, UTC0 + at, kind=c.ClockKindOfRow.SERVO, name="phc2sys.servo", servo=1, **common
                )
            elif tick % 10 == 0 and second >= 2:
                offset = error_ns if host == "a" else 0
                draft.row(
                    log, UTC0 + at, kind=c.ClockKindOfRow.MEASUREMENT, name="chrony.measurement",
                    offset_ns=offset, delay_ns=20_000, error_ns=10_500, **common,
                )  # fmt: skip
            draft.watermark(log, UTC0 + at + 90 * MS)
            if tick == 99:
                draft.final(log)
            send(draft, at + 90 * MS)
    return out


def merged(outputs: list[Output]) -> list[Merged]:
    decoded = [decode_merged(output.value or b"") for output in outputs if output.topic == "merged"]
    return [part for part in decoded if isinstance(part, Merged)]


def verdicts(parts: list[Merged]) -> dict[int, list[int]]:
    """Verdicts of the edges by second."""
    found: dict[int, list[int]] = {}
    for part in parts:
        second = (part.window_start_ns - UTC0 - 37 * NS) // NS
        for verdict in part.data.get("edge_verdict", np.empty(0)).tolist():
            found.setdefault(int(second), []).append(verdict)
    return found


class TestMergeWithClocks(ProcessorSuite):
    """A merge that carries clock states over snapshots."""

    def case(self) -> Case:
        return Case(lambda: Merge(MergeSettings()), records())


def test_samples_prove_what_a_claim_could_not() -> None:
    outputs = run(Case(lambda: Merge(MergeSettings()), records()))
    found = verdicts(merged(outputs))
    assert sum(map(len, found.values())) == 100
    inferred, proven = int(c.Verdict.INFERRED), int(c.Verdict.PROVEN)
    for second, each in found.items():
        if second in (0, 1, STEP_S):
            # Claims alone: nothing was measured yet, or host a was stepped since. 60 µs prove nothing against 10 ms.
            assert each == [inferred] * 10
        else:
            # ± 10 µs on both sides, growing by 50 ppm: less than 60 µs for the first 400 ms after each sample.
            assert each == [proven] * 4 + [inferred] * 6


def test_the_state_and_the_claim_are_both_on_record() -> None:
    parts = merged(run(Case(lambda: Merge(MergeSettings()), records())))
    at = UTC0 + 37 * NS + 3 * NS
    part = next(part for part in parts if part.window_start_ns == at)
    rows = {part.clock_name(entry): entry for entry in range(part.table_len("clk"))}
    entry = rows["a/CLOCK_REALTIME"]
    assert part.strings[int(part.data["clk_parent"][entry])] == "10.0.0.1"
    assert part.data["clk_assurance"][entry] == c.Assurance.HARD
    assert part.data["clk_bound_ns"][entry] == 10_000
    assert part.data["clk_as_of_ns"][entry] == UTC0 + 3 * NS
    told = part.strings[int(part.data["clk_provenance"][entry])]
    assert told.startswith("measured: two-way exchanges")
    assert told.endswith("claimed 5000000 ns (kernel)")
    # Its bound to TAI is that of the claim still, and rows lie where they lay.
    assert set(part.bound_ns().tolist()) == {5 * MS}
    assert part.time_ns().min() >= at


def test_a_bound_is_as_wide_as_the_clock_is_off() -> None:
    """Host a is 2 ms ahead and claims 0.5 ms at most. Its samples say so: nothing is violated, nothing proven."""
    parts = merged(run(Case(lambda: Merge(MergeSettings()), records(2 * MS, MS // 2))))
    found = verdicts(parts)
    assert {v for second, each in found.items() if second > 1 for v in each if second != STEP_S} == {
        int(c.Verdict.INFERRED)
    }
    assert set(found[0]) == {int(c.Verdict.VIOLATED)}  # until the first sample the claim is all there is
    widest = max(
        int(part.data["clk_bound_ns"][entry])
        for part in parts
        for entry in range(part.table_len("clk"))
        if part.clock_name(entry) == "a/CLOCK_REALTIME"
        and part.data["clk_assurance"][entry] == c.Assurance.HARD
    )
    assert widest == 2 * MS + 10_000


def test_restarts_and_forgetting_do_not_show(monkeypatch) -> None:  # type: ignore[no-untyped-def]
    case = Case(lambda: Merge(MergeSettings()), records())
    expected = plain(run(case))
    assert plain(run(case, restore=lambda index: True)) == expected
    monkeypatch.setattr(scope, "CLOCKS_MAX", 1)
    assert plain(run(case)) == expected
    assert plain(run(case, restore=lambda index: index % 3 == 0)) == expected


def test_what_was_done_is_counted() -> None:
    task = Merge(MergeSettings()).start(0, None)
    for record in records():
        list(task.process(record))
    counters = task.counters()
    assert counters["clock_epochs"] == 1
    assert isinstance(counters["clocks_decided"], int)
    assert counters["clocks_decided"] >= 15
    assert "claims_widened" not in counters
