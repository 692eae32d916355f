"""The target of a published MDS map, from the gradient that vanishes there or nearly does."""

from __future__ import annotations

import numpy as np

from drjax.attacks.reconstruction import directions
from drjax.attacks.reconstruction.mixture_prior import MixturePrior
from drjax.attacks.reconstruction.priors import GaussianPrior
from drjax.attacks.reconstruction.stationarity import descent, guttman
from drjax.core import host, validate
from drjax.core.linalg import blas, eigh
from drjax.core.progress import shown
from drjax.core.types import Array, Reconstruction, Status
from drjax.dr import metrics

STEPS = 12
"""Simulated steps where none are given; 20 lower the error by a few per cent and take twice as long on MNIST."""

CONVERGED = 1e-7
"""Accelerations in units of the spread below which a release counts as converged: there is no step to simulate."""


def calibrate(known: Array, coords: Array, targets: Array, *, metric: str = metrics.EUCLIDEAN) -> float:
    """Typical size of an acceleration, by which releases made in one way are told from converged ones.

    Args:
        known: (n-1, d).
        coords: (s, n, k), shadow releases with the record of `targets` in row 0; a dozen are enough. Those that are not
            finite are left out.
        targets: (s, d).
        metric: Metric of the records.

    Returns:
        A robust standard deviation of (I - J)(T(theta) - theta), units of the coordinates (`descent` says what it is).

    Raises:
        ValueError: shapes that do not match, or no finite release.

    Example:
        >>> import drjax, jax
        >>> from drjax.attacks.reconstruction import stationarity
        >>> x = drjax.load("digits").x
        >>> shadows = drjax.shadow_embeddings(jax.random.key(0), drjax.MDS(), x[:19], x[19:31])
        >>> scale = stationarity.calibrate(x[:19], shadows.coords, x[19:31])
        >>> 0 < scale < 1  # 0 for maps that have converged
        True
    """
    known = validate.matrix(known, "known").astype(np.float64)
    targets = validate.matrix(targets, "targets", columns=known.shape[1]).astype(np.float64)
    releases = _releases(coords, len(known) + 1)
    if len(releases) != len(targets):
        raise ValueError(f"targets must have one row per release, {len(releases)}, got {len(targets)}")
    finite = np.isfinite(releases).all(axis=(1, 2))
    if not finite.any():
        raise ValueError(f"coords must hold a finite release, got none among {len(releases)}")
    between, rows = metrics.among_records(metric, known), metrics.between(metric, targets[finite], known)
    found = []
    for release, row in zip(releases[finite], rows, strict=True):
        matrix = np.zeros((len(known) + 1,) * 2)
        matrix[1:, 1:] = between
        matrix[0, 1:] = matrix[1:, 0] = row
        found.append(descent.acceleration(_centred(release), matrix))
    normal_median = 0.6745
    return float(np.median(np.abs(found)) / normal_median)


def target_distances(known: Array, coords: Array, *, metric: str = metrics.EUCLIDEAN) -> np.ndarray:
    """Distances of the target to the known records from a converged release, each by itself, in closed form.

    Where the gradient of the stress vanishes, sum_j D_ij (theta_i - theta_j) / |theta_i - theta_j| = n theta_i for
    every known i. All but D_i0 is known, so each of the k equations gives it; this is their least-squares solution. A
    map that stopped early misses the condition by what is left of its way, and the estimates by n times as much.

    Args:
        known: (n-1, d).
        coords: (b, n, k), target in row 0.
        metric: Metric of the records.

    Returns:
        (b, n-1), units of the distances. O(n^2 k) a release.

    Raises:
        ValueError: known not a finite matrix, or coords of another number of rows.

    Example:
        >>> import drjax, numpy as np
        >>> from drjax.attacks.reconstruction import stationarity
        >>> x = drjax.load("digits").x.astype(np.float64)
        >>> method = drjax.MDS(eps=1e-12, max_iter=10_000)  # runs until it has converged
        >>> coords = drjax.embed(x[:20], method=method, dtype="float64")
        >>> found = stationarity.target_distances(x[1:20], coords[None])[0]
        >>> bool(np.abs(found - np.linalg.norm(x[1:20] - x[0], axis=1)).max() < 0.1)
        True
    """
    known = validate.matrix(known, "known").astype(np.float64)
    releases = _releases(coords, len(known) + 1)
    between = np.zeros((len(known) + 1,) * 2)
    between[1:, 1:] = metrics.among_records(metric, known)
    found = np.empty((len(releases), len(known)))
    for i, release in enumerate(releases):
        theta = _centred(release)
        # With the target's distances taken as 0, what is missing points away from the target.
        missing = len(theta) * (theta - guttman.transform(theta, between))[1:]
        away = theta[1:] - theta[0]
        length = np.linalg.norm(away, axis=1)
        found[i] = (missing * away).sum(axis=1) / np.where(length > 0, length, np.inf)
    return found


