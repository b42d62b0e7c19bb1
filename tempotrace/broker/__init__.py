"""Runs a real Apache Kafka on this machine: one node, or three that are broker and controller at once.

    start   new folder: format each node, then write cluster.json (the folder is whole from here on)
            always:     render the configuration, launch, wait until all nodes answer
    stop    SIGTERM to each node, wait until the processes have ended
    status  which nodes live

Topics and schemas are made by `tempotrace.topics_admin`. A crash at any point leaves either a folder without
cluster.json, which the next start refuses with the way out, or nodes that `stop` and `status` recognise.
"""

import base64
import logging
import subprocess
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from producers.kafka_client import with_log
from schemas.errors import Setup, Usage
from tempotrace.broker import config, installed, process
from tempotrace.broker.config import HOST, Node
from tempotrace.broker.folder import Cluster, DataFolder
from tempotrace.clockwork import Clock, WallClock, random_bytes
from tempotrace.settings import DEFAULT_PORT, Pointer

START_SECONDS_MAX: Final = 90
UNPRIVILEGED: Final = 1024  # ports below are for root, unless the system is set otherwise

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Status:
    """A broker's folder, its address and the pid of each node (None: not running)."""

    data: Path
    bootstrap: str
    pids: tuple[int | None, ...]

    @property
    def running(self) -> bool:
        """Whether every node's process lives."""
        return bool(self.pids) and all(pid is not None for pid in self.pids)


def start(
    data: Path,
    port: int | None = None,
    brokers: int | None = None,
    home: Path | None = None,
    say: Callable[[str], None] = lambda _: None,
    clock: Clock | None = None,
) -> Status:
    """Start the broker of a data folder and wait until it answers.

    port: of the first node, the next ones take the ports after it; 0 lets the system choose; None means the
    folder's last one, else 9092. brokers: 1 or 3, None means what the folder holds, else 1. home: where to
    note this broker as the one that other commands use. Raises Setup (port taken, Java or jars missing,
    folder half-written or in use, Kafka's own refusal) and Usage.
    """
    if brokers not in {None, 1, 3}:
        raise Usage(f"--brokers {brokers}: 1 or 3 can be started here")
    if port:
        _check_ports(range(port, port + (brokers or 1)))
    java, jars = installed.find_java(), installed.jars_folder()
    folder = DataFolder(data)
    with folder.locked():
        cluster = folder.cluster()
        _refuse_if_running(folder, cluster, port)
        if cluster and brokers not in {None, len(cluster.ports)}:
            raise Setup(
                f"{folder.path} holds {len(cluster.ports)} broker(s), not {brokers}: name another folder"
            )
        count = len(cluster.ports) if cluster else brokers or 1
        ports = _ports(cluster, port, count)
        nodes = [Node(i + 1, ports[i], p) for i, p in enumerate(process.free_ports(count))]
        _render(folder, nodes)
        if cluster is None:
            say("formatting the data folder")
            cluster_id = base64.urlsafe_b64encode(b"\x01" + random_bytes(15)).decode().rstrip("=")
            _format(folder, nodes, java, jars, cluster_id)
        else:
            cluster_id = cluster.cluster_id
        folder.write_cluster(Cluster(cluster_id, tuple(ports)))
        say("starting Apache Kafka")
        _launch(folder, nodes, java, jars, clock or WallClock())
        found = _status(folder, Cluster(cluster_id, tuple(ports)))
    if home is not None:
        Pointer(found.bootstrap, found.data).write(home)
    return found


def stop(data: Path, home: Path | None = None) -> Status:
    """Stop the nodes of a data folder that run, and wait for their end; nothing to stop is no error.

    `home` goes on naming the folder, so that the next start finds it, but no longer as one that answers.
    """
    noted = Pointer.read(home) if home is not None else None
    folder = DataFolder(data)
    if not folder.path.is_dir():
        raise Setup(f"there is no broker's data folder {folder.path}")
    with folder.locked():
        found = _status(folder, folder.cluster())
        process.stop([pid for pid in found.pids if pid is not None])
        for index in range(len(found.pids)):
            folder.node(index + 1).pid.unlink(missing_ok=True)
    if home is not None and noted is not None and noted.data == folder.path:
        replace(noted, stopped=True).write(home)
    return found


def status(data: Path) -> Status:
    """How the broker of a data folder does; a folder that is not there has no nodes."""
    folder = DataFolder(data)
    return _status(folder, folder.cluster())


def default_folder(home: Path) -> Path:
    """Where a broker's data are unless a folder is named: that of the last start, else <home>/broker.

    Raises Usage if the note of the last start can't be read.
    """
    noted = Pointer.read(home)
    return noted.data if noted else own_folder(home)


def own_folder(home: Path) -> Path:
    """Where a home's first broker keeps its data."""
    return home / "broker"


def folder_to_start(home: Path) -> Path:
    """The default folder, for a start. Raises Setup if it is elsewhere and its data have gone since.

    A new, empty broker in its place would look like one that has lost everything.
    """
    folder, own = default_folder(home), own_folder(home)
    if folder.resolve() != own.resolve() and DataFolder(folder).cluster() is None:
        raise Setup(
            f"the broker that ran last had its data in {folder}, where there are none now: bring them back, "
            f"or name a folder for a new one, such as --data {own}"
        )
    return folder


def last_port(data: Path) -> int | None:
    """Port of the first node as of a data folder's last start, None for a new folder."""
    cluster = DataFolder(data).cluster()
    return cluster.ports[0] if cluster else None


