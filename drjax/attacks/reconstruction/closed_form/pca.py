"""The target of a published PCA, in closed form.

With known records K (n-1, d), centred K_c = K - mean(K), and the target's offset a = x - mean(K), the scatter of all
n records is S = K_c^T K_c + c a a^T, c = (n-1)/n. A published component with scores theta (target's first) has
eigenvalue lam = |theta|^2 and direction v, where

    w = a.v = theta_0 / c,    K_c v = theta_known + w / n,    a = (lam v - K_c^T K_c v) / (c w).

With the SVD K_c = U diag(s) V^T, u = V v = (U^T K_c v) / s gives the part of a inside the span of the known records,
z = V a = (lam - s^2) u / (c w), without any training. The part outside has a known length,
lam sqrt(1 - |u|^2) / (c |w|), and an unknown direction, for which a prior stands in. Every component gives the same z,
so their disagreement measures the noise of the release (rounding, float32, a solver that stopped early, a defence), by
which they are weighted.
"""

from __future__ import annotations

import numpy as np

from drjax.attacks.reconstruction.priors import GaussianPrior, Prior
from drjax.core import validate
from drjax.core.types import Array, Reconstruction, Status


def reconstruct_pca(
    known: Array,
    coords: Array,
    *,
    target_index: int = 0,
    prior: Prior | None = None,
    known_features: Array | None = None,
    bounds: tuple[float, float] | None = None,
    noise: float | None = None,
) -> Reconstruction:
    """Reconstructs the one unknown record from published PCA scores and the other n-1 records.

    Exact up to rounding where the known records span the target; elsewhere the part inside their span is exact and
    the prior predicts the rest. Signs of components do not matter. Host, float64; one SVD of the known records,
    then O(d (n + d)) per release.

    Args:
        known: (n-1, d), in the order of the release, the target's row left out.
        coords: (n, k) scores of one release, or (m, n, k) of m releases that share the known records.
        target_index: Row of the target in coords.
        prior: What is expected of a record, from public data. None: nothing; the part of the target outside the
            span of the known records is left at zero.
        known_features: (d,) or (m, d), values of the target that the adversary already has, nan where unknown
            (attribute inference).
        bounds: Least and greatest possible value of every feature, e.g. (0, 1) for pixels.
        noise: Standard deviation of the error in the coordinates, in their units; estimated if None.

    Returns:
        x (m, d); residual_norm (m,) the length of the part that the release leaves undetermined; status DEGENERATE
        where the release says nothing of the target (its scores are all zero, or those of all records). Fields have no
        leading axis if coords has rank 2.

    Raises:
        ValueError: arrays not finite or of shapes that do not match, an index, bounds or noise out of range.

    Source: the eigenvector equation above, first used by drjax (docs/attacks.md has the derivation).
    """
    known = validate.matrix(known, "known").astype(np.float64)
    given = np.asarray(coords)
    scores = check_coords(given, len(known) + 1)
    validate.integer(minimum=0, target_index=target_index)
    validate.at_most(len(known), "n - 1", target_index=target_index)
    if noise is not None:
        validate.non_negative(noise=noise)
    m, d = len(scores), known.shape[1]
    lower, upper = _limits(bounds, known_features, (m, d))

    mean = known.mean(axis=0)
    left, singular, basis = np.linalg.svd(known - mean, full_matrices=False)
    rank = max(1, int((singular > np.finfo(np.float64).eps * max(known.shape) * singular[0]).sum()))
    left, singular, basis = left[:, :rank], singular[:rank], basis[:rank]

    target = scores[:, target_index]
    others = np.delete(scores, target_index, axis=1)
    if noise is None:
        noise = detect_noise(given)
    z, variance, residual, longest, status = _inside_span(target, others, left, singular, noise)

    usable = status == 0
    x = np.tile(mean if prior is None else np.asarray(prior.mean), (m, 1))
    if usable.any():
        chosen = GaussianPrior.isotropic(mean) if prior is None else prior
        x[usable] = chosen.condition(
            basis,
            z[usable] + basis @ mean,
            variance[usable],
            lower=None if lower is None else lower[usable],
            upper=None if upper is None else upper[usable],
        )
        if prior is not None:
            x[usable] = shortened(x[usable], mean, basis, longest[usable])
            if lower is not None and upper is not None:
                x[usable] = np.clip(x[usable], lower[usable], upper[usable])
    if given.ndim == 2:
        return Reconstruction(x[0], None, x, residual[0], status[0])
    return Reconstruction(x, None, x[:, None], residual, status)


