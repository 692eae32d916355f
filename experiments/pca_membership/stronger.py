"""Stronger attacks on private components: the likelihood ratio with noisy shadows, and who knows all records but one.

Sound curators under "replace_one", the relation of the game: one record is in, or another in its place.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from drjax.attacks import membership, roc
from drjax.core.types import Array
from drjax.defenses.dp_pca_noise import mirrored
from drjax.defenses.dp_pca_sensitivity import laplace_sensitivity
from drjax.defenses.mechanisms import Gaussian, Laplace
from experiments.pca_membership import curators
from experiments.pca_membership.curators import Case

RELATION = "replace_one"


@dataclasses.dataclass(frozen=True)
class Added:
    """Noise of size 1 on the diagonal of a scatter matrix; for `fit_shadows`, which compiles once for equal ones.

    Attributes:
        law: "laplace" or "normal", of the draws.
        off_diagonal: Size of the noise off the diagonal.
    """

    law: str
    off_diagonal: float

    @classmethod
    def of(cls, curator: Any) -> Added:
        """What a curator adds, in the units of `ratio`: `AnalyticGauss`, Analyze Gauss or the vector query."""
        if hasattr(curator, "row_norm"):
            return cls("normal", math.sqrt(curator.OFF_DIAGONAL))
        return cls("laplace", 1.0)

    def __call__(self, key: Array, scatter: Array) -> jax.Array:
        """Scatter (d, d) with noise."""
        draw = jax.random.normal if self.law == "normal" else jax.random.laplace
        sizes = jnp.full(scatter.shape, self.off_diagonal, scatter.dtype).at[jnp.diag_indices(len(scatter))].set(1)
        return scatter + sizes * mirrored(draw(key, scatter.shape, scatter.dtype))


def ratio(
    key: Array, given: Case, curator: Any, components: np.ndarray, *, ks: np.ndarray, n_shadows: int
) -> tuple[np.ndarray, np.ndarray]:
    """AUC of the likelihood ratio and of the reconstruction error on the same components (d, d) and candidates.

    Args:
        key: Of the shadows.
        given: A sound case with its public records.
        curator: Whose bounds and noise the adversary knows.
        components: What was published.
        ks: Numbers of components, increasing.
        n_shadows: As of `membership.fit_shadows`.

    Returns:
        (len(ks),) each.
    """
    n = len(given.records)
    # In units in which the noise has size 1: then one program does for every trial and epsilon.
    unit = math.sqrt(entry_noise(curator, n).scale)
    candidates, public = (curators.bounded(curator, x) / unit for x in (given.candidates, given.known))
    shadows = membership.fit_shadows(key, public, n, noise=Added.of(curator), n_shadows=n_shadows, n_pairs=0)
    release = membership.Release(components, n_records=n)
    scores = membership.ratio_score_prefixes(shadows, release, candidates, ks=ks.tolist())
    errors = membership.pca_score_prefixes(components, candidates)[:, ks - 1]
    return roc.auc_columns(scores, given.is_member), roc.auc_columns(-errors, given.is_member)


def entry_noise(curator: Any, n: int) -> Gaussian | Laplace:
    """The noise on entries of A, in the units of the records; `AnalyticGauss` has it on the diagonal alone."""
    if hasattr(curator, "row_norm"):
        unit = float(curator.row_norm) ** 2 / n
        sizes = {"sensitivity": curator.sensitivity * unit, "scale": float(curator.noise_multiplier) * unit}
        return Gaussian(neighbouring=curator.neighbouring, **sizes)
    sensitivity = laplace_sensitivity(np.maximum(-curator.lower, curator.upper)) / n
    scale = sensitivity / float(curator.epsilon)
    return Laplace(neighbouring=curator.neighbouring, sensitivity=sensitivity, scale=scale)


def informed(key: Array, given: Case, curator: Any, *, games: int, published: str) -> membership.InformedGame:
    """Games in which all members but one are known, and the rest is one of two records that are neither.

    Args:
        key: Of pairs, coins and noise.
        given: A sound case.
        curator: Analyze Gauss or the vector query.
        games: How many.
        published: As of `membership.informed_game`.
    """
    pair_key, game_key = jax.random.split(key)
    others = curators.bounded(curator, given.candidates[~given.is_member])
    picks = np.random.default_rng(np.asarray(jax.random.key_data(pair_key)).tolist())
    pairs = np.stack([others[picks.choice(len(others), 2, replace=False)] for _ in range(games)])
    known = curators.bounded(curator, given.records)[1:]
    noise = entry_noise(curator, len(given.records))
    return membership.informed_game(game_key, known, pairs, published=published, mechanism=noise)
