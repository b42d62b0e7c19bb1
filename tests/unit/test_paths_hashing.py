"""Hash models against published check values, and what seeds do to them."""

import ipaddress

import numpy as np
import pytest

from schemas.errors import Usage
from streams.paths import hashing
from streams.paths.hashing import CRCS, FIELD_SETS, HashModel, crc, jenkins, parse_model

CHECK = np.frombuffer(b"123456789", np.uint8)[None]
NO_SEED = np.zeros(1, np.uint32)


@pytest.mark.parametrize(
    ("kind", "check"),
    [
        ("crc16", 0xBB3D),
        ("crc16-ccitt", 0x29B1),
        ("crc16-xmodem", 0x31C3),
        ("crc16-kermit", 0x2189),
        ("crc16-dnp", 0xEA82),
        ("crc32", 0xCBF43926),
        ("crc32c", 0xE3069283),
        ("crc32-bzip2", 0xFC891918),
        ("crc32-koopman", 0x2D3DD0AE),
    ],
)
def test_crc_check_values(kind: str, check: int) -> None:
    assert check == int(crc(kind, CHECK)[0])


def test_jenkins_lookup3() -> None:
    key = np.frombuffer(b"Four score and seven years ago", np.uint8)[None]
    assert int(jenkins(key, np.zeros(1, np.uint32))[0]) == 0x17770551
    assert int(jenkins(key, np.ones(1, np.uint32))[0]) == 0xCD628161


@pytest.mark.parametrize(
    ("source", "sport", "target", "dport", "with_ports", "addresses_only"),
    [
        ("66.9.149.187", 2794, "161.142.100.80", 1766, 0x51CCC178, 0x323E8FC2),
        ("199.92.111.2", 14230, "65.69.140.83", 4739, 0xC626B0EA, 0xD718262A),
        ("24.19.198.95", 12898, "12.22.207.184", 38024, 0x5C2B394A, 0xD2D0A5DE),
    ],
)
def test_toeplitz_against_the_published_hashes(
    source: str, sport: int, target: str, dport: int, with_ports: int, addresses_only: int
) -> None:
    key = ipaddress.ip_address(source).packed + ipaddress.ip_address(target).packed
    model = HashModel("toeplitz")
    assert addresses_only == int(model.hash(np.frombuffer(key, np.uint8)[None], NO_SEED)[0])
    key += sport.to_bytes(2, "big") + dport.to_bytes(2, "big")
    assert with_ports == int(model.hash(np.frombuffer(key, np.uint8)[None], NO_SEED)[0])


def test_roce_source_ports() -> None:
    assert int(hashing.sport_of_label(np.array([0x12345]))[0]) == 0xE341
    assert int(hashing.sport_of_qpns(np.array([0x11A]), np.array([0x2B3]))[0]) == 63781
    # Both hosts of a connection compute the same port, and it is always one of RoCEv2's.
    rng = np.random.default_rng(1)
    local, remote = rng.integers(2, 1 << 24, (2, 1000))
    ports = hashing.sport_of_qpns(local, remote)
    assert ports.tolist() == hashing.sport_of_qpns(remote, local).tolist()
    assert ports.min() >= 0xC000
    assert ports.max() <= 0xFFFF


def keys(count: int, seed: int = 7) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return rng.integers(0, 256, (count, 13), np.uint8)


@pytest.mark.parametrize("kind", [*CRCS, "xor8", "xor16"])
@pytest.mark.parametrize("seed_as", ["init", "xor", "prefix"])
def test_a_linear_hash_takes_a_seed_as_a_constant(kind: str, seed_as: str) -> None:
    model = HashModel(kind, seed_as=seed_as)
    key = keys(50)
    seed = np.random.default_rng(2).integers(0, 2**32, 50, np.uint32)
    expected = model.hash(key, seed)
    assert model.linear
    assert expected.tolist() == (model.unseeded(key) ^ model.effect(seed, key.shape[1])).tolist()


def fim(place: np.ndarray, links: int) -> float:
    load = np.bincount(place, minlength=links)
    return float(100 * np.abs(load - len(place) / links).mean() / (len(place) / links))


