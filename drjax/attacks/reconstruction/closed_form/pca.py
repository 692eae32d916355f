"""The target of a published PCA, in closed form.

With known records K (n-1, d), centred K_c = K - mean(K), and the target's offset a = x - mean(K), the scatter of all
n records is S = K_c^T K_c + c a a^T, c = (n-1)/n. A published component with scores theta (target's first) has
eigenvalue lam = |theta|^2 and direction v, where

    w = a.v = theta_0 / c,    K_c v = theta_known + w / n,    a = (lam v - K_c^T K_c v) / (c w).

With the SVD K_c = U diag(s) V^T, u = V v = (U^T K_c v) / s gives the part of a inside the span of the known records,
z = V a = (lam - s^2) u / (c w), without any training. The part outside has a known length,
lam sqrt(1 - |u|^2) / (c |w|), and an unknown direction, for which a prior stands in. There are more equations than
unknowns; what they leave over measures the noise of the release (rounding, float32, a solver that stopped early, a
defence), by which the answer is weighted, and shows scores that were made in another way: `components`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from drjax.attacks.reconstruction.closed_form import components, factored, left_over
from drjax.attacks.reconstruction.closed_form.components import CHECKS, Measured, Scores
from drjax.attacks.reconstruction.closed_form.downdate import Decomposition, decompose
from drjax.attacks.reconstruction.closed_form.outside import expected_outside
from drjax.attacks.reconstruction.mixture_prior import MixturePrior
from drjax.attacks.reconstruction.priors import GaussianPrior, Prior
from drjax.core import validate
from drjax.core.linalg import eps_of
from drjax.core.types import Array, Reconstruction, Status
from drjax.dr.factored import FactoredCoords

DIGITS = 10_000
"""Coordinates of a release, the first ones, whose digits are looked at."""


def reconstruct_pca(
    known: Array,
    coords: Array,
    *,
    target_index: int = 0,
    prior: Prior | None = None,
    known_features: Array | None = None,
    bounds: tuple[float, float] | None = None,
    noise: float | None = None,
    is_centred: bool = True,
    span: Decomposition | None = None,
) -> Reconstruction:
    """Reconstructs the one unknown record from published PCA scores and the other n-1 records.

    Exact up to rounding where the known records span the target; elsewhere the part inside their span is exact and
    the prior predicts the rest. Signs of components do not matter. Host, float64; one SVD of the known records,
    then O(d (n + d)) per release.

    Args:
        known: (n-1, d), in the order of the release, the target's row left out.
        coords: (n, k) scores of one release, or (m, n, k) of m releases that share the known records. Factored ones
            (`shadow_embeddings(..., factored=True)`) of many records are not made but a few at a time: memory does not
            grow with m, and 2 d r k operations are enough for each release that is not rounded.
        target_index: Row of the target in coords.
        prior: Distribution expected of a record, from public data. None: the known records' mean, and their variance in
            the directions of their span; the part of the target outside it is left at zero.
        known_features: (d,) or (m, d), values of the target that the adversary already has, nan where unknown
            (attribute inference).
        bounds: Least and greatest possible value of every feature, e.g. (0, 1) for pixels.
        noise: Standard deviation of the error in the coordinates, in their units, where the adversary knows it, 0 for
            an exact PCA; where their digits and the equations show more, that counts. Without it, scores that fit no
            record to a tenth of their variance are taken for those of another method, and one component alone, which
            nothing checks, is never certified.
        is_centred: Whether the records were centred; False for truncated SVD, of which the same holds with c = 1,
            K_c = K and offsets from 0.
        span: The known records as `decompose` finds them, where the caller has them so.

    Returns:
        x (m, d); residual_norm (m,) the length of the part that the release leaves undetermined, where its noise hides
        that as much as the known records have outside each other's span; expected_mse (m,) and
        feature_mse (m, d) in view of it and of the noise. Status DEGENERATE where the release says nothing of the
        target (its scores are all zero, or those of all records), MISFIT where the known records and any one more do
        not give such scores, or their noise leaves nothing: `misfit` says why. In both cases x is the prior's mean,
        else the known records', and residual_norm nan. UNCERTIFIED for one component without `noise`. No release has a
        part in another's answer. Fields have no leading axis if coords has rank 2.

    Raises:
        ValueError: arrays not finite or of shapes that do not match, an index, bounds or noise out of range.

    Source: the eigenvector equation above, first used by drjax (docs/attacks/pca.md has the derivation).

    Example:
        >>> import drjax, jax, numpy as np
        >>> from drjax.attacks.reconstruction.closed_form import reconstruct_pca
        >>> x = np.random.default_rng(0).random((60, 8))
        >>> with jax.enable_x64(True):
        ...     coords = drjax.PCA().fit_transform(jax.random.key(0), x).coords
        >>> found = reconstruct_pca(x[1:], coords)
        >>> bool(np.abs(found.x - x[0]).max() < 1e-6)
        True
    """
    known = validate.matrix(known, "known")
    given = _given(coords, known, target_index, is_centred=is_centred)
    validate.integer(minimum=0, target_index=target_index)
    validate.at_most(len(known), "n - 1", target_index=target_index)
    if noise is not None:
        validate.non_negative(noise=noise)
    m, d = 1 if given.ndim == 2 else len(given), known.shape[1]
    lower, upper = _limits(bounds, known_features, (m, d))

    span = decompose(known, is_centred=is_centred) if span is None else span
    mean = known.mean(axis=0, dtype=np.float64)
    if not len(span.basis):
        x, nothing = np.tile(mean if prior is None else prior.mean, (m, 1)), np.full(m, np.nan)
        degenerate, each = np.full(m, np.uint32(Status.DEGENERATE)), np.full((m, d), np.nan)
        found = Reconstruction(x, None, x[:, None], nothing, degenerate, nothing, feature_mse=each)
        return found if given.ndim == 3 else _first(found)
    found, seen, others = _measured(span, given, target_index, noise, is_centred=is_centred)
    status = found.status
    is_odd = left_over.odd_row(found, seen, others, span.left, span.singular)
    is_odd |= left_over.bent(found, seen, others, span.left)
    status = np.where(is_answer(status) & is_odd, np.uint32(Status.MISFIT), status)

    usable = is_answer(status)
    x = np.tile(mean if prior is None else np.asarray(prior.mean, np.float64), (m, 1))
    squares = span.singular**2 @ span.basis**2 / len(known)
    variance = squares if is_centred else np.maximum(squares - mean**2, 0)
    each = np.tile(variance, (m, 1))
    expected = np.full(m, float(each[0].mean()))
    if usable.any():
        alone = GaussianPrior.along(mean, span.basis, found.expected[0])
        chosen = alone if prior is None else prior
        low, high = (None if limit is None else limit[usable] for limit in (lower, upper))
        variance = alike(found, span.singular, len(known) + 1, given.shape[-1])[usable]
        values = found.z[usable] + span.basis @ span.mean
        inside = chosen.condition(span.basis, values, variance, lower=low, upper=high)
        x[usable] = shortened(inside, span.mean, span.basis, found.longest[usable])
        if low is not None and high is not None:
            x[usable] = np.clip(x[usable], low, high)
        offset = x[usable] - span.mean
        predicted = (offset**2).sum(axis=1) - ((offset @ span.basis.T) ** 2).sum(axis=1)
        across = _as_gaussian(chosen, alone).left_open(span.basis, np.zeros(len(span.basis)))
        left_open = _missed(np.sqrt(np.maximum(predicted, 0)), found.outside[usable], across)
        expected[usable] = (found.error[usable] + left_open) / d
        # No direction inside tells of another; what is left open outside is shared as the prior has it.
        inside = (found.share * found.variance)[usable] @ span.basis**2
        each[usable] = inside + left_open[:, None] * across / max(float(across.sum()), np.finfo(np.float64).tiny)
        if lower is not None and upper is not None:
            each[usable] = np.where((lower == upper)[usable], 0, each[usable])
    residual = np.where(usable, found.outside, np.nan)
    result = Reconstruction(x, None, x[:, None], residual, status, expected, feature_mse=each)
    return result if given.ndim == 3 else _first(result)


def misfit(
    known: Array, coords: Array, *, target_index: int = 0, noise: float | None = None, is_centred: bool = True
) -> list[str]:
    """Why the scores of one release (n, k) are not those of PCA of the known records and one more, worst first.

    Empty where they can be. Arguments and errors as of `reconstruct_pca`.

    Example:
        >>> import drjax, numpy as np
        >>> from drjax.attacks.reconstruction.closed_form import misfit
        >>> x = np.random.default_rng(0).random((60, 8))
        >>> coords = drjax.embed(x)
        >>> misfit(x[1:], coords), len(misfit(x[1:], coords[::-1])) > 0  # rows in another order
        ([], True)
    """
    known = validate.matrix(known, "known")
    given = np.asarray(coords)
    check_coords(given, len(known) + 1)
    span = decompose(known, is_centred=is_centred)
    if given.ndim != 2 or not len(span.basis):
        raise ValueError(f"coords must be one release of records that differ, got shape {given.shape}")
    found, seen, others = _measured(span, given, target_index, noise, is_centred=is_centred)
    levels = {name: float(level[0]) for name, level in found.levels.items()}
    worst = max(levels.values())
    # Each check alone gives a lower bound of the noise; one that is a hundredth of another says nothing beside it.
    failed = [name for name in sorted(levels, key=lambda n: -levels[n]) if levels[name] > 0.1 * worst]
    if left_over.odd_row(found, seen, others, span.left, span.singular)[0]:
        failed.insert(0, "row")
    elif left_over.bent(found, seen, others, span.left)[0]:
        failed.insert(0, "bend")
    elif found.status[0] != Status.MISFIT:
        return []
    return [CHECKS[name] for name in failed]


def is_answer(status: np.ndarray) -> np.ndarray:
    """Where the release says something of the target; elsewhere one can but guess."""
    return (status & np.uint32(Status.DEGENERATE | Status.MISFIT)) == 0


def noise_of(
    known: Array, coords: Array, *, is_centred: bool = True, span: Decomposition | None = None
) -> float | None:
    """Noise of a score in releases (m, n, k) known to be of PCA, target in row 0, such as shadows under a defence.

    The median over releases of what the checks show; 0 where the digits say it all, None without known records that
    differ. What `reconstruct_pca` takes for `noise` where the adversary knows how such releases come about, and `span`
    as for it.

    Example:
        >>> import drjax, numpy as np
        >>> from drjax.attacks.reconstruction.closed_form import noise_of
        >>> x = np.random.default_rng(0).random((60, 8))
        >>> coords = drjax.embed(x)
        >>> coords = coords + 0.01 * np.random.default_rng(1).normal(size=coords.shape)
        >>> round(noise_of(x[1:], coords[None]), 2)
        0.01
    """
    known = validate.matrix(known, "known")
    given = _given(coords, known, 0, is_centred=is_centred)
    span = decompose(known, is_centred=is_centred) if span is None else span
    if not len(span.basis):
        return None
    found, seen, _ = _measured(span, given, 0, None, is_centred=is_centred)
    level = float(np.median(found.level))
    return level if level > 10 * float(np.median(seen.floor)) else 0.0


def _as_gaussian(prior: Prior, otherwise: GaussianPrior) -> GaussianPrior:
    """The Gaussian of a prior's mean and covariance; another one of a prior that tells none."""
    if isinstance(prior, MixturePrior):
        return GaussianPrior(prior.mean, prior.covariance, scale=prior.components[0].scale)
    return prior if isinstance(prior, GaussianPrior) else otherwise


