"""Gradient attack through any differentiable kernel: the most probable record under which the release makes sense.

Two ways. Where the release is a function of the records that the adversary can repeat (a deterministic method, or one
whose seed is known), the record is fitted until the kernel makes the release. Where a start is drawn that the adversary
does not know, or the descent is chaotic, the release is still a place at which the method's objective is at rest: the
record is fitted until the gradient there vanishes. Both by Gauss-Newton steps on the posterior under a Gaussian prior
(`gauss_newton`), in float64.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from drjax.attacks.reconstruction import barnes_hut, directions
from drjax.attacks.reconstruction.equations import Match, Rest, TSNERest
from drjax.attacks.reconstruction.gauss_newton import (
    Belief,
    Equations,
    Fit,
    Noise,
    descend,
    noise_by_curvature,
    variances,
)
from drjax.attacks.reconstruction.priors import GaussianPrior
from drjax.core import batching, platforms, validate
from drjax.core.types import Array, DRMethod, PyTree, Reconstruction, Status, hyperparams, traced
from drjax.dr import TSNE, metrics

Matching = Literal["auto", "release", "gradient"]
MATCHES: tuple[Matching, ...] = ("auto", "release", "gradient")

MAX_ITER = 80
"""Steps of one descent."""

ROUNDS = 4
"""Descents with features held at the bounds that the last one has broken; on MNIST the error is flat from here on."""

FIRST_NOISE, FIRST_NOISE_OF_CUT = 1e-4, 2e-2
"""Noise of the first descent, as a share of the equations' root mean square at its start: too low costs steps alone.
Where affinities are cut the descent had forces that jump where points change groups, and ended less at rest."""

PIN = 0.02
"""Standard deviation with which a feature beyond its bounds is held at the bound, as a share of their distance."""

N_NEAREST = 5
"""Known records nearest in the map, whose mean is a start."""

ROUNDING = 5e-7
"""Error of a coordinate computed in float32, as a share of the largest."""


@hyperparams
class _Plan:
    """What all lanes share: equations, prior, bounds, and how long to search."""

    equations: Equations = traced()
    prior: Belief = traced()
    bounds: Array | None = traced()
    is_gradient: bool
    first_noise: float
    max_iter: int
    rounds: int


class _Found(NamedTuple):
    x: Array
    candidates: Array
    variance: Array
    converged: Array


def reconstruct(
    key: Array,
    method: DRMethod,
    known: Array,
    coords: Array,
    *,
    prior: GaussianPrior,
    seed_known: bool = False,
    match: Matching = "auto",
    noise: float | None = None,
    bounds: tuple[float, float] | None = None,
    guesses: Array | None = None,
    max_iter: int = MAX_ITER,
    progress: bool = False,
) -> Reconstruction:
    """The most probable target of each of m releases, target in row 0.

    From several starts (the prior's mean, the mean of the known records nearest to the target in the map, and
    `guesses`) the posterior's modes are found under a low noise, and the best is kept. "gradient" then measures the
    noise on what the best leaves of the gradient, by curvature, and goes on; so a release that was stopped early,
    rounded or made by another library is weighed by what its equations are worth. A map of t-SNE by the Barnes-Hut
    algorithm, which leaves out the affinities between far records and computes far repulsion by a tree, is recognised
    and inverted as such. Last, features beyond the bounds are held there, in turns.

    Args:
        key: PRNG key: with the seed known that of the releases, as given to `shadow_embeddings(...,
            randomness="shared")`; else unused.
        method: What was released, with its hyperparameters.
        known: (n-1, d). Where the metric shows directions alone these are such, as `metrics.prepared` makes them, like
            the records of the prior and the answer (see `reconstruction.directions`).
        coords: (m, n, k) or (n, k), finite.
        prior: Fitted on public records.
        seed_known: Whether the adversary knows the seed; of no effect where the method is deterministic.
        match: "release", "gradient", or "auto": "release" for a repeatable method that is deterministic or of known
            seed, else "gradient" (t-SNE, UMAP, and MDS from random starts of unknown seed).
        noise: Standard deviation of a released coordinate about the kernel's, > 0, for "release"; that of float32 if
            None.
        bounds: (low, high) of every feature.
        guesses: (m, d) or (m, g, d) further starts, from another attack.
        max_iter: Steps of one descent at most.
        progress: Show a bar.

    Returns:
        x (m, d); candidates (m, s + 1, d), x and then where the first descents from the s starts ended;
        residual_norm, the root of the posterior variance summed over features; NOT_CONVERGED where the last descent
        was stopped by `max_iter`, NON_FINITE where it gave no finite record.

    Raises:
        ValueError: arguments that do not fit, a method without an objective or with a closed form for "gradient", one
            that is not repeatable or of unknown seed for "release".

    A step takes a derivative of all q = n k equations: for t-SNE O(n^2 q + d^2), and 100 to 200 steps
    a target, some 4 s at n = 200 and d = 784 on two cores; for others min(q, d) passes through the method and O(q d^2).
    """
    validate.prng_key(key)
    known = validate.matrix(known, "known").astype(np.float64)
    released = np.asarray(coords)
    releases = released[None] if released.ndim == 2 else released
    n, d = known.shape[0] + 1, known.shape[1]
    if releases.ndim != 3 or releases.shape[1:] != (n, method.n_components) or releases.shape[0] == 0:
        raise ValueError(
            f"coords must have shape (m, {n}, {method.n_components}) for {n - 1} known records, got {released.shape}"
        )
    validate.finite(coords=releases)
    if prior.mean.shape != (d,):
        raise ValueError(f"prior must be of {d} features as known, got {prior.mean.shape}")
    validate.integer(max_iter=max_iter)
    if noise is not None:
        validate.positive(noise=noise)
    if bounds is not None and not bounds[0] < bounds[1]:
        raise ValueError(f"bounds must be (low, high) with low < high, got {bounds}")
    directions.check(metrics.of(method), known)
    way = _way(method, seed_known, match)
    starts = _starts(known, releases, prior, guesses)
    if bounds is not None:
        starts = np.clip(starts, *bounds)

    with jax.enable_x64(True):
        equations = _equations(key, method, known, way, seed_known)
        level = np.full(len(releases), noise if noise is not None else np.nan)
        if noise is None and way == "release":
            level = ROUNDING * np.abs(releases).max(axis=(1, 2))
        plan = _Plan(
            equations=equations,
            prior=Belief(jnp.asarray(prior.mean), jnp.asarray(definite(prior.covariance))),
            bounds=None if bounds is None else jnp.asarray(bounds, jnp.float64),
            is_gradient=way == "gradient",
            first_noise=FIRST_NOISE,
            max_iter=max_iter,
            rounds=ROUNDS,
        )
        lanes = (releases.astype(np.float64), starts, level)
        # A lane holds several copies of the covariance. On a CPU lanes are computed in turn: one at a time, so that any
        # number of them has one program.
        size = 1 if jax.default_backend() == "cpu" else None
        order, parts = [], []
        for making, at in _makings(equations, lanes[0], starts):
            order.append(at)
            own = dataclasses.replace(plan, equations=making.equations, first_noise=making.first_noise)
            part = batching.map_lanes(
                _invert,
                own,
                tuple(leaf[at] for leaf in lanes) + ((making.excess[at],) if making.excess is not None else ()),
                batch_size=size,
                progress=progress,
                description="targets inverted",
            )
            parts.append(part)
        back = np.argsort(np.concatenate(order))
        found = jax.tree.map(lambda *leaves: np.concatenate(leaves)[back], *parts)
    return _reconstruction(found, bounds, released.ndim == 2)


def refused(method: DRMethod, *, seed_known: bool) -> str | None:
    """Why releases of a method cannot be inverted, as the end of a sentence about the attack; None if they can.

    `reconstruct` takes maps whose steps are too noisy to come to rest, too, but finds little.
    """
    if metrics.of(method) in metrics.OF_DIRECTIONS and not hasattr(method, "metric"):
        return "needs distances that show more than directions, or a method without steps and defences"
    if can_match(method, seed_known=seed_known) or (method.minimises is not None and method.stationary):
        return None
    return "needs the seed" if method.repeatable else "needs releases that can be made again or are at rest"


def can_match(method: DRMethod, *, seed_known: bool) -> bool:
    """Whether the adversary can make releases again, and has a derivative of them."""
    return method.repeatable and (method.deterministic or seed_known)


def _way(method: DRMethod, seed_known: bool, match: Matching) -> Matching:
    validate.one_of(MATCHES, match=match)
    is_made = can_match(method, seed_known=seed_known)
    # A map that is not quite at rest is better than nothing: the descent weighs its gradient by what is left of it.
    has_gradient = method.minimises is not None and (method.stationary or not method.repeatable)
    if not is_made and not has_gradient:
        if not method.repeatable:
            raise ValueError(f"method must be repeatable or minimise something, got {method.name!r}")
        raise ValueError(
            f"seed_known must be True for {method.name!r}, which has no objective to be at rest: the seed is not known"
        )
    if match == "auto":
        match = "release" if is_made else "gradient"
    if match == "gradient" and not has_gradient:
        raise ValueError(f"match must not be 'gradient' for {method.name!r}: its releases say all when matched")
    if match == "release" and not is_made:
        why = "whose seed is not known" if method.repeatable else "whose descent has no useful derivative"
        raise ValueError(f"match must be 'gradient' for {method.name!r}, {why}; got 'release'")
    return match


def _equations(key: Array, method: DRMethod, known: np.ndarray, way: Matching, seed_known: bool) -> Any:
    if way == "gradient":
        if isinstance(method, TSNE):
            between = jnp.asarray(metrics.squared_among_records(method.metric, known))
            options = {"perplexity": float(method.perplexity), "metric": method.metric}
            return TSNERest(known=jnp.asarray(known), between=between, **options)
        return Rest(method=method, known=jnp.asarray(known))
    # The split of `shadow_embeddings`: releases of a known seed share what the second key draws.
    draw_key, shared_key = jax.random.split(key)
    shared = method.prepare(known, shared_key=shared_key if seed_known else None)
    return Match(method=method, shared=shared, key=draw_key, signs=method.deterministic)


class _Making(NamedTuple):
    """How releases can have been made: equations, noise of the first descent, `TSNERest.excess` of each or None."""

    equations: Any
    first_noise: float
    excess: np.ndarray | None = None


def _makings(equations: Any, releases: np.ndarray, starts: np.ndarray) -> list[tuple[_Making, np.ndarray]]:
    """Ways in which releases were made, each with the indices of those that were made so.

    Only with the right affinities and forces are the known records of a t-SNE map that are far from the target at rest,
    whatever the target is: the median over known records tells, with the mean of the nearest in the target's place.
    """
    makings = [_Making(equations, FIRST_NOISE)]
    if isinstance(equations, TSNERest):
        cut = equations.nearest()
        if cut.n_neighbors is not None:
            makings.append(_Making(cut, FIRST_NOISE_OF_CUT))
        makings.append(_Making(cut, FIRST_NOISE_OF_CUT, np.stack([barnes_hut.excess(one) for one in releases])))
    if len(makings) == 1:
        return [(makings[0], np.arange(len(releases)))]

    forces = []
    for making in makings:
        lanes = (releases, starts[:, 1]) + (() if making.excess is None else (making.excess,))
        forces.append(np.asarray(batching.map_lanes(_median_forces, making.equations, lanes)))
    best = np.argmin(forces, axis=0)
    return [(makings[one], np.flatnonzero(best == one)) for one in np.unique(best)]


def _median_forces(equations: TSNERest, lanes: tuple[Array, ...]) -> Array:
    def one(lane: tuple[Array, ...]) -> Array:
        release, x, *excess = lane
        rows = _with_excess(equations, excess).residual(release, x).reshape(release.shape)
        return jnp.median(jnp.linalg.norm(rows[1:], axis=1))

    return jax.vmap(one)(lanes)


def _with_excess(equations: Any, excess: list[Array] | tuple[Array, ...]) -> Any:
    return dataclasses.replace(equations, excess=excess[0]) if excess else equations


def _starts(known: np.ndarray, releases: np.ndarray, prior: GaussianPrior, guesses: Array | None) -> np.ndarray:
    """(m, s, d)."""
    m, d = len(releases), known.shape[1]
    distances = np.linalg.norm(releases[:, 1:] - releases[:, :1], axis=-1)
    nearest = np.argsort(distances, axis=1)[:, :N_NEAREST]
    starts = [np.broadcast_to(prior.mean, (m, 1, d)), known[nearest].mean(axis=1)[:, None]]
    if guesses is not None:
        given = np.asarray(guesses, np.float64)
        given = given[:, None] if given.ndim == 2 else given
        if given.ndim != 3 or given.shape[0] != m or given.shape[2] != d:
            raise ValueError(f"guesses must have shape ({m}, {d}) or ({m}, g, {d}), got {np.shape(guesses)}")
        validate.finite(guesses=given)
        starts.append(given)
    return np.concatenate(starts, axis=1)


def definite(covariance: np.ndarray) -> np.ndarray:
    """A covariance (d, d) with a millionth of each feature's variance added."""
    # A covariance of low rank leaves directions of no variance, along which no start has a finite cost. Each feature
    # gets a share of its own variance: one of small units would drown in that of the others.
    own = np.diag(covariance)
    added = 1e-6 * np.where(own > 0, own, own.mean())
    return (covariance + covariance.T) / 2 + np.diag(added)


