"""The target of a published PCA behind steps: scaled, standardised or unit records, whitened or rotated scores.

`eigen_equations` says what the scores say; here the likeliest record under which they hold is found, by Gauss-Newton
steps from several starts, and checked by what it leaves over.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy.optimize

from drjax.attacks.reconstruction.eigen_equations import Eigen, Form, split_steps, through
from drjax.attacks.reconstruction.gauss_newton import Belief, Fit, Noise, descend, variance
from drjax.attacks.reconstruction.inversion import definite, held
from drjax.attacks.reconstruction.priors import GaussianPrior
from drjax.core import batching
from drjax.core.types import Reconstruction, Status, hyperparams, traced

MAX_ITER = 80
"""Steps of one descent."""

N_DRAWN = 10
"""Descents from drawn starts, beside two, as long as none has ended where the equations hold."""

N_GRID, REACH = 2001, 2.0
"""Values of a feature tried by itself, from this many ranges of the known records below to as many above."""

SEARCH = {"maxfev": 200, "xatol": 1e-9, "fatol": 0.0}
"""Of the eigenvalues, where whitening took them."""

N_REPEATS = 8
"""Turns of features and of what linear relations among them leave open, each given the other."""

FIRST_NOISE = 1e-5
"""Noise that a descent begins with, as a share of the largest coordinate: with less, narrow valleys stop it."""

ROUNDS = 3
"""Descents with features held at the bounds that the last one has broken."""

LEAST_NOISE = 1e-9
"""Least noise that equations are weighed by, as a share of the largest coordinate: products of less are rounding."""

MOST_MISFIT = 4.0
"""Where equations miss by more noise than this, squared and on average, the answer is none: another pipeline and false
minima miss by thousands."""

MOST_ODD = 100.0
"""The same of the squared distance of a feature from what is expected of it, in standard deviations: where there are
more features than equations some record always fulfils these, and only a far-off one does where the pipeline was
another."""


class _Found(NamedTuple):
    x: jax.Array
    misfit: jax.Array
    oddity: jax.Array
    variance: jax.Array
    converged: jax.Array
    n_tried: jax.Array


@hyperparams
class _Plan:
    equations: Eigen = traced()
    prior: Belief = traced()
    bounds: Any = traced()


class Unknowns(NamedTuple):
    """What is unknown of a record: features that vary among the known ones, and how many others are new.

    Attributes:
        record: (d,), the first known record.
        where: (p,), places of the features that count by their value.
        fixed: (c,), places of those of which any other value makes the same column.
        new: (n,), that column, or zeros.
    """

    record: np.ndarray
    where: np.ndarray
    fixed: np.ndarray
    new: np.ndarray

    def of(self, x: np.ndarray) -> np.ndarray:
        """(m, p + 1) unknowns of records (m, d)."""
        n_new = (x[:, self.fixed] != self.record[self.fixed]).sum(axis=1)
        return np.concatenate([x[:, self.where], n_new[:, None]], axis=1)


def unknowns_of(steps: tuple[Any, ...], known: np.ndarray, *, is_centred: bool) -> Unknowns:
    """What a release of the known records (n-1, d) and one more says of the one more."""
    n, d = len(known) + 1, known.shape[1]
    record = known[0]
    single, rest = split_steps(steps)
    with jax.enable_x64(True):
        own = np.asarray(through(single, jnp.asarray(known)))
        is_fixed = (own == own[0]).all(axis=0)

        def column(value: float) -> np.ndarray:
            """What a feature that is constant in the known records becomes where the target's is another."""
            one = np.full((n, own.shape[1]), 1.0)
            one[0] += value
            made = np.asarray(through(rest, jnp.asarray(one)))[:, 0]
            return made - made.mean() if is_centred else made

        once, twice = column(1.0), column(2.0)
    if not is_fixed.any() or own.shape[1] != d or not np.allclose(once, twice, rtol=1e-9, atol=1e-12):
        return Unknowns(record, np.arange(d), np.arange(0), np.zeros(n))
    return Unknowns(record, np.flatnonzero(~is_fixed), np.flatnonzero(is_fixed), once)


