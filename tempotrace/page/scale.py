"""The one scale of colour: share of a link's capacity, in fixed steps, the same on every page.

Lightness falls with every step, so that the order can be read without telling hues apart and in grey print, and no
step is green. Black is kept for dead links, stripes for what is not known.
"""

import math
from itertools import pairwise
from typing import Final

# (up to and with this share of capacity, colour). A link is full at the end of the fifth step: beyond it flows wait.
STEPS: Final = (
    (0.0, "#eae6dc"), (0.25, "#f8d488"), (0.5, "#fab95a"), (0.75, "#f79443"), (1.0, "#e8683f"),
    (1.25, "#c93f5c"), (1.5, "#9c2170"), (2.0, "#6a1678"), (math.inf, "#3a0f5e"),
)  # fmt: skip
FULL: Final = 1.0
_HAIR: Final = 1e-6  # sums of parts of flows that should be whole


def step(share: float) -> int:
    """The place in STEPS of a share of capacity."""
    return next(k for k, (most, _) in enumerate(STEPS) if share <= most * (1 + _HAIR))


def labels() -> list[str]:
    """What each step stands for."""
    limits = [f"{100 * most:.0f}" for most, _ in STEPS[:-1]]
    middle = [f"{low} – {high} %" for low, high in pairwise(limits)]
    return ["nothing", *middle, f"over {limits[-1]} %"]


def style() -> str:
    """Rules for the classes s0, s1, …: as fill and as stroke."""
    return "".join(
        f".s{k}{{fill:{colour}}}line.s{k}{{stroke:{colour}}}\n" for k, (_, colour) in enumerate(STEPS)
    )
