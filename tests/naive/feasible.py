"""What exchanges leave possible of an offset, by trying every corner of the linear program."""

from itertools import combinations


def corners(
    highs: list[tuple[float, float]],
    lows: list[tuple[float, float]],
    at: float,
    drift: float,
    wander: float,
) -> tuple[float, float] | None:
    """(least, greatest) offset at `at` of lines that pass all points; None if no line does.

    Points are (x in s, y in ns). A line is offset + slope·(x − at), |slope| ≤ drift; a point is relaxed by what
    wander can do over its distance. Constraints are a·offset + b·slope ≤ c; the optimum lies at a corner.
    """
    rows = [(0.0, 1.0, drift), (0.0, -1.0, drift)]
    rows += [(1.0, x - at, y + wander * (x - at) ** 2 / 2) for x, y in highs]
    rows += [(-1.0, at - x, wander * (x - at) ** 2 / 2 - y) for x, y in lows]
    found = []
    for (a, b, c), (d, e, f) in combinations(rows, 2):
        determinant = a * e - b * d
        if determinant:
            offset, slope = (c * e - b * f) / determinant, (a * f - c * d) / determinant
            if all(p * offset + q * slope <= r + 1e-6 for p, q, r in rows):
                found.append(offset)
    return (min(found), max(found)) if found else None


def cones(
    highs: list[tuple[float, float]], lows: list[tuple[float, float]], at: float, drift: float
) -> tuple[float, float]:
    """(least, greatest) offset at `at` if the rate may do anything within ±drift."""
    return (
        max(y - drift * abs(x - at) for x, y in lows),
        min(y + drift * abs(x - at) for x, y in highs),
    )
