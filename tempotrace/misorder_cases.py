"""The paper's inversion figures beside ours: what each rests on, by formula and by drawing.

The paper gives shares of inverted pairs, not the gaps they were taken over. So every row says what was calibrated
to what. A row calibrated to its own figure shows only that the formula *can* give it; a row calibrated to other
figures is a prediction, and may miss. Shares are in percent throughout, as published.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from streams.clock import misorder
from streams.clock.misorder import Errors, Family, GapLaw, Gaps
from tempotrace.chart import Chart, Curve

SOURCE: Final = "TempoTrace, arXiv 2609.23301"
WAN_GAUSS, WAN_LAPLACE, LAN, FIVE_NODES = 29.37, 27.76, 11.3, 44.978
WAN_RANGE: Final = (25.0, 30.0)
SHARES: Final = (1e-2, 1e-3, 1e-5, 1e-6)
GAPS_NS: Final = (1_000, 5_000, 20_000, 50_000, 100_000, 1_000_000)
SIGMA_WAN_NS: Final = 5_000_000  # only to show sizes: every share depends on gap/σ alone
MESSAGES: Final = 200  # sent by each pair of clocks in the drawings with kept errors

CLAIMS: Final = (
    "The paper prints no gaps. Wherever a row is calibrated to its own figure, the agreement is by construction.",
    "One fixed gap cannot give 29.37 % and 27.76 % together: calibrated to the first, Laplace gives 26.06 %.",
    "Exponential gaps come within 0.3 points with one free parameter, log-normal gaps give both with two: a "
    "sufficient set of parameters, not evidence that these were the paper's own.",
    "The drawings check our arithmetic. They hold no information about real clocks.",
    "Four standard deviations are not enough under heavy tails: see the table of needed gaps.",
)


@dataclass(frozen=True)
class Case:
    """One line of the table before it is computed. `published` in percent, None where the paper has none."""

    name: str
    published: float | None
    errors: Errors
    gaps: Gaps
    calibrated_to: str
    notes: dict[str, Any]
    kept: bool = False


def _pair(family: Family, sigma: float = 1.0, nu: int = 3) -> Errors:
    return Errors(family, sigma, sigma, nu)


def _gap_for(errors: Errors, law: GapLaw, percent: float, sigma_ln: float = 0.0) -> float:
    """Scale of the gaps at which so many percent are inverted."""
    return misorder.bisect(
        lambda scale: percent / 100 - misorder.expected(errors, Gaps(law, scale, sigma_ln)), 1e-4, 1e3
    )


def _sigma_for(family: Family, gaps: Gaps, percent: float) -> float:
    """Standard deviation of each clock at which so many percent are inverted."""
    return misorder.bisect(
        lambda sigma: misorder.expected(_pair(family, sigma), gaps) - percent / 100, 1e-3, 1e3
    )


def wan_gaps(law: GapLaw) -> Gaps:
    """Gaps, in units of σ_WAN, that give 29.37 % under Gauss, and log-normal ones 27.76 % under Laplace too."""
    gauss, laplace = _pair("gauss"), _pair("laplace")
    if law != "lognormal":
        return Gaps(law, _gap_for(gauss, law, WAN_GAUSS))

    def excess(sigma_ln: float) -> float:
        gaps = Gaps(law, _gap_for(gauss, law, WAN_GAUSS, sigma_ln), sigma_ln)
        return misorder.expected(laplace, gaps) - WAN_LAPLACE / 100

    sigma_ln = misorder.bisect(excess, 0.1, 4.0)
    return Gaps(law, _gap_for(gauss, law, WAN_GAUSS, sigma_ln), sigma_ln)


def cases() -> Iterator[Case]:
    """All lines of the table, in the order shown."""
    for law in misorder.GAP_LAWS:
        gaps = wan_gaps(law)
        both = law == "lognormal"
        own = "29.37 and 27.76 (median and σ_ln of the gaps)" if both else "29.37 itself (scale of the gaps)"
        name = {"fixed": "one fixed gap", "exponential": "exponential gaps", "lognormal": "log-normal gaps"}[
            law
        ]
        # Gaps are in units of σ_WAN, so any σ_WAN will do; one is shown.
        sizes = {
            "sigma_wan_ns_for_example": SIGMA_WAN_NS,
            "gap_scale_ns_then": round(gaps.scale * SIGMA_WAN_NS),
        }
        yield Case(f"WAN, Gauss, {name}", WAN_GAUSS, _pair("gauss"), gaps, own, sizes)
        yield Case(
            f"WAN, Laplace, {name}", WAN_LAPLACE, _pair("laplace"), gaps,
            own if both else "29.37 (scale of the gaps): a prediction", {},
        )  # fmt: skip
        ratio = _sigma_for("gauss", gaps, LAN)
        yield Case(
            f"LAN, Gauss, {name}", LAN, _pair("gauss", ratio), gaps,
            "11.3 itself (σ_LAN/σ_WAN), gaps as WAN",
            {"sigma_lan_over_wan": ratio, "sigma_lan_ns_then": round(ratio * SIGMA_WAN_NS)},
        )  # fmt: skip
        for percent in WAN_RANGE:
            factor = _sigma_for("gauss", gaps, percent)
            yield Case(
                f"WAN range, {percent:g} %, Gauss, {name}", percent, _pair("gauss", factor), gaps,
                f"{percent:g} itself (σ), gaps as WAN", {"sigma_over_wan": factor},
            )  # fmt: skip
        for nu in (5, 3):
            yield Case(
                f"WAN, Student-t ν = {nu}, {name}", None, _pair("student", nu=nu), gaps,
                "29.37 (scale of the gaps): a prediction", {},
            )  # fmt: skip
        unequal = Errors("laplace", (2 / 17) ** 0.5, (32 / 17) ** 0.5)
        yield Case(
            f"WAN, Laplace, one clock 4 × the other's σ, {name}", None, unequal, gaps,
            "29.37 (scale of the gaps): a prediction; the difference's σ as above", {},
        )  # fmt: skip
        yield Case(f"WAN, Gauss, {name}, errors kept", WAN_GAUSS, _pair("gauss"), gaps, own, {}, kept=True)
    gauss = _pair("gauss")
    ratio = misorder.needed_gap(gauss, FIVE_NODES / 100)
    yield Case(
        "five nodes under NTP, Gauss, one fixed gap", FIVE_NODES, gauss, Gaps("fixed", ratio),
        "44.978 itself (gap/σ)",
        {"gap_over_sigma": ratio, "sigma_ns_for_20_to_50_us": [round(gap / ratio) for gap in (20_000, 50_000)]},
    )  # fmt: skip
    yield Case(
        "five nodes under NTP, Laplace, the same gap/σ", None, _pair("laplace"), Gaps("fixed", ratio),
        "44.978 under Gauss (gap/σ): a prediction", {"gap_over_sigma": ratio},
    )  # fmt: skip


def run(samples: int, rng: np.random.Generator) -> dict[str, Any]:
    """The result of `clock experiment misorder`: rows, and what is needed for given shares and gaps."""
    return {
        "source": SOURCE,
        "unit": "percent of directed pairs that stamps invert",
        "samples": samples,
        "rows": [_row(case, samples, rng) for case in cases()],
        "needed": needed(),
        "quality": quality(),
        "claims": list(CLAIMS),
    }


def _row(case: Case, samples: int, rng: np.random.Generator) -> dict[str, Any]:
    errors, gaps = case.errors, case.gaps
    formula = misorder.expected(errors, gaps)
    parameters: dict[str, Any] = {
        "family": errors.family,
        "sigma_a": errors.sigma_a,
        "sigma_b": errors.sigma_b,
        "gap_law": gaps.law,
        {"fixed": "gap", "exponential": "mean_gap", "lognormal": "median_gap"}[gaps.law]: gaps.scale,
        "errors": "persistent" if case.kept else "independent",
        "unit": "σ of one WAN clock" if "WAN" in case.name or "LAN" in case.name else "σ of one clock",
    }
    if gaps.law == "lognormal":
        parameters["sigma_ln"] = gaps.sigma_ln
    if errors.family == "student":
        parameters["nu"] = errors.nu
    if case.kept:
        theory = misorder.persistent(errors, gaps)
        drawn, deviation = misorder.sample_persistent(
            errors, gaps, max(2, samples // MESSAGES), MESSAGES, rng
        )
        parameters |= {
            "messages_per_pair": MESSAGES,
            "deviation_over_pairs": 100 * theory.deviation,
            "deviation_over_pairs_drawn": 100 * deviation,
            "inverted_again": 100 * theory.again,
        }
    else:
        drawn = misorder.sample(errors, gaps, samples, rng)
    return {
        "case": case.name,
        "published": case.published,
        "closed_form": 100 * formula,
        "form": "elementary" if misorder.closed(errors, gaps) else "integral",
        "monte_carlo": 100 * drawn.value,
        "monte_carlo_error": 100 * drawn.error,
        "calibrated_to": case.calibrated_to,
        "parameters": parameters | case.notes,
    }


_SHOWN: Final[tuple[tuple[str, Callable[[float], Errors]], ...]] = (
    ("gauss", lambda sigma: Errors("gauss", sigma, sigma)),
    ("laplace", lambda sigma: Errors("laplace", sigma, sigma)),
    ("student_5", lambda sigma: Errors("student", sigma, sigma, 5)),
    ("student_3", lambda sigma: Errors("student", sigma, sigma, 3)),
)


def needed() -> list[dict[str, float]]:
    """For each share: the least gap, in σ of one clock, at which no more are inverted; by family."""
    return [
        {"share": share} | {name: misorder.needed_gap(make(1.0), share) for name, make in _SHOWN}
        for share in SHARES
    ]


def quality() -> list[dict[str, float]]:
    """For each gap and share: the greatest σ of either clock, in ns, that inverts no more; by family."""
    return [
        {"gap_ns": gap, "share": row["share"]} | {name: gap / row[name] for name, _ in _SHOWN}
        for gap in GAPS_NS
        for row in needed()
    ]


def charts() -> list[Chart]:
    """Share of inverted pairs against gap/σ: plain, and its tails on logarithmic axes."""
    plain, far = np.linspace(0, 6, 301), np.geomspace(0.1, 100, 301)

    def curves(at: misorder.F64, least: float) -> list[Curve]:
        shares = [(name, 100 * make(1.0).inverted(at)) for name, make in _SHOWN]
        return [
            Curve(name.replace("_", ", ν = "), at[share >= least], share[share >= least])
            for name, share in shares
        ]

    labels = ("gap / σ of one clock", "inverted, %")
    note = "By formula. Equal σ: heavier tails invert fewer close pairs and more distant ones."
    return [
        Chart("Inverted pairs, by family of errors", *labels, curves(plain, 0.0)),
        Chart("The same, far out", *labels, curves(far, 1e-6), log_x=True, log_y=True, note=note),
    ]
