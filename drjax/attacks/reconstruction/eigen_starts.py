"""Where descents on the equations of `eigen_equations` start: records that come close to fulfilling them."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import scipy.optimize

from drjax.attacks.reconstruction.eigen_equations import Eigen, split_steps, through
from drjax.core.types import Array
from drjax.dr.pipeline.steps import Scaler

N_ALIKE, N_DRAWN = 10, 3
"""Descents from the records whose own releases would be most like this one, and from drawn records, beside two."""

MOST_COMPARED = 2000
"""Records among which the most alike are sought."""

N_GRID, REACH = 2001, 2.0
"""Values of a feature tried by itself, from this many ranges of the known records below to as many above."""

SEARCH = {"maxfev": 200, "xatol": 1e-9, "fatol": 0.0}
"""Of the eigenvalues, where whitening took them."""

N_REPEATS = 8
"""Turns of features and of what linear relations among them leave open, each given the other."""


def most_alike(equations: Eigen, given: np.ndarray, records: np.ndarray) -> np.ndarray:
    """(m, a, p + 1) of the records (s, p + 1) those that come closest to fulfilling the equations of each release."""
    some = jnp.asarray(records[:MOST_COMPARED])

    @jax.jit
    def squares(equations: Eigen, release: jax.Array, some: jax.Array) -> jax.Array:
        return jax.lax.map(lambda u: jnp.sum(equations.residual(release, u) ** 2), some, batch_size=32)

    order = [np.argsort(np.asarray(squares(equations, jnp.asarray(release), some)))[:N_ALIKE] for release in given]
    return records[np.stack(order)]


def conditioned(
    key: Array, equations: Eigen, mean: np.ndarray, covariance: np.ndarray, given: np.ndarray
) -> np.ndarray:
    """(m, N_DRAWN + 2, p + 1): the mean, what is expected of records of the target's scores, and draws of such ones."""
    columns, slope = (np.asarray(part) for part in jax.jit(Eigen.columns)(equations, jnp.asarray(mean)))
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


def feature_by_feature(equations: Eigen, given: np.ndarray) -> np.ndarray | None:
    """(m, 1, p + 1) starts, where more records are known than features: then each feature can be solved for by itself.

    With kappa_j the known records' centred column j, a_j = x_j - mean, scale s_j(x_j) and theta_0 the target's scores,
    the equations of the known rows read sum_j kappa_ij g_ja = lambda_a theta_ia for

        g_ja = (kappa_j . theta_a + a_j theta_0a - c_j(x_j) sum_i theta_ia) / s_j(x_j)^2,

    up to a constant; c_j is the scaler's centre less the mean, and scores of centred records have no sum. So g comes of
    least squares, and x_j, one unknown, of k equations, by trying its values. Where some features are linear functions
    of others, g takes in these directions what it is on average over known records.
    None where these are too few, or a step mixes features.
    """
    single, rest = split_steps(equations.steps)
    where, known = np.asarray(equations.where), np.asarray(equations.known)
    if equations.form == "span" or not all(step.per_feature for step in single):
        return None
    scaler = rest[-1] if rest else None
    assert scaler is None or isinstance(scaler, Scaler)
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

    def affine(y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """1 / s_j(y_j)^2 and c_j(y_j) for records y (m, d); scalers before another change nothing."""
        if scaler is None:
            return np.ones((len(y), len(where))), np.tile(-mean, (len(y), 1))
        summary, with_record = scaler.summary(through(single, jnp.asarray(known))), scaler.with_record
        found = jax.jit(jax.vmap(lambda one: with_record(summary, one)))(jnp.asarray(y))
        return 1 / np.asarray(found.scale)[:, where] ** 2, np.asarray(found.centre)[:, where] - mean

    usual, usual_centre = (part.mean(axis=0) for part in affine(np.asarray(through(single, jnp.asarray(known)))))
    rows = centred if equations.is_centred else centred - usual_centre
    tried_squares, centres = affine(moved)
    moved = moved[:, where] - mean
    starts = np.zeros((len(given), 1, len(where) + 1))
    for lane, release in enumerate(given):
        own_scores = release[1:] - release[1:].mean(axis=0)
        slopes = inverse @ own_scores  # (p, k), g over the eigenvalues
        along = centred.T @ release[1:]
        shifted = 0.0 if equations.is_centred else centres[..., None] * release.sum(axis=0)
        made = tried_squares[..., None] * (along + moved[..., None] * release[0] - shifted)  # (values, p, k) g

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
            unit = own_scores if equations.is_centred else release[1:]
            unit = unit / np.linalg.norm(unit, axis=0)
            about = np.einsum("nk,nk->k", unit, (rows * usual) @ (rows.T @ unit))
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
