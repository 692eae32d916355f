"""Membership by likelihood ratio: is a candidate's leverage more like a member's or like a stranger's?

The adversary has public records of the same distribution. From them come a precision matrix K, the inverse of the
scatter of the population, and shadow releases of as many records as the curator's. For a release V_k with eigenvalues
lam the statistic is the candidate's leverage in the scatter that the release lets one expect, K standing in for what
was not released:

    q_k(z) = sum_{i <= k} (v_i.z)^2 / (N lam_i) + |K^(1/2) (z - V_k V_k^T z)|^2 / N.

If the records were Gaussian, the log-likelihood ratio of the whole scatter matrix would depend on z by q_d(z) and
z^T K z alone (a quotient of two Wishart densities, 1/2 z^T K z + (N - d - 2)/2 log(1 - q_d)). A small k sees a tilt of
the few released directions towards z, weighted by K as a matched filter is. What z^T K z and the shape of real data
add differs between candidates, so each one is compared with itself: where u = log(q_k / e), e = z^T K z / N, lies in
shadows that do not hold it (mean mu, deviation s), and by how much lower it would lie in those that do (the shift
delta < 0). The score is the log-likelihood ratio of two Gaussians of equal variance,

    ((u - mu)^2 - (u - mu - delta)^2) / (2 s^2).

Where the shift comes from is the method:

- "rank_one": the shadow releases are updated by the candidate itself, exactly, by `drjax.dr.pca.secular`; for one k.
- "first_order": q' = q / (1 + q) + o^2 / (1 + o), o being the part of q outside the release. Exact at k = d (Sherman
  and Morrison) and to first order in 1/N if K were the scatter's inverse; the gaps between eigenvalues cancel. It
  underestimates the shift of a few components. All k in one pass.
- "offline": none; the score is (mu - u) / s.
- "gaussian": no shadows but for the eigenvalues: N/2 (e - q_k), the matched filter by itself.

In a centred release with its mean, z stands for z - mean, and the mean's own likelihood ratio is added. The division by
e keeps the two apart: a mean that lies towards z lowers q_k and e alike.

Where it gains little: with N < d and k near N a member's reconstruction error all but vanishes and is enough, which
"rank_one" matches and the others do not quite; and for Gaussian records of nearly one variance in all directions.

Source: the statistic and its shifts are drjax's own; the test is that of Carlini et al., "Membership inference attacks
from first principles" (2022); the update is that of Bunch, Nielsen & Sorensen (1978).
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from drjax.attacks.membership_scores import Release, check_candidates
from drjax.attacks.membership_shadows import Shadows
from drjax.core import batching, validate
from drjax.core.linalg import HIGHEST
from drjax.core.statistics import Moments
from drjax.core.types import Array, PyTree, hyperparams
from drjax.dr.pca import secular

METHODS = ("rank_one", "first_order", "offline", "gaussian")

PRIOR_SHADOWS = 3
"""How many shadows the median variance of all candidates counts for beside a candidate's own."""

LEAST_VARIANCE = 1e-20
"""Least variance of u: what rounding leaves where nothing else moves."""


def ratio_scores(
    shadows: Shadows,
    release: Release,
    candidates: Array,
    *,
    method: str = "rank_one",
    batch_size: int | None = None,
    progress: bool = False,
) -> np.ndarray:
    """The attack on all components of the release; (m,), larger for members, 0 where the evidence is even.

    "rank_one" solves the secular equation for p m pairs, about 50 k r operations each, beside the S products of
    `ratio_score_prefixes`. A released mean adds its own likelihood ratio, as if it were independent of the components,
    which it is for Gaussian records.

    Args:
        shadows: Shadow releases of as many records and with the same centring as the release.
        release: Eigenvalues are used if released, else the shadows' mean ones stand in for them.
        candidates: (m, d), none of them public.
        method: Name of the statistic, one of `METHODS`.
        batch_size: Candidates per chunk of rank-one updates; see `drjax.core.batching`.
        progress: Show a bar over them.

    Raises:
        ValueError: an unknown method, "rank_one" without pairs, shadows that do not fit the release, or candidates
            not a finite (m, d) matrix.

    Example:
        >>> import drjax, jax
        >>> from drjax.attacks import membership, roc
        >>> x = drjax.load("digits").x
        >>> shadows = membership.fit_shadows(jax.random.key(0), x[120:360], 60, n_shadows=4)
        >>> evidence = membership.ratio_scores(shadows, membership.release_of(x[:60], 30), x[:120])
        >>> roc.auc(evidence, [True] * 60 + [False] * 60).estimate > 0.8
        True
    """
    validate.one_of(METHODS, method=method)
    if method != "rank_one":
        return ratio_score_prefixes(shadows, release, candidates, ks=[release.n_components], method=method)[:, 0]
    if len(shadows.bases) == 0:
        raise ValueError("shadows must have pairs for method 'rank_one': fit them with n_pairs >= 1")
    task = _Task(shadows, release, candidates, [release.n_components])
    observed, mean, variance, first_order = _calibrate(task)
    if task.k == task.z.shape[1]:  # where the first order is exact
        return _log_ratio(observed - mean, first_order, variance)[:, 0] + _log_ratio(*task.mean_evidence())
    inserted = [_with_candidates(task, pair, batch_size, progress) for pair in range(len(shadows.bases))]
    without = [task.log_leverages(shadows, pair, shadows.means[pair])[0] for pair in range(len(shadows.bases))]
    shift = np.mean(np.array(inserted)[..., None] - np.array(without), axis=0)
    return _log_ratio(observed - mean, shift, variance)[:, 0] + _log_ratio(*task.mean_evidence())


