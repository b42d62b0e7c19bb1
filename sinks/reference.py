"""The page docs/lake.md: every table, column and macro of the lake.

python -m sinks.reference     writes it
"""

from pathlib import Path

from sinks.layout import sql_type
from sinks.tables import TABLES
from sinks.views import MACROS

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
`incidents` shows each incident as it stands, `incident_updates` every change of it.
"""


def page() -> str:
    """Text of docs/lake.md."""
    lines = [HEAD, "## Macros", "", "Called as `SELECT * FROM name()`.", ""]
    lines += [f"- `{name}()`: {doc}" for name, (doc, _) in MACROS.items()]
    for table in TABLES.values():
        lines += ["", f"## {table.name}", "", table.doc, "", "| column | type | meaning |", "|---|---|---|"]
        lines += [f"| `{field.name}` | {sql_type(field.type)} | {field.doc} |" for field in table.fields]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Write the page."""
    target = Path(__file__).resolve().parent.parent / "docs" / "lake.md"
    target.parent.mkdir(exist_ok=True)
    target.write_text(page())


if __name__ == "__main__":
    main()
