"""Settings, logs and the clock."""

import io
import json
import logging
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from schemas.errors import Usage
from tempotrace import logs, settings
from tempotrace.clockwork import TAI_MINUS_UTC_NS, FakeClock, WallClock, new_incarnation, seeded


def test_home_is_absolute_and_follows_the_environment(tmp_path: Path) -> None:
    assert settings.home_folder({"TEMPOTRACE_HOME": str(tmp_path)}) == tmp_path
    assert settings.home_folder({}) == Path.cwd() / ".tempotrace"


def test_bootstrap_servers_option_then_file_then_started_broker_then_default(tmp_path: Path) -> None:
    environ = {"TEMPOTRACE_HOME": str(tmp_path)}
    file = tmp_path / "kafka.properties"
    file.write_text("bootstrap.servers=cluster:9093\nsecurity.protocol=SSL\n")
    assert settings.load(environ=environ).bootstrap == "127.0.0.1:9092"
    settings.pointer_file(tmp_path).write_text('{"bootstrap": "127.0.0.1:7777", "data": "/x"}')
    assert settings.load(environ=environ).bootstrap == "127.0.0.1:7777"
    assert settings.load(None, file, environ).bootstrap == "cluster:9093"
    both = settings.load("a:1,b:2", file, environ)
    assert dict(both.kafka) == {"bootstrap.servers": "a:1,b:2", "security.protocol": "SSL"}


def test_a_broken_pointer_to_the_broker_is_named(tmp_path: Path) -> None:
    settings.pointer_file(tmp_path).write_text("{")
    with pytest.raises(Usage, match=r"broker\.json"):
        settings.load(environ={"TEMPOTRACE_HOME": str(tmp_path)})


@pytest.mark.parametrize(
    "servers", ["", "host", "host:", ":9092", "host:0", "host:70000", "host:x", "a:1,,b:2"]
)
def test_bad_bootstrap_servers(servers: str) -> None:
    with pytest.raises(Usage):
        settings.check_bootstrap(servers)


def test_properties_file(tmp_path: Path) -> None:
    file = tmp_path / "kafka.properties"
    file.write_text("# login\n\n sasl.username = me \nsasl.password=a=b#c\n")
    assert settings.read_properties(file) == {"sasl.username": "me", "sasl.password": "a=b#c"}


@pytest.mark.parametrize("text", ["sasl.password hunter2", "=hunter2", "a=hunter2\na=hunter2"])
def test_a_bad_properties_line_is_named_without_its_content(tmp_path: Path, text: str) -> None:
    file = tmp_path / "kafka.properties"
    file.write_text(text)
    with pytest.raises(Usage, match="line") as caught:
        settings.read_properties(file)
    assert "hunter2" not in str(caught.value)


def test_a_missing_properties_file(tmp_path: Path) -> None:
    with pytest.raises(Usage, match="cannot read"):
        settings.read_properties(tmp_path / "none")


def test_secrets_are_hidden(tmp_path: Path) -> None:
    found = settings.Settings(
        tmp_path,
        {
            "bootstrap.servers": "a:1",
            "sasl.username": "me",
            "sasl.password": "hunter2",
            "ssl.key.password": "hunter2",
            "ssl.key.pem": "hunter2",
            "sasl.oauthbearer.client.secret": "hunter2",
        },
    )
    assert "hunter2" not in repr(found) + json.dumps(found.shown())
    assert found.shown()["sasl.username"] == "me"


@pytest.fixture
def restored_logging() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.mark.usefixtures("restored_logging")
def test_logs_as_json_and_for_people() -> None:
    for style, expected in (("json", None), ("human", "warning two words rows=3")):
        stream = io.StringIO()
        logs.set_up(style, "info", stream)
        logging.getLogger("tempotrace.test").debug("not shown")
        logging.getLogger("tempotrace.test").warning("two %s", "words", extra={"rows": 3})
        line = stream.getvalue().rstrip("\n")
        if expected is None:
            entry = json.loads(line)
            assert isinstance(entry.pop("time"), float)
            assert entry == {
                "level": "warning",
                "logger": "tempotrace.test",
                "message": "two words",
                "rows": 3,
            }
        else:
            assert line.split(" ", 1)[1] == expected


def test_unknown_log_style_or_level_is_refused() -> None:
    with pytest.raises(Usage, match="style"):
        logs.set_up("xml")
    with pytest.raises(Usage, match="level"):
        logs.set_up("json", "loud")


def test_the_fake_clock_moves_when_told_and_when_waited_on() -> None:
    clock = FakeClock(1_000_000_000_000_000_000)
    clock.advance(500)
    assert clock.now_ns_tai() == 1_000_000_000_000_000_500
    assert clock.now_ns_tai() - clock.now_ns_utc() == TAI_MINUS_UTC_NS
    event = threading.Event()
    assert clock.wait(event, 2.0) is False
    assert clock.monotonic() == 2.0000005
    event.set()
    assert clock.wait(event, 2.0) is True
    assert clock.monotonic() == 2.0000005


def test_the_wall_clock_is_tai() -> None:
    clock = WallClock()
    before = clock.now_ns_utc()
    tai = clock.now_ns_tai()
    after = clock.now_ns_utc()
    assert before <= tai - TAI_MINUS_UTC_NS <= after


def test_generators() -> None:
    assert seeded(7).integers(0, 2**62, 4).tolist() == seeded(7).integers(0, 2**62, 4).tolist()
    drawn = {new_incarnation() for _ in range(100)}
    assert len(drawn) == 100
    assert all(0 < incarnation < 2**63 for incarnation in drawn)
