"""From what `tempotrace flows` read and computed to a file with a page."""

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from typer import Context

from schemas.errors import Setup, Usage, cause_of
from streams.paths.whatif import Case, Figures
from tempotrace.flowdata import Source, stated_capacities
from tempotrace.page.page import compare_page, report_page
from tempotrace.page.parts import Counted, Known
from tempotrace.page.verify import Again
from tempotrace.page.view import side


def known(source: Source | None, fabric: str | None, gbps: float | None) -> Known:
    """What is known of flows' paths and links' capacities besides the case. `gbps` None: capacities are assumed."""
    if source is None:
        return Known(capacity=None if fabric is None or gbps is not None else stated_capacities(fabric))
    if fabric is not None:
        capacity = None if gbps is not None else stated_capacities(fabric)
        return Known(interval_ns=source.interval_ns, capacity=capacity)
    counted = {name: Counted(*figures) for name, figures in source.counted.items()}
    return Known(
        [one for one in source.seen if one.path], source.interval_ns, counted,
        None if gbps is not None else frozenset(source.capacity_bps),
    )  # fmt: skip


def write_report(
    path: Path, result: dict[str, Any], case: Case, figures: Figures, beside: Known, again: Again
) -> None:
    """The page of a report. Raises Usage, Setup."""
    _write(path, report_page(result, side(case, figures, beside, alone=True), again))


def write_comparison(
    path: Path, result: dict[str, Any], sides: Sequence[tuple[Case, Figures]], beside: Known, again: Again
) -> None:
    """The page of a comparison. Raises Usage, Setup."""
    a = side(*sides[0], beside)
    b = side(*sides[1], beside, a)
    _write(path, compare_page(result, a, b, result["difference"], result.get("study"), again))


def checked(path: Path | None) -> Path | None:
    """The file to write, before any work is done for it. Raises Usage."""
    if path is not None and path.suffix.lower() not in (".html", ".htm"):
        raise Usage(f"--html {path}: the name must end in .html")
    if path is not None and not path.parent.is_dir():
        raise Usage(f"--html {path}: there is no folder {path.parent}")
    return path


def _write(path: Path, page: str) -> None:
    try:
        path.write_text(page, encoding="utf-8")
    except OSError as error:
        raise Setup(f"cannot write {path}: {cause_of(error)}") from error


def again(context: Context, lake: Path | None, tenant: str) -> Again:
    """How to have the figures once more: the same command with --json in place of the page."""
    words = ["tempotrace", *context.command_path.split()[1:]]
    for option in context.command.params:
        source = context.get_parameter_source(option.name or "")
        if source is not None and source.name == "COMMANDLINE" and option.name not in ("html", "as_json"):
            words += [option.opts[0], str(context.params[option.name or ""])]
    return Again(shlex.join([*words, "--json"]), None if lake is None else str(lake), tenant)
