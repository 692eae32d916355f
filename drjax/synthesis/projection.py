"""Orthonormal directions that may be published: from a noisy second moment, from public data, or at random."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from drjax.core import validate
from drjax.core.types import Array
from drjax.defenses.clipping import in_ball
from drjax.defenses.dp_pca_components import components_of
from drjax.synthesis import moments
from drjax.synthesis.budget import Plan

PROJECTIONS = ("private", "public", "random")

ORTHONORMAL = 1e-4
"""Entries of W W^T - I that are taken for rounding. Privacy rests on clipping, not on W."""


class Directions(NamedTuple):
    """Components, and what the query that found them says about the columns.

    Attributes:
        components: (p, m), orthonormal rows.
        squares: (m,) sums over records of the squared columns of what was projected, with noise; None without a query.
        deviation: Standard deviation of the noise of an entry of `squares`.
    """

    components: Any
    squares: Any = None
    deviation: float = 0.0


def private_components(key: Array, rows: Any, weight: Any, frame: Any, plan: Plan, n_components: int) -> Directions:
    """Leading eigenvectors (p, m) of the noisy second moment of rows (n, m) less the centre, cut to the radius.

    Gaussian noise: `drjax.defenses.dp_pca.AnalyticGauss`, which the paper's AG-PCA stands for. Laplace noise: Lap-PCA
    with symmetric noise, and a sensitivity that is that of records in a ball, not in a cube.
    """

    def term(chunk: Any) -> jax.Array:
        return moments.gram(in_ball(chunk["rows"] - frame.center, frame.radius), chunk["weight"])

    found = moments.total(term, {"rows": rows, "weight": weight})
    noisy, deviation = moments.noisy_moments(key, found[None], 1.0, plan, "projection")
    return directions_of(noisy[0], deviation, plan.noise, n_components)


def directions_of(noisy: Any, deviation: float, noise: str, n_components: int) -> Directions:
    """The leading directions of a noisy second moment (m, m), whose noise has that deviation off the diagonal."""
    on_diagonal = deviation * (math.sqrt(2) if noise == "gaussian" else 1.0)
    found = components_of(jnp.asarray(noisy), n_components).components
    return Directions(found, jnp.diagonal(jnp.asarray(noisy)), on_diagonal)


def random_components(key: Array, n_components: int, m: int, dtype: Any) -> jax.Array:
    """A random subspace's orthonormal basis (p, m), uniform over rotations: what the key draws is public.

    Raises:
        ValueError: n_components > m.
    """
    validate.at_most(m, "m", n_components=n_components)
    q, r = jnp.linalg.qr(jax.random.normal(key, (m, n_components), dtype))
    # Without it signs would be those that LAPACK happens to choose.
    signs = jnp.where(jnp.diagonal(r) < 0, -1, 1).astype(dtype)
    return (q * signs).T


def public_components(components: Any, n_components: int, m: int) -> np.ndarray:
    """Public directions (p, m), checked.

    Raises:
        ValueError: another shape, or rows that are not orthonormal.
    """
    w = validate.matrix(components, "components", columns=m).astype(np.float64)
    if len(w) != n_components:
        raise ValueError(f"components must have n_components = {n_components} rows, got {len(w)}")
    error = float(np.abs(w @ w.T - np.eye(len(w))).max())
    if not error <= ORTHONORMAL:
        raise ValueError(f"components must have orthonormal rows, got an entry of W W^T off by {error:.2g}")
    return w


def project_each(rows: np.ndarray, components: np.ndarray) -> np.ndarray:
    """Rows (n, m) onto components (p, m), on the host; (n, p).

    One at a time: a product of matrices may add up a record's terms in another order when there is one record more, and
    what is then rounded would be a change of more than one record.
    """
    found = np.empty((len(rows), len(components)))
    row, across = np.empty(rows.shape[1]), np.ascontiguousarray(components)
    for i in range(len(rows)):
        row[:] = rows[i]
        np.dot(across, row, out=found[i])
    return found
