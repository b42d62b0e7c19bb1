"""The run: broker, stages, producers, then the stages wound down in the order in which data flows."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from schemas.errors import Setup
from tempotrace import broker, topics_admin
from tempotrace.broker.process import free_ports, port_is_free
from tempotrace.clockwork import Clock
from tempotrace.demo.crew import Child, Crew, Stage
from tempotrace.settings import DEFAULT_PORT, Settings, load

TENANT: Final = "demo"
NODES: Final = ("a", "b", "c", "d")
STAGES: Final = (
    ("merge", ("stream", "merge")),
    ("paths", ("stream", "paths")),
    ("diagnosis", ("stream", "diagnose")),
    ("incidents", ("stream", "incidents")),
    ("lake", ("sink", "lake")),
)
START_SECONDS_MAX: Final = 120.0  # the first start compiles the kernels
END_SECONDS_MAX: Final = 180.0


@dataclass(frozen=True)
class Plan:
    """What the demo runs. `own`: the user's own files by kind of producer."""

    lake: Path
    seconds: float = 10.0
    ranks: int = 64
    hosts: int = 8
    seed: int = 1
    kineto: tuple[Path, ...] = ()
    logs: tuple[Path, ...] = ()
    captures: tuple[Path, ...] = ()

    @property
    def own_files(self) -> tuple[Path, ...]:
        return (*self.kineto, *self.logs, *self.captures)


@dataclass
class Outcome:
    """What the processes reported."""

    scopes: dict[str, str] = field(default_factory=dict)  # what -> scope
    produced: dict[str, dict[str, Any]] = field(default_factory=dict)  # producer -> its result
    stages: dict[str, dict[str, Any]] = field(default_factory=dict)


Say = Callable[[str], None]
Look = Callable[[dict[str, float]], None]


def with_broker(settings: Settings, say: Say) -> tuple[Settings, bool]:
    """The broker that runs already, or the one that `broker start` would start; whether it was started here.

    It keeps its port, else takes the usual one; if that is taken by something else, a free one. Data that
    are gone from their folder leave the home's own.
    """
    folder = broker.default_folder(settings.home)
    if broker.status(folder).running:
        return load(None, None), False
    try:
        folder = broker.folder_to_start(settings.home)
    except Setup as error:
        folder = broker.own_folder(settings.home)
        say(f"{error}; the demo takes {folder}")
    usual = broker.last_port(folder) or DEFAULT_PORT
    if port_is_free(usual):
        say(f"starting Apache Kafka on port {usual}")
        broker.start(folder, home=settings.home)
    else:
        port = free_ports(1)[0]
        say(
            f"starting Apache Kafka on port {port}, since {usual} is taken "
            f"(`tempotrace broker start --port {usual}` moves it back)"
        )
        broker.start(folder, port=port, home=settings.home)
    return load(None, None), True


def run(plan: Plan, settings: Settings, clock: Clock, say: Say, look: Look) -> Outcome:
    """Run everything and wait until the lake has it all. Raises Setup if a process fails or hangs."""
    topics_admin.create(settings.kafka, [TENANT])
    stamp = f"{clock.now_ns_utc() // 1_000_000:x}"
    outcome = Outcome({"job": f"job-{stamp}", "mesh": f"mesh-{stamp}"})
    if plan.own_files:
        outcome.scopes["own"] = f"own-{stamp}"
    kafka = ["--tenant", TENANT, "--bootstrap-servers", settings.bootstrap]
    with Crew(settings.home / "demo" / stamp, settings.home, clock) as crew:
        say("starting the stages: merge, paths, diagnosis, incidents, lake")
        stages = {name: _stage(crew, name, command, kafka, plan, settings) for name, command in STAGES}
        for name, stage in stages.items():
            crew.until(stage.ready, START_SECONDS_MAX, f"{name} to be ready", None, stage.child)
        say(
            f"live: a mesh of {len(NODES)} node processes, and {plan.ranks} simulated GPUs on {plan.hosts} hosts "
            f"for {plan.seconds:.0f} s, one rank a straggler, one host's clock stepped"
        )
        live = [
            *_mesh(crew, plan, outcome, kafka),
            _job(crew, plan, outcome, kafka),
            *_own(crew, plan, outcome, kafka),
        ]

        def watch() -> None:
            merged, lake = stages["merge"], stages["lake"]
            look(
                {
                    "read": merged.sum("tempotrace_events_in_total") or 0.0,
                    "merged": merged.sum("tempotrace_events_out_total") or 0.0,
                    "stored": lake.sum("tempotrace_rows_written_total") or 0.0,
                    "findings": stages["diagnosis"].sum("tempotrace_findings_total") or 0.0,
                }
            )

        for child in live:
            outcome.produced[child.name] = crew.wait(child, plan.seconds + END_SECONDS_MAX, watch)
        say("winding down, each stage when its input is worked through")
        for name, stage in stages.items():
            crew.until(stage.idle, END_SECONDS_MAX, f"{name} to finish", watch, stage.child)
            outcome.stages[name] = crew.stop(stage.child)
    return outcome


def _stage(
    crew: Crew, name: str, command: Sequence[str], kafka: Sequence[str], plan: Plan, settings: Settings
) -> Stage:
    # The demo's topics may have been made anew since the lake was last written: that is no loss to anybody.
    more = ["--lake", str(plan.lake), "--accept-loss"] if name == "lake" else []
    child = crew.start(name, [*command, *kafka, *more])
    return Stage(child, settings.stages / f"{TENANT}-{name}-0.json")


def _mesh(crew: Crew, plan: Plan, outcome: Outcome, kafka: Sequence[str]) -> list[Child]:
    ports = dict(zip(NODES, free_ports(len(NODES)), strict=True))
    children = []
    for node in NODES:
        peers = [
            part
            for other in NODES
            if other != node
            for part in ("--peer", f"{other}=127.0.0.1:{ports[other]}")
        ]
        command = [
            "produce",
            "host",
            "--mesh",
            "--node",
            node,
            "--listen",
            f"127.0.0.1:{ports[node]}",
            *peers,
        ]
        command += ["--for", f"{plan.seconds:g}s", "--scope", outcome.scopes["mesh"], *kafka]
        children.append(crew.start(f"mesh-{node}", command))
    return children


def _job(crew: Crew, plan: Plan, outcome: Outcome, kafka: Sequence[str]) -> Child:
    command = ["produce", "sim", "--scenario", "straggler+clock-fault", "--seed", str(plan.seed), "--pace"]
    command += ["--ranks", str(plan.ranks), "--hosts", str(plan.hosts), "--seconds", f"{plan.seconds:g}"]
    command += ["--truth", str(crew.folder / "truth.json"), "--scope", outcome.scopes["job"], *kafka]
    return crew.start("job", command)


def _own(crew: Crew, plan: Plan, outcome: Outcome, kafka: Sequence[str]) -> list[Child]:
    """The user's own files, all in one scope, by the one command that reads several kinds side by side."""
    if not plan.own_files:
        return []
    command = ["produce", "files", *map(str, plan.own_files), "--scope", outcome.scopes["own"], *kafka]
    return [crew.start("own", command, forgiving=True)]
