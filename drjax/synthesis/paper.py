"""PCA-Gauss and RON-Gauss as published, to be compared with: most of what they claim does not hold.

Both centre records by their own mean, or divide by the numbers of records of classes, which nobody has paid for, and
say of the result that it is private. What is proven of each is in the guarantee that its function returns.
"""

from __future__ import annotations

import math
import warnings
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from drjax.bounds import tradeoff
from drjax.bounds.accounting import Guarantee
from drjax.core.linalg import HIGHEST
from drjax.core.types import Array
from drjax.defenses.dp_pca import AnalyzeGauss, LapPCA
from drjax.synthesis import moments, sensitivity
from drjax.synthesis.contract import NotPrivateWarning
from drjax.synthesis.gaussian_model import Mixture, repaired_factor


class PaperFit(NamedTuple):
    """A model of components (n, p), and what is proven of it."""

    components: Any
    mixture: Mixture
    guarantee: Guarantee


def nothing(neighbouring: str, why: str) -> Guarantee:
    """No privacy, with a warning that says why.

    Warns:
        NotPrivateWarning: always.
    """
    warnings.warn(f"no guarantee of privacy: {why}", NotPrivateWarning, stacklevel=4)
    curve = tradeoff.EpsilonDelta(0.0, 1.0, neighbouring=neighbouring)
    return Guarantee(curve, curve, f"nothing: {why}")


def pure(neighbouring: str, epsilon: float, claimed: float, why: str, delta: float = 0.0) -> Guarantee:
    """(epsilon, delta), with a warning where that is more than what is claimed.

    Warns:
        NotPrivateWarning: epsilon is larger than the claim.
    """
    if epsilon > claimed * (1 + 1e-9):
        warnings.warn(f"epsilon is {epsilon:.4g} and not {claimed:.4g}: {why}", NotPrivateWarning, stacklevel=4)
    curve = tradeoff.EpsilonDelta(epsilon * (1 + 1e-12), delta, neighbouring=neighbouring)
    return Guarantee(curve, curve, f"({epsilon:.6g}, {delta:g}) where the paper says {claimed:g}: {why}")


def iid_laplace(key: Array, value: Any, scale: Any) -> jax.Array:
    """Independent Laplace noise on every entry of square matrices (..., q, q), then their symmetric part.

    The papers sample from the matrix before that, which is the covariance of nothing.
    """
    noisy = value + scale * jax.random.laplace(key, value.shape, value.dtype)
    return (noisy + jnp.swapaxes(noisy, -1, -2)) / 2


def private_pca(
    key: Array, u: Any, n_components: int, epsilon: float, delta: float, neighbouring: str
) -> tuple[Any, float, float]:
    """Lap-PCA where delta is 0, else AG-PCA with the paper's noise; components (p, m) and what it really costs."""
    m = u.shape[1]
    fields: dict[str, Any] = {"neighbouring": neighbouring, "n_components": n_components}
    if neighbouring == "add_or_remove":
        fields["divisor"] = float(u.shape[0])
    if delta == 0:
        mechanism = LapPCA(epsilon=epsilon, lower=[-1.0] * m, upper=[1.0] * m, **fields)
        return mechanism.fit(key, u).components, epsilon, 0.0
    multiplier = math.sqrt(2 * math.log(1.25 / delta)) / epsilon
    mechanism = AnalyzeGauss(noise_multiplier=multiplier, row_norm=math.sqrt(m), **fields)
    return mechanism.fit(key, u).components, mechanism.guarantee().epsilon(delta), delta


