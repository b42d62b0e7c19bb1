"""What a rule claims, and when a claim is worth a record of its own."""

import hashlib
import json
from dataclasses import dataclass, field
from typing import Any

from schemas.records import Finding

STRAGGLER = "straggler"
CLOCK_FAULT = "clock_fault"

REFRESH_WINDOWS = 50  # a claim that stays as it was is told again after so many windows
CONFIDENCE_STEP = 0.05


@dataclass(frozen=True)
class Claim:
    """A fault that a rule holds to be present in this window."""

    fault_class: str
    component_kind: str
    component: str
    confidence: float
    onset_ns: int
    victims: tuple[str, ...] = ()
    evidence: dict[str, Any] = field(default_factory=dict)


@dataclass
class _Told:
    claim: Claim
    window: int  # windows since the scope began, when it was last told
    seen: int  # and when the claim last held


class Ledger:
    """Claims of one scope that were told: a finding is written when one begins, changes, is due, or ends."""

    def __init__(self, hold_windows: int) -> None:
        self._hold = hold_windows  # windows without the claim before it counts as ended
        self._told: dict[tuple[str, str], _Told] = {}
        self._window = 0

    def update(
        self, tenant: str, scope: str, window: tuple[int, int], claims: list[Claim], origin: tuple[int, int]
    ) -> list[Finding]:
        """Findings for this window's claims, in a fixed order."""
        self._window += 1
        out = []
        for claim in sorted(claims, key=lambda one: (one.fault_class, one.component)):
            key = (claim.fault_class, claim.component)
            told = self._told.get(key)
            if told is None:
                self._told[key] = _Told(claim, self._window, self._window)
                out.append(_finding(tenant, scope, window, claim, "present", origin))
                continue
            told.seen = self._window
            claim = Claim(
                claim.fault_class, claim.component_kind, claim.component, claim.confidence,
                min(claim.onset_ns, told.claim.onset_ns), claim.victims, claim.evidence,
            )  # fmt: skip
            changed = abs(claim.confidence - told.claim.confidence) >= CONFIDENCE_STEP
            if changed or self._window - told.window >= REFRESH_WINDOWS:
                told.claim, told.window = claim, self._window
                out.append(_finding(tenant, scope, window, claim, "present", origin))
        for key in sorted(self._told):
            told = self._told[key]
            if self._window - told.seen > self._hold:
                del self._told[key]
                out.append(_finding(tenant, scope, window, told.claim, "absent", origin))
        return out

    def dump(self) -> list[Any]:
        """For a snapshot."""
        rows = [[vars(told.claim), told.window, told.seen] for told in self._told.values()]
        return [self._window, rows]

    def load(self, meta: list[Any]) -> None:
        """From `dump`."""
        self._window = meta[0]
        for claim, window, seen in meta[1]:
            known = Claim(**{**claim, "victims": tuple(claim["victims"])})
            self._told[known.fault_class, known.component] = _Told(known, window, seen)


def _finding(
    tenant: str, scope: str, window: tuple[int, int], claim: Claim, state: str, origin: tuple[int, int]
) -> Finding:
    identity = "\0".join([tenant, scope, claim.fault_class, claim.component, state, str(window[0])])
    return Finding(
        tenant=tenant,
        scope=scope,
        finding_id=hashlib.blake2b(identity.encode(), digest_size=8).hexdigest(),
        fault_class=claim.fault_class,
        component_kind=claim.component_kind,
        component=claim.component,
        state=state,
        confidence=claim.confidence,
        onset_ns=claim.onset_ns,
        window_start_ns=window[0],
        window_end_ns=window[1],
        victims=list(claim.victims),
        evidence=json.dumps(claim.evidence, sort_keys=True),
        origin_partition=origin[0],
        origin_offset=origin[1],
    )
