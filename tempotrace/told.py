"""How findings are put to people: the words and tables that `analyze` and `demo` share."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from rich.markup import escape
from rich.table import Table

from schemas.time import format_ns

CLOCKS_SHOWN: Final = 20
OWN_START_NS: Final = 365 * 86_400 * 1_000_000_000  # clocks that are a year apart have nothing in common
PLURALS: Final = {"match": "matches"}
Traces = Mapping[str, str]  # file of a rank's trace, by the rank's label


def counted(count: int, what: str) -> str:
    """A number with its noun: `1 window`, `5,137 windows`."""
    return f"{count:,} {what if count == 1 else PLURALS.get(what, what + 's')}"


def component(name: str, traces: Traces) -> str:
    """A component's name; a rank or the clock of its profiler with the file that it is known by."""
    known = []
    for each in name.split("|"):
        _, of_profiler, label = each.rpartition("/kineto:")
        label = label if of_profiler else each.removeprefix("rank")
        rank = [f"rank {label}"] if of_profiler and label.isdecimal() else []
        found = ", ".join([*rank, *([traces[label]] if label in traces else [])])
        known.append(f"{each} ({found})" if found else each)
    return " or ".join(known)


def why(evidence: Mapping[str, Any], in_lake: Mapping[str, Any] | None = None) -> str:
    """What an incident rests on, as its last finding had it; a later count of a clock's edges by `in_lake`."""
    if "offset_low_ns" in evidence:
        one_of = "one of these is " if evidence["verdict"] == "ambiguous" else ""
        off = one_of + _off(evidence["offset_low_ns"], evidence["offset_high_ns"])
        if in_lake is not None:
            edges, peers = counted(in_lake["violated_edges"], "edge"), in_lake["other_clocks"]
            return f"{off}; {edges} with {counted(peers, 'other clock')} contradict its bound"
        # Without a total, as findings of before are, the peers are those listed, and the list has an end.
        least = "" if "peers_total" in evidence else "at least "
        peers = int(evidence.get("peers_total", len(evidence["peers"])))
        return (
            f"{off}; when last told, {counted(evidence['violated_edges'], 'edge')} in "
            f"{counted(evidence['matches'], 'match')} with {least}{counted(peers, 'other clock')} "
            "contradicted its bound"
        )
    if "collectives_skewed" in evidence:
        return (
            f"a suspect: its ends are off by {format_ns(evidence['end_skew_mean_ns'])} on average in "
            f"{evidence['collectives_skewed']} of {counted(evidence['collectives'], 'collective')}"
        )
    # The counts are weighted, the newest collective with 1: only their ratio means something to people.
    blamed, chance = (evidence[key] / evidence["collectives"] for key in ("blamed", "expected_by_chance"))
    return (
        f"late by its own work in {blamed:.0%} of its last {evidence['collectives']:.0f} or so collectives "
        f"(by chance {chance:.1%}); that cost the others {format_ns(evidence['cost_ns'])} each time, on average"
    )


def _off(low: int | None, high: int | None) -> str:
    """In which direction and how far a clock is off, from the interval of clock - truth."""
    if low is not None and low > 0:
        return f"ahead by at least {format_ns(low)}" if high is None else f"ahead by {_between(low, high)}"
    if high is not None and high < 0:
        return (
            f"behind by at least {format_ns(-high)}" if low is None else f"behind by {_between(-high, -low)}"
        )
    return f"off by {_between(low, high)}"


def _between(low: int | None, high: int | None) -> str:
    return " to ".join("?" if end is None else format_ns(end) for end in (low, high))


def waits(found: Iterable[Mapping[str, Any]]) -> Table:
    """Collectives: who arrived last, who waited longest for it, and how long each one's kernel lasted."""
    table = Table(
        "collective",
        "group",
        "members",
        "last to arrive",
        "its kernel",
        "waited longest",
        "its kernel",
        "of that waiting",
    )
    for each in found:
        table.add_row(
            each["operation"],
            escape(each["group"] or ""),
            str(each["members"]),
            each["last_to_arrive"],
            format_ns(each["last_ns"]),
            each["longest_wait"],
            format_ns(each["longest_ns"]),
            format_ns(each["longest_wait_ns"]),
        )
    return table


def clocks(found: Sequence[Mapping[str, Any]]) -> Table:
    """Clocks with their last states, those of logs as `clock check` has them; offset and bound against the parent."""
    more = len(found) - CLOCKS_SHOWN
    table = Table(
        "clock",
        "kind",
        "status",
        "ahead of its parent by",
        "bound",
        caption=f"and {counted(more, 'more clock')}; --json lists all" if more > 0 else None,
    )
    for each in found[:CLOCKS_SHOWN]:
        offset = "unknown" if each["offset_ns"] is None else format_ns(each["offset_ns"])
        if each["offset_ns"] is not None and abs(each["offset_ns"]) > OWN_START_NS:
            offset = "counts from its own start"
        table.add_row(
            escape(each["clock"]),
            each["kind"],
            each["status"],
            offset,
            bound(each["bound_ns"]),
        )
    return table


def all_clocks(found: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The clocks that the logs are about, then the others that stamped something."""
    logged = {entry["clock"] for entry in found["clock_logs"]}
    return [*found["clock_logs"], *(each for each in found["clocks"] if each["clock"] not in logged)]


def bound(ns: int | None) -> str:
    """A bound for people."""
    return "unknown" if ns is None else f"±{format_ns(ns)}"


def unmatched(inputs: Iterable[Mapping[str, Any]], incomplete: int | None = None) -> list[str]:
    """What is missing from collectives, a line each: members without a trace, kernels without a match."""
    lines = []
    for each in inputs:
        facts = each.get("facts", {})
        world = each.get("world_size")
        if world is not None and each["ranks"] < world:
            some = "" if incomplete is None else f"{counted(incomplete, 'collective')} incomplete: "
            lines.append(f"{some}the traces are of {each['ranks']:,} of {world:,} members of the job")
            incomplete = None
        lines += [
            f"{count:,} of {facts['collective kernels']:,} {what}"
            for what, count in sorted(facts.items())
            if what.startswith("collective kernels unmatched")
        ]
    if incomplete:
        lines.append(f"{counted(incomplete, 'collective')} incomplete: members are missing")
    return lines


def traces(inputs: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """File of each rank's trace by the rank's label, over all inputs."""
    return {label: name for each in inputs for label, name in each.get("traces", {}).items()}
