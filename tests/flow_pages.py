"""Pages of small and large cases, made without the command line."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from streams.paths.demand import Flows, parse_demand
from streams.paths.fabric import Fabric
from streams.paths.hashing import parse_model
from streams.paths.recorded import Seen, observed
from streams.paths.topology import parse_fabric
from streams.paths.whatif import Case, Figures, difference, figures, make
from tempotrace.page.page import compare_page, report_page
from tempotrace.page.parts import Known, Side
from tempotrace.page.verify import Again
from tempotrace.page.view import side

AGAIN = Again("tempotrace flows report --json")
BIG = ("clos:pods=16,leaves=32,aggs=32,hosts=32,uplinks=32", "ring:queue_pairs=1,ranks=512,shuffle=1")
# Names that break a page which takes them for markup, script, shell or a formula.
HOSTILE = (
    "<script>window.hit=1</script>", "\"onmouseover=\"window.hit=1", "';window.hit=1;//", "=1+1", "</script><b>",
    "$(id)", "leaf\u202edaerb", "spine\ud800", "a\x00b", "größe→ß", "&lt;", "`x`",
)  # fmt: skip


def made(fabric: str, demand: str, mode: str = "ecmp", seed: int = 1) -> tuple[Case, Figures]:
    """A case of a generated fabric and demand."""
    rng = np.random.default_rng(seed)
    over: Fabric = parse_fabric(fabric)
    flows: Flows = parse_demand(demand, over.endpoints, rng)
    case = make(mode, over, flows, parse_model("crc32"), rng)
    return case, figures(case, rng)


def small(mode: str = "ecmp", seed: int = 4) -> tuple[Case, Figures]:
    """64 flows over two leaves and eight spines."""
    return made("leaf-spine:leaves=2,hosts=8,spines=8", "pairs", mode, seed)


def recorded(seen: list[Seen], also: Iterable[str] = ()) -> tuple[Case, Figures]:
    """A case of flows as recorded."""
    found = observed(seen, {}, 400e9, counted=also)
    rng = np.random.default_rng(1)
    case = make("ecmp", found.fabric, found.flows, parse_model("crc32"), rng, recorded=found.entries)
    return case, figures(case, rng)


def hostile() -> list[Seen]:
    """Flows from one leaf to another over spines with such names; `:` and `>` alone would split a link's name."""
    out = []
    for k, name in enumerate(HOSTILE * 4):
        leaf, spine = (word.replace(":", "").replace(">", "") for word in (HOSTILE[0], name))
        path = (
            f"h1:eth0>{leaf}:1",
            f"{leaf}:{spine}>{spine}:1",
            f"{spine}:{spine}>l2:{k % len(HOSTILE)}",
            "l2:9>h2:0",
        )
        steps = tuple((step, 1.0) for step in path)
        out.append(
            Seen(
                "10.0.0.1",
                "10.0.1.1",
                50000 + k,
                4791,
                17,
                1e9,
                steps,
                name,
                HOSTILE[0],
                path_source="observed",
            )
        )
    return out


def head(**more: Any) -> dict[str, Any]:
    """What a report says before its figures."""
    return {"input": "made for a test", **more}


def report(case: tuple[Case, Figures], known: Known | None = None, **more: Any) -> str:
    """The page of a report."""
    return report_page(head(**more), side(*case, known or Known(), alone=True), AGAIN)


def comparison(a: tuple[Case, Figures], b: tuple[Case, Figures]) -> str:
    """The page of a comparison."""
    one: Side = side(*a, Known())
    two = side(*b, Known(), one)
    return compare_page(head(), one, two, difference(a[1].report, b[1].report), None, AGAIN)


def write(path: Path, page: str) -> Path:
    """The page as a file."""
    path.write_text(page, encoding="utf-8")
    return path


def flows_file(path: Path, seen: list[Seen]) -> Path:
    """Flows as `--flows` reads them."""
    rows = [
        {"src": one.src, "dst": one.dst, "src_port": one.src_port, "bytes": one.bytes, "job": one.job,
         "tenant": one.tenant, "path": [{"link": link, "share": share} for link, share in one.path],
         "path_source": one.path_source}
        for one in seen
    ]  # fmt: skip
    path.write_text(json.dumps(rows))
    return path
