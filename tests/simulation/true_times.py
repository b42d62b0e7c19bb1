"""When the events of a simulated job truly happened."""

import numpy as np

from producers.sim.options import SimReport
from schemas.batch import I64


def true_times(report: SimReport) -> dict[str, tuple[I64, I64]]:
    """By source name: true begin and end (ns TAI) of its events, indexed by seq. Needs `keep_times`."""
    start = int(report.truth["start_ns"])
    return {
        source: (
            start + np.concatenate([begin for begin, _ in parts]),
            start + np.concatenate([end for _, end in parts]),
        )
        for source, parts in report.times.items()
    }
