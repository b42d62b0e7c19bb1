"""SQL on a lake: empty, moved, being written, by other programs; nothing is ever installed."""

import ctypes
import os
import re
import shutil
import struct
from dataclasses import replace
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from schemas import codec, merged
from schemas import columns as c
from schemas.errors import Setup
from schemas.merged import Merged
from sinks import reference, units, views
from sinks.layout import SEED_FOLDER, sql_type
from sinks.macros import MACROS
from sinks.tables import TABLES
from tests.lakes import Sink, records, topic
from tests.parts import START_NS, Maker
from tests.paths import REPO
from tests.unit.test_lake_records import INCIDENT

IN_OPEN = 0x20


def windows(count: int = 2) -> list[bytes]:
    maker = Maker(count=40)
    return [merged.write(maker.part(k)) for k in range(count)]


@pytest.mark.parametrize("name", TABLES)
def test_an_empty_table_has_its_columns_and_no_rows(tmp_path: Path, name: str) -> None:
    views.prepare(tmp_path)
    with views.connect(tmp_path) as connection:
        assert connection.execute(f"SELECT * FROM {name}").fetchall() == []
        found = {row[0]: row[1] for row in connection.execute(f"DESCRIBE {name}").fetchall()}
    expected = {"tenant": "VARCHAR"} | {f.name: sql_type(f.type) for f in TABLES[name].fields}
    expected |= {"date": "DATE", "hour": "INTEGER"}
    assert {column: kind.replace('"', "") for column, kind in found.items()} == expected


@pytest.mark.parametrize("name", MACROS)
def test_macros_work_on_an_empty_lake(tmp_path: Path, name: str) -> None:
    views.prepare(tmp_path)
    with views.connect(tmp_path) as connection:
        assert connection.execute(f"FROM {name}()").fetchall() == []


@pytest.mark.parametrize("name", MACROS)
def test_columns_of_macros_are_as_the_page_says(tmp_path: Path, name: str) -> None:
    views.prepare(tmp_path)
    with views.connect(tmp_path) as connection:
        found = connection.execute(f"DESCRIBE FROM {name}()").fetchall()
    assert [(row[0], row[1]) for row in found] == [column[:2] for column in MACROS[name].columns]


@pytest.mark.parametrize(
    ("name", "query"), [(name, query) for name, macro in MACROS.items() for query in macro.examples]
)
def test_queries_of_the_page_find_the_rows_of_one_scope(tmp_path: Path, name: str, query: str) -> None:
    assert "WHERE tenant = 'default' AND scope = 'my-job'" in query
    lengths = [[100, 30, 90], [70, 10, 40], [5, 50, 60]]
    both = [collective(lengths, scope) for scope in ("my-job", "another")]
    Sink(tmp_path, records("merged", both)).run()
    with views.connect(tmp_path) as connection:
        rows = connection.execute(query).fetchall()
        counted = connection.execute(
            f"SELECT count(*) FROM {name}() WHERE tenant = 'default' AND scope = 'my-job'"
        ).fetchall()[0][0]
        total = connection.execute(f"SELECT count(*) FROM {name}()").fetchall()[0][0]
    assert 0 < len(rows) <= counted == total // 2


QUERIES = [
    (page, query)
    for page in ("README.md", "docs/lake.md", "docs/operate.md", "docs/subscribe.md", "docs/imbalance.md")
    for query in re.findall(r'tempotrace sql "([^"]{4,})"', (REPO / page).read_text())
]


@pytest.mark.parametrize(("page", "query"), QUERIES)
def test_queries_of_the_pages_are_answered(tmp_path: Path, page: str, query: str) -> None:
    views.prepare(tmp_path)
    with views.connect(tmp_path) as connection:
        assert connection.execute(query).fetchall() == [], page


def test_the_readme_asks_for_one_scope() -> None:
    assert len([query for page, query in QUERIES if page == "README.md" and "scope = " in query]) >= 2


def test_columns_come_back_with_their_types_and_folders(tmp_path: Path) -> None:
    Sink(tmp_path, records("merged", windows())).run()
    with views.connect(tmp_path) as connection:
        kinds = {row[0]: row[1] for row in connection.execute("DESCRIBE events").fetchall()}
        row = connection.execute("SELECT DISTINCT tenant, date::VARCHAR, hour, scope FROM events").fetchall()
    assert row == [("default", "2023-11-14", 22, "job")]
    assert {f.name: kinds[f.name] for f in TABLES["events"].fields} == {
        f.name: sql_type(f.type) for f in TABLES["events"].fields
    }
    file = next(iter(tmp_path.glob("events/tenant=default/date=2023-11-14/hour=22/*.parquet")))
    assert pq.read_schema(file).remove_metadata().equals(TABLES["events"].schema().remove_metadata())


