"""From datagrams to batches: one collector is one unordered source of hops, a row a hop.

Rows are placed by the collector's stamp (capture or kernel). A datagram that does not follow its format is no
report and no loss: it is counted by reason and comes out as a DeadLetter (see producers.int.letters).
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import numpy as np

from producers.int.decode import NULLS, Decoder, Hops
from producers.int.flows import Flows, distinct
from producers.int.layout import I64, U8, Array
from producers.int.letters import Letters, Malformed
from producers.int.sequence import COUNTED, Sequences
from producers.report import Report
from schemas.batch import Batch
from schemas.columns import NULL_I64, NULL_U16, NULL_U32, HopKind, IntWarning
from schemas.flow import address_text
from schemas.pack import Head, SeqBook, Source, Strings, pack
from schemas.records import DeadLetter

ROWS_MAX: Final = 4096
TARGETS_MAX: Final = 32_768  # destinations told apart: what fits into a key of 63 bits
SENDERS_MAX: Final = 1 << 20  # senders of 0.5 reports
VERSIONS: Final = {5: "0.5", 10: "1.0", 20: "2.0"}
SEQ_BITS: Final = {5: 32, 10: 32}
_NAMES: Final = {kind: kind.name.lower() for kind in HopKind}


@dataclass
class IntReport(Report):
    """What came in: `reports` and their `hops`, `lost` datagrams by sequence number, `malformed` by reason.

    `by_version` counts reports, `deviations` reports by what was tolerated in them. `late`, `repeated` and
    `ambiguous` numbers, `forgotten` streams and senders with a `constant` number: see
    producers.int.sequence.
    """

    reports: int = 0
    hops: int = 0
    lost: int = 0
    late: int = 0
    repeated: int = 0
    ambiguous: int = 0
    forgotten: int = 0
    constant: int = 0
    malformed: dict[str, int] = field(default_factory=dict)
    by_version: dict[str, int] = field(default_factory=dict)
    deviations: dict[str, int] = field(default_factory=dict)
    ports: set[int] = field(default_factory=set)
    dropped_by_kernel: int | None = None

    def unused(self) -> dict[str, int]:
        """What was skipped, and malformed datagrams."""
        return self.skipped | {f"malformed: {reason}": n for reason, n in self.malformed.items()}

    def fields(self) -> dict[str, Any]:
        """Fields of the `--json` result (the contract)."""
        out: dict[str, Any] = {
            "reports": self.reports,
            "hops": self.hops,
            "lost": self.lost,
            "malformed": sum(self.malformed.values()),
            "malformed_by_reason": dict(sorted(self.malformed.items())),
            "by_version": dict(sorted(self.by_version.items())),
            "deviations": dict(sorted(self.deviations.items())),
            "sequence": {
                "late": self.late,
                "repeated": self.repeated,
                "ambiguous": self.ambiguous,
                "forgotten": self.forgotten,
                "constant": self.constant,
            },
            "ports": sorted(self.ports),
            "warnings": list(self.warnings),
        }
        if self.dropped_by_kernel is not None:
            out["dropped_by_kernel"] = self.dropped_by_kernel
        return out


class Datagrams(NamedTuple):
    """UDP payloads data[at : at + size] in order of arrival, with stamp and ends of each.

    `src`, `dst`: addresses as two words of 64 bits, IPv4 mapped, shape (2, n). `port`: destination port.
    """

    data: U8
    at: I64
    size: I64
    stamp_ns: I64
    src: Array
    dst: Array
    port: I64

    def __len__(self) -> int:
        return len(self.at)


class Collector:
    """Turns datagrams into batches of one source. `origin` names the input in dead letters."""

    def __init__(
        self,
        head: Head,
        source: Source,
        decoder: Decoder,
        report: IntReport,
        *,
        origin: str,
        seq_bits: int = 22,
    ) -> None:
        self._head = head
        self._source = source
        self._decoder = decoder
        self._report = report
        self._origin = origin
        self._letters = Letters(head.tenant, origin)
        self._seq_bits = {**SEQ_BITS, 20: seq_bits}
        self._book = SeqBook()
        self._sequences = Sequences()
        self._told = (0,) * len(COUNTED)
        self._targets: dict[tuple[int, ...], int] = {}
        self._senders: dict[tuple[int, ...], int] = {}

    def take(self, datagrams: Datagrams, watermark_ns: int | None) -> Iterator[Batch | DeadLetter]:
        """Dead letters, then batches of at most 4,096 rows; the last promises `watermark_ns`."""
        hops = self._decoder.decode(datagrams.data, datagrams.at, datagrams.size)
        report = self._report
        for place, error in hops.failures.items():
            reason = error.what.split(":")[0]
            report.malformed[reason] = report.malformed.get(reason, 0) + 1
            yield from self._dead(datagrams, place, reason, str(error))
        self._check_sequences(hops, datagrams)
        before = report.reports
        report.reports += int(hops.reports.sum())
        report.hops += len(hops)
        report.events += len(hops)
        report.ports |= set(np.unique(datagrams.port[hops.place]).tolist())
        for version, name in VERSIONS.items():
            count = int(hops.reports[hops.version == version].sum())
            if count:
                report.by_version[name] = report.by_version.get(name, 0) + count
        for bits, count in hops.warned.items():
            for warning in IntWarning(bits):
                name = str(warning.name).lower().replace("_", " ")
                report.deviations[name] = report.deviations.get(name, 0) + count
        if len(hops):
            self._number(hops, before)
            sender = self._nameless(hops, datagrams)
            for first in range(0, len(hops), ROWS_MAX):
                rows = slice(first, min(first + ROWS_MAX, len(hops)))
                last = rows.stop == len(hops)
                yield self._batch(hops, rows, datagrams, sender, watermark_ns if last else None)

    def heartbeat(self, watermark_ns: int) -> Iterator[Batch | DeadLetter]:
        """A batch without rows: no later row is below `watermark_ns`. Before it, dead letters that are due."""
        yield from self._letters.due(watermark_ns)
        yield self._empty(watermark_ns, final=False)

    def end(self, watermark_ns: int) -> Iterator[Batch | DeadLetter]:
        """The last batch, and what only the end can tell: senders whose sequence number never moved."""
        yield from self._letters.end()
        self._report.constant += self._sequences.constant
        if self._sequences.constant:
            self._report.warn(
                f"{self._origin}: {self._sequences.constant} sender(s) with a number that never moves: "
                "their losses are unknown"
            )
        yield self._empty(watermark_ns, final=True)

    def _empty(self, watermark_ns: int, final: bool) -> Batch:
        self._report.batches += 1
        none = np.empty(0, np.int64)
        return pack(
            self._head, Strings(), [self._source], [self._book.take(self._source, 0)], none, none, {},
            watermark_ns=[watermark_ns], final=[final],
        )  # fmt: skip

    def _dead(self, datagrams: Datagrams, place: int, reason: str, detail: str) -> Iterator[DeadLetter]:
        at, size = int(datagrams.at[place]), int(datagrams.size[place])
        stamp_ns, port = int(datagrams.stamp_ns[place]), int(datagrams.port[place])
        sender = self._address_text(datagrams.src[:, place])
        offset = -1 if self._source.live else at  # the byte of the file

        def whole() -> Malformed:
            payload = datagrams.data[at : at + size].tobytes()
            return Malformed(reason, detail, sender, port, stamp_ns, offset, payload)

        return self._letters.take(reason, sender, port, stamp_ns, whole)

    def _check_sequences(self, hops: Hops, datagrams: Datagrams) -> None:
        report = self._report
        if not len(hops.place):
            return
        # A stream is (node, hw_id, destination); a 0.5 report names no node, so its sender's address counts.
        ends = np.concatenate(
            [datagrams.dst[:, hops.place], datagrams.port[hops.place][None].astype(np.uint64)]
        )
        if len(self._targets) >= TARGETS_MAX or len(self._senders) >= SENDERS_MAX:
            self._targets, self._senders, self._sequences = {}, {}, Sequences()
            self._told = (0,) * len(COUNTED)
            report.warn("too many senders or destinations: counting of lost datagrams begins anew")
        key = _intern(self._targets, ends) << 48 | hops.hw_id.astype(np.int64) << 40
        for version, bits in self._seq_bits.items():
            chosen = np.flatnonzero(hops.version == version)
            if not len(chosen):
                continue
            if version == 5:
                node = _intern(self._senders, datagrams.src[:, hops.place[chosen]]) | 1 << 38
            else:
                node = hops.reporter[chosen].astype(np.int64) | version << 33
            self._sequences.see(key[chosen] | node, hops.seq[chosen], bits)
        found = self._sequences
        now = tuple(getattr(found, name) for name in COUNTED)
        for name, new, old in zip(COUNTED, now, self._told, strict=True):
            setattr(report, name, getattr(report, name) + new - old)
        self._told = now

    def _number(self, hops: Hops, before: int) -> None:
        """Make the report's number within its datagram the report's place in the whole input."""
        starts = np.zeros(int(hops.place[-1]) + 1, np.int64)
        starts[hops.place] = before + np.cumsum(hops.reports) - hops.reports
        place = starts[hops.datagram] + hops.columns["report"]
        if place[-1] >= NULL_U32:
            place %= NULL_U32
        hops.columns["report"] = place.astype(np.uint32)

    def _nameless(self, hops: Hops, datagrams: Datagrams) -> list[str | None]:
        """The address that stands for the node in each row that has none (0.5), else None; [] if all have."""
        node = hops.columns.get("node")
        if node is not None and not (node == NULL_U32).any():
            return []
        out: list[str | None] = [None] * len(hops)
        own = hops.columns["int_version"] == 255
        nameless = own if node is None else own & (node == NULL_U32)
        for row in np.flatnonzero(nameless).tolist():
            out[row] = self._address_text(datagrams.src[:, hops.datagram[row]])
        return out

    def _address_text(self, words: Array) -> str:
        return address_text(b"".join(int(word).to_bytes(8, "big") for word in words))

    def _batch(
        self,
        hops: Hops,
        rows: slice,
        datagrams: Datagrams,
        sender: list[str | None],
        watermark_ns: int | None,
    ) -> Batch:
        strings = Strings()
        columns: dict[str, Array] = {}
        for name, values in hops.columns.items():
            part = values[rows]
            if name == "report_seq" and (part == NULL_U32).any():
                columns[name] = part.astype(np.int64)  # the greatest number is a number here
                continue
            null = NULLS[name]
            if part[0] != null or not (part == null).all():
                columns[name] = part
        kind = columns["kind"]
        codes = np.array([strings.index(_NAMES[code]) for code in HopKind], np.uint16)
        columns["name"] = codes[kind]
        columns["entity"] = _entities(columns.get("node"), sender[rows] if sender else [], strings, len(kind))
        columns |= _flow_columns(hops.flow[rows], hops.flows, strings)
        count = len(kind)
        columns["duration_ns"] = np.zeros(count, np.uint32)
        first = self._book.take(self._source, count)
        self._report.batches += 1
        return pack(
            self._head, strings, [self._source], [first], np.zeros(count, np.int64),
            datagrams.stamp_ns[hops.datagram[rows]], columns, watermark_ns=[watermark_ns],
        )  # fmt: skip


def _intern(table: dict[tuple[int, ...], int], keys: Array) -> I64:
    """Small numbers for keys of several words, shape (words, n). Shape (n,)."""
    first, which = distinct(keys)
    ids = [table.setdefault(tuple(keys[:, place].tolist()), len(table)) for place in first.tolist()]
    return np.array(ids, np.int64)[which]


def _entities(node: Array | None, sender: list[str | None], strings: Strings, count: int) -> Array:
    """String places of `node:<id>`, or of `node:<address>` where only the sender is known."""
    null = np.uint16(2**16 - 1)
    if node is None:
        out = np.full(count, null, np.uint16)
    else:
        ids, which = _small(node)
        places = [null if known == NULL_U32 else strings.index(f"node:{known}") for known in ids.tolist()]
        out = np.array(places, np.uint16)[which]
    for row, address in enumerate(sender):
        if address is not None:
            out[row] = strings.index(f"node:{address}")
    return out


def _small(values: Array) -> tuple[Array, I64]:
    """Distinct values and which one each is; quick where they are small numbers."""
    top = int(values.max())
    if top >= 1 << 16:
        found, which = np.unique(values, return_inverse=True)
        return found, which
    seen = np.zeros(top + 1, bool)
    seen[values] = True
    found = np.flatnonzero(seen)
    place = np.cumsum(seen) - 1
    return found, place[values]


def _flow_columns(place: I64, flows: Flows, strings: Strings) -> dict[str, Array]:
    """Columns of the packets' flows, by each row's place in `flows`; none where no row has one."""
    known = place >= 0
    if not known.any():
        return {}
    numbers, src, dst, sport, dport, protocol = (column[place] for column in flows.columns)
    out: dict[str, Array] = {"flow": numbers, "protocol": protocol}
    for name, port in (("sport", sport), ("dport", dport)):
        # Port 65535 is a number and not null: a wide column can say so.
        out[name] = port.astype(np.int64) if (port == NULL_U16).any() else port
    for name, address in (("src", src), ("dst", dst)):
        used, which = _small(address)
        texts = [strings.index(flows.addresses[entry]) for entry in used.tolist()]
        out[name] = np.array(texts, np.uint16)[which]
    if not known.all():
        for values in out.values():
            values[~known] = NULL_I64 if values.dtype == np.int64 else np.iinfo(values.dtype).max
    return out
