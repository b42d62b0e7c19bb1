"""The repository's own rules, checked on every file that git would commit."""

import ast
import importlib
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.paths import REPO

LINES_MAX = 350
BYTES_MAX = 1024 * 1024
ROOMS = ("schemas", "producers", "streams", "sinks", "tempotrace", "loadtest", "tests")

# The place that may ask what time it is.
CLOCKWORK = {"tempotrace/clockwork.py"}

# Calls whose result depends on the moment or on luck: a clock or a seeded generator is handed in instead.
BANNED_CALLS = {
    "time.time",
    "time.time_ns",
    "time.clock_gettime",
    "time.clock_gettime_ns",
    "datetime.now",
    "datetime.utcnow",
    "datetime.today",
    "date.today",
    "os.urandom",
    "uuid.uuid1",
    "uuid.uuid4",
}
BANNED_MODULES = {"random", "secrets"}

# Written in pieces, so that this file passes its own test.
FOREIGN = [
    re.compile(pattern)
    for pattern in (
        r"/(?:home|Users|root)/\w",
        r"(?<![\w.<>-])/work" r"/\w",
        r"/opt" r"/wheels",
        r"pypi\." r"org",
        r"pythonhosted\." r"org",
        r"maven\." r"apache\.org/(?!POM)",
        r"repo\d?\." r"maven",
        r"deb\." r"debian\.org",
        r"registry\." r"npmjs",
        r"--(?:extra-)?index" r"-url|--find" r"-links",
    )
]
BINARY = {".gz", ".png", ".pcap", ".zip", ".jpg", ".ico", ".avro", ".parquet", ".bin", ".woff2"}


def files() -> list[Path]:
    """Files that are in the repository or about to be, relative to it."""
    listed = subprocess.run(
        ["git", "-c", "safe.directory=*", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=REPO,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    return [Path(name) for name in listed.split("\0") if name and (REPO / name).is_file()]


FILES = files()
MODULES = [path for path in FILES if path.suffix == ".py"]


def dotted(node: ast.expr) -> str:
    """`a.b` of an attribute access; only the last two names count."""
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value).rsplit('.', 1)[-1]}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def luck_and_time(tree: ast.AST) -> Iterator[str]:
    """Each use of the wall clock or of an unseeded generator, as `line: what`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
            yield from (f"{node.lineno}: import {name}" for name in names if name in BANNED_MODULES)
        elif isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            if node.module in BANNED_MODULES or BANNED_CALLS & set(names):
                yield f"{node.lineno}: from {node.module} import ..."
        elif isinstance(node, ast.Call):
            name = dotted(node.func)
            unseeded = name.endswith("default_rng") and not node.args and not node.keywords
            of_numpy = name.startswith("random.") and name not in {
                "random.default_rng",
                "random.Generator",
                "random.SeedSequence",
                "random.PCG64",
            }
            if name in BANNED_CALLS or unseeded or of_numpy:
                yield f"{node.lineno}: {name}()"


@pytest.mark.parametrize("path", MODULES, ids=str)
def test_modules_are_short_and_depend_on_no_moment(path: Path) -> None:
    text = (REPO / path).read_text()
    assert len(text.splitlines()) < LINES_MAX
    if str(path) not in CLOCKWORK:
        assert list(luck_and_time(ast.parse(text))) == []


def test_the_rule_on_time_and_luck_finds_what_it_should() -> None:
    source = """
import random
import time, datetime, numpy as np
from time import time_ns
from secrets import token_bytes
time.time()
datetime.datetime.now()
np.random.default_rng()
np.random.normal()
np.random.default_rng(7).normal()
time.monotonic()
rng.random()
"""
    found = sorted(int(entry.split(":")[0]) for entry in luck_and_time(ast.parse(source)))
    assert found == [2, 4, 5, 6, 7, 8, 9]


def test_no_path_of_one_machine_and_no_registrys_name() -> None:
    found = [
        f"{path}: {match.group()}"
        for path in FILES
        if path.suffix not in BINARY and path.parts[0] != "LICENSE"
        for pattern in FOREIGN
        if (match := pattern.search((REPO / path).read_text(errors="replace")))
    ]
    assert found == []


def test_the_lock_file_pins_and_hashes_every_package() -> None:
    entries = re.split(r"\n(?=\S)", (REPO / "requirements.txt").read_text().strip())
    packages = [entry for entry in entries if not entry.startswith("#")]
    assert [entry for entry in packages if "==" not in entry or "--hash=sha256:" not in entry] == []
    assert len(packages) > 50


def test_every_test_folder_is_a_package() -> None:
    folders = {path.parent for path in MODULES if path.parts[0] in ROOMS}
    assert [str(folder) for folder in sorted(folders) if not (REPO / folder / "__init__.py").exists()] == []


def test_the_licence_is_there() -> None:
    assert "Apache License" in (REPO / "LICENSE").read_text()
    assert 'license = "Apache-2.0"' in (REPO / "pyproject.toml").read_text()


def test_no_big_files() -> None:
    assert [str(path) for path in FILES if (REPO / path).stat().st_size > BYTES_MAX] == []


def test_every_make_target_that_the_words_name_exists() -> None:
    targets = set(re.findall(r"^([a-z]+):", (REPO / "Makefile").read_text(), re.MULTILINE))
    words = [path for path in FILES if path.suffix in {".md", ".py", ".sh", ".toml"} or path.name == "run"]
    named = {
        target
        for path in words
        for target in re.findall(r"(?:`|^)make ([a-z]+)", (REPO / path).read_text(), re.MULTILINE)
    }
    assert named - targets == set()
    assert {"setup", "demo", "test", "check", "bench"} <= targets


@pytest.mark.parametrize("path", [path for path in MODULES if path.parts[0] != "tests"], ids=str)
def test_every_module_imports(path: Path) -> None:
    name = ".".join(path.with_suffix("").parts).removesuffix(".__init__")
    if not name.endswith("__main__"):
        importlib.import_module(name)
