"""The lake's outlet: what a task made of one range of offsets becomes visible whole, once, or not at all.

A *unit* is one range of offsets of one partition of one topic. Its files have the unit's name in every table
and folder; `_units/<topic>/<topic id>/<partition>/<first>-<generation>.json` says that they count. A reader
takes only files whose unit exists (sinks.views), so a file is nothing until the last step of a commit:

    1 write the files into a folder of their own under `_staging`, and sync them
    2 take the partition's lock and see that nobody committed a unit here since we resumed
    3 rename the files to their final names, and sync the folders
    4 write the unit in the staging folder, sync it, link it to its name (which must not exist): the commit
    5 remove the staging folder, let go of the lock

A crash after step 1 leaves a staging folder, one after step 3 also files of no unit: the next resume() of the
partition removes both and reads the range again. A crash after step 4 leaves an empty folder. The lock (held
for the steps 2 to 5 and for a resume, given up by the kernel when a process dies) keeps two sinks from
clearing away or overwriting what the other is about to commit; the exclusive link makes the slower one fail.
"""

import base64
import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from schemas.errors import Fenced, MalformedInput, Setup
from schemas.processor import Output, PartitionWork, Resume
from sinks.tables import TABLES

ROW_GROUP_ROWS = 262_144
_FOR_FILES = str.maketrans("/+", "_-")


class TopicId(NamedTuple):
    """A topic as the broker knows it: its full name, and the id that changes when it is made again."""

    name: str
    id: str

    @property
    def path(self) -> str:
        """Its place below `_units`. Ids are base64, of which some clients show the alphabet with a slash."""
        return f"{self.name}/{self.id.translate(_FOR_FILES)}"


@dataclass(frozen=True)
class Unit:
    """A committed unit: offsets first..last, its files (paths below the lake), the task's snapshot."""

    first: int
    generation: int
    last: int
    files: tuple[Mapping[str, object], ...]
    snapshot: bytes


def unit_name(topic: TopicId, partition: int, first: int, generation: int = 0) -> str:
    """Name of a unit's files, less `.parquet`: its place below `_units` with dots for slashes."""
    return f"{topic.path.replace('/', '.')}.{partition}.{first}-{generation}"


def write_file(pieces: Sequence[pa.Table], path: Path, name: str) -> dict[str, object]:
    """Write the pieces of table `name` as one Parquet file, synced; gives its rows, bytes and checksum."""
    table = TABLES[name]
    whole = pa.concat_tables(pieces).unify_dictionaries()
    schema = table.schema(dictionaries=True)
    out = pa.BufferOutputStream()
    pq.write_table(
        whole.cast(schema),
        out,
        row_group_size=ROW_GROUP_ROWS,
        compression="zstd",
        compression_level=1,
        use_dictionary=table.dictionaries(),
        column_encoding=table.encodings(),
        write_statistics=table.statistics(),
        store_schema=False,
    )
    content = out.getvalue()
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    checksum = hashlib.blake2b(content, digest_size=16).hexdigest()
    return {"rows": whole.num_rows, "bytes": content.size, "blake2b": checksum}


