"""The life of an incident, as a pure fold over findings: open, update, resolve.

The Faust service keeps one incident for each (scope, class, component) in a table and applies this fold; it
skips what a row has already applied, so that a finding read twice changes nothing.
"""

import hashlib
from dataclasses import replace

from schemas.records import Finding, Incident
from schemas.time import append_to_tai


def key_of(finding: Finding) -> str:
    """What an incident is kept by."""
    return "\0".join([finding.scope, finding.fault_class, finding.component])


def incident_id(finding: Finding) -> str:
    """The same for the same first finding: hash of tenant, scope, class, component and onset."""
    parts = [finding.tenant, finding.scope, finding.fault_class, finding.component, str(finding.onset_ns)]
    return hashlib.blake2b("\0".join(parts).encode(), digest_size=8).hexdigest()


def fold(incident: Incident | None, finding: Finding, append_ms: int) -> Incident | None:
    """The incident after a finding; None if there is none to speak of, and the same object if nothing changes.

    `append_ms` is the finding's append time, the moment of detection. A resolved incident stays resolved: a
    fault that comes back opens a new one.
    """
    if incident is not None and (finding.origin_partition, finding.origin_offset) == (
        incident.origin_partition,
        incident.origin_offset,
    ):
        return incident
    if incident is not None and finding.origin_offset < incident.origin_offset:
        return incident
    alive = incident is not None and incident.state != "resolve"
    if finding.state == "absent":
        if incident is None or not alive:
            return incident
        return replace(
            incident,
            state="resolve",
            resolved_ns=finding.window_end_ns,
            findings=incident.findings + 1,
            origin_partition=finding.origin_partition,
            origin_offset=finding.origin_offset,
        )
    if incident is None or not alive:
        return Incident(
            tenant=finding.tenant,
            incident_id=incident_id(finding),
            scope=finding.scope,
            fault_class=finding.fault_class,
            component_kind=finding.component_kind,
            component=finding.component,
            state="open",
            confidence=finding.confidence,
            onset_ns=finding.onset_ns,
            detected_ns=append_to_tai(append_ms),
            resolved_ns=None,
            victims=finding.victims,
            evidence=finding.evidence,
            findings=1,
            origin_partition=finding.origin_partition,
            origin_offset=finding.origin_offset,
        )
    return replace(
        incident,
        state="update",
        confidence=finding.confidence,
        victims=finding.victims,
        evidence=finding.evidence,
        findings=incident.findings + 1,
        origin_partition=finding.origin_partition,
        origin_offset=finding.origin_offset,
    )
