"""The reader of one log: lines in, rows out, and an account of every line. No I/O.

Every line is counted once: as *parsed* under the form of the grammar that it has, as *ignored* under what
it is (it is understood, and says nothing about a clock), or as *unknown*. Nothing is guessed from a line's
place or neighbours but what belongs to it by its format: the lines of one reply, the rest of a klog message
of several lines, the grandmaster that ptp4l named last.

Most lines of most logs are servo lines of linuxptp with its own prefix. One expression takes them whole,
ahead of the grammar proper, which gives the same for them (a test compares the two)."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from producers.host import blocks, chrony, linuxptp, openshift, prefix
from producers.host.boots import Boots
from producers.host.reading import BOOT, LINE, NS, SYSTEM, Kind, Reading, Stamp
from schemas.time import STAMP_NS_MAX

KNOWN_MAX: Final = 10_000  # beginnings of servo lines that are remembered
SAMPLES_MAX: Final = 5  # shapes of unknown lines that are kept to be shown
_HOT = re.compile(
    r"(?P<daemon>ptp4l|phc2sys|ts2phc)\[(?P<second>\d{1,9})\.(?P<milli>\d{3})\]: "
    r"(?:\[(?P<tag>[^\[\]:]{1,100})(?::\d)?\] )?"
    r"(?:(?!(?:master|phc|sys|pps|rms|offset|port) )(?P<name>[^\s:]+) )?(?:(?P<word>master|phc|sys|pps) )?"
    r"offset +(?P<offset>-?\d{1,18}) s(?P<state>[0-3]) freq +(?P<freq>[+-]?\d{1,8})"
    r"(?: +(?:path )?delay +(?P<delay>-?\d{1,18}))?(?: (?P<holdover>holdover))?\s*",
    re.A,
)
_Hot = tuple[str, str | None, str | None, bool]  # form, clock, parent, whether the parent is of this host
_SHAPE = re.compile(r"\d+")
_BARE_FORMS = (".servo", ".summary", ".port", ".best_master", ".clockcheck")


class Row(NamedTuple):
    """A reading with where it comes from. `host` is None where the line names none."""

    line: int
    host: str | None
    daemon: str
    tag: str | None
    stamp: Stamp
    reading: Reading


class Grammar:
    """Feed it the lines of one file in order. `near_ns` (Unix) tells the year where lines have none.

    `parsed`, `ignored` count lines by form, `unknown` those not understood, `samples` shows some of these;
    `boots` holds what the log says about each host's boot time (None: the host that no line names).
    """

    def __init__(self, near_ns: int | None = None) -> None:
        self.total = 0
        self.parsed: Counter[str] = Counter()
        self.ignored: Counter[str] = Counter()
        self.unknown = 0
        self.samples: list[str] = []
        self.boots: dict[str | None, Boots] = {}
        self.near_ns = near_ns
        self._shapes: set[str] = set()
        self._masters: dict[tuple[str | None, str], str] = {}
        self._hot: dict[tuple[str, str | None, str | None, str | None], _Hot] = {}
        self._block: tuple[blocks.Block, str | None, Stamp | None, int] | None = None
        self._klog = False  # inside the text of a klog message
        self._klog_stamp: Stamp | None = None
        self._before: tuple[str | None, int] | None = None  # host and stamp since boot of the line before

    def feed(self, lines: Iterable[str]) -> Iterator[Row]:
        """The rows of the next lines. A line's end does not matter."""
        hot, known, parsed, new = _HOT.fullmatch, self._hot, self.parsed, tuple.__new__
        boots = self.boots.setdefault(None, Boots())
        before = -1  # the stamp of the line before, if it was taken here
        in_block = self._block is not None
        number = self.total
        for number, line in enumerate(lines, self.total + 1):
            match = hot(line)
            if match is not None and not in_block:
                daemon, second, milli, tag, name, word, offset, state, freq, delay, holdover = match.groups()
                form, clock, parent, here = known.get((daemon, tag, name, word)) or self._learn(
                    daemon, tag, name, word
                )
                if clock is not None:
                    boot_ns = int(second + milli) * 1_000_000
                    parsed[form] += 1
                    if before < 0:
                        boots.see(number, boot_ns)
                    elif boot_ns < before:
                        boots.see(number - 1, before)
                        boots.see(number, boot_ns)
                    before = boot_ns
                    # Made as the plain tuples that they are, at half the cost.
                    reading = new(Reading, (
                        Kind.SERVO, form, clock, parent, here, int(offset),
                        None if delay is None else int(delay), float(freq), None, None, int(state),
                        holdover, (),
                    ))  # fmt: skip
                    yield new(
                        Row, (number, None, daemon, tag, new(Stamp, (BOOT, boot_ns, 1_000_000)), reading)
                    )
                    continue
            if before >= 0:
                boots.see(number - 1, before)
                self._klog, self._before, before = False, (None, before), -1
            self.total = number
            yield from self._line(line)
            in_block = self._block is not None
        self.total = number
        if before >= 0:
            boots.see(self.total, before)
            self._klog, self._before = False, (None, before)

    def _learn(self, daemon: str, tag: str | None, name: str | None, word: str | None) -> _Hot:
        """What is the same in all servo lines with this beginning, as the grammar proper has it."""
        sample = linuxptp.servo(daemon, tag, name, word, 0, 2, 0.0, None, False)
        if sample is None:
            return "", None, None, True
        parent, here = sample.parent, sample.parent_here
        master = self._masters.get((None, sample.clock or ""))
        if parent is None and master is not None:
            parent, here = master, False
        if len(self._hot) >= KNOWN_MAX:
            self._hot.clear()
        found = self._hot[daemon, tag, name, word] = (sample.form, sample.clock, parent, here)
        return found

    def finish(self) -> Iterator[Row]:
        """What the last lines left open."""
        yield from self._close()

    def _line(self, raw: str) -> Iterator[Row]:
        line = prefix.clean(raw)
        if self._block is not None:
            if line and self._block[0].take(line):
                self.parsed[self._block[0].form] += 1
                return
            yield from self._close()
        before, self._before = self._before, None
        if not line:
            self.ignored["blank"] += 1
            return
        if (entry := prefix.klog(line, self.near_ns)) is not None:
            yield from self._klog_line(entry, before)
            return
        if (found := prefix.parse(line)) is not None:
            yield from self._daemon_line(found, line)
            return
        if (dated := chrony.log_line(line)) is not None:
            self._klog = False
            self._near(dated[0])
            yield self._row(None, "chronyd", None, *dated)
            return
        if (block := blocks.opens(line)) is not None:
            stamp = self._klog_stamp if self._klog else None
            self._block = (block, None, stamp, self.total)
            self.parsed[block.form] += 1
            return
        yield from self._plain(line)

    def _klog_line(self, entry: prefix.Klog, before: tuple[str | None, int] | None) -> Iterator[Row]:
        self._klog, self._klog_stamp = True, entry.stamp
        if before is not None and entry.stamp is not None and before[0] is None:
            self.boots[None].pair(self.total, before[1], entry.stamp.ns)
        inner = prefix.parse(entry.body)
        if inner is not None and inner.stamp is not None and inner.stamp.clock == SYSTEM:
            reading = openshift.message(inner.daemon, inner.tag, inner.body)
            if reading is not None:
                self._near(inner.stamp)
                yield self._row(None, inner.daemon, inner.tag, inner.stamp, reading)
                return
        self.ignored[f"klog.{entry.file}"] += 1

    def _daemon_line(self, found: prefix.Prefix, line: str) -> Iterator[Row]:
        self._klog = False
        host, stamp = found.host, found.stamp
        if stamp is not None:
            self._near(stamp)
            if stamp.clock == BOOT:
                self.boots.setdefault(host, Boots()).see(self.total, stamp.ns)
                self._before = (host, stamp.ns)
        said = self._message(found)
        if isinstance(said, Reading):
            yield self._row(host, found.daemon, found.tag, stamp, said)
        elif said is not None:
            self.ignored[said] += 1
        else:
            self._not_understood(line)

    @staticmethod
    def _message(found: prefix.Prefix) -> Reading | str | None:
        if found.daemon == "chronyd":
            return chrony.daemon_message(found.body)
        return openshift.message(found.daemon, found.tag, found.body) or linuxptp.message(
            found.daemon, found.tag, found.body
        )

    def _plain(self, line: str) -> Iterator[Row]:
        """A line without prefix: chronyc's tables, linuxptp of old, the rest of a klog message."""
        if (row := chrony.csv_line(line)) is not None:
            yield self._row(None, "chronyc", None, *row)
            return
        if (reading := blocks.table_row(line)) is not None:
            yield self._row(None, "chronyc", None, None, reading)
            return
        daemon = "phc2sys" if " phc offset " in f" {line}" or " sys offset " in f" {line}" else "ptp4l"
        said = linuxptp.message(daemon, None, line)
        if isinstance(said, Reading) and said.form.endswith(_BARE_FORMS):
            self._klog = False
            yield self._row(None, daemon, None, None, said)
        elif chrony.is_banner(line):
            self.ignored["chrony.heading"] += 1
        elif blocks.is_request(line):
            self.ignored["pmc.request"] += 1
        elif self._klog:
            self.ignored["klog.text"] += 1
        elif blocks.is_heading(line):
            self.ignored["chronyc.heading"] += 1
        else:
            self._not_understood(line)

    def _row(
        self, host: str | None, daemon: str, tag: str | None, stamp: Stamp | None, reading: Reading
    ) -> Row:
        self.parsed[reading.form] += 1
        return self._make(self.total, host, daemon, tag, stamp, reading)

    def _make(
        self, line: int, host: str | None, daemon: str, tag: str | None, stamp: Stamp | None, reading: Reading
    ) -> Row:
        if reading.clock is not None and reading.clock.startswith("ptp:"):
            key = (host, reading.clock)
            if reading.form.endswith(".best_master"):
                # ptp4l that selects its own clock has no parent any more.
                if reading.parent is None:
                    self._masters.pop(key, None)
                else:
                    self._masters[key] = reading.parent
                self._hot.clear()
            elif reading.parent is None and reading.offset_ns is not None and key in self._masters:
                reading = reading._replace(parent=self._masters[key], parent_here=False)
        return Row(line, host, daemon, tag, stamp or Stamp(LINE, line, 1), reading)

    def _close(self) -> Iterator[Row]:
        if self._block is None:
            return
        block, host, stamp, line = self._block
        self._block = None
        closed = block.close()
        if closed is not None:
            own, reading = closed
            yield self._make(line, host, block.form.split(".")[0], None, own or stamp, reading)

    def _near(self, stamp: Stamp) -> None:
        if stamp.clock == SYSTEM and prefix.UPTIME_S_MAX * NS <= stamp.ns <= STAMP_NS_MAX:
            self.near_ns = stamp.ns

    def _not_understood(self, line: str) -> None:
        self.unknown += 1
        if len(self.samples) < SAMPLES_MAX:
            shape = _SHAPE.sub("0", line)[:80]
            if shape not in self._shapes:
                self._shapes.add(shape)
                self.samples.append(line[:160])
