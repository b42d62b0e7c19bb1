"""Questions to the lake that come again and again, as table macros; docs/lake.md is made from this too."""

from typing import Final, NamedTuple

from sinks.layout import sql_type
from sinks.tables import CLOCKS


class Macro(NamedTuple):
    """A macro: what it answers, how, its columns (name, type, unit and meaning), and queries to copy."""

    doc: str
    query: str
    columns: tuple[tuple[str, str, str], ...]
    examples: tuple[str, ...]


_TENANT = ("tenant", "VARCHAR", "whose data")
_SCOPE = ("scope", "VARCHAR", "job or shard")
_GROUP = ("group_name", "VARCHAR", "process group")
_OP = ("op", "VARCHAR", "operation")


MACROS: Final = {
    "clock_states": Macro(
        "The last state of every clock.",
        "SELECT * FROM clocks QUALIFY row_number() OVER "
        "(PARTITION BY tenant, scope, clock_id ORDER BY window_start_ns DESC, epoch DESC, as_of_ns DESC) = 1 "
        "ORDER BY tenant, scope, clock_id",
        (
            _TENANT,
            *((field.name, sql_type(field.type), field.doc) for field in CLOCKS.fields),
            ("date", "DATE", "of window_start_ns, TAI"),
            ("hour", "INTEGER", "of window_start_ns, TAI"),
        ),
        (
            "SELECT clock_id, status, bound_ns, tai_bound_ns, provenance "
            "FROM clock_states() WHERE tenant = 'default' AND scope = 'my-job'",
        ),
    ),
    "inversions": Macro(
        "By scope and kind of edge: edges, their verdicts, inversions before and after repair.",
        "WITH w AS (SELECT tenant, scope, kind, sum(raw) AS inversions_raw, sum(after) AS inversions_after "
        "FROM ("
        + " UNION ALL ".join(
            f"SELECT tenant, scope, '{kind}' AS kind, inversions_raw_{kind} AS raw, "
            f"inversions_after_{kind} AS after FROM windows"
            for kind in ("message", "launch", "sync", "packet", "collective")
        )
        + ") GROUP BY ALL), e AS (SELECT tenant, scope, kind, count(*) AS edges, "
        + ", ".join(
            f"count(*) FILTER (verdict = '{verdict}') AS {verdict}"
            for verdict in ("proven", "inferred", "concurrent", "violated")
        )
        + " FROM edges GROUP BY ALL) "
        "SELECT * FROM e JOIN w USING (tenant, scope, kind) ORDER BY tenant, scope, kind",
        (
            _TENANT,
            _SCOPE,
            ("kind", "VARCHAR", "kind of the edges: message, launch, sync, packet, collective"),
            ("edges", "BIGINT", "edges found"),
            ("proven", "BIGINT", "of them, by verdict"),
            ("inferred", "BIGINT", "of them, by verdict"),
            ("concurrent", "BIGINT", "of them, by verdict"),
            ("violated", "BIGINT", "of them, by verdict"),
            ("inversions_raw", "HUGEINT", "edges whose effect is before its cause by the stamps as mapped"),
            ("inversions_after", "HUGEINT", "edges whose effect is before its cause by order_ns"),
        ),
        (
            "SELECT kind, edges, inversions_raw, round(100 * inversions_raw / edges, 2) AS percent "
            "FROM inversions() WHERE tenant = 'default' AND scope = 'my-job'",
        ),
    ),
    "rank_waits": Macro(
        "By scope and rank: how often the rank arrived last at a collective, how long it waited for others, "
        "how long others waited for it. From durations on each rank's own clock, so no clock's error "
        "matters: who arrives last has the shortest collective.",
        "WITH m AS (SELECT tenant, scope, group_name, op, match_key, effect_rank AS rank, "
        "effect_duration_ns AS length_ns, min(effect_duration_ns) OVER c AS least_ns, "
        "sum(effect_duration_ns) OVER c AS sum_ns, count(*) OVER c AS members FROM edges "
        "WHERE kind = 'collective' AND effect_point = 1 WINDOW c AS "
        "(PARTITION BY tenant, scope, group_name, op, match_key)) "
        "SELECT tenant, scope, rank, count(*) AS collectives, "
        "count(*) FILTER (length_ns = least_ns) AS last, "
        "sum(length_ns - least_ns)::BIGINT AS waited_ns, max(length_ns - least_ns) AS waited_max_ns, "
        "sum(CASE WHEN length_ns = least_ns THEN sum_ns - members * least_ns ELSE 0 END)::BIGINT "
        "AS delayed_ns "
        "FROM m WHERE members > 1 GROUP BY ALL ORDER BY delayed_ns DESC, tenant, scope, rank",
        (
            _TENANT,
            _SCOPE,
            ("rank", "INTEGER", "the rank"),
            ("collectives", "BIGINT", "collectives that it was in"),
            ("last", "BIGINT", "how many of them it was the last to arrive at"),
            ("waited_ns", "BIGINT", "ns that it waited for others, summed"),
            ("waited_max_ns", "BIGINT", "longest of these waits, ns"),
            (
                "delayed_ns",
                "BIGINT",
                "ns that others waited for it, summed over them; the rows' order, greatest first",
            ),
        ),
        (
            "SELECT rank, last, collectives, delayed_ns / 1e6 AS delayed_ms "
            "FROM rank_waits() WHERE tenant = 'default' AND scope = 'my-job' LIMIT 5",
        ),
    ),
    "collective_waits": Macro(
        "By collective, in time: who arrived last and who was in it longest, by durations on each rank's own "
        "clock. `longest_ns` is how long the latter's kernel lasted.",
        "SELECT tenant, scope, group_name, op, max(effect_ns) AS end_ns, count(*) AS members, "
        "arg_min(effect_rank, effect_duration_ns) AS last_rank, min(effect_duration_ns) AS last_ns, "
        "arg_max(effect_rank, effect_duration_ns) AS longest_rank, max(effect_duration_ns) AS longest_ns "
        "FROM edges WHERE kind = 'collective' AND effect_point = 1 "
        "GROUP BY tenant, scope, group_name, op, match_key ORDER BY tenant, scope, end_ns",
        (
            _TENANT,
            _SCOPE,
            _GROUP,
            _OP,
            ("end_ns", "BIGINT", "latest end of a member as mapped, ns TAI since 1970"),
            ("members", "BIGINT", "members present"),
            ("last_rank", "INTEGER", "rank that arrived last"),
            ("last_ns", "BIGINT", "ns for which that rank was in it"),
            ("longest_rank", "INTEGER", "rank that was in it longest, having arrived first"),
            ("longest_ns", "BIGINT", "ns for which that rank was in it"),
        ),
        (
            "SELECT make_timestamp_ns(end_ns - 37000000000) AS ended_utc, op, last_rank, longest_rank, "
            "longest_ns - last_ns AS wait_ns "
            "FROM collective_waits() "
            "WHERE tenant = 'default' AND scope = 'my-job' ORDER BY wait_ns DESC LIMIT 10",
            "SELECT last_rank, count(*) AS times "
            "FROM collective_waits() "
            "WHERE tenant = 'default' AND scope = 'my-job' GROUP BY ALL ORDER BY times DESC",
        ),
    ),
    "violations": Macro(
        "Edges that contradict the bounds of the clocks, by the two sources' ranks and clocks.",
        "SELECT tenant, scope, kind, cause_rank, cause_clock, effect_rank, effect_clock, count(*) AS edges, "
        "min(gap_ns + diff_bound_ns) AS worst_ns, count(*) FILTER (assumed) AS assumed FROM edges "
        "WHERE verdict = 'violated' GROUP BY ALL ORDER BY edges DESC, cause_rank, effect_rank",
        (
            _TENANT,
            _SCOPE,
            ("kind", "VARCHAR", "kind of the edges"),
            ("cause_rank", "INTEGER", "rank of the cause's source; null if it has none"),
            ("cause_clock", "VARCHAR", "clock that stamped the cause"),
            ("effect_rank", "INTEGER", "rank of the effect's source; null if it has none"),
            ("effect_clock", "VARCHAR", "clock that stamped the effect"),
            ("edges", "BIGINT", "violated edges between the two"),
            (
                "worst_ns",
                "BIGINT",
                "least gap + bound, ns: by so much, below 0, the worst contradicts the bound",
            ),
            ("assumed", "BIGINT", "of the edges, those whose match rests on an assumption"),
        ),
        (
            "SELECT cause_clock, effect_clock, edges, worst_ns "
            "FROM violations() WHERE tenant = 'default' AND scope = 'my-job'",
        ),
    ),
}
