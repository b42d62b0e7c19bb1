"""`tempotrace produce`: one command a kind of input, each in its own module `produce_<kind>`."""

import importlib
import importlib.util

import typer

from tempotrace.cli.feed import publish, stop_signals, tell

__all__ = ["app", "publish", "stop_signals", "tell"]

KINDS = ("host", "gpu", "int", "fabric", "sim", "files")

app = typer.Typer(
    help="Read clocks, traces, packets or a simulation into Kafka.\n\n"
    "Example: tempotrace produce gpu --kineto traces/",
    no_args_is_help=True,
)


@app.callback()
def _group() -> None:
    """A callback keeps this a group even while it has a single command."""


for _kind in KINDS:
    if importlib.util.find_spec(f"tempotrace.cli.produce_{_kind}") is not None:
        importlib.import_module(f"tempotrace.cli.produce_{_kind}").register(app)
