"""Shares of inverted pairs: formulae against drawings and against scipy, and the published figures."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
import scipy.integrate
import scipy.special
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st

from streams.clock import misorder
from streams.clock.misorder import Errors, Gaps
from tempotrace import misorder_cases
from tempotrace.cli import run
from tempotrace.clockwork import seeded
from tests.paths import REPO

sigmas = st.floats(0.05, 20.0)
errors_of = st.builds(
    Errors, st.sampled_from(misorder.FAMILIES), sigmas, sigmas, st.sampled_from([3, 5, 7, 11])
)
gaps_of = st.one_of(
    st.builds(lambda scale: Gaps("fixed", scale), st.floats(0.01, 30.0)),
    st.builds(lambda scale: Gaps("exponential", scale), st.floats(0.01, 30.0)),
    st.builds(
        lambda scale, sigma: Gaps("lognormal", scale, sigma), st.floats(0.05, 10.0), st.floats(0.1, 2.5)
    ),
)


@settings(max_examples=60, deadline=None)
@given(errors=errors_of, gaps=gaps_of, seed=st.integers(0, 2**32))
def test_formula_lies_within_the_drawings_error(errors: Errors, gaps: Gaps, seed: int) -> None:
    drawn = misorder.sample(errors, gaps, 40_000, seeded(seed))
    assert misorder.expected(errors, gaps) == pytest.approx(drawn.value, abs=5.5 * drawn.error)


@settings(max_examples=25, deadline=None)
@given(errors=errors_of, gaps=gaps_of, seed=st.integers(0, 2**32))
def test_kept_errors_have_the_same_mean_and_the_stated_spread(errors: Errors, gaps: Gaps, seed: int) -> None:
    theory = misorder.persistent(errors, gaps)
    pairs, messages = 4000, 50
    drawn, deviation = misorder.sample_persistent(errors, gaps, pairs, messages, seeded(seed))
    assert theory.mean == misorder.expected(errors, gaps)
    assert theory.mean == pytest.approx(drawn.value, abs=5.5 * drawn.error + 1 / pairs)
    # The drawn spread also holds what `messages` leave over: p(1 − p|pair) / messages.
    within = (theory.mean - theory.deviation**2 - theory.mean**2) / messages
    expected = math.sqrt(theory.deviation**2 + within)
    assert deviation == pytest.approx(expected, abs=0.02 + 0.05 * expected)


@settings(max_examples=60, deadline=None)
@given(errors=errors_of, gap=st.floats(0.0, 100.0))
def test_the_theorem(errors: Errors, gap: float) -> None:
    """At gap 0 one half; falls with the gap; depends on gap/σ alone; below the bounds without a distribution."""
    here = float(errors.inverted(gap))
    assert float(errors.inverted(0.0)) == pytest.approx(0.5, abs=1e-12)
    assert here <= 0.5 + 1e-12
    assert float(errors.inverted(gap * 1.1)) <= here + 1e-12
    scaled = Errors(errors.family, 1e6 * errors.sigma_a, 1e6 * errors.sigma_b, errors.nu)
    assert float(scaled.inverted(1e6 * gap)) == pytest.approx(here, abs=1e-9)
    if gap > 1e-3:
        assert here <= errors.spread**2 / (2 * gap**2) + 1e-12  # Chebyshev, one side of a symmetric law
    if gap >= 2 / math.sqrt(3) * errors.spread:
        assert here <= 2 * errors.spread**2 / (9 * gap**2) + 1e-12  # Gauss: unimodal as well


@pytest.mark.parametrize("nu", [3, 5, 7, 9])
@pytest.mark.parametrize(("sigma_a", "sigma_b"), [(1.0, 1.0), (0.3, 2.0)])
@pytest.mark.parametrize("gap", [0.1, 1.0, 4.0, 20.0])
def test_student_is_the_convolution(nu: int, sigma_a: float, sigma_b: float, gap: float) -> None:
    shrink = math.sqrt((nu - 2) / nu)
    first, second = (scipy.stats.t(nu, scale=sigma * shrink) for sigma in (sigma_a, sigma_b))
    expected, _ = scipy.integrate.quad(
        lambda x: first.sf(x + gap) * second.pdf(x), -np.inf, np.inf, epsabs=1e-11, limit=500
    )
    assert float(Errors("student", sigma_a, sigma_b, nu).inverted(gap)) == pytest.approx(expected, abs=1e-9)


def test_special_functions_against_scipy() -> None:
    at = np.concatenate([np.linspace(0, 30, 400), [11.999, 12.001, 100.0, 1e6]])
    ours = np.array([misorder.erfcx(float(x)) for x in at])
    np.testing.assert_allclose(ours, scipy.special.erfcx(at), rtol=1e-13)
    wide = np.linspace(-8, 37, 500)
    np.testing.assert_allclose(misorder.normal_tail(wide), scipy.stats.norm.sf(wide), rtol=1e-12)


@pytest.mark.parametrize("errors", [Errors("gauss", 1, 2), Errors("laplace", 1, 1), Errors("laplace", 1, 2)])
@pytest.mark.parametrize("theta", [0.01, 0.5, 3.0, 400.0])
def test_elementary_means_are_the_integrals(errors: Errors, theta: float) -> None:
    gaps = Gaps("exponential", theta)
    assert misorder.closed(errors, gaps)
    assert misorder.expected(errors, gaps) == pytest.approx(gaps.mean(errors.inverted), abs=1e-12)


def test_almost_equal_scales_do_not_cancel() -> None:
    gaps = np.linspace(0, 30, 50)
    for apart in (1e-4, 1.01e-5, 0.99e-5, 1e-9, 0.0):
        near = Errors("laplace", 1.0, 1.0 + apart)
        middle = Errors("laplace", 1.0 + apart / 2, 1.0 + apart / 2)
        np.testing.assert_allclose(near.inverted(gaps), middle.inverted(gaps), atol=1e-8)


@pytest.mark.parametrize("law", [Gaps("exponential", 2.0), Gaps("lognormal", 0.7, 1.3)])
def test_the_greater_of_two_gaps(law: Gaps) -> None:
    drawn = np.maximum(law.draw(seeded(1), 400_000), law.draw(seeded(2), 400_000))
    assert law.mean_of_greater(lambda x: np.exp(-x)) == pytest.approx(np.exp(-drawn).mean(), abs=0.002)
    assert law.mean_of_greater(np.ones_like) == pytest.approx(1.0, abs=1e-12)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Errors("gauss", 0.0, 1.0), "must be positive"),
        (lambda: Errors("gauss", 1.0, math.inf), "must be positive"),
        (lambda: Errors("cauchy", 1.0, 1.0), "no such family"),  # type: ignore[arg-type]
        (lambda: Errors("student", 1.0, 1.0, 4), "odd and at least 3"),
        (lambda: Gaps("fixed", -1.0), "must be positive"),
        (lambda: Gaps("uniform", 1.0), "no such law"),  # type: ignore[arg-type]
        (lambda: Gaps("lognormal", 1.0), "need sigma_ln"),
        (lambda: misorder.needed_gap(Errors("gauss", 1, 1), 0.6), "between 0 and one half"),
        (lambda: misorder.bisect(lambda x: x, 1.0, 2.0), "no solution"),
    ],
)
def test_what_makes_no_sense_is_refused(build: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build()  # type: ignore[operator]


def rounded(value: float, digits: int) -> float:
    return round(100 * value, digits)


def test_the_published_pair_under_each_law_of_gaps() -> None:
    gauss, laplace = Errors("gauss", 1, 1), Errors("laplace", 1, 1)
    found = {
        law: tuple(
            rounded(misorder.expected(each, misorder_cases.wan_gaps(law)), 2) for each in (gauss, laplace)
        )
        for law in misorder.GAP_LAWS
    }
    assert found == {"fixed": (29.37, 26.06), "exponential": (29.37, 27.5), "lognormal": (29.37, 27.76)}


def test_the_log_normal_set_of_parameters() -> None:
    gaps = misorder_cases.wan_gaps("lognormal")
    assert (round(gaps.sigma_ln, 3), round(gaps.scale, 3)) == (1.399, 0.558)
    lan = Errors("gauss", 0.19467, 0.19467)
    assert rounded(misorder.expected(lan, gaps), 1) == 11.3


def test_five_nodes_under_ntp() -> None:
    ratio = misorder.needed_gap(Errors("gauss", 1, 1), 0.44978)
    assert round(ratio, 4) == 0.1785
    assert [round(gap / ratio) for gap in (20, 50)] == [112, 280]


def test_gaps_needed_in_sigma() -> None:
    found = [
        [round(misorder.needed_gap(Errors(family, 1, 1), share), 2) for share in (1e-2, 1e-3, 1e-5, 1e-6)]
        for family in ("gauss", "laplace")
    ]
    assert found == [[3.29, 4.37, 6.03, 6.72], [3.67, 5.52, 9.07, 10.80]]


def test_the_command_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["clock", "experiment", "misorder", "--json", "--samples", "20000", "--seed", "3"]) == 0
    result = json.loads(capsys.readouterr().out)
    rows = {row["case"]: row for row in result["rows"]}
    fields = {"case", "published", "closed_form", "monte_carlo", "calibrated_to", "parameters"}
    assert [row for row in result["rows"] if not fields <= set(row)] == []
    figures = {
        "WAN, Gauss, log-normal gaps": (29.37, 29.37),
        "WAN, Laplace, log-normal gaps": (27.76, 27.76),
        "WAN, Laplace, one fixed gap": (27.76, 26.06),
        "LAN, Gauss, exponential gaps": (11.3, 11.3),
        "WAN range, 25 %, Gauss, one fixed gap": (25.0, 25.0),
        "WAN range, 30 %, Gauss, log-normal gaps": (30.0, 30.0),
        "WAN, Student-t ν = 3, one fixed gap": (None, 23.05),
    }
    shown = {name: (rows[name]["published"], round(rows[name]["closed_form"], 2)) for name in figures}
    assert shown == figures
    assert round(rows["five nodes under NTP, Gauss, one fixed gap"]["closed_form"], 3) == 44.978
    assert [
        row["case"]
        for row in rows.values()
        if abs(row["monte_carlo"] - row["closed_form"]) > 5 * row["monte_carlo_error"]
    ] == []
    assert rows["WAN, Gauss, one fixed gap, errors kept"]["parameters"]["inverted_again"] == pytest.approx(
        100
    )


@pytest.mark.parametrize("suffix", ["html", "png"])
def test_the_plot(tmp_path: Path, suffix: str, capsys: pytest.CaptureFixture[str]) -> None:
    file = str(tmp_path / f"curves.{suffix}")
    command = ["clock", "experiment", "misorder", "--json", "--samples", "1000", "--plot", file]
    assert run(command) == 0
    begin = Path(json.loads(capsys.readouterr().out)["plot"]).read_bytes()[:4]
    assert begin in (b"\x89PNG", b"<!do")


def test_a_plot_of_another_kind_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["clock", "experiment", "misorder", "--json", "--plot", "curves.gif"]) == 2
    assert "must end in .png or .html" in json.loads(capsys.readouterr().out)["error"]


def test_the_words_say_what_the_formulae_give() -> None:
    words = (REPO / "docs" / "theory.md").read_text()
    names = ("gauss", "laplace", "student_5", "student_3")
    for row in misorder_cases.needed():
        share = f"1e-{round(-math.log10(row['share']))}"
        assert f"| {share} | " + " | ".join(f"{row[name]:.2f}" for name in names) + " |" in words
    for row in misorder_cases.quality():
        if row["share"] == 1e-6:
            gap = "1 ms" if row["gap_ns"] == 1_000_000 else f"{row['gap_ns'] / 1000:g} µs"
            assert f"| {gap} | " + " | ".join(f"{row[name]:,.0f}" for name in names) + " |" in words
    gauss, named = Errors("gauss", 1, 1), {"fixed": "one fixed gap", "lognormal": "log-normal"}
    for law in misorder.GAP_LAWS:
        found = misorder.persistent(gauss, misorder_cases.wan_gaps(law))
        again = f"{100 * found.again:.4g} %" if law == "fixed" else f"{100 * found.again:.2f} %"
        assert f"| {named.get(law, law)} | {100 * found.deviation:.2f} points | {again} |" in words
    ratios = [
        next(case for case in misorder_cases.cases() if case.name.startswith(f"LAN, Gauss, {law}")).notes
        for law in ("one fixed", "exponential", "log-normal")
    ]
    shown = [f"{each['sigma_lan_over_wan']:.3f}" for each in ratios]
    assert "| 11.3 %, LAN | *fitted*: σ_LAN/σ_WAN {} | *fitted*: {} | *fitted*: {} |".format(*shown) in words
