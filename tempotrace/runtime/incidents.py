"""The Faust service that keeps incidents: `findings` in, `incidents` out, one table row an incident.

For each finding, in this order, and what a crash after each step costs:

    1. fold      nothing was done: the finding is read again
    2. output    acknowledged by the broker, but the row is not: the finding is read again, and the same bytes
                 are written once more (readers know a record by incident_id and its number of findings)
    3. row       acknowledged in the changelog: the finding is read again, the row tells that it was applied,
                 and nothing is written
    4. offset    committed: the finding is not read again

So a change of an incident is written at least once, and more than once only if killed between 2 and 3.
A row's key begins with the partition of its findings: Faust holds the rows of all partitions in one mapping,
but recovers and hands over each partition by itself.
"""

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from aiokafka.errors import KafkaError as ClientError

from schemas import topics
from schemas.codec import decode_record, encode_record
from schemas.errors import BrokerAway, MalformedInput, TempoError, UnknownSchema
from schemas.metrics import Value
from schemas.records import PAYLOAD_BYTES_MAX, DeadLetter, Finding, Incident, read
from streams.diagnosis.incidents import ABSENT, PRESENT, Shelf, fold, key_of
from tempotrace.clockwork import Clock, WallClock
from tempotrace.logs import quiet
from tempotrace.runtime.faust_kafka import App
from tempotrace.runtime.health import HealthServer, Probes
from tempotrace.runtime.incidents_input import Input
from tempotrace.runtime.meters import Meters
from tempotrace.runtime.stage import stopping

log = logging.getLogger(__name__)

STAGE: Final = "incidents"
KEEP_MS: Final = 3_600_000  # of append time, for resolved incidents
ROWS_MAX: Final = 20_000  # incidents of a partition
LOOK_SECONDS: Final = 2.0
# Faust's services log under the module of their class, ours too.
LIBRARIES: Final = ("faust", "mode", "aiokafka", "tempotrace.runtime.faust_kafka")