def test_a_lake_is_found_from_any_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Sink(Path("lake"), records("merged", windows())).run()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    with duckdb.connect("../lake/tempotrace.duckdb", read_only=True) as connection:
        assert connection.execute("SELECT count(*) FROM events").fetchall() == [(80,)]
    with views.connect(Path("../lake")) as connection:
        assert connection.execute("SELECT count(*) FROM events").fetchall() == [(80,)]


def test_a_lake_may_be_moved(tmp_path: Path) -> None:
    Sink(tmp_path / "it's [old] *", records("merged", windows())).run()
    moved = tmp_path / "new"
    shutil.move(tmp_path / "it's [old] *", moved)
    with views.connect(moved) as connection:
        assert connection.execute("SELECT count(*) FROM events").fetchall() == [(80,)]
    views.prepare(moved)
    with duckdb.connect(moved / views.FILE, read_only=True) as connection:
        assert connection.execute("SELECT count(*) FROM events").fetchall() == [(80,)]


def test_no_lake_is_one_clear_error(tmp_path: Path) -> None:
    with pytest.raises(Setup, match="is no lake"):
        views.connect(tmp_path / "none")


def test_preparing_again_keeps_the_file_of_views_while_it_is_open(tmp_path: Path) -> None:
    views.prepare(tmp_path)
    before = (tmp_path / views.FILE).stat()
    with duckdb.connect(tmp_path / views.FILE) as connection:
        views.prepare(tmp_path)
        Sink(tmp_path, records("merged", windows())).run()
        assert connection.execute("SELECT count(*) FROM events").fetchall() == [(80,)]
    assert (tmp_path / views.FILE).stat().st_ino == before.st_ino


def test_the_listing_makes_the_same_views_elsewhere(tmp_path: Path) -> None:
    Sink(tmp_path, records("merged", windows())).run()
    with duckdb.connect() as connection:
        connection.execute((tmp_path / views.LISTING).read_text())
        assert connection.execute("SELECT count(*) FROM events").fetchall() == [(80,)]


def test_nothing_is_installed_or_fetched(tmp_path: Path) -> None:
    views.prepare(tmp_path)
    with views.connect(tmp_path) as connection:
        for setting in ("autoinstall_known_extensions", "autoload_known_extensions"):
            assert connection.execute(f"SELECT current_setting('{setting}')").fetchall() == [(False,)]
        with pytest.raises(duckdb.Error):
            connection.execute("SELECT * FROM 'https://127.0.0.1:1/x.parquet'")


def test_units_are_listed_before_files(tmp_path: Path) -> None:
    """What makes a half renamed unit invisible: a unit that a query lists had all its files before."""
    Sink(tmp_path, records("merged", windows())).run()
    libc = ctypes.CDLL(None, use_errno=True)
    with views.connect(tmp_path) as connection:
        handle = libc.inotify_init1(os.O_NONBLOCK)
        watched = {
            libc.inotify_add_watch(handle, os.fsencode(tmp_path / name), IN_OPEN): name
            for name in ("_units", "events", "edges")
        }
        connection.execute("SELECT count(*) FROM events").fetchall()
        connection.execute("SELECT max(gap_ns) FROM edges WHERE kind = 'launch'").fetchall()
        raw = os.read(handle, 1 << 16)
        os.close(handle)
    opened, at = [], 0
    while at < len(raw):
        watch, _, _, size = struct.unpack_from("iIII", raw, at)
        opened.append(watched[watch])
        at += 16 + size
    for table in ("events", "edges"):
        before = opened[: opened.index(table)]
        assert "_units" in before
        # Once a table's files are listed, its units are not looked up again before the next query.
        opened = opened[len(before) :]
        rest = opened[1 : opened.index("_units") if "_units" in opened else None]
        assert set(rest) <= {table}
        opened = opened[len(rest) + 1 :]
    assert "_units" not in opened


def test_an_older_file_without_a_column_reads_as_null(tmp_path: Path) -> None:
    Sink(tmp_path, records("merged", windows())).run()
    path = next(iter(tmp_path.glob("edges/tenant=default/*/*/*.parquet")))
    older = pq.read_table(path)
    schema = TABLES["edges"].schema()
    kept = [name for name in schema.names if name not in ("cause_clock", "effect_clock")]
    older = older.select(kept).cast(pa.schema([schema.field(name) for name in kept]))
    pq.write_table(older, path, store_schema=False)
    with views.connect(tmp_path) as connection:
        row = connection.execute(
            "SELECT count(*), count(cause_clock), count(match_key) FROM edges"
        ).fetchall()
    assert row == [(16, 0, 16)]


