"""The page of flows in a real Chromium: drawn, clicked, searched, downloaded, printed, with script and without."""

import base64
import csv
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import flow_pages as pages
from tests.ui.chromium import Browser


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    found = Browser(tmp_path_factory.mktemp("chromium"))
    yield found
    found.close()


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return pages.write(tmp_path_factory.mktemp("page") / "report.html", pages.report(pages.small()))


@pytest.fixture(scope="module")
def comparison(tmp_path_factory: pytest.TempPathFactory) -> Path:
    page = pages.comparison(pages.small(), pages.small("static"))
    return pages.write(tmp_path_factory.mktemp("page") / "compare.html", page)


def shown(browser: Browser) -> list[str]:
    """Cards that can be seen."""
    found = browser.ask("[...document.querySelectorAll('.card')].filter((e) => e.offsetParent !== null || "
                        "getComputedStyle(e).display !== 'none').map((e) => e.id)")  # fmt: skip
    return list(found)


def test_the_first_screen_says_it_all(browser: Browser, report: Path) -> None:
    browser.load(report)
    tops = browser.ask(
        "['h1', '.facts', 'svg.fabric', '.legend'].map((s) => document.querySelector(s).getBoundingClientRect().bottom)"
    )
    assert max(tops) <= 800
    assert browser.ask("document.documentElement.scrollWidth") <= 1280
    assert browser.ask("document.querySelectorAll('svg.fabric a').length") == 64
    assert browser.complaints() == []


def test_a_click_on_a_half_link_opens_its_card(browser: Browser, report: Path) -> None:
    browser.load(report)
    assert shown(browser) == []
    wanted = browser.ask("document.querySelector('tbody tr[data-y=\"leaf-up\"]').dataset.l")
    # In the middle of the half: another may lie on top, so the click may land on a neighbour; the card says whose.
    browser.click(f"svg.fabric a[data-l='{wanted}'] line")
    (card,) = shown(browser)
    assert browser.ask("location.hash") == f"#sel={card}"
    said = browser.ask(f"document.getElementById('{card}').innerText")
    assert "interface" in said
    assert "tempotrace flows report --json" in said
    assert browser.ask("document.querySelectorAll('svg.fabric a.on').length") == 1
    browser.press("Escape")
    assert shown(browser) == []
    assert browser.complaints() == []


def test_a_flow_lights_its_path(browser: Browser, report: Path) -> None:
    browser.load(report)
    flow = browser.ask("document.querySelector('table[data-csv=flows] tbody tr').dataset.l")
    browser.click("table[data-csv=flows] tbody tr td:nth-child(3)")
    assert shown(browser) == [flow]
    assert browser.ask("document.querySelectorAll('svg.fabric a.on').length") == 4
    hops = browser.ask(f"[...document.querySelectorAll('#{flow} ol li em')].map((e) => e.textContent)")
    assert hops == ["the only way", "computed: hash, 1 of 8", "the only way", "the only way"]
    link = browser.ask(f"document.querySelector('#{flow} ol a').getAttribute('href').slice(1)")
    browser.click(f"#{flow} ol a")
    assert shown(browser) == [link]


def test_search_and_filters_live_in_the_fragment(browser: Browser, report: Path) -> None:
    browser.load(report)
    browser.click("input[name=q]")
    browser.type("spine3")
    browser.ask("document.querySelector('select').value = 'leaf-up'")
    browser.ask("document.querySelector('select').dispatchEvent(new Event('change'))")
    fragment = browser.ask("location.hash")
    assert fragment == "#q=spine3&layer=leaf-up"
    rows = "[...document.querySelectorAll('table[data-csv=links] tbody tr')].filter((r) => !r.hidden)"
    assert browser.ask(f"{rows}.map((r) => r.cells[3].textContent)") == ["spine3", "spine3"]
    assert browser.ask("document.querySelectorAll('svg.fabric a:not(.dim)').length") == 2
    browser.load(report, fragment)  # whoever is sent the address sees the same
    assert browser.ask(f"{rows}.length") == 2
    assert browser.ask("document.querySelector('input[name=q]').value") == "spine3"
    assert browser.ask("document.querySelector('select').value") == "leaf-up"
    browser.click("input[name=full]")
    assert browser.ask(f"{rows}.every((r) => Number(r.dataset.s) > 1)")
    assert browser.complaints() == []


