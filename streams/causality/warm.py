"""Compiling the merge's kernels ahead of time, by running a small merge."""

from schemas import columns as c
from schemas.codec import encode_batch
from schemas.draft import Draft, control
from schemas.pack import Head, SeqBook, Source
from schemas.processor import Record
from schemas.time import ClockState


def warm_up() -> None:
    """Merge two sources with a message between them whose clocks disagree, so that every kernel runs once."""
    from streams.causality.merge import Merge
    from streams.causality.settings import MergeSettings

    task = Merge(MergeSettings(tenant="warm")).start(0, None)
    clock = ClockState("warm/clock", timescale=c.Timescale.TAI, bound_ns=10)
    sources = [Source(f"warm/{k}", "warm", clock, 1, rank=k) for k in range(2)]
    draft = Draft(Head("warm", "warm", "warm", "probe"), SeqBook())
    for k, source in enumerate(sources):
        row = draft.row(source, 10**18 - 100 * k, kind=c.ProbeKind.SEND + k)
        draft.endpoint(row, c.Point.BEGIN, c.EdgeKind.MESSAGE, c.Role(k), 7)
        draft.endpoint(row, c.Point.BOTH, c.EdgeKind.COLLECTIVE, c.Role.MEMBER, 8, op=c.Op.BARRIER, size=2)
        draft.final(source)
    for offset, batch in enumerate(
        (control("warm", "warm", "warm", [(c.Control.OPEN, 2, "ranks")]), draft.build())
    ):
        task.process(Record("events", 0, offset, 1_000, b"warm", encode_batch(batch)))