def test_a_file_without_its_unit_is_not_seen(tmp_path: Path) -> None:
    Sink(tmp_path, records("merged", windows())).run()
    path = next(iter(tmp_path.glob("events/tenant=default/*/*/*.parquet")))
    shutil.copy(path, path.with_name(f"{units.unit_name(topic('merged'), 3, 0)}.parquet"))
    with views.connect(tmp_path) as connection:
        assert connection.execute("SELECT count(*) FROM events").fetchall() == [(80,)]


def test_incidents_show_their_last_state(tmp_path: Path) -> None:
    resolved = replace(INCIDENT, state="resolve", resolved_ns=START_NS + 10)
    other = replace(INCIDENT, incident_id="i2", component="5")
    Sink(tmp_path, records("incidents", [codec.encode_record(i) for i in (INCIDENT, other, resolved)])).run()
    with views.connect(tmp_path) as connection:
        found = connection.execute("SELECT incident_id, state FROM incidents ORDER BY 1").fetchall()
        every = connection.execute("SELECT count(*) FROM incident_updates").fetchall()
        alerts = connection.execute("SELECT alert_id FROM alerts ORDER BY log_offset").fetchall()
    assert found == [("i1", "resolve"), ("i2", "open")]
    assert every == [(3,)]
    assert alerts == [("i1-open",), ("i2-open",), ("i1-resolve",)]


def collective(lengths_ns: list[list[int]], scope: str = "job") -> bytes:
    """Collectives of the ranks 0, 1, ...: how long each rank was in it."""
    ranks = len(lengths_ns[0])
    part = Maker(sources=ranks, count=0, scope=scope).part()
    n = len(lengths_ns) * ranks
    data = {name: column for name, column in part.data.items() if not name.startswith("edge_")}
    who = np.tile(np.arange(ranks), len(lengths_ns)).astype("<u2")
    for column in merged.EDGES:
        data[column.name] = np.zeros(n, column.dtype)
    data["edge_kind"][:] = c.EdgeKind.COLLECTIVE
    data["edge_verdict"][:] = c.Verdict.PROVEN
    data["edge_verdict"][0] = c.Verdict.VIOLATED
    data["edge_effect_source"], data["edge_effect_point"][:] = who, 1
    data["edge_cause_source"] = ((who + 1) % ranks).astype("<u2")
    data["edge_key"] = np.repeat(np.arange(len(lengths_ns)), ranks).astype("<u8")
    data["edge_effect_duration_ns"] = np.array(lengths_ns, "<i8").ravel()
    return merged.write(Merged(part.header, part.strings, data))


def test_macros_name_the_slow_rank_and_the_violated_edges(tmp_path: Path) -> None:
    Sink(tmp_path, records("merged", [collective([[100, 30, 90], [70, 10, 40], [5, 50, 60]])])).run()
    with views.connect(tmp_path) as connection:
        waits = connection.execute(
            "SELECT rank, collectives, last, waited_ns, waited_max_ns, delayed_ns FROM rank_waits()"
        ).fetchall()
        violated = connection.execute(
            "SELECT kind, cause_rank, effect_rank, edges FROM violations()"
        ).fetchall()
        counted = connection.execute(
            "SELECT kind, edges, proven, violated, inversions_raw FROM inversions()"
        ).fetchall()
        clocks = connection.execute("SELECT clock_id, status FROM clock_states()").fetchall()
    assert waits == [
        (1, 3, 2, 45, 45, 220),
        (0, 3, 1, 130, 70, 100),
        (2, 3, 0, 145, 60, 0),
    ]
    assert violated == [("collective", 1, 0, 1)]
    assert counted == [("collective", 9, 8, 1, 1)]
    assert clocks == [(f"host{k}/CLOCK_REALTIME", "locked") for k in range(4)]


def test_another_program_without_our_code_may_read_the_files(tmp_path: Path) -> None:
    Sink(tmp_path, records("merged", windows())).run()
    found = pq.read_table(tmp_path / "events" / "tenant=default", partitioning=None)
    assert found.num_rows == 80
    assert not (tmp_path / "events" / SEED_FOLDER).is_relative_to(tmp_path / "events" / "tenant=default")


def test_the_page_of_the_lake_is_current() -> None:
    assert (REPO / "docs" / "lake.md").read_text() == reference.page()