def test_csv_holds_plain_values_of_the_rows_that_match(
    browser: Browser, report: Path, tmp_path: Path
) -> None:
    browser.call("Browser.setDownloadBehavior",
                 {"behavior": "allow", "downloadPath": str(tmp_path), "eventsEnabled": True}, tab=False)  # fmt: skip
    browser.load(report, "#layer=leaf-up")
    browser.click("section:has(table[data-csv=links]) .tools button")
    while browser.wait("Browser.downloadProgress")["state"] != "completed":
        pass
    with (tmp_path / "links.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 16
    assert {row["layer"] for row in rows} == {"leaf-up"}
    assert sum(float(row["flows"]) for row in rows) == 64
    assert float(rows[0]["share of capacity"]) == pytest.approx(float(rows[0]["flows"]) / 4)


def test_it_works_without_script(browser: Browser, report: Path) -> None:
    browser.call("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        browser.load(report)
        assert browser.ask("document.querySelector('#filters').hidden")  # nothing that would do nothing
        link = browser.ask("document.querySelector('table[data-csv=links] tbody tr').dataset.l")
        browser.click("table[data-csv=links] tbody tr a")
        assert shown(browser) == [link]
        browser.click(f"#{link} .close")
        assert shown(browser) == []
    finally:
        browser.call("Emulation.setScriptExecutionDisabled", {"value": False})


def test_it_prints_with_cards_and_without_controls(browser: Browser, report: Path) -> None:
    browser.load(report)
    browser.call("Emulation.setEmulatedMedia", {"media": "print"})
    try:
        assert len(shown(browser)) == 40
        assert browser.ask("getComputedStyle(document.querySelector('#filters')).display") == "none"
        heights = browser.ask(
            "[...document.querySelectorAll('.scroll')].map((e) => e.scrollHeight - e.clientHeight)"
        )
        assert max(heights) <= 1  # no row is hidden behind a scroll bar
        printed = base64.b64decode(browser.call("Page.printToPDF", {"printBackground": True})["data"])
    finally:
        browser.call("Emulation.setEmulatedMedia", {"media": ""})
    assert printed.startswith(b"%PDF")
    assert printed.count(b"/Type /Page\n") + printed.count(b"/Type /Page ") >= 3


def test_a_comparison_has_the_same_layout_twice(browser: Browser, comparison: Path) -> None:
    browser.load(comparison, width=1400, height=900)
    assert browser.ask("document.querySelectorAll('svg.fabric').length") == 2
    places = browser.ask(
        "[...document.querySelectorAll('svg.fabric')].map((s) => [...s.querySelectorAll('rect.node')].map((r) => "
        "r.getAttribute('x') + r.textContent).join())"
    )
    assert places[0] == places[1]
    sizes = browser.ask(
        "[...document.querySelectorAll('svg.fabric')].map((s) => s.getBoundingClientRect().width)"
    )
    assert sizes[0] == pytest.approx(sizes[1], abs=1)
    assert browser.ask("document.documentElement.scrollWidth") <= 1400
    lines = browser.ask("document.getElementById('ports').textContent.trim().split('\\n')")
    assert lines[0] == "src,src_port,dst,dst_port,new_src_port"
    assert len(lines) == 65
    browser.click("svg.fabric a[data-l^='b-l'] line")
    assert [card[:2] for card in shown(browser)] == ["b-"]
    assert browser.complaints() == []


def test_hostile_names_are_text(browser: Browser, tmp_path: Path) -> None:
    case = pages.recorded(pages.hostile())
    browser.load(
        pages.write(tmp_path / "hostile.html", pages.report(case, path_sources={pages.HOSTILE[0]: 1.0}))
    )
    assert browser.ask("window.hit") is None
    assert browser.ask("document.querySelectorAll('script').length") == 1
    assert browser.ask("document.querySelectorAll('b:not(figcaption b, dd b)').length") == 0
    assert browser.ask("[...document.querySelectorAll('*')].some((e) => e.getAttributeNames().some((n) => "
                       "n.startsWith('on')))") is False  # fmt: skip
    assert pages.HOSTILE[0] in browser.ask("document.body.textContent")
    assert browser.complaints() == []


def test_nothing_that_is_added_to_the_page_runs(browser: Browser, tmp_path: Path) -> None:
    """The page's own policy holds even if an escape were forgotten."""
    page = pages.report(pages.small()).replace(
        "<main>", "<main><script>window.hit=1</script><img src=x onerror=window.hit=1>"
    )
    browser.load(pages.write(tmp_path / "attacked.html", page))
    assert browser.ask("window.hit") is None
    assert len([one for one in browser.complaints() if "Content Security Policy" in one]) >= 2


def test_sixteen_thousand_gpus_are_a_map(browser: Browser, tmp_path: Path) -> None:
    browser.load(pages.write(tmp_path / "big.html", pages.report(pages.made(*pages.BIG))))
    assert browser.ask("document.querySelectorAll('svg.fabric').length") == 0
    assert browser.ask("document.querySelectorAll('svg.heat').length") == 4
    assert browser.ask("document.querySelector('svg.heat').getBoundingClientRect().top") < 400
    assert browser.ask("document.documentElement.scrollWidth") <= 1280
    browser.click("svg.heat a rect")
    assert len(shown(browser)) == 1
    took = browser.ask(
        "(() => { const t = performance.now(); const q = document.querySelector('input[name=q]'); q.value = 'agg41'; "
        "q.dispatchEvent(new Event('input')); return performance.now() - t; })()"
    )
    assert took < 3000  # 20 ms on an idle core
    assert browser.complaints() == []