class Keeper:
    """Applies findings to the table, one at a time, and writes what changes."""

    def __init__(self, app: App, tenant: str, meters: Meters) -> None:
        self._tenant, self._meters = tenant, meters

        def raw(suffix: str) -> Any:
            return app.topic(topics.topic(tenant, suffix), key_serializer="raw", value_serializer="raw")

        self.findings, self._incidents, self._deadletter = (
            raw("findings"),
            raw("incidents"),
            raw("deadletter"),
        )
        # Faust names its changelog after the application and the table: topics.incidents_changelog.
        self._table = app.Table("incidents", key_type=bytes, value_type=bytes)
        assert self._table.changelog_topic.get_topic_name() == topics.incidents_changelog(tenant)
        self._shelves: dict[int, Shelf] = {}

    def dealt(self) -> None:
        """Partitions were dealt anew: what is known of rows is to be learned again from the table."""
        self._shelves.clear()

    async def take(self, message: Any) -> None:
        """Apply one record of `findings`. Raises what sending raises."""
        value: bytes = message.value or b""
        self._meters.add("records_read", 1, "findings")
        self._meters.add("bytes_read", len(value) + len(message.key or b""), "findings")
        try:
            finding = self._finding(value)
        except (MalformedInput, UnknownSchema) as error:
            reason = "malformed" if isinstance(error, MalformedInput) else "unknown_schema"
            self._meters.add("unreadable", 1, reason)
            await self._send(
                self._deadletter, message.partition, message.key, self._letter(message, reason, error)
            )
            return
        append_ms = round(message.timestamp * 1000)
        key = f"{message.partition}\0{key_of(finding)}".encode()
        row = self._table.get(key)
        before = None if row is None else read(Incident, decode_record(row))
        after = fold(before, finding, append_ms)
        if after is None or after is before:
            self._meters.add("findings_skipped", 1)
            return
        row = encode_record(after)
        headers = {
            topics.HEADER_SCOPE: after.scope.encode(),
            topics.HEADER_FAMILY: b"incident",
            topics.HEADER_COUNT: b"1",
        }
        out_key = f"{after.scope}/{after.component}".encode()
        await self._send(self._incidents, message.partition, out_key, row, headers)
        shelf = await self._shelf(message.partition, append_ms)
        await self._keep(message.partition, key, row)
        await self._let_go(message.partition, shelf.touch(key, after.state == "resolve", append_ms))
        self._meters.add("incidents", 1, after.state)

    async def _keep(self, partition: int, key: bytes, row: bytes | None) -> None:
        """Set a row, or remove it, and wait until the brokers have it.

        Setting it in Faust's way leaves the changelog to a buffer, whose flush before a commit gives up after a
        tenth of a second: then an offset may be committed whose row is nowhere.
        """
        sent = await self._table.changelog_topic.send(key=key, value=row, partition=partition)
        await sent
        if row is None:
            self._table.data.pop(key, None)
        else:
            self._table.data[key] = row

    async def _let_go(self, partition: int, keys: Sequence[bytes]) -> None:
        for key in keys:
            await self._keep(partition, key, None)

    def _finding(self, value: bytes) -> Finding:
        decoded = decode_record(value)
        if decoded["_type"] != Finding.__name__:
            raise MalformedInput(f"a {decoded['_type']} where a finding was expected")
        finding = read(Finding, decoded)
        if finding.tenant != self._tenant:
            raise MalformedInput(f"a finding of tenant {finding.tenant!r}")
        if finding.state not in (PRESENT, ABSENT):
            raise MalformedInput(f"a finding in state {finding.state!r}")
        return finding

    def _letter(self, message: Any, reason: str, error: TempoError) -> bytes:
        return encode_record(
            DeadLetter(
                tenant=self._tenant,
                reason=reason,
                detail=str(error),
                topic="findings",
                partition=message.partition,
                offset=message.offset,
                append_ms=round(message.timestamp * 1000),
                events=0,
                payload=(message.value or b"")[:PAYLOAD_BYTES_MAX],
            )
        )

    async def _send(
        self,
        topic: Any,
        partition: int,
        key: bytes | None,
        value: bytes,
        headers: Mapping[str, bytes] | None = None,
    ) -> None:
        """Write a record, and wait until the brokers have it."""
        sent = await topic.send(key=key, value=value, partition=partition, headers=headers)
        await sent
        suffix = topics.suffix_of(topic.get_topic_name(), self._tenant)
        self._meters.add("records_written", 1, suffix)
        self._meters.add("bytes_written", len(value) + len(key or b""), suffix)

    async def _shelf(self, partition: int, append_ms: int) -> Shelf:
        """The partition's rows; as good as new for those that another worker, or an earlier run, left."""
        shelf = self._shelves.get(partition)
        if shelf is None:
            shelf = self._shelves[partition] = Shelf(KEEP_MS, ROWS_MAX)
            mine = b"%d\0" % partition
            for key, row in [(key, row) for key, row in self._table.items() if key.startswith(mine)]:
                resolved = decode_record(row)["state"] == "resolve"
                await self._let_go(partition, shelf.touch(key, resolved, append_ms))
        return shelf


