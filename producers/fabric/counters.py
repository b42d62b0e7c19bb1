"""What ports counted: SONiC's COUNTERS_DB, InfiniBand's sysfs, and the differences between two readings.

InfiniBand counts data in words of 4 bytes (IBTA's PortXmitData; RoCE ports of the same cards count so too). A
counter that went down has wrapped, if a wrap gives no more than the port can carry, or was reset: then nothing
is known of the interval. The 32-bit counters of old ports stop at their greatest value instead of wrapping.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Final

from schemas.codes import CounterState
from schemas.errors import MalformedInput

WORD_BYTES: Final = 4
CARRY_MARGIN: Final = 1.05  # readings are not taken at the instants that stamps say
_U32_MAX: Final = 2**32 - 1
_PORT_PATH: Final = re.compile(
    r"(?:^|/)(?P<device>[^/]+)/ports/(?P<port>\d+)/(?P<name>(?:counters|counters_ext|hw_counters)/\w+|rate|state|link_layer)$"
)
_RATE: Final = re.compile(r"([\d.]+)\s*Gb/sec")


@dataclass(frozen=True)
class Counters:
    """One port's counters as read. None: not counted. `unit` is the bytes that data counts in."""

    tx: int | None
    rx: int | None
    drops: int | None = None
    errors: int | None = None
    pauses: int | None = None
    capacity_bps: float | None = None
    up: bool | None = None
    unit: int = 1
    bits: int = 64


@dataclass(frozen=True)
class Change:
    """The difference of two readings; None where it cannot be told."""

    tx_bytes: int | None
    rx_bytes: int | None
    drops: int | None
    errors: int | None
    pauses: int | None
    state: CounterState


def difference(
    before: int | None, now: int | None, bits: int, most: float | None
) -> tuple[int | None, CounterState]:
    """(how many were counted, how it came about). `most`: more than this cannot have been; None if unknown."""
    if now is None:
        return None, CounterState.UNSUPPORTED
    if before is None:
        return None, CounterState.FIRST
    if bits == 32 and now == _U32_MAX:
        return None, CounterState.SATURATED
    if now >= before:
        return now - before, CounterState.OK
    wrapped = now - before + (1 << bits)
    # Without a capacity a wrap is believed where it is a small part of the range.
    if wrapped <= (most if most is not None else 1 << (bits - 4)):
        return wrapped, CounterState.WRAPPED
    return None, CounterState.RESET


def change(before: Counters | None, now: Counters, interval_ns: int) -> Change:
    """What a port counted between two readings `interval_ns` apart."""
    if before is None:
        return Change(None, None, None, None, None, CounterState.FIRST)
    most = None
    if now.capacity_bps is not None:
        most = now.capacity_bps / 8 * interval_ns * 1e-9 * CARRY_MARGIN / now.unit
    tx, tx_state = difference(before.tx, now.tx, now.bits, most)
    rx, rx_state = difference(before.rx, now.rx, now.bits, most)
    drops, errors, pauses = (
        difference(getattr(before, name), getattr(now, name), now.bits, None)[0]
        for name in ("drops", "errors", "pauses")
    )
    return Change(
        None if tx is None else tx * now.unit,
        None if rx is None else rx * now.unit,
        drops,
        errors,
        pauses,
        CounterState(max(tx_state, rx_state)),
    )


def of_sonic(
    found: Mapping[str, Any], where: str, speeds: Mapping[str, float] | None = None
) -> dict[str, Counters]:
    """Counters by port name of a COUNTERS_DB dump. Ports are those of COUNTERS_PORT_NAME_MAP.

    `speeds` are capacities by port, from `speeds_of` (the counters themselves don't tell). Raises MalformedInput.
    """
    names = _hash(found.get("COUNTERS_PORT_NAME_MAP"))
    if not names:
        raise MalformedInput("no COUNTERS_PORT_NAME_MAP, so no port has a name", where)
    out = {}
    for name, oid in names.items():
        entry = _hash(found.get(f"COUNTERS:{oid}"))
        if not entry:
            continue
        at = f"{where}, {name}"
        out[name] = Counters(
            _number(entry, "SAI_PORT_STAT_IF_OUT_OCTETS", at),
            _number(entry, "SAI_PORT_STAT_IF_IN_OCTETS", at),
            _sum(entry, ("SAI_PORT_STAT_IF_OUT_DISCARDS", "SAI_PORT_STAT_IF_IN_DISCARDS"), at),
            _sum(entry, ("SAI_PORT_STAT_IF_OUT_ERRORS", "SAI_PORT_STAT_IF_IN_ERRORS"), at),
            _sum(entry, tuple(f"SAI_PORT_STAT_PFC_{k}_RX_PKTS" for k in range(8)), at),
            (speeds or {}).get(name),
        )
    return out


