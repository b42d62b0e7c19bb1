"""Rows of the clock family in plain words, as streams.clock.states takes them."""

from typing import Any

import numpy as np

from schemas.columns import NULL_I64, NULL_U8
from schemas.columns import ClockKindOfRow as Kind
from schemas.time import NS
from streams.clock.states import Rows

T0 = 1_796_099_200 * NS


def rows(*entries: dict[str, Any]) -> Rows:
    """Rows of the clock family from what differs from a phc2sys line of h/CLOCK_REALTIME, a second apart."""
    plain: dict[str, Any] = {
        "clock": "h/CLOCK_REALTIME", "parent": "h/ptp:0", "form": "phc2sys.servo", "text": None,
        "kind": int(Kind.SERVO), "servo": 2, "offset_ns": 0, "delay_ns": 1000, "error_ns": None, "freq_ppb": None,
        "quantum_ns": 1, "stated": 0,
    }  # fmt: skip
    full = [plain | {"time_ns": T0 + k * NS} | entry for k, entry in enumerate(entries)]

    def whole(name: str, null: int) -> list[int]:
        return [null if entry[name] is None else entry[name] for entry in full]

    return Rows(
        np.array(whole("time_ns", 0), np.int64),
        np.array(whole("quantum_ns", 0), np.int64),
        np.array(whole("stated", 0), np.int64),
        [entry["clock"] for entry in full],
        [entry["parent"] for entry in full],
        [entry["form"] for entry in full],
        [entry["text"] for entry in full],
        np.array(whole("kind", 0), np.uint8),
        np.array(whole("servo", NULL_U8), np.uint8),
        np.array(whole("offset_ns", NULL_I64), np.int64),
        np.array(whole("delay_ns", NULL_I64), np.int64),
        np.array(whole("error_ns", NULL_I64), np.int64),
        np.array([np.nan if entry["freq_ppb"] is None else entry["freq_ppb"] for entry in full]),
    )


def ntp(offset: int, delay: int, root: int = 0, **more: Any) -> dict[str, Any]:
    """An exchange of chrony's with 10.0.0.1, whose own error is `root`."""
    return {
        "parent": "10.0.0.1", "form": "chrony.measurement", "kind": int(Kind.MEASUREMENT), "servo": None,
        "offset_ns": offset, "delay_ns": delay, "error_ns": (delay + 1) // 2 + root, **more,
    }  # fmt: skip
