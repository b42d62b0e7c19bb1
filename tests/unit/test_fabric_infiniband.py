"""InfiniBand's listings: cables, LIDs, forwarding tables; and real ones of ibsim, walked against ibtracert."""

import os
import re
import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from producers.fabric import infiniband
from schemas.codes import PathSource
from schemas.errors import MalformedInput
from schemas.network import FlowKey
from streams.paths.walk import Network, walk

LISTING = """#
# Topology file: generated on Tue Dec  1 13:17:44 2026
#
vendid=0x2c9
devid=0xd2f0
sysimgguid=0x200003
switchguid=0x200003(200003)
Switch\t41 "S-0000000000200003"\t\t# "MF0;leaf:MQM8700/U1" enhanced port 0 lid 6 lmc 0
[1]\t"H-0000000000100018"[1](100019) \t\t# "node-a mlx5_0" lid 20 4xHDR
[2]\t"H-000000000010001a"[2](10001c) \t\t# "node-b mlx5_0" lid 24 2xNDR

vendid=0x2c9
devid=0x1017
sysimgguid=0x100018
caguid=0x100018
Ca\t1 "H-0000000000100018"\t\t# "node-a mlx5_0"
[1](100019) \t"S-0000000000200003"[1]\t\t# lid 20 lmc 1 "MF0;leaf:MQM8700/U1" lid 6 4xHDR

vendid=0x2c9
devid=0x1017
sysimgguid=0x10001a
caguid=0x10001a
Ca\t2 "H-000000000010001a"\t\t# "node-b mlx5_0"
[2](10001c) \t"S-0000000000200003"[2]\t\t# lid 24 lmc 0 "MF0;leaf:MQM8700/U1" lid 6 2xNDR
"""
LFTS = """Unicast lids [0x0-0x18] of switch DR path slid 0; dlid 0; 0,5 guid 0x0000000000200003 (MF0;leaf:MQM8700/U1):
  Lid  Out   Destination
       Port     Info
0x0006 000 : (Switch portguid 0x0000000000200003: 'MF0;leaf:MQM8700/U1')
0x0014 001 : (Channel Adapter portguid 0x0000000000100019: 'node-a mlx5_0')
0x0015 001 : (path #1 out of 2: portguid 0x0000000000100019)
0x0017 255 : ()
0x0018 002 : (Channel Adapter portguid 0x000000000010001c: 'node-b mlx5_0')
5 valid lids dumped
"""


def test_cables_lids_and_tables() -> None:
    found, names = infiniband.discovered(LISTING, "f")
    leaf = "MF0;leaf:MQM8700/U1"
    assert found.switches == {leaf}
    assert found.hosts == {"node-a mlx5_0", "node-b mlx5_0"}
    assert found.lids == {
        6: (leaf, "0"),
        20: ("node-a mlx5_0", "1"),
        21: ("node-a mlx5_0", "1"),
        24: ("node-b mlx5_0", "2"),
    }
    assert {link.capacity_bps for link in found.links} == {200e9}  # 4 lanes of 50, 2 of 100
    tables = infiniband.forwarding(LFTS, names, "f")
    assert dict(tables[leaf].ports) == {6: 0, 20: 1, 21: 1, 24: 2}
    path = walk(Network(found, tables), FlowKey("lid:20", "lid:24"))
    assert [hop.link for hop in path.hops] == [f"node-a mlx5_0:1>{leaf}:1", f"{leaf}:2>node-b mlx5_0:2"]
    assert (path.source, path.end) == (PathSource.WALKED, "arrived")
    assert walk(Network(found, tables), FlowKey("lid:20", "lid:6")).end == "arrived"
    unassigned = Network(found, {leaf: type(tables[leaf])(leaf, {})})
    assert walk(unassigned, FlowKey("lid:20", "lid:24")).end == "no route"


def test_two_nodes_of_one_name_keep_their_guids() -> None:
    found, _ = infiniband.discovered(LISTING.replace("node-b", "node-a"), "f")
    assert found.hosts == {"node-a mlx5_0 H-0000000000100018", "node-a mlx5_0 H-000000000010001a"}


def test_what_is_no_listing_is_refused() -> None:
    for text in ("", '[1]\t"S"[1]', LISTING.replace("[2](10001c)", "[x](10001c)")):
        with pytest.raises(MalformedInput):
            infiniband.discovered(text, "f")
    with pytest.raises(MalformedInput):
        infiniband.forwarding("0x0006 000 :\n", {}, "f")
    for end in range(0, len(LISTING), 3):
        try:
            infiniband.discovered(LISTING[:end], "f")
        except MalformedInput:
            continue