def reconstruct_scores(
    key: jax.Array,
    steps: tuple[Any, ...],
    known: np.ndarray,
    releases: np.ndarray,
    *,
    form: Form,
    is_centred: bool,
    expected_of: np.ndarray,
    noise: np.ndarray,
    bounds: tuple[float, float] | None = None,
    progress: bool = False,
) -> Reconstruction:
    """The likeliest target of each of m releases (m, n, k), target in row 0.

    Args:
        key: PRNG key of the starts.
        steps: Steps before the method.
        known: (n-1, d), float64.
        releases: Scores, float64.
        form: What is left of the scores.
        is_centred: Whether records are centred after the steps.
        expected_of: (s, d) records that tell what the target may be.
        noise: (m,), standard deviation of a coordinate's error.
        bounds: Least and greatest value of a feature.
        progress: Show a bar.
    """
    d = known.shape[1]
    unknowns = unknowns_of(steps, known, is_centred=is_centred)
    given = releases - releases.mean(axis=1, keepdims=True) if is_centred and form != "scores" else releases
    expected = unknowns.of(expected_of)
    if expected_of is known:
        expected[:, -1] = _new_without(known)
    prior = GaussianPrior.fit(expected)
    covariance = definite(prior.covariance)
    low, high = (-np.inf, np.inf) if bounds is None else bounds
    p = len(unknowns.where)
    limits = np.append(np.full(p, low), 0.0), np.append(np.full(p, high), float(max(len(unknowns.fixed), 1)))
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
        starts = _starts(key, equations, prior.mean, covariance, given)
        alone = _feature_by_feature(equations, given)
        if alone is not None:
            starts = np.concatenate([alone, starts], axis=1)
        starts = np.clip(starts, *limits)
        plan = _Plan(
            equations=equations,
            prior=Belief(jnp.asarray(prior.mean), jnp.asarray(covariance)),
            bounds=tuple(jnp.asarray(limit) for limit in limits),
        )
        found: _Found = jax.tree.map(
            np.asarray,
            batching.map_lanes(
                _solve, plan, (given, level, starts), batch_size=4, progress=progress, description="targets solved for"
            ),
        )
    return _reconstruction(found, unknowns, prior.mean, expected_of, d)


def _reconstruction(
    found: _Found, unknowns: Unknowns, mean: np.ndarray, expected_of: np.ndarray, d: int
) -> Reconstruction:
    m = len(found.x)
    is_right = np.isfinite(found.x).all(axis=1) & (found.misfit <= MOST_MISFIT) & (found.oddity <= MOST_ODD)
    u = np.where(is_right[:, None], found.x, mean)
    x = np.tile(unknowns.record, (m, 1))
    x[:, unknowns.where] = u[:, :-1]
    own = expected_of.mean(axis=0)
    spread = expected_of.var(axis=0)
    left = np.where(is_right, np.maximum(found.variance, 0), spread.sum())
    if len(unknowns.fixed):
        # As many are new as were counted; which they are, records of the kind tell.
        away = own[unknowns.fixed] - unknowns.record[unknowns.fixed]
        share = np.clip(u[:, -1:] / max(mean[-1], 1e-12), 0, None) if mean[-1] > 0 else np.zeros((m, 1))
        x[:, unknowns.fixed] += np.minimum(share, 10) * away
        left = left + np.where(is_right, np.minimum(share[:, 0], 10) * spread[unknowns.fixed].sum(), 0)
    status = np.where(is_right, np.uint32(Status.OK), np.uint32(Status.MISFIT))
    status |= np.where(is_right & ~found.converged, np.uint32(Status.NOT_CONVERGED), np.uint32(0))
    residual = np.where(is_right, np.sqrt(left), np.nan)
    return Reconstruction(x, None, x[:, None], residual, status.astype(np.uint32), left / d)


def _new_without(known: np.ndarray) -> np.ndarray:
    """(n-1,), for each known record the features in which it alone differs from all others."""
    differs = known != np.median(known, axis=0)
    alone = differs.sum(axis=0) == 1
    return differs[:, alone].sum(axis=1)


