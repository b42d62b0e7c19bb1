"""Fixtures of the fault tests."""

import subprocess
from collections.abc import Iterator

import pytest


@pytest.fixture
def processes() -> Iterator[list["subprocess.Popen[str]"]]:
    """A list of processes; those that a failed test leaves are killed."""
    started: list[subprocess.Popen[str]] = []
    yield started
    for process in started:
        if process.poll() is None:
            process.kill()
            process.communicate()
