"""Which (tenant, scope, clock) the live producers of this machine serve: one locked file each in `scopes/`.

The file of a producer that was killed stays, but its lock does not; readers pass over it, and remove it.
"""

import contextlib
import fcntl
import hashlib
import json
import logging
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

log = logging.getLogger(__name__)


class Registration(NamedTuple):
    """A scope that wants the samples of a clock: `clock` is the name of the clock that stamps its events."""

    tenant: str
    scope: str
    clock: str
    publisher: str


@contextmanager
def registered(folder: Path, wanted: Sequence[Registration]) -> Iterator[None]:
    """Have these listed by `registrations` for as long as the context lasts.

    One that can't be written, as on a full disk, is warned of: the producer's spool may be what frees it.
    """
    held: list[tuple[Path, int]] = []
    try:
        for entry in wanted:
            try:
                _write(folder, entry, held)
            except OSError as error:
                log.warning(
                    "scope %s will get no samples of clock %s, since it can't be listed in %s: %s",
                    entry.scope, entry.clock, folder, error.strerror,
                )  # fmt: skip
        yield
    finally:
        for path, descriptor in held:
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)
            os.close(descriptor)


def _write(folder: Path, entry: Registration, held: list[tuple[Path, int]]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    name = hashlib.blake2b("\0".join(entry).encode(), digest_size=8).hexdigest()
    path = folder / f"{name}.json"
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    held.append((path, descriptor))
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, json.dumps(entry._asdict()).encode(), 0)


def registrations(folder: Path) -> list[Registration]:
    """What the live producers that run now have registered, sorted."""
    found = []
    for path in folder.glob("*.json") if folder.is_dir() else ():
        try:
            with path.open("rb") as file:
                if _abandoned(file.fileno()):
                    path.unlink(missing_ok=True)
                    continue
                found.append(Registration(**json.load(file)))
        except (OSError, ValueError, TypeError):
            continue  # just being made, or removed
    return sorted(found)


def _abandoned(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
