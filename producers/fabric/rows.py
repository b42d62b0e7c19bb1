"""Rows of family `fabric`: port counters, flows of hosts, walked paths; files to batches, merged in time.

The clock is the reading host's, in UTC, of unknown quality, as the files' own times are. A switch's readings are one
source, unordered; flows and paths are another.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, Final

from producers.fabric.counters import Counters, change
from producers.report import Report
from schemas.batch import Batch
from schemas.codes import Control, CounterState, FabricKind, PathSource, SportSource, Timescale
from schemas.draft import Draft, control
from schemas.flow import flow_id
from schemas.network import FlowKey, HostFlow, Topology, link_name
from schemas.pack import Head, SeqBook, Source
from schemas.time import TAI, ClockState

ROWS_MAX: Final = 4096
_LID: Final = bytes(10) + b"IB"


@dataclass(frozen=True)
class Reading:
    """All counters of one node at one moment (Unix ns)."""

    node: str
    at_ns: int
    ports: Mapping[str, Counters]


@dataclass(frozen=True)
class Path:
    """A path to publish: (half-link, share, place) in order along it."""

    key: FlowKey
    steps: tuple[tuple[str, float, int], ...]
    source: PathSource
    agreement: float | None


@dataclass(frozen=True)
class Options:
    """How rows are made. `numbers`: (node, port) of in-band telemetry by node and port name."""

    tenant: str
    scope: str
    host: str | None = None
    numbers: Mapping[tuple[str, str], tuple[int, int]] = field(default_factory=dict)


@dataclass
class FabricReport(Report):
    """What was made, beside what every producer tells."""

    counters: int = 0
    flows: int = 0
    paths: int = 0
    states: dict[str, int] = field(default_factory=dict)
    more: dict[str, Any] = field(default_factory=dict)  # what was read before rows were made

    def fields(self) -> dict[str, Any]:
        return {
            "counters": self.counters,
            "counter_states": dict(sorted(self.states.items())),
            "flows": self.flows,
            "paths": self.paths,
            **self.more,
        }


def number_of(key: FlowKey) -> int:
    """The flow's number (schemas.flow); LIDs count as addresses of their own kind."""
    ends = [
        _LID + int(end[4:]).to_bytes(4, "big") if end.startswith("lid:") else end
        for end in (key.src, key.dst)
    ]
    return flow_id(ends[0], ends[1], key.sport, key.dport, key.protocol)


class Sampler:
    """Differences of counters from reading to reading, as rows of a draft."""

    def __init__(self, topology: Topology | None, options: Options, report: FabricReport) -> None:
        self._topology, self._options, self._report = topology, options, report
        self._before: dict[tuple[str, str], tuple[int, Counters]] = {}

    def add(self, reading: Reading, draft: Draft, source: Source) -> None:
        """Rows of one reading: one a port."""
        for port, now in reading.ports.items():
            known = self._before.get((reading.node, port))
            interval = reading.at_ns - known[0] if known is not None else None
            if interval is not None and interval <= 0:
                self._report.skip("reading not later than the one before")
                continue
            self._before[reading.node, port] = (reading.at_ns, now)
            done = change(known[1] if known is not None else None, now, interval or 0)
            self._report.counters += 1
            state = CounterState(done.state).name.lower()
            self._report.states[state] = self._report.states.get(state, 0) + 1
            link = self._topology.out(reading.node, port) if self._topology is not None else None
            back = None
            capacity = now.capacity_bps
            if link is not None:
                back = link_name(link.receiver, link.receiver_port, link.sender, link.sender_port)
                capacity = capacity if capacity is not None else link.capacity_bps
            node, number = self._options.numbers.get((reading.node, port), (None, None))
            draft.row(
                source, reading.at_ns, kind=FabricKind.COUNTER, name="counters",
                entity=link.name if link is not None else link_name(reading.node, port),
                tx_bytes=done.tx_bytes, rx_bytes=done.rx_bytes, interval_ns=interval, state=done.state,
                tx_total=None if now.tx is None else now.tx * now.unit,
                rx_total=None if now.rx is None else now.rx * now.unit,
                capacity_bps=capacity, drops=done.drops, errors=done.errors, pauses=done.pauses, back=back,
                node=node, port=number,
            )  # fmt: skip