def _status(folder: DataFolder, cluster: Cluster | None) -> Status:
    nodes = [folder.node(index + 1) for index in range(len(cluster.ports))] if cluster else []
    pids = tuple(process.living(node.pid, str(node.properties)) for node in nodes)
    bootstrap = ",".join(f"{HOST}:{port}" for port in cluster.ports) if cluster else ""
    return Status(folder.path, bootstrap, pids)


def _refuse_if_running(folder: DataFolder, cluster: Cluster | None, port: int | None) -> None:
    found = _status(folder, cluster)
    if found.running and cluster is not None:
        other = port is not None and port != cluster.ports[0]
        raise Setup(
            f"a broker runs on {folder.path} already ({found.bootstrap}, pid {found.pids[0]})"
            + (f", at port {cluster.ports[0]}, not {port}: stop it before it can move" if other else "")
        )
    living = sum(pid is not None for pid in found.pids)
    if living:
        raise Setup(
            f"only {living} of {len(found.pids)} nodes run on {folder.path}: "
            f"`tempotrace broker stop --data {folder.path}`, then start again"
        )


def _ports(cluster: Cluster | None, port: int | None, count: int) -> list[int]:
    if port == 0:
        return process.free_ports(count)
    if port is not None:
        ports = list(range(port, port + count))
    else:
        ports = list(cluster.ports) if cluster else list(range(DEFAULT_PORT, DEFAULT_PORT + count))
    _check_ports(ports)
    for each in ports:
        if each < UNPRIVILEGED and process.forbidden(each):
            raise Setup(
                f"port {each} is only for root here: choose one of {UNPRIVILEGED} or more with --port"
            )
        if not process.port_is_free(each):
            raise Setup(f"port {each} on {HOST} is taken: stop what uses it, or choose another with --port")
    if port is not None and ports[0] < UNPRIVILEGED:
        log.warning("port %d is kept for the next start, and only root may use it", ports[0])
    return ports


def _check_ports(ports: Iterable[int]) -> None:
    for each in ports:
        if not 0 < each < 65536:
            raise Usage(f"port {each}: choose 1 to 65535, or 0 for a free one")


def _render(folder: DataFolder, nodes: list[Node]) -> None:
    for node in nodes:
        paths = folder.node(node.id)
        paths.root.mkdir(exist_ok=True)
        paths.properties.write_text(config.server_properties(node, nodes, paths.data))
        paths.logging.write_text(config.logging_properties(paths.log))


def _format(folder: DataFolder, nodes: list[Node], java: Path, jars: Path, cluster_id: str) -> None:
    """Let Kafka's own tool prepare the folder of each node, all at once."""
    running = []
    for node in nodes:
        paths = folder.node(node.id)
        arguments = ["format", "--cluster-id", cluster_id, "--config", str(paths.properties)]
        command = config.java_command(java, jars, paths.logging, "kafka.tools.StorageTool", *arguments)
        running.append(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True))
    results = [(each.communicate()[0], each.returncode) for each in running]
    for output, code in results:
        if code != 0:
            lines = output.strip().splitlines() or ["it said nothing"]
            raise Setup(f"Kafka could not format {folder.path} with {java}: {lines[-1]}")


def _launch(folder: DataFolder, nodes: list[Node], java: Path, jars: Path, clock: Clock) -> None:
    """Start every node and wait until the cluster answers; after a failure none is left running."""
    children = []
    try:
        for node in nodes:
            paths = folder.node(node.id)
            command = config.java_command(java, jars, paths.logging, "kafka.Kafka", str(paths.properties))
            children.append(process.launch(command, paths.pid, paths.output))
        _await_answer(folder, nodes, children, clock)
    except BaseException:
        process.stop(children, seconds=10)
        for node in nodes:
            folder.node(node.id).pid.unlink(missing_ok=True)
        raise


def _await_answer(folder: DataFolder, nodes: list[Node], children: list[int], clock: Clock) -> None:
    settings: dict[str, Any] = {
        "bootstrap.servers": ",".join(f"{HOST}:{node.port}" for node in nodes),
        "reconnect.backoff.ms": 20,
        "reconnect.backoff.max.ms": 100,
    }
    admin = AdminClient(with_log(settings, _ignore))  # refused connections are what we wait out
    end = clock.monotonic() + START_SECONDS_MAX
    while clock.monotonic() < end:
        for node, child in zip(nodes, children, strict=True):
            if process.ended(child):
                raise Setup(f"Kafka ended at once: {_last_words(folder, node)}")
        try:
            # A node counts only when the controller has let it in, so all listed means all usable.
            if len(admin.list_topics(timeout=0.5).brokers) == len(nodes):
                return
        except KafkaException:
            continue
    raise Setup(f"Kafka did not answer within {START_SECONDS_MAX} s: see {folder.node(nodes[0].id).log}")


def _ignore(_: object) -> None:
    """Connection errors of a broker that is still starting say nothing."""


def _last_words(folder: DataFolder, node: Node) -> str:
    """The last error in a node's log or output, with the file to read on in."""
    paths = folder.node(node.id)
    for file in (paths.log, paths.output):
        lines = file.read_text(errors="replace").splitlines() if file.exists() else []
        marked = [line for line in lines if " ERROR " in line or " FATAL " in line] or (
            lines if file is paths.output else []
        )
        if marked:
            return f"{marked[-1].strip()} (see {file})"
    return f"it said nothing (see {paths.root})"
