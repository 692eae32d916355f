"""Figures of experiments/pca_membership/README.md, but for those that `experiments.prose.membership` has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from drjax.defenses.dp_pca import PAPER, PUBLIC
from drjax.reports import records
from experiments.markdown import Figures
from experiments.pca_membership import norms, pages
from experiments.pca_membership.private import NONE
from experiments.pca_membership.private_tables import LABELS, interval
from experiments.pca_membership.report import RATE

figures = Figures()

CONVENTIONS = {"printed": PAPER, "sound": PUBLIC}


@figures
def digits_of_mnist(n: str, attack: str, *facts: str) -> Sequence[float]:
    """Without noise, of N records of MNIST: AUC at the best k, half its interval, or members found at 1% FPR."""
    cell = pages.without_noise("mnist", int(n), attack)
    found = {"auc": cell["best"]["mean"], "half": cell["best"]["half"], "tpr": cell["tpr"][RATE]["mean"]}
    return [found[fact] for fact in facts]


@figures
def cost(*names: str) -> Sequence[float]:
    """Seconds of processor time of the private cells, how many there are, and the seconds of some data sets."""
    cells = pages.private_cells().all
    seconds = [sum(c["cpu_seconds"] for c in cells if c["data"] in name.split("+")) for name in names]
    return sum(c["cpu_seconds"] for c in cells), len(cells), *seconds


def _point(name: str, curator: str, epsilon: float | None, convention: str = PAPER) -> Mapping[str, Any]:
    points = pages.private_cells().main(name, curator, convention)["points"]
    found = [point for point in points if point["epsilon"] == epsilon]
    if len(found) != 1:
        raise LookupError(f"results must hold {curator} of {name} at epsilon {epsilon} once, got {len(found)} of them")
    return found[0]


def _gap(first: Sequence[float], second: Sequence[float]) -> tuple[float, float]:
    """The mean of paired differences, and half its interval."""
    return interval(np.subtract(first, second))


@figures
def rise_under_noise(*names: str) -> Sequence[float]:
    """What AUC gains from epsilon 0.01 to 1 under Analyze Gauss as printed, and half its interval, by data set."""
    pairs = [[_point(name, "analyze_gauss", epsilon)["best"] for epsilon in (1.0, 0.01)] for name in names]
    return [part for most, least in pairs for part in _gap(most, least)]


@figures
def vector_beside_gauss(name: str, epsilon: str) -> Sequence[float]:
    """AUC of the vector query at an epsilon less that of Analyze Gauss at 1, as printed, and half its interval."""
    return _gap(_point(name, "laplace_vector", float(epsilon))["best"], _point(name, "analyze_gauss", 1.0)["best"])


@figures
def above_others(convention: str, curator: str, epsilon: str, *names: str) -> Sequence[float]:
    """AUC at k of 90% energy less that on components of others, and half its interval, by data set."""
    points = (_point(name, curator, float(epsilon), CONVENTIONS[convention]) for name in names)
    return [part for point in points for part in _gap(point["at_k"], point["chance"]["at_k"])]


@figures
def norm_alone(*names: str) -> Sequence[float]:
    """AUC of the norm in the members' units less that in the units of others, and half its interval, by data set."""
    lines = {line["data"]: line for line in records.read_records(pages.FOLDER / norms.RESULTS)[1:]}
    return [part for name in names for part in _gap(lines[name]["auc"], lines[name]["of_others"])]


@figures
def auc(name: str, convention: str, *points: str) -> Sequence[float]:
    """AUC at the best k, of curators with their epsilons as "laplace_vector@1e4", or of "none"."""
    found = []
    for point in points:
        curator, _, epsilon = point.partition("@")
        value = None if curator == NONE else float(epsilon)
        found.append(float(np.mean(_point(name, curator, value, CONVENTIONS[convention])["best"])))
    return found


@figures
def energy_and_auc(name: str, curator: str, epsilon: str) -> Sequence[float]:
    """Captured energy and AUC at the best k of a sound curator."""
    point = _point(name, curator, float(epsilon), PUBLIC)
    return float(np.mean(point["utility"])), float(np.mean(point["best"]))


@figures
def gain_of_many(name: str, n: str, epsilon: str) -> Sequence[float]:
    """Captured energy of sound Analyze Gauss at another N, and what `AnalyticGauss` has more."""
    cells = pages.private_cells()
    old, new = (
        _energy(cells.of(name, int(n), curator, PUBLIC), float(epsilon))
        for curator in ("analyze_gauss", "analytic_gauss")
    )
    return old, new - old


def _energy(cell: Mapping[str, Any], epsilon: float) -> float:
    values = pages.private_cells().values(cell, epsilon, "utility")
    if values is None:
        raise LookupError(f"results must hold {cell['curator']} of {cell['data']} at epsilon {epsilon:g}, got none")
    return float(values.mean())


@figures
def shape_of_the_noise() -> Sequence[float]:
    """The least and the largest share of `AnalyticGauss`'s gain that Analyze Gauss of least deviation lacks."""
    cells, shares = pages.private_cells(), []
    for name in cells.names:
        for relation in ("zero_out", "replace_one"):
            classical, tight, best = (
                cells.main(name, curator, PUBLIC, relation)
                for curator in ("analyze_gauss", "analyze_gauss_tight", "analytic_gauss")
            )
            for epsilon in (point["epsilon"] for point in classical["points"]):
                old, least, new = (_energy(cell, epsilon) for cell in (classical, tight, best))
                shares.append((new - least) / (new - old))
    return min(shares), max(shares)


@figures
def auc_of_an_energy(name: str, energy: str) -> Sequence[float]:
    """The least and the largest AUC that an energy costs, over sound curators that reach it, between their epsilons."""
    found = []
    for curator in LABELS:
        points = pages.private_cells().main(name, curator, PUBLIC)["points"]
        kept, told = ([float(np.mean(point[field])) for point in points] for field in ("utility", "best"))
        if max(kept) >= float(energy):
            found.append(float(np.interp(float(energy), kept, told)))
    return min(found), max(found)


@figures
def chance_at_the_best_k() -> Sequence[float]:
    """The least and the largest AUC on components of others under `AnalyticGauss`, over data sets and epsilons."""
    cells = pages.private_cells()
    found = [
        float(np.mean(point["chance"]["best"]))
        for name in cells.names
        for point in cells.main(name, "analytic_gauss", PUBLIC)["points"]
    ]
    return min(found), max(found)


@figures
def promised(names: str, epsilon: str) -> Sequence[float]:
    """The ceilings of the guarantee by data set, then those of (epsilon, delta) alone, for who sees the matrix."""
    points = [pages.point_of(name, "informed", "analyze_gauss_tight", float(epsilon)) for name in names.split(",")]
    found = [point for point in points if point is not None]
    if len(found) != len(points):
        raise LookupError(f"results must hold the informed adversary on {names} at epsilon {epsilon}, got {points}")
    return [point[field] for field in ("ceiling", "promised") for point in found]


@figures
def below_chance(data: str, epsilon: str) -> Sequence[float]:
    """The least AUC of the likelihood ratio over k under `AnalyticGauss`, and that k."""
    point = pages.point_of(data, "ratio", "analytic_gauss", float(epsilon))
    (cell,) = (
        cell
        for cell in pages.private_cells().all
        if (cell["data"], cell["attack"], cell["curator"]) == (data, "ratio", "analytic_gauss")
        and cell["points"][0] is point
    )
    at = int(np.argmin(cell["points"][0]["auc"]["mean"]))
    return cell["points"][0]["auc"]["mean"][at], cell["k"][at]
