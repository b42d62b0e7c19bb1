"""What the rows of a window say of clocks, for the naive states, and what those say of the rows' clocks."""

from schemas.time import TAI
from tests.naive.clocks import Chain
from tests.naive.log import Row
from tests.naive.states import NaiveStates
from tests.naive.states import Row as Sample
from tests.naive.window import Event


def judge(states: NaiveStates, own: list[Event], ahead: list[Event], start: int, end: int) -> None:
    """Take up what the window's rows say of clocks, and judge the clocks of all rows by it."""
    told: dict[tuple[str, int], int] = {}
    latest: dict[tuple[str, int], int] = {}
    samples: list[tuple[int, int, Sample]] = []
    for place, event in enumerate(own):
        if event.loose:
            continue
        for clock in event.chain.clocks if event.chain is not None else ():
            if clock.epoch:
                node = (clock.clock_id, clock.epoch)
                told[node] = min(event.time_ns, told.get(node, event.time_ns))
        if event.told is not None and event.time_ns >= start:
            at = latest[event.id[:2]] = max(event.time_ns, latest.get(event.id[:2], event.time_ns))
            samples.append((at, place, event.told))
    states.feed([row for _, _, row in sorted(samples)], told)
    for event in [*own, *ahead]:
        event.held = None
        if event.chain is not None:
            event.held = states.judge(event.chain, event.time_ns, end)


def sample_of(row: Row, chain: Chain, time_ns: int) -> Sample:
    """A row of the clock family: a step that a daemon tells, or an exchange."""
    more = dict(row.more)
    name = row.entity or ""
    stated = next((clock.epoch for clock in chain.clocks if clock.clock_id == name), 0)
    quantum = chain.clocks[0].quantum_ns
    parent = more["parent"]
    if "/" not in parent and parent != TAI and not parent[0].isdigit():
        parent = f"{name.rsplit('/', 1)[0]}/{parent}"  # a name that only this host gives
    if "servo" in more:
        return Sample(time_ns, quantum, name, stated, parent)
    half = (more["delay_ns"] + 1) // 2
    root = max(0, more["error_ns"] - half)
    return Sample(time_ns, quantum, name, stated, parent, more["offset_ns"], half, root)
