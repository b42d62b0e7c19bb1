"""The clock rule on edges made by hand: who is blamed, with which interval, and who is not."""

import json
from typing import Any

import numpy as np

from streams.diagnosis.claims import Claim
from streams.diagnosis.clocks import Clocks
from streams.diagnosis.ends import SUSPECT_NS
from streams.diagnosis.window import collectives
from tests.edges import START_NS, WINDOW_NS, Windows

US = 1_000


class Rule:
    """The rule over windows made by hand."""

    def __init__(self, *clocks: tuple[str, str | None]) -> None:
        self.windows = Windows()
        for name, parent in clocks:
            self.windows.clock(name, parent)
        self.rule = Clocks()

    def window(self) -> list[Claim]:
        """Take the window that was made, after going through a snapshot."""
        again = Clocks()
        meta, arrays = self.rule.dump()
        again.load(json.loads(json.dumps(meta)), {name: np.array(array) for name, array in arrays.items()})
        self.rule = again
        edges = self.windows.take()
        return self.rule.update(edges, collectives(edges), self.windows.directory)

    def end(self) -> list[Claim]:
        """The same for the last window of the scope, where nothing waits any more."""
        self.window()
        return self.rule.close(self.windows.directory)

    def probes(self, error_ns: dict[str, int], delay_ns: int = 5 * US, rounds: int = 1) -> None:
        """Each host to each other one; `error_ns` is by how much each one's clock is ahead."""
        for turn in range(rounds):
            for sender in error_ns:
                for receiver in error_ns:
                    if sender != receiver:
                        gap = delay_ns + error_ns[receiver] - error_ns[sender]
                        self.windows.message(sender, receiver, gap, 1 * US, at_ns=turn * 1000)


def interval(claim: Claim) -> tuple[Any, Any]:
    return claim.evidence["offset_low_ns"], claim.evidence["offset_high_ns"]


HOSTS = ("a", "b", "c", "d")


def test_healthy_clocks_are_not_blamed() -> None:
    rule = Rule()
    for _ in range(20):
        rule.probes({"a": 300, "b": -400, "c": 0, "d": 100})
        assert rule.window() == []


def test_the_interval_of_a_clock_that_is_ahead() -> None:
    """Sent by d: gap + bound = 5 − 50 + 1 = −44 µs, so δ >= 44 µs; received: 5 + 50 + 1, so δ <= 56 µs."""
    rule = Rule()
    rule.probes({"a": 0, "b": 0, "c": 0, "d": 50 * US})
    claim, *more = rule.end()
    assert more == []
    assert (claim.fault_class, claim.component_kind, claim.component, claim.confidence) == (
        "clock_fault", "clock", "d", 0.95,
    )  # fmt: skip
    assert claim.evidence == {
        "verdict": "blamed", "offset_low_ns": 44 * US, "offset_high_ns": 56 * US, "violated_edges": 3,
        "matches": 3, "peers": ["a", "b", "c"], "peers_total": 3,
    }  # fmt: skip
    assert claim.onset_ns == START_NS


def test_peers_are_listed_up_to_sixteen_and_all_counted() -> None:
    rule = Rule()
    rule.probes({f"h{k:02}": 0 for k in range(20)} | {"z": 50 * US})
    (claim,) = rule.end()
    assert claim.component == "z"
    assert claim.evidence["peers"] == [f"h{k:02}" for k in range(16)]
    assert claim.evidence["peers_total"] == 20


def test_the_interval_of_a_clock_that_is_behind_narrows_with_each_window() -> None:
    rule = Rule()
    rule.probes({"a": 0, "b": 0, "c": 0, "d": -50 * US})
    assert rule.window() == []  # one window is not enough
    rule.probes({"a": 0, "b": 0, "c": 0, "d": -50 * US})
    assert interval(rule.window()[0]) == (-56 * US, -44 * US)
    rule.probes({"a": 0, "b": 0, "c": 0, "d": -50 * US}, delay_ns=2 * US)
    assert interval(rule.window()[0]) == (-53 * US, -47 * US)
    rule.probes({"a": 0, "b": 0, "c": 0, "d": -50 * US}, delay_ns=9 * US)
    claim = rule.window()[0]
    assert interval(claim) == (-53 * US, -47 * US)
    assert claim.evidence["violated_edges"] == 12
    assert claim.onset_ns == START_NS


def test_two_matches_or_one_peer_are_not_enough() -> None:
    few = Rule()
    few.windows.message("d", "a", -40 * US)
    few.windows.message("d", "b", -40 * US)
    assert few.end() == []
    few.windows.message("d", "b", -40 * US)  # the third match
    assert [claim.component for claim in few.end()] == ["d"]
    lonely = Rule()
    for _ in range(9):
        lonely.windows.message("d", "a", -40 * US)
    assert lonely.end() == []


def test_a_clock_that_no_single_offset_explains_is_not_blamed() -> None:
    """d is shown ahead by one host and behind by another: whatever is wrong, it is not one offset of d."""
    rule = Rule()
    for _ in range(4):
        rule.windows.message("d", "a", -40 * US)
        rule.windows.message("b", "d", -40 * US)
    assert rule.end() == []


