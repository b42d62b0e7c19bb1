"""One Unix time and many become the same TAI."""

import numpy as np

from schemas.time import LEAPS, NS, unix_to_tai, utc_to_tai


def test_one_time_is_mapped_as_an_array_is() -> None:
    """At every entry of the table, 1 ns around it, before the first and long after the last."""
    times = [start * NS + by for start, _ in LEAPS for by in (-1, 0, 1)] + [-1, 0, 2 * 10**18]
    assert [unix_to_tai(time) for time in times] == utc_to_tai(np.array(times)).tolist()


def test_the_offset_of_2026_is_37_s() -> None:
    """IERS: 37 s since 2017-01-01."""
    assert unix_to_tai(1_483_228_800 * NS) == (1_483_228_800 + 37) * NS
    assert unix_to_tai(1_483_228_800 * NS - 1) == (1_483_228_800 + 36) * NS - 1
