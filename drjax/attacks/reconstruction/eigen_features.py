"""Features solved for one by one from what scores of PCA behind scalers say, where many records are known."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import scipy.optimize

from drjax.attacks.reconstruction.eigen_equations import Eigen, Form, split_steps, through
from drjax.attacks.reconstruction.spacings import off_steps, spacings
from drjax.core.types import PyTree
from drjax.dr.pipeline.steps import Affine, Scaler

N_GRID, REACH = 2001, 2.0
"""Values of a feature tried by itself, from this many ranges of the known records below to as many above."""

SEARCH, THINNED = {"maxfev": 200, "xatol": 1e-9, "fatol": 0.0}, 8
"""Search of the eigenvalues, where whitening took them, and every which value is tried in it."""

HALVINGS = 52
"""Times that an interval around a root is halved."""

MOST_OPEN, TOLD = 12, 1e-7
"""Features of which all combinations of two roots are tried, and error of the equation that tells them apart."""

PRICE = 6.4
"""Minus twice the logarithm of the share of values that lie on the steps of a feature by chance."""

COARSE = 1e-4
"""Steps of more than this share of what is tried are rounded to, where relations among features leave some open."""

APART, UNLIKELY = 0.003, 12.0
"""Distance of two values of a feature, in standard deviations, that matters, and squared distance from the mean by
which one is so much the less likely that it does not count."""

BY_CHANCE = 0.01
"""Expected number of combinations of values that fulfil row 0 by chance, above which it says nothing that it holds."""

N_REPEATS = 8
"""Turns of features and of what linear relations among them leave open, each given the other."""


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
    features = _features_of(equations)
    if features is None:
        return None
    # One component has one equation a feature, which two values fulfil.
    is_single = equations.form == "scores" and given.shape[2] == 1 and equations.is_centred
    solved = _by_roots if is_single else _by_trial
    found = np.stack([solved(features, release, equations.form) for release in given])
    return np.concatenate([found, np.zeros((len(given), 1))], axis=1)[:, None]


def other_values(equations: Eigen, release: np.ndarray, x: np.ndarray) -> np.ndarray:
    """(p,), the other value of each feature that fulfils the equations of one component's known rows.

    Args:
        equations: Equations of which `feature_by_feature` gives a start.
        release: (n, 1).
        x: (p + 1,), unknowns that fulfil the equations.

    Returns:
        The value itself where there is no other within reach, or `feature_by_feature` gives no start.
    """
    features, values = _features_of(equations), x[:-1]
    if features is None:
        return values
    made = features.made(features.values, release)[..., 0]
    wanted = features.made(values[None], release)[0, :, 0]
    roots = _roots(features.values, made, wanted, lambda v: features.made(v, release)[..., 0])
    gaps = np.abs(roots - values)
    return np.where(gaps[0] > gaps[1], roots[0], roots[1])


def _features_of(equations: Eigen) -> _Features | None:
    single, rest = split_steps(equations.steps)
    where, known = np.asarray(equations.where), np.asarray(equations.known)
    if equations.form == "span" or not all(step.per_feature for step in single):
        return None
    scaler = rest[-1] if rest else None
    assert scaler is None or isinstance(scaler, Scaler)
    own = np.asarray(through(single, known))
    mean = own[:, where].mean(axis=0)
    centred = own[:, where] - mean
    left_singular, singular, turn = np.linalg.svd(centred, full_matrices=False)
    is_open = singular <= len(known) * np.finfo(np.float64).eps * singular[0]
    if len(known) <= len(where) or 2 * is_open.sum() > len(where):
        return None
    low, high = known[:, where].min(axis=0), known[:, where].max(axis=0)
    return _Features(
        record=np.asarray(equations.record),
        where=where,
        values=low + np.linspace(-REACH, 1 + REACH, N_GRID)[:, None] * (high - low),
        mean=mean,
        centred=centred,
        inverse=(turn[~is_open].T / singular[~is_open]) @ left_singular[:, ~is_open].T,
        open_turn=turn[is_open],
        behind=lambda x: np.asarray(through(single, jnp.asarray(x))),
        affine=_affine(scaler, own, where, mean),
        spacing=spacings(known[:, where]),
        spread=known[:, where].std(axis=0),
        known=known[:, where],
        is_centred=equations.is_centred,
    )


@dataclass(frozen=True)
class _Features:
    """What `feature_by_feature` knows of p features of d.

    Attributes:
        record: (d,), values of the features that do not vary.
        where: (p,), places of those that do.
        values: (v, p), what is tried.
        mean: (p,), of the known records, after single steps as `centred`.
        centred: (n-1, p).
        inverse: (p, n-1), of `centred`.
        open_turn: (o, p), directions in which the known records do not vary.
        behind: Function from records (m, d) to what single steps make of them.
        affine: Function from these to 1 / scale^2 and the scaler's centre less the mean, (m, p) each.
        spacing: (p,), steps in which values are recorded; 0 for none.
        spread: (p,), standard deviations of the known records.
        known: (n-1, p).
        is_centred: Whether records are centred after the scaler.
    """

    record: np.ndarray
    where: np.ndarray
    values: np.ndarray
    mean: np.ndarray
    centred: np.ndarray
    inverse: np.ndarray
    open_turn: np.ndarray
    behind: Callable[[np.ndarray], np.ndarray]
    affine: Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]
    spacing: np.ndarray
    spread: np.ndarray
    known: np.ndarray
    is_centred: bool

    def after(self, values: np.ndarray) -> np.ndarray:
        """Records (m, d) of values (m, p), after single steps."""
        x = np.tile(self.record, (len(values), 1))
        x[:, self.where] = values
        return self.behind(x)

    def made(self, values: np.ndarray, release: np.ndarray) -> np.ndarray:
        """g (m, p, k) for values (m, p) and a release (n, k)."""
        after = self.after(values)
        squares, centres = self.affine(after)
        along = self.centred.T @ release[1:] + (after[:, self.where] - self.mean)[..., None] * release[0]
        # Scores of centred records have no sum.
        shifted = 0.0 if self.is_centred else centres[..., None] * release.sum(axis=0)
        return squares[..., None] * (along - shifted)

    def usual(self) -> tuple[np.ndarray, np.ndarray]:
        """Means of `affine` over known records in the target's place."""
        squares, centres = self.affine(self.after(self.known))
        return squares.mean(axis=0), centres.mean(axis=0)


