"""What the lake says of the user's own files in a run of the demo."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from rich.console import Console

from producers.host import logs
from schemas.columns import Op
from streams.diagnosis.window import EVERY_TO_EVERY
from tempotrace import clockcheck, told

WAITS_SHOWN: Final = 10
Query = Callable[..., list[dict[str, Any]]]


def result(query: Query, tenant: str, scope: str, produced: Mapping[str, Any]) -> dict[str, Any]:
    """Edges, waits, clocks and flows of the scope. `query(sql, *parameters)` asks the lake.

    The entries are as `analyze --json` has them; `produced` is what the files' producer printed.
    """
    mine = "tenant = ? AND scope = ?"
    edges: dict[str, dict[str, int]] = {}
    for row in query(
        f"SELECT kind, verdict, count(*) AS n FROM edges WHERE {mine} GROUP BY ALL", tenant, scope
    ):
        edges.setdefault(row["kind"], {})[row["verdict"]] = row["n"]
    # In other operations a short kernel is no late one.
    waited_for = [op.name.lower() for op in Op if EVERY_TO_EVERY[op]]
    waits = query(
        "SELECT op AS operation, group_name AS group, members, end_ns, "
        "coalesce('rank' || last_rank, '?') AS last_to_arrive, last_ns, "
        "coalesce('rank' || longest_rank, '?') AS longest_wait, longest_ns, "
        "longest_ns - last_ns AS longest_wait_ns FROM collective_waits() "
        f"WHERE {mine} AND members > 1 AND list_contains(?, op) "
        f"ORDER BY longest_wait_ns DESC, end_ns LIMIT {WAITS_SHOWN}",
        tenant,
        scope,
        waited_for,
    )
    clocks = query(
        "SELECT clock_id AS clock, parent, kind, status, offset_ns, bound_ns, assurance "
        f"FROM clock_states() WHERE {mine} ORDER BY clock_id",
        tenant,
        scope,
    )
    files = [Path(name) for each in produced["inputs"] if each["kind"] == "logs" for name in each["files"]]
    flows = query(
        "SELECT count(DISTINCT flow_id) AS n FROM flows WHERE tenant = ? AND scope = ?", tenant, scope
    )
    return {
        "scope": scope,
        "inputs": produced["inputs"],
        "events": int(produced["events"]),
        "edges": edges,
        "longest_waits": waits,
        "clocks": clocks,
        "clock_logs": clockcheck.check(files, logs.Options(tenant=tenant))[0]["clocks"] if files else [],
        "flows": int(flows[0]["n"]),
    }


def show(own: Mapping[str, Any], console: Console) -> None:
    """The same for people."""
    console.print(
        f"[bold]Your own files[/bold], scope {own['scope']}: {told.counted(own['events'], 'event')}."
    )
    for each in own["inputs"]:
        names = ", ".join(Path(name).name for name in each["files"])
        console.print(
            f"  {each['kind']}: {told.counted(each['events'], 'event')} of {names}", highlight=False
        )
        for line in each["warnings"]:
            console.print(f"  left out: {line}", highlight=False, markup=False)
    for kind, verdicts in sorted(own["edges"].items()):
        counts = ", ".join(f"{count:,} {verdict}" for verdict, count in sorted(verdicts.items()))
        console.print(f"  edges of kind {kind}: {counts}")
    for line in told.unmatched(own["inputs"]):
        console.print(f"  {line}")
    if own["flows"]:
        console.print(f"  {told.counted(own['flows'], 'flow')} followed")
    if own["longest_waits"]:
        console.print(told.waits(own["longest_waits"]))
    if clocks := told.all_clocks(own):
        console.print(told.clocks(clocks))


def queries(own: Mapping[str, Any]) -> list[str]:
    """SQL to go on with, about the user's own scope."""
    scope = own["scope"]
    out = [
        f"SELECT kind, verdict, count(*), min(gap_ns), max(gap_ns) FROM edges WHERE scope = '{scope}' GROUP BY ALL",
        f"SELECT order_ns, host, rank, name, verdict FROM events WHERE scope = '{scope}' ORDER BY order_ns LIMIT 20",
    ]
    if own["longest_waits"]:
        out[1] = (
            f"FROM collective_waits() WHERE scope = '{scope}' ORDER BY longest_ns - last_ns DESC LIMIT 10"
        )
    return out
