"""`tempotrace bench` on a real broker: what it counts is exact, what it starts is gone afterwards.

No time is judged here: this machine's speed is not what is tested.
"""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from loadtest.bench import QUICK_FINDINGS
from tempotrace import broker, topics_admin
from tempotrace.cli import run
from tests.conftest import Kafka
from tests.paths import REPO

pytestmark = pytest.mark.timeout(180)

EVENTS = 20_000
STAGES = ("copy", "merge-memory", "merge", "read", "paths", "diagnosis", "lake", "archive")
FIGURES = {
    "name",
    "events",
    "seconds_median",
    "seconds_min",
    "seconds_max",
    "events_per_s",
    "ns_per_event",
    "ratio_to_copy",
    "cpu_s_per_million",
    "bytes_in_per_event",
    "bytes_out_per_event",
    "events_per_record",
}


def test_every_stage_takes_every_event_and_nothing_is_left(
    kafka: Kafka, capsys: pytest.CaptureFixture[str]
) -> None:
    before = set(topics_admin.Cluster(kafka.settings).partitions())
    options = ["--quick", "--events", str(EVENTS), "--batch-events", "512", "--batch-events", "100"]
    assert run(["bench", *options, "--bootstrap-servers", kafka.bootstrap_servers, "--json"]) == 0
    printed = capsys.readouterr()
    result = json.loads(printed.out)
    assert printed.err == ""
    assert set(result) == {
        "machine",
        "versions",
        "parameters",
        "stages",
        "incidents",
        "limits",
        "peers",
        "peers_note",
        "sentences",
    }
    assert result["peers"] == []
    assert result["machine"]["cores"] == len(os.sched_getaffinity(0))
    assert result["versions"]["kafka"].startswith("4.")
    stages = {stage["name"]: stage for stage in result["stages"]}
    assert set(stages) == {
        *(
            f"{stage}{load}"
            for load in ("", "-fabric")
            for stage in (*STAGES, "generate", "encode", "publish")
        ),
        *(f"{stage}-100" for stage in ("copy", "merge-memory", "merge", "generate", "encode", "publish")),
    }
    for name, stage in stages.items():
        assert set(stage) >= FIGURES
        assert stage["events"] == (stages["copy-fabric"]["events"] if name.endswith("-fabric") else EVENTS)
        assert 0 < stage["seconds_min"] <= stage["seconds_median"] <= stage["seconds_max"]
        assert stage["broker_cpu_s_per_million"] is None
    copy, memory, merge = stages["copy"], stages["merge-memory"], stages["merge"]
    assert copy["bytes_out_per_event"] == copy["bytes_in_per_event"] == merge["bytes_in_per_event"]
    assert (
        merge["bytes_out_per_event"] == memory["bytes_out_per_event"] == stages["read"]["bytes_in_per_event"]
    )
    assert copy["records_in"] == copy["records_out"] == merge["records_in"] == stages["archive"]["records_in"]
    assert copy["events_per_record"] > stages["copy-100"]["events_per_record"] > 10
    assert [limit["name"] for limit in result["limits"]][:2] == ["copy", "merge-memory"]
    assert result["incidents"]["findings"] == QUICK_FINDINGS
    assert any("bare copy" in sentence for sentence in result["sentences"])
    cluster = topics_admin.Cluster(kafka.settings)
    assert {name for name in set(cluster.partitions()) - before if "bench" in name} == set()
    groups = cluster.admin.list_consumer_groups().result().valid
    assert [group.group_id for group in groups if ".bench-" in group.group_id] == []


def test_ctrl_c_ends_it_and_its_broker(tmp_path: Path) -> None:
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    bench = subprocess.Popen(
        [sys.executable, "-m", "tempotrace", "bench", "--events", "2000000"],
        cwd=REPO,
        env={**os.environ, "TMPDIR": str(temporary)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        kafka = await_broker(bench, temporary)
        bench.send_signal(signal.SIGINT)
        out, err = bench.communicate(timeout=120)
    finally:
        bench.kill()
        bench.wait()
        for data in temporary.glob("tempotrace-bench-*/broker"):  # none, if all is well
            broker.stop(data)
    assert (bench.returncode, out, err) == (130, "", "tempotrace: interrupted\n")
    assert not Path(f"/proc/{kafka}").exists()
    assert list(temporary.glob("tempotrace-bench-*")) == []


def await_broker(bench: "subprocess.Popen[str]", temporary: Path) -> int:
    """Process id of the benchmark's broker, once it has made topics there."""
    node = "tempotrace-bench-*/broker/node-1"
    while not list(temporary.glob(f"{node}/data/tempotrace.bench-*.events-0")):
        assert bench.poll() is None, bench.communicate()
    (pid_file,) = temporary.glob(f"{node}/pid")
    return int(pid_file.read_text())


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--passes", "0"], "passes"),
        (["--sources", "1"], "sources"),
        (["--compression", "rar"], "'--compression': 'rar' is not one of"),
        (["--batch-events", "9", "--batch-events", "9"], "none twice"),
    ],
)
def test_wrong_options_are_refused_before_anything_starts(
    options: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["bench", *options, "--json"]) == 2
    result: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert told in result["error"]