def _invert(plan: _Plan, lanes: PyTree) -> _Found:
    """Results of all lanes; on a CPU lane by lane: each ends when it is done, and its products run at full speed."""

    def one(lane: PyTree) -> _Found:
        return _invert_one(plan, *lane)

    return platforms.by_platform(
        lanes, cpu=lambda lanes: jax.lax.map(one, lanes), default=lambda lanes: jax.vmap(one)(lanes)
    )


def _invert_one(plan: _Plan, release: Array, starts: Array, level: Array, *excess: Array) -> _Found:
    """All descents of one lane, in turn in one loop: the program holds a descent once, which is most of its size."""
    equations, n_starts = _with_excess(plan.equations, excess), starts.shape[0]
    q = release.size
    if plan.is_gradient:
        # One level for all starts, or their costs could not be compared.
        level = plan.first_noise * jnp.sqrt(jnp.mean(equations.residual(release, plan.prior.mean) ** 2))
    first = Noise(jnp.full(q, level), jnp.eye(q) if plan.is_gradient else None)

    # After the starts: on from the best with the noise that it shows, and once more from the mean, because a mode
    # found under too low a noise can be far from where it is likely; then the bounds.
    n_refined = 2 if plan.is_gradient else 0
    n_open = n_starts + n_refined
    n_descents = n_open + (plan.rounds if plan.bounds is not None else 0)

    def measured(last: Fit) -> Noise:
        return noise_by_curvature(last.model.residual, equations.curvature(release, last.x), last.leverage)

    def descent(carry: tuple[Fit, Noise, Array], at: Array) -> tuple[tuple[Fit, Noise, Array], Array]:
        last, noise, _ = carry
        goes_on = (at == n_starts) | (at >= n_open)
        prior = plan.prior
        if plan.is_gradient:
            noise = jax.lax.cond(goes_on, measured, lambda _: noise, last)
        if plan.bounds is not None:
            prior = jax.lax.cond(at >= n_open, lambda: held(plan.prior, last.x, plan.bounds), lambda: plan.prior)
        start = jnp.where(goes_on, last.x, starts[jnp.where(at < n_starts, at, 0)])
        found = descend(equations, release, noise, prior, start, max_iter=plan.max_iter)
        kept = goes_on | (found.cost < last.cost)
        best = jax.tree.map(lambda new, old: jnp.where(kept, new, old), found, last)
        left = jax.lax.cond(
            at == n_descents - 1, lambda: variances(equations, prior, best), lambda: jnp.zeros_like(best.x)
        )
        return (best, noise, left), found.x

    zero = jnp.zeros_like(plan.prior.mean[0])
    shapes = jax.eval_shape(
        lambda x: descend(equations, release, first, plan.prior, x, max_iter=plan.max_iter), plan.prior.mean
    )
    nothing = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
    nothing = nothing._replace(x=plan.prior.mean, cost=zero + jnp.inf)
    (best, _, left), ends = jax.lax.scan(descent, (nothing, first, jnp.zeros_like(starts[0])), jnp.arange(n_descents))
    return _Found(best.x, ends[:n_starts], left, best.converged)


