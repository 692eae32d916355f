"""Pairs of records that a search for neighbours looks at, and attacks that learn from shadows that are not kept."""

from __future__ import annotations

import functools
from typing import Any

import jax
import numpy as np

import drjax
from bench.growth import generated
from drjax.attacks.reconstruction import invariant, passing_shadows
from drjax.core.linalg import blas
from drjax.dr import MDS, clusters
from experiments.pages.kernels_cells import mnist

EVERY = 10
"""One piece of the work of so many is counted."""

NEIGHBOURS = (15, 90)

RECORDS = {
    "generated-30000": lambda: generated(30_000, 50),
    "generated-100000": lambda: generated(100_000, 50),
    "mnist-30000": lambda: mnist()[:30_000],
    "normal-30000": lambda: np.random.default_rng(0).normal(size=(30_000, 100)).astype(np.float32),
}

N_KNOWN, N_LANDMARKS, N_TARGETS = 99, 1000, 400

SHADOWS = (1000, 8000)


def pairs(name: str, is_toy: bool) -> dict[str, Any]:
    """Share of the pairs of records that clusters leave to a search, by the number of neighbours."""
    rows = RECORDS[name]().astype(np.float64)
    of = clusters.clustered(rows[:2000] if is_toy else rows)
    parts, found = clusters.pieces(of)[::EVERY], {}
    met = len(of.order) * sum(high - low for _, low, high in parts)
    with blas().limit(limits=1, user_api="blas"):
        for k in NEIGHBOURS:
            found[str(k)] = sum(clusters.candidates(of, *part, k)[2] for part in parts) / met
    return {"left": found, "n": len(of.order), "directions": int(of.points.shape[1])}


def passing(is_toy: bool) -> dict[str, Any]:
    """Error left of the mean record's by the attack `invariant` on SMACOF, by the shadows that it learns from.

    `held` has them at once; the others learn from sums over shadows that are not kept, with the same landmarks.
    """
    known_size, landmarks, targets_size, shadows = (
        (9, 20, 5, (30, 40)) if is_toy else (N_KNOWN, N_LANDMARKS, N_TARGETS, SHADOWS)
    )
    x, key, method = mnist(), jax.random.key(0), MDS()
    known, records = x[:known_size], x[known_size : known_size + max(shadows)]
    targets = x[60_000 : 60_000 + targets_size]
    released = drjax.shadow_embeddings(jax.random.key(1), method, known, targets).coords
    guess = np.square(records.mean(axis=0) - targets).mean()

    def left(model: Any) -> float:
        return float(np.square(np.asarray(model.reconstruct(released).x) - targets).mean() / guess)

    held = drjax.shadow_embeddings(key, method, known, records[:landmarks]).coords
    found = {
        str(m): left(passing_shadows.fit_kernel(key, method, known, records[:m], n_landmarks=landmarks))
        for m in shadows
    }
    return {"held": left(invariant.fit(held, records[:landmarks])), "left": found, "landmarks": landmarks}


TABLES = {
    "pairs-left": {name: functools.partial(pairs, name) for name in RECORDS},
    "passing": {"mds": passing},
}
"""What computes the facts of a cell, by table and cell."""
