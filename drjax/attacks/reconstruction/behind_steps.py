"""The target of a published PCA behind steps: scaled, standardised or unit records, whitened or rotated scores.

`eigen_equations` says what the scores say; here the likeliest record under which they hold is found, by Gauss-Newton
steps from several starts, and checked by what it leaves over.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from drjax.attacks.reconstruction.eigen_equations import Eigen, Form, fold
from drjax.attacks.reconstruction.eigen_features import PRICE, feature_by_feature, is_ambiguous
from drjax.attacks.reconstruction.eigen_noise import ScoreNoise, of_scores
from drjax.attacks.reconstruction.eigen_starts import conditioned, most_alike
from drjax.attacks.reconstruction.eigen_unknowns import Unknowns, alone_in, unknowns_of
from drjax.attacks.reconstruction.gauss_newton import Belief, Fit, Noise, descend, variances
from drjax.attacks.reconstruction.inversion import definite
from drjax.attacks.reconstruction.priors import GaussianPrior
from drjax.attacks.reconstruction.spacings import ON, off_steps, spacings
from drjax.core import batching
from drjax.core.types import Array, Reconstruction, Status, hyperparams, traced

MAX_ITER, MOST_ITER = 80, 200
"""Steps of one of the first descents, and of one that goes on from there."""

FIRST_NOISE = (3e-4, 1e-4)
"""Noise of the first descents, as shares of the largest coordinate: with less, narrow valleys stop them."""

FURTHER_NOISE = (3e-5, 1e-5, 3e-6, 1e-6, 1e-7, 1e-8, 1e-9)
"""Noise of those that go on from the best of them, down to that of the release's digits: a solver that stopped early
makes more, and the likeliest level counts."""

LEAST_NOISE = 1e-9
"""Least noise that equations are weighed by, as a share of the largest coordinate: products of less are rounding."""

SAME = 0.03
"""Two descents have found one record where they end closer, squared and in units of the prior's variances."""

TELLING = 1e-6
"""Noise, as a share of the largest coordinate, below which no false minimum fulfils the equations."""

ROUNDS = 4
"""Steps to the likeliest record within the bounds."""

MOST_MISFIT = 4.0
"""Mean squared miss of the equations, in noise, from which the answer is none: false minima miss by thousands."""

MOST_COST = 1.3
"""The same of the objective a number where noise shows that the digits do not tell: false minima have 1.5 and more."""

TOLD, MOST_OFF = 0.1, 0.1
"""Error of a feature, in the steps in which it is recorded, below which these may contradict it; and share of such
features that they may contradict, by more than three times the error."""

MOST_ODD = 100.0
"""The same of the squared distance of a feature from what is expected of it, in standard deviations: where there are
more features than equations some record always fulfils these, and only a far-off one does where the pipeline was
another."""


class _Found(NamedTuple):
    """What the descents on one release found.

    Attributes:
        x: (p + 1,), the likeliest record.
        noise: Likeliest standard deviation of a coordinate.
        digits: Least noise that the digits allow, as a share of the largest coordinate.
        misfit: Mean squared residual in units of that least noise.
        cost: Objective of the first descents' best, a number.
        is_agreed: Whether two of them ended there.
        oddity: Mean squared distance from what is expected, in standard deviations.
        is_odd: Whether features that are told to fewer digits than they were recorded in lie between these.
        variance: Variance left of each unknown.
        spread: Variance that other minima add to each.
    """

    x: Array
    noise: jax.Array
    digits: jax.Array
    misfit: jax.Array
    cost: jax.Array
    is_agreed: jax.Array
    oddity: jax.Array
    is_odd: jax.Array
    variance: jax.Array
    spread: jax.Array


@hyperparams
class _Plan:
    equations: Eigen = traced()
    prior: Belief = traced()
    covariance: Array = traced()
    spacing: Array = traced()
    origin: Array = traced()
    n_equations: int
    has_solved: bool = False


