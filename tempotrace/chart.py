"""Small charts of curves and histograms: HTML with drawings of our own, or PNG by matplotlib where it is there."""

import html
import math
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from schemas.errors import Setup, Usage, cause_of

F64 = NDArray[np.float64]
_WIDTH, _HEIGHT, _LEFT, _TOP = 900, 360, 84, 30
_RIGHT, _BOTTOM = _WIDTH - 210, _HEIGHT - 44
_INK: Final = ("#1b5e9b", "#c4501b", "#2c7a3f", "#7b3fa0", "#8a6d00", "#b0305c")


@dataclass(frozen=True)
class Curve:
    """A line through points, in order. `dashed`: drawn so."""

    label: str
    x: F64
    y: F64
    dashed: bool = False


@dataclass(frozen=True)
class Histogram:
    """Bars between edges (one more than heights)."""

    label: str
    edges: F64
    height: F64


@dataclass(frozen=True)
class Chart:
    """One panel. Points that a logarithmic axis cannot show are left out."""

    title: str
    x_label: str
    y_label: str
    curves: Sequence[Curve] = ()
    histogram: Histogram | None = None
    log_x: bool = False
    log_y: bool = False
    note: str = field(default="")


def check_name(path: Path) -> None:
    """Refuse, before any work, a name that `write` cannot serve. Raises Usage."""
    if path.suffix.lower() not in (".png", ".html"):
        raise Usage(f"--plot {path}: the name must end in .png or .html")


def write(path: Path, heading: str, charts: Sequence[Chart]) -> Path:
    """Draw all panels into a .png or .html file; gives the file written. Raises Usage, Setup.

    A .png without matplotlib becomes a .html beside it, and the result says so.
    """
    check_name(path)
    try:
        if path.suffix.lower() == ".png":
            if _png(path, heading, charts):
                return path
            path = path.with_suffix(".html")
        path.write_text(_page(heading, charts), encoding="utf-8")
    except OSError as error:
        raise Setup(f"cannot write {path}: {cause_of(error)}") from error
    return path


def _page(heading: str, charts: Sequence[Chart]) -> str:
    panels = "\n".join(f"{_svg(each)}<p>{html.escape(each.note)}</p>" for each in charts)
    return (
        f"<!doctype html><html lang=en><meta charset=utf-8><title>{html.escape(heading)}</title>"
        "<style>body{font:14px sans-serif;margin:24px;color:#222}svg{display:block}"
        "p{margin:0 0 18px;max-width:880px}text{font:11px sans-serif;fill:#444}"
        ".t{font-weight:bold;fill:#222}.g{stroke:#ddd}.h{fill:#999;fill-opacity:.35}</style>"
        f"<h1>{html.escape(heading)}</h1>\n{panels}</html>\n"
    )


def _span(chart: Chart, of_x: bool) -> tuple[float, float]:
    """Range of an axis, in its own scale (logarithms if logarithmic)."""
    log = chart.log_x if of_x else chart.log_y
    parts = [each.x if of_x else each.y for each in chart.curves]
    if chart.histogram is not None:
        parts.append(chart.histogram.edges if of_x else chart.histogram.height)
    values = np.concatenate(parts) if parts else np.zeros(1)
    values = values[np.isfinite(values) & ((values > 0) | (not log))]
    if not len(values):
        return 0.0, 1.0
    low, high = float(values.min()), float(values.max())
    if log:
        return math.log10(low), math.log10(high) if high > low else math.log10(low) + 1
    if not of_x:
        low = min(low, 0.0)
    return low, high if high > low else low + 1.0


def _ticks(low: float, high: float, log: bool) -> list[float]:
    """Places of marks on an axis, in its own scale."""
    if log:
        step = max(1, math.ceil((high - low) / 8))
        return [float(each) for each in range(math.ceil(low), math.floor(high) + 1, step)]
    step = 10 ** math.floor(math.log10((high - low) / 4))
    step *= next(factor for factor in (1, 2, 5, 10) if (high - low) / (step * factor) <= 8)
    return [k * step for k in range(math.ceil(low / step), math.floor(high / step) + 1)]


