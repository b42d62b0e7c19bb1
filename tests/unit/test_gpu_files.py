"""Containers of traces, and what breaks in them."""

import codecs
import gzip
import io
import tarfile
from pathlib import Path

import numpy as np
import pytest

from producers.gpu import files
from producers.gpu.read import KinetoReport, Options, read
from schemas.errors import MalformedInput
from tempotrace.inputs import sort_out
from tests.gpu_traces import archive, batches, event, folder, job, raw, rows, trace

RANKS = {f"rank{rank}.json": raw(job(rank)) for rank in range(4)}


def names_in(path: Path) -> list[str]:
    found: list[str] = []
    files.visit([path], lambda name, stream: found.append(name) if stream.read() else None, _unexpected)
    return found


def _unexpected(name: str, why: str) -> None:
    raise AssertionError(f"{name}: {why}")


def test_every_container_gives_the_same_events(tmp_path: Path) -> None:
    plain = folder(tmp_path / "plain", RANKS)
    packed = folder(tmp_path / "packed", {f"{name}.gz": gzip.compress(data) for name, data in RANKS.items()})
    tar = folder(tmp_path / "tar", {"all.tar.gz": archive(RANKS)}) / "all.tar.gz"
    nested = folder(
        tmp_path / "nested",
        {"all.tgz": archive({f"{name}.gz": gzip.compress(data) for name, data in RANKS.items()})},
    )
    want, report = batches(plain)
    assert (report.files, report.ranks, report.events, report.warnings) == (4, 4, 56, [])
    for path in (packed, tar, nested):
        found, same = batches(path)
        assert rows(found) == rows(want)
        assert (same.scope, same.skipped, same.facts) == (report.scope, report.skipped, report.facts)


def test_a_folder_is_read_in_order_of_name_without_what_is_hidden_or_else(tmp_path: Path) -> None:
    path = folder(
        tmp_path,
        {"b/r.json": b"{}", "a.json.gz": b"{}", ".c.json": b"{}", "README.md": b"x", ".d/e.json": b"x"},
    )
    assert names_in(path) == ["a.json.gz", "b/r.json"]


def test_an_archives_hidden_files_are_passed_over(tmp_path: Path) -> None:
    path = folder(tmp_path, {"t.tar.gz": archive({"._rank0.json": b"\x00\x05", "rank0.json": b"{}"})})
    assert names_in(path) == ["rank0.json"]


@pytest.mark.parametrize(
    ("name", "want"),
    [
        ("a/worker2_step_12.1694128201554.pt.trace.json.gz", "worker2_step_12.1694128201554"),
        ("trace.json", "trace"),
        ("odd", "odd"),
        (".json", ".json"),
    ],
)
def test_stem(name: str, want: str) -> None:
    assert want == files.stem(name)


@pytest.mark.parametrize(
    ("broken", "why"),
    [
        (gzip.compress(RANKS["rank1.json"])[:-300], "the gzip file is cut short"),
        (gzip.compress(RANKS["rank1.json"])[:-6] + b"\0\0\0\0\0\0", "the gzip file is damaged"),
        (RANKS["rank1.json"][:-900], "invalid JSON"),
        (RANKS["rank1.json"][:-1], "the JSON is cut short"),
        (b"\x93NUMPY binary noise", "neither a JSON object nor a list"),
        (b"", "the file is empty"),
        (b"{}", "no list traceEvents"),
    ],
)
def test_a_broken_file_costs_one_line_and_itself(tmp_path: Path, broken: bytes, why: str) -> None:
    path = folder(tmp_path, RANKS | {"rank1.json": broken})
    found, report = batches(path)
    assert len(report.warnings) == 1
    assert report.warnings[0].startswith("rank1.json: ")
    assert why in report.warnings[0]
    assert report.skipped["unreadable file"] == 1
    assert (report.files, report.ranks, report.events) == (3, 3, 42)
    assert {name.split("/")[0] for name, *_ in rows(found)} == {"rank0", "rank2", "rank3"}


def test_a_broken_member_does_not_break_its_archive(tmp_path: Path) -> None:
    cut = gzip.compress(RANKS["rank1.json"])[:300]
    _, report = batches(folder(tmp_path, {"t.tar.gz": archive(RANKS | {"rank1.json": cut})}))
    assert report.warnings == ["rank1.json: the gzip file is cut short; left out"]
    assert report.ranks == 3


