"""Walks of flows over what was read or asked: which models choose, how often they are right, and the paths."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path as FilePath
from typing import Any

from producers.fabric import query, routes_text
from producers.fabric.rows import Path
from schemas.errors import MalformedInput
from schemas.network import FlowKey, HostFlow, LidTable, RouteTable, port_key
from streams.paths.hashing import HashModel
from streams.paths.models import SPRAYS, Choice, Rated, buckets, of_settings, rate
from streams.paths.walk import ARRIVED, Answer, Chooser, Network, Question, Walk, learned_addresses, walk
from tempotrace.fabricdata import Inputs, content
from tempotrace.flowdata import read_file

ROUNDS_MAX = 32  # hops at which a device is asked for its choice, one round each


@dataclass
class Known:
    """Choices known otherwise than by a model: of next hops, and of LAG members, by switch."""

    ecmp: dict[str, list[Choice]] = field(default_factory=dict)
    lag: dict[str, list[Choice]] = field(default_factory=dict)


def network(inputs: Inputs, flows: Iterable[HostFlow]) -> Network:
    """What walks need, without models yet. Addresses given count before those that hosts told with their flows, and
    these before those learned from tables."""
    topology = inputs.topology
    assert topology is not None
    told = {}
    for flow in flows:
        if flow.src_host and topology.ports(flow.src_host):
            port = flow.ports[0] if len(flow.ports) == 1 else ""
            told[flow.key.src] = (flow.src_host, port)
    learned = learned_addresses(topology, inputs.tables)
    return Network(topology, inputs.tables, learned | told | inputs.addresses)


def read_exact(path: FilePath) -> dict[Question, Answer]:
    """Exact answers, one JSON object a line: switch, src, dst, sport, dport, port_in, and `port`, `gateway`, or
    `text`, what the device printed."""
    import json

    out: dict[Question, Answer] = {}
    for number, line in enumerate(content(path).splitlines(), 1):
        if not line.strip():
            continue
        at = f"{path}, line {number}"
        try:
            row = json.loads(line)
            key = FlowKey(
                row["src"], row["dst"], int(row.get("protocol", 17)), int(row.get("sport", 0)),
                int(row.get("dport", 4791)), int(row.get("qpn", 0)),
            )  # fmt: skip
            question = (str(row["switch"]), key, str(row.get("port_in", "")))
        except (KeyError, TypeError, ValueError) as error:
            raise MalformedInput("an answer has switch, src, dst and port_in", at) from error
        if "text" in row:
            said = routes_text.exact(str(row["text"]), at)
            out[question] = Answer(said.port, said.gateway)
        else:
            out[question] = Answer(row.get("port"), row.get("gateway"))
    return out


def known_choices(net: Network, observed: FilePath | None, answers: Mapping[Question, Answer]) -> Known:
    """Choices that observed paths and exact answers show, at switches whose table says among what."""
    known = Known()
    for (switch, key, port_in), answer in answers.items():
        table = net.tables.get(switch)
        if isinstance(table, RouteTable):
            _take(known, table, key, port_in, answer.port, answer.gateway)
    if observed is None:
        return known
    for seen in read_file(observed).seen:
        key = FlowKey(seen.src, seen.dst, seen.protocol, seen.src_port, seen.dst_port, seen.qpn)
        port_in = ""
        for link, share in seen.path:
            sender, _, receiver = link.partition(">")
            node, _, port = sender.rpartition(":")
            table = net.tables.get(node)
            if share == 1 and isinstance(table, RouteTable):
                _take(known, table, key, port_in, port, None)
            port_in = receiver.rpartition(":")[2]
    return known


def _take(
    known: Known, table: RouteTable, key: FlowKey, port_in: str, port: str | None, gateway: str | None
) -> None:
    vrf = table.vrf_of(port_in)
    route = table.lookup(key.dst, vrf)
    hops = table.ways(route, vrf) if route is not None else ()
    for place, hop in enumerate(hops):
        members = table.lags.get(hop.port or "", ())
        direct = port is not None and hop.port is not None and port_key(hop.port) == port_key(port)
        inside = port in members
        if not (direct or inside or (port is None and gateway is not None and hop.gateway == gateway)):
            continue
        spread = buckets(route, [hop.weight for hop in hops])
        shown = None if spread is None else tuple(spread.tolist())
        known.ecmp.setdefault(table.switch, []).append(
            Choice(key, table.switch, port_in, len(hops), place, shown)
        )
        if inside and port is not None:
            known.lag.setdefault(table.switch, []).append(
                Choice(key, table.switch, port_in, len(members), members.index(port))
            )
        return


def choosers(
    tables: Mapping[str, RouteTable | LidTable], known: Known, ecmp: HashModel | None, lag: HashModel | None
) -> dict[str, Chooser]:
    """How each switch chooses: the model given for all, else the one of its settings, rated by known choices.

    Switches of one model are rated together.
    """
    models: dict[str, tuple[HashModel | None, HashModel | None]] = {}
    sprays: set[str] = set()
    for name, table in tables.items():
        if isinstance(table, LidTable):
            continue
        said = table.hashing
        models[name] = (
            ecmp or (of_settings(said) if said is not None else None),
            lag or (of_settings(said, lag=True) if said is not None else None),
        )
        if ecmp is None and said is not None and (said.algorithm or "").upper() in SPRAYS:
            sprays.add(name)
    rated: list[dict[HashModel, Rated]] = [{}, {}]
    for which, choices in enumerate((known.ecmp, known.lag)):
        for model in {pair[which] for pair in models.values()} - {None}:
            assert model is not None
            pooled = [
                c for name, pair in models.items() if pair[which] == model for c in choices.get(name, ())
            ]
            rated[which][model] = rate(model, pooled)
    out = {}
    for name, (one, two) in models.items():
        first = (
            Rated(None, spray=True) if name in sprays else rated[0][one] if one is not None else Rated(None)
        )
        out[name] = Chooser(first, rated[1][two] if two is not None else Rated(None))
    return out


def resolve(net: Network, flows: Iterable[HostFlow]) -> list[HostFlow]:
    """Flows whose ends are addresses: a node's name stands for its only address, or its first LID."""
    of_node: dict[str, str] = {}
    for lid, (node, _) in sorted(net.topology.lids.items()):
        of_node.setdefault(node, f"lid:{lid}")
    for address, (node, _) in net.addresses.items():
        of_node.setdefault(node, address)

    def end(text: str) -> str:
        return text if net.owner(text) is not None else of_node.get(text, text)

    out = []
    for flow in flows:
        key = replace(flow.key, src=end(flow.key.src), dst=end(flow.key.dst))
        out.append(flow if key == flow.key else replace(flow, key=key))
    return out


