"""The straggler rule on collectives made by hand: who makes the others wait, and who only seems to."""

import json
from collections.abc import Mapping

import numpy as np
import pytest

from schemas import columns as c
from streams.diagnosis.claims import Claim
from streams.diagnosis.stragglers import Stragglers
from streams.diagnosis.window import collectives
from tests.edges import START_NS, WINDOW_NS, Windows

US = 1_000


class Rule:
    """The rule over windows made by hand; all clocks are wrong, which must not matter."""

    def __init__(self) -> None:
        self.windows = Windows()
        self.rule = Stragglers()
        self.now = 0
        self.errors = np.random.default_rng(3).integers(-5_000 * US, 5_000 * US, 100)

    def collective(
        self, arrive_ns: Mapping[int, int], group: str = "world", transfer_ns: int = 30 * US
    ) -> int:
        """Ranks arrive when told (ns since the start) and leave together; gives when."""
        end = max(arrive_ns.values()) + transfer_ns
        window = (self.windows.number + 1) * WINDOW_NS
        members = []
        for rank, at in arrive_ns.items():
            error = int(self.errors[rank]) - window
            members.append((f"rank{rank}", f"k{rank}", at + error, end + error))
        self.windows.collective(members, group, None)
        return end

    def window(self) -> list[Claim]:
        """Take the window that was made, after going through a snapshot."""
        again = Stragglers()
        meta, arrays = self.rule.dump()
        again.load(json.loads(json.dumps(meta)), {name: np.array(array) for name, array in arrays.items()})
        self.rule = again
        edges = self.windows.take()
        return self.rule.update(edges, collectives(edges), self.windows.directory)


def steps(
    rule: Rule, count: int, late_ns: Mapping[int, int], step_ns: int = 2_000 * US, seed: int = 1
) -> list[Claim]:
    """So many windows with ten steps of eight ranks each; the claims of the last window."""
    rng = np.random.default_rng(seed)
    claims: list[Claim] = []
    for _ in range(count):
        for _ in range(10):
            at = {rank: rule.now + int(rng.integers(0, 20 * US)) for rank in range(8)}
            rule.collective({rank: time + late_ns.get(rank, 0) for rank, time in at.items()})
            rule.now += step_ns
        claims = rule.window()
    return claims


def test_the_last_to_arrive_is_named_with_what_it_costs() -> None:
    rule = Rule()
    (claim,) = steps(rule, 8, {5: 300 * US})
    assert (claim.fault_class, claim.component_kind, claim.component) == ("straggler", "rank", "rank5")
    assert claim.confidence == 0.99
    evidence = claim.evidence
    assert (evidence["operation"], evidence["group"]) == (c.Op.ALL_REDUCE, "world")
    assert evidence["blamed"] == evidence["collectives"]
    assert 280 * US <= evidence["cost_ns"] <= 320 * US
    assert evidence["longest_wait_ns"] >= evidence["median_wait_ns"] >= 280 * US
    assert len(claim.victims) == evidence["victims_total"] == 7
    assert claim.victims[0] == evidence["longest_wait"]
    assert "rank5" not in claim.victims


def test_victims_are_listed_up_to_eight_and_all_counted() -> None:
    rule = Rule()
    claims: list[Claim] = []
    for _ in range(8):
        for _ in range(10):
            rule.collective(
                {rank: rule.now + rank * 100 + (400 * US if rank == 5 else 0) for rank in range(20)}
            )
            rule.now += 2_000 * US
        claims = rule.window()
    (claim,) = claims
    assert claim.component == "rank5"
    assert claim.victims == tuple(
        f"rank{rank}" for rank in (0, 1, 2, 3, 4, 6, 7, 8)
    )  # the longest wait first
    assert claim.evidence["victims_total"] == 19


def test_it_takes_more_than_a_few_collectives() -> None:
    rule = Rule()
    found = [len(steps(rule, 1, {5: 300 * US})) for _ in range(8)]
    assert found[0] == 0
    assert found[-1] == 1
    assert found == sorted(found)


def test_the_onset_is_where_the_blame_begins() -> None:
    rule = Rule()
    assert steps(rule, 5, {}) == []
    (claim,) = steps(rule, 8, {2: 300 * US})
    first = START_NS + 50 * 2_000 * US
    # The collective's median end, by clocks that are up to 5 ms off.
    assert first - 5_000 * US < claim.onset_ns < first + 7_000 * US


@pytest.mark.parametrize("seed", range(10))
def test_chance_is_not_a_straggler(seed: int) -> None:
    rule = Rule()
    for window in range(40):
        assert steps(rule, 1, {}, seed=1000 * seed + window) == []


@pytest.mark.parametrize(("late_ns", "step_ns"), [(15 * US, 200 * US), (300 * US, 9_000 * US)])
def test_what_costs_little_is_not_worth_a_word(late_ns: int, step_ns: int) -> None:
    """Less than 20 µs, or less than 5 % of the time between collectives."""
    assert steps(Rule(), 10, {5: late_ns}, step_ns) == []


def test_a_straggler_that_recovers_is_let_go() -> None:
    rule = Rule()
    assert len(steps(rule, 8, {5: 300 * US})) == 1
    assert steps(rule, 12, {}, seed=9) == []


