"""The page of flows as text: what it says, that it says it of the right links, and that nothing in it can run."""

import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from streams.paths.hashing import parse_model
from streams.paths.recorded import Seen
from tempotrace import cli, flowdata
from tempotrace.page import scale
from tempotrace.page.finding import finding
from tempotrace.page.parts import Counted, Known, Side
from tempotrace.page.view import LINKS, side
from tempotrace.page.words import p_words, percent
from tests import flow_pages as pages

VOID = {"meta", "br", "input", "rect", "line", "path", "circle"}


class Page(HTMLParser):
    """Elements with their attributes; fails on tags that do not match."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        if tag in VOID:  # an SVG element with a title in it is closed
            return
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self._open and self._open[-1] not in ("script", "style"):
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


def strip_paired_shapes(page: str) -> str:
    """SVG shapes that hold a title, as the parser's void elements can't."""
    return re.sub(
        r"<(rect|line)([^<>]*[^/])>(<title>.*?</title>)</\1>", r"<g\2>\3</g>", page, flags=re.DOTALL
    )


def parsed(page: str) -> Page:
    return Page(strip_paired_shapes(page))


@pytest.fixture(scope="module")
def report() -> str:
    return pages.report(pages.small())


@pytest.fixture(scope="module")
def comparison() -> str:
    return pages.comparison(pages.small(), pages.small("static"))


def test_the_page_is_whole_and_fetches_nothing(report: str, comparison: str) -> None:
    hostile = pages.report(pages.recorded(pages.hostile()), path_sources={pages.HOSTILE[0]: 1.0})
    for page in (report, comparison, hostile):
        found = parsed(page)
        ids = [attributes["id"] for _, attributes in found.elements if "id" in attributes]
        assert len(ids) == len(set(ids))
        assert [name for name, _ in found.elements].count("script") == 1
        assert {"link", "img", "iframe", "object", "embed", "base", "image"}.isdisjoint(
            n for n, _ in found.elements
        )
        for _, attributes in found.elements:
            assert "src" not in attributes
            assert not any(name.startswith("on") or name == "style" for name in attributes)
            address = attributes.get("href")
            assert address is None or address == "#" or address[1:] in ids
        assert re.search(r"https?://|@import|//cdn", page) is None
        assert set(re.findall(r"url\(([^)]*)\)", page)) <= {"#hatch", "#veil"}
        policy = next(
            a["content"] for _, a in found.elements if a.get("http-equiv") == "Content-Security-Policy"
        )
        assert policy is not None
        assert policy.startswith("default-src 'none'; style-src 'sha256-")
        assert "unsafe" not in policy


def test_names_from_data_stay_text() -> None:
    page = pages.report(pages.recorded(pages.hostile()), path_sources={pages.HOSTILE[0]: 1.0})
    body = page.partition("<main>")[2].rpartition("<script>")[0]
    assert "<script" not in body
    assert "\u202e" not in body
    assert "\x00" not in body
    page.encode("utf-8")
    words = parsed(page).text
    for name in (
        "<script>window.hit=1</script>",
        "=1+1",
        "größe→ß",
        "&lt;",
        "leaf\ufffddaerb",
        "spine\ufffd",
    ):
        assert name in words, name


def test_the_first_words_are_the_worst_finding(report: str) -> None:
    case, figures = pages.small()
    worst = figures.report["collisions"]["worst"][0]
    layer = figures.report["layers"][0]
    said = parsed(report).text
    assert (
        f"{worst['elephants']} large flows ask {worst['overload']:g} × the capacity of {worst['link']}."
        in said
    )
    assert f"FIM {layer['fim_routing']:.3g} %, 36.5 % by chance ({p_words(layer['p'])})." in said
    lost = figures.report["collisions"]
    assert (
        f"{lost['losing']} of 64 large flows are slowed: {percent(lost['mean_loss'])} of their rate on average"
        in said
    )
    for fact in ("no time: not of a lake", "unknown: no port was counted", "computed 100 %", "observed 0 %"):
        assert fact in said
    loads = {link.name: link for link in side(case, figures, Known()).links}
    assert loads[worst["link"]].share == pytest.approx(worst["overload"])


def test_each_half_of_a_line_is_what_its_node_sends(report: str) -> None:
    drawing = report.partition('<svg class="fabric"')[2].partition("</svg>")[0]
    node = r'<rect class="node" x="([\d.]+)" y="([\d.]+)" width="([\d.]+)" height="22" rx="4"><title>([^<]*)</title>'
    places = {name: (float(x) + float(w) / 2, float(y) + 11) for x, y, w, name in re.findall(node, drawing)}
    assert len(places) == 2 + 8 + 16
    rows = {
        kind: {y for name, (_, y) in places.items() if name.startswith(kind)}
        for kind in ("host", "leaf", "spine")
    }
    assert [len(row) for row in rows.values()] == [1, 1, 1]
    assert max(rows["spine"]) < max(rows["leaf"]) < max(rows["host"])
    ends = r'x1="([\d.]+)" y1="([\d.]+)" x2="([\d.]+)" y2="([\d.]+)"'
    line = rf'<line class="(s\d)"[^>]* {ends}/><title>([^:]*):\d+&gt;([^:]*):'
    halves = re.findall(line, drawing)
    assert len(halves) == 64
    looks = {
        (link.ends[0], link.ends[2]): scale.step(link.share or 0)
        for link in side(*pages.small(), Known()).links
    }
    for look, x1, y1, x2, y2, sender, receiver in halves:
        one, two = np.array(places[sender]), np.array(places[receiver])
        assert (float(x1), float(y1)) == pytest.approx(one, abs=0.2)
        assert (float(x2), float(y2)) == pytest.approx(one + 0.495 * (two - one), abs=0.2)
        assert look == f"s{looks[sender, receiver]}"


def test_polarised_fabrics_are_called_so() -> None:
    case = pages.made(
        "clos:pods=4,leaves=8,aggs=8,hosts=16,uplinks=8", "ring:queue_pairs=2,ranks=64,shuffle=1"
    )
    worst, losers = finding(side(*case, Known()))
    assert worst.startswith("Hashing is polarised: what a switch chose in leaf-up decides agg-up")
    assert "p < 0.0001" in worst
    assert losers.startswith("Job job")
    assert finding(side(*pages.small("static"), Known()))[0].startswith("Nothing stands out")


def test_a_link_that_is_counted_and_never_taken_is_dead() -> None:
    seen = [
        Seen("10.0.0.1", "10.0.1.1", 50000 + k, 4791, 17, 1e6,
             tuple((step, 1.0) for step in ("h1:0>l1:9", "l1:1>s0:1", "s0:2>l2:1", "l2:9>h2:0")), path_source="walked")
        for k in range(40)
    ]  # fmt: skip
    seen.append(
        Seen("10.0.2.1", "10.0.1.1", 1, 4791, 17, 1e6,
             tuple((step, 1.0) for step in ("h3:0>l3:9", "l3:1>s1:3", "s1:2>l2:2", "l2:9>h2:0")), path_source="walked")
    )  # fmt: skip
    counted: dict[str, tuple[float, float | None, float | None]] = {
        "l1:2>s1:1": (0.0, 0.0, None),
        "x:1>y:1": (5.0, None, None),
        "l1:9>": (1.0, None, None),
    }
    source = flowdata.Source("test", seen, counted=counted)
    found = flowdata.placed(source, None, parse_model("crc32"), 400.0)
    assert "x:1>y:1" not in (found.fabric.links.names or ())
    case = pages.recorded(seen, counted)
    known = Known(seen, counted={"l1:2>s1:1": Counted(0.0, 0.0, None)}, capacity=frozenset({"l1:1>s0:1"}))
    shown = side(*case, known, alone=True)
    first = shown.links[0]
    assert (first.name, first.dead, first.flows) == ("l1:2>s1:1", True, 0.0)
    assert [link.name for link in shown.links if link.dead] == ["l1:2>s1:1"]
    assert {link.name for link in shown.links if link.unknown} == {
        "> h1 (unseen)",
        "> h3 (unseen)",
        "h2> (unseen)",
    }
    assert {link.name for link in shown.links if not link.assumed} == {"l1:1>s0:1"}
    page = pages.report(case, known)
    assert "l1:2&gt;s1:1 carries nothing, though chance would have put 20 flows on it (p &lt; 0.0001)" in page
    assert page.count('class="dead"') == 1 + 2 + 1  # drawn, in the table and the card, and in the legend
    assert 'class="veil"' in page
    assert 'class="unknown"' in page
    hops = [hop.how for flow in shown.flows for hop in flow.path]
    assert set(hops) == {"walked"}


def test_every_hop_says_how_it_is_known() -> None:
    path = (("l1:1>s0:1", 0.5), ("l1:2>s1:1", 0.5), ("s0:2>l2:1", 0.5), ("s1:2>l2:2", 0.5), ("l2:9>", 1.0))
    seen = [
        Seen("10.0.0.1", f"10.0.1.{k}", 5, 4791, 17, 1e6, path, path_source="candidates", agreement=0.97)
        for k in (1, 2)
    ]
    shown = side(*pages.recorded(seen), Known(seen), alone=True)
    flow = shown.flows[0]
    assert [(hop.name, hop.how) for hop in flow.path] == [
        ("10.0.0.1>l1:", "implied: the end's own link"),
        ("l1:1>s0:1", "candidates, 50.0% of the flow"),
        ("l1:2>s1:1", "candidates, 50.0% of the flow"),
        ("s0:2>l2:1", "candidates, 50.0% of the flow"),
        ("s1:2>l2:2", "candidates, 50.0% of the flow"),
        ("l2:9>", "candidates, next hop not named"),
    ]
    assert "candidates, agreement 97 %" in pages.report(pages.recorded(seen), Known(seen))
    assert {hop.how for flow in side(*pages.small("static"), Known()).flows for hop in flow.path} == {
        "the only way", "proposed: 1 of 8"}  # fmt: skip


def test_a_comparison_shows_the_same_links_and_ports_to_copy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "compare.html"
    assert cli.run(["flows", "compare", "--draws", "20", "--html", str(file)]) == 0
    assert str(file) in capsys.readouterr().out
    page = parsed(file.read_text())
    sides: dict[str, list[str]] = {"a": [], "b": []}
    for _, attributes in page.elements:
        mark = attributes.get("data-l") or ""
        if "data-y" in attributes and mark[:3] in ("a-l", "b-l"):
            sides[mark[0]].append(mark[2:])
    assert sorted(sides["a"]) == sorted(sides["b"])
    for said in (
        "static instead of ecmp takes FIM of leaf-up",
        "Over 20 draws",
        "paper: static routing",
        "−100 %",
    ):
        assert said in page.text
    # The ports as text are what reroute reads: put to use they bring the static figures about.
    ports = re.search(r'id="ports"[^>]*>([^<]*)</pre>', file.read_text())
    assert ports is not None
    changes = tmp_path / "ports.csv"
    changes.write_text(ports.group(1))
    flows = tmp_path / "flows.csv"
    flows.write_text(ports.group(1).replace("new_src_port", "unused"))
    fabric = "leaf-spine:leaves=2,hosts=8,spines=8"
    arguments = ["--flows", str(flows), "--fabric", fabric, "--b", f"reroute:{changes}", "--html", str(file)]
    assert cli.run(["flows", "compare", *arguments]) == 0
    assert "to 0 % (" in parsed(file.read_text()).text


@pytest.mark.parametrize("name", ["page.txt", "nowhere/page.html"])
def test_a_page_that_cannot_be_written_is_named_first(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["flows", "compare", "--html", name, "--json"]) == 2
    assert "--html" in capsys.readouterr().out


def test_large_fabrics_are_maps_of_bounded_size() -> None:
    case = pages.made(*pages.BIG)
    shown: Side = side(*case, Known(), alone=True)
    page = pages.report(case)
    assert len(page.encode()) < 2_500_000
    assert len(shown.links) == LINKS
    assert [len(each.rows) for each in shown.maps] == [48] * 4
    for each in shown.maps:
        worst = [max(link.share or 0 for link in cells) for _, cells in each.rows]
        assert worst == sorted(worst, reverse=True)
    said = parsed(page).text
    assert "leaf-up: 512 switches × up to 32 links, worst first; 464 less loaded switches not shown" in said
    assert "98,154 more links not listed." in said
    assert "16,184 more flows, which lose less not listed." in said
    assert "svg.fabric" in page
    assert 'class="fabric"' not in page


def test_the_files_of_the_page_belong_to_the_package() -> None:
    folder = Path(scale.__file__).parent
    built = (folder.parent.parent / "pyproject.toml").read_text()
    for name in ("page.html", "page.css", "page.js"):
        assert (folder / name).is_file()
        assert f'"*{Path(name).suffix}"' in built.partition("[tool.setuptools.package-data]")[2]