def reconstruct_scores(
    key: Array,
    steps: tuple[Any, ...],
    known: np.ndarray,
    releases: np.ndarray,
    *,
    form: Form,
    is_centred: bool,
    expected_of: np.ndarray,
    noise: np.ndarray,
    covariance: np.ndarray | None = None,
    bounds: tuple[float, float] | None = None,
    progress: bool = False,
) -> Reconstruction:
    """The likeliest target of each of m releases (m, n, k), target in row 0.

    Args:
        key: PRNG key of the starts.
        steps: Steps before the method.
        known: (n-1, d), float64.
        releases: Scores, float64.
        form: Part of the scores that is left, one of `FORMS`.
        is_centred: Whether records are centred after the steps.
        expected_of: (s, d) records that tell what the target may be.
        noise: (m,), standard deviation of a coordinate's error.
        covariance: (k, k) of the errors of a row, over the squared noise; of independent ones if None.
        bounds: Least and greatest value of a feature.
        progress: Show a bar.

    Returns:
        x (m, d); residual_norm (m,) the root of the variance left, summed over features; expected_mse (m,). Status OK
        where the equations hold to the noise stated; UNCERTIFIED where they show more, where features lie between the
        steps in which known ones are recorded, or where one component leaves open which of two values a feature has;
        MISFIT where no record fulfils them; NOT_CONVERGED where noise hides which of several does. In the last
        two x is the prior's mean and residual_norm nan. For q equations in p features, n k of them or `fold`'s, a step
        costs O(q p^2), or O(q^2 (p + q)) where q is less than `gauss_newton.WIDE` times p.
    """
    unknowns = unknowns_of(steps, known, is_centred=is_centred)
    given = releases - releases.mean(axis=1, keepdims=True) if is_centred and form != "scores" else releases
    expected = unknowns.of(expected_of)
    if expected_of is known:
        expected[:, -1] = alone_in(known)
    prior = GaussianPrior.fit(expected)
    expected_covariance = definite(prior.covariance)
    k = releases.shape[2]
    level = np.maximum(noise, LEAST_NOISE * np.abs(given).max(axis=(1, 2)))
    with jax.enable_x64(True):
        equations = Eigen(
            steps=steps,
            known=jnp.asarray(known),
            record=jnp.asarray(unknowns.record),
            where=jnp.asarray(unknowns.where),
            new=jnp.asarray(unknowns.new),
            form=form,
            is_centred=is_centred,
        )
        folded, few = fold(equations, given)
        parts = [most_alike(folded, few, expected), conditioned(key, folded, prior.mean, expected_covariance, few)]
        alone = feature_by_feature(equations, given)
        starts = np.concatenate(parts if alone is None else [alone, *parts], axis=1)
        plan = _Plan(
            equations=folded,
            prior=Belief(jnp.asarray(prior.mean), jnp.asarray(expected_covariance)),
            covariance=jnp.asarray(np.eye(k) if covariance is None else covariance),
            spacing=jnp.append(spacings(known[:, unknowns.where]), 0),
            origin=jnp.append(known[0, unknowns.where], 0),
            n_equations=given[0].size,
            has_solved=alone is not None,
        )
        lanes = few, level, np.abs(given).max(axis=(1, 2)), starts
        options = {"batch_size": 4, "progress": progress, "description": "targets solved for"}
        solved = batching.map_lanes(_solve, plan, lanes, **options)
        found: _Found = jax.tree.map(np.asarray, solved)
        if bounds is not None:
            p = len(unknowns.where)
            box = np.append(np.full(p, bounds[0]), 0.0), np.append(np.full(p, bounds[1]), max(len(unknowns.fixed), 1.0))
            found = found._replace(x=_within(plan, few, found, prior, box))
        result = _reconstruction(found, unknowns, prior.mean, expected_of)
        if k == 1:
            is_open = is_ambiguous(equations, given, np.asarray(found.x), np.sqrt(MOST_MISFIT) * level) & (
                result.status == Status.OK
            )
            result = result._replace(status=np.where(is_open, np.uint32(Status.UNCERTIFIED), result.status))
    return result if bounds is None else result._replace(x=np.clip(result.x, *bounds))


