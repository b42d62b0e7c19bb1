"""Readers of the fabric's inputs on broken input: a parse or MalformedInput, nothing else."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import yaml

from producers.fabric import counters, hashes, infiniband, routes, routes_text, topology
from producers.host import netdevs, rdma
from producers.report import Report
from schemas.errors import MalformedInput
from schemas.network import RouteTable
from tests.unit.test_fabric_counters import sonic
from tests.unit.test_fabric_infiniband import LFTS, LISTING
from tests.unit.test_fabric_routes import APPL, table
from tests.unit.test_fabric_text import EOS, NXOS, SONIC
from tests.unit.test_fabric_topology import CLAB, HPCC, PLAIN, SIMAI, lldp, neighbour

ROUNDS = 150
VALUES: tuple[Any, ...] = (
    None,
    1,
    -1,
    2**70,
    1.5,
    float("nan"),
    "x",
    "",
    [],
    {},
    [1],
    {"a": 1},
    True,
    "10.0.0.1",
    "a,b,c",
)
TYPED = '0123456789abc:/.,[](){}" \n\t\x00é>*'
FRR = {
    "10.0.0.0/8": [
        {"selected": True, "nexthops": [{"ip": "10.0.0.1", "interfaceName": "e", "fib": True, "weight": 2}]}
    ]
}
IP = [{"dst": "10.1.0.0/16", "nexthops": [{"gateway": "10.0.0.3", "dev": "e", "weight": 1, "flags": []}]}]
FINE = {
    "FG_NHG|g": {"bucket_size": "30"}, "FG_NHG_PREFIX|10.1.0.0/16": {"FG_NHG": "g"},
    "FG_ROUTE_TABLE|10.1.0.0/16": {"0": "10.0.0.1@E0"}, "SWITCH_TABLE:switch": {"ecmp_hash_seed": "1"},
    "PBH_HASH_FIELD|a": {"hash_field": "SRC", "sequence_id": "1"}, "PBH_HASH|h": {"hash_field_list@": "a"},
}  # fmt: skip
LINKS = [
    {"ifname": "bond0", "linkinfo": {"info_kind": "bond", "info_data": {"mode": "802.3ad"}}},
    {"ifname": "eth0", "master": "bond0", "operstate": "UP"},
    {"ifname": "v", "link": "bond0", "linkinfo": {"info_kind": "vlan", "info_data": {"id": 1}}},
]
SYSFS = {"mlx5_0/ports/1/counters/port_xmit_data": "5", "mlx5_0/ports/1/rate": "400 Gb/sec (4X NDR)"}


def used(found: RouteTable) -> None:
    for vrf in found.routes:
        for address in ("10.1.0.1", "fd00::1"):
            route = found.lookup(address, vrf)
            if route is not None:
                found.ways(route, vrf)


def objects(read: Callable[[dict[str, Any]], object]) -> Callable[[Any], None]:
    """A reader that is given objects only: its caller has looked."""

    def guarded(found: Any) -> None:
        if isinstance(found, dict):
            read(found)

    return guarded


STRUCTURED: dict[str, tuple[Any, Callable[[Any], object]]] = {
    "appl_db": (APPL, lambda m: used(routes.of_json(m, "s", Report(), "f"))),
    "frr": (FRR, lambda m: used(routes.of_json(m, "s", Report(), "f"))),
    "ip": (IP, lambda m: used(routes.of_json(m, "s", Report(), "f"))),
    "fine-grained": (FINE, objects(lambda m: hashes.with_buckets(table(APPL), m, "f"))),
    "hash": (FINE, objects(lambda m: (hashes.settings(m, "f"), hashes.policies(m, "f")))),
    "counters": (sonic(tx=5), objects(lambda m: (counters.of_sonic(m, "f"), counters.speeds_of(m)))),
    "sysfs": (SYSFS, objects(lambda m: counters.of_sysfs({k: str(v) for k, v in m.items()}, "f"))),
    "lldp": (
        json.loads(lldp([{"E0": neighbour("s", "x")}])),
        lambda m: topology.read(json.dumps(m), "f", "n"),
    ),
    "containerlab": (yaml.safe_load(CLAB), lambda m: topology.listed(json.dumps(m), "f")),
    "plain": (yaml.safe_load(PLAIN), lambda m: topology.listed(json.dumps(m), "f")),
    "links": (LINKS, lambda m: netdevs.netdevs(json.dumps(m), "f")),
}
QP = "link mlx5_0/1 lqpn 1 rqpn 2 type RC state RTS rq-psn 3 sq-psn 4 pid 5 comm x\n"
CM = "link mlx5_0/1 cm-idn 0 lqpn 17 pid 100 comm x src-addr 10.5.0.1:7 dst-addr 10.5.0.2:4\n"
SS = 'tcp ESTAB 0 0 [::ffff:10.0.0.1]:4000 10.0.0.2:5000 users:(("python",pid=100,fd=5))\n\t bytes_acked:1\n'
GID = "mlx5_0 1 3 0000:0000:0000:0000:0000:ffff:0a00:0001 10.0.0.1 v2 eth0\n"
TEXTS: dict[str, tuple[str, Callable[[str], object]]] = {
    **{name: (text, lambda m: topology.read(m, "f", "n"))
       for name, text in (("clab", CLAB), ("yaml", PLAIN), ("hpcc", HPCC), ("simai", SIMAI))},
    **{name: (text, lambda m: used(routes_text.read(m, "s", Report())))
       for name, text in (("sonic", SONIC), ("nxos", NXOS), ("eos", EOS))},
    "ibnetdiscover": (LISTING, lambda m: infiniband.discovered(m, "f")),
    "lfts": (LFTS, lambda m: infiniband.forwarding(m, {}, "f")),
    "qp": (QP, lambda m: rdma.queue_pairs(m, "f")),
    "cm_id": (CM, lambda m: rdma.cm_ids(m, "f")),
    "ss": (SS, lambda m: rdma.sockets(m, "f")),
    "gids": (GID, lambda m: rdma.gids(m, "f")),
}  # fmt: skip


def places(found: Any, here: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield here
    for key, inner in (
        found.items() if isinstance(found, dict) else enumerate(found) if isinstance(found, list) else ()
    ):
        yield from places(inner, (*here, key))


def mutated(found: Any, rng: np.random.Generator) -> Any:
    """The value with one to three of its parts replaced by something else."""
    found = json.loads(json.dumps(found))
    for _ in range(int(rng.integers(1, 4))):
        all_places = list(places(found))
        place = all_places[int(rng.integers(len(all_places)))]
        value = json.loads(json.dumps(VALUES[int(rng.integers(len(VALUES)))]))
        if not place:
            return value
        inner = found
        for key in place[:-1]:
            inner = inner[key]
        if isinstance(inner, dict) and rng.random() < 0.2:
            inner[str(value)] = inner.pop(place[-1])
        else:
            inner[place[-1]] = value
    return found


def garbled(text: str, rng: np.random.Generator) -> str:
    """The text with some letters replaced, cut out, or repeated elsewhere."""
    for _ in range(int(rng.integers(1, 7))):
        if not text:
            break
        at, how = int(rng.integers(len(text))), rng.random()
        if how < 0.4:
            text = text[:at] + TYPED[int(rng.integers(len(TYPED)))] + text[at + 1 :]
        elif how < 0.7:
            text = text[:at] + text[at + int(rng.integers(1, 21)) :]
        else:
            start = int(rng.integers(len(text)))
            text = text[:at] + text[start : start + int(rng.integers(1, 31))] + text[at:]
    return text


@pytest.mark.parametrize("name", STRUCTURED)
def test_json_of_another_shape_is_read_or_refused(name: str) -> None:
    whole, read = STRUCTURED[name]
    for seed in range(ROUNDS):
        broken = mutated(whole, np.random.default_rng(seed))
        try:
            read(broken)
        except MalformedInput:
            continue
        except Exception as error:
            pytest.fail(f"{name}, seed {seed}: {error!r} of {broken}")


@pytest.mark.parametrize("name", TEXTS)
def test_garbled_text_is_read_or_refused(name: str) -> None:
    whole, read = TEXTS[name]
    for seed in range(ROUNDS):
        broken = garbled(whole, np.random.default_rng(seed))
        try:
            read(broken)
        except MalformedInput:
            continue
        except Exception as error:
            pytest.fail(f"{name}, seed {seed}: {error!r} of {broken!r}")
