"""Principal components of a noisy second moment."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from drjax.core import validate
from drjax.core.linalg import sign_and_margin
from drjax.core.types import Status
from drjax.defenses.pca_utility import k_for_energy


class PrivateComponents(NamedTuple):
    """What a fit returns; mapped over keys, every field gains a leading axis.

    Attributes:
        components: (k, d), orthonormal rows, by decreasing eigenvalue, signs as `drjax.dr.PCA`. Where a share of energy
            was asked for (d, d), rows from `n_components` on being 0.
        eigenvalues: (k,) or (d,) of the noisy second moment, in units of the records squared; they may be negative.
        n_components: (), int32.
        status: (), uint32 `Status` flags; NON_FINITE results are nan.
    """

    components: Any
    eigenvalues: Any
    n_components: Any
    status: Any


@functools.partial(jax.jit, static_argnames=("n_components", "symmetric"))
def components_of(moment: Any, n_components: int | float, *, symmetric: bool = True) -> PrivateComponents:
    """Leading eigenvectors of a noisy second moment (d, d); O(d^3).

    Args:
        moment: Symmetric; or with `symmetric` False any matrix, of which left singular vectors and singular values.
        n_components: How many, at most d; or the share of the energy, in (0, 1), of which positive eigenvalues count.
        symmetric: As said.

    Raises:
        ValueError: at trace time, if n_components > d.
    """
    d = moment.shape[0]
    k = d if isinstance(n_components, float) else n_components
    validate.at_most(d, "d", n_components=k)
    finite = jnp.all(jnp.isfinite(moment))
    # Decompositions of a nan may not return.
    safe: Any = jnp.where(finite, moment, 0)
    if symmetric:
        values, vectors = jnp.linalg.eigh(safe)
        values, vectors = values[::-1], vectors[:, ::-1]
    else:
        vectors, values, _ = jnp.linalg.svd(safe, full_matrices=False)
    values, loadings = values[:k], vectors.T[:k]
    loadings = loadings * sign_and_margin(loadings)[0][:, None]
    chosen = k_for_energy(values, n_components) if isinstance(n_components, float) else k
    loadings = jnp.where((jnp.arange(k) < chosen)[:, None], loadings, 0)
    return PrivateComponents(
        jnp.where(finite, loadings, jnp.nan),
        jnp.where(finite, values, jnp.nan),
        jnp.asarray(chosen, jnp.int32),
        jnp.where(finite, jnp.uint32(Status.OK), jnp.uint32(Status.NON_FINITE)),
    )
