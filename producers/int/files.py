"""Reads captures of reports: files to batches, merged in time.

Each file is a collector, so a source, of its own. Its clock is the capturing host's, in UTC, of unknown
quality. Rows are in order of their stamps, so the low watermark is the next frame's stamp.
"""

import heapq
import mmap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Final

import numpy as np

from producers.int.collector import Collector, Datagrams, IntReport
from producers.int.decode import Decoder
from producers.int.dialect import SPEC, Dialect
from producers.int.pcap import OUTSIDE_FRAME, Capture, Frames, Payloads
from producers.int.pcap import read as read_capture
from schemas.batch import Batch
from schemas.columns import Control, Timescale
from schemas.draft import control
from schemas.errors import MalformedInput, cause_of
from schemas.pack import Head, Source
from schemas.records import DeadLetter
from schemas.time import OUTSIDE, TAI, ClockState

FRAMES_MAX: Final = 4096  # frames decoded at a time


@dataclass(frozen=True)
class Options:
    """How captures are read. `ports`: where reports go to (UDP destination); None: wherever one is found."""

    tenant: str
    scope: str
    host: str | None = None
    ports: frozenset[int] | None = None
    dialect: Dialect = SPEC

    def digest(self) -> bytes:
        """What changes rows beside the content."""
        return repr((self.scope, self.host, self.ports and sorted(self.ports), self.dialect)).encode()


def read(paths: Sequence[Path], options: Options, report: IntReport) -> Iterator[Batch | DeadLetter]:
    """An `open` control batch, then batches of hops, and dead letters, of all captures, merged in time.

    A file that is no capture, or cannot be read, is counted and named in the report's warnings; raises
    MalformedInput if that is so of all.
    """
    files = []
    errors: list[MalformedInput] = []
    for path in dict.fromkeys(paths):
        try:
            files.append(_File(path, options, report))
        except (MalformedInput, OSError) as error:
            if isinstance(error, MalformedInput):
                errors.append(MalformedInput(error.what, f"{path}: {error.where}"))
            else:
                errors.append(MalformedInput(f"cannot be read: {cause_of(error)}", str(path)))
            report.warn(str(errors[-1]))
            report.skip("file that is no capture")
    if not files:
        raise errors[0] if errors else MalformedInput("no capture was given")
    hosts = len({file.source.host for file in files})
    yield control(
        options.tenant, options.scope, f"int/{files[0].source.host}", [(Control.OPEN, hosts, "hosts")]
    )
    streams = (file.items(number) for number, file in enumerate(files))
    for _, _, items in heapq.merge(*streams, key=lambda block: block[:2]):
        yield from items
    if not report.reports:
        at = "any port" if options.ports is None else f"port {', '.join(map(str, sorted(options.ports)))}"
        report.warn(f"no report was found at {at}")


class _File:
    """One capture."""

    def __init__(self, path: Path, options: Options, report: IntReport) -> None:
        self._options, self._report = options, report
        self._capture = read_capture(_content(path))
        for line in self._capture.warnings:
            report.warn(f"{path}: {line}; what came before is used")
        for reason, count in self._capture.skipped.items():
            report.skip(reason, count)
        if outside := self._capture.skipped.get(OUTSIDE_FRAME, 0):
            report.warn(f"{path}: {outside} frames with a {OUTSIDE} left out")
        content = blake2b(self._capture.data.data, digest_size=8)
        name = f"file-{content.hexdigest()[:8]}"
        host = options.host or name
        content.update(options.digest())
        clock = ClockState(
            f"{host}/pcap",
            parent=TAI,
            timescale=Timescale.UTC,
            quantum_ns=self._capture.quantum_ns,
            provenance="stamps of a capture",
        )
        incarnation = int.from_bytes(content.digest(), "little") >> 1
        self.source = Source(f"int/{name}", host, clock, incarnation, ordered=False)
        self._frames = Frames()
        self._decoder = Decoder(options.dialect)
        self._ports = options.ports if options.ports is not None else self._find_ports()
        self._collector = Collector(
            Head(options.tenant, options.scope, f"int/{host}", "int"),
            self.source,
            self._decoder,
            report,
            origin=str(path),
            seq_bits=28 - options.dialect.hw_id_bits,
        )

    def _blocks(self, skipped: dict[str, int]) -> Iterator[tuple[int, Payloads]]:
        """(end of the block, its UDP payloads) over the file's frames."""
        total = len(self._capture.at)
        for begin in range(0, total, FRAMES_MAX):
            end = min(begin + FRAMES_MAX, total)
            yield end, self._frames.payloads(self._capture, begin, end, skipped)

    def _find_ports(self) -> frozenset[int]:
        """Every UDP destination port at which at least one payload is a report."""
        found: set[int] = set()
        for _, payloads in self._blocks({}):
            open_ = np.flatnonzero(~np.isin(payloads.port, list(found)))
            if len(open_):
                data, at, size = self._capture.data, payloads.at[open_], payloads.size[open_]
                accepted = self._decoder.accepts(data, at, size)
                found |= set(np.unique(payloads.port[open_][accepted]).tolist())
        return frozenset(found)

    def items(self, number: int) -> Iterator[tuple[int, int, Iterator[Batch | DeadLetter]]]:
        """(first stamp, `number`, what to publish) of each block of frames."""
        skipped: dict[str, int] = {}
        stamps = self._capture.stamp_ns
        for end, payloads in self._blocks(skipped):
            wanted = np.flatnonzero(np.isin(payloads.port, list(self._ports)))
            other = len(payloads.port) - len(wanted)
            if other:
                skipped["UDP to another port"] = skipped.get("UDP to another port", 0) + other
            begin = (end - 1) // FRAMES_MAX * FRAMES_MAX
            watermark = int(stamps[end]) if end < len(stamps) else int(stamps[-1]) + 1
            datagrams = _pick(self._capture, begin, payloads, wanted)
            yield int(stamps[begin]), number, self._collector.take(datagrams, watermark)
        for reason, count in skipped.items():
            self._report.skip(reason, count)
        last = int(stamps[-1]) + 1 if len(stamps) else 0
        yield last, number, self._collector.end(last)


def _pick(
    capture: Capture, begin: int, payloads: Payloads, wanted: "np.typing.NDArray[np.int64]"
) -> Datagrams:
    stamp = capture.stamp_ns[begin + payloads.frame[wanted]]
    return Datagrams(
        capture.data, payloads.at[wanted], payloads.size[wanted], stamp,
        payloads.src[:, wanted], payloads.dst[:, wanted], payloads.port[wanted],
    )  # fmt: skip


def _content(path: Path) -> memoryview:
    """A file's bytes, mapped where that can be (a pipe cannot)."""
    with path.open("rb") as file:
        try:
            return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        except (ValueError, OSError):  # empty, or no regular file
            return memoryview(file.read())