def test_a_step_in_mid_stream_is_dated_and_measured() -> None:
    rule = Rule()
    for _ in range(5):
        rule.probes({"a": 0, "b": 0, "c": 0, "d": 0})
        assert rule.window() == []
    # The window of the step: some edges from before it, some after.
    rule.probes({"a": 0, "b": 0, "c": 0, "d": 0})
    rule.probes({"a": 0, "b": 0, "c": 0, "d": 250 * US})
    assert rule.window() == []
    for number in range(3):
        rule.probes({"a": 0, "b": 0, "c": 0, "d": 250 * US})
        claims = rule.window()
        assert [claim.component for claim in claims] == ["d"] * (number > 0)
    assert interval(claims[0]) == (244 * US, 256 * US)
    assert claims[0].onset_ns == START_NS + 5 * WINDOW_NS


def test_what_one_window_holds_is_told_at_the_end() -> None:
    rule = Rule()
    rule.probes({"a": 0, "b": 0, "c": 0, "d": 50 * US})
    assert rule.window() == []
    assert rule.window() == []  # no edges: nothing new
    assert [claim.component for claim in rule.rule.close(rule.windows.directory)] == ["d"]


def test_two_faulty_clocks_are_both_blamed() -> None:
    rule = Rule()
    rule.probes({"a": 0, "b": 0, "c": 0, "d": 250 * US, "e": -90 * US, "f": 0})
    claims = rule.end()
    assert [claim.component for claim in claims] == ["d", "e"]
    assert [claim.evidence["verdict"] for claim in claims] == ["blamed", "blamed"]
    low, high = interval(claims[0])
    assert low <= 250 * US <= high


def test_two_faulty_clocks_of_four_and_three_of_seven() -> None:
    rule = Rule()
    rule.probes({"a": 0, "b": 0, "d": 250 * US, "e": -90 * US}, rounds=2)
    claims = rule.end()
    assert [(claim.component, *interval(claim)) for claim in claims] == [
        ("d", 244 * US, 256 * US), ("e", -96 * US, -84 * US),
    ]  # fmt: skip
    rule = Rule()
    rule.probes({"a": 0, "b": 0, "c": 0, "d": 250 * US, "e": -90 * US, "f": 60 * US, "g": 0})
    assert sorted(claim.component for claim in rule.end()) == ["d", "e", "f"]


def test_three_clocks_that_all_disagree_accuse_nobody() -> None:
    rule = Rule()
    rule.probes({"a": 0, "b": 100 * US, "c": 250 * US}, rounds=3)
    assert rule.end() == []


def test_between_two_hosts_either_may_be_wrong() -> None:
    """Several clocks a host, so that there are peers enough: the set is named, with both intervals."""
    nested = [(f"{host}/gpu{n}", f"{host}/ptp") for host in ("x", "y") for n in range(2)]
    rule = Rule(*nested)
    for sender in range(2):
        for receiver in range(2):
            rule.windows.message(f"x/gpu{sender}", f"y/gpu{receiver}", 55 * US)
            rule.windows.message(f"y/gpu{receiver}", f"x/gpu{sender}", -45 * US)
    claim, *more = rule.end()
    assert more == []
    assert (claim.component, claim.confidence) == ("x/ptp|y/ptp", 0.45)
    assert claim.evidence["verdict"] == "ambiguous"
    assert claim.evidence["candidates"] == {"x/ptp": (-56 * US, -44 * US), "y/ptp": (44 * US, 56 * US)}


def nested_clocks() -> list[tuple[str, str]]:
    return [
        pair for host in HOSTS for pair in ((f"{host}/sys", f"{host}/ptp"), (f"{host}/gpu0", f"{host}/sys"))
    ]


def test_of_nested_clocks_the_highest_that_explains_all_is_named() -> None:
    rule = Rule(*nested_clocks())
    for host in "abc":
        rule.windows.message("d/gpu0", f"{host}/gpu0", -45 * US)
    for host in "abc":
        rule.windows.message("d/ptp", f"{host}/ptp", -45 * US)
    claim, *more = rule.end()
    assert more == []
    assert claim.component == "d/ptp"
    assert claim.evidence["violated_edges"] == 6


def test_a_clock_whose_parent_is_fine_is_named_itself() -> None:
    """Only the GPU's clock is off: messages stamped by its parent bound the parent's error around zero."""
    rule = Rule(*nested_clocks())
    for host in "abc":
        rule.windows.message("d/gpu0", f"{host}/gpu0", -45 * US)
        rule.windows.message("d/sys", f"{host}/sys", 5 * US)
        rule.windows.message(f"{host}/sys", "d/sys", 5 * US)
    assert [claim.component for claim in rule.end()] == ["d/gpu0"]


