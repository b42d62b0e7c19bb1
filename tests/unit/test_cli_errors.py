"""What the world does to a command, and how it is told: one line, the right exit code, no traceback."""

import importlib.metadata
import json
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import KafkaException, Producer

from schemas.errors import Usage
from sinks import views
from tempotrace import cli, doctor, settings


def fail_with(error: BaseException, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr("tempotrace.broker.status", fail)


COMMANDS = [
    ["stream", "merge", "--drain"],
    ["stream", "incidents", "--drain"],
    ["sink", "lake", "--drain"],
    ["sink", "alerts", "--to", "alerts.jsonl", "--drain"],
    ["topics", "list"],
    ["produce", "gpu", "--kineto", "."],
]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: " ".join(command[:2]))
def test_a_kafka_setting_that_does_not_exist_is_wrong_usage(
    command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "kafka.properties"
    file.write_text("client.id=me\nfoo.bar=1\n")
    assert cli.run([*command, "--kafka-properties", str(file), "--json"]) == 2
    captured = capsys.readouterr()
    line = f'{file}: the Kafka client refuses foo.bar: No such configuration property: "foo.bar"'
    assert captured.err == f"tempotrace: {line}\n"
    assert json.loads(captured.out) == {"error": line}
    assert not (tmp_path / "lake").exists()


@pytest.mark.parametrize(
    ("kafka", "message"),
    [
        ({"acks": "1"}, "refuses acks: "),
        ({"compression.type": "foo"}, "refuses compression.type: "),
        ({"session.timeout.ms": "x"}, "refuses session.timeout.ms: "),
        ({"error_cb": "x"}, "refuses error_cb: "),
        ({"logger": "x"}, "refuses logger: "),
        ({"linger.ms": "4000", "message.timeout.ms": "3000"}, "refuses the settings: `message.timeout.ms`"),
        (
            {"security.protocol": "ssl", "ssl.ca.location": "/none"},
            "refuses the settings: ssl.ca.location failed",
        ),
    ],
)
def test_settings_that_the_client_refuses(kafka: dict[str, str], message: str) -> None:
    with pytest.raises(Usage) as caught:
        settings.check_client({"bootstrap.servers": "a:1", **kafka}, "file")
    assert str(caught.value).startswith(f"file: the Kafka client {message}")


def test_a_refused_value_is_not_repeated() -> None:
    with pytest.raises(Usage) as caught:
        settings.check_client({"security.protocol": "hunter2"}, "file")
    assert "hunter2" not in str(caught.value)


def test_settings_that_the_client_takes() -> None:
    login = {"security.protocol": "sasl_ssl", "sasl.mechanism": "PLAIN", "sasl.username": "me"}
    settings.check_client({**login, "sasl.password": "a=b", "message.timeout.ms": "60000"}, "file")


def test_settings_that_do_not_fit_a_stages_own(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(KafkaException) as caught:
        Producer({"message.timeout.ms": 60000, "transactional.id": "t", "transaction.timeout.ms": 10000})
    fail_with(caught.value, monkeypatch)
    assert cli.run(["broker", "status", "--json"]) == 2
    captured = capsys.readouterr()
    line = (
        "--kafka-properties: the Kafka client refuses the settings together with our own: "
        "`message.timeout.ms` must be set <= `transaction.timeout.ms`"
    )
    assert captured.err == f"tempotrace: {line}\n"
    assert json.loads(captured.out) == {"error": line}


def test_an_unknown_compression_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["stream", "merge", "--compression", "foo"]) == 2
    assert capsys.readouterr().err == (
        "tempotrace: Invalid value for '--compression': 'foo' is not one of 'none', 'lz4', 'zstd'. See --help.\n"
    )


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["sink", "lake", "--lake", ""], "--lake"),
        (["sink", "lake", "--lake="], "--lake"),
        (["sink", "lake", "--bootstrap-servers", ""], "--bootstrap-servers"),
        (["sink", "lake", "--kafka-properties", ""], "--kafka-properties"),
        (["stream", "merge", "--tenant", ""], "--tenant"),
        (["produce", "gpu", "--kineto", "a", "--kineto", ""], "--kineto"),
        (["produce", "gpu", "--kineto", "a", "--scope", ""], "--scope"),
        (["produce", "gpu", "--kineto", "a", "--host", ""], "--host"),
        (["produce", "int", "--pcap", "a", "--plane", ""], "--plane"),
        (["analyze", ""], "files"),
        (["broker", "start", "--data", ""], "--data"),
    ],
)
def test_an_empty_value_is_wrong_usage(
    arguments: list[str],
    named: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.run(arguments) == 2
    expected = f"tempotrace: {named} is empty: give it a value or leave it out\n"
    assert capsys.readouterr().err == expected
    assert list(tmp_path.iterdir()) == []


def test_input_that_ends_too_early_is_no_interrupt(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fail_with(EOFError("the stream has no end marker"), monkeypatch)
    assert cli.run(["broker", "status", "--json"]) == 1
    captured = capsys.readouterr()
    line = "the input ended too early: the stream has no end marker"
    assert captured.err.strip() == f"tempotrace: {line}"
    assert json.loads(captured.out) == {"error": line}


def test_what_the_system_refuses_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fail_with(PermissionError(13, "Permission denied", "/a/file"), monkeypatch)
    assert cli.run(["broker", "status", "--json"]) == 1
    captured = capsys.readouterr()
    assert captured.err == "tempotrace: /a/file: Permission denied\n"
    assert json.loads(captured.out) == {"error": "/a/file: Permission denied"}


def tempotrace(*arguments: str, stdin: bytes = b"", out: str = "/dev/null") -> tuple[int, str]:
    """Exit code and stderr of a process of its own."""
    with Path(out).open("wb") as stdout:
        ran = subprocess.run(
            [sys.executable, "-m", "tempotrace", *arguments],
            input=stdin, stdout=stdout, stderr=subprocess.PIPE, check=False,
        )  # fmt: skip
    return ran.returncode, ran.stderr.decode()


@pytest.mark.parametrize("rows", [1, 20_000])  # the first fails when the process ends, the other on the way
def test_a_result_that_cannot_be_written_is_one_line(rows: int, tmp_path: Path) -> None:
    views.prepare(tmp_path)
    for options in ([], ["--json"]):
        code, err = tempotrace(
            "sql", f"FROM range({rows})", "--lake", str(tmp_path), *options, out="/dev/full"
        )
        assert code == 1
        assert err.count("\n") == 1
        assert err.endswith("No space left on device\n")


def test_an_error_that_cannot_be_written_as_json_is_said_all_the_same(tmp_path: Path) -> None:
    code, err = tempotrace("sql", "SELECT 1", "--lake", str(tmp_path), "--json", out="/dev/full")
    assert code == 1
    assert err.count("\n") == 1
    assert "is no lake" in err


def test_a_query_that_is_no_text(tmp_path: Path) -> None:
    views.prepare(tmp_path)
    code, err = tempotrace("sql", "-", "--lake", str(tmp_path), stdin=b"\xff\xfe")
    assert (code, err) == (1, "tempotrace: the query is no UTF-8 text (stdin)\n")


def test_what_is_not_installed_is_a_finding(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = importlib.metadata.version

    def missing(name: str) -> str:
        if name == "tempotrace":
            raise importlib.metadata.PackageNotFoundError(name)
        return found(name)

    monkeypatch.setattr(doctor, "requires", missing)
    monkeypatch.setattr(importlib.metadata, "version", missing)
    cli.run(["doctor", "--bootstrap-servers", "127.0.0.1:1", "--json"])
    checks = {check["name"]: check for check in json.loads(capsys.readouterr().out)["checks"]}
    assert checks["packages"]["state"] == doctor.ABSENT
    assert "is not installed" in checks["packages"]["text"]
    assert cli.run(["--version"]) == 0
    assert "not installed" in capsys.readouterr().out


def test_a_lake_is_not_made_for_a_tenant_without_topics(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lake = tmp_path / "lake"
    arguments = ["sink", "lake", "--drain", "--lake", str(lake), "--bootstrap-servers", "127.0.0.1:1"]
    assert cli.run(arguments) == 1
    assert "no broker answers" in capsys.readouterr().err
    assert not lake.exists()
