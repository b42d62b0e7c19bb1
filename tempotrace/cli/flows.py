"""`tempotrace flows`: how evenly flows spread over links, and what another way of routing would bring."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from schemas.errors import Usage
from tempotrace.cli.flows_show import show
from tempotrace.cli.options import DEFAULT_LAKE, DEFAULT_TENANT, Json, Lake, Scope, Tenant, emit

if TYPE_CHECKING:
    import numpy as np

    from streams.paths.demand import Flows
    from streams.paths.fabric import Fabric
    from streams.paths.hashing import HashModel
    from streams.paths.route import Entries
    from tempotrace.flowdata import Source

app = typer.Typer(help="Report how flows spread over links; compare ways of routing.")

FlowFile = Annotated[
    Path | None,
    typer.Option(
        "--flows", metavar="FILE", help="CSV or JSON: src, dst, src_port, dst_port, bytes, job, path."
    ),
]
FabricSpec = Annotated[
    str | None,
    typer.Option(
        "--fabric",
        metavar="SPEC",
        help="leaf-spine:leaves=2,hosts=8,spines=8; clos:…; rail:…; or a topology file.",
    ),
]
Demand = Annotated[
    str | None,
    typer.Option(
        "--demand", metavar="SPEC", help="Made flows: ring:queue_pairs=4; all-to-all:size=64; pairs."
    ),
]
Hash = Annotated[
    str,
    typer.Option("--hash", metavar="MODEL", help="Hash of the switches: crc32c,seed=7,by=switch,offset=3."),
]
Gbps = Annotated[
    float | None,
    typer.Option("--gbps", min=0.001, help="Capacity of links whose own is not known.", show_default="400"),
]
Html = Annotated[
    Path | None,
    typer.Option(
        "--html", metavar="FILE", help="Write a page too: one file, nothing fetched, works in print."
    ),
]
Mtu = Annotated[int, typer.Option("--mtu", min=256, max=65536, help="Payload bytes of a packet.")]
Seed = Annotated[int, typer.Option("--seed", min=0, help="Seed of what is drawn.")]
_DEFAULT_HASH: Final = "crc32"
_DEFAULT_GBPS: Final = 400.0


@dataclass(frozen=True)
class _Read:
    """What a command works on. `source` is None for flows made here."""

    head: dict[str, Any]
    at: "tuple[Fabric, Flows, Entries | None]"
    model: "HashModel"
    rng: "np.random.Generator"
    source: "Source | None" = None


@app.callback()
def _group() -> None:
    """Report how flows spread over links; compare ways of routing."""


@app.command()
def report(
    context: typer.Context,
    lake: Lake = DEFAULT_LAKE,
    flows: FlowFile = None,
    fabric: FabricSpec = None,
    demand: Demand = None,
    hash_: Hash = _DEFAULT_HASH,
    tenant: Tenant = DEFAULT_TENANT,
    scope: Scope = None,
    gbps: Gbps = None,
    mtu: Mtu = 4096,
    seed: Seed = 1,
    html: Html = None,
    windows: Annotated[
        int, typer.Option("--windows", min=0, help="Of a lake, figures of so many last windows too.")
    ] = 60,
    as_json: Json = False,
) -> None:
    """Say how evenly flows spread over links, against chance; which collide, and what each loses.

    Flows come from the lake, from --flows, or are made by --demand on a --fabric. Paths are those recorded,
    or with --fabric computed by --hash.

    Example: tempotrace flows report --flows flows.csv --fabric leaf-spine:leaves=4,hosts=16,spines=16 --json

    As a page: tempotrace flows report --lake ./lake --html flows.html
    """
    from streams.paths import whatif
    from tempotrace import flowpage

    flowpage.checked(html)
    read = _input(lake, flows, fabric, demand, hash_, tenant, scope, gbps, seed)
    case = whatif.make("ecmp", *read.at[:2], read.model, read.rng, recorded=read.at[2])
    figures = whatif.figures(case, read.rng, mtu)
    result = {**read.head, **figures.report}
    from_lake = flows is None and demand is None
    if windows and from_lake and fabric is None:
        result["over_time"] = _over_time(lake, tenant, scope, windows, read.model, gbps or _DEFAULT_GBPS)
    if html is not None:
        known = flowpage.known(read.source, fabric, gbps)
        again = flowpage.again(context, lake if from_lake else None, tenant)
        flowpage.write_report(html, result, case, figures, known, again)
        result["page"] = str(html)
    emit(result, as_json, lambda: show([result]))


@app.command()
def compare(
    context: typer.Context,
    a: Annotated[
        str, typer.Option("--a", metavar="MODE", help="ecmp, static, flowlet[:N], spray, …")
    ] = "ecmp",
    b: Annotated[
        str, typer.Option("--b", metavar="MODE", help="… rehash:MODEL, qp-scale:N, reroute:FILE.")
    ] = "static",
    lake: Annotated[Path | None, typer.Option("--lake", metavar="DIR", help="Folder of the lake.")] = None,
    flows: FlowFile = None,
    fabric: FabricSpec = None,
    demand: Demand = None,
    hash_: Hash = _DEFAULT_HASH,
    tenant: Tenant = DEFAULT_TENANT,
    scope: Scope = None,
    gbps: Gbps = None,
    mtu: Mtu = 4096,
    seed: Seed = 1,
    html: Html = None,
    draws: Annotated[
        int | None,
        typer.Option("--draws", min=2, max=1_000_000, help="Draws of the queue pairs (set-up: 1000)."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Compare two ways of routing the same flows; without input, FlowTracer's set-up, many times drawn.

    Example: tempotrace flows compare --a ecmp --b static --json

    As a page: tempotrace flows compare --b static --html compare.html
    """
    from streams.paths import study, whatif
    from tempotrace import flowpage

    flowpage.checked(html)
    made = lake is None and flows is None and demand is None
    if made and fabric is not None:
        raise Usage("--fabric needs flows: --flows, --lake or --demand")
    if made:
        read = _setup(hash_, seed)
    else:
        read = _input(lake or DEFAULT_LAKE, flows, fabric, demand, hash_, tenant, scope, gbps, seed)
    cases = [
        whatif.make(mode, *read.at[:2], read.model, read.rng, read.at[2], _reroute(read.at, read.model))
        for mode in (a, b)
    ]
    figures = [whatif.figures(case, read.rng, mtu) for case in cases]
    one, two = (found.report for found in figures)
    result = {**read.head, "a": one, "b": two, "difference": whatif.difference(one, two)}
    if made and not any(mode.startswith("reroute") for mode in (a, b)):
        result["study"] = study.study(a, b, read.model, read.rng, draws or study.DRAWS)
    elif draws is not None:
        result["study"] = study.repeated(a, b, *read.at[:2], read.model, read.rng, draws)
    if html is not None:
        again = flowpage.again(context, lake, tenant)
        known = flowpage.known(read.source, fabric, gbps)
        flowpage.write_comparison(html, result, list(zip(cases, figures, strict=True)), known, again)
        result["page"] = str(html)
    emit(result, as_json, lambda: show([one, two], result))


