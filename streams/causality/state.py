"""A scope's carry state to and from a snapshot. Rows of open windows are not in it: refs name them."""

from typing import Any

import numpy as np

from streams.causality.scope import Count, Scope
from streams.causality.settings import MergeSettings
from streams.causality.sources import Sources
from streams.clock.book import ClockBook

PLAIN = (
    "released_to", "closed", "joined", "opened", "expected_ranks", "expected_hosts", "expected_sources", "first_ms", "last_ms",
    "deadline_ms", "policy_version", "late", "duplicates", "gaps", "incomplete", "first_offset", "last_offset",
)  # fmt: skip


def dump(scope: Scope, arrays: dict[str, Any]) -> dict[str, Any]:
    """JSON part of a scope's state; its arrays are added to `arrays` under the scope's name."""
    sources_meta, sources_arrays = scope.sources.dump()
    clocks_meta, clocks_arrays = scope.clocks.dump()
    for part, found in (("sources", sources_arrays), ("clocks", clocks_arrays), ("past", scope.past.dump())):
        for name, array in found.items():
            arrays[f"{scope.name}\0{part}\0{name}"] = array
    arrays[f"{scope.name}\0unmatched\0"] = scope.unmatched
    return {
        "name": scope.name,
        "plain": {name: getattr(scope, name) for name in PLAIN},
        "sources": sources_meta,
        "clocks": clocks_meta,
        "strings": scope.strings.texts,
    }


def load(
    meta: dict[str, Any], arrays: dict[str, Any], partition: int, settings: MergeSettings, count: Count
) -> Scope:
    """The scope that `dump` described."""
    scope = Scope(meta["name"], partition, settings, count)
    for name in PLAIN:
        setattr(scope, name, meta["plain"][name])
    found: dict[str, dict[str, Any]] = {"sources": {}, "clocks": {}, "past": {}, "unmatched": {}}
    prefix = f"{scope.name}\0"
    for key, array in arrays.items():
        if key.startswith(prefix):
            part, name = key[len(prefix) :].split("\0")
            found[part][name] = array
    scope.sources = Sources.load(meta["sources"], found["sources"])
    scope.clocks = ClockBook.load(meta["clocks"], found["clocks"])
    for text in meta["strings"]:
        scope.strings.number(text)
    scope.past.load(found["past"])
    scope.unmatched = np.asarray(found["unmatched"][""])
    return scope
