"""Residence times, corrected offsets, and classes of links, on cases small enough to see through."""

import numpy as np
import pytest
import scipy.stats

from streams.clock import asymmetry, attribution
from streams.clock.asymmetry import Hops, Packets, Residence
from streams.clock.attribution import Messages
from tempotrace import asymmetry_trial
from tempotrace.clockwork import seeded


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def test_packets_are_the_sums_of_their_hops() -> None:
    hops = Hops(
        report=ints(1, 0, 0, 1, 2, 2, 3, 3, 4, 4, 5),
        hop=ints(0, 1, 0, 1, 0, 0, 0, 1, 0, 2, 0),
        hops=ints(2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2),
        link=ints(7, 8, 7, 9, 7, 8, 7, 8, 7, 8, 7),
        residence_ns=ints(100, 20, 10, 200, 1, 1, 5, -1, 1, 1, 1),
    )
    key = np.array([50, 51, 52, 53, 54, 55], np.uint64)
    found, paths = asymmetry.packets(hops, key, ints(0, 1, 2, 3, 4, 5))
    # 2 has a hop twice, 3 a negative time, 4 and 5 a hop missing.
    assert (found.key.tolist(), found.residence_ns.tolist(), found.time_ns.tolist()) == (
        [50, 51],
        [30, 300],
        [0, 1],
    )
    assert [paths[path] for path in found.path.tolist()] == [(7, 8), (7, 9)]


def test_residence_from_the_columns_of_reports() -> None:
    null = 2**64 - 1
    rows = [  # ingress, egress, latency, version, expected at 2 ns a tick
        (100, 350, null, 10, 500),
        (2**32 - 10, 40, 999, 10, 100),  # the counter wrapped
        (2**64 - 10, 40, null, 20, 100),
        (2**32 - 10, 2**32 + 40, null, 20, 100),
        (null, 40, 7, 10, 14),
        (5, null, 7, 20, 14),
        (null, null, null, 10, -1),
        (40, 30, null, 10, -1),  # left before it came
        (40, 30, null, 20, -1),
        (5, 5, null, 5, 0),
    ]
    ingress, egress, latency, version = (np.array([row[k] for row in rows], np.uint64) for k in range(4))
    assert asymmetry.stayed(ingress, egress, latency, version, 2.0).tolist() == [row[4] for row in rows]


def test_no_hops_are_no_packets() -> None:
    none = ints()
    found, paths = asymmetry.packets(Hops(none, none, none, none, none), np.empty(0, np.uint64), none)
    assert (len(found.key), paths) == (0, [])
    unknown = asymmetry.residence(found, np.array([1], np.uint64), ints(0), ints(0), 10)
    assert np.isnan(unknown.ns).all()
    assert unknown.matched.tolist() == [False]


def test_residence_is_the_packets_own_or_that_of_its_path_around_that_time() -> None:
    known = Packets(
        key=np.array([9, 1, 2, 3, 4, 5, 6], np.uint64),
        path=ints(0, 0, 0, 0, 0, 1, 0),
        time_ns=ints(0, 10, 20, 30, 40, 20, 5000),
        residence_ns=ints(777, 100, 200, 300, 400, 9, 10**6),
    )
    key = np.array([9, 100, 101, 102, 103], np.uint64)
    found = asymmetry.residence(known, key, ints(0, 0, 1, -1, 0), ints(0, 25, 20, 20, 5000), 15)
    assert found.matched.tolist() == [True, False, False, False, False]
    # Path 1 has one packet, the third is of no known path, the last has one neighbour in time.
    np.testing.assert_array_equal(found.ns, [777, 250, np.nan, np.nan, np.nan])
    np.testing.assert_array_equal(found.bound_ns, [0, 300, np.nan, np.nan, np.nan])
    assert found.spread_ns[1] == pytest.approx(np.std([100, 200, 300, 400], ddof=1))
    assert found.shared_ns[1] == pytest.approx(found.spread_ns[1] / 2)


def test_an_offset_is_freed_of_the_difference_of_residences() -> None:
    # The slave is 500 ahead; 1,000 of travel each way; 3,000 of queue there and 200 back.
    t1 = ints(10_000, 10_000)
    t2 = t1 + 1000 + 3000 + 500
    t3 = t2 + 40
    t4 = t3 - 500 + 1000 + 200
    plain = asymmetry.two_way(t1, t2, t3, t4)
    assert plain.tolist() == [1900, 1900]
    yes = np.array([True, True])

    def known(first: float, bound: float) -> Residence:
        return Residence(np.array([first, np.nan]), np.array([bound, np.nan]), np.zeros(2), np.zeros(2), yes)

    after = asymmetry.correct(plain, known(3000, 0), known(200, 80))
    assert after.offset_ns.tolist() == [500, 1900]
    np.testing.assert_array_equal(after.bound_ns, [40, np.nan])
    assert after.corrected.tolist() == [True, False]


