"""The command line: exit codes, the one JSON object, help, and what is not imported."""

import importlib
import io
import json
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from schemas.errors import BrokerAway, Usage, cause_of
from sinks import views
from tempotrace import cli
from tempotrace.cli import options


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    views.prepare(tmp_path)
    return tmp_path


VALUES = "(SELECT 9007199254740993::BIGINT AS big, NULL AS none, 'x' AS text)"


def test_help_imports_no_command_and_none_of_the_heavy_packages() -> None:
    script = (
        "import sys; from tempotrace import cli; code = cli.run(['--help']);"
        "heavy = {'duckdb', 'confluent_kafka', 'numba', 'pyarrow', 'faust', 'xgboost', 'tempotrace.cli.sql'};"
        "print(code, sorted(heavy & set(sys.modules)), file=sys.stderr)"
    )
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert ran.stderr.splitlines()[-1] == "0 []"
    assert "Ask the lake in SQL." in ran.stdout


def present() -> list[str]:
    folder = Path(cli.__file__).parent
    return [name for name in cli.COMMANDS if (folder / f"{name}.py").exists() or (folder / name).is_dir()]


def test_every_module_of_the_folder_is_in_the_table() -> None:
    modules = {path.stem for path in Path(cli.__file__).parent.glob("*.py")} - {"__init__", "options", "feed"}
    # `produce_gpu` and the like belong to the command before the underscore.
    assert {name.partition("_")[0] for name in modules} <= set(cli.COMMANDS)


@pytest.mark.parametrize("name", present())
def test_every_command_shows_an_example(name: str) -> None:
    app: typer.Typer = importlib.import_module(f"tempotrace.cli.{name}").app
    assert app.registered_commands
    for command in app.registered_commands:
        text = command.help or command.callback.__doc__ or "" if command.callback else ""
        assert f"Example: tempotrace {name}" in text, command.callback


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nothing"], "No such command 'nothing'. See --help."),
        (["broker", "status", "--bogus"], "No such option: --bogus. See --help."),
        (["sql", "x", "--jsn"], "No such option: --jsn; perhaps --json. See --help."),
        (
            ["flows", "report", "--mtu", "x"],
            "Invalid value for '--mtu': a whole number is needed. See --help.",
        ),
        (["flows", "report", "--gbps", "x"], "Invalid value for '--gbps': a number is needed. See --help."),
        (["flows", "report", "--mtu", "1"], "Invalid value for '--mtu': it must be 256 or more. See --help."),
        (["flows", "report", "--mtu", "99999"], "'--mtu': it must be 65536 or less. See --help."),
        (["flows", "report", "--mtu"], "Option '--mtu' requires an argument. See --help."),
        (["produce", "host"], "say what to read: either --log FILE, --mesh or --rdma DEV"),
        (["produce", "int"], "say what to read: either --udp HOST:PORT or --pcap FILE"),
        (["produce", "fabric"], "nothing to read: give --counters, --flows, --hosts, --pcap or --sysfs"),
        (["sql"], "Missing argument 'query'. See --help."),
        (["topics", "create", "--tenant", "A"], "'A' is no tenant name"),
        (["topics", "list", "--bootstrap-servers", "here"], "each must be HOST:PORT"),
    ],
)
def test_wrong_usage_is_one_line_and_2(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert message in captured.err


def test_a_group_without_command_shows_its_help(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert cli.run(["broker"]) == 2
    captured = capsys.readouterr()
    assert "status" in captured.out + captured.err
    assert "tempotrace: " not in captured.err


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["--version"]) == 0
    assert capsys.readouterr().out.startswith("tempotrace ")


@pytest.mark.parametrize(
    ("error", "code"),
    [(BrokerAway("gone\naway"), 1), (Usage("gone away"), 2), (KeyboardInterrupt(), 130)],
)
def test_errors_of_a_command(
    error: BaseException, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr("tempotrace.broker.status", fail)
    assert cli.run(["broker", "status", "--json"]) == code
    captured = capsys.readouterr()
    expected = "interrupted" if code == 130 else "gone away"
    assert captured.err == f"tempotrace: {expected}\n"
    assert json.loads(captured.out) == {"error": expected}


def test_sql_gives_whole_integers(lake: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["sql", f"SELECT * FROM {VALUES}", "--lake", str(lake), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "columns": ["big", "none", "text"],
        "rows": [{"big": 9007199254740993, "none": None, "text": "x"}],
    }
    assert cli.run(["sql", f"FROM {VALUES}", "--lake", str(lake)]) == 0
    assert "9007199254740993" in capsys.readouterr().out


def test_sql_from_stdin(
    lake: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(f"SELECT text FROM {VALUES}"))
    assert cli.run(["sql", "-", "--lake", str(lake), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["rows"] == [{"text": "x"}]


@pytest.mark.parametrize(
    "query",
    [
        "SELEC",
        "SELECT nope FROM events",
        "CREATE TABLE t AS SELECT 1",
        "DROP VIEW edges",
        "SELECT 1; SELECT 2",
        "",
    ],
)
def test_sql_that_cannot_be_answered(lake: Path, query: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["sql", query, "--lake", str(lake)]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_sql_without_a_lake(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["sql", "SELECT 1", "--lake", str(tmp_path)]) == 1
    assert "is no lake" in capsys.readouterr().err


def test_emit_knows_numpy_paths_sets_and_bytes(capsys: pytest.CaptureFixture[str]) -> None:
    import numpy as np

    result = {"n": np.int64(3), "a": np.arange(2), "p": Path("x"), "s": {"b", "a"}, "b": b"\x01"}
    options.emit(result, True, list)
    assert json.loads(capsys.readouterr().out) == {"n": 3, "a": [0, 1], "p": "x", "s": ["a", "b"], "b": "01"}
    options.emit(result, False, lambda: sys.stdout.write("for people"))
    assert capsys.readouterr().out == "for people"


@pytest.mark.parametrize(
    "command",
    [
        "topics list --kafka-properties",
        "produce gpu --kineto",
        "produce host --log",
        "produce int --pcap",
        "stream paths --switches",
        "flows report --flows",
        "clock check",
    ],
)
def test_a_file_that_cannot_be_read_is_named_once(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for path in (tmp_path / "missing", tmp_path):
        cli.run([*command.split(), str(path)])
        said = capsys.readouterr().err
        assert said.count(str(path)) == 1
        assert "Errno" not in said


def test_the_cause_of_an_error_has_no_file_name(tmp_path: Path) -> None:
    with pytest.raises(OSError) as raised:
        (tmp_path / "x").read_text()
    assert cause_of(raised.value) == "No such file or directory"
    assert cause_of(OSError("not a gzip file")) == "not a gzip file"
    assert cause_of(ValueError()) == "ValueError"
