"""Alerts: an incident opened or resolved, told once.

The fold is pure and small: which alert an incident's record means, if any. The lake keeps it as the table
`alerts`; `tempotrace sink alerts` writes it as one JSON line.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass

from schemas.records import Incident

REMEMBERED = 10_000  # incidents kept for telling a repeat; the oldest are forgotten first


@dataclass(frozen=True)
class Alert:
    """One line for an operator. Times are ns TAI."""

    tenant: str
    alert_id: str
    incident_id: str
    scope: str
    state: str
    fault_class: str
    component_kind: str
    component: str
    confidence: float
    onset_ns: int
    at_ns: int
    text: str

    def line(self, partition: int, offset: int) -> str:
        """As one JSON line, with the place of the incident's record in the log."""
        named = {("class" if key == "fault_class" else key): value for key, value in asdict(self).items()}
        return json.dumps({**named, "partition": partition, "offset": offset}, separators=(",", ":"))


class AlertBook:
    """Which incidents were told, in which state."""

    def __init__(self, told: Mapping[str, str] | None = None) -> None:
        self.told: dict[str, str] = dict(told or {})

    def take(self, incident: Incident) -> Alert | None:
        """The alert that this record of an incident means; None for an update or a repeat."""
        state = "resolve" if incident.state == "resolve" else "open"
        if self.told.get(incident.incident_id) in (state, "resolve"):
            return None
        at_ns = incident.resolved_ns if state == "resolve" else None
        return self._told(incident, state, incident.detected_ns if at_ns is None else at_ns)

    def _told(self, incident: Incident, state: str, at_ns: int) -> Alert:
        self.told.pop(incident.incident_id, None)
        self.told[incident.incident_id] = state
        while len(self.told) > REMEMBERED:
            del self.told[next(iter(self.told))]
        done = "resolved" if state == "resolve" else "found"
        sure = f", confidence {incident.confidence:.2f}" if state == "open" else ""
        return Alert(
            tenant=incident.tenant,
            alert_id=f"{incident.incident_id}-{state}",
            incident_id=incident.incident_id,
            scope=incident.scope,
            state=state,
            fault_class=incident.fault_class,
            component_kind=incident.component_kind,
            component=incident.component,
            confidence=incident.confidence,
            onset_ns=incident.onset_ns,
            at_ns=at_ns,
            text=f"{incident.fault_class} of {incident.component_kind} {incident.component} {done}{sure}",
        )
