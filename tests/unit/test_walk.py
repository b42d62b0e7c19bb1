"""Walks: what is certain, what a rated model computes, what stays open, and how a walk ends."""

from dataclasses import replace
from ipaddress import ip_network

import pytest

from schemas.codes import PathSource
from schemas.network import (
    FlowKey,
    HashSettings,
    LidTable,
    NextHop,
    Route,
    RouteTable,
    cable,
    topology,
)
from streams.paths.hashing import HashModel
from streams.paths.models import (
    Choice,
    Rated,
    agreement,
    buckets,
    key_bytes,
    of_settings,
    place,
    rate,
)
from streams.paths.walk import Answer, Chooser, Network, Walk, walk
from tests.fabrics import leaf_spine

MODEL = HashModel("crc32c", seed=7)


def key(sport: int = 50000, dst: str = "10.1.0.2") -> FlowKey:
    return FlowKey("10.0.0.1", dst, 17, sport, 4791, 17)


def with_models(net: Network, ecmp: Rated, lag: Rated | None = None) -> Network:
    return replace(net, choosers={name: Chooser(ecmp, lag or Rated(None)) for name in net.tables})


def links(found: Walk) -> list[str]:
    return [hop.link for hop in found.hops]


def test_one_way_at_every_hop_is_walked() -> None:
    found = walk(leaf_spine(spines=1), key())
    assert links(found) == [
        "h0.0:eth0>leaf0:host0",
        "leaf0:up0.0>spine0:down0.0",
        "spine0:down1.0>leaf1:up0.0",
        "leaf1:host1>h1.1:eth0",
    ]
    assert (found.source, found.end, found.agreement) == (PathSource.WALKED, "arrived", None)
    assert found.used == {"leaf0", "spine0", "leaf1"}


def test_hosts_of_one_leaf_meet_there() -> None:
    found = walk(leaf_spine(), key(dst="10.0.0.2"))
    assert links(found) == ["h0.0:eth0>leaf0:host0", "leaf0:host1>h0.1:eth0"]


def test_without_a_model_all_next_hops_are_candidates_with_shares() -> None:
    found = walk(leaf_spine(weights=(1, 1, 2, 4)), key())
    assert found.source == PathSource.CANDIDATES
    assert {hop.link: hop.share for hop in found.hops if hop.node == "leaf0"} == {
        "leaf0:up0.0>spine0:down0.0": 1 / 8,
        "leaf0:up1.0>spine1:down0.0": 1 / 8,
        "leaf0:up2.0>spine2:down0.0": 2 / 8,
        "leaf0:up3.0>spine3:down0.0": 4 / 8,
    }
    # The spines' ports into leaf1 differ, so it is entered by four ways, and left by one link.
    last = [hop for hop in found.hops if hop.node == "leaf1"]
    assert {hop.link for hop in last} == {"leaf1:host1>h1.1:eth0"}
    assert sum(hop.share for hop in last) == pytest.approx(1)
    assert found.ends == {"arrived": pytest.approx(1)}
    assert found.wanted == (("leaf0", key(), "host0"),)


def test_a_calibrated_model_computes_the_path_and_one_below_99_percent_does_not() -> None:
    net = leaf_spine()
    for agreement_, choices, source in ((0.995, 400, PathSource.COMPUTED), (0.98, 400, PathSource.CANDIDATES),
                                        (1.0, 5, PathSource.CANDIDATES)):  # fmt: skip
        found = walk(with_models(net, Rated(MODEL, agreement_, choices)), key())
        assert (found.source, found.agreement) == (source, agreement_)
    found = walk(with_models(net, Rated(MODEL, 1.0, 100)), key())
    chosen = place(MODEL, key(), "leaf0", "host0", None, 4)
    assert links(found)[1] == f"leaf0:up{chosen}.0>spine{chosen}:down0.0"


