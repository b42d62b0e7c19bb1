"""Figures in words, and the one sentence at the head of a page: the worst finding, its size, its p, who loses what."""

from typing import Any, Final

from tempotrace.page.view import Flow, Link, Side

LEVEL: Final = 0.05
_UNITS: Final = ("B", "kB", "MB", "GB", "TB", "PB", "EB")


def percent(share: float | None) -> str:
    """A share as percent, whole from 10 on."""
    if share is None:
        return "unknown"
    value = 100 * share
    return f"{value:.0f} %" if abs(value) >= 9.95 or value == 0 else f"{value:.2g} %"


def signed(value: float, digits: int = 3) -> str:
    """With its sign, − for less."""
    return f"{value:+.{digits}g}".replace("-", "−") if value else "±0"


def times(share: float) -> str:
    """A share above one, as a multiple."""
    return f"{share:.2f}".rstrip("0").rstrip(".") + " ×"


def p_words(p: float | None) -> str:
    """`p = 0.03`, `p < 0.0001`, or that there is none."""
    if p is None:
        return "no p: split flows have no chance to compare with"
    return "p < 0.0001" if p < 0.0001 else f"p = {p:.2g}"


def size_words(count: float) -> str:
    """Bytes with a decimal prefix."""
    place = 0
    while count >= 999.5 and place < len(_UNITS) - 1:
        count, place = count / 1000, place + 1
    return f"{count:.3g} {_UNITS[place]}"


def rate_words(bps: float) -> str:
    """Bit/s with a prefix."""
    for limit, unit in ((1e12, "Tbit/s"), (1e9, "Gbit/s"), (1e6, "Mbit/s"), (1e3, "kbit/s")):
        if bps >= limit:
            return f"{bps / limit:.4g} {unit}"
    return f"{bps:.3g} bit/s"


def seconds_words(seconds: float) -> str:
    """Seconds or parts of them."""
    for limit, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")):
        if seconds >= limit:
            return f"{seconds / limit:.4g} {unit}"
    return f"{seconds * 1e9:.3g} ns"


def number_words(count: float) -> str:
    """Flows: whole, or parts where they are split."""
    return f"{count:,.0f}" if abs(count - round(count)) < 1e-6 else f"{count:,.1f}"


def flow_words(flow: Flow) -> str:
    """`10.0.0.1:49152 → 10.0.0.9:4791`."""
    src, sport, dst, dport, _ = flow.ends
    return f"{host(src)}:{sport} → {host(dst)}:{dport}"


def host(address: str) -> str:
    """An address as it stands before a port."""
    return f"[{address}]" if ":" in address else address


def link_words(link: Link) -> str:
    """What the pointer says on a link."""
    state = "dead" if link.dead else "load unknown" if link.share is None else f"{percent(link.share)} of capacity"
    return f"{link.name}: {state}, {number_words(link.flows)} flows, {size_words(link.bytes)}"


def finding(side: Side) -> tuple[str, str]:
    """(what is worst, with its size and p; who loses what)."""
    return _worst(side), _losers(side)


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
            f"({p_words(link.idle[1])})."
        )
    hashes = report["polarisation"]
    if hashes["verdict"] == "polarised":
        row = hashes["worst"][0]
        return (
            f"Hashing is polarised: of {row['keys']:,} keys that {row['sender']} sent to {row['switch']}, all went to "
            f"{row['used']} of its {row['members']} next links or favoured some ({p_words(row['p_holm'])}; "
            f"{hashes['polarised']:,} of {hashes['tested']:,} tests)."
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
    layers = {row["layer"]: row for row in report["layers"]}
    if worst:
        row = worst[0]
        layer = layers.get(row["layer"]) or next(iter(report["layers"]), None)
        chance = ""
        if layer is not None and layer["fim_null"] is not None:
            chance = (
                f" {layer['layer']} is {_verdict(layer)}: FIM {layer['fim_routing']:.3g} %, {layer['fim_null']:.3g} % by "
                f"chance ({p_words(layer['p'])})."
            )
        return f"{row['elephants']:,} large flows ask {times(row['overload'])} the capacity of {row['link']}.{chance}"
    said = [f"{row['layer']} {_verdict(row)}, FIM {row['fim_routing']:.3g} %, {p_words(row['p'])}" for row in report["layers"][:2]]
    return f"Nothing stands out: no link between switches is asked for more than it has ({'; '.join(said) or 'no flow had a choice'})."


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
            f"takes FIM of {row['layer']} from {before:.3g} % to {after:.3g} % ({signed(row['fim_routing_points'])} points)"
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
    return f"{two} instead of {one} {said}, and {last}." if rows else f"{two} instead of {one} takes {', '.join([*parts, last])}."
