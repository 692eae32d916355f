"""Figures in the sentences of docs/dp_pca: from the rows of private PCA, or of the formulas that the pages name."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from drjax.defenses import dp_pca_sensitivity as sensitivity
from drjax.defenses.dp_pca import PAPER, PUBLIC, AnalyticGauss, LaplaceVector
from experiments.markdown import Figures
from experiments.pages import dp_pca_cells, mechanisms, report
from experiments.pca_membership.claim_tests import NAMES
from experiments.pca_membership.crossing import crossing
from experiments.pca_membership.pages import private_cells

figures = Figures()

FAR = 1e-5
"""The delta of the comparisons in the proofs."""


def _by_epsilon(relation: str, name: str, what: str) -> np.ndarray:
    own = report.line_of("dp-digits", f"{relation}-{name}")["by_epsilon"]
    return np.array([own[f"{epsilon:g}"][what] for epsilon in mechanisms.EPSILONS])


def _every(what: str) -> Iterator[float]:
    """A fact of all mechanisms, relations and epsilons on digits."""
    for cell in mechanisms.TABLES["dp-digits"]:
        if cell != "without":
            relation, name = cell.split("-", 1)
            yield from _by_epsilon(relation, name, what)


@figures
def standard_errors() -> tuple[float, ...]:
    """The largest standard error of q on digits."""
    return (max(_every("q_error")),)


@figures
def gains() -> tuple[float, ...]:
    """What `AnalyticGauss` captures more than the classical Analyze Gauss, by epsilon."""
    return tuple(_by_epsilon("zero_out", "analytic", "q") - _by_epsilon("zero_out", "classical", "q"))


@figures
def costs_of_replacing() -> tuple[float, ...]:
    """What replace-one costs the classical Analyze Gauss, by epsilon."""
    return tuple(_by_epsilon("zero_out", "classical", "q") - _by_epsilon("replace_one", "classical", "q"))


@figures
def angles() -> tuple[float, ...]:
    """The least and the greatest of the largest angles."""
    return min(_every("angle")), max(_every("angle"))


@figures
def without_trace() -> tuple[float, ...]:
    """What leaving the trace out would gain at d = 64."""
    return (1 - math.sqrt(1 - 1 / 64),)


@figures
def impossible_beside_a_record() -> tuple[float, ...]:
    """The least delta of the published Wishart noise at epsilon 1."""
    return (sensitivity.wishart_delta(1.0, 2, 2 / 3),)


@figures
def wishart_deviations(*excesses: str) -> tuple[float, ...]:
    """Deviation of Wishart noise off the diagonal over that of `AnalyticGauss`, epsilon 1, d = 64, by excess."""
    made = AnalyticGauss.analytic(1.0, FAR, neighbouring="zero_out", n_components=1)
    gaussian = float(made.noise_multiplier) * math.sqrt(made.OFF_DIAGONAL)
    return tuple(
        sensitivity.wishart_noise(1.0, FAR, int(excess)) * math.sqrt(63 + int(excess)) / gaussian for excess in excesses
    )


@figures
def crossings(*names: str) -> tuple[float, ...]:
    """From which epsilon on naive composition has less noise, by data set."""
    found = (private_cells().main(name, "laplace_scalar", PAPER) for name in names)
    return tuple(crossing(cell["d"] * (cell["d"] + 1) // 2, 1 / cell["n"]) for cell in found)


@figures
def vector_epsilons(neighbouring: str, *epsilons: str) -> tuple[float, ...]:
    """What the vector query is worth at delta 1e-5 for 450 ranges that are symmetric about 0, by its epsilon."""
    fields = {"lower": -np.ones(450), "upper": np.ones(450), "n_components": 1}
    made = (LaplaceVector(epsilon=float(epsilon), neighbouring=neighbouring, **fields) for epsilon in epsilons)
    return tuple(one.guarantee().epsilon(FAR) for one in made)


@figures
def noise_of_releases() -> tuple[float, ...]:
    """How much more noise a release has than the least, the least and the most by epsilon."""
    found = [report.line_of("deviations", f"{epsilon:g}")["deviations"] for epsilon in mechanisms.DEVIATIONS]
    more = [one["release"] / one["tight"] - 1 for one in found]
    return min(more), max(more)


def _energies(name: str, curator: str, convention: str, relation: str = "zero_out") -> dict[float, float]:
    points = private_cells().main(name, curator, convention, relation)["points"]
    return {point["epsilon"]: float(np.mean(point["utility"])) for point in points}


def _replaced(curator: str) -> list[float]:
    """What a curator under replace-one captures more than the classical Analyze Gauss under zero-out."""
    found = []
    for name in NAMES:
        classical = _energies(name, "analyze_gauss", PUBLIC)
        replaced = _energies(name, curator, PUBLIC, "replace_one")
        found += [replaced[epsilon] - classical[epsilon] for epsilon in (0.1, 1.0, 3.0)]
    return found


@figures
def replaced_gains() -> tuple[float, ...]:
    """The least and the greatest gain of `AnalyticGauss` over the classical one under the weaker relation."""
    found = _replaced("analytic_gauss")
    return min(found), max(found)


@figures
def replaced_costs() -> tuple[float, ...]:
    """The most that replace-one costs the classical Analyze Gauss."""
    return (-min(_replaced("analyze_gauss")),)


@figures
def as_printed(*epsilons: str) -> tuple[float, ...]:
    """Captured energy of Analyze Gauss as printed on MNIST, by epsilon."""
    found = _energies("mnist", "analyze_gauss", PAPER)
    return tuple(found[float(epsilon)] for epsilon in epsilons)


@figures
def kept_at_one(curator: str) -> tuple[float, ...]:
    """Captured energy of a sound curator at epsilon 1, by data set."""
    return tuple(_energies(name, curator, PUBLIC)[1.0] for name in NAMES)


@figures
def norms(*cells: str) -> tuple[float, ...]:
    """Captured variance of a release with a smaller norm bound and with the farthest corner's, by cell."""
    found = (report.line_of("norms", cell)["kept"] for cell in cells)
    return tuple(kept[f"{share:g}"] for kept in found for share in (dp_pca_cells.SHARE, 1))


@figures
def weights(cell: str, *shown: str) -> tuple[float, ...]:
    """Captured variance of a release of Adult by the weight of the mean."""
    return tuple(report.line_of("weights", cell)["kept"][weight] for weight in shown)


@figures
def held_by_quantiles(*sizes: str) -> tuple[float, ...]:
    """How many further draws the 5% and the 95% quantile of n draws hold: the i-th draw lies at i / (n + 1)."""
    return tuple(0.9 * (int(n) - 1) / (int(n) + 1) for n in sizes)
