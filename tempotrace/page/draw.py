"""The fabric by rows, and maps of switches by links, as SVG.

A cable is a line of two halves: the half next to a node is what that node sends. So each direction has its own colour
and can be chosen on its own.
"""

import re
from collections import defaultdict
from typing import Final

from tempotrace.page import scale
from tempotrace.page.bands import Group
from tempotrace.page.markup import Markup, join, tag
from tempotrace.page.parts import Link, Map, Side
from tempotrace.page.words import link_words, percent

_ROW, _TOP = 150, 18
_WIDE: Final = (58, 760)  # least units a node, least units in all
_NARROW: Final = (34, 540)
_LABELS_FROM: Final = 20  # units between nodes, below which their names are left to the pointer
HATCH: Final = Markup(
    '<svg width="0" height="0" class="defs" aria-hidden="true"><defs><pattern id="hatch" width="5" height="5" '
    'patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><rect width="5" height="5" fill="#fff"/>'
    '<rect width="2" height="5" fill="#8a8a8a"/></pattern><pattern id="veil" width="5" height="5" '
    'patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><rect width="2" height="5" fill="#fff"/></pattern>'
    "</defs></svg>"
)


def natural(name: str) -> list[tuple[int, int, str]]:
    """A key by which leaf2 comes before leaf10."""
    return [(1, int(part), "") if part.isdecimal() else (0, 0, part) for part in re.split(r"(\d+)", name)]


def look(link: Link) -> str:
    """Class of a half-link's colour."""
    if link.dead:
        return "dead"
    return "unknown" if link.share is None else f"s{scale.step(link.share)}"


def fabric(side: Side, prefix: str) -> Markup:
    """The fabric of a side, drawn where it is small enough, else as maps. Sides with a prefix share a page's width."""
    if not side.nodes:
        none = f"No flow in {', '.join(side.empty)}." if side.empty else ""
        maps = tag("div", *(heat(each, prefix) for each in side.maps), class_="maps")
        return join(maps, tag("p", none, class_="note") if none else None)
    return _rows(side, prefix)


def _places(side: Side, room: tuple[int, int]) -> tuple[dict[str, tuple[float, float, float]], float, float]:
    """((x, y, room) of each node, width, height): higher tiers above, each node below the middle of its parents."""
    rows: dict[int, list[str]] = defaultdict(list)
    for name, height in side.nodes:
        rows[height].append(name)
    up: dict[str, list[str]] = defaultdict(list)
    tier = dict(side.nodes)
    for link in side.links:
        sender, _, receiver, _ = link.ends
        if tier.get(receiver, 0) > tier.get(sender, 0):
            up[sender].append(receiver)
    tiers = sorted(rows, reverse=True)
    width = max(room[1], max(len(names) for names in rows.values()) * room[0])
    places: dict[str, tuple[float, float, float]] = {}
    for depth, height in enumerate(tiers):
        names = rows[height]

        def middle(name: str) -> float:
            above = [places[one][0] for one in up[name] if one in places]
            return sum(above) / len(above) if above else 0.0

        # Where parents tell nothing apart (all leaves hang on all spines), names do.
        names.sort(key=lambda name: (round(middle(name), 3), natural(name)))
        step = width / len(names)
        for k, name in enumerate(names):
            places[name] = (step * (k + 0.5), _TOP + depth * _ROW, step)
    return places, width, _TOP + (len(tiers) - 1) * _ROW + 34