def _starts(
    key: jax.Array, equations: Eigen, mean: np.ndarray, covariance: np.ndarray, given: np.ndarray
) -> np.ndarray:
    """(m, N_DRAWN + 2, p + 1): the mean, what is expected of records of the target's scores, and draws of such ones."""
    columns, slope = (np.asarray(part) for part in jax.jit(equations.columns)(jnp.asarray(mean)))
    where = np.asarray(equations.where)
    at_mean = columns[0]
    others = columns[1:]
    # Scores as a linear map of the columns, from the known rows; shrunk, where there are more features than records.
    gram = others @ others.T
    gram[np.diag_indices(len(gram))] += 1e-6 * np.trace(gram) / len(gram)
    readings = np.einsum("nd,mnk->mkd", others, np.linalg.solve(gram, given[:, 1:]))
    # Row 0 of the columns moves by its slope where its own feature moves.
    operator = np.zeros((len(given), given.shape[2], len(mean)))
    operator[:, :, :-1] = (readings * slope[0])[:, :, where]
    left = given[:, 0] - np.einsum("mkd,d->mk", readings, at_mean)
    root = np.linalg.cholesky(covariance)
    draws = np.asarray(jax.random.normal(key, (N_DRAWN, len(mean)), jnp.float64)) @ root.T
    draws = np.concatenate([np.zeros((1, len(mean))), draws])
    loaded = operator @ covariance
    spread = loaded @ np.swapaxes(operator, 1, 2)
    k = given.shape[2]
    spread += 1e-6 * np.trace(spread, axis1=1, axis2=2)[:, None, None] / k * np.eye(k)
    missing = left[:, None] - np.einsum("mkp,sp->msk", operator, draws)
    moved = np.einsum("mkp,msk->msp", loaded, np.linalg.solve(spread[:, None], missing[..., None])[..., 0])
    conditioned = mean + draws + moved
    return np.concatenate([np.broadcast_to(mean, (len(given), 1, len(mean))), conditioned], axis=1)


def _feature_by_feature(equations: Eigen, given: np.ndarray) -> np.ndarray | None:
    """(m, 1, p + 1) starts, where more records are known than features: then each feature can be solved for by itself.

    With kappa_j the known records' centred column j, a_j = x_j - mean, scale s_j(x_j) and theta_0 the target's scores,
    the equations of the known rows read sum_j kappa_ij g_ja = lambda_a theta_ia for

        g_ja = (kappa_j . theta_a + a_j theta_0a) / s_j(x_j)^2,

    up to a constant. So g comes of least squares, and x_j, one unknown, of k equations, by trying its values. Where
    some features are linear functions of others, g takes in these directions what it is on average over known records.
    None where these are too few, or a step mixes features.
    """
    single, rest = split_steps(equations.steps)
    where, known = np.asarray(equations.where), np.asarray(equations.known)
    if not (equations.is_centred and equations.form != "span" and all(step.per_feature for step in single)):
        return None
    scaler = rest[-1] if rest else None
    own = np.asarray(through(single, known))[:, where]
    mean = own.mean(axis=0)
    centred = own - mean
    left_singular, singular, turn = np.linalg.svd(centred, full_matrices=False)
    is_open = singular <= len(known) * np.finfo(np.float64).eps * singular[0]
    if len(known) <= len(where) or 2 * is_open.sum() > len(where):
        return None
    inverse = (turn[~is_open].T / singular[~is_open]) @ left_singular[:, ~is_open].T
    open_turn = turn[is_open]
    low, high = known[:, where].min(axis=0), known[:, where].max(axis=0)
    share = np.linspace(-REACH, 1 + REACH, N_GRID)[:, None]
    tried = np.zeros((N_GRID, known.shape[1])) + np.asarray(equations.record)
    tried[:, where] = low + share * (high - low)
    moved = np.asarray(through(single, tried))

    def per_square(y: np.ndarray) -> np.ndarray:
        """1 / s_j(y_j)^2 for records y (m, d); scalers before another change nothing."""
        if scaler is None:
            return np.ones((len(y), len(where)))
        summary = scaler.summary(through(single, jnp.asarray(known)))
        scale = jax.jit(jax.vmap(lambda one: scaler.with_record(summary, one).scale))(jnp.asarray(y))
        return 1 / np.asarray(scale)[:, where] ** 2

    usual = per_square(np.asarray(through(single, jnp.asarray(known)))).mean(axis=0)
    tried_squares = per_square(moved)
    moved = moved[:, where] - mean
    starts = np.zeros((len(given), 1, len(where) + 1))
    for lane, release in enumerate(given):
        own_scores = release[1:] - release[1:].mean(axis=0)
        slopes = inverse @ own_scores  # (p, k), g over the eigenvalues
        along = centred.T @ release[1:]
        made = tried_squares[..., None] * (along + moved[..., None] * release[0])  # (values, p, k) g

        def solved(eigenvalues: np.ndarray, slopes=slopes, along=along, made=made) -> tuple[float, np.ndarray]:
            """What the best values leave over, and their places in the grid."""
            found, at = usual[:, None] * along, np.zeros(len(where), int)
            total = np.inf
            for _ in range(N_REPEATS if len(open_turn) else 1):
                wanted = slopes * eigenvalues + open_turn.T @ (open_turn @ found)
                left = (((made - wanted) / eigenvalues) ** 2).sum(axis=-1)
                at = left.argmin(axis=0)
                total = float(left.min(axis=0).sum())
                found = np.take_along_axis(made, at[None, :, None], axis=0)[0]
            return total, at

        eigenvalues = (release**2).sum(axis=0)
        if equations.form == "directions":
            # What the known records' own scatter says, but for what one record changes.
            unit = own_scores / np.linalg.norm(own_scores, axis=0)
            about = np.einsum("nk,nk->k", unit, (centred * usual) @ (centred.T @ unit))
            corners = np.concatenate([np.zeros((1, len(about))), 2 / len(known) * np.eye(len(about))])
            search = scipy.optimize.minimize(
                lambda shift, about=about, solved=solved: solved(about * (1 + shift))[0],
                corners[0],
                method="Nelder-Mead",
                options=SEARCH | {"initial_simplex": corners - corners.mean(axis=0)},
            )
            eigenvalues = about * (1 + search.x)
        starts[lane, 0, :-1] = tried[solved(eigenvalues)[1], where]
    return starts


