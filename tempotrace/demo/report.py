"""What the lake says of a run of the demo, as the object that `--json` prints and as words for people."""

import json
import shutil
import sys
from pathlib import Path
from typing import Any

from rich.table import Table

from schemas.time import format_ns
from sinks import views
from tempotrace.cli.options import console as plain_console
from tempotrace.demo.run import TENANT, Outcome


def result(outcome: Outcome, lake: Path, seconds: float) -> dict[str, Any]:
    """Counts from the producers, the stages and the lake; incidents, slowest rank and clocks from the lake."""
    scopes = list(outcome.scopes.values())
    with views.connect(lake) as db:

        def rows(query: str) -> list[dict[str, Any]]:
            found = db.execute(query, [TENANT, scopes])
            names = [column[0] for column in found.description or ()]
            return [dict(zip(names, row, strict=True)) for row in found.fetchall()]

        mine = "tenant = ? AND list_contains(?, scope)"
        in_lake = rows(f"SELECT count(*) AS n FROM events WHERE {mine}")[0]["n"]
        late = rows(f"SELECT count(*) AS n FROM late WHERE {mine}")[0]["n"]
        incidents = rows(
            "SELECT incident_id, scope, class, component_kind, component, confidence, onset_ns, detected_ns, "
            f"resolved_ns, victims, evidence FROM incidents WHERE {mine} ORDER BY onset_ns"
        )
        inversions = rows(
            "SELECT coalesce(sum(inversions_raw), 0) AS raw, coalesce(sum(inversions_after), 0) AS after, "
            f"coalesce(sum(edges_unrepaired), 0) AS unrepaired FROM windows WHERE {mine}"
        )[0]
        clocks = rows(
            "SELECT scope, clock_id, kind, status, bound_ns, tai_bound_ns, parent FROM clock_states() "
            f"WHERE {mine} ORDER BY scope, clock_id"
        )
        slowest = rows(
            "SELECT effect_rank AS rank, count(*) AS collectives, "
            "median(waited) AS median_wait_of_others_ns FROM (SELECT effect_rank, "
            "median(effect_duration_ns) OVER w - effect_duration_ns AS waited, "
            "effect_duration_ns = min(effect_duration_ns) OVER w AS last FROM edges WHERE "
            f"{mine} AND kind = 'collective' AND effect_rank IS NOT NULL "
            "WINDOW w AS (PARTITION BY scope, group_name, match_key)) WHERE last "
            "GROUP BY rank ORDER BY collectives DESC, rank LIMIT 1"
        )
    merge = outcome.stages["merge"]
    for incident in incidents:
        incident["evidence"] = json.loads(incident["evidence"])
    return {
        "events_produced": sum(int(found["events"]) for found in outcome.produced.values()),
        "events_merged": int(merge["events_out"]),
        "events_in_lake": int(in_lake),
        "events_late": int(late),
        "events_deadlettered": sum(int(found.get("deadlettered", 0)) for found in outcome.stages.values()),
        "inversions_raw": int(inversions["raw"]),
        "inversions_after": int(inversions["after"]),
        "edges_unrepaired": int(inversions["unrepaired"]),
        "incidents": incidents,
        "slowest_rank": slowest[0] if slowest else None,
        "clocks": clocks,
        "lake": str(lake),
        "tenant": TENANT,
        "scopes": outcome.scopes,
        "produced": {name: int(found["events"]) for name, found in outcome.produced.items()},
        "seconds": round(seconds, 1),
    }


def show(found: dict[str, Any], started: bool) -> None:
    """The summary for people, and three things to try next."""
    console = plain_console()
    console.print(
        f"\n[bold]{found['events_produced']:,} events produced[/bold], {found['events_in_lake']:,} in the lake, "
        f"{found['events_late']:,} late, {found['events_deadlettered']:,} dead-lettered, "
        f"in {found['seconds']:.0f} s."
    )
    console.print(
        f"{found['inversions_raw']:,} effects bore a stamp before their cause's; after the merge "
        f"{found['inversions_after']:,} do. {found['edges_unrepaired']:,} edges could not order anything, "
        "because the cause came after its effect had left; they are judged and counted like all others."
    )
    table = Table("incident", "component", "confidence", "why", title="Incidents")
    for incident in found["incidents"]:
        table.add_row(
            incident["class"],
            incident["component"],
            f"{incident['confidence']:.2f}",
            _why(incident["evidence"]),
        )
    console.print(table)
    slowest = found["slowest_rank"]
    if slowest is not None:
        console.print(
            f"Slowest rank: [bold]{slowest['rank']}[/bold], last to arrive in {slowest['collectives']:,} collectives, "
            f"where the median member waited {format_ns(slowest['median_wait_of_others_ns'])}."
        )
    states = Table("clock", "kind", "status", "claims, to its parent", "to TAI", title="Clocks of the hosts")
    blamed = {
        incident["component"] for incident in found["incidents"] if incident["component_kind"] == "clock"
    }
    for clock in found["clocks"]:
        # GPU and system clocks hang below these; `clock_states()` lists all.
        if clock["parent"] in (None, "TAI"):
            wrong = ", but contradicted" if clock["clock_id"] in blamed else ""
            states.add_row(
                clock["clock_id"],
                clock["kind"],
                clock["status"] + wrong,
                _bound(clock["bound_ns"]),
                _bound(clock["tai_bound_ns"]),
            )
    console.print(states)
    job = found["scopes"]["job"]
    # As the user can type it: the environment need not be active.
    me = "tempotrace" if shutil.which("tempotrace") else sys.argv[0]
    lake = found["lake"]
    console.print("\nThree things to try next:")
    console.print(
        f'  {me} sql --lake {lake} "SELECT verdict, count(*), min(gap_ns), max(gap_ns) FROM edges '
        f"WHERE scope = '{job}' AND kind = 'message' GROUP BY verdict\"",
        soft_wrap=True,
        highlight=False,
    )
    console.print(
        f'  {me} sql --lake {lake} "SELECT order_ns, host, rank, name, verdict, cause_source FROM events '
        f"WHERE scope = '{job}' AND verdict = 'violated' ORDER BY order_ns LIMIT 20\"",
        soft_wrap=True,
        highlight=False,
    )
    console.print(
        f"  with files of your own: {me} analyze TRACES/ ptp4l.log --clock-bound 1us",
        soft_wrap=True,
        highlight=False,
    )
    if started:
        console.print(
            "\nThe broker was stopped again; `tempotrace broker start` starts it with the same data."
        )


def _bound(ns: int | None) -> str:
    return "unknown" if ns is None else f"±{format_ns(ns)}"


def _why(evidence: dict[str, Any]) -> str:
    if evidence.get("offset_low_ns") is not None or evidence.get("offset_high_ns") is not None:
        ends = [
            format_ns(end) if end is not None else "?"
            for end in (evidence["offset_low_ns"], evidence["offset_high_ns"])
        ]
        return (
            f"its stamps are ahead by {ends[0]} to {ends[1]}: {evidence['violated_edges']} edges with "
            f"{len(evidence['peers'])} peers contradict its bound"
        )
    if "collectives_skewed" in evidence:
        return f"a suspect: its ends are off in {evidence['collectives_skewed']} collectives"
    return (
        f"last to arrive in {evidence['blamed']:.0f} of its last {evidence['collectives']:.0f} collectives, by chance "
        f"{evidence['expected_by_chance']:.1f}; costs the others {format_ns(evidence['cost_ns'])} each time"
    )
