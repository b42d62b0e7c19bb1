"""What every `produce` command does with its producer: send, show progress, stop cleanly, report."""

import logging
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any, Final, Protocol

from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from producers.copies import Copies
from producers.live import LivePublisher
from producers.message import Item
from producers.publisher import KafkaTransport, Publisher
from producers.spool import Spool
from schemas import topics
from schemas.batch import Batch
from schemas.errors import BrokerAway, MalformedInput
from tempotrace.cli.options import console as plain_console
from tempotrace.cli.options import emit
from tempotrace.clockwork import WallClock, new_incarnation
from tempotrace.runtime.health import HealthServer, Probes
from tempotrace.runtime.meters import Meters
from tempotrace.scopes import Registration, registered, registrations
from tempotrace.settings import Settings
from tempotrace.used import NothingUsed, require

LIVE_PATIENCE_SECONDS: Final = 5.0

log = logging.getLogger(__name__)


class Report(Protocol):
    """What is asked of a producer's report (producers.report.Report has it)."""

    skipped: dict[str, int]
    warnings: list[str]

    def unused(self) -> dict[str, int]: ...

    def fields(self) -> dict[str, Any]: ...


@contextmanager
def stop_signals() -> Iterator[threading.Event]:
    """An event that SIGINT and SIGTERM set. A second signal acts as if nobody had asked for the first."""
    stop = threading.Event()
    before: dict[int, Any] = {}

    def restore() -> None:
        while before:
            number, handler = before.popitem()
            signal.signal(number, handler)

    def asked(number: int, _frame: FrameType | None) -> None:
        stop.set()
        restore()

    for number in (signal.SIGINT, signal.SIGTERM):
        before[number] = signal.signal(number, asked)
    try:
        yield stop
    finally:
        restore()


def publish(
    batches: Iterator[Item] | Callable[[threading.Event], Iterator[Item]],
    report: Report,
    settings: Settings,
    *,
    tenant: str,
    scope: str,
    as_json: bool = False,
    what: str = "input",
) -> None:
    """Send all batches of a producer that reads to an end, and print the command's result.

    `scope` may be empty where the producer finds it from the content.

    Interrupted: what was read so far is sent, then exit 130. A producer given as a function gets the event
    that a signal sets, and then ends by itself. Raises BrokerAway, MissingTopic and whatever the producer
    raises; what was sent before stays sent, and a second run repeats it harmlessly. Raises NothingUsed if no
    event was made of the input.
    """
    publisher = Publisher(KafkaTransport(settings.kafka))
    with stop_signals() as stop:
        try:
            if callable(batches):
                _send_all(batches(stop), report, publisher, None, what)
            else:
                _send_all(batches, report, publisher, stop, what)
            publisher.close()
        except BaseException as error:
            publisher.abandon()
            if isinstance(error, MalformedInput) and not publisher.events:
                raise NothingUsed(what, report.warnings or [str(error)], _result(report)) from error
            raise
    sent = {"events": publisher.acked, "batches": publisher.batches}
    result = sent | _result(report) | {"tenant": tenant, "scope": scope or publisher.scope}
    if stop.is_set():
        result["stopped"] = True
    else:
        require(publisher.events, what, report.warnings, result)
    emit(result, as_json, lambda: _say(result))
    if stop.is_set():
        # Not typer.Exit: that is how typer tells of an interrupt of which nothing was said yet.
        sys.exit(130)


def _result(report: Report) -> dict[str, Any]:
    return {"skipped": dict(report.skipped), **report.fields()}


def run_live(
    work: Callable[[Callable[[Item], None], threading.Event], None],
    report: Report,
    settings: Settings,
    *,
    name: str,
    tenant: str,
    scope: str,
    clock_id: str,
    seconds: float | None = None,
    continues: bool = False,
    copies: Copies | None = None,
    loop: "LoopClock | None" = None,
    as_json: bool = False,
) -> None:
    """Run a live producer until SIGINT, SIGTERM or `seconds`, through the spool, and print the result.

    `name`, unique among a tenant's live producers on this machine, names the spool: two runs of one name
    exclude each other, and the next takes over what a killed one left. `clock_id` is the clock of the
    events' stamps. Without a broker they wait in the spool. Raises MissingTopic at the start, Setup if the
    disk refuses, and what `work` raises. `continues`: see LivePublisher. `copies`
    gives what of the batches goes to other scopes, too. `loop`: the clock that `work` waits by, if it may wait
    for long without a batch; its warnings come at once all the same.
    """
    transport = KafkaTransport(settings.kafka, patience_s=LIVE_PATIENCE_SECONDS)
    try:
        transport.check(topics.topic(tenant, "events"))
    except BrokerAway as error:
        log.warning("events wait in the spool: %s", error)
    spool = Spool(settings.home / "spool" / f"{tenant}-{name}")
    for reason, lost in spool.damage.items():
        log.warning("%d bytes of the spool could not be used: %s", lost, reason)
    clock = WallClock()
    watched = Watched(LivePublisher(spool, transport, clock, continues=continues), report, clock)
    live = watched.live
    if loop is not None:
        loop.turned = watched.look
    health = HealthServer(settings.stages, tenant, f"produce-{name}", 0, watched.probes, clock)
    with (
        stop_signals() as stop,
        registered(settings.scopes, [Registration(tenant, scope, clock_id, name)]),
        health,
    ):
        live.start()
        timer = threading.Timer(threading.TIMEOUT_MAX if seconds is None else seconds, stop.set)
        timer.daemon = True
        timer.start()
        try:
            work(watched.emit if copies is None else watched.copying(copies), stop)
        finally:
            timer.cancel()
            waiting = live.close(LIVE_PATIENCE_SECONDS)
            watched.look()
    result = {
        "events": live.produced,
        "batches": live.sender.batches,
        "skipped": dict(report.skipped),
        "dropped": dict(live.lost),
        "unreadable": live.sender.unreadable,
        "waiting": waiting,
        "tenant": tenant,
        "scope": scope,
        **report.fields(),
    }
    if copies is not None:
        result["copied"] = copies.events
    if live.sender.unreadable:
        log.warning(
            "%d entries of %s were written by another version and could not be sent",
            live.sender.unreadable,
            spool.folder,
        )
    if waiting:
        log.warning("%d batches wait in %s for the next start", waiting, spool.folder)
    emit(result, as_json, lambda: _say(result))


