"""The laws, limits and simulations behind `clock coverage`, against plain draws and closed forms."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from schemas.errors import MalformedInput
from streams.clock.window import EPSILON
from tempotrace import cli
from tempotrace.cli.clock import app
from tempotrace.coverage import hidden
from tempotrace.coverage.intervals import Family, family
from tempotrace.coverage.laws import FAMILIES, Law, coverage_limit
from tests.paths import shared_data

# Two-sided quantiles at 1e-4, from tables of the laws (the mixtures: by hand from the normal's).
QUANTILES = {"Gauss": 3.8906, "Laplace": 9.2103 / math.sqrt(2), "Student-t 3": 28.000, "Student-t 5": 11.178}


@pytest.mark.parametrize("name", FAMILIES)
def test_a_law_and_its_inverse_agree(name: str) -> None:
    law = Law.of(FAMILIES[name], 2.5)
    p = np.geomspace(1e-9, 0.99, 300)
    again = FAMILIES[name](law.size_at(p) / 2.5)
    assert np.abs(again / p - 1).max() < 1e-5
    if name in QUANTILES:
        assert law.size_at(np.array([1e-4]))[0] == pytest.approx(2.5 * QUANTILES[name], rel=1e-4)


def test_outliers_of_a_thousandth_make_the_quantile() -> None:
    law = Law.of(FAMILIES["Gauss, 0.1 % at 100 sigma"])
    assert law.size_at(np.array([1e-4]))[0] == pytest.approx(164.49, rel=1e-3)


def test_students_tail_is_smooth_where_the_series_takes_over() -> None:
    for name, power in (("Student-t 3", 3), ("Student-t 5", 5)):
        x = math.sqrt(power) * np.array([290.0, 299.99, 300.01, 310.0])
        tail = FAMILIES[name](x) * x**power
        assert tail.max() / tail.min() - 1 < 1e-3


def test_exact_limits() -> None:
    assert coverage_limit(0, 30_000) == pytest.approx(0.05 ** (1 / 30_000), abs=1e-9)
    assert coverage_limit(30_000, 30_000) == 0.0
    # P(at most 3 of 100 missed) is 5 % at this rate.
    p = 1 - coverage_limit(3, 100)
    assert sum(math.comb(100, k) * p**k * (1 - p) ** (100 - k) for k in range(4)) == pytest.approx(0.05)


@pytest.mark.parametrize("name", FAMILIES)
def test_the_greatest_are_those_of_plain_histories(name: str) -> None:
    of, samples, plain = Family.named(name, 0.2), 2_000, 400
    fast = of.greatest(20_000, samples, 3, np.random.default_rng(5))
    rng = np.random.default_rng(6)
    full = -np.sort(-np.abs(of.measured((plain, samples), rng)), axis=1)[:, :3]
    for rank in range(3):
        a, b = np.log(fast[:, rank]), np.log(full[:, rank])
        error = math.sqrt(a.var() / len(a) + b.var() / plain)
        assert abs(a.mean() - b.mean()) < 4 * error
        # And in shape: the share of plain histories below the quartiles of the fast ones.
        for share in (0.25, 0.5, 0.75):
            seen = (b < np.quantile(a, share)).mean()
            assert abs(seen - share) < 4 * math.sqrt(share * (1 - share) / plain)


def test_a_family_is_covered_within_its_width() -> None:
    found = family("Gauss", 10_000, 60_000, 0.2, np.random.default_rng(1))
    assert (found["mode"], found["epsilon"], found["samples"], found["holds"]) == (
        "statistical",
        EPSILON,
        10_000,
        True,
    )
    assert found["coverage_limit"] >= 0.9999
    assert 1.1 < found["width"] <= 1.5
    # What the last 100 samples show is not the tail: REFERENCES of the field, about 80 %.
    assert found["others"]["fbclock"]["coverage"] == pytest.approx(0.81, abs=0.02)
    assert found["others"]["clockbound"]["coverage"] < 0.8


def test_too_little_history_says_so() -> None:
    found = family("Laplace", 9_998, 10, 0.2, np.random.default_rng(1))
    assert found["mode"] == "hard"
    assert "9998 of 10000" in found["why"]


def test_hidden_paths_on_measured_exchanges_are_followed() -> None:
    series = hidden.load(shared_data("time", "netns-lab", "congested", "ptp_raw_n2.csv.gz"))
    rng = np.random.default_rng(8)
    span_s = float(series.t1[-1] - series.t1[0]) / 1e9
    for _ in range(3):
        path = hidden.HiddenPath.draw(span_s, rng)
        found = hidden.follow(series, path)
        known = ~np.isnan(found.half)
        assert found.epochs >= 2  # the step was found, or told
        assert known.mean() > 0.98
        assert (np.abs(found.error[known]) <= found.half[known] + 1).all()
        assert (found.half[known] <= found.plain[known] + 1).all()
        assert (found.half[known] <= found.bracket[known] + 1).all()


def test_a_hidden_path_keeps_to_the_declared_limits() -> None:
    rng = np.random.default_rng(2)
    for _ in range(20):
        path = hidden.HiddenPath.draw(90.0, rng)
        for side in (slice(0, None),):
            t = np.arange(0.0, 90.0, 0.01)[side]
            offset = path.at(t)
            rate = np.diff(offset) / 0.01
            smooth = np.abs(rate) < 1e6  # all but the step itself
            assert (~smooth).sum() == 1
            assert np.abs(rate[smooth]).max() < hidden.DRIFT_PPB
            bend = np.abs(np.diff(rate)) / 0.01
            assert np.sort(bend)[:-2].max() < hidden.WANDER_PPB_S


def test_the_bootstrap_counts_whole_blocks() -> None:
    rng = np.random.default_rng(3)
    assert hidden.bootstrap_limit(np.zeros(1000, np.bool_), rng) == 1.0
    missed = np.zeros(10_000, np.bool_)
    missed[100:150] = True  # one block of 200: resampled up to three or four times
    assert 0.98 < hidden.bootstrap_limit(missed, rng) < 0.99


def test_a_file_that_is_something_else(tmp_path) -> None:  # type: ignore[no-untyped-def]
    path = tmp_path / "ptp.csv.gz"
    path.write_bytes(b"no gzip")
    with pytest.raises(MalformedInput):
        hidden.load(path)


def test_the_command_prints_one_object() -> None:
    run = CliRunner().invoke(
        app, ["coverage", "--intervals", "1000", "--history", "1000", "--history", "10000", "--json"]
    )
    # A thousand intervals can't show 99.99 %: the command says that it did not hold.
    assert run.exit_code == 1
    result = json.loads(run.stdout)
    assert [row["mode"] for row in result["families"]] == ["hard"] * 6 + ["statistical"] * 6
    assert result["holds"] is False
    shown = CliRunner().invoke(app, ["coverage", "--intervals", "1000", "--history", "1000"])
    assert shown.exit_code == 0
    assert "calibration points" in shown.stdout.replace("\n", " ")


def test_missing_series_are_told_before_the_simulations(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tempotrace.coverage.intervals.family", lambda *_: pytest.fail("simulated first"))
    assert cli.run(["clock", "coverage", "--netns", str(tmp_path)]) == 1
    assert capsys.readouterr().err == (
        f"tempotrace: no such file (and 7 more) ({tmp_path}/idle/ptp_raw_n1.csv.gz)\n"
    )
