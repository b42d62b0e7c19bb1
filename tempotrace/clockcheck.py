"""What log files say of each clock: the work behind `tempotrace clock check`.

One reading of each file, columns all the way. Times are TAI where the log gives the stamping clock a map to
it; else they stay the raw stamps of the clock that `stamp_clock` names, and `timescale` says arbitrary."""

import gc
import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from producers.host.grammar import Grammar, Row
from producers.host.logs import Lines, Options
from producers.host.survey import UNPLACED, SourceKey, host_of, place
from producers.host.textfile import TextFile
from schemas.columns import NULL_I64, Status
from schemas.errors import MalformedInput
from streams.clock import estimate

I64 = NDArray[np.int64]
STATES_MAX: Final = 1000  # changes of status that are listed for a clock


@dataclass
class Table:
    """Rows of one clock, as columns of equal length."""

    parts: dict[str, list[NDArray[Any]]] = field(default_factory=dict)
    forms: Counter[str] = field(default_factory=Counter)
    parents: dict[str, int] = field(default_factory=dict)

    def column(self, name: str) -> NDArray[Any]:
        """A column, whole."""
        parts = self.parts[name]
        return parts[0] if len(parts) == 1 else np.concatenate(parts)


@dataclass
class ClockSeries:
    """One clock over time, for printing and plotting. Times as the module says, offsets and bounds in ns."""

    entry: dict[str, Any]
    time_ns: I64
    offset_ns: I64
    bound_ns: I64


def check(paths: Sequence[Path], options: Options) -> tuple[dict[str, Any], list[ClockSeries]]:
    """The result of `clock check` on these files (fields: the contract), and its series for a plot.

    `warnings` has a line for each file, or part of one, that says nothing of a clock.
    """
    lines, warnings = Lines(), list[str]()
    clocks: dict[str, Table] = {}
    for path in paths:
        try:
            text = TextFile(path)
        except MalformedInput as error:
            warnings.append(str(error))
            continue
        with text:
            grammar = _read(text, options, clocks)
            lines.add(grammar)
            warnings += text.warnings
            if not sum(grammar.parsed.values()):
                warnings.append(f"{text.shown}: none of {grammar.total} lines is of a clock log's format")
    series = [_series(clock, table) for clock, table in sorted(clocks.items())]
    result = {
        "clocks": [each.entry for each in series],
        "lines": lines.fields(),
        "warnings": warnings,
    }
    return result, series


class _Collector:
    """The rows of one file in columns, chunk by chunk."""

    def __init__(self) -> None:
        self.keys: dict[tuple[str | None, str, str | None, str, int], int] = {}
        self.parts: list[dict[str, NDArray[Any]]] = []
        self.names: dict[tuple[str | None, str | None], int] = {}
        self.forms: dict[str, int] = {}
        self.parents: dict[tuple[str, bool] | None, int] = {}
        self._status: dict[tuple[int, int | None, str | None], int] = {}

    def add(self, rows: list[Row]) -> None:
        if not rows:
            return
        line, host, daemon, tag, stamp, reading = zip(*rows, strict=True)
        stamp_clock, ns, quantum = zip(*stamp, strict=True)
        kind, form, clock, parent, here, offset, delay, _, error, spread, servo, text, _ = zip(
            *reading, strict=True
        )
        parents = [None if p is None else (p, h) for p, h in zip(parent, here, strict=True)]
        status = self._status
        states = [
            status[key] if (key := (k, s, t)) in status else self._status_of(k, s, t)
            for k, s, t in zip(kind, servo, text, strict=True)
        ]
        self.parts.append(
            {
                "line": np.array(line, np.int64),
                "source": _codes(self.keys, zip(host, daemon, tag, stamp_clock, quantum, strict=True)),
                "ns": np.array(ns, np.int64),
                "clock": _codes(self.names, zip(host, clock, strict=True)),
                "form": _codes(self.forms, form),
                "parent": _codes(self.parents, parents),
                "kind": np.array(kind, np.int64),
                "status": np.array(states, np.uint8),
                "offset_ns": _wide(offset),
                "delay_ns": _wide(delay),
                "error_ns": _wide(error),
                "spread_ns": _wide(spread),
            }
        )

    def _status_of(self, kind: int, servo: int | None, text: str | None) -> int:
        found = estimate.status_of(kind, servo, text)
        code = estimate.NO_STATUS if found is None else int(found)
        if len(self._status) < 100_000:
            self._status[kind, servo, text] = code
        return code


def _codes(table: dict[Any, int], values: Any) -> I64:
    """Each value's place in a table that grows."""
    return np.array([table.setdefault(value, len(table)) for value in values], np.int64)


def _wide(values: Sequence[int | None]) -> I64:
    unknown = values.count(None)
    if unknown == len(values):
        return np.full(unknown, NULL_I64, np.int64)
    if unknown:
        values = [NULL_I64 if value is None else value for value in values]
    return np.array(values, np.int64)


