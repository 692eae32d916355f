"""Membership in a PCA whose second moment has noise of a known law.

The likelihood ratio of `drjax.attacks.membership_ratio` takes released eigenvectors for those of the records, up to
first order in one of them; under noise they are not, and it finds less than the reconstruction error does. What the
mechanism is, is public, so the adversary does better with it: on the noisy matrix itself, which holds everything that
is released, or, who has components alone, with shadows that carry the noise.

Source: drjax's own; the test of one candidate against shadows without it is the offline one of Carlini et al.,
"Membership inference attacks from first principles" (2022).
"""

from __future__ import annotations

import functools

import jax
import numpy as np

from drjax.attacks.membership_scores import Release, check_candidates, pca_scores
from drjax.attacks.membership_shadows import Noise, Shadows
from drjax.core import validate
from drjax.core.linalg import eigh
from drjax.core.statistics import Moments
from drjax.core.types import Array

NOISE_DRAWS = 8
"""Draws that the variance of noise is averaged over, with d (d - 1) / 2 entries each."""


def matrix_ratio(
    key: Array, moment: np.ndarray, population: np.ndarray, candidates: np.ndarray, n_records: int, noise: Noise
) -> np.ndarray:
    """Log-likelihood ratio of a noisy second moment with a candidate in it or not; (m,), larger for members.

    As if all were Gaussian: in the eigenbasis of the population's second moment E an entry (i, j) of M varies by
    (1 + [i = j]) (s + lam_i lam_j (1 / N + 1 / P)), with s the noise off the diagonal, the rest being the sampling of
    members and population; a candidate z shifts it by z_i z_j / N. So the ratio is half the sum over i, j of

        (z_i z_j (M - E)_ij / N - (z_i z_j)^2 / 2 N^2) / (s + lam_i lam_j (1 / N + 1 / P)).

    Where the noise is large this is a matched filter, z^T (M - E) z; without noise it is the excess of the candidate's
    leverage. Noise is taken to be alike in all directions, which that of `AnalyticGauss` is. O(d^3 + m d^2).

    Args:
        key: PRNG key of the draws of noise, from which its variance is taken.
        moment: M (d, d), symmetric.
        population: (P, d) of the adversary, centred and cut as the members were.
        candidates: (m, d), prepared in the same way; none of them in the population.
        n_records: N.
        noise: Noise on a symmetric (d, d) matrix; see `drjax.attacks.membership_shadows`.

    Raises:
        ValueError: arrays that are not finite or do not match, or n_records < 1.

    Example:
        >>> import jax, numpy as np
        >>> from drjax.attacks import membership_noisy
        >>> x = np.random.default_rng(0).normal(size=(400, 8)) / 8
        >>> moment = x[:40].T @ x[:40] / 40
        >>> none = lambda key, matrix: matrix  # no noise
        >>> evidence = membership_noisy.matrix_ratio(jax.random.key(0), moment, x[80:], x[:80], 40, none)
        >>> bool(evidence[:40].mean() > evidence[40:].mean())  # the first 40 are members
        True
    """
    validate.integer(n_records=n_records)
    people = validate.matrix(population, "population", min_rows=2).astype(np.float64)
    d = people.shape[1]
    released = validate.matrix(moment, "moment", columns=d).astype(np.float64)
    if released.shape != (d, d):
        raise ValueError(f"moment must have shape ({d}, {d}), got {released.shape}")
    z = check_candidates(candidates, d, None)
    expected = people.T @ people / len(people)
    values, basis = eigh(expected)
    spread = np.maximum(values, 0)
    off = np.triu_indices(d, 1) if d > 1 else np.diag_indices(1)
    drawn = [np.asarray(noise(one, np.zeros((d, d))))[off] for one in jax.random.split(key, NOISE_DRAWS)]
    variance = float(np.mean(np.square(drawn, dtype=np.float64))) + np.outer(spread, spread) * (
        1 / n_records + 1 / len(people)
    )
    # A direction without variance or noise would decide alone, by rounding.
    weight = 1 / np.maximum(variance, np.finfo(np.float64).eps * variance.max())
    along = z @ basis
    seen = np.einsum("mi,ij,mj->m", along, weight * (basis.T @ (released - expected) @ basis), along, optimize=True)
    own = np.einsum("mi,ij,mj->m", along**2, weight, along**2, optimize=True)
    return (seen / n_records - own / (2 * n_records**2)) / 2


def shadow_errors(shadows: Shadows, release: Release, candidates: np.ndarray) -> np.ndarray:
    """How far a candidate's reconstruction error lies below those in shadows without it; (m,), larger for members.

    The paper's error of a candidate depends on the candidate more than on membership; what it would be without is
    taken from shadows, which carry the noise of the release. O(S m k d).

    Args:
        shadows: Shadow releases of as many records and with the same noise as the release.
        release: What was published; only its components are used.
        candidates: (m, d), as the members were; none of them public.

    Raises:
        ValueError: shadows or candidates that do not fit the release.

    Example:
        >>> import drjax, jax
        >>> from drjax.attacks import membership, membership_noisy
        >>> x = drjax.load("digits").x
        >>> shadows = membership.fit_shadows(jax.random.key(0), x[120:360], 60, n_shadows=4)
        >>> evidence = membership_noisy.shadow_errors(shadows, membership.release_of(x[:60], 30), x[:120])
        >>> bool(evidence[:60].mean() > evidence[60:].mean())  # the first 60 are members
        True
    """
    k = release.n_components
    validate.at_most(shadows.components.shape[1], "the shadows' components", n_components=k)
    of_shadows = (Moments.of(pca_scores(v[:k], candidates)[None]) for v in shadows.components)
    return functools.reduce(Moments.merged, of_shadows).mean - pca_scores(release.components, candidates)