def flow_row(flow: HostFlow, at_ns: int, draft: Draft, source: Source) -> None:
    """A row that says: this flow is there, and whose it is."""
    key = flow.key
    known = flow.sport_source != SportSource.UNKNOWN
    draft.row(
        source, at_ns, kind=FabricKind.FLOW, entity=flow.src_host or key.src, name=flow.how or "listed",
        flow=number_of(key), src=key.src, dst=key.dst, sport=key.sport if known else None, dport=key.dport,
        protocol=key.protocol, qpn=key.qpn or None, sport_source=flow.sport_source, job=flow.job or None,
        rank_src=flow.rank_src, rank_dst=flow.rank_dst, tx_bytes=flow.bytes, netdev=flow.netdev or None,
        ports=",".join(flow.ports) or None, vlan=flow.vlan, vrf=flow.vrf or None,
    )  # fmt: skip


def path_rows(path: Path, at_ns: int, draft: Draft, source: Source) -> None:
    """A row for each half-link of a path."""
    for link, share, hop in path.steps:
        draft.row(
            source, at_ns, kind=FabricKind.HOP, entity=link, name="path", flow=number_of(path.key),
            hop=min(hop, 254), hops=min(len(path.steps), 254), share=share, path_source=path.source,
            agreement=path.agreement,
        )  # fmt: skip


def read(
    readings: Sequence[Reading],
    flows: Sequence[HostFlow],
    paths: Sequence[Path],
    at_ns: int,
    topology: Topology | None,
    options: Options,
    report: FabricReport,
) -> Iterator[Batch]:
    """An `open` control batch, then everything in order of time. Flows and paths are of `at_ns` (Unix)."""
    digest = blake2b(digest_size=8)
    for part in (
        options.scope,
        options.host,
        sorted(options.numbers.items()),
        at_ns,
        *readings,
        *flows,
        *paths,
    ):
        digest.update(repr(part).encode())
    name = f"file-{digest.hexdigest()[:8]}"
    host = options.host or name
    incarnation = int.from_bytes(digest.digest(), "little") >> 1
    clock = ClockState(
        f"{host}/CLOCK_REALTIME" if options.host else f"{host}/files",
        parent=TAI, timescale=Timescale.UTC, provenance="times of files",
    )  # fmt: skip
    publisher = f"fabric/{host}"
    yield control(options.tenant, options.scope, publisher, [(Control.OPEN, 1, "hosts")])
    maker = _Maker(Head(options.tenant, options.scope, publisher, "fabric"), host, clock, incarnation, report)
    sampler = Sampler(topology, options, report)
    ordered = sorted(readings, key=lambda reading: reading.at_ns)
    told = False
    for reading in ordered:
        if not told and reading.at_ns >= at_ns and (flows or paths):
            yield from _told(flows, paths, at_ns, maker, report)
            told = True
        sampler.add(reading, maker.draft, maker.source(f"counters/{reading.node}", reading.at_ns))
        if maker.full:
            yield maker.build(final=False)
    if not told and (flows or paths):
        yield from _told(flows, paths, at_ns, maker, report)
    yield maker.build(final=True)


def _told(
    flows: Sequence[HostFlow], paths: Sequence[Path], at_ns: int, maker: "_Maker", report: FabricReport
) -> Iterator[Batch]:
    named = set()
    for flow in flows:
        try:
            number_of(flow.key)
        except ValueError:
            report.skip("flow between names without an address")
            continue
        named.add(flow.key)
        flow_row(flow, at_ns, maker.draft, maker.source("flows", at_ns))
        report.flows += 1
        if maker.full:
            yield maker.build(final=False)
    for path in paths:
        if path.key not in named:
            continue
        path_rows(path, at_ns, maker.draft, maker.source("flows", at_ns))
        report.paths += 1
        if maker.full:
            yield maker.build(final=False)


class _Maker:
    """The draft in the making; every batch renews the promise of all sources."""

    def __init__(self, head: Head, host: str, clock: ClockState, incarnation: int, report: Report) -> None:
        self._head, self._host, self._clock, self._incarnation = head, host, clock, incarnation
        self._report, self._book = report, SeqBook()
        self._sources: dict[str, Source] = {}
        self._now_ns = 0
        self.draft = Draft(head, self._book)

    @property
    def full(self) -> bool:
        """Whether it is time to build."""
        return len(self.draft) >= ROWS_MAX

    def source(self, name: str, at_ns: int) -> Source:
        """The source of this name; nothing later is earlier than `at_ns`."""
        self._now_ns = max(self._now_ns, at_ns)
        known = self._sources.get(name)
        if known is None:
            known = Source(
                f"fabric/{self._host}/{name}", self._host, self._clock, self._incarnation, ordered=False
            )
            self._sources[name] = known
        return known

    def build(self, final: bool) -> Batch:
        """The batch, and a new draft."""
        draft, self.draft = self.draft, Draft(self._head, self._book)
        for source in self._sources.values():
            draft.watermark(source, self._now_ns)
            if final:
                draft.final(source)
        self._report.events += len(draft)
        self._report.batches += 1
        return draft.build()
