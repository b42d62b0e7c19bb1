"""The page docs/lake.md: every table, column and macro of the lake.

python -m sinks.reference     writes it
"""

import re
from pathlib import Path

from sinks.layout import sql_type
from sinks.macros import MACROS
from sinks.tables import TABLES

HEAD = """# The lake

Made from `sinks/tables.py`, `sinks/route_tables.py` and `sinks/views.py` by `python -m sinks.reference`.

A lake is a folder of Parquet files, `<table>/tenant=…/date=…/hour=…/` (date and hour TAI). Open it with
`tempotrace sql "..."`, or with DuckDB on `tempotrace.duckdb`, which holds views and macros only, so that it
can be opened while a sink writes (read-only, to share it). `tempotrace.sql` has the same as statements.
Programs that read the Parquet files themselves must leave out files of no unit: a file counts when
`_units/<topic>/<topic id>/<partition>/<first>-<generation>.json` exists; that path with dots for slashes is
the file's name.

All times are BIGINT ns TAI since 1970 (UTC was 37 s behind in 2026). To show one:
`make_timestamp_ns(time_ns - 37000000000)`. Every table also has `tenant`, `date` and `hour`.
`tempotrace sql` prints 200 rows at most (`--rows N` others, 0 all) and then how many there are; `--json` has all.
`incidents` shows each incident as it stands, `incident_updates` every change of it.
"""

MACROS_HEAD = """## Macros

Macros answer for all tenants and scopes that the lake holds: filter by `tenant` and `scope`, as the examples do
(`SELECT DISTINCT tenant, scope FROM windows` lists them). A macro is a query, not a table: `DESCRIBE` takes it
as `DESCRIBE FROM inversions()`. Names that end in `_ns` are nanoseconds."""


def page() -> str:
    """Text of docs/lake.md."""
    lines = [HEAD, MACROS_HEAD]
    for name, macro in MACROS.items():
        lines += ["", f"### {name}()", "", macro.doc, "", "| column | type | meaning |", "|---|---|---|"]
        lines += [f"| `{column}` | {kind} | {meaning} |" for column, kind, meaning in macro.columns]
        for query in macro.examples:
            lines += ["", "```sql", _wrapped(query), "```"]
    for table in TABLES.values():
        lines += ["", f"## {table.name}", "", table.doc, "", "| column | type | meaning |", "|---|---|---|"]
        lines += [f"| `{field.name}` | {sql_type(field.type)} | {field.doc} |" for field in table.fields]
    return "\n".join(lines) + "\n"


def _wrapped(query: str) -> str:
    """The query in lines, a clause a line."""
    return re.sub(r" (?=(FROM|WHERE|GROUP BY|ORDER BY|LIMIT) )", "\n", query)


def main() -> None:
    """Write the page."""
    target = Path(__file__).resolve().parent.parent / "docs" / "lake.md"
    target.parent.mkdir(exist_ok=True)
    target.write_text(page())


if __name__ == "__main__":
    main()