def reconstruct_mds(
    known: Array,
    coords: Array,
    *,
    prior: GaussianPrior | MixturePrior,
    scale: float,
    steps: int = STEPS,
    target_index: int = 0,
    bounds: tuple[float, float] | None = None,
    metric: str = metrics.EUCLIDEAN,
    progress: bool = False,
) -> Reconstruction:
    """Reconstructs the one unknown record of metric MDS maps (SMACOF) from the other n-1 records, whatever the start.

    A stationary map gives away every distance of the target; one that stopped early does so through its last steps,
    which are simulated. Nothing is trained. Deterministic; host, float64, releases side by side on all cores.

    Args:
        known: (n-1, d), in the order of the release, the target's row left out.
        coords: (n, k) of one release, or (m, n, k) of m releases that share the known records.
        prior: Distribution expected of a record, from public data. The descent takes a mixture for the one Gaussian of
            its mean and covariance; what the descent finds of the distances is then put to the mixture.
        scale: Scale of accelerations in such releases, from `calibrate`; 0 if they have converged to the last digit.
        steps: Simulated steps at most; 0 takes the release for converged but for noise.
        target_index: Row of the target in coords.
        bounds: Least and greatest possible value of every feature.
        metric: Metric of the records. With "cosine" or "correlation" the known records and those of the prior are
            directions, as `metrics.prepared` makes them, and so is the answer; see `reconstruction.directions`.
        progress: Show a bar with rate and time left on standard error.

    Returns:
        x (m, d); residual_norm (m,), the norm of the error to expect under the prior, to first order; status
        NOT_CONVERGED where fewer steps than asked could be simulated, NON_FINITE (and x nan) where the release is not
        finite. Fields have no leading axis if coords has rank 2. O(steps (n k)^2 (n k + n)) some 40 times for a release
        that stopped early, two seconds at n = 200, k = 2 on one core; O(n^3 k^2) some 20 times for a converged one.

    Raises:
        ValueError: arrays of shapes that do not match, scale, steps, an index or bounds out of range.

    Source: drjax's own; docs/attacks/mds.md has the derivation.

    Example:
        >>> import drjax, jax, numpy as np
        >>> from drjax.attacks.reconstruction import stationarity
        >>> from drjax.attacks.reconstruction.priors import GaussianPrior
        >>> x = drjax.load("digits").x.astype(np.float64)
        >>> method = drjax.MDS(eps=1e-12, max_iter=10_000)  # runs until it has converged
        >>> coords = drjax.embed(x[:20], method=method, dtype="float64")
        >>> found = stationarity.reconstruct_mds(x[1:20], coords, prior=GaussianPrior.fit(x[100:]), scale=0.0, steps=0)
        >>> bool(((found.x - x[0]) ** 2).mean() < 0.5 * ((x[100:].mean(axis=0) - x[0]) ** 2).mean())
        True
    """
    known = validate.matrix(known, "known").astype(np.float64)
    given = np.asarray(coords)
    releases = _releases(given[None] if given.ndim == 2 else given, len(known) + 1)
    directions.check(metric, known)
    validate.non_negative(scale=scale)
    validate.integer(minimum=0, steps=steps, target_index=target_index)
    validate.at_most(len(known), "n - 1", target_index=target_index)
    if prior.mean.shape != (known.shape[1],):
        raise ValueError(f"prior must be of records of {known.shape[1]} features, got {prior.mean.shape}")
    if bounds is not None and not bounds[0] < bounds[1]:
        raise ValueError(f"bounds must increase, got {bounds}")
    releases = np.concatenate([releases[:, [target_index]], np.delete(releases, target_index, axis=1)], axis=1)

    m, d = len(releases), known.shape[1]
    between = metrics.among_records(metric, known)
    # No record is excluded altogether: a feature that never varied in public may vary in the target.
    prior = prior.raised(1e-8)
    spread_known = prior.covariance @ known.T
    x = np.full((m, d), np.nan)
    variance = np.full((m, d), np.nan)
    status = np.full(m, np.uint32(Status.OK))

    def work(part: slice) -> None:
        for i in range(m)[part]:
            if not np.isfinite(releases[i]).all():
                status[i] = np.uint32(Status.NON_FINITE)
                continue
            theta = _centred(releases[i])
            spread = np.sqrt((theta**2).mean())
            # Rounding is what is left of an acceleration at the least.
            size = max(scale, 1e-14 * spread)
            problem = descent.Problem(known, between, prior.mean, prior.covariance, spread_known, size, bounds, metric)
            wanted = steps if size > CONVERGED * spread else 0
            x[i], variance[i], reached = _reconstruct(problem, prior, theta, wanted)
            if reached < wanted:
                status[i] = np.uint32(Status.NOT_CONVERGED)

    with blas().limit(limits=1, user_api="blas"), shown("releases", m, enabled=progress) as advance:
        host.spread(lambda part: (work(part), advance(1)), m, size=1)
    undetermined = np.sqrt(variance.sum(axis=1))
    if given.ndim == 3:
        return Reconstruction(x, None, x[:, None], undetermined, status, feature_mse=variance)
    return Reconstruction(x[0], None, x, undetermined[0], status[0], feature_mse=variance[0])


