"""The page as text: of a report, or of a comparison. Pure: data in, HTML out."""

import base64
import hashlib
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from string import Template
from typing import Any, Final

from tempotrace.page import draw, scale, tables
from tempotrace.page.finding import compared, finding
from tempotrace.page.markup import Markup, Part, join, shown, tag, text
from tempotrace.page.parts import Side
from tempotrace.page.verify import Again
from tempotrace.page.words import (
    link_words,
    number_words,
    percent,
    seconds_words,
    signed,
    size_words,
)

_FOLDER: Final = Path(__file__).parent
# How a path can be known, in the order of trust, with the class of its colour.
_KNOWN: Final = {
    "observed": 0,
    "observed_probe": 1,
    "walked": 2,
    "computed": 3,
    "candidates": 4,
    "unknown": 5,
}


def report_page(head: Mapping[str, Any], side: Side, again: Again) -> str:
    """The page of `flows report`. `head` has input, coverage, interval_ns, path_sources, … where they are known."""
    worst, losers = finding(side)
    top = tag(
        "div",
        tag("div", _eyebrow(head, side), tag("h1", worst, tag("span", losers)), class_="main"),
        tag("aside", _facts(head, [side]), draw.legend(side), class_="facts"),
        tag("div", draw.fabric(side, ""), class_="main"),
        class_="top",
    )
    parts = [
        top, _filters([side]), _section("Layers", tables.layers(side.report, "layers")),
        _section(_count("Links, most loaded first", side.links, side.links_total), tables.links(side, "")),
        _section(_count("Flows, those that lose most first", side.flows, side.report["flows"]), tables.flows(side, "")),
        _section("Groups over what chance gives (band: 1–99 % of the null)", tables.groups(side, "")),
        _section("Jobs", tables.jobs(side.report, "jobs")),
        _section("Polarisation", tables.polarisation(side.report, "polarisation")),
        _section("Completion", tables.completion(side.report)),
        _section("Over time", draw.over_time(head["over_time"])) if head.get("over_time") else None,
        _cards(side, "", again),
    ]  # fmt: skip
    return _page(f"Flows: {side.report['flows']:,} over {side.links_total:,} links", join(*parts))


def compare_page(
    head: Mapping[str, Any],
    a: Side,
    b: Side,
    difference: dict[str, Any],
    study: dict[str, Any] | None,
    again: Again,
) -> str:
    """The page of `flows compare`: both sides in one layout and scale, the difference between them."""
    sides = (("a-", a), ("b-", b))
    names = [side.report["mode"] for _, side in sides]
    worst = compared(difference, a, b)

    def pair(make: Any) -> Markup:
        return tag(
            "div",
            *(tag("div", tag("h3", side.report["mode"]), make(side, prefix)) for prefix, side in sides),
            class_="pair",
        )

    halves = [
        tag(
            "div",
            tag("h3", name),
            tag("p", " ".join(finding(side)), class_="said"),
            draw.fabric(side, prefix),
            class_="half",
        )
        for name, (prefix, side) in zip(names, sides, strict=True)
    ]
    parts = [
        _eyebrow(head, a), tag("h1", worst),
        tag("div", _facts(head, [a, b]), draw.legend(a), class_="facts wide"),
        _filters([a, b]),
        tag("div", halves[0], _between(difference, a, b, study), halves[1], class_="sides"),
        _section("Proposed source ports", tables.ports(b if b.ports else a)) if a.ports or b.ports else None,
        _section("Layers", pair(lambda side, prefix: tables.layers(side.report, f"{prefix}layers"))),
        _section("Links, most loaded first", pair(tables.links)),
        _section("Flows, those that lose most first", pair(tables.flows)),
        _section("Groups over what chance gives (band: 1–99 % of the null)", pair(tables.groups)),
        _section("Jobs", pair(lambda side, prefix: tables.jobs(side.report, f"{prefix}jobs"))),
        _section("Polarisation", pair(lambda side, prefix: tables.polarisation(side.report, f"{prefix}polarisation"))),
        _section("Completion", pair(lambda side, _: tables.completion(side.report))),
        *(_cards(side, prefix, again) for prefix, side in sides),
    ]  # fmt: skip
    return _page(f"Flows: {names[0]} beside {names[1]}", join(*parts))