def test_an_error_of_the_common_parent_cancels() -> None:
    """Edges between clocks of one host say nothing of the host's clock."""
    rule = Rule(("d/gpu0", "d/ptp"), ("d/gpu1", "d/ptp"), ("d/gpu2", "d/ptp"))
    for other in ("d/gpu1", "d/gpu2"):
        for _ in range(3):
            rule.windows.message("d/gpu0", other, -45 * US)
            rule.windows.message(other, "d/gpu0", 55 * US)
    assert [claim.component for claim in rule.end()] == ["d/gpu0"]


def test_a_clock_that_was_set_right_is_not_blamed_any_more() -> None:
    rule = Rule()
    for _ in range(2):
        rule.probes({"a": 0, "b": 0, "c": 0, "d": 50 * US})
        claims = rule.window()
    assert [claim.component for claim in claims] == ["d"]
    for number in range(110):
        rule.probes({"a": 0, "b": 0, "c": 0, "d": 0})
        assert rule.window() == []
        assert len(rule.rule.violated) == (
            6 if number < 98 else 3 if number < 99 else 0
        )  # evidence is kept for ten seconds


def members(ends: list[int], begins: list[int] | None = None) -> list[tuple[str, str, int, int]]:
    begins = begins or [0] * len(ends)
    return [
        (f"rank{n}", f"k{n}", begin, end) for n, (begin, end) in enumerate(zip(begins, ends, strict=True))
    ]


def test_a_collective_uses_every_begin_against_every_end() -> None:
    """Rank 0 begins last, at 100 µs; all end at 120 µs; rank 3's clock is 50 µs behind.

    Its end (70) against the last begin (100): δ <= 70 − 100 + 1 = −29 µs. Its begin (−50) against the others'
    first end (120): δ >= −(120 + 50 + 1) = −171 µs.
    """
    rule = Rule()
    for turn in range(3):
        last = turn % 2  # two peers
        begins = [100 * US if n == last else 0 for n in range(4)]
        begins[3] = -50 * US
        rule.windows.collective(members([120 * US, 120 * US, 120 * US, 70 * US], begins))
    claim, *more = rule.end()
    assert more == []
    assert claim.component == "k3"
    assert interval(claim) == (-171 * US, -29 * US)
    assert claim.evidence["peers"] == ["k0", "k1"]


def test_ends_without_bounds_accuse_nobody() -> None:
    rule = Rule()
    for _ in range(5):
        rule.windows.collective(members([120 * US] * 3 + [-900 * US]), bound_ns=None)
    rule.window()
    assert [claim.evidence["verdict"] for claim in after_a_second(rule)] == ["suspect"]


def skewed(rule: Rule, times: int, off_ns: int = 48 * US) -> None:
    for _ in range(times):
        rule.windows.collective(members([100 * US, 101 * US, 99 * US, 100 * US + off_ns, 100 * US]))


def after_a_second(rule: Rule) -> list[Claim]:
    rule.windows.number += SUSPECT_NS // WINDOW_NS
    return rule.window()


def test_skewed_ends_make_a_suspect_after_a_second() -> None:
    rule = Rule()
    skewed(rule, 4)
    assert rule.window() == []
    (claim,) = after_a_second(rule)
    assert (claim.component, claim.confidence) == ("k3", 0.4)
    assert claim.evidence == {
        "verdict": "suspect",
        "why": "ends of its collectives are off; no edge contradicts its bound",
        "collectives_skewed": 4, "collectives": 4, "end_skew_mean_ns": 48 * US,
    }  # fmt: skip
    assert claim.onset_ns == START_NS + 100 * US


def test_at_the_end_of_the_scope_a_suspect_is_told_at_once() -> None:
    rule = Rule()
    skewed(rule, 3)
    assert rule.window() == []
    (claim,) = rule.rule.close(rule.windows.directory)
    assert (claim.component, claim.evidence["collectives_skewed"]) == ("k3", 3)


def test_two_skewed_ends_or_small_ones_make_none() -> None:
    for times, off in ((2, 48 * US), (9, 19 * US)):
        rule = Rule()
        skewed(rule, times, off)
        rule.window()
        assert after_a_second(rule) == []
        assert rule.rule.close(rule.windows.directory) == []


def test_a_group_whose_ends_always_spread_makes_none() -> None:
    rule = Rule()
    for turn in range(12):
        ends = [(100 + 40 * ((n + turn) % 5)) * US for n in range(5)]
        rule.windows.collective(members(ends))
        rule.window()
    assert after_a_second(rule) == []


def test_who_is_blamed_is_no_suspect_too() -> None:
    rule = Rule()
    rule.probes({"k0": 0, "k1": 0, "k2": 0, "k3": 48 * US})
    skewed(rule, 4)
    rule.window()
    assert after_a_second(rule) == []
    assert [claim.evidence["verdict"] for claim in rule.end()] == ["blamed"]


def test_suspects_below_one_clock_are_that_clock() -> None:
    rule = Rule(*[(f"k{n}", f"host{n // 2}") for n in range(6)])
    for _ in range(3):
        rule.windows.collective(members([100 * US] * 4 + [150 * US, 151 * US]))
    rule.window()
    (claim,) = after_a_second(rule)
    assert claim.component == "host2"
    assert claim.evidence["collectives_skewed"] == 6
