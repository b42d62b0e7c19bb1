"""Figures, links and flows in words."""

from typing import Final

from tempotrace.page.parts import Flow, Link

_UNITS: Final = ("B", "kB", "MB", "GB", "TB", "PB", "EB")


def percent(share: float | None) -> str:
    """A share as percent, whole from 10 on."""
    if share is None:
        return "unknown"
    value = 100 * share
    return f"{value:.0f} %" if abs(value) >= 9.95 or value == 0 else f"{value:.2g} %"


def signed(value: float, digits: int = 3) -> str:
    """With its sign, − for less."""
    if not value:
        return "±0"
    return (f"{value:+,.0f}" if abs(value) >= 10**digits else f"{value:+.{digits}g}").replace("-", "−")


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
    state = (
        "dead"
        if link.dead
        else "load unknown"
        if link.share is None
        else f"{percent(link.share)} of capacity"
    )
    return f"{link.name}: {state}, {number_words(link.flows)} flows, {size_words(link.bytes)}"
