"""What a batch states of a clock and its parents, checked and worked out: the map to TAI, a bound at each step."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from schemas import columns as c
from schemas.batch import I64, Batch
from schemas.errors import MalformedInput
from schemas.time import (
    BOUND_NS_MAX,
    EARLIEST_NS,
    LATEST_NS,
    NS,
    TAI,
    TAI_UTC_DEFAULT_S,
    unix_to_tai,
    utc_to_tai,
)

UNKNOWN = c.NULL_I64
Value = int | float | str | None
Statement = tuple[tuple[Value, ...], ...]  # values of CLOCKS by clock, from the stamp up
Line = tuple[int, int, float]  # a reading, TAI at that moment, TAI's rate over the clock's less one


class Step(NamedTuple):
    """Bound of a clock to its parent."""

    bound_ns: int
    growth_ppb: float
    as_of_ns: int  # TAI
    assurance: int
    epsilon: float


def named(row: tuple[Value, ...]) -> Mapping[str, Value]:
    """A row of the clock table by column."""
    return dict(zip((column.name for column in c.CLOCKS), row, strict=True))


def integer(value: Value) -> int:
    """A value of an integer column."""
    assert isinstance(value, int)
    return value


def _float(value: Value) -> float:
    assert value is None or isinstance(value, int | float)
    return 0.0 if value is None else float(value)


def leaps_s(batch: Batch, used: NDArray[np.generic]) -> I64:
    """TAI - UTC for the nominal map of each of these clocks, 0 for those that do not count UTC.

    By the table at the latest stamp or watermark in the batch; 37 s where that lies before the table.
    """
    data = batch.data
    out = np.zeros(len(used), np.int64)
    scale = data["clk_timescale"][used]
    utc = (scale == c.Timescale.UTC) | (scale == c.Timescale.UTC_SMEARED)
    if not utc.any():
        return out
    watermark = data["src_low_watermark_ns"]
    stamp = np.where(data["src_last_seq"] >= data["src_first_seq"], data["src_base_ns"], UNKNOWN)
    near = np.full(len(data["clk_id"]), UNKNOWN)
    has = data["src_clock"] != c.NULL_U16
    np.maximum.at(near, data["src_clock"][has], np.maximum(stamp, watermark)[has])
    at = np.clip(near[used], 0, LATEST_NS)
    leap = (utc_to_tai(at) - at) // NS
    return np.where(utc, np.where(leap == 0, TAI_UTC_DEFAULT_S, leap), out)


def resolve(rows: Statement, leap_s: int) -> tuple[Line | None, list[Step], list[tuple[str, int]]]:
    """(map to TAI or None, bounds from the stamp up, (clock, epoch) up to the root) of a stated clock.

    `leap_s` is TAI - UTC at the clock's stamps, where it counts UTC. Raises MalformedInput for what can't be meant.
    """
    _check(rows)
    # From the root down: the map to TAI, and the chain of bounds.
    mapped: Line | None = None
    steps: list[Step] = []
    nodes: list[tuple[str, int]] = []
    for level in range(len(rows) - 1, -1, -1):
        row = named(rows[level])
        name, epoch = str(row["clk_id"]), integer(row["clk_epoch"])
        scale = integer(row["clk_timescale"])
        parent = row["clk_parent"]
        if not nodes:
            if parent is not None:
                nodes = [(str(parent), 0)]
            elif scale != c.Timescale.ARBITRARY:
                nodes = [(TAI, 0)]
            if nodes == [(TAI, 0)]:
                mapped = (0, 0, 0.0)
        ref, ref_parent = integer(row["clk_ref_ns"]), integer(row["clk_ref_parent_ns"])
        rate = _float(row["clk_rate_ppb"]) * 1e-9
        if ref != UNKNOWN and ref_parent != UNKNOWN and mapped is not None:
            p_ref, p_tai, p_rate = mapped
            delta = ref_parent - p_ref
            mapped = (ref, p_tai + delta + round(delta * p_rate), (1 + rate) * (1 + p_rate) - 1)
        elif scale == c.Timescale.TAI:
            mapped = (0, 0, 0.0)
        elif scale in (c.Timescale.UTC, c.Timescale.UTC_SMEARED):
            mapped = (0, (leap_s if level == 0 else _leap_below(rows, level)) * NS, 0.0)
        else:
            mapped = None
        if mapped is not None and not EARLIEST_NS <= mapped[1] <= LATEST_NS:
            raise MalformedInput(f"the clock's reference is TAI {mapped[1]}", name)
        if nodes:
            steps.insert(0, _step(row, mapped))
        nodes.insert(0, (name, epoch))
    if mapped is not None and mapped[0] == 0 and mapped[2] == 0.0:
        # Any moment may serve as the reference: one at which a bound held keeps bounds that grow tight.
        mapped = next(((s.as_of_ns - mapped[1], s.as_of_ns, 0.0) for s in steps if s.growth_ppb), mapped)
    return mapped, steps, nodes


def _step(row: Mapping[str, Value], mapped: Line | None) -> Step:
    """Bound of a clock to its parent. One that grows from a moment that has no place in TAI is unknown."""
    bound, as_of, growth = (
        integer(row["clk_bound_ns"]),
        integer(row["clk_as_of_ns"]),
        _float(row["clk_growth_ppb"]),
    )
    if as_of == UNKNOWN:
        as_of, growth = 0, 0.0
    elif mapped is not None:
        as_of = mapped[1] + as_of - mapped[0]
        if not EARLIEST_NS <= as_of <= LATEST_NS:
            raise MalformedInput(f"a bound as of TAI {as_of}", "clk_as_of_ns")
    elif growth:
        bound, as_of, growth = UNKNOWN, 0, 0.0
    epsilon = row["clk_epsilon"]
    return Step(
        bound, growth, as_of, integer(row["clk_assurance"]), 1.0 if epsilon is None else _float(epsilon)
    )


def _leap_below(rows: Statement, level: int) -> int:
    """TAI - UTC of a parent: by the table where the clock below was compared with it, else 37 s."""
    below = named(rows[level - 1])
    at = integer(below["clk_ref_parent_ns"])
    leap = 0 if at == UNKNOWN else (unix_to_tai(at) - at) // NS
    return leap or TAI_UTC_DEFAULT_S


def _check(statement: Statement) -> None:
    """Raise MalformedInput for a clock that can't be meant; afterwards no arithmetic on it overflows."""
    for values in statement:
        row = named(values)
        for name in ("clk_ref_ns", "clk_ref_parent_ns", "clk_as_of_ns"):
            value = integer(row[name])
            if value != UNKNOWN and not EARLIEST_NS <= value <= LATEST_NS:
                raise MalformedInput(f"{value} is no time that a clock can show", name)
        for name in ("clk_bound_ns", "clk_quantum_ns"):
            value = integer(row[name])
            if value != UNKNOWN and not 0 <= value <= BOUND_NS_MAX:
                raise MalformedInput(f"{value} ns", name)
        for name, least, most in (
            ("clk_rate_ppb", -1e9, 1e9),
            ("clk_growth_ppb", 0.0, 1e8),
            ("clk_epsilon", 0.0, 1.0),
        ):
            number = row[name]
            if number is not None and not least <= _float(number) <= most:
                raise MalformedInput(f"{number} is not between {least:g} and {most:g}", name)
        if integer(row["clk_assurance"]) >= len(c.Assurance):
            raise MalformedInput(f"code {row['clk_assurance']}", "clk_assurance")