def _solve(plan: _Plan, lanes: Any) -> _Found:
    """All lanes, one after the other: each ends when it is done."""
    return jax.lax.map(lambda lane: _solve_one(plan, *lane), lanes)


def _solve_one(plan: _Plan, release: jax.Array, level: jax.Array, starts: jax.Array) -> _Found:
    equations, q = plan.equations, release.size
    first = jnp.maximum(level, FIRST_NOISE * jnp.max(jnp.abs(release)))

    def from_start(start: jax.Array, prior: Belief) -> Fit:
        for noise in (first, level):
            found = descend(equations, release, Noise(jnp.full(q, noise), None), prior, start, max_iter=MAX_ITER)
            start = found.x
        return found

    def misfit(fit: Fit) -> jax.Array:
        return jnp.mean((fit.model.residual / level) ** 2)

    def is_good(fit: Fit) -> jax.Array:
        return misfit(fit) <= MOST_MISFIT

    def tried(carry: tuple[Fit, jax.Array], start: jax.Array) -> tuple[tuple[Fit, jax.Array], None]:
        best, n_tried = carry

        def again() -> tuple[Fit, jax.Array]:
            found = from_start(start, plan.prior)
            is_better = misfit(found) < misfit(best)
            return jax.tree.map(lambda new, old: jnp.where(is_better, new, old), found, best), n_tried + 1

        return jax.lax.cond(is_good(best), lambda: (best, n_tried), again), None

    shapes = jax.eval_shape(lambda x: from_start(x, plan.prior), plan.prior.mean)
    nothing = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
    nothing = nothing._replace(model=nothing.model._replace(residual=jnp.full(q, jnp.inf)))
    (best, n_tried), _ = jax.lax.scan(tried, (nothing, jnp.int32(0)), starts)
    low, high = plan.bounds

    def within(carry: Fit, _: None) -> tuple[Fit, None]:
        is_outside = jnp.any((carry.x < low) | (carry.x > high)) & is_good(carry)

        def again() -> Fit:
            found = from_start(carry.x, held(plan.prior, carry.x, plan.bounds))
            return jax.tree.map(lambda new, old: jnp.where(is_good(found), new, old), found, carry)

        return jax.lax.cond(is_outside, again, lambda: carry), None

    best, _ = jax.lax.scan(within, best, None, length=ROUNDS)
    away = best.x - plan.prior.mean
    # Not the objective: with next to no noise what it sums of the steps is rounding.
    oddity = jnp.dot(away, jax.scipy.linalg.solve(plan.prior.covariance, away, assume_a="pos")) / len(away)
    left = variance(equations, plan.prior, best)
    return _Found(jnp.clip(best.x, low, high), misfit(best), oddity, left, is_good(best), n_tried)
