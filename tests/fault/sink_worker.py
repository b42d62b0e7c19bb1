"""A sink in a process of its own: works through a log in a file, and kills itself at a step of a commit.

python -m tests.fault.sink_worker LAKE LOG COMMIT STEP
"""

import os
import pickle
import signal
import sys
from pathlib import Path

from tests.lakes import Sink


def main(lake: str, log: str, commit: str, step: str) -> None:
    """Work through the log; before this step of this commit (from 1; 0 never), kill −9."""
    commits = [0]

    def before_step(at: int) -> None:
        commits[0] += at == 1
        if commits[0] == int(commit) and at == int(step):
            os.kill(os.getpid(), signal.SIGKILL)

    records = pickle.loads(Path(log).read_bytes())
    Sink(Path(lake), records, before_step=before_step).run(per_unit=1)


if __name__ == "__main__":
    main(*sys.argv[1:])
