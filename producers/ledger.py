"""What a live publisher must remember beside its batches: which sources are open, and what was dropped."""

import json
from collections.abc import Iterable
from typing import NamedTuple

from producers.cutting import tables_only
from schemas import columns as c
from schemas.batch import Batch
from schemas.codec import decode_batch, encode_batch
from schemas.draft import control
from schemas.errors import MalformedInput, UnknownSchema

SourceKey = tuple[str, int]  # name, incarnation


def sources_of(batch: Batch) -> list[tuple[SourceKey, int, int, bool]]:
    """((name, incarnation), first seq, last seq, final) of each entry of the source table."""
    if not batch.table_len("src"):
        return []
    data = batch.data
    names = [batch.strings[place] for place in data["src_name"]]
    final = (data["src_flags"] & c.SOURCE_FINAL).astype(bool)
    numbers = (data[name].tolist() for name in ("src_incarnation", "src_first_seq", "src_last_seq"))
    keys = zip(names, next(numbers), strict=True)
    return list(zip(keys, next(numbers), next(numbers), final.tolist(), strict=True))


class OpenSources:
    """The sources that were announced and have not ended, with the batch tables that announced them."""

    def __init__(self, stored: Iterable[bytes] = ()) -> None:
        self._tables: list[tuple[Batch, set[SourceKey]]] = []
        self.changed = False
        for payload in stored:
            try:
                self.see(decode_batch(payload))
            except (MalformedInput, UnknownSchema):
                continue  # written by another version: its sources end by idleness
        self.changed = False

    def see(self, batch: Batch) -> None:
        """Take note of a batch: new sources open, final ones end."""
        entries = sources_of(batch)
        if not entries:
            return
        listed = {key for key, *_ in entries}
        ended = {key for key, _, _, final in entries if final}
        mine = [known for table, known in self._tables if _same(table, batch)]
        fresh = listed - ended - set().union(*mine)
        for known in mine:
            self.changed |= bool(known & ended)
            known -= listed if fresh else ended
        if fresh:
            self.changed = True
            self._tables.append((tables_only(batch), listed - ended))
        self._tables = [(table, known) for table, known in self._tables if known]

    def stored(self) -> list[bytes]:
        """What to keep on disk."""
        return [encode_batch(table) for table, _ in self._tables]

    def ends(self) -> list[Batch]:
        """A batch without rows for each table, ending its sources."""
        return [tables_only(table, final=True) for table, _ in self._tables]


def _same(one: Batch, other: Batch) -> bool:
    return (one.tenant, one.scope, one.publisher, one.family) == (
        other.tenant,
        other.scope,
        other.publisher,
        other.family,
    )


class Lost(NamedTuple):
    """Events of one source that were dropped, first to last by seq."""

    tenant: str
    scope: str
    publisher: str
    source: str
    incarnation: int
    reason: str


class LossBook:
    """What was dropped and not yet reported by a `loss` control row."""

    def __init__(self, stored: Iterable[bytes] = ()) -> None:
        self._ranges: dict[Lost, tuple[int, int, int]] = {}  # events, first seq, last seq
        self.changed = False
        for payload in stored:
            key, span = json.loads(payload)
            self._ranges[Lost(*key)] = tuple(span)

    def __bool__(self) -> bool:
        return bool(self._ranges)

    def drop(self, batch: Batch, reason: str) -> None:
        """Count a batch's rows as lost."""
        for (name, incarnation), first, last, _ in sources_of(batch):
            if last < first:
                continue
            key = Lost(batch.tenant, batch.scope, batch.publisher, name, incarnation, reason)
            events, low, high = self._ranges.get(key, (0, first, last))
            self._ranges[key] = (events + last - first + 1, min(low, first), max(high, last))
            self.changed = True

    def stored(self) -> list[bytes]:
        """What to keep on disk."""
        return [json.dumps([key, span]).encode() for key, span in self._ranges.items()]

    def clear(self) -> None:
        """Forget what has been reported."""
        self.changed = self.changed or bool(self._ranges)
        self._ranges.clear()

    def reports(self) -> list[Batch]:
        """Control batches that report everything dropped.

        `number` is the count of events, `text` JSON: source, incarnation, first_seq, last_seq, reason.
        """
        rows: dict[tuple[str, str, str], list[tuple[c.Control, int | None, str | None]]] = {}
        for key, (events, first, last) in self._ranges.items():
            text = json.dumps(
                {
                    "source": key.source,
                    "incarnation": key.incarnation,
                    "first_seq": first,
                    "last_seq": last,
                    "reason": key.reason,
                }
            )
            rows.setdefault(key[:3], []).append((c.Control.LOSS, events, text))
        return [control(*head, entries) for head, entries in rows.items()]
