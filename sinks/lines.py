"""An outlet of text: JSON lines on a stream or in a file, and beside them a state file that says how far.

    1 write the lines, and sync a file
    2 write the state beside its old version, sync it, rename it over: the commit

A crash between the two writes some lines again. In a file they are found by their ids at its end and left
out, so there each line is once; a stream cannot be looked at: there a line may come twice after a crash.
"""

import base64
import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TextIO

from schemas.errors import MalformedInput, Setup
from schemas.processor import PartitionWork, Resume

TAIL_BYTES = 1 << 20  # of the file: more than one commit ever writes


class LinesOutlet:
    """Writes each output's value as a line of `target`, a file or a stream; `state` is a file of its own.

    `id_of` gives the id in a written line, by which a repeat is known. `on_line` is called for each line
    written. One process at a time.
    """

    def __init__(
        self,
        target: Path | TextIO,
        state: Path,
        id_of: Callable[[str], str],
        *,
        on_line: Callable[[], None] = lambda: None,
    ) -> None:
        self._target = target
        self._state = state
        self._id_of = id_of
        self._on_line = on_line
        self._kept: dict[str, dict[str, object]] = self._read_state()
        self._written: set[str] = self._read_tail(target) if isinstance(target, Path) else set()

    def resume(self, topic: str, partition: int) -> Resume:
        """Where the partition goes on."""
        kept = self._kept.get(f"{topic}/{partition}")
        if kept is None:
            return Resume({}, None)
        try:
            next_offset = kept["next"]
            snapshot = base64.b64decode(str(kept["snapshot"]), validate=True)
            if not isinstance(next_offset, Mapping):
                raise TypeError("no offsets")
            return Resume({str(name): int(offset) for name, offset in next_offset.items()}, snapshot)
        except (KeyError, ValueError, TypeError) as error:
            raise self._damaged(error) from error

    def commit(self, work: Sequence[PartitionWork]) -> None:
        """Write the lines of all works, then the state."""
        outputs = [output for one in work for output in one.outputs]
        lines = {(output.key or b"").decode(): bytes(output.value).decode() for output in outputs}
        fresh = [line for key, line in lines.items() if key not in self._written]
        text = "".join(f"{line}\n" for line in fresh)
        if isinstance(self._target, Path):
            self._append(self._target, text)
        else:
            self._target.write(text)
            self._target.flush()
        for _ in fresh:
            self._on_line()
        for one in work:
            self._kept[f"{one.topic}/{one.partition}"] = {
                "next": dict(one.next_offset),
                "snapshot": base64.b64encode(one.snapshot).decode(),
            }
        draft = self._state.with_name(f"{self._state.name}.new")
        self._append(draft, json.dumps(self._kept), fresh=True)
        draft.rename(self._state)

    def abort(self) -> None:
        """Nothing is written before a commit."""

    def _append(self, path: Path, text: str, fresh: bool = False) -> None:
        if not text:
            return
        try:
            with path.open("w" if fresh else "a") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise Setup(f"{path} cannot be written: {error.strerror}") from error

    def _read_state(self) -> dict[str, dict[str, object]]:
        self._state.parent.mkdir(parents=True, exist_ok=True)
        try:
            kept = json.loads(self._state.read_bytes())
        except FileNotFoundError:
            return {}
        except ValueError as error:
            raise self._damaged(error) from error
        if not isinstance(kept, dict):
            raise self._damaged(TypeError("not a mapping"))
        return kept

    def _read_tail(self, path: Path) -> set[str]:
        """Ids of the lines at the end of the file; a last line that a crash left unfinished is cut off."""
        try:
            with path.open("r+b") as file:
                size = file.seek(0, os.SEEK_END)
                begin = file.seek(max(0, size - TAIL_BYTES))
                tail = file.read()
                whole = tail.rfind(b"\n") + 1
                if whole < len(tail):
                    file.truncate(begin + whole)
        except FileNotFoundError:
            return set()
        except OSError as error:
            raise Setup(f"{path} cannot be read: {error.strerror}") from error
        lines = tail[:whole].decode(errors="replace").splitlines()
        return {self._id_of(line) for line in lines}

    def _damaged(self, error: Exception) -> MalformedInput:
        what = f"the state of this output is damaged ({error}); delete it to begin anew"
        return MalformedInput(what, str(self._state))