def _eyebrow(head: Mapping[str, Any], side: Side) -> Markup:
    return tag(
        "p",
        f"{side.report['flows']:,} flows, {size_words(side.report['bytes'])}. Input: {head['input']}",
        class_="eyebrow",
    )


def _count(title: str, listed: tuple[Any, ...], total: int) -> str:
    return title if len(listed) >= total else f"{title}: {len(listed):,} of {total:,}"


def _section(title: str, content: Markup) -> Markup:
    return tag("section", tag("h2", title), content)


def _cards(side: Side, prefix: str, again: Again) -> Markup:
    """Cards of links and of flows: hidden until chosen, and the first of each printed."""
    return join(
        tag("div", tables.cards(side, prefix, again), class_="cards"),
        tag("div", tables.flow_cards(side, prefix, again), class_="cards"),
    )


def _facts(head: Mapping[str, Any], sides: list[Side]) -> Markup:
    """What the figures rest on."""
    side = sides[0]
    rows: list[tuple[str, Part]] = [("snapshot", _interval(head.get("interval_ns")))]
    coverage = head.get("coverage")
    rows.append(
        (
            "coverage",
            "unknown: no port was counted" if coverage is None else f"{percent(coverage)} of counted bytes",
        )
    )
    for each in sides:
        label = "paths" if len(sides) == 1 else f"paths, {each.report['mode']}"
        rows.append((label, _shares(head, each)))
    keys = side.report["keys"]
    rows.append(("hash keys", f"{keys:,} distinct of {side.report['flows']:,} flows"))
    if side.assumed:
        rows.append(
            ("capacity", f"assumed for {side.assumed:,} of {side.links_total:,} links (state it with --gbps)")
        )
    if head.get("without_path"):
        rows.append(("left out", f"{head['without_path']:,} flows without a path"))
    if head.get("off_shortest"):
        rows.append(("detours", f"{head['off_shortest']:,} hops on no shortest way"))
    return tag("dl", *(join(tag("dt", name), tag("dd", value)) for name, value in rows))


def _interval(interval: tuple[int, int] | None) -> str:
    if interval is None:
        return "no time: not of a lake"
    start, end = interval
    return f"{_moment(start)} to {_moment(end)} TAI ({seconds_words((end - start) / 1e9)})"


def _moment(ns: int) -> str:
    return f"{datetime.fromtimestamp(ns // 10**9, UTC):%Y-%m-%d %H:%M:%S}.{ns // 10**6 % 1000:03d}"


def _shares(head: Mapping[str, Any], side: Side) -> Markup:
    """Shares of flows by how their path is known: a bar and its key."""
    recorded = side.report["routing"] == "as recorded"
    found: dict[str, float] = dict(head.get("path_sources") or {}) if recorded else {}
    if not recorded:
        found = {side.flows[0].source if side.flows else "computed": 1.0}
    rows = dict.fromkeys(_KNOWN, 0.0) | found
    x = 0.0
    bars, keys = [], []
    for name, share in rows.items():
        kind = f"k{_KNOWN.get(name, 6)}"
        if share:
            bars.append(tag("rect", tag("title", f"{name} {percent(share)}"), class_=kind, x=round(100 * x, 3),
                            width=round(100 * share, 3), height=12))  # fmt: skip
            x += share
        box = tag("svg", tag("rect", class_=kind, width=10, height=10), width=10, height=10, class_="dot")
        if share or name in _KNOWN:
            keys.append(tag("li", box, f"{name.replace('_', ' ')} {percent(share)}"))
    model = ", agreement with the devices not measured" if found.get("computed") else ""
    how = None if recorded else tag("span", side.report["routing"] + model, class_="note")
    bar = tag("svg", *bars, class_="shares", viewBox="0 0 100 12", preserveAspectRatio="none", role="img",
              aria_label="shares of flows by how their path is known")  # fmt: skip
    return join(bar, tag("ul", *keys, class_="keys"), how)


def _filters(sides: list[Side]) -> Markup:
    names = list(dict.fromkeys(link.layer for side in sides for link in side.links))
    options = [tag("option", "all layers", value=""), *(tag("option", name, value=name) for name in names)]
    return tag(
        "form",
        tag("input", type="search", name="q", placeholder="switch, link, address, port, job", aria_label="search"),
        tag("select", *options, name="layer", aria_label="layer"),
        tag("label", tag("input", type="checkbox", name="full"), " above capacity"),
        tag("span", id="count", class_="note"),
        id="filters", class_="bar-of-filters", hidden=True, autocomplete="off",
    )  # fmt: skip