class Service:
    """One run of the service, inside an event loop."""

    def __init__(
        self, kafka: Mapping[str, str], tenant: str, instance: int, home: Path, clock: Clock, taken: Input
    ) -> None:
        self._tenant, self._clock, self._input = tenant, clock, taken
        self.meters = Meters()
        self.turned = clock.monotonic()
        self._started = False
        self._ends: dict[int, int] = {}  # as the broker told last
        name = topics.incidents_app(tenant)
        self.app = App(name, kafka, instance, home, topics.topic(tenant, "findings"))
        self.keeper = Keeper(self.app, tenant, self.meters)
        self.app.agent(self.keeper.findings, name=STAGE)(self._agent)
        self.app.on_partitions_revoked.connect(self._dealt)
        self.app.on_partitions_assigned.connect(self._dealt)

    async def _dealt(self, *_: Any, **__: Any) -> None:
        self.keeper.dealt()

    async def _agent(self, stream: Any) -> AsyncIterator[None]:
        # Faust acknowledges a record even where its agent fails or is cancelled; what is done is told by hand.
        async for event in stream.noack().events():
            try:
                await self.keeper.take(event.message)
            except Exception as error:
                self.app.fail(error)
                await asyncio.Event().wait()  # until the service is stopped
            self.app.progress.done(event.message.partition, event.message.offset)
            yield

    async def run(self, drain: bool, stopped: asyncio.Event) -> None:
        """Serve until stopped or drained. Raises what went wrong."""
        ends = self._input.ends() if drain else {}
        starting = asyncio.ensure_future(self.app.start())
        waiting: list[asyncio.Future[Any]] = [
            asyncio.ensure_future(stopped.wait()),
            asyncio.ensure_future(self._crash()),
            self.app.failed,
        ]
        watching = asyncio.ensure_future(self._watch())
        try:
            await _first(starting, *waiting)
            if starting.done() and not stopped.is_set():
                starting.result()
                self._started = True
                log.info("%s incidents: ready", self._tenant)
                if drain:
                    waiting.append(asyncio.ensure_future(self.app.reached(ends)))
                await _first(*waiting)
        finally:
            self._started = False
            for task in (starting, watching, *waiting):
                task.cancel()
            await self.app.stop()

    async def _crash(self) -> None:
        """Raise what made Faust crash, when it does."""
        await self.app._crashed.wait()
        raise self.app.crash_reason or AssertionError("Faust crashed without a reason")

    async def _watch(self) -> None:
        """Turn with the loop, and say once when the broker goes away and when it is back."""
        away = False
        while True:
            self.turned = self._clock.monotonic()
            self.meters.set("partitions", len(self.app.progress.positions()))
            try:
                await asyncio.get_running_loop().run_in_executor(None, self._look)
            except TempoError as error:
                if not away:
                    log.warning("waiting: %s", error)
                away = True
            else:
                if away:
                    log.info("the broker is back")
                away = False
            await asyncio.sleep(LOOK_SECONDS)

    def _look(self) -> None:
        self._ends = self._input.ends(stable=True)

    @property
    def ready(self) -> bool:
        """Whether the table is recovered and all partitions in hand are being read."""
        return self._started and self.app.reading

    def lag(self) -> dict[tuple[str, ...], int]:
        """Records between what is worked through and the last stable offset, by partition."""
        with suppress(TempoError):  # the broker is away: by what it told last
            self._look()
        at = self.app.progress.positions()
        return {
            ("findings", str(partition)): max(0, self._ends.get(partition, 0) - offset)
            for partition, offset in at.items()
        }


async def _first(*tasks: "asyncio.Future[Any]") -> None:
    """Wait until one ends; raises what it raised."""
    done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in done:
        task.result()


def run_incidents(
    kafka: Mapping[str, str],
    tenant: str,
    instance: int,
    home: Path,
    *,
    drain: bool = False,
    accept_loss: bool = False,
    clock: Clock | None = None,
    stop: threading.Event | None = None,
) -> dict[str, Value]:
    """Run the service until it is stopped or has drained; what it counted, by metric name.

    `home` gets the file with the port of the health page (`stages/`), and Faust's own folder. Without `stop`,
    SIGTERM and SIGINT stop the service; that needs the main thread.
    Raises MissingTopic, LostInput, BrokerAway.
    """
    if stop is None:
        with stopping() as stop:
            return run_incidents(
                kafka, tenant, instance, home, drain=drain, accept_loss=accept_loss, clock=clock, stop=stop
            )
    clock = clock or WallClock()
    taken = Input(kafka, tenant)
    taken.check(accept_loss)
    # The libraries' loggers speak only where debugging was asked for: what matters is said by us.
    with quiet(() if log.isEnabledFor(logging.DEBUG) else LIBRARIES):
        try:
            return asyncio.run(_serve(kafka, tenant, instance, home, drain, clock, stop, taken))
        except (ClientError, ConnectionError) as error:
            raise BrokerAway(f"{kafka['bootstrap.servers']}: {error or type(error).__name__}") from error
        finally:
            stop.set()  # lets go of the thread that waits for it


async def _serve(
    kafka: Mapping[str, str],
    tenant: str,
    instance: int,
    home: Path,
    drain: bool,
    clock: Clock,
    stop: threading.Event,
    taken: Input,
) -> dict[str, Value]:
    loop = asyncio.get_running_loop()
    stopped = asyncio.Event()

    def wait() -> None:
        stop.wait()
        if not loop.is_closed():
            loop.call_soon_threadsafe(stopped.set)

    threading.Thread(target=wait, name="stop", daemon=True).start()
    home.mkdir(parents=True, exist_ok=True)
    service = Service(kafka, tenant, instance, home / "faust", clock, taken)
    probes = Probes(service.meters, lambda: service.ready, lambda: service.turned, service.lag)
    with HealthServer(home / "stages", tenant, STAGE, instance, probes, clock) as health:
        log.info("%s incidents: metrics on http://127.0.0.1:%d", tenant, health.port)
        await service.run(drain, stopped)
    return service.meters.values()