def held(prior: Belief, x: Array, bounds: Any) -> Belief:
    """The prior with the features of x beyond the bounds held there; one that is pushed back inside comes free."""
    low, high = bounds[0], bounds[1]
    return _conditioned(prior, (x < low) | (x > high), jnp.clip(x, low, high), PIN * (high - low))


def _conditioned(prior: Belief, which: Array, values: Array, spread: Array) -> Belief:
    """The prior given noisy readings of some features: which (d,), values (d,), standard deviation ()."""
    root = jnp.where(which, 1 / spread, 0)
    loading = prior.covariance * root  # C D^1/2
    factor = jax.scipy.linalg.cho_factor(jnp.eye(len(root)) + root[:, None] * loading)
    gain = jax.scipy.linalg.cho_solve(factor, loading.T).T
    mean = prior.mean + gain @ (root * (values - prior.mean))
    covariance = prior.covariance - gain @ loading.T
    return Belief(mean, (covariance + covariance.T) / 2)


def _reconstruction(found: _Found, bounds: tuple[float, float] | None, is_single: bool) -> Reconstruction:
    x = np.array(found.x, np.float64)
    candidates = np.concatenate([x[:, None], np.asarray(found.candidates)], axis=1)
    finite = np.isfinite(x).all(axis=1)
    x[~finite] = np.nan
    if bounds is not None:
        x, candidates = np.clip(x, *bounds), np.clip(candidates, *bounds)
    status = np.where(np.asarray(found.converged), np.uint32(Status.OK), np.uint32(Status.NOT_CONVERGED))
    status = np.where(finite, status, np.uint32(Status.NON_FINITE)).astype(np.uint32)
    variance = np.maximum(np.asarray(found.variance, np.float64), 0)
    spread = np.sqrt(variance.sum(axis=1))
    if not is_single:
        return Reconstruction(x, None, candidates, spread, status, feature_mse=variance)
    return Reconstruction(x[0], None, candidates[0], spread[0], status[0], feature_mse=variance[0])
