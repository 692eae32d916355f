"""Where descents on the equations of `eigen_equations` start: records that come close to fulfilling them."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from drjax.attacks.reconstruction.eigen_equations import Eigen
from drjax.core.types import Array

N_ALIKE, N_DRAWN = 10, 3
"""Descents from the records whose own releases would be most like this one, and from drawn records, beside two."""

MOST_COMPARED = 2000
"""Records among which the most alike are sought."""


def most_alike(equations: Eigen, given: np.ndarray, records: np.ndarray) -> np.ndarray:
    """(m, a, p + 1) of the records (s, p + 1) those that come closest to fulfilling the equations of each release."""
    some = jnp.asarray(records[:MOST_COMPARED])
    order = [np.argsort(np.asarray(_squares(equations, jnp.asarray(release), some)))[:N_ALIKE] for release in given]
    return records[np.stack(order)]


# Here, so that it is compiled once and not for each record.
@jax.jit
def _squares(equations: Eigen, release: jax.Array, some: jax.Array) -> jax.Array:
    """(s,) squared norms of the residual at records (s, p + 1)."""
    return jax.lax.map(lambda u: jnp.sum(equations.residual(release, u) ** 2), some, batch_size=32)


def conditioned(
    key: Array, equations: Eigen, mean: np.ndarray, covariance: np.ndarray, given: np.ndarray
) -> np.ndarray:
    """(m, N_DRAWN + 2, p + 1): the mean, what is expected of records of the target's scores, and draws of such ones."""
    columns, slope = (np.asarray(part) for part in jax.jit(Eigen.columns)(equations, jnp.asarray(mean)))
    where = np.asarray(equations.where)
    at_mean = columns[0]
    others = columns[1:]
    # Scores as a linear map of the columns, from the known rows; shrunk, where there are more features than records.
    gram = others @ others.T
    gram[np.diag_indices(len(gram))] += 1e-6 * np.trace(gram) / len(gram)
    readings = np.einsum("nd,mnk->mkd", others, np.linalg.solve(gram, given[:, 1:]))
    # Row 0 of the columns moves by its slope where its own feature moves.
    operator = np.zeros((len(given), given.shape[2], len(mean)))
    operator[:, :, :-1] = (readings * slope[0])[:, :, where]
    left = given[:, 0] - np.einsum("mkd,d->mk", readings, at_mean)
    root = np.linalg.cholesky(covariance)
    draws = np.asarray(jax.random.normal(key, (N_DRAWN, len(mean)), jnp.float64)) @ root.T
    draws = np.concatenate([np.zeros((1, len(mean))), draws])
    loaded = operator @ covariance
    spread = loaded @ np.swapaxes(operator, 1, 2)
    k = given.shape[2]
    spread += 1e-6 * np.trace(spread, axis1=1, axis2=2)[:, None, None] / k * np.eye(k)
    missing = left[:, None] - np.einsum("mkp,sp->msk", operator, draws)
    moved = np.einsum("mkp,msk->msp", loaded, np.linalg.solve(spread[:, None], missing[..., None])[..., 0])
    conditioned = mean + draws + moved
    return np.concatenate([np.broadcast_to(mean, (len(given), 1, len(mean))), conditioned], axis=1)
