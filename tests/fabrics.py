"""Small fabrics with tables, for walks: leaves and spines, hosts on leaves, one subnet a leaf."""

from ipaddress import ip_network

from schemas.network import HalfLink, HashSettings, NextHop, Route, RouteTable, Topology, cable, topology
from streams.paths.walk import Network, learned_addresses


def leaf_spine(
    leaves: int = 2,
    spines: int = 4,
    hosts: int = 2,
    lag: int = 1,
    weights: tuple[int, ...] | None = None,
    hashing: HashSettings | None = None,
) -> Network:
    """Host `hL.H` has 10.L.0.(H+1) behind `leafL:host<H>`; each leaf has `lag` cables to each spine, in a LAG."""
    links: list[HalfLink] = []
    for leaf in range(leaves):
        for host in range(hosts):
            links += cable(f"leaf{leaf}", f"host{host}", f"h{leaf}.{host}", "eth0", 400e9)
        for spine in range(spines):
            for k in range(lag):
                links += cable(f"leaf{leaf}", f"up{spine}.{k}", f"spine{spine}", f"down{leaf}.{k}", 400e9)
    top: Topology = topology(
        links, [f"leaf{k}" for k in range(leaves)] + [f"spine{k}" for k in range(spines)]
    )
    tables = {}
    for leaf in range(leaves):
        routes = [Route(ip_network(f"10.{leaf}.0.0/24"), (NextHop(port="Vlan10"),), "connected")]
        up = tuple(
            NextHop(f"172.16.{leaf}.{spine}", port(f"up{spine}", lag), (weights or (1,) * spines)[spine])
            for spine in range(spines)
        )
        routes += [Route(ip_network(f"10.{k}.0.0/24"), up, "bgp") for k in range(leaves) if k != leaf]
        tables[f"leaf{leaf}"] = RouteTable(
            f"leaf{leaf}",
            {"default": tuple(routes)},
            {f"up{spine}": tuple(f"up{spine}.{k}" for k in range(lag)) for spine in range(spines)}
            if lag > 1
            else {},
            {f"10.{leaf}.0.{host + 1}": f"host{host}" for host in range(hosts)},
            hashing=hashing,
        )
    for spine in range(spines):
        down = [
            Route(ip_network(f"10.{k}.0.0/24"), (NextHop(f"172.16.{k}.254", port(f"down{k}", lag)),), "bgp")
            for k in range(leaves)
        ]
        tables[f"spine{spine}"] = RouteTable(
            f"spine{spine}",
            {"default": tuple(down)},
            {f"down{k}": tuple(f"down{k}.{n}" for n in range(lag)) for k in range(leaves)} if lag > 1 else {},
            hashing=hashing,
        )
    return Network(top, tables, learned_addresses(top, tables))


def port(name: str, lag: int) -> str:
    """The interface of a next hop: the LAG, or its only cable."""
    return name if lag > 1 else f"{name}.0"
