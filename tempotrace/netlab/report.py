"""Fits of the measured series, and what they would invert; the result of `clock experiment netns` and its picture."""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from schemas.errors import Setup
from streams.clock.fits import Fitted, fit
from streams.clock.misorder import Errors
from tempotrace.chart import Chart, Curve, Histogram
from tempotrace.netlab.run import NodeFiles
from tempotrace.netlab.series import I64, NAMES, read

NAMESPACES_CAVEAT: Final = (
    "One kernel and one oscillator: every true offset is exactly 0. This measures stamping, queueing and daemon "
    "error, and nothing of drift, holdover or hardware stamps."
)
HOSTS_CAVEAT: Final = (
    "Real hosts: the figures hold the true offsets between their clocks as well as stamping, queueing and daemon "
    "error, and cannot tell them apart. Stamps are taken in software; nothing here tells of hardware stamps."
)
AIC_NOTE: Final = (
    "AIC counts samples as independent: where neighbours are correlated, its differences overstate."
)
SAMPLES_MIN: Final = 30
GAPS_NS: Final = (10_000, 20_000, 50_000, 100_000, 1_000_000)
_BARS: Final = 80


def summarise(nodes: Sequence[NodeFiles], caveat: str) -> tuple[dict[str, Any], list[Chart]]:
    """Result and charts. Raises Setup if no node gave a series that can be fitted."""
    warnings = [f"{each.node}, {each.load}: {each.failed}" for each in nodes if each.failed]
    series: list[dict[str, Any]] = []
    inverted: list[dict[str, Any]] = []
    charts: list[Chart] = []
    found = [(each, read(each.files)) for each in nodes]
    for load in dict.fromkeys(each.load for each in nodes):
        for name in NAMES:
            parts = {each.node: mine[name] for each, mine in found if each.load == load and name in mine}
            if not parts:
                continue
            pooled = np.concatenate(list(parts.values()))
            for node, offsets in [*parts.items(), ("all", pooled)]:
                if len(offsets) < SAMPLES_MIN or not np.ptp(offsets):
                    warnings.append(f"{node}, {load}, {name}: {len(offsets)} samples are too few to fit")
                    continue
                fitted = fit(offsets.astype(np.float64))
                series.append(_entry(load, name, node, fitted))
                if node == "all":
                    charts.append(_chart(f"{name}, {load}, all nodes", offsets, fitted, caveat))
                    inverted += _inverted(load, name, parts, fitted)
    if not series:
        raise Setup(f"nothing could be measured: {'; '.join(warnings) or 'no node wrote offsets'}")
    result = {
        "caveat": caveat,
        "note": AIC_NOTE,
        "series": series,
        "inverted": inverted,
        "about": {each.node: _about(each) for each in nodes if each.files},
        "warnings": warnings,
    }
    return result, charts


def _about(node: NodeFiles) -> list[str]:
    return node.files.get("about", b"").decode("utf-8", "replace").splitlines()


def _entry(load: str, name: str, node: str, fitted: Fitted) -> dict[str, Any]:
    return {
        "load": load,
        "series": name,
        "node": node,
        "samples": fitted.count,
        "mean_ns": fitted.mean,
        "median_ns": fitted.median,
        "deviation_ns": fitted.deviation,
        "p99_abs_ns": fitted.p99_abs,
        "correlation": fitted.correlation,
        "best": fitted.laws[0].name,
        "laws": {
            law.name: {"location_ns": law.location, "scale_ns": law.scale, "nu": law.nu, "aic": law.aic}
            for law in fitted.laws
        },
    }


def _inverted(load: str, name: str, parts: dict[str, I64], fitted: Fitted) -> list[dict[str, Any]]:
    """Shares of pairs that such errors invert: over all pairs of samples of two different nodes, and by the laws."""
    rows = []
    for gap in GAPS_NS:
        hits = pairs = 0
        for first, mine in parts.items():
            ordered = np.sort(mine)
            for second, theirs in parts.items():
                if first != second:
                    # Inverted where mine − theirs > gap.
                    hits += int(np.sum(len(mine) - np.searchsorted(ordered, theirs + gap, side="right")))
                    pairs += len(mine) * len(theirs)
        if not pairs:
            continue
        row: dict[str, Any] = {"load": load, "series": name, "gap_ns": gap, "measured": 100 * hits / pairs}
        for family in ("gauss", "laplace"):
            sigma = fitted.law(family).sigma
            assert sigma is not None
            row[family] = 100 * float(
                Errors("gauss" if family == "gauss" else "laplace", sigma, sigma).inverted(gap)
            )
        rows.append(row)
    return rows


def _chart(title: str, offsets: I64, fitted: Fitted, caveat: str) -> Chart:
    """Histogram of all but the outermost hundredth, with the three densities on the same scale."""
    low, high = np.quantile(offsets, [0.005, 0.995])
    edges = np.linspace(low, high, _BARS + 1) if high > low else np.array([low - 1.0, low + 1.0])
    counts, _ = np.histogram(offsets, edges)
    density = 1000 * counts / (len(offsets) * np.diff(edges))
    bars = Histogram(f"{len(offsets):,} samples", edges / 1000, density)
    least = float(density[density > 0].min()) / 10
    at = np.linspace(edges[0], edges[-1], 1200)
    curves = []
    for law in fitted.laws:
        nu = "" if law.nu is None else f", ν = {law.nu:.1f}"
        height = 1000 * law.density(at)
        shown = height >= least
        curves.append(Curve(f"{law.name}{nu}, AIC {law.aic:.0f}", at[shown] / 1000, height[shown]))
    note = f"{fitted.laws[0].name} fits best; 99 % of the samples are shown. {caveat}"
    return Chart(title, "node − master, µs", "density, 1/µs", curves, bars, log_y=True, note=note)