def _rows(side: Side, prefix: str) -> Markup:
    places, width, height = _places(side, _NARROW if prefix else _WIDE)
    beside: dict[tuple[str, str], int] = defaultdict(int)
    total: dict[tuple[str, str], int] = defaultdict(int)
    by_number = sorted(side.links, key=lambda link: link.number)
    for link in by_number:
        total[link.ends[0], link.ends[2]] += 1
    stroke = 6 if len(side.links) <= 100 else 4
    drawn = []
    for link in by_number:
        one, _, two, _ = link.ends
        nth = beside[one, two]
        beside[one, two] += 1
        (x1, y1, _), (x2, y2, _) = places[one], places[two]
        shift = (nth - (total[one, two] - 1) / 2) * (stroke + 3)
        x1, x2 = x1 + shift, x2 + shift
        middle = (x1 + 0.495 * (x2 - x1), y1 + 0.495 * (y2 - y1))
        line = {"x1": round(x1, 1), "y1": round(y1, 1), "x2": round(middle[0], 1), "y2": round(middle[1], 1)}
        marks = [tag("line", class_=look(link), stroke_width=stroke, **line)]
        if link.dead:
            marks.append(tag("line", class_="deadmark", stroke_width=stroke / 3, **line))
        elif link.unknown or link.assumed:
            marks.append(tag("line", class_="veil", stroke_width=stroke, **line))
        weight = (link.dead, link.share or 0.0)
        drawn.append((weight, _anchor(link, prefix, *marks)))
    drawn.sort(key=lambda pair: pair[0])  # what matters lies on top
    nodes = []
    for name, (x, y, room) in places.items():
        size = max(4.0, min(room - 6, max(54.0, 6.6 * len(name) + 8)))
        box = tag(
            "rect", tag("title", name), class_="node", x=round(x - size / 2, 1), y=y - 11, width=round(size, 1),
            height=22, rx=4,
        )  # fmt: skip
        label = _label(name, size)
        nodes.append(
            join(
                box,
                tag("text", label, class_="name", x=round(x, 1), y=y + 4) if room >= _LABELS_FROM else None,
            )
        )
    return tag(
        "svg", *(line for _, line in drawn), *nodes, class_="fabric", viewBox=f"0 0 {width:.0f} {height:.0f}",
        role="img", aria_label="fabric by rows, each half of a line coloured by what its nearer node sends",
    )  # fmt: skip


def _label(name: str, size: float) -> str:
    """As much of a name as fits: all, else its number, else its beginning."""
    room = max(2, int(size / 6.2))
    number = re.search(r"\d+([./-]\d+)*$", name)
    if len(name) <= room:
        return name
    return number.group() if number and len(number.group()) <= room else name[: room - 1] + "…"


def _anchor(link: Link, prefix: str, *marks: Markup) -> Markup:
    title = tag("title", link_words(link))
    about: dict[str, str | float | None] = {"data_y": link.layer, "data_s": link.share}
    if not link.listed:
        return tag("g", *marks, title, **about)
    return tag("a", *marks, title, href=f"#{prefix}l{link.number}", data_l=f"{prefix}l{link.number}", **about)


def heat(each: Map, prefix: str) -> Markup:
    """Switches (worst first) by their links of one layer."""
    labels = min(22, max(len(name) for name, _ in each.rows)) * 6.6 + 8
    columns = max(len(cells) for _, cells in each.rows)
    step, tall = (20, 14) if columns <= 16 else (10, 12)
    width, height = labels + columns * step + 50, len(each.rows) * tall + 4
    parts = []
    for k, (switch, cells) in enumerate(each.rows):
        y = k * tall
        short = switch if len(switch) <= 22 else switch[:21] + "…"
        worst = max((link.share or 0.0) for link in cells)
        parts.append(tag("text", short, class_="row", x=round(labels - 6, 1), y=y + tall - 3))
        parts.append(
            tag(
                "text",
                percent(worst),
                class_="end",
                x=round(labels + len(cells) * step + 5, 1),
                y=y + tall - 3,
            )
        )
        for n, link in enumerate(cells):
            box = {"x": round(labels + n * step, 1), "y": y, "width": step - 1, "height": tall - 1}
            marks = [tag("rect", class_=look(link), **box)]
            if link.assumed and not (link.dead or link.unknown):
                marks.append(tag("rect", fill="url(#veil)", **box))
            parts.append(_anchor(link, prefix, *marks))
    said = f"{each.layer}: {each.switches:,} switches × up to {each.width} links, worst first"
    if each.switches > len(each.rows):
        said += f"; {each.switches - len(each.rows):,} less loaded switches not shown"
    if each.width > columns:
        said += f"; of each its {columns} most loaded links"
    svg = tag(
        "svg",
        *parts,
        class_="heat",
        viewBox=f"0 0 {width:.0f} {height}",
        width=round(width),
        role="img",
        aria_label=said,
    )
    return tag("figure", tag("figcaption", said), tag("div", svg, class_="scroll"))