def _reconstruct(
    problem: descent.Problem, prior: GaussianPrior | MixturePrior, theta: np.ndarray, steps: int
) -> tuple[np.ndarray, np.ndarray, int]:
    """The target (d,), the squared error to expect of each feature, (d,), and how many steps were simulated."""
    fit = descent.Fit(descent.at_release(problem, theta), theta, 0, 0.0, np.inf)
    if steps:
        fit = descent.through_steps(problem, theta, fit.x, steps)
    local = descent.Local(problem, theta, fit)
    precision, gradient, answer = local.eliminated()
    line = descent.linearise(problem, fit.x)
    shown = line.basis.T @ precision @ line.basis
    left = np.linalg.inv(shown + np.eye(len(shown)))
    explained = (line.lift**2).sum(axis=1) - ((line.lift @ left) * line.lift).sum(axis=1)
    variance = np.maximum(np.diagonal(problem.covariance) - explained, 0)
    x = problem.clip(fit.x)
    if problem.bounds is not None or isinstance(prior, MixturePrior):
        operator, measured, variance_of = _linear_measurements(problem, fit.x, precision, gradient)
        lower, upper = problem.bounds or (None, None)
        boxed = prior.condition(operator, measured[None], variance_of, lower=lower, upper=upper)[0]

        def value(at: np.ndarray) -> float:
            change = np.append(problem.distances(at) - problem.distances(fit.x), 1.0)
            return local.at(fit.start - (answer @ change).reshape(theta.shape), at)[0]

        # The program is of a quadratic likelihood: only what fits the release itself better than clipping counts.
        # Without bounds nothing is clipped, and what fits best is what the single Gaussian says.
        if problem.bounds is None or value(boxed) < value(x):
            x = boxed
    return x, variance, fit.steps


def _linear_measurements(
    problem: descent.Problem, x: np.ndarray, precision: np.ndarray, gradient: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Operator (q, d), values (q,) and variances (q,) that say of the target what the likelihood does.

    Distances curve, and with a converged release that is more than the noise; half their squares are linear in the
    target but for a term that they share, |x|^2 / 2, which is left open. Distances of another metric are
    taken as linear around x.
    """
    if problem.metric != metrics.EUCLIDEAN:
        values, vectors = eigh(precision)
        kept = values > 1e-14 * values[-1]
        values, vectors = values[kept], vectors[:, kept]
        operator = vectors.T @ problem.slope(x)
        return operator, operator @ x - vectors.T @ gradient / values, 1 / values
    distance = np.maximum(problem.distances(x), 1e-9 * problem.distances(x).max())
    precision, gradient = precision / np.outer(distance, distance), gradient / distance
    shared = precision.sum(axis=1)
    gradient = gradient - shared * gradient.sum() / shared.sum()
    values, vectors = eigh(precision - np.outer(shared, shared) / shared.sum())
    kept = values > 1e-14 * values[-1]
    values, vectors = values[kept], vectors[:, kept]
    operator = -vectors.T @ (problem.known - problem.known.mean(axis=0))
    return operator, operator @ x - vectors.T @ gradient / values, 1 / values


def _releases(coords: Array, n: int) -> np.ndarray:
    releases = np.asarray(coords)
    if releases.ndim != 3 or releases.shape[1] != n:
        raise ValueError(f"coords must have n = {n} rows a release, one more than known, got shape {releases.shape}")
    if not np.issubdtype(releases.dtype, np.floating):
        raise ValueError(f"coords must be floating-point numbers, got {releases.dtype}")
    return releases.astype(np.float64)


def _centred(release: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(release - release.mean(axis=0))
