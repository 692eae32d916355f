"""Figures of docs/membership.md, and of what docs/results/membership.md says of the same rows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bench import tables
from experiments.markdown import Figures
from experiments.pca_membership import pages
from experiments.pca_membership.private_tables import interval

figures = Figures()

LARGEST = 10_000
"""Records of the largest releases."""

BENCHMARK = "membership.jsonl"


@figures
def mnist_and_adult() -> Sequence[float]:
    """AUC of the ratio and of the reconstruction error on 10,000 records of MNIST; the larger of both on Adult."""
    mnist, adult = (
        [pages.without_noise(data, LARGEST, attack)["best"]["mean"] for attack in ("ratio", "reconstruction")]
        for data in ("mnist", "adult")
    )
    return (*mnist, max(adult))


@figures
def speed() -> Sequence[float]:
    """Seconds of one trial at 1,000 records of MNIST, and how many times longer a loop over scikit-learn takes."""
    ours, theirs = (
        tables.newest(tables.rows_of(BENCHMARK), name=f"membership/{name}", n=1000)
        for name in ("drjax", "scikit-learn")
    )
    return ours["run_s"], theirs["all_ks_s"] / ours["run_s"]


@figures
def at_epsilon_one() -> Sequence[float]:
    """The largest AUC at epsilon 1 of an adversary with public records alone, over data sets and curators."""
    own = [cell for cell in pages.private_cells().all if cell["attack"] == "ratio"]
    points = [point for cell in own for point in cell["points"] if point["epsilon"] == 1]
    return (max(np.mean(found) for point in points for found in (point["best"], point["reconstruction"]["best"])),)


@figures
def ratio_under_noise() -> Sequence[float]:
    """MNIST: the ratio and the reconstruction error with half intervals under Gaussian noise, then of the vector
    query without intervals."""
    gauss, vector = _both("mnist", "analytic_gauss", 100.0), _both("mnist", "laplace_vector", 1e6)
    return tuple(number for found in gauss for number in interval(found)) + tuple(map(float, map(np.mean, vector)))


@figures
def faces_by_the_vector_query() -> Sequence[float]:
    """AUC of the reconstruction error and of the ratio on LFW at epsilon 10^4."""
    ratio, reconstruction = _both("lfw", "laplace_vector", 1e4)
    return float(np.mean(reconstruction)), float(np.mean(ratio))


@figures
def nearest_to_the_ceiling() -> Sequence[float]:
    """MNIST: the informed adversary and the ceiling at epsilon 10; both others at epsilon 100."""
    game = pages.point_of("mnist", "informed", "analyze_gauss_tight", 10.0)
    if game is None:
        raise LookupError("results must hold the informed adversary on MNIST at epsilon 10, got none")
    others = _both("mnist", "analytic_gauss", 100.0)
    return game["scatter"]["auc"], game["ceiling"], *map(float, map(np.mean, others))


@figures
def cost_of_replace_one() -> Sequence[float]:
    """The largest share of the energy that replace-one costs Analyze Gauss, over data sets and epsilons."""
    cells, lost = pages.private_cells(), []
    for name in cells.names:
        free, replaced = (
            cells.main(name, "analyze_gauss", pages.PUBLIC, relation) for relation in ("zero_out", "replace_one")
        )
        for epsilon in (point["epsilon"] for point in free["points"]):
            values = [cells.values(cell, epsilon, "utility") for cell in (free, replaced)]
            if values[0] is not None and values[1] is not None:
                lost.append(float((values[0] - values[1]).mean()))
    return (max(lost),)


def _both(data: str, curator: str, epsilon: float) -> tuple[np.ndarray, np.ndarray]:
    """AUC of the ratio and of the reconstruction error in every trial."""
    point = pages.point_of(data, "ratio", curator, epsilon)
    if point is None:
        raise LookupError(f"results must hold the ratio on {data} by {curator} at epsilon {epsilon:g}, got none")
    return np.array(point["best"]), np.array(point["reconstruction"]["best"])
