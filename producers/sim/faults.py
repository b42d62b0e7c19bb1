"""What a simulated job suffers from: faults, the scenarios made of them, and how they are told as truth.

A fault is written `class:component[:size][@onset]`, such as `straggler:rank12:30%@2s`,
`clock_offset:host3:250us`, `clock_step:host3:-250us@5s` or `slow_link:host2:4x@1s`.

    straggler     every compute kernel of one rank takes `size` longer: it arrives last, the others wait
    clock_offset  one host's clock is wrong by `size` beyond its stated bound, from the start on
    clock_step    the same from `onset` on; neither the daemon nor its samples show it
    slow_link     what crosses one host's link takes `size` times as long
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from schemas.errors import Usage
from schemas.time import NS, parse_duration_ns

CLASSES = ("straggler", "clock_offset", "clock_step", "slow_link")
DAY_NS = 86_400 * NS  # no job is longer, and no clock of one is further off
SIZE_MAX = 1_000  # times as long
CLOCK_CLASSES = ("clock_offset", "clock_step")
_SPEC = re.compile(r"(?P<name>\w+):(?P<component>\w+)(?::(?P<size>[^@]+))?(?:@(?P<onset>.+))?")
_DEFAULT_SIZE = {"straggler": 0.3, "clock_offset": 250_000.0, "clock_step": 250_000.0, "slow_link": 4.0}


@dataclass(frozen=True)
class Fault:
    """One fault. `place` is the number of the rank (straggler) or host (all others).

    `size`: share of extra compute time (straggler), ns (clock faults) or factor (slow_link); `onset_ns` is
    counted from the start of the job.
    """

    name: str
    place: int
    size: float
    onset_ns: int

    @property
    def component(self) -> str:
        """The part to blame, named as the pipeline names it."""
        if self.name == "straggler":
            return f"rank{self.place}"
        return f"host{self.place}/ptp0" if self.name in CLOCK_CLASSES else f"host{self.place}"


def parse_fault(text: str, ranks: int, hosts: int) -> Fault:
    """A fault from its written form. Raises Usage if it is none, or names a part that the job lacks."""
    match = _SPEC.fullmatch(text.strip())
    if match is None or match["name"] not in CLASSES:
        raise Usage(
            f"{text!r} is no fault: class:component[:size][@onset], class one of {', '.join(CLASSES)}"
        )
    name = match["name"]
    part, count = ("rank", ranks) if name == "straggler" else ("host", hosts)
    number = re.fullmatch(rf"{part}(\d+)", match["component"])
    if number is None or int(number[1]) >= count:
        raise Usage(f"fault {text!r}: {name} is about one of {part}0 to {part}{count - 1}")
    if name == "clock_offset" and match["onset"] is not None:
        raise Usage(f"fault {text!r}: an offset holds from the start; write clock_step for a later onset")
    size = _DEFAULT_SIZE[name] if match["size"] is None else _size(name, match["size"], text)
    onset = 0 if match["onset"] is None else _onset_ns(match["onset"], text)
    return Fault(name, int(number[1]), size, onset)


def _onset_ns(text: str, fault: str) -> int:
    return parse_duration_ns(text, f"fault {fault!r}: the onset", 0, DAY_NS)


def _size(name: str, text: str, fault: str) -> float:
    if name in CLOCK_CLASSES:
        return float(parse_duration_ns(text, f"fault {fault!r}: the size", -DAY_NS, DAY_NS))
    unit, scale = ("%", 0.01) if name == "straggler" else ("x", 1.0)
    number = re.fullmatch(rf"(\d+(?:\.\d+)?){unit}", text.strip())
    least = 0 if name == "straggler" else 1
    if number is None or not least < float(number[1]) * scale <= SIZE_MAX:
        example = "30%" if name == "straggler" else "4x"
        raise Usage(f"fault {fault!r}: size {text!r} of a {name} should look like {example}")
    return float(number[1]) * scale


def _straggler(rank: int, length_ns: int) -> Fault:
    return Fault("straggler", rank, _DEFAULT_SIZE["straggler"], length_ns // 5)


def _clock(host: int, length_ns: int) -> Fault:
    return Fault("clock_step", host, _DEFAULT_SIZE["clock_step"], length_ns // 3)


def _pick(rng: np.random.Generator, ranks: int, hosts: int) -> tuple[int, int]:
    """A rank and a host that is not the rank's (unless there is only one)."""
    rank = int(rng.integers(ranks))
    home = rank // (ranks // hosts)
    return rank, (home + 1 + int(rng.integers(max(hosts - 1, 1)))) % hosts


def _both(rank: int, host: int, length_ns: int) -> list[Fault]:
    return [_straggler(rank, length_ns), _clock(host, length_ns)]


# Scenario -> faults of a job, from (rank picked, host picked, length of the job in ns).
SCENARIOS: dict[str, Callable[[int, int, int], list[Fault]]] = {
    "healthy": lambda rank, host, length: [],
    "straggler": lambda rank, host, length: [_straggler(rank, length)],
    "clock-fault": lambda rank, host, length: [_clock(host, length)],
    "straggler+clock-fault": _both,
    "fabric": lambda rank, host, length: [Fault("slow_link", host, _DEFAULT_SIZE["slow_link"], length // 4)],
    "throughput": lambda rank, host, length: [],
}


def scenario_faults(
    name: str, specs: Sequence[str], rng: np.random.Generator, ranks: int, hosts: int, seconds: float
) -> list[Fault]:
    """Faults of a scenario (its parts picked by `rng`) and those written out. Raises Usage."""
    make = SCENARIOS.get(name)
    if make is None:
        raise Usage(f"no scenario {name!r}; there are {', '.join(SCENARIOS)}")
    rank, host = _pick(rng, ranks, hosts)
    return make(rank, host, round(seconds * NS)) + [parse_fault(spec, ranks, hosts) for spec in specs]


def describe(faults: Sequence[Fault], start_ns: int) -> list[dict[str, Any]]:
    """Faults as the truth file holds them; onsets in ns TAI."""
    return [
        {
            "class": fault.name,
            "component_kind": "rank" if fault.name == "straggler" else _kind_of(fault),
            "component": fault.component,
            "onset_ns": start_ns + fault.onset_ns,
            "size": fault.size,
        }
        for fault in faults
    ]


def _kind_of(fault: Fault) -> str:
    return "clock" if fault.name in CLOCK_CLASSES else "host"
