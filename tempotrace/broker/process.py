"""The operating system's side of a broker: start, recognise, stop and wait for processes; ask for ports."""

import contextlib
import os
import select
import signal
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tempotrace.broker.config import HOST

STOP_SECONDS_MAX: Final = 60

# The process writes its own pid file before it becomes Java: no crash of ours leaves an unknown broker.
_LAUNCH: Final = 'echo $$ > "$0" && cd / && exec "$@"'


def port_is_free(port: int) -> bool:
    """Whether a server could listen on this loopback port now."""
    with socket.socket() as probe:
        # As Java does: connections of an earlier server that are still fading away do not count.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
        return True


def forbidden(port: int) -> bool:
    """Whether this user may not listen on this port."""
    with socket.socket() as probe:
        try:
            probe.bind((HOST, port))
        except OSError as error:
            return isinstance(error, PermissionError)
        return False


def free_ports(count: int) -> list[int]:
    """So many different ports that the system holds to be free."""
    with contextlib.ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind((HOST, 0))
        return [int(probe.getsockname()[1]) for probe in probes]


def launch(command: Sequence[str], pid_file: Path, output: Path) -> int:
    """Start a process that outlives us, in its own session, its output appended to a file; its pid."""
    arguments = ["/bin/sh", "-c", _LAUNCH, str(pid_file), *command]
    append = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    files = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_OPEN, 1, str(output), append, 0o644),
        (os.POSIX_SPAWN_DUP2, 1, 2),
    ]
    return os.posix_spawn(arguments[0], arguments, os.environ, file_actions=files, setsid=True)


def ended(child: int) -> bool:
    """Whether a process that launch() started has ended; takes its exit code off the system's hands."""
    try:
        return os.waitpid(child, os.WNOHANG)[0] == child
    except ChildProcessError:
        return True


def living(pid_file: Path, mark: str) -> int | None:
    """The pid in the file, if that process lives and `mark` is one of its arguments.

    A number alone proves nothing: after a crash or a reboot it may be anybody's.
    """
    try:
        pid = int(pid_file.read_text())
        arguments = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except (OSError, ValueError):
        return None
    return pid if mark.encode() in arguments else None


def stop(pids: Sequence[int], seconds: float = STOP_SECONDS_MAX) -> list[int]:
    """Ask all these processes to end, and wait until they have. Returns those that had to be killed."""
    handles = {}
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            handle = os.pidfd_open(pid)
            handles[handle] = pid
            signal.pidfd_send_signal(handle, signal.SIGTERM)
    killed = []
    for handle, pid in handles.items():
        if not _wait(handle, seconds):
            killed.append(pid)
            signal.pidfd_send_signal(handle, signal.SIGKILL)
            _wait(handle, seconds)
        os.close(handle)
        ended(pid)
    return killed


def _wait(handle: int, seconds: float) -> bool:
    """Wait for the end of a process by its pidfd; whether it came in time."""
    poller = select.poll()
    poller.register(handle, select.POLLIN)
    return bool(poller.poll(round(seconds * 1000)))
