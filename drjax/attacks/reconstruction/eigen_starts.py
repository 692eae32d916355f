"""Where descents on the equations of `eigen_equations` start: records that come close to fulfilling them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import scipy.optimize

from drjax.attacks.reconstruction.eigen_equations import Eigen, Form, split_steps, through
from drjax.attacks.reconstruction.spacings import off_steps, spacings
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

HALVINGS = 52
"""Times that an interval around a root is halved."""

MOST_OPEN, TOLD = 12, 1e-7
"""Features of which all combinations of two roots are tried, and error of the equation that tells them apart."""

PRICE = 6.4
"""Minus twice the logarithm of the share of values that lie on the steps of a feature by chance."""

COARSE = 1e-4
"""Steps of more than this share of what is tried are rounded to, where relations among features leave some open."""

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

    per_square = _per_square(scaler, np.asarray(through(single, jnp.asarray(known))), where)
    usual = per_square(np.asarray(through(single, jnp.asarray(known)))).mean(axis=0)
    features = _Features(
        record=np.asarray(equations.record),
        where=where,
        tried=tried,
        mean=mean,
        centred=centred,
        usual=usual,
        inverse=inverse,
        open_turn=open_turn,
        squares=per_square(moved),
        behind=lambda x: np.asarray(through(single, jnp.asarray(x))),
        per_square=per_square,
        spacing=spacings(known[:, where]),
        origin=known[0, where],
        spread=known[:, where].std(axis=0),
    )
    # One component has one equation a feature, which two values fulfil.
    solved = _by_roots if equations.form == "scores" and given.shape[2] == 1 else _by_trial
    starts = np.zeros((len(given), 1, len(where) + 1))
    for lane, release in enumerate(given):
        starts[lane, 0, :-1] = solved(features, release, equations.form)
    return starts


@dataclass(frozen=True)
class _Features:
    """What `feature_by_feature` knows of p features of d.

    Attributes:
        record: (d,), values of the features that do not vary.
        where: (p,), places of those that do.
        tried: (values, d), what is tried.
        mean: (p,), of the known records, after single steps as all below.
        centred: (n-1, p).
        usual: (p,), 1 / scale^2 with a record of the kind in the target's place.
        inverse: (p, n-1), of `centred`.
        open_turn: (o, p), directions in which the known records do not vary.
        squares: (values, p), 1 / scale^2 at what is tried.
        behind: Function from records (m, d) to what single steps make of them.
        per_square: Function from these to 1 / scale^2, (m, p).
        spacing: (p,), steps of values; 0 for none.
        origin: (p,), a value on them.
        spread: (p,), standard deviations of the known records.
    """

    record: np.ndarray
    where: np.ndarray
    tried: np.ndarray
    mean: np.ndarray
    centred: np.ndarray
    usual: np.ndarray
    inverse: np.ndarray
    open_turn: np.ndarray
    squares: np.ndarray
    behind: Callable[[np.ndarray], np.ndarray]
    per_square: Callable[[np.ndarray], np.ndarray]
    spacing: np.ndarray
    origin: np.ndarray
    spread: np.ndarray

    def made(self, values: np.ndarray, along: np.ndarray, score: float) -> np.ndarray:
        """g (m, p) of one component for values (m, p), `along` (p,) and the target's score."""
        x = np.tile(self.record, (len(values), 1))
        x[:, self.where] = values
        behind = self.behind(x)
        return self.per_square(behind) * (along + (behind[:, self.where] - self.mean) * score)