GROUPS = {
    "row": [[0, 1, 2], [3, 4, 5], [6, 7, 8]],
    "column": [[0, 3, 6], [1, 4, 7], [2, 5, 8]],
    "world": [list(range(9))],
}
ORDERS = [
    ["row", "world"],
    ["row", "column", "world"],
    ["column", "row", "world"],
    ["world", "row"],
    ["row", "column"],
]


def grid(rule: Rule, late: int, orders: list[str], late_phases: int) -> list[Claim]:
    """Nine ranks, three a row and three a column; each phase ends with one collective a group, in that order.

    One rank's own work takes 300 µs longer in the first phases of each step; all others only wait.
    """
    rng = np.random.default_rng(2)
    claims: list[Claim] = []
    free = dict.fromkeys(range(9), 0)
    for _ in range(16):
        for _ in range(5):
            for phase, order in enumerate(orders):
                for number, ranks in enumerate(GROUPS[order]):
                    arrive = {rank: free[rank] + 500 * US + int(rng.integers(0, 5 * US)) for rank in ranks}
                    if late in arrive and phase < late_phases:
                        arrive[late] += 300 * US
                    end = rule.collective(arrive, f"{order}{number}")
                    free.update(dict.fromkeys(ranks, end))
        claims = rule.window()
    return claims


@pytest.mark.parametrize("late", [0, 4, 8])
@pytest.mark.parametrize("orders", ORDERS)
def test_victims_are_not_blamed_whatever_the_order_of_groups(orders: list[str], late: int) -> None:
    """Its neighbours arrive late in the next group, because they waited for it: not their fault."""
    (claim,) = grid(Rule(), late, orders, len(orders))
    assert claim.component == f"rank{late}"
    rule = Rule()
    grid(rule, late, orders, 1)
    blamed = rule.rule.table["blamed"] > 0
    names = rule.windows.directory.members.names
    assert {names[member] for member in np.flatnonzero(blamed)} == {f"rank{late}"}


def test_who_all_waited_together_has_no_excuse() -> None:
    """All leave one collective together after waiting for rank 1; that does not excuse rank 2 in the next."""
    rule = Rule()
    at = 0
    for _ in range(10):
        for turn in range(10):
            late = 1 if turn % 2 else 2
            at = rule.collective({rank: at + 400 * US + 300 * US * (rank == late) for rank in range(8)})
        rule.window()
    share = rule.rule.table["blamed"] / rule.rule.table["took_part"]
    names = rule.windows.directory.members.names
    assert {name: round(float(each), 1) for name, each in zip(names, share, strict=True) if each} == {
        "rank1": 0.5,
        "rank2": 0.5,
    }


def named(claims: list[Claim]) -> list[str]:
    return sorted(claim.component for claim in claims)


def test_who_is_hidden_behind_a_slower_one_is_named_too() -> None:
    claims = steps(Rule(), 10, {5: 400 * US, 2: 250 * US})
    assert named(claims) == ["rank2", "rank5"]
    second, first = sorted(claims, key=lambda claim: claim.component)
    assert (first.evidence["arrived"], second.evidence["arrived"]) == (1, 2)
    assert 230 * US <= second.evidence["cost_ns"] <= 270 * US
    assert not {"rank2", "rank5"} & set(second.victims)
    assert len(second.victims) == 6


def test_two_that_take_turns_are_both_named() -> None:
    assert named(steps(Rule(), 10, {5: 300 * US, 2: 300 * US})) == ["rank2", "rank5"]


def test_one_that_ends_while_the_other_goes_on() -> None:
    rule = Rule()
    assert named(steps(rule, 10, {5: 400 * US, 2: 250 * US})) == ["rank2", "rank5"]
    assert named(steps(rule, 12, {2: 250 * US}, seed=9)) == ["rank2"]


def test_half_of_all_are_no_stragglers() -> None:
    """Where four of eight are slow there is no telling who is normal."""
    assert steps(Rule(), 12, dict.fromkeys(range(4), 300 * US)) == []


@pytest.mark.parametrize("seed", range(6))
def test_long_tails_are_chance(seed: int) -> None:
    """Every rank is late by 200 µs now and then, often several at once, and none more often than the others."""
    rule, rng = Rule(), np.random.default_rng(seed)
    for _ in range(40):
        for _ in range(10):
            rule.collective({rank: rule.now + int(rng.exponential(200 * US)) for rank in range(16)})
            rule.now += 2_000 * US
        assert rule.window() == []


def test_pairs_say_nothing() -> None:
    rule = Rule()
    for _ in range(10):
        for _ in range(10):
            rule.collective({0: rule.now, 1: rule.now + 400 * US}, "pair")
            rule.now += 1000 * US
        assert rule.window() == []


def test_other_operations_are_not_asked() -> None:
    """In a broadcast only the root's begin matters: who ends last was not waited for."""
    rule = Rule()
    for _ in range(3):
        rule.windows.collective(
            [(f"rank{n}", f"k{n}", n * US, 900 * US) for n in range(5)], op=c.Op.BROADCAST
        )
    assert len(collectives(rule.windows.take())) == 0
