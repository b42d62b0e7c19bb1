"""A stage while its broker stops and starts again."""

from pathlib import Path

from tempotrace import broker, topics_admin
from tests.fault.stages import Stages


def test_a_stage_outlives_its_broker(tmp_path: Path) -> None:
    """It goes on when the broker is back, or ends with one clear line if the group shut it out; exact always."""
    data = tmp_path / "kafka"
    started = broker.start(data, port=0)
    try:
        topics_admin.create({"bootstrap.servers": started.bootstrap}, ["acme"])
        stages = Stages(started.bootstrap, "acme", tmp_path / "home")
        stages.fill(0, 480)
        with stages.running("--slow", "0.01") as worker:
            stages.await_sums(10, worker)
            broker.stop(data)
            broker.start(data)
            while sum(map(len, stages.sums())) < 160 and worker.poll() is None:
                pass
            if worker.poll() is None:
                worker.terminate()
            _, err, code = stages.finish(worker)
        assert code == 0 or "Fenced: " in err, err
        stages.drain()
        assert stages.sums() == stages.expected(480)
    finally:
        broker.stop(data)
