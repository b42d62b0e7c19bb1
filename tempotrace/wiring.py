"""Builds the stages that write to Kafka, by name. The only place that knows which room each comes from.

Rooms are imported when a stage is built: starting one does not wait for what another needs.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from schemas.errors import Usage
from schemas.processor import Processor

MS: Final = 1_000_000


def merge(tenant: str, window_ns: int | None = None) -> Processor:
    """`events` in causal order, window by window: to `merged`, `late`, `deadletter`. Raises Usage."""
    from streams.causality.merge import Merge
    from streams.causality.settings import MergeSettings

    return Merge(MergeSettings(tenant=tenant) if window_ns is None else MergeSettings(tenant, window_ns))


def paths(tenant: str, switches: Path | None = None) -> Processor:
    """Flows and links of `merged`: to `paths`. `switches`: a file of what they count in. Raises Usage."""
    from streams.paths.stage import Paths, PathsSettings
    from tempotrace import switchfile

    known = () if switches is None else switchfile.read(switches)
    return Paths(PathsSettings(tenant=tenant, switches=known))


def diagnosis(tenant: str) -> Processor:
    """Stragglers and clock faults of `merged`: to `findings`."""
    from streams.diagnosis.stage import Diagnosis, DiagnosisSettings

    return Diagnosis(DiagnosisSettings(tenant=tenant))


STAGES: Final[Mapping[str, Callable[[str], Processor]]] = {
    "merge": merge,
    "paths": paths,
    "diagnosis": diagnosis,
}


def build(stage: str, tenant: str) -> Processor:
    """A stage with its default settings. Raises Usage for an unknown name."""
    make = STAGES.get(stage)
    if make is None:
        raise Usage(f"no stage {stage!r}; there are {', '.join(STAGES)}")
    return make(tenant)
