"""What this machine has: each check answers with one line and never raises."""

import importlib.util
from collections.abc import Callable, Iterable, Mapping
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import NamedTuple

from packaging.requirements import Requirement

from producers.host import rdma_clock, verbs
from schemas import topics
from schemas.errors import TempoError
from sinks import units
from tempotrace import topics_admin
from tempotrace.broker import installed

OK, ABSENT, BAD = "ok", "absent", "bad"  # absent: we work without it


class Check(NamedTuple):
    """One line of the report."""

    name: str
    state: str
    text: str


def examine(kafka: Mapping[str, str], lake: Path | None = None) -> list[Check]:
    """All checks in order; `bad` ones keep TempoTrace from working here. With `lake` all its files are read."""
    return [
        _packages(),
        _guarded("java", lambda: str(installed.find_java())),
        _guarded("jars", lambda: str(installed.jars_folder())),
        *_cluster(kafka),
        _devices("ptp", Path("/dev").glob("ptp[0-9]*"), "hardware clocks", "clocks by software stamps only"),
        _rdma(),
        _module("pyverbs", "RDMA clocks and completions (extra rdma)"),
        _devices("gpu", Path("/dev").glob("nvidia[0-9]*"), "devices", "no live GPU telemetry"),
        _module("pynvml", "GPU telemetry (extra nvml)"),
        *(() if lake is None else (of_lake(lake),)),
    ]


def _packages() -> Check:
    problems = []
    try:
        lines = requires("tempotrace") or ()
    except PackageNotFoundError:
        text = "TempoTrace runs from its sources and is not installed, so what it needs is not known: `make setup`"
        return Check("packages", ABSENT, text)
    for line in lines:
        wanted = Requirement(line)
        if wanted.marker is not None and not wanted.marker.evaluate({"extra": ""}):
            continue
        try:
            if not wanted.specifier.contains(version(wanted.name)):
                problems.append(f"{wanted.name} {version(wanted.name)} is not {wanted.specifier}")
        except PackageNotFoundError:
            problems.append(f"{wanted.name} is missing")
    if problems:
        return Check("packages", BAD, f"{', '.join(problems)}: run `make setup`")
    return Check("packages", OK, "all Python packages are there")


def _guarded(name: str, find: Callable[[], str]) -> Check:
    try:
        return Check(name, OK, find())
    except TempoError as error:
        return Check(name, BAD, str(error))


def _cluster(kafka: Mapping[str, str]) -> list[Check]:
    try:
        found = topics_admin.Cluster(kafka, seconds=3).partitions()
    except TempoError as error:
        return [Check("broker", ABSENT, str(error)), Check("topics", ABSENT, "no broker to ask")]
    answers = Check("broker", OK, f"answers at {kafka['bootstrap.servers']}")
    wanted = topics.names([topics.schemas_topic(), *topics.tenant_topics(topics.DEFAULT_TENANT)])
    missing = [name for name in wanted if name not in found]
    if missing:
        text = f"{', '.join(missing)} missing: `tempotrace topics create`"
        return [answers, Check("topics", ABSENT, text)]
    return [answers, Check("topics", OK, f"those of the tenant {topics.DEFAULT_TENANT} are there")]


def _devices(name: str, found: Iterable[Path], plural: str, without: str) -> Check:
    names = sorted(path.name for path in found)
    if names:
        return Check(name, OK, f"{plural}: {', '.join(names)}")
    return Check(name, ABSENT, f"no {plural} here: {without}")


def _rdma() -> Check:
    """Devices by the kernel's list, and with pyverbs what each one's clock offers."""
    without = "no RDMA clocks or completions"
    try:
        found = rdma_clock.discover(verbs.Binding())
    except TempoError:
        return _devices("rdma", rdma_clock.SYSFS.glob("*"), "devices", without)
    if not found:
        return Check("rdma", ABSENT, f"no devices here: {without}")
    return Check("rdma", OK, f"devices: {', '.join(each.text() for each in found)}")


def of_lake(root: Path) -> Check:
    """Whether every file of a lake is as it was written."""
    try:
        count, bad = units.verify(root)
    except TempoError as error:
        return Check("lake", BAD, str(error))
    if not count:
        return Check("lake", ABSENT, f"{root} holds no units of a lake")
    if bad:
        more = f" (and {len(bad) - 1} more)" if len(bad) > 1 else ""
        return Check(
            "lake", BAD, f"{root}: {bad[0]}{more}; delete the unit with all later ones and sink again"
        )
    return Check("lake", OK, f"{count:,} units in {root}, every file as its checksum says")


def _module(name: str, purpose: str) -> Check:
    if importlib.util.find_spec(name) is None:
        return Check(name, ABSENT, f"not installed: {purpose}")
    return Check(name, OK, purpose)
