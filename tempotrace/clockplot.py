"""Offsets and bounds of clocks over time as a picture: HTML with drawings of our own, or PNG by matplotlib.

Each clock has its own panel, since their clocks and scales differ: offset as a line, ± bound as a band. Long
series are thinned to the least and greatest of each column of the picture, so no excursion is lost.
"""

import html
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from schemas.columns import NULL_I64
from schemas.errors import Setup, Usage, cause_of
from schemas.time import format_ns
from tempotrace.clockcheck import ClockSeries

I64 = NDArray[np.int64]
COLUMNS: Final = 800
_WIDTH, _HEIGHT, _LEFT, _TOP = 900, 180, 90, 28


def write(path: Path, series: Sequence[ClockSeries]) -> int:
    """Draw all clocks that have samples into a .png or .html file; gives their number. Raises Usage,
    Setup."""
    suffix = path.suffix.lower()
    if suffix not in (".png", ".html"):
        raise Usage(f"--plot {path}: the name must end in .png or .html")
    shown = [each for each in series if len(each.time_ns)]
    try:
        if suffix == ".html":
            path.write_text(_page(shown), encoding="utf-8")
        else:
            _png(path, shown)
    except OSError as error:
        raise Setup(f"cannot write {path}: {cause_of(error)}") from error
    return len(shown)


def thin(time: I64, low: I64, high: I64) -> tuple[NDArray[np.float64], I64, I64]:
    """At most COLUMNS points (seconds from the first, least, greatest) of a series in time order."""
    seconds = (time - time[0]) / 1e9
    if len(time) <= COLUMNS:
        return seconds, low, high
    edges = np.unique(np.linspace(0, len(time), COLUMNS + 1).astype(np.int64)[:-1])
    return seconds[edges], np.minimum.reduceat(low, edges), np.maximum.reduceat(high, edges)


def _bands(each: ClockSeries) -> tuple[NDArray[np.float64], I64, I64, I64 | None, I64 | None]:
    """Thinned seconds, least and greatest offset, and the band of ± bound (None where no bound is known)."""
    order = np.argsort(each.time_ns, kind="stable")
    time, offset, bound = each.time_ns[order], each.offset_ns[order], each.bound_ns[order]
    seconds, low, high = thin(time, offset, offset)
    if (bound == NULL_I64).any():
        return seconds, low, high, None, None
    _, _, most = thin(time, bound, bound)
    return seconds, low, high, -most, most


def _page(series: Sequence[ClockSeries]) -> str:
    panels = "\n".join(_panel(each) for each in series)
    none = "" if series else "<p>No clock has samples.</p>"
    return (
        "<!doctype html><html lang=en><meta charset=utf-8><title>Clocks</title>"
        "<style>body{font:14px sans-serif;margin:24px;color:#222}svg{display:block;margin:0 0 18px}"
        "text{font:11px sans-serif;fill:#444}.o{fill:none;stroke:#1b5e9b;stroke-width:1}"
        ".b{fill:#1b5e9b;fill-opacity:.12}.z{stroke:#bbb;stroke-dasharray:3 3}"
        ".t{font-weight:bold;fill:#222}</style>"
        "<h1>Clocks</h1><p>Offset (clock − parent) as line, ± bound as band.</p>"
        f"{none}{panels}</html>\n"
    )


def _panel(each: ClockSeries) -> str:
    seconds, low, high, floor, ceiling = _bands(each)
    least = float(min(low.min(), 0 if floor is None else floor.min()))
    most = float(max(high.max(), 0 if ceiling is None else ceiling.max()))
    margin = (most - least) * 0.05 or 1.0
    least, most = least - margin, most + margin
    right, bottom = _WIDTH - 16, _HEIGHT - 24
    span = float(seconds[-1]) or 1.0

    def x(value: float) -> float:
        return _LEFT + (right - _LEFT) * value / span

    def y(value: float) -> float:
        return bottom - (bottom - _TOP) * (value - least) / (most - least)

    def points(values: Sequence[float], at: Sequence[float]) -> str:
        return " ".join(f"{x(s):.1f},{y(v):.1f}" for s, v in zip(at, values, strict=True))

    forward = seconds.tolist()
    band = ""
    if floor is not None and ceiling is not None:
        outline = points(ceiling.tolist(), forward) + " " + points(floor.tolist()[::-1], forward[::-1])
        band = f'<polygon class=b points="{outline}"/>'
    middle = [value for pair in zip(low.tolist(), high.tolist(), strict=True) for value in pair]
    line = points(middle, [s for s in forward for _ in (0, 1)])
    entry = each.entry
    title = html.escape(
        f"{entry['clock']} · {entry['kind']} · {entry['status']} · {entry['samples']} samples · offset "
        f"{_amount(entry['offset_ns'])} · bound {_amount(entry['bound_ns'])}"
    )
    zero = (
        f'<line class=z x1={_LEFT} x2={right} y1="{y(0):.1f}" y2="{y(0):.1f}"/>' if least < 0 < most else ""
    )
    labels = "".join(
        f'<text x={_LEFT - 6} y="{y(value) + 4:.1f}" text-anchor=end>{format_ns(value)}</text>'
        for value in (least + margin, most - margin)
    )
    return (
        f"<svg width={_WIDTH} height={_HEIGHT} role=img>"
        f"<text class=t x={_LEFT} y=16>{title}</text>{band}{zero}"
        f'<polyline class=o points="{line}"/>{labels}<text x={_LEFT} y={_HEIGHT - 6}>0 s</text>'
        f"<text x={right} y={_HEIGHT - 6} text-anchor=end>{span:.6g} s</text></svg>"
    )


def _amount(value: Any) -> str:
    return "unknown" if value is None else format_ns(value)


def _png(path: Path, series: Sequence[ClockSeries]) -> None:
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise Setup("a .png needs matplotlib, which is not installed: write a .html instead") from error
    figure = Figure(figsize=(10, 2.2 * max(1, len(series))), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(max(1, len(series)), squeeze=False)[:, 0]
    for axis, each in zip(axes, series, strict=False):
        seconds, low, high, floor, ceiling = _bands(each)
        if floor is not None and ceiling is not None:
            axis.fill_between(seconds, floor, ceiling, alpha=0.15, linewidth=0)
        axis.fill_between(seconds, low, high, alpha=0.6, linewidth=0)
        axis.plot(seconds, low, linewidth=0.6)
        axis.set_title(f"{each.entry['clock']} ({each.entry['kind']}, {each.entry['status']})", fontsize=9)
        axis.set_ylabel("offset, ns")
    axes[-1].set_xlabel("seconds from the first sample")
    figure.savefig(path, dpi=110)