def test_the_lag_has_a_hash_of_its_own() -> None:
    net = leaf_spine(spines=2, lag=3)
    lag = HashModel("xor16")
    found = walk(with_models(net, Rated(MODEL, 1.0, 100), Rated(lag, 1.0, 100)), key())
    spine = place(MODEL, key(), "leaf0", "host0", None, 2)
    member = place(lag, key(), "leaf0", "host0", None, 3)
    assert links(found)[1] == f"leaf0:up{spine}.{member}>spine{spine}:down0.{member}"
    assert (found.source, found.end) == (PathSource.COMPUTED, "arrived")
    half = walk(with_models(net, Rated(MODEL, 1.0, 100)), key())
    assert half.source == PathSource.CANDIDATES
    assert [hop.share for hop in half.hops if hop.node == "leaf0"] == pytest.approx([1 / 3] * 3)


def test_the_devices_own_answer_is_walked_by_port_by_address_and_through_a_lag() -> None:
    question = ("leaf0", key(), "host0")
    for answer in (Answer(port="up2.0"), Answer(gateway="172.16.0.2")):
        found = walk(replace(leaf_spine(), answers={question: answer}), key())
        assert (found.source, links(found)[1]) == (PathSource.WALKED, "leaf0:up2.0>spine2:down0.0")
        assert found.hops[1].how == "exact"
    physical = replace(leaf_spine(spines=2, lag=2), answers={question: Answer(port="up1.1")})
    assert links(walk(physical, key()))[1] == "leaf0:up1.1>spine1:down0.1"


def test_a_switch_that_sprays_is_walked_with_shares() -> None:
    found = walk(with_models(leaf_spine(), Rated(None, spray=True)), key())
    assert found.source == PathSource.WALKED
    assert [hop.share for hop in found.hops if hop.node == "leaf0"] == [0.25] * 4
    assert {hop.how for hop in found.hops if hop.node == "leaf0"} == {"spray"}


def test_buckets_and_weights_are_what_the_hash_indexes() -> None:
    table = (0, 0, 3, 1, 2, 3, 3)
    net = leaf_spine()
    leaf = net.tables["leaf0"]
    assert isinstance(leaf, RouteTable)
    routes = tuple(
        replace(route, buckets=table) if route.protocol == "bgp" else route
        for route in leaf.routes["default"]
    )
    net = replace(net, tables={**net.tables, "leaf0": replace(leaf, routes={"default": routes})})
    net = with_models(net, Rated(MODEL, 1.0, 100))
    for sport in range(50000, 50020):
        raw = place(MODEL, key(sport), "leaf0", "host0", None, len(table))
        assert links(walk(net, key(sport)))[1].startswith(f"leaf0:up{table[raw]}.0>")


def routed(switch: str, *ways: NextHop) -> RouteTable:
    return RouteTable(switch, {"default": (Route(ip_network("10.1.0.0/24"), ways),)})


CABLES = (("h", "0", "a", "1"), ("a", "2", "b", "1"), ("b", "2", "c", "1"), ("c", "2", "a", "3"))
RING = topology([half for ends in CABLES for half in cable(*ends)], switches=("a", "b", "c"), hosts=("h",))


@pytest.mark.parametrize(
    ("tables", "end"),
    [
        (
            {"a": NextHop("10.9.9.9", "2"), "b": NextHop("10.9.9.9", "2"), "c": NextHop("10.9.9.9", "2")},
            "loop",
        ),
        ({"a": NextHop("10.9.9.9", "2"), "b": NextHop(drop="blackhole")}, "blackhole"),
        ({"a": NextHop("10.9.9.9", "2"), "b": NextHop("10.8.8.8", None)}, "no route"),
        ({"a": NextHop("10.9.9.9", "2")}, "unreached"),
        ({"a": NextHop("10.9.9.9", "9")}, "unknown neighbour"),
    ],
)
def test_a_walk_that_does_not_arrive_says_how_it_ended(tables: dict[str, NextHop], end: str) -> None:
    made = {name: routed(name, hop) for name, hop in tables.items()}
    net = Network(RING, made, {"10.0.0.1": ("h", ""), "10.1.0.2": ("elsewhere", "")})
    found = walk(net, key())
    assert (found.end, found.ends) == (end, {end: 1.0})


