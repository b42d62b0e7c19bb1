"""deploy/setup.sh with everything installed but Kafka's jars, and a Maven that only notes how it is called."""

import hashlib
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.paths import REPO

PROGRAMS = {
    "mvn": 'echo "$@" > "$NOTED"; for each; do case $each in -DoutputDirectory=*) mkdir -p "${each#*=}";; esac; done',
    "getent": 'echo "user:x:1000:1000::$USER_HOME:/bin/sh"',
    "java": "exit 0",
}


def program(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    root = tmp_path / "checkout"
    for name in ("deploy/setup.sh", "deploy/kafka/pom.xml", "requirements.txt", "pyproject.toml"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(REPO / name, root / name)
    program(root / ".venv/bin/python", "exit 0")
    share = root / ".venv/share/tempotrace"
    share.mkdir(parents=True)
    (share / "home").write_text(str(root))
    for stamp, name in (("packages", "requirements.txt"), ("project", "pyproject.toml")):
        (share / stamp).write_text(hashlib.sha256((root / name).read_bytes()).hexdigest())
    for name, text in PROGRAMS.items():
        program(tmp_path / "bin" / name, text)
    return root


def set_up(root: Path, home: str) -> tuple[str, str]:
    """What setup.sh said, and Maven's arguments."""
    noted = root.parent / "noted"
    environment = os.environ | {
        "PATH": f"{root.parent / 'bin'}:{os.environ['PATH']}",
        "NOTED": str(noted),
        "USER_HOME": home,
    }
    environment.pop("KAFKA_HOME", None)
    ran = subprocess.run(
        [root / "deploy/setup.sh"], env=environment, capture_output=True, text=True, check=True
    )
    return ran.stderr, noted.read_text()


def test_maven_works_in_the_checkout_where_the_home_cannot_be_written(checkout: Path) -> None:
    said, arguments = set_up(checkout, "/dev/null/nowhere")
    assert "home can't be written" in said
    assert f"-Dmaven.repo.local={checkout}/.venv/share/tempotrace/m2" in arguments.split()


def test_maven_works_in_the_home_otherwise(checkout: Path, tmp_path: Path) -> None:
    said, arguments = set_up(checkout, str(tmp_path / "user"))
    assert "home" not in said
    assert "maven.repo.local" not in arguments
    assert said.splitlines()[-1] == "setup: ready"