def _within(
    plan: _Plan, given: np.ndarray, found: _Found, prior: GaussianPrior, box: tuple[np.ndarray, np.ndarray]
) -> np.ndarray:
    """(m, p + 1) likeliest records within a box (least, greatest), by quadratic programs from those without it."""
    equations = plan.equations
    linearise, residual, errors_of = jax.jit(Eigen.linearise), jax.jit(Eigen.residual), jax.jit(of_scores)
    least_variance = definite(prior.covariance)
    ends = np.clip(found.x, *box)
    for i, (start, release, noise) in enumerate(zip(found.x, given, found.noise, strict=True)):
        if not np.isfinite(start).all() or (start == ends[i]).all():
            continue
        shape = errors_of(equations, release, start, plan.covariance)
        errors, unit = shape.times(noise), np.abs(release).max()

        def cost(u: np.ndarray, release: np.ndarray = release, errors: ScoreNoise = errors) -> float:
            left, away = np.asarray(errors.whiten(residual(equations, release, u))), u - prior.mean
            return float(left @ left + away @ np.linalg.solve(least_variance, away))

        errors = shape.times(unit)
        u, least = start, cost(ends[i])
        for _ in range(ROUNDS):
            left, slope = (np.asarray(errors.whiten(part)) for part in linearise(equations, release, u))
            u = prior.condition(slope, (slope @ u - left)[None], (noise / unit) ** 2, lower=box[0], upper=box[1])[0]
            now = cost(u)
            ends[i], least = (u, now) if now < least else (ends[i], least)
    return ends


def _reconstruction(found: _Found, unknowns: Unknowns, mean: np.ndarray, expected_of: np.ndarray) -> Reconstruction:
    m, d = len(found.x), len(unknowns.record)
    is_exact = (found.misfit <= MOST_MISFIT) & (found.oddity <= MOST_ODD) & ~found.is_odd
    is_answer = np.isfinite(found.x).all(axis=1) & (is_exact | (found.cost <= MOST_COST))
    # Where the target's scores are next to nothing there are many minima. Rounding hides which is the right one; digits
    # do not, and of a solver's noise the cost tells.
    is_hidden = is_exact & (found.digits > TELLING) & ~found.is_agreed
    is_right = is_answer & ~is_hidden
    u = np.where(is_right[:, None], found.x, mean)
    x = np.tile(unknowns.record, (m, 1))
    x[:, unknowns.where] = u[:, :-1]
    own, spread = expected_of.mean(axis=0), expected_of.var(axis=0)
    left = np.where(is_right, np.maximum(found.variance.sum(axis=1), 0) + found.spread.sum(axis=1), spread.sum())
    errors = np.zeros((m, d))
    errors[:, unknowns.where] = (np.maximum(found.variance, 0) + found.spread)[:, :-1]
    if len(unknowns.fixed):
        # As many are new as were counted; which they are, records of the kind tell.
        away = own[unknowns.fixed] - unknowns.record[unknowns.fixed]
        share = np.clip(u[:, -1:] / max(mean[-1], 1e-12), 0, 10) if mean[-1] > 0 else np.zeros((m, 1))
        x[:, unknowns.fixed] += share * away
        left = left + np.where(is_right, share[:, 0] * spread[unknowns.fixed].sum(), 0)
        errors[:, unknowns.fixed] = share * spread[unknowns.fixed]
    sure = np.where(is_exact, np.uint32(Status.OK), np.uint32(Status.UNCERTIFIED))
    lost = np.where(is_answer, np.uint32(Status.NOT_CONVERGED), np.uint32(Status.MISFIT))
    status, residual = np.where(is_right, sure, lost).astype(np.uint32), np.where(is_right, np.sqrt(left), np.nan)
    errors = np.where(is_right[:, None], errors, spread)
    return Reconstruction(x, None, x[:, None], residual, status, left / d, feature_mse=errors)


