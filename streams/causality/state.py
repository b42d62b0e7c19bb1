"""The carry state of scopes to and from a snapshot. Rows of open windows are not in it: refs name them."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from streams.causality.scope import Scope
from streams.causality.sources import Sources
from streams.causality.tables import Tables
from streams.clock.book import ClockBook
from streams.clock.states import States

PLAIN = (
    "released_to", "closed", "joined", "opened", "expected_ranks", "expected_hosts", "expected_sources", "first_ms",
    "last_ms", "late", "duplicates", "gaps", "incomplete", "first_offset", "last_offset",
)  # fmt: skip


def dump(scopes: Sequence[Scope], arrays: dict[str, Any]) -> list[dict[str, Any]]:
    """JSON part of the scopes' state; their arrays are added to `arrays` under the scope's place."""
    return [_dump(place, scope, arrays) for place, scope in enumerate(scopes)]


def _dump(place: int, scope: Scope, arrays: dict[str, Any]) -> dict[str, Any]:
    sources_meta, sources_arrays = scope.sources.dump()
    clocks_meta, clocks_arrays = scope.clocks.dump()
    states_meta, states_arrays = scope.states.dump()
    for part, found in (
        ("sources", sources_arrays),
        ("clocks", clocks_arrays),
        ("states", states_arrays),
        ("past", scope.past.dump()),
    ):
        for name, array in found.items():
            arrays[f"{place}/{part}/{name}"] = array
    arrays[f"{place}/unmatched/"] = scope.unmatched
    return {
        "name": scope.name,
        "plain": {name: getattr(scope, name) for name in PLAIN},
        "deadline_ms": scope.gate.deadline_ms,
        "policy": scope.held.policy,
        "policies": sorted(scope.held.policies.items()),
        "sources": sources_meta,
        "clocks": clocks_meta,
        "states": states_meta,
        "strings": scope.strings.texts,
    }


def load(
    scopes: Sequence[dict[str, Any]], arrays: dict[str, Any], new: Callable[[str], Scope]
) -> Iterator[Scope]:
    """The scopes that `dump` described; `new` makes an empty one of a name."""
    found: list[dict[str, dict[str, Any]]] = [
        {"sources": {}, "clocks": {}, "states": {}, "past": {}, "unmatched": {}} for _ in scopes
    ]
    for key, array in arrays.items():
        place, part, name = key.split("/")
        found[int(place)][part][name] = array
    for meta, mine in zip(scopes, found, strict=True):
        scope = new(meta["name"])
        for name in PLAIN:
            setattr(scope, name, meta["plain"][name])
        scope.gate.deadline_ms = meta["deadline_ms"]
        scope.held.policy = meta["policy"]
        scope.held.policies = dict(meta["policies"])
        scope.sources = Sources.load(meta["sources"], mine["sources"])
        scope.clocks = ClockBook.load(meta["clocks"], mine["clocks"])
        scope.states = States.load(meta["states"], mine["states"], scope.states.declared)
        for text in meta["strings"]:
            scope.strings.number(text)
        scope.tables = Tables(scope.sources, scope.clocks, scope.strings)
        scope.past.load(mine["past"])
        scope.unmatched = np.asarray(mine["unmatched"][""])
        yield scope
