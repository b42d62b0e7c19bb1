"""Laws fitted to samples: against scipy's, on data of known law, and on real series."""

import gzip
import math
from datetime import datetime

import numpy as np
import pytest
import scipy.stats

from streams.clock.fits import fit
from tempotrace.clockwork import seeded
from tests.paths import shared_data


@pytest.mark.parametrize("nu", [1.5, 3.0, 8.0])
def test_student_reaches_the_likelihood_that_scipy_finds(nu: float) -> None:
    x = 40.0 + 3.0 * seeded(4).standard_t(nu, 3000)
    law = fit(x).law("student")
    theirs = scipy.stats.t.fit(x)
    ours = 6 - 2 * float(np.sum(scipy.stats.t.logpdf(x, law.nu, law.location, law.scale)))
    assert law.aic == pytest.approx(ours, abs=1e-6)
    assert law.aic <= 6 - 2 * float(np.sum(scipy.stats.t.logpdf(x, *theirs))) + 0.05
    assert law.nu == pytest.approx(nu, rel=0.25)


def test_gauss_and_laplace_have_their_closed_estimates() -> None:
    x = seeded(5).laplace(7.0, 2.0, 4001)
    fitted = fit(x)
    gauss, laplace = fitted.law("gauss"), fitted.law("laplace")
    assert [gauss.location, gauss.scale] == pytest.approx([x.mean(), x.std()])
    assert [laplace.location, laplace.scale] == pytest.approx(list(scipy.stats.laplace.fit(x)))
    assert laplace.aic == pytest.approx(
        4 - 2 * scipy.stats.laplace.logpdf(x, *scipy.stats.laplace.fit(x)).sum()
    )
    assert laplace.sigma == pytest.approx(math.sqrt(8), rel=0.05)


@pytest.mark.parametrize(
    ("draw", "best"),
    [
        (lambda rng: rng.normal(0, 5, 5000), "gauss"),
        (lambda rng: rng.laplace(0, 5, 5000), "laplace"),
        (lambda rng: rng.standard_t(3, 5000), "student"),
    ],
)
def test_the_true_law_has_the_least_aic(draw: object, best: str) -> None:
    assert [fit(draw(seeded(seed))).laws[0].name for seed in range(3)] == [best] * 3  # type: ignore[operator]


def test_densities_integrate_to_one() -> None:
    fitted = fit(seeded(6).standard_t(4, 2000))
    at = np.linspace(-400, 400, 400_001)
    for law in fitted.laws:
        assert float(law.density(at).sum() * (at[1] - at[0])) == pytest.approx(1.0, abs=1e-3)


def test_neighbours_that_hang_together_show() -> None:
    steps = seeded(7).normal(0, 1, 5000)
    x = np.convolve(steps, np.ones(4), "valid")
    assert fit(x).correlation == pytest.approx(0.75, abs=0.05)
    assert abs(fit(steps).correlation) < 0.05


@pytest.mark.parametrize("bad", [np.ones(100), np.arange(7.0), np.array([math.nan] * 9)])
def test_what_has_no_fit_is_refused(bad: np.ndarray) -> None:
    with pytest.raises(ValueError, match="at least 8 finite samples"):
        fit(bad)


def test_mostly_one_value_still_ends() -> None:
    x = np.concatenate([np.zeros(90), np.arange(10.0)])
    assert np.isfinite([law.aic for law in fit(x).laws]).all()


def series(load: str, node: int) -> np.ndarray:
    """One node's NTP offsets in µs, within the minutes that the lab counted."""
    begin, end = (
        float(shared_data("time", "netns-lab", load, f"t_{name}").read_text()) for name in ("start", "end")
    )
    path = shared_data("time", "netns-lab", load, f"chrony_raw_n{node}_measurements.log.gz")
    offsets = []
    with gzip.open(path, "rt") as lines:
        for line in lines:
            words = line.split()
            if (
                words[0][:1].isdigit()
                and begin <= datetime.fromisoformat(f"{words[0]}T{words[1]}Z").timestamp() <= end
            ):
                offsets.append(1e6 * float(words[11]))
    return np.array(offsets)


def test_the_idle_series_of_the_five_node_lab() -> None:
    """The lab's figures of all idle NTP exchanges."""
    fitted = fit(np.concatenate([series("idle", node) for node in range(1, 5)]))
    found = (fitted.count, round(fitted.median, 1), round(fitted.deviation, 1), round(fitted.p99_abs))
    assert found == (2761, 4.2, 9.7, 24)
    assert round(fitted.law("gauss").aic - fitted.law("laplace").aic) == 3156


def test_the_congested_series_of_the_five_node_lab() -> None:
    fits = [fit(series("congested", node)) for node in range(1, 5)]
    assert [round(each.law("gauss").aic - each.law("laplace").aic) for each in fits] == [2052, 337, 32, 476]
    assert [each.laws[0].name for each in fits] == ["student"] * 4