def ratio_score_prefixes(
    shadows: Shadows,
    release: Release,
    candidates: Array,
    *,
    ks: Sequence[int] | None = None,
    method: str = "first_order",
) -> np.ndarray:
    """The attack on every prefix of the release in one pass; (m, len(ks)), larger for members.

    Costs S + 1 times about 6 m k d + 4 k d^2 operations for all k together.

    Args:
        shadows: Shadow releases, as in `ratio_scores`.
        release: What was published, as in `ratio_scores`.
        candidates: (m, d).
        ks: Numbers of components, each in [1, n_components]; all if None. Those beyond the shadows' r = min(N, d) score
            as r does: the rest of the space is known by then.
        method: Name of the statistic, one of `METHODS` but "rank_one".

    Raises:
        ValueError: as `ratio_scores`.

    Example:
        >>> import drjax, jax
        >>> from drjax.attacks import membership
        >>> x = drjax.load("digits").x
        >>> shadows = membership.fit_shadows(jax.random.key(0), x[120:360], 60, n_shadows=4)
        >>> release = membership.release_of(x[:60], 30)
        >>> membership.ratio_score_prefixes(shadows, release, x[:120], ks=[5, 30]).shape
        (120, 2)
    """
    validate.one_of(METHODS[1:], method=method)
    task = _Task(shadows, release, candidates, ks)
    if method == "gaussian":
        observed, _ = task.log_leverages(None, 0, task.center)
        ratio = shadows.n_records / 2 * task.energy[:, None] * (1 - np.exp(observed))
        return ratio + _log_ratio(*task.mean_evidence())[:, None]
    observed, mean, variance, shift = _calibrate(task)
    if method == "offline":
        moved, _, spread = task.mean_evidence()
        return (mean - observed) / np.sqrt(variance) + (moved / np.sqrt(spread))[:, None]
    return _log_ratio(observed - mean, shift, variance) + _log_ratio(*task.mean_evidence())[:, None]