def _affine(
    scaler: Scaler | None, known: np.ndarray, where: np.ndarray, mean: np.ndarray
) -> Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]:
    """See `_Features`; known (n-1, d) after single steps. Scalers before another change nothing."""
    if scaler is None:
        return lambda y: (np.ones((len(y), len(where))), np.tile(-mean, (len(y), 1)))
    summary = scaler.summary(jnp.asarray(known))

    def affine(y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        found = _fitted(scaler, summary, jnp.asarray(y))
        return 1 / np.asarray(found.scale)[:, where] ** 2, np.asarray(found.centre)[:, where] - mean

    return affine


# Here, so that it is compiled once and not for each record.
@jax.jit
def _fitted(scaler: Scaler, summary: PyTree, y: jax.Array) -> Affine:
    """What the scaler makes of known records and each of y (m, d)."""
    return jax.vmap(lambda one: scaler.with_record(summary, one))(y)


def _by_trial(features: _Features, release: np.ndarray, form: Form) -> np.ndarray:
    """(p,) values that come closest to fulfilling the equations of a release (n, k), of those that are tried."""
    open_turn, centred = features.open_turn, features.centred
    own_scores = release[1:] - release[1:].mean(axis=0)
    slopes = features.inverse @ own_scores  # (p, k), g over the eigenvalues
    made = features.made(features.values, release)
    usual, usual_centre = features.usual()

    def solved(eigenvalues: np.ndarray, made: np.ndarray = made) -> tuple[float, np.ndarray]:
        """What the best values leave over, and their places among those tried."""
        found, at = usual[:, None] * (centred.T @ release[1:]), np.zeros(len(usual), int)
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
        unit, rows = (own_scores, centred) if features.is_centred else (release[1:], centred - usual_centre)
        unit = unit / np.linalg.norm(unit, axis=0)
        about = np.einsum("nk,nk->k", unit, (rows * usual) @ (rows.T @ unit))
        corners = np.concatenate([np.zeros((1, len(about))), 2 / len(centred) * np.eye(len(about))])
        few = made[::THINNED]
        search = scipy.optimize.minimize(
            lambda shift: solved(about * (1 + shift), few)[0],
            corners[0],
            method="Nelder-Mead",
            options=SEARCH | {"initial_simplex": corners - corners.mean(axis=0)},
        )
        eigenvalues = about * (1 + search.x)
    return np.take_along_axis(features.values, solved(eigenvalues)[1][None], axis=0)[0]


def _by_roots(features: _Features, release: np.ndarray, form: Form) -> np.ndarray:
    """(p,) values that fulfil the equations of one component's scores (n, 1).

    Each feature has two: that on the steps in which it is recorded, or, where neither or both are, those of all
    combinations that the target's own equation tells, and else that nearer to the known records.
    """
    del form
    open_turn, origin = features.open_turn, features.known[0]
    eigenvalue = float((release**2).sum())
    slopes = features.inverse @ (release[1:, 0] - release[1:, 0].mean())
    made = features.made(features.values, release)[..., 0]
    found, chosen = features.usual()[0] * (features.centred.T @ release[1:, 0]), features.mean
    for _ in range(N_REPEATS if len(open_turn) else 1):
        wanted = slopes * eigenvalue + open_turn.T @ (open_turn @ found)
        roots = _roots(features.values, made, wanted, lambda v: features.made(v, release)[..., 0])
        is_off = off_steps(roots, features.spacing, origin)
        away = np.abs(roots - features.known.mean(axis=0)) / features.spread
        # One of the two on the steps is right; else the nearer.
        second = np.where(is_off[0] == is_off[1], away[1] < away[0], is_off[0])
        if not len(open_turn):
            is_open = np.flatnonzero((is_off[0] == is_off[1]) & (roots[0] != roots[1]))
            return _combined(features, release, roots, second.astype(int), is_open, wanted)
        chosen = np.where(second, roots[1], roots[0])
        coarse = features.spacing > COARSE * np.ptp(features.values, axis=0)
        step = np.where(coarse, features.spacing, 1)
        chosen = np.where(coarse, origin + step * np.round((chosen - origin) / step), chosen)
        found = features.made(chosen[None], release)[0, :, 0]
    return chosen


def _roots(
    tried: np.ndarray, made: np.ndarray, wanted: np.ndarray, function: Callable[[np.ndarray], np.ndarray]
) -> np.ndarray:
    """(2, p) values at which a function is as wanted (p,), the first and the last; twice the nearest where none is.

    Args:
        tried: (values, p), increasing.
        made: (values, p), the function there.
        wanted: (p,).
        function: Function of values (m, p).
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
    """(p,) of two roots each (2, p), those that the target's own row of the equations tells of open choices.

    Args:
        features: Known records and scaler.
        release: (n, 1).
        roots: (2, p).
        choice: (p,), 0 or 1, the more likely ones.
        is_open: Places where nothing but likelihood speaks for the choice.
        wanted: (p,), g.
    """
    away = np.abs(roots - features.known.mean(axis=0)) / features.spread
    if len(is_open) > MOST_OPEN:
        # Those whose roots are most alike in likelihood are worth trying.
        is_open = is_open[np.argsort(np.abs(away[0] - away[1])[is_open])[:MOST_OPEN]]
    # Row 0 of W W^T theta: the target's offset from the mean of all n is (n-1)/n of that from the others'.
    offsets = features.after(roots)[:, features.where] - features.mean
    own = (1 - 1 / len(release)) * offsets * wanted
    eigenvalue, score = float((release**2).sum()), float(release[0, 0])
    left = eigenvalue * score - np.take_along_axis(own, choice[None], axis=0)[0].sum()
    bits = (np.arange(2 ** len(is_open))[:, None] >> np.arange(len(is_open))) & 1
    change = np.where(bits != choice[is_open], own[1 - choice[is_open], is_open] - own[choice[is_open], is_open], 0)
    energy = np.where(bits, away[1, is_open], away[0, is_open]) ** 2
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


@jax.jit
def _residuals(equations: Eigen, release: jax.Array, some: jax.Array) -> jax.Array:
    """(s, n k) residuals at records (s, p + 1)."""
    return jax.vmap(lambda u: jnp.asarray(equations.residual(release, u)))(some)


def is_ambiguous(equations: Eigen, given: np.ndarray, x: np.ndarray, held: np.ndarray) -> np.ndarray:
    """(m,) bool, whether one component leaves open which of two values features have.

    Known rows hold with either; row 0, of the target itself, tells which. It does not where features depend on each
    other, where it holds with the other value of one feature, too, and where there are so many combinations of likely
    values that some must fulfil it by chance. Values off the steps in which a feature is recorded are not likely.

    Args:
        equations: Equations in p features.
        given: (m, n, 1) releases.
        x: (m, p + 1), unknowns that fulfil them.
        held: (m,), root mean square of the residual up to which the equations of a release hold.
    """
    known = np.asarray(equations.known)[:, np.asarray(equations.where)]
    if np.linalg.matrix_rank(known) < known.shape[1]:
        return np.ones(len(given), bool)
    spacing, mean, spread = spacings(known), known.mean(axis=0), known.std(axis=0)
    found = np.zeros(len(given), bool)
    for lane, (release, own) in enumerate(zip(given, x, strict=True)):
        if not np.isfinite(own).all():
            continue
        other = other_values(equations, release, own)
        turned = np.tile(own, (len(other) + 1, 1))
        np.fill_diagonal(turned[:-1], other)
        left = np.asarray(_residuals(equations, jnp.asarray(release), jnp.asarray(turned)))
        away = np.abs(np.stack([own[:-1], other]) - mean) / spread
        is_likely = (np.abs(other - own[:-1]) > APART * spread) & (away[1] ** 2 - away[0] ** 2 < UNLIKELY)
        is_likely &= ~off_steps(other, spacing, known[0])
        moved = (left[:-1, 0] - left[-1, 0])[is_likely]
        # Where n equations hold in the mean, one of them alone may be off by this.
        within = np.sqrt(len(release)) * held[lane]
        of_sums = 0.5 * np.sqrt(np.sum(moved**2))
        n_by_chance = 2.0 ** len(moved) * within / max(float(of_sums), 1e-300)
        found[lane] = bool((np.abs(moved) <= within).any()) or (len(moved) > 0 and n_by_chance > BY_CHANCE)
    return found
