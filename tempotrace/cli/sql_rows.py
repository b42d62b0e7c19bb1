"""Rows of a query for people and for programs: whatever DuckDB holds is shown whole.

DuckDB itself writes what Python's own types would cut or refuse (nanoseconds, years beyond 9999, unsigned 128-bit
integers), so its types are not listed one by one here.
"""

import json
import math
import re
import shutil
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from duckdb import DuckDBPyRelation

# As they are in Python they are exact, and JSON has a form for them.
_PLAIN: Final = {
    "boolean", "tinyint", "smallint", "integer", "bigint", "hugeint", "utinyint", "usmallint", "uinteger",
    "ubigint", "uhugeint", "float", "double", "varchar", "null",
}  # fmt: skip
_NESTED: Final = {"list", "array", "struct", "map", "union", "tuple", "variant"}
_NUMBERS: Final = (_PLAIN - {"boolean", "varchar", "null"}) | {"decimal", "bignum"}
_NANOSECONDS: Final = {"timestamp_ns", "timestamptz_ns"}
_STAMP: Final = re.compile(r"(\d+-\d\d-\d\d \d\d:\d\d:\d\d)(?:\.(\d+))?([+-].*)?")
_FRAME: Final = "─"


def for_programs(relation: "DuckDBPyRelation") -> dict[str, Any]:
    """Columns and rows as JSON can hold them: numbers, text, lists and objects.

    What JSON has no form for is text: dates, times, intervals, decimals and UUIDs as DuckDB writes them, stamps in
    ns with nine digits, blobs as hex, a float that is no number as NaN, Infinity or -Infinity. A second column of
    a name is called name_1.
    """
    names = _distinct(relation.columns)
    kinds = [kind.id for kind in relation.types]
    # By place (#1, ...), not by name: names need not be unique.
    wanted = ", ".join(_exactly(f"#{place}", kind) for place, kind in enumerate(kinds, 1))
    rows = relation.project(wanted).fetchall()
    return {
        "columns": names,
        "rows": [
            {name: _value(value, kind) for name, value, kind in zip(names, row, kinds, strict=True)}
            for row in rows
        ],
    }


def for_people(relation: "DuckDBPyRelation", limit: int) -> Iterator[str]:
    """Lines to print: a table, or where the terminal is too narrow for one a block a row; `limit` rows, 0 all."""
    names, kinds = relation.columns, [kind.id for kind in relation.types]
    # One more than is shown tells whether there are more; only then is the query run again, to count them.
    some = relation.limit(limit + 1) if limit else relation
    rows = [
        [_shown(text, kind) for text, kind in zip(row, kinds, strict=True)]
        for row in some.project("CAST(COLUMNS(*) AS VARCHAR)").fetchall()
    ]
    total = len(rows)
    if limit and total > limit:
        rows, total = rows[:limit], max(total, relation.count("*").fetchall()[0][0])
    if names == ["explain_key", "explain_value"]:
        yield from (line for _, plan in rows for line in plan.splitlines())
        return
    right = [kind in _NUMBERS for kind in kinds]
    yield from _table(names, rows, right)
    rest = f", {len(rows)} shown (--rows 0 shows all)" if len(rows) < total else ""
    yield f"{total} row{'' if total == 1 else 's'}{rest}"


def _exactly(name: str, kind: str) -> str:
    if kind in _PLAIN:
        return name
    if kind in _NESTED:
        return f"to_json({name})"
    return f"lower(hex({name}))" if kind == "blob" else f"CAST({name} AS VARCHAR)"


def _value(value: Any, kind: str) -> Any:
    if value is None:
        return None
    if kind in _NESTED:
        return json.loads(value, parse_constant=str)
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return _nine_digits(value) if kind in _NANOSECONDS else value


def _shown(text: str | None, kind: str) -> str:
    if text is None:
        return ""
    return _nine_digits(text) if kind in _NANOSECONDS else text


def _nine_digits(text: str) -> str:
    found = _STAMP.fullmatch(text)
    return f"{found[1]}.{found[2] or '':0<9}{found[3] or ''}" if found else text  # else: infinity


def _distinct(names: Sequence[str]) -> list[str]:
    out: list[str] = []
    for name in names:
        again, number = name, 0
        while again in out or (number and again in names):
            number += 1
            again = f"{name}_{number}"
        out.append(again)
    return out


def _table(names: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[bool]) -> Iterator[str]:
    from rich.cells import cell_len

    def line(cells: Sequence[str]) -> str:
        padded = []
        for cell, width, to_right in zip(cells, widths, right, strict=True):
            blank = " " * (width - cell_len(cell))
            padded.append(blank + cell if to_right else cell + blank)
        return "  ".join(padded).rstrip()

    rows = [[_one_line(cell) for cell in row] for row in rows]
    widths = [max(map(cell_len, cells)) for cells in zip(names, *rows, strict=True)]
    if sys.stdout.isatty() and sum(widths) + 2 * len(widths) > shutil.get_terminal_size().columns:
        wide = max(map(cell_len, names))
        for number, row in enumerate(rows, 1):
            yield f"{_FRAME * 2} {number} {_FRAME * wide}"
            yield from (
                f"{name}{' ' * (wide - cell_len(name))}  {cell}".rstrip()
                for name, cell in zip(names, row, strict=True)
            )
        return
    yield line(names)
    yield "  ".join(_FRAME * width for width in widths)
    yield from map(line, rows)


def _one_line(text: str) -> str:
    """Control characters would break the table, or steer the terminal."""
    if text.isprintable():
        return text
    return "".join(sign if sign.isprintable() else repr(sign)[1:-1] for sign in text)
