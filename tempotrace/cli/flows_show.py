"""What `tempotrace flows` shows on a terminal."""

from collections.abc import Iterator
from typing import Any

from tempotrace.cli.options import console as plain_console


def show(sides: list[dict[str, Any]], compared: dict[str, Any] | None = None) -> None:
    """One report, or both sides of a comparison and the whole."""
    from rich.table import Table

    console = plain_console(plain=True)
    whole = compared or sides[0]
    console.print(whole["input"], soft_wrap=True)
    table = Table("mode", "layer", "flows", "links", "FIM", "by chance", "z", "p", "max/mean")
    for side in sides:
        for row in side["layers"]:
            table.add_row(
                _name(side),
                row["layer"],
                f"{row['flows']:.0f}",
                str(row["links"]),
                f"{row['fim_routing']:.2f}",
                _figure(row["fim_null"], ".2f"),
                _figure(row["z"], "+.1f"),
                _figure(row["p"], ".2g"),
                f"{row['max_over_mean']:.2f}",
            )
    if table.row_count:
        console.print(table)
    for side in sides:
        for line in _lines(side):
            console.print(line, soft_wrap=True)
    for what in sides[0]["completion"]["left_out"] if sides[0]["bytes"] else ():
        console.print(f"  left out: {what}", soft_wrap=True)
    if compared and "study" in compared:
        for line in _drawn(compared["study"]):
            console.print(line, soft_wrap=True)
    if "page" in whole:
        console.print(f"page: {whole['page']}", soft_wrap=True)


def _name(side: dict[str, Any]) -> str:
    """How a side's flows went: recorded paths are no mode of routing."""
    recorded = side["routing"] == "as recorded"
    return "recorded" if recorded and side["mode"] == "ecmp" else str(side["mode"])


def _drawn(found: dict[str, Any]) -> Iterator[str]:
    """What a terminal shows of repeated draws."""
    for name, row in found["layers"].items() if "layers" in found else [("uplinks", found)]:
        yield (
            f"{found['draws']:,} draws, {name}: {row['a']['mode']} {row['a']['fim_mean']:.2f} ± "
            f"{row['a']['standard_error']:.2f} (chance: {row['a']['chance_mean']:.2f}), {row['b']['mode']} "
            f"{row['b']['fim_mean']:.2f}: {row['difference_points']:+.2f} points, "
            f"{_figure(row['difference_relative'], '+.0%')}"
        )
    if "paper" in found:
        yield f"paper: {found['paper']}"


def _lines(side: dict[str, Any]) -> Iterator[str]:
    """What a terminal shows of one case below the table."""
    losses, done, hashes = side["collisions"], side["completion"], side["polarisation"]
    for row in side["layers"]:
        if "verdict" in row:
            yield f"{_name(side)}, {row['layer']}: {row['verdict']} (bytes: {row['by_bytes'].get('verdict', 'none')})"
    if not side["layers"]:
        yield f"{_name(side)}: none of {side['flows']:,} flows had a choice of links, so there is no spread to judge"
    if not side["bytes"]:
        yield f"{_name(side)}: no flow's bytes are known, so neither collisions nor times can be told"
    else:
        yield (
            f"{_name(side)}: {losses['links']:,} links with colliding elephants; elephants lose "
            f"{losses['mean_loss']:.1%} on average, {losses['max_loss']:.1%} at most"
        )
        for worst in losses["worst"][:1]:
            yield f"  worst: {worst['link']}, {worst['elephants']} want {worst['overload']:.2f} × its capacity"
    if hashes["tested"] or hashes["unknown"]:
        yield (
            f"  polarisation: {hashes['verdict']} ({hashes['polarised']:,} of {hashes['tested']:,} tested, "
            f"{hashes['unknown']:,} with too few flows)"
        )
    for row in hashes["layers"]:
        yield f"    {row['layer_from']} to {row['layer_to']}, all together: z {_figure(row['z'], '+.1f')}"
    if side["bytes"] and done["seconds"] is not None:
        low, high = done["pfc_range_s"]
        yield (
            f"  done in {done['seconds']:.6g} s by max-min fair share (PFC: {low:.6g} to {high:.6g} s), "
            f"at best {done['lower_bound_s']:.6g} s"
        )
    if "assignment" in side:
        found = side["assignment"]
        yield (
            f"  assignment: worst link {found['worst_link_s']:.6g} s, bound {found['lower_bound_s']:.6g} s; "
            f"source ports for all but {found['without_port']:,} of {len(found['flows']):,} flows (--json)"
        )


def _figure(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)
