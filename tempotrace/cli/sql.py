"""`tempotrace sql`: questions to the lake."""

import sys
from typing import Annotated, Any

import typer

from schemas.errors import MalformedInput, Usage
from tempotrace.cli.options import DEFAULT_LAKE, Json, Lake, emit

app = typer.Typer()


@app.command()
def sql(
    query: Annotated[str, typer.Argument(help="The SQL, or - to read it from stdin.")],
    lake: Lake = DEFAULT_LAKE,
    rows: Annotated[
        int, typer.Option("--rows", metavar="N", min=0, help="Rows to show, 0 for all; --json has all.")
    ] = 200,
    as_json: Json = False,
) -> None:
    """Run one query on the lake, read-only; times are ns TAI since 1970.

    Example: tempotrace sql "SELECT kind, verdict, count(*) FROM edges GROUP BY ALL"
    """
    import duckdb

    from sinks import views
    from tempotrace.cli import sql_rows

    text = _text(query)
    try:
        with views.connect(lake) as connection:
            relation = connection.sql(_one(connection, text))
            if relation is None:
                raise Usage("this statement has no rows to show: ask with SELECT, DESCRIBE or SHOW")
            result = sql_rows.for_programs(relation) if as_json else {}
            lines = [] if as_json else list(sql_rows.for_people(relation, rows))
    except duckdb.Error as error:
        said = str(error).splitlines()
        raise Usage(f"the query failed: {said[0] if said else type(error).__name__}") from error
    emit(result, as_json, lambda: print("\n".join(lines)))


def _text(query: str) -> str:
    """The query that is meant: the argument, or for - what stdin holds. Raises MalformedInput."""
    try:
        text = sys.stdin.read() if query == "-" else query
        text.encode()  # bytes that are no text come as lone surrogates where the locale is not strict
    except UnicodeError:
        raise MalformedInput("the query is no UTF-8 text", "stdin" if query == "-" else "argument") from None
    return text


def _one(connection: Any, query: str) -> str:
    """The query, if it is a single one that asks. Raises Usage: nothing here changes the lake or writes files."""
    import duckdb

    statements = connection.extract_statements(query)
    asks = {duckdb.StatementType.SELECT, duckdb.StatementType.EXPLAIN}
    if len(statements) != 1 or statements[0].type not in asks:
        raise Usage("one query at a time, and only such as ask: SELECT, FROM, DESCRIBE, SHOW or EXPLAIN")
    return query
