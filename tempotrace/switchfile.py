"""What an operator knows of switches: `stream paths --switches FILE`, YAML or JSON.

    7: bmv2                        # a model: ticks of stamps and of latencies
    8: {unit_ns: 8, latency_unit_ns: 1, zero_ns: 1767225637000000000}

`zero_ns` is the TAI at which the switch's clock read zero. What is left out is estimated.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from schemas.errors import Usage, cause_of
from streams.paths.switches import SwitchUnits

MODELS: Final[Mapping[str, tuple[float, float]]] = {"ns": (1.0, 1.0), "bmv2": (1000.0, 1000.0)}
UNIT_MAX: Final = 1e7  # ns
NODE_MAX: Final = 2**32 - 2
_KEYS: Final = {"unit_ns", "latency_unit_ns", "zero_ns"}


def read(path: Path) -> tuple[SwitchUnits, ...]:
    """The switches of a file. Raises Usage."""
    try:
        found = yaml.safe_load(path.read_text())
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise Usage(f"{path} cannot be read: {cause_of(error)}") from error
    if not isinstance(found, dict):
        raise Usage(f"{path} is no mapping of switches, as in `7: bmv2`")
    return tuple(_units(f"{path}, switch {node}", node, said) for node, said in found.items())


def _units(where: str, node: Any, said: Any) -> SwitchUnits:
    if not str(node).isdecimal() or int(node) > NODE_MAX:
        raise Usage(f"{where}: a switch is a number, as its reports give it")
    if isinstance(said, str):
        if said not in MODELS:
            raise Usage(f"{where}: no model {said!r}; there are {', '.join(MODELS)}")
        return SwitchUnits(int(node), *MODELS[said])
    if not isinstance(said, dict) or not said or set(said) - _KEYS:
        raise Usage(f"{where}: a model, or some of {', '.join(sorted(_KEYS))}")
    for name in ("unit_ns", "latency_unit_ns"):
        value = said.get(name)
        if value is not None and not (_is_number(value) and 0 < value <= UNIT_MAX):
            raise Usage(f"{where}: {name} is a number of nanoseconds up to {UNIT_MAX:.0f}, not {value!r}")
    zero = said.get("zero_ns")
    if zero is not None and not (isinstance(zero, int) and not isinstance(zero, bool) and abs(zero) < 2**62):
        raise Usage(f"{where}: zero_ns is whole nanoseconds TAI, not {zero!r}")
    unit, latency = said.get("unit_ns"), said.get("latency_unit_ns")
    return SwitchUnits(
        int(node), None if unit is None else float(unit), None if latency is None else float(latency), zero
    )


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