@pytest.mark.parametrize("kind", ["crc16", "crc32", "crc32c"])
@pytest.mark.parametrize("seed_as", ["init", "xor", "prefix"])
@pytest.mark.parametrize(("links", "moves"), [(4, False), (8, False), (32, False), (6, True)])
def test_a_crc_seed_only_permutes_a_power_of_two(kind: str, seed_as: str, links: int, moves: bool) -> None:
    key = keys(32)
    found = {
        fim(
            HashModel(kind, seed_as=seed_as).choose(key, np.full(1, seed, np.uint32), np.array([links])),
            links,
        )
        for seed in range(64)
    }
    assert moves == (len(found) > 1)


@pytest.mark.parametrize("kind", ["toeplitz", "jenkins"])
def test_another_seed_of_other_hashes_spreads_anew(kind: str) -> None:
    key = keys(32)
    model = HashModel(kind)
    found = {fim(model.choose(key, np.full(1, seed, np.uint32), np.array([8])), 8) for seed in range(64)}
    assert len(found) > 3


@pytest.mark.parametrize(
    ("members", "offset", "mapping", "pairs"),
    [
        (4, 0, "modulo", 4),
        (6, 0, "modulo", 18),
        (3, 0, "modulo", 9),
        (5, 0, "modulo", 25),
        (4, 1, "modulo", 8),
        (4, 2, "modulo", 16),
    ],
)
def test_choices_of_two_tiers_with_one_polynomial(
    members: int, offset: int, mapping: str, pairs: int
) -> None:
    """The pairs of members that two switches in a row can choose, the second with its own seed and offset."""
    key = keys(20_000)
    one = HashModel("crc32").choose(key, NO_SEED, np.array([members]))
    second = HashModel("crc32", offset=offset, mapping=mapping)
    two = second.choose(key, np.full(1, 0x5EED, np.uint32), np.array([members]))
    assert pairs == len(set(zip(one.tolist(), two.tolist(), strict=True)))


@pytest.mark.parametrize(
    "change",
    [
        HashModel("crc32c"),
        HashModel("toeplitz"),
        HashModel("jenkins"),
        HashModel("crc32", fields=FIELD_SETS["ports"]),
    ],
)
def test_what_decorrelates_two_tiers(change: HashModel) -> None:
    key = keys(20_000)
    one = HashModel("crc32").choose(key, NO_SEED, np.array([4]))
    two = change.choose(key[:, 9:] if change.fields == FIELD_SETS["ports"] else key, NO_SEED, np.array([4]))
    assert len(set(zip(one.tolist(), two.tolist(), strict=True))) == 16


def test_multiply_maps_by_the_high_bits() -> None:
    model = HashModel("crc32", mapping="multiply")
    hashed = np.array([0, 1 << 31, 2**32 - 1], np.uint32)
    assert model.place(hashed, np.array([7])).tolist() == [0, 3, 6]


def test_weighted_buckets_keep_the_weights() -> None:
    table = hashing.weighted_buckets([3, 1, 2])
    assert np.bincount(table).tolist() == [3, 1, 2]
    with pytest.raises(Usage):
        hashing.weighted_buckets([0, 0])


def test_a_resilient_group_moves_only_what_it_must() -> None:
    before = hashing.resilient_buckets(8, 64, [True] * 8)
    after = hashing.resilient_buckets(8, 64, [True, False] + [True] * 6)
    assert (before[before != after] == 1).all()
    assert np.count_nonzero(before != after) == 8
    assert 1 not in after.tolist()


def test_seeds_by_switch_and_by_port() -> None:
    switch, port = np.array([1, 1, 2, 2]), np.array([5, 6, 5, 5])
    assert len(HashModel(seed=9).seeds(switch, port)) == 1
    by_switch = HashModel(seed_by="switch").seeds(switch, port).tolist()
    assert by_switch[0] == by_switch[1] != by_switch[2] == by_switch[3]
    by_port = HashModel(seed_by="port").seeds(switch, port).tolist()
    assert len(set(by_port)) == 3
    assert by_port[2] == by_port[3]


def test_a_model_in_words() -> None:
    model = parse_model("crc32c,seed=0x10,offset=3,fields=5tuple+qpn,by=port,as=xor,map=multiply")
    assert HashModel("crc32c", 16, "port", "xor", 3, "multiply", FIELD_SETS["5tuple+qpn"]) == model
    assert parse_model("fields=src+qpn").fields == ("src", "qpn")
    for wrong in (
        "md5",
        "crc32,seed=x",
        "crc32,fields=vlan",
        "crc32,colour=red",
        "crc16,offset=16",
        "by=tenant",
    ):
        with pytest.raises(Usage):
            parse_model(wrong)
