"""What `tempotrace sql` prints: every type of DuckDB whole, no more rows than asked for."""

import json
import sys
import time
from collections.abc import Callable
from os import terminal_size
from pathlib import Path
from typing import Any

import duckdb
import pytest

from sinks import views
from tempotrace import cli
from tempotrace.cli import sql_rows

Ask = Callable[..., str]


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("lake")
    views.prepare(root)
    return root


@pytest.fixture
def ask(lake: Path, capsys: pytest.CaptureFixture[str]) -> Ask:
    def run(query: str, *more: str) -> str:
        assert cli.run(["sql", query, "--lake", str(lake), *more]) == 0
        return capsys.readouterr().out

    return run


STAMP = "make_timestamp_ns(1796142321876311554 - 37000000000)"


def test_stamps_in_nanoseconds_are_whole(ask: Ask) -> None:
    assert ask(f"SELECT {STAMP} AS at").splitlines() == [
        "at", "─" * 29, "2026-12-01 16:24:44.876311554", "1 row",
    ]  # fmt: skip
    assert json.loads(ask(f"SELECT {STAMP} AS at", "--json"))["rows"] == [
        {"at": "2026-12-01 16:24:44.876311554"}
    ]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("make_timestamp_ns(1796142321000000000)", "2026-12-01 16:25:21.000000000"),
        ("make_timestamp_ns(1796142321100000000)", "2026-12-01 16:25:21.100000000"),
        ("'infinity'::TIMESTAMP_NS", "infinity"),
        ("NULL::TIMESTAMP_NS", None),
        ("[make_timestamp_ns(1796142321000000001)]", ["2026-12-01 16:25:21.000000001"]),
        ("TIMESTAMP '2026-12-01 16:25:21.5'", "2026-12-01 16:25:21.5"),
        ("DATE '2026-12-01'", "2026-12-01"),
        ("'infinity'::DATE", "infinity"),
        ("INTERVAL '1 month 2 days 3 seconds'", "1 month 2 days 00:00:03"),
        ("0.10::DECIMAL(38, 20)", "0.10000000000000000000"),
        ("sum(9223372036854775807) FROM range(2)", 18446744073709551614),
        ("'\\x00\\xFFa'::BLOB", "00ff61"),
        ("'nan'::DOUBLE", "NaN"),
        ("'-inf'::FLOAT", "-Infinity"),
        ("['nan'::DOUBLE, 1.5, NULL]", ["NaN", 1.5, None]),
        ("{'a': [1, 2], 'b': {'c': DATE '2026-12-01'}}", {"a": [1, 2], "b": {"c": "2026-12-01"}}),
        ("MAP {1: 'x'}", {"1": "x"}),
        ("'7'::UHUGEINT - 0 + 340282366920938463463374607431768211448", 2**128 - 1),
        ("true", True),
        ("NULL", None),
    ],
)  # fmt: skip
def test_values_for_programs(ask: Ask, value: str, expected: Any) -> None:
    select = value if " FROM " in value else f"{value} AS v"
    (row,) = json.loads(ask(f"SELECT {select}", "--json"))["rows"]
    assert list(row.values()) == [expected]


def no_constant(text: str) -> Any:
    raise AssertionError(f"{text} is no JSON")


@pytest.mark.parametrize("more", [[], ["--json"]])
def test_every_type_of_duckdb_is_shown(ask: Ask, more: list[str]) -> None:
    text = ask("FROM test_all_types()", *more)
    if more:
        first, second, third = json.loads(text, parse_constant=no_constant)["rows"]
        assert (first["date"], second["timestamp_ns"]) == (
            "5877642-06-25 (BC)",
            "2262-04-11 23:47:16.854775806",
        )
        assert second["uhugeint"] == 2**128 - 1
        assert set(third.values()) == {None}
    else:
        assert text.splitlines()[-1] == "3 rows"
        for part in ("5877642-06-25 (BC)", "2262-04-11 23:47:16.854775806", str(2**128 - 1), "goo\\x00se"):
            assert part in text


def test_each_type_of_duckdb_is_among_those_that_are_shown() -> None:
    with duckdb.connect() as connection:
        relation = connection.sql("FROM test_all_types()")
        for name, value in sql_rows.for_programs(relation)["rows"][0].items():
            assert json.loads(json.dumps(value)) == value, name


def test_columns_of_one_name_are_both_kept(ask: Ask) -> None:
    assert json.loads(ask("SELECT 1 AS a, 2 AS a, 3 AS a_1", "--json")) == {
        "columns": ["a", "a_2", "a_1"],
        "rows": [{"a": 1, "a_2": 2, "a_1": 3}],
    }
    assert ask("SELECT 1 AS a, 2 AS a").splitlines() == ["a  a", "─  ─", "1  2", "1 row"]


@pytest.mark.parametrize(
    ("more", "shown", "last"),
    [
        ([], 200, "1000 rows, 200 shown (--rows 0 shows all)"),
        (["--rows", "3"], 3, "1000 rows, 3 shown (--rows 0 shows all)"),
        (["--rows", "1000"], 1000, "1000 rows"),
        (["--rows", "0"], 1000, "1000 rows"),
    ],
)
def test_rows_are_limited_for_people(ask: Ask, more: list[str], shown: int, last: str) -> None:
    _, _, *rows, end = ask("SELECT range AS n FROM range(1000) ORDER BY n DESC", *more).splitlines()
    assert [int(row) for row in rows] == list(range(999, 999 - shown, -1))
    assert end == last


def test_programs_get_all_rows(ask: Ask) -> None:
    assert len(json.loads(ask("FROM range(1000)", "--json", "--rows", "3"))["rows"]) == 1000


def test_many_rows_are_printed_in_no_time(ask: Ask) -> None:
    columns = ", ".join(f"range * {k} AS c{k}" for k in range(10))
    begin = time.monotonic()
    assert len(ask(f"SELECT {columns} FROM range(14000)", "--rows", "0").splitlines()) == 14_003
    assert time.monotonic() - begin < 5  # 0.3 s where it was written; a table of rich took 17 s


def test_markup_and_control_characters_are_shown_as_they_are(ask: Ask) -> None:
    _, _, row, _ = ask("SELECT '[red]x[/]' AS a, 'l' || chr(27) || chr(10) AS b, ['rank1'] AS c").splitlines()
    assert row == "[red]x[/]  l\\x1b\\n  [rank1]"


def test_a_row_too_wide_for_the_terminal_is_a_block(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setattr("shutil.get_terminal_size", lambda: terminal_size((40, 20)))
    query = "SELECT 'x' AS a, repeat('y', 50) AS bee UNION ALL SELECT 'z', NULL"
    assert sys.stdout.isatty()
    assert ask(query).splitlines() == [
        "── 1 ───",
        "a    x",
        f"bee  {'y' * 50}",
        "── 2 ───",
        "a    z",
        "bee",
        "2 rows",
    ]
    assert ask("SELECT 1 AS a").splitlines() == ["a", "─", "1", "1 row"]


def test_a_plan_keeps_its_lines(ask: Ask) -> None:
    assert ask("EXPLAIN SELECT 1").splitlines()[0].startswith("╭─ Projection")


def test_macros_and_views_are_described(ask: Ask) -> None:
    assert [line.split()[0] for line in ask("DESCRIBE FROM inversions()").splitlines()[2:5]] == [
        "tenant", "scope", "kind",
    ]  # fmt: skip