def speeds_of(found: Mapping[str, Any]) -> dict[str, float]:
    """Capacities by port of an APPL_DB (`PORT_TABLE:`) or CONFIG_DB (`PORT|`) dump, whose speeds are in Mbit/s."""
    out = {}
    for key, entry in found.items():
        for prefix in ("PORT_TABLE:", "PORT|"):
            speed = str(_hash(entry).get("speed", "")) if key.startswith(prefix) else ""
            if speed.isdecimal():
                out[key.removeprefix(prefix)] = float(speed) * 1e6
    return out


def _hash(entry: Any) -> Mapping[str, Any]:
    """A Redis hash as dumps write it: plain, or under `value`."""
    if isinstance(entry, dict) and isinstance(entry.get("value"), dict):
        entry = entry["value"]
    return entry if isinstance(entry, dict) else {}


def _number(entry: Mapping[str, Any], name: str, where: str) -> int | None:
    text = entry.get(name)
    if text is None or str(text).strip().upper().startswith("N/A"):
        return None
    try:
        number = int(str(text))
    except ValueError:
        raise MalformedInput(f"{name} is a number", f"{where}: {str(text)[:40]!r}") from None
    if not 0 <= number < 2**64:
        raise MalformedInput(f"{name} is a counter of 64 bits", f"{where}: {number}")
    return number


def _sum(entry: Mapping[str, Any], names: tuple[str, ...], where: str) -> int | None:
    known = [n for n in (_number(entry, name, where) for name in names) if n is not None]
    return sum(known) if known else None


def of_sysfs(files: Mapping[str, str], where: str) -> dict[str, Counters]:
    """Counters by `device:port` of the files below `/sys/class/infiniband`: path -> content.

    A counter that the port does not have (absent, `N/A (no PMA)`) is None.
    """
    ports: dict[str, dict[str, str]] = {}
    for path, content in files.items():
        found = _PORT_PATH.search(path)
        if found is not None:
            name = found["name"].removeprefix("counters/")
            ports.setdefault(f"{found['device']}:{found['port']}", {})[name] = content.strip()
    out = {}
    for port, entry in sorted(ports.items()):
        at = f"{where}, {port}"
        rate = _RATE.match(entry.get("rate", ""))
        extended = "counters_ext/port_xmit_data_64" in entry
        tx = _number(entry, "counters_ext/port_xmit_data_64" if extended else "port_xmit_data", at)
        rx = _number(entry, "counters_ext/port_rcv_data_64" if extended else "port_rcv_data", at)
        # Today's kernels give 64 bits under the old names; an old one stops at 32.
        old = not extended and _U32_MAX in (tx, rx)
        out[port] = Counters(
            tx,
            rx,
            _number(entry, "port_xmit_discards", at),
            _sum(entry, ("port_rcv_errors", "symbol_error"), at),
            _number(entry, "port_xmit_wait", at),
            float(rate[1]) * 1e9 if rate is not None else None,
            "ACTIVE" in entry["state"] if "state" in entry else None,
            WORD_BYTES,
            32 if old else 64,
        )
    if not out:
        raise MalformedInput("no port of an InfiniBand device", where)
    return out


def sysfs_files(root: Path) -> dict[str, str]:
    """The files that `of_sysfs` reads, below `/sys/class/infiniband` or a copy of it. A file that can't be read
    (drivers answer some with an error) is left out. Raises MalformedInput if there is no port at all.
    """
    out: dict[str, str] = {}
    for path in _port_files(root):
        try:
            out[str(PurePosixPath(path.relative_to(root)))] = path.read_text()
        except (OSError, UnicodeDecodeError):
            continue
    if not out:
        raise MalformedInput("no InfiniBand device below this folder", str(root))
    return out


def _port_files(root: Path) -> Iterator[Path]:
    for port in sorted(root.glob("*/ports/*")):
        for pattern in ("rate", "state", "link_layer", "counters/*", "counters_ext/*"):
            yield from sorted(port.glob(pattern))