def _solve(plan: _Plan, lanes: Any) -> _Found:
    """All lanes, one after the other: each ends when it is done."""
    return jax.lax.map(lambda lane: _solve_one(plan, *lane), lanes)


def _likeliest(
    plan: _Plan, release: jax.Array, level: jax.Array, unit: jax.Array, best: Array, solved: jax.Array
) -> tuple[Fit, jax.Array, jax.Array]:
    """The likeliest fit from the first descents' best on, or from what was solved feature by feature.

    Returns:
        The fit, its noise, and the squares (q,) of what it leaves over, in units of the noise's least level.
    """
    q = plan.n_equations

    def descent(start: Array, noise: ScoreNoise) -> Fit:
        return descend(plan.equations, release, noise, plan.prior, start, max_iter=MOST_ITER)

    def evidence(fit: Fit, noise: jax.Array, errors: ScoreNoise) -> jax.Array:
        """Minus twice the logarithm of the release's density under these errors, by Laplace's rule."""
        gram = fit.model.gram
        # Rows that were folded err as they are.
        scale = errors.log_scale + (q - release.size) * jnp.log(noise)
        return fit.cost + jnp.linalg.slogdet(jnp.eye(len(gram)) + gram)[1] + 2 * scale

    def off(x: Array) -> jax.Array:
        """The same of values between the steps of their features."""
        return PRICE * jnp.sum(off_steps(x, plan.spacing, plan.origin))

    def from_here(start: Array, noise: jax.Array, shape: ScoreNoise) -> tuple[Fit, jax.Array, jax.Array]:
        errors = shape.times(noise)
        found = descent(start, errors)
        return found, noise, evidence(found, noise, errors)

    def better(new: Any, old: Any, is_better: jax.Array) -> Any:
        return jax.tree.map(lambda new, old: jnp.where(is_better, new, old), new, old)

    shape = of_scores(plan.equations, release, best, plan.covariance)

    def further(carry: tuple[Any, ...], share: jax.Array) -> tuple[tuple[Any, ...], None]:
        last, kept, is_done = carry
        own = jnp.maximum(level, share * unit)

        def again() -> tuple[Any, ...]:
            new = from_here(last.x, own, shape)
            return new[0], better(new, kept, new[2] < kept[2]), new[2] > kept[2] + q

        # Below the level of the digits nothing changes.
        return jax.lax.cond(is_done | (own >= kept[1]), lambda: carry, again), None

    start = from_here(best, jnp.maximum(level, FIRST_NOISE[-1] * unit), shape)
    (_, kept, _), _ = jax.lax.scan(further, (start[0], start, jnp.bool_(False)), jnp.asarray(FURTHER_NOISE))
    if plan.has_solved:
        # What was solved feature by feature needs no more noise than the release has; with more, its narrow valley
        # would not hold it.
        own_shape = of_scores(plan.equations, release, solved, plan.covariance)

        def at_once(kept: tuple[Any, ...], share: jax.Array) -> tuple[Any, None]:
            new = from_here(solved, jnp.maximum(level, share * unit), own_shape)
            new = *new[:2], new[2] + off(new[0].x)
            return better(new, kept, new[2] < kept[2]), None

        kept = kept[0], kept[1], kept[2] + off(kept[0].x)
        kept, _ = jax.lax.scan(at_once, kept, jnp.asarray(FURTHER_NOISE))
    fit, noise, _ = kept
    errors = of_scores(plan.equations, release, fit.x, plan.covariance).times(level)
    return fit, noise, errors.whiten(fit.model.residual) ** 2


