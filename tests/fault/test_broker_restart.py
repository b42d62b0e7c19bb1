"""A stage while its broker is away: for a moment, and for longer than its session and its transaction may last."""

import subprocess
from pathlib import Path

import pytest

from tempotrace import broker, topics_admin
from tempotrace.runtime.kafka_log import SESSION_TIMEOUT_MS
from tempotrace.runtime.transactional import TRANSACTION_TIMEOUT_MS
from tests.fault.stages import Stages

LONG_SECONDS = max(SESSION_TIMEOUT_MS, TRANSACTION_TIMEOUT_MS) / 1000 + 2


@pytest.mark.parametrize("away_seconds", [0.0, LONG_SECONDS])
def test_a_stage_outlives_its_broker(tmp_path: Path, away_seconds: float) -> None:
    """With a commit under way, then with work in hand, it goes on by itself when the broker is back."""
    data = tmp_path / "kafka"
    started = broker.start(data, port=0)
    try:
        topics_admin.create({"bootstrap.servers": started.bootstrap}, ["acme"])
        stages = Stages(started.bootstrap, "acme", tmp_path / "home")
        stages.fill(0, 240)
        with stages.running("--slow", "0.002") as worker:
            stages.await_sums(10, worker)
            stages.fill(240, 1200)
            broker.stop(data)
            with pytest.raises(subprocess.TimeoutExpired):
                worker.wait(away_seconds)
            broker.start(data)
            stages.await_sums(400, worker)
            worker.terminate()
            _, err, code = stages.finish(worker)
        assert code == 0, err
        assert stages.sums() == stages.expected(1200)
    finally:
        broker.stop(data)