def _missed(predicted: np.ndarray, length: np.ndarray, across: np.ndarray) -> np.ndarray:
    """Squared errors (m,) to expect outside the span, of predictions and truths of these lengths (m,).

    The angle between the two is that of a prediction which leaves the variances `across` (d,) open: truth and
    prediction differ by those where the truth is as long as expected.
    """
    cosine = predicted / np.sqrt(np.maximum(predicted**2 + across.sum(), np.finfo(np.float64).tiny))
    return np.maximum(length**2 + predicted**2 - 2 * length * predicted * cosine, 0)


def _first(found: Reconstruction) -> Reconstruction:
    """The fields of the one release without their leading axis."""
    assert found.expected_mse is not None
    assert found.feature_mse is not None
    single = found.residual_norm[0], found.status[0], found.expected_mse[0]
    return Reconstruction(found.x[0], None, found.x, *single, feature_mse=found.feature_mse[0])


def _given(coords: Any, known: np.ndarray, target_index: int, *, is_centred: bool) -> np.ndarray | FactoredCoords:
    """Checked releases, as factors of the known records where they are such."""
    if factored.reads(coords, known, target_index, is_centred=is_centred):
        return factored.check(coords, len(known) + 1)
    given = np.asarray(coords)
    check_coords(given, len(known) + 1)
    return given


