"""The functions inside scikit-learn's t-SNE that its tests call, with its signatures, computed by drjax."""

from __future__ import annotations

import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy.spatial.distance import squareform

from drjax.core.types import Array
from drjax.dr import quality
from drjax.dr.bandwidth import bisect
from drjax.dr.tsne import affinity
from drjax.dr.tsne.xla import gradient
from drjax.sklearn.common import precision


def joint_probabilities(distances: np.ndarray, desired_perplexity: float, verbose: int) -> np.ndarray:
    """`_joint_probabilities`: of squared distances (n, n), condensed (n (n-1) / 2,); float64."""
    del verbose
    with precision(np.float64):
        joint = affinity.joint_probabilities(jnp.asarray(distances, np.float64), desired_perplexity)
        return squareform(np.asarray(joint), checks=False)


def binary_search_perplexity(sqdistances: np.ndarray, desired_perplexity: float, verbose: int) -> np.ndarray:
    """`_binary_search_perplexity`: conditional probabilities (n, m) of squared distances (n, m).

    If m < n the columns are neighbours, else the points themselves, whose own entry is 0.
    """
    del verbose
    with precision(np.float64):
        return np.array(_conditional(jnp.asarray(sqdistances, np.float64), desired_perplexity))


def kl_divergence(
    params: np.ndarray,
    P: np.ndarray,
    degrees_of_freedom: float,
    n_samples: int,
    n_components: int,
    skip_num_points: int = 0,
    compute_error: bool = True,
) -> tuple[float, np.ndarray]:
    """`_kl_divergence`: the divergence from condensed P and the gradient that drjax's descent follows.

    Raises:
        NotImplementedError: other degrees of freedom than max(n_components - 1, 1), or points to skip.
    """
    if degrees_of_freedom != max(n_components - 1, 1) or skip_num_points:
        raise NotImplementedError("degrees_of_freedom must be max(n_components - 1, 1) and skip_num_points 0")
    with precision(np.float64):
        coords = jnp.asarray(params, np.float64).reshape(n_samples, n_components)
        p = jnp.asarray(squareform(P), np.float64)
        divergence = float(quality.kl_divergence(p, coords)) if compute_error else np.nan
        return divergence, np.asarray(gradient(p, coords)).astype(params.dtype).ravel()


def gradient_descent(*args: Any, **kwargs: Any) -> None:
    """`_gradient_descent` of any Python function; drjax compiles the descent together with its objective."""
    del args, kwargs
    raise NotImplementedError("drjax's descent is compiled with its objective and takes no Python function")


@functools.partial(jax.jit, static_argnums=1)
def _conditional(squared: Array, perplexity: float) -> Array:
    n, m = squared.shape
    off = jnp.ones((n, m), bool) if m < n else ~jnp.eye(n, m, dtype=bool)
    shifted = squared - jnp.min(jnp.where(off, squared, jnp.inf), axis=1, keepdims=True)

    def weights(beta: Array) -> Array:
        return jnp.where(off, jnp.exp(-beta[:, None] * shifted), 0)

    def negative_entropy(beta: Array) -> Array:
        weight = weights(beta)
        total = jnp.sum(weight, axis=1)
        return -jnp.log(total) - beta * jnp.sum(shifted * weight, axis=1) / total

    beta = bisect(
        negative_entropy,
        -math.log(perplexity),
        squared[:, 0],
        max_steps=affinity.MAX_STEPS,
        tol=affinity.ENTROPY_TOL,
    )
    weight = weights(beta)
    return weight / jnp.sum(weight, axis=1, keepdims=True)