def _between(difference: dict[str, Any], a: Side, b: Side, study: dict[str, Any] | None) -> Markup:
    rows: list[tuple[str, str]] = []
    for row in difference["layers"]:
        relative = row["fim_routing_relative"]
        change = "" if relative is None else f" ({signed(100 * relative)} %)"
        rows.append((f"{signed(row['fim_routing_points'])} points", f"FIM of {row['layer']}{change}"))
        rows.append(
            (f"{signed(row['fim_routing_bytes_points'])} points", f"the same by bytes, {row['layer']}")
        )
    for title, side in (("before", a), ("after", b)):
        live = [link for link in side.links if link.share is not None]
        if live:
            most = max(live, key=lambda link: link.share or 0.0)
            rows.append((percent(most.share), f"most loaded link {title}: {most.name}"))
    rows.append((f"{signed(100 * difference['mean_loss'])} points", "mean loss of large flows"))
    rows.append((signed(difference["colliding_links"]), "links with colliding large flows"))
    if difference["completion_s"] is not None:
        sign = "−" if difference["completion_s"] < 0 else "+"
        relative = difference["completion_relative"]
        rows.append(
            (f"{sign}{seconds_words(abs(difference['completion_s']))}",
             "until all is delivered" + ("" if relative is None else f" ({signed(100 * relative)} %)"))
        )  # fmt: skip
    changed = _most_changed(a, b)
    return tag(
        "div", tag("h3", "Difference, b less a"), *(tag("p", tag("b", value), words) for value, words in rows),
        join(tag("h4", "Links that change most"), tag("ul", *changed, class_="keys")) if changed else None,
        _drawn(study) if study else None, class_="between",
    )  # fmt: skip


def _most_changed(a: Side, b: Side, most: int = 8) -> list[Markup]:
    other = {link.number: link for link in b.links}
    pairs = [
        (one, other[one.number]) for one in a.links
        if one.number in other and one.share is not None and other[one.number].share is not None
    ]  # fmt: skip
    pairs.sort(key=lambda pair: -abs((pair[1].share or 0.0) - (pair[0].share or 0.0)))
    return [
        tag("li", tag("a", one.name, href=f"#b-l{two.number}", title=link_words(two)),
            f" {percent(one.share)} → {percent(two.share)}")
        for one, two in pairs[:most]
        if one.share != two.share
    ]  # fmt: skip


def _drawn(study: dict[str, Any]) -> Markup:
    """Repeated draws of the flows."""
    lines = []
    for name, row in study["layers"].items() if "layers" in study else [("uplinks", study)]:
        relative = row["difference_relative"]
        lines.append(
            f"{name}: {row['a']['mode']} {row['a']['fim_mean']:.4g} ± {row['a']['standard_error']:.2g} %, "
            f"{row['b']['mode']} {row['b']['fim_mean']:.4g} %: {signed(row['difference_points'], 4)} points"
            + ("" if relative is None else f", {signed(100 * relative)} %")
        )
    if "exact_mean" in study:
        lines.append(f"exact by chance: {study['exact_mean']:.4g} %, SD {study['exact_sd']:.4g}")
    if "paper" in study:
        lines.append(f"paper: {study['paper']}")
    return join(
        tag("h4", f"Over {number_words(study['draws'])} draws of the queue pairs"),
        *(tag("p", line, class_="note") for line in lines),
    )


def _page(title: str, body: Markup) -> str:
    style = (_FOLDER / "page.css").read_text(encoding="utf-8") + scale.style()
    script = (_FOLDER / "page.js").read_text(encoding="utf-8")
    return Template((_FOLDER / "page.html").read_text(encoding="utf-8")).substitute(
        title=text(shown(title)), style=style, script=script, style_hash=_digest(style), script_hash=_digest(script),
        body=join(draw.HATCH, tag("main", body)),
    )  # fmt: skip


def _digest(content: str) -> str:
    """What the page's own policy lets run: this text and no other."""
    return "sha256-" + base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
