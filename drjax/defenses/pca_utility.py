"""What private components are still worth: captured energy, the angle to the true ones, and a classifier's accuracy.

None of these figures is private: each is computed from the records without noise.

Example:
    >>> import drjax, jax, numpy as np
    >>> from drjax.defenses import pca_utility
    >>> from drjax.defenses.dp_pca import AnalyticGauss
    >>> data, key = drjax.load("digits"), jax.random.key(0)
    >>> x, y, near = data.x, data.y, {"neighbouring": "zero_out", "n_components": 10}
    >>> moment = pca_utility.second_moment(x)
    >>> values, vectors = np.linalg.eigh(moment)
    >>> int(pca_utility.k_for_energy(values[::-1], 0.9))
    9
    >>> fits = pca_utility.trials(key, AnalyticGauss(**near, row_norm=4.0, noise_multiplier=1.0), x[:400], 3)
    >>> pca_utility.energy_ratio(fits.components, moment).shape
    (3,)
    >>> best = vectors[:, :-11:-1].T
    >>> float(pca_utility.largest_angle(best, best).round(3))
    0.0
    >>> accuracy = pca_utility.downstream_accuracy(best[None], (x[:200], y[:200]), (x[200:400], y[200:400]))
    >>> bool(accuracy[0] > 0.7)
    True
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from sklearn.linear_model import LogisticRegression

from drjax.core import batching, validate
from drjax.core.linalg import HIGHEST, compute_dtype
from drjax.core.types import Array, PyTree

ENERGY = 0.9
"""The share at which paper 001 chooses k."""


def second_moment(x: Array, *, center: Array | None = None) -> jax.Array:
    """X^T X / n of x (n, d) less a vector (d,), without noise; (d, d)."""
    validate.shape_2d(x=x)
    z = jnp.asarray(x, compute_dtype(x))
    z = z if center is None else z - jnp.asarray(center, z.dtype)
    return jnp.matmul(z.T, z, precision=HIGHEST) / z.shape[0]


def k_for_energy(eigenvalues: Array, share: float = ENERGY) -> Any:
    """The least k whose k largest eigenvalues hold a share of the energy; negative ones count as 0.

    The k of a noisy second moment is free: it is computed from what is published. The k of the records themselves, as
    in paper 001, is public knowledge or a leak: it depends on them. Noise has energy too, so a noisy spectrum needs
    more k.

    Args:
        eigenvalues: (..., d), decreasing.
        share: Share of the energy, in (0, 1].

    Returns:
        (...), int32, in [1, d].

    Raises:
        ValueError: share is out of its range.
    """
    if not 0 < share <= 1:
        raise ValueError(f"share must be in (0, 1], got {share}")
    # Float64 on the host stays float64.
    xp = np if isinstance(eigenvalues, np.ndarray) else jnp
    held = xp.cumsum(xp.maximum(xp.asarray(eigenvalues), 0), axis=-1)
    # Without the margin a share of 1 would wait for a sum that rounding has put out of reach.
    needed = share * held[..., -1:] * (1 - 4 * jnp.finfo(held.dtype).eps)
    return xp.minimum(xp.sum(held < needed, axis=-1) + 1, held.shape[-1]).astype(np.int32)


def energy_ratio(components: Array, moment: Array, *, n_components: Array | None = None) -> jax.Array:
    """Captured energy over the most that as many components can capture: paper 001's q.

    q = tr(V A V^T) / (sum of the k largest eigenvalues of A).

    Args:
        components: (..., k, d), orthonormal rows; rows of 0 capture nothing.
        moment: A (d, d), without noise.
        n_components: (...), how many rows count where not all do; k of the sum then.

    Returns:
        (...), in [0, 1] up to rounding.
    """
    v, a = jnp.asarray(components), jnp.asarray(moment, jnp.asarray(components).dtype)
    captured = jnp.einsum("...kd,...kd->...", jnp.matmul(v, a, precision=HIGHEST), v, precision=HIGHEST)
    most = jnp.cumsum(jnp.linalg.eigvalsh(a)[::-1])
    k = v.shape[-2] if n_components is None else jnp.asarray(n_components)
    return captured / most[k - 1]


def largest_angle(components: Array, reference: Array) -> jax.Array:
    """The largest principal angle between two subspaces, in radians, in [0, pi/2].

    Args:
        components: (..., k, d), orthonormal rows.
        reference: (..., k, d), orthonormal rows.

    Returns:
        (...). Right to a few units of rounding at either end: by the sine where the angle is small.
    """
    v, w = jnp.asarray(components), jnp.asarray(reference)
    w = w.astype(v.dtype)
    overlap = jnp.matmul(v, jnp.swapaxes(w, -1, -2), precision=HIGHEST)
    cosine = jnp.linalg.svd(overlap, compute_uv=False)[..., -1]
    outside = v - jnp.matmul(overlap, w, precision=HIGHEST)
    sine = jnp.linalg.svd(outside, compute_uv=False)[..., 0]
    return jnp.where(cosine < sine, jnp.arccos(jnp.minimum(cosine, 1)), jnp.arcsin(jnp.minimum(sine, 1)))


def trials(
    key: Array, mechanism: Any, x: Array, n_trials: int, *, batch_size: int | None = None, progress: bool = False
) -> PyTree:
    """Many fits of one mechanism to the same records; trial i draws from `fold_in(key, i)`.

    Args:
        key: A single key.
        mechanism: Mechanism of `drjax.defenses.dp_pca`; what is traced in it may be swept without compiling again.
        x: (n, d).
        n_trials: Number of trials, >= 1.
        batch_size: Trials at once; chosen by the memory that one needs if None.
        progress: Show a bar on standard error.

    Returns:
        `PrivateComponents` on the host, every field with a leading axis n_trials.
    """
    validate.prng_key(key)
    validate.integer(n_trials=n_trials)
    # The same for all trials, and so computed once a chunk: what `vmap` does not map it does not repeat.
    return batching.map_lanes(
        _fits,
        (key, mechanism, jnp.asarray(x)),
        np.arange(n_trials, dtype=np.uint32),
        batch_size=batch_size,
        progress=progress,
        description="trials",
    )


def _fits(context: PyTree, indices: Any) -> PyTree:
    key, mechanism, x = context
    return jax.vmap(lambda i: mechanism.fit(jax.random.fold_in(key, i), x))(indices)


def downstream_accuracy(
    components: Array,
    train: tuple[Array, Array],
    test: tuple[Array, Array],
    *,
    max_iter: int = 200,
) -> np.ndarray:
    """Accuracy of logistic regression on records projected onto each of many sets of components.

    Projections are scaled by one number for all, so that the regression's penalty means the same for every data set.

    Args:
        components: (m, k, d), or (k, d).
        train: Records (n, d) and their classes (n,).
        test: The same of records that nothing was fitted on.
        max_iter: Most iterations of scikit-learn's solver.

    Returns:
        (m,), or () for one set. One regression after the other, some 10 to 50 ms each on a thousand records.

    Raises:
        ValueError: at the first projection, if d differs.
    """
    v = jnp.asarray(components)
    one = v.ndim == 2
    v = v[None] if one else v
    (x, y), (x_test, y_test) = train, test
    scale = float(np.sqrt(np.mean(np.asarray(x, np.float64) ** 2))) or 1.0
    project = jax.vmap(lambda rows, records: jnp.matmul(records, rows.T, precision=HIGHEST), in_axes=(0, None))
    fitted, judged = (np.asarray(project(v, jnp.asarray(part, v.dtype) / scale)) for part in (x, x_test))
    scores = [
        LogisticRegression(max_iter=max_iter).fit(a, np.asarray(y)).score(b, np.asarray(y_test))
        for a, b in zip(fitted, judged, strict=True)
    ]
    return np.asarray(scores[0] if one else scores)