class LakeOutlet:
    """Writes units of a lake. `topic_of` tells a topic by its suffix, `tables` which tables that one feeds.

    `on_unit` is called after each unit committed, `before_step` with the number of each step of a commit
    before it is taken.
    """

    def __init__(
        self,
        root: Path,
        tenant: str,
        topic_of: Callable[[str], TopicId],
        tables: Mapping[str, Sequence[str]],
        *,
        on_unit: Callable[[], None] = lambda: None,
        before_step: Callable[[int], None] = lambda step: None,
    ) -> None:
        self.root = root.resolve()
        self._tenant = tenant
        self._topic_of = topic_of
        self._tables = tables
        self._on_unit = on_unit
        self._before = before_step
        self._next: dict[tuple[str, int], int] = {}  # first offset of the next unit

    def resume(self, topic: str, partition: int) -> Resume:
        """Where the partition goes on: after its last unit. Removes what an unfinished commit left behind.

        If the topic has no units yet but one of the same name has, what that one came to is given: the caller
        sees by the snapshot that the topic was made again. Raises MalformedInput if units are damaged or do
        not follow one another.
        """
        known = self._topic_of(topic)
        with self._locked(known, partition):
            units = self.units(known, partition)
            self._sweep(known, partition, self._tables[topic], units)
        self._next[topic, partition] = 0
        if units:
            last = self._last(units, self._folder(known, partition))
            self._next[topic, partition] = last.last + 1
            return Resume({topic: last.last + 1}, last.snapshot)
        for other in sorted((self.root / "_units" / known.name).glob("*")):
            units = self.units(TopicId(known.name, other.name), partition)
            if units:
                last = self._last(units, other / str(partition))
                return Resume({topic: last.last + 1}, last.snapshot)
        return Resume({}, None)

    def commit(self, work: Sequence[PartitionWork]) -> None:
        """Write one unit for each work that has outputs. Raises Fenced if another sink was faster, Setup if the
        disk refuses."""
        try:
            for one in work:
                if one.outputs:
                    self._commit(one)
        except OSError as error:
            raise _refused(self.root, error) from error

    def abort(self) -> None:
        """Nothing is written before a commit, so there is nothing to undo."""

    def units(self, topic: TopicId, partition: int) -> list[Unit]:
        """Committed units of a partition by first offset and generation. Raises MalformedInput."""
        found = [read_unit(path) for path in self._folder(topic, partition).glob("*.json")]
        return sorted(found, key=lambda unit: (unit.first, unit.generation))

    def _last(self, units: Sequence[Unit], where: Path) -> Unit:
        """The unit to go on from, once the chain and its files are found whole. Raises MalformedInput."""
        live = [unit for unit in units if not superseded(unit, units)]
        for before, after in pairwise(live):
            if after.first != before.last + 1:
                raise MalformedInput(
                    f"the unit from offset {after.first} does not follow the one that ends at {before.last}",
                    str(where),
                )
        for file in live[-1].files:
            path = self.root / str(file["path"])
            if not path.is_file() or path.stat().st_size != file["bytes"]:
                raise MalformedInput("a file of the last unit is missing or of another size", str(path))
        return live[-1]

    def _commit(self, work: PartitionWork) -> None:
        topic, partition = self._topic_of(work.topic), work.partition
        first, last = self._next[work.topic, partition], work.next_offset[work.topic] - 1
        assert last >= first, f"unit {first}..{last}: resume() comes before commit()"
        name = unit_name(topic, partition, first)
        staging = self.root / "_staging" / f"{name}-{os.getpid()}"
        pieces: dict[tuple[str, str], list[pa.Table]] = {}
        for output in work.outputs:
            pieces.setdefault(_place(output), []).append(output.value)
        self._before(1)
        shutil.rmtree(staging, ignore_errors=True)
        staging.mkdir(parents=True)
        files = []
        for number, ((table, folder), tables) in enumerate(pieces.items()):
            written = write_file(tables, staging / str(number), table)
            files.append({"path": f"{table}/{folder}/{name}.parquet", **written})
        self._before(2)
        with self._locked(topic, partition) as home:
            self._check_alone(topic, partition, first)
            self._before(3)
            folders = set()
            for number, file in enumerate(files):
                target = self.root / str(file["path"])
                _make_folder(target.parent, self.root)
                _move(staging / str(number), target)
                folders.add(target.parent)
            for target_folder in sorted(folders):
                _sync_folder(target_folder)
            self._before(4)
            unit = {
                "last": last,
                "files": files,
                "snapshot": base64.b64encode(work.snapshot).decode(),
            }
            draft = staging / "unit.json"
            with draft.open("w") as out:
                json.dump(unit, out)
                out.flush()
                os.fsync(out.fileno())
            try:
                os.link(draft, home / f"{first}-0.json")
            except FileExistsError:
                raise Fenced(_other_sink(topic, partition, first)) from None
            _sync_folder(home)
            self._next[work.topic, partition] = last + 1
            self._before(5)
            shutil.rmtree(staging)
        self._on_unit()

    def _check_alone(self, topic: TopicId, partition: int, first: int) -> None:
        home = self._folder(topic, partition)
        if any(int(path.stem.split("-")[0]) >= first for path in home.glob("*.json")):
            raise Fenced(_other_sink(topic, partition, first))

    def _folder(self, topic: TopicId, partition: int) -> Path:
        return self.root / "_units" / topic.path / str(partition)

    @contextmanager
    def _locked(self, topic: TopicId, partition: int) -> Iterator[Path]:
        home = self._folder(topic, partition)
        try:
            _make_folder(home, self.root)
            handle = os.open(home / "lock", os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise _refused(self.root, error) from error
        try:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX)
            except OSError as error:
                raise Setup(f"{home}: no locks here ({error}); put the lake on another disk") from error
            yield home
        finally:
            os.close(handle)

    def _sweep(self, topic: TopicId, partition: int, tables: Sequence[str], units: Sequence[Unit]) -> None:
        prefix = f"{topic.path.replace('/', '.')}.{partition}."
        staging = self.root / "_staging"
        for path in staging.glob(f"{prefix}*") if staging.is_dir() else ():
            shutil.rmtree(path)
        kept = {str(file["path"]) for unit in units for file in unit.files}
        for table in tables:
            for path in (self.root / table).glob(f"tenant={self._tenant}/*/*/{prefix}*"):
                if str(path.relative_to(self.root)) not in kept:
                    path.unlink()