WRAPPER = next(iter(sorted(Path("/usr/lib").glob("*/umad2sim/libumad2sim.so"))), None)
TOOLS = ("ibsim", "opensm", "ibnetdiscover", "dump_lfts", "ibtracert")
without = pytest.mark.skipif(
    WRAPPER is None or any(shutil.which(tool) is None for tool in TOOLS),
    reason="needs ibsim-utils, infiniband-diags and opensm (apt)",
)


TRACED = re.compile(r'^\[(\d+)\] -> .*?\{\w+\}\[(\d+)\] lid \S+ "(.*)"$', re.MULTILINE)
HOP = re.compile(r".*:(?P<out>\d+)>(?=.*:(?P<into>\d+)$)(?P<node>.*):\d+$")


def irregular(seed: int) -> str:
    """A net of ibsim: switches as a random tree with extra cables, some of them double, hosts of one or two ports."""
    rng = np.random.default_rng(seed)
    switches = [f"sw{k}" for k in range(6)]
    used: dict[str, int] = {}
    ends: dict[str, list[tuple[int, str, int]]] = {}

    def cable(a: str, b: str) -> None:
        ports = []
        for node in (a, b):
            used[node] = used.get(node, 0) + 1
            ports.append(used[node])
        ends.setdefault(a, []).append((ports[0], b, ports[1]))
        ends.setdefault(b, []).append((ports[1], a, ports[0]))

    for k in range(1, 6):
        cable(switches[k], switches[int(rng.integers(k))])
    for _ in range(5):
        a, b = rng.choice(6, 2, replace=False).tolist()
        cable(switches[a], switches[b])
    hosts = [f"node-{k} mlx5_0" for k in range(9)]
    for host in hosts:
        for _ in range(int(rng.integers(1, 3))):
            cable(host, switches[int(rng.integers(6))])
    out = []
    for node in switches + hosts:
        out.append(f'{"Switch 36" if node in switches else f"Hca {used[node]}"} "{node}"')
        out += [f'[{port}] "{peer}"[{far}]' for port, peer, far in sorted(ends[node])]
        out.append("")
    return "\n".join(out) + "\n"


@contextmanager
def simulated(net: str, folder: Path) -> Iterator[dict[str, str]]:
    """A running ibsim whose subnet opensm has set up; the environment for tools."""
    (folder / "net").write_text(net)
    # A name of this test's own, so that another simulator on the machine is not met.
    env = os.environ | {
        "IBSIM_SOCKNAME": f"sim-{os.getpid()}",
        "OSM_CACHE_DIR": str(folder),
        "OSM_TMP_DIR": str(folder),
    }
    command = ["ibsim", "-s", str(folder / "net")]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=env
    ) as process:
        assert process.stdout is not None
        said = b""
        while b"sim>" not in said and (more := os.read(process.stdout.fileno(), 4096)):
            said += more
        # What it says later must not fill the pipe.
        drain = threading.Thread(target=process.stdout.read)
        drain.start()
        try:
            env["LD_PRELOAD"] = str(WRAPPER)
            set_up = ["opensm", "-o", "-f", str(folder / "osm.log")]
            subprocess.run(set_up, env=env, capture_output=True, timeout=60, check=False)
            yield env
        finally:
            process.kill()
            drain.join()


@without
@pytest.mark.parametrize("seed", [1, 2])
def test_walks_of_simulated_fabrics_are_those_of_ibtracert(seed: int, tmp_path: Path) -> None:
    with simulated(irregular(seed), tmp_path) as env:

        def tool(*command: str) -> str:
            return subprocess.run(
                command, env=env, capture_output=True, text=True, timeout=60, check=False
            ).stdout

        found, names = infiniband.discovered(tool("ibnetdiscover"), "ibnetdiscover")
        net = Network(found, infiniband.forwarding(tool("dump_lfts"), names, "dump_lfts"))
        lids = sorted(lid for lid, (node, _) in found.lids.items() if node in found.hosts)
        rng = np.random.default_rng(seed)
        pairs = [(a, b) for a in lids for b in lids if found.lids[a][0] != found.lids[b][0]]
        for a, b in [pairs[k] for k in rng.choice(len(pairs), 25, replace=False).tolist()]:
            mine = walk(net, FlowKey(f"lid:{a}", f"lid:{b}"))
            traced = TRACED.findall(tool("ibtracert", str(a), str(b)))
            assert [HOP.match(hop.link).groups() for hop in mine.hops] == traced  # type: ignore[union-attr]
            assert (mine.source, mine.end) == (PathSource.WALKED, "arrived")