class _Task:
    """Checked arguments of one attack, and what all its passes share."""

    def __init__(self, shadows: Shadows, release: Release, candidates: Array, ks: Sequence[int] | None) -> None:
        d = shadows.precision.shape[0]
        if release.components.shape[1] != d:
            raise ValueError(f"release must have the shadows' d = {d}, got {release.components.shape[1]}")
        if release.n_records not in (None, shadows.n_records):
            raise ValueError(
                f"shadows must be of the release's n_records = {release.n_records}, got {shadows.n_records}"
            )
        if release.mean is not None and not shadows.centred:
            raise ValueError("shadows must be centred for a release with a mean, got centred=False")
        wanted = list(range(1, release.n_components + 1)) if ks is None else list(ks)
        validate.integer(**{"the number of ks": len(wanted)})
        validate.integer(**{f"ks[{i}]": k for i, k in enumerate(wanted)})
        validate.at_most(release.n_components, "n_components", **{"the largest of ks": max(wanted)})
        self.shadows, self.release = shadows, release
        self.z = check_candidates(candidates, d, None)
        self.ks = np.minimum(wanted, shadows.components.shape[1])
        self.k = int(self.ks.max())
        self.knows_mean = release.mean is not None
        self.center = shadows.center if release.mean is None else release.mean
        self.knows_eigenvalues = release.eigenvalues is not None
        self.expected = shadows.eigenvalues.mean(axis=0)[: self.k]
        self.zk = self.z @ shadows.precision
        offset = self.z - self.center
        self.energy = np.einsum("ij,jk,ik->i", offset, shadows.precision, offset, optimize=True) / shadows.n_records

    def log_leverages(self, shadows: Shadows | None, index: int, center: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """u and u' to first order, (m, len(ks)) each, of one shadow or, where shadows is None, of the release."""
        source: Any = self.release
        components, eigenvalues = source.components[: self.k], source.eigenvalues
        if shadows is not None:
            components, eigenvalues = shadows.components[index][: self.k], shadows.eigenvalues[index]
        eigenvalues = eigenvalues[: self.k] if self.knows_eigenvalues else self.expected
        known = self.shadows
        context = (self.z, self.zk, known.precision, self.ks - 1, known.n_records, known.floor)
        lanes = (components[None], eigenvalues[None], center[None])
        with jax.enable_x64(True):
            log_q, log_in = batching.map_lanes(_leverage_chunk, context, lanes, batch_size=1)
        return log_q[0], log_in[0]

    def mean_evidence(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """How far the released mean lies along K (z - center), the shift of a member, the variance; (m,) each.

        A member moves the mean by (z - center) / N. The variance is the shadows' own, the Gaussian one counting as a
        few more of them. Without a mean nothing has moved or would.
        """
        known = self.shadows
        if not self.knows_mean:
            return np.zeros(len(self.z)), np.zeros(len(self.z)), np.ones(len(self.z))
        offset = self.z - known.center
        direction = offset @ known.precision
        shift = np.sum(direction * offset, axis=1) / known.n_records
        seen = direction @ (known.means - known.center).T
        variance = (np.sum(seen**2, axis=1) + PRIOR_SHADOWS * shift) / (seen.shape[1] + PRIOR_SHADOWS)
        return direction @ (self.center - known.center), shift, np.maximum(variance, LEAST_VARIANCE)


def _calibrate(task: _Task) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Observed u; mean, variance and first-order shift of u in shadows without candidates; (m, len(ks)) each."""
    shadows = task.shadows
    observed, _ = task.log_leverages(None, 0, task.center)

    def moments(index: int) -> Moments:
        # A mean that was kept back is not known of the shadows either.
        center = shadows.means[index] if task.knows_mean else shadows.center
        log_q, log_in = task.log_leverages(shadows, index, center)
        return Moments.of(np.stack([log_q, log_in - log_q])[None])

    n = len(shadows.components)
    (mean, shift), (spread, _) = functools.reduce(Moments.merged, map(moments, range(n)))[1:]
    typical = np.median(spread, axis=0) / (n - 1)
    variance = (spread + PRIOR_SHADOWS * typical) / (n - 1 + PRIOR_SHADOWS)
    return observed, mean, np.maximum(variance, LEAST_VARIANCE), shift


def _log_ratio(deviation: np.ndarray, shift: np.ndarray, variance: np.ndarray) -> np.ndarray:
    return shift * (2 * deviation - shift) / (2 * variance)


def _with_candidates(task: _Task, pair: int, batch_size: int | None, progress: bool) -> np.ndarray:
    """(m,) u in the release of a shadow's other N - 1 records and the candidate."""
    shadows = task.shadows
    squares, basis = shadows.base_squares[pair], shadows.bases[pair]
    n, d = shadows.n_records, basis.shape[1]
    # Directions without variance would be poles at 0, of which one is enough: what is outside the basis.
    rank = max(1, int(np.sum(squares > np.finfo(np.float64).eps * max(n, d) * squares[0])))
    scale = float(np.sqrt(squares[0])) if squares[0] > 0 else 1.0
    values = np.append(squares[:rank] / scale**2, 0.0)
    k = min(task.k, rank + 1)
    with jax.enable_x64(True):
        context = (
            _Pair(k=k, knows_eigenvalues=task.knows_eigenvalues),
            secular.make_poles(values, k, np.dtype(np.float64)),
            basis[:rank],
            scale,
            shadows.base_means[pair],
            task.expected[:k],
            shadows.precision,
            n,
            (n - 1) / n if shadows.centred else 1.0,
            shadows.floor,
        )
        options: dict[str, Any] = {"batch_size": batch_size, "progress": progress, "description": "pairs"}
        return batching.map_lanes(_insert_chunk, context, task.z, **options)


@hyperparams
class _Pair:
    k: int
    knows_eigenvalues: bool


def _leverage_chunk(context: PyTree, lanes: PyTree) -> tuple[jax.Array, jax.Array]:
    """u and u' to first order, (b, m, len(ks)), for components (b, k, d), eigenvalues (b, k) and centers (b, d)."""
    z, zk, precision, columns, n, floor = context

    def one(lane: PyTree) -> tuple[jax.Array, jax.Array]:
        v, values, center = lane
        offset, offset_k = z - center, zk - jnp.matmul(precision, center, precision=HIGHEST)
        along = jnp.matmul(offset, v.T, precision=HIGHEST)
        along_k = jnp.matmul(offset_k, v.T, precision=HIGHEST)
        gram = jnp.matmul(jnp.matmul(v, precision, precision=HIGHEST), v.T, precision=HIGHEST)
        # With y = V_k V_k^T z, what K sees outside is z^T K z - 2 y^T K z + y^T K y; the last one's prefix sums are
        # those of the lower triangle of a form in the coordinates.
        cross = 2 * jnp.matmul(along, jnp.triu(gram, 1), precision=HIGHEST) + along * jnp.diagonal(gram)
        seen = jnp.cumsum(along * (2 * along_k - cross), axis=1)[:, columns] / n
        energy = jnp.sum(offset * offset_k, axis=1)[:, None] / n
        outside = jnp.maximum(energy - seen, 0)
        q = jnp.cumsum(along**2 / (values + floor), axis=1)[:, columns] / n + outside
        inserted = q / (1 + q) + outside**2 / (1 + outside)
        return _relative(q, energy), _relative(inserted, energy)

    return jax.lax.map(one, lanes)


def _insert_chunk(context: PyTree, lanes: Array) -> jax.Array:
    """(b,) u of candidates (b, d) in the release of a base and the candidate itself."""
    recipe, poles, basis, scale, mean, expected, precision, n, weight, floor = context
    offset = (lanes - mean) / scale
    inside = jnp.matmul(offset, basis.T, precision=HIGHEST)
    rest = offset - jnp.matmul(inside, basis, precision=HIGHEST)
    # As in `drjax.dr.pca.method`: a coefficient of 0 would be 0/0, one at rounding level deflates its pole.
    eps = float(jnp.finfo(offset.dtype).eps)
    least = eps * jnp.sqrt(jnp.sum(offset**2, axis=1, keepdims=True) + eps**2)
    inside = jnp.where(jnp.abs(inside) < least, jnp.where(inside < 0, -least, least), inside)
    outside = jnp.maximum(jnp.sum(rest**2, axis=1, keepdims=True), least**2)
    roots = secular.largest_roots(poles, weight * jnp.concatenate([inside**2, outside], axis=1))
    # Eigenvector i is q_j / (pole_j - root_i) over its norm, and the secular equation says that its product with the
    # offset is -1 / (weight norm): so the squares along it, and the projection of the offset on all of them.
    distances = secular.distances(poles, roots, recipe.k)
    squares = scale**2 / (weight * roots.slope)
    inverse = -jnp.einsum("bk,bkr->br", 1 / roots.slope, 1 / distances, precision=HIGHEST)
    projection = jnp.matmul(inside * inverse[:, :-1], basis, precision=HIGHEST) + inverse[:, -1:] * rest
    beyond = (offset - projection) * scale
    beyond_k = jnp.matmul(beyond, precision, precision=HIGHEST)
    values = roots.values * scale**2 / n if recipe.knows_eigenvalues else expected
    leverage = jnp.sum(squares / (values + floor), axis=1) + jnp.maximum(jnp.sum(beyond * beyond_k, axis=1), 0)
    # About the mean of all N records the candidate's offset would be the weight times this one, and its energy too.
    whole = offset * scale
    return _relative(leverage, jnp.einsum("bd,de,be->b", whole, precision, whole, precision=HIGHEST))


def _relative(q: jax.Array, energy: jax.Array) -> jax.Array:
    # A candidate at the center has neither: all its scores are then 0, not nan.
    is_off_center = energy > 0
    ratio = jnp.where(is_off_center, q, 1) / jnp.where(is_off_center, energy, 1)
    return jnp.log(jnp.maximum(ratio, float(jnp.finfo(ratio.dtype).tiny)))