def test_ttl_and_inconsistency_and_no_route() -> None:
    net = leaf_spine(spines=1)
    assert walk(net, key(), ttl=2).ends == {"ttl": 1.0}
    assert walk(replace(net, inconsistent=frozenset({"spine0"})), key()).ends == {"inconsistent": 1.0}
    assert walk(net, key(dst="10.7.0.1")).ends == {"no route": 1.0}
    assert walk(net, replace(key(), src="192.0.2.1")).ends == {"unknown neighbour": 1.0}
    assert walk(net, replace(key(), dst="nobody")).ends == {"unknown neighbour": 1.0}


def test_only_the_branch_through_a_blackhole_is_lost() -> None:
    net = leaf_spine()
    bad = RouteTable("spine3", {"default": (Route(ip_network("10.1.0.0/24"), (NextHop(drop="blackhole"),)),)})
    found = walk(replace(net, tables={**net.tables, "spine3": bad}), key())
    assert found.ends == {"arrived": pytest.approx(0.75), "blackhole": 0.25}
    assert found.end == "blackhole"


def test_adaptive_routing_of_infiniband_spreads() -> None:
    cables = (("h0", "1", "s0", "1"), ("s0", "2", "s1", "2"), ("s0", "3", "s1", "3"), ("s1", "1", "h1", "1"))
    net = topology([half for ends in cables for half in cable(*ends)], lids={1: ("h0", "1"), 2: ("h1", "1")})
    tables = {"s0": LidTable("s0", {2: 2}, adaptive={2: (2, 3)}), "s1": LidTable("s1", {2: 1})}
    found = walk(Network(net, tables), FlowKey("lid:1", "lid:2"))
    assert (found.source, found.end) == (PathSource.WALKED, "arrived")
    assert [hop.share for hop in found.hops if hop.node == "s0"] == [0.5, 0.5]
    assert walk(Network(net, tables), FlowKey("lid:1", "lid:9")).end == "unknown neighbour"


def test_models_of_settings() -> None:
    fields = ("DST_MAC", "DST_IP", "SRC_IP", "IP_PROTOCOL", "L4_SRC_PORT", "L4_DST_PORT", "BTH_DEST_QP")
    model = of_settings(HashSettings("CRC_32HI", fields, seed=9, offset=2))
    assert model == HashModel(
        "crc32", seed=9, offset=18, fields=("src", "dst", "protocol", "sport", "dport", "qpn")
    )
    assert of_settings(HashSettings("CRC_XOR")) is None
    assert of_settings(HashSettings(lag_algorithm="XOR", lag_fields=("SRC_IP",)), lag=True) == HashModel(
        "xor16", fields=("src",)
    )
    low = of_settings(HashSettings("CRC_32LO"))
    assert low is not None
    assert key_bytes([key()], ("src", "sport", "qpn")).tolist() == [[10, 0, 0, 1, 0xC3, 0x50, 0, 0, 17]]


def choices(model: HashModel, count: int, wrong: int = 0) -> list[Choice]:
    out = []
    for k in range(count):
        flow = key(49152 + 17 * k)
        chosen = place(model, flow, "leaf0", "host0", None, 6)
        out.append(Choice(flow, "leaf0", "host0", 6, (chosen + (k < wrong)) % 6))
    return out


def test_the_rate_of_agreement_is_the_share_of_known_choices_that_a_model_gets_right() -> None:
    assert agreement(MODEL, choices(MODEL, 200, wrong=6)) == pytest.approx(0.97)
    assert rate(MODEL, choices(MODEL, 200, wrong=1)).calibrated
    assert not rate(MODEL, choices(MODEL, 200, wrong=6)).calibrated
    assert agreement(MODEL, [Choice(key(), "leaf0", "host0", 1, 0)]) is None
    other = agreement(HashModel("jenkins", seed=3), choices(MODEL, 600))
    assert other is not None
    assert abs(other - 1 / 6) < 0.06


def test_great_weights_are_scaled_to_a_table_that_can_be_held() -> None:
    table = buckets(None, [2_000_000, 6_000_000])
    assert table is not None
    assert table.tolist() == [1, 0, 1, 1]
    wide = buckets(None, [1, 10**9])
    assert wide is not None
    assert len(wide) <= 4097
    assert set(wide.tolist()) == {0, 1}
