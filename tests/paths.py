"""Where the tests find real input that is not part of the repository."""

import os
from pathlib import Path

import pytest

REPO = Path(__file__).resolve().parent.parent


def shared_data(*parts: str) -> Path:
    """Path of a file of the shared data folder; skips the test, saying why, where the folder is absent."""
    root = Path(os.environ.get("TEMPOTRACE_TEST_DATA", REPO.parent / "shared" / "data"))
    path = root.joinpath(*parts)
    if not path.exists():
        pytest.skip(f"real input {path} is not on this machine (set TEMPOTRACE_TEST_DATA)")
    return path
