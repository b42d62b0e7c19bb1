"""What a host says of its RDMA devices and sockets, read from commands' text. Nothing here joins or guesses.

`rdma resource show qp` and `... cm_id`, `rdma link`, `show_gids` (or the table of GIDs in any such form), `ss`,
NCCL's log, and processes' environments.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from ipaddress import IPv6Address, ip_address
from typing import Final

from schemas.errors import MalformedInput

_LINK: Final = re.compile(r"^\s*link\s+(?P<device>[^\s/]+)/(?P<port>\d+|-)\s+(?P<rest>.*)$")
_PSN_MASK: Final = 0xFFFFFF


@dataclass(frozen=True)
class QueuePair:
    """A queue pair. PSNs and the remote number are None where the command did not say (UD has no remote)."""

    device: str
    port: int
    lqpn: int
    rqpn: int | None
    kind: str
    state: str
    rq_psn: int | None
    sq_psn: int | None
    pid: int | None
    comm: str


@dataclass(frozen=True)
class CmId:
    """A connection that the RDMA connection manager made: its addresses are those of the queue pair."""

    device: str
    lqpn: int | None
    src: tuple[str, int]
    dst: tuple[str, int] | None
    pid: int | None


@dataclass(frozen=True)
class Gid:
    """An address of a device's port."""

    device: str
    port: int
    index: int
    address: str
    version: str  # v1, v2, or "" where the table does not say
    netdev: str


@dataclass(frozen=True)
class Socket:
    """A connected socket."""

    protocol: int
    src: tuple[str, int]
    dst: tuple[str, int]
    pid: int | None
    comm: str
    bytes_sent: int | None = None


def _pairs(rest: str) -> dict[str, str]:
    """Words by name: `lqpn 30278 rqpn 39296 ...`. `comm` is last and may hold blanks."""
    head, _, comm = rest.partition(" comm ")
    words = head.split()
    return dict(zip(words[::2], words[1::2], strict=False)) | ({"comm": comm.strip()} if comm else {})


def _whole(found: Mapping[str, str], name: str, where: str) -> int | None:
    text = found.get(name)
    if text is None or text == "-":
        return None
    try:
        return int(text, 0)
    except ValueError:
        raise MalformedInput(f"{name} is a number", f"{where}: {text!r}") from None


def _lines(text: str) -> Iterator[tuple[int, str, int, dict[str, str]]]:
    for number, line in enumerate(text.splitlines(), 1):
        found = _LINK.match(line)
        if found is not None:
            port = 0 if found["port"] == "-" else int(found["port"])
            yield number, found["device"], port, _pairs(found["rest"])


def queue_pairs(text: str, where: str) -> list[QueuePair]:
    """`rdma resource show qp`. Raises MalformedInput."""
    out = []
    for number, device, port, found in _lines(text):
        at = f"{where}, line {number}"
        lqpn = _whole(found, "lqpn", at)
        if lqpn is None:
            continue
        comm = found.get("comm", "")
        out.append(
            QueuePair(
                device, port, lqpn, _whole(found, "rqpn", at), found.get("type", ""), found.get("state", ""),
                _whole(found, "rq-psn", at), _whole(found, "sq-psn", at), _whole(found, "pid", at), comm,
            )
        )  # fmt: skip
    return out


def cm_ids(text: str, where: str) -> list[CmId]:
    """`rdma resource show cm_id`: those that have addresses. Raises MalformedInput."""
    out = []
    for number, device, _, found in _lines(text):
        at = f"{where}, line {number}"
        # The addresses stand behind comm, whose words are then the rest.
        words = found.pop("comm", "").split()
        for name in ("src-addr", "dst-addr"):
            if name in words[:-1]:
                found[name] = words[words.index(name) + 1]
        if "src-addr" not in found:
            continue
        dst = _end(found["dst-addr"], at) if "dst-addr" in found else None
        src = _end(found["src-addr"], at)
        out.append(CmId(device, _whole(found, "lqpn", at), src, dst, _whole(found, "pid", at)))
    return out


def _end(text: str, where: str) -> tuple[str, int]:
    """(address, port) of `10.0.0.1:4000`, `[fe80::1%eth0]:4000` or `*:*`. Raises MalformedInput."""
    address, _, port = text.rpartition(":")
    address = address.strip("[]").partition("%")[0]
    try:
        shown = ip_address(address)
        if isinstance(shown, IPv6Address) and shown.ipv4_mapped is not None:
            return str(shown.ipv4_mapped), int(port)
        return str(shown), int(port)
    except ValueError:
        raise MalformedInput("no address and port", f"{where}: {text[:60]!r}") from None


_GID: Final = re.compile(
    r"^\s*(?P<device>\S+)\s+(?P<port>\d+)\s+(?P<index>\d+)\s+(?P<gid>[0-9a-fA-F:]{15,39})"
    r"(?:\s+(?P<ip>\d+\.\d+\.\d+\.\d+))?(?:\s+(?P<version>v[12]|RoCE ?v[12]|IB/RoCE ?v1))?(?:\s+(?P<netdev>\S+))?\s*$"
)


