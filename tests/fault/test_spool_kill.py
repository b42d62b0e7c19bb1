"""kill -9 in mid-stream: what the dead process had safe arrives, in order, and its sources end."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from producers.ledger import sources_of
from schemas.codec import decode_batch
from tests.fake_transports import read_log
from tests.paths import REPO


def start(folder: Path, incarnation: int, batches: int) -> "subprocess.Popen[str]":
    arguments = [str(folder / "spool"), str(folder / "log"), str(incarnation), str(batches)]
    return subprocess.Popen(
        [sys.executable, "-m", "tests.fault.live_process", *arguments],
        cwd=REPO,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(REPO)},
    )


@pytest.mark.parametrize("after", [1, 100, 2000])
def test_killed_twice_then_finished(tmp_path: Path, after: int) -> None:
    safe = {}
    for incarnation in (1, 2):
        process = start(tmp_path, incarnation, 0)
        assert process.stdout is not None
        safe[incarnation] = 0
        while safe[incarnation] < after:
            safe[incarnation] = int(process.stdout.readline())
        process.send_signal(signal.SIGKILL)
        rest = [line for line in process.stdout.read().splitlines(keepends=True) if line.endswith("\n")]
        safe[incarnation] = int(rest[-1]) if rest else safe[incarnation]
        assert process.wait() == -signal.SIGKILL
        process.stdout.close()
    last = start(tmp_path, 3, 5)
    assert last.stdout is not None
    last.stdout.read()
    last.stdout.close()
    assert last.wait() == 0

    seen: dict[int, list[int]] = {1: [], 2: [], 3: []}
    order: list[int] = []
    for value in read_log(tmp_path / "log"):
        for (_, incarnation), first, final, ended in sources_of(decode_batch(value)):
            seen[incarnation] += range(first, final + 1)
            order += [-incarnation] if ended else [incarnation]
    for incarnation, numbers in seen.items():
        unique = list(dict.fromkeys(numbers))
        assert unique == list(range(len(unique)))  # gapless, first copies in order
        assert len(unique) >= safe.get(incarnation, 15)
    # What one process sends never mixes with what another sent, and each source ends after its last row.
    assert list(dict.fromkeys(order)) == [1, -1, 2, -2, 3, -3]
    assert [number for number in order if number < 0] == [-1, -2, -3]