def walks(net: Network, keys: Iterable[FlowKey]) -> list[Walk]:
    """The path of every flow."""
    return [walk(net, key) for key in keys]


def walks_asking(
    net: Network, keys: Sequence[FlowKey], device: query.Device, limits: query.Limits
) -> tuple[list[Walk], Network]:
    """Walks for which switches are asked where a choice is open, hop by hop; all flows of a round at once."""
    found = walks(net, keys)
    refused: set[Question] = set()
    for _ in range(ROUNDS_MAX):
        wanted = {question for one in found for question in one.wanted} - refused - net.answers.keys()
        if not wanted:
            break
        said, failed = query.run(query.answers(sorted(wanted, key=repr), device, limits))
        refused |= failed.keys()
        if not said:
            break
        answers = {question: Answer(exact.port, exact.gateway) for question, exact in said.items()}
        net = replace(net, answers={**net.answers, **answers})
        found = walks(net, keys)
    return found, net


def as_path(found: Walk) -> Path:
    """A walk as rows are made of it."""
    return Path(
        found.key,
        tuple((hop.link, hop.share, hop.depth) for hop in found.hops),
        found.source,
        found.agreement,
    )


def summary(found: Sequence[Walk], net: Network) -> dict[str, Any]:
    """Figures of walks for the command's result."""
    sources: dict[str, int] = {}
    ends: dict[str, int] = {}
    for one in found:
        name = one.source.name.lower()
        sources[name] = sources.get(name, 0) + 1
        ends[one.end] = ends.get(one.end, 0) + 1
    models = {
        name: {
            "ecmp": _shown(chooser.ecmp),
            "lag": _shown(chooser.lag),
        }
        for name, chooser in sorted(net.choosers.items())
    }
    return {
        "walks": len(found),
        "path_sources": sources,
        "ends": {name: ends[name] for name in sorted(ends, key=lambda name: (name != ARRIVED, name))},
        "models": models,
        "unreached": dict(sorted(net.unreached.items())),
        "inconsistent": sorted(net.inconsistent),
    }


def _shown(rated: Rated) -> dict[str, Any] | None:
    if rated.spray:
        return {"model": "spray", "agreement": None, "choices": 0, "calibrated": False}
    if rated.model is None:
        return None
    return {
        "model": rated.model.kind,
        "agreement": rated.agreement,
        "choices": rated.choices,
        "calibrated": rated.calibrated,
    }


def shown(found: Walk) -> dict[str, Any]:
    """A walk as one line of JSON."""
    key = found.key
    return {
        "src": key.src, "dst": key.dst, "src_port": key.sport, "dst_port": key.dport, "protocol": key.protocol,
        "qpn": key.qpn, "path": [{"link": hop.link, "share": hop.share, "how": hop.how} for hop in found.hops],
        "path_source": found.source.name.lower(), "agreement": found.agreement, "ends": dict(found.ends),
    }  # fmt: skip
