"""Child processes of the demo: started with the same interpreter, watched, and always stopped."""

import http.client
import json
import os
import signal
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from schemas.errors import Setup
from tempotrace.clockwork import Clock

STOP_SECONDS_MAX: Final = 20.0
LOOK_SECONDS: Final = 0.1
METRIC_SECONDS_MAX: Final = 5.0


@dataclass
class Child:
    """One running command; its stdout (one JSON object) and stderr are files."""

    name: str
    process: subprocess.Popen[bytes]
    out: Path
    log: Path
    forgiving: bool = False  # that nothing of its input could be used is a result too

    def last_words(self) -> str:
        """The end of what it said on stderr."""
        lines = self.log.read_text(errors="replace").strip().splitlines()
        return lines[-1] if lines else "nothing on stderr"

    def result(self) -> dict[str, Any]:
        """What it printed. Raises Setup where it failed."""
        code = self.process.returncode
        printed = self.out.read_text()
        found = json.loads(printed) if printed.strip() and code in (0, 1) else {}
        assert isinstance(found, dict)
        if code == 0 or (self.forgiving and "inputs" in found):
            return found
        raise Setup(f"{self.name} ended with code {code}: {self.last_words()} (see {self.log})")


@dataclass
class Crew:
    """All children; leaving the context stops those that still run, the last started first."""

    folder: Path  # for what they print
    home: Path  # TEMPOTRACE_HOME of the children
    clock: Clock
    children: list[Child] = field(default_factory=list)
    _never: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> Self:
        self.folder.mkdir(parents=True, exist_ok=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        running = [child for child in reversed(self.children) if child.process.poll() is None]
        for child in running:
            child.process.send_signal(signal.SIGTERM)
        for child in running:
            try:
                child.process.wait(STOP_SECONDS_MAX)
            except subprocess.TimeoutExpired:
                child.process.kill()
                child.process.wait()

    def start(self, name: str, arguments: Sequence[str], forgiving: bool = False) -> Child:
        """Run `tempotrace ARGUMENTS --json` in a process of its own; see Child for `forgiving`."""
        out, log = self.folder / f"{name}.json", self.folder / f"{name}.log"
        environment = {**os.environ, "TEMPOTRACE_HOME": str(self.home), "NUMBA_NUM_THREADS": "1"}
        with out.open("wb") as stdout, log.open("wb") as stderr:
            process = subprocess.Popen(
                [sys.executable, "-m", "tempotrace", *arguments, "--json"],
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                env=environment,
                start_new_session=True,  # Ctrl-C reaches us alone; we stop them in order
            )
        child = Child(name, process, out, log, forgiving)
        self.children.append(child)
        return child

    def wait(self, child: Child, seconds: float, look: Callable[[], None] | None = None) -> dict[str, Any]:
        """Wait for a child that ends by itself; gives its result. Raises Setup."""
        self.until(lambda: child.process.poll() is not None, seconds, f"{child.name} to end", look, child)
        return child.result()

    def stop(self, child: Child) -> dict[str, Any]:
        """Ask a stage to commit what is in hand and end; gives its result."""
        if child.process.poll() is None:
            child.process.send_signal(signal.SIGTERM)
        try:
            child.process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            raise Setup(f"{child.name} did not end on SIGTERM (see {child.log})") from None
        return child.result()

    def until(
        self,
        condition: Callable[[], bool],
        seconds: float,
        what: str,
        look: Callable[[], None] | None = None,
        child: Child | None = None,
    ) -> None:
        """Wait for a condition; `look` is called meanwhile. Raises Setup when time is up or a child failed."""
        end = self.clock.monotonic() + seconds
        while not condition():
            if look is not None:
                look()
            for each in self.children:
                if each.process.poll() not in (None, 0):
                    each.result()
            if child is not None and child.process.poll() is not None and not condition():
                raise Setup(f"{child.name} ended too early: {child.last_words()} (see {child.log})")
            if self.clock.monotonic() > end:
                raise Setup(f"waited {seconds:.0f} s for {what}; see the logs in {self.folder}")
            self.clock.wait(self._never, LOOK_SECONDS)


class Stage:
    """A running stage as its health page shows it."""

    def __init__(self, child: Child, note: Path) -> None:
        self.child, self._note = child, note

    def _get(self, page: str) -> str | None:
        try:
            port = json.loads(self._note.read_text())["port"]
            with urllib.request.urlopen(
                f"http://127.0.0.1:{port}/{page}", timeout=METRIC_SECONDS_MAX
            ) as answer:
                text: str = answer.read().decode()
                return text
        except (OSError, ValueError, KeyError, http.client.HTTPException):
            return None

    def ready(self) -> bool:
        """Whether it has its partitions."""
        return self._get("readyz") is not None

    def sum(self, metric: str) -> float | None:
        """A metric summed over its labels; None if the page does not answer, 0 if nothing was counted yet."""
        page = self._get("metrics")
        if page is None:
            return None
        total = 0.0
        for line in page.splitlines():
            name, _, value = line.rpartition(" ")
            if name.partition("{")[0] == metric:
                total += float(value)
        return total

    def idle(self) -> bool:
        """Whether all its input is worked through and no rows wait."""
        lag, held = self.sum("tempotrace_lag_records"), self.sum("tempotrace_rows_held")
        return lag == 0 and held == 0
