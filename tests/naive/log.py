"""A log in plain words, for the naive merge and, encoded, for the real one.

A `Post` is one batch of events, a `Say` one batch of control rows; both carry the broker's append time. Sequence
numbers are given, so that a log can repeat rows and leave some out.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from schemas import columns as c
from schemas.codec import encode_batch
from schemas.draft import Draft, control
from schemas.pack import Group, Head, SeqBook, Source
from schemas.processor import Record
from schemas.time import ClockState


@dataclass(frozen=True)
class End:
    """One endpoint of a row."""

    point: c.Point
    kind: c.EdgeKind
    role: c.Role
    key: int
    op: c.Op = c.Op.NONE
    size: int = 0
    assumed: bool = False
    group: str | None = None


@dataclass(frozen=True)
class Row:
    """One event as a producer writes it."""

    source: Source
    raw_ns: int
    duration_ns: int | None = 0
    kind: int = 0
    name: str | None = None
    ends: tuple[End, ...] = ()
    entity: str | None = None  # the name, if not given
    more: tuple[tuple[str, Any], ...] = ()  # the family's own columns


@dataclass(frozen=True)
class Post:
    """A batch. `first` is the sequence number of each source's first row. A source without rows is listed if it has
    a watermark or is final."""

    append_ms: int
    scope: str
    publisher: str
    family: str
    sources: tuple[Source, ...]
    first: tuple[int, ...]
    rows: tuple[Row, ...] = ()
    watermark_ns: tuple[int | None, ...] = ()
    final: tuple[bool, ...] = ()
    parents: tuple[ClockState, ...] = ()


@dataclass(frozen=True)
class Say:
    """A batch of control rows."""

    append_ms: int
    scope: str
    rows: tuple[tuple[c.Control, int | None, str | None], ...]


Message = Post | Say


@dataclass
class Log:
    """Messages in the order of the log, and the tenant they belong to."""

    messages: list[Message] = field(default_factory=list)
    tenant: str = "default"

    def records(self, partition: int = 0, first_offset: int = 0) -> list[Record]:
        """The log as the merge reads it."""
        return [
            Record(
                "events", partition, first_offset + k, m.append_ms, m.scope.encode(), encode(self.tenant, m)
            )
            for k, m in enumerate(self.messages)
        ]


def encode(tenant: str, message: Message) -> bytes:
    """One message as the bytes of its batch."""
    if isinstance(message, Say):
        return encode_batch(control(tenant, message.scope, "operator", message.rows))
    started = {
        (source.name, source.incarnation): first
        for source, first in zip(message.sources, message.first, strict=True)
    }
    head = Head(tenant, message.scope, message.publisher, message.family)
    draft = Draft(head, SeqBook(started))
    for clock in message.parents:
        draft.parent(clock)
    groups: dict[str, Group] = {}
    for row in message.rows:
        at = draft.row(
            row.source, row.raw_ns, kind=row.kind, name=row.name, duration_ns=row.duration_ns,
            entity=row.name if row.entity is None else row.entity, **dict(row.more),
        )  # fmt: skip
        for end in row.ends:
            group = None
            if end.group is not None:
                group = groups.setdefault(end.group, Group(end.group, max(1, end.size)))
            draft.endpoint(
                at, end.point, end.kind, end.role, end.key,
                group=group, op=end.op, size=end.size, assumed=end.assumed,
            )  # fmt: skip
    for place, source in enumerate(message.sources):
        if message.watermark_ns and message.watermark_ns[place] is not None:
            draft.watermark(source, message.watermark_ns[place] or 0)
        if message.final and message.final[place]:
            draft.final(source)
    return encode_batch(draft.build())


def numbers(post: Post) -> Sequence[int]:
    """Sequence number of each row of a post."""
    following = dict(zip(post.sources, post.first, strict=True))
    out = []
    for row in post.rows:
        out.append(following[row.source])
        following[row.source] += 1
    return out
