"""Several unknown records of one published PCA: exact up to as many as components, then a conditional mean.

Let U be the unknown records' rows of the release and P the known ones', theta their scores, lam_c = |theta_c|^2. With
C = U_P diag(s) V^T the known records and X the unknown ones, both less the known records' mean, a component is

    lam_c v_c = C^T theta_Pc + X^T theta_Uc          (the scores of all records sum to 0),
    C v_c = theta_Pc - mean(theta_Pc).

The second line gives a_c = V v_c = U_P^T theta_Pc / s; with it the first reads (lam_c - s^2) a_c = (V X^T) theta_Uc,
which is k equations in each direction of the known records' span for as many unknowns as there are unknown records. Up
to k of them are determined there, whatever the prior. Beyond k, the release says k combinations of them, and of each
its own k scores.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import scipy.linalg

from drjax.attacks.reconstruction.closed_form.components import DEVIATIONS, FEW, cannot_be, lone_levels
from drjax.attacks.reconstruction.closed_form.downdate import Decomposition, decompose
from drjax.attacks.reconstruction.closed_form.each import checked_rows
from drjax.attacks.reconstruction.closed_form.pca import check_coords, noise_floor
from drjax.attacks.reconstruction.priors import GaussianPrior
from drjax.core import validate
from drjax.core.streamed import Matrix
from drjax.core.types import Array, Reconstruction, Status


def reconstruct_pca_many(
    known: Array,
    coords: Array,
    *,
    unknown: Sequence[int] | Array,
    n_wanted: int | None = None,
    prior: GaussianPrior | None = None,
    bounds: tuple[float, float] | None = None,
    noise: float | None = None,
) -> Reconstruction:
    """Reconstructs u unknown records from published PCA scores of all n and the p = n - u other records.

    For u <= k the part inside the known records' span is exact up to rounding and the prior predicts the rest, as in
    `reconstruct_pca` (which also has the length of the rest). For u > k it is the conditional mean given the release
    if the unknown records are independent draws from the prior; directions of the components outside the span count
    as noise. Host, float64; one SVD of the known records, then per release O(u k (p + d)) and one conditioning.

    Args:
        known: (p, d), p >= 2, in the order of the release, the unknown rows left out.
        coords: (n, k) scores of one release, or (m, n, k) of m releases that share the known records.
        unknown: (u,) rows of the release whose records are not known.
        n_wanted: Reconstruct only the first so many of `unknown`; all if None.
        prior: Distribution expected of a record. None: the known records' mean and their variance in every direction.
        bounds: Least and greatest possible value of every feature.
        noise: Noise of the release, as for `reconstruct_pca`.

    Returns:
        x (m, w, d) for w wanted records; residual_norm (m, w) is nan; status (m, w) DEGENERATE where the scores of the
        unknown records do not tell them apart, MISFIT where they cannot be those of PCA (`components`), with the
        prior's mean for x. Fields have no leading axis m if coords has rank 2.

    Raises:
        ValueError: arrays not finite or of shapes that do not match, or rows, bounds or noise out of range.

    Source: the equations above, drjax's own (docs/adversaries/derivations.md).

    Example:
        >>> import drjax, numpy as np
        >>> from drjax.attacks.reconstruction.closed_form import reconstruct_pca_many
        >>> x = np.random.default_rng(0).random((60, 8))
        >>> found = reconstruct_pca_many(x[2:], drjax.embed(x, dtype="float64"), unknown=[0, 1])
        >>> found.x.shape, bool(np.abs(found.x - x[:2]).max() < 1e-6)  # two unknown records by two components
        ((2, 8), True)
    """
    known = validate.matrix(known, "known", min_rows=2).astype(np.float64)
    given = np.asarray(coords)
    n = given.shape[-2] if given.ndim >= 2 else 0
    scores = check_coords(given, n)
    rows = checked_rows(unknown, n)
    if len(np.unique(rows)) < len(rows) or len(known) + len(rows) != n:
        raise ValueError(
            f"unknown must be {n - len(known)} different rows for {len(known)} known records and {n} in coords, "
            f"got {len(rows)}"
        )
    wanted = len(rows) if n_wanted is None else n_wanted
    validate.integer(n_wanted=wanted)
    validate.at_most(len(rows), "the unknown rows", n_wanted=wanted)
    if bounds is not None and not bounds[0] < bounds[1]:
        raise ValueError(f"bounds must be (least, greatest), got {bounds}")
    if noise is not None:
        validate.non_negative(noise=noise)
    floors = np.maximum(noise_floor(given.reshape(scores.shape), (scores**2).sum(axis=1)), noise or 0.0)
    span = decompose(known)
    if prior is None:
        prior = GaussianPrior.along(span.mean, span.basis, span.singular**2 / len(known))

    m, r = len(scores), len(span.basis)
    x = np.tile(prior.mean, (m, wanted, 1))
    status = np.full((m, wanted), np.uint32(Status.DEGENERATE))
    z, variance, is_exact = np.zeros((m, wanted, r)), np.zeros((m, wanted, r)), np.zeros(m, bool)
    for lane, (release, floor) in enumerate(zip(scores, floors, strict=True)):
        # A component without variance, of a released rank smaller than k, says nothing.
        release = release[:, (release**2).sum(axis=0) > 4 * floor**2 * n]
        if not r or not release.shape[1]:
            continue
        equations = _equations(release, rows, span.left, span.singular)
        levels = _levels(release, equations, rows, span, known.shape[1])
        level = max(floor, *levels.values())
        steady = levels["span"] if len(known) - 1 - r >= FEW else level
        largest = float((release**2).sum(axis=0).max()) / n
        if _is_misfit(1.0, level, steady, floor, largest):
            status[lane] = np.uint32(Status.MISFIT)
        elif len(rows) <= release.shape[1]:
            inside = _few(equations, wanted, level)
            if inside is None:
                continue
            z[lane], variance[lane], level = inside
            # A mean over all that more unknown records leave open has nothing to be compared with; this has.
            expected = span.singular**2 / (len(known) - 1)
            gain = float((expected**2 / (expected + variance[lane])).sum(axis=1).min() / expected.sum())
            is_exact[lane] = not _is_misfit(gain, level, steady, floor, largest)
            status[lane] = np.uint32(Status.OK if is_exact[lane] else Status.MISFIT)
        else:
            records = _many(equations, wanted, span.mean, span.basis, prior, level)
            if records is not None:
                status[lane] = np.uint32(Status.OK)
                x[lane] = records if bounds is None else np.clip(records, *bounds)
    if is_exact.any():
        low, high = (None, None) if bounds is None else bounds
        values = (z[is_exact] + span.basis @ span.mean).reshape(-1, r)
        found = prior.condition(span.basis, values, variance[is_exact].reshape(-1, r), lower=low, upper=high)
        x[is_exact] = found.reshape(-1, wanted, known.shape[1])
    residual = np.full(status.shape, np.nan)
    if given.ndim == 2:
        return Reconstruction(x[0], None, x[0][:, None], residual[0], status[0])
    return Reconstruction(x, None, x[:, :, None], residual, status)


def _is_misfit(*figures: float) -> bool:
    return bool(cannot_be(*(np.asarray(figure) for figure in figures)))


class _Equations(NamedTuple):
    """What one release says: theta_U^T z_j = right_j in every direction j, z_j (u,) the unknown offsets along it.

    Attributes:
        theta: (u, k), scores of the unknown records.
        inside: (k, r), a_c: the components inside the span.
        right: (k, r), (lam - s^2) a.
        per_noise: (k, r), variance of `right` for scores with errors of variance 1.
        shift: (k,), mean of the known records' scores.
    """

    theta: np.ndarray
    inside: np.ndarray
    right: np.ndarray
    per_noise: np.ndarray
    shift: np.ndarray


def _equations(release: np.ndarray, rows: np.ndarray, left: Matrix, singular: np.ndarray) -> _Equations:
    of_known = np.delete(release, rows, axis=0)
    eigenvalue = (release**2).sum(axis=0)[:, None]
    inside = (left.T @ of_known).T / singular
    factor = eigenvalue - singular**2
    per_noise = (factor / singular) ** 2 + 4 * eigenvalue * inside**2
    return _Equations(release[rows], inside, factor * inside, per_noise, of_known.mean(axis=0))


def _levels(
    release: np.ndarray, equations: _Equations, rows: np.ndarray, span: Decomposition, d: int
) -> dict[str, float]:
    """Noise of a score that each check of the components shows, the unknown records aside."""
    known = np.delete(release, rows, axis=0)
    centred = known - known.mean(axis=0)
    beyond = ((centred - span.left @ (span.left.T @ centred)) ** 2).sum()
    found = lone_levels(
        equations.inside[None], release.sum(axis=0)[None], beyond[None], span.singular, len(release), len(known), d
    )
    levels = {name: float(level[0]) for name, level in found.items()}
    if release.shape[1] <= len(rows):
        # Nothing else says that the components are as long as they should be: more records only add to the variance.
        lam = np.sort((release**2).sum(axis=0))[::-1]
        least = span.singular[: len(lam)] ** 2
        short = np.maximum(least - lam[: len(least)], 0) / (2 * DEVIATIONS * np.sqrt(lam[: len(least)]))
        levels["order"] = float(short.max())
    return levels


def _few(equations: _Equations, wanted: int, noise: float) -> tuple[np.ndarray, np.ndarray, float] | None:
    """No more unknown records than components: weighted least squares in every direction of the span.

    Returns:
        The offsets of the wanted records (w, r), their variances, and the noise that the equations show; None if their
        scores do not tell them apart.
    """
    theta, right = equations.theta, equations.right
    u, k = theta.shape
    # Rows of scores that noise alone could make dependent do not tell their records apart.
    if np.linalg.svd(theta, compute_uv=False)[-1] <= 2 * noise * np.sqrt(u):
        return None
    per_noise = equations.per_noise
    z = np.zeros((u, right.shape[1]))
    inverse = np.empty((right.shape[1], u, u))
    for _ in range(2):  # the unknown scores' own errors count in proportion to the offsets, which the first pass finds
        weight = 1 / np.maximum(per_noise + (z**2).sum(axis=0), 1e-300)
        weight /= weight.max(axis=0)
        scaled = theta[None] * np.sqrt(weight.T)[:, None]  # (r, u, k)
        solver = np.linalg.pinv(scaled)  # (r, k, u)
        z = np.einsum("rku,kr->ur", solver, np.sqrt(weight) * right)
        inverse = np.einsum("rku,rkv->ruv", solver, solver)
    total = 1 / np.maximum(per_noise + (z**2).sum(axis=0), 1e-300)
    unit = 1 / total.max(axis=0)
    level = noise
    if k > u:
        misfit = ((right - theta.T @ z) ** 2 * total).sum(axis=0)
        level = max(noise, float(np.sqrt(np.mean(misfit) / (k - u))))
    variance = level**2 * unit[:, None] * np.diagonal(inverse, axis1=1, axis2=2)  # (r, u)
    return z[:wanted], variance.T[:wanted], level


def _many(
    equations: _Equations,
    wanted: int,
    mean: np.ndarray,
    basis: np.ndarray,
    prior: GaussianPrior,
    noise: float,
) -> np.ndarray | None:
    """More unknown records than components: the conditional mean (w, d) of independent draws from the prior.

    Their own scores make each N(m_u, C') with one C'. Of independent records with one covariance, combinations with
    weights Theta say about record u the row H_u = theta_u^T (Theta^T Theta)^-1 Theta^T of the hat matrix and no more: a
    Kronecker product in which C' cancels. None if the scores do not tell them apart.
    """
    theta = equations.theta
    if not theta.shape[1]:
        return None
    own, covariance = _given_own_scores(equations, mean, basis, prior, noise)
    gram = theta.T @ theta
    if np.linalg.eigvalsh(gram)[0] <= 4 * noise**2 * len(theta):
        return None
    weights = scipy.linalg.solve(gram, theta[:wanted].T, assume_a="pos").T  # (w, k)
    expected = (own - mean) @ basis.T
    surprise = weights @ (equations.right - theta.T @ expected)
    share = np.sum(weights * theta[:wanted], axis=1)
    loading = covariance @ basis.T
    spread = basis @ loading
    x = np.empty((wanted, len(mean)))
    for i in range(wanted):
        error = noise**2 * (weights[i] ** 2 @ equations.per_noise) / share[i]
        jitter = max(1e-13 * np.trace(spread) / len(spread), np.finfo(np.float64).tiny ** 0.5)
        x[i] = own[i] + loading @ scipy.linalg.solve(spread + np.diag(error + jitter), surprise[i], assume_a="pos")
    return x


def _given_own_scores(
    equations: _Equations, mean: np.ndarray, basis: np.ndarray, prior: GaussianPrior, noise: float
) -> tuple[np.ndarray, np.ndarray]:
    """Conditional means (u, d) and covariance (d, d) of the unknown records given k scores each."""
    d, r = len(mean), len(basis)
    operator = equations.inside @ basis
    across = 0.0
    if d > r:
        offset = prior.mean - mean
        outside = offset @ offset - np.sum((basis @ offset) ** 2)
        trace = np.trace(prior.covariance) - np.sum((basis @ prior.covariance) * basis)
        across = max(trace + outside, 0.0) / (d - r)
    missing = np.maximum(1 - (equations.inside**2).sum(axis=1), 0)
    error = missing * across + noise**2
    values = equations.theta - equations.shift + operator @ mean
    own = prior.condition(operator, values, error)
    loading = operator @ prior.covariance
    gram = loading @ operator.T
    gram[np.diag_indices(len(gram))] += error + 1e-13 * np.trace(gram) / len(gram)
    return own, prior.covariance - loading.T @ scipy.linalg.solve(gram, loading, assume_a="pos")
