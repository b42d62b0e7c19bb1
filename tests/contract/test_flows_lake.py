"""`tempotrace flows` on what the paths stage and the sink have put in a lake."""

import html
import json
import re
import shlex
from pathlib import Path

import numpy as np
import pytest

from schemas import columns as c
from schemas import paths as p
from schemas.flow import flow_id
from schemas.pack import Strings
from tempotrace import cli
from tests.lakes import Sink, records

START_NS, WINDOW_NS = 1_800_000_000_000_000_000, 100_000_000
LINKS = {0: "1:1>11:1|11:2>2:1|2:9>", 1: "1:2>12:1|12:2>2:2|2:9>"}


def window(number: int, spines: list[int]) -> bytes:
    """A window with a flow over each of these spines, of a megabyte each."""
    strings = Strings()
    steps = [link for spine in spines for link in LINKS[spine].split("|")]
    names = sorted(set(steps))
    count = len(spines)
    data = {
        "flow_id": np.array(
            [flow_id("10.0.0.1", "10.0.1.1", 50_000 + k, 4791, 17) for k in range(count)], "<u8"
        ),
        "flow_src": np.full(count, strings.index("10.0.0.1"), "<u2"),
        "flow_dst": np.full(count, strings.index("10.0.1.1"), "<u2"),
        "flow_src_port": np.arange(50_000, 50_000 + count).astype("<u2"),
        "flow_dst_port": np.full(count, 4791, "<u2"),
        "flow_protocol": np.full(count, 17, "u1"),
        "flow_job": np.full(count, strings.index("train"), "<u2"),
        "flow_rank_src": np.full(count, c.NULL_I32, "<i4"),
        "flow_rank_dst": np.full(count, c.NULL_I32, "<i4"),
        "flow_bytes": np.full(count, 1_000_000, "<i8"),
        "flow_reports": np.full(count, 5, "<u4"),
        "flow_path_first": 3 * np.arange(count).astype("<u4"),
        "flow_path_count": np.full(count, 3, "<u4"),
        "flow_path_source": np.full(count, c.PathSource.OBSERVED, "u1"),
        "flow_agreement": np.full(count, np.nan),
        "flow_valid_from_ns": np.full(count, START_NS),
        "flow_valid_to_ns": np.full(count, START_NS + number * WINDOW_NS),
        "flow_latency_ns": np.full(count, c.NULL_I64),
        "path_link": np.array([strings.index(step) for step in steps], "<u2"),
        "path_share": np.ones(3 * count),
        "link_layer": np.full(len(names), strings.index("hop0"), "<u2"),
        "link_name": np.array([strings.index(name) for name in names], "<u2"),
        "link_flows": np.ones(len(names), "<u4"),
        "link_bytes": np.full(len(names), 1_000_000, "<i8"),
        "link_capacity_bps": np.array([1e11 if name == "1:1>11:1" else np.nan for name in names]),
        "link_utilisation": np.full(len(names), np.nan),
        "link_coverage": np.array([0.5 if name == "1:1>11:1" else np.nan for name in names]),
        "link_attributed": np.full(len(names), 500_000, "<i8"),
        "link_interval_ns": np.full(len(names), WINDOW_NS, "<i8"),
    }
    start = START_NS + number * WINDOW_NS
    return p.write(p.Paths("default", "job", start, start + WINDOW_NS, strings.table, data))


def ask(capsys: pytest.CaptureFixture[str], *arguments: object) -> dict[str, object]:
    code = cli.run(["flows", *map(str, arguments), "--json"])
    out = capsys.readouterr().out
    assert code == 0, out
    return json.loads(out)  # type: ignore[no-any-return]