def gids(text: str, where: str) -> list[Gid]:
    """The table of `show_gids`: device, port, index, GID, IPv4, version, netdev. Empty GIDs are left out."""
    out = []
    for number, line in enumerate(text.splitlines(), 1):
        found = _GID.match(line)
        if found is None:
            continue
        try:
            gid = IPv6Address(found["gid"])
        except ValueError:
            raise MalformedInput("no GID", f"{where}, line {number}") from None
        if not int(gid):
            continue
        address = str(gid.ipv4_mapped or gid)
        version = (found["version"] or "")[-2:]
        out.append(
            Gid(
                found["device"],
                int(found["port"]),
                int(found["index"]),
                address,
                version,
                found["netdev"] or "",
            )
        )
    return out


def netdevs(text: str) -> dict[tuple[str, int], str]:
    """`rdma link`: the network interface of each device's port."""
    return {(device, port): found["netdev"] for _, device, port, found in _lines(text) if "netdev" in found}


_USERS: Final = re.compile(r'users:\(\("(?P<comm>[^"]*)",pid=(?P<pid>\d+)')
_SENT: Final = re.compile(r"\bbytes_(?:acked|sent):(\d+)")
_PROTOCOLS: Final = {"tcp": 6, "udp": 17}


def sockets(text: str, where: str) -> list[Socket]:
    """`ss -tunp` with or without -i, -a, -H: the connected ones. Without the Netid column they count as TCP."""
    out: list[Socket] = []
    connected = False
    for number, line in enumerate(text.splitlines(), 1):
        if line[:1] in (" ", "\t") and out and connected:  # -i: about the socket above
            sent = _SENT.search(line)
            if sent is not None:
                last = out[-1]
                out[-1] = Socket(last.protocol, last.src, last.dst, last.pid, last.comm, int(sent[1]))
            continue
        words = line.split()
        if not words or words[0] in ("Netid", "State"):
            continue
        protocol = 6
        if words[0] in _PROTOCOLS:
            protocol = _PROTOCOLS[words.pop(0)]
        connected = len(words) >= 5 and words[0] == "ESTAB" and not words[4].startswith(("*", "0.0.0.0:*"))
        if not connected:
            continue
        at = f"{where}, line {number}"
        user = _USERS.search(line)
        out.append(
            Socket(
                protocol, _end(words[3], at), _end(words[4], at), int(user["pid"]) if user else None,
                user["comm"] if user else "",
            )
        )  # fmt: skip
    return out


_NCCL: Final = re.compile(
    r"(?P<host>[\w.-]+):(?P<pid>\d+):\d+ \[\d+\] NCCL INFO .*?\bqpn (?P<qpn>\d+)\b.*?"
    r"\bGID (?P<index>\d+) \((?P<prefix>[0-9A-Fa-f]+)/(?P<identity>[0-9A-Fa-f]+)\)"
)


@dataclass(frozen=True)
class NcclPair:
    """A queue pair as NCCL's log names it: its number, GID index, and its own address."""

    host: str
    pid: int
    qpn: int
    gid_index: int
    address: str


def nccl_pairs(text: str) -> list[NcclPair]:
    """Lines of NCCL's log (NCCL_DEBUG=INFO) that tell a queue pair's GID.

    NCCL prints the two halves of a GID as numbers of the host, so bytes are in reverse.
    """
    out = []
    for found in _NCCL.finditer(text):
        prefix, identity = int(found["prefix"], 16), int(found["identity"], 16)
        if prefix >= 1 << 64 or identity >= 1 << 64:
            continue
        gid = IPv6Address(prefix.to_bytes(8, "little") + identity.to_bytes(8, "little"))
        address = str(gid.ipv4_mapped or gid)
        out.append(
            NcclPair(found["host"], int(found["pid"]), int(found["qpn"]), int(found["index"]), address)
        )
    return out


_RANKS: Final = ("RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID", "PMI_RANK", "PMIX_RANK")
_JOBS: Final = ("TEMPOTRACE_JOB", "SLURM_JOB_ID", "TORCHELASTIC_RUN_ID", "JOB_NAME", "PBS_JOBID", "LSB_JOBID")


def owner(environ: Mapping[str, str]) -> tuple[str, int | None]:
    """(job, rank) by a process's environment; "" and None where it does not say."""
    job = next((environ[name] for name in _JOBS if environ.get(name)), "")
    rank = next((environ[name] for name in _RANKS if environ.get(name, "").isdecimal()), None)
    return job, None if rank is None else int(rank)


def psn_distance(one: int, two: int) -> int:
    """How far two packet sequence numbers of 24 bits are apart, the shorter way round."""
    ahead = (one - two) & _PSN_MASK
    return min(ahead, _PSN_MASK + 1 - ahead)