def _setup(hash_: str, seed: int) -> _Read:
    """FlowTracer's set-up, for want of an input."""
    from streams.paths import study
    from streams.paths.hashing import parse_model
    from tempotrace.clockwork import seeded

    rng = seeded(seed)
    head = {
        "input": "none given: FlowTracer's set-up (2 leaves × 8 hosts × 400 Gbit/s, 8 spines, 4 queue "
        "pairs a host to its peer on the other leaf: 64 flows, two groups of 8 uplinks)"
    }
    return _Read(head, (*study.setup(rng), None), parse_model(hash_), rng)


def _input(
    lake: Path,
    flows: Path | None,
    fabric: str | None,
    demand: str | None,
    hash_: str,
    tenant: str,
    scope: str | None,
    gbps: float | None,
    seed: int,
) -> _Read:
    from streams.paths.demand import parse_demand
    from streams.paths.hashing import parse_model
    from tempotrace import flowdata
    from tempotrace.clockwork import seeded

    model, rng, capacity = parse_model(hash_), seeded(seed), gbps or _DEFAULT_GBPS
    over = flowdata.read_fabric(fabric, capacity) if fabric is not None else None
    if demand is not None:
        if over is None or flows is not None:
            raise Usage("--demand makes flows on a --fabric, and takes no --flows")
        made = parse_demand(demand, over.endpoints, rng)
        return _Read({"input": f"made: {demand} on {fabric}"}, (over, made, None), model, rng)
    source = flowdata.read_file(flows) if flows is not None else flowdata.read_lake(lake, tenant, scope)
    found = flowdata.placed(source, over, model, capacity)
    without = 0 if over is not None else sum(1 for one in source.seen if not one.path)
    head = {
        "input": source.what,
        **source.head(),
        "without_path": without,
        "off_shortest": found.off_shortest,
    }
    recorded = found.entries if over is None else None
    return _Read(head, (found.fabric, found.flows, recorded), model, rng, source)


def _over_time(
    lake: Path, tenant: str, scope: str | None, windows: int, model: "HashModel", gbps: float
) -> list[dict[str, Any]]:
    import numpy as np

    from streams.paths import recorded, whatif
    from tempotrace import flowdata

    rows = flowdata.read_windows(lake, tenant, scope, windows)
    found = recorded.observed([seen for _, seen in rows], {}, gbps * 1e9)
    case = whatif.Case(found.fabric, found.flows, found.entries, model, "ecmp", "as recorded")
    return whatif.over_time(case, np.array([start for start, _ in rows]))


def _reroute(at: "tuple[Fabric, Flows, Entries | None]", model: "HashModel") -> Any:
    from streams.paths.route import by_hash
    from tempotrace import flowdata

    fabric, flows, entries = at
    return lambda path: flowdata.reroute(
        path, fabric, flows, by_hash(fabric, flows, model) if entries is None else entries, model
    )
