"""`tempotrace sql`: questions to the lake."""

import sys
from typing import Annotated

import typer

from schemas.errors import Usage
from tempotrace.cli.options import DEFAULT_LAKE, Json, Lake, emit

PIPE_WIDTH = 10_000

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
            relation = connection.sql(sys.stdin.read() if query == "-" else query)
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
        from rich.console import Console
        from rich.table import Table

        shown = Table(*names)
        for row in rows:
            shown.add_row(*("" if value is None else str(value) for value in row))
        # A pipe has no width: nothing is cut there.
        Console(width=None if sys.stdout.isatty() else PIPE_WIDTH).print(shown)

    emit({"columns": names, "rows": [dict(zip(names, row, strict=True)) for row in rows]}, as_json, human)
