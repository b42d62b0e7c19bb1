"""What a measurement ran on: processor, memory, kernel, versions, and how busy the machine was already."""

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final

from schemas.errors import Setup
from tempotrace.broker import installed

PACKAGES: Final = ("tempotrace", "confluent-kafka", "numpy", "numba", "fastavro", "pyarrow", "duckdb")
_TICKS_PER_SECOND: Final = os.sysconf("SC_CLK_TCK")


def facts() -> dict[str, Any]:
    """The machine as JSON can tell it; `memory_bytes` is all it has, the load that of 1, 5 and 15 minutes."""
    return {
        "cpu": _cpu_model(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "kernel": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "load_average": [round(load, 2) for load in os.getloadavg()],
    }


def versions() -> dict[str, str | None]:
    """Versions of what does the work; None: not installed as a package. Kafka's is that of the jars here."""
    found: dict[str, str | None] = {}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = None
    return found | {"librdkafka": _librdkafka(), "kafka": _kafka()}


def cpu_seconds_of(pid: int) -> float | None:
    """Processor time that another process has used, user and system; None once it has ended."""
    try:
        # The name, in brackets, may hold spaces; utime and stime are the 12th and 13th field after it.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS_PER_SECOND
    except (OSError, IndexError, ValueError):
        return None


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, platform.processor() or platform.machine())


def _librdkafka() -> str:
    import confluent_kafka

    return str(confluent_kafka.libversion()[0])


def _kafka() -> str | None:
    try:
        jars = installed.jars_folder()
    except Setup:
        return None
    names = (path.stem.removeprefix("kafka-clients-") for path in jars.glob("kafka-clients-*.jar"))
    return next(names, None)