def pca_gauss_mixture(
    key: Array, z: Any, group: Any, label: Any, n_classes: int | None, epsilons: tuple[float, float]
) -> Mixture:
    """Algorithms 2 and 3 on components z (n, p), with the noise of the authors' code.

    Args:
        key: PRNG key of the noise.
        z: Components over sqrt(m).
        group: (n,) classes; algorithm 3 with `n_classes`.
        label: (n,) in [-1, 1], or None; algorithm 2.
        n_classes: Or None.
        epsilons: Epsilons of means and of covariances; algorithm 2 spends both on the covariance.
    """
    n, p = z.shape
    mean_key, covariance_key = jax.random.split(key)
    if n_classes is None:
        rows = z if label is None else jnp.concatenate([z, label[:, None]], axis=1)
        covariance = jnp.matmul(rows.T, rows, precision=HIGHEST) / n
        unit = sensitivity.paper_covariance(p, n) if label is None else sensitivity.paper_supervised(p, n)
        noisy = iid_laplace(covariance_key, covariance[None], unit / sum(epsilons))
        return Mixture(jnp.ones(1, z.dtype), jnp.zeros((1, rows.shape[1]), z.dtype), repaired_factor(noisy, 0.0))
    one_hot = (group[:, None] == jnp.arange(n_classes)).astype(z.dtype)
    counts = jnp.maximum(jnp.sum(one_hot, axis=0), 1)
    means = jnp.matmul(one_hot.T, z, precision=HIGHEST) / counts[:, None]
    second = moments.grouped_gram(z, jnp.ones(n, z.dtype), group, n_classes) / counts[:, None, None]
    covariances = second - means[:, :, None] * means[:, None, :]
    mean_scale = 2 * p / (counts * epsilons[0])
    noisy_means = means + mean_scale[:, None] * jax.random.laplace(mean_key, means.shape, z.dtype)
    noisy = iid_laplace(covariance_key, covariances, (p**2 / (counts * epsilons[1]))[:, None, None])
    return Mixture(counts / jnp.sum(counts), noisy_means, repaired_factor(noisy, 0.0))


def ron_gauss_mixture(
    key: Array,
    v: Any,
    components: Any,
    group: Any,
    label: Any,
    n_classes: int | None,
    epsilons: tuple[float, float],
) -> tuple[Mixture, Any]:
    """RON-Gauss's three algorithms on records v (n, m) of norm 1, with the noise of the authors' code.

    Args:
        key: PRNG key of the noise.
        v: Records over their norms.
        components: (p, m), random orthonormal rows.
        group: (n,) classes, each with a mean of its own where `n_classes` is given.
        label: (n,) in [-1, 1], or None.
        n_classes: Or None.
        epsilons: Epsilons of means and of covariances.

    Returns:
        Gaussians in p dimensions, or p + 1 with a label; those of classes about their projected means, others about 0,
        and the centre (m,) that they are about.
    """
    (n, m), p = v.shape, components.shape[0]
    mean_key, covariance_key = jax.random.split(key)
    one_hot = (group[:, None] == jnp.arange(n_classes or 1)).astype(v.dtype)
    counts = jnp.maximum(jnp.sum(one_hot, axis=0), 1)
    means = jnp.matmul(one_hot.T, v, precision=HIGHEST) / counts[:, None]
    scale = math.sqrt(m) / (counts * epsilons[0])
    noisy_means = means + scale[:, None] * jax.random.laplace(mean_key, means.shape, v.dtype)
    own = jnp.matmul(one_hot, noisy_means, precision=HIGHEST)
    z = jnp.matmul(moments.on_sphere(v - own), components.T, precision=HIGHEST)
    rows = z if label is None else jnp.concatenate([z, label[:, None]], axis=1)
    grams = moments.grouped_gram(rows, jnp.ones(n, v.dtype), group, n_classes or 1)
    unit = 2 * math.sqrt(p) if label is None else sensitivity.ron_gauss_supervised(p, 1)
    noisy = iid_laplace(covariance_key, grams / counts[:, None, None], (unit / (counts * epsilons[1]))[:, None, None])
    factors = repaired_factor(noisy, 0.0)
    if n_classes is None:
        zeros = jnp.zeros((1, rows.shape[1]), v.dtype)
        return Mixture(jnp.ones(1, v.dtype), zeros, factors), noisy_means[0]
    projected = jnp.matmul(noisy_means, components.T, precision=HIGHEST)
    return Mixture(counts / jnp.sum(counts), projected, factors), jnp.zeros(m, v.dtype)