def _svg(chart: Chart) -> str:
    (x0, x1), (y0, y1) = _span(chart, True), _span(chart, False)

    def place(value: float, log: bool, low: float, high: float, begin: float, end: float) -> float:
        own = math.log10(value) if log else value
        return begin + (end - begin) * (min(max(own, low), high) - low) / (high - low)

    def x(value: float) -> float:
        return place(value, chart.log_x, x0, x1, _LEFT, _RIGHT)

    def y(value: float) -> float:
        return place(value, chart.log_y, y0, y1, _BOTTOM, _TOP)

    body = [f"<text class=t x={_LEFT} y=16>{html.escape(chart.title)}</text>"]
    for mark in _ticks(x0, x1, chart.log_x):
        value = 10**mark if chart.log_x else mark
        body.append(f'<line class=g x1="{x(value):.1f}" x2="{x(value):.1f}" y1={_TOP} y2={_BOTTOM} />')
        body.append(
            f'<text x="{x(value):.1f}" y={_BOTTOM + 16} text-anchor=middle>{_mark(value, chart.log_x)}</text>'
        )
    for mark in _ticks(y0, y1, chart.log_y):
        value = 10**mark if chart.log_y else mark
        body.append(f'<line class=g x1={_LEFT} x2={_RIGHT} y1="{y(value):.1f}" y2="{y(value):.1f}" />')
        body.append(
            f'<text x={_LEFT - 6} y="{y(value) + 4:.1f}" text-anchor=end>{_mark(value, chart.log_y)}</text>'
        )
    middle = (_LEFT + _RIGHT) / 2
    body.append(
        f'<text x="{middle:.0f}" y={_HEIGHT - 8} text-anchor=middle>{html.escape(chart.x_label)}</text>'
    )
    body.append(
        f'<text x=14 y={_HEIGHT // 2} text-anchor=middle transform="rotate(-90 14 {_HEIGHT // 2})">'
        f"{html.escape(chart.y_label)}</text>"
    )
    legend = [(each.label, _INK[place_ % len(_INK)]) for place_, each in enumerate(chart.curves)]
    if chart.histogram is not None:
        body += _bars(chart.histogram, chart.log_y, x, y)
        legend.append((chart.histogram.label, "#999"))
    for place_, each in enumerate(chart.curves):
        dash = " stroke-dasharray='6 4'" if each.dashed else ""
        points = " ".join(f"{x(a):.1f},{y(b):.1f}" for a, b in _shown(each, chart))
        ink = _INK[place_ % len(_INK)]
        body.append(f'<polyline fill=none stroke="{ink}" stroke-width=1.6{dash} points="{points}"/>')
    for row, (label, ink) in enumerate(legend):
        at = _TOP + 12 + 18 * row
        body.append(f'<rect x={_RIGHT + 12} y={at - 8} width=14 height=4 fill="{ink}" />')
        body.append(f"<text x={_RIGHT + 32} y={at}>{html.escape(label)}</text>")
    return f"<svg width={_WIDTH} height={_HEIGHT} role=img>{''.join(body)}</svg>"


def _bars(
    bars: Histogram, log_y: bool, x: Callable[[float], float], y: Callable[[float], float]
) -> list[str]:
    drawn = []
    for left, right, height in zip(
        bars.edges[:-1].tolist(), bars.edges[1:].tolist(), bars.height.tolist(), strict=True
    ):
        if height > 0 or not log_y:
            drawn.append(
                f'<rect class=h x="{x(left):.1f}" y="{y(height):.1f}" width="{x(right) - x(left):.1f}" '
                f'height="{_BOTTOM - y(height):.1f}"/>'
            )
    return drawn


def _shown(curve: Curve, chart: Chart) -> list[tuple[float, float]]:
    keep = np.isfinite(curve.x) & np.isfinite(curve.y)
    if chart.log_x:
        keep &= curve.x > 0
    if chart.log_y:
        keep &= curve.y > 0
    return list(zip(curve.x[keep].tolist(), curve.y[keep].tolist(), strict=True))


def _mark(value: float, log: bool) -> str:
    return f"{value:.0e}" if log and not 0.01 <= value <= 1000 else f"{value:.6g}"


def _png(path: Path, heading: str, charts: Sequence[Chart]) -> bool:
    """Draw by matplotlib; False where it is not installed."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        return False
    figure = Figure(figsize=(10, 3.6 * max(1, len(charts))), layout="constrained")
    FigureCanvasAgg(figure)
    figure.suptitle(heading)
    for axis, chart in zip(figure.subplots(len(charts), squeeze=False)[:, 0], charts, strict=True):
        if chart.histogram is not None:
            bars = chart.histogram
            axis.stairs(bars.height, bars.edges, fill=True, alpha=0.35, color="grey", label=bars.label)
        for each in chart.curves:
            points = np.array(_shown(each, chart)).reshape(-1, 2)
            axis.plot(points[:, 0], points[:, 1], "--" if each.dashed else "-", label=each.label)
        below = "\n".join([chart.x_label, *textwrap.wrap(chart.note, 130)])
        axis.set(title=chart.title, xlabel=below, ylabel=chart.y_label)
        if chart.log_x:
            axis.set_xscale("log")
        if chart.log_y:
            axis.set_yscale("log")
        axis.legend(fontsize=8)
    figure.savefig(path, dpi=110)
    return True