def _solve_one(plan: _Plan, release: jax.Array, level: jax.Array, unit: jax.Array, starts: jax.Array) -> _Found:
    equations, q = plan.equations, plan.n_equations

    def descent(start: Array, noise: Array, max_iter: int = MAX_ITER) -> Fit:
        scale = jnp.full(release.size, noise)
        return descend(equations, release, Noise(scale, None), plan.prior, start, max_iter=max_iter)

    first = [jnp.maximum(level, share * unit) for share in FIRST_NOISE]

    def gaps(x: Array, other: Array) -> jax.Array:
        return jnp.mean((x - other) ** 2 / jnp.diagonal(plan.prior.covariance), axis=-1)

    def search(carry: tuple[Fit, jax.Array], given: jax.Array) -> tuple[tuple[Fit, jax.Array], tuple[Any, Any]]:
        best, is_sure = carry
        # Where the target's scores are next to nothing, signs of offsets are hardly told: the last start is the mirror.
        start = jnp.where(jnp.isnan(given), 2 * plan.prior.mean - best.x, given)
        is_sure &= jnp.isfinite(given).all()

        def again() -> tuple[tuple[Fit, jax.Array], tuple[Any, Any]]:
            x = start
            for noise in first[:-1]:
                x = descent(x, noise).x
            found = descent(x, first[-1])
            is_same = gaps(found.x, best.x) <= SAME
            kept = jax.tree.map(lambda new, old: jnp.where(found.cost < best.cost, new, old), found, best)
            return (kept, is_same & (kept.cost <= MOST_COST * q)), (found.x, found.cost)

        skipped = (best, is_sure), (jnp.zeros_like(best.x), jnp.full_like(best.cost, jnp.inf))
        return jax.lax.cond(is_sure, lambda: skipped, again)

    shapes = jax.eval_shape(descent, starts[0], level)
    nothing = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
    # The last start is not known before.
    open_starts = jnp.concatenate([starts, jnp.full_like(starts[:1], jnp.nan)])
    nothing = nothing._replace(cost=jnp.full_like(nothing.cost, jnp.inf))
    (best, _), (ends, costs) = jax.lax.scan(search, (nothing, jnp.bool_(False)), open_starts)
    is_end = jnp.isfinite(costs) & jnp.isfinite(ends).all(axis=1)
    weights = jnp.where(is_end, jnp.exp(jnp.maximum(-0.5 * (costs - best.cost), -100)), 0)
    spread = weights @ jnp.where(is_end[:, None], ends - best.x, 0) ** 2 / jnp.sum(weights)

    kept, noise, squares = _likeliest(plan, release, level, unit, best.x, starts[0])
    away = kept.x - plan.prior.mean
    # Not the objective: with next to no noise what it sums of the steps is rounding.
    oddity = jnp.dot(away, jax.scipy.linalg.solve(plan.prior.covariance, away, assume_a="pos")) / len(away)
    left = variances(equations, plan.prior, kept)
    told = jnp.sqrt(jnp.maximum(left, 0)) / jnp.where(plan.spacing > 0, plan.spacing, jnp.inf)
    is_told = (plan.spacing > 0) & (told < TOLD)
    is_between = is_told & off_steps(kept.x, plan.spacing, plan.origin, jnp.maximum(ON, 3 * told))
    is_odd = jnp.sum(is_between) > jnp.maximum(1, MOST_OFF * jnp.sum(is_told))
    return _Found(
        x=jnp.asarray(kept.x),
        noise=noise,
        digits=level / unit,
        misfit=jnp.sum(squares) / q,
        cost=jnp.asarray(best.cost) / q,
        is_agreed=jnp.sum((gaps(ends, best.x) <= SAME) & jnp.isfinite(costs)) > 1,
        oddity=oddity,
        is_odd=is_odd,
        variance=jnp.asarray(left),
        spread=spread,
    )