def test_report_and_compare_what_was_recorded(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lake = tmp_path / "lake"
    Sink(lake, records("paths", [window(0, [0, 0, 0, 0]), window(1, [0, 0, 0, 1])])).run()
    out = ask(capsys, "report", "--lake", lake)
    row = out["layers"][0]  # type: ignore[index]
    # The last path counts: three flows by one spine, one by the other; bytes are of both windows.
    assert (row["layer"], row["groups"], row["links"], row["flows"]) == ("tier1-up", 1, 2, 4)
    assert (row["fim_routing"], row["bytes"]) == (50.0, 8e6)
    assert row["fim_null"] == pytest.approx(37.5)
    assert row["p"] == pytest.approx(0.75)
    assert (out["coverage"], out["path_sources"]) == (0.5, {"observed": 1.0})
    assert out["interval_ns"] == [START_NS, START_NS + 2 * WINDOW_NS]
    assert [(r["window_start_ns"], r["fim_routing"]) for r in out["over_time"]] == [  # type: ignore[attr-defined]
        (START_NS, 100.0),
        (START_NS + WINDOW_NS, 50.0),
    ]
    # 1:1>11:1 is known to be a quarter as fast as links are assumed to be.
    hot = out["collisions"]["hot_links"][0]  # type: ignore[index]
    assert (hot["link"], hot["bytes"]) == ("1:1>11:1", 6e6)
    assert hot["seconds"] == pytest.approx(6e6 * 8 / 1e11)
    jobs = out["collisions"]["jobs"]  # type: ignore[index]
    assert [(job["tenant"], job["job"], job["flows"]) for job in jobs] == [("default", "train", 4)]
    moved = ask(capsys, "compare", "--lake", lake, "--b", "spray")
    assert moved["a"]["routing"] == "as recorded"  # type: ignore[index]
    assert moved["b"]["layers"][0]["fim_routing"] == pytest.approx(0.0)  # type: ignore[index]


def test_a_lake_without_flows_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lake = tmp_path / "lake"
    assert cli.run(["flows", "report", "--lake", str(lake), "--json"]) == 1
    assert "is no lake" in json.loads(capsys.readouterr().out)["error"]
    Sink(lake, records("paths", [window(0, [0])])).run()
    assert cli.run(["flows", "report", "--lake", str(lake), "--scope", "other", "--json"]) == 2
    assert "no flows of default in other" in json.loads(capsys.readouterr().out)["error"]


def test_the_page_of_a_lake_and_the_commands_it_names(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lake, page = tmp_path / "it's a lake", tmp_path / "page.html"
    Sink(lake, records("paths", [window(0, [0, 0, 0, 0]), window(1, [0, 0, 0, 1])])).run()
    out = ask(capsys, "report", "--lake", lake, "--html", page)
    assert out["page"] == str(page)
    text = page.read_text()
    for said in (
        "2027-01-15 08:00:00.000 to 2027-01-15 08:00:00.200 TAI (200 ms)", "50 % of counted bytes", "observed 100 %",
        "FIM by window", "assumed for 7 of 8 links", "mean use of the link over the interval",
    ):  # fmt: skip
        assert said in text, said
    # 2 MB were counted in 200 ms at 100 Gbit/s, though 6 MB of flows were seen to pass.
    card = text.partition('id="l1"')[2].partition("</section>")[0]
    assert "interface <b>1</b>" in card
    assert "0.08 %" in card
    assert "2 MB, mean use 0.08 %, coverage 50 %" in card
    commands = [
        shlex.split(html.unescape(found))
        for found in re.findall(r'<pre class="copy">(tempotrace sql .*?)</pre>', text)
    ]
    assert len(commands) == 8 + 4
    for words in commands:
        assert cli.run([*words[1:], "--json"]) == 0
        rows = json.loads(capsys.readouterr().out)["rows"]
        # A host's own link is implied by the paths, and not in the lake.
        assert bool(rows) == ("unseen" not in words[-1] and "10.0.0.1>" not in words[-1])
    assert cli.run(["flows", "compare", "--lake", str(lake), "--b", "spray", "--html", str(page)]) == 0
    assert "spray instead of ecmp" in page.read_text()


def test_flows_without_a_choice_and_bytes_are_said_to_be_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flows = tmp_path / "flows.csv"
    flows.write_text("src,dst,src_port,bytes,path\n10.0.0.1,10.0.1.1,5,0,a:1>b:1|b:2>c:1\n")
    assert cli.run(["flows", "report", "--flows", str(flows)]) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"file {flows}",
        "recorded: none of 1 flows had a choice of links, so there is no spread to judge",
        "recorded: no flow's bytes are known, so neither collisions nor times can be told",
    ]


def test_a_lake_is_named_as_one_and_its_paths_as_recorded(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lake = tmp_path / "lake"
    Sink(lake, records("paths", [window(0, [0, 0, 0, 1])])).run()
    assert cli.run(["flows", "report", "--lake", str(lake)]) == 0
    said = capsys.readouterr().out
    assert said.splitlines()[0] == f"the lake in {lake}"
    assert "recorded" in said
    assert "ecmp" not in said
