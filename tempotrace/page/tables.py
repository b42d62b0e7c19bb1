"""Tables and cards of a page. Cells carry the plain value beside the words, for sorting and CSV."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from tempotrace.page import draw
from tempotrace.page.bands import Group
from tempotrace.page.markup import Markup, Part, join, tag
from tempotrace.page.parts import Flow, Link, Side
from tempotrace.page.verify import Again, of_flow, of_link
from tempotrace.page.words import (
    flow_words,
    number_words,
    p_words,
    percent,
    rate_words,
    seconds_words,
    size_words,
)

Cell = tuple[Part, Part]  # (what is shown, plain value)
Row = tuple[Sequence[Cell | Part], Mapping[str, Part]]  # cells, attributes
PRINTED: Final = 20  # cards of links, and of flows, that go on paper


def table(name: str, heads: Sequence[str], rows: Iterable[Row], note: str = "") -> Markup:
    """A table. `name` is that of the CSV file; a row's `data_l` is what a click on it opens."""
    body = []
    for cells, attributes in rows:
        made = []
        for cell in cells:
            words, value = cell if isinstance(cell, tuple) else (cell, None)
            numeric = isinstance(value, int | float)
            made.append(tag("td", words, data_v=value, class_="n" if numeric else None))
        body.append(tag("tr", *made, **attributes))
    if not body:
        return tag("p", "None.", class_="none")
    head = tag("tr", *(tag("th", each, scope="col") for each in heads))
    return join(
        tag("div", tag("table", tag("thead", head), tag("tbody", *body), data_csv=name), class_="scroll"),
        tag("p", note, class_="note") if note else None,
    )


def left_out(shown: int, total: int, what: str) -> str:
    """How many a list leaves out."""
    return f"{total - shown:,} more {what} not listed." if total > shown else ""


def links(side: Side, prefix: str) -> Markup:
    """The links with cards. Beside another side (with a prefix) without what the name and the card say too."""
    rows: list[Row] = []
    for link in side.links:
        sender, port, receiver, into = link.ends
        ends: list[Cell | Part] = [] if prefix else [sender, port, receiver, into]
        capacity: Cell = (
            rate_words(link.capacity_bps) + (" (assumed)" if link.assumed else ""),
            link.capacity_bps,
        )
        cells: list[Cell | Part] = [
            tag("a", link.name, href=f"#{prefix}l{link.number}", class_="name"), *ends, link.layer,
            (join(_swatch(link), "dead" if link.dead else percent(link.share)), link.share),
            (number_words(link.flows), link.flows), (size_words(link.bytes), link.bytes),
            *(() if prefix else [capacity]),
        ]  # fmt: skip
        about = {"data_l": f"{prefix}l{link.number}", "data_y": link.layer, "data_s": link.share}
        rows.append((cells, about))
    between = () if prefix else ("from", "interface", "to", "interface")
    heads = (
        "link",
        *between,
        "layer",
        "share of capacity",
        "flows",
        "bytes",
        *(() if prefix else ("capacity",)),
    )
    return table(f"{prefix}links", heads, rows, left_out(len(side.links), side.links_total, "links"))


def _swatch(link: Link) -> Markup:
    return tag(
        "svg", tag("rect", class_=draw.look(link), width=10, height=10), width=10, height=10, class_="dot"
    )


def cards(side: Side, prefix: str, again: Again) -> Markup:
    """A card for each listed link: its flows, both interfaces, the command that verifies it."""
    named = {flow.number: flow for flow in side.flows}
    return join(*(_card(link, named, prefix, again, k < PRINTED) for k, link in enumerate(side.links)))


def _card(link: Link, named: dict[int, Flow], prefix: str, again: Again, printed: bool) -> Markup:
    sender, port, receiver, into = link.ends
    facts: list[tuple[str, Part]] = [
        ("from", join(tag("bdi", sender), " interface ", tag("b", port or "not named"))),
        ("to", join(tag("bdi", receiver), " interface ", tag("b", into or "not named"))),
        ("layer", link.layer),
        ("share of capacity", join(_swatch(link), "dead" if link.dead else percent(link.share))),
        ("load", f"{number_words(link.flows)} flows, {size_words(link.bytes)}"),
        (
            "capacity",
            rate_words(link.capacity_bps) + (" (assumed: not known of this link)" if link.assumed else ""),
        ),
    ]
    if link.idle is not None:
        facts.append(
            ("idle", f"chance would have put {link.idle[0]:.3g} flows on it, {p_words(link.idle[1])} (Holm)")
        )
    if link.counted is not None:
        counted = link.counted
        facts.append(
            ("port counters", f"{size_words(counted.bytes)}, mean use {percent(counted.utilisation)}, "
             f"coverage {percent(counted.coverage)}")
        )  # fmt: skip
    listed = [
        tag("li", tag("a", flow_words(named[k]), href=f"#{prefix}f{k}"), f" {size_words(named[k].bytes)}, "
            f"loses {percent(named[k].loss)}")
        for k in link.carried
        if k in named
    ]  # fmt: skip
    rest = round(link.flows) - len(listed)
    more = f"{rest:,} more on it" if listed else f"{rest:,} flows, none of them listed"
    return tag(
        "section", _close(), tag("h3", link.name), _facts(facts), tag("h4", "Verify"), _commands(of_link(link, again)),
        tag("h4", "Flows"), tag("ul", *listed) if listed else None,
        tag("p", more, class_="note") if rest > 0 else None,
        class_="card printed" if printed else "card", id=f"{prefix}l{link.number}",
    )  # fmt: skip


