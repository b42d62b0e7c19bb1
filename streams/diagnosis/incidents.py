"""The life of an incident, as a pure fold over findings: open, update, resolve.

The Faust service keeps one incident for each (scope, class, component) in a table and applies this fold. The
rules see a scope's windows in the order of time, so what they find of one component only goes forward: a
finding about a window that an incident has already been told of was applied before. So a finding read twice
changes nothing, whatever partition, restart or newly made topic it comes by.
"""

import hashlib
from dataclasses import replace
from typing import Any, Final

from schemas.records import Finding, Incident
from schemas.time import append_to_tai

PRESENT: Final = "present"
ABSENT: Final = "absent"


def key_of(finding: Finding) -> str:
    """What an incident is kept by."""
    return "\0".join([finding.scope, finding.fault_class, finding.component])


def incident_id(finding: Finding, onset_ns: int) -> str:
    """The same for the same first finding: hash of tenant, scope, class, component and onset."""
    parts = [finding.tenant, finding.scope, finding.fault_class, finding.component, str(onset_ns)]
    return hashlib.blake2b("\0".join(parts).encode(), digest_size=8).hexdigest()


def fold(incident: Incident | None, finding: Finding, append_ms: int) -> Incident | None:
    """The incident after a finding; None if there is none to speak of, the same object if nothing changes.

    `append_ms` is the finding's append time, the moment of detection. A resolved incident stays resolved: a
    fault that comes back opens a new one, whose onset is not before the end of the old one.
    """
    if incident is not None and finding.window_end_ns <= incident.through_ns:
        return incident
    alive = incident is not None and incident.state != "resolve"
    if finding.state == ABSENT:
        if incident is None or not alive:
            return incident
        return replace(
            incident, state="resolve", resolved_ns=finding.window_end_ns, **_touched(incident, finding)
        )
    if incident is None or not alive:
        return _opened(finding, append_ms, incident)
    return replace(
        incident,
        state="update",
        confidence=finding.confidence,
        victims=finding.victims,
        evidence=finding.evidence,
        **_touched(incident, finding),
    )


def _touched(incident: Incident, finding: Finding) -> dict[str, Any]:
    return {
        "findings": incident.findings + 1,
        "through_ns": finding.window_end_ns,
        "origin_partition": finding.origin_partition,
        "origin_offset": finding.origin_offset,
    }


def _opened(finding: Finding, append_ms: int, before: Incident | None) -> Incident:
    onset_ns = finding.onset_ns
    if before is not None and before.resolved_ns is not None:
        # A rule that remembers may give the old onset again, which would be the old incident's identity too.
        onset_ns = max(onset_ns, before.resolved_ns)
    return Incident(
        tenant=finding.tenant,
        incident_id=incident_id(finding, onset_ns),
        scope=finding.scope,
        fault_class=finding.fault_class,
        component_kind=finding.component_kind,
        component=finding.component,
        state="open",
        confidence=finding.confidence,
        onset_ns=onset_ns,
        detected_ns=append_to_tai(append_ms),
        resolved_ns=None,
        victims=finding.victims,
        evidence=finding.evidence,
        findings=1,
        through_ns=finding.window_end_ns,
        origin_partition=finding.origin_partition,
        origin_offset=finding.origin_offset,
    )


class Shelf:
    """Which incidents of a partition need not be kept any longer. Time is the findings' append time.

    A resolved one is kept for `keep_ms`, so that findings read again change nothing. Beyond `most` incidents
    the ones resolved longest ago go first, then those that were told of longest ago: of a scope that has
    ended nobody says that its faults are over.
    """

    def __init__(self, keep_ms: int, most: int) -> None:
        assert keep_ms >= 0
        assert most > 0
        self._keep_ms, self._most = keep_ms, most
        self._open: dict[bytes, int] = {}  # key -> append time of its last finding; the longest ago first
        self._resolved: dict[bytes, int] = {}

    def __len__(self) -> int:
        return len(self._open) + len(self._resolved)

    def touch(self, key: bytes, resolved: bool, append_ms: int) -> list[bytes]:
        """Note that a finding changed an incident; gives the keys of those to let go of now."""
        self._open.pop(key, None)
        self._resolved.pop(key, None)
        (self._resolved if resolved else self._open)[key] = append_ms
        gone: list[bytes] = []
        while self._resolved:
            oldest = next(iter(self._resolved))
            if len(self) <= self._most and self._resolved[oldest] >= append_ms - self._keep_ms:
                break
            del self._resolved[oldest]
            gone.append(oldest)
        while len(self) > self._most:
            oldest = next(iter(self._open))
            del self._open[oldest]
            gone.append(oldest)
        return gone