def legend(side: Side) -> Markup:
    """The scale of colour, in words and boxes."""
    meaning = (
        "mean use of the link over the interval, as a share of its capacity"
        if side.basis == "mean"
        else "what a link's flows would send if only their own ports limited them, as a share of its capacity"
    )
    boxes = [
        tag("li", _box(f"s{k}"), label, class_="full" if scale.STEPS[k][0] == 1 else None)
        for k, label in enumerate(scale.labels())
    ]
    boxes.append(tag("li", _box("dead"), "dead"))
    boxes.append(tag("li", _box("unknown"), "unknown"))
    if side.assumed:
        boxes.append(tag("li", _box("s4", veil=True), "capacity assumed"))
    return tag(
        "div", tag("p", f"Colour: {meaning}. The half of a line next to a node is what that node sends."),
        tag("ul", *boxes, class_="legend"), class_="scale",
    )  # fmt: skip


def _box(kind: str, veil: bool = False) -> Markup:
    over = tag("rect", width=22, height=12, fill="url(#veil)") if veil else None
    return tag("svg", tag("rect", class_=kind, width=22, height=12), over, width=22, height=12, class_="box")


def band(group: Group) -> Markup:
    """A group's links as bars over the band of the null."""
    members = group.members
    top = (
        max(
            [m.load for m in members] + [m.band[1] for m in members if m.band] + [m.expected for m in members]
        )
        or 1.0
    )
    step = max(5.0, min(26.0, 420 / max(1, len(members))))
    height, width = 90.0, step * len(members) + 8

    def y(value: float) -> float:
        return round(4 + height * (1 - value / top), 1)

    parts = []
    for k, member in enumerate(members):
        x = 4 + k * step
        if member.band:
            low, high = member.band
            parts.append(
                tag(
                    "rect",
                    class_="band",
                    x=round(x, 1),
                    width=round(step, 1),
                    y=y(high),
                    height=round(y(low) - y(high), 1),
                )
            )
        beyond = member.band is not None and not member.band[0] <= member.load <= member.band[1]
        bar = tag(
            "rect", class_="bar out" if beyond else "bar", x=round(x + step * 0.3, 1), width=round(step * 0.4, 1),
            y=y(member.load), height=round(max(0.8, y(0) - y(member.load)), 1),
        )  # fmt: skip
        words = f"{member.name}: {member.load:,.6g} {group.unit}, expected {member.expected:,.4g}"
        if member.band:
            words += f", chance 1–99 %: {member.band[0]:,.6g} to {member.band[1]:,.6g}"
        parts.append(tag("g", bar, tag("title", words)))
        parts.append(
            tag(
                "line",
                class_="expect",
                x1=round(x, 1),
                x2=round(x + step, 1),
                y1=y(member.expected),
                y2=y(member.expected),
            )
        )
    return tag("svg", *parts, viewBox=f"0 0 {width:.0f} 98", width=round(width), height=98, class_="group", role="img",
               aria_label="load of each link over the band that chance gives")  # fmt: skip


def over_time(rows: list[dict[str, object]]) -> Markup:
    """FIM of each layer by window, with what chance gives as a thinner line."""
    layers: dict[str, list[dict[str, object]]] = defaultdict(list)
    for row in rows:
        layers[str(row["layer"])].append(row)
    out = []
    for name, own in layers.items():
        values = [float(str(row["fim_routing"])) for row in own]
        chance = [None if row["fim_null"] is None else float(str(row["fim_null"])) for row in own]
        top = max([*values, *(v for v in chance if v is not None), 1.0])
        step = 460 / max(1, len(own) - 1)

        def line(
            series: list[float | None] | list[float], kind: str, top: float = top, step: float = step
        ) -> Markup:
            points = " ".join(
                f"{4 + k * step:.1f},{4 + 60 * (1 - v / top):.1f}"
                for k, v in enumerate(series)
                if v is not None
            )
            return tag("polyline", class_=kind, points=points)

        out.append(
            tag(
                "figure",
                tag(
                    "figcaption",
                    f"{name}: FIM by window, 0 to {top:.3g} %; thin: by chance. {len(own)} windows",
                ),
                tag(
                    "svg",
                    line(chance, "thin"),
                    line(values, "thick"),
                    viewBox="0 0 468 68",
                    width=468,
                    class_="time",
                ),
            )
        )
    return join(*out)