def _refused(root: Path, error: OSError) -> Setup:
    return Setup(f"the lake {root} cannot be written: {error.strerror or error}")


def superseded(unit: Unit, units: Sequence[Unit]) -> bool:
    """Whether a unit of a higher generation covers this one."""
    return any(
        other.generation > unit.generation and other.first <= unit.first and unit.last <= other.last
        for other in units
    )


def read_unit(path: Path) -> Unit:
    """A unit as written by a commit. Raises MalformedInput."""
    try:
        first, generation = (int(number) for number in path.stem.split("-"))
        value = json.loads(path.read_bytes())
        snapshot = base64.b64decode(value["snapshot"], validate=True)
        return Unit(first, generation, int(value["last"]), tuple(value["files"]), snapshot)
    except (ValueError, KeyError, TypeError) as error:
        raise MalformedInput(
            f"a unit of the lake is damaged ({error}); restore it, or delete it with all later units of its "
            "partition to read their offsets again",
            str(path),
        ) from error


def verify(root: Path) -> tuple[int, list[str]]:
    """Check every file that a unit names against its checksum: number of units, a line for each file that fails.

    Raises MalformedInput for a unit that cannot be read.
    """
    bad = []
    paths = sorted(root.glob("_units/*/*/*/*.json"))
    for path in paths:
        for file in read_unit(path).files:
            data = root / str(file["path"])
            if not data.is_file():
                bad.append(f"{file['path']} is missing")
            elif hashlib.blake2b(data.read_bytes(), digest_size=16).hexdigest() != file["blake2b"]:
                bad.append(f"{file['path']} does not have the checksum in {path.relative_to(root)}")
    return len(paths), bad


def _place(output: Output) -> tuple[str, str]:
    assert output.key is not None, "the key of an output to the lake is its folder"
    return output.topic, output.key.decode()


def _other_sink(topic: TopicId, partition: int, first: int) -> str:
    return (
        f"offset {first} of partition {partition} of {topic.name} is in the lake already: another sink "
        "writes the same partition. Stop one of them, or give one another --lake"
    )


def _move(source: Path, target: Path) -> None:
    try:
        source.rename(target)
    except FileNotFoundError as error:
        raise Fenced(f"{source} was cleared away: another sink took over this partition") from error


def _make_folder(path: Path, root: Path) -> None:
    """Make a folder and, up to the root, those that it lies in, so that they survive a crash."""
    if path.is_dir():
        return
    if path != root:
        _make_folder(path.parent, root)
    path.mkdir(parents=path == root, exist_ok=True)
    _sync_folder(path.parent)


def _sync_folder(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