def _read(text: TextFile, options: Options, clocks: dict[str, Table]) -> Grammar:
    """Read one file and add its rows to the clocks they are about."""
    grammar, rows, digest = Grammar(options.near_ns()), _Collector(), hashlib.blake2b(digest_size=8)
    # Rows hold no cycles, and looking for some among the millions made here would cost a third of the time.
    collecting = gc.isenabled()
    gc.disable()
    try:
        for lines in text.lines(digest):
            rows.add(list(grammar.feed(lines)))
        rows.add(list(grammar.finish()))
    finally:
        if collecting:
            gc.enable()
    if not rows.parts:
        return grammar
    columns = {name: np.concatenate([part[name] for part in rows.parts]) for name in rows.parts[0]}
    keys = [SourceKey(*key) for key in rows.keys]
    maps = {host: boots.maps() for host, boots in grammar.boots.items()}
    columns["placed_ns"], _ = place(keys, maps, columns["line"], columns["source"], columns["ns"])
    named = {host for host, _ in rows.names if host is not None}
    forms, parents = list(rows.forms), list(rows.parents)
    columns["read"] = np.array([estimate.read_of(form) for form in forms], np.uint8)[columns["form"]]
    stamps = [key.clock for key in keys]
    by_clock = np.argsort(columns["clock"], kind="stable")
    ends = np.cumsum(np.bincount(columns["clock"], minlength=len(rows.names)))
    for (host, clock), mine in zip(rows.names, np.split(by_clock, ends[:-1]), strict=True):
        if clock is None:
            continue
        owner = host_of(host, named, options.host, digest.digest())
        table = clocks.setdefault(f"{owner}/{clock}", Table())
        for name, column in columns.items():
            if name not in ("line", "source", "clock", "form", "parent"):
                table.parts.setdefault(name, []).append(column[mine])
        table.parts.setdefault("stamp", []).append(np.array(stamps)[columns["source"][mine]])
        for place_, count in enumerate(np.bincount(columns["form"][mine], minlength=len(forms)).tolist()):
            if count:
                table.forms[forms[place_]] += count
        for place_ in np.unique(columns["parent"][mine]).tolist():
            parent = parents[place_]
            if parent is not None:
                table.parents[f"{owner}/{parent[0]}" if parent[1] else parent[0]] = 1
    return grammar


def _series(clock: str, table: Table) -> ClockSeries:
    """The entry of one clock, and its samples over time."""
    placed, raw, stamp = table.column("placed_ns"), table.column("ns"), table.column("stamp")
    known = placed != UNPLACED
    if known.any():
        time, order, timescale, stamped_by = placed, np.flatnonzero(known), "tai", None
        order = order[np.argsort(placed[order], kind="stable")]
        # Rows without a time keep the file's order only: they cannot be put between the others.
        rest = np.flatnonzero(~known)
        order = np.concatenate([rest, order])
    else:
        names, counts = np.unique(stamp, return_counts=True)
        stamped_by = str(names[np.argmax(counts)])
        time, timescale = raw, "arbitrary"
        order = np.arange(len(raw))
        known = stamp == stamped_by
    rows = estimate.Samples(
        **{
            name: table.column(name)[order]
            for name in ("kind", "offset_ns", "delay_ns", "error_ns", "spread_ns", "status", "read")
        }
    )
    at, known = time[order], known[order]
    found = estimate.estimate(rows)
    states = _states(rows.status, at, known)
    times = at[known]
    entry = {
        "clock": clock,
        "kind": estimate.kind_of(clock.split("/", 1)[1], set(table.forms)).name.lower(),
        "status": found.status.name.lower(),
        "samples": found.samples,
        "offset_ns": found.offset_ns,
        "bound_ns": found.bound_ns,
        "first_ns": int(times.min()) if len(times) else None,
        "last_ns": int(times.max()) if len(times) else None,
        "timescale": timescale,
        "stamp_clock": stamped_by,
        "parents": sorted(table.parents),
        "states": states[:STATES_MAX],
        "states_left_out": max(0, len(states) - STATES_MAX),
        "events": dict(sorted(table.forms.items())),
    }
    used = estimate.chosen(rows)
    used = used[known[used]]
    return ClockSeries(entry, at[used], rows.offset_ns[used], estimate.bounds(rows, used))


def _states(status: NDArray[np.uint8], at: I64, known: NDArray[np.bool_]) -> list[dict[str, Any]]:
    """Changes of status: what it became, and when."""
    told = np.flatnonzero(status != estimate.NO_STATUS)
    if not len(told):
        return []
    changes = told[np.concatenate([[True], status[told][1:] != status[told][:-1]])]
    return [
        {"status": Status(int(status[row])).name.lower(), "from_ns": int(at[row]) if known[row] else None}
        for row in changes
    ]
