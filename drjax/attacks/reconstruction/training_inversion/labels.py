"""What the adversary trains before looking at a release: models with records of each class in the target's place."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from drjax.attacks.reconstruction.training_inversion.problem import Problem

RIDGE = 1e-2
"""Share of the mean squared length of shadow differences that is added to their Gram matrix; 0.1 to 1e-4 rank alike."""


class Shadows(NamedTuple):
    """Models trained with records of one class in the target's place.

    Attributes:
        label: The class.
        x: (s, d), the mean of the class and then s - 1 of its records.
        theta: (s, P) their parameters.
    """

    label: int
    x: np.ndarray
    theta: np.ndarray


def train_shadows(
    problem: Problem, x: np.ndarray, y: np.ndarray, labels: np.ndarray, n: int, seed: int
) -> list[Shadows]:
    """Shadow models by label, at the mean of its records among x (N, d) and up to n of them; all records where it has
    none.

    Which, goes by the seed and the label alone, so that it does not matter what other releases are attacked as well.
    """
    points = []
    for label in labels:
        own = x[y == label] if (y == label).any() else x
        chosen = own[np.random.default_rng([seed, int(label)]).permutation(len(own))[:n]]
        points.append(np.concatenate([own.mean(axis=0)[None], chosen]))
    theta = problem.run(np.concatenate(points), np.repeat(labels, [len(p) for p in points]))
    ends = np.cumsum([len(p) for p in points])[:-1]
    return [Shadows(int(c), p, t) for c, p, t in zip(labels, points, np.split(theta, ends), strict=True)]


def ranked(shadows: list[Shadows], theta: np.ndarray) -> np.ndarray:
    """(m, L) positions in `shadows`, most probable class of each of m releases first.

    By what a combination of the class's shadows leaves unexplained of the release: the residual of the linearised
    inversion, in the span of the class's own records.
    """
    left = np.array([_unexplained(own.theta, theta) for own in shadows])
    return np.argsort(left, axis=0, kind="stable").T


def _unexplained(own: np.ndarray, theta: np.ndarray) -> np.ndarray:
    residual = theta - own[0]
    differences = own[1:] - own[0]
    if not len(differences):
        return np.linalg.norm(residual, axis=1)
    gram = differences @ differences.T
    gram[np.diag_indices(len(gram))] += RIDGE * np.trace(gram) / len(gram) + np.finfo(float).tiny
    weight = np.linalg.solve(gram, differences @ residual.T)
    return np.linalg.norm(residual - weight.T @ differences, axis=1)


def nearest(own: Shadows, theta: np.ndarray, place: int) -> np.ndarray:
    """(d,) the shadow record of the class whose model is nearest to a release theta (P,); by place from 0."""
    distances = np.sum((own.theta - theta) ** 2, axis=1)
    return own.x[np.argsort(distances, kind="stable")[min(place, len(distances) - 1)]]
