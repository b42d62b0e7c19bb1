"""The life of an incident as the fold tells it, and which incidents are let go of."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from schemas.records import Finding, Incident
from schemas.time import append_to_tai
from streams.diagnosis.incidents import Shelf, fold, key_of
from tests.findings import START_NS, WINDOW_NS, finding

MS = 1_767_225_700_000


def told(*findings: Finding) -> list[Incident | None]:
    """The incident after each finding."""
    out: list[Incident | None] = []
    incident = None
    for each in findings:
        incident = fold(incident, each, MS)
        out.append(incident)
    return out


def live(*findings: Finding) -> Incident:
    """The incident after all of them."""
    last = told(*findings)[-1]
    assert last is not None
    return last


def test_open() -> None:
    first = finding(3)
    opened = live(first)
    assert opened == Incident(
        tenant="default", incident_id=opened.incident_id, scope="job", fault_class="straggler",
        component_kind="rank", component="rank3", state="open", confidence=0.75, onset_ns=START_NS,
        detected_ns=append_to_tai(MS), resolved_ns=None, victims=["rank1"], evidence='{"window": 3}',
        findings=1, through_ns=first.window_end_ns, origin_partition=0, origin_offset=3,
    )  # fmt: skip
    assert opened.detected_ns == MS * 1_000_000 + 37_000_000_000


def test_update_keeps_identity_onset_and_detection() -> None:
    opened = live(finding(3))
    updated = fold(opened, finding(53, confidence=0.9, onset_ns=START_NS - 5, victims=["rank2"]), MS + 5000)
    assert updated == replace(
        opened, state="update", confidence=0.9, victims=["rank2"], evidence='{"window": 53}', findings=2,
        through_ns=START_NS + 54 * WINDOW_NS, origin_offset=53,
    )  # fmt: skip


def test_resolve_at_the_end_of_the_window_that_lacks_it() -> None:
    updated = live(finding(3), finding(53))
    resolved = fold(updated, finding(160, state="absent", victims=[], evidence="{}"), MS)
    end = START_NS + 161 * WINDOW_NS
    assert resolved == replace(
        updated, state="resolve", resolved_ns=end, findings=3, through_ns=end, origin_offset=160
    )
    assert fold(resolved, finding(170, state="absent"), MS) is resolved


def test_an_end_without_a_beginning_is_nothing() -> None:
    assert told(finding(1, state="absent")) == [None]


def test_a_fault_that_comes_back_is_another_incident() -> None:
    first = live(finding(3))
    resolved = live(finding(3), finding(160, state="absent"))
    again = live(finding(3), finding(160, state="absent"), finding(200, onset_ns=START_NS + 190 * WINDOW_NS))
    assert (again.state, again.findings, again.resolved_ns) == ("open", 1, None)
    assert again.onset_ns == START_NS + 190 * WINDOW_NS
    # A rule may remember the old onset: the two still differ.
    old = live(finding(3), finding(160, state="absent"), finding(200))
    assert old.onset_ns == resolved.resolved_ns
    assert len({first.incident_id, again.incident_id, old.incident_id}) == 3


def test_identity_is_of_the_first_finding() -> None:
    base = live(finding(3)).incident_id
    assert live(finding(9, confidence=0.1)).incident_id == base
    for other in ({"tenant": "b"}, {"scope": "b"}, {"fault_class": "b"}, {"component": "b"}, {"onset_ns": 1}):
        assert live(finding(3, **other)).incident_id != base


def test_what_was_applied_is_skipped_whatever_its_place_in_the_log() -> None:
    updated = live(finding(3), finding(53))
    for stale in (finding(3), finding(53), finding(40), finding(53, origin_partition=1, origin_offset=900)):
        assert fold(updated, stale, MS) is updated
    # Later in time counts, though its offset is lower: another partition, or a topic made anew.
    later = fold(updated, finding(60, origin_partition=2, origin_offset=0), MS)
    assert later is not None
    assert (later.findings, later.origin_partition, later.origin_offset) == (3, 2, 0)
    assert fold(later, finding(53), MS) is later


WINDOWS = st.lists(
    st.tuples(
        st.integers(0, 40),  # window
        st.sampled_from(["present", "present", "absent"]),
        st.integers(0, 2),  # partition
        st.integers(0, 99),  # offset
    ),
    max_size=12,
)


@given(WINDOWS, st.data())
def test_what_was_applied_is_never_applied_again(
    given_: list[tuple[int, str, int, int]], data: st.DataObject
) -> None:
    """Whatever order, partitions and offsets the findings come in."""
    applied, incident = [], None
    for w, s, p, o in given_:
        each = finding(w, state=s, origin_partition=p, origin_offset=o)
        after = fold(incident, each, MS)
        if after is not incident:
            applied.append(each)
        incident = after
    if applied:
        for each in data.draw(st.lists(st.sampled_from(applied), max_size=10)):
            assert fold(incident, each, MS) is incident


@given(WINDOWS, st.integers(0, 12))
def test_a_prefix_read_twice_changes_nothing(given_: list[tuple[int, str, int, int]], cut: int) -> None:
    """In the order in which the rules see windows, whole prefixes, with what changed nothing too."""
    findings = [finding(w, state=s, origin_partition=p) for w, s, p, _ in sorted(given_)]
    incident = None
    for k, each in enumerate(findings):
        incident = fold(incident, each, MS)
        if k == cut and incident is not None:
            for again in findings[: k + 1]:
                assert fold(incident, again, MS) is incident


@given(WINDOWS, st.integers(0, 12))
def test_a_restart_in_the_middle_comes_to_the_same(given_: list[tuple[int, str, int, int]], cut: int) -> None:
    findings = [finding(w, state=s) for w, s, _, _ in sorted(given_)]
    straight = told(*findings)
    rows: dict[str, Incident] = {}
    seen = []
    for each in [*findings[:cut], *findings[max(0, cut - 3) :]]:
        before = rows.get(key_of(each))
        after = fold(before, each, MS)
        if after is not None and after is not before:
            rows[key_of(each)] = after
            seen.append(after)
    told_once = [
        after for before, after in zip([None, *straight], straight, strict=False) if after is not before
    ]
    assert seen == [each for each in told_once if each is not None]


def test_keys_do_not_run_together() -> None:
    keys = {
        key_of(finding(0, scope=scope, fault_class=kind, component=component))
        for scope, kind, component in (("a", "b", "c"), ("ab", "", "c"), ("a", "bc", ""), ("a/b", "c", ""))
    }
    assert len(keys) == 4


def test_resolved_incidents_are_kept_for_a_while() -> None:
    shelf = Shelf(keep_ms=1000, most=10)
    assert shelf.touch(b"a", False, 0) == []
    assert shelf.touch(b"a", True, 500) == []
    assert shelf.touch(b"b", False, 1500) == []
    assert len(shelf) == 2
    assert shelf.touch(b"c", False, 1501) == [b"a"]
    assert shelf.touch(b"b", True, 9000) == []
    assert len(shelf) == 2


def test_the_shelf_is_bounded() -> None:
    shelf = Shelf(keep_ms=1000, most=3)
    gone = [
        shelf.touch(key, resolved, 0)
        for key, resolved in ((b"a", False), (b"b", False), (b"c", True), (b"d", False))
    ]
    assert gone == [[], [], [], [b"c"]]  # the resolved one first
    assert shelf.touch(b"a", False, 1) == []
    assert shelf.touch(b"e", False, 1) == [b"b"]  # then the one told of longest ago
    assert len(shelf) == 3