def _per_square(scaler: Scaler | None, known: np.ndarray, where: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    """Function from records (m, d) to 1 / scale^2 of features (m, p) with each beside the known ones (n-1, d)."""
    if scaler is None:
        return lambda y: np.ones((len(y), len(where)))
    summary = scaler.summary(jnp.asarray(known))
    scales = jax.jit(jax.vmap(lambda one: scaler.with_record(summary, one).scale))
    return lambda y: 1 / np.asarray(scales(jnp.asarray(y)))[:, where] ** 2


def _by_trial(features: _Features, release: np.ndarray, form: Form) -> np.ndarray:
    """(p,) values that come closest to fulfilling the equations of a release (n, k), of those that are tried."""
    where, open_turn, centred = features.where, features.open_turn, features.centred
    own_scores = release[1:] - release[1:].mean(axis=0)
    slopes = features.inverse @ own_scores  # (p, k), g over the eigenvalues
    along = centred.T @ release[1:]
    moved = features.behind(features.tried)[:, where] - features.mean
    made = features.squares[..., None] * (along + moved[..., None] * release[0])  # (values, p, k) g

    def solved(eigenvalues: np.ndarray) -> tuple[float, np.ndarray]:
        """What the best values leave over, and their places in the grid."""
        found, at = features.usual[:, None] * along, np.zeros(len(where), int)
        total = np.inf
        for _ in range(N_REPEATS if len(open_turn) else 1):
            wanted = slopes * eigenvalues + open_turn.T @ (open_turn @ found)
            left = (((made - wanted) / eigenvalues) ** 2).sum(axis=-1)
            at = left.argmin(axis=0)
            total = float(left.min(axis=0).sum())
            found = np.take_along_axis(made, at[None, :, None], axis=0)[0]
        return total, at

    eigenvalues = (release**2).sum(axis=0)
    if form == "directions":
        # What the known records' own scatter says, but for what one record changes.
        unit = own_scores / np.linalg.norm(own_scores, axis=0)
        about = np.einsum("nk,nk->k", unit, (centred * features.usual) @ (centred.T @ unit))
        corners = np.concatenate([np.zeros((1, len(about))), 2 / len(centred) * np.eye(len(about))])
        search = scipy.optimize.minimize(
            lambda shift: solved(about * (1 + shift))[0],
            corners[0],
            method="Nelder-Mead",
            options=SEARCH | {"initial_simplex": corners - corners.mean(axis=0)},
        )
        eigenvalues = about * (1 + search.x)
    return features.tried[solved(eigenvalues)[1], where]


def _by_roots(features: _Features, release: np.ndarray, form: Form) -> np.ndarray:
    """(p,) values that fulfil the equations of one component's scores (n, 1).

    Each feature has two: that on the steps in which it is recorded, or, where neither or both are, those of all
    combinations that the target's own equation tells, and else that nearer to the known records.
    """
    del form
    where, open_turn = features.where, features.open_turn
    eigenvalue, score = float((release**2).sum()), float(release[0, 0])
    slopes = features.inverse @ (release[1:, 0] - release[1:, 0].mean())
    along = features.centred.T @ release[1:, 0]
    moved = features.behind(features.tried)[:, where] - features.mean
    made = features.squares * (along + moved * score)
    found, chosen = features.usual * along, features.mean
    for _ in range(N_REPEATS if len(open_turn) else 1):
        wanted = slopes * eigenvalue + open_turn.T @ (open_turn @ found)
        roots = _roots(features.tried[:, where], made, wanted, lambda v: features.made(v, along, score))
        is_off = off_steps(roots, features.spacing, features.origin)
        away = np.abs(roots - features.mean) / features.spread
        # One of the two on the steps is right; else the nearer.
        second = np.where(is_off[0] == is_off[1], away[1] < away[0], is_off[0])
        chosen = np.where(second, roots[1], roots[0])
        is_open = (is_off[0] == is_off[1]) & (roots[0] != roots[1])
        if not len(open_turn):
            return _combined(features, release, roots, second.astype(int), np.flatnonzero(is_open), wanted)
        coarse = features.spacing > COARSE * np.ptp(features.tried[:, where], axis=0)
        step = np.where(coarse, features.spacing, 1)
        chosen = np.where(coarse, features.origin + step * np.round((chosen - features.origin) / step), chosen)
        found = features.made(chosen[None], along, score)[0]
    return chosen


def _roots(
    tried: np.ndarray, made: np.ndarray, wanted: np.ndarray, function: Callable[[np.ndarray], np.ndarray]
) -> np.ndarray:
    """(2, p) values at which a function is as wanted (p,), the first and the last; twice the nearest where none is.

    Args:
        tried: (values, p), increasing.
        made: (values, p), the function there.
        wanted: (p,).
        function: Of values (m, p).
    """
    over = made > wanted
    crossed = over[1:] != over[:-1]
    nearest = np.take_along_axis(tried, np.abs(made - wanted).argmin(axis=0)[None], axis=0)
    first, last = crossed.argmax(axis=0), len(crossed) - 1 - crossed[::-1].argmax(axis=0)
    at = np.stack([first, last])
    low, high = np.take_along_axis(tried, at, axis=0), np.take_along_axis(tried, at + 1, axis=0)
    is_over = np.take_along_axis(over, at, axis=0)
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        is_left = (function(middle) > wanted) == is_over
        low, high = np.where(is_left, middle, low), np.where(is_left, high, middle)
    return np.where(crossed.any(axis=0), (low + high) / 2, nearest)


def _combined(
    features: _Features,
    release: np.ndarray,
    roots: np.ndarray,
    choice: np.ndarray,
    is_open: np.ndarray,
    wanted: np.ndarray,
) -> np.ndarray:
    """(p,) of two roots each (2, p), those that the target's own row of the equations tells of open choices."""
    if len(is_open) > MOST_OPEN:
        # Those whose roots are most alike in likelihood are worth trying.
        away = np.abs(roots - features.mean)[:, is_open] / features.spread[is_open]
        is_open = is_open[np.argsort(np.abs(away[0] - away[1]))[:MOST_OPEN]]
    offsets = roots - features.mean
    terms = offsets * wanted / len(release)
    # Row 0 of W W^T theta: the target's offset from the mean of all n is (n-1)/n of that from the others'.
    own = (len(release) - 1) * terms
    eigenvalue, score = float((release**2).sum()), float(release[0, 0])
    left = eigenvalue * score - np.take_along_axis(own, choice[None], axis=0)[0].sum()
    bits = (np.arange(2 ** len(is_open))[:, None] >> np.arange(len(is_open))) & 1
    change = np.where(bits != choice[is_open], own[1 - choice[is_open], is_open] - own[choice[is_open], is_open], 0)
    energy = (np.where(bits, offsets[1, is_open], offsets[0, is_open]) / features.spread[is_open]) ** 2
    # A value on its steps may be so by chance: nothing, or one feature that they had decided, is turned as well.
    turned = np.append(own[1 - choice, np.arange(len(choice))] - own[choice, np.arange(len(choice))], 0)
    price = np.append(np.full(len(choice), PRICE), 0)
    missing = left - change.sum(axis=1)[:, None] - turned
    cost = (missing / (TOLD * abs(eigenvalue * score) + 1e-300)) ** 2 + energy.sum(axis=1)[:, None] + price
    row, feature = np.unravel_index(cost.argmin(), cost.shape)
    choice = np.append(choice, 0)
    choice[is_open] = bits[row]
    choice[feature] = 1 - choice[feature]
    choice = choice[:-1]
    return np.take_along_axis(roots, choice[None], axis=0)[0]
