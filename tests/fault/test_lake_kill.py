"""A sink killed with −9 again and again, at every step of a commit in turn, and started again each time."""

import pickle
import signal
import subprocess
import sys
from pathlib import Path

from schemas import merged
from sinks import units, views
from tests.lakes import Sink, records
from tests.parts import HOUR_NS, START_NS, Maker
from tests.paths import REPO

WINDOWS, ROWS = 8, 60


def test_killed_at_every_step_the_lake_has_every_row_once(tmp_path: Path) -> None:
    maker = Maker(count=ROWS)
    log = records(
        "merged", [merged.write(maker.part(k, START_NS + (k % 2) * HOUR_NS)) for k in range(WINDOWS)]
    )
    kept, lake = tmp_path / "log", tmp_path / "lake"
    kept.write_bytes(pickle.dumps(log))
    for commit, step in ((1, 1), (1, 2), (1, 3), (1, 4), (1, 5), (2, 4), (3, 5)):
        command = [sys.executable, "-m", "tests.fault.sink_worker", str(lake), str(kept)]
        done = subprocess.run([*command, str(commit), str(step)], cwd=REPO, capture_output=True, timeout=60)
        assert (done.returncode, done.stderr) == (-signal.SIGKILL, b"")
    # Commits that came to their fourth step or beyond: one, then one of two, then three.
    assert Sink(lake, log).at == 5
    Sink(lake, log).run(per_unit=2)
    with views.connect(lake) as connection:
        found = connection.execute(
            "SELECT count(*), count(DISTINCT (source, incarnation, seq)) FROM events"
        ).fetchall()
    assert found == [(WINDOWS * ROWS, WINDOWS * ROWS)]
    assert units.verify(lake)[1] == []
    assert list(lake.glob("_staging/*")) == []
