"""Parts of the page of flows: bands of chance, the scale of colour, commands to paste, words and markup."""

import itertools
import re
import shlex
from pathlib import Path

import numpy as np
import pytest

from streams.paths.recorded import Seen
from tempotrace.page import bands, scale
from tempotrace.page.markup import Markup, join, tag
from tempotrace.page.parts import Known
from tempotrace.page.verify import Again, of_flow, of_link
from tempotrace.page.view import side
from tempotrace.page.words import p_words, percent, signed, size_words
from tests import flow_pages as pages


def test_the_band_is_the_null() -> None:
    case, figures = pages.small()
    for group in bands.groups(case, figures, 10):
        assert (group.unit, group.method, group.size) == ("keys", "exact", 8)
        assert sum(member.load for member in group.members) == 32
        # 1 % and 99 % of a binomial of 32 keys on one link of eight.
        assert {member.band for member in group.members} == {(0.0, 9.0)}
        assert group.outside == sum(member.load > 9 for member in group.members)
    unequal = np.random.default_rng(3).pareto(1.5, 300) + 1
    method, (band, *_) = bands.unequal(unequal, np.full(4, 0.25), 1)
    rng = np.random.default_rng(9)
    draws = np.array([unequal[rng.integers(0, 4, 300) == 0].sum() for _ in range(4000)])
    inside = float(np.mean((band[0] <= draws) & (draws <= band[1])))
    assert method == "drawn"
    assert inside == pytest.approx(0.98, abs=0.012)
    many = np.tile(unequal, 20)
    method, (band, *_) = bands.unequal(many, np.full(4, 0.25), 1)
    assert method == "normal"
    assert sum(band) == pytest.approx(2 * many.sum() / 4)


def test_colours_are_ordered_by_lightness_and_none_is_green() -> None:
    seen = [colour for _, colour in scale.STEPS]
    light = [lightness(linear(colour)) for colour in seen]
    assert all(a - b > 4 for a, b in itertools.pairwise(light)), light
    for colour in [
        *seen[1:],
        *re.findall(r"fill: (#\w{6})", (Path(scale.__file__).parent / "page.css").read_text()),
    ]:
        red, green, blue = (int(colour[k : k + 2], 16) for k in (1, 3, 5))
        assert green <= max(red, blue), colour
    # As those see them who lack one kind of cone (Machado, Oliveira and Fernandes 2009, severity 1).
    protan = np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    )
    deutan = np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.01182, 0.04294, 0.968881]]
    )
    for cones in (protan, deutan):
        light = [lightness(np.clip(cones @ linear(colour), 0, 1)) for colour in seen]
        assert all(a - b > 3 for a, b in itertools.pairwise(light)), light


def linear(colour: str) -> np.ndarray:
    value = np.array([int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5)])
    return np.where(value <= 0.04045, value / 12.92, ((value + 0.055) / 1.055) ** 2.4)


def lightness(rgb: np.ndarray) -> float:
    """CIE L*, 0 to 100."""
    y = float(rgb @ [0.2126, 0.7152, 0.0722])
    return 116 * y ** (1 / 3) - 16 if y > 0.008856 else 903.3 * y


def test_steps_are_fixed_and_full_is_not_over() -> None:
    shares = (0.0, 0.001, 0.25, 0.2501, 0.5, 0.75, 1.0, 1.0 + 1e-12, 1.01, 1.25, 1.5, 2.0, 2.01, float("inf"))
    assert [scale.step(share) for share in shares] == [0, 1, 1, 2, 2, 3, 4, 4, 5, 5, 6, 7, 8, 8]
    assert scale.labels()[4:6] == ["75 – 100 %", "100 – 125 %"]


def test_commands_are_safe_to_paste() -> None:
    link = side(*pages.small(), Known()).links[0]
    odd = "-oProxyCommand=x;$(touch hit)'\""
    for port, system in (
        ("Ethernet12", "SONiC"),
        ("Ethernet12", "EOS"),
        ("Eth1/7", "NX-OS"),
        ("swp3", "Linux"),
    ):
        evil = type(link)(
            **{**vars(link), "ends": (odd, port, "spine0", "1"), "name": f"{odd}:{port}>spine0:1"}
        )
        found = dict(of_link(evil, Again("x", "./la ke", "te'nant")))
        words = shlex.split(found[f"{system}, on the switch"])
        assert words[:3] == ["ssh", "--", odd]
        assert port in words[3]
        sql = shlex.split(found["by window"])
        assert sql[:4] == ["tempotrace", "sql", "--lake", "./la ke"]
        assert "tenant = 'te''nant'" in sql[4]
        assert "''\"" in sql[4]
    assert [what for what, _ in of_link(link, Again("again"))] == ["the figures again"]
    flow = side(*pages.small(), Known()).flows[0]
    assert list(of_flow(flow, side(*pages.small(), Known()), Again("again"))) == [
        ("the figures again", "again")
    ]


def test_exact_route_commands_where_a_device_has_one() -> None:
    steps = (
        "h1:0>l1:Ethernet9",
        "l1:Ethernet1/1>s0:Ethernet4",
        "s0:Ethernet8>l2:Ethernet1/1",
        "l2:Ethernet9>h2:0",
    )
    seen = [
        Seen(
            "10.0.0.1", "10.0.1.1", 50000, 4791, 17, 1.0, tuple((s, 1.0) for s in steps), path_source="walked"
        )
    ]
    shown = side(*pages.recorded(seen), Known(seen))
    found = dict(of_flow(shown.flows[0], shown, Again("again")))
    assert shlex.split(found["NX-OS"]) == [
        "ssh",
        "--",
        "l1",
        "show routing hash 10.0.0.1 10.0.1.1 50000 4791",
    ]
    assert "ingress-interface Ethernet9 src-ipv4-address 10.0.0.1" in found["EOS"]


def test_words_and_markup() -> None:
    assert (
        tag("a", 'x<y>&"', href='"', class_="k", data_v=None)
        == '<a href="&quot;" class="k">x&lt;y&gt;&amp;&quot;</a>'
    )
    assert join(Markup("<b>"), "<b>", None, 1.5) == "<b>&lt;b&gt;1.5"
    assert [percent(v) for v in (0.0, 0.0008, 0.0512, 0.5, 12.0, None)] == [
        "0 %", "0.08 %", "5.1 %", "50 %", "1200 %", "unknown"]  # fmt: skip
    assert [signed(v) for v in (-0.5, 0, 1754.2, 12.34)] == ["−0.5", "±0", "+1,754", "+12.3"]
    assert [size_words(v) for v in (0, 999, 1e3, 1.1e15)] == ["0 B", "999 B", "1 kB", "1.1 PB"]
    assert [p_words(v) for v in (None, 1e-9, 0.0123)][1:] == ["p < 0.0001", "p = 0.012"]