def test_a_cut_archive_gives_what_came_before_the_cut(tmp_path: Path) -> None:
    noise = np.random.default_rng(1).bytes(50_000)
    whole = archive({"rank0.json": RANKS["rank0.json"], "z.json": noise, "rank1.json": RANKS["rank1.json"]})
    _, report = batches(folder(tmp_path, {"t.tar.gz": whole[:-200]}))
    assert report.ranks == 1
    assert report.warnings == [
        "t.tar.gz: the gzip file is cut short in z.json; that and what follows is left out"
    ]


def test_containers_do_not_nest_without_end(tmp_path: Path) -> None:
    data = RANKS["rank0.json"]
    for _ in range(5):
        data = gzip.compress(data)
    with pytest.raises(MalformedInput, match="containers inside each other"):
        batches(folder(tmp_path, {"t.json.gz": data}))


def test_nothing_usable_is_one_clear_error(tmp_path: Path) -> None:
    path = folder(tmp_path, {"a.json": b"x", "b.json": b""})
    with pytest.raises(MalformedInput, match=r"a.json: not a profiler trace.*\(and 1 more\)"):
        batches(path)
    with pytest.raises(MalformedInput, match=r"holds no \.json"):
        batches(folder(tmp_path / "empty", {"readme.txt": b""}))
    with pytest.raises(MalformedInput, match="there is no such file"):
        list(read([tmp_path / "absent"], Options(), KinetoReport()))


def test_the_first_by_name_of_two_that_claim_a_rank_is_used(tmp_path: Path) -> None:
    late = raw(trace([event("late", "cpu_op", 1, 1, 1)], 1, 4))
    found, report = batches(folder(tmp_path, RANKS | {"a.json": raw(job(0)), "rank1b.json": late}))
    assert report.warnings == [
        "rank0.json: claims rank 0, as a.json does; left out",
        "rank1b.json: claims rank 1, as rank1.json does; left out",
    ]
    assert report.skipped["rank given twice"] == 17 + 4
    assert (report.ranks, report.events) == (4, 56)
    assert "late" not in {name for *_, name in rows(found)}


def test_a_trace_without_rank_is_used_under_its_stem(tmp_path: Path) -> None:
    content = job(0)
    del content["distributedInfo"]["rank"]
    found, report = batches(
        folder(tmp_path, RANKS | {"lost.pt.trace.json": raw(content), "rank2.json": raw(content)})
    )
    assert report.warnings == [
        "lost.pt.trace.json: tells no rank; used as 'lost', and its collectives stay unmatched",
        "rank2.json: tells no rank; used as 'file rank2', and its collectives stay unmatched",
    ]
    assert (report.files, report.ranks, report.events) == (5, 3, 70)
    assert report.facts["collective kernels unmatched: rank unknown"] == 4
    assert {"lost/stream 84", "file rank2/stream 84"} <= {name for name, *_ in rows(found)}


@pytest.mark.parametrize(
    "headers",
    [
        {"GNU.sparse.map": "a,b", "GNU.sparse.size": "9"},
        {"GNU.sparse.size": "x", "GNU.sparse.map": "0,9"},
        {"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.realsize": "q"},
        {"GNU.sparse.map": "-5,9", "GNU.sparse.size": "9"},
        {"size": "-1"},
    ],
)
def test_an_archive_with_headers_of_nonsense_costs_itself(tmp_path: Path, headers: dict[str, str]) -> None:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as tar:
        member = tarfile.TarInfo("rank1.json")
        member.size, member.pax_headers = len(RANKS["rank1.json"]), headers
        tar.addfile(member, io.BytesIO(RANKS["rank1.json"]))
    path = folder(tmp_path, {"rank0.json": RANKS["rank0.json"], "b.tar": packed.getvalue()})
    _, report = batches(path)
    assert (report.ranks, report.events, len(report.warnings)) == (1, 14, 1)
    assert sort_out([path / "b.tar"]).kineto == (path / "b.tar",)


def test_a_trace_with_a_byte_order_mark_is_a_trace(tmp_path: Path) -> None:
    plain, packed = tmp_path / "a.json", tmp_path / "b.json.gz"
    plain.write_bytes(codecs.BOM_UTF8 + RANKS["rank0.json"])
    packed.write_bytes(gzip.compress(codecs.BOM_UTF8 + RANKS["rank1.json"]))
    assert sort_out([plain, packed]).kineto == (plain, packed)
    _, report = batches(tmp_path)
    assert (report.ranks, report.events) == (2, 28)