def _measured(
    span: Decomposition,
    given: np.ndarray | FactoredCoords,
    target_index: int,
    noise: float | None,
    *,
    is_centred: bool,
) -> tuple[Measured, Scores, left_over.Others]:
    """What m releases (m, n, k) say, their scores as the checks need them, and what gives those of the known ones."""
    n, d = given.shape[-2], span.basis.shape[1]
    expects = {"unseen": expected_outside(span, is_centred=is_centred), "is_stated": noise is not None}
    if isinstance(given, FactoredCoords):
        seen = factored.sums(given, span, is_centred=is_centred)
        digits = noise_floor(factored.heads(given, -(-DIGITS // given.shape[2])), seen.eigenvalue)
        seen = seen._replace(digits=digits, floor=np.maximum(digits, noise or 0.0))
        found = components.measure(seen, span.singular, n, d, **expects)
        return found, seen, lambda lanes: given[lanes, 1:].astype(np.float64)
    scores = given[None].astype(np.float64) if given.ndim == 2 else given.astype(np.float64)
    target = scores[:, target_index]
    others = np.delete(scores, target_index, axis=1)
    eigenvalue = target**2 + (others**2).sum(axis=1)
    centred = others - others.mean(axis=1, keepdims=True) if is_centred else others
    m, _, k = centred.shape
    along = (span.left.T @ centred.transpose(1, 0, 2).reshape(-1, m * k)).T.reshape(m, k, -1)
    beyond = ((centred - left_over.explained(span.left, along)) ** 2).sum(axis=(1, 2))
    digits = noise_floor(given[None] if given.ndim == 2 else given, eigenvalue)
    floor = np.maximum(digits, noise or 0.0)
    total, weight = (scores.sum(axis=1), (n - 1) / n) if is_centred else (np.zeros_like(target), 1.0)
    seen = Scores(target, eigenvalue, along, total, beyond, floor, digits, eps_of(given.dtype), weight)
    found = components.measure(seen, span.singular, n, d, **expects)
    return found, seen, lambda lanes: others[lanes]


def alike(found: Measured, singular: np.ndarray, n: int, k: int) -> np.ndarray:
    """Variances (m, r) of z replaced by those of few patterns, so that lanes share factorisations.

    Each lane's own variances alone decide on its pattern: that of a record like the known ones, times a power of 4, and
    another power of 4 in a direction of which far less is known, or far more.
    """
    leading = singular[: min(k, len(singular))]
    lam, own = leading[:, None] ** 2 * (1 + 1 / n), leading[:, None] ** 2 / n
    is_itself = np.arange(len(leading))[:, None] == np.arange(len(singular))
    per_noise = ((lam - singular**2) / singular) ** 2 + 4 * lam * is_itself + singular**2 / n
    pattern = 1 / ((own / per_noise).sum(axis=0) + is_itself.any(axis=0))
    ratio = np.maximum(np.median(found.variance / pattern, axis=1), 1e-300)
    shared = _power_of_4(ratio)[:, None] * pattern
    more = found.variance / shared
    return shared * np.where((more > 16) | (more < 1 / 64), _power_of_4(np.maximum(more, 1e-300)), 1)


def _power_of_4(x: np.ndarray) -> np.ndarray:
    """The next one above x > 0."""
    return 4.0 ** np.ceil(np.log(x) / np.log(4))


def shortened(x: np.ndarray, mean: np.ndarray, basis: np.ndarray, length: np.ndarray) -> np.ndarray:
    """Records x (m, d) whose part outside the basis is at most as long as it is known to be (m,).

    A record in the span of the known ones has length 0 there, and what the prior expects must not spoil it.
    """
    offset = x - mean
    outside = offset - (offset @ basis.T) @ basis
    predicted = np.linalg.norm(outside, axis=1)
    excess = 1 - np.minimum(length, predicted) / np.maximum(predicted, np.finfo(np.float64).tiny)
    return x - excess[:, None] * outside


def noise_floor(releases: Iterable[np.ndarray], eigenvalue: np.ndarray) -> np.ndarray:
    """(m,): least error of the coordinates of each of m releases (n, k), from its digits and those of float64."""
    computed = components.EPS * np.sqrt(eigenvalue.max(axis=1))
    return np.maximum([detect_noise(release) for release in releases], computed)


def detect_noise(coords: np.ndarray) -> float:
    """Least error of published coordinates: their decimals if they were rounded, else that of their dtype."""
    sample = np.asarray(coords, np.float64).ravel()[:DIGITS]
    largest = float(np.abs(sample).max(initial=0.0))
    floor = eps_of(coords.dtype) * largest
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
