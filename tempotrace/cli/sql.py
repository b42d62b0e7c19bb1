"""`tempotrace sql`: questions to the lake."""

import sys
from typing import Annotated, Any

import typer

from schemas.errors import Usage
from tempotrace.cli.options import DEFAULT_LAKE, Json, Lake, console, emit

app = typer.Typer()


@app.command()
def sql(
    query: Annotated[str, typer.Argument(help="The SQL, or - to read it from stdin.")],
    lake: Lake = DEFAULT_LAKE,
    as_json: Json = False,
) -> None:
    """Run one query on the lake, read-only; times are ns TAI since 1970.

    Example: tempotrace sql "SELECT kind, verdict, count(*) FROM edges GROUP BY ALL"
    """
    import duckdb

    from sinks import views

    try:
        with views.connect(lake) as connection:
            # By Arrow: duckdb's own rows lose the nanoseconds of timestamps.
            relation = connection.sql(_one(connection, sys.stdin.read() if query == "-" else query))
            if relation is None:
                raise Usage("this statement has no rows to show: ask with SELECT, DESCRIBE or SHOW")
            table = relation.to_arrow_table()
    except duckdb.Error as error:
        lines = str(error).splitlines()
        raise Usage(f"the query failed: {lines[0] if lines else type(error).__name__}") from error
    names = table.column_names
    columns = [column.to_pylist() for column in table.columns]
    rows = list(zip(*columns, strict=True))

    def human() -> None:
        from rich.table import Table

        shown = Table(*names)
        for row in rows:
            shown.add_row(*("" if value is None else str(value) for value in row))
        console().print(shown)

    emit({"columns": names, "rows": [dict(zip(names, row, strict=True)) for row in rows]}, as_json, human)


def _one(connection: Any, query: str) -> str:
    """The query, if it is a single one that asks. Raises Usage: nothing here changes the lake or writes files."""
    import duckdb

    statements = connection.extract_statements(query)
    asks = {duckdb.StatementType.SELECT, duckdb.StatementType.EXPLAIN}
    if len(statements) != 1 or statements[0].type not in asks:
        raise Usage("one query at a time, and only such as ask: SELECT, FROM, DESCRIBE, SHOW or EXPLAIN")
    return query
