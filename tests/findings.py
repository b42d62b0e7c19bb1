"""Findings made by hand, for tests of what reads them."""

import json
from typing import Any

from schemas.codec import encode_record
from schemas.records import Finding

WINDOW_NS = 100_000_000
START_NS = 1_767_225_600_000_000_000


def finding(window: int, **fields: Any) -> Finding:
    """What a rule holds of rank 3 in the window of this number; present unless told otherwise."""
    start_ns = START_NS + window * WINDOW_NS
    values: dict[str, Any] = {
        "tenant": "default",
        "scope": "job",
        "finding_id": f"f{window}",
        "fault_class": "straggler",
        "component_kind": "rank",
        "component": "rank3",
        "state": "present",
        "confidence": 0.75,
        "onset_ns": START_NS,
        "window_start_ns": start_ns,
        "window_end_ns": start_ns + WINDOW_NS,
        "victims": ["rank1"],
        "evidence": json.dumps({"window": window}),
        "origin_partition": 0,
        "origin_offset": window,
    }
    assert fields.keys() <= values.keys()
    return Finding(**{**values, **fields})


def record(window: int, **fields: Any) -> bytes:
    """The same as a framed record."""
    return encode_record(finding(window, **fields))