def _close() -> Markup:
    return tag("a", "×", href="#", class_="close", aria_label="close")


def _facts(facts: Iterable[tuple[str, Part]]) -> Markup:
    return tag("dl", *(join(tag("dt", name), tag("dd", value)) for name, value in facts))


def _commands(found: Iterable[tuple[str, str]]) -> Markup:
    return join(
        *(join(tag("p", what, class_="what"), tag("pre", command, class_="copy")) for what, command in found)
    )


def flows(side: Side, prefix: str) -> Markup:
    """The flows with cards."""
    rows: list[Row] = []
    for flow in side.flows:
        cells: list[Cell | Part] = [
            tag("a", flow_words(flow), href=f"#{prefix}f{flow.number}", class_="name"), flow.job,
            (percent(flow.loss), flow.loss), (rate_words(flow.rate_bps), flow.rate_bps),
            (size_words(flow.bytes), flow.bytes), _known(flow),
        ]  # fmt: skip
        rows.append((cells, {"data_l": f"{prefix}f{flow.number}"}))
    heads = ("flow", "job", "loses", "fair rate", "bytes", "path known by")
    note = left_out(len(side.flows), side.report["flows"], "flows, which lose less")
    return table(f"{prefix}flows", heads, rows, note)


def _known(flow: Flow) -> str:
    return flow.source if flow.agreement is None else f"{flow.source}, agreement {percent(flow.agreement)}"


def flow_cards(side: Side, prefix: str, again: Again) -> Markup:
    """A card for each listed flow: its path, hop by hop, each with how it is known."""
    listed = {link.number for link in side.links}
    out = []
    for place, flow in enumerate(side.flows):
        hops = [
            tag("li", tag("a", hop.name, href=f"#{prefix}l{hop.link}") if hop.link in listed else tag("bdi", hop.name),
                " ", tag("em", hop.how))
            for hop in flow.path
        ]  # fmt: skip
        facts: list[tuple[str, Part]] = [
            ("job", flow.job or "not known"), ("bytes", size_words(flow.bytes)),
            ("fair rate", rate_words(flow.rate_bps)), ("loses", percent(flow.loss)), ("path known by", _known(flow)),
        ]  # fmt: skip
        path = " ".join(f"{prefix}l{hop.link}" for hop in flow.path)
        out.append(
            tag(
                "section", _close(), tag("h3", flow_words(flow)), _facts(facts), tag("h4", "Path"), tag("ol", *hops),
                tag("h4", "Verify"), _commands(of_flow(flow, side, again)),
                class_="card printed" if place < PRINTED else "card", id=f"{prefix}f{flow.number}", data_path=path,
            )
        )  # fmt: skip
    return join(*out)


def groups(side: Side, prefix: str) -> Markup:
    """Groups as bars over the band of chance."""
    return join(
        tag("div", *(_group(group, prefix) for group in side.groups), class_="groups"),
        tag(
            "p",
            left_out(len(side.groups), side.groups_total, "groups, nearer to chance or below it"),
            class_="note",
        ),
    )


def _group(group: Group, prefix: str) -> Markup:
    chance = "split flows, no chance" if group.fim_null is None else f"by chance {group.fim_null:.3g} %"
    how = {"exact": "exact", "drawn": "redrawn", "normal": "normal limit", "none": ""}[group.method]
    said = f"FIM {group.fim:.3g} %, {chance}; "
    if group.method != "none":
        said += f"{group.outside:,} of {group.size:,} links outside the 1–99 % band ({how}), in {group.unit}"
    else:
        said += f"{group.size:,} links, in {group.unit}"
    top = max(member.load for member in group.members)
    said += f"; bars from 0 to {size_words(top) if group.unit == 'bytes' else number_words(top)}"
    if group.size > len(group.members):
        said += f"; {len(group.members)} shown"
    return tag(
        "figure", tag("figcaption", tag("b", f"{group.switch}, {group.layer}"), tag("br"), said), draw.band(group),
        id=f"{prefix}g{group.number}", class_="one",
    )  # fmt: skip


