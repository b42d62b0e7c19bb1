"""When a claim is told: as it begins, changes, is due again, and ends."""

import json
from dataclasses import replace

from schemas.records import Finding
from streams.diagnosis.claims import REFRESH_WINDOWS, Claim, Ledger

CLAIM = Claim("straggler", "rank", "rank3", 0.75, 1000, ("rank1", "rank2"), {"b": 2, "a": 1})
HOLD = 5


class Book:
    """A ledger that goes through a snapshot before each window."""

    def __init__(self) -> None:
        self.ledger = Ledger(HOLD)
        self.number = 0

    def window(self, *claims: Claim) -> list[Finding]:
        meta = json.loads(json.dumps(self.ledger.dump()))
        self.ledger = Ledger(HOLD)
        self.ledger.load(meta)
        self.number += 1
        span = (self.number * 100, self.number * 100 + 100)
        return self.ledger.update("default", "job", span, list(claims), (2, self.number))


def states(findings: list[Finding]) -> list[tuple[str, str]]:
    return [(finding.component, finding.state) for finding in findings]


def test_a_finding_says_all_of_its_claim() -> None:
    (finding,) = Book().window(CLAIM)
    assert finding == Finding(
        tenant="default", scope="job", finding_id=finding.finding_id, fault_class="straggler",
        component_kind="rank", component="rank3", state="present", confidence=0.75, onset_ns=1000,
        window_start_ns=100, window_end_ns=200, victims=["rank1", "rank2"], evidence='{"a": 1, "b": 2}',
        origin_partition=2, origin_offset=1,
    )  # fmt: skip
    assert len(finding.finding_id) == 16


def test_what_stays_the_same_is_told_again_only_when_due() -> None:
    book = Book()
    told = [len(book.window(CLAIM)) for _ in range(2 * REFRESH_WINDOWS + 1)]
    assert [window for window, count in enumerate(told) if count] == [0, REFRESH_WINDOWS, 2 * REFRESH_WINDOWS]


def test_a_change_of_confidence_is_told_with_the_first_onset() -> None:
    book = Book()
    book.window(CLAIM)
    assert book.window(replace(CLAIM, confidence=0.79)) == []
    (finding,) = book.window(replace(CLAIM, confidence=0.81, onset_ns=2000))
    assert (finding.state, finding.confidence, finding.onset_ns) == ("present", 0.81, 1000)


def test_a_claim_ends_once_after_a_while() -> None:
    book = Book()
    book.window(CLAIM)
    quiet = [states(book.window()) for _ in range(3 * HOLD)]
    assert quiet == [[]] * HOLD + [[("rank3", "absent")]] + [[]] * (2 * HOLD - 1)
    assert states(book.window(CLAIM)) == [("rank3", "present")]


def test_a_gap_shorter_than_that_is_none() -> None:
    book = Book()
    book.window(CLAIM)
    for _ in range(4):
        for _ in range(HOLD):
            assert book.window() == []
        assert book.window(CLAIM) == []


def test_claims_are_told_in_a_fixed_order() -> None:
    other = replace(CLAIM, component="rank1")
    clock = replace(CLAIM, fault_class="clock_fault", component="z")
    book = Book()
    want = [("z", "present"), ("rank1", "present"), ("rank3", "present")]
    assert states(book.window(CLAIM, clock, other)) == want
    ended = [finding for _ in range(2 * HOLD) for finding in book.window()]
    assert states(ended) == [(component, "absent") for component, _ in want]
    assert len({finding.finding_id for finding in ended}) == 3
