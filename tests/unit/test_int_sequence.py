"""Lost datagrams by sequence number: wraps, gaps, late ones, copies, restarts, and an obvious oracle."""

import numpy as np
import pytest

from producers.int import sequence
from producers.int.sequence import Sequences

KEY = 5


def seen(numbers: list[int], bits: int = 22, key: int = KEY, block: int = 1000) -> Sequences:
    found = Sequences()
    for first in range(0, len(numbers), block):
        part = np.array(numbers[first : first + block], np.int64)
        found.see(np.full(len(part), key), part, bits)
    return found


def counts(found: Sequences) -> tuple[int, int, int, int]:
    return found.lost, found.late, found.repeated, found.ambiguous


@pytest.mark.parametrize("bits", [22, 24, 32, 48])
@pytest.mark.parametrize("block", [1, 3, 1000])
def test_wraps_lose_nothing(bits: int, block: int) -> None:
    top = 1 << bits
    assert counts(seen([(top - 5 + step) % top for step in range(20)], bits, block=block)) == (0, 0, 0, 0)


@pytest.mark.parametrize("block", [1, 1000])
def test_a_gap_over_the_wrap(block: int) -> None:
    top = 1 << 22
    assert counts(seen([top - 2, top - 1, 3, 4], block=block)) == (3, 0, 0, 0)


@pytest.mark.parametrize("block", [1, 2, 1000])
def test_a_late_datagram_is_not_lost(block: int) -> None:
    assert counts(seen([1, 2, 5, 4, 6], block=block)) == (1, 1, 0, 0)
    assert counts(seen([1, 2, 5, 4, 3, 6], block=block)) == (0, 2, 0, 0)


@pytest.mark.parametrize("block", [1, 1000])
def test_copies(block: int) -> None:
    assert counts(seen([1, 2, 2, 3, 1], block=block)) == (0, 0, 2, 0)


@pytest.mark.parametrize("bits", [22, 32, 48])
def test_more_than_half_the_space_is_ambiguous(bits: int, monkeypatch: pytest.MonkeyPatch) -> None:
    half = 1 << (bits - 1)
    monkeypatch.setattr(sequence, "STEP_ALWAYS", max(sequence.STEP_ALWAYS, half))
    assert counts(seen([10, 10 + half, 11 + half], bits)) == (half - 1, 0, 0, 0)
    assert counts(seen([10, 11 + half, 12 + half], bits)) == (0, 0, 0, 1)


def test_a_restart_is_ambiguous_and_counting_goes_on() -> None:
    assert counts(seen([100_000, 100_001, 0, 1, 3])) == (1, 0, 0, 1)


@pytest.mark.parametrize("bits", [22, 32])
@pytest.mark.parametrize("damaged", [5_000, 2_000_000, 2_100_000, 4_100_000])
@pytest.mark.parametrize("block", [1, 2, 3, 1000])
def test_a_damaged_number_is_no_loss(bits: int, damaged: int, block: int) -> None:
    # The number that was damaged (4) is missing itself; a second one in its place changes nothing.
    assert counts(seen([1, 2, 3, damaged, 5, 6, 7], bits, block=block)) == (1, 0, 0, 1)
    assert counts(seen([1, 2, 3, damaged, damaged + 90_000, 6, 7], bits, block=block)) == (2, 0, 0, 2)
    assert counts(seen([1, 2, 3, damaged, damaged, 5], bits, block=block)) == (1, 0, 1, 1)
    assert counts(seen([1, 2, 3, damaged], bits, block=block)) == (0, 0, 0, 1)
    assert counts(seen([damaged, 1, 2, 3, 4], bits, block=block))[0] < sequence.STEP_ALWAYS + 1


def test_numbers_of_noise_lose_nothing() -> None:
    noise = np.random.default_rng(3).integers(0, 1 << 32, 1_000)
    found = seen(noise.tolist(), 32)
    assert found.lost == 0
    assert found.ambiguous >= 990


@pytest.mark.parametrize("block", [1, 1000])
def test_a_great_loss_counts_once_the_next_number_confirms_it(block: int) -> None:
    assert counts(seen([1, 2, 5_000, 5_001], block=block)) == (4_997, 0, 0, 0)
    assert counts(seen([1, 2, 5_000, 4_999, 5_001], block=block)) == (4_996, 1, 0, 0)
    assert counts(seen([1, 2, 5_000, 6_000], block=block)) == (4_997 + 999, 0, 0, 0)


def test_a_step_beyond_all_that_came_is_a_restart() -> None:
    """A sender of 32-bit numbers that starts again at 0 seems to step forward by a third of the space."""
    begin = 3 << 30
    assert counts(seen([begin, begin + 1, 0, 1, 2], 32)) == (0, 0, 0, 1)
    far = 3_000_000
    assert counts(seen([0, 1, far, far + 1], 32)) == (0, 0, 0, 1)
    assert counts(seen([*range(5_000), far, far + 1], 32)) == (far - 5_000, 0, 0, 0)


def test_a_number_that_never_moves() -> None:
    found = seen([0] * 50)
    assert counts(found) == (0, 0, 49, 0)
    assert found.constant == 1
    assert seen([0]).constant == 0
    assert seen([0, 0, 1]).constant == 0


def test_streams_are_apart() -> None:
    found = Sequences()
    found.see(np.array([1, 2, 1, 2, 3]), np.array([7, 100, 8, 102, 0]), 22)
    assert counts(found) == (1, 0, 0, 0)


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sequence, "STREAMS_MAX", 3)
    found = Sequences()
    found.see(np.arange(5), np.zeros(5, np.int64), 22)
    assert found.forgotten == 2
    far = seen([0, 2_000_000, 1_999_999, 1])
    assert counts(far) == (1_999_998, 1, 0, 1)


@pytest.mark.parametrize("seed", range(20))
def test_against_the_obvious(seed: int) -> None:
    """Losses and small reorderings over several streams, in blocks: lost is what never arrived."""
    rng = np.random.default_rng(seed)
    bits, found = 22, Sequences()
    keys: list[int] = []
    numbers: list[int] = []
    lost = 0
    for key in range(4):
        start = int(rng.integers(1 << bits))
        sent = np.arange(300)
        arrive = np.flatnonzero(rng.random(300) > 0.1)
        arrive[0], arrive[-1] = 0, 299
        place = arrive + np.where((arrive > 20) & (arrive < 280), rng.integers(0, 5, len(arrive)), 0)
        order = arrive[np.argsort(place, kind="stable")]
        lost += len(sent) - len(set(order.tolist()))
        keys += [key] * len(order)
        numbers += ((start + order) % (1 << bits)).tolist()
    rank = np.argsort(rng.random(len(keys)), kind="stable")
    key_array, number_array = np.array(keys), np.array(numbers)
    mixed = np.empty(len(rank), np.int64)  # interleave streams, each in its own order
    mixed[rank] = np.arange(len(rank))
    order = np.lexsort((np.arange(len(keys)), mixed))
    for key in range(4):
        places = np.sort(np.flatnonzero(key_array[order] == key))
        order[places] = np.flatnonzero(key_array == key)
    for first in range(0, len(order), 37):
        part = order[first : first + 37]
        found.see(key_array[part], number_array[part], bits)
    assert [found.lost, found.repeated, found.ambiguous] == [lost, 0, 0]
