"""Running one stage as a process: signals, warm-up, the runner, its outlet and its health page."""

import logging
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from schemas import topics
from schemas.metrics import Value
from schemas.processor import Outlet, Processor
from tempotrace.clockwork import Clock, WallClock
from tempotrace.runtime.health import HealthServer, Probes
from tempotrace.runtime.kafka_log import KafkaLog, Member
from tempotrace.runtime.meters import Meters
from tempotrace.runtime.runner import Runner, RunnerSettings
from tempotrace.runtime.transactions import TransactionOutlet
from tempotrace.topics_admin import check_exist

log = logging.getLogger(__name__)

MakeOutlet = Callable[[KafkaLog, Meters], Outlet]


@contextmanager
def stopping() -> Iterator[threading.Event]:
    """An event that SIGTERM or SIGINT sets; a second signal ends the process as usual."""
    stop = threading.Event()
    before = {each: signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGINT)}

    def ask(number: int, _: object) -> None:
        log.info("%s: committing what is in hand", signal.Signals(number).name)
        stop.set()
        signal.signal(number, before[signal.Signals(number)])

    for each in before:
        signal.signal(each, ask)
    try:
        yield stop
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


def run_stage(
    processor: Processor,
    kafka: Mapping[str, str],
    tenant: str,
    instance: int,
    folder: Path,
    settings: RunnerSettings,
    *,
    make_outlet: MakeOutlet | None = None,
    compression: str = "none",
    clock: Clock | None = None,
    stop: threading.Event | None = None,
) -> dict[str, Value]:
    """Run a stage until it is stopped or has drained; what it counted and committed, by metric name.

    `make_outlet` gives another outlet than Kafka transactions (then set `settings.commits_for_lag`); it is
    handed the log, which knows topic ids. `folder` gets the file with the port of the health page. Without
    `stop`, SIGTERM and SIGINT stop the stage; that needs the main thread.
    """
    if stop is None:
        with stopping() as stop:
            return run_stage(
                processor, kafka, tenant, instance, folder, settings,
                make_outlet=make_outlet, compression=compression, clock=clock, stop=stop,
            )  # fmt: skip
    clock = clock or WallClock()
    written = [] if make_outlet else [*processor.outputs, "state"]
    needed = dict.fromkeys([*processor.inputs, *written, "deadletter"])
    check_exist(kafka, [topics.topic(tenant, each) for each in needed])
    warm_up = getattr(processor, "warm_up", None)
    if warm_up is not None:
        # Compiling takes seconds: a member that is not reading yet would hold its partitions up.
        warm_up()
    meters = Meters()
    kafka_log = KafkaLog(kafka, Member(tenant, processor.name, instance), processor.inputs, clock)
    if make_outlet is not None:
        outlet = make_outlet(kafka_log, meters)
    else:
        outlet = TransactionOutlet(kafka_log, processor.inputs, processor.joins, clock, compression)
    runner = Runner(processor, kafka_log, outlet, settings, clock, stop, meters)

    def lag() -> dict[tuple[str, ...], int]:
        places = list(positions := runner.positions)
        ends = kafka_log.ends(places, stable=True)
        return {
            (topic, str(partition)): max(0, end - positions[topic, partition])
            for (topic, partition), end in zip(places, ends, strict=True)
        }

    probes = Probes(runner.meters, lambda: runner.ready, lambda: runner.turned, lag)
    with HealthServer(folder, tenant, processor.name, instance, probes, clock) as health:
        log.info("%s %s: metrics on http://127.0.0.1:%d", tenant, processor.name, health.port)
        runner.run()
    return runner.meters.values()