def _inside_span(
    target: np.ndarray, others: np.ndarray, left: np.ndarray, singular: np.ndarray, noise: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """The target's offset in the span of the known records, with its variance.

    Args:
        target: (m, k) scores of the target.
        others: (m, n-1, k) scores of the known records.
        left: (n-1, r), singular: (r,) of the centred known records.
        noise: Least standard deviation of a score's error.

    Returns:
        z (m, r); variance (m, r); length of the offset outside the span (m,); the longest it may be in view of the
        noise (m,); status (m,).
    """
    eigenvalue = target**2 + (others**2).sum(axis=1)
    n = others.shape[1] + 1
    # left.sum(axis=0) is 0 but for rounding.
    shifts = target[..., None] / (n - 1) * left.sum(axis=0)
    along = np.einsum("nr,mnk->mkr", left, others) + shifts
    return inside_span(target, eigenvalue, along, singular, n, noise)


def inside_span(
    target: np.ndarray, eigenvalue: np.ndarray, along: np.ndarray, singular: np.ndarray, n: int, noise: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """`_inside_span` from U^T K_c v, `along` (m, k, r), and the scatter's eigenvalues (m, k) for n records."""
    c = (n - 1) / n
    eigenvalue = eigenvalue[..., None]  # (m, k, 1)
    # Below the noise a score is no measurement; a released rank smaller than k gives all-zero columns.
    measured = (np.abs(target) > 2 * noise) & (eigenvalue[..., 0] > 0)
    w = np.where(measured, target, 1.0)[..., None] / c
    u = along / np.maximum(singular, 1e-300)
    amplification = np.abs(eigenvalue - singular**2) / (c * np.abs(w))
    z = (eigenvalue - singular**2) * u / (c * w)
    # The error of u, divided by s, and that of the target's own score, which scales all of z.
    per_noise = (amplification / singular) ** 2 + (z / (c * w)) ** 2
    weight = np.where(measured[..., None], 1 / np.maximum(per_noise, 1e-300), 0)
    total = weight.sum(axis=1)
    usable = np.any(measured, axis=1)
    total = np.where(usable[:, None], total, 1.0)
    combined = (weight * z).sum(axis=1) / total
    level = max(noise, _disagreement(z, per_noise, measured))
    outside = np.maximum(1 - (u**2).sum(axis=-1), 0)
    # Noise of standard deviation level / s in each u shortens or lengthens the rest of a unit vector by so much.
    doubt = 3 * level * np.sqrt(((2 * u / singular) ** 2).sum(axis=-1)) + (level / singular**2 * level).sum()
    # Of several estimates of one length, that of the largest score is the least noisy.
    best = np.where(measured, np.abs(target), -1).argmax(axis=1)[:, None]
    residual, longest = (
        np.where(usable, np.take_along_axis(length / (c * np.abs(w[..., 0])), best, axis=1)[:, 0], np.nan)
        for length in (eigenvalue[..., 0] * np.sqrt(outside), eigenvalue[..., 0] * np.sqrt(outside + doubt))
    )
    status = np.where(usable, np.uint32(Status.OK), np.uint32(Status.DEGENERATE))
    return combined, level**2 / total, residual, longest, status


def shortened(x: np.ndarray, mean: np.ndarray, basis: np.ndarray, length: np.ndarray) -> np.ndarray:
    """Records x (m, d) whose part outside the basis is at most as long as it is known to be (m,).

    A record in the span of the known ones has length 0 there, and what the prior expects must not spoil it.
    """
    offset = x - mean
    outside = offset - (offset @ basis.T) @ basis
    predicted = np.linalg.norm(outside, axis=1)
    excess = 1 - np.minimum(length, predicted) / np.maximum(predicted, np.finfo(np.float64).tiny)
    return x - excess[:, None] * outside


def _disagreement(z: np.ndarray, per_noise: np.ndarray, measured: np.ndarray) -> float:
    """Noise of the scores from how far two components disagree about the same z; 0 if there is only one.

    The median over all directions and releases, scaled as for a normal distribution, so that a few bad lanes do not
    decide.
    """
    both = measured[:, :1] & measured[:, 1:2]
    if z.shape[1] < 2 or not both.any():
        return 0.0
    difference = np.abs(z[:, 0] - z[:, 1]) / np.sqrt(per_noise[:, 0] + per_noise[:, 1])
    return float(np.median(difference[both[:, 0]])) / 0.6745


def detect_noise(coords: np.ndarray) -> float:
    """Least error of published coordinates: their decimals if they were rounded, else that of their dtype."""
    sample = np.asarray(coords, np.float64).ravel()[:10_000]
    largest = float(np.abs(sample).max(initial=0.0))
    dtype = coords.dtype if coords.dtype.kind == "f" else np.dtype(np.float64)
    floor = float(np.finfo(dtype).eps) * largest
    for decimals in range(7):
        if np.abs(sample - np.round(sample, decimals)).max(initial=0.0) <= floor:
            return max(floor, 10.0**-decimals / np.sqrt(12))
    return floor


def check_coords(coords: np.ndarray, n: int) -> np.ndarray:
    """Scores of releases of n records in float64, (m, n, k); m is 1 for coords of rank 2."""
    if coords.ndim not in (2, 3) or 0 in coords.shape or coords.shape[-2] != n:
        raise ValueError(
            f"coords must have shape ({n}, k) or (m, {n}, k) for {n - 1} known records, got {coords.shape}"
        )
    if coords.dtype.kind not in "fiu":
        raise ValueError(f"coords must be numeric, got dtype {coords.dtype}")
    validate.finite(coords=coords)
    scores = coords.astype(np.float64)
    return scores[None] if coords.ndim == 2 else scores


def _limits(
    bounds: tuple[float, float] | None, known_features: Array | None, shape: tuple[int, int]
) -> tuple[np.ndarray | None, np.ndarray | None]:
    """Bounds of every feature of every target, (m, d) each, or None if there are none."""
    if bounds is None and known_features is None:
        return None, None
    low, high = (-np.inf, np.inf) if bounds is None else bounds
    if not low < high:
        raise ValueError(f"bounds must be (least, greatest), got {bounds}")
    lower, upper = np.full(shape, float(low)), np.full(shape, float(high))
    if known_features is not None:
        features = np.asarray(known_features, np.float64)
        if features.shape not in (shape, shape[1:]):
            raise ValueError(f"known_features must have shape {shape[1:]} or {shape}, got {features.shape}")
        features = np.broadcast_to(features, shape)
        if np.isinf(features).any():
            raise ValueError("known_features must be finite or nan (unknown), got an infinity")
        is_known = ~np.isnan(features)
        lower[is_known] = upper[is_known] = features[is_known]
    return lower, upper