def layers(report: dict[str, Any], name: str) -> Markup:
    """Figures of the layers, with those that had no choice below."""
    rows: list[Row] = []
    for row in report["layers"]:
        for unit, found in (("flows", row), ("bytes", row["by_bytes"])):
            chance = found["fim_null"]
            cells: list[Cell | Part] = [
                row["layer"], unit, (f"{row['groups']:,}", row["groups"]), (f"{row['links']:,}", row["links"]),
                (f"{found['fim_routing']:.3g} %", found["fim_routing"]),
                ("–" if chance is None else f"{chance:.3g} %", chance),
                ("–" if found["z"] is None else f"{found['z']:+.2f}", found["z"]),
                ("–" if found["p"] is None else p_words(found["p"]), found["p"]), found.get("verdict", "–"),
                (f"{found['fim_layer']:.3g} %", found["fim_layer"]),
                (f"{found['max_over_mean']:.3g}", found["max_over_mean"]), (f"{found['jain']:.3g}", found["jain"]),
            ]  # fmt: skip
            rows.append((cells, {}))
    rows += [
            ([row["layer"], "flows", "no choice", (f"{row['links']:,}", row["links"]), "–", "–", "–", "–", "follows",
              (f"{row['fim_layer']:.3g} %", row["fim_layer"]), (f"{row['max_over_mean']:.3g}", row["max_over_mean"]),
              (f"{row['jain']:.3g}", row["jain"])], {})
        for row in report["forced"]
    ]  # fmt: skip
    heads = (
        "layer",
        "by",
        "groups",
        "links",
        "FIM",
        "by chance",
        "z",
        "p",
        "verdict",
        "FIM of layer",
        "max/mean",
        "Jain",
    )
    return table(name, heads, rows)


def jobs(report: dict[str, Any], name: str) -> Markup:
    """What each job loses."""
    rows: list[Row] = [
        ([row["tenant"], row["job"] or "(not named)", (f"{row['flows']:,}", row["flows"]),
          (size_words(row["bytes"]), row["bytes"]), (percent(row["mean_loss"]), row["mean_loss"]),
          (percent(row["max_loss"]), row["max_loss"]),
          (f"{row['links_shared_with_others']:,}", row["links_shared_with_others"])], {})
        for row in report["collisions"]["jobs"]
    ]  # fmt: skip
    heads = (
        "tenant",
        "job",
        "flows",
        "bytes",
        "mean loss",
        "worst loss",
        "colliding links shared with other jobs",
    )
    return table(name, heads, rows)


def polarisation(report: dict[str, Any], name: str) -> Markup:
    """The verdict and the worst tests."""
    found = report["polarisation"]
    said = (
        f"Verdict: {found['verdict']}. {found['polarised']:,} of {found['tested']:,} tests, {found['unknown']:,} with "
        f"too few flows (Holm, level {found['level']})."
    )
    rows: list[Row] = [
        ([row["sender"], row["switch"], row["layer"], (f"{row['keys']:,}", row["keys"]),
          (f"{row['used']} of {row['members']}", row["used"]), (f"{row['g']:.3g}", row["g"]),
          ("–" if row["p_holm"] is None else p_words(row["p_holm"]), row["p_holm"]), row["verdict"]], {})
        for row in found["worst"][:10]
    ]  # fmt: skip
    heads = ("from", "switch", "layer", "keys", "links used", "G", "p (Holm)", "verdict")
    return join(tag("p", said), table(name, heads, rows) if rows else None)


def completion(report: dict[str, Any]) -> Markup:
    """Seconds to the end, the range for PFC, and what is left out."""
    done = report["completion"]
    if done["seconds"] is None:
        said = f"Not computed: {done['why_none']}; at best {seconds_words(done['lower_bound_s'])}."
    else:
        low, high = done["pfc_range_s"]
        said = (
            f"{seconds_words(done['seconds'])} by max-min fair share, at best {seconds_words(done['lower_bound_s'])} "
            f"(busiest link); with pause frames {seconds_words(low)} to {seconds_words(high)}."
        )
    return join(
        tag("p", said),
        tag("p", "Left out of it:", class_="what"),
        tag("ul", *(tag("li", each) for each in done["left_out"])),
    )


def ports(side: Side) -> Markup:
    """Proposed source ports as text: what `--b reroute:FILE` reads."""
    found = side.report["assignment"]
    text = "\n".join(
        ["src,src_port,dst,dst_port,new_src_port", *(",".join(map(str, row)) for row in side.ports)]
    )
    said = (
        f"Worst link {seconds_words(found['worst_link_s'])}, bound {seconds_words(found['lower_bound_s'])}. Ports "
        f"{found['ports_for']}. Save as a file and try it: --b reroute:FILE."
    )
    missing = found["without_port"]
    more = side.report["flows"] - len(found["flows"])
    note = (f"For {missing:,} flows no port does it. " if missing else "") + (
        f"{more:,} more flows not listed." if more else ""
    )
    return join(
        tag("p", said), tag("pre", text, class_="copy tall", id="ports", tabindex=0),
        tag("p", note, class_="note") if note else None,
    )  # fmt: skip
