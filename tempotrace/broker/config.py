"""What a broker's configuration says: pure functions from ports and folders to text."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from schemas.topics import MESSAGE_BYTES_MAX

HOST: Final = "127.0.0.1"  # loopback only: these brokers ask nobody for a password
HEAP: Final = "512m"


class Node(NamedTuple):
    """One process that is broker and controller at once."""

    id: int  # from 1
    port: int
    controller_port: int


def server_properties(node: Node, nodes: Sequence[Node], log_dir: Path) -> str:
    """Kafka's server.properties for one of the nodes of a cluster."""
    copies = min(3, len(nodes))
    in_sync = max(1, copies - 1)
    # Voters are named here rather than in the metadata log, so that ports may differ from start to start.
    voters = ",".join(f"{each.id}@{HOST}:{each.controller_port}" for each in nodes)
    settings: dict[str, str | int] = {
        "process.roles": "broker,controller",
        "node.id": node.id,
        "controller.quorum.voters": voters,
        "controller.listener.names": "CONTROLLER",
        "listeners": f"PLAINTEXT://{HOST}:{node.port},CONTROLLER://{HOST}:{node.controller_port}",
        "advertised.listeners": f"PLAINTEXT://{HOST}:{node.port}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "PLAINTEXT",
        "log.dirs": str(log_dir),
        # A mistyped topic is an error, not a new topic.
        "auto.create.topics.enable": "false",
        "default.replication.factor": copies,
        "min.insync.replicas": in_sync,
        "message.max.bytes": MESSAGE_BYTES_MAX,
        "replica.fetch.max.bytes": MESSAGE_BYTES_MAX,
        # The internal topics: fewer partitions make the first join of a group fast.
        "offsets.topic.num.partitions": 4,
        "offsets.topic.replication.factor": copies,
        "transaction.state.log.num.partitions": 4,
        "transaction.state.log.replication.factor": copies,
        "transaction.state.log.min.isr": in_sync,
        "share.coordinator.state.topic.num.partitions": 1,
        "share.coordinator.state.topic.replication.factor": copies,
        "share.coordinator.state.topic.min.isr": in_sync,
        "group.initial.rebalance.delay.ms": 0,
        # A stage that was killed goes on only when its open transaction has expired: look every second.
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": 1000,
        # After a crash a node is let in again only when its old session has run out: 6 s instead of 9.
        "broker.session.timeout.ms": 6000,
        "broker.heartbeat.interval.ms": 1000,
        # The default of 128 MB would be a quarter of the heap.
        "log.cleaner.dedupe.buffer.size": 16 * 1024 * 1024,
    }
    return properties(settings)


def logging_properties(log_file: Path) -> str:
    """Log4j's configuration: one rolling file of at most 4 × 10 MB."""
    return properties(
        {
            "status": "error",
            "appender.file.type": "RollingFile",
            "appender.file.name": "file",
            "appender.file.fileName": str(log_file),
            "appender.file.filePattern": f"{log_file}.%i",
            "appender.file.layout.type": "PatternLayout",
            "appender.file.layout.pattern": "%d{ISO8601} %p %m (%c{1})%n",
            "appender.file.policies.type": "Policies",
            "appender.file.policies.size.type": "SizeBasedTriggeringPolicy",
            "appender.file.policies.size.size": "10MB",
            "appender.file.strategy.type": "DefaultRolloverStrategy",
            "appender.file.strategy.max": 3,
            "rootLogger.level": "info",
            "rootLogger.appenderRef.file.ref": "file",
        }
    )


def properties(settings: Mapping[str, str | int]) -> str:
    """Text of a Java properties file; a backslash is an escape there and is doubled."""
    escaped = ((name, str(value).replace("\\", "\\\\")) for name, value in settings.items())
    return "".join(f"{name}={value}\n" for name, value in escaped)


def java_command(java: Path, jars: Path, logging_file: Path, main: str, *arguments: str) -> list[str]:
    """Command line of a long-running Java class of Kafka."""
    return [
        str(java),
        f"-Xms{HEAP}",
        f"-Xmx{HEAP}",
        "-XX:+ExitOnOutOfMemoryError",
        "-Djava.awt.headless=true",
        f"-Dlog4j2.configurationFile={logging_file}",
        "-cp",
        f"{jars}/*",
        main,
        *arguments,
    ]
