"""Runs the nodes and collects what they wrote.

In namespaces, one process is the root of its own PID, mount and network namespaces, so that its end is the end of
everything; it watches its stdin, which ends with us, even by SIGKILL. Over ssh each node's script watches its own.
"""

import io
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from schemas.errors import Setup, Usage

_FOLDER: Final = Path(__file__).parent
TOOLS: Final = ("unshare", "setpriv", "ip", "tc", "ptp4l", "chronyd", "timeout", "tar", "mount")
PACKAGES: Final = "util-linux, iproute2, linuxptp, chrony, coreutils, tar"
NODES_MAX: Final = 64
START_S: Final = 30.0  # given for starting and collecting, beyond the time measured
BYTES_MAX: Final = 256 * 1024 * 1024


@dataclass(frozen=True)
class NodeFiles:
    """What one node wrote under one load: file name → content. `failed`: why it has none."""

    node: str
    load: str
    files: dict[str, bytes]
    failed: str | None = None


def missing() -> str | None:
    """Why the measurement in namespaces cannot run on this machine; None if it can."""
    if not sys.platform.startswith("linux"):
        return "network namespaces are a thing of Linux"
    if os.geteuid() != 0:
        return "network namespaces need root: run it with sudo"
    absent = [tool for tool in TOOLS if shutil.which(tool) is None]
    if absent:
        return f"missing: {', '.join(absent)} (packages {PACKAGES})"
    return None


def namespaces(nodes: int, loads: Sequence[str], seconds: int, say: Callable[[str], None]) -> list[NodeFiles]:
    """Measure in `nodes` namespaces, `seconds` under each load. Raises Setup, Usage; leaves nothing behind."""
    if not 2 <= nodes <= NODES_MAX:
        raise Usage(f"--nodes must be 2 to {NODES_MAX}")
    lacking = missing()
    if lacking is not None:
        raise Setup(lacking)
    with _orderly(), tempfile.TemporaryDirectory(prefix="tempotrace-lab.") as folder:
        here = Path(folder)
        for node in range(nodes):
            (here / f"n{node}.sh").write_text(
                node_script(node == 0, "10.77.0.1", "eth0", "", seconds, sys.executable)
            )
        script = _settings(
            NODES=str(nodes), LOADS=" ".join(loads), HERE=folder, PYTHON=sys.executable,
            FLOOD=(_FOLDER / "flood.py").read_text(),
        ) + (_FOLDER / "lab.sh").read_text()  # fmt: skip
        (here / "lab.sh").write_text(script)
        command = [
            "unshare",
            "--mount",
            "--net",
            "--pid",
            "--fork",
            "--kill-child=KILL",
            "--mount-proc",
            "sh",
        ]
        _run([*command, str(here / "lab.sh")], len(loads) * (seconds + START_S), say)
        return [
            _collect(f"n{node}", load, here / f"{load}-n{node}.tar", here / f"{load}-n{node}.err")
            for load in loads
            for node in range(nodes)
        ]


def hosts(names: Sequence[str], seconds: int, say: Callable[[str], None]) -> list[NodeFiles]:
    """Measure on hosts over ssh; the first is the others' master. Raises Setup, Usage.

    The right to log in without a password, and root or `sudo -n` there, are taken as given.
    """
    if not 2 <= len(names) <= NODES_MAX or len(set(names)) != len(names):
        raise Usage(f"--hosts wants 2 to {NODES_MAX} different names")
    bad = [name for name in names if name.startswith("-") or name.split() != [name]]
    if bad:
        raise Usage(f"--hosts: {bad[0]!r} is no name of a host")
    if shutil.which("ssh") is None:
        raise Setup("missing: ssh")
    plain = [name.rpartition("@")[2] for name in names]
    running = []
    with _orderly(), tempfile.TemporaryDirectory(prefix="tempotrace-hosts.") as folder:
        try:
            for place, name in enumerate(names):
                peer = plain[1] if place == 0 else plain[0]
                script = shlex.quote(node_script(place == 0, plain[0], "", peer, seconds, "python3"))
                remote = (
                    f'if [ "$(id -u)" = 0 ]; then exec sh -c {script}; else exec sudo -n sh -c {script}; fi'
                )
                out, err = (Path(folder, f"{place}.{kind}") for kind in ("tar", "err"))
                with out.open("wb") as stdout, err.open("wb") as stderr:
                    running.append(
                        subprocess.Popen(
                            ["ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10", name, remote],
                            stdin=subprocess.PIPE, stdout=stdout, stderr=stderr,
                        )
                    )  # fmt: skip
            say(f"{len(names)} hosts measure for {seconds} s")
            for process in running:
                process.wait(seconds + START_S)
        except subprocess.TimeoutExpired as error:
            raise Setup(f"a host did not end within {seconds + START_S:.0f} s") from error
        finally:
            for process in running:
                _end(process)
        return [
            _collect(name, "as found", Path(folder, f"{place}.tar"), Path(folder, f"{place}.err"))
            for place, name in enumerate(names)
        ]


def node_script(master: bool, address: str, interface: str, peer: str, seconds: int, python: str) -> str:
    """What one node runs, as text for `sh`."""
    settings = _settings(
        ROLE="master" if master else "slave", MASTER=address, IFACE=interface, PEER=peer, LENGTH=str(seconds),
        PYTHON=python, RECEIVER=(_FOLDER / "receiver.py").read_text(),
    )  # fmt: skip
    return settings + (_FOLDER / "node.sh").read_text()


@contextmanager
def _orderly() -> Iterator[None]:
    """SIGTERM as Ctrl-C, so that folders are removed and hosts are told."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _settings(**values: str) -> str:
    return "".join(f"{name}={shlex.quote(value)}\n" for name, value in values.items())


def _run(command: Sequence[str], limit_s: float, say: Callable[[str], None]) -> None:
    """Run the lab to its end, within the time given, passing on what it says of its progress."""
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
    )
    told: list[str] = []

    def listen() -> None:
        assert process.stderr is not None
        for line in process.stderr:
            if line.startswith("load "):
                say(f"measuring: {line[5:].strip()}")
            else:
                told.append(line.strip())
                del told[:-20]

    listener = threading.Thread(target=listen, daemon=True)
    listener.start()
    try:
        code = process.wait(limit_s)
    except subprocess.TimeoutExpired as error:
        raise Setup(f"the namespaces did not end within {limit_s:.0f} s") from error
    finally:
        _end(process)
        listener.join(5)
    if code != 0:
        raise Setup(
            f"the namespaces could not be made (exit code {code}): {'; '.join(told) or 'no reason given'}"
        )


def _end(process: subprocess.Popen[str] | subprocess.Popen[bytes]) -> None:
    """End a lab or a session: close its stdin, and if it does not heed that, kill it."""
    if process.stdin is not None:
        process.stdin.close()
    try:
        process.wait(5)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _collect(node: str, load: str, archive: Path, errors: Path) -> NodeFiles:
    said = errors.read_text(errors="replace").strip() if errors.exists() else ""
    reason = said.splitlines()[-1] if said else "it wrote nothing"
    data = archive.read_bytes() if archive.exists() else b""
    if not data:
        return NodeFiles(node, load, {}, reason)
    files: dict[str, bytes] = {}
    try:
        with tarfile.open(fileobj=io.BytesIO(data)) as tar:
            for member in tar:
                content = tar.extractfile(member) if member.isfile() and member.size <= BYTES_MAX else None
                if content is not None:
                    files[member.name] = content.read()
    except tarfile.TarError as error:
        return NodeFiles(node, load, {}, f"its answer is no archive ({error}); {reason}")
    return NodeFiles(node, load, files)
