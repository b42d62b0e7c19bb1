"""The 8-rank trace through the merge: what a true clock shows, and one that is 50 µs off."""

from collections import Counter

import pytest

from producers.gpu.read import KinetoReport, Options, read
from schemas import codec
from schemas import columns as c
from schemas.merged import Merged
from schemas.topics import batch_headers
from streams.causality.merge import Merge
from streams.causality.settings import MergeSettings
from tempotrace.runtime.local import LocalRunner, MemoryLog
from tests.paths import shared_data


class _Still:
    """An append clock that stands."""

    def now_ns_utc(self) -> int:
        return 1_790_000_000_000_000_000


def merged(options: Options) -> list[Merged]:
    """All windows of the trace."""
    log = MemoryLog(_Still())
    line = LocalRunner([Merge(MergeSettings())], log)
    path = shared_data("gpu", "kineto", "dlrm_8ranks.tar.gz")
    for batch in read([path], options, KinetoReport()):
        headers = tuple(batch_headers(batch.family, batch.count, batch.scope))
        log.append("events", 0, batch.scope.encode(), codec.encode_batch(batch), headers)
    line.run()
    line.flush("default")
    assert not log.records("late")
    assert not log.records("deadletter")
    found = [codec.decode_merged(record.value or b"") for record in log.records("merged")]
    return [each for each in found if isinstance(each, Merged)]


def verdicts(windows: list[Merged]) -> dict[tuple[str, str], int]:
    out: Counter[tuple[str, str]] = Counter()
    for window in windows:
        for kind, counts in window.verdicts().items():
            out.update({(kind, verdict): count for verdict, count in counts.items()})
    return +out


@pytest.mark.parametrize(("offset_us", "violated"), [(0, 0), (-50, 6), (50, 0)])
def test_verdicts(offset_us: int, violated: int) -> None:
    windows = merged(Options(clock_bound_ns=1_000, clock_offset_ns={"3": offset_us * 1_000}))
    assert sum(len(window) for window in windows) == 19_781
    want = {("launch", "proven"): 2_116, ("sync", "proven"): 32, ("collective", "inferred"): 64 - violated}
    if violated:
        want["collective", "violated"] = violated
    assert verdicts(windows) == want
    accused = {
        (window.strings[window.data["src_name"][cause]], window.strings[window.data["src_name"][effect]])
        for window in windows
        if window.table_len("edge")
        for cause, effect, verdict in zip(
            window.data["edge_cause_source"],
            window.data["edge_effect_source"],
            window.data["edge_verdict"],
            strict=True,
        )
        if verdict == c.Verdict.VIOLATED
    }
    assert accused == (
        {(f"rank{rank}/stream 84", "rank3/stream 84") for rank in (5, 7)} if violated else set()
    )
