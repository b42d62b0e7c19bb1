"""A stage with a sample processor, as a process of its own that tests can kill.

python -m tests.fault.worker BOOTSTRAP TENANT HOME [--drain] [--instance N] [--accept-loss] [--slow SECONDS]
"""

import argparse
import json
import sys
import threading
from collections.abc import Callable
from pathlib import Path

from schemas.errors import TempoError
from schemas.processor import Output, Processor, Record
from tempotrace import logs
from tempotrace.runtime.runner import RunnerSettings
from tempotrace.runtime.stage import run_stage
from tests.contract.sample import Copying, Joining, Summing, SummingTask


class SlowTask(SummingTask):
    """Waits at each record, so that a test can strike in mid-stream."""

    seconds = 0.0

    def process(self, record: Record) -> list[Output]:
        threading.Event().wait(self.seconds)
        return super().process(record)


class PaddedTask(SummingTask):
    """Keeps a state of many bytes."""

    bytes_more = 0

    def __init__(self, partition: int, snapshot: bytes | None) -> None:
        super().__init__(partition, snapshot and snapshot.rstrip(b" "))

    def snapshot(self) -> bytes:
        return super().snapshot() + b" " * self.bytes_more


class Padded(Summing):
    """The summing processor with much state."""

    def start(self, partition: int, snapshot: bytes | None) -> PaddedTask:
        return PaddedTask(partition, snapshot)


class Slow(Summing):
    """The summing processor with slow tasks."""

    def start(self, partition: int, snapshot: bytes | None) -> SlowTask:
        return SlowTask(partition, snapshot)


PROCESSORS: dict[str, Callable[[], Processor]] = {
    "summing": Summing,
    "joining": Joining,
    "copying": Copying,
    "padded": Padded,
    "slow": Slow,
}


def main() -> int:
    """Run until stopped or drained; the counters as JSON on stdout."""
    parser = argparse.ArgumentParser()
    parser.add_argument("bootstrap")
    parser.add_argument("tenant")
    parser.add_argument("home", type=Path)
    parser.add_argument("--processor", default="summing")
    parser.add_argument("--drain", action="store_true")
    parser.add_argument("--instance", type=int, default=0)
    parser.add_argument("--accept-loss", action="store_true")
    parser.add_argument("--slow", type=float, default=0.0)
    parser.add_argument("--padding", type=int, default=0)
    given = parser.parse_args()
    logs.set_up()
    SlowTask.seconds, PaddedTask.bytes_more = given.slow, given.padding
    name = "slow" if given.slow else "padded" if given.padding else given.processor
    processor = PROCESSORS[name]()
    settings = RunnerSettings(
        drain=given.drain,
        accept_loss=given.accept_loss,
        ticks=isinstance(processor, Summing) and not processor.joins,
    )
    try:
        counters = run_stage(
            processor,
            {"bootstrap.servers": given.bootstrap},
            given.tenant,
            given.instance,
            given.home / "stages",
            settings,
        )
    except TempoError as error:
        sys.stderr.write(f"{type(error).__name__}: {error}\n")
        return 1
    plain = {
        name: {"/".join(key): number for key, number in value.items()} if isinstance(value, dict) else value
        for name, value in counters.items()
    }
    sys.stdout.write(json.dumps(plain) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
