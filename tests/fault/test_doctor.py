"""The doctor beside a running broker and without one."""

import importlib.metadata
import json

import pytest

from tempotrace import cli, topics_admin
from tempotrace.broker import process
from tests.conftest import Kafka


def states(capsys: pytest.CaptureFixture[str], bootstrap: str) -> tuple[int, dict[str, str]]:
    code = cli.run(["doctor", "--json", "--bootstrap-servers", bootstrap])
    return code, {check["name"]: check["state"] for check in json.loads(capsys.readouterr().out)["checks"]}


def test_all_that_is_needed_is_here(kafka: Kafka, capsys: pytest.CaptureFixture[str]) -> None:
    topics_admin.prepare(kafka.settings)
    code, found = states(capsys, kafka.bootstrap_servers)
    assert code == 0
    needed = ("java", "jars", "broker", "topics")
    assert {name: found[name] for name in needed} == dict.fromkeys(needed, "ok")
    # Run from its sources it knows no list of packages to check.
    installed = any(importlib.metadata.distributions(name="tempotrace"))
    assert found["packages"] == ("ok" if installed else "absent")


def test_no_broker_is_no_fault_of_the_machine_but_no_java_is(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    nowhere = f"127.0.0.1:{process.free_ports(1)[0]}"
    code, found = states(capsys, nowhere)
    assert (code, found["broker"], found["topics"]) == (0, "absent", "absent")
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    code, found = states(capsys, nowhere)
    assert (code, found["java"]) == (1, "bad")
