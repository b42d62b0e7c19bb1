"""The page of flows as text: what it says, that it says it of the right links, and that nothing in it can run."""

import itertools
import re
import shlex
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from streams.paths.hashing import parse_model
from streams.paths.recorded import Seen
from tempotrace import cli, flowdata
from tempotrace.page import bands, scale
from tempotrace.page.finding import finding
from tempotrace.page.markup import Markup, join, tag
from tempotrace.page.parts import Counted, Known, Side
from tempotrace.page.verify import Again, of_flow, of_link
from tempotrace.page.view import LINKS, side
from tempotrace.page.words import p_words, percent, signed, size_words
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


def test_the_band_is_the_null() -> None:
    case, figures = pages.small()
    for group in bands.groups(case, figures, 10):
        assert (group.unit, group.method, group.size) == ("keys", "exact", 8)
        assert sum(member.load for member in group.members) == 32
        # 1 % and 99 % of a binomial of 32 keys on one link of eight.
        assert {member.band for member in group.members} == {(0.0, 9.0)}
        assert group.outside == sum(member.load > 9 for member in group.members)
    unequal = np.random.default_rng(3).pareto(1.5, 300) + 1
    method, (band, *_) = bands.unequal(unequal, np.full(4, 0.25), 1)
    rng = np.random.default_rng(9)
    draws = np.array([unequal[rng.integers(0, 4, 300) == 0].sum() for _ in range(4000)])
    inside = float(np.mean((band[0] <= draws) & (draws <= band[1])))
    assert method == "drawn"
    assert inside == pytest.approx(0.98, abs=0.012)
    many = np.tile(unequal, 20)
    method, (band, *_) = bands.unequal(many, np.full(4, 0.25), 1)
    assert method == "normal"
    assert sum(band) == pytest.approx(2 * many.sum() / 4)


def test_colours_are_ordered_by_lightness_and_none_is_green() -> None:
    seen = [colour for _, colour in scale.STEPS]
    light = [lightness(linear(colour)) for colour in seen]
    assert all(a - b > 4 for a, b in itertools.pairwise(light)), light
    for colour in [
        *seen[1:],
        *re.findall(r"fill: (#\w{6})", (Path(scale.__file__).parent / "page.css").read_text()),
    ]:
        red, green, blue = (int(colour[k : k + 2], 16) for k in (1, 3, 5))
        assert green <= max(red, blue), colour
    # As those see them who lack one kind of cone (Machado, Oliveira and Fernandes 2009, severity 1).
    protan = np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    )
    deutan = np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.01182, 0.04294, 0.968881]]
    )
    for cones in (protan, deutan):
        light = [lightness(np.clip(cones @ linear(colour), 0, 1)) for colour in seen]
        assert all(a - b > 3 for a, b in itertools.pairwise(light)), light


def linear(colour: str) -> np.ndarray:
    value = np.array([int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5)])
    return np.where(value <= 0.04045, value / 12.92, ((value + 0.055) / 1.055) ** 2.4)


def lightness(rgb: np.ndarray) -> float:
    """CIE L*, 0 to 100."""
    y = float(rgb @ [0.2126, 0.7152, 0.0722])
    return 116 * y ** (1 / 3) - 16 if y > 0.008856 else 903.3 * y


def test_steps_are_fixed_and_full_is_not_over() -> None:
    shares = (0.0, 0.001, 0.25, 0.2501, 0.5, 0.75, 1.0, 1.0 + 1e-12, 1.01, 1.25, 1.5, 2.0, 2.01, float("inf"))
    assert [scale.step(share) for share in shares] == [0, 1, 1, 2, 2, 3, 4, 4, 5, 5, 6, 7, 8, 8]
    assert scale.labels()[4:6] == ["75 – 100 %", "100 – 125 %"]


def test_commands_are_safe_to_paste() -> None:
    link = side(*pages.small(), Known()).links[0]
    odd = "-oProxyCommand=x;$(touch hit)'\""
    for port, system in (
        ("Ethernet12", "SONiC"),
        ("Ethernet12", "EOS"),
        ("Eth1/7", "NX-OS"),
        ("swp3", "Linux"),
    ):
        evil = type(link)(
            **{**vars(link), "ends": (odd, port, "spine0", "1"), "name": f"{odd}:{port}>spine0:1"}
        )
        found = dict(of_link(evil, Again("x", "./la ke", "te'nant")))
        words = shlex.split(found[f"{system}, on the switch"])
        assert words[:3] == ["ssh", "--", odd]
        assert port in words[3]
        sql = shlex.split(found["by window"])
        assert sql[:4] == ["tempotrace", "sql", "--lake", "./la ke"]
        assert "tenant = 'te''nant'" in sql[4]
        assert "''\"" in sql[4]
    assert [what for what, _ in of_link(link, Again("again"))] == ["the figures again"]
    flow = side(*pages.small(), Known()).flows[0]
    assert list(of_flow(flow, side(*pages.small(), Known()), Again("again"))) == [
        ("the figures again", "again")
    ]


def test_exact_route_commands_where_a_device_has_one() -> None:
    steps = (
        "h1:0>l1:Ethernet9",
        "l1:Ethernet1/1>s0:Ethernet4",
        "s0:Ethernet8>l2:Ethernet1/1",
        "l2:Ethernet9>h2:0",
    )
    seen = [
        Seen(
            "10.0.0.1", "10.0.1.1", 50000, 4791, 17, 1.0, tuple((s, 1.0) for s in steps), path_source="walked"
        )
    ]
    shown = side(*pages.recorded(seen), Known(seen))
    found = dict(of_flow(shown.flows[0], shown, Again("again")))
    assert shlex.split(found["NX-OS"]) == [
        "ssh",
        "--",
        "l1",
        "show routing hash 10.0.0.1 10.0.1.1 50000 4791",
    ]
    assert "ingress-interface Ethernet9 src-ipv4-address 10.0.0.1" in found["EOS"]


def test_words_and_markup() -> None:
    assert (
        tag("a", 'x<y>&"', href='"', class_="k", data_v=None)
        == '<a href="&quot;" class="k">x&lt;y&gt;&amp;&quot;</a>'
    )
    assert join(Markup("<b>"), "<b>", None, 1.5) == "<b>&lt;b&gt;1.5"
    assert [percent(v) for v in (0.0, 0.0008, 0.0512, 0.5, 12.0, None)] == [
        "0 %", "0.08 %", "5.1 %", "50 %", "1200 %", "unknown"]  # fmt: skip
    assert [signed(v) for v in (-0.5, 0, 1754.2, 12.34)] == ["−0.5", "±0", "+1,754", "+12.3"]
    assert [size_words(v) for v in (0, 999, 1e3, 1.1e15)] == ["0 B", "999 B", "1 kB", "1.1 PB"]
    assert [p_words(v) for v in (None, 1e-9, 0.0123)][1:] == ["p < 0.0001", "p = 0.012"]


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
