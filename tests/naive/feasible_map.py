"""The obvious feasible set: clip a polygon of (offset, rate) by every constraint; look at its corners."""

Points = list[tuple[float, float]]


def polygon(upper: Points, lower: Points, x0: float, rate: float, wander: float) -> Points:
    """Corners (value at x0, slope at x0) of all lines that the constraints (x, y) leave."""
    corners = [(-1e8, -rate), (1e8, -rate), (1e8, rate), (-1e8, rate)]
    for points, sign in ((upper, 1.0), (lower, -1.0)):
        for x, y in points:
            d = x - x0
            # sign·(a + b·d) ≤ sign·y + ½·wander·d²
            corners = clip(corners, sign, sign * d, sign * y + 0.5 * wander * d * d)
    return corners


def clip(corners: Points, a: float, b: float, most: float) -> Points:
    """The part of a convex polygon where a·value + b·slope ≤ most."""
    out = []
    for here, there in zip(corners, corners[1:] + corners[:1], strict=True):
        at, then = most - a * here[0] - b * here[1], most - a * there[0] - b * there[1]
        if at >= 0:
            out.append(here)
        if (at > 0 > then) or (at < 0 < then):
            share = at / (at - then)
            out.append((here[0] + share * (there[0] - here[0]), here[1] + share * (there[1] - here[1])))
    return out