def exchanged(links: np.ndarray, sender: np.ndarray, receiver: np.ndarray, count: int) -> Messages:
    """Each message `count` times in both periods, without delay."""
    rows = np.tile(np.arange(len(sender)), 2 * count)
    now = np.repeat([False, True], len(sender) * count)
    size = len(rows)
    return Messages(
        sender[rows], receiver[rows], rows, links[rows], now, np.zeros(size), np.ones(size), np.zeros(size)
    )


def test_two_hosts_and_one_cable_cannot_tell_the_ways_apart() -> None:
    both = exchanged(np.array([[True, False], [False, True]]), ints(0, 1), ints(1, 0), 3)
    shape = attribution.geometry(attribution.means(both), 2)
    assert (shape.classes, shape.unjudged) == (((0, 1),), ())
    assert "look like the same" in attribution.why((0, 1))


def test_one_way_only_cannot_judge_at_all() -> None:
    one = exchanged(np.array([[True, False]]), ints(0), ints(1), 3)
    means = attribution.means(one)
    shape = attribution.geometry(means, 2)
    assert (shape.classes, shape.unjudged) == ((), (0, 1))
    assert attribution.blame(means, shape) is None


def test_means_keep_the_shared_error() -> None:
    messages = Messages(
        ints(0, 0, 0), ints(1, 1, 1), ints(4, 4, 4), np.ones((3, 1), bool), np.zeros(3, bool),
        np.array([1.0, 2.0, 6.0]), np.array([2.0, 2.0, 3.0]), np.array([3.0, 3.0, 0.0]),
    )  # fmt: skip
    means = attribution.means(messages)
    found = sorted(zip(means.delay_ns.tolist(), means.sigma_ns.tolist(), strict=True))
    # Two estimated ones: 2/√2 of their own and all of what they share. The matched one stays apart.
    assert found == [(1.5, pytest.approx((2 + 9) ** 0.5)), (6.0, 3.0)]


@pytest.mark.parametrize("fabric", [asymmetry_trial.Fabric(), asymmetry_trial.Fabric(3, 2, 3)])
def test_classes_of_a_leaf_spine_fabric(fabric: asymmetry_trial.Fabric) -> None:
    pairs = [
        (a, b)
        for a in range(fabric.hosts)
        for b in range(fabric.hosts)
        if a // fabric.per_leaf != b // fabric.per_leaf
    ]
    sender, receiver = (np.repeat(ints(*side), fabric.spines) for side in zip(*pairs, strict=True))
    spine = np.tile(np.arange(fabric.spines), len(pairs))
    links = np.zeros((len(sender), fabric.links), bool)
    links[np.arange(len(sender))[:, None], fabric.route(sender, receiver, spine)] = True
    shape = attribution.geometry(attribution.means(exchanged(links, sender, receiver, 1)), fabric.hosts)
    expected: list[tuple[int, ...]] = [(host, fabric.hosts + host) for host in range(fabric.hosts)]
    expected += [(link,) for link in range(2 * fabric.hosts, fabric.links)]
    assert (sorted(shape.classes), shape.unjudged) == (sorted(expected), ())
    names = [fabric.name(link) for link in range(fabric.links)]
    assert len(set(names)) == fabric.links
    assert {"h0>leaf0", "leaf0>h0", "leaf0>spine0", "spine1>leaf2"} <= set(names)


def test_the_extra_delay_is_measured() -> None:
    fabric, rng = asymmetry_trial.Fabric(), seeded(3)
    plain = asymmetry_trial._messages(fabric, 240, 1.0, 2000.0, rng)
    shape = attribution.geometry(plain, fabric.hosts)
    for link in (0, 11, 20, 39):
        late = attribution.Means(
            plain.sender, plain.receiver, plain.link, plain.now,
            plain.delay_ns + 300.0 * (plain.now & plain.link[:, link]), plain.sigma_ns,
        )  # fmt: skip
        found = attribution.blame(late, shape)
        assert found is not None
        assert (link in found.links, found.blamed) == (True, True)
        assert found.delay_ns == pytest.approx(300, abs=5 * found.error_ns)
        assert found.error_ns < 20


def test_exact_limits_of_shares() -> None:
    for hits, trials in ((0, 10), (10, 10), (1594, 1600), (5, 400)):
        expected = scipy.stats.binomtest(hits, trials, alternative="greater").proportion_ci(0.95, "exact").low
        assert asymmetry_trial.binomial_lower(hits, trials) == pytest.approx(expected, abs=1e-9)
