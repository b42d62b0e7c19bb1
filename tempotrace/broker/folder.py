"""The data folder of a broker.

<data>/lock           held (flock) while a command works on the folder
<data>/cluster.json   id and ports; written last, so that it says that the folder is whole
<data>/node-<i>/      server.properties, log4j2.properties, pid, data/ (Kafka's own), server.log, output.log
"""

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from schemas.errors import Setup, cause_of


@dataclass(frozen=True)
class Cluster:
    """What cluster.json holds."""

    cluster_id: str
    ports: tuple[int, ...]  # one a node, as of the last start


@dataclass(frozen=True)
class NodeFolder:
    """Paths of one node."""

    root: Path

    @property
    def properties(self) -> Path:
        return self.root / "server.properties"

    @property
    def logging(self) -> Path:
        return self.root / "log4j2.properties"

    @property
    def pid(self) -> Path:
        return self.root / "pid"

    @property
    def data(self) -> Path:
        return self.root / "data"

    @property
    def log(self) -> Path:
        return self.root / "server.log"

    @property
    def output(self) -> Path:
        return self.root / "output.log"


class DataFolder:
    """Reads and writes the folder's own files."""

    def __init__(self, path: Path) -> None:
        self.path = path.resolve()
        if "," in str(self.path):
            raise Setup(f"the data folder {self.path} has a comma in its path, which Kafka takes for a list")

    def node(self, node_id: int) -> NodeFolder:
        """Paths of the node with this id."""
        return NodeFolder(self.path / f"node-{node_id}")

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other commands off the folder, which is made if it is not there. Raises Setup."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            handle = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise Setup(f"cannot use {self.path} as a broker's data folder: {cause_of(error)}") from error
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(handle)
            raise Setup(
                f"another `tempotrace broker` command is at work on {self.path}: wait for its end"
            ) from None
        try:
            yield
        finally:
            os.close(handle)

    def cluster(self) -> Cluster | None:
        """What the folder holds, None if it is new or absent. Raises Setup if half-written or foreign."""
        file = self.path / "cluster.json"
        try:
            found = json.loads(file.read_text())
            cluster = Cluster(str(found["cluster_id"]), tuple(int(port) for port in found["ports"]))
        except FileNotFoundError:
            if self.path.is_dir() and any(entry.name != "lock" for entry in self.path.iterdir()):
                raise Setup(
                    f"{self.path} is half-written or no broker's data folder (cluster.json is missing): "
                    "delete it or name another with --data"
                ) from None
            return None
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise Setup(
                f"{file} cannot be read ({cause_of(error)}): delete the folder or name another with --data"
            ) from None
        for index in range(len(cluster.ports)):
            meta = self.node(index + 1).data / "meta.properties"
            if not meta.exists() or cluster.cluster_id not in meta.read_text():
                raise Setup(
                    f"{self.path} is half-written ({meta.relative_to(self.path)} is missing or another "
                    "cluster's): delete it or name another with --data"
                )
        return cluster

    def write_cluster(self, cluster: Cluster) -> None:
        """Replace cluster.json in one step."""
        part = self.path / "cluster.json.part"
        part.write_text(json.dumps(asdict(cluster)) + "\n")
        part.replace(self.path / "cluster.json")
