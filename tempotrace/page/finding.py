"""The sentence at the head of a page: the worst finding, its size, its p, and who loses what.

In this order: dead links, polarised hashing, links that no flow takes against chance, layers more uneven than chance,
links asked for more than they have.
"""

from typing import Any

from tempotrace.page.parts import Link, Side
from tempotrace.page.scale import FULL
from tempotrace.page.view import DEAD_P
from tempotrace.page.words import (
    flow_words,
    number_words,
    p_words,
    percent,
    seconds_words,
    signed,
    times,
)


def finding(side: Side) -> tuple[str, str]:
    """(what is worst, with its size and p; who loses what)."""
    losers = _losers(side)
    if side.basis == "mean" and side.report["collisions"]["losing"]:
        losers = f"Should all send at once: {losers[:1].lower()}{losers[1:]}"
    return _worst(side), losers


def _worst(side: Side) -> str:
    report = side.report
    dead = [link for link in side.links if link.dead]
    if dead:
        link = min(dead, key=lambda one: 0.0 if one.idle is None else one.idle[1])
        more = f" (and {len(dead) - 1:,} more)" if len(dead) > 1 else ""
        if link.idle is None:
            return f"{link.name} has no capacity{more}."
        return (
            f"{link.name}{more} carries nothing, though chance would have put {link.idle[0]:.3g} flows on it "
            f"({p_words(link.idle[1])}): dead, drained, or never chosen."
        )
    hashes = _polarised(report["polarisation"])
    if hashes:
        return hashes
    idle = [link for link in side.links if link.idle is not None and link.idle[1] < DEAD_P]
    if idle:
        link = min(idle, key=lambda one: one.idle[1] if one.idle else 1.0)
        assert link.idle is not None
        return (
            f"No flow takes {link.name}, where chance would have put {link.idle[0]:.3g} ({p_words(link.idle[1])}, "
            f"{len(idle):,} such links)."
        )
    uneven = [
        (found["p"], f"{row['layer']} is more uneven than chance, by {unit}: FIM {found['fim_routing']:.3g} % against "
         f"{found['fim_null']:.3g} % ({p_words(found['p'])}).")
        for row in report["layers"]
        for unit, found in (("flows", row), ("bytes", row["by_bytes"]))
        if found.get("verdict") == "worse than random"
    ]  # fmt: skip
    if uneven:
        return min(uneven)[1]
    worst = report["collisions"]["worst"]
    if worst:
        row = worst[0]
        doing = "would ask" if side.basis == "mean" else "ask"
        asked = f"{row['elephants']:,} large flows {doing} {times(row['overload'])} the capacity of {row['link']}."
        return asked + _beside(report, row["layer"])
    full = max(
        (link for link in side.links if link.inside and link.share is not None), key=_share, default=None
    )
    if full is not None and _share(full) > FULL * 1.001:
        doing = "use" if side.basis == "mean" else "ask"
        asked = f"{number_words(full.flows)} flows {doing} {times(_share(full))} the capacity of {full.name}."
        return asked + _beside(report, full.layer)
    said = "; ".join(
        f"{row['layer']} {_verdict(row)}, FIM {row['fim_routing']:.3g} %, {p_words(row['p'])}"
        for row in report["layers"][:2]
    )
    said = said or "no flow had a choice"
    return f"Nothing stands out: no link between switches is asked for more than it has ({said})."


def _share(link: Link) -> float:
    return link.share or 0.0


def _beside(report: dict[str, Any], layer: str) -> str:
    """How a link's layer compares with chance; of a layer without choice, the first that had one."""
    rows = report["layers"]
    row = next((one for one in rows if one["layer"] == layer), rows[0] if rows else None)
    if row is None or row["fim_null"] is None:
        return ""
    return (
        f" {row['layer']} is {_verdict(row)}: FIM {row['fim_routing']:.3g} %, {row['fim_null']:.3g} % by chance "
        f"({p_words(row['p'])})."
    )


def _polarised(found: dict[str, Any]) -> str:
    """A pair of switches that shows it, else a pair of layers as a whole; "" for neither."""
    if found["verdict"] == "polarised":
        row = found["worst"][0]
        return (
            f"Hashing is polarised: of {row['keys']:,} keys from {row['sender']}, {row['switch']} uses "
            f"{row['used']} of {row['members']} next links, or favours some ({p_words(row['p_holm'])}; "
            f"{found['polarised']:,} of {found['tested']:,} tests)."
        )
    layers = [
        row
        for row in found["layers"]
        if row["p"] is not None and row["p"] < found["level"] / len(found["layers"])
    ]
    if not layers:
        return ""
    row = min(layers, key=lambda one: (one["p"], -one["z"]))
    return (
        f"Hashing is polarised: what a switch chose in {row['layer_from']} decides {row['layer_to']}, where only "
        f"{row['used_choices']:,} of {row['possible_choices']:,} choices are used (z "
        f"{signed(row['z'])}, {p_words(row['p'])})."
    )


def _verdict(row: dict[str, Any]) -> str:
    return {
        "like random": "as uneven as chance",
        "better than random": "more even than chance",
        "worse than random": "more uneven than chance",
    }.get(row.get("verdict", ""), "split over its links")


def _losers(side: Side) -> str:
    found = side.report["collisions"]
    if not found["losing"]:
        return "No large flow loses anything."
    named = [row for row in found["jobs"] if row["job"] and row["mean_loss"] > 0]
    who = (
        f"{found['losing']:,} of {found['elephants']:,} large flows are slowed: {percent(found['mean_loss'])} of their "
        f"rate on average, {percent(found['max_loss'])} at worst"
    )
    if named:
        row = named[0]
        return f"Job {row['job']} loses most, {percent(row['mean_loss'])} of its bandwidth. {who}."
    if side.flows and side.flows[0].loss > 0:
        return f"{who} ({flow_words(side.flows[0])})."
    return f"{who}."


def compared(difference: dict[str, Any], a: Side, b: Side) -> str:
    """The sentence at the head of a comparison."""
    one, two = a.report["mode"], b.report["mode"]
    parts = []
    rows = sorted(difference["layers"], key=lambda row: -abs(row["fim_routing_points"]))
    if rows:
        row = rows[0]
        before = next(each for each in a.report["layers"] if each["layer"] == row["layer"])["fim_routing"]
        after = before + row["fim_routing_points"]
        parts.append(
            f"takes FIM of {row['layer']} from {before:.3g} % to {after:.3g} % "
            f"({signed(row['fim_routing_points'])} points)"
        )
    first, second = a.report["completion"]["seconds"], b.report["completion"]["seconds"]
    if first is not None and second is not None:
        change = difference["completion_relative"]
        parts.append(
            f"completion from {seconds_words(first)} to {seconds_words(second)}"
            + (f" ({signed(100 * change)} %)" if change is not None else "")
        )
    losses = [side.report["collisions"]["mean_loss"] for side in (a, b)]
    last = f"the mean loss of large flows from {percent(losses[0])} to {percent(losses[1])}"
    said = ", ".join(parts)
    return (
        f"{two} instead of {one} {said}, and {last}."
        if rows
        else f"{two} instead of {one} takes {', '.join([*parts, last])}."
    )