class LoopClock(WallClock):
    """A clock that says when a loop is about to wait by it."""

    def __init__(self) -> None:
        self.turned: Callable[[], None] = lambda: None

    def wait(self, event: threading.Event, seconds: float) -> bool:
        self.turned()
        return super().wait(event, seconds)


class Watched:
    """A live publisher whose counters are exported, and whose producer's warnings are logged as they come."""

    def __init__(self, live: LivePublisher, report: Report, clock: WallClock) -> None:
        self.live = live
        self._report = report
        self._clock = clock
        self._meters = Meters()
        self._told = 0
        self._turned = clock.monotonic()
        self.probes = Probes(self._meters, lambda: True, lambda: self._turned)

    def emit(self, item: Item) -> None:
        """Take an item of the producer."""
        self.live.emit(item)
        if isinstance(item, Batch):
            self._meters.add("produced_batches", 1, item.family)
            if item.family != "control":
                self._meters.add("produced_events", item.count, item.family)
        self.look()

    def copying(self, copies: Copies) -> Callable[[Item], None]:
        """`emit`, and the copies of each batch after it."""

        def emit_all(item: Item) -> None:
            self.emit(item)
            if isinstance(item, Batch):
                for copy in copies.take(item, self._clock.monotonic()):
                    self.emit(copy)

        return emit_all

    def look(self) -> None:
        """Bring counters and log up to date."""
        self._told = tell(self._report, self._told)
        self._turned = self._clock.monotonic()
        self._meters.show_tasks(
            {
                "acked_events": self.live.sender.acked,
                "heartbeats_skipped": self.live.heartbeats_skipped,
                "spool_bytes": self.live.spool_bytes,
                "spool_dropped": {(reason,): count for reason, count in dict(self.live.lost).items()},
                "skipped": {(reason,): count for reason, count in self._report.unused().items()},
            }
        )


def copies_of(
    host: str, tenant: str, own: str, settings: Settings, more_scopes: Sequence[str] = ()
) -> Copies:
    """Copies of a host's clock samples: to every scope of the tenant that a live producer of this machine has
    registered for a clock of the host, and to `more_scopes`.
    """

    def wanted() -> list[str]:
        found = [
            each.scope
            for each in registrations(settings.scopes)
            if each.tenant == tenant and each.clock.startswith(f"{host}/")
        ]
        return [scope for scope in (*found, *more_scopes) if scope != own]

    return Copies(wanted, new_incarnation)


def _send_all(
    batches: Iterator[Item], report: Report, publisher: Publisher, stop: threading.Event | None, what: str
) -> None:
    console = plain_console(stderr=True)
    bar = Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        TextColumn("{task.completed:,.0f} events"),
        TimeElapsedColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )
    told = 0
    with bar:
        task = bar.add_task(f"Reading {what}", total=None)
        for batch in batches:
            publisher.send(batch)
            bar.update(task, completed=publisher.events)
            if publisher.events:  # else it may turn out that nothing can be used, and that is one line
                told = tell(report, told)
            if stop is not None and stop.is_set():
                break
    if publisher.events or (stop is not None and stop.is_set()):
        tell(report, told)


def tell(report: Report, told: int) -> int:
    """Log the warnings after the first `told`; how many there are now."""
    for line in report.warnings[told:]:
        log.warning("%s", line)
    return len(report.warnings)


def _say(result: Mapping[str, Any]) -> None:
    scope = f"scope {result['scope']} of " if result["scope"] else ""  # unknown if nothing was read yet
    print(
        f"{result['events']:,} events in {result['batches']:,} batches sent to {scope}tenant {result['tenant']}."
    )
    for reason, count in sorted(result["skipped"].items()):
        print(f"  skipped {count:,}: {reason}")
    for reason, count in sorted(result.get("dropped", {}).items()):
        print(f"  dropped {count:,}: {reason}")
    if result.get("stopped"):
        print("  stopped before the end of the input")
