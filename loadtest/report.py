"""The result of a run for people: a table, and one sentence for each thing that it shows."""

from collections.abc import Mapping
from typing import Any, Final

from rich.console import Console
from rich.table import Table

LIMITS: Final = {
    "copy": "events to another topic, in transactions, with nothing done to them: what a stage that writes as "
    "much pays at least",
    "read": "merged, read and dropped: what any reader of it pays at least",
    "merge-memory": "decoded, merged and encoded on one core, without Kafka",
}
BUSY: Final = 0.5  # load average, as a share of the cores, above which rates say little
MATTERS: Final = 1.2  # ratios nearer to 1 are not worth a sentence

Figures = Mapping[str, Any]


def sentences(result: Figures, findings: int) -> list[str]:
    """What the figures say, plainly; also where something simpler does better."""
    stages = {stage["name"]: stage for stage in result["stages"]}
    copy, merge, memory = stages["copy"], stages["merge"], stages["merge-memory"]
    others = [stage for name, stage in stages.items() if _is_another_size(name)]
    least = min(result["stages"], key=lambda stage: float(stage["events_per_record"]))
    found = [
        _busy(result["machine"]),
        f"Through Kafka the merge does {_millions(merge)} M events/s, {merge['ratio_to_copy']:.0%} of a bare "
        f"copy of the same records ({_millions(copy)} M/s). Where no causal order is needed, copying is the "
        "simpler way.",
        _memory(memory, copy),
        *(_batches(merge, other) for other in others),
        _growth(merge),
        _readers(stages),
        f"Every stage moves batches: the fewest events a record are {least['events_per_record']:,.0f} "
        f"({least['name']}).",
        f"Incidents are the one stage that takes records one at a time, by design: Faust opens "
        f"{result['incidents']['findings_per_s']:,.0f} a second, and of all events of a pass diagnosis leaves it "
        f"{findings:,} findings.",
        f"Peers: {result['peers_note']}.",
    ]
    return [sentence for sentence in found if sentence]


def show(result: Figures, console: Console) -> None:
    """Print the table and the sentences."""
    machine, plan = result["machine"], result["parameters"]
    console.print(
        f"{machine['cpu']}, {machine['cores']} cores, {machine['memory_bytes'] / 2**30:.0f} GiB, "
        f"{machine['kernel']}, Python {machine['python']}, load {machine['load_average'][0]} at the start",
        highlight=False,
    )
    console.print(
        f"{plan['events']:,} events of {plan['sources']} sources; median of {plan['passes']} interleaved "
        "passes (least to greatest)",
        highlight=False,
    )
    table = Table(box=None, pad_edge=False)
    table.add_column("stage")
    for heading in _COLUMNS:
        table.add_column(heading, justify="right")
    for stage in result["stages"]:
        table.add_row(stage["name"], *_cells(stage))
    console.print(table)
    for limit in result["limits"]:
        if limit["name"] in LIMITS:
            rate = f"{limit['bytes_per_s'] / 1e6:,.0f} MB/s"
            console.print(f"limit {limit['name']}: {rate} read; {limit['meaning']}", highlight=False)
    for sentence in result["sentences"]:
        console.print(f"- {sentence}", highlight=False)


_COLUMNS: Final = (
    "M events/s",
    "least",
    "most",
    "ns/event",
    "of copy",
    "CPU s/M",
    "broker",
    "B in",
    "B out",
    "events/record",
)


def _cells(stage: Figures) -> list[str]:
    ratio, broker = stage["ratio_to_copy"], stage["broker_cpu_s_per_million"]
    return [
        _millions(stage),
        f"{stage['events'] / stage['seconds_max'] / 1e6:.2f}",
        f"{stage['events'] / stage['seconds_min'] / 1e6:.2f}",
        f"{stage['ns_per_event']:.0f}",
        "" if ratio is None else f"{ratio:.0%}",
        f"{stage['cpu_s_per_million']:.3f}",
        "" if broker is None else f"{broker:.3f}",
        f"{stage['bytes_in_per_event']:.1f}",
        f"{stage['bytes_out_per_event']:.1f}",
        f"{stage['events_per_record']:,.0f}",
    ]


def _millions(stage: Figures) -> str:
    return f"{stage['events_per_s'] / 1e6:.2f}"


def _busy(machine: Figures) -> str:
    load, cores = machine["load_average"][0], machine["cores"]
    if load <= BUSY * cores:
        return ""
    return (
        f"The machine was busy when this began (load {load} on {cores} cores): trust the ratios, not the "
        "rates, and CPU time rather than either."
    )


def _memory(memory: Figures, copy: Figures) -> str:
    computing = memory["events_per_s"] < copy["events_per_s"]
    return (
        f"On one core without Kafka it does {_millions(memory)} M events/s, {memory['ns_per_event']:.0f} ns "
        f"each: {'computing, not the broker,' if computing else 'the broker, not computing,'} limits it."
    )


def _is_another_size(name: str) -> bool:
    return name.startswith("merge-") and name.removeprefix("merge-").isdecimal()


def _batches(merge: Figures, other: Figures) -> str:
    cost = other["cpu_s_per_million"] / merge["cpu_s_per_million"]
    sizes = f"Batches of {other['batch_events']} events instead of {merge['batch_events']} make"
    if max(cost, 1 / cost) < MATTERS:
        return f"{sizes} little difference."
    return f"{sizes} an event cost {cost:.1f} times as much CPU."


def _growth(merge: Figures) -> str:
    read, written = merge["bytes_in_per_event"], merge["bytes_out_per_event"]
    if written < MATTERS * read:
        return ""
    return (
        f"The merge reads {read:.0f} bytes an event and writes {written:.0f}: its readers pay for that too."
    )


def _readers(stages: Mapping[str, Figures]) -> str:
    told = [f"{name} {_millions(stages[name])}" for name in ("paths", "diagnosis", "lake", "archive")]
    return (
        f"What reads on, in M events/s: {', '.join(told)}; to read merged and drop it goes at "
        f"{_millions(stages['read'])}. With hops, collectives and clocks (fabric): paths "
        f"{_millions(stages['paths-fabric'])}, diagnosis {_millions(stages['diagnosis-fabric'])}."
    )
