"""`tempotrace clock experiment`: one command an experiment, each in its own module `clock_experiment_<name>`."""

import importlib
import importlib.util
from typing import Final

import typer

EXPERIMENTS: Final = ("misorder", "netns", "asymmetry", "coverage", "gpu")

app = typer.Typer(
    help="Experiments on clocks and order: theory checked by simulation, and measurements on this machine.\n\n"
    "Example: tempotrace clock experiment misorder",
    no_args_is_help=True,
)


@app.callback()
def _group() -> None:
    """A callback keeps this a group even while it has a single command."""


for _name in EXPERIMENTS:
    if importlib.util.find_spec(f"tempotrace.cli.clock_experiment_{_name}") is not None:
        importlib.import_module(f"tempotrace.cli.clock_experiment_{_name}").register(app)
