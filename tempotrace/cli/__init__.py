"""The command line: `tempotrace GROUP COMMAND`.

Each entry of COMMANDS has a module of the same name beside this file, with `app = typer.Typer()`. Only the
one that is called gets imported, so that `tempotrace --help` and each command start fast. A module with
several commands is a group; one whose only command has the module's name is that command itself.

Every error of schemas.errors becomes one line on stderr and, with --json, an object {"error": ...} on stdout.
Exit code: 0 success, 1 failure, 2 wrong usage, 130 interrupted. For unusable input see tempotrace.used.
"""

import contextlib
import functools
import importlib
import importlib.util
import json
import logging
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import typer
from typer.exceptions import Abort, TyperException

from schemas.errors import TempoError, Usage, cause_of
from tempotrace import logs
from tempotrace.used import NothingUsed

log = logging.getLogger(__name__)

COMMANDS: Final = {
    "demo": "Run the whole pipeline on live input made on the spot.",
    "broker": "Start and stop a local Apache Kafka.",
    "topics": "Make and list a tenant's topics.",
    "produce": "Read clocks, traces, packets or a simulation into Kafka.",
    "stream": "Run a stage: merge, paths, diagnose, incidents.",
    "sink": "Write the lake, send alerts.",
    "replay": "Feed archived events into a tenant again.",
    "analyze": "Run the stages on files, without Kafka.",
    "sql": "Ask the lake in SQL.",
    "tail": "Show a tenant's records as they come.",
    "clock": "Check clock logs; experiments on order.",
    "flows": "Report how flows spread over links.",
    "train": "Train the diagnosis model.",
    "evaluate": "Judge the diagnosis on labelled runs.",
    "export": "Write Perfetto or OTLP.",
    "ui": "Serve the page.",
    "doctor": "Check what this machine has.",
    "bench": "Measure each stage beside a bare copy.",
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one command and exit with its code; the console script `tempotrace`."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    code = run(given)
    try:
        sys.stdout.flush()
    except OSError as error:
        # The reader has gone (`| head`): nothing more to say. Or the disk is full: said once.
        if not isinstance(error, BrokenPipeError) and code == 0:
            print(f"tempotrace: cannot write the result: {_os_reason(error)}", file=sys.stderr)
        # The interpreter must not try again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = code or 1
    sys.exit(code)


def run(arguments: Sequence[str]) -> int:
    """Run one command; returns the exit code. A bug of ours comes out as its traceback."""
    try:
        logs.set_up()
        called = next((argument for argument in arguments if not argument.startswith("-")), None)
        command = typer.main.get_command(_application(called))
        _refuse_empty(command)
        code = command.main(args=list(arguments), prog_name="tempotrace", standalone_mode=False)
        if code == 130:  # typer has made this of a KeyboardInterrupt
            raise KeyboardInterrupt
        return code if isinstance(code, int) else 0
    except TyperException as error:
        message = _worded(error.format_message())
        # A group called without a command has shown its help and has no more to say.
        return _fail(f"{message} See --help.", 2, arguments) if message else 2
    except Usage as error:
        return _fail(str(error), 2, arguments)
    except TempoError as error:
        return _fail(str(error), 1, arguments, error.result if isinstance(error, NothingUsed) else None)
    except SystemExit as ended:  # a command that was stopped, and has said so itself
        return ended.code if isinstance(ended.code, int) else 1
    except BrokenPipeError:
        return 1
    except KeyboardInterrupt:
        return _fail("interrupted", 130, arguments)
    except Abort as error:
        if isinstance(error.__cause__, EOFError):  # typer takes every such error for an interrupt
            return _fail(
                f"the input ended too early: {error.__cause__ or 'there is no more to read'}", 1, arguments
            )
        return _fail("interrupted", 130, arguments)
    except OSError as error:  # a full disk, a missing right: the world's doing, and not ours
        log.debug("where it happened", exc_info=True)
        return _fail(_os_reason(error), 1, arguments)
    except Exception as error:
        refused = _refused_setting(error)
        if refused is None:
            raise
        return _fail(refused, 2, arguments)


def _os_reason(error: OSError) -> str:
    """What the system refused, and of which file."""
    return f"{error.filename}: {cause_of(error)}" if error.filename else cause_of(error)


def _refused_setting(error: Exception) -> str | None:
    """Why Kafka's client could not be made, if that is what the error tells: settings that don't fit ours."""
    client = sys.modules.get("confluent_kafka")
    if client is None or not isinstance(error, client.KafkaException):
        return None
    reason = str(error.args[0].str()) if error.args else ""
    made, _, why = reason.partition(": ")
    if not made.startswith("Failed to create"):
        return None
    return f"--kafka-properties: the Kafka client refuses the settings together with our own: {why}"


# What the option parser's own words become. The first match counts for each.
_WORDS: Final = (
    (r"Input should be a valid integer\b.*", "a whole number is needed"),
    (r"Input should be a valid number\b.*", "a number is needed"),
    (r"Input should be greater than or equal to (\S+)", r"it must be \1 or more"),
    (r"Input should be less than or equal to (\S+)", r"it must be \1 or less"),
    (r"Input should be ", "it must be "),
    (r"Value error, ", ""),
    (r"No such option: (\S+) \(Possible options: (.+)\)", r"No such option: \1; perhaps \2"),
)


def _worded(message: str) -> str:
    """A message of the option parser in plain words, with a full stop."""
    line = " ".join(message.split())
    for pattern, words in _WORDS:
        line = re.sub(pattern, words, line)
    return f"{line.rstrip('.')}." if line else ""


def _fail(message: str, code: int, arguments: Sequence[str], result: Mapping[str, Any] | None = None) -> int:
    line = " ".join(message.split())
    print(f"tempotrace: {line}", file=sys.stderr)
    if "--json" in arguments:
        with contextlib.suppress(OSError):  # stdout may be what has failed
            print(json.dumps({"error": line, **(result or {})}, default=str))
    return code


def _application(called: str | None) -> typer.Typer:
    """The root, with the called command loaded and the name and help of all the others."""
    app = typer.Typer(
        add_completion=False,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        help="Causal order, clock faults and network paths of GPU clusters.\n\nExample: tempotrace demo",
    )
    app.callback()(_root)
    for name, text in COMMANDS.items():
        if importlib.util.find_spec(f"tempotrace.cli.{name}") is None:
            continue
        if name != called:
            app.command(name, help=text)(_not_called)
            continue
        loaded: typer.Typer = importlib.import_module(f"tempotrace.cli.{name}").app
        own = [each.name or getattr(each.callback, "__name__", "") for each in loaded.registered_commands]
        if own == [name]:
            app.registered_commands += loaded.registered_commands
        else:
            app.add_typer(loaded, name=name, help=text, no_args_is_help=True)
    return app


def _refuse_empty(command: Any) -> None:
    """Have no option or argument of a command, or of a group's, take an empty text.

    It is mostly a variable of the shell that isn't set; taken for a path it would be the current folder.
    """
    for each in getattr(command, "commands", {}).values():
        _refuse_empty(each)
    for parameter in command.params:
        parameter.process_value = functools.partial(_filled, parameter, parameter.process_value)


def _filled(parameter: Any, process: Callable[[Any, Any], Any], context: Any, value: Any) -> Any:
    if value == "" or (isinstance(value, list | tuple) and "" in value):
        raise Usage(f"{max(parameter.opts, key=len)} is empty: give it a value or leave it out")
    return process(context, value)


def _version(asked: bool) -> None:
    if asked:
        from importlib.metadata import PackageNotFoundError, version

        try:
            print(f"tempotrace {version('tempotrace')}")
        except PackageNotFoundError:
            print("tempotrace (run from its sources and not installed: it has no version)")
        raise typer.Exit


def _root(
    version: bool = typer.Option(
        False, "--version", callback=_version, is_eager=True, help="Show the version."
    ),
) -> None:
    """The root has no work of its own."""


def _not_called() -> None:
    raise AssertionError("only the help of a command that was not loaded is ever used")
