"""Options that many commands share, and how results are printed."""

import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import typer

from schemas.time import parse_duration_ns
from schemas.topics import DEFAULT_TENANT, check_scope, check_tenant
from tempotrace import settings

if TYPE_CHECKING:
    from rich.console import Console

DEFAULT_LAKE: Final = Path("lake")
PIPE_WIDTH: Final = 10_000

Codec = Literal["none", "lz4", "zstd"]


def _if_given(check: Callable[[str], str]) -> Callable[[str | None], str | None]:
    """A check of a name as an option's callback. It raises Usage."""
    return lambda name: None if name is None else check(name)


# Use: def command(tenant: Tenant = DEFAULT_TENANT, bootstrap: Bootstrap = None, as_json: Json = False)
Tenant = Annotated[
    str, typer.Option("--tenant", metavar="NAME", help="Whose topics.", callback=_if_given(check_tenant))
]
one_scope = _if_given(check_scope)
Scope = Annotated[
    str | None,
    typer.Option("--scope", metavar="NAME", help="The job that the events belong to.", callback=one_scope),
]
Bootstrap = Annotated[
    str | None,
    typer.Option("--bootstrap-servers", metavar="HOST:PORT", help="Kafka, if not the one of `broker start`."),
]
KafkaProperties = Annotated[
    Path | None,
    typer.Option("--kafka-properties", metavar="FILE", help="SASL/TLS settings by librdkafka's names."),
]
Lake = Annotated[Path, typer.Option("--lake", metavar="DIR", help="Folder of the lake.")]
Drain = Annotated[
    bool, typer.Option("--drain", help="Work through all that is in the log now, commit, then end.")
]
Instance = Annotated[
    int, typer.Option("--instance", metavar="N", min=0, help="Number of this worker of the stage.")
]
AcceptLoss = Annotated[
    bool,
    typer.Option("--accept-loss", help="Go on where input is gone, and record the loss in `deadletter`."),
]
Compression = Annotated[
    Codec, typer.Option("--compression", metavar="CODEC", help="Of what is written: none, lz4, zstd.")
]
Json = Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")]

__all__ = [
    "DEFAULT_LAKE",
    "DEFAULT_TENANT",
    "AcceptLoss",
    "Bootstrap",
    "Codec",
    "Compression",
    "Drain",
    "Instance",
    "Json",
    "KafkaProperties",
    "Lake",
    "Scope",
    "Tenant",
    "connect",
    "console",
    "emit",
    "live_seconds",
    "one_scope",
]


def connect(bootstrap: str | None, kafka_properties: Path | None) -> settings.Settings:
    """Settings from the two shared options. Raises Usage."""
    return settings.load(bootstrap, kafka_properties)


def live_seconds(text: str | None) -> float | None:
    """`--for` in s; None is until stopped. Raises Usage."""
    return None if text is None else parse_duration_ns(text, "--for", 1) / 1e9


def emit(result: Mapping[str, Any], as_json: bool, human: Callable[[], object]) -> None:
    """Print a command's result: as its one JSON object, or by `human` for people."""
    if as_json:
        print(json.dumps(result, default=_plain))
    else:
        human()


def console(*, stderr: bool = False, plain: bool = False) -> "Console":
    """Where words for people go. A pipe has no width: no line is cut or broken there.

    `plain`: neither colours for numbers nor marks in brackets, for text that comes from outside.
    """
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() else PIPE_WIDTH
    return Console(stderr=stderr, width=width, highlight=not plain, markup=not plain)


def _plain(value: Any) -> Any:
    """JSON form of what json does not know: numpy numbers and arrays, paths, sets, bytes as hex."""
    if hasattr(value, "tolist"):
        return value.tolist()
    if isinstance(value, set | frozenset):
        return sorted(value)
    if isinstance(value, bytes):
        return value.hex()
    return str(value)
