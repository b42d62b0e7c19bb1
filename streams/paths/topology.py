"""Generated fabrics: leaf and spine, three-tier Clos, rail-optimised; and those of a topology as read.

Every cable is two directed links. Layers are named by who sends and which way: `host-up`, `leaf-up`,
`agg-up`, `spine-down`, `agg-down`, `host-down`. An endpoint is one NIC port, one GPU's.
"""

from collections import Counter
from typing import Final

import numpy as np
from numpy.typing import NDArray

from schemas.errors import MalformedInput, Usage
from schemas.network import Topology
from streams.paths.fabric import Fabric, Links, build, tiers

I64 = NDArray[np.int64]

GBPS: Final = 1e9
_TIERS = ("host", "leaf", "agg", "spine")
LAYERS: Final = ("host-up", "leaf-up", "agg-up", "spine-down", "agg-down", "host-down")


def leaf_spine(
    leaves: int,
    hosts: int,
    spines: int,
    *,
    gbps: float = 400.0,
    up_gbps: float | None = None,
    cables: int = 1,
) -> Fabric:
    """`leaves` × `hosts` endpoints; each leaf has `cables` to each spine."""
    leaf, spine = np.arange(leaves), np.arange(spines)
    ends = np.arange(leaves * hosts)
    up = np.repeat(_pairs(leaf, spine), cables, axis=1)
    return _assemble(
        [_names("host", leaves * hosts), _names("leaf", leaves), [], _names("spine", spines)],
        [((0, 1), np.stack((ends, ends // hosts)), gbps), ((1, 3), up, up_gbps or gbps)],
    )


def clos(pods: int, leaves: int, aggs: int, hosts: int, uplinks: int, *, gbps: float = 400.0) -> Fabric:
    """Three tiers: pods of `leaves` × `aggs`; aggregation switch k of a pod leads to the spines of plane k.

    Each plane has `uplinks` spines, so an inter-pod flow has aggs × uplinks paths.
    """
    leaf = np.arange(pods * leaves)
    of_pod = np.arange(aggs)
    to_agg = np.stack((np.repeat(leaf, aggs), (leaf[:, None] // leaves * aggs + of_pod).ravel()))
    agg = np.arange(pods * aggs)
    to_spine = np.stack(
        (np.repeat(agg, uplinks), ((agg % aggs)[:, None] * uplinks + np.arange(uplinks)).ravel())
    )
    ends = np.arange(pods * leaves * hosts)
    return _assemble(
        [
            _names("host", len(ends)), _names("leaf", len(leaf)), _names("agg", len(agg)),
            _names("spine", aggs * uplinks),
        ],
        [((0, 1), np.stack((ends, ends // hosts)), gbps), ((1, 2), to_agg, gbps), ((2, 3), to_spine, gbps)],
    )  # fmt: skip


def rail_optimised(
    hosts: int, rails: int, per_leaf: int, spines: int, *, gbps: float = 400.0, cables: int = 1
) -> Fabric:
    """Hosts of `rails` NICs; NIC r of `per_leaf` neighbouring hosts is on one leaf of rail r; leaves to
    spines.

    Endpoint number = host × rails + rail.
    """
    ends = np.arange(hosts * rails)
    blocks = -(-hosts // per_leaf)
    leaf_of = ends // rails // per_leaf * rails + ends % rails
    up = np.repeat(_pairs(np.arange(blocks * rails), np.arange(spines)), cables, axis=1)
    names = [f"host{end // rails}.{end % rails}" for end in ends.tolist()]
    return _assemble(
        [names, _names("leaf", blocks * rails), [], _names("spine", spines)],
        [((0, 1), np.stack((ends, leaf_of)), gbps), ((1, 3), up, gbps)],
    )


def of_topology(found: Topology, default_bps: float = 400 * GBPS) -> Fabric:
    """The fabric of a topology as read. Every cable of a host is an endpoint of its own (a host with one
    keeps its name, else it is `host:port`); layers are `tier0-up`, `tier1-up`, … by hops from the nearest
    host.

    Leaves that do not reach each other (planes, NVLink domains) are no error. Raises MalformedInput if
    there is no host, or a host's cable has one direction only.
    """
    links = found.links
    cables = Counter(link.sender for link in links if link.sender in found.hosts)
    shown = [
        tuple(
            node if node not in found.hosts or cables[node] <= 1 else f"{node}:{port}"
            for node, port in ((link.sender, link.sender_port), (link.receiver, link.receiver_port))
        )
        for link in links
    ]
    ends = dict.fromkeys(
        one for link, (one, _) in zip(links, shown, strict=True) if link.sender in found.hosts
    )
    if not ends:
        raise MalformedInput("a fabric needs hosts: no node has one cable, and none is called a host")
    nodes = (*ends, *dict.fromkeys(one for pair in shown for one in pair if one not in ends))
    number = {name: k for k, name in enumerate(nodes)}
    sender, receiver = (np.array([number[pair[side]] for pair in shown]) for side in (0, 1))
    bps = np.array([link.capacity_bps or default_bps for link in links])
    layer, layers = tiers(sender, receiver, len(ends), len(nodes))
    made = Links(
        sender.astype(np.int32), receiver.astype(np.int32), layer, bps, np.ones(len(links)), layers,
        tuple(link.name for link in links),
    )  # fmt: skip
    return build(nodes, len(ends), made, whole=False)


def parse_fabric(text: str) -> Fabric:
    """A fabric from `leaf-spine:leaves=2,hosts=8,spines=8`, `clos:pods=…,leaves=…,aggs=…,hosts=…,uplinks=…`
    or `rail:hosts=…,rails=8,per_leaf=…,spines=…`; `gbps=` and, where it applies, `cables=`. Raises Usage.
    """
    kind, _, rest = text.partition(":")
    makers = {"leaf-spine": leaf_spine, "clos": clos, "rail": rail_optimised}
    if kind not in makers:
        raise Usage(f"no fabric {kind!r}: one of {', '.join(makers)}, or a file of links")
    given: dict[str, float] = {}
    for part in filter(None, rest.split(",")):
        name, _, value = part.partition("=")
        try:
            given[name.strip()] = float(value) if name.strip().endswith("gbps") else int(value)
        except ValueError:
            raise Usage(f"{part!r} of the fabric is no NAME=NUMBER") from None
        if given[name.strip()] <= 0:
            raise Usage(f"{part!r} of the fabric must be greater than 0")
    try:
        # Each maker names its own numbers; one that it lacks is the TypeError below.
        made: Fabric = makers[kind](**given)  # type: ignore[operator]
        return made
    except TypeError as error:
        raise Usage(f"the fabric {kind} cannot be made: {str(error).partition(' ')[2]}") from error


def _names(kind: str, count: int) -> list[str]:
    return [f"{kind}{k}" for k in range(count)]


def _pairs(one: I64, two: I64) -> I64:
    return np.stack((np.repeat(one, len(two)), np.tile(two, len(one))))


def _assemble(names: list[list[str]], stages: list[tuple[tuple[int, int], I64, float]]) -> Fabric:
    """Nodes by tier and the cables between tiers, as (lower tier, upper tier), pairs of places, Gbit/s."""
    base = np.cumsum([0, *(len(tier) for tier in names)])
    sender, receiver, layer, gbps = [], [], [], []
    for (low, high), (one, two), speed in stages:
        a, b = one + base[low], two + base[high]
        sender += [a, b]
        receiver += [b, a]
        down = "host-down" if low == 0 else f"{_TIERS[high]}-down"
        for name in (f"{_TIERS[low]}-up", down):
            layer.append(np.full(len(a), LAYERS.index(name)))
            gbps.append(np.full(len(a), speed))
    links = _links(
        np.concatenate(sender), np.concatenate(receiver), np.concatenate(layer), LAYERS, np.concatenate(gbps)
    )
    return build(tuple(name for tier in names for name in tier), len(names[0]), links)


def _links(
    sender: I64, receiver: I64, layer: I64, layers: tuple[str, ...], gbps: NDArray[np.float64]
) -> Links:
    return Links(
        sender.astype(np.int32), receiver.astype(np.int32), layer.astype(np.int32), gbps * GBPS,
        np.ones(len(sender)), layers,
    )  # fmt: skip
