"""`tempotrace produce sim`: a simulated GPU job with faults whose truth is known."""

import json
import threading
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Annotated, Final

import typer

from producers.sim.cluster import paced, read
from producers.sim.faults import SCENARIOS
from producers.sim.options import BATCH_EVENTS_MAX, START_NS, SimOptions, SimReport
from schemas.batch import Batch
from schemas.errors import Setup, Usage, cause_of
from schemas.time import CLAIM_NS_MAX, OUTSIDE, parse_duration_ns, stamp_fits
from tempotrace.cli.feed import publish, run_live
from tempotrace.cli.options import DEFAULT_TENANT, Bootstrap, Json, KafkaProperties, Scope, Tenant, connect
from tempotrace.clockwork import WallClock, seeded

DEFAULTS: Final = SimOptions()


def register(app: typer.Typer) -> None:
    """Add the command to the group `produce`."""
    app.command(
        "sim",
        help="Simulate a GPU job: hosts, ranks, clocks, probes, and faults whose truth is known.\n\n"
        "Example: tempotrace produce sim --scenario straggler+clock-fault --seed 7 --truth truth.json",
    )(sim)


def sim(
    scenario: Annotated[
        str, typer.Option("--scenario", metavar="NAME", help=f"One of {', '.join(SCENARIOS)}.")
    ] = DEFAULTS.scenario,
    seed: Annotated[int, typer.Option("--seed", metavar="N", help="Decides all that falls by chance.")] = 1,
    ranks: Annotated[int, typer.Option("--ranks", metavar="N", help="Ranks (GPUs) in all.")] = DEFAULTS.ranks,
    hosts: Annotated[int, typer.Option("--hosts", metavar="N", help="Hosts.")] = DEFAULTS.hosts,
    seconds: Annotated[
        float, typer.Option("--seconds", metavar="S", help="Length of the job.")
    ] = DEFAULTS.seconds,
    fault: Annotated[
        list[str] | None,
        typer.Option(
            "--fault",
            metavar="SPEC",
            help="One more fault; repeatable: straggler:rank12:30%@2s, clock_step:host3:-250us@5s, "
            "clock_offset:host3:250us, slow_link:host2:4x@1s.",
        ),
    ] = None,
    step: Annotated[str, typer.Option("--step", metavar="TIME", help="Length of a training step.")] = "50ms",
    kernels: Annotated[
        int,
        typer.Option("--kernels", metavar="N", help="Compute kernels before each of a step's collectives."),
    ] = DEFAULTS.kernels,
    probe_interval: Annotated[
        str, typer.Option("--probe-interval", metavar="TIME", help="Between two probes of a pair of hosts.")
    ] = "100ms",
    clock_bound: Annotated[
        str,
        typer.Option("--clock-bound", metavar="TIME", help="Bound that every host clock states and keeps."),
    ] = "1us",
    with_int: Annotated[bool, typer.Option("--int", help="Add INT reports of the job's flows.")] = False,
    events: Annotated[
        int, typer.Option("--events", metavar="N", help="Scenario throughput: events.")
    ] = DEFAULTS.events,
    sources: Annotated[
        int, typer.Option("--sources", metavar="N", help="Scenario throughput: sources.")
    ] = DEFAULTS.sources,
    start: Annotated[
        str | None,
        typer.Option("--start", metavar="TIME", help="Begin: now, or TAI as 2026-01-01T00:00:00 (default)."),
    ] = None,
    pace: Annotated[
        bool, typer.Option("--pace", help="As live input: in real time from now on, with heartbeats.")
    ] = False,
    batch_events: Annotated[
        int, typer.Option("--batch-events", metavar="N", help="Most events of a batch.")
    ] = BATCH_EVENTS_MAX,
    truth: Annotated[
        Path | None,
        typer.Option("--truth", metavar="FILE", help="Write the faults (and flows) here as JSON."),
    ] = None,
    tenant: Tenant = DEFAULT_TENANT,
    scope: Scope = None,
    bootstrap: Bootstrap = None,
    kafka_properties: KafkaProperties = None,
    as_json: Json = False,
) -> None:
    """Send the simulation's events; the same options and seed give the same events."""
    clock = WallClock()
    options = SimOptions(
        scenario=scenario,
        seed=seed,
        hosts=hosts,
        ranks=ranks,
        seconds=seconds,
        step_ns=parse_duration_ns(step, "--step"),
        kernels=kernels,
        probe_ns=parse_duration_ns(probe_interval, "--probe-interval"),
        host_bound_ns=parse_duration_ns(clock_bound, "--clock-bound", 1, CLAIM_NS_MAX),
        faults=tuple(fault or ()),
        fabric=with_int,
        events=events,
        sources=sources,
        start_ns=start_ns_tai(start, pace, clock.now_ns_tai()),
        batch_events=batch_events,
        live=pace,
        tenant=tenant,
        scope=scope or "",
    )
    settings = connect(bootstrap, kafka_properties)
    report = SimReport()
    rng = seeded(options.seed)

    if pace:

        def work(send: Callable[[Batch], None], stop: threading.Event) -> None:
            told = paced(options, report, rng, stop, clock)
            for batch in told if truth is None else with_truth(told, report, truth):
                send(batch)

        run_live(
            work,
            report,
            settings,
            name=f"sim-{options.scope_name.replace('/', '-')}",
            tenant=tenant,
            scope=options.scope_name,
            clock_id="host0/ptp0",
            as_json=as_json,
        )
        return
    batches = read(options, report, rng)
    publish(
        batches if truth is None else with_truth(batches, report, truth),
        report,
        settings,
        tenant=tenant,
        scope=options.scope_name,
        as_json=as_json,
        what="the simulation",
    )


def start_ns_tai(text: str | None, pace: bool, now_ns: int) -> int:
    """`--start` in ns TAI. Raises Usage where it is no time, or a paced job should begin before now."""
    if text == "now" or (text is None and pace):
        return now_ns
    if text is None:
        return START_NS
    try:
        given = datetime.fromisoformat(text)
    except ValueError:
        raise Usage(f"--start {text}: write now, or a time on TAI such as 2026-01-01T00:00:00") from None
    if given.tzinfo is not None:
        raise Usage(f"--start {text}: the time is TAI and has no zone")
    ns = (given - datetime(1970, 1, 1)) // timedelta(microseconds=1) * 1000
    if not stamp_fits(ns):
        raise Usage(f"--start {text}: a {OUTSIDE}")
    if pace and ns < now_ns:
        raise Usage(f"--start {text} is over, so --pace has nothing to wait for; leave one of them out")
    return ns


def with_truth(batches: Iterator[Batch], report: SimReport, path: Path) -> Iterator[Batch]:
    """The batches; the truth is written to `path` as soon as it is decided. Raises Setup if it cannot be."""
    written = False
    for batch in batches:
        if not written:
            try:
                path.write_text(json.dumps(report.truth, indent=2) + "\n", encoding="utf-8")
            except OSError as error:
                raise Setup(f"the truth cannot be written to {path}: {cause_of(error)}") from None
            written = True
        yield batch
