"""What the lake says of a run of the demo, as the object that `--json` prints and as words for people."""

import json
import shlex
import shutil
import sys
from pathlib import Path
from typing import Any, Final

from rich.markup import escape
from rich.table import Table

from schemas.time import format_ns
from sinks import views
from tempotrace import told
from tempotrace.cli.options import console as plain_console
from tempotrace.demo import own
from tempotrace.demo.run import TENANT, Outcome

# The edges between a clock with all that hang below it and other clocks that contradict their bounds.
CONTRADICTIONS: Final = (
    "WITH RECURSIVE below AS (SELECT ? AS clock, ? AS tenant, ? AS scope UNION SELECT c.clock_id, c.tenant, c.scope "
    "FROM clocks c JOIN below b ON c.parent = b.clock AND c.tenant = b.tenant AND c.scope = b.scope) "
    "SELECT count(*) AS violated_edges, count(DISTINCT if(caused, effect_clock, cause_clock)) AS other_clocks "
    "FROM (SELECT cause_clock, effect_clock, cause_clock IN (SELECT clock FROM below) AS caused, "
    "effect_clock IN (SELECT clock FROM below) AS effected FROM edges WHERE verdict = 'violated' "
    "AND (tenant, scope) IN (SELECT (tenant, scope) FROM below)) WHERE caused != effected"
)


def result(outcome: Outcome, lake: Path, seconds: float) -> dict[str, Any]:
    """Counts from the producers, the stages and the lake; incidents, slowest rank and clocks from the lake."""
    scopes = list(outcome.scopes.values())
    with views.connect(lake) as db:

        def ask(query: str, *parameters: Any) -> list[dict[str, Any]]:
            found = db.execute(query, parameters)
            names = [column[0] for column in found.description or ()]
            return [dict(zip(names, row, strict=True)) for row in found.fetchall()]

        def rows(query: str) -> list[dict[str, Any]]:
            return ask(query, TENANT, scopes)

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
        for incident in incidents:
            incident["evidence"] = json.loads(incident["evidence"])
            if incident["component_kind"] == "clock":
                accused = incident["component"].split("|")[0]
                (incident["in_lake"],) = ask(CONTRADICTIONS, accused, TENANT, incident["scope"])
        slowest = ask(
            "SELECT effect_rank AS rank, count(*) AS collectives, "
            "median(waited) AS median_wait_of_others_ns FROM (SELECT effect_rank, "
            "median(effect_duration_ns) OVER w - effect_duration_ns AS waited, "
            "effect_duration_ns = min(effect_duration_ns) OVER w AS last FROM edges WHERE "
            "tenant = ? AND scope = ? AND kind = 'collective' AND effect_rank IS NOT NULL "
            "WINDOW w AS (PARTITION BY scope, group_name, match_key)) WHERE last "
            "GROUP BY rank ORDER BY collectives DESC, rank LIMIT 1",
            TENANT,
            outcome.scopes["job"],
        )
        mine_too = outcome.scopes.get("own")
        files = None if mine_too is None else own.result(ask, TENANT, mine_too, outcome.produced["own"])
    merge = outcome.stages["merge"]
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
        "own": files,
        "warnings": [] if files is None else [line for each in files["inputs"] for line in each["warnings"]],
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
    files = found["own"]
    traces = {} if files is None else told.traces(files["inputs"])
    mine = None if files is None else files["scope"]
    table = Table("incident", "of", "component", "confidence", "why", title="Incidents")
    labels = {scope: label for label, scope in found["scopes"].items()}
    for incident in found["incidents"]:
        table.add_row(
            incident["class"],
            labels[incident["scope"]],
            escape(told.component(incident["component"], traces if incident["scope"] == mine else {})),
            f"{incident['confidence']:.2f}",
            told.why(incident["evidence"], incident.get("in_lake")),
        )
    console.print(table)
    slowest = found["slowest_rank"]
    if slowest is not None:
        console.print(
            f"Slowest rank: [bold]{slowest['rank']}[/bold], last to arrive in "
            f"{told.counted(slowest['collectives'], 'collective')}, in half of which the median member waited "
            f"{format_ns(slowest['median_wait_of_others_ns'])} or more, whoever had made it late."
        )
    states = Table("clock", "kind", "status", "claims, to its parent", "to TAI", title="Clocks of the hosts")
    blamed = {
        incident["component"] for incident in found["incidents"] if incident["component_kind"] == "clock"
    }
    for clock in found["clocks"]:
        # GPU and system clocks hang below these; `clock_states()` lists all.
        if clock["parent"] in (None, "TAI") and clock["scope"] != mine:
            wrong = ", but contradicted" if clock["clock_id"] in blamed else ""
            states.add_row(
                clock["clock_id"],
                clock["kind"],
                clock["status"] + wrong,
                told.bound(clock["bound_ns"]),
                told.bound(clock["tai_bound_ns"]),
            )
    console.print(states)
    if files is not None:
        own.show(files, console)
    # As the user can type it: the environment need not be active.
    me = "tempotrace" if shutil.which("tempotrace") else sys.argv[0]
    console.print("\nThree things to try next:")
    for query in _queries(found):
        console.print(
            f'  {me} sql --lake {shlex.quote(found["lake"])} "{query}"', soft_wrap=True, highlight=False
        )
    if files is None or not files["events"]:
        console.print(
            f"  with files of your own: {me} analyze TRACES/ ptp4l.log --clock-bound 1us",
            soft_wrap=True,
            highlight=False,
        )
    if started:
        console.print(
            "\nThe broker was stopped again; `tempotrace broker start` starts it with the same data."
        )


def _queries(found: dict[str, Any]) -> list[str]:
    job = found["scopes"]["job"]
    judged = (
        "SELECT verdict, count(*), min(gap_ns), max(gap_ns) FROM edges "
        f"WHERE scope = '{job}' AND kind = 'message' GROUP BY verdict"
    )
    if found["own"] is not None and found["own"]["events"]:
        return [*own.queries(found["own"]), judged]
    return [
        judged,
        "SELECT order_ns, host, rank, name, verdict, cause_source FROM events "
        f"WHERE scope = '{job}' AND verdict = 'violated' ORDER BY order_ns LIMIT 20",
    ]
