"""Alerts: an incident opened or resolved, told once.

The fold is pure and small: which alert an incident's record means, if any. The lake keeps it as the table
`alerts`; `tempotrace sink alerts` writes it as one JSON line.
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from schemas.errors import MalformedInput, UnknownSchema
from schemas.processor import Output, Record, Ref
from schemas.records import Incident
from sinks.reading import read_one

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


def alert_id(line: str) -> str:
    """The id in a line as written by `Alert.line`; empty for any other text."""
    try:
        value = json.loads(line)
    except ValueError:
        return ""
    return str(value.get("alert_id", "")) if isinstance(value, dict) else ""


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
            text=f"{incident.fault_class} of {_named(incident)} {done}{sure}",
        )


def _named(incident: Incident) -> str:
    """The component, with its kind where neither its name nor the fault's says it."""
    kind, name = incident.component_kind, incident.component
    told = name.startswith(kind) or incident.fault_class.startswith(kind)
    return name if told else f"{kind} {name}"


class AlertProcessor:
    """The stage `alerts` of one tenant: incidents in, JSON lines out."""

    name = "alerts"
    inputs: tuple[str, ...] = ("incidents",)
    outputs: tuple[str, ...] = ("alerts",)
    joins = False

    def __init__(self, tenant: str) -> None:
        self.tenant = tenant

    def start(self, partition: int, snapshot: bytes | None) -> "AlertTask":
        """A task for one partition. Raises MalformedInput for a broken snapshot."""
        return AlertTask(snapshot)


class AlertTask:
    """One partition of `incidents`; keeps which alerts were told."""

    def __init__(self, snapshot: bytes | None) -> None:
        self._next: dict[str, int] = {}
        self._book = AlertBook()
        self._unused: Counter[tuple[str, ...]] = Counter()
        if snapshot:
            try:
                state = json.loads(snapshot)
                self._next = {str(topic): int(offset) for topic, offset in state["next"].items()}
                self._book = AlertBook(state["told"])
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                raise MalformedInput(f"the snapshot of alerts cannot be read: {error}") from error

    @property
    def next_offset(self) -> Mapping[str, int]:
        return self._next

    def process(self, record: Record) -> list[Output]:
        """The alert of one record as a JSON line, if it means one; a broken record is counted."""
        self._next[record.topic] = record.log_offset + 1
        try:
            alert = self._book.take(read_one(Incident, record))
        except (MalformedInput, UnknownSchema) as error:
            self._unused["unknown_schema" if isinstance(error, UnknownSchema) else "malformed",] += 1
            return []
        if alert is None:
            return []
        line = alert.line(record.partition, record.offset)
        return [Output("alerts", alert.alert_id.encode(), line.encode())]

    def pending(self) -> bool:
        return False

    def snapshot(self) -> bytes:
        """Where the task stands, and the alerts told."""
        return json.dumps({"next": self._next, "told": self._book.told}, separators=(",", ":")).encode()

    def refs(self) -> Sequence[Ref]:
        return ()

    def reload(self, record: Record, first: int, last: int) -> None:
        raise AssertionError("a task of alerts holds no rows between records")

    def counters(self) -> Mapping[str, Mapping[tuple[str, ...], int]]:
        """Records that could not be read, by reason; what was sent is counted by the outlet."""
        return {"unreadable": self._unused}
