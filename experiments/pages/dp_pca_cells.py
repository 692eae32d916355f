"""What the norm bound and the weight of the mean are worth to a release with nothing public but ranges."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import numpy as np

from drjax.defenses.dp_pca import AnalyticGauss
from experiments.pca_membership import private_mean

WEIGHTS = (0.3, 0.5, 0.6, 0.7, 1.0)

SHARE = 0.8
"""The norm bound that is tried, in units of the farthest corner's."""

SMALL, LARGE = private_mean.SIZES[1::2]


def skewed(n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Six independent log-normal columns (n, 6) whose logarithms have deviations of 0.6 to 1.1, and ranges to 20."""
    drawn = np.random.default_rng(0).normal(size=(n, 6))
    return np.exp(drawn * np.linspace(0.6, 1.1, 6)), np.zeros(6), np.full(6, 20.0)


def _records(data: str, n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    if data == "skewed":
        return skewed(n)
    x, lower, upper = private_mean.adult() if data == "adult" else private_mean.digits()
    return x[:n], lower, upper


def _means(made: Iterator[tuple[float, Any]], z: np.ndarray, is_toy: bool) -> dict[str, float]:
    n_trials = 4 if is_toy else private_mean.ANNOUNCED
    return {f"{value:g}": float(private_mean.kept(one, z, n_trials, 0).mean()) for value, one in made}


def norms(data: str, n: int, is_toy: bool) -> dict[str, Any]:
    """Mean q of a release by its norm bound, in units of the farthest corner's."""
    x, lower, upper = _records("digits" if is_toy and data == "adult" else data, n)
    bounds = {share: private_mean.bounds_of(lower, upper, share) for share in (SHARE, 1.0)}
    made = ((share, private_mean.calibrated(one)) for share, one in bounds.items())
    return {"kept": _means(made, bounds[1.0].scaled(x), is_toy)}


def weights(n: int, is_toy: bool) -> dict[str, Any]:
    """Mean q of a release of the first n records of Adult by the weight of the mean."""
    x, lower, upper = _records("digits" if is_toy else "adult", n)
    bounds = private_mean.bounds_of(lower, upper)
    fields: dict[str, Any] = {"neighbouring": "replace_one", "n_components": private_mean.K}
    fields |= {"center": bounds.scaled(bounds.center), "lower": bounds.ranges[0], "upper": bounds.ranges[1]}
    fields["row_norm"] = bounds.row_norm
    epsilon, delta = private_mean.EPSILON, private_mean.DELTA
    made = ((w, AnalyticGauss.for_release(epsilon, delta, mean_weight=w, **fields)) for w in WEIGHTS)
    return {"kept": _means(made, bounds.scaled(x), is_toy)}


TABLES = {
    "norms": {
        f"{data}-{n}": functools.partial(norms, data, n)
        for data, n in (("adult", SMALL), ("adult", LARGE), ("skewed", SMALL), ("skewed", LARGE))
    },
    "weights": {str(SMALL): functools.partial(weights, SMALL)},
}
"""What computes the facts of a cell, by table and cell."""
