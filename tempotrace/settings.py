"""Where things are and how to reach Kafka: read once from options and environment, checked, then frozen."""

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from schemas.errors import Usage, cause_of

DEFAULT_PORT: Final = 9092
_SECRET: Final = ("password", "secret", "key.pem", "oauthbearer.config", "jaas")


@dataclass(frozen=True)
class Settings:
    """What every command knows. `kafka` holds librdkafka's own settings, bootstrap.servers among them."""

    home: Path
    kafka: Mapping[str, str] = field(repr=False)

    def __post_init__(self) -> None:
        check_bootstrap(self.kafka.get("bootstrap.servers", ""))

    @property
    def bootstrap(self) -> str:
        """host:port of one or more brokers, with commas between."""
        return self.kafka["bootstrap.servers"]

    @property
    def scopes(self) -> Path:
        """Folder in which live producers register (tenant, scope, clock)."""
        return self.home / "scopes"

    @property
    def stages(self) -> Path:
        """Folder in which running stages write their ports and logs."""
        return self.home / "stages"

    def shown(self) -> dict[str, str]:
        """The Kafka settings with every secret hidden, fit for a log."""
        return {key: "(hidden)" if is_secret(key) else value for key, value in self.kafka.items()}


def home_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """Folder of local state: TEMPOTRACE_HOME, else ./.tempotrace; absolute, not made here."""
    return Path(environ.get("TEMPOTRACE_HOME") or ".tempotrace").absolute()


def load(
    bootstrap: str | None = None,
    kafka_properties: Path | None = None,
    environ: Mapping[str, str] = os.environ,
) -> Settings:
    """Settings of this run. Raises Usage.

    The bootstrap servers are the first of: the option, the properties file, the broker that `broker start`
    started last in this home, 127.0.0.1:9092.
    """
    home = home_folder(environ)
    kafka: dict[str, str] = {}
    if kafka_properties:
        kafka = read_properties(kafka_properties)
        check_client(kafka, str(kafka_properties))
    if bootstrap:
        kafka["bootstrap.servers"] = bootstrap
    kafka.setdefault("bootstrap.servers", started_broker(home) or f"127.0.0.1:{DEFAULT_PORT}")
    return Settings(home, kafka)


def pointer_file(home: Path) -> Path:
    """File that names the broker which `broker start` started last."""
    return home / "broker.json"


@dataclass(frozen=True)
class Pointer:
    """What a home knows of the broker started last in it. It outlives a stop, so that the next start finds it."""

    bootstrap: str
    data: Path
    stopped: bool = False

    @classmethod
    def read(cls, home: Path) -> "Pointer | None":
        """The home's note, None where no broker was ever started. Raises Usage."""
        path = pointer_file(home)
        try:
            found = json.loads(path.read_text())
            return cls(str(found["bootstrap"]), Path(found["data"]), bool(found.get("stopped", False)))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise Usage(
                f"{path} names no broker ({cause_of(error)}): delete it, then name the broker's folder with "
                "`broker start --data`, or its address with --bootstrap-servers"
            ) from error

    def write(self, home: Path) -> None:
        """Replace the home's note in one step."""
        home.mkdir(parents=True, exist_ok=True)
        part = home / "broker.json.part"
        note = {"bootstrap": self.bootstrap, "data": str(self.data), "stopped": self.stopped}
        part.write_text(json.dumps(note) + "\n")
        part.replace(pointer_file(home))


def started_broker(home: Path) -> str | None:
    """Bootstrap servers of the broker started last in this home, None if there is none or it was stopped.

    Raises Usage.
    """
    noted = Pointer.read(home)
    return None if noted is None or noted.stopped else noted.bootstrap


def check_bootstrap(servers: str) -> str:
    """The servers, if each is host:port. Raises Usage."""
    for server in servers.split(","):
        host, _, port = server.strip().rpartition(":")
        if not host or not port.isdecimal() or not 0 < int(port) < 65536:
            raise Usage(f"bootstrap servers {servers!r}: each must be HOST:PORT, with commas between")
    return servers


def check_client(kafka: Mapping[str, str], where: str) -> None:
    """Let the Kafka client judge settings from `where`, as our producers and consumers use them.

    It is made without servers, so it connects to none. Raises Usage, which names the setting.
    """
    plain = {name: value for name, value in kafka.items() if name != "bootstrap.servers"}
    reason = _refusal(plain)
    if reason is not None:
        # The client names some settings by another name than the file does, and some not at all.
        alone = next((name for name, value in plain.items() if _refusal({name: value}) == reason), None)
        raise Usage(f"{where}: the Kafka client refuses {alone or 'the settings'}: {reason}")


def _refusal(kafka: Mapping[str, str]) -> str | None:
    """Why no client can be made with these settings, None if it can. Quoted values are left out."""
    from confluent_kafka import Consumer, KafkaException, Producer  # heavy: only where there are settings

    if "logger" in kafka:  # taken, whatever it is, and called later
        return "logger is for programs, not for files"
    try:
        Producer({**kafka, "enable.idempotence": True, "log_level": 0})
        Consumer({**kafka, "group.id": "check", "log_level": 0}).close()
    except (KafkaException, TypeError, ValueError) as error:
        reason = error.args[0].str() if isinstance(error, KafkaException) else str(error)
        for value in filter(None, kafka.values()):
            reason = reason.replace(f'"{value}" ', "")
        return re.sub("^Failed to create [a-z]+: ", "", reason).strip()
    return None


def is_secret(key: str) -> bool:
    """Whether a Kafka setting of this name may hold something that no log should show."""
    return any(part in key for part in _SECRET)


def read_properties(path: Path) -> dict[str, str]:
    """Kafka settings from a file of `name=value` lines with librdkafka's names; # begins a comment line.

    Values may hold `=` and are never part of an error message. Raises Usage.
    """
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise Usage(f"cannot read the Kafka settings in {path}: {cause_of(error)}") from error
    found: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        stripped = line.strip()
        if not stripped or stripped.startswith("#"):
            continue
        name, equals, value = stripped.partition("=")
        name = name.strip()
        if not equals or not name:
            raise Usage(f"{path} line {number}: expected name=value with librdkafka's names")
        if name in found:
            raise Usage(f"{path} line {number}: {name} is set twice")
        found[name] = value.strip()
    return found
