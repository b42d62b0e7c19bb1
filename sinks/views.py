"""What SQL sees of a lake: one view a table, and a few macros; no data.

A view reads the files whose unit exists and is not superseded. The units are listed first and the files
afterwards (the order of the FROM clause, which DuckDB binds from the left), and a unit is made after all its
files: so whatever a query finds of a unit, it finds whole, also while a sink writes.

`<lake>/tempotrace.duckdb` holds the same views for other programs. It names the lake by its absolute path and
is written again when that has changed; `connect` needs no such file and takes no lock on it.
"""

import glob
import os
from pathlib import Path

import duckdb
import pyarrow.parquet as pq

from schemas.errors import Setup
from sinks.layout import SEED_FOLDER, Table, sql_type
from sinks.macros import MACROS
from sinks.tables import TABLES

FILE = "tempotrace.duckdb"
LISTING = "tempotrace.sql"  # the statements in it, for other programs and to see whether it is current
CONFIG: dict[str, str | bool | int | float | list[str]] = {
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
}
_HIVE = "hive_partitioning = true, hive_types = {'tenant': VARCHAR, 'date': DATE, 'hour': INTEGER}"


def prepare(root: Path) -> None:
    """Make the lake's folders, a file without rows in each table, and the file of views. Safe to repeat.

    Raises Setup if the lake cannot be written.
    """
    root = root.resolve()
    try:
        root.mkdir(parents=True, exist_ok=True)
        for table in TABLES.values():
            _seed(root, table)
        _write_views(root)
    except OSError as error:
        raise Setup(f"the lake {root} cannot be written: {error.strerror or error}") from error


def connect(root: Path) -> duckdb.DuckDBPyConnection:
    """A connection that sees the lake's views and macros; nothing is installed or written.

    Raises Setup if there is no lake.
    """
    root = root.resolve()
    if not (root / "events" / SEED_FOLDER / "seed.parquet").is_file():
        raise Setup(f"{root} is no lake: `tempotrace sink lake --lake DIR` makes one")
    connection = duckdb.connect(config=CONFIG)
    connection.execute("SET enable_progress_bar = false")  # it would go between the lines of a result
    for statement in statements(root):
        connection.execute(statement)
    return connection


def units_sql(root: Path) -> str:
    """The names of the units that count, as a query with one column `unit`.

    A unit is superseded by one of a higher generation that reaches as far; only units of generation 1 and
    above are opened for that.
    """
    here = glob.escape(str(root))
    listed = (
        "SELECT string_split(file, '/')[-4:] AS at, string_split(parse_filename(file, true), '-') AS numbers "
        f"FROM glob({_quoted(f'{here}/_units/*/*/*/*.json')})"
    )
    covers = (
        "SELECT string_split(filename, '/')[-4:-2] AS home, (content::JSON ->> 'last')::BIGINT AS last, "
        "string_split(parse_filename(filename, true), '-')::BIGINT[] AS numbers "
        f"FROM read_text({_quoted(f'{here}/_units/*/*/*/*-[1-9]*.json')})"
    )
    return (
        f"SELECT replace(array_to_string(u.at, '.'), '.json', '.parquet') AS unit FROM ({listed}) u "
        f"WHERE NOT EXISTS (SELECT 1 FROM ({covers}) c WHERE c.home = u.at[:3] "
        "AND c.numbers[2] > u.numbers[2]::BIGINT AND u.numbers[1]::BIGINT BETWEEN c.numbers[1] AND c.last)"
    )


def view_sql(root: Path, table: Table) -> str:
    """The query behind a table's view: the columns of the contract, then the partition's date and hour."""
    files = _quoted(f"{glob.escape(str(root))}/{table.name}/*/*/*/*.parquet")
    schema = ", ".join(
        f"{place}: {{name: '{field.name}', type: '{sql_type(field.type)}', default_value: NULL}}"
        for place, field in enumerate(table.fields, 1)
    )
    columns = ", ".join(f'f."{field.name}"' for field in table.fields)
    return (
        f"SELECT f.tenant, {columns}, f.date, f.hour FROM ({units_sql(root)}) u JOIN "
        f"read_parquet({files}, {_HIVE}, schema = MAP {{{schema}}}) f ON parse_filename(f.filename) = u.unit"
    )


def statements(root: Path) -> list[str]:
    """The SQL that makes all views and macros of a lake, in order."""
    out = []
    for table in TABLES.values():
        if not (root / table.name / SEED_FOLDER / "seed.parquet").is_file():
            continue  # a lake that an older version made: the next run of the sink adds the table
        query = view_sql(root, table)
        if table.name == "incidents":
            out.append(f"CREATE OR REPLACE VIEW incident_updates AS {query}")
            query = (
                "SELECT * FROM incident_updates QUALIFY row_number() OVER (PARTITION BY tenant, incident_id "
                "ORDER BY log_offset DESC) = 1"
            )
        out.append(f"CREATE OR REPLACE VIEW {table.name} AS {query}")
        out.append(f"COMMENT ON VIEW {table.name} IS {_quoted(table.doc)}")
    for name, macro in MACROS.items():
        out.append(f"CREATE OR REPLACE MACRO {name}() AS TABLE {macro.query}")
        out.append(f"COMMENT ON MACRO TABLE {name} IS {_quoted(macro.doc)}")
    return out


def _seed(root: Path, table: Table) -> None:
    target = root / table.name / SEED_FOLDER / "seed.parquet"
    if target.is_file():
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    draft = target.with_suffix(f".{os.getpid()}")
    pq.write_table(table.schema().empty_table(), draft, store_schema=False)
    draft.rename(target)


def _write_views(root: Path) -> None:
    """Write the file of views unless it is there as it should be, which the file of their SQL says.

    The file itself is never opened again: a program that holds it open must not be in our way, nor we in its.
    """
    target, listing = root / FILE, root / LISTING
    text = "".join(f"{statement};\n" for statement in statements(root))
    if target.is_file() and listing.is_file() and listing.read_text() == text:
        return
    draft = root / f".{FILE}.{os.getpid()}"
    draft.unlink(missing_ok=True)
    with duckdb.connect(draft, config=CONFIG) as connection:
        for statement in statements(root):
            connection.execute(statement)
        connection.execute("CHECKPOINT")
    draft.rename(target)
    draft.write_text(text)
    draft.rename(listing)


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
